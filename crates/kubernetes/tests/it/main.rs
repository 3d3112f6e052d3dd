//! Tests of the reader of Kubernetes manifests. Most of those of a single host are in `tests/it` of the program.

#![allow(clippy::unwrap_used, clippy::pedantic)]

// Volumes, ports, names and resources on a single host.
mod host;
// Texts of Secrets and encrypted files that findings may not show.
mod secret_texts;
// Manifests for a Docker Swarm.
mod swarm;
