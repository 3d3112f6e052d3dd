//! The agent's own use of CPU, memory and files, under the names that all exporters share.

use std::fs;

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike,
};

/// The resources of this process. A value that the kernel does not tell is `None`.
pub(crate) struct Process {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<f64>,
    pub(crate) open_fds: Option<f64>,
    pub(crate) max_fds: Option<f64>,
}

impl Process {
    pub(crate) fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        let cpu = usage.map(|usage| usage.user_time() + usage.system_time());
        Self {
            cpu_seconds: cpu.map(|time| number(time.num_milliseconds().unsigned_abs()) / 1000.0),
            resident_bytes: resident_bytes().map(number),
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|files| number(files.count() as u64)),
            max_fds: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| number(soft)),
        }
    }
}

/// `VmRSS` of `/proc/self/status`, which is in KiB.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Prometheus has floating-point numbers only. They hold whole numbers up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "no value of the agent comes near 2^53")]
pub(crate) fn number(value: u64) -> f64 {
    value as f64
}
