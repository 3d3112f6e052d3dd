//! Adoption of what Docker Compose created: by request, or by the policy `adopt: auto`. The planner decides what can
//! be adopted and what happens to it.

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{Actor, Adopt, EngineKind, EventKind, Observed, Record};
use driftless_plan as plan;
use driftless_plan::{Claim, Claimed, Target};

use super::handler::RequestHandler;
use crate::request::{Answer, RequestError};
use crate::{context::AppContext, record::StoredRecord, revisions::fallback};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Adopts everything of this project that Docker Compose created, or nothing.
    pub(super) async fn adopt(&mut self) -> Result<Answer, RequestError> {
        let target = self.target()?;
        let name = self.context.name();
        if target.policy.adopt == Adopt::Never {
            let text = format!("`adopt` is `never` for {name}: allow it in the agent's configuration");
            return Err(RequestError::Refused(text));
        }
        if target.policy.engine == EngineKind::Swarm {
            return self.adopt_services(&target).await;
        }
        let scope = crate::observe::observe_scope(&target.stack, &target.images, self.record.get());
        let mut observed = self.observer.docker().observe(name, &scope).await?;
        let fallback = fallback(self.context, &target, self.record.get());
        let mask = self.context.mask_with_kept(&target.stack);
        let planned = target.for_planner(fallback.as_ref(), self.context.agent(), &mask);
        plan::merge_adopted(&mut observed, self.record.get(), self.context.agent());
        let mut record = self.record.get().clone();
        let claims = plan::adopt(&mut record, &planned, &observed).map_err(|obstacles| {
            RequestError::Refused(format!("{name} cannot be adopted: {}", obstacles.join("; ")))
        })?;
        if !claims.is_empty() {
            self.record.replace(self.context, record)?;
        }
        report_adoption(self.context, self.actor, &claims);
        Ok(Answer::Adopted(claims.iter().map(ToString::to_string).collect()))
    }
}

/// Adopts without a request if the policy says so. The plan names what prevents an adoption.
pub(crate) fn adopt_by_policy(
    context: &AppContext,
    record: &mut StoredRecord,
    target: &Target<'_>,
    observed: &Observed,
) {
    // Services cannot take containers over.
    let is_swarm = target.policy.engine == EngineKind::Swarm;
    if target.policy.adopt != Adopt::Auto || target.policy.suspended || is_swarm {
        return;
    }
    // A container that only has the right name may be meant for something else: a user decides.
    let without_names = observed.candidates.values().any(|candidate| candidate.by_name).then(|| {
        let mut observed = observed.clone();
        observed.candidates.retain(|_, candidate| !candidate.by_name);
        observed
    });
    let observed = without_names.as_ref().unwrap_or(observed);
    if let Ok(claims) = plan::adopt(record.get_mut(), target, observed)
        && !claims.is_empty()
    {
        // Stored before anything is done about it. If that fails, a restarted agent adopts again.
        record.save(context);
        report_adoption(context, &Actor::agent(), &claims);
    }
}

fn report_adoption(context: &AppContext, actor: &Actor, claims: &[Claim]) {
    for claim in claims {
        let kind = match claim.what {
            Claimed::Container { .. } => "container",
            Claimed::Network { .. } => "network",
            Claimed::Volume => "volume",
        };
        tracing::info!(kind, object = claim.name, "adopted");
        let message = match claim.what {
            Claimed::Container { by_name: true, .. } => format!("adopted by its name; {claim}"),
            Claimed::Container { .. } | Claimed::Network { .. } | Claimed::Volume => {
                format!("adopted from Docker Compose; {claim}")
            }
        };
        context.event_by(actor, EventKind::Normal, "Adopted", &claim.name, &message);
    }
}

/// Adopts in a copy of the live state. Returns the objects that can be adopted, one sentence each, and the obstacles
/// because of which none of them would be.
pub(crate) fn adopt_in_dry_run(
    target: &Target<'_>,
    observed: &mut Observed,
    record: &mut Record,
) -> (Vec<String>, Vec<String>) {
    plan::merge_adopted(observed, record, target.agent);
    let claims = plan::survey(target, observed);
    let sentences: Vec<String> = claims.iter().map(ToString::to_string).collect();
    if sentences.is_empty() {
        return (sentences, Vec::new());
    }
    let obstacles = match target.policy {
        policy if policy.adopt == Adopt::Never => vec!["the policy `adopt` is `never`".to_owned()],
        policy if policy.suspended => vec!["the application is suspended".to_owned()],
        _ => match plan::adopt(record, target, observed) {
            Ok(_) => {
                plan::merge_adopted(observed, record, target.agent);
                Vec::new()
            }
            Err(obstacles) => obstacles,
        },
    };
    (sentences, obstacles)
}
