//! The log-in with the OpenID provider: the cookie that ties the two requests of a browser together, and the exchange.
//!
//! Nothing is stored. The secrets of a log-in follow from the session key and a random number in the cookie. Identity tokens, with
//! which a log-out ends the session at the provider, are in memory alone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use super::credentials::cookie;
use crate::error::Error;
use driftless_agent::random_key;
use driftless_clock::Clock;
use driftless_config::Oidc;
use driftless_model::{Timestamp, error_chain};
use driftless_oidc::{Answer, Attempt, Error as ProviderError, IdToken, LoggedIn, Provider};

/// The name of the cookie of a log-in.
const ATTEMPT_COOKIE: &str = "driftless_login";

/// The time that a person has at the provider.
const LIFETIME: Duration = Duration::from_mins(10);

/// Identity tokens that are kept at the same time. Without one, the provider asks the person who logs out.
const MOST_ID_TOKENS: usize = 1000;

/// The longest identity token that is kept, in bytes: a log-out has it in a URL.
const LONGEST_ID_TOKEN: usize = 6000;

/// Shortest time between two log lines about failures of the provider: anybody can send it a wrong code.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// Requests that wait for the provider at the same time.
const MOST_AT_ONCE: usize = 8;

/// Logs people in with the OpenID provider.
pub(crate) struct ProviderLogin {
    provider: Arc<Provider>,
    key: [u8; 32],
    clock: Clock,
    busy: Semaphore,
    /// When a failure of the provider was logged last.
    logged: Mutex<Option<Instant>>,
    /// By the digest of the session's cookie, with the end of the session.
    id_tokens: Mutex<BTreeMap<[u8; 32], (Timestamp, IdToken)>>,
}

impl ProviderLogin {
    pub(super) fn new(provider: Arc<Provider>, key: [u8; 32], clock: Clock) -> Self {
        Self {
            provider,
            key,
            clock,
            busy: Semaphore::new(MOST_AT_ONCE),
            logged: Mutex::default(),
            id_tokens: Mutex::default(),
        }
    }

    pub(crate) fn settings(&self) -> &Oidc {
        self.provider.settings()
    }

    /// The host of the provider, for the button.
    pub(crate) fn host(&self) -> &str {
        let issuer = &self.settings().issuer;
        let rest = issuer.split_once("://").map_or(issuer.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// The path of the page in browsers, without a slash at the end unless it is the root.
    pub(crate) fn cookie_path(&self) -> &str {
        let rest = self.settings().url.split_once("://").map_or("", |(_, rest)| rest);
        rest.find('/').map_or("/", |slash| &rest[slash..])
    }

    /// Whether browsers reach the page with https.
    pub(crate) fn is_secure(&self) -> bool {
        self.settings().url.starts_with("https://")
    }

    /// A digest of the provider, of the name of this agent there, and of the claims that a person's name and groups come from.
    pub(super) fn digest(&self) -> Vec<u8> {
        let Oidc { issuer, client_id, user_claim, groups_claim, .. } = self.settings();
        let parts = [issuer, client_id, user_claim, groups_claim];
        let digest =
            parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part).chain_update([0]));
        digest.finalize().to_vec()
    }

    /// Begins a log-in: the URL at the provider, and the header that sets the cookie. `next` is the page to show afterwards.
    pub(crate) async fn begin(&self, next: &str) -> Result<(String, String), Error> {
        let _permit = self.busy.try_acquire().map_err(|_| busy())?;
        let number = BASE64_URL_SAFE_NO_PAD.encode(random_key());
        let end = self.clock.now().after(LIFETIME);
        let text = format!("{number}.{}.{}", end.0, BASE64_URL_SAFE_NO_PAD.encode(next));
        let attempt = Attempt::new(&self.code("secret", &number).finalize().into_bytes());
        let url = self.provider.begin(&attempt).await.map_err(|error| self.failed(&error))?;
        let mac = BASE64_URL_SAFE_NO_PAD.encode(self.code("cookie", &text).finalize().into_bytes());
        let secure = if self.is_secure() { "; Secure" } else { "" };
        // `Lax`, because the provider's page leads the browser back.
        let attributes = format!("HttpOnly; SameSite=Lax; Max-Age={}{secure}", LIFETIME.as_secs());
        Ok((url, format!("{ATTEMPT_COOKIE}={text}.{mac}; {attributes}")))
    }

    /// Ends a log-in: the person with the identity token, and the page to show.
    pub(super) async fn finish(
        &self,
        answer: &Answer,
        headers: &HeaderMap,
    ) -> Result<(LoggedIn, String), Error> {
        let text = cookie(headers, ATTEMPT_COOKIE);
        let opened = text.and_then(|text| self.open(text, self.clock.now()));
        // Before the permit: anybody can send an answer without a log-in.
        let (attempt, next) = opened.ok_or_else(|| self.failed(&ProviderError::OtherAttempt))?;
        let _permit = self.busy.try_acquire().map_err(|_| busy())?;
        let logged_in = self.provider.finish(&attempt, answer).await.map_err(|error| self.failed(&error))?;
        Ok((logged_in, next))
    }

    /// Keeps the identity token of a session until its end.
    pub(super) fn keep_id_token(&self, session: &str, end: Timestamp, id_token: IdToken) {
        if id_token.size() > LONGEST_ID_TOKEN {
            return;
        }
        let now = self.clock.now();
        let mut kept = self.id_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (end, _)| *end > now);
        if kept.len() < MOST_ID_TOKENS {
            kept.insert(Sha256::digest(session).into(), (end, id_token));
        }
    }

    /// Ends a session: the URL that ends the person's session at the provider. `None`: the provider has none.
    pub(super) async fn log_out(&self, session: &str) -> Result<Option<String>, Error> {
        let _permit = self.busy.try_acquire().map_err(|_| busy())?;
        let digest: [u8; 32] = Sha256::digest(session).into();
        let kept = self.id_tokens.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest);
        let id_token = kept.map(|(_, id_token)| id_token);
        self.provider.log_out(id_token.as_ref()).await.map_err(|error| Error::Provider(error_chain(&error)))
    }

    /// The log-in of a cookie. `None`: the cookie is not of this agent, or its time is over.
    fn open(&self, text: &str, now: Timestamp) -> Option<(Attempt, String)> {
        let (text, mac) = text.rsplit_once('.')?;
        self.code("cookie", text).verify_slice(&BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?).ok()?;
        let mut parts = text.split('.');
        let (number, end, next) = (parts.next()?, parts.next()?, parts.next()?);
        if Timestamp(end.parse().ok()?) < now {
            return None;
        }
        let next = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(next).ok()?).ok()?;
        Some((Attempt::new(&self.code("secret", number).finalize().into_bytes()), next))
    }

    /// The answer to a log-in that failed. The log has the cause where the person cannot help it.
    fn failed(&self, error: &ProviderError) -> Error {
        let text = error_chain(error);
        if !error.is_of_provider() {
            return Error::Forbidden(text);
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            tracing::error!(
                error = text,
                "a log-in with the OpenID provider failed; more within a minute are not logged"
            );
        }
        Error::Provider(text)
    }

    fn code(&self, purpose: &str, text: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(format!("driftless log-in {purpose} ").as_bytes());
        mac.update(text.as_bytes());
        mac
    }
}

/// The header that removes the cookie of a log-in.
pub(crate) fn remove_attempt() -> String {
    format!("{ATTEMPT_COOKIE}=; HttpOnly; SameSite=Lax; Max-Age=0")
}

fn busy() -> Error {
    Error::Busy("too many people log in at the same time: try again".to_owned())
}
