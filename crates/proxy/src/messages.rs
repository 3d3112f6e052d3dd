//! Messages of the agent. It runs `driftless proxy-ready`, `proxy-drain` and `proxy-counters` in the proxy's container, which talk
//! to the proxy over a socket that only this container can reach.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    net::IpAddr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::MetadataExt as _,
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use driftless_model::{InvalidEndpoints, PortCounters, ReadyEndpoints};

use crate::{ready::Gate, route::Route};

/// The abstract name of a proxy's socket. Abstract names belong to a network namespace, which a proxy and the one that takes
/// over from it share, so the name has the number of the container's mount namespace, which the agent's commands run in.
pub fn report_socket() -> String {
    let namespace = fs::metadata("/proc/self/ns/mnt").map_or(0, |found| found.ino());
    format!("driftless-proxy-{namespace}")
}
/// The longest report in bytes: about 4000 addresses.
const MAX_REPORT: u64 = 128 * 1024;
/// The deadline for one report.
const DEADLINE: Duration = Duration::from_secs(2);
/// Time without datagrams after which an endpoint has answered the last one.
const LAST_ANSWER: Duration = Duration::from_millis(500);
/// The pause between two looks at the connections of endpoints that are drained.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of messages at the same time.
const MOST_MESSAGES: usize = 256;
/// The answers to a message: it was taken, or connections were left when the time had passed.
const ACCEPTED: &[u8] = b"ok";
const LEFT: &[u8] = b"left";
/// The first word of a message that drains endpoints. Words of a report contain `=`.
const DRAIN: &str = "drain";
/// The message that asks for the counters.
const COUNTERS: &str = "counters";
/// The longest answer in bytes: the counters of some hundred ports.
const MAX_ANSWER: u64 = 128 * 1024;

/// The routes of the present shift, for messages of the agent. None once another proxy has taken over.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<Vec<Weak<Route>>>);

impl Routes {
    pub(crate) fn set(&self, routes: &[Arc<Route>]) {
        *self.lock() = routes.iter().map(Arc::downgrade).collect();
    }

    /// The routes. A shift ends when nobody holds them any more, so let go of them before waiting.
    pub(crate) fn now(&self) -> Vec<Arc<Route>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether this holds for each route. `false` if the shift has ended: its connections are on their way to the next
    /// proxy, and come back if that one does not take over.
    fn all(&self, holds: impl Fn(&Route) -> bool) -> bool {
        let routes = self.lock();
        let is_true = |route: &Weak<Route>| {
            // The shift is looked at last: connections leave a route also because it has ended.
            route.upgrade().is_some_and(|route| holds(&route) && !route.shift.has_ended())
        };
        !routes.is_empty() && routes.iter().all(is_true)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Route>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives messages of the agent for ever, unless the gate is open.
pub(crate) async fn listen(gate: &Arc<Gate>, routes: &Arc<Routes>) -> io::Result<()> {
    let Some(socket) = gate.socket() else { return std::future::pending().await };
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(socket)?)?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let mut messages = JoinSet::new();
    loop {
        while messages.try_join_next().is_some() {}
        if messages.len() >= MOST_MESSAGES {
            messages.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let (gate, routes) = (Arc::clone(gate), Arc::clone(routes));
                messages.spawn(async move { receive(&gate, stream, &routes).await });
            }
            Err(error) => {
                tracing::warn!(%error, "could not receive the ready endpoints");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn receive(gate: &Gate, mut stream: tokio::net::UnixStream, routes: &Routes) {
    let mut text = String::new();
    let read = (&mut stream).take(MAX_REPORT + 1);
    let answer = match timeout(DEADLINE, async { { read }.read_to_string(&mut text).await }).await {
        Ok(Ok(_)) => obey(gate, &text, routes).await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the message did not end in time")),
    };
    match answer {
        // The agent may not wait any more.
        Ok(answer) => drop(timeout(DEADLINE, stream.write_all(&answer)).await),
        Err(error) => tracing::warn!(%error, "could not receive the ready endpoints"),
    }
}

async fn obey(gate: &Gate, text: &str, routes: &Routes) -> io::Result<Cow<'static, [u8]>> {
    if text.len() as u64 > MAX_REPORT {
        return Err(io::Error::other(format!("the report is longer than {MAX_REPORT} bytes")));
    }
    if text == COUNTERS {
        let routes = routes.now();
        let values: Vec<PortCounters> =
            routes.iter().map(|route| route.counters.values(&route.forward)).collect();
        return Ok(serde_json::to_vec(&values)?.into());
    }
    let mut lines = text.lines();
    if let Some(time) = lines.next().and_then(|line| line.strip_prefix(DRAIN)) {
        let time = time.trim().parse().map(Duration::from_millis).map_err(io::Error::other)?;
        let addresses = lines.map(str::parse).collect::<Result<BTreeSet<IpAddr>, _>>();
        return Ok(drain(gate, &addresses.map_err(io::Error::other)?, time, routes).await.into());
    }
    gate.report(ReadyEndpoints::parse(text.lines()).map_err(io::Error::other)?);
    mark_leaving(&routes.now());
    Ok(ACCEPTED.into())
}

/// Gives these addresses no new traffic, and waits until their connections have ended, for at most this time. Those that are
/// handed over meanwhile have not ended, and this proxy does not learn when they do.
async fn drain(gate: &Gate, addresses: &BTreeSet<IpAddr>, time: Duration, routes: &Routes) -> &'static [u8] {
    gate.drain(addresses);
    mark_leaving(&routes.now());
    if routes.is_empty() {
        return ACCEPTED;
    }
    let end = Instant::now() + time;
    let is_one = |address: IpAddr| addresses.contains(&address);
    while !routes.all(|route| !route.is_used(is_one, LAST_ANSWER)) {
        if Instant::now() >= end {
            return LEFT;
        }
        sleep(LOOK).await;
    }
    ACCEPTED
}

/// Marks the endpoints that get no new traffic, so that connections which can be moved leave them.
pub(crate) fn mark_leaving(routes: &[Arc<Route>]) {
    for route in routes {
        route.balance.mark_leaving(|endpoint| !route.admits(endpoint));
    }
}

/// Why a report could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Invalid(#[from] InvalidEndpoints),
    #[error("expected MILLISECONDS ADDRESS…")]
    InvalidDrain,
    #[error("the proxy does not take the ready endpoints")]
    Socket(#[from] io::Error),
    #[error("the proxy refused the ready endpoints; its log says why")]
    Refused,
}

/// Whether drained endpoints have connections left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    All,
    /// The time has passed.
    SomeLeft,
}

/// Sends the ready endpoints to the proxy of this container. Call it outside of a runtime: it blocks, for at most two
/// seconds for each step.
pub fn send_report<'a>(socket: &str, words: impl IntoIterator<Item = &'a str>) -> Result<(), ReportError> {
    let endpoints = ReadyEndpoints::parse(words)?;
    let answer = send(socket, &endpoints.words().join("\n"), DEADLINE)?;
    if answer == ACCEPTED { Ok(()) } else { Err(ReportError::Refused) }
}

