//! What a service asks of the host: devices and GPUs, limits on disks, hooks, and the smaller words of the kernel.
//! Each function reads one field, in every syntax that it has.

use std::{collections::BTreeMap, time::Duration};

use super::{
    fields::{command, options},
    reader::{Path, Placed, Reader},
    scalar::{self, Plain},
    schema::Service,
};
use driftless_model::{BlockIo, DeviceRequest, Hook};
use driftless_yaml::{Entry, Kind, Node};

/// Keys that end in [`driftless_model::HostSettings`].
pub(super) fn host_key(reader: &mut Reader, service: &mut Service, entry: &Entry, at: &Path<'_>) -> bool {
    let host = &mut service.container.host;
    let node = &entry.value;
    let filled = |text: Option<String>| text.filter(|it| !it.is_empty());
    match entry.key.as_str() {
        "annotations" => host.annotations = super::fields::labels(reader, node, at),
        "blkio_config" => host.block_io = block_io(reader, node, at),
        "cgroup" => host.cgroup = one_of(reader, node, at, &["host", "private"]),
        "cgroup_parent" => host.cgroup_parent = filled(reader.string(node, at)),
        "cpu_rt_period" => host.cpu_realtime_period = microseconds(reader, node, at),
        "cpu_rt_runtime" => host.cpu_realtime_runtime = microseconds(reader, node, at),
        "device_cgroup_rules" => host.device_cgroup_rules = reader.strings(node, at),
        "dns_opt" => host.dns_opt = reader.strings(node, at),
        "gpus" => host.device_requests.extend(gpus(reader, node, at)),
        "isolation" => {
            if reader.string(node, at).is_some_and(|it| !matches!(it.as_str(), "" | "default")) {
                reader.refuse(node, at, "the containers of Linux have no other isolation than `default`");
            }
        }
        "mem_swappiness" => host.memory_swappiness = percentage(reader, node, at),
        "oom_kill_disable" => host.oom_kill_disable = reader.boolean(node, at).unwrap_or_default(),
        "oom_score_adj" => host.oom_score_adj = score(reader, node, at),
        "platform" => host.platform = platform(reader, node, at),
        "post_start" => host.post_start = hooks(reader, &mut service.passed, node, at, true),
        "pre_stop" => host.pre_stop = hooks(reader, &mut service.passed, node, at, false),
        "runtime" => host.runtime = filled(reader.string(node, at)),
        "storage_opt" => host.storage_opt = options(reader, node, at),
        "userns_mode" => host.userns_mode = filled(reader.string(node, at)),
        "uts" => host.uts_mode = one_of(reader, node, at, &["host"]),
        _ => return false,
    }
    true
}

/// A word, or nothing at all.
fn one_of(reader: &mut Reader, node: &Node, path: &Path<'_>, allowed: &[&str]) -> Option<String> {
    let word = reader.string(node, path).filter(|it| !it.is_empty())?;
    if allowed.contains(&word.as_str()) {
        return Some(word);
    }
    let message = format!("`{word}` is not known here; use one of: {}", allowed.join(", "));
    reader.error(&node.place, path, message);
    None
}

/// `50000`, `"50000"` or `50ms`.
pub(super) fn microseconds(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<u64> {
    let micros = match Plain::of(node) {
        Some((text, Plain::Text)) => scalar::duration(text)
            .and_then(|it| u64::try_from(it.as_micros()).ok())
            .or_else(|| text.parse().ok()),
        // -1 is no limit.
        Some((_, Plain::Integer(-1))) => return None,
        Some(_) | None => return reader.integer(node, path).filter(|it: &u64| *it > 0),
    };
    if micros.is_none() {
        reader.error(&node.place, path, "not a time; write microseconds, or a duration such as `50ms`");
    }
    micros.filter(|it| *it > 0)
}

fn percentage(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<u64> {
    let number = reader.integer::<i64>(node, path)?;
    // Docker's own word for "as the kernel does it".
    if number == -1 {
        return None;
    }
    let number = u64::try_from(number).ok().filter(|it| *it <= 100);
    if number.is_none() {
        reader.error(&node.place, path, "not a number from 0 to 100");
    }
    number
}

fn score(reader: &mut Reader, node: &Node, path: &Path<'_>) -> i64 {
    let number = reader.integer::<i64>(node, path).unwrap_or_default();
    if !(-1000..=1000).contains(&number) {
        reader.error(&node.place, path, "not a number from -1000 to 1000");
    }
    number
}

/// `linux/amd64`, `linux/arm/v7`.
fn platform(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<String> {
    let text = reader.string(node, path).filter(|it| !it.is_empty())?;
    let is_part =
        |it: &str| !it.is_empty() && it.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it));
    if text.split('/').all(is_part) && text.split('/').count() <= 3 {
        return Some(text);
    }
    reader.error(&node.place, path, format!("`{text}` is not a platform; write such as `linux/arm64`"));
    None
}

fn block_io(reader: &mut Reader, node: &Node, path: &Path<'_>) -> BlockIo {
    const OBJECT: &str = "services.blkio_config";
    let mut io = BlockIo::default();
    for entry in reader.optional_mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "weight" => io.weight = reader.integer(node, at).filter(|it| *it > 0),
            "weight_device" => {
                io.weight_device = by_device(reader, node, at, "weight", Reader::integer);
            }
            "device_read_bps" => io.read_bps = by_device(reader, node, at, "rate", Reader::bytes),
            "device_write_bps" => io.write_bps = by_device(reader, node, at, "rate", Reader::bytes),
            "device_read_iops" => io.read_iops = by_device(reader, node, at, "rate", Reader::bytes),
            "device_write_iops" => io.write_iops = by_device(reader, node, at, "rate", Reader::bytes),
            _ => reader.other(entry, path, OBJECT),
        }
    }
    io
}

