//! The credentials that the agent accepts, from its configuration.

use std::{fmt, sync::Arc};

use driftless_config::{Audit, TrustedProxy};
use driftless_model::IpNetwork;
use driftless_model::Scope;
use driftless_oidc::Provider;

use super::token::Token;

/// The requests that are answered.
#[derive(Clone)]
pub struct Access {
    /// The listener is on loopback and there is neither a token nor a proxy of this machine, so its programs need no credentials.
    pub(super) is_local: bool,
    pub(super) token: Option<Token>,
    pub(super) proxy: Option<TrustedProxy>,
    /// The OpenID provider that people log in with.
    pub(super) provider: Option<Arc<Provider>>,
    /// The scopes of the members of the group of the Unix socket.
    pub(super) socket_scopes: Vec<Scope>,
    audit: Audit,
}

impl Access {
    /// For a listener on loopback: no token, and only host names of loopback.
    pub fn loopback() -> Self {
        Self { is_local: true, ..Self::closed() }
    }

    /// For clients that send this token.
    pub fn token(token: Token) -> Self {
        Self { token: Some(token), ..Self::closed() }
    }

    /// For clients with a named token, and for people whom a proxy or a provider has authenticated.
    pub fn closed() -> Self {
        Self {
            is_local: false,
            token: None,
            proxy: None,
            provider: None,
            socket_scopes: Vec::new(),
            audit: Audit::default(),
        }
    }

    /// Also for the people that this proxy has authenticated. If it may connect over loopback, no program of this machine is let in
    /// without credentials: a request of the proxy without a person would have the rights of the proxy's own user.
    #[must_use]
    pub fn with_proxy(self, proxy: Option<TrustedProxy>) -> Self {
        let is_on_loopback =
            proxy.as_ref().is_some_and(|proxy| proxy.from.iter().any(IpNetwork::has_loopback));
        Self { is_local: self.is_local && !is_on_loopback, proxy, ..self }
    }

    /// Also for the people that this OpenID provider has authenticated. Then no program of this machine is let in without credentials:
    /// a reverse proxy in front of the agent is one.
    #[must_use]
    pub fn with_provider(self, provider: Option<Provider>) -> Self {
        Self { is_local: self.is_local && provider.is_none(), provider: provider.map(Arc::new), ..self }
    }

    /// Also for the members of the group of the Unix socket, with these scopes.
    #[must_use]
    pub fn with_socket_scopes(self, socket_scopes: Vec<Scope>) -> Self {
        Self { socket_scopes, ..self }
    }

    /// Keeps the audit in this way.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// Whether both accept the same token of `tokenFile`, or none.
    pub fn has_same_token(&self, other: &Self) -> bool {
        self.token == other.token
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("is_local", &self.is_local).finish_non_exhaustive()
    }
}
