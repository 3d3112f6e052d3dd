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

/// The last report to each proxy of one application. It is lost with the agent, whose next round reports everything again.
#[derive(Debug, Default)]
pub(crate) struct EndpointReports {
    reported: BTreeMap<ContainerId, (Timestamp, ReadyEndpoints)>,
    /// The last round could not report everything. It is logged once.
    has_failed: bool,
}

impl EndpointReports {
    /// Reports changed endpoints. Returns when to try again, if a report failed.
    pub(crate) async fn send<D: Docker>(
        &mut self,
        context: &AppContext,
        docker: &Arc<D>,
        proxies: Vec<ProxyEndpoints>,
    ) -> Option<Timestamp> {
        self.reported.retain(|id, _| proxies.iter().any(|proxy| proxy.container == *id));
        let is_new = |proxy: &ProxyEndpoints| {
            let known = self.reported.get(&proxy.container);
            known
                .is_none_or(|(started, endpoints)| *started != proxy.started || *endpoints != proxy.endpoints)
        };
        let changed: Vec<ProxyEndpoints> = proxies.into_iter().filter(is_new).collect();
        let reports = stream::iter(changed.into_iter().map(|proxy| report(docker, proxy)));
        let reports: Vec<_> = reports.buffer_unordered(CONCURRENT).collect().await;
        let mut retry = None;
        for (proxy, result) in reports {
            let ProxyEndpoints { container, started, endpoints, entrypoint: _ } = proxy;
            match result {
                Ok(()) => {
                    self.reported.insert(container, (started, endpoints));
                }
                Err(error) => {
                    if !self.has_failed {
                        tracing::warn!(app = %context.name(), container = container.short(), error,
                            "could not report the ready instances to a proxy; trying again");
                    }
                    self.reported.remove(&container);
                    retry = Some(context.now().after(RETRY));
                }
            }
        }
        self.has_failed = retry.is_some();
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
