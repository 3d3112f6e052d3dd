//! Every key of the Compose specification, and what becomes of it here: used, of no effect with the reason, or
//! refused with the reason. Readers ask this table about what they do not use, and the table in `docs/compose.md` is
//! printed from it, so that no key is forgotten by one and promised by the other.

use std::fmt::Write;

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// Used, with what is to know about it.
    Used(&'static str),
    /// Accepted with a warning: it can make no difference here, for this reason.
    NoEffect(&'static str),
    /// An error: without it the application would not be what it should be.
    Refused(&'static str),
}

use Support::{NoEffect, Refused, Used};

const SWARM: &str = "it only affects Swarm";
const WINDOWS: &str = "it exists only on Windows";
const ONE_HOST: &str = "there is only one host";

/// The keys of one kind of object, in the order of their names.
type Keys = &'static [(&'static str, Support)];

/// Every object, by its path without the names that files give.
const OBJECTS: &[(&str, Keys)] = &[
    (
        "",
        &[
            ("configs", Used("")),
            ("include", Used("")),
            ("models", Refused("there is no model runner")),
            ("name", Used("the project; without it, the application's name")),
            ("networks", Used("")),
            ("secrets", Used("")),
            ("services", Used("")),
            ("version", NoEffect("it is obsolete")),
            ("volumes", Used("")),
        ],
    ),
    (
        "services",
        &[
            ("annotations", Used("Docker Engine 24")),
            ("attach", NoEffect("it only affects the output of `docker compose up`")),
            ("blkio_config", Used("")),
            ("build", Used("")),
            ("cap_add", Used("")),
            ("cap_drop", Used("")),
            ("cgroup", Used("")),
            ("cgroup_parent", Used("")),
            ("command", Used("")),
            ("configs", Used("")),
            ("container_name", Used("one container only, so an update stops the old one first")),
            ("cpu_count", NoEffect(WINDOWS)),
            ("cpu_percent", NoEffect(WINDOWS)),
            ("cpu_period", Used("")),
            ("cpu_quota", Used("")),
            ("cpu_rt_period", Used("")),
            ("cpu_rt_runtime", Used("")),
            ("cpu_shares", Used("")),
            ("cpus", Used("")),
            ("cpuset", Used("")),
            ("credential_spec", Refused(WINDOWS)),
            ("depends_on", Used("")),
            ("deploy", Used("")),
            ("develop", NoEffect("it only affects `docker compose watch`")),
            ("device_cgroup_rules", Used("")),
            ("devices", Used("names of the Container Device Interface need Docker Engine 25")),
            ("dns", Used("")),
            ("dns_opt", Used("")),
            ("dns_search", Used("")),
            ("domainname", Used("")),
            ("entrypoint", Used("")),
            ("env_file", Used("")),
            ("environment", Used("")),
            ("expose", Used("")),
            ("extends", Used("")),
            ("external_links", Used("")),
            ("extra_hosts", Used("")),
            ("gpus", Used("")),
            ("group_add", Used("")),
            ("healthcheck", Used("")),
            ("hostname", Used("")),
            ("image", Used("")),
            ("init", Used("")),
            ("ipc", Used("")),
            ("isolation", Used("`default` only; other values are for Windows")),
            ("label_file", Used("")),
            ("labels", Used("")),
            ("links", Used("as names on the networks that both services join")),
            ("logging", Used("")),
            ("mac_address", Used("on several networks: Docker Engine 25")),
            ("mem_limit", Used("")),
            ("mem_reservation", Used("")),
            ("mem_swappiness", Used("")),
            ("memswap_limit", Used("")),
            ("models", Refused("there is no model runner")),
            ("network_mode", Used("")),
            ("networks", Used("")),
            ("oom_kill_disable", Used("")),
            ("oom_score_adj", Used("")),
            ("pid", Used("")),
            ("pids_limit", Used("")),
            ("platform", Used("")),
            ("ports", Used("")),
            ("post_start", Used("after each start by Driftless; a failure stops the container")),
            (
                "pre_start",
                Refused("it is experimental in Compose; use an `entrypoint`, or a service to depend on"),
            ),
            ("pre_stop", Used("before each stop by Driftless; a failure is logged")),
            ("privileged", Used("")),
            ("profiles", Used("")),
            ("provider", Refused("providers do not run containers")),
            (
                "pull_policy",
                Used(
                    "the age is the time since the image was tagged on this host, checked before a creation",
                ),
            ),
            ("pull_refresh_after", Used("with `pull_policy: refresh`")),
            ("read_only", Used("")),
            ("restart", Used("")),
            ("runtime", Used("")),
            ("scale", Used("")),
            ("secrets", Used("")),
            ("security_opt", Used("a seccomp profile is read from the repository")),
            ("shm_size", Used("")),
            ("stdin_open", Used("")),
            ("stop_grace_period", Used("")),
            ("stop_signal", Used("")),
            ("storage_opt", Used("")),
            ("sysctls", Used("")),
            ("tmpfs", Used("")),
            ("tty", Used("")),
            ("ulimits", Used("")),
            (
                "use_api_socket",
                Refused("it would pass on registry credentials of a user; mount /var/run/docker.sock"),
            ),
            ("user", Used("")),
            ("userns_mode", Used("")),
            ("uts", Used("")),
            ("volumes", Used("")),
            ("volumes_from", Used("")),
            ("working_dir", Used("")),
            ("x-driftless", Used("`on-change`, for all its mounts of files of the repository")),
        ],
    ),
    (
        "services.blkio_config",
        &[
            ("device_read_bps", Used("")),
            ("device_read_iops", Used("")),
            ("device_write_bps", Used("")),
            ("device_write_iops", Used("")),
            ("weight", Used("")),
            ("weight_device", Used("")),
        ],
    ),
    ("services.blkio_config.rate", &[("path", Used("")), ("rate", Used(""))]),
    ("services.blkio_config.weight_device", &[("path", Used("")), ("weight", Used(""))]),
    (
        "services.deploy",
        &[
            ("endpoint_mode", NoEffect(SWARM)),
            ("labels", NoEffect("they are labels of a Swarm service, and Swarm is not used")),
            ("mode", Used("`global` is one container on one host; jobs are recognized by `restart` only")),
            ("placement", NoEffect(ONE_HOST)),
            ("replicas", Used("")),
            ("resources", Used("")),
            ("restart_policy", Used("")),
            ("rollback_config", NoEffect("a rollback follows `update_config`")),
            ("update_config", Used("")),
        ],
    ),
    ("services.deploy.resources", &[("limits", Used("")), ("reservations", Used(""))]),
    ("services.deploy.resources.limits", &[("cpus", Used("")), ("memory", Used("")), ("pids", Used(""))]),
    (
        "services.deploy.resources.reservations",
        &[
            ("cpus", NoEffect("Docker cannot reserve CPUs")),
            ("devices", Used("")),
            ("generic_resources", NoEffect(SWARM)),
            ("memory", Used("")),
        ],
    ),
    (
        "services.deploy.restart_policy",
        &[
            ("condition", Used("")),
            ("delay", NoEffect("the engine has its own pauses between restarts")),
            ("max_attempts", Used("")),
            ("window", NoEffect("the engine has its own pauses between restarts")),
        ],
    ),
    (
        "services.deploy.update_config",
        &[
            ("delay", Used("as `monitor`; the longer of the two counts")),
            (
                "failure_action",
                Used("`pause`; other values have no effect: a failed update waits for a newer commit"),
            ),
            ("max_failure_ratio", NoEffect("any failure pauses an update")),
            ("monitor", Used("how long a new container must be healthy before it is available")),
            ("order", Used("")),
            ("parallelism", Used("")),
        ],
    ),
    ("services.devices", &[("permissions", Used("")), ("source", Used("")), ("target", Used(""))]),
    (
        "services.gpus",
        &[
            ("capabilities", Used("")),
            ("count", Used("")),
            ("device_ids", Used("")),
            ("driver", Used("")),
            ("options", Used("")),
        ],
    ),
    (
        "services.healthcheck",
        &[
            ("disable", Used("")),
            ("interval", Used("")),
            ("retries", Used("")),
            ("start_interval", Used("before Docker Engine 25 the engine uses `interval`")),
            ("start_period", Used("")),
            ("test", Used("")),
            ("timeout", Used("")),
        ],
    ),
    ("services.logging", &[("driver", Used("")), ("options", Used(""))]),
    (
        "services.networks",
        &[
            ("aliases", Used("")),
            ("driver_opts", Used("")),
            ("gw_priority", Used("Docker Engine 28")),
            ("interface_name", Used("Docker Engine 28.1")),
            ("ipv4_address", Used("")),
            ("ipv6_address", Used("")),
            ("link_local_ips", Used("")),
            ("mac_address", Used("")),
            ("priority", Used("")),
        ],
    ),
    (
        "services.ports",
        &[
            ("app_protocol", NoEffect("it only documents the port")),
            ("host_ip", Used("")),
            ("mode", Used("without Swarm both values publish on the host")),
            ("name", NoEffect("it only documents the port")),
            ("protocol", Used("")),
            ("published", Used("")),
            ("target", Used("")),
        ],
    ),
    (
        "services.post_start",
        &[
            ("command", Used("")),
            ("environment", Used("")),
            ("privileged", Used("")),
            ("user", Used("")),
            ("working_dir", Used("")),
        ],
    ),
    (
        "services.configs",
        &[
            ("gid", Used("")),
            ("mode", Used("")),
            ("source", Used("")),
            ("target", Used("")),
            ("uid", Used("")),
            ("x-driftless", Used("`on-change`")),
        ],
    ),
    (
        "services.volumes",
        &[
            ("bind", Used("")),
            ("consistency", NoEffect("it means nothing on Linux")),
            ("image", Used("")),
            ("read_only", Used("")),
            ("source", Used("")),
            ("target", Used("")),
            ("tmpfs", Used("")),
            ("type", Used("`bind`, `volume`, `tmpfs`, and `image` with Docker Engine 28")),
            ("volume", Used("")),
            ("x-driftless", Used("`on-change`")),
        ],
    ),
    (
        "services.volumes.bind",
        &[
            ("create_host_path", Used("")),
            ("propagation", Used("")),
            ("recursive", Used("`writable` and `readonly`: Docker Engine 25")),
            ("selinux", Used("")),
        ],
    ),
    ("services.volumes.image", &[("subpath", Used(""))]),
    ("services.volumes.tmpfs", &[("mode", Used("")), ("size", Used(""))]),
    (
        "services.volumes.volume",
        &[("labels", Used("")), ("nocopy", Used("")), ("subpath", Used("Docker Engine 26"))],
    ),
    (
        "networks",
        &[
            ("attachable", Used("")),
            ("driver", Used("")),
            ("driver_opts", Used("")),
            ("enable_ipv4", Used("`false`: Docker Engine 28")),
            ("enable_ipv6", Used("")),
            ("external", Used("")),
            ("internal", Used("")),
            ("ipam", Used("")),
            ("labels", Used("")),
            ("name", Used("")),
        ],
    ),
    ("networks.ipam", &[("config", Used("")), ("driver", Used("")), ("options", Used(""))]),
    (
        "networks.ipam.config",
        &[("aux_addresses", Used("")), ("gateway", Used("")), ("ip_range", Used("")), ("subnet", Used(""))],
    ),
    (
        "volumes",
        &[
            ("driver", Used("")),
            ("driver_opts", Used("")),
            ("external", Used("")),
            ("labels", Used("")),
            ("name", Used("")),
        ],
    ),
    (
        "configs",
        &[
            ("content", Used("")),
            ("driver", Refused(SWARM)),
            ("driver_opts", Refused(SWARM)),
            ("environment", Used("")),
            ("external", Refused("only Swarm stores external configs and secrets; use `file`")),
            ("file", Used("")),
            ("labels", NoEffect("Docker has no object that could carry them")),
            ("name", Used("")),
            ("template_driver", Refused(SWARM)),
        ],
    ),
];

