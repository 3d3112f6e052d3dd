//! Connects the prober with the engine: which containers have probes, how commands run in them, and where the
//! results go.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use driftless_docker::Docker;
use driftless_model::{
    AppName, ContainerId, Health, Healthcheck, Instance, Observed, Probes, Readiness, Record, Stack, State,
    Timestamp,
};
use driftless_plan::exclusive;

use crate::{
    error::chain,
    probe::{Exec, ExecError, ProbedContainer, Prober},
};

/// Runs the commands of probes through the engine.
pub(crate) struct EngineExec<D>(pub(crate) Arc<D>);

impl<D: Docker> Exec for EngineExec<D> {
    fn exec<'a>(
        &'a self,
        container: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<i64, ExecError>> + Send + 'a>> {
        Box::pin(async move {
            match self.0.probe(container, command, timeout).await {
                Ok(result) => Ok(result.code),
                Err(error) if error.is_unanswered() => Err(ExecError::Unanswered),
                Err(error) => Err(ExecError::Failed(chain(&error))),
            }
        })
    }

    fn is_answering(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move { self.0.ping().await.is_ok() })
    }

    fn check_health<'a>(
        &'a self,
        container: &'a ContainerId,
        check: &'a Healthcheck,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move { self.0.check_health(container, check).await.unwrap_or(false) })
    }
}

/// Tells the prober which containers of a stack run, and adds its results to the observed state.
///
/// Containers that are to be replaced have the probes of the version that they are of: one of the `others`.
pub(crate) fn add_readiness(
    prober: &Prober,
    (stack, others): (&Stack, &[&Stack]),
    app: &AppName,
    observed: &mut Observed,
    record: &Record,
) {
    let checked = health_checked_containers(prober, stack, observed);
    let ids: BTreeSet<ContainerId> = checked.iter().map(|checked| checked.container.clone()).collect();
    let mut containers: Vec<ProbedContainer> =
        probed_containers(stack, others, observed).into_iter().chain(checked).collect();
    containers.extend(still_running(prober.others(app, &containers), stack, observed));
    prober.set_containers(app, containers, &record.ready);
    let Observed { instances, parts, unanswered_probes, .. } = observed;
    for instance in instances.values_mut().chain(parts.values_mut()) {
        let State::Running { since, health } = instance.state else { continue };
        // Before the result: it is set first.
        if prober.is_unanswered(&instance.id, since) {
            unanswered_probes.insert(instance.id.clone());
        }
        let Some(found) = prober.readiness(&instance.id, since) else { continue };
        if ids.contains(&instance.id) {
            add_first_health(instance, &found);
            continue;
        }
        instance.readiness = match (health, found) {
            // A container with a health check of its own is ready only if both say so.
            (Health::Starting | Health::Unhealthy, Readiness::Ready { .. }) => continue,
            (Health::Healthy | Health::Starting | Health::Unhealthy, found) => found,
        };
    }
}

/// Counts the first success of a health check that the agent has run as if the engine had run it.
fn add_first_health(instance: &mut Instance, found: &Readiness) {
    let (State::Running { health, .. }, Readiness::Ready { since: first }) = (&mut instance.state, found)
    else {
        return;
    };
    *health = Health::Healthy;
    let since = match instance.readiness {
        Readiness::Ready { since } => since.min(*first),
        Readiness::Starting { .. } | Readiness::NotReady { .. } | Readiness::Dead { .. } => *first,
    };
    instance.readiness = Readiness::Ready { since };
    instance.healthy_before = false;
}

