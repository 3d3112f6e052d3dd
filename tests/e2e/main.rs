//! End-to-end tests on a real Docker Engine (`/var/run/docker.sock`), a real Git server and a real registry, in
//! one binary. Each uses names of its own and removes what it made. Helpers may unwrap.

#![allow(clippy::unwrap_used, clippy::pedantic, unreachable_pub)]

// The adapter against the engine, without the loop.
mod engine;
// The planner's Docker against the real one.
mod conformance;
// The harness of the tests of the whole agent.
mod harness;
// The harness itself: the parts that need no agent.
mod ground;
// From a Git URL to running containers.
mod deploy;
// The downward API, and requests to containers.
mod doctor;
mod downward;
// Drift is undone.
mod drift;
// Files changed inside running containers.
mod inside;
// Drift as a report.
mod report;
// Networks, processes and volumes of others.
mod sharing;
// Failed actions are retried with growing pauses.
mod backoff;
// Images are built from the commit.
mod build;
// Images that nothing needs any more.
mod image_cleanup;
mod image_updates;
// History, rollback, pins and suspension.
mod revisions;
// Commits that fail.
mod failed_commits;
// Hooks around a sync, and waves within it.
mod hooks;
// A Docker Swarm as the target, stacks of another tool in it, and three managers that fail.
mod swarm;
mod swarm_conformance;
mod swarm_images;
mod swarm_jobs;
mod swarm_kubernetes;
mod swarm_managers;
// The same Swarm while it updates services under load.
mod swarm_load;
// The Swarm in memory against a real one.
mod swarm_memory;
mod swarm_requests;
// Times at which commits are applied.
mod rollouts;
mod sync_windows;
// Signed commits.
mod trust;
// Secrets that are encrypted in Git.
mod secrets;
// Kills at any moment.
mod crash;
// Engines that are killed, stopped or out of space at the worst moment.
mod engine_faults;
// An engine that is reached with TLS and client certificates.
mod engine_tls;
// Several agents on one engine, and an agent without its state.
mod ownership;
// A push that a forge announces runs at once, also among other requests.
mod webhooks;
// Commit statuses at the forge.
mod statuses;
// Hosts that report to a collector.
mod fleet;
// A fleet of 25 agents: make fleet-proof.
mod fleet_proof;
// A full disk under the agent's state.
mod disk;
// Kubernetes manifests of several kinds.
mod kubernetes;
// Volumes of pods, and their modes.
mod volumes;
// Services that are more than names of their pods.
mod services;
// Published ports under load: no request fails.
mod availability;
// A shop of ten services.
mod kubernetes_shop;
// Registries that ask who we are.
mod registries;
// kubectl-compatible commands.
mod kubectl;
// Pods of several containers.
mod package;
mod pods;
// Pods that stay who they are.
mod stateful_sets;
// Work that ends.
mod batch;
// Adoption of containers of Docker Compose, and Docker Compose on containers of the agent.
mod adoption;
mod import;
// The commands of the documents.
mod guides;
// The same project by Docker Compose and by us, field by field.
mod differential;
// The same manifest by podman and by us, as its containers see it.
mod podman;
// The agent itself in a container.
mod contained;
