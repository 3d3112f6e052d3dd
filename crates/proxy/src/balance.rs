//! The endpoint for a client: the one that the client had before, or the one with the fewest connections.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of clients that are remembered. Beyond that, the ones that were seen least recently go first.
const MOST: usize = 65_536;
/// The time for which an endpoint that did not accept a connection comes after all others.
const AVOIDED: Duration = Duration::from_secs(1);
/// Endpoints without connections that are kept beyond the present ones.
const SPARE: usize = 64;

/// The endpoints of one port, and which client goes where.
#[derive(Debug)]
pub(crate) struct Balance {
    affinity: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    turn: usize,
    known: BTreeMap<IpAddr, (SocketAddr, Instant)>,
    endpoints: BTreeMap<SocketAddr, Arc<Endpoint>>,
}

/// An endpoint of one port, with its counters.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    /// Connections, or clients that send datagrams.
    active: AtomicUsize,
    /// It gets no new traffic: it is not ready any more, or will be stopped.
    is_leaving: AtomicBool,
    /// The moment of the last failed connection, and of the last datagram to it, as [`moment`] says. 0: none.
    failed_at: AtomicU64,
    sent_at: AtomicU64,
}

/// One connection to an endpoint, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Endpoint>);

impl Lease {
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Whether the endpoint gets no new traffic, and may be stopped when its connections have ended.
    pub(crate) fn is_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::Relaxed)
    }

    /// Notes that the endpoint did not accept a connection.
    pub(crate) fn fail(&self) {
        self.0.failed_at.store(moment(), Ordering::Relaxed);
    }

    /// Notes that the endpoint was sent a datagram.
    pub(crate) fn note_datagram(&self) {
        self.0.sent_at.store(moment(), Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // With `active` below: what happened before, such as the end of the shift, is seen by all that see this.
        self.0.active.fetch_sub(1, Ordering::Release);
    }
}

impl Endpoint {
    fn lease(self: &Arc<Self>) -> Lease {
        self.active.fetch_add(1, Ordering::Relaxed);
        Lease(Arc::clone(self))
    }

    fn is_avoided(&self) -> bool {
        is_within(&self.failed_at, AVOIDED)
    }
}

impl Balance {
    pub(crate) fn new(affinity: Option<Duration>) -> Self {
        Self { affinity, state: Mutex::default() }
    }

    /// The endpoint for a client, without those that were tried. It is remembered at once as the one of this client, which
    /// may come again before it is connected.
    pub(crate) fn choose(
        &self,
        client: IpAddr,
        addresses: &[SocketAddr],
        tried: &[SocketAddr],
    ) -> Option<Lease> {
        let mut state = self.state();
        let state = &mut *state;
        let known = self.known(state, client);
        let known = known.filter(|it| addresses.contains(it) && !tried.contains(it));
        let chosen = if let Some(address) = known {
            address
        } else {
            state.turn = state.turn.wrapping_add(1);
            state.least_used(addresses, tried)?
        };
        if let (None, Some(time)) = (known, self.affinity) {
            state.remember(client, chosen, time);
        }
        let lease = state.endpoint(chosen).lease();
        state.forget_others(addresses);
        Some(lease)
    }

    /// Remembers where a client was sent.
    pub(crate) fn sent(&self, client: IpAddr, endpoint: SocketAddr) {
        if let Some(time) = self.affinity {
            self.state().remember(client, endpoint, time);
        }
    }

    /// A connection to this endpoint that was made before.
    pub(crate) fn lease(&self, endpoint: SocketAddr) -> Lease {
        self.state().endpoint(endpoint).lease()
    }

    /// The clients with a remembered endpoint, and the time since they were there.
    pub(crate) fn clients(&self) -> Vec<(IpAddr, SocketAddr, Duration)> {
        self.state().known.iter().map(|(client, (endpoint, at))| (*client, *endpoint, at.elapsed())).collect()
    }

