//! Connects the prober with the engine: which containers have probes, how commands run in them, and where the
//! results go.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use driftless_docker::Docker;
use driftless_model::{AppName, ContainerId, Health, Instance, Observed, Probes, Readiness, Stack, State};

use crate::{
    error::chain,
    probe::{Exec, ProbedContainer, Prober},
};

/// Runs the commands of probes through the engine.
pub(crate) struct EngineExec<D>(pub(crate) Arc<D>);

impl<D: Docker> Exec for EngineExec<D> {
    fn exec<'a>(
        &'a self,
        container: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<i64, String>> + Send + 'a>> {
        Box::pin(async move {
            let run = self.0.exec(container, command, timeout).await;
            run.map(|(code, _)| code).map_err(|error| chain(&error))
        })
    }
}

/// Tells the prober which containers of a stack run, and adds its results to the observed state.
pub(crate) fn add_readiness(prober: &Prober, stack: &Stack, app: &AppName, observed: &mut Observed) {
    prober.set_containers(app, probed_containers(stack, observed));
    let Observed { instances, parts, .. } = observed;
    for instance in instances.values_mut().chain(parts.values_mut()) {
        let State::Running { since, health } = instance.state else { continue };
        let Some(found) = prober.readiness(&instance.id, since) else { continue };
        instance.readiness = match (health, found) {
            // A container with a health check of its own is ready only if both say so.
            (Health::Starting | Health::Unhealthy, Readiness::Ready { .. }) => continue,
            (Health::Healthy | Health::Starting | Health::Unhealthy, found) => found,
        };
    }
}

fn probed_containers(stack: &Stack, observed: &Observed) -> Vec<ProbedContainer> {
    let mut containers = Vec::new();
    for instance in observed.containers() {
        let State::Running { since, .. } = instance.state else { continue };
        let Some(probes) = probes_of(stack, instance) else { continue };
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
        });
    }
    containers
}

/// The probes of a container, if it has some and is not outdated.
fn probes_of<'a>(stack: &'a Stack, instance: &Instance) -> Option<&'a Probes> {
    let workload = stack.workloads.get(&instance.instance.workload.whole())?;
    let probes = match &instance.part {
        Some(part) => &workload.part(&part.name)?.probes,
        None => &workload.probes,
    };
    // The hash takes longer than the other comparison.
    (*probes != Probes::default() && instance.spec == workload.spec()).then_some(probes)
}
