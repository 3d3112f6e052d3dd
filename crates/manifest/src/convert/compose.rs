//! Converts a stack to one Compose file, in long syntax only.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    compose_values::{depends_on, escaped, expose, host_settings, limits_of, ports, tmpfs, volumes_from},
    extension,
    output::{Converted, Lost, NOT_WRITTEN, PLACEHOLDER_OF_SECRET, SecretValues, flag, object, seconds},
    pods,
};
use driftless_model::{
    Attachment, Contents, Format, Healthcheck, Hook, HostSettings, NetworkMode, Probe, ProbeAction,
    PullPolicy, RestartPolicy, Stack, Strategy, Subject, Update, Workload, downward, is_helper_image,
};

/// The parts of one Compose file while it is written.
pub(super) struct ComposeWriter<'a> {
    pub(super) stack: &'a Stack,
    pub(super) contents: &'a Contents,
    pub(super) secrets: SecretValues,
    pub(super) lost: Lost,
    /// Configs with their content, by name.
    pub(super) configs: BTreeMap<String, Value>,
    /// Secrets with the variable that holds the value, by name.
    pub(super) variables: BTreeMap<String, Value>,
}

pub(super) fn convert(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    let (configs, variables) = (BTreeMap::new(), BTreeMap::new());
    let mut lost = Lost::default();
    let stack = &pods::flatten(stack, &mut lost);
    let mut writer = ComposeWriter { stack, contents, secrets, lost, configs, variables };
    let services: Map<String, Value> =
        stack.subjects().map(|subject| (subject.name.to_string(), writer.service(subject))).collect();
    let mut networks = Map::new();
    let default = "default";
    for network in stack.networks.values().filter(|it| it.key != default) {
        networks.insert(network.key.clone(), json!({}));
    }
    let mut volumes = Map::new();
    for volume in stack.volumes.values() {
        let own = object([
            ("driver", json!(volume.driver)),
            ("driver_opts", json!(volume.options)),
            ("labels", json!(volume.labels)),
        ]);
        volumes.insert(volume.key.clone(), own);
    }
    let document = object([
        ("name", json!(stack.project)),
        ("services", Value::Object(services)),
        ("networks", Value::Object(networks)),
        ("volumes", Value::Object(volumes)),
        ("configs", json!(writer.configs)),
        ("secrets", json!(writer.variables)),
    ]);
    Converted { documents: vec![document], lost: writer.lost.sorted() }
}

fn time(it: Option<Duration>) -> Value {
    it.map_or(Value::Null, |duration| {
        if duration.subsec_millis() == 0 {
            json!(format!("{}s", duration.as_secs()))
        } else {
            json!(format!("{}ms", duration.as_millis()))
        }
    })
}

