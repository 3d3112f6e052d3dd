//! Tests of the reader of Kubernetes manifests. Those of a single host are in `tests/it` of the program.

#![allow(clippy::unwrap_used, clippy::pedantic)]

// Manifests for a Docker Swarm.
mod swarm;
