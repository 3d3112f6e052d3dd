//! Settings of the host: devices and GPUs, limits on disks, hooks, namespaces, kernel parameters.

use std::collections::BTreeMap;

use driftless_model::{BlockIo, DeviceRequest, Hook, Platform};
use driftless_yaml::Kind;

use crate::{
    read::{
        common::{labels, options},
        fields::command,
        types::{HookKind, HookVariable, Service},
    },
    spec::{
        keys::{BLKIO, DEVICE_REQUEST, GPU, HOOK, THROTTLE, WEIGHT},
        scalar::{self, Plain},
        shape::Object,
        value::{Read as _, Value},
    },
};

/// Keys that become a field of [`driftless_model::HostSettings`].
pub(crate) fn host_key(service: &mut Service, key: &str, value: &Value<'_>) -> bool {
    let host = &mut service.container.host;
    match key {
        "annotations" => host.annotations = labels(value),
        "blkio_config" => host.block_io = block_io(value),
        "cgroup" => host.cgroup = one_of(value, &["host", "private"]),
        "cgroup_parent" => host.cgroup_parent = value.filled(),
        "cpu_rt_period" => host.cpu_realtime_period = microseconds(value),
        "cpu_rt_runtime" => host.cpu_realtime_runtime = microseconds(value),
        "device_cgroup_rules" => host.device_cgroup_rules = value.strings(),
        "dns_opt" => host.dns_opt = value.strings(),
        "gpus" => host.device_requests.extend(gpus(value)),
        "isolation" => {
            if value.filled().is_some_and(|text| text != "default") {
                value.refuse("the only isolation on Linux is `default`");
            }
        }
        "mem_swappiness" => host.memory_swappiness = percentage(value),
        "oom_kill_disable" => host.oom_kill_disable = value.boolean().unwrap_or_default(),
        "oom_score_adj" => host.oom_score_adj = score(value),
        "platform" => host.platform = platform(value),
        "post_start" => host.post_start = hooks(&mut service.hook_variables, value, HookKind::PostStart),
        "pre_stop" => host.pre_stop = hooks(&mut service.hook_variables, value, HookKind::PreStop),
        "runtime" => host.runtime = value.filled(),
        "storage_opt" => host.storage_opt = options(value),
        "userns_mode" => host.userns_mode = value.filled(),
        "uts" => host.uts_mode = one_of(value, &["host"]),
        _ => return false,
    }
    true
}

/// One of a few words, or the empty string.
fn one_of(value: &Value<'_>, allowed: &[&str]) -> Option<String> {
    let word = value.filled()?;
    if allowed.contains(&word.as_str()) {
        return Some(word);
    }
    value.error(format!("`{word}` is not a value of this key; use one of: {}", allowed.join(", ")));
    None
}

/// `50000`, `"50000"` or `50ms`.
pub(crate) fn microseconds(value: &Value<'_>) -> Option<u64> {
    let micros = match Plain::of(value.node) {
        Some((text, Plain::Text)) => scalar::duration(text)
            .and_then(|duration| u64::try_from(duration.as_micros()).ok())
            .or_else(|| text.parse().ok()),
        // -1 means no limit.
        Some((_, Plain::Integer(-1))) => return None,
        Some(_) | None => return value.whole().filter(|number: &u64| *number > 0),
    };
    if micros.is_none() {
        value.error("is not a time; write microseconds, or a duration such as `50ms`");
    }
    micros.filter(|number| *number > 0)
}

fn percentage(value: &Value<'_>) -> Option<u64> {
    let number = value.whole::<i64>()?;
    // Docker's value for the default of the kernel.
    if number == -1 {
        return None;
    }
    let number = u64::try_from(number).ok().filter(|number| *number <= 100);
    if number.is_none() {
        value.error("is not a number from 0 to 100");
    }
    number
}

fn score(value: &Value<'_>) -> i64 {
    let number = value.whole::<i64>().unwrap_or_default();
    if !(-1000..=1000).contains(&number) {
        value.error("is not a number from -1000 to 1000");
    }
    number
}

/// `linux/amd64`, `linux/arm/v7`.
fn platform(value: &Value<'_>) -> Option<String> {
    let text = value.filled()?;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_part = |part: &str| !part.is_empty() && part.chars().all(is_letter);
    if text.split('/').all(is_part) && text.split('/').count() <= 3 {
        if !Platform::parse(&text).is_linux() {
            let finding = value
                .node
                .finding(&*value.path, format!("`{text}` cannot run: containers run on Linux here"));
            value.report().refuse(finding.help("remove `platform`, or use an image for Linux"));
        }
        return Some(text);
    }
    value.error(format!("`{text}` is not a platform; write it as `linux/arm64`"));
    None
}

