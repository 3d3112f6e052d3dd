//! Digests that decide. A spec hash is the SHA-256 of canonical JSON: fields in the order of their
//! declaration, maps sorted, defaults left out. So a field added in a later release changes no hash of
//! a manifest that does not use it, and an upgrade of the agent restarts nothing.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Digest of everything that would require replacing an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecHash(pub String);

/// Digest of a whole stack: equal hashes mean that nothing at all is asked to change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StackHash(pub String);

impl SpecHash {
    /// The hash of any serialisable specification.
    pub fn of<T: Serialize>(spec: &T) -> Self {
        Self(digest_of(spec))
    }

    /// The first eight digits, for names and for people.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl fmt::Display for SpecHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

/// SHA-256 as 64 lower-case hexadecimal digits. Plans are full of digests, and the formatter takes longer for the digits
/// than the processor for the digest.
pub fn digest_hex(bytes: &[u8]) -> String {
    let digit = |it: u8| char::from(if it < 10 { b'0' + it } else { b'a' + it - 10 });
    let digest = Sha256::digest(bytes);
    let mut digits = String::with_capacity(2 * digest.len());
    for byte in digest {
        digits.push(digit(byte >> 4));
        digits.push(digit(byte & 15));
    }
    digits
}

/// The digest of canonical JSON.
pub(crate) fn digest_of<T: Serialize>(spec: &T) -> String {
    let canonical = serde_json::to_vec(spec).expect("the model's types serialise without fail");
    digest_hex(&canonical)
}
