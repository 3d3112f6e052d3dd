//! A dry run: the same planner over the same kind of Docker as the tests use, from what is observed now.

use std::{collections::BTreeMap, path::PathBuf};

use driftless_clock::Clock;
use driftless_docker::{Docker, Engine, EngineOptions, ObserveScope, RegistryLogins};
use driftless_git::Source;
use driftless_model::{AgentId, Mask, Observed, Policy, Record, Stack};
use driftless_plan as plan;
use driftless_plan::{Target, forecast, stack_diff};

use crate::{
    Error, Preview, RequestError,
    app::{App, interest},
    error::chain,
    probe_targets,
};

impl<D: Docker, S: Source> App<D, S> {
    /// What would be done from here on, if all went well.
    pub(crate) async fn preview(&mut self) -> Result<Preview, RequestError> {
        let refused = |error: &dyn std::error::Error| RequestError::Refused(chain(error));
        let Some(goal) = self.goal().map_err(|it| refused(&it))? else {
            return Err(RequestError::Refused(format!(
                "{} has nothing to apply: see its findings",
                self.name
            )));
        };
        let observed = self.shared.docker.observe(&self.name, &interest(&goal, &self.record)).await;
        let mut observed = observed.map_err(|it| refused(&it))?;
        probe_targets::overlay(&self.shared.prober, &goal.stack, &self.name, &mut observed);
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
        Ok(look_ahead(&target, &observed, &self.record, self.shared.clock))
    }
}

/// What an agent without any memory would do with a stack, against a Docker host. Nothing is done.
pub async fn preview(stack: &Stack, docker_host: &str) -> Result<Preview, Error> {
    // An agent of this name never runs, so nothing is taken to be ours but what would be new. Containers of a
    // real agent are shown as being in the way.
    let nowhere = PathBuf::from("/nonexistent");
    let clock = Clock::System;
    let owner = AgentId(String::new());
    let engine = Engine::connect(EngineOptions {
        host: docker_host.to_owned(),
        agent: owner.clone(),
        content_dir: nowhere.clone(),
        secret_dir: nowhere.clone(),
        app_dir: nowhere,
        registries: RegistryLogins::default(),
        clock,
    })
    .map_err(Error::Docker)?;
    let observed = engine.observe(&stack.app, &ObserveScope::of(stack)).await.map_err(Error::Docker)?;
    // Whoever runs this application here is the one whose next steps are asked for.
    let agent = observed.instances.values().map(|it| it.agent.clone()).next().unwrap_or(owner);
    let (policy, images) = (Policy::default(), BTreeMap::new());
    let mask = Mask::new(crate::random_key()).with_stacks([stack]);
    let target =
        Target { stack, fallback: None, agent: &agent, policy: &policy, images: &images, mask: &mask };
    let mut record = Record::default();
    plan::suppose_delivered(&mut record, &target, &observed.instances);
    Ok(look_ahead(&target, &observed, &record, clock))
}

fn look_ahead(target: &Target<'_>, observed: &Observed, record: &Record, clock: Clock) -> Preview {
    let (mut observed, mut record) = (observed.clone(), record.clone());
    plan::embrace(&mut observed, &record, target.agent);
    // What is waited for as things stand, before anything is taken over.
    let first = plan::plan(target, &observed, &record, clock.now());
    let adoption = crate::requests::adopt::rehearse(target, &mut observed, &mut record);
    let plans = forecast(target, &observed, &record, clock.now());
    let mut waits: Vec<String> = first.waits.iter().map(ToString::to_string).collect();
    // What stands at the end stands for good.
    waits.extend(plans.last().into_iter().flat_map(|it| &it.waits).map(ToString::to_string));
    waits.dedup();
    let steps = |it: &plan::Plan| it.steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    Preview {
        rounds: plans.iter().map(steps).filter(|it| !it.is_empty()).collect(),
        adoption,
        waits,
        diff: stack_diff(target.stack, &observed, target.mask),
    }
}
