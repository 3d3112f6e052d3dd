//! Resolves names with the engine's own name server: a small client, because the resolver of the C library
//! may be missing in the image, and caches for an unknown time.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::UdpSocket,
    time::{Instant, timeout},
};

use crate::limits::Seldom;

/// Address of Docker's name server inside every container. Podman's is at the gateway of a network.
const DOCKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
const DNS: u16 = 53;
/// The engine writes a few lines into this file.
const RESOLVER: &str = "/etc/resolv.conf";
const LONGEST_RESOLVER: u64 = 64 << 10;

/// A name is asked for at most so often.
const FRESH: Duration = Duration::from_secs(1);
/// For so long the last answer holds while the server answers that it cannot resolve the name. Longer, and an address may be
/// somebody else's.
const STALE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest answer, which is said in the question: some 4000 addresses.
const LONGEST: u16 = u16::MAX;

/// The name server of the engine, as it has set it in this container.
pub fn name_server() -> SocketAddr {
    let mut text = String::new();
    let read = File::open(RESOLVER).and_then(|it| it.take(LONGEST_RESOLVER).read_to_string(&mut text));
    if let Err(error) = read {
        tracing::debug!(%error, "could not read {RESOLVER}");
    }
    SocketAddr::new(first_server(&text).unwrap_or(DOCKER), DNS)
}

/// The first name server of a `resolv.conf`.
fn first_server(text: &str) -> Option<IpAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|key| *key == "nameserver").and(words.next())?;
        address.parse().ok()
    })
}

/// The names that are asked for, with what is known of them.
#[derive(Debug)]
pub struct Names {
    server: SocketAddr,
    /// The names of `/etc/hosts`. No server is asked for them.
    fixed: BTreeMap<String, Vec<Ipv4Addr>>,
    known: BTreeMap<String, Known>,
    question: AtomicU16,
    silent: Seldom,
}

#[derive(Debug, Default)]
struct Known {
    /// Held by the task that asks.
    asking: tokio::sync::Mutex<()>,
    answer: Mutex<LastAnswer>,
}

#[derive(Debug, Default)]
struct LastAnswer {
    addresses: Vec<Ipv4Addr>,
    /// When the last question was sent.
    asked: Option<Instant>,
    /// When the question was sent that these addresses answer.
    answered: Option<Instant>,
}

impl Known {
    fn answer(&self) -> MutexGuard<'_, LastAnswer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LastAnswer {
    fn is_fresh(&self) -> bool {
        self.asked.is_some_and(|it| it.elapsed() < FRESH)
    }
}