    /// Remembers a client that was there so long ago.
    pub(crate) fn restore(&self, client: IpAddr, endpoint: SocketAddr, ago: Duration) {
        if let (Some(time), Some(at)) = (self.affinity, Instant::now().checked_sub(ago)) {
            let mut state = self.state();
            state.remember(client, endpoint, time);
            if let Some((_, since)) = state.known.get_mut(&client) {
                *since = at;
            }
        }
    }

    /// Marks these endpoints as leaving, and all others as staying.
    pub(crate) fn mark_leaving(&self, is_leaving: impl Fn(SocketAddr) -> bool) {
        for endpoint in self.state().endpoints.values() {
            endpoint.is_leaving.store(is_leaving(endpoint.address), Ordering::Relaxed);
        }
    }

    /// The number of connections to endpoints with one of these addresses.
    pub(crate) fn active(&self, is_one: impl Fn(IpAddr) -> bool) -> usize {
        let state = self.state();
        let endpoints = state.endpoints.values().filter(|it| is_one(it.address.ip()));
        endpoints.map(|it| it.active.load(Ordering::Acquire)).sum()
    }

    /// Whether an endpoint with one of these addresses was sent a datagram within this time.
    pub(crate) fn has_sent_within(&self, time: Duration, is_one: impl Fn(IpAddr) -> bool) -> bool {
        let state = self.state();
        state.endpoints.values().any(|it| is_one(it.address.ip()) && is_within(&it.sent_at, time))
    }

    fn known(&self, state: &State, client: IpAddr) -> Option<SocketAddr> {
        let time = self.affinity?;
        let (endpoint, at) = state.known.get(&client)?;
        (at.elapsed() < time).then_some(*endpoint)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment, so a panic leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The endpoint with the fewest connections. Equal ones take turns.
    fn least_used(&self, addresses: &[SocketAddr], tried: &[SocketAddr]) -> Option<SocketAddr> {
        let count = addresses.len();
        let rank = |index: usize, address: &SocketAddr| {
            let turn = index.wrapping_add(self.turn).checked_rem(count).unwrap_or_default();
            match self.endpoints.get(address) {
                Some(it) => (it.is_avoided(), it.active.load(Ordering::Relaxed), turn),
                None => (false, 0, turn),
            }
        };
        let all = addresses.iter().enumerate().filter(|(_, address)| !tried.contains(address));
        all.min_by_key(|(index, address)| rank(*index, address)).map(|(_, address)| *address)
    }

    fn endpoint(&mut self, address: SocketAddr) -> &Arc<Endpoint> {
        self.endpoints.entry(address).or_insert_with(|| {
            Arc::new(Endpoint {
                address,
                active: AtomicUsize::new(0),
                is_leaving: AtomicBool::new(false),
                failed_at: AtomicU64::new(0),
                sent_at: AtomicU64::new(0),
            })
        })
    }

    /// Drops endpoints that are gone, once there are many.
    fn forget_others(&mut self, addresses: &[SocketAddr]) {
        if self.endpoints.len() > addresses.len() + SPARE {
            self.endpoints
                .retain(|address, it| it.active.load(Ordering::Relaxed) > 0 || addresses.contains(address));
        }
    }

    fn remember(&mut self, client: IpAddr, endpoint: SocketAddr, time: Duration) {
        let now = Instant::now();
        let is_new = !self.known.contains_key(&client);
        if is_new && self.known.len() >= MOST {
            self.known.retain(|_, (_, at)| now.saturating_duration_since(*at) < time);
        }
        if is_new && self.known.len() >= MOST {
            // Half of them at once, so that this is rare.
            let mut times: Vec<Instant> = self.known.values().map(|(_, at)| *at).collect();
            let (_, median, _) = times.select_nth_unstable(MOST / 2);
            let median = *median;
            self.known.retain(|_, (_, at)| *at > median);
        }
        self.known.insert(client, (endpoint, now));
    }
}

/// The milliseconds since the first call, from 1.
fn moment() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed().as_millis();
    u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(1)
}

