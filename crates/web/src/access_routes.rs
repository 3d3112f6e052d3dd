//! The routes about access: who asks, the named tokens, and the audit.

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::{Extension, Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{
    access::{CONFIGURED_TOKEN, Caller, audit::AuditNote},
    api::read_object,
    error::Error,
    parameters::Parameters,
    shared::{Shared, read},
};
use driftless_model::{Actor, ApiToken, AppName, AuditEntry, Scope, Timestamp};
use driftless_store::Store;

/// Default number of entries of the audit in one answer.
const DEFAULT_LIMIT: usize = 100;
const LARGEST_LIMIT: usize = 1000;

/// The most tokens at a time.
const MOST_TOKENS: usize = 1000;

/// The longest name of a token, in characters.
const LONGEST_NAME: usize = 63;

/// The default lifetime of a token.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// The body of `POST /api/v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenBody {
    pub name: String,
    pub scopes: Vec<Scope>,
    /// A span such as `90d`, or `never`. Default: 365 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<String>,
}

/// The answer to `POST /api/v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedToken {
    #[serde(flatten)]
    pub token: ApiToken,
    /// The token itself. It is shown this once and stored nowhere.
    pub secret: String,
}

/// The answer of `GET /api/v1/whoami`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhoAmI {
    pub actor: Actor,
    pub scopes: Vec<Scope>,
}

pub(crate) async fn whoami(Caller(identity): Caller) -> Json<WhoAmI> {
    Json(WhoAmI { actor: identity.actor.clone(), scopes: identity.scopes().to_vec() })
}

pub(crate) async fn list_tokens(State(shared): State<Shared>) -> Result<Json<Vec<ApiToken>>, Error> {
    let tokens = read(&shared.store, Store::tokens).await?;
    Ok(Json(tokens.into_iter().map(|(_, token)| token).collect()))
}

pub(crate) async fn create_token(
    Caller(identity): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    body: Body,
) -> Result<Response, Error> {
    let body: Option<TokenBody> = read_object(body).await?;
    let body = body.ok_or_else(|| Error::Malformed("the body needs `name` and `scopes`".to_owned()))?;
    let token = new_token(body, identity.actor, shared.clock.now()).map_err(Error::Malformed)?;
    let scopes: Vec<String> = token.scopes.iter().map(ToString::to_string).collect();
    note.set(&format!("{}: {}", token.name, scopes.join(" ")));
    let name = token.name.clone();
    let authenticator = shared.authenticator.clone();
    let stored = token.clone();
    let created = read(&shared.store, move |_| {
        if authenticator.tokens().count() >= MOST_TOKENS {
            return Ok(Err(Error::Refused(format!("there are {MOST_TOKENS} tokens already: revoke some"))));
        }
        authenticator.tokens().create(&stored).map(Ok)
    });
    match created.await?? {
        Some(secret) => Ok((StatusCode::CREATED, Json(CreatedToken { token, secret })).into_response()),
        None => Err(Error::Refused(format!("there is a token `{name}` already: revoke it first"))),
    }
}

pub(crate) async fn revoke_token(
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(name): Path<String>,
) -> Result<StatusCode, Error> {
    let (authenticator, wanted) = (shared.authenticator.clone(), name.clone());
    match read(&shared.store, move |_| authenticator.revoke(&wanted)).await? {
        None => return Err(Error::NoSuchToken(name)),
        Some(0) => {}
        Some(1) => note.set(&format!("{name}; an invite that it made is withdrawn")),
        Some(invites) => note.set(&format!("{name}; {invites} invites that it made are withdrawn")),
    }
    Ok(StatusCode::NO_CONTENT)
}

fn new_token(body: TokenBody, actor: Actor, now: Timestamp) -> Result<ApiToken, String> {
    let TokenBody { name, scopes, expires_in } = body;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_letter) {
        return Err(format!(
            "`name`: use letters, digits, `.`, `-` and `_`, at most {LONGEST_NAME} characters"
        ));
    }
    if name.eq_ignore_ascii_case(CONFIGURED_TOKEN) {
        return Err(format!("`name`: `{CONFIGURED_TOKEN}` is the token of the configuration"));
    }
    if scopes.is_empty() || scopes.len() > 100 {
        return Err("`scopes` needs 1 to 100 scopes, such as `read` or `act:app/shop`".to_owned());
    }
    let lifetime = match expires_in.as_deref() {
        None => Some(DEFAULT_LIFETIME),
        Some("never") => None,
        Some(text) => {
            let span =
                driftless_model::parse_duration(text).map_err(|error| format!("`expiresIn`: {error}"))?;
            Some(span)
        }
    };
    if lifetime.is_some_and(|span| span.is_zero()) {
        return Err("`expiresIn` must be longer than 0s".to_owned());
    }
    Ok(ApiToken {
        name,
        scopes,
        created: now,
        created_by: actor,
        expires: lifetime.map(|span| now.after(span)),
    })
}

/// The query of `GET /api/v1/audit`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only entries with a lower sequence number. Default: the newest.
    before: Option<u64>,
    /// Default 100, at most 1000.
    limit: Option<usize>,
    app: Option<String>,
}

/// The audit, newest entry first.
pub(crate) async fn audit(
    State(shared): State<Shared>,
    Parameters(query): Parameters<AuditQuery>,
) -> Result<Json<Vec<AuditEntry>>, Error> {
    let AuditQuery { before, limit, app } = query;
    let app = app.filter(|app| !app.is_empty()).map(AppName);
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(LARGEST_LIMIT);
    Ok(Json(read(&shared.store, move |store| store.audit(before, limit, app.as_ref())).await?))
}
