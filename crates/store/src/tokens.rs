//! Named tokens of the API. A token is generated here, returned once, and stored as its SHA-256 digest: it is random, so
//! a digest without salt does not help to guess it.

use std::fmt::Write as _;

use aws_lc_rs::rand;
use rusqlite::params;

use crate::{
    error::{BoxError, Durability, Error},
    store::{Store, readable, to_json},
};
use driftless_model::{Actor, ActorKind, ApiToken, digest_hex};

/// The beginning of every generated token. Other secrets are never looked up here.
pub const TOKEN_PREFIX: &str = "driftless_";

/// The name that the token of the configuration (`tokenFile`) has as an actor. No named token has it.
pub const CONFIGURED_TOKEN: &str = "tokenFile";

/// The random part of a token, in bytes.
const TOKEN_BYTES: usize = 32;

/// Whether a text has the form of a generated token, which is random.
pub fn is_token(text: &str) -> bool {
    let digits = text.strip_prefix(TOKEN_PREFIX).unwrap_or_default();
    digits.len() == 2 * TOKEN_BYTES && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

impl Store {
    /// Stores a new token and returns its secret, which is stored nowhere. `None`: a token of this name exists. It gets no invites of a
    /// former token of its name.
    pub fn create_token(&self, token: &ApiToken) -> Result<Option<String>, Error> {
        const WHAT: &str = "a token";
        let mut bytes = [0; TOKEN_BYTES];
        rand::fill(&mut bytes).map_err(|source| Error::Write { what: WHAT, source: source.into() })?;
        let mut secret = TOKEN_PREFIX.to_owned();
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(secret, "{byte:02x}");
        }
        let digest = digest_hex(secret.as_bytes());
        let text = to_json(token).map_err(|source| Error::Write { what: WHAT, source })?;
        let maker = maker(&token.name).map_err(|source| Error::Write { what: WHAT, source })?;
        let created = self.write_twice(WHAT, Durability::Power, |transaction| {
            let statement = "INSERT OR IGNORE INTO tokens (name, digest, token) VALUES (?1, ?2, ?3)";
            let created = transaction.execute(statement, params![token.name, digest, text])?;
            if created > 0 {
                transaction.execute(DELETE_INVITES, params![maker])?;
            }
            Ok(created)
        })?;
        Ok((created > 0).then_some(secret))
    }

    /// The key that signs the sessions of browsers. It is in no copy of the database.
    pub fn session_key(&self) -> [u8; 32] {
        self.seal.session_key()
    }

    /// All tokens by name, each with the digest of its secret in hexadecimal digits.
    pub fn tokens(&self) -> Result<Vec<(String, ApiToken)>, Error> {
        self.read("the tokens", |connection| {
            let mut statement =
                connection.prepare_cached("SELECT digest, token FROM tokens ORDER BY name")?;
            let mut rows = statement.query([])?;
            let mut tokens = Vec::new();
            while let Some(row) = rows.next()? {
                let text: String = row.get(1)?;
                if let Some(token) = readable::<ApiToken>("a token", &text) {
                    tokens.push((row.get(0)?, token));
                }
            }
            Ok(tokens)
        })
    }

    /// Removes a token and the invites of a fleet that it has made and that nobody has used. Returns the number of these
    /// invites. `None`: there is no token of this name.
    pub fn revoke_token(&self, name: &str) -> Result<Option<usize>, Error> {
        const WHAT: &str = "a token";
        let maker = maker(name).map_err(|source| Error::Write { what: WHAT, source })?;
        self.write_twice(WHAT, Durability::Power, |transaction| {
            if transaction.execute("DELETE FROM tokens WHERE name = ?1", params![name])? == 0 {
                return Ok(None);
            }
            Ok(Some(transaction.execute(DELETE_INVITES, params![maker])?))
        })
    }
}

const DELETE_INVITES: &str = "DELETE FROM fleet_invites WHERE invited_by = ?1";

/// A named token as the maker of invites.
fn maker(name: &str) -> Result<String, BoxError> {
    to_json(&Actor::new(ActorKind::Token, name))
}