impl Names {
    pub fn new<'a>(server: SocketAddr, names: impl IntoIterator<Item = &'a str>) -> Self {
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let known = names.into_iter().map(|it| (it.to_owned(), Known::default())).collect();
        Self { server, fixed: fixed(&hosts), known, question: AtomicU16::new(1), silent: Seldom::default() }
    }

    /// One name that no server is asked for.
    #[cfg(test)]
    pub(crate) fn fixed_to(name: &str, address: Ipv4Addr) -> Self {
        let names = Self::new((DOCKER, DNS).into(), []);
        Self { fixed: [(name.to_owned(), vec![address])].into(), ..names }
    }

    /// The addresses of a name, sorted. None of one that was not told at the beginning.
    pub(crate) async fn addresses(&self, name: &str) -> Vec<Ipv4Addr> {
        if let Some(found) = self.fixed.get(name) {
            return found.clone();
        }
        let Some(known) = self.known.get(name) else { return Vec::new() };
        if !known.answer().is_fresh() {
            self.refresh(name, known).await;
        }
        known.answer().addresses.clone()
    }

    /// Whether the name has lost this address since then. Asks again in the background, so a connection does not wait.
    pub(crate) fn has_lost(self: &Arc<Self>, name: &str, address: Ipv4Addr, since: Instant) -> bool {
        let Some(known) = self.known.get(name) else { return false };
        let (is_fresh, has_lost) = {
            let answer = known.answer();
            let is_newer = answer.answered.is_some_and(|answered| answered > since);
            (answer.is_fresh(), is_newer && !answer.addresses.contains(&address))
        };
        if !is_fresh && known.asking.try_lock().is_ok() {
            let (names, name) = (Arc::clone(self), name.to_owned());
            tokio::spawn(async move {
                if let Some(known) = names.known.get(&name) {
                    names.refresh(&name, known).await;
                }
            });
        }
        has_lost
    }

    async fn refresh(&self, name: &str, known: &Known) {
        // Other tasks wait for the same answer.
        let _asking = known.asking.lock().await;
        if known.answer().is_fresh() {
            return;
        }
        let asked = Instant::now();
        let found = self.ask(name).await;
        let mut answer = known.answer();
        answer.asked = Some(Instant::now());
        match found {
            Ok(Some(addresses)) => {
                answer.answered = Some(asked);
                answer.addresses = addresses;
            }
            Ok(None) => {
                if answer.answered.is_none_or(|it| it.elapsed() > STALE) {
                    answer.addresses.clear();
                }
            }
            // A stopped engine gives no address to another container, so the last answer holds.
            Err(error) => self.silent.say(|| {
                tracing::warn!(name, server = %self.server.ip(), %error, "the name server does not answer");
            }),
        }
    }

    /// The addresses of a name. `None`: the server answers that it cannot resolve the name.
    async fn ask(&self, name: &str) -> io::Result<Option<Vec<Ipv4Addr>>> {
        let id = self.question.fetch_add(1, Ordering::Relaxed);
        let question = question(id, name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"))?;
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(self.server).await?;
        socket.send(&question).await?;
        let answered = async {
            let mut buffer = vec![0; usize::from(LONGEST)];
            loop {
                let length = socket.recv(&mut buffer).await?;
                match answer(id, buffer.get(..length).unwrap_or_default()) {
                    // The answer to another question is ignored.
                    Some(Answer { id: other, .. }) if other != id => {}
                    Some(Answer { code: 0 | 3, mut addresses, .. }) => {
                        addresses.sort_unstable();
                        addresses.dedup();
                        return Ok(Some(addresses));
                    }
                    Some(Answer { code, .. }) => {
                        tracing::debug!(name, code, "the name server cannot resolve a name");
                        return Ok(None);
                    }
                    None => return Err(io::Error::other("the name server's answer makes no sense")),
                }
            }
        };
        timeout(PATIENCE, answered).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The names of a hosts file.
fn fixed(hosts: &str) -> BTreeMap<String, Vec<Ipv4Addr>> {
    let mut found: BTreeMap<String, Vec<Ipv4Addr>> = BTreeMap::new();
    for line in hosts.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|it| it.parse().ok()) else { continue };
        for name in words {
            found.entry(name.to_owned()).or_default().push(address);
        }
    }
    found
}

/// Asks for the addresses (IPv4) of a name.
fn question(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(64);
    out.extend(id.to_be_bytes());
    // Recursion is desired; one question, and one addition that says how long the answer may be.
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|it| (1..=63).contains(it))?;
        out.push(length);
        out.extend(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out.extend([0, 0, 41]);
    out.extend(LONGEST.to_be_bytes());
    out.extend([0; 6]);
    (name.len() < 254).then_some(out)
}

struct Answer {
    id: u16,
    /// 0 is no error, and 3 that there is no such name.
    code: u8,
    addresses: Vec<Ipv4Addr>,
}