impl ComposeWriter<'_> {
    fn service(&mut self, at: Subject<'_>) -> Value {
        let it = &at.workload.container;
        self.report_unsupported(at);
        let (volumes, configs, secrets) = self.mounts(at);
        let (network_mode, networks) = self.networks(at);
        let pull = match at.workload.pull {
            PullPolicy::Always => "always".to_owned(),
            PullPolicy::IfNotPresent => "missing".to_owned(),
            PullPolicy::Never => "never".to_owned(),
            PullPolicy::Every(span) => format!("every_{}s", span.as_secs()),
        };
        let limits: Map<String, Value> = it
            .ulimits
            .iter()
            .map(|(name, (soft, hard))| (name.clone(), json!({ "soft": soft, "hard": hard })))
            .collect();
        let devices: Vec<String> =
            it.devices.iter().map(|(from, to, how)| format!("{from}:{to}:{how}")).collect();
        let logging =
            it.logging.as_ref().map(|(driver, options)| json!({ "driver": driver, "options": options }));
        let labels: BTreeMap<&String, String> =
            it.labels.iter().map(|(key, it)| (key, escaped(it))).collect();
        let part = object([
            ("image", json!(escaped(&it.image))),
            ("pull_policy", json!(pull)),
            ("container_name", json!(at.workload.container_name)),
            ("entrypoint", json!(self.words(at, "entrypoint", it.entrypoint.as_ref()))),
            ("command", json!(self.words(at, "command", it.command.as_ref()))),
            ("environment", self.environment(at)),
            ("user", json!(it.user)),
            ("working_dir", json!(it.working_dir)),
            ("hostname", json!(it.hostname)),
            ("domainname", json!(it.domainname)),
            ("init", json!(it.init)),
            ("tty", flag(it.tty)),
            ("stdin_open", flag(it.stdin_open)),
            ("stop_signal", json!(it.stop_signal)),
            ("post_start", hooks(&it.host.post_start)),
            ("pre_stop", hooks(&it.host.pre_stop)),
            ("stop_grace_period", time(it.stop_grace_period)),
            ("labels", json!(labels)),
            ("ports", json!(ports(at.workload))),
            ("expose", json!(expose(it))),
            ("volumes", Value::Array(volumes)),
            ("tmpfs", json!(tmpfs(it))),
            ("volumes_from", json!(volumes_from(it))),
            ("configs", Value::Array(configs)),
            ("secrets", Value::Array(secrets)),
            ("network_mode", json!(network_mode)),
            ("networks", networks),
        ]);
        let rest = object([
            ("healthcheck", self.healthcheck(at)),
            ("restart", json!(restart(at.workload))),
            ("depends_on", depends_on(at.workload)),
            ("deploy", self.deploy(at)),
            ("x-driftless", extension::of_service(at.workload)),
            ("privileged", flag(it.privileged)),
            ("read_only", flag(it.read_only)),
            ("cap_add", json!(it.cap_add)),
            ("cap_drop", json!(it.cap_drop)),
            ("security_opt", json!(it.security_opt)),
            ("extra_hosts", json!(it.extra_hosts)),
            ("dns", json!(it.dns)),
            ("dns_search", json!(it.dns_search)),
            ("dns_opt", json!(it.host.dns_opt)),
            ("sysctls", json!(it.sysctls)),
            ("shm_size", json!(it.shm_size)),
            ("ulimits", Value::Object(limits)),
            ("logging", json!(logging)),
            ("devices", json!(devices)),
            ("group_add", json!(it.group_add)),
            ("pid", json!(it.pid_mode.as_ref().map(ToString::to_string))),
            ("ipc", json!(it.ipc_mode.as_ref().map(ToString::to_string))),
            ("platform", json!(it.host.platform)),
            ("runtime", json!(it.host.runtime)),
        ]);
        let limits = limits_of(&it.resources);
        let mut all = Map::new();
        for part in [part, rest, limits, host_settings(&it.host)] {
            if let Value::Object(part) = part {
                all.extend(part);
            }
        }
        Value::Object(all)
    }

    fn words(&mut self, at: Subject<'_>, field: &str, words: Option<&Vec<String>>) -> Option<Vec<String>> {
        let mut all = Vec::new();
        for word in words? {
            let text = downward::shown(word);
            if downward::is_marked(word) {
                self.lost.field(
                    at,
                    field,
                    format!("`{text}`, which contains values that are known only after the start"),
                );
            }
            all.push(escaped(&text));
        }
        Some(all)
    }

    fn environment(&mut self, at: Subject<'_>) -> Value {
        let mut all = Map::new();
        for (name, value) in &at.workload.container.env {
            let Some(value) = value else {
                self.lost.field(at, "env", format!("`{name}`, which removes a variable of the image"));
                continue;
            };
            if downward::is_marked(value) {
                let message = format!("`{name}`, which is set to {} after the start", downward::shown(value));
                self.lost.field(at, "env", message);
                continue;
            }
            if at.workload.secret_env.contains(name) {
                self.lost.field(at, "secretEnv", format!("`{name}` becomes a plain variable"));
            }
            let is_hidden = at.workload.secret_env.contains(name) && self.secrets == SecretValues::Hidden;
            if is_hidden {
                self.lost.field(at, "env", NOT_WRITTEN);
            }
            all.insert(
                name.clone(),
                json!(if is_hidden { PLACEHOLDER_OF_SECRET.to_owned() } else { escaped(value) }),
            );
        }
        Value::Object(all)
    }

    fn networks(&mut self, at: Subject<'_>) -> (Option<String>, Value) {
        let networks = match &at.workload.container.network_mode {
            NetworkMode::Host => return (Some("host".to_owned()), Value::Null),
            NetworkMode::None => return (Some("none".to_owned()), Value::Null),
            NetworkMode::Bridge => return (Some("bridge".to_owned()), Value::Null),
            NetworkMode::Of(peer) => return (Some(peer.to_string()), Value::Null),
            NetworkMode::Networks(networks) => networks,
        };
        let mut all = Map::new();
        for (docker, attachment) in networks {
            let Attachment {
                aliases,
                ipv4,
                ipv6,
                link_local,
                mac_address,
                priority,
                gw_priority,
                driver_opts,
                links,
            } = attachment.as_ref();
            if !links.is_empty() {
                self.lost.field(at, "networks", "names for one container alone");
            }
            let key = self.stack.networks.get(docker).map_or(docker, |it| &it.key);
            // Compose adds the name of the service itself.
            let others: Vec<&String> = aliases.iter().filter(|it| *it != at.name.as_str()).collect();
            let number = |it: i64| if it == 0 { Value::Null } else { json!(it) };
            let end = object([
                ("aliases", json!(others)),
                ("ipv4_address", json!(ipv4)),
                ("ipv6_address", json!(ipv6)),
                ("link_local_ips", json!(link_local)),
                ("mac_address", json!(mac_address)),
                ("priority", number(*priority)),
                ("gw_priority", number(*gw_priority)),
                ("driver_opts", json!(driver_opts)),
            ]);
            all.insert(key.clone(), end);
        }
        (None, Value::Object(all))
    }

    /// The health check of a service. That of its image counts in Compose, and in Kubernetes it does not.
    fn healthcheck(&mut self, at: Subject<'_>) -> Value {
        let own = self.own_healthcheck(at);
        if own.is_null() && self.stack.format == Format::Kubernetes {
            json!({ "disable": true })
        } else {
            own
        }
    }

    /// The health check of the manifest, or a readiness probe that the engine can run.
    fn own_healthcheck(&mut self, at: Subject<'_>) -> Value {
        let probes = &at.workload.probes;
        for (field, probe, why) in [
            ("startup", &probes.startup, "Compose has one check, which decides when a container is ready"),
            ("liveness", &probes.liveness, "Compose does not restart unhealthy containers"),
        ] {
            if probe.is_some() {
                self.lost.field(at, &format!("probes.{field}"), why);
            }
        }
        if let Some(Healthcheck { test, interval, timeout, retries, start_period, start_interval }) =
            &at.workload.container.healthcheck
        {
            let test: Vec<String> = test.iter().map(|it| escaped(it)).collect();
            return object([
                ("test", json!(test)),
                ("interval", time(*interval)),
                ("timeout", time(*timeout)),
                ("retries", json!(retries)),
                ("start_period", time(*start_period)),
                ("start_interval", time(*start_interval)),
            ]);
        }
        let Some(Probe { action, initial_delay, period, timeout, success_threshold, failure_threshold }) =
            &probes.readiness
        else {
            return Value::Null;
        };
        let ProbeAction::Exec { command } = action else {
            let message =
                "a probe over the network: add a tool to the image and a `healthcheck` to the service";
            self.lost.field(at, "probes.readiness", message);
            return Value::Null;
        };
        self.lost.field(at, "probes.readiness", "becomes a `healthcheck`");
        if *success_threshold > 1 {
            self.lost.field(at, "probes.readiness", "more than one success");
        }
        let words = ["CMD".to_owned()].into_iter().chain(command.iter().map(|it| escaped(it)));
        object([
            ("test", json!(words.collect::<Vec<_>>())),
            ("interval", time(Some(*period))),
            ("timeout", time(Some(*timeout))),
            ("retries", json!(failure_threshold)),
            ("start_period", time(Some(*initial_delay).filter(|it| !it.is_zero()))),
        ])
    }

    fn deploy(&mut self, at: Subject<'_>) -> Value {
        let Workload { replicas, strategy, min_ready, .. } = at.workload;
        let (order, parallelism) = match *strategy {
            Strategy::Recreate => {
                if *replicas > 0 {
                    self.lost.field(at, "strategy", "all instances are replaced at once, stopped first");
                }
                ("stop-first", 0)
            }
            Strategy::RollingUpdate { max_surge: 0, max_unavailable } => ("stop-first", max_unavailable),
            Strategy::RollingUpdate { max_surge, max_unavailable } => {
                if max_unavailable > 0 {
                    self.lost.field(at, "strategy", "a surge together with unavailable instances");
                }
                ("start-first", max_surge)
            }
        };
        let update = object([
            ("order", json!(order)),
            ("parallelism", json!(parallelism)),
            ("monitor", time(Some(*min_ready).filter(|it| !it.is_zero()))),
        ]);
        let gpus = at.workload.container.host.device_requests.iter().map(|request| {
            object([
                ("driver", json!(request.driver)),
                ("count", json!(request.count)),
                ("device_ids", json!(request.ids)),
                ("capabilities", json!(request.capabilities)),
                ("options", json!(request.options)),
            ])
        });
        let devices: Vec<Value> = gpus.collect();
        let reservations = object([
            ("memory", json!(at.workload.container.resources.memory_reservation.map(|it| it.to_string()))),
            ("devices", Value::Array(devices)),
        ]);
        // A run is one container, and is not updated.
        let is_template = at.workload.hook().is_some() || at.workload.schedule().is_some();
        object([
            ("replicas", if is_template { Value::Null } else { json!(replicas) }),
            ("update_config", if is_template { Value::Null } else { update }),
            ("resources", object([("reservations", reservations)])),
        ])
    }

    /// Reports fields that Compose does not have.
    fn report_unsupported(&mut self, at: Subject<'_>) {
        let bare = HostSettings {
            mount_options: at.workload.container.host.mount_options.clone(),
            device_requests: at.workload.container.host.device_requests.clone(),
            dns_opt: at.workload.container.host.dns_opt.clone(),
            platform: at.workload.container.host.platform.clone(),
            runtime: at.workload.container.host.runtime.clone(),
            uts_mode: at.workload.container.host.uts_mode.clone(),
            userns_mode: at.workload.container.host.userns_mode.clone(),
            cgroup: at.workload.container.host.cgroup.clone(),
            cgroup_parent: at.workload.container.host.cgroup_parent.clone(),
            device_cgroup_rules: at.workload.container.host.device_cgroup_rules.clone(),
            block_io: at.workload.container.host.block_io.clone(),
            memory_swappiness: at.workload.container.host.memory_swappiness,
            oom_kill_disable: at.workload.container.host.oom_kill_disable,
            oom_score_adj: at.workload.container.host.oom_score_adj,
            cpu_realtime_period: at.workload.container.host.cpu_realtime_period,
            cpu_realtime_runtime: at.workload.container.host.cpu_realtime_runtime,
            storage_opt: at.workload.container.host.storage_opt.clone(),
            annotations: at.workload.container.host.annotations.clone(),
            post_start: at.workload.container.host.post_start.clone(),
            pre_stop: at.workload.container.host.pre_stop.clone(),
            ..HostSettings::default()
        };
        for (field, is_given, why) in [
            ("paused", at.workload.paused, "a paused rollout"),
            (
                "member",
                at.workload.member().is_some(),
                "the order of the pods of a StatefulSet: use `depends_on`",
            ),
            (
                "update",
                at.workload.image_update.is_some(),
                "image updates: give the service `x-driftless.update`",
            ),
            (
                "architecture",
                at.workload.architecture.is_some(),
                "the architecture of the node: use `platform`",
            ),
            (
                "job",
                at.workload.job_or_template().is_some_and(|it| !it.is_plain(at.name))
                    || at.workload.job().is_some_and(|it| it.active_deadline.is_some()),
                "completions, parallelism and deadline of the Job",
            ),
            (
                "update",
                at.workload.update != Update::Rolling,
                "running containers are replaced when the file changes",
            ),
            ("progressDeadline", seconds(at.workload.progress_deadline) != 600, "a deadline of the rollout"),
            (
                "inPlace",
                !at.workload.in_place.is_empty(),
                "files that are rewritten while the container runs",
            ),
            (
                "pullSecrets",
                !at.workload.pull_secrets.is_empty(),
                "logins for registries: name them in the agent's configuration",
            ),
            (
                "mountedPulls",
                !at.workload.mounted_pulls.is_empty(),
                "the pull policy of a mounted image: Compose pulls it if it is missing",
            ),
            (
                "build",
                at.workload.build.is_some(),
                "the build: push the image to a registry, and name it there",
            ),
            (
                "image",
                is_helper_image(&at.workload.container.image),
                "the helper image, which only the agent builds",
            ),
            ("host.postStart", pauses(&at.workload.container.host.post_start), PAUSE),
            ("host.preStop", pauses(&at.workload.container.host.pre_stop), PAUSE),
            ("host.postStart", requests(&at.workload.container.host.post_start), REQUEST),
            ("host.preStop", requests(&at.workload.container.host.pre_stop), REQUEST),
            ("host", bare != *at.workload.container.host, "settings of the host"),
        ] {
            if is_given {
                self.lost.field(at, field, why);
            }
        }
    }
}

