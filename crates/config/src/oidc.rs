//! `oidc`: the OpenID provider that people log in with on the page.

use std::path::PathBuf;

use driftless_model::Scope;

use crate::{
    fleet_place::{is_in_clear, is_url},
    keys,
    secret::Secret,
    trusted_proxy::scoped_name,
    value::{Fields as _, Object, Value},
};

/// The path of the page at which the provider ends a log-in, below the page's own address.
const OIDC_CALLBACK: &str = "auth/callback";

/// An OpenID provider, and the scopes of the people whom it has authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oidc {
    /// The provider's URL as it names itself. Its settings are at `/.well-known/openid-configuration` below it.
    pub issuer: String,
    /// The name of this agent at the provider.
    pub client_id: String,
    /// The password of this agent at the provider. Default: none, as for a public client.
    pub client_secret: Option<Secret>,
    /// The URL of the page in browsers, without a slash at the end.
    pub url: String,
    /// The OAuth scopes that are asked for. Empty: `openid`, `profile`, and `groups` if the provider knows it.
    pub requested_scopes: Vec<String>,
    /// The claim with the name of the person. Default: `preferred_username`.
    pub user_claim: String,
    /// The claim with the groups of the person; dots lead into objects. Default: `groups`.
    pub groups_claim: String,
    /// The scopes of each group. The group `*` is every person.
    pub groups: Vec<(String, Vec<Scope>)>,
    /// The scopes of each person, by the name in `user_claim`.
    pub users: Vec<(String, Vec<Scope>)>,
    /// A PEM file of additional certificate authorities.
    pub ca_file: Option<PathBuf>,
}

impl Oidc {
    /// The URL that the provider sends a browser back to.
    pub fn callback(&self) -> String {
        format!("{}/{OIDC_CALLBACK}", self.url)
    }

    /// The URL that the provider sends a browser back to after a log-out: the form to log in.
    pub fn after_log_out(&self) -> String {
        format!("{}/login", self.url)
    }

    /// Whether a URL may be asked: with TLS, or on this machine.
    pub fn is_safe(url: &str) -> bool {
        (url.starts_with("https://") || url.starts_with("http://")) && !is_in_clear(url)
    }
}

/// Reads the value of `oidc`.
pub(super) fn oidc(value: Value<'_>) -> Option<Oidc> {
    let object = value.object(&keys::OIDC)?;
    for key in ["issuer", "clientId", "url"] {
        object.require(key);
    }
    let secret = (object.owned("clientSecretEnv"), object.absolute("clientSecretFile"));
    let client_secret = match secret {
        (Some(_), Some(_)) => {
            value_of(
                &object,
                "clientSecretEnv",
                "`clientSecretEnv` and `clientSecretFile` exclude each other",
            );
            None
        }
        (name, path) => name.map(Secret::Environment).or_else(|| path.map(Secret::File)),
    };
    let named = |key: &str| object.items(key).into_iter().filter_map(scoped_name).collect::<Vec<_>>();
    let (groups, users) = (named("groups"), named("users"));
    if groups.is_empty() && users.is_empty() {
        object.value.error("nobody could log in: give `groups` or `users` with their scopes");
    }
    let requested_scopes = object.strings("requestedScopes");
    let is_scope = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !requested_scopes.iter().all(is_scope) {
        value_of(&object, "requestedScopes", "a scope is one word, such as `profile`");
    } else if !requested_scopes.is_empty() && !requested_scopes.iter().any(|scope| scope == "openid") {
        value_of(&object, "requestedScopes", "without `openid` the provider gives no identity");
    }
    let claim = |key: &str, default: &str| object.owned(key).unwrap_or_else(|| default.to_owned());
    Some(Oidc {
        issuer: object.parsed("issuer", address)?,
        client_id: object.owned("clientId")?,
        client_secret,
        url: object.parsed("url", address)?.trim_end_matches('/').to_owned(),
        requested_scopes,
        user_claim: claim("userClaim", "preferred_username"),
        groups_claim: claim("groupsClaim", "groups"),
        groups,
        users,
        ca_file: object.absolute("caFile"),
    })
}

fn value_of(object: &Object<'_>, key: &str, message: &str) {
    if let Some(value) = object.get(key) {
        value.error(message);
    }
}

fn address(text: &str) -> Result<String, String> {
    if is_url(text) && Oidc::is_safe(text) {
        return Ok(text.to_owned());
    }
    Err("is a URL such as `https://auth.example.com`, without a user and a query; \
         http is for this machine only"
        .to_owned())
}
