//! The provider: its settings, the URL of a log-in, and the exchange of the code.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use driftless_clock::Clock;
use driftless_config::Oidc;
use driftless_model::Timestamp;
use reqwest::header;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use crate::{
    attempt::Attempt,
    client::{ask, client, shown},
    error::Error,
    identity::{Expected, Keys, claims},
    person::{Person, is_complete},
};

/// The time after which the settings of the provider are read again.
const REMEMBERED: Duration = Duration::from_mins(10);

/// Reads the client secret. `None`: there is none.
pub type ReadSecret = Arc<dyn Fn() -> Result<Option<String>, String> + Send + Sync>;

/// An OpenID provider.
pub struct Provider {
    settings: Oidc,
    secret: ReadSecret,
    clock: Clock,
    /// The provider's own settings, and when they were read.
    known: Mutex<Option<(Timestamp, Arc<Endpoints>)>>,
}

/// The answer of the provider, in the query of the URL that the browser comes back to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The code that is exchanged for a token, once.
    pub code: String,
    /// The state of the log-in that this answers.
    pub state: String,
    /// The provider that answers, if it says so (RFC 9207).
    pub iss: Option<String>,
    /// The error in a word, such as `access_denied`.
    pub error: Option<String>,
    /// The error for people.
    pub error_description: Option<String>,
}

/// The part of the provider's settings that is used (OpenID Connect Discovery 1.0, section 3).
#[derive(Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    /// OpenID Connect RP-Initiated Logout 1.0, section 2.1.
    end_session_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// A log-in that has succeeded.
#[derive(Debug)]
pub struct LoggedIn {
    /// The person.
    pub person: Person,
    /// The identity token, which ends the session at the provider.
    pub id_token: IdToken,
}

/// The identity token of a person. It is never shown, logged or stored.
#[derive(Clone)]
pub struct IdToken(String);

impl IdToken {
    /// Its length in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for IdToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdToken(…)")
    }
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    access_token: Option<String>,
}

impl Provider {
    /// A provider with these settings. It is asked at the first log-in.
    pub fn new(settings: Oidc, secret: ReadSecret, clock: Clock) -> Self {
        Self { settings, secret, clock, known: Mutex::new(None) }
    }

    /// The settings in the configuration.
    pub fn settings(&self) -> &Oidc {
        &self.settings
    }

    /// The URL at the provider that a browser is sent to.
    ///
    /// # Errors
    ///
    /// If the provider's settings cannot be read.
    pub async fn begin(&self, attempt: &Attempt) -> Result<String, Error> {
        let endpoints = self.endpoints().await?;
        let mut url = parse(&endpoints.authorization_endpoint, FIND)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.callback())
            .append_pair("scope", &self.scopes(&endpoints))
            .append_pair("state", attempt.state())
            .append_pair("nonce", attempt.nonce())
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// The person whom an answer of the provider is about, with the identity token.
    ///
    /// # Errors
    ///
    /// If the answer is an error or belongs to another log-in, if the provider cannot be asked, or if its identity token is not
    /// valid.
    pub async fn finish(&self, attempt: &Attempt, answer: &Answer) -> Result<LoggedIn, Error> {
        if !attempt.has_state(&answer.state) {
            return Err(Error::OtherAttempt);
        }
        if let Some(word) = &answer.error {
            let text = answer.error_description.as_deref().map(|text| format!("{word}: {text}"));
            return Err(Error::Denied(shown(text.as_deref().unwrap_or(word))));
        }
        let endpoints = self.endpoints().await?;
        if answer.iss.as_ref().is_some_and(|issuer| *issuer != endpoints.issuer) {
            return Err(Error::OtherAttempt);
        }
        let client = self.client()?;
        let tokens = self.exchange(&client, &endpoints, attempt, &answer.code).await?;
        let token = tokens.id_token.ok_or_else(|| Error::Token("there is none".to_owned()))?;
        let doing = "read the keys of the provider";
        let keys: Keys = ask(doing, &endpoints.jwks_uri, client.get(&endpoints.jwks_uri)).await?;
        let expected = Expected {
            issuer: &endpoints.issuer,
            client_id: &self.settings.client_id,
            nonce: attempt.nonce(),
            now: self.clock.now(),
        };
        let mut identity = claims(&token, &keys, &expected)?;
        if !is_complete(&identity, &self.settings)
            && let (Some(url), Some(token)) = (&endpoints.userinfo_endpoint, &tokens.access_token)
        {
            let request = client.get(url).bearer_auth(token);
            let more: Map<String, Value> = ask("read who the person is", url, request).await?;
            // Another subject would be another person (OpenID Connect Core 1.0, section 5.3.2).
            if more.get("sub") != identity.get("sub") {
                return Err(Error::Token("the details are those of another person".to_owned()));
            }
            for (name, value) in more {
                identity.entry(name).or_insert(value);
            }
        }
        let person = Person::new(&identity, &self.settings)?;
        Ok(LoggedIn { person, id_token: IdToken(token) })
    }