fn block_io(value: &Value<'_>) -> BlockIo {
    let mut io = BlockIo::default();
    if value.node.is_null() {
        return io;
    }
    let rates = |value: &Value<'_>| by_device(value, &THROTTLE, "rate", |limit| limit.bytes());
    for (key, value) in value.fields(&BLKIO) {
        match key {
            "weight" => io.weight = value.whole().filter(|weight| *weight > 0),
            "weight_device" => io.weight_device = by_device(&value, &WEIGHT, "weight", |limit| limit.whole()),
            "device_read_bps" => io.read_bps = rates(&value),
            "device_write_bps" => io.write_bps = rates(&value),
            "device_read_iops" => io.read_iops = rates(&value),
            "device_write_iops" => io.write_iops = rates(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    io
}

/// A list of `{path, rate}` or `{path, weight}`.
fn by_device<T>(
    value: &Value<'_>,
    object: &Object,
    limit_key: &str,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> BTreeMap<String, T> {
    let mut all = BTreeMap::new();
    for item in value.sequence() {
        let (mut device, mut limit) = (None, None);
        for (key, value) in item.fields(object) {
            match key {
                "path" => device = value.owned(),
                key if key == limit_key => limit = read(&value),
                _ => value.refuse("is not supported yet"),
            }
        }
        match (device, limit) {
            (Some(device), Some(limit)) => drop(all.insert(device, limit)),
            (None, _) => item.error("needs a `path`"),
            (Some(_), None) => item.error(format!("needs a `{limit_key}`")),
        }
    }
    all
}

/// Whether a device request must have `capabilities`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capabilities {
    Required,
    Optional,
}

/// `all`, or a list of requests.
fn gpus(value: &Value<'_>) -> Vec<DeviceRequest> {
    if matches!(value.node.kind, Kind::Scalar { .. }) {
        return match value.owned().as_deref() {
            Some("all") => vec![DeviceRequest {
                count: -1,
                capabilities: vec!["gpu".to_owned()],
                ..DeviceRequest::default()
            }],
            Some(_) => {
                value.error("must be `all` or a list of requests");
                Vec::new()
            }
            None => Vec::new(),
        };
    }
    let mut requests = device_requests(value, Capabilities::Optional);
    for request in &mut requests {
        if !request.capabilities.iter().any(|capability| capability == "gpu") {
            request.capabilities.push("gpu".to_owned());
        }
    }
    requests
}

/// `deploy.resources.reservations.devices`, and `gpus` in the long form.
pub(crate) fn device_requests(value: &Value<'_>, capabilities: Capabilities) -> Vec<DeviceRequest> {
    let object = match capabilities {
        Capabilities::Required => &DEVICE_REQUEST,
        Capabilities::Optional => &GPU,
    };
    let mut all = Vec::new();
    for item in value.sequence() {
        let mut request = DeviceRequest::default();
        let mut count = None;
        for (key, value) in item.fields(object) {
            match key {
                "driver" => request.driver = value.owned().unwrap_or_default(),
                "count" => count = device_count(&value),
                "device_ids" => request.ids = value.strings(),
                "capabilities" => request.capabilities = value.strings(),
                "options" => request.options = labels(&value),
                _ => value.refuse("is not supported yet"),
            }
        }
        if count.is_some() && !request.ids.is_empty() {
            item.error("`count` and `device_ids` exclude each other");
        }
        if capabilities == Capabilities::Required && request.capabilities.is_empty() {
            item.error("needs `capabilities`, such as `[gpu]`");
        }
        request.count = count.unwrap_or(if request.ids.is_empty() { -1 } else { 0 });
        all.push(request);
    }
    all
}

fn device_count(value: &Value<'_>) -> Option<i64> {
    match Plain::of(value.node) {
        Some(("all", _)) => Some(-1),
        Some(_) | None => value.whole(),
    }
}

fn hooks(variables: &mut Vec<HookVariable>, value: &Value<'_>, kind: HookKind) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for (index, item) in value.sequence().iter().enumerate() {
        let mut hook = Hook::default();
        for (key, value) in item.fields(&HOOK) {
            match key {
                "command" => hook.command = command(&value).unwrap_or_default(),
                "user" => hook.user = value.filled(),
                "privileged" => hook.privileged = value.boolean().unwrap_or_default(),
                "working_dir" => hook.working_dir = value.filled(),
                "environment" => {
                    for pair in value.assignments() {
                        match pair.value {
                            Some(text) => drop(hook.env.insert(pair.name, text)),
                            None => variables.push(HookVariable { hook: kind, index, name: pair.name }),
                        }
                    }
                }
                _ => value.refuse("is not supported yet"),
            }
        }
        if hook.command.is_empty() {
            item.error("needs a `command`");
        }
        hooks.push(hook);
    }
    hooks
}
