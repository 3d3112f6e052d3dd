//! The arguments of a Service's proxy: which of its ports leads where, and which endpoints are ready. The first are part
//! of the proxy's command, and so of its container's specification; the second change while it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Protocol;

/// The arguments of `driftless proxy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwards {
    pub ports: Vec<Forward>,
    /// For so long after its last connection a client is sent to the same endpoint.
    pub affinity: Option<Duration>,
    /// Forward to the endpoints that the agent reports as ready ([`ReadyEndpoints`]), and to no others.
    pub ready_only: bool,
    pub limits: ForwardLimits,
    /// Tell endpoints the address of each client, in the header of the PROXY protocol, version 2. TCP only.
    pub proxy_protocol: bool,
    /// Take everything over from the proxy that runs in the same network namespace, and hand it over to the next one.
    pub hand_over: bool,
}

/// The limits of a proxy. `None`: the proxy's own default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardLimits {
    /// The most TCP connections at the same time, of all ports together. Further ones are refused.
    pub connections: Option<u32>,
    /// A connection without data in either direction ends after this time. Default: never.
    pub idle: Option<Duration>,
    /// The time that an endpoint has to accept a connection.
    pub connect: Option<Duration>,
}

/// The ready endpoints of a proxy's targets, by the target's name. A name that is missing has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyEndpoints(pub BTreeMap<String, ReadyAddresses>);

/// The ready addresses of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyAddresses {
    /// Every address that the name resolves to: the pod is on the host's network.
    All,
    These(BTreeSet<Ipv4Addr>),
}

/// The counters of one port of a proxy. A newer proxy that takes over goes on counting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortCounters {
    /// Such as `8080/tcp`.
    pub port: String,
    /// Clients that got no connection, and datagrams that went nowhere.
    pub refused: u64,
    /// Further attempts to connect a client after one that failed.
    pub retried: u64,
    pub targets: Vec<TargetCounters>,
}

/// The counters of one target of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetCounters {
    /// `NAME:PORT`, as the command names it.
    pub target: String,
    /// Connections at this moment, or clients that send datagrams.
    pub open: u64,
    /// All connections since the first proxy.
    pub opened: u64,
    /// Attempts to connect that an endpoint did not accept.
    pub failed: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}

/// One port, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub port: u16,
    pub protocol: Protocol,
    /// Names that are answered with the addresses of endpoints, each with the port there.
    pub targets: Vec<(String, u16)>,
}

/// An argument of the command is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is none of --affinity=SECONDS, --ready-only, --max-connections=NUMBER, --idle-timeout=MILLISECONDS, \
     --connect-timeout=MILLISECONDS, --proxy-protocol, --hand-over and PORT/PROTOCOL=NAME:PORT[,NAME:PORT…]"
)]
pub struct InvalidForward(pub String);

/// A word of [`ReadyEndpoints`] is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not NAME=ADDRESS[,ADDRESS…] or NAME=*")]
pub struct InvalidEndpoints(pub String);

/// The name under which a proxy reaches its host: the target of pods on the host's network. With
/// [`Forwards::ready_only`] each of these has a name of its own, `_host.WORKLOAD`.
pub const HOST_ENDPOINT: &str = "_host";

const AFFINITY: &str = "--affinity=";
const READY_ONLY: &str = "--ready-only";
const MAX_CONNECTIONS: &str = "--max-connections=";
const IDLE_TIMEOUT: &str = "--idle-timeout=";
const CONNECT_TIMEOUT: &str = "--connect-timeout=";
const PROXY_PROTOCOL: &str = "--proxy-protocol";
const HAND_OVER: &str = "--hand-over";

