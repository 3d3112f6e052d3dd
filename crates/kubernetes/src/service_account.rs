//! `ServiceAccount`s: only their `imagePullSecrets` count, for the pods that name the account and no login of their own.

use super::{
    object::{DEFAULT_NAMESPACE, Key},
    reader::Value,
};
use driftless_model::Location;
use driftless_yaml::Node;

/// A Secret that an account names for the pulls of its pods.
pub(super) struct AccountLogin {
    pub(super) secret: Key,
    pub(super) location: Location,
}

/// Whether an object is an account with logins. Any other account has no effect.
pub(super) fn has_logins(kind: &str, value: &Value<'_>) -> bool {
    kind == "ServiceAccount" && value.node.get("imagePullSecrets").is_some_and(|it| !it.items().is_empty())
}

/// Reads the logins of an account. Its other fields are not checked, because they have no effect.
pub(super) fn read(value: &Value<'_>) -> Option<(Key, Vec<AccountLogin>)> {
    let metadata = value.node.get("metadata")?;
    let namespace = metadata.get("namespace").and_then(Node::as_scalar).filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let key = Key::new(namespace, metadata.get("name")?.as_scalar()?);
    let login = |item: &Node| {
        let name = item.get("name")?;
        let secret = Key::new(namespace, name.as_scalar()?);
        Some(AccountLogin { secret, location: name.place.location() })
    };
    let logins = value.node.get("imagePullSecrets")?.items().iter().filter_map(login).collect();
    Some((key, logins))
}
