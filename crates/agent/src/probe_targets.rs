//! Joins the prober to the engine: which containers it probes, how it runs commands in them, and what it found.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{probe::Exec, probe::Prober, probe::Target};
use driftless_docker::Docker;
use driftless_model::{AppName, ContainerId, Health, Instance, Observed, Readiness, Stack, State};

use crate::error::chain;

/// Runs a probe's command through the engine.
pub(crate) struct ThroughEngine<D>(pub(crate) Arc<D>);

impl<D: Docker> Exec for ThroughEngine<D> {
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

/// Tells the prober whom to probe, and writes what it found into the observation.
pub(crate) fn overlay(prober: &Prober, stack: &Stack, app: &AppName, observed: &mut Observed) {
    let wanted = |it: &Instance| {
        let workload = stack.workloads.get(&it.instance.workload.whole())?;
        let asked = match &it.part {
            Some(of) => &workload.part(&of.name)?.probes,
            None => &workload.probes,
        };
        (it.spec == workload.spec()).then(|| asked.clone())
    };
    let mut targets = Vec::new();
    for instance in observed.containers() {
        let State::Running { since, .. } = instance.state else { continue };
        let Some(wanted) = wanted(instance) else { continue };
        // A part is reached where its pod is.
        let pod = instance.part.as_ref().map_or(Some(instance), |it| observed.instances.get(&it.pod));
        let Some(pod) = pod else { continue };
        let address = pod.networks.values().find_map(|it| it.ip.as_ref()?.parse().ok());
        let address = if pod.on_host_network() { Some([127, 0, 0, 1].into()) } else { address };
        // The start as the engine tells it: the health check's own success moves `since`, not this.
        targets.push(Target { container: instance.id.clone(), address, started: since, probes: wanted });
    }
    prober.want(app, targets);
    let Observed { instances, parts, .. } = observed;
    for instance in instances.values_mut().chain(parts.values_mut()) {
        let State::Running { since, health } = instance.state else { continue };
        let Some(found) = prober.readiness(&instance.id, since) else { continue };
        instance.readiness = match (health, found) {
            // The container's own health check, where it has one, must agree.
            (Health::Starting | Health::Unhealthy, Readiness::Ready { .. }) => continue,
            (Health::Healthy | Health::Starting | Health::Unhealthy, found) => found,
        };
    }
}
