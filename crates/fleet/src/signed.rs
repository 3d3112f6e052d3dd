//! Signed requests of an enrolled host to its collector.
//!
//! The signature covers the collector, the host, a counter that grows with each request, the method, the path, the digest of the
//! body and the headers of a heartbeat. So a request counts once, for one collector, as it was sent.

use std::{fmt, str::FromStr};

use driftless_model::{HostIdentity, digest_hex};

use crate::keys::{AgentKey, InvalidKey, PublicKey, statement};

/// The header with a [`HostSignature`].
pub const SIGNATURE_HEADER: &str = "driftless-signature";

/// The form of the header.
const VERSION: &str = "v1";

/// The purpose of the signature.
const REQUEST: &str = "driftless fleet request v1";

/// The longest counter, body digest, key and signature together with the longest name.
const LONGEST: usize = 600;

/// The signature of a request, as its header has it: `v1 HOST COUNTER KEY DIGEST SIGNATURE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSignature {
    /// The name of the host.
    pub host: String,
    /// Higher than that of each earlier request of this host to this collector.
    pub counter: u64,
    /// The key of the host.
    pub key: PublicKey,
    /// The SHA-256 of the body as it is sent, in hexadecimal digits.
    pub body: String,
    signature: String,
}

/// The parts of a request that are signed and are in the request itself.
#[derive(Clone, Copy, Debug)]
pub struct SignedParts<'a> {
    /// The key of the collector.
    pub collector: &'a PublicKey,
    /// `PUT`, `GET`.
    pub method: &'a str,
    /// The path of the API with its query.
    pub path: &'a str,
    /// The report that a heartbeat names (`If-None-Match`), or an empty text.
    pub report: &'a str,
    /// The id of the machine, or an empty text.
    pub instance: &'a str,
}

impl HostSignature {
    /// Signs a request.
    ///
    /// # Errors
    ///
    /// Never for a key that was made from a seed.
    pub fn new(
        key: &AgentKey,
        host: &str,
        counter: u64,
        body: &[u8],
        parts: &SignedParts<'_>,
    ) -> Result<Self, InvalidKey> {
        let (host, public, body) = (host.to_owned(), key.public()?, digest_hex(body));
        let mut signature = Self { host, counter, key: public, body, signature: String::new() };
        signature.signature = key.sign(&signature.statement(parts));
        Ok(signature)
    }

    /// Whether the holder of [`Self::key`] has signed this request. The caller checks that it is the key of the host, that
    /// the counter is new, and that the body has this digest.
    pub fn is_genuine(&self, parts: &SignedParts<'_>) -> bool {
        self.key.verifies(&self.statement(parts), &self.signature)
    }

    fn statement(&self, parts: &SignedParts<'_>) -> Vec<u8> {
        let SignedParts { collector, method, path, report, instance } = parts;
        let (collector, counter) = (collector.to_string(), self.counter.to_string());
        statement(REQUEST, &[&collector, &self.host, &counter, method, path, &self.body, report, instance])
    }
}

impl fmt::Display for HostSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, counter, key, body, signature } = self;
        write!(f, "{VERSION} {host} {counter} {key} {body} {signature}")
    }
}

impl FromStr for HostSignature {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let fields: Vec<&str> = text.split(' ').collect();
        let [VERSION, host, counter, key, body, signature] = fields.as_slice() else {
            return Err(InvalidKey);
        };
        if text.len() > LONGEST || !HostIdentity::is_name(host) {
            return Err(InvalidKey);
        }
        Ok(Self {
            host: (*host).to_owned(),
            counter: counter.parse().map_err(|_| InvalidKey)?,
            key: key.parse()?,
            body: (*body).to_owned(),
            signature: (*signature).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::key;

    #[test]
    fn signature_covers_all_that_a_collector_acts_on() {
        let (host, collector, other) = (key(1), key(2).public().unwrap(), key(3).public().unwrap());
        let parts = SignedParts {
            collector: &collector,
            method: "PUT",
            path: "/api/v1/fleet/hosts/nas",
            report: "",
            instance: "a1",
        };
        let signed = HostSignature::new(&host, "nas", 7, b"body", &parts).unwrap();
        let read: HostSignature = signed.to_string().parse().unwrap();
        assert_eq!(read, signed);
        assert!(read.is_genuine(&parts));
        assert_eq!(read.body, digest_hex(b"body"));
        for changed in [
            SignedParts { collector: &other, ..parts },
            SignedParts { method: "DELETE", ..parts },
            SignedParts { path: "/api/v1/fleet/hosts/web", ..parts },
            SignedParts { report: "\"1\"", ..parts },
            SignedParts { instance: "b2", ..parts },
        ] {
            assert!(!read.is_genuine(&changed), "{changed:?}");
        }
        for changed in [
            HostSignature { host: "web".to_owned(), ..read.clone() },
            HostSignature { counter: 8, ..read.clone() },
            HostSignature { key: other, ..read.clone() },
            HostSignature { body: digest_hex(b"other"), ..read.clone() },
        ] {
            assert!(!changed.is_genuine(&parts), "{changed:?}");
        }
    }

    #[test]
    fn other_texts_are_no_signatures() {
        let key = key(1).public().unwrap();
        for bad in [
            String::new(),
            format!("v2 nas 1 {key} b s"),
            format!("v1 nas 1 {key} b"),
            format!("v1 nas 1 {key} b s t"),
            format!("v1 ../x 1 {key} b s"),
            format!("v1 nas -1 {key} b s"),
            "v1 nas 1 key b s".to_owned(),
            format!("v1 nas 1 {key} b {}", "s".repeat(600)),
        ] {
            assert_eq!(bad.parse::<HostSignature>(), Err(InvalidKey), "{bad}");
        }
    }
}