/// `None` of what is no answer, or cut short.
fn answer(wanted: u16, bytes: &[u8]) -> Option<Answer> {
    let mut rest = Reader(bytes);
    let id = rest.number()?;
    let flags = rest.number()?;
    if id != wanted {
        return Some(Answer { id, code: 0, addresses: Vec::new() });
    }
    let is_answer = flags & 0x8000 != 0;
    let code = u8::try_from(flags & 0xF).ok()?;
    let (questions, answers) = (rest.number()?, rest.number()?);
    rest.skip(4)?;
    for _ in 0..questions {
        rest.name()?;
        rest.skip(4)?;
    }
    let mut addresses = Vec::new();
    for _ in 0..answers {
        rest.name()?;
        let (kind, class) = (rest.number()?, rest.number()?);
        rest.skip(4)?;
        let length = rest.number()?;
        let data = rest.take(usize::from(length))?;
        if let (1, 1, Ok(octets)) = (kind, class, <[u8; 4]>::try_from(data)) {
            addresses.push(Ipv4Addr::from(octets));
        }
    }
    is_answer.then_some(Answer { id, code, addresses })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(drop)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).and_then(|it| it.try_into().ok()).map(u16::from_be_bytes)
    }

    /// Passes over a name, which may end with a pointer to what stood before.
    fn name(&mut self) -> Option<()> {
        loop {
            match *self.take(1)?.first()? {
                0 => return Some(()),
                0xC0.. => return self.skip(1),
                length => self.skip(usize::from(length))?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_answers_are_read_and_other_bytes_are_none() {
        let question = question(7, "_endpoints.web").unwrap();
        let mut reply = question.get(..question.len() - 11).unwrap().to_vec();
        reply[2] = 0x81;
        reply[7] = 2;
        reply[11] = 0;
        for last in [9, 4] {
            reply.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 2, 88, 0, 4, 10, 0, 0, last]);
        }
        let found = answer(7, &reply).unwrap();
        assert_eq!((found.id, found.code), (7, 0));
        assert_eq!(found.addresses, [Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 4)]);
        for cut in 0..reply.len() {
            assert!(answer(7, &reply[..cut]).is_none(), "cut at {cut}");
        }
        assert!(answer(7, &question).is_none(), "a question is no answer");
        assert_eq!(super::question(1, &"a".repeat(64)), None);
        assert_eq!(super::question(1, "a..b"), None);
    }

    #[test]
    fn hosts_are_known_without_asking() {
        let found = fixed(
            "127.0.0.1 localhost\n::1 localhost ip6\n172.17.0.1\t_host other # the host\n\n#1.1.1.1 no\n",
        );
        assert_eq!(found["_host"], [Ipv4Addr::new(172, 17, 0, 1)]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn name_server_is_the_one_of_the_container() {
        let text = "# nameserver 1.1.1.1\nsearch dns.podman\nnameserver 10.89.0.1\nnameserver 10.89.1.1\n";
        assert_eq!(first_server(text), Some(Ipv4Addr::new(10, 89, 0, 1).into()));
        assert_eq!(first_server("nameserver\nnameserver fd00::1\n"), Some("fd00::1".parse().unwrap()));
        assert_eq!(first_server("options ndots:0\n"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn last_answer_holds_while_no_name_server_answers() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let names = Arc::new(Names::new(server.local_addr().unwrap(), ["_web"]));
        let (known, kept) = (&names.known["_web"], Ipv4Addr::new(10, 0, 0, 2));
        let reported = Instant::now();
        tokio::time::advance(FRESH).await;
        *known.answer() = LastAnswer { addresses: vec![kept], asked: None, answered: Some(Instant::now()) };
        tokio::time::advance(STALE * 2).await;
        tokio::time::resume();
        let address = server.local_addr().unwrap();
        drop(server);
        names.refresh("_web", known).await;
        assert_eq!(known.answer().addresses, [kept]);
        assert!(!names.has_lost("_web", kept, reported), "the engine is stopped");
        assert!(names.has_lost("_web", Ipv4Addr::new(10, 0, 0, 3), reported), "the engine knew that before");

        let server = UdpSocket::bind(address).await.unwrap();
        let failure = async {
            let mut buffer = [0; 512];
            let (length, from) = server.recv_from(&mut buffer).await.unwrap();
            let mut reply = buffer[..length - 11].to_vec();
            (reply[2], reply[3], reply[11]) = (0x81, 2, 0);
            server.send_to(&reply, from).await.unwrap();
        };
        known.answer().asked = None;
        tokio::join!(names.refresh("_web", known), failure);
        assert!(names.has_lost("_web", kept, reported), "the engine does not know the name any more");
    }
}
