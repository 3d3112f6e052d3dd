//! Trials of definitions: before a running container makes way for its successor, the engine is asked whether it accepts that one.
//! If it does not, the container is not stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{sync::Semaphore, time::Instant};

use driftless_docker as docker;
use driftless_docker::Docker;
use driftless_model::{ContainerId, Instance, Mask, Observed, SpecHash, State};
use driftless_plan::{Action, ContainerRef, Creation, Plan, StepOutcome, stopped_at_once};

use crate::{error::chain, interrupt::Interrupt, turns::Turns};

/// The number of definitions of one application with a remembered verdict; more if a single plan has more.
const MAX_VERDICTS: usize = 256;

/// The number of definitions of one application that are tried at the same time.
const CONCURRENT_TRIALS: usize = 4;

/// The time for which an accepted definition is not tried again. An engine that starts again may have another configuration.
const ACCEPTED_FOR: Duration = Duration::from_mins(10);

/// The verdicts of the engine on the definitions of one application, so that a rollout tries each once.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    verdicts: BTreeMap<Definition, Verdict>,
}

/// A definition: the id of the engine's data, and its hash.
type Definition = (String, SpecHash);

/// The answer of an engine to a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// At this time.
    Accepted(Instant),
    Refused {
        /// The reason, masked.
        error: String,
        /// Another try ends in the same way.
        is_final: bool,
    },
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
    /// Tries the definitions that follow the stops of a plan, and finds the stops that must not begin. A refused definition is
    /// tried again with its step: of an object in `held`, the last verdict holds. An engine that does not answer, or lacks the
    /// image, says nothing about a definition. An interrupt ends the trials, and no stop begins after it.
    pub(crate) async fn rejected_stops<D: Docker>(
        &mut self,
        (docker, turns): (&D, &Turns),
        (plan, observed): (&Plan, &Observed),
        held: &BTreeSet<String>,
        mask: &Mask,
        interrupt: &Interrupt,
    ) -> RejectedStops {
        let engine = observed.engine_data.as_ref().map(|data| data.id.clone()).unwrap_or_default();
        let successors = successors(plan, observed);
        let mut untried = BTreeMap::new();
        for (index, creations) in &successors {
            if held.contains(plan.steps[*index].action.object()) {
                continue;
            }
            for creation in creations {
                let key = (engine.clone(), creation.spec.clone());
                let is_accepted = matches!(
                    self.verdicts.get(&key), Some(Verdict::Accepted(at)) if at.elapsed() < ACCEPTED_FOR
                );
                if !is_accepted {
                    untried.insert(key, *creation);
                }
            }
        }
        let definitions = successors.values().flatten();
        let planned: BTreeSet<Definition> =
            definitions.map(|creation| (engine.clone(), creation.spec.clone())).collect();
        self.make_room(&planned);
        let limit = Semaphore::new(CONCURRENT_TRIALS);
        let mut answers = FuturesUnordered::new();
        for (key, creation) in untried {
            let limit = &limit;
            answers.push(async move {
                let _own = limit.acquire().await.ok();
                let _of_all = turns.trial().await;
                (key, docker.try_definition(creation).await)
            });
        }
        while let Some(Some((key, answer))) = interrupt.token().run_until_cancelled(answers.next()).await {
            self.note(key, answer, mask);
        }
        let mut rejected = RejectedStops::default();
        for (index, creations) in successors {
            for creation in creations {
                let verdict = self.verdicts.get(&(engine.clone(), creation.spec.clone()));
                let Some(Verdict::Refused { error, is_final }) = verdict else { continue };
                let (error, is_final) = (error.clone(), *is_final);
                rejected.outcomes.insert(index, StepOutcome::Failed { error, retry_after: None, is_final });
                rejected.containers.extend(stopped(&plan.steps[index].action).cloned());
            }
        }
        rejected
    }

    /// Forgets the verdicts on the definitions of older plans, if there may be too many with those of this one.
    fn make_room(&mut self, planned: &BTreeSet<Definition>) {
        if self.verdicts.len().saturating_add(planned.len()) > MAX_VERDICTS {
            self.verdicts.retain(|definition, _| planned.contains(definition));
        }
    }

    /// Remembers an answer. One that says nothing about the definition changes no verdict.
    fn note(&mut self, key: Definition, answer: Result<(), docker::Error>, mask: &Mask) {
        let verdict = match answer {
            Ok(()) => Verdict::Accepted(Instant::now()),
            Err(error) => {
                let is_final = matches!(error, docker::Error::Rejected { .. });
                if !is_final && !error.is_refused_by_host() {
                    tracing::debug!(error = chain(&error), "could not try a definition");
                    return;
                }
                let message = format!("{}; the running container is kept", chain(&error));
                Verdict::Refused { error: mask.message(&message), is_final }
            }
        };
        self.verdicts.insert(key, verdict);
    }
}

