//! The fields of a service that have a shape of their own: commands, health checks, ports, volumes, networks.
//! Each function reads one field, in every syntax that it has.

use std::{collections::BTreeMap, time::Duration};

use super::{
    host::{cdi_device, mac_address, pull_age},
    on_change::on_change,
    reader::{Path, Placed, Reader},
    scalar,
    schema::{DependsOn, EnvFile, EnvFormat, FileMount, Joined},
    short, words,
};
use driftless_model::{
    Attachment, Condition, DeviceRequest, Healthcheck, INTERFACE_NAME, Peer, Protocol, PullPolicy,
    RestartPolicy,
};
use driftless_yaml::{Kind, Node};

/// A list of words, or one text that is split into words. Nothing at all is "as in the image".
pub(super) fn command(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Vec<String>> {
    match &node.kind {
        Kind::Sequence(_) => Some(reader.strings(node, path)),
        Kind::Scalar { .. } | Kind::Mapping(_) => {
            if node.is_null() {
                return None;
            }
            let text = reader.string(node, path)?;
            let Some(split) = words::split(&text) else {
                reader.error(
                    &node.place,
                    path,
                    "cannot be split into words: a quote or parenthesis is left open",
                );
                return None;
            };
            if let Some(operator) = split.cut_at {
                let message = format!("the command ends at `{operator}`, since it is not run by a shell");
                let finding =
                    driftless_model::Finding::warning(Reader::location(node), path.to_string(), message);
                reader.findings.push(finding.help("write a list: [\"sh\", \"-c\", \"…\"]"));
            }
            Some(split.words)
        }
    }
}

pub(super) fn labels(reader: &mut Reader, node: &Node, path: &Path<'_>) -> BTreeMap<String, String> {
    let pairs = reader.pairs(node, path);
    pairs.into_iter().map(|it| (it.name, it.value.unwrap_or_default())).collect()
}

pub(super) fn healthcheck(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Healthcheck> {
    let mut check = Healthcheck {
        test: Vec::new(),
        interval: None,
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    };
    let mut is_disabled = false;
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "test" => check.test = health_test(reader, node, at),
            "interval" => check.interval = reader.duration(node, at),
            "timeout" => check.timeout = reader.duration(node, at),
            "retries" => check.retries = reader.integer(node, at),
            "start_period" => check.start_period = reader.duration(node, at),
            "start_interval" => check.start_interval = reader.duration(node, at),
            "disable" => is_disabled = reader.boolean(node, at).unwrap_or_default(),
            _ => reader.other(entry, path, "services.healthcheck"),
        }
    }
    if is_disabled {
        check = Healthcheck { test: vec!["NONE".to_owned()], ..check };
    }
    let says_nothing = check.test.is_empty()
        && check.interval.is_none()
        && check.timeout.is_none()
        && check.retries.is_none()
        && check.start_period.is_none()
        && check.start_interval.is_none();
    (!says_nothing).then_some(check)
}

