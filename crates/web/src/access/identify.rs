//! Decides who sends a request, from its credentials and its connection.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use axum::extract::FromRequestParts;
use http::{HeaderMap, request::Parts};
use tokio::sync::watch;

use super::{
    credentials::{cookie, forwarded_for, given_token, only_value},
    ended_sessions::EndedSessions,
    origin::names_loopback,
    provider_login::ProviderLogin,
    session::{self, Holder, SESSION_COOKIE, Session},
    settings::Access,
    token::CONFIGURED_TOKEN,
    tokens::{Found, TokenRegistry},
};
use crate::{
    error::Error,
    peer::{LocalUser, Peer, TcpPeer},
    rates::FailureRates,
};
use driftless_clock::Clock;
use driftless_config::TrustedProxy;
use driftless_fleet::HostSignature;
use driftless_model::{Actor, ActorKind, AppName, Scope};
use driftless_oidc::{Answer, LoggedIn};
use driftless_store as store;
use driftless_store::{Store, TOKEN_PREFIX, is_token};

/// The longest name of a user that is taken from a header, in characters.
const LONGEST_NAME: usize = 100;

/// The address of a client over the Unix socket, in the audit.
const SOCKET: &str = "socket";

/// The actor of a request, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) actor: Actor,
    scopes: Vec<Scope>,
    pub(crate) credential: Credential,
    /// The address of the client, also behind a trusted proxy. `socket`: the Unix socket. Empty: the agent's own process.
    pub(crate) from: String,
    /// The signature of the request, if it is signed by an enrolled host. Its body must have the digest in it.
    pub(crate) signature: Option<HostSignature>,
}

/// The way in which an actor was identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A token in the header `Authorization`.
    Header,
    /// The cookie that a browser got for a token or from the OpenID provider.
    Cookie,
    /// The header of a trusted proxy.
    Proxy,
    /// The signature of an enrolled host.
    Signature,
    /// A program of root or of the agent's own user on this machine, or of a user who may use the Unix socket.
    LocalUser,
    /// A program of another user on this machine, which may only read.
    OtherLocalUser,
}

impl Identity {
    /// Whether this actor may act on an application of a repository.
    pub(crate) fn may_act(&self, app: &AppName, repository: Option<&str>) -> bool {
        self.scopes.iter().any(|scope| scope.allows_acting_on(app, repository))
    }

    /// Whether this actor may have a repository fetched.
    pub(crate) fn may_fetch(&self, repository: &str) -> bool {
        self.scopes.iter().any(|scope| scope.allows_fetching(repository))
    }

    /// Whether this actor may read the state of the agent.
    pub(crate) fn may_read(&self) -> bool {
        self.scopes.iter().any(Scope::allows_reading)
    }

    /// Whether this actor may report the state of a host.
    pub(crate) fn may_report(&self, host: &str) -> bool {
        self.scopes.iter().any(|scope| scope.allows_reporting(host))
    }

    /// Whether this actor may read what hosts may know about each other: everybody who may report or read.
    pub(crate) fn may_read_peers(&self) -> bool {
        self.may_read() || self.scopes.iter().any(|scope| matches!(scope, Scope::Report(_)))
    }

    /// Whether this is the enrolled host of this name.
    pub(crate) fn is_host(&self, name: &str) -> bool {
        self.credential == Credential::Signature && self.actor.name == name
    }

    /// Whether this actor may do everything.
    pub(crate) fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    pub(crate) fn may_read_logs(&self) -> bool {
        self.may_read() && self.credential != Credential::OtherLocalUser
    }

    pub(crate) fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Whether the browser has a cookie that a log-out removes.
    pub(crate) fn has_session(&self) -> bool {
        self.credential == Credential::Cookie
    }
}

/// The actor of a request, as handlers take it.
pub(crate) struct Caller(pub(crate) Identity);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        parts.extensions.get::<Identity>().cloned().map(Self).ok_or(Error::Unauthorized)
    }
}

/// Knows all credentials that are accepted.
pub(crate) struct Authenticator {
    access: Access,
    provider_login: Option<ProviderLogin>,
    tokens: TokenRegistry,
    ended: EndedSessions,
    /// Changes when a token is revoked or a session ends.
    withdrawals: watch::Sender<()>,
    session_key: [u8; 32],
    /// Wrong credentials that may be guesses of the configured token.
    failures: FailureRates,
    /// Wrong credentials that are no guesses, because those that they resemble are random: signatures, invites and named tokens.
    /// They lock nobody out who logs in from the same address.
    random_failures: FailureRates,
    pub(super) store: Store,
    pub(super) clock: Clock,
}

