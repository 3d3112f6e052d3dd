//! What a proxy of a Service is told: which of its ports leads where. It is part of the proxy's command, and so of
//! what its container is.

use std::{fmt, str::FromStr, time::Duration};

use super::Protocol;

/// Everything that `driftless proxy` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwards {
    pub ports: Vec<Forward>,
    /// For so long after its last connection a client is sent to the same endpoint.
    pub affinity: Option<Duration>,
}

/// One port, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub port: u16,
    pub protocol: Protocol,
    /// Names that are answered with the addresses of endpoints, each with the port there.
    pub targets: Vec<(String, u16)>,
}

/// Why a word of the command makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of --affinity=SECONDS and PORT/PROTOCOL=NAME:PORT[,NAME:PORT…]")]
pub struct InvalidForward(pub String);

const AFFINITY: &str = "--affinity=";

impl Forwards {
    /// The words of the command, which [`Self::parse`] reads.
    pub fn command(&self) -> Vec<String> {
        let affinity = self.affinity.map(|it| format!("{AFFINITY}{}", it.as_secs()));
        affinity.into_iter().chain(self.ports.iter().map(ToString::to_string)).collect()
    }

    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidForward> {
        let mut found = Self::default();
        for word in words {
            match word.strip_prefix(AFFINITY) {
                Some(seconds) => {
                    let seconds = seconds.parse().map_err(|_| InvalidForward(word.to_owned()))?;
                    found.affinity = Some(Duration::from_secs(seconds));
                }
                None => found.ports.push(word.parse()?),
            }
        }
        Ok(found)
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
    fn what_is_written_is_read_and_what_makes_no_sense_is_refused() {
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
        };
        let words = forwards.command();
        assert_eq!(words, ["--affinity=10800", "80/tcp=_web:8080,b:1", "53/udp=dns.shop:5353"]);
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
        ] {
            assert_eq!(Forwards::parse([wrong]), Err(InvalidForward(wrong.to_owned())));
        }
    }
}
