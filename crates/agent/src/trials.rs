//! Trials of definitions: before a running container makes way for its successor, the engine is asked whether it accepts that one.
//! If it does not, the container is not stopped.

use std::collections::{BTreeMap, BTreeSet};

use driftless_docker as docker;
use driftless_docker::Docker;
use driftless_model::{ContainerId, Instance, Mask, Observed, SpecHash};
use driftless_plan::{Action, ContainerRef, Creation, Plan, StepOutcome, stopped_at_once};

use crate::error::chain;

/// The number of definitions of one application whose verdict is remembered.
const MAX_VERDICTS: usize = 256;

/// The verdicts of the engine on the definitions of one application, so that a rollout tries each once.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    /// By the id of the engine's data and the definition.
    verdicts: BTreeMap<(String, SpecHash), Verdict>,
}

/// The answer of an engine to a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    /// With its reason, masked.
    Rejected(String),
}

/// The stops of a plan that must not begin, because the engine rejects a definition that follows.
#[derive(Debug, Default)]
pub(crate) struct RejectedStops {
    /// By the index of the step.
    outcomes: BTreeMap<usize, StepOutcome>,
    containers: BTreeSet<ContainerId>,
}

impl RejectedStops {
    /// The outcome of a step, if it must not begin.
    pub(crate) fn outcome(&self, index: usize) -> Option<&StepOutcome> {
        self.outcomes.get(&index)
    }

    /// The containers that a plan stops before anything else, without those that go on running.
    pub(crate) fn stopped_at_once(&self, plan: &Plan) -> BTreeSet<ContainerId> {
        let mut stopped = stopped_at_once(plan);
        stopped.retain(|container| !self.containers.contains(container));
        stopped
    }
}

impl Trials {
    /// Tries the definitions that follow the stops of a plan, and finds the stops that must not begin. A rejected definition is
    /// tried again with its step: of an object in `held`, the last verdict holds. An engine that does not answer, or lacks the
    /// image, says nothing about a definition.
    pub(crate) async fn rejected_stops<D: Docker>(
        &mut self,
        docker: &D,
        (plan, observed): (&Plan, &Observed),
        held: &BTreeSet<String>,
        mask: &Mask,
    ) -> RejectedStops {
        let engine = observed.engine_data.as_ref().map(|data| data.id.clone()).unwrap_or_default();
        let mut rejected = RejectedStops::default();
        let mut tried = BTreeSet::new();
        for (index, creations) in successors(plan, observed) {
            let action = &plan.steps[index].action;
            for creation in creations {
                let key = (engine.clone(), creation.spec.clone());
                let is_known = match self.verdicts.get(&key) {
                    Some(Verdict::Accepted) => true,
                    Some(Verdict::Rejected(_)) => held.contains(action.object()),
                    None => false,
                };
                if !is_known && tried.insert(creation.spec.clone()) {
                    let answer = docker.try_definition(creation).await;
                    self.note(key.clone(), answer, mask);
                }
                let Some(Verdict::Rejected(error)) = self.verdicts.get(&key) else { continue };
                let (error, retry_after) = (error.clone(), None);
                rejected.outcomes.insert(index, StepOutcome::Failed { error, retry_after, is_final: true });
                rejected.containers.extend(stopped(action).cloned());
            }
        }
        rejected
    }

    /// Remembers an answer. One that says nothing about the definition changes no verdict.
    fn note(&mut self, key: (String, SpecHash), answer: Result<(), docker::Error>, mask: &Mask) {
        let verdict = match answer {
            Ok(()) => Verdict::Accepted,
            Err(error @ docker::Error::Rejected { .. }) => {
                let message = format!("{}; the running container is kept", chain(&error));
                Verdict::Rejected(mask.message(&message))
            }
            Err(error) => {
                tracing::debug!(error = chain(&error), "could not try a definition");
                return;
            }
        };
        if self.verdicts.len() >= MAX_VERDICTS {
            self.verdicts.clear();
        }
        self.verdicts.insert(key, verdict);
    }
}

/// The definitions for which running containers make way, by the steps that stop these: a container of the same workload with
/// another definition, or one that shares its namespaces and is stopped before it.
fn successors<'a>(plan: &'a Plan, observed: &Observed) -> BTreeMap<usize, Vec<&'a Creation>> {
    let leaving: BTreeSet<&ContainerId> =
        plan.steps.iter().filter_map(|step| stopped(&step.action)).collect();
    let running = |index: usize| -> Option<&Instance> {
        let container = observed.container(stopped(&plan.steps[index].action)?)?;
        container.is_running().then_some(container)
    };
    // The engine could not find the containers that it shares something with, or would count their volumes as its own.
    let is_independent = |creation: &Creation| {
        creation.container.volumes_from.is_empty()
            && !creation.peers.values().any(|peer| leaving.contains(peer))
    };
    let mut successors = BTreeMap::new();
    for index in (0..plan.steps.len()).filter(|index| running(*index).is_some()) {
        let later = up_to_creations(plan, index);
        let old: Vec<&Instance> = later.iter().filter_map(|index| running(*index)).collect();
        let replaces_one = |creation: &Creation| {
            let is_replaced = |old: &&Instance| {
                old.instance.workload == creation.instance.workload && old.spec != creation.spec
            };
            old.iter().any(is_replaced)
        };
        let creations = later.iter().filter_map(|index| match &plan.steps[*index].action {
            Action::CreateInstance(creation) => Some(creation.as_ref()),
            _ => None,
        });
        let creations: Vec<&Creation> =
            creations.filter(|creation| replaces_one(creation) && is_independent(creation)).collect();
        if !creations.is_empty() {
            successors.insert(index, creations);
        }
    }
    successors
}

/// The container that a step stops.
fn stopped(action: &Action) -> Option<&ContainerId> {
    match action {
        Action::StopInstance { container: ContainerRef::Id(id, _), .. } => Some(id),
        _ => None,
    }
}

/// A step, and the steps that come after it and not after another creation.
fn up_to_creations(plan: &Plan, first: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::from([first]);
    for (index, step) in plan.steps.iter().enumerate().skip(first + 1) {
        let leads_here = |earlier: &usize| {
            found.contains(earlier) && !matches!(plan.steps[*earlier].action, Action::CreateInstance(_))
        };
        if step.after.iter().any(leads_here) {
            found.insert(index);
        }
    }
    found
}
