//! A host joins a fleet: an invite of the collector, and the exchange of the two public keys.
//!
//! The token of an invite has a secret, from which both sides make an Ed25519 key, and names the key of the collector. The host
//! signs its request with the key of the secret and with its own, so the token itself never crosses the network, and nobody on
//! the way can put another key in its place. The collector stores the public half only. Its answer is signed with the key that the
//! token names.

use std::{fmt, str::FromStr};

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::keys::{AgentKey, InvalidKey, PublicKey, statement};

/// The beginning of each token.
const TOKEN_PREFIX: &str = "driftless_join_";

const JOIN: &str = "driftless fleet join v1";
const JOIN_ANSWER: &str = "driftless fleet join answer v1";

/// The bytes of the secret, and those of the fingerprint of the collector.
const HALF: usize = 16;

/// The one-time token of an invite.
#[derive(Clone, PartialEq, Eq)]
pub struct InviteToken {
    secret: [u8; HALF],
    /// The beginning of the fingerprint of the collector.
    collector: [u8; HALF],
}

/// The body of `POST /api/v1/fleet/join`: a host asks a collector to accept its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinRequest {
    /// The name of the host.
    pub host: String,
    /// The id of the machine.
    pub instance: String,
    /// The public key of the host.
    pub key: PublicKey,
    /// The public key of the invite.
    pub invite: PublicKey,
    /// The signature by the key of the invite.
    pub invite_signature: String,
    /// The signature by the key of the host.
    pub signature: String,
}

/// The answer to a [`JoinRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinAnswer {
    /// The public key of the collector.
    pub key: PublicKey,
    /// The signature by this key.
    pub signature: String,
}

impl InviteToken {
    /// A new token of the collector with this key.
    ///
    /// # Errors
    ///
    /// If there are no random numbers.
    pub fn new(collector: &PublicKey) -> Result<Self, InvalidKey> {
        let mut secret = [0; HALF];
        rand::fill(&mut secret).map_err(|_| InvalidKey)?;
        Ok(Self { secret, collector: collector.short_fingerprint() })
    }

    /// The key that is made from the secret.
    ///
    /// # Errors
    ///
    /// If the library refuses it.
    pub fn key(&self) -> Result<AgentKey, InvalidKey> {
        let mut seed = [0; 32];
        seed.copy_from_slice(digest(&SHA256, &[JOIN.as_bytes(), &self.secret].concat()).as_ref());
        AgentKey::from_seed(&seed)
    }
}

impl fmt::Display for InviteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.secret, self.collector].concat();
        write!(f, "{TOKEN_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl fmt::Debug for InviteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InviteToken")
    }
}

impl FromStr for InviteToken {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim().strip_prefix(TOKEN_PREFIX).ok_or(InvalidKey)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidKey)?;
        let (secret, collector) = bytes.split_at_checked(HALF).ok_or(InvalidKey)?;
        Ok(Self {
            secret: secret.try_into().map_err(|_| InvalidKey)?,
            collector: collector.try_into().map_err(|_| InvalidKey)?,
        })
    }
}

impl JoinRequest {
    /// The request of the host `host` with this key and token.
    ///
    /// # Errors
    ///
    /// If the library refuses the key of the token.
    pub fn new(host: &str, instance: &str, key: &AgentKey, token: &InviteToken) -> Result<Self, InvalidKey> {
        let invite = token.key()?;
        let mut request = Self {
            host: host.to_owned(),
            instance: instance.to_owned(),
            key: key.public()?,
            invite: invite.public()?,
            invite_signature: String::new(),
            signature: String::new(),
        };
        let statement = request.statement(&token.collector);
        request.invite_signature = invite.sign(&statement);
        request.signature = key.sign(&statement);
        Ok(request)
    }

    /// Whether the holders of both keys have signed it for the collector with this key.
    pub fn is_genuine(&self, collector: &PublicKey) -> bool {
        let statement = self.statement(&collector.short_fingerprint());
        self.invite.verifies(&statement, &self.invite_signature)
            && self.key.verifies(&statement, &self.signature)
    }

    fn statement(&self, collector: &[u8; HALF]) -> Vec<u8> {
        let collector = BASE64_URL_SAFE_NO_PAD.encode(collector);
        let (key, invite) = (self.key.to_string(), self.invite.to_string());
        statement(JOIN, &[&collector, &self.host, &self.instance, &key, &invite])
    }
}

impl JoinAnswer {
    /// The answer of the collector with this key.
    ///
    /// # Errors
    ///
    /// Never for a key that was made from a seed.
    pub fn new(key: &AgentKey, request: &JoinRequest) -> Result<Self, InvalidKey> {
        Ok(Self { key: key.public()?, signature: key.sign(&answer_statement(request)) })
    }

    /// Whether it is the answer to this request by the collector that the token names.
    pub fn is_genuine(&self, request: &JoinRequest, token: &InviteToken) -> bool {
        self.key.short_fingerprint() == token.collector
            && self.key.verifies(&answer_statement(request), &self.signature)
    }
}

fn answer_statement(request: &JoinRequest) -> Vec<u8> {
    let (key, invite) = (request.key.to_string(), request.invite.to_string());
    statement(JOIN_ANSWER, &[&request.host, &key, &invite])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::key;

    #[test]
    fn both_sides_learn_the_key_of_the_other() {
        let (host, collector, stranger) = (key(1), key(2), key(3));
        let token = InviteToken::new(&collector.public().unwrap()).unwrap();
        let read: InviteToken = token.to_string().parse().unwrap();
        assert!(read == token && format!("{token:?}") == "InviteToken");
        let request = JoinRequest::new("nas", "a1", &host, &read).unwrap();
        assert_eq!(request.invite, token.key().unwrap().public().unwrap());
        assert!(request.is_genuine(&collector.public().unwrap()));
        assert!(!request.is_genuine(&stranger.public().unwrap()), "of another collector");
        for changed in [
            JoinRequest { host: "web".to_owned(), ..request.clone() },
            JoinRequest { instance: "b2".to_owned(), ..request.clone() },
            JoinRequest { key: stranger.public().unwrap(), ..request.clone() },
            JoinRequest { invite: stranger.public().unwrap(), ..request.clone() },
        ] {
            assert!(!changed.is_genuine(&collector.public().unwrap()), "{changed:?}");
        }
        let answer = JoinAnswer::new(&collector, &request).unwrap();
        assert!(answer.is_genuine(&request, &token));
        let foreign = JoinAnswer::new(&stranger, &request).unwrap();
        assert!(!foreign.is_genuine(&request, &token), "somebody on the way answers");
        let other = JoinRequest { host: "web".to_owned(), ..request };
        assert!(!answer.is_genuine(&other, &token));
    }

    #[test]
    fn tokens_differ_and_other_texts_are_none() {
        let collector = key(2).public().unwrap();
        let (one, two) = (InviteToken::new(&collector).unwrap(), InviteToken::new(&collector).unwrap());
        assert_ne!(one.to_string(), two.to_string());
        for bad in ["", "driftless_join_", "driftless_join_AAAA", &one.to_string()[1..], "driftless_0123"] {
            assert_eq!(bad.parse::<InviteToken>(), Err(InvalidKey), "{bad}");
        }
    }
}
