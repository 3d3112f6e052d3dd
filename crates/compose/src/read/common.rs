//! Fields that several sections of a Compose file have: labels, options, hosts, limits, mounted files.

use std::{collections::BTreeMap, net::IpAddr};

use driftless_model::label;
use driftless_yaml::Kind;

use crate::{
    read::{on_change::on_change, types::FileMount},
    spec::{
        keys::ULIMIT,
        scalar::Plain,
        shape::Object,
        short,
        value::{Placed, Read as _, Value},
    },
};

/// A map, or a list of `key=value`. A bare key has an empty value.
pub(crate) fn labels(value: &Value<'_>) -> BTreeMap<String, String> {
    let pairs = value.assignments().into_iter();
    pairs.map(|pair| (pair.name, pair.value.unwrap_or_default())).collect()
}

/// Labels of a network, a volume or a built image, by which the agent knows its own objects.
pub(crate) fn object_labels(value: &Value<'_>) -> BTreeMap<String, String> {
    let labels = labels(value);
    for name in labels.keys().filter(|name| label::is_reserved(name)) {
        let message = format!("only the agent gives the label `{name}`");
        value.error_help(message, "remove it, or use a name that does not begin with `driftless.`");
    }
    labels
}

/// A map of options for a driver.
pub(crate) fn options(value: &Value<'_>) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for entry in value.mapping() {
        if let Some(option) = value.key(&entry.key, &entry.value).any_scalar() {
            options.insert(entry.key.clone(), option.unwrap_or_default());
        }
    }
    options
}

/// `name:address`, sorted.
pub(crate) fn extra_hosts(value: &Value<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    match &value.node.kind {
        Kind::Mapping(entries) => {
            for entry in entries {
                for address in value.key(&entry.key, &entry.value).string_or_list() {
                    hosts.push(format!("{}:{}", entry.key, short::host_address(&address)));
                }
            }
        }
        Kind::Sequence(_) | Kind::Scalar { .. } => {
            for text in value.strings() {
                match short::host(&text) {
                    Some((name, addresses)) => {
                        hosts.extend(addresses.iter().map(|address| format!("{name}:{address}")));
                    }
                    None => value.error(format!("`{text}` is not `name=address`")),
                }
            }
        }
    }
    for (host, address) in hosts.iter().filter_map(|entry| entry.split_once(':')) {
        // One that is empty may come from a variable that this host does not have.
        let is_right = address.is_empty() || address == "host-gateway" || address.parse::<IpAddr>().is_ok();
        if !is_right {
            let help =
                "write an IP address, or `host-gateway` for the host; the engine resolves no name here";
            value.error_help(format!("`{address}` of `{host}` is no address"), help);
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// Soft and hard limits by name. One number is both.
pub(crate) fn ulimits(value: &Value<'_>) -> BTreeMap<String, (i64, i64)> {
    let mut limits = BTreeMap::new();
    for entry in value.mapping() {
        let limit = value.key(&entry.key, &entry.value);
        let (mut soft, mut hard) = (None, None);
        if matches!(limit.node.kind, Kind::Mapping(_)) {
            for (key, number) in limit.fields(&ULIMIT) {
                match key {
                    "soft" => soft = number.whole::<i64>(),
                    "hard" => hard = number.whole::<i64>(),
                    _ => number.refuse("is not supported yet"),
                }
            }
            if soft.is_none() || hard.is_none() {
                limit.error("needs both `soft` and `hard`");
            }
        } else {
            soft = limit.whole();
            hard = soft;
        }
        if let (Some(soft), Some(hard)) = (soft, hard) {
            limits.insert(entry.key.clone(), (soft, hard));
        }
    }
    limits
}

/// `02:42:ac:11:00:02`.
pub(crate) fn mac_address(value: &Value<'_>) -> Option<String> {
    let text = value.filled()?;
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if parts.len() == 6 && parts.iter().all(is_byte) {
        return Some(parts.join(":").to_ascii_lowercase());
    }
    value.error(format!("`{text}` is not a MAC address; write it as `02:42:ac:11:00:02`"));
    None
}

/// Configs or secrets of a service or a build: names, or maps with these keys.
pub(crate) fn file_mounts(value: &Value<'_>, keys: &'static Object) -> Vec<Placed<FileMount>> {
    let mut found = Vec::new();
    for item in value.sequence() {
        let mut mount = FileMount::default();
        if matches!(item.node.kind, Kind::Mapping(_)) {
            for (key, value) in item.fields(keys) {
                match key {
                    "source" => mount.source = value.owned().unwrap_or_default(),
                    "target" => mount.target = value.filled(),
                    "mode" => mount.mode = file_mode(&value),
                    "uid" => mount.uid = value.whole(),
                    "gid" => mount.gid = value.whole(),
                    "x-driftless" => mount.on_change = on_change(&value),
                    _ => value.refuse("is not supported yet"),
                }
            }
        } else {
            mount.source = item.owned().unwrap_or_default();
        }
        if mount.source.is_empty() {
            item.error("needs a `source`");
        } else {
            found.push(item.placed(mount));
        }
    }
    found
}

/// `0440` as YAML reads it, or `"0440"` as a string; octal either way.
fn file_mode(value: &Value<'_>) -> Option<u32> {
    let mode = match Plain::of(value.node) {
        Some((text, Plain::Text)) => u32::from_str_radix(text.trim_start_matches("0o"), 8).ok(),
        Some(_) | None => value.whole(),
    };
    if mode.is_some_and(|bits| bits > 0o7777) {
        value.error("is not a file mode; write four octal digits, such as `0440`");
        return None;
    }
    mode
}
