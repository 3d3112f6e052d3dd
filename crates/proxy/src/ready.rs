//! The endpoints that may get traffic: what the agent has reported last, without those that are drained.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use driftless_model::{Forward, ReadyAddresses, ReadyEndpoints};

/// Time that a new proxy waits for the first report. Without an agent it then forwards to every pod.
const FIRST_REPORT: Duration = Duration::from_secs(3);

/// The endpoints that a proxy may forward to.
#[derive(Debug)]
pub struct Gate {
    /// `None`: every endpoint is ready.
    reported: Option<Reported>,
    leaving: Mutex<BTreeSet<IpAddr>>,
    /// Marked whenever the endpoints change.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Reported {
    /// The abstract name of the socket.
    socket: String,
    since: Instant,
    last: Mutex<Option<Report>>,
}

#[derive(Debug)]
struct Report {
    at: Instant,
    endpoints: ReadyEndpoints,
}

/// The ready addresses of one target.
pub(crate) enum Ready {
    /// The agent has not reported them yet.
    Unknown,
    /// All that the name resolves to.
    All,
    /// Reported at this time.
    These(Instant, BTreeSet<Ipv4Addr>),
}

impl Gate {
    /// A gate that admits every endpoint.
    pub fn open() -> Self {
        Self { reported: None, leaving: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// A gate that admits what the reports to this socket name. Without a report it admits nothing at first, and
    /// everything after three seconds: no agent runs then.
    pub fn by_report(socket: &str) -> Self {
        let reported = Reported { socket: socket.to_owned(), since: Instant::now(), last: Mutex::default() };
        Self { reported: Some(reported), ..Self::open() }
    }

    /// Replaces the ready endpoints. None of them is leaving any more; others that are drained stay so.
    pub fn report(&self, endpoints: ReadyEndpoints) {
        let addresses = |ready: &ReadyAddresses| match ready {
            ReadyAddresses::These(addresses) => addresses.clone(),
            ReadyAddresses::All => BTreeSet::new(),
        };
        let ready: BTreeSet<IpAddr> = endpoints.0.values().flat_map(addresses).map(IpAddr::from).collect();
        if let Some(reported) = &self.reported {
            *reported.last() = Some(Report { at: Instant::now(), endpoints });
        }
        self.leaving().retain(|address| !ready.contains(address));
        self.changed.send_replace(());
    }

    /// The last report, and the endpoints that are drained, for the next proxy.
    pub(crate) fn last(&self) -> Option<(ReadyEndpoints, Vec<IpAddr>)> {
        let report = self.reported.as_ref()?.last().as_ref().map(|last| last.endpoints.clone())?;
        Some((report, self.leaving().iter().copied().collect()))
    }

    /// Takes over the last report of the proxy before, unless it lacks a target. The agent will report soon. A proxy of an earlier
    /// release knew the instances by the former name alone.
    pub(crate) fn take_over(
        &self,
        endpoints: ReadyEndpoints,
        leaving: impl IntoIterator<Item = IpAddr>,
        ports: &[Forward],
    ) {
        let has_all = |port: &Forward| {
            let mut names = port.targets.iter().map(|(name, _)| endpoints.0.contains_key(name)).enumerate();
            names.clone().all(|(_, is_known)| is_known)
                || names.any(|(index, is_known)| is_known && port.is_former(index))
        };
        if !self.has_report() && ports.iter().all(has_all) {
            self.report(endpoints);
            self.drain(&leaving.into_iter().collect());
        }
    }

    /// Whether the agent has reported endpoints.
    pub(crate) fn has_report(&self) -> bool {
        self.reported.as_ref().is_some_and(|reported| reported.last().is_some())
    }

    /// The ready addresses of a target.
    pub(crate) fn ready(&self, name: &str) -> Ready {
        let Some(reported) = &self.reported else { return Ready::All };
        match &*reported.last() {
            Some(Report { at, endpoints }) => match endpoints.0.get(name) {
                Some(ReadyAddresses::All) => Ready::All,
                Some(ReadyAddresses::These(addresses)) => Ready::These(*at, addresses.clone()),
                None => Ready::These(*at, BTreeSet::new()),
            },
            None if reported.since.elapsed() >= FIRST_REPORT => Ready::All,
            None => Ready::Unknown,
        }
    }

    /// Whether an address of a target may get traffic.
    pub(crate) fn admits(&self, name: &str, address: Ipv4Addr) -> bool {
        if self.is_leaving(address.into()) {
            return false;
        }
        match self.ready(name) {
            Ready::Unknown => false,
            Ready::All => true,
            Ready::These(_, addresses) => addresses.contains(&address),
        }
    }

    /// Whether an endpoint gets no new traffic, because it will be stopped.
    pub(crate) fn is_leaving(&self, address: IpAddr) -> bool {
        self.leaving().contains(&address)
    }

    /// Waits until there is a first report, or none is expected any more.
    pub(crate) async fn first_report(&self) {
        let Some(reported) = &self.reported else { return };
        let mut changes = self.changes();
        if reported.last().is_some() {
            return;
        }
        let left = FIRST_REPORT.saturating_sub(reported.since.elapsed());
        let _ = timeout(left, changes.changed()).await;
    }

    /// The changes of the endpoints from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Gives endpoints with these addresses no new traffic, until they are reported as ready.
    pub(crate) fn drain(&self, addresses: &BTreeSet<IpAddr>) {
        self.leaving().extend(addresses);
        self.changed.send_replace(());
    }

    /// The abstract name of the socket for messages. `None`: the gate is open.
    pub(crate) fn socket(&self) -> Option<&str> {
        self.reported.as_ref().map(|reported| reported.socket.as_str())
    }

    fn leaving(&self) -> MutexGuard<'_, BTreeSet<IpAddr>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reported {
    fn last(&self) -> MutexGuard<'_, Option<Report>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn endpoints_are_admitted_as_reported() {
        let address = Ipv4Addr::new(10, 0, 0, 2);
        assert!(Gate::open().admits("_web", address));
        let gate = Gate::by_report("test");
        assert!(!gate.admits("_web", address), "the agent has a moment to report");
        gate.report(ReadyEndpoints::parse(["_web=10.0.0.2"]).unwrap());
        assert!(gate.admits("_web", address));
        assert!(!gate.admits("_web", Ipv4Addr::new(10, 0, 0, 3)) && !gate.admits("_other", address));
        gate.report(ReadyEndpoints::default());
        assert!(!gate.admits("_web", address), "no endpoint is ready");
        tokio::time::advance(FIRST_REPORT).await;
        assert!(!gate.admits("_web", address), "a report stays valid");

        let alone = Gate::by_report("test");
        tokio::time::advance(FIRST_REPORT).await;
        assert!(alone.admits("_web", address), "without an agent every pod gets traffic");
    }

    #[test]
    fn report_is_taken_over_if_it_has_all_targets() {
        let is_taken = |report: &str, forward: &str| {
            let gate = Gate::by_report("test");
            let forward: Forward = forward.parse().unwrap();
            gate.take_over(ReadyEndpoints::parse([report]).unwrap(), [], &[forward]);
            gate.has_report()
        };
        assert!(is_taken("_web=10.0.0.2", "80/tcp=_web:80"));
        assert!(!is_taken("_web=10.0.0.2", "80/tcp=_web:80,_api:80"));
        let forward = "80/tcp=_web.shop._proxy:80,_web._proxy:80";
        assert!(is_taken("_web._proxy=10.0.0.2", forward), "of an earlier release");
        for report in ["_web.shop._proxy=10.0.0.2", "_api._proxy=10.0.0.2"] {
            assert!(!is_taken(report, forward), "{report}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn drained_endpoint_gets_no_traffic_until_it_is_reported() {
        let address = Ipv4Addr::new(10, 0, 0, 2);
        let gate = Gate::by_report("test");
        gate.report(ReadyEndpoints::parse(["_web=10.0.0.2"]).unwrap());
        gate.drain(&[address.into()].into());
        assert!(!gate.admits("_web", address));
        gate.report(ReadyEndpoints::parse(["_web=10.0.0.3"]).unwrap());
        assert!(gate.is_leaving(address.into()), "another report does not end the drain");
        gate.report(ReadyEndpoints::parse(["_web=10.0.0.2"]).unwrap());
        assert!(gate.admits("_web", address), "it was not stopped after all");
    }
}
