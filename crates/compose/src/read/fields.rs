//! Fields of a service with a syntax of their own: commands, health checks, policies, dependencies, networks, devices.
//! Each function reads one field in all its syntaxes.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use driftless_model::{
    Attachment, Condition, DeviceRequest, Healthcheck, INTERFACE_NAME, Peer, PullPolicy, RestartPolicy,
};
use driftless_yaml::{Entry, Kind};

use crate::{
    read::{
        common::{mac_address, options},
        types::{DependsOn, EnvFile, Joined, Link},
    },
    spec::{
        command_line,
        env_format::EnvFormat,
        keys::{ATTACHMENT, DEPENDENCY, DEVICE, ENV_FILE, HEALTHCHECK, LOGGING},
        scalar, short,
        value::{Placed, Read as _, Value},
    },
};

/// A list of words, or one string that is split into words. Null means "as in the image".
pub(crate) fn command(value: &Value<'_>) -> Option<Vec<String>> {
    if matches!(value.node.kind, Kind::Sequence(_)) {
        return Some(value.strings());
    }
    if value.node.is_null() {
        return None;
    }
    let text = value.string()?;
    let Some(split) = command_line::split(&text) else {
        value.error("cannot be split into words: a quote or parenthesis is not closed");
        return None;
    };
    if let Some(operator) = split.cut_at {
        let message = format!("the command ends at `{operator}`, because no shell runs it");
        let help = "write a list: [\"sh\", \"-c\", \"…\"]";
        value.report().say(value.node.warning(&*value.path, message).help(help));
    }
    Some(split.words)
}

/// `None`: nothing is set.
pub(crate) fn healthcheck(value: &Value<'_>) -> Option<Healthcheck> {
    let nothing = Healthcheck {
        test: Vec::new(),
        interval: None,
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    };
    let mut check = nothing.clone();
    for (key, value) in value.fields(&HEALTHCHECK) {
        match key {
            "test" => check.test = health_test(&value),
            "interval" => check.interval = value.duration(),
            "timeout" => check.timeout = value.duration(),
            "retries" => check.retries = value.whole(),
            "start_period" => check.start_period = value.duration(),
            "start_interval" => check.start_interval = value.duration(),
            "disable" => {}
            _ => value.refuse("is not supported yet"),
        }
    }
    if check.start_interval.is_some() && check.start_period.is_none() {
        let interval = value.node.get("start_interval").map(|node| value.key("start_interval", node));
        if let Some(interval) = interval {
            let message = "needs `start_period`, the time in which it applies";
            interval.report().say(interval.node.finding(&*interval.path, message).help("set `start_period`"));
        }
    }
    let disable = value.node.get("disable").map(|node| value.key("disable", node));
    if disable.and_then(|disable| disable.boolean()).unwrap_or_default() {
        check.test = vec!["NONE".to_owned()];
    }
    (check != nothing).then_some(check)
}

fn health_test(value: &Value<'_>) -> Vec<String> {
    let Kind::Sequence(items) = &value.node.kind else {
        return value.filled().map(|text| vec!["CMD-SHELL".to_owned(), text]).unwrap_or_default();
    };
    let test = value.strings();
    let is_known = test.first().is_none_or(|word| matches!(word.as_str(), "CMD" | "CMD-SHELL" | "NONE"));
    if !is_known {
        let message = "a test given as a list must start with `CMD`, `CMD-SHELL` or `NONE`";
        let node = items.first().unwrap_or(value.node);
        value.report().say(node.finding(&*value.path, message));
    }
    test
}

