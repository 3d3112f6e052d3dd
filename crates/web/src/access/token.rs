//! The token of the configuration (`tokenFile`).

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub(crate) use driftless_store::CONFIGURED_TOKEN;

/// The digest of a token. The token itself is not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is empty")]
    Empty,
    #[error("the token is shorter than {} characters", Token::SHORTEST)]
    Short,
    #[error("the token has characters that a header cannot carry; use letters, digits, `-` and `_`")]
    Unprintable,
}

impl Token {
    /// In characters. A shorter token can be guessed over the network.
    pub const SHORTEST: usize = 16;

    /// Reads a token and trims white space, because a file usually ends with a line break.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if !text.bytes().all(|it| it.is_ascii_graphic()) {
            return Err(TokenError::Unprintable);
        }
        if text.len() < Self::SHORTEST {
            return Err(TokenError::Short);
        }
        Ok(Self(Sha256::digest(text).into()))
    }

    /// Compares digests in constant time.
    pub(super) fn admits(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.ct_eq(&given).into()
    }

    pub(super) fn digest(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_must_be_long_and_printable() {
        assert_eq!(Token::new(" \n"), Err(TokenError::Empty));
        assert_eq!(Token::new("short"), Err(TokenError::Short));
        assert_eq!(Token::new("with a space in between"), Err(TokenError::Unprintable));
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef")), "Ok(Token)");
    }

    #[test]
    fn token_admits_only_itself() {
        let token = Token::new("0123456789abcdef\n").unwrap();
        assert!(token.admits("0123456789abcdef"));
        assert!(!token.admits("0123456789abcdee") && !token.admits(""));
    }
}
