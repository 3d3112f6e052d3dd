//! `host`: the name and labels of a host, in its own configuration and in the settings of a repository.

use driftless_model::{HostIdentity, HostSelector};

use crate::{
    keys,
    value::{Fields as _, Value, variables},
};

/// Reads `host`. The name is empty if it is missing.
pub(super) fn host(value: Value<'_>) -> Option<HostIdentity> {
    let object = value.object(&keys::HOST)?;
    let name = object.parsed("name", HostIdentity::parse_name).unwrap_or_default();
    Some(HostIdentity { name, labels: object.get("labels").map(|map| variables(&map)).unwrap_or_default() })
}

/// Reads a selection of hosts.
pub(super) fn selector(value: Value<'_>) -> Option<HostSelector> {
    let object = value.object(&keys::HOST_SELECTOR)?;
    let selector = HostSelector {
        names: object.strings("names"),
        labels: object.get("labels").map(|map| variables(&map)).unwrap_or_default(),
    };
    if selector == HostSelector::default() {
        object.value.error_help("selects nothing", "name hosts in `names`, or their labels in `labels`");
    }
    Some(selector)
}
