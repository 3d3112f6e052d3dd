//! Tests of the loader and of the rendering, in one binary.

#![allow(clippy::unwrap_used, clippy::pedantic)]

// Built images, by their content.
mod builds;
// Fixtures and their snapshots: stacks, findings, contents.
mod compose;
// The canonical form, compared with the reference parser.
mod corpus;
// Folders on disk as files in memory.
mod files;
// Several files as one application: include, extends, overrides, variables, profiles.
mod loading;
// Published ports: by the engine, or by a proxy.
mod published;
// Secrets in configs and labels: kept in memory, and masked.
mod secrets;
// Projects for Docker Swarm.
mod swarm;
// `deploy.update_config` and `deploy.rollback_config`.
mod updates;
