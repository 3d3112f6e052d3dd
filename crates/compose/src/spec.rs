//! The Compose specification as tables: every key there is, and what may stand under it.
//!
//! One table is read by all: the check refuses what is not in it, and the canonical form prints what is. Whether a
//! key does anything here is another question, which `service.rs` answers.

use super::shape::{Form, Names, Object, Shape, Zero};

use Shape::{
    Always, Any, Between, Boolean, Bytes, Capitalised, Command, Context, Contexts, Count, Duration, Each,
    Environment, External, Float, Hosts, Integer, Labels, Like, List, Listed, Map, Mode, Multiple, Number,
    Object as One, Options, OrNull, Path, Paths, Processors, RawMode, Repeated, Short, Ssh, StrictBoolean,
    StrictInteger, Test, Text, TextBytes, TextOrBoolean, TextOrInteger, TextOrNull, TextOrTexts, Texts,
    TextsOrNumbers, UnlessFalse, Word,
};
use Zero::{Dropped, Kept};

const fn open(fields: &'static [(&'static str, Shape)]) -> Object {
    Object { fields, required: &[], open: true }
}

const fn closed(fields: &'static [(&'static str, Shape)]) -> Object {
    Object { fields, required: &[], open: false }
}

const fn open_with(fields: &'static [(&'static str, Shape)], required: &'static [&'static str]) -> Object {
    Object { fields, required, open: true }
}

/// A whole file.
pub(super) const PROJECT: Object = open(&[
    ("version", Text),
    ("name", Text),
    ("include", List(&Short(&Text, &One(&INCLUDE)))),
    ("services", Map(Names::Plain, &One(&SERVICE))),
    ("models", Map(Names::Free, &One(&MODEL))),
    ("networks", Map(Names::Free, &OrNull(&One(&NETWORK)))),
    ("volumes", Map(Names::Plain, &OrNull(&One(&VOLUME)))),
    ("secrets", Map(Names::Plain, &One(&SECRET))),
    ("configs", Map(Names::Plain, &One(&CONFIG))),
]);

pub(super) const INCLUDE: Object =
    closed(&[("path", TextOrTexts), ("env_file", TextOrTexts), ("project_directory", Text)]);

