//! Capabilities of Linux (`cap_add`, `cap_drop`).

use crate::spec::value::Value;

/// All capabilities, as of Linux 5.9, and the word for all of them. Each engine refuses a container with another name.
const KNOWN: [&str; 42] = [
    "ALL",
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// Sorted, upper case, without `CAP_`.
pub(crate) fn capabilities(value: &Value<'_>) -> Vec<String> {
    let bare = |name: String| {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").map(str::to_owned).unwrap_or(upper);
        if !KNOWN.contains(&bare.as_str()) {
            value.error_help(
                format!("`{name}` is not a capability"),
                "write one such as `NET_ADMIN`, or `ALL`",
            );
        }
        bare
    };
    let mut names: Vec<String> = value.strings().into_iter().map(bare).collect();
    names.sort_unstable();
    names.dedup();
    names
}
