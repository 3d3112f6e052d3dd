//! Reports ready endpoints to proxies, and drains endpoints before their containers are stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use driftless_docker as docker;
use driftless_docker::{CommandResult, Docker};
use driftless_model::{
    AppName, ContainerId, EngineKind, Observed, ReadyAddresses, ReadyEndpoints, Record, Stack, Timestamp,
};
use driftless_plan::{Drain, Plan, ProxyEndpoints, has_proxies, proxy_endpoints, undecided_stops};
use futures_util::{StreamExt, future::join_all, stream};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{context::AppContext, error::chain, observe::Observer, revisions::target::TargetRevision};

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

/// The pause between two reports while a plan is executed.
const MEANWHILE: Duration = Duration::from_secs(1);

/// The last report to each proxy of one application. It is lost with the agent, whose next round reports everything again.
///
/// The probes of a new agent may not have said yet which instances are ready, and those would lose their traffic. A proxy that
/// ran before keeps the report of the former agent until each instance was probed once, and no instance behind it is stopped
/// until then: the former report may name no other one.
#[derive(Debug, Default)]
pub(crate) struct EndpointReports {
    /// The endpoints that each proxy forwards to: its last report without those that were drained since.
    reported: BTreeMap<ContainerId, (Timestamp, ReadyEndpoints)>,
    /// Proxies that did not take the last report. That is logged once.
    failed: BTreeSet<ContainerId>,
    /// The first round of this agent.
    began: Option<(Timestamp, Instant)>,
}

/// The consequences of the reports of a round.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// When to report again: one failed or is held.
    pub(crate) again: Option<Timestamp>,
    /// Containers that the plan stops before it is known which other ones are ready.
    pub(crate) too_early: BTreeSet<ContainerId>,
}

/// A plan that is executed.
pub(crate) struct Executing<'a> {
    pub(crate) target: &'a TargetRevision,
    pub(crate) record: &'a Record,
    pub(crate) plan: &'a Plan,
    pub(crate) stopping: &'a Stopping,
    /// Cancelled when all steps have ended.
    pub(crate) end: &'a CancellationToken,
}

/// The containers that are being stopped. While it is locked, no further stop begins.
#[derive(Debug, Default)]
pub(crate) struct Stopping(Mutex<Stopped>);

/// The stops of a plan that have begun.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    containers: BTreeSet<ContainerId>,
    /// The addresses that proxies have drained, until the memory of the reports lacks them too.
    drained: Vec<(ContainerId, BTreeSet<Ipv4Addr>)>,
    /// The proxies that did not take a drain, until their next report.
    undrained: BTreeSet<ContainerId>,
}

impl Stopping {
    pub(crate) fn new(containers: BTreeSet<ContainerId>) -> Self {
        Self(Mutex::new(Stopped { containers, ..Stopped::default() }))
    }

    /// A container will be stopped now, after its drains. Waits until the reports under way have arrived, which may still
    /// name it.
    pub(crate) async fn begin(&self, container: &ContainerId) {
        self.0.lock().await.containers.insert(container.clone());
    }

    /// These drains are over. The proxies in `failed` did not take theirs.
    pub(crate) async fn note_drained(&self, drains: &[Drain], failed: BTreeSet<ContainerId>) {
        let mut stopped = self.0.lock().await;
        let taken = drains.iter().filter(|drain| !failed.contains(&drain.proxy));
        stopped.drained.extend(taken.map(|drain| (drain.proxy.clone(), drain.addresses.clone())));
        stopped.undrained.extend(failed);
    }

    async fn lock(&self) -> MutexGuard<'_, Stopped> {
        self.0.lock().await
    }
}