/// The definitions for which running containers make way, by the steps that stop these: the containers of an older definition, those of
/// a workload that hands over its data or port, and those that share namespaces with one of them and are stopped before it.
fn successors<'a>(plan: &'a Plan, observed: &Observed) -> BTreeMap<usize, Vec<&'a Creation>> {
    let leaving: BTreeSet<&ContainerId> =
        plan.steps.iter().filter_map(|step| stopped(&step.action)).collect();
    let running = |index: usize| -> Option<&Instance> {
        let container = observed.container(stopped(&plan.steps[index].action)?)?;
        matches!(container.state, State::Running { .. } | State::Paused).then_some(container)
    };
    let created = |network: &String| {
        let mut actions = plan.steps.iter().map(|step| &step.action);
        actions.any(|action| matches!(action, Action::CreateNetwork { name, .. } if name == network))
    };
    // The engine could not find the containers that it shares something with, or would count their volumes as its own. And newer
    // engines look for its fixed addresses in the networks as they are now.
    let is_independent = |creation: &Creation| {
        let mut networks = creation.container.networks().iter();
        creation.container.volumes_from.is_empty()
            && !creation.peers.values().any(|peer| leaving.contains(peer))
            && !networks.any(|(name, joined)| joined.fixed_addresses().next().is_some() && created(name))
    };
    let mut successors = BTreeMap::new();
    for index in (0..plan.steps.len()).filter(|index| running(*index).is_some()) {
        let later = up_to_creations(plan, index);
        let old: Vec<&Instance> = later.iter().filter_map(|index| running(*index)).collect();
        // The engine has accepted a definition of which a container runs.
        let is_new = |creation: &Creation| {
            let has_it = |old: &&Instance| {
                old.instance.workload == creation.instance.workload && old.spec == creation.spec
            };
            !old.iter().any(has_it)
        };
        let creations = later.iter().filter_map(|index| match &plan.steps[*index].action {
            Action::CreateInstance(creation) => Some(creation.as_ref()),
            _ => None,
        });
        let creations: Vec<&Creation> =
            creations.filter(|creation| is_new(creation) && is_independent(creation)).collect();
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

#[cfg(test)]
mod tests {
    use driftless_model::{Attachment, Container, Format, InstanceId, Network, NetworkMode, Timestamp};
    use driftless_plan::{Cause, RequiredSignature, Step, World};

    use super::*;

    /// A container with a fixed address, or one without.
    fn creation(address: Option<&str>) -> Creation {
        let attachment = Attachment { ipv4: address.map(str::to_owned), ..Attachment::default() };
        let networks = BTreeMap::from([("shop_lan".to_owned(), Box::new(attachment))]);
        let container = Container {
            image: "dns:1".to_owned(),
            network_mode: NetworkMode::Networks(networks),
            ..Container::default()
        };
        Creation {
            app: "shop".into(),
            agent: "ours".into(),
            format: Format::Compose,
            project: "shop".to_owned(),
            instance: InstanceId { workload: "dns".into(), slot: 1 },
            name: "shop-dns-1".to_owned(),
            spec: SpecHash::of(&container),
            container,
            image: None,
            made_image: None,
            signature: RequiredSignature::None,
            inherit: BTreeMap::new(),
            peers: BTreeMap::new(),
            part: None,
            manifests: Vec::new(),
            depends_on: Vec::new(),
        }
    }

    fn network() -> Action {
        let (name, project) = ("shop_lan".to_owned(), "shop".to_owned());
        Action::CreateNetwork { name, network: Network::default(), project, addresses: None }
    }

    fn step(action: Action, after: Vec<usize>) -> Step {
        Step { action, cause: Cause::SpecChanged, after }
    }

    #[test]
    fn verdicts_on_one_plan_are_kept_though_they_are_many() {
        let of = |number: usize| ("engine".to_owned(), SpecHash(number.to_string()));
        let mask = Mask::new([7; 32]);
        let mut trials = Trials::default();
        for number in 0..MAX_VERDICTS {
            trials.note(of(number), Ok(()), &mask);
        }
        let planned: BTreeSet<Definition> = (1..=2 * MAX_VERDICTS).map(of).collect();
        trials.make_room(&planned);
        let (doing, message) = ("create db".to_owned(), "unknown log opt".to_owned());
        trials.note(of(1), Err(docker::Error::Rejected { doing, message }), &mask);
        for number in 2..=2 * MAX_VERDICTS {
            trials.note(of(number), Ok(()), &mask);
        }
        assert!(matches!(trials.verdicts.get(&of(1)), Some(Verdict::Refused { is_final: true, .. })));
        assert_eq!(trials.verdicts.len(), planned.len());
    }

    #[test]
    fn address_in_a_network_of_the_same_plan_is_not_tried() {
        let mut world = World::default();
        let mut apply = |action: &Action| world.apply(&"ours".into(), action, Timestamp(0)).unwrap();
        apply(&Action::ImportImage { image: "dns:1".to_owned() });
        apply(&network());
        let old = apply(&Action::CreateInstance(Box::new(creation(Some("172.30.7.10"))))).unwrap();
        let container = ContainerRef::Id(old, "shop-dns-1".to_owned());
        apply(&Action::StartInstance { container: container.clone() });
        let tried = |address: Option<&str>, first: Vec<Step>| {
            let stop = Action::StopInstance { container: container.clone(), grace: None };
            let created = Action::CreateInstance(Box::new(creation(address)));
            let mut plan = Plan { steps: first, ..Plan::default() };
            plan.steps.push(step(stop, vec![]));
            plan.steps.push(step(created, vec![plan.steps.len() - 1]));
            successors(&plan, &world.observed).len()
        };
        assert_eq!(tried(Some("172.31.7.10"), vec![]), 1);
        assert_eq!(tried(Some("172.31.7.10"), vec![step(network(), vec![])]), 0);
        assert_eq!(tried(None, vec![step(network(), vec![])]), 1);
    }
}
