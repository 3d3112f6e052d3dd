//! End-to-end tests on a real Docker Engine (`/var/run/docker.sock`), a real Git server and a real registry, in
//! one binary. Each uses names of its own and removes what it made. Helpers may unwrap.

#![allow(clippy::unwrap_used, clippy::pedantic, unreachable_pub)]

// The adapter against the engine, without the loop.
mod engine;
// The planner's Docker against the real one.
mod conformance;
// What the tests of the whole agent stand on.
mod harness;
// The harness itself: the parts that need no agent.
mod ground;
// From a Git URL to running containers.
mod deploy;
// What containers are told about themselves, and requests to them.
mod downward;
// What is done by hand is undone.
mod drift;
// Files changed inside running containers.
mod inside;
// What is not as Git says, as a report.
mod report;
// Networks, processes and volumes of others.
mod sharing;
// What fails is tried again, ever more slowly.
mod backoff;
// Images are built from the commit.
mod build;
// History, rollback, pins and suspension.
mod revisions;
// Whose commits are applied.
mod trust;
// Whatever dies at whatever moment, the end is right.
mod crash;
// Several agents on one engine, and an agent without its state.
mod ownership;
// A push that a forge announces runs at once, whatever else is sent.
mod webhooks;
// What the forge is told of a commit.
mod statuses;
// A full disk under the agent's state.
mod disk;
// Kubernetes manifests of several kinds.
mod kubernetes;
// What pods mount, and who may write there.
mod volumes;
// Services that are more than names of their pods.
mod services;
// A shop of ten services.
mod kubernetes_shop;
// Registries that ask who we are.
mod registries;
// What hands know from kubectl.
mod kubectl;
// Pods of several containers.
mod pods;
// Pods that stay who they are.
mod stateful_sets;
// Work that ends.
mod batch;
// What Docker Compose started is taken over, and Docker Compose works on what we started.
mod adoption;
// The same project by Docker Compose and by us, field by field.
mod differential;
// The same manifest by podman and by us, as its containers see it.
mod podman;
// The agent itself in a container.
mod contained;
