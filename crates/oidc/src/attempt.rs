//! The secrets of one log-in, all of which follow from one.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// One log-in: the browser keeps its secret, or a text from which the agent finds it again.
#[derive(Clone, Debug)]
pub struct Attempt {
    state: String,
    nonce: String,
    verifier: String,
}

impl Attempt {
    /// The log-in with this secret. The secret must not be guessable, and must be another one for each log-in.
    pub fn new(secret: &[u8]) -> Self {
        let derived = |purpose: &str| {
            let digest =
                Sha256::new().chain_update(purpose).chain_update([0]).chain_update(secret).finalize();
            BASE64_URL_SAFE_NO_PAD.encode(digest)
        };
        Self { state: derived("state"), nonce: derived("nonce"), verifier: derived("verifier") }
    }

    /// The `state` of the request. The provider gives it back, so that no other page can end a log-in.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Whether an answer belongs to this log-in.
    pub fn has_state(&self, state: &str) -> bool {
        self.state == state
    }

    /// The `nonce`, which the identity token must contain, so that a stolen one of another log-in is of no use.
    pub(crate) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The secret that proves at the token endpoint who began the log-in (RFC 7636, section 4.1).
    pub(crate) fn verifier(&self) -> &str {
        &self.verifier
    }

    /// The challenge for the verifier, by the method `S256` (RFC 7636, section 4.2).
    pub(crate) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_an_attempt_differ_and_follow_from_its_secret() {
        let (one, same, other) = (Attempt::new(b"one"), Attempt::new(b"one"), Attempt::new(b"other"));
        assert_eq!((one.state(), one.nonce(), one.verifier()), (same.state(), same.nonce(), same.verifier()));
        let mut all =
            vec![one.state(), one.nonce(), one.verifier(), other.state(), other.nonce(), other.verifier()];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        assert!((43..=128).contains(&one.verifier().len()), "the length that RFC 7636 asks for");
    }
}