/// The containers whose health check the agent runs until it succeeds once, because the engine has no result yet. An instance
/// with data of its own is left to the engine: a database that prepares it may answer for a moment before it is ready.
fn health_checked_containers(prober: &Prober, stack: &Stack, observed: &Observed) -> Vec<ProbedContainer> {
    let mut containers = Vec::new();
    for instance in observed.instances.values() {
        let State::Running { since, health } = instance.state else { continue };
        let Some(check) = &instance.config.healthcheck else { continue };
        let Some(workload) = stack.workloads.get(&instance.instance.workload) else { continue };
        let is_pending = match health {
            Health::Starting => true,
            // The time of the engine's own first success is later.
            Health::Healthy => {
                let found = prober.readiness(&instance.id, since);
                !workload.min_ready.is_zero() && matches!(found, Some(Readiness::Ready { .. }))
            }
            Health::Unhealthy => false,
        };
        let is_test = matches!(check.test.as_slice(), [kind, _, ..] if kind == "CMD" || kind == "CMD-SHELL");
        let has_data = exclusive(workload).is_some() || !instance.anonymous_volumes.is_empty();
        if is_pending && is_test && !has_data && workload.probes == Probes::default() {
            containers.push(ProbedContainer {
                container: instance.id.clone(),
                address: None,
                started: since,
                probes: Probes::default(),
                health_check: Some(check.clone()),
            });
        }
    }
    containers
}

/// Those of these probed containers that run on, although the stack wants others now. They serve until they are replaced, and a
/// rollback wants them again: without results it would take their traffic away.
fn still_running(probed: Vec<ProbedContainer>, stack: &Stack, observed: &Observed) -> Vec<ProbedContainer> {
    if probed.is_empty() {
        return probed;
    }
    let running = observed.containers().filter_map(|found| match found.state {
        State::Running { since, .. } => Some((found.id.clone(), (since, found))),
        _ => None,
    });
    let running: BTreeMap<ContainerId, (Timestamp, &Instance)> = running.collect();
    let runs_on = |probed: &ProbedContainer| {
        let found = running.get(&probed.container).filter(|(since, _)| *since == probed.started);
        found.is_some_and(|(_, instance)| !is_current(stack, instance))
    };
    // A health check is the engine's own, and goes on there.
    let has_probes = |probed: &ProbedContainer| probed.probes != Probes::default();
    probed.into_iter().filter(|probed| has_probes(probed) && runs_on(probed)).collect()
}

fn probed_containers(stack: &Stack, others: &[&Stack], observed: &Observed) -> Vec<ProbedContainer> {
    let mut containers = Vec::new();
    for instance in observed.containers() {
        let State::Running { since, .. } = instance.state else { continue };
        // A commit that takes its probes away does not replace a container.
        let of_other = || {
            let probes = others.iter().find_map(|other| probes_of(other, instance));
            probes.filter(|_| !is_current(stack, instance))
        };
        let Some(probes) = probes_of(stack, instance).or_else(of_other) else { continue };
        // A part has the address of its pod.
        let pod = match &instance.part {
            Some(part) => observed.instances.get(&part.pod),
            None => Some(instance),
        };
        let Some(pod) = pod else { continue };
        let address = pod.networks.values().find_map(|network| network.ip.as_ref()?.parse().ok());
        let address = if pod.on_host_network() { Some([127, 0, 0, 1].into()) } else { address };
        // The start of the process: a successful health check moves the time of the health, not this one.
        containers.push(ProbedContainer {
            container: instance.id.clone(),
            address,
            started: since,
            probes: probes.clone(),
            health_check: None,
        });
    }
    containers
}

/// The probes of a container in a stack, if it has some and the container is as this stack says.
fn probes_of<'a>(stack: &'a Stack, instance: &Instance) -> Option<&'a Probes> {
    let workload = stack.workloads.get(&instance.instance.workload.whole())?;
    let probes = match &instance.part {
        Some(part) => &workload.part(&part.name)?.probes,
        None => &workload.probes,
    };
    // The hash takes longer than the other comparison.
    (*probes != Probes::default() && instance.spec == workload.spec()).then_some(probes)
}

/// Whether a container is as a stack says. The probes are no part of that.
pub(crate) fn is_current(stack: &Stack, instance: &Instance) -> bool {
    let workload = stack.workloads.get(&instance.instance.workload.whole());
    workload.is_some_and(|workload| instance.spec == workload.spec())
}