/// Asks the proxy of this container to give some addresses no new traffic, and waits until their connections have ended.
/// The words are the most milliseconds to wait, and the addresses. It blocks for that time and a few seconds.
pub fn send_drain<'a>(
    socket: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Result<Drained, ReportError> {
    let mut words = words.into_iter();
    let time: u64 = words.next().and_then(|it| it.parse().ok()).ok_or(ReportError::InvalidDrain)?;
    let mut lines = vec![format!("{DRAIN} {time}")];
    for word in words {
        let address: IpAddr = word.parse().map_err(|_| ReportError::InvalidDrain)?;
        lines.push(address.to_string());
    }
    let message = lines.join("\n");
    match send(socket, &message, Duration::from_millis(time).saturating_add(2 * DEADLINE))? {
        answer if answer == ACCEPTED => Ok(Drained::All),
        answer if answer == LEFT => Ok(Drained::SomeLeft),
        _ => Err(ReportError::Refused),
    }
}

/// The counters of the proxy of this container, as JSON ([`PortCounters`]). None while another proxy has taken over.
pub fn read_counters(socket: &str) -> Result<String, ReportError> {
    let answer = send(socket, COUNTERS, DEADLINE)?;
    String::from_utf8(answer).map_err(|error| io::Error::other(error).into())
}

fn send(socket: &str, message: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(socket)?)?;
    stream.set_write_timeout(Some(DEADLINE))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(message.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_does_not_take_a_handover_for_an_end() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let addresses = BTreeSet::from([address.into()]);
        let carried = || {
            let route = Arc::new(Route::to_endpoint("1/tcp=end:80", address));
            let lease = route.balance.lease(SocketAddr::from((address, 80)));
            (route, lease)
        };
        let (gate, routes, time) = (Gate::open(), Routes::default(), Duration::from_secs(10));
        let drained = async || {
            let began = Instant::now();
            (drain(&gate, &addresses, time, &routes).await, began.elapsed() >= time)
        };
        assert_eq!(drained().await, (ACCEPTED, false), "another proxy has all connections");
        let (route, lease) = carried();
        routes.set(&[Arc::clone(&route)]);
        // Handed over: as the next proxy has the connection, the route is still held, and then gone.
        let hand_over = async {
            sleep(time / 4).await;
            route.shift.end();
            drop(lease);
            sleep(time / 4).await;
            drop(route);
        };
        assert_eq!(tokio::join!(drained(), hand_over).0, (LEFT, true));
        // The next proxy fails, and the connections come back and end.
        let (route, lease) = carried();
        let come_back = async {
            sleep(time / 4).await;
            routes.set(&[Arc::clone(&route)]);
            sleep(time / 4).await;
            drop(lease);
        };
        assert_eq!(tokio::join!(drained(), come_back).0, (ACCEPTED, false));
    }
}
