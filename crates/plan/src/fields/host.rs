//! [`HostSettings`] as fields with paths, for [`super::container`]; and what of them a kernel or an engine may leave out
//! or fill in by itself.

use crate::fields::value::{Out, Value};
use driftless_model::{BlockIo, DeviceRequest, Hook, HostSettings, HttpHook, MountOptions};

/// One line per field, so that the compiler names a forgotten one.
pub(crate) fn write(out: &mut Out, settings: &HostSettings) {
    let HostSettings {
        platform,
        runtime,
        uts_mode,
        userns_mode,
        cgroup,
        cgroup_parent,
        dns_opt,
        device_cgroup_rules,
        device_requests,
        block_io,
        memory_swappiness,
        oom_kill_disable,
        oom_score_adj,
        cpu_realtime_period,
        cpu_realtime_runtime,
        storage_opt,
        annotations,
        non_root,
        // Told with the mounts.
        mount_options: _,
        post_start,
        pre_stop,
    } = settings;
    out.text("platform", platform.clone());
    out.text("runtime", runtime.clone());
    out.text("utsMode", uts_mode.clone());
    out.text("usernsMode", userns_mode.clone());
    out.text("cgroup", cgroup.clone());
    out.text("cgroupParent", cgroup_parent.clone());
    out.list("dnsOpt", dns_opt);
    out.set("deviceCgroupRules", device_cgroup_rules.iter().cloned());
    out.list("deviceRequests", &device_requests.iter().map(request).collect::<Vec<_>>());
    let BlockIo { weight, weight_device, read_bps, write_bps, read_iops, write_iops } = block_io;
    out.text("blockIo.weight", weight.map(|it| it.to_string()));
    for (path, weight) in weight_device {
        out.put(["blockIo", "weightDevice", path], Value::Text(weight.to_string()));
    }
    for (name, all) in
        [("readBps", read_bps), ("writeBps", write_bps), ("readIops", read_iops), ("writeIops", write_iops)]
    {
        for (path, rate) in all {
            out.put(["blockIo", name, path], Value::Text(rate.to_string()));
        }
    }
    out.text("memorySwappiness", memory_swappiness.map(|it| it.to_string()));
    out.flag("oomKillDisable", *oom_kill_disable);
    out.text("oomScoreAdj", Some(*oom_score_adj).filter(|it| *it != 0).map(|it| it.to_string()));
    out.text("cpuRealtimePeriod", cpu_realtime_period.map(|it| it.to_string()));
    out.text("cpuRealtimeRuntime", cpu_realtime_runtime.map(|it| it.to_string()));
    for (group, all) in [("storageOpt", storage_opt), ("annotations", annotations)] {
        for (name, value) in all {
            out.put([group, name], Value::Text(value.clone()));
        }
    }
    out.flag("nonRoot", *non_root);
    hooks(out, "postStart", post_start);
    hooks(out, "preStop", pre_stop);
}

/// The options of a mount, as text after its source.
pub(crate) fn mount(options: &MountOptions) -> String {
    let MountOptions { subpath, labels, recursive, tmpfs, group } = options;
    let subpath = subpath.iter().map(|it| format!(" at {it}"));
    let recursive = recursive.iter().map(|it| format!(", recursive {it}"));
    let tmpfs = tmpfs.iter().map(|it| format!(", {it}"));
    let labels = labels.iter().map(|(name, value)| format!(", label {name}={value}"));
    let group = group.iter().map(|it| format!(", group {it}"));
    subpath.chain(recursive).chain(tmpfs).chain(group).chain(labels).collect()
}

/// Takes away what the engine or its kernel filled in where nobody asked, and puts back what they left out because
/// they cannot do it. The engine says that only once, when the container is made.
pub(crate) fn forgive(found: &mut HostSettings, want: &HostSettings) {
    // It was looked at when the container was made, and nothing tells of it.
    found.non_root = want.non_root;
    // Only our own label tells of it.
    found.platform = found.platform.take().or_else(|| want.platform.clone());
    // The daemon's configuration names its own.
    if want.runtime.is_none() {
        found.runtime = None;
    }
    if want.cgroup.is_none() {
        found.cgroup = None;
    }
    if want.cgroup_parent.is_none() {
        found.cgroup_parent = None;
    }
    found.memory_swappiness = found.memory_swappiness.filter(|_| want.memory_swappiness.is_some());
    found.memory_swappiness = found.memory_swappiness.or(want.memory_swappiness);
    found.oom_kill_disable |= want.oom_kill_disable;
    if found.block_io == BlockIo::default() {
        found.block_io = want.block_io.clone();
    }
}

fn request(request: &DeviceRequest) -> String {
    let DeviceRequest { driver, count, ids, capabilities, options } = request;
    let count = match count {
        -1 => Some("all".to_owned()),
        0 => None,
        count => Some(count.to_string()),
    };
    let words =
        (!driver.is_empty()).then(|| driver.clone()).into_iter().chain(count).chain(ids.iter().cloned());
    let options = options.iter().map(|(name, value)| format!("{name}={value}"));
    let capabilities = (!capabilities.is_empty()).then(|| format!("({})", capabilities.join("+")));
    words.chain(capabilities).chain(options).collect::<Vec<_>>().join(" ")
}

fn hooks(out: &mut Out, name: &str, all: &[Hook]) {
    for (index, hook) in all.iter().enumerate() {
        let Hook { command, sleep, http, user, privileged, working_dir, env } = hook;
        let index = &index.to_string();
        match (sleep, http) {
            (Some(sleep), _) => {
                out.put([name, index, "sleep"], Value::Text(format!("{}s", sleep.as_secs())));
            }
            (None, Some(http)) => {
                let HttpHook { headers, host, .. } = http;
                let host = host.as_deref().unwrap_or("container");
                out.put([name, index, "httpGet"], Value::Text(http.url(host)));
                for (header, value) in headers {
                    out.put([name, index, "httpHeaders", header], Value::Text(value.clone()));
                }
            }
            (None, None) => out.put([name, index, "command"], Value::Words(command.clone())),
        }
        for (field, value) in [("user", user), ("workingDir", working_dir)] {
            if let Some(value) = value {
                out.put([name, index, field], Value::Text(value.clone()));
            }
        }
        if *privileged {
            out.put([name, index, "privileged"], Value::Flag);
        }
        for (variable, value) in env {
            out.put([name, index, "env", variable], Value::Text(value.clone()));
        }
    }
}