const PAUSE: &str = "a pause, made by the image's own `sleep`";

fn pauses(hooks: &[Hook]) -> bool {
    hooks.iter().any(|it| it.sleep.is_some())
}

const REQUEST: &str = "an HTTP request, which hooks in Compose cannot send";

fn requests(hooks: &[Hook]) -> bool {
    hooks.iter().any(|it| it.http.is_some())
}

fn hooks(all: &[Hook]) -> Value {
    let hook = |it: &Hook| {
        let Hook { command, sleep, http: _, user, privileged, working_dir, env } = it;
        let command = match sleep {
            Some(sleep) => vec!["sleep".to_owned(), sleep.as_secs().to_string()],
            None => command.iter().map(|it| escaped(it)).collect(),
        };
        let env: BTreeMap<_, _> = env.iter().map(|(name, value)| (name, escaped(value))).collect();
        object([
            ("command", json!(command)),
            ("user", json!(user)),
            ("privileged", json!(privileged.then_some(true))),
            ("working_dir", json!(working_dir)),
            ("environment", json!(env)),
        ])
    };
    json!(all.iter().filter(|it| it.http.is_none()).map(hook).collect::<Vec<_>>())
}

/// The restart policy. The agent retries a Job, and the engine retries a Compose service.
fn restart(workload: &Workload) -> String {
    let retries = workload.job_or_template().map(|job| job.backoff_limit).filter(|it| *it > 0);
    let policy = match retries {
        Some(retries) => RestartPolicy::OnFailure { max_retries: Some(retries) },
        None => workload.container.restart,
    };
    match policy {
        RestartPolicy::No => "no".to_owned(),
        RestartPolicy::Always => "always".to_owned(),
        RestartPolicy::UnlessStopped => "unless-stopped".to_owned(),
        RestartPolicy::OnFailure { max_retries: None } => "on-failure".to_owned(),
        RestartPolicy::OnFailure { max_retries: Some(retries) } => format!("on-failure:{retries}"),
    }
}
