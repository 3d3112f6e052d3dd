//! Every key of the Compose specification in one table: its name, its shape, and what becomes of it here.
//!
//! The strict check refuses keys that are not in the table, the canonical form prints those that are, the readers ask
//! it about keys without effect and refused ones, and the table in `docs/compose.md` is printed from it.
//! CONTRIBUTING.md lists the other places of a new key.

use crate::spec::shape::{Form, Key, Names, Object, Shape, Zero, key};

use Shape::{
    Always, Any, Between, Boolean, Bytes, Capitalised, Command, Context, Contexts, Count, Duration, Each,
    Environment, Extension, External, Float, Hosts, Integer, Labels, Like, List, Listed, Map, Mode, Multiple,
    Number, Object as One, Options, OrNull, Path, Paths, Processors, RawMode, Repeated, Short, Ssh,
    StrictBoolean, StrictInteger, Test, Text, TextBytes, TextOrBoolean, TextOrInteger, TextOrNull,
    TextOrTexts, Texts, TextsOrNumbers, UnlessFalse, Word,
};
use Zero::{Dropped, Kept};

/// Of keys without effect, or that are errors, on a single host.
pub(crate) const ONLY_IN_A_SWARM: &str = "it only affects Swarm (`engine: swarm`)";
const WINDOWS: &str = "it exists only on Windows";
const ONE_HOST: &str = "there is only one host";
const OF_RUN: &str = "it is an option of `RUN --mount=type=secret` in the Dockerfile";
const PAUSES: &str = "the engine has its own pauses between restarts";

/// An object in which extensions (`x-…`) are allowed.
const fn open(fields: &'static [Key]) -> Object {
    Object { fields, required: &[], open: true }
}

/// An object in which extensions are not allowed.
const fn closed(fields: &'static [Key]) -> Object {
    Object { fields, required: &[], open: false }
}