fn is_within(at: &AtomicU64, time: Duration) -> bool {
    let at = at.load(Ordering::Relaxed);
    at != 0 && u128::from(moment().saturating_sub(at)) < time.as_millis()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn endpoints(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|it| SocketAddr::from(([10, 0, 0, it], 80))).collect()
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn choose(balance: &Balance, number: u32, all: &[SocketAddr]) -> SocketAddr {
        balance.choose(client(number), all, &[]).unwrap().address()
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_with_the_fewest_connections_is_chosen() {
        let all = endpoints(3);
        let balance = Balance::new(None);
        let firsts: BTreeSet<_> = (0..3).map(|_| choose(&balance, 1, &all)).collect();
        assert_eq!(firsts.len(), 3, "equal ones take turns");
        let open: Vec<Lease> = (0..6).map(|_| balance.choose(client(1), &all, &[]).unwrap()).collect();
        for address in &all {
            assert_eq!(balance.active(|it| it == address.ip()), 2);
        }
        let (closed, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|it| it.address() == all[1]);
        drop(closed);
        assert_eq!(choose(&balance, 1, &all), all[1]);
        assert!(balance.choose(client(1), &all, &all).is_none(), "all were tried");
        assert!(balance.choose(client(1), &[], &[]).is_none());

        // The one that does not answer comes last for a while, though it has the fewest connections.
        balance.choose(client(1), &all[1..2], &[]).unwrap().fail();
        let failed = balance.choose(client(1), &all, &[]).unwrap();
        assert_ne!(failed.address(), all[1]);
        tokio::time::advance(AVOIDED).await;
        assert_eq!(choose(&balance, 1, &all), all[1]);
        balance.mark_leaving(|it| it == all[0]);
        assert_eq!(open.iter().filter(|it| it.is_leaving()).count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_keep_their_endpoint_with_affinity() {
        let all = endpoints(3);
        let sticky = Balance::new(Some(Duration::from_secs(10)));
        sticky.sent(client(1), all[2]);
        for _ in 0..5 {
            assert_eq!(choose(&sticky, 1, &all), all[2]);
        }
        assert_ne!(choose(&sticky, 1, &all[..2]), all[2], "one that is gone is no choice");
        sticky.sent(client(1), all[2]);
        tokio::time::advance(Duration::from_secs(9)).await;
        sticky.sent(client(1), all[2]);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(choose(&sticky, 1, &all), all[2], "each connection restarts the time");
        tokio::time::advance(Duration::from_secs(2)).await;
        let turn = sticky.state().turn;
        let first = choose(&sticky, 1, &all);
        assert_eq!(sticky.state().turn, turn + 1, "then it is like any other");
        assert_eq!(choose(&sticky, 1, &all), first, "and stays there, though it is not connected yet");
        let other = sticky.choose(client(1), &all, &[first]).unwrap();
        assert_ne!(other.address(), first, "one that did not answer is left");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_remembered_and_no_more() {
        let sticky = Balance::new(Some(Duration::from_secs(1000)));
        let all = endpoints(1);
        for number in 0..u32::try_from(MOST).unwrap() + 10 {
            if number % 1024 == 0 {
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            sticky.sent(client(number), all[0]);
            assert!(sticky.state().known.len() <= MOST);
        }
        assert!(sticky.state().known.contains_key(&client(u32::try_from(MOST).unwrap())));
        assert!(!sticky.state().known.contains_key(&client(0)));
        let mut number = 1 << 20;
        while sticky.state().known.len() < MOST {
            sticky.sent(client(number), all[0]);
            number += 1;
        }
        sticky.sent(client(number - 1), all[0]);
        assert_eq!(sticky.state().known.len(), MOST, "who is known needs no room");
        for last in 0..200 {
            choose(&sticky, u32::from(last), &[SocketAddr::from(([10, 0, 1, last], 80))]);
        }
        assert!(sticky.state().endpoints.len() <= SPARE + 2, "endpoints that are gone are forgotten");
    }
}
