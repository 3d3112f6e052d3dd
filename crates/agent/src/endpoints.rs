//! Reports ready endpoints to proxies, and drains endpoints before their containers are stopped.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_docker::Docker;
use driftless_model::{AppName, ContainerId, ReadyEndpoints, Timestamp};
use driftless_plan::{Drain, ProxyEndpoints};
use futures_util::{StreamExt, future::join_all, stream};

use crate::{context::AppContext, error::chain};

/// The deadline of one report.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause after a failed report.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of proxies that receive a report at the same time.
const CONCURRENT: usize = 8;
/// Time that the probes of a new agent have to decide which instances are ready.
const FIRST_PROBES: Duration = Duration::from_secs(10);
/// The pause while they have not decided.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// The last report to each proxy of one application. It is lost with the agent, whose next round reports everything again.
///
/// A new agent knows no results of probes, and all instances would lose their traffic. A proxy that ran before keeps the
/// report of the former agent until each instance was probed once.
#[derive(Debug, Default)]
pub(crate) struct EndpointReports {
    reported: BTreeMap<ContainerId, (Timestamp, ReadyEndpoints)>,
    /// The last round could not report everything. It is logged once.
    has_failed: bool,
    /// The first round of this agent.
    began: Option<Timestamp>,
}

impl EndpointReports {
    /// Reports changed endpoints. Returns when to try again, if a report failed.
    pub(crate) async fn send<D: Docker>(
        &mut self,
        context: &AppContext,
        docker: &Arc<D>,
        proxies: Vec<ProxyEndpoints>,
    ) -> Option<Timestamp> {
        context.proxies().set(context.name(), &proxies);
        let now = context.now();
        let began = *self.began.get_or_insert(now);
        let is_early = now < began.after(FIRST_PROBES);
        let is_held = |proxy: &ProxyEndpoints| {
            let is_first = !self.reported.contains_key(&proxy.container);
            is_early && is_first && proxy.is_undecided && proxy.started < began
        };
        let (held, proxies): (Vec<_>, Vec<_>) = proxies.into_iter().partition(is_held);
        self.reported.retain(|id, _| proxies.iter().any(|proxy| proxy.container == *id));
        let is_new = |proxy: &ProxyEndpoints| {
            let known = self.reported.get(&proxy.container);
            known
                .is_none_or(|(started, endpoints)| *started != proxy.started || *endpoints != proxy.endpoints)
        };
        let changed: Vec<ProxyEndpoints> = proxies.into_iter().filter(is_new).collect();
        let reports = stream::iter(changed.into_iter().map(|proxy| report(docker, proxy)));
        let reports: Vec<_> = reports.buffer_unordered(CONCURRENT).collect().await;
        let mut retry = (!held.is_empty()).then(|| now.after(PROBE_PAUSE));
        let mut has_failed = false;
        for (proxy, result) in reports {
            let ProxyEndpoints { container, started, endpoints, .. } = proxy;
            match result {
                Ok(()) => {
                    self.reported.insert(container, (started, endpoints));
                }
                Err(error) => {
                    if !self.has_failed {
                        tracing::warn!(
                            container = container.short(),
                            error,
                            "could not report the ready instances to a proxy; trying again"
                        );
                    }
                    self.reported.remove(&container);
                    has_failed = true;
                    let again = context.now().after(RETRY);
                    retry = Some(retry.map_or(again, |earlier: Timestamp| earlier.min(again)));
                }
            }
        }
        self.has_failed = has_failed;
        retry
    }
}

/// Takes an endpoint out of its proxies and waits until its connections have ended, or its grace period has passed. If a
/// proxy does not take it, the container is stopped all the same.
pub(crate) async fn drain<D: Docker>(docker: &Arc<D>, app: &AppName, drains: &[Drain]) {
    let one = async |drain: &Drain| {
        let addresses = drain.addresses.iter().map(ToString::to_string);
        let words =
            ["proxy-drain".to_owned(), drain.grace.as_millis().to_string()].into_iter().chain(addresses);
        let command: Vec<String> = drain.entrypoint.iter().cloned().chain(words).collect();
        let error = match docker.exec(&drain.proxy, &command, drain.grace.saturating_add(DEADLINE)).await {
            Ok((0, _)) => return,
            Ok((code, output)) => format!("exit code {code}: {}", output.trim()),
            Err(error) => chain(&error),
        };
        tracing::warn!(app = %app, proxy = drain.proxy.short(), error,
            "could not wait for the connections of a container; it is stopped now");
    };
    join_all(drains.iter().map(one)).await;
}

async fn report<D: Docker>(docker: &Arc<D>, proxy: ProxyEndpoints) -> (ProxyEndpoints, Result<(), String>) {
    let words = std::iter::once("proxy-ready".to_owned()).chain(proxy.endpoints.words());
    let command: Vec<String> = proxy.entrypoint.iter().cloned().chain(words).collect();
    let result = match docker.exec(&proxy.container, &command, DEADLINE).await {
        Ok((0, _)) => Ok(()),
        Ok((code, output)) => Err(format!("exit code {code}: {}", output.trim())),
        Err(error) => Err(chain(&error)),
    };
    (proxy, result)
}