    /// The URL at the provider that ends the person's session there and leads back (OpenID Connect RP-Initiated Logout 1.0,
    /// section 2). `None`: the provider has none.
    ///
    /// # Errors
    ///
    /// If the provider's settings cannot be read.
    pub async fn log_out(&self, id_token: Option<&IdToken>) -> Result<Option<String>, Error> {
        let endpoints = self.endpoints().await?;
        let Some(endpoint) = &endpoints.end_session_endpoint else { return Ok(None) };
        let mut url = parse(endpoint, FIND)?;
        let mut query = url.query_pairs_mut();
        // Without a token, the provider asks the person.
        if let Some(IdToken(token)) = id_token {
            query.append_pair("id_token_hint", token);
        }
        query
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("post_logout_redirect_uri", &self.settings.after_log_out());
        drop(query);
        Ok(Some(url.into()))
    }

    /// Asks the provider for its settings, as a log-in would.
    ///
    /// # Errors
    ///
    /// If they cannot be read or used, or the client secret cannot be read.
    pub async fn check(&self) -> Result<(), Error> {
        self.check_secret()?;
        self.endpoints().await.map(drop)
    }

    /// Reads the client secret, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn check_secret(&self) -> Result<(), Error> {
        (self.secret)().map(drop).map_err(Error::Secret)
    }

    fn client(&self) -> Result<reqwest::Client, Error> {
        client(&self.settings.issuer, self.settings.ca_file.as_deref())
    }

    async fn endpoints(&self) -> Result<Arc<Endpoints>, Error> {
        let mut known = self.known.lock().await;
        if let Some((read, endpoints)) = &*known
            && self.clock.now() < read.after(REMEMBERED)
        {
            return Ok(Arc::clone(endpoints));
        }
        let issuer = self.settings.issuer.trim_end_matches('/');
        let url = format!("{issuer}/.well-known/openid-configuration");
        let found: Endpoints = ask(FIND, &url, self.client()?.get(&url)).await?;
        if found.issuer.trim_end_matches('/') != issuer {
            let configured = self.settings.issuer.clone();
            return Err(Error::OtherIssuer { configured, found: shown(&found.issuer) });
        }
        let all = [&found.authorization_endpoint, &found.token_endpoint, &found.jwks_uri];
        for url in all.into_iter().chain(&found.userinfo_endpoint).chain(&found.end_session_endpoint) {
            if !Oidc::is_safe(url) {
                return Err(Error::Unsafe(shown(url)));
            }
        }
        let found = Arc::new(found);
        *known = Some((self.clock.now(), Arc::clone(&found)));
        Ok(found)
    }

    fn scopes(&self, endpoints: &Endpoints) -> String {
        if !self.settings.requested_scopes.is_empty() {
            return self.settings.requested_scopes.join(" ");
        }
        let mut scopes = vec!["openid", "profile"];
        let wanted = [("groups", true), ("email", self.settings.user_claim == "email")];
        scopes.extend(wanted.into_iter().filter_map(|(scope, is_wanted)| {
            (is_wanted && endpoints.scopes_supported.iter().any(|known| known == scope)).then_some(scope)
        }));
        scopes.join(" ")
    }

    /// Exchanges the code for tokens.
    async fn exchange(
        &self,
        client: &reqwest::Client,
        endpoints: &Endpoints,
        attempt: &Attempt,
        code: &str,
    ) -> Result<Tokens, Error> {
        let secret = (self.secret)().map_err(Error::Secret)?;
        let (body, authorization) = self.token_request(endpoints, attempt, code, secret.as_deref());
        let mut request = client
            .post(&endpoints.token_endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(body);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        ask("exchange the code of the log-in", &endpoints.token_endpoint, request).await
    }

    /// The body of the request to the token endpoint (RFC 6749, section 4.1.3), and the header with the client secret.
    fn token_request(
        &self,
        endpoints: &Endpoints,
        attempt: &Attempt,
        code: &str,
        secret: Option<&str>,
    ) -> (String, Option<String>) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &self.settings.callback())
            .append_pair("code_verifier", attempt.verifier());
        // Without a list, a provider takes the secret in a header (OpenID Connect Discovery 1.0, section 3).
        let methods = endpoints.token_endpoint_auth_methods_supported.as_ref();
        let takes_header =
            methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"));
        if let Some(secret) = secret.filter(|_| takes_header) {
            let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", escaped(&self.settings.client_id), escaped(secret));
            return (form.finish(), Some(format!("Basic {}", BASE64_STANDARD.encode(pair))));
        }
        form.append_pair("client_id", &self.settings.client_id);
        if let Some(secret) = secret {
            form.append_pair("client_secret", secret);
        }
        (form.finish(), None)
    }
}

/// The first request of a log-in.
const FIND: &str = "read the settings of the OpenID provider";

fn parse(url: &str, doing: &'static str) -> Result<Url, Error> {
    Url::parse(url).map_err(|error| Error::Malformed { doing, reason: error.to_string() })
}