/// As [`open`], with keys that must be given.
const fn open_with(fields: &'static [Key], required: &'static [&'static str]) -> Object {
    Object { fields, required, open: true }
}

/// A whole file.
pub(crate) static PROJECT: Object = open(&[
    key("version", Text).no_effect("it is obsolete"),
    key("name", Text).note("the project; without it, the application's name"),
    key("include", List(&Short(&Text, &One(&INCLUDE)))),
    key("services", Map(Names::Plain, &One(&SERVICE))),
    key("models", Map(Names::Free, &One(&MODEL))).refused("there is no model runner"),
    key("networks", Map(Names::Free, &OrNull(&One(&NETWORK)))),
    key("volumes", Map(Names::Plain, &OrNull(&One(&VOLUME)))),
    key("secrets", Map(Names::Plain, &One(&SECRET))),
    key("configs", Map(Names::Plain, &One(&CONFIG))),
]);

pub(crate) static INCLUDE: Object =
    closed(&[key("path", TextOrTexts), key("env_file", TextOrTexts), key("project_directory", Text)]);

pub(crate) static SERVICE: Object = open(&[
    key("annotations", Labels).note("Docker Engine 24"),
    key("attach", Boolean(Kept)).no_effect("it only affects the output of `docker compose up`"),
    key("blkio_config", One(&BLKIO)),
    key("build", Short(&Context, &One(&BUILD))),
    key("cap_add", Texts),
    key("cap_drop", Texts),
    key("cgroup", Word(&["host", "private"])),
    key("cgroup_parent", Text),
    key("command", Command),
    key("configs", FILE_MOUNTS),
    key("container_name", Like(Form::ContainerName))
        .note("one container only; an update stops the old one first"),
    key("cpu_count", Between(0, i64::MAX)).no_effect(WINDOWS),
    key("cpu_percent", Between(0, 100)).no_effect(WINDOWS),
    key("cpu_period", Number),
    key("cpu_quota", Number),
    key("cpu_rt_period", Number),
    key("cpu_rt_runtime", Number),
    key("cpu_shares", Number),
    key("cpus", Processors),
    key("cpuset", Text),
    key("credential_spec", One(&CREDENTIAL_SPEC)).refused(WINDOWS),
    key("depends_on", Listed(&Texts, &Map(Names::Plain, &One(&DEPENDENCY)))),
    key("deploy", OrNull(&One(&DEPLOY))),
    key("develop", OrNull(&One(&DEVELOP))).no_effect("it only affects `docker compose watch`"),
    key("device_cgroup_rules", Texts),
    key("devices", List(&Short(&Text, &One(&DEVICE))))
        .note("names of the Container Device Interface need Docker Engine 25"),
    key("dns", TextOrTexts),
    key("dns_opt", Texts),
    key("dns_search", TextOrTexts),
    key("domainname", Text),
    key("entrypoint", Command),
    key("env_file", ENV_FILES),
    key("environment", Environment),
    key("expose", TextsOrNumbers),
    key("extends", Short(&Text, &One(&EXTENDS))),
    key("external_links", Texts),
    key("extra_hosts", Hosts),
    key("gpus", Short(&Word(&["all"]), &List(&One(&GPU)))),
    key("group_add", TextsOrNumbers),
    key("healthcheck", One(&HEALTHCHECK)),
    key("hostname", Text),
    key("image", Text),
    key("init", Boolean(Kept)),
    key("ipc", Text),
    key("isolation", Text).note("`default` only; other values are for Windows"),
    key("label_file", Paths),
    key("labels", Labels),
    key("links", Texts).note("as names on the networks that both services join"),
    key("logging", One(&LOGGING)),
    key("mac_address", Text).note("on several networks: Docker Engine 25"),
    key("mem_limit", Bytes),
    key("mem_reservation", Bytes),
    key("mem_swappiness", Bytes),
    key("memswap_limit", Bytes),
    key("models", Listed(&Texts, &Map(Names::Free, &OrNull(&One(&SERVICE_MODEL)))))
        .refused("there is no model runner"),
    key("network_mode", Text),
    key("networks", Listed(&Texts, &Map(Names::Plain, &OrNull(&One(&ATTACHMENT))))),
    key("oom_kill_disable", Boolean(Dropped)),
    key("oom_score_adj", Between(-1000, 1000)),
    key("pid", TextOrNull),
    key("pids_limit", Number),
    key("platform", Text),
    key("ports", Each(&Short(&Any, &One(&PORT)))),
    key("post_start", List(&One(&HOOK)))
        .note("after each start by the agent, for at most an hour; a failure stops the container"),
    key("pre_start", List(&One(&PRE_START)))
        .refused("it is experimental in Compose; use an `entrypoint`, or a service to depend on"),
    key("pre_stop", List(&One(&HOOK))).note("before each stop by the agent; a failure is logged"),
    key("privileged", Boolean(Dropped)),
    key("profiles", Texts),
    key("provider", One(&PROVIDER)).refused("providers do not run containers"),
    key("pull_policy", Like(Form::PullPolicy)).note(
        "the age is the time since the image was tagged on this host, checked before a creation; if that pull \
         fails, the image that is here is used, while `always` waits",
    ),
    key("pull_refresh_after", Text).note("with `pull_policy: refresh`"),
    key("read_only", Boolean(Dropped)),
    key("restart", Text).note(
        "of a service that ends again and again, the agent lengthens the pauses; not after an end with code 0 that comes 10 seconds after its start or later",
    ),
    key("runtime", Text),
    key("scale", Integer(Kept)),
    key("secrets", FILE_MOUNTS),
    key("security_opt", Texts).note("a seccomp profile is read from the repository"),
    key("shm_size", Bytes),
    key("stdin_open", Boolean(Dropped)),
    key("stop_grace_period", Duration(Kept)),
    key("stop_signal", Text),
    key("storage_opt", Options),
    key("sysctls", Labels),
    key("tmpfs", TextOrTexts),
    key("tty", Boolean(Dropped)),
    key("ulimits", ULIMITS),
    key("use_api_socket", StrictBoolean)
        .refused("it would pass on registry credentials of a user; mount /var/run/docker.sock"),
    key("user", Text),
    key("userns_mode", Text),
    key("uts", Text),
    key("volumes", Each(&Short(&Text, &One(&MOUNT)))),
    key("volumes_from", Texts),
    key("working_dir", Text),
    key("x-driftless", Extension)
        .note("`on-change`, for all its mounts of files of the repository; `proxy`, for its published ports; `hook`, `wave` and `schedule`, for when it runs; `update`, for newer images; `ignore-differences`, for fields of its live containers; `canary`, for the steps of its updates"),
]);

/// The extension of this project in services.
pub(crate) static SERVICE_EXTENSION: Object = closed(&[
    key("on-change", Text),
    key("proxy", Any),
    key("hook", Any),
    key("wave", Integer(Kept)),
    key("schedule", Any),
    key("update", Any),
    key("ignore-differences", Texts),
    key("canary", Any),
]);

pub(crate) static SERVICE_UPDATE: Object = closed(&[
    key("mode", Text),
    key("semver", Text),
    key("tags", Text),
    key("min-age", Duration(Kept)),
    key("every", Duration(Kept)),
]);

pub(crate) static SERVICE_HOOK: Object = closed(&[key("phase", Text), key("deadline", Duration(Kept))]);

pub(crate) static SERVICE_SCHEDULE: Object = closed(&[
    key("cron", Text),
    key("time-zone", Text),
    key("concurrency", Text),
    key("starting-deadline", Duration(Kept)),
    key("deadline", Duration(Kept)),
    key("suspend", StrictBoolean),
    key("successful-history", Integer(Kept)),
    key("failed-history", Integer(Kept)),
]);

pub(crate) static SERVICE_PROXY: Object = closed(&[
    key("max-connections", Integer(Kept)),
    key("idle-timeout", Duration(Kept)),
    key("connect-timeout", Duration(Kept)),
    key("proxy-protocol", Text),
]);

/// The extension of this project in configs, secrets and volumes.
pub(crate) static X_DRIFTLESS: Object = closed(&[key("on-change", Text)]);

pub(crate) static BUILD: Object = open(&[
    key("context", Context),
    key("dockerfile", Text),
    key("dockerfile_inline", Text),
    key("entitlements", Repeated).note("`network.host` only, together with `network: host`"),
    key("args", Environment),
    key("ssh", Ssh).refused("the agent has no SSH keys for builds; use a token from `secrets`, or put the files into the repository"),
    key("labels", Labels),
    key("cache_from", Repeated).note("images only"),
    key("cache_to", Repeated).no_effect("the engine manages its cache itself"),
    key("no_cache", Boolean(Dropped)),
    key("no_cache_filter", TextOrTexts).no_effect("it changes the duration of a build, not its result"),
    key("additional_contexts", Contexts).refused("the engine's API takes one context; use a `context` that contains all folders, or another image with `COPY --from=`"),
    key("network", Text).note("`default`, `none` and `host`"),
    key("provenance", TextOrBoolean).no_effect("attestations only matter to a registry"),
    key("sbom", TextOrBoolean).no_effect("attestations only matter to a registry"),
    key("pull", Boolean(Dropped)).note("at a build; a newer base image alone builds nothing"),
    key("target", Text),
    key("shm_size", Bytes),
    key("extra_hosts", Hosts),
    key("isolation", Text).note("`default` only; other values are for Windows"),
    key("privileged", Boolean(Dropped)).note("`false` only: the engine's builder runs no privileged steps"),
    key("secrets", List(&Short(&Text, &One(&BUILD_SECRET)))),
    key("tags", Repeated),
    key("ulimits", ULIMITS),
    key("platforms", Repeated),
]);

pub(crate) static BLKIO: Object = closed(&[
    key("device_read_bps", List(&Capitalised(&THROTTLE))),
    key("device_read_iops", List(&Capitalised(&THROTTLE))),
    key("device_write_bps", List(&Capitalised(&THROTTLE))),
    key("device_write_iops", List(&Capitalised(&THROTTLE))),
    key("weight", Integer(Dropped)),
    key("weight_device", List(&Capitalised(&WEIGHT))),
]);

pub(crate) static THROTTLE: Object = closed(&[key("path", Text), key("rate", Bytes)]);

pub(crate) static WEIGHT: Object = closed(&[key("path", Text), key("weight", Integer(Kept))]);

pub(crate) static CREDENTIAL_SPEC: Object =
    open(&[key("config", Text), key("file", Text), key("registry", Text)]);

pub(crate) static DEPENDENCY: Object = open_with(
    &[
        key("condition", Word(&["service_started", "service_healthy", "service_completed_successfully"]))
            .note("one that has ended with an error has started; `service_healthy` on a disabled health check is an error, and so is `service_completed_successfully` on a service that is always restarted"),
        key("required", StrictBoolean)
            .note("`false`: a service that fails, or cannot be created or started, does not keep this one down"),
        key("restart", Boolean(Dropped)),
    ],
    &["condition"],
);

pub(crate) static DEPLOY: Object = open(&[
    key("mode", Text).note("`global` is one container on one host; jobs are recognized by `restart` only"),
    key("endpoint_mode", Text).no_effect(ONLY_IN_A_SWARM),
    key("replicas", Integer(Kept)),
    key("labels", Labels).no_effect("they are labels of a Swarm service (`engine: swarm`)"),
    key("update_config", One(&UPDATE)),
    key("rollback_config", One(&ROLLBACK))
        .note("instead of `update_config` when the application goes back to an older revision; its `failure_action` is `pause` or `continue`"),
    key("resources", Always(&RESOURCES)),
    key("restart_policy", One(&RESTART_POLICY)),
    key("placement", Always(&PLACEMENT)).no_effect(ONE_HOST),
]);

pub(crate) static UPDATE: Object = open(&UPDATE_KEYS);

static UPDATE_KEYS: [Key; 6] =
    update_keys("`pause`, `continue` or `rollback`; decides over `onFailure` of the application");

pub(crate) static ROLLBACK: Object = open(&ROLLBACK_KEYS);

static ROLLBACK_KEYS: [Key; 6] = update_keys("`pause` or `continue`");

/// The keys of an update and of a rollback, which differ in what may follow a failure.
const fn update_keys(failure_actions: &'static str) -> [Key; 6] {
    [
        key("parallelism", Integer(Kept)),
        key("delay", Duration(Dropped)).note("as `monitor`; the longer of the two counts"),
        key("failure_action", Text).note(failure_actions),
        key("monitor", Duration(Dropped))
            .note("how long a new container must be healthy before it is available"),
        key("max_failure_ratio", Float).note("the share of the instances that may fail"),
        key("order", Word(&["start-first", "stop-first"])),
    ]
}

pub(crate) static RESOURCES: Object =
    open(&[key("limits", One(&LIMITS)), key("reservations", One(&RESERVATIONS))]);

pub(crate) static LIMITS: Object =
    open(&[key("cpus", Processors), key("memory", TextBytes), key("pids", Integer(Dropped))]);

pub(crate) static RESERVATIONS: Object = open(&[
    key("cpus", Processors).no_effect("Docker cannot reserve CPUs"),
    key("memory", TextBytes),
    key("generic_resources", List(&One(&GENERIC_RESOURCE))).no_effect(ONLY_IN_A_SWARM),
    key("devices", List(&One(&DEVICE_REQUEST))),
]);

pub(crate) static GENERIC_RESOURCE: Object = open(&[key("discrete_resource_spec", One(&DISCRETE))]);

pub(crate) static DISCRETE: Object = open(&[key("kind", Text), key("value", Number)]);

pub(crate) static DEVICE_REQUEST: Object = open_with(
    &[
        key("capabilities", Texts),
        key("count", Count),
        key("device_ids", Texts),
        key("driver", Text),
        key("options", Labels),
    ],
    &["capabilities"],
);

pub(crate) static GPU: Object = open(&[
    key("capabilities", Texts),
    key("count", Count),
    key("device_ids", Texts),
    key("driver", Text),
    key("options", Labels),
]);

pub(crate) static RESTART_POLICY: Object = open(&[
    key("condition", Text).note(
        "without it, `any`; with `max_attempts`, no restart, as with Docker Compose, but not in a Swarm",
    ),
    key("delay", Duration(Kept)).no_effect(PAUSES),
    key("max_attempts", Integer(Kept)),
    key("window", Duration(Kept)).no_effect(PAUSES),
]);

pub(crate) static PLACEMENT: Object = open(&[
    key("constraints", Repeated),
    key("preferences", List(&One(&PREFERENCE))),
    key("max_replicas_per_node", Integer(Dropped)),
]);

pub(crate) static PREFERENCE: Object = open(&[key("spread", Text)]);

pub(crate) static DEVELOP: Object = open(&[key("watch", List(&One(&WATCH)))]);

pub(crate) static WATCH: Object = open_with(
    &[
        key("path", Path),
        key("action", Word(&["rebuild", "sync", "restart", "sync+restart", "sync+exec"])),
        key("target", Text),
        key("exec", Always(&HOOK)),
        key("include", TextOrTexts),
        key("ignore", TextOrTexts),
        key("initial_sync", StrictBoolean),
    ],
    &["path", "action"],
);

pub(crate) static DEVICE: Object =
    open_with(&[key("source", Text), key("target", Text), key("permissions", Text)], &["source"]);

const ENV_FILES: Shape = Short(&Text, &List(&Short(&Text, &One(&ENV_FILE))));

pub(crate) static ENV_FILE: Object = Object {
    fields: &[key("path", Path), key("format", Text), key("required", UnlessFalse)],
    required: &["path"],
    open: false,
};

pub(crate) static EXTENDS: Object =
    Object { fields: &[key("service", Text), key("file", Path)], required: &["service"], open: false };

const FILE_MOUNTS: Shape = List(&Short(&Text, &One(&FILE_MOUNT)));

pub(crate) static FILE_MOUNT: Object = open(&[
    key("source", Text),
    key("target", Text),
    key("uid", Text).note(
        "default: root; with a `mode` that others cannot read, the `user` of the service if it is a number",
    ),
    key("gid", Text),
    key("mode", Mode),
    key("x-driftless", Extension).note("`on-change`"),
]);

/// A secret of a build: it is a file only in the steps that mount it.
pub(crate) static BUILD_SECRET: Object = open(&[
    key("source", Text),
    key("target", Text),
    key("uid", Text).no_effect(OF_RUN),
    key("gid", Text).no_effect(OF_RUN),
    key("mode", Mode).no_effect(OF_RUN),
    key("x-driftless", Extension).note("`on-change`"),
]);

pub(crate) static HEALTHCHECK: Object = open(&[
    key("disable", Boolean(Dropped)),
    key("interval", Duration(Kept)),
    key("retries", Integer(Kept)),
    key("test", Test),
    key("timeout", Duration(Kept)),
    key("start_period", Duration(Kept)),
    key("start_interval", Duration(Kept)).note("before Docker Engine 25 the engine uses `interval`"),
]);

pub(crate) static HOOK: Object = open_with(
    &[
        key("command", Command),
        key("user", Text),
        key("privileged", Boolean(Dropped)),
        key("working_dir", Text),
        key("environment", Environment),
    ],
    &["command"],
);

pub(crate) static PRE_START: Object = open(&[
    key("command", Command),
    key("image", Text),
    key("user", Text),
    key("privileged", Boolean(Dropped)),
    key("working_dir", Text),
    key("environment", Environment),
    key("per_replica", Boolean(Dropped)),
]);

pub(crate) static LOGGING: Object = open(&[key("driver", Text), key("options", Options)]);

pub(crate) static SERVICE_MODEL: Object = open(&[key("endpoint_var", Text), key("model_var", Text)]);

pub(crate) static ATTACHMENT: Object = open(&[
    key("aliases", Texts),
    key("interface_name", Text).note("Docker Engine 28.1"),
    key("ipv4_address", Text),
    key("ipv6_address", Text),
    key("link_local_ips", Texts),
    key("mac_address", Text),
    key("driver_opts", Options),
    key("priority", Number),
    key("gw_priority", Number).note("Docker Engine 28"),
]);

pub(crate) static PORT: Object = open(&[
    key("name", Text).no_effect("it only documents the port"),
    key("mode", Text).note("without Swarm both values publish on the host"),
    key("host_ip", Text),
    key("target", Integer(Dropped)),
    key("published", TextOrInteger),
    key("protocol", Text),
    key("app_protocol", Text).no_effect("it only documents the port"),
]);

pub(crate) static PROVIDER: Object = open_with(&[key("type", Text), key("options", Multiple)], &["type"]);

const ULIMITS: Shape = Map(Names::Free, &Short(&Integer(Kept), &One(&ULIMIT)));

pub(crate) static ULIMIT: Object =
    open_with(&[key("soft", Integer(Dropped)), key("hard", Integer(Dropped))], &["soft", "hard"]);

pub(crate) static MOUNT: Object = open_with(
    &[
        key("type", Word(&["bind", "volume", "tmpfs", "cluster", "npipe", "image"]))
            .note("`bind`, `volume`, `tmpfs`, and `image` with Docker Engine 28"),
        key("source", Text),
        key("target", Text),
        key("read_only", Boolean(Dropped)),
        key("consistency", Text).no_effect("it has no meaning on Linux"),
        key("bind", One(&MOUNT_BIND)),
        key("volume", One(&MOUNT_VOLUME)),
        key("tmpfs", One(&MOUNT_TMPFS)),
        key("image", One(&MOUNT_IMAGE)),
        key("x-driftless", Extension).note("`on-change`"),
    ],
    &["type"],
);

pub(crate) static MOUNT_BIND: Object = open(&[
    key("propagation", Text).note("no effect on relative paths and named volumes, with a warning"),
    key("create_host_path", UnlessFalse),
    key("recursive", Word(&["enabled", "disabled", "writable", "readonly"]))
        .note("`writable` and `readonly`: Docker Engine 25"),
    key("selinux", Word(&["z", "Z"])).note(
        "no effect on relative paths, and `Z` none on named volumes, with a warning: [migrate.md](migrate.md#what-needs-attention-in-every-move); an error with `create_host_path: false` or `recursive`",
    ),
]);

pub(crate) static MOUNT_VOLUME: Object = open(&[
    key("labels", Labels),
    key("nocopy", Boolean(Dropped)),
    key("subpath", Text).note("Docker Engine 26"),
]);

pub(crate) static MOUNT_TMPFS: Object = open(&[key("size", Bytes), key("mode", RawMode)]);

pub(crate) static MOUNT_IMAGE: Object = open(&[key("subpath", Text)]);

pub(crate) static MODEL: Object = open_with(
    &[
        key("name", Text),
        key("model", Text),
        key("context_size", StrictInteger),
        key("runtime_flags", Repeated),
    ],
    &["model"],
);

pub(crate) static NETWORK: Object = open(&[
    key("name", Text),
    key("driver", Text),
    key("driver_opts", Options),
    key("ipam", Always(&IPAM)),
    key("external", External).note("other keys than `name` are ignored, with a warning"),
    key("internal", Boolean(Dropped)),
    key("enable_ipv4", Boolean(Kept)).note("`false`: Docker Engine 28"),
    key("enable_ipv6", Boolean(Kept)),
    key("attachable", Boolean(Dropped)),
    key("labels", Labels),
]);

pub(crate) static IPAM: Object =
    open(&[key("driver", Text), key("config", List(&One(&POOL))), key("options", Options)]);

pub(crate) static POOL: Object =
    open(&[key("subnet", Text), key("ip_range", Text), key("gateway", Text), key("aux_addresses", Options)]);

pub(crate) static VOLUME: Object = open(&[
    key("name", Text),
    key("driver", Text),
    key("driver_opts", Options),
    key("external", External),
    key("labels", Labels),
]);

pub(crate) static SECRET: Object = open(&[
    key("name", Text),
    key("environment", Text),
    key("file", Path),
    key("external", External)
        .note("with `engine: swarm`; on a single host, a service that uses one is refused: use `file`"),
    key("labels", Labels).no_effect("configs and secrets of the agent have its own labels"),
    key("driver", Text).refused("secrets of a plugin are not supported"),
    key("driver_opts", Options).refused("secrets of a plugin are not supported"),
    key("template_driver", Text).refused(ONLY_IN_A_SWARM),
]);

pub(crate) static CONFIG: Object = open(&[
    key("name", Text),
    key("content", Text),
    key("environment", Text),
    key("file", Path),
    key("external", External)
        .note("with `engine: swarm`; on a single host, a service that uses one is refused: use `file`"),
    key("labels", Labels).no_effect("configs and secrets of the agent have its own labels"),
    key("template_driver", Text).refused(ONLY_IN_A_SWARM),
]);
