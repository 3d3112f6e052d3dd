//! kubectl-compatible commands: `get`, `describe`, `rollout`, `logs`, `delete pod`, `delete job`, `create job`. They are clients of the
//! agent's API and print its objects in kubectl's columns and wording. `docs/kubectl.md` describes the mapping.
//!
//! There is no context and therefore no current namespace: without `-n`, the commands look in all namespaces.

mod age;
pub(super) mod args;
mod columns;
mod create;
mod delete;
mod describe;
mod event_objects;
mod events;
mod get;
mod jsonpath;
mod logs;
mod objects;
mod rollout;
mod target;
mod unobserved;

pub(super) use create::create;
pub(super) use delete::delete;
pub(super) use describe::describe;
pub(super) use get::get;
pub(super) use logs::logs;
pub(super) use rollout::rollout;