impl Authenticator {
    pub(crate) fn new(access: Access, store: Store, clock: Clock) -> Self {
        let session_key = store.session_key();
        let (tokens, ended) = (TokenRegistry::load(store.clone()), EndedSessions::load(store.clone()));
        let provider_login =
            access.provider.clone().map(|provider| ProviderLogin::new(provider, session_key, clock));
        let (failures, random_failures) = (FailureRates::default(), FailureRates::default());
        Self {
            access,
            provider_login,
            tokens,
            ended,
            withdrawals: watch::Sender::default(),
            session_key,
            failures,
            random_failures,
            store,
            clock,
        }
    }

    pub(crate) fn tokens(&self) -> &TokenRegistry {
        &self.tokens
    }

    /// Refuses a token from now on, and ends its sessions, open streams and open invites. Returns the number of these invites.
    /// `None`: there is no token of this name. It blocks.
    pub(crate) fn revoke(&self, name: &str) -> Result<Option<usize>, store::Error> {
        let revoked = self.tokens.revoke(name);
        self.withdrawals.send_replace(());
        revoked
    }

    /// Ends the session of a cookie and its open streams. It blocks.
    pub(crate) fn end_session(&self, headers: &HeaderMap) -> Result<(), store::Error> {
        let Some(text) = cookie(headers, SESSION_COOKIE).filter(|text| self.session(text).is_some()) else {
            return Ok(());
        };
        let now = self.clock.now();
        let Some((session, mac)) = session::parse(text, now) else { return Ok(()) };
        let ended = self.ended.add(&mac, session.end, now);
        self.withdrawals.send_replace(());
        ended
    }

    /// Notices each time that a token is revoked or a session ends.
    pub(crate) fn withdrawals(&self) -> watch::Receiver<()> {
        self.withdrawals.subscribe()
    }

    /// Whether the credentials of an actor that was identified before are still valid.
    pub(crate) fn still_admits(&self, headers: &HeaderMap, credential: Credential) -> bool {
        match credential {
            Credential::Header => given_token(headers).is_some_and(|secret| {
                matches!(self.tokens.find(&secret, self.clock.now()), Some(Found::Valid(_)))
                    || self.access.token.as_ref().is_some_and(|token| token.admits(&secret))
            }),
            Credential::Cookie => self.has_session(headers),
            // These are of the connection, of the proxy or of one request.
            Credential::Proxy
            | Credential::Signature
            | Credential::LocalUser
            | Credential::OtherLocalUser => true,
        }
    }

    /// Whether the browser sends the cookie of a session that is valid.
    pub(crate) fn has_session(&self, headers: &HeaderMap) -> bool {
        cookie(headers, SESSION_COOKIE).is_some_and(|text| self.session(text).is_some())
    }

    /// The log-in with the OpenID provider, if there is one.
    pub(crate) fn provider_login(&self) -> Option<&ProviderLogin> {
        self.provider_login.as_ref()
    }