impl EndpointReports {
    /// Reports changed endpoints before a plan is executed, which stops some containers at once.
    pub(crate) async fn send<D: Docker>(
        &mut self,
        context: &AppContext,
        docker: &Arc<D>,
        (stack, observed, plan): (&Stack, &Observed, &Plan),
        stopped: &BTreeSet<ContainerId>,
    ) -> Reported {
        let proxies = proxy_endpoints(stack, observed, plan, stopped);
        context.proxies().set(context.name(), &proxies);
        let lost: Vec<_> =
            proxies.iter().map(|proxy| (proxy.container.clone(), proxy.loses.clone())).collect();
        let (began, _) = *self.began.get_or_insert_with(|| (context.now(), Instant::now()));
        // Before the report, which may take as long as the probes have.
        let is_early = self.is_early();
        let mut reported = self.report(context, docker, proxies).await;
        if is_early {
            let unreported = lost.into_iter().filter(|(proxy, _)| !self.reported.contains_key(proxy));
            reported.too_early = undecided_stops(stack, observed, plan, began);
            reported.too_early.extend(unreported.flat_map(|(_, containers)| containers));
        }
        if !reported.too_early.is_empty() {
            reported.again = Timestamp::earliest(reported.again, Some(context.now().after(PROBE_PAUSE)));
        }
        reported
    }

    /// Whether the first probes of this agent may not have decided yet.
    fn is_early(&self) -> bool {
        self.began.is_some_and(|(_, began)| began.elapsed() < FIRST_PROBES)
    }

    async fn report<D: Docker>(
        &mut self,
        context: &AppContext,
        docker: &Arc<D>,
        proxies: Vec<ProxyEndpoints>,
    ) -> Reported {
        let is_early = self.is_early();
        let is_held = |proxy: &ProxyEndpoints| {
            let is_first = !self.reported.contains_key(&proxy.container);
            let is_older = self.began.is_some_and(|(began, _)| proxy.started < began);
            is_early && is_first && proxy.is_undecided && is_older
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
        let mut again = (!held.is_empty()).then(|| context.now().after(PROBE_PAUSE));
        let mut failed = BTreeSet::new();
        for (proxy, result) in reports {
            let ProxyEndpoints { container, started, endpoints, .. } = proxy;
            match result {
                Ok(()) => {
                    self.reported.insert(container, (started, endpoints));
                }
                Err(error) => {
                    if self.failed.is_empty() {
                        tracing::warn!(
                            container = container.short(),
                            error,
                            "could not report the ready instances to a proxy; trying again"
                        );
                    }
                    self.reported.remove(&container);
                    failed.insert(container);
                    again = Timestamp::earliest(again, Some(context.now().after(RETRY)));
                }
            }
        }
        self.failed = failed;
        Reported { again, too_early: BTreeSet::new() }
    }

    /// Reports changed endpoints while a plan is executed: a step may take as long as a grace period, and what is not ready
    /// any more must lose its traffic before. A report under way is completed, because it must not arrive after the first
    /// one of the next round.
    pub(crate) async fn send_meanwhile<D: Docker>(
        &mut self,
        context: &AppContext,
        observer: &mut Observer<D>,
        executing: Executing<'_>,
    ) {
        self.send_until_end(context, observer, &executing).await;
        executing.end.cancelled().await;
        self.note_drained(&mut *executing.stopping.lock().await);
    }

    async fn send_until_end<D: Docker>(
        &mut self,
        context: &AppContext,
        observer: &mut Observer<D>,
        executing: &Executing<'_>,
    ) {
        let Executing { target, record, plan, stopping, end } = executing;
        if target.policy.engine == EngineKind::Swarm || !has_proxies(&target.stack) {
            return;
        }
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                () = sleep(MEANWHILE) => {}
            }
            let found = tokio::select! {
                () = end.cancelled() => return,
                found = observer.observe_meanwhile(context, target, record) => found,
            };
            let Some(found) = found else { continue };
            let mut stopped = stopping.lock().await;
            self.note_drained(&mut stopped);
            let mut proxies = proxy_endpoints(&target.stack, &found, plan, &stopped.containers);
            // One that does not answer would hold up each stop. It has its turn in the next round.
            let silent = self.failed.clone();
            proxies.retain(|proxy| !silent.contains(&proxy.container));
            self.report(context, observer.docker(), proxies).await;
            self.failed.extend(silent);
        }
    }

    /// Forgets addresses that were drained as reported. A proxy forwards to such an address again only if a later report
    /// names it: a new container may have it, and then the endpoints are the same as before. A proxy that did not take a drain
    /// forwards to its addresses until the next report, which is due at once.
    fn note_drained(&mut self, stopped: &mut Stopped) {
        for proxy in mem::take(&mut stopped.undrained) {
            self.reported.remove(&proxy);
        }
        for (proxy, addresses) in mem::take(&mut stopped.drained) {
            let Some((_, endpoints)) = self.reported.get_mut(&proxy) else { continue };
            for ready in endpoints.0.values_mut() {
                if let ReadyAddresses::These(ready) = ready {
                    ready.retain(|address| !addresses.contains(address));
                }
            }
        }
    }
}

