//! A Swarm in memory: services, tasks, nodes, configs, secrets and networks, with the words and the order of a real one.
//!
//! It is asked as an engine is, by calls of its API ([`api`]), so observation and actions are those of the real engine. All
//! that happens by itself depends on the simulated clock alone: a call sees all that has become due until then.
//! `tests/e2e/swarm_memory.rs` compares it with a real Swarm.
//!
//! | module | content |
//! |---|---|
//! | `api` | the calls of the API |
//! | `cluster` | the objects, their versions, and the passing of time |
//! | `node`, `service`, `task`, `rollout` | one object each |
//! | `nodes` | nodes that fail and leave, and their leader |
//! | `normal_form` | specifications as an engine returns them |
//! | `orchestrator`, `jobs` | which tasks there are |
//! | `scheduler` | on which node a task runs |
//! | `task_runner` | what nodes do with their tasks |
//! | `updater` | updates of services |

mod api;
mod cluster;
mod jobs;
mod node;
mod nodes;
mod normal_form;
mod orchestrator;
mod rollout;
mod scheduler;
mod service;
mod simulated_swarm;
mod swarm_faults;
mod task;
mod task_runner;
#[cfg(test)]
mod tests;
mod updater;

pub use cluster::EndedTask;
pub use node::Outage;
pub use simulated_swarm::{SimulatedSwarm, SwarmWrite};
pub use swarm_faults::SwarmFaults;
