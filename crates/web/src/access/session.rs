//! The session of a browser: a cookie that names a token or a person and an end, with a code from the agent's session key and
//! the token's digest.
//!
//! No open session is stored, so sessions outlive a restart, and revoking a token ends them. Those that a log-out has ended are
//! stored until their time is over. The session key is not in the database: a
//! copy of it, such as a backup, has the digests of tokens and still opens no session.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use driftless_model::Timestamp;
use driftless_oidc::Person;

/// The name of the cookie.
pub(super) const SESSION_COOKIE: &str = "driftless_session";

/// Time that a browser stays logged in.
const LIFETIME: Duration = Duration::from_hours(12);

/// Before the text of a person. No name of a token is written with it.
const PERSON: char = '~';

/// The one who has opened a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The bearer of the token of this name.
    Token(String),
    /// A person whom the OpenID provider has authenticated.
    Person(Person),
}

/// The session of a browser.
pub(super) struct Session {
    pub(super) holder: Holder,
    pub(super) end: Timestamp,
}

impl Holder {
    /// The purpose of the code and the text that it is made from, so that no session of one kind is one of the other.
    fn text(&self) -> (&'static str, String) {
        match self {
            Self::Token(name) => ("driftless session ", name.clone()),
            Self::Person(person) => {
                ("driftless session of a person ", serde_json::to_string(person).unwrap_or_default())
            }
        }
    }
}

impl Session {
    pub(super) fn new(holder: Holder, now: Timestamp) -> Self {
        Self { holder, end: now.after(LIFETIME) }
    }

    /// The value of the cookie.
    pub(super) fn sealed(&self, key: &[u8]) -> String {
        let mac = BASE64_URL_SAFE_NO_PAD.encode(self.mac(key).finalize().into_bytes());
        let text = BASE64_URL_SAFE_NO_PAD.encode(self.holder.text().1);
        let mark = if matches!(self.holder, Holder::Person(_)) { PERSON.to_string() } else { String::new() };
        format!("{mark}{text}.{}.{mac}", self.end.0)
    }

    /// Whether a code was made with this key. The comparison takes constant time.
    pub(super) fn has_mac(&self, key: &[u8], mac: &[u8]) -> bool {
        self.mac(key).verify_slice(mac).is_ok()
    }

    fn mac(&self, key: &[u8]) -> Hmac<Sha256> {
        let (purpose, text) = self.holder.text();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(purpose.as_bytes());
        mac.update(self.end.0.to_string().as_bytes());
        mac.update(b" ");
        mac.update(text.as_bytes());
        mac
    }
}

/// Reads a cookie. `None`: it is malformed, or its time is over.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<(Session, Vec<u8>)> {
    let mut parts = text.split('.');
    let (holder, end, mac) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let decoded = |text: &str| String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok();
    let holder = match holder.strip_prefix(PERSON) {
        Some(person) => Holder::Person(serde_json::from_str(&decoded(person)?).ok()?),
        None => Holder::Token(decoded(holder)?),
    };
    let end = Timestamp(end.parse().ok()?);
    let mac = BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?;
    (end > now && end <= now.after(LIFETIME)).then_some((Session { holder, end }, mac))
}

/// The header that sets the cookie. Without a path it is valid where the page is served, also below a path.
pub(crate) fn set_cookie(value: &str, path: Option<&str>, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    let path = path.map(|path| format!("; Path={path}")).unwrap_or_default();
    let seconds = LIFETIME.as_secs();
    format!("{SESSION_COOKIE}={value}; HttpOnly; SameSite=Strict; Max-Age={seconds}{path}{secure}")
}

/// The header that removes the cookie.
pub(crate) fn remove_cookie() -> String {
    format!("{SESSION_COOKIE}=; HttpOnly; SameSite=Strict; Max-Age=0")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn session_is_valid_with_its_key_until_its_end() {
        let now = Timestamp(1_000_000);
        let ada = Person { name: "ada".to_owned(), groups: ["dev".to_owned()].into() };
        for holder in [Holder::Token("ci".to_owned()), Holder::Person(ada)] {
            let sealed = Session::new(holder.clone(), now).sealed(b"key");
            let (session, mac) = parse(&sealed, now).unwrap();
            assert_eq!(session.holder, holder);
            assert!(session.has_mac(b"key", &mac) && !session.has_mac(b"other", &mac));
            assert!(parse(&sealed, now.after(LIFETIME)).is_none(), "its time is over");
            let longer = sealed.replace(&session.end.0.to_string(), &(session.end.0 - 1).to_string());
            let (changed, mac) = parse(&longer, now).unwrap();
            assert!(!changed.has_mac(b"key", &mac), "the end is part of the code");
            for wrong in ["", "a", "a.b.c", "..", "~", "~.1.a", &format!("{sealed}.x")] {
                assert!(parse(wrong, now).is_none(), "{wrong}");
            }
        }
    }

    #[test]
    fn token_is_no_person_of_the_same_text() {
        let now = Timestamp(1_000_000);
        let ada = Person { name: "ada".to_owned(), groups: BTreeSet::new() };
        let name = serde_json::to_string(&ada).unwrap();
        let sealed = Session::new(Holder::Token(name), now).sealed(b"key");
        let (session, mac) = parse(&format!("~{sealed}"), now).unwrap();
        assert_eq!(session.holder, Holder::Person(ada));
        assert!(!session.has_mac(b"key", &mac));
    }
}
