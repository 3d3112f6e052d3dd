//! All integration tests that need no Docker Engine, in one binary, so that the crate links once.
//! Helpers may unwrap: `allow-unwrap-in-tests` only covers test functions themselves.

#![allow(clippy::unwrap_used, clippy::pedantic, clippy::type_complexity)]

// Rules on what manifests may contain.
mod admission;
// The shape of the code itself.
// Applications that wait for others.
mod access;
mod app_dependencies;
mod architecture;
// The shell steps of the templates for CI.
mod ci_steps;
// Signatures whose keys change while the agent runs.
mod commit_trust;
// Output of the commands, and the program as a client.
mod begun_replacements;
mod behind_proxy;
mod cli;
mod columns;
// The documents: their examples, commands and links.
mod docs;
mod docs_evidence;
// Either format as the other, and what of it is lost.
mod convert;
// Folders that are applications, and the copies of tracked files in the folders of the agent.
mod app_files;
mod discover;
// Files that SOPS encrypted.
mod encrypted_files;
// Hosts that report to collectors.
mod first_hosts;
mod fleet;
mod fleet_keys;
mod fleet_objects;
mod fleet_view;
// Commit statuses and comments at the forge.
mod forge;
// Broken input for the readers of strangers' files.
mod failures;
mod fuzz;
// Hashes that an upgrade must not change.
mod hashes;
// The tag of a proxy's image.
mod helper_image;
// kubectl-compatible objects and commands.
mod kubectl;
// Kubernetes manifests, field by field.
mod kubernetes;
// Manifests of other people: which share of them renders.
mod kubernetes_corpus;
// Manifests as the tests about them render them.
mod kubernetes_manifests;
// Kinds beyond the Deployment, and what they refer to.
mod kubernetes_kinds;
// By which names and ports of the host pods are reached.
mod kubernetes_reach;
// The downward API.
mod kubernetes_downward;
// Manifests that the API server refuses, rule by rule, and which claim gets which storage.
mod kubernetes_rules;
// Secret values in everything that can be read.
mod masked_places;
mod masking;
// Small files that describe something very large.
mod bombs;
// Kustomizations, against kustomize itself.
mod kustomize;
// The owner of existing containers: application and agent.
mod object_server;
mod oidc;
mod openapi;
mod ownership;
// The last plan and refusals name only work that was done.
mod last_plan;
// The key of the database is lost.
mod log_lines;
mod lost_key;
// Jobs that somebody deletes.
mod deleted_jobs;
// Hooks before and after a sync, and before a removal.
mod hooks;
// Variables that lie on the host.
mod host_values;
// The ready-made jobs for CIs, by running their steps.
mod install_script;
mod jobs;
// Metrics for Prometheus, their dashboard and rules.
mod metrics;
// Notifications, against servers that keep what they get, and real ones.
mod notifications;
// Ports that a test gives up and takes again.
mod ports;
// `preview` and `drift` as programs: Git repositories, exit codes, forges.
mod preview;
// The proxy of Services, over real sockets.
mod program;
mod proxy;
mod proxy_moves;
// One report in all its forms.
mod reload;
mod report;
// Sample applications and an agent's side that answers, for `cli` and `web`.
mod sample;
// Commits that fail.
mod failed_commits;
// Commits that lose their health after they were reached.
mod lost_health;
// Commits that meet a paused rollout.
mod paused_rollouts;
// Times at which commits are applied.
mod sync_windows;
mod tls;
mod traffic;
// Applications that leave Git.
mod removal;
// Updates of a share of the instances.
mod canaries;
// Numbers of instances that users set for a time.
mod scales;
// Settings of one application, and errors among them.
mod schema_trace;
mod settings;
mod settings_in_git;
mod setup;
// An engine that answers nothing.
mod engine_hangs;
// Containers that keep exiting.
mod crash_loops;
// The whole agent on simulated Docker and Git, with everything going wrong.
mod simulation;
mod socket;
// The agents of several managers on a Swarm in memory.
mod swarm_jobs;
mod swarm_simulation;
// Images that nothing needs any more.
mod image_cleanup;
mod image_signatures;
mod image_updates;
// The API, the event stream and the page.
mod browser;
mod other_engine;
mod page;
mod web;
// Plain words in comments, documents and names of tests.
mod words;
// Forges that ring, over real sockets, and strangers that only say so.
mod webhooks;