pub(super) const SERVICE: Object = open(&[
    ("annotations", Labels),
    ("attach", Boolean(Kept)),
    ("blkio_config", One(&BLKIO)),
    ("build", Short(&Context, &One(&BUILD))),
    ("cap_add", Texts),
    ("cap_drop", Texts),
    ("cgroup", Word(&["host", "private"])),
    ("cgroup_parent", Text),
    ("command", Command),
    ("configs", List(&FILE_MOUNT)),
    ("container_name", Like(Form::ContainerName)),
    ("cpu_count", Between(0, i64::MAX)),
    ("cpu_percent", Between(0, 100)),
    ("cpu_period", Number),
    ("cpu_quota", Number),
    ("cpu_rt_period", Number),
    ("cpu_rt_runtime", Number),
    ("cpu_shares", Number),
    ("cpus", Processors),
    ("cpuset", Text),
    ("credential_spec", One(&CREDENTIAL_SPEC)),
    ("depends_on", Listed(&Texts, &Map(Names::Plain, &One(&DEPENDENCY)))),
    ("deploy", OrNull(&One(&DEPLOY))),
    ("develop", OrNull(&One(&DEVELOP))),
    ("device_cgroup_rules", Texts),
    ("devices", List(&Short(&Text, &One(&DEVICE)))),
    ("dns", TextOrTexts),
    ("dns_opt", Texts),
    ("dns_search", TextOrTexts),
    ("domainname", Text),
    ("entrypoint", Command),
    ("env_file", ENV_FILES),
    ("environment", Environment),
    ("expose", TextsOrNumbers),
    ("extends", Short(&Text, &One(&EXTENDS))),
    ("external_links", Texts),
    ("extra_hosts", Hosts),
    ("gpus", Short(&Word(&["all"]), &List(&One(&GPU)))),
    ("group_add", TextsOrNumbers),
    ("healthcheck", One(&HEALTHCHECK)),
    ("hostname", Text),
    ("image", Text),
    ("init", Boolean(Kept)),
    ("ipc", Text),
    ("isolation", Text),
    ("label_file", Paths),
    ("labels", Labels),
    ("links", Texts),
    ("logging", One(&LOGGING)),
    ("mac_address", Text),
    ("mem_limit", Bytes),
    ("mem_reservation", Bytes),
    ("mem_swappiness", Bytes),
    ("memswap_limit", Bytes),
    ("models", Listed(&Texts, &Map(Names::Free, &OrNull(&One(&SERVICE_MODEL))))),
    ("network_mode", Text),
    ("networks", Listed(&Texts, &Map(Names::Plain, &OrNull(&One(&ATTACHMENT))))),
    ("oom_kill_disable", Boolean(Dropped)),
    ("oom_score_adj", Between(-1000, 1000)),
    ("pid", TextOrNull),
    ("pids_limit", Number),
    ("platform", Text),
    ("ports", Each(&Short(&Any, &One(&PORT)))),
    ("post_start", List(&One(&HOOK))),
    ("pre_start", List(&One(&PRE_START))),
    ("pre_stop", List(&One(&HOOK))),
    ("privileged", Boolean(Dropped)),
    ("profiles", Texts),
    ("provider", One(&PROVIDER)),
    ("pull_policy", Like(Form::PullPolicy)),
    ("pull_refresh_after", Text),
    ("read_only", Boolean(Dropped)),
    ("restart", Text),
    ("runtime", Text),
    ("scale", Integer(Kept)),
    ("secrets", List(&FILE_MOUNT)),
    ("security_opt", Texts),
    ("shm_size", Bytes),
    ("stdin_open", Boolean(Dropped)),
    ("stop_grace_period", Duration(Kept)),
    ("stop_signal", Text),
    ("storage_opt", Options),
    ("sysctls", Labels),
    ("tmpfs", TextOrTexts),
    ("tty", Boolean(Dropped)),
    ("ulimits", ULIMITS),
    ("use_api_socket", StrictBoolean),
    ("user", Text),
    ("userns_mode", Text),
    ("uts", Text),
    ("volumes", Each(&Short(&Text, &One(&MOUNT)))),
    ("volumes_from", Texts),
    ("working_dir", Text),
]);

const BUILD: Object = open(&[
    ("context", Context),
    ("dockerfile", Text),
    ("dockerfile_inline", Text),
    ("entitlements", Repeated),
    ("args", Environment),
    ("ssh", Ssh),
    ("labels", Labels),
    ("cache_from", Repeated),
    ("cache_to", Repeated),
    ("no_cache", Boolean(Dropped)),
    ("no_cache_filter", TextOrTexts),
    ("additional_contexts", Contexts),
    ("network", Text),
    ("provenance", TextOrBoolean),
    ("sbom", TextOrBoolean),
    ("pull", Boolean(Dropped)),
    ("target", Text),
    ("shm_size", Bytes),
    ("extra_hosts", Hosts),
    ("isolation", Text),
    ("privileged", Boolean(Dropped)),
    ("secrets", List(&FILE_MOUNT)),
    ("tags", Repeated),
    ("ulimits", ULIMITS),
    ("platforms", Repeated),
]);

const BLKIO: Object = closed(&[
    ("device_read_bps", List(&Capitalised(&THROTTLE))),
    ("device_read_iops", List(&Capitalised(&THROTTLE))),
    ("device_write_bps", List(&Capitalised(&THROTTLE))),
    ("device_write_iops", List(&Capitalised(&THROTTLE))),
    ("weight", Integer(Dropped)),
    ("weight_device", List(&Capitalised(&WEIGHT))),
]);

const THROTTLE: Object = closed(&[("path", Text), ("rate", Bytes)]);

const WEIGHT: Object = closed(&[("path", Text), ("weight", Integer(Kept))]);

const CREDENTIAL_SPEC: Object = open(&[("config", Text), ("file", Text), ("registry", Text)]);