/// A list of `{path, rate}` or `{path, weight}`.
fn by_device<T>(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
    what: &str,
    read: impl Fn(&mut Reader, &Node, &Path<'_>) -> Option<T>,
) -> BTreeMap<String, T> {
    let object =
        if what == "rate" { "services.blkio_config.rate" } else { "services.blkio_config.weight_device" };
    let mut all = BTreeMap::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let (mut device, mut value) = (None, None);
        for entry in reader.mapping(item, &at) {
            let inner = &at.key(&entry.key);
            match entry.key.as_str() {
                "path" => device = reader.string(&entry.value, inner),
                key if key == what => value = read(reader, &entry.value, inner),
                _ => reader.other(entry, &at, object),
            }
        }
        match (device, value) {
            (Some(device), Some(value)) => {
                all.insert(device, value);
            }
            (None, _) => reader.error(&item.place, &at, "needs a `path`"),
            (Some(_), None) => reader.error(&item.place, &at, format!("needs a `{what}`")),
        }
    }
    all
}

/// `all`, or a list of requests.
fn gpus(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<DeviceRequest> {
    if matches!(node.kind, Kind::Scalar { .. }) {
        return match reader.string(node, path).as_deref() {
            Some("all") => vec![DeviceRequest {
                count: -1,
                capabilities: vec!["gpu".to_owned()],
                ..DeviceRequest::default()
            }],
            Some(_) => {
                reader.error(&node.place, path, "write `all`, or a list of requests");
                Vec::new()
            }
            None => Vec::new(),
        };
    }
    let mut requests = device_requests(reader, node, path, false);
    for request in &mut requests {
        if !request.capabilities.iter().any(|it| it == "gpu") {
            request.capabilities.push("gpu".to_owned());
        }
    }
    requests
}

/// `deploy.resources.reservations.devices`, and `gpus` in the long form.
pub(super) fn device_requests(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
    needs_capabilities: bool,
) -> Vec<DeviceRequest> {
    let mut all = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let mut request = DeviceRequest::default();
        let mut count = None;
        for entry in reader.mapping(item, &at) {
            let (inner, node) = (&at.key(&entry.key), &entry.value);
            match entry.key.as_str() {
                "driver" => request.driver = reader.string(node, inner).unwrap_or_default(),
                "count" => count = device_count(reader, node, inner),
                "device_ids" => request.ids = reader.strings(node, inner),
                "capabilities" => request.capabilities = reader.strings(node, inner),
                "options" => {
                    let pairs = reader.pairs(node, inner).into_iter();
                    request.options = pairs.map(|it| (it.name, it.value.unwrap_or_default())).collect();
                }
                _ => reader.other(entry, &at, "services.gpus"),
            }
        }
        if count.is_some() && !request.ids.is_empty() {
            reader.error(&item.place, &at, "`count` and `device_ids` exclude each other");
        }
        if needs_capabilities && request.capabilities.is_empty() {
            reader.error(&item.place, &at, "needs `capabilities`, such as `[gpu]`");
        }
        request.count = count.unwrap_or(if request.ids.is_empty() { -1 } else { 0 });
        all.push(request);
    }
    all
}

fn device_count(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<i64> {
    match Plain::of(node) {
        Some(("all", _)) => Some(-1),
        Some(_) | None => reader.integer(node, path),
    }
}

/// A device of the Container Device Interface: `vendor.com/class=name`, which a driver hands out.
pub(super) fn cdi_device(text: &str) -> Option<DeviceRequest> {
    let (kind, name) = text.split_once('=')?;
    let (vendor, class) = kind.split_once('/')?;
    let is_name = |it: &str| !it.is_empty() && !it.contains('/');
    (is_name(vendor) && is_name(class) && !name.is_empty()).then(|| DeviceRequest {
        driver: "cdi".to_owned(),
        ids: vec![text.to_owned()],
        ..DeviceRequest::default()
    })
}

/// A variable that a hook takes over from the application's, by the kind of hook and its place.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) is_post_start: bool,
    pub(super) index: usize,
    pub(super) name: String,
}

