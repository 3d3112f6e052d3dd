//! Requests that need containers of this host, refused for an application of a Docker Swarm.

use driftless_model::EngineKind;

use super::handler::RequestHandler;
use crate::request::{RequestError, RequestKind};

impl<D, S> RequestHandler<'_, D, S> {
    /// Refuses a request that has no meaning in a Swarm yet, and names the command that does it.
    pub(super) fn refuse_in_swarm(&mut self, kind: &RequestKind) -> Result<(), RequestError> {
        let Some(advice) = advice(kind) else { return Ok(()) };
        // Without a target the request itself says so.
        let is_swarm = self.target().is_ok_and(|target| target.policy.engine == EngineKind::Swarm);
        if is_swarm { Err(RequestError::Refused(advice.to_owned())) } else { Ok(()) }
    }
}

/// The answer to a request that a Swarm does not have. `None`: it has it.
fn advice(kind: &RequestKind) -> Option<&'static str> {
    match kind {
        RequestKind::Scale(_) | RequestKind::ResetScale(_) => {
            Some("services of a Swarm are not scaled by request yet: change `deploy.replicas` in Git")
        }
        RequestKind::Restart(_) | RequestKind::DeleteInstance(_) => Some(
            "tasks of a Swarm are not replaced by request yet: run `docker service update --force SERVICE`, which is no drift",
        ),
        RequestKind::Adopt => Some(
            "services of a Swarm are not adopted by request yet: set `adopt: auto`, which adopts those of `docker stack deploy`",
        ),
        RequestKind::Pause(_) | RequestKind::Unpause(_) => Some(
            "rollouts of a Swarm are not paused by request: set `deploy.update_config` in Git, or run `driftless suspend`",
        ),
        RequestKind::Promote(_) | RequestKind::Abort => {
            Some("canaries are not supported with `engine: swarm` yet")
        }
        RequestKind::UpdateImages => Some(
            "registries are not asked for newer images with `engine: swarm` yet: write the new tag to Git",
        ),
        RequestKind::Plan | RequestKind::PlanAfter(_) => Some(
            "a dry run does not know a Swarm yet: `driftless preview` compares two commits, and `driftless status` shows drift and what is waited for",
        ),
        RequestKind::CreateJob(..)
        | RequestKind::Sync
        | RequestKind::AcceptRewrite
        | RequestKind::Prune
        | RequestKind::Retry
        | RequestKind::Heal
        | RequestKind::Remove(_)
        | RequestKind::ForceRemove(_)
        | RequestKind::Forget
        | RequestKind::Rollback(_)
        | RequestKind::Resume
        | RequestKind::Suspend
        | RequestKind::Drift(_)
        | RequestKind::Settings => None,
    }
}