const DEPENDENCY: Object = open_with(
    &[
        ("condition", Word(&["service_started", "service_healthy", "service_completed_successfully"])),
        ("required", StrictBoolean),
        ("restart", Boolean(Dropped)),
    ],
    &["condition"],
);

const DEPLOY: Object = open(&[
    ("mode", Text),
    ("endpoint_mode", Text),
    ("replicas", Integer(Kept)),
    ("labels", Labels),
    ("rollback_config", One(&UPDATE)),
    ("update_config", One(&UPDATE)),
    ("resources", Always(&RESOURCES)),
    ("restart_policy", One(&RESTART_POLICY)),
    ("placement", Always(&PLACEMENT)),
]);

const UPDATE: Object = open(&[
    ("parallelism", Integer(Kept)),
    ("delay", Duration(Dropped)),
    ("failure_action", Text),
    ("monitor", Duration(Dropped)),
    ("max_failure_ratio", Float),
    ("order", Word(&["start-first", "stop-first"])),
]);

const RESOURCES: Object = open(&[("limits", One(&LIMITS)), ("reservations", One(&RESERVATIONS))]);

const LIMITS: Object = open(&[("cpus", Processors), ("memory", TextBytes), ("pids", Integer(Dropped))]);

const RESERVATIONS: Object = open(&[
    ("cpus", Processors),
    ("memory", TextBytes),
    ("generic_resources", List(&One(&GENERIC_RESOURCE))),
    ("devices", List(&One(&DEVICE_REQUEST))),
]);

const GENERIC_RESOURCE: Object = open(&[("discrete_resource_spec", One(&DISCRETE))]);

const DISCRETE: Object = open(&[("kind", Text), ("value", Number)]);

const DEVICE_REQUEST: Object = open_with(
    &[
        ("capabilities", Texts),
        ("count", Count),
        ("device_ids", Texts),
        ("driver", Text),
        ("options", Labels),
    ],
    &["capabilities"],
);

const GPU: Object = open(&[
    ("capabilities", Texts),
    ("count", Count),
    ("device_ids", Texts),
    ("driver", Text),
    ("options", Labels),
]);

const RESTART_POLICY: Object = open(&[
    ("condition", Text),
    ("delay", Duration(Kept)),
    ("max_attempts", Integer(Kept)),
    ("window", Duration(Kept)),
]);

const PLACEMENT: Object = open(&[
    ("constraints", Repeated),
    ("preferences", List(&One(&PREFERENCE))),
    ("max_replicas_per_node", Integer(Dropped)),
]);

const PREFERENCE: Object = open(&[("spread", Text)]);

const DEVELOP: Object = open(&[("watch", List(&One(&WATCH)))]);

const WATCH: Object = open_with(
    &[
        ("path", Path),
        ("action", Word(&["rebuild", "sync", "restart", "sync+restart", "sync+exec"])),
        ("target", Text),
        ("exec", Always(&HOOK)),
        ("include", TextOrTexts),
        ("ignore", TextOrTexts),
        ("initial_sync", StrictBoolean),
    ],
    &["path", "action"],
);

const DEVICE: Object = open_with(&[("source", Text), ("target", Text), ("permissions", Text)], &["source"]);

const ENV_FILES: Shape = Short(&Text, &List(&Short(&Text, &One(&ENV_FILE))));

const ENV_FILE: Object = Object {
    fields: &[("path", Path), ("format", Text), ("required", UnlessFalse)],
    required: &["path"],
    open: false,
};

const EXTENDS: Object =
    Object { fields: &[("service", Text), ("file", Path)], required: &["service"], open: false };

const FILE_MOUNT: Shape = Short(
    &Text,
    &One(&open(&[("source", Text), ("target", Text), ("uid", Text), ("gid", Text), ("mode", Mode)])),
);

const HEALTHCHECK: Object = open(&[
    ("disable", Boolean(Dropped)),
    ("interval", Duration(Kept)),
    ("retries", Integer(Kept)),
    ("test", Test),
    ("timeout", Duration(Kept)),
    ("start_period", Duration(Kept)),
    ("start_interval", Duration(Kept)),
]);

