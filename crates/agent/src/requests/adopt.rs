//! Taking over what Docker Compose started: when somebody asks for it, or unasked where the policy says so. What
//! may be taken over, and what becomes of it, is for [`plan::adopt`].

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{Adopt, EventKind, Observed, Record};
use driftless_plan as plan;
use driftless_plan::{Claim, Claimed, Target};

use crate::{
    Answer, RequestError,
    app::{App, interest},
    error::chain,
};

impl<D: Docker, S: Source> App<D, S> {
    /// Where the policy is `auto`, what Docker Compose made is ours as soon as it is seen. What is in the way is
    /// said by the plan.
    pub(crate) fn adopt_unasked(&mut self, target: &Target<'_>, observed: &Observed) {
        if target.policy.adopt != Adopt::Auto || target.policy.suspended {
            return;
        }
        if let Ok(claims) = plan::adopt(&mut self.record, target, observed)
            && !claims.is_empty()
        {
            self.remember_adoption(&claims);
        }
    }

    /// Takes over everything of this project that Docker Compose made, or nothing and says why.
    pub(crate) async fn adopt(&mut self) -> Result<Answer, RequestError> {
        let refused = |error: &dyn std::error::Error| RequestError::Refused(chain(error));
        let Some(goal) = self.goal().map_err(|it| refused(&it))? else {
            return Err(RequestError::Refused(format!(
                "{} has nothing to apply: see its findings",
                self.name
            )));
        };
        if goal.policy.adopt == Adopt::Never {
            return Err(RequestError::Refused(format!(
                "`adopt` is `never` for {}: allow it in the agent's configuration",
                self.name
            )));
        }
        let observed = self.shared.docker.observe(&self.name, &interest(&goal, &self.record)).await;
        let mut observed = observed.map_err(|it| refused(&it))?;
        let fallback = self.fallback(&goal);
        let mask = self.mask_of(&goal.stack, fallback.as_ref());
        let target = Target {
            stack: &goal.stack,
            fallback: fallback.as_ref(),
            agent: &self.shared.agent,
            policy: &goal.policy,
            images: &goal.images,
            mask: &mask,
        };
        plan::embrace(&mut observed, &self.record, &self.shared.agent);
        let before = self.record.clone();
        let claims = plan::adopt(&mut self.record, &target, &observed).map_err(|obstacles| {
            RequestError::Refused(format!("{} cannot be taken over: {}", self.name, obstacles.join("; ")))
        })?;
        if !claims.is_empty()
            && let Err(error) = self.shared.store.save_record(&self.name, &self.record)
        {
            self.record = before;
            return Err(refused(&error));
        }
        self.tell_adoption(&claims);
        Ok(Answer::Adopted(claims.iter().map(ToString::to_string).collect()))
    }

    /// Written down before anything is done about it. Where that fails it is done again after a restart.
    fn remember_adoption(&mut self, claims: &[Claim]) {
        self.keep_record();
        self.tell_adoption(claims);
    }

    fn tell_adoption(&self, claims: &[Claim]) {
        for claim in claims {
            let kind = match claim.what {
                Claimed::Container { .. } => "container",
                Claimed::Network { .. } => "network",
                Claimed::Volume => "volume",
            };
            tracing::info!(app = %self.name, kind, object = claim.name, "taken over from docker compose");
            let message = format!("taken over from docker compose; {claim}");
            self.tell(EventKind::Normal, "Adopted", &claim.name, &message);
        }
    }
}

/// What would be taken over, for people, and how things would stand afterwards.
pub(crate) fn rehearse(target: &Target<'_>, observed: &mut Observed, record: &mut Record) -> Vec<String> {
    plan::embrace(observed, record, target.agent);
    let claims = plan::survey(target, observed);
    let lines = claims.iter().map(ToString::to_string).collect();
    let is_allowed = target.policy.adopt != Adopt::Never && !target.policy.suspended;
    if is_allowed && plan::adopt(record, target, observed).is_ok() {
        plan::embrace(observed, record, target.agent);
    }
    lines
}
