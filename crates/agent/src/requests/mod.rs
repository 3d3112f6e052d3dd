//! Requests of users about one application: what answers each of them.
//!
//! A request changes the record, the pin or the suspension, and is answered once that is stored. The rounds that follow
//! do the rest.

pub(crate) mod adopt;
mod create_job;
mod drift;
mod forget;
mod given_values;
mod handler;
mod plan;
mod promote;
mod remove;
mod rollback;
mod scale;
mod settings;
mod swarm;
mod sync;
mod without_agent;
mod workload;

use driftless_docker::Docker;
use driftless_git::CommitSource;

use crate::request::{Answer, RequestError, RequestKind};

pub(crate) use handler::RequestHandler;
use remove::Hooks;

pub use drift::Inspector;
pub use plan::{StackPlan, plan_stack};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Answers a request. It is done, or the rounds that follow do it.
    pub(crate) async fn answer(&mut self, kind: &RequestKind) -> Result<Answer, RequestError> {
        self.refuse_in_swarm(kind)?;
        match kind {
            RequestKind::Sync => Ok(self.sync()),
            RequestKind::AcceptRewrite(seen) => self.accept_rewrite(seen.as_deref()),
            RequestKind::Prune => self.confirm_prune().await,
            RequestKind::Retry => self.retry().await,
            RequestKind::Heal => self.heal().await,
            RequestKind::UpdateImages => self.update_images().await,
            RequestKind::Remove(removal) => self.remove(*removal, Hooks::Run).await,
            RequestKind::ForceRemove(removal) => self.remove(*removal, Hooks::Skip).await,
            RequestKind::Forget => self.forget(),
            RequestKind::Rollback(rollback) => self.roll_back(rollback),
            RequestKind::Resume => self.resume().await,
            RequestKind::Suspend => self.suspend(),
            RequestKind::Plan => self.plan().await.map(Answer::Plan),
            RequestKind::PlanAfter(supposed) => self.plan_after(supposed).await.map(Answer::Plan),
            RequestKind::Drift(against) => {
                self.inspect(against).await.map(|inspection| Answer::Drift(Box::new(inspection)))
            }
            RequestKind::Settings => Ok(self.settings()),
            RequestKind::Adopt => self.adopt().await,
            RequestKind::Restart(name) => self.restart(name).await,
            RequestKind::CreateJob(from, name) => self.create_job(from, name).await,
            RequestKind::DeleteJob(name) => self.delete_job(name).await,
            RequestKind::Pause(name) => self.pause(name),
            RequestKind::Unpause(name) => self.unpause(name),
            RequestKind::Scale(scale) => self.scale(scale),
            RequestKind::ResetScale(name) => self.reset_scale(name),
            RequestKind::Promote(promotion) => self.promote(promotion),
            RequestKind::Abort => self.abort(),
            RequestKind::DeleteInstance(name) => self.delete_instance(name).await,
        }
    }
}
