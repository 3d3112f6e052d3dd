//! The keys of agents: Ed25519, one for each state directory. A host signs its reports with it, and a collector its answers.

use std::{fmt, str::FromStr};

use aws_lc_rs::{
    digest::{SHA256, digest},
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// The bytes of a key, and of the seed that it is made from.
const KEY_BYTES: usize = 32;

/// The bytes of a fingerprint in the token of an invite.
const SHORT_BYTES: usize = 16;

/// A text that is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no public key of an agent")]
pub struct InvalidKey;

/// The private key of an agent.
pub struct AgentKey(Ed25519KeyPair);

/// The public key of an agent, written in URL-safe base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; KEY_BYTES]);

impl AgentKey {
    /// The key of a seed of 32 random bytes.
    ///
    /// # Errors
    ///
    /// If the library refuses the seed.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Result<Self, InvalidKey> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Self).map_err(|_| InvalidKey)
    }

    /// The public half.
    ///
    /// # Errors
    ///
    /// Never for a key that was made from a seed.
    pub fn public(&self) -> Result<PublicKey, InvalidKey> {
        self.0.public_key().as_ref().try_into().map(PublicKey).map_err(|_| InvalidKey)
    }

    /// The signature of a statement, in URL-safe base64.
    pub(crate) fn sign(&self, statement: &[u8]) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0.sign(statement))
    }
}

impl fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentKey")
    }
}

impl PublicKey {
    /// Whether a signature of a statement was made with this key.
    pub(crate) fn verifies(&self, statement: &[u8], signature: &str) -> bool {
        let Ok(signature) = BASE64_URL_SAFE_NO_PAD.decode(signature) else { return false };
        UnparsedPublicKey::new(&ED25519, self.0).verify(statement, &signature).is_ok()
    }

    /// The SHA-256 of the key as people compare it: `SHA256:` and URL-safe base64.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &self.0)))
    }

    /// The first half of the SHA-256 of the key, which names a collector in the token of an invite.
    pub(crate) fn short_fingerprint(&self) -> [u8; SHORT_BYTES] {
        let mut short = [0; SHORT_BYTES];
        short.copy_from_slice(&digest(&SHA256, &self.0).as_ref()[..SHORT_BYTES]);
        short
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidKey)?;
        bytes.try_into().map(Self).map_err(|_| InvalidKey)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// The bytes that are signed: the purpose and its fields as a JSON list, so that no field can pass for another one.
pub(crate) fn statement(purpose: &str, fields: &[&str]) -> Vec<u8> {
    let all: Vec<&str> = [purpose].iter().chain(fields).copied().collect();
    // Writing a list of texts cannot fail.
    serde_json::to_vec(&all).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(number: u8) -> AgentKey {
        AgentKey::from_seed(&[number; 32]).unwrap()
    }

    #[test]
    fn signature_is_that_of_one_key_and_one_statement() {
        let (one, two) = (key(1), key(2));
        let text = statement("test", &["a", "b"]);
        let signature = one.sign(&text);
        assert!(one.public().unwrap().verifies(&text, &signature));
        assert!(!two.public().unwrap().verifies(&text, &signature));
        assert!(!one.public().unwrap().verifies(&statement("test", &["ab", ""]), &signature));
        assert!(!one.public().unwrap().verifies(&statement("other", &["a", "b"]), &signature));
        assert!(!one.public().unwrap().verifies(&text, ""));
        assert!(!one.public().unwrap().verifies(&text, &signature[1..]));
    }

    #[test]
    fn public_key_is_read_as_it_is_written() {
        let public = key(1).public().unwrap();
        assert_eq!(public.to_string().parse(), Ok(public));
        let json = serde_json::to_string(&public).unwrap();
        assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), public);
        assert!(public.fingerprint().starts_with("SHA256:") && public.fingerprint().len() == 50);
        for bad in ["", "AAAA", &"A".repeat(44), "*"] {
            assert_eq!(bad.parse::<PublicKey>(), Err(InvalidKey), "{bad}");
        }
        assert_eq!(format!("{:?}", key(1)), "AgentKey");
    }
}