impl Forwards {
    /// The words of the command, which [`Self::parse`] reads.
    pub fn command(&self) -> Vec<String> {
        let Self { ports, affinity, ready_only, limits, proxy_protocol, hand_over } = self;
        let ForwardLimits { connections, idle, connect } = limits;
        let flags = [
            affinity.map(|it| format!("{AFFINITY}{}", it.as_secs())),
            ready_only.then(|| READY_ONLY.to_owned()),
            connections.map(|it| format!("{MAX_CONNECTIONS}{it}")),
            idle.map(|it| format!("{IDLE_TIMEOUT}{}", it.as_millis())),
            connect.map(|it| format!("{CONNECT_TIMEOUT}{}", it.as_millis())),
            proxy_protocol.then(|| PROXY_PROTOCOL.to_owned()),
            hand_over.then(|| HAND_OVER.to_owned()),
        ];
        flags.into_iter().flatten().chain(ports.iter().map(ToString::to_string)).collect()
    }

    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidForward> {
        let mut found = Self::default();
        for word in words {
            found.read(word).ok_or_else(|| InvalidForward(word.to_owned()))?;
        }
        Ok(found)
    }

    /// Reads one word. `None`: it is invalid.
    fn read(&mut self, word: &str) -> Option<()> {
        let milliseconds = |text: &str| text.parse().ok().map(Duration::from_millis);
        if word == READY_ONLY {
            self.ready_only = true;
        } else if word == PROXY_PROTOCOL {
            self.proxy_protocol = true;
        } else if word == HAND_OVER {
            self.hand_over = true;
        } else if let Some(seconds) = word.strip_prefix(AFFINITY) {
            self.affinity = Some(Duration::from_secs(seconds.parse().ok()?));
        } else if let Some(number) = word.strip_prefix(MAX_CONNECTIONS) {
            self.limits.connections = Some(number.parse().ok()?);
        } else if let Some(time) = word.strip_prefix(IDLE_TIMEOUT) {
            self.limits.idle = Some(milliseconds(time)?);
        } else if let Some(time) = word.strip_prefix(CONNECT_TIMEOUT) {
            self.limits.connect = Some(milliseconds(time)?);
        } else {
            self.ports.push(word.parse().ok()?);
        }
        Some(())
    }
}

impl ReadyEndpoints {
    /// One word for each target, which [`Self::parse`] reads.
    pub fn words(&self) -> Vec<String> {
        let word = |(name, addresses): (&String, &ReadyAddresses)| match addresses {
            ReadyAddresses::All => format!("{name}=*"),
            ReadyAddresses::These(addresses) => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("{name}={}", addresses.join(","))
            }
        };
        self.0.iter().map(word).collect()
    }

    /// Reads the words of [`Self::words`].
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidEndpoints> {
        let parse = |word: &str| {
            let (name, addresses) = word.split_once('=').filter(|(name, _)| !name.is_empty())?;
            let addresses = match addresses {
                "*" => ReadyAddresses::All,
                "" => ReadyAddresses::These(BTreeSet::new()),
                list => {
                    let addresses = list.split(',').map(|address| address.parse().ok());
                    ReadyAddresses::These(addresses.collect::<Option<_>>()?)
                }
            };
            Some((name.to_owned(), addresses))
        };
        let read = |word| parse(word).ok_or_else(|| InvalidEndpoints(word.to_owned()));
        words.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an address of a target is ready.
    pub fn contains(&self, name: &str, address: Ipv4Addr) -> bool {
        match self.0.get(name) {
            Some(ReadyAddresses::All) => true,
            Some(ReadyAddresses::These(addresses)) => addresses.contains(&address),
            None => false,
        }
    }
}

impl Forward {
    /// Whether a target is the name that an earlier release gave to the instances of a Compose service. Those of another project
    /// may have it, too.
    pub fn is_former(&self, index: usize) -> bool {
        let name = |index: usize| self.targets.get(index).and_then(|(name, _)| name.strip_suffix("._proxy"));
        // The first name has the project after the service.
        let (Some(first), Some(other)) = (name(0), name(index)) else { return false };
        first.strip_prefix(other).is_some_and(|project| project.starts_with('.'))
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<String> = self.targets.iter().map(|(name, port)| format!("{name}:{port}")).collect();
        write!(f, "{}/{}={}", self.port, self.protocol.as_str(), targets.join(","))
    }
}