/// `no`, `always`, `unless-stopped`, `on-failure`, `on-failure:3`. Docker Compose also takes the words of
/// `deploy.restart_policy`, `none` and `any`.
pub(crate) fn restart(value: &Value<'_>) -> Option<RestartPolicy> {
    let text = value.owned()?;
    let (word, number) = match text.split_once(':') {
        Some((word, number)) => (word, Some(number)),
        None => (text.as_str(), None),
    };
    let policy = match (word, number) {
        ("" | "no" | "none", None) => Some(RestartPolicy::No),
        ("always" | "any", None) => Some(RestartPolicy::Always),
        ("unless-stopped", None) => Some(RestartPolicy::UnlessStopped),
        ("on-failure", None) => Some(RestartPolicy::OnFailure { max_retries: None }),
        ("on-failure", Some(number)) => {
            let number = number.parse::<u32>().ok();
            number.map(|most| RestartPolicy::OnFailure { max_retries: Some(most).filter(|most| *most > 0) })
        }
        _ => None,
    };
    if policy.is_none() {
        value.error_help(
            format!("`{text}` is not a restart policy"),
            "use `no`, `always`, `unless-stopped`, `on-failure` or `on-failure:3`",
        );
    }
    policy
}

/// The age of an image for `pull_policy: refresh` without `pull_refresh_after`.
pub(crate) const REFRESH: Duration = Duration::from_hours(24);

pub(crate) fn pull_policy(value: &Value<'_>) -> Option<PullPolicy> {
    let text = value.owned()?;
    match text.as_str() {
        "always" => Some(PullPolicy::Always),
        "never" => Some(PullPolicy::Never),
        // Lowering checks whether there is a `build`.
        "missing" | "if_not_present" | "build" => Some(PullPolicy::IfNotPresent),
        // `pull_refresh_after` sets the age.
        "refresh" => Some(PullPolicy::Every(REFRESH)),
        other => {
            let policy = pull_age(other).map(PullPolicy::Every);
            if policy.is_none() {
                value.error(format!(
                    "`{other}` is not a pull policy; use `always`, `missing`, `never`, `daily`, `weekly` or `every_12h`"
                ));
            }
            policy
        }
    }
}

/// The age at which an image is pulled again: `daily`, `weekly`, `every_12h`.
fn pull_age(policy: &str) -> Option<Duration> {
    match policy {
        "daily" => Some(Duration::from_hours(24)),
        "weekly" => Some(Duration::from_hours(7 * 24)),
        other => other.strip_prefix("every_").and_then(scalar::duration),
    }
}

/// `pid` or `ipc`: one of the allowed words, or another service or container.
pub(crate) fn namespace(value: &Value<'_>, allowed: &[&str]) -> Option<Placed<String>> {
    if value.node.is_null() {
        return None;
    }
    let mode = value.filled()?;
    if allowed.contains(&mode.as_str()) || Peer::parse(&mode).is_some() {
        return Some(value.placed(mode));
    }
    let known = format!("{}, service:NAME, container:NAME", allowed.join(", "));
    value.error(format!("`{mode}` is not a value of this key; use one of: {known}"));
    None
}