fn health_test(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<String> {
    let Kind::Sequence(items) = &node.kind else {
        return match reader.string(node, path) {
            Some(text) if !text.is_empty() => vec!["CMD-SHELL".to_owned(), text],
            Some(_) | None => Vec::new(),
        };
    };
    let test = reader.strings(node, path);
    let is_known = test.first().is_none_or(|it| matches!(it.as_str(), "CMD" | "CMD-SHELL" | "NONE"));
    if !is_known {
        let place = items.first().map_or(&node.place, |it| &it.place);
        reader.error(place, path, "a test given as a list must begin with `CMD`, `CMD-SHELL` or `NONE`");
    }
    test
}

pub(super) fn container_port(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<(u16, Protocol)> {
    let mut ports = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let Some(text) = reader.text_or_number(item, &at) else { continue };
        let (numbers, protocol) = text.split_once('/').unwrap_or((&text, "tcp"));
        let read = short::range(numbers).and_then(|range| Ok((range, short::protocol(protocol)?)));
        match read {
            Ok((range, protocol)) => ports.extend((range.first..=range.last).map(|it| (it, protocol))),
            Err(message) => reader.error(&item.place, &at, message),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// `no`, `always`, `unless-stopped`, `on-failure`, `on-failure:3`.
pub(super) fn restart(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<RestartPolicy> {
    let text = reader.string(node, path)?;
    let (word, number) = match text.split_once(':') {
        Some((word, number)) => (word, Some(number)),
        None => (text.as_str(), None),
    };
    let policy = match (word, number) {
        ("" | "no", None) => Some(RestartPolicy::No),
        ("always", None) => Some(RestartPolicy::Always),
        ("unless-stopped", None) => Some(RestartPolicy::UnlessStopped),
        ("on-failure", None) => Some(RestartPolicy::OnFailure { max_retries: None }),
        ("on-failure", Some(number)) => {
            let number = number.parse::<u32>().ok();
            number.map(|it| RestartPolicy::OnFailure { max_retries: Some(it).filter(|it| *it > 0) })
        }
        _ => None,
    };
    if policy.is_none() {
        let message = format!("`{text}` is no restart policy");
        let finding = driftless_model::Finding::error(Reader::location(node), path.to_string(), message);
        reader
            .findings
            .push(finding.help("use `no`, `always`, `unless-stopped`, `on-failure` or `on-failure:3`"));
    }
    policy
}

/// The age of an image for `refresh` without one.
pub(super) const REFRESH: Duration = Duration::from_hours(24);

pub(super) fn pull_policy(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<PullPolicy> {
    let text = reader.string(node, path)?;
    match text.as_str() {
        "always" => Some(PullPolicy::Always),
        "never" => Some(PullPolicy::Never),
        // Whether there is anything to build is seen where the service is whole.
        "missing" | "if_not_present" | "build" => Some(PullPolicy::IfNotPresent),
        // How old it may be says another key.
        "refresh" => Some(PullPolicy::Every(REFRESH)),
        other => {
            if let Some(age) = pull_age(other) {
                return Some(PullPolicy::Every(age));
            }
            let message = format!(
                "`{other}` is no pull policy; use `always`, `missing`, `never`, `daily`, `weekly` or `every_12h`"
            );
            reader.error(&node.place, path, message);
            None
        }
    }
}

/// Sorted, upper case, without `CAP_`.
pub(super) fn capabilities(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<String> {
    let bare = |it: String| {
        let upper = it.to_ascii_uppercase();
        upper.strip_prefix("CAP_").map(str::to_owned).unwrap_or(upper)
    };
    let mut names: Vec<String> = reader.strings(node, path).into_iter().map(bare).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub(super) fn namespace(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
    allowed: &[&str],
) -> Option<Placed<String>> {
    if node.is_null() {
        return None;
    }
    let mode = reader.string(node, path).filter(|it| !it.is_empty())?;
    if allowed.contains(&mode.as_str()) || Peer::parse(&mode).is_some() {
        return Some(Reader::placed(node, path, mode));
    }
    let known = format!("{}, service:NAME, container:NAME", allowed.join(", "));
    reader.error(&node.place, path, format!("`{mode}` is not known here; use one of: {known}"));
    None
}

/// `name:address`, sorted.
pub(super) fn extra_hosts(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    match &node.kind {
        Kind::Mapping(entries) => {
            for entry in entries {
                for address in reader.string_or_list(&entry.value, &path.key(&entry.key)) {
                    hosts.push(format!("{}:{}", entry.key, short::host_address(&address)));
                }
            }
        }
        Kind::Sequence(_) | Kind::Scalar { .. } => {
            for text in reader.strings(node, path) {
                match short::host(&text) {
                    Some((name, address)) => hosts.push(format!("{name}:{address}")),
                    None => reader.error(&node.place, path, format!("`{text}` is not `name=address`")),
                }
            }
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

pub(super) fn ulimits(reader: &mut Reader, node: &Node, path: &Path<'_>) -> BTreeMap<String, (i64, i64)> {
    let mut limits = BTreeMap::new();
    for entry in reader.mapping(node, path) {
        let (at, node) = (path.key(&entry.key), &entry.value);
        let (mut soft, mut hard) = (None, None);
        if matches!(node.kind, Kind::Mapping(_)) {
            for entry in reader.mapping(node, &at) {
                let inner = at.key(&entry.key);
                match entry.key.as_str() {
                    "soft" => soft = reader.integer::<i64>(&entry.value, &inner),
                    "hard" => hard = reader.integer::<i64>(&entry.value, &inner),
                    _ => reader.unknown(entry, &at, "soft hard"),
                }
            }
            if soft.is_none() || hard.is_none() {
                reader.error(&node.place, &at, "needs both `soft` and `hard`");
            }
        } else {
            soft = reader.integer(node, &at);
            hard = soft;
        }
        if let (Some(soft), Some(hard)) = (soft, hard) {
            limits.insert(entry.key.clone(), (soft, hard));
        }
    }
    limits
}

/// Without a driver: options for the engine's default one.
pub(super) fn logging(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
) -> Option<(String, BTreeMap<String, String>)> {
    let (mut driver, mut options) = (String::new(), BTreeMap::new());
    for entry in reader.mapping(node, path) {
        let (at, node) = (path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "driver" => driver = reader.string(node, &at).unwrap_or_default(),
            "options" => options = self::options(reader, node, &at),
            _ => reader.other(entry, path, "services.logging"),
        }
    }
    (!driver.is_empty() || !options.is_empty()).then_some((driver, options))
}

/// A map of options for a driver.
pub(super) fn options(reader: &mut Reader, node: &Node, path: &Path<'_>) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for entry in reader.mapping(node, path) {
        if let Some(value) = reader.any_scalar(&entry.value, &path.key(&entry.key)) {
            options.insert(entry.key.clone(), value.unwrap_or_default());
        }
    }
    options
}

/// A device of the host, where it is in the container, and what may be done with it.
type Device = (String, String, String);

/// Those of the host, and those that a driver hands out.
pub(super) fn devices(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
) -> (Vec<Device>, Vec<DeviceRequest>) {
    let (mut devices, mut requests) = (Vec::new(), Vec::new());
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        if let Kind::Mapping(entries) = &item.kind {
            let (mut source, mut target, mut permissions) = (None, None, None);
            for entry in entries {
                let inner = at.key(&entry.key);
                match entry.key.as_str() {
                    "source" => source = reader.string(&entry.value, &inner),
                    "target" => target = reader.string(&entry.value, &inner),
                    "permissions" => permissions = reader.string(&entry.value, &inner),
                    _ => reader.other(entry, &at, "services.devices"),
                }
            }
            match source {
                Some(source) if cdi_device(&source).is_some() => requests.extend(cdi_device(&source)),
                Some(source) => {
                    let target = target.unwrap_or_else(|| source.clone());
                    devices.push((source, target, permissions.unwrap_or_else(|| "rwm".to_owned())));
                }
                None => reader.error(&item.place, &at, "needs a `source`"),
            }
            continue;
        }
        let Some(text) = reader.string(item, &at) else { continue };
        if let Some(request) = cdi_device(&text) {
            requests.push(request);
            continue;
        }
        match short::device(&text) {
            Ok(device) => devices.push(device),
            Err(message) => reader.error(&item.place, &at, message),
        }
    }
    devices.sort_unstable();
    (devices, requests)
}

pub(super) fn depends_on(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Placed<DependsOn>> {
    let plain = |service: String| DependsOn {
        service,
        condition: Condition::Started,
        required: true,
        restart: false,
    };
    let Kind::Mapping(entries) = &node.kind else {
        let items = reader.sequence(node, path).iter().enumerate();
        let read = items.filter_map(|(index, item)| {
            let at = path.index(index);
            Some(Reader::placed(item, &at, plain(reader.string(item, &at)?)))
        });
        return read.collect();
    };
    let mut found = Vec::new();
    for entry in entries {
        let at = path.key(&entry.key);
        let mut dependency = plain(entry.key.clone());
        let mut has_condition = false;
        for inner in reader.mapping(&entry.value, &at) {
            let (at, node) = (&at.key(&inner.key), &inner.value);
            match inner.key.as_str() {
                "condition" => {
                    has_condition = true;
                    let word = reader.string(node, at);
                    match word.as_deref() {
                        Some("service_started") => dependency.condition = Condition::Started,
                        Some("service_healthy") => dependency.condition = Condition::Healthy,
                        Some("service_completed_successfully") => {
                            dependency.condition = Condition::CompletedSuccessfully;
                        }
                        Some(other) => reader.error(
                            &node.place,
                            at,
                            format!(
                                "`{other}` is no condition; use `service_started`, `service_healthy` or \
                                 `service_completed_successfully`"
                            ),
                        ),
                        None => {}
                    }
                }
                "required" => dependency.required = reader.boolean(node, at).unwrap_or(true),
                "restart" => dependency.restart = reader.boolean(node, at).unwrap_or_default(),
                _ => reader.unknown(inner, &path.key(&entry.key), "condition required restart"),
            }
        }
        if !has_condition && matches!(entry.value.kind, Kind::Mapping(_)) {
            reader.error(&entry.key_place, &at, "needs a `condition`");
        }
        found.push(Placed { value: dependency, place: entry.key_place.clone(), path: at.to_string() });
    }
    found
}

pub(super) fn env_files(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Placed<EnvFile>> {
    let Kind::Sequence(items) = &node.kind else {
        return env_file(reader, node, path).into_iter().collect();
    };
    let mut files = Vec::new();
    for (index, item) in items.iter().enumerate() {
        files.extend(env_file(reader, item, &path.index(index)));
    }
    files
}

fn env_file(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Placed<EnvFile>> {
    let mut file = EnvFile { path: String::new(), required: true, format: EnvFormat::Compose };
    let Kind::Mapping(entries) = &node.kind else {
        file.path = reader.string(node, path)?;
        return Some(Reader::placed(node, path, file));
    };
    for entry in entries {
        let (at, node) = (path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "path" => file.path = reader.string(node, &at).unwrap_or_default(),
            "required" => file.required = reader.boolean(node, &at).unwrap_or(true),
            "format" => match reader.string(node, &at).as_deref() {
                Some("raw") => file.format = EnvFormat::Raw,
                Some("compose" | "") | None => {}
                Some(_) => reader.error(&node.place, &at, "no such format; use `raw`, or leave it out"),
            },
            _ => reader.unknown(entry, path, "path required format"),
        }
    }
    if file.path.is_empty() {
        reader.error(&node.place, path, "needs a `path`");
        return None;
    }
    Some(Reader::placed(node, path, file))
}

/// The networks that a service joins: names, or a map with details.
pub(super) fn networks(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Placed<Joined>> {
    let Kind::Mapping(entries) = &node.kind else {
        let items = reader.sequence(node, path).iter().enumerate();
        let read = items.filter_map(|(index, item)| {
            let at = path.index(index);
            let joined = Joined { network: reader.string(item, &at)?, attachment: Attachment::default() };
            Some(Reader::placed(item, &at, joined))
        });
        return read.collect();
    };
    let mut found = Vec::new();
    for entry in entries {
        let at = path.key(&entry.key);
        let mut attachment = Attachment::default();
        for inner in reader.optional_mapping(&entry.value, &at) {
            let (place, node) = (&at.key(&inner.key), &inner.value);
            match inner.key.as_str() {
                "aliases" => attachment.aliases = reader.strings(node, place),
                "ipv4_address" => attachment.ipv4 = reader.string(node, place).filter(|it| !it.is_empty()),
                "ipv6_address" => attachment.ipv6 = reader.string(node, place).filter(|it| !it.is_empty()),
                "priority" => attachment.priority = reader.integer(node, place).unwrap_or_default(),
                "gw_priority" => attachment.gw_priority = reader.integer(node, place).unwrap_or_default(),
                "link_local_ips" => attachment.link_local = reader.strings(node, place),
                "mac_address" => attachment.mac_address = mac_address(reader, node, place),
                "driver_opts" => attachment.driver_opts.extend(options(reader, node, place)),
                "interface_name" => {
                    let name = reader.string(node, place).filter(|it| !it.is_empty());
                    attachment.driver_opts.extend(name.map(|it| (INTERFACE_NAME.to_owned(), it)));
                }
                _ => reader.other(inner, &at, "services.networks"),
            }
        }
        let joined = Joined { network: entry.key.clone(), attachment };
        found.push(Placed { value: joined, place: entry.key_place.clone(), path: at.to_string() });
    }
    found
}

/// Configs or secrets of a service: names, or maps with details.
pub(super) fn file_mounts(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Placed<FileMount>> {
    let mut found = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let mut mount = FileMount::default();
        if let Kind::Mapping(entries) = &item.kind {
            for entry in entries {
                let (inner, node) = (at.key(&entry.key), &entry.value);
                match entry.key.as_str() {
                    "source" => mount.source = reader.string(node, &inner).unwrap_or_default(),
                    "target" => mount.target = reader.string(node, &inner).filter(|it| !it.is_empty()),
                    "mode" => mount.mode = file_mode(reader, node, &inner),
                    "uid" => mount.uid = reader.integer(node, &inner),
                    "gid" => mount.gid = reader.integer(node, &inner),
                    "x-driftless" => mount.on_change = on_change(reader, node, &inner),
                    _ => reader.other(entry, &at, "services.configs"),
                }
            }
        } else {
            mount.source = reader.string(item, &at).unwrap_or_default();
        }
        if mount.source.is_empty() {
            reader.error(&item.place, &at, "needs a `source`");
        } else {
            found.push(Reader::placed(item, &at, mount));
        }
    }
    found
}

/// `0440` as YAML reads it, or `"0440"` as text; octal either way.
fn file_mode(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<u32> {
    let mode = match scalar::Plain::of(node) {
        Some((text, scalar::Plain::Text)) => u32::from_str_radix(text.trim_start_matches("0o"), 8).ok(),
        Some(_) | None => reader.integer(node, path),
    };
    if mode.is_some_and(|it| it > 0o7777) {
        reader.error(&node.place, path, "not a mode; write four octal digits, such as `0440`");
        return None;
    }
    mode
}
