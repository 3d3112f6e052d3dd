//! Access to the API: a trusted proxy that authenticates people, and the audit.

use std::{path::PathBuf, time::Duration};

use driftless_model::{IpNetwork, Scope};

use crate::{
    keys,
    value::{Fields as _, Object, Value},
};

/// A reverse proxy that authenticates people and says in a header who they are (forward authentication).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxy {
    /// The addresses of the proxy. The headers of other clients are ignored.
    pub from: Vec<IpNetwork>,
    /// Users of this machine, by number, that a proxy over loopback may run as, besides root and the agent's own user.
    pub local_users: Vec<u32>,
    /// The header with the user's name, in lower case. Default: `remote-user`.
    pub user_header: String,
    /// The header with the user's groups, separated by commas, in lower case. Default: `remote-groups`.
    pub groups_header: String,
    /// The scopes of each group. The group `*` is every user.
    pub groups: Vec<(String, Vec<Scope>)>,
}

/// Retention and file of the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Time that entries stay in the database. Default: 365 days.
    pub keep: Duration,
    /// A file that each entry is appended to, as a line of JSON. Default: none.
    pub file: Option<PathBuf>,
}

impl Default for Audit {
    fn default() -> Self {
        Self { keep: Duration::from_hours(365 * 24), file: None }
    }
}

/// Reads the value of `trustedProxy`.
pub(super) fn trusted_proxy(value: Value<'_>) -> Option<TrustedProxy> {
    let object = value.object(&keys::TRUSTED_PROXY)?;
    object.require("from");
    object.require("groups");
    let header =
        |key: &str, default: &str| object.parsed(key, header_name).unwrap_or_else(|| default.to_owned());
    let (user_header, groups_header) =
        (header("userHeader", "remote-user"), header("groupsHeader", "remote-groups"));
    Some(TrustedProxy {
        from: object.items("from").iter().filter_map(network).collect(),
        local_users: object.items("localUsers").iter().filter_map(user_number).collect(),
        user_header,
        groups_header,
        groups: object.items("groups").into_iter().filter_map(scoped_name).collect(),
    })
}

/// Reads the value of `audit`.
pub(super) fn audit(value: Value<'_>) -> Option<Audit> {
    let object = value.object(&keys::AUDIT)?;
    let keep = object.duration("keep").unwrap_or(Audit::default().keep);
    Some(Audit { keep, file: object.absolute("file") })
}

/// A name and its scopes.
pub(super) fn scoped_name(value: Value<'_>) -> Option<(String, Vec<Scope>)> {
    let object: Object<'_> = value.object(&keys::PROXY_GROUP)?;
    object.require("name");
    object.require("scopes");
    let scopes = object.items("scopes").iter().filter_map(scope).collect();
    Some((object.owned("name")?, scopes))
}

pub(super) fn scope(value: &Value<'_>) -> Option<Scope> {
    let parsed = Scope::parse(value.string()?);
    parsed.map_err(|error| value.error(error.to_string())).ok()
}

fn network(value: &Value<'_>) -> Option<IpNetwork> {
    let network = IpNetwork::parse(value.string()?);
    if network.is_none() {
        value.error("must be an address or a network, such as `127.0.0.1` or `10.0.0.0/8`");
    }
    network
}

fn user_number(value: &Value<'_>) -> Option<u32> {
    let number = value.string()?.parse().ok();
    if number.is_none() {
        value.error("must be the number of a user, as `id -u NAME` prints it");
    }
    number
}

fn header_name(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if text.is_empty() || text.len() > 100 || !text.chars().all(is_letter) {
        return Err("must be the name of an HTTP header, such as `Remote-User`".to_owned());
    }
    let name = text.to_ascii_lowercase();
    if ["authorization", "cookie", "host", "origin"].contains(&name.as_str()) {
        return Err(format!("`{text}` has a meaning of its own: let the proxy use another header"));
    }
    Ok(name)
}
