//! The routes about the keys of a fleet. On a collector: invites, keys, and hosts that join. On a host: to join a collector.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_agent::{JoinError, Joined, LeaveError, LeftCollector, join_fleet, leave_fleet};
use driftless_fleet::{AgentKey, InviteToken, JoinAnswer, JoinRequest, PublicKey};
use driftless_model::{
    Actor, ActorKind, ApiToken, AuditResult, Channel, HostIdentity, Timestamp, error_chain,
};
use driftless_store::{FleetInvite, FleetKey, JoinOutcome, JoiningHost, RevokedKey, Store, StoredConflict};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use super::{
    access::{CONFIGURED_TOKEN, Caller, audit::AuditNote, audit::entry_of},
    api::read_object,
    error::Error,
    fleet::note_conflict,
    parameters::Parameters,
    peer::Peer,
    shared::{Shared, read},
    until::parse_lifetime,
};

/// The time in which an invite can be used.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);
const LONGEST_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// The most open invites, and the most enrolled hosts.
const MOST_INVITES: u64 = 1000;
const MOST_HOSTS: u64 = 1000;

/// The body of `POST /api/v1/fleet/invites`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InviteBody {
    /// The only host that may use the invite. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// A span such as `1h`, at most 30 days. Default: one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<String>,
}

/// The answer to `POST /api/v1/fleet/invites`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedInvite {
    /// The token for `driftless fleet join`. It is shown this once and stored nowhere.
    pub token: String,
    /// When it can no longer be used.
    pub expires: Timestamp,
}

/// The answer of `GET /api/v1/fleet/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetKeys {
    /// The fingerprint of the key of this agent.
    pub own: String,
    /// The enrolled hosts, by name.
    pub hosts: Vec<EnrolledHost>,
    /// The invites that nobody has used yet.
    pub invites: Vec<OpenInvite>,
}

/// A host that is enrolled at this collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolledHost {
    /// Its name.
    pub host: String,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// When it joined.
    pub enrolled: Timestamp,
    /// The actor that made the invite.
    pub invited_by: Actor,
    /// The time of its last signed request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Timestamp>,
}

/// An invite that nobody has used yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenInvite {
    /// The id with which it is withdrawn. It is not the token, and not a part of it. Empty: an older release lists it.
    #[serde(default)]
    pub id: String,
    /// The only host that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The actor that made it.
    pub invited_by: Actor,
    /// When it can no longer be used.
    pub expires: Timestamp,
}

/// The body of `POST /api/v1/fleet/enrolments`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrolmentBody {
    /// The URL of the collector, as in `report.to`.
    pub url: String,
    /// The one-time token of `driftless fleet invite`.
    pub token: String,
}

impl EnrolledHost {
    /// The host of a stored key.
    pub(super) fn of(key: FleetKey) -> Self {
        let FleetKey { host, key, instance: _, enrolled, invited_by, counter: _, heard } = key;
        Self { host, fingerprint: fingerprint(&key), enrolled, invited_by, heard }
    }
}

impl OpenInvite {
    fn of(invite: FleetInvite) -> Self {
        let id = invite.id();
        let FleetInvite { key: _, host, invited_by, expires } = invite;
        Self { id, host, invited_by, expires }
    }

    /// The hosts that may use it.
    pub(super) fn hosts(&self) -> &str {
        self.host.as_deref().unwrap_or("any host")
    }
}

/// The fingerprint of a stored public key.
fn fingerprint(key: &str) -> String {
    key.parse().map(|key: PublicKey| key.fingerprint()).unwrap_or_default()
}

/// The key of this agent, which is made at the first use.
async fn own_key(store: &Store) -> Result<AgentKey, Error> {
    let seed = read(store, Store::fleet_key_seed).await?;
    AgentKey::from_seed(&seed).map_err(|error| Error::State(error.to_string()))
}

fn unusable(error: driftless_fleet::InvalidKey) -> Error {
    Error::State(error.to_string())
}