/// The driver and its options. Without a driver the options are for the default driver of the engine.
pub(crate) fn logging(value: &Value<'_>) -> Option<(String, BTreeMap<String, String>)> {
    let (mut driver, mut options) = (String::new(), BTreeMap::new());
    for (key, value) in value.fields(&LOGGING) {
        match key {
            "driver" => driver = value.owned().unwrap_or_default(),
            "options" => options = self::options(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    (!driver.is_empty() || !options.is_empty()).then_some((driver, options))
}

/// A device of the host: its path, its path in the container, its permissions.
type Device = (String, String, String);

/// The devices of the host, and the requests to device drivers.
pub(crate) fn devices(value: &Value<'_>) -> (Vec<Device>, Vec<DeviceRequest>) {
    let (mut devices, mut requests) = (Vec::new(), Vec::new());
    for item in value.sequence() {
        if matches!(item.node.kind, Kind::Mapping(_)) {
            let (mut source, mut target, mut permissions) = (None, None, None);
            for (key, value) in item.fields(&DEVICE) {
                match key {
                    "source" => source = value.owned(),
                    "target" => target = value.owned(),
                    "permissions" => permissions = value.owned(),
                    _ => value.refuse("is not supported yet"),
                }
            }
            match source.map(|source| (cdi_device(&source), source)) {
                Some((Some(request), _)) => requests.push(request),
                Some((None, source)) => {
                    let target = target.unwrap_or_else(|| source.clone());
                    devices.push((source, target, permissions.unwrap_or_else(|| "rwm".to_owned())));
                }
                None => item.error("needs a `source`"),
            }
            continue;
        }
        let Some(text) = item.string() else { continue };
        if let Some(request) = cdi_device(&text) {
            requests.push(request);
            continue;
        }
        match short::device(&text) {
            Ok(device) => devices.push(device),
            Err(message) => item.error(message),
        }
    }
    devices.sort_unstable();
    (devices, requests)
}

/// A device of the Container Device Interface: `vendor.com/class=name`.
fn cdi_device(text: &str) -> Option<DeviceRequest> {
    let (kind, name) = text.split_once('=')?;
    let (vendor, class) = kind.split_once('/')?;
    let is_name = |part: &str| !part.is_empty() && !part.contains('/');
    (is_name(vendor) && is_name(class) && !name.is_empty()).then(|| DeviceRequest {
        driver: "cdi".to_owned(),
        ids: vec![text.to_owned()],
        ..DeviceRequest::default()
    })
}

/// A list of names, or a map with conditions.
pub(crate) fn depends_on(value: &Value<'_>) -> Vec<Placed<DependsOn>> {
    let started = |service: String| DependsOn {
        service,
        condition: Condition::Started,
        required: true,
        restart: false,
    };
    let Kind::Mapping(entries) = &value.node.kind else {
        let items = value.sequence();
        return items.iter().filter_map(|item| Some(item.placed(started(item.owned()?)))).collect();
    };
    let mut found = Vec::new();
    for entry in entries {
        let details = value.key(&entry.key, &entry.value);
        let mut dependency = started(entry.key.clone());
        for (key, value) in details.fields(&DEPENDENCY) {
            match key {
                "condition" => match value.owned().as_deref() {
                    Some("service_started") => dependency.condition = Condition::Started,
                    Some("service_healthy") => dependency.condition = Condition::Healthy,
                    Some("service_completed_successfully") => {
                        dependency.condition = Condition::CompletedSuccessfully;
                    }
                    Some(other) => value.error(format!(
                        "`{other}` is not a condition; use `service_started`, `service_healthy` or \
                         `service_completed_successfully`"
                    )),
                    None => {}
                },
                "required" => dependency.required = value.boolean().unwrap_or(true),
                "restart" => dependency.restart = value.boolean().unwrap_or_default(),
                _ => value.refuse("is not supported yet"),
            }
        }
        let placed = at_key(&details, entry, dependency);
        if entry.value.get("condition").is_none() && matches!(entry.value.kind, Kind::Mapping(_)) {
            value.report().say(placed.error("needs a `condition`"));
        }
        found.push(placed);
    }
    found
}

/// A value with the place of its key.
fn at_key<T>(value: &Value<'_>, entry: &Entry, inner: T) -> Placed<T> {
    Placed { value: inner, place: entry.key_place.clone(), path: value.path.clone() }
}

/// `env_file` or `label_file`: one file, or a list.
pub(crate) fn env_files(value: &Value<'_>) -> Vec<Placed<EnvFile>> {
    match &value.node.kind {
        Kind::Sequence(_) => value.sequence().iter().filter_map(env_file).collect(),
        Kind::Scalar { .. } | Kind::Mapping(_) => env_file(value).into_iter().collect(),
    }
}

fn env_file(value: &Value<'_>) -> Option<Placed<EnvFile>> {
    let mut file = EnvFile { path: String::new(), required: true, format: EnvFormat::Compose };
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        file.path = value.owned()?;
        return Some(value.placed(file));
    }
    for (key, value) in value.fields(&ENV_FILE) {
        match key {
            "path" => file.path = value.owned().unwrap_or_default(),
            "required" => file.required = value.boolean().unwrap_or(true),
            "format" => match value.owned().as_deref() {
                Some("raw") => file.format = EnvFormat::Raw,
                Some("compose" | "") | None => {}
                Some(_) => value.error("is not a format; use `raw`, or remove the key"),
            },
            _ => value.refuse("is not supported yet"),
        }
    }
    if file.path.is_empty() {
        value.error("needs a `path`");
        return None;
    }
    Some(value.placed(file))
}

/// The networks of a service: a list of names, or a map with details.
pub(crate) fn networks(value: &Value<'_>) -> Vec<Placed<Joined>> {
    let Kind::Mapping(entries) = &value.node.kind else {
        let joined = |network: String| Joined { network, ..Joined::default() };
        let items = value.sequence();
        return items.iter().filter_map(|item| Some(item.placed(joined(item.owned()?)))).collect();
    };
    let mut found = Vec::new();
    for entry in entries {
        let details = value.key(&entry.key, &entry.value);
        let network = entry.key.clone();
        let joined = if details.node.is_null() {
            Joined { network, ..Joined::default() }
        } else {
            joined(network, &details)
        };
        found.push(at_key(&details, entry, joined));
    }
    found
}

fn joined(network: String, value: &Value<'_>) -> Joined {
    let (mut attachment, mut addresses) = (Attachment::default(), Vec::new());
    for (key, value) in value.fields(&ATTACHMENT) {
        match key {
            "aliases" => attachment.aliases = value.strings(),
            "ipv4_address" => attachment.ipv4 = address(&value, IpAddr::is_ipv4, "IPv4", &mut addresses),
            "ipv6_address" => attachment.ipv6 = address(&value, IpAddr::is_ipv6, "IPv6", &mut addresses),
            "priority" => attachment.priority = value.whole().unwrap_or_default(),
            "gw_priority" => attachment.gw_priority = value.whole().unwrap_or_default(),
            "link_local_ips" => attachment.link_local = value.strings(),
            "mac_address" => attachment.mac_address = mac_address(&value),
            "driver_opts" => attachment.driver_opts.extend(options(&value)),
            "interface_name" => {
                let name = value.filled();
                attachment.driver_opts.extend(name.map(|name| (INTERFACE_NAME.to_owned(), name)));
            }
            _ => value.refuse("is not supported yet"),
        }
    }
    Joined { network, attachment, addresses }
}

/// A fixed address. The engine refuses any other text when it creates or starts the container.
fn address(
    value: &Value<'_>,
    is_right: impl Fn(&IpAddr) -> bool,
    version: &str,
    addresses: &mut Vec<Placed<IpAddr>>,
) -> Option<String> {
    let text = value.filled()?;
    match text.parse::<IpAddr>() {
        Ok(address) if is_right(&address) => addresses.push(value.placed(address)),
        Ok(_) | Err(_) => value.error(format!("`{text}` is no {version} address")),
    }
    Some(text)
}

/// `links` and `external_links`: `NAME` or `NAME:ALIAS`.
pub(crate) fn links(value: &Value<'_>) -> Vec<Placed<Link>> {
    let mut links = Vec::new();
    for item in value.sequence() {
        let Some(text) = item.owned() else { continue };
        let (name, alias) = text.split_once(':').unwrap_or((&text, &text));
        if name.is_empty() || alias.is_empty() || alias.contains(':') {
            item.error(format!("`{text}` is not a link; write `NAME` or `NAME:ALIAS`"));
            continue;
        }
        links.push(item.placed(Link { name: name.to_owned(), alias: alias.to_owned() }));
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_ages_are_words_or_durations() {
        assert_eq!(pull_age("daily"), Some(Duration::from_hours(24)));
        assert_eq!(pull_age("every_36h"), Some(Duration::from_hours(36)));
        assert_eq!(pull_age("every_now_and_then"), None);
    }

    #[test]
    fn cdi_devices_have_vendor_class_and_name() {
        assert_eq!(cdi_device("vendor.com/class=name").unwrap().ids, ["vendor.com/class=name"]);
        assert_eq!(cdi_device("/dev/a=b"), None);
        assert_eq!(cdi_device("/dev/a:/dev/b"), None);
    }
}