const HOOK: Object = open_with(
    &[
        ("command", Command),
        ("user", Text),
        ("privileged", Boolean(Dropped)),
        ("working_dir", Text),
        ("environment", Environment),
    ],
    &["command"],
);

const PRE_START: Object = open(&[
    ("command", Command),
    ("image", Text),
    ("user", Text),
    ("privileged", Boolean(Dropped)),
    ("working_dir", Text),
    ("environment", Environment),
    ("per_replica", Boolean(Dropped)),
]);

const LOGGING: Object = open(&[("driver", Text), ("options", Options)]);

const SERVICE_MODEL: Object = open(&[("endpoint_var", Text), ("model_var", Text)]);

const ATTACHMENT: Object = open(&[
    ("aliases", Texts),
    ("interface_name", Text),
    ("ipv4_address", Text),
    ("ipv6_address", Text),
    ("link_local_ips", Texts),
    ("mac_address", Text),
    ("driver_opts", Options),
    ("priority", Number),
    ("gw_priority", Number),
]);

const PORT: Object = open(&[
    ("name", Text),
    ("mode", Text),
    ("host_ip", Text),
    ("target", Integer(Dropped)),
    ("published", TextOrInteger),
    ("protocol", Text),
    ("app_protocol", Text),
]);

const PROVIDER: Object = open_with(&[("type", Text), ("options", Multiple)], &["type"]);

const ULIMITS: Shape = Map(Names::Free, &Short(&Integer(Kept), &One(&ULIMIT)));

const ULIMIT: Object =
    open_with(&[("soft", Integer(Dropped)), ("hard", Integer(Dropped))], &["soft", "hard"]);

const MOUNT: Object = open_with(
    &[
        ("type", Word(&["bind", "volume", "tmpfs", "cluster", "npipe", "image"])),
        ("source", Text),
        ("target", Text),
        ("read_only", Boolean(Dropped)),
        ("consistency", Text),
        ("bind", One(&MOUNT_BIND)),
        ("volume", One(&MOUNT_VOLUME)),
        ("tmpfs", One(&MOUNT_TMPFS)),
        ("image", One(&open(&[("subpath", Text)]))),
    ],
    &["type"],
);

const MOUNT_BIND: Object = open(&[
    ("propagation", Text),
    ("create_host_path", UnlessFalse),
    ("recursive", Word(&["enabled", "disabled", "writable", "readonly"])),
    ("selinux", Word(&["z", "Z"])),
]);

const MOUNT_VOLUME: Object = open(&[("labels", Labels), ("nocopy", Boolean(Dropped)), ("subpath", Text)]);

const MOUNT_TMPFS: Object = open(&[("size", Bytes), ("mode", RawMode)]);

const MODEL: Object = open_with(
    &[("name", Text), ("model", Text), ("context_size", StrictInteger), ("runtime_flags", Repeated)],
    &["model"],
);

const NETWORK: Object = open(&[
    ("name", Text),
    ("driver", Text),
    ("driver_opts", Options),
    ("ipam", Always(&IPAM)),
    ("external", External),
    ("internal", Boolean(Dropped)),
    ("enable_ipv4", Boolean(Kept)),
    ("enable_ipv6", Boolean(Kept)),
    ("attachable", Boolean(Dropped)),
    ("labels", Labels),
]);

const IPAM: Object = open(&[("driver", Text), ("config", List(&One(&POOL))), ("options", Options)]);

const POOL: Object =
    open(&[("subnet", Text), ("ip_range", Text), ("gateway", Text), ("aux_addresses", Options)]);

const VOLUME: Object = open(&[
    ("name", Text),
    ("driver", Text),
    ("driver_opts", Options),
    ("external", External),
    ("labels", Labels),
]);

const SECRET: Object = open(&[
    ("name", Text),
    ("environment", Text),
    ("file", Path),
    ("external", External),
    ("labels", Labels),
    ("driver", Text),
    ("driver_opts", Options),
    ("template_driver", Text),
]);

const CONFIG: Object = open(&[
    ("name", Text),
    ("content", Text),
    ("environment", Text),
    ("file", Path),
    ("external", External),
    ("labels", Labels),
    ("template_driver", Text),
]);