/// Makes an invite for one host.
pub(super) async fn invite(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    body: Body,
) -> Result<Response, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let InviteBody { host, expires_in } = read_object(body).await?.unwrap_or_default();
    if let Some(host) = host.as_ref().filter(|host| !HostIdentity::is_name(host)) {
        return Err(Error::Malformed(format!("`host`: `{host}` is no name of a host")));
    }
    let lifetime = parse_lifetime(expires_in.as_deref(), DEFAULT_LIFETIME, LONGEST_LIFETIME)?;
    let now = shared.clock.now();
    let ends = token_of(&shared.store, &caller.actor).await?.and_then(|token| token.expires);
    let expires = now.after(lifetime);
    let expires = ends.map_or(expires, |ends| ends.min(expires));
    let collector = own_key(&shared.store).await?.public().map_err(unusable)?;
    let token = InviteToken::new(&collector).map_err(unusable)?;
    let key = token.key().and_then(|key| key.public()).map_err(unusable)?.to_string();
    note.set(&format!("{} until {expires}", host.as_deref().unwrap_or("any host")));
    let invited_by = caller.actor.clone();
    let stored = FleetInvite { key, host: host.clone(), invited_by, expires };
    let known = read(&shared.store, move |store| match &stored.host {
        Some(host) => store.fleet_key(host).map(|key| (key, stored)),
        None => Ok((None, stored)),
    });
    let (known, stored) = known.await?;
    if let Some(FleetKey { host, key, .. }) = known {
        return Err(Error::Refused(format!(
            "a machine is enrolled as `{host}` (key {}): for the same one, run `driftless fleet invite` without --name; if another one \
             replaces it, run `driftless fleet revoke {host}` first",
            fingerprint(&key)
        )));
    }
    let is_stored =
        read(&shared.store, move |store| store.create_fleet_invite(&stored, MOST_INVITES, now)).await?;
    if !is_stored {
        token_of(&shared.store, &caller.actor).await?;
        return Err(Error::Refused(format!(
            "there are {MOST_INVITES} open invites already: withdraw some with `driftless fleet revoke --invite ID`"
        )));
    }
    let created = CreatedInvite { token: token.to_string(), expires };
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

/// The named token of an actor. Its invites end with it. `None`: the actor has none.
///
/// # Errors
///
/// If it was revoked since the request began.
async fn token_of(store: &Store, actor: &Actor) -> Result<Option<ApiToken>, Error> {
    if actor.kind != ActorKind::Token || actor.name == CONFIGURED_TOKEN {
        return Ok(None);
    }
    let mut tokens = read(store, Store::tokens).await?.into_iter().map(|(_, token)| token);
    tokens.find(|token| token.name == actor.name).map(Some).ok_or(Error::WrongToken)
}

/// The refusal of another machine with the name of an enrolled host.
fn taken(known: &FleetKey) -> Error {
    let (host, key) = (&known.host, fingerprint(&known.key));
    Error::Refused(format!(
        "another machine is enrolled as `{host}` (key {key}): give this one another name, or run `driftless fleet revoke {host}` on the collector first"
    ))
}

/// The keys of the enrolled hosts, and the open invites.
pub(super) async fn list(State(shared): State<Shared>) -> Result<Json<FleetKeys>, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let own = own_key(&shared.store).await?.public().map_err(unusable)?.fingerprint();
    let keys = read(&shared.store, Store::fleet_keys).await?;
    let hosts = keys.into_iter().map(EnrolledHost::of).collect();
    Ok(Json(FleetKeys { own, hosts, invites: open_invites(&shared).await? }))
}

/// The invites that can still be used.
pub(super) async fn open_invites(shared: &Shared) -> Result<Vec<OpenInvite>, Error> {
    let now = shared.clock.now();
    let invites = read(&shared.store, move |store| store.fleet_invites(now)).await?;
    Ok(invites.into_iter().map(OpenInvite::of).collect())
}