/// What becomes of a key of an object; `None` for what the specification does not know.
pub(super) fn of(object: &str, key: &str) -> Option<Support> {
    keys(object).iter().find(|(name, _)| *name == key).map(|(_, support)| *support)
}

/// The keys of an object, for "did you mean".
pub(super) fn names(object: &str) -> impl Iterator<Item = &'static str> {
    keys(object).iter().map(|(name, _)| *name)
}

fn keys(object: &str) -> Keys {
    let object = match object {
        "secrets" => "configs",
        "services.secrets" => "services.configs",
        "services.pre_stop" => "services.post_start",
        other => other,
    };
    OBJECTS.iter().find(|(name, _)| *name == object).map_or(&[], |(_, keys)| keys)
}

/// All of it as a page for people.
pub(super) fn page() -> String {
    let mut page = String::from("| key | | |\n|---|---|---|\n");
    for (object, keys) in OBJECTS {
        for (key, support) in *keys {
            let dot = if object.is_empty() { "" } else { "." };
            let (word, note) = match support {
                Used(note) => ("used", note),
                NoEffect(why) => ("no effect", why),
                Refused(why) => ("refused", why),
            };
            writeln!(page, "| `{object}{dot}{key}` | {word} | {note} |")
                .expect("writing to a string cannot fail");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_and_key_is_there_once_and_objects_belong_to_keys() {
        for (index, (object, keys)) in OBJECTS.iter().enumerate() {
            assert!(OBJECTS[..index].iter().all(|(other, _)| other != object), "{object}");
            for (at, (key, _)) in keys.iter().enumerate() {
                assert!(keys[..at].iter().all(|(other, _)| other != key), "{object}.{key}");
            }
            if let Some((parent, key)) = object.rsplit_once('.')
                && *key != *"rate"
            {
                assert!(matches!(of(parent, key), Some(Used(_))), "{object}");
            }
        }
    }
}