    /// The actor of a request with these headers over this connection. Without a connection it is the process's own.
    pub(crate) async fn identify(
        self: &Arc<Self>,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Identity, Error> {
        let from = self.client_address(headers, peer);
        if let Some(secret) = given_token(headers) {
            // Without a configured token no password is needed: an unknown one belongs to a proxy in front of the agent.
            let is_foreign = self.access.token.is_none() && !secret.starts_with(TOKEN_PREFIX);
            if !is_foreign {
                let (actor, scopes) = self.check_secret(&secret, from)?;
                return Ok(identity(actor, scopes, Credential::Header, from));
            }
        }
        if let Some(person) = self.person(headers, peer).await? {
            return Ok(identity(person.0, person.1, Credential::Proxy, from));
        }
        if let Some((actor, scopes)) = cookie(headers, SESSION_COOKIE).and_then(|text| self.session(text)) {
            return Ok(identity(actor, scopes, Credential::Cookie, from));
        }
        if let Some(Peer::Socket(user)) = peer {
            return self.socket_user(user).await;
        }
        // A request of the proxy is one of a person or of nobody, never one of the user that the proxy runs as.
        let is_of_proxy = peer.and_then(Peer::tcp).is_some_and(|peer| self.is_proxy(peer.client.ip()));
        if !self.access.is_local || is_of_proxy {
            return Err(Error::Unauthorized);
        }
        if !names_loopback(headers) {
            let text = "without a token, only requests to localhost are answered";
            return Err(Error::Forbidden(text.to_owned()));
        }
        Ok(self.local_user(peer.and_then(Peer::tcp), from).await)
    }

    /// The user of a connection over the Unix socket. Only members of its group can connect, and the users that are trusted.
    async fn socket_user(&self, user: LocalUser) -> Result<Identity, Error> {
        let name = tokio::task::spawn_blocking(move || user.name()).await.unwrap_or_default();
        let scopes = if user.is_trusted() { vec![Scope::Admin] } else { self.access.socket_scopes.clone() };
        if scopes.is_empty() {
            return Err(Error::Forbidden(format!("`socket` gives the local user {name} no scope")));
        }
        let actor = Actor::new(ActorKind::LocalUser, name);
        let (credential, from) = (Credential::LocalUser, SOCKET.to_owned());
        Ok(Identity { actor, scopes, credential, from, signature: None })
    }

    /// The actor and scopes of a token. Wrong ones are limited by the client's address. A named token is accepted also if others
    /// have sent many wrong ones from there, as behind a proxy: nobody can guess it.
    fn check_secret(&self, secret: &str, from: Option<IpAddr>) -> Result<(Actor, Vec<Scope>), Error> {
        match self.tokens.find(secret, self.clock.now()) {
            Some(Found::Valid(token)) => return Ok((Actor::new(ActorKind::Token, token.name), token.scopes)),
            Some(Found::Expired(token)) => return Err(Error::Expired(token.name)),
            None => {}
        }
        let failures = if is_token(secret) { &self.random_failures } else { &self.failures };
        if let Some(address) = from {
            failures.check(address).map_err(|seconds| Error::TooMany { seconds })?;
        }
        if self.access.token.as_ref().is_some_and(|token| token.admits(secret)) {
            let actor = Actor::new(ActorKind::Token, CONFIGURED_TOKEN);
            return Ok((actor, vec![Scope::Admin]));
        }
        if let Some(address) = from
            && failures.note(address)
        {
            tracing::warn!(from = %address, "a request with a wrong token was refused; more within a minute are not logged");
        }
        Err(Error::WrongToken)
    }

    /// Counts a wrong signature or invite. `Err`: there were too many from this address.
    pub(crate) fn refuse_random(&self, from: Option<IpAddr>, reason: &str) -> Result<(), Error> {
        let Some(from) = from else { return Ok(()) };
        self.random_failures.check(from).map_err(|seconds| Error::TooMany { seconds })?;
        if self.random_failures.note(from) {
            tracing::warn!(%from, reason, "a request of a host was refused; more within a minute are not logged");
        }
        Ok(())
    }

    /// Exchanges a token for a session. The value of its cookie, and who it is.
    pub(crate) fn log_in(
        &self,
        secret: &str,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<(String, Identity), Error> {
        let from = self.client_address(headers, peer);
        let secret = secret.trim();
        let (actor, scopes) = self.check_secret(secret, from)?;
        let holder = Holder::Token(actor.name.clone());
        let key = self.signing_key(&holder).ok_or(Error::Unauthorized)?;
        let session = Session::new(holder, self.clock.now());
        Ok((session.sealed(&key), identity(actor, scopes, Credential::Cookie, from)))
    }

    /// Ends a log-in with the OpenID provider. The value of the cookie, who it is, and the page to show. A person without scopes
    /// gets no use of the cookie. A wrong answer of the provider counts for no limit: its secrets are random, and everybody can send
    /// one, who would lock out all who log in from the address of the same reverse proxy.
    pub(crate) async fn finish_log_in(
        &self,
        answer: &Answer,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<(String, Identity, String), Error> {
        let login = self.provider_login.as_ref().ok_or(Error::Unauthorized)?;
        let from = self.client_address(headers, peer);
        let (LoggedIn { person, id_token }, next) = login.finish(answer, headers).await?;
        let scopes = person.scopes(login.settings());
        let actor = Actor::new(ActorKind::User, person.name.clone());
        let holder = Holder::Person(person);
        let key = self.signing_key(&holder).ok_or(Error::Unauthorized)?;
        let session = Session::new(holder, self.clock.now());
        let cookie = session.sealed(&key);
        if !scopes.is_empty() {
            login.keep_id_token(&cookie, session.end, id_token);
        }
        Ok((cookie, identity(actor, scopes, Credential::Cookie, from), next))
    }

    /// The URL at the OpenID provider that ends the session of a person there. `None`: the session is of a token, or the provider
    /// has no such URL.
    pub(crate) async fn log_out_url(&self, headers: &HeaderMap) -> Result<Option<String>, Error> {
        let Some((text, login)) = cookie(headers, SESSION_COOKIE).zip(self.provider_login.as_ref()) else {
            return Ok(None);
        };
        match session::parse(text, self.clock.now()) {
            Some((Session { holder: Holder::Person(_), .. }, _)) => login.log_out(text).await,
            Some(_) | None => Ok(None),
        }
    }

    /// The actor and scopes of a cookie. A session ends with its token and with a log-out.
    fn session(&self, text: &str) -> Option<(Actor, Vec<Scope>)> {
        let now = self.clock.now();
        let (session, mac) = session::parse(text, now)?;
        if !session.has_mac(&self.signing_key(&session.holder)?, &mac) || self.ended.contains(&mac) {
            return None;
        }
        match session.holder {
            Holder::Token(name) if name == CONFIGURED_TOKEN => {
                Some((Actor::new(ActorKind::Token, CONFIGURED_TOKEN), vec![Scope::Admin]))
            }
            Holder::Token(name) => {
                let token = self.tokens.named(&name, now)?;
                Some((Actor::new(ActorKind::Token, token.name), token.scopes))
            }
            // The configuration may have changed since the log-in.
            Holder::Person(person) => {
                let scopes = person.scopes(self.provider_login.as_ref()?.settings());
                (!scopes.is_empty()).then(|| (Actor::new(ActorKind::User, person.name), scopes))
            }
        }
    }

    /// The key of the sessions of a holder. They end when the token is revoked or replaced, or the provider is another one.
    fn signing_key(&self, holder: &Holder) -> Option<Vec<u8>> {
        let digest = match holder {
            Holder::Token(name) if name == CONFIGURED_TOKEN => self.access.token.as_ref()?.digest().to_vec(),
            Holder::Token(name) => self.tokens.digest(name)?,
            Holder::Person(_) => self.provider_login.as_ref()?.digest(),
        };
        Some([&self.session_key[..], &digest].concat())
    }

    /// The person whom the trusted proxy names.
    async fn person(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Option<(Actor, Vec<Scope>)>, Error> {
        let (Some(proxy), Some(Peer::Tcp(peer))) = (&self.access.proxy, peer) else { return Ok(None) };
        if !is_from(proxy, peer.client.ip()) {
            return Ok(None);
        }
        let Some(name) = only_value(headers, &proxy.user_header) else { return Ok(None) };
        // On loopback every program of the machine has the proxy's address.
        if peer.client.ip().to_canonical().is_loopback() {
            let user = tokio::task::spawn_blocking(move || peer.user()).await.unwrap_or_default();
            let is_proxy = user.is_some_and(|user| user.is_trusted() || proxy.local_users.contains(&user.id));
            if !is_proxy {
                return Ok(None);
            }
        }
        let name: String = name.chars().take(LONGEST_NAME).collect();
        let scopes = scopes_of(proxy, only_value(headers, &proxy.groups_header).unwrap_or_default());
        if scopes.is_empty() {
            return Err(Error::Forbidden(format!(
                "the user {name} is in no group that `trustedProxy.groups` gives a scope"
            )));
        }
        Ok(Some((Actor::new(ActorKind::User, name), scopes)))
    }

    async fn local_user(&self, peer: Option<TcpPeer>, from: Option<IpAddr>) -> Identity {
        let Some(peer) = peer else {
            return identity(Actor::agent(), vec![Scope::Admin], Credential::LocalUser, from);
        };
        let user = tokio::task::spawn_blocking(move || peer.user().map(|user| (user.name(), user)))
            .await
            .unwrap_or_default();
        match user {
            Some((name, user)) if user.is_trusted() => {
                let actor = Actor::new(ActorKind::LocalUser, name);
                identity(actor, vec![Scope::Admin], Credential::LocalUser, from)
            }
            user => {
                let name = user.map_or_else(String::new, |(name, _)| name);
                let actor = Actor::new(ActorKind::LocalUser, name);
                identity(actor, vec![Scope::Read], Credential::OtherLocalUser, from)
            }
        }
    }

    /// The address of the client; behind a trusted proxy the one that the proxy has added.
    pub(crate) fn client_address(&self, headers: &HeaderMap, peer: Option<Peer>) -> Option<IpAddr> {
        let address = peer?.tcp()?.client.ip().to_canonical();
        Some(if self.is_proxy(address) { forwarded_for(headers).unwrap_or(address) } else { address })
    }

    /// Whether an address is one of the trusted proxy.
    fn is_proxy(&self, address: IpAddr) -> bool {
        self.access.proxy.as_ref().is_some_and(|proxy| is_from(proxy, address))
    }
}

fn is_from(proxy: &TrustedProxy, address: IpAddr) -> bool {
    proxy.from.iter().any(|network| network.contains(address))
}

/// The scopes of the groups in a header, and those of every user.
fn scopes_of(proxy: &TrustedProxy, groups: &str) -> Vec<Scope> {
    let groups: BTreeSet<&str> =
        groups.split(',').map(str::trim).filter(|group| !group.is_empty() && *group != "*").collect();
    let is_in = |name: &str| name == "*" || groups.contains(name);
    let scopes = proxy.groups.iter().filter(|(name, _)| is_in(name)).flat_map(|(_, scopes)| scopes);
    scopes.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

pub(super) fn identity(
    actor: Actor,
    scopes: Vec<Scope>,
    credential: Credential,
    from: Option<IpAddr>,
) -> Identity {
    let from = from.map(|it| it.to_string()).unwrap_or_default();
    Identity { actor, scopes, credential, from, signature: None }
}
