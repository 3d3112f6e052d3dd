//! The session of a browser: a cookie that names a token and an end, with a code from the agent's session key and the token's
//! digest.
//!
//! Nothing is stored, so sessions outlive a restart, and revoking a token ends them. The session key is not in the database: a
//! copy of it, such as a backup, has the digests of tokens and still opens no session.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use driftless_model::Timestamp;

/// The name of the cookie.
pub(super) const SESSION_COOKIE: &str = "driftless_session";

/// Time that a browser stays logged in.
const LIFETIME: Duration = Duration::from_hours(12);

/// The session of a browser.
pub(super) struct Session {
    /// The name of the token that it was opened with.
    pub(super) token: String,
    end: Timestamp,
}

impl Session {
    pub(super) fn new(token: &str, now: Timestamp) -> Self {
        Self { token: token.to_owned(), end: now.after(LIFETIME) }
    }

    /// The value of the cookie.
    pub(super) fn sealed(&self, key: &[u8]) -> String {
        let Self { token, end } = self;
        let mac = BASE64_URL_SAFE_NO_PAD.encode(self.mac(key).finalize().into_bytes());
        format!("{}.{}.{mac}", BASE64_URL_SAFE_NO_PAD.encode(token), end.0)
    }

    /// Whether a code was made with this key. The comparison takes constant time.
    pub(super) fn has_mac(&self, key: &[u8], mac: &[u8]) -> bool {
        self.mac(key).verify_slice(mac).is_ok()
    }

    fn mac(&self, key: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(b"driftless session ");
        mac.update(self.end.0.to_string().as_bytes());
        mac.update(b" ");
        mac.update(self.token.as_bytes());
        mac
    }
}

/// Reads a cookie. `None`: it is malformed, or its time is over.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<(Session, Vec<u8>)> {
    let mut parts = text.split('.');
    let (token, end, mac) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let token = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let end = Timestamp(end.parse().ok()?);
    let mac = BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?;
    (end > now && end <= now.after(LIFETIME)).then_some((Session { token, end }, mac))
}

/// The header that sets the cookie. It has no path, so that it is valid where the page is served, also below a path.
pub(crate) fn set_cookie(value: &str, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    let seconds = LIFETIME.as_secs();
    format!("{SESSION_COOKIE}={value}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

/// The header that removes the cookie.
pub(crate) fn remove_cookie() -> String {
    format!("{SESSION_COOKIE}=; HttpOnly; SameSite=Strict; Max-Age=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_valid_with_its_key_until_its_end() {
        let now = Timestamp(1_000_000);
        let sealed = Session::new("ci", now).sealed(b"key");
        let (session, mac) = parse(&sealed, now).unwrap();
        assert_eq!(session.token, "ci");
        assert!(session.has_mac(b"key", &mac) && !session.has_mac(b"other", &mac));
        assert!(parse(&sealed, now.after(LIFETIME)).is_none(), "its time is over");
        let longer = sealed.replace(&session.end.0.to_string(), &(session.end.0 - 1).to_string());
        let (changed, mac) = parse(&longer, now).unwrap();
        assert!(!changed.has_mac(b"key", &mac), "the end is part of the code");
        for wrong in ["", "a", "a.b.c", "..", &format!("{sealed}.x")] {
            assert!(parse(wrong, now).is_none(), "{wrong}");
        }
    }
}
