//! Tokens of a GitHub App: a signed request once an hour, instead of a password that lives for ever.
//!
//! The token is kept in memory only. The App's key is read for each request, so that it can be rotated.

use std::{
    fs,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use base64::{Engine, engine::general_purpose};
use reqwest::{Client, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::{
    error::{Cause, Error},
    http,
    limits::Limits,
};
use driftless_clock::Clock;
use driftless_config::GithubApp;
use driftless_model::Timestamp;

/// One App on one installation.
pub(super) struct AppTokens {
    app: GithubApp,
    clock: Clock,
    current: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    text: String,
    expires: Timestamp,
}

#[derive(Serialize)]
struct Claims<'a> {
    iat: u64,
    exp: u64,
    iss: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    token: String,
    expires_at: String,
}

/// A token is not used any more when it has so long to live.
const MARGIN: Duration = Duration::from_mins(5);

/// GitHub refuses requests that are valid for more than ten minutes, or that come from the future.
const LIFETIME: u64 = 540;
const CLOCK_SKEW: u64 = 60;

const LARGEST_ANSWER: usize = 64 * 1024;
const DOING: &str = "get a token for the GitHub App";

impl AppTokens {
    pub(super) fn new(app: GithubApp, clock: Clock) -> Self {
        Self { app, clock, current: Mutex::default() }
    }

    /// A token that will do for one fetch.
    pub(super) fn token(&self, client: &Client, limits: &Limits) -> Result<String, Error> {
        let now = self.clock.now();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = current.as_ref().filter(|it| now.after(MARGIN) < it.expires) {
            return Ok(token.text.clone());
        }
        let token = self.request(client, limits, now)?;
        let text = token.text.clone();
        *current = Some(token);
        Ok(text)
    }

    /// The server did not accept it: the next one is a new one.
    pub(super) fn forget(&self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn request(&self, client: &Client, limits: &Limits, now: Timestamp) -> Result<Token, Error> {
        let failed = |cause: Cause, message: &str| cause.error(DOING, message);
        let jwt = self.jwt(now).map_err(|message| failed(Cause::CredentialsUnreadable, &message))?;
        let url = format!("{}/app/installations/{}/access_tokens", self.app.api, self.app.installation);
        let request = client
            .post(url)
            .bearer_auth(jwt)
            .header(header::ACCEPT, "application/vnd.github+json")
            .header(header::USER_AGENT, concat!("driftless/", env!("CARGO_PKG_VERSION")))
            .header("X-GitHub-Api-Version", "2022-11-28");
        let (status, body) = limits
            .run(async {
                let mut response = request.send().await.map_err(|error| http::broken(limits, &error))?;
                let mut body = Vec::new();
                while let Some(chunk) =
                    response.chunk().await.map_err(|error| http::broken(limits, &error))?
                {
                    body.extend_from_slice(&chunk);
                    if body.len() > LARGEST_ANSWER {
                        return Err(std::io::Error::other("the answer is too long"));
                    }
                }
                Ok((response.status(), body))
            })
            .map_err(|error| failed(Cause::ServerFailed, &error.to_string()))?;
        match status {
            StatusCode::CREATED => {}
            StatusCode::UNAUTHORIZED => {
                let message = "GitHub does not accept the App's key (401); are `appId` and the private key right, and this \
                               machine's clock?";
                return Err(failed(Cause::AuthenticationFailed, message));
            }
            StatusCode::NOT_FOUND => {
                let message = format!("the App has no installation {} (404)", self.app.installation);
                return Err(failed(Cause::InvalidSettings, &message));
            }
            StatusCode::FORBIDDEN => {
                let message = "GitHub forbids it (403); is the installation suspended?";
                return Err(failed(Cause::AccessDenied, message));
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(failed(Cause::ServerFailed, &format!("the server answered {}", status.as_u16())));
            }
            status => {
                return Err(failed(
                    Cause::ServerRefused,
                    &format!("the server answered {}", status.as_u16()),
                ));
            }
        }
        // The answer holds the token, so nothing of it is repeated.
        let answer: Option<Answer> = serde_json::from_slice(&body).ok();
        let token =
            answer.and_then(|it| Some(Token { expires: Timestamp::parse(&it.expires_at)?, text: it.token }));
        token.filter(|it| !it.text.is_empty() && !it.text.chars().any(char::is_control)).ok_or_else(|| {
            let message = "the answer is not that of GitHub's API; is `apiUrl` right?";
            failed(Cause::InvalidSettings, message)
        })
    }

    /// A JSON Web Token (RFC 7519), signed with RS256.
    fn jwt(&self, now: Timestamp) -> Result<String, String> {
        let name = self.app.private_key.display();
        let pem = fs::read_to_string(&self.app.private_key)
            .map_err(|error| format!("could not read the private key {name}: {error}"))?;
        let key = private_key(&pem)
            .ok_or_else(|| format!("{name} is not an RSA private key in PEM, as GitHub provides it"))?;
        let seconds = now.0 / 1000;
        let claims =
            Claims { iat: seconds.saturating_sub(CLOCK_SKEW), exp: seconds + LIFETIME, iss: &self.app.app };
        let claims = serde_json::to_vec(&claims).map_err(|error| error.to_string())?;
        let encode = |bytes: &[u8]| general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let text = format!("{}.{}", encode(br#"{"alg":"RS256","typ":"JWT"}"#), encode(&claims));
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| format!("{name} could not sign"))?;
        Ok(format!("{text}.{}", encode(&signature)))
    }
}

/// PKCS#1, as GitHub makes it, or PKCS#8.
fn private_key(pem: &str) -> Option<RsaKeyPair> {
    let body = |label: &str| {
        let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
        let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
        let digits: String = body.split_whitespace().collect();
        general_purpose::STANDARD.decode(digits).ok()
    };
    let first = body("RSA PRIVATE KEY").and_then(|it| RsaKeyPair::from_der(&it).ok());
    first.or_else(|| body("PRIVATE KEY").and_then(|it| RsaKeyPair::from_pkcs8(&it).ok()))
}