/// Withdraws an open invite: nobody can use it from now on.
pub(super) async fn withdraw(
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(id): Path<String>,
) -> Result<StatusCode, Error> {
    withdraw_invite(&shared, &note, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Withdraws the invite with this id.
pub(super) async fn withdraw_invite(shared: &Shared, note: &AuditNote, id: String) -> Result<(), Error> {
    let (wanted, now) = (id.clone(), shared.clock.now());
    let withdrawn = read(&shared.store, move |store| store.withdraw_fleet_invite(&wanted, now)).await?;
    let Some(invite) = withdrawn.map(OpenInvite::of) else { return Err(Error::NoSuchInvite(id)) };
    note.set(&format!("{id} for {}, by {}", invite.hosts(), invite.invited_by));
    Ok(())
}

/// Revokes the key of a host. A host that leaves is forgotten, too.
pub(super) async fn revoke(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(name): Path<String>,
) -> Result<StatusCode, Error> {
    let (wanted, leaves, now) = (name.clone(), caller.is_host(&name), shared.clock.now());
    let revoked = read(&shared.store, move |store| {
        let revoked = store.revoke_fleet_key(&wanted, now)?;
        if revoked.is_some_and(|revoked| revoked.had_key) && leaves {
            store.remove_fleet_host(&wanted)?;
        }
        Ok(revoked)
    });
    let Some(RevokedKey { had_key: _, invites, requests }) = revoked.await? else {
        return Err(Error::NoSuchKey(name));
    };
    let invites = match invites {
        0 => String::new(),
        1 => "; an open invite for it is dropped".to_owned(),
        invites => format!("; {invites} open invites for it are dropped"),
    };
    let requests = match requests {
        0 => String::new(),
        1 => "; a request that waited for it is dropped".to_owned(),
        requests => format!("; {requests} requests that waited for it are dropped"),
    };
    note.set(&format!("{name}{invites}{requests}"));
    Ok(StatusCode::NO_CONTENT)
}

/// Enrols a host that has an invite. It has no other credentials, so the rate of failures is limited.
pub(super) async fn join(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<JoinAnswer>, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let address = shared.authenticator.client_address(&headers, peer.map(|Extension(peer)| peer));
    let from = address.map(|address| address.to_string()).unwrap_or_default();
    let request: Option<JoinRequest> = read_object(body).await?;
    let request = request.ok_or_else(|| Error::Malformed("the body needs a request to join".to_owned()))?;
    let is_named = HostIdentity::is_name(&request.host) && HostIdentity::is_name(&request.instance);
    if !is_named {
        return Err(Error::Malformed("`host` or `instance` is no name".to_owned()));
    }
    let key = own_key(&shared.store).await?;
    let collector = key.public().map_err(unusable)?;
    let outcome = if request.is_genuine(&collector) {
        let JoinRequest { host, instance, key, invite, .. } = request.clone();
        let joining = JoiningHost { host, key: key.to_string(), instance, invite: invite.to_string() };
        let now = shared.clock.now();
        let joined = read(&shared.store, move |store| {
            // Nobody without an invite makes the disk work.
            let is_known = store.knows_joining_host(&joining, now)?;
            if is_known { store.join_fleet(&joining, MOST_HOSTS, now) } else { Ok(JoinOutcome::NoInvite) }
        });
        joined.await?
    } else {
        JoinOutcome::NoInvite
    };
    let host = &request.host;
    let detail = format!("{host}: key {}", request.key.fingerprint());
    let actor = Actor::new(ActorKind::Host, host.clone());
    let (actor, detail, error) = match outcome {
        JoinOutcome::Enrolled(key) => (actor, format!("{detail}, invited by {}", key.invited_by), None),
        JoinOutcome::NoInvite => {
            // It is not in the audit, which nobody may fill from outside.
            shared
                .authenticator
                .refuse_random(address, &format!("{}: an invite that is not valid", request.host))?;
            let text = "the token is not one of this collector, was used, or has expired: run `driftless fleet invite` on the collector for another one";
            return Err(Error::NotEnrolled(text.to_owned()));
        }
        JoinOutcome::OtherHost(other) => {
            let text = format!("the token is for the host `{other}`, and this one is `{host}`");
            (actor, detail, Some(Error::NotEnrolled(text)))
        }
        JoinOutcome::Taken(known) => {
            let now = shared.clock.now();
            let (instance, from) = (request.instance.clone(), from.clone());
            let conflict = StoredConflict { instance, from, reason: String::new(), at: now };
            note_conflict(&shared.store, host, conflict).await?;
            (actor, detail, Some(taken(&known)))
        }
        JoinOutcome::Full(most) => (
            actor,
            detail,
            Some(Error::FleetFull(format!("this collector has {most} enrolled hosts already"))),
        ),
    };
    let mut entry = entry_of(actor, Channel::Api, &from, "join fleet");
    entry.detail = detail;
    if let Some(error) = &error {
        (entry.result, entry.message) = (AuditResult::Refused, error.to_string());
    }
    shared.auditor.store(entry).await;
    match error {
        Some(error) => Err(error),
        None => JoinAnswer::new(&key, &request).map(Json).map_err(unusable),
    }
}

/// Joins a collector: this agent signs its reports to it from now on.
pub(super) async fn enrol(
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    body: Body,
) -> Result<(StatusCode, Json<Joined>), Error> {
    let body: Option<EnrolmentBody> = read_object(body).await?;
    let EnrolmentBody { url, token } =
        body.ok_or_else(|| Error::Malformed("the body needs `url` and `token`".to_owned()))?;
    note.set(&url);
    let joined =
        join_fleet(shared.handle.fleet().enrolments(), &url, &token).await.map_err(|error| match &error {
            JoinError::Token => Error::Malformed(error.to_string()),
            JoinError::NotConfigured(_) | JoinError::NoCollector(_) | JoinError::NoName => {
                Error::Refused(error.to_string())
            }
            JoinError::Collector { .. } | JoinError::Foreign(_) => Error::Collector(error_chain(&error)),
            JoinError::Key(_) => Error::State(error_chain(&error)),
        })?;
    Ok((StatusCode::CREATED, Json(joined)))
}

/// The parameters of [`leave`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaveQuery {
    url: Option<String>,
    #[serde(default)]
    force: bool,
}

/// Leaves a collector: this agent does not sign its reports to it any more.
pub(super) async fn leave(
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Parameters(LeaveQuery { url, force }): Parameters<LeaveQuery>,
) -> Result<Json<LeftCollector>, Error> {
    let url = url.ok_or_else(|| Error::Malformed("the query needs `url`".to_owned()))?;
    note.set(&url);
    let left =
        leave_fleet(shared.handle.fleet().enrolments(), &url, force).await.map_err(|error| match &error {
            LeaveError::NotJoined(_) => Error::Refused(error.to_string()),
            LeaveError::Collector { .. } => Error::Collector(error_chain(&error)),
            LeaveError::State(_) => Error::State(error_chain(&error)),
        })?;
    if !left.removed {
        note.set(&format!("{url}, which has not removed the key: {}", left.message));
    }
    Ok(Json(left))
}