fn hooks(
    reader: &mut Reader,
    passed: &mut Vec<Passed>,
    node: &Node,
    path: &Path<'_>,
    is_post_start: bool,
) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let mut hook = Hook::default();
        for entry in reader.mapping(item, &at) {
            let (inner, node) = (&at.key(&entry.key), &entry.value);
            match entry.key.as_str() {
                "command" => hook.command = command(reader, node, inner).unwrap_or_default(),
                "user" => hook.user = reader.string(node, inner).filter(|it| !it.is_empty()),
                "privileged" => hook.privileged = reader.boolean(node, inner).unwrap_or_default(),
                "working_dir" => hook.working_dir = reader.string(node, inner).filter(|it| !it.is_empty()),
                "environment" => {
                    for pair in reader.pairs(node, inner) {
                        match pair.value {
                            Some(value) => drop(hook.env.insert(pair.name, value)),
                            None => passed.push(Passed { is_post_start, index, name: pair.name }),
                        }
                    }
                }
                _ => reader.other(entry, &at, "services.post_start"),
            }
        }
        if hook.command.is_empty() {
            reader.error(&item.place, &at, "needs a `command`");
        }
        hooks.push(hook);
    }
    hooks
}

/// `service:alias` or `name`, as pairs of both.
pub(super) fn links(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Placed<(String, String)>> {
    let mut links = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let Some(text) = reader.string(item, &at) else { continue };
        let (name, alias) = text.split_once(':').unwrap_or((&text, &text));
        if name.is_empty() || alias.is_empty() || alias.contains(':') {
            reader.error(&item.place, &at, format!("`{text}` is not a link; write `NAME` or `NAME:ALIAS`"));
            continue;
        }
        links.push(Reader::placed(item, &at, (name.to_owned(), alias.to_owned())));
    }
    links
}

/// `02:42:ac:11:00:02`.
pub(super) fn mac_address(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<String> {
    let text = reader.string(node, path).filter(|it| !it.is_empty())?;
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let is_byte = |it: &&str| it.len() == 2 && it.bytes().all(|it| it.is_ascii_hexdigit());
    if parts.len() == 6 && parts.iter().all(is_byte) {
        return Some(parts.join(":").to_ascii_lowercase());
    }
    reader.error(
        &node.place,
        path,
        format!("`{text}` is not a hardware address; write such as `02:42:ac:11:00:02`"),
    );
    None
}

/// The age that makes an image be pulled again: `daily`, `weekly`, `every_12h`.
pub(super) fn pull_age(policy: &str) -> Option<Duration> {
    match policy {
        "daily" => Some(Duration::from_hours(24)),
        "weekly" => Some(Duration::from_hours(7 * 24)),
        other => other.strip_prefix("every_").and_then(scalar::duration),
    }
}

/// The size, the mode, whether it is read-only, and the rest as it stands.
type TmpfsOptions = (Option<u64>, Option<u32>, bool, Vec<String>);

/// Reads `size=64m,mode=1777,noexec`.
pub(super) fn tmpfs_options(text: &str) -> Result<TmpfsOptions, String> {
    let (mut size, mut mode, mut read_only, mut rest) = (None, None, false, Vec::new());
    for option in text.split(',').filter(|it| !it.is_empty()) {
        match option.split_once('=').unwrap_or((option, "")) {
            ("size", value) => match scalar::bytes(value) {
                Some(bytes) => size = Some(bytes),
                // A share of the memory, which only the kernel can count.
                None if value.ends_with('%') => rest.push(option.to_owned()),
                None => return Err(format!("`{value}` is not a size")),
            },
            ("mode", value) => match u32::from_str_radix(value, 8) {
                Ok(bits) => mode = Some(bits),
                Err(_) => return Err(format!("`{value}` is not a mode")),
            },
            ("ro", "") => read_only = true,
            // The engine's own defaults.
            ("rw" | "noexec" | "nosuid" | "nodev", "") => {}
            _ => rest.push(option.to_owned()),
        }
    }
    rest.sort_unstable();
    Ok((size, mode, read_only, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_memory_file_system_are_told_apart() {
        let read = |text: &str| tmpfs_options(text).unwrap();
        assert_eq!(read("size=64m,mode=1777,rw"), (Some(64 << 20), Some(0o1777), false, vec![]));
        let (_, _, read_only, rest) = read("ro,uid=1000,exec,noexec,size=10%");
        assert!(read_only);
        assert_eq!(rest, ["exec", "size=10%", "uid=1000"]);
        assert!(tmpfs_options("size=much").is_err());
        assert!(tmpfs_options("mode=rw").is_err());
    }

    #[test]
    fn ages_and_devices_have_their_words() {
        assert_eq!(pull_age("daily"), Some(Duration::from_hours(24)));
        assert_eq!(pull_age("every_36h"), Some(Duration::from_hours(36)));
        assert_eq!(pull_age("every_now_and_then"), None);
        assert_eq!(cdi_device("vendor.com/class=name").unwrap().ids, ["vendor.com/class=name"]);
        assert_eq!(cdi_device("/dev/a=b"), None);
        assert_eq!(cdi_device("/dev/a:/dev/b"), None);
    }
}