/// Takes an endpoint out of its proxies and waits until its connections have ended, or its grace period has passed. If a
/// proxy does not take it, the container is stopped all the same. Returns these proxies.
pub(crate) async fn drain<D: Docker>(
    docker: &Arc<D>,
    app: &AppName,
    drains: &[Drain],
) -> BTreeSet<ContainerId> {
    let one = async |drain: &Drain| {
        let addresses = drain.addresses.iter().map(ToString::to_string);
        let words =
            ["proxy-drain".to_owned(), drain.grace.as_millis().to_string()].into_iter().chain(addresses);
        let command: Vec<String> = drain.entrypoint.iter().cloned().chain(words).collect();
        let ran = docker.exec(&drain.proxy, &command, drain.grace.saturating_add(DEADLINE)).await;
        let Err(error) = success(ran) else { return None };
        tracing::warn!(app = %app, proxy = drain.proxy.short(), error,
            "could not wait for the connections of a container; it is stopped now");
        Some(drain.proxy.clone())
    };
    join_all(drains.iter().map(one)).await.into_iter().flatten().collect()
}

async fn report<D: Docker>(docker: &Arc<D>, proxy: ProxyEndpoints) -> (ProxyEndpoints, Result<(), String>) {
    let words = std::iter::once("proxy-ready".to_owned()).chain(proxy.endpoints.words());
    let command: Vec<String> = proxy.entrypoint.iter().cloned().chain(words).collect();
    let ran = docker.exec(&proxy.container, &command, DEADLINE).await;
    (proxy, success(ran))
}

/// Whether a command of a proxy ran and succeeded. An error is in words.
fn success(ran: Result<CommandResult, docker::Error>) -> Result<(), String> {
    ran.map_err(|error| chain(&error))?.success().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn drained_address_is_reported_again() {
        let (proxy, old) = (ContainerId::from("proxy"), ContainerId::from("old"));
        let endpoints = ReadyEndpoints::parse(["_web=10.0.0.3,10.0.0.4", "_host.db=*"]).unwrap();
        let mut reports = EndpointReports::default();
        reports.reported.insert(proxy.clone(), (Timestamp(0), endpoints.clone()));
        let drain = Drain {
            proxy: proxy.clone(),
            entrypoint: Vec::new(),
            addresses: [Ipv4Addr::new(10, 0, 0, 3)].into(),
            grace: Duration::ZERO,
        };
        let stopping = Stopping::default();
        stopping.begin(&old).await;
        reports.note_drained(&mut *stopping.lock().await);
        assert_eq!(reports.reported[&proxy].1, endpoints, "the drain is not over");
        stopping.note_drained(std::slice::from_ref(&drain), BTreeSet::new()).await;
        reports.note_drained(&mut *stopping.lock().await);
        let (_, forwarded) = &reports.reported[&proxy];
        assert_eq!(*forwarded, ReadyEndpoints::parse(["_web=10.0.0.4", "_host.db=*"]).unwrap());
        assert_ne!(*forwarded, endpoints, "a successor with the address makes a report that differs");
        assert!(stopping.lock().await.drained.is_empty());

        // The proxy forwards to the address until a report lacks it, so one is due.
        stopping.note_drained(&[drain], [proxy.clone()].into()).await;
        assert!(stopping.lock().await.drained.is_empty());
        reports.note_drained(&mut *stopping.lock().await);
        assert!(!reports.reported.contains_key(&proxy));
    }
}