impl FromStr for Forward {
    type Err = InvalidForward;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (own, targets) = text.split_once('=')?;
            let (port, protocol) = own.split_once('/')?;
            let protocol = match protocol {
                "tcp" => Protocol::Tcp,
                "udp" => Protocol::Udp,
                _ => return None,
            };
            let target = |it: &str| {
                let (name, port) = it.rsplit_once(':').filter(|(name, _)| !name.is_empty())?;
                Some((name.to_owned(), port.parse().ok()?))
            };
            let targets: Option<Vec<_>> = targets.split(',').map(target).collect();
            Some(Self { port: port.parse().ok()?, protocol, targets: targets? })
        };
        parse().ok_or_else(|| InvalidForward(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_written_and_invalid_ones_are_refused() {
        let forwards = Forwards {
            ports: vec![
                Forward {
                    port: 80,
                    protocol: Protocol::Tcp,
                    targets: vec![("_web".into(), 8080), ("b".into(), 1)],
                },
                Forward { port: 53, protocol: Protocol::Udp, targets: vec![("dns.shop".into(), 5353)] },
            ],
            affinity: Some(Duration::from_hours(3)),
            ready_only: true,
            limits: ForwardLimits {
                connections: Some(500),
                idle: Some(Duration::from_mins(10)),
                connect: Some(Duration::from_millis(300)),
            },
            proxy_protocol: true,
            hand_over: true,
        };
        let words = forwards.command();
        assert_eq!(
            words,
            [
                "--affinity=10800",
                "--ready-only",
                "--max-connections=500",
                "--idle-timeout=600000",
                "--connect-timeout=300",
                "--proxy-protocol",
                "--hand-over",
                "80/tcp=_web:8080,b:1",
                "53/udp=dns.shop:5353"
            ]
        );
        assert_eq!(Forwards::parse(words.iter().map(String::as_str)), Ok(forwards));
        for wrong in [
            "",
            "80",
            "80/tcp",
            "80/tcp=",
            "80/tcp=a",
            "80/tcp=:1",
            "80/sctp=a:1",
            "a/tcp=a:1",
            "--affinity=x",
            "--max-connections=-1",
            "--idle-timeout=1s",
            "--connect-timeout=",
            "--proxy-protocol=v1",
        ] {
            assert_eq!(Forwards::parse([wrong]), Err(InvalidForward(wrong.to_owned())));
        }
    }

    #[test]
    fn former_name_is_the_present_one_without_the_project() {
        let former = |text: &str| {
            let forward: Forward = text.parse().unwrap();
            (0..forward.targets.len()).filter(|index| forward.is_former(*index)).collect::<Vec<_>>()
        };
        assert_eq!(former("80/tcp=_web.shop._proxy:80,_web._proxy:80"), [1]);
        for none in ["_web._proxy:80", "_front._app:80,_front._proxy:80", "_front._proxy:80,_front._web:80"] {
            assert_eq!(former(&format!("80/tcp={none}")), Vec::<usize>::new(), "{none}");
        }
    }

    #[test]
    fn ready_endpoints_are_read_as_written() {
        let these = |addresses: &[[u8; 4]]| {
            ReadyAddresses::These(addresses.iter().map(|address| Ipv4Addr::from(*address)).collect())
        };
        let endpoints = ReadyEndpoints(
            [
                ("_a".to_owned(), these(&[[10, 0, 0, 2], [10, 0, 0, 10]])),
                ("_b".to_owned(), these(&[])),
                ("_host.web".to_owned(), ReadyAddresses::All),
            ]
            .into(),
        );
        let words = endpoints.words();
        assert_eq!(words, ["_a=10.0.0.2,10.0.0.10", "_b=", "_host.web=*"]);
        assert_eq!(ReadyEndpoints::parse(words.iter().map(String::as_str)), Ok(endpoints.clone()));
        assert!(endpoints.contains("_a", [10, 0, 0, 2].into()));
        assert!(endpoints.contains("_host.web", [172, 17, 0, 1].into()));
        assert!(!endpoints.contains("_b", [10, 0, 0, 2].into()));
        assert!(!endpoints.contains("_c", [10, 0, 0, 2].into()));
        for wrong in ["", "_a", "=10.0.0.1", "_a=x", "_a=10.0.0.1,", "_a=::1"] {
            assert_eq!(ReadyEndpoints::parse([wrong]), Err(InvalidEndpoints(wrong.to_owned())));
        }
    }
}
