//! The lowering of a Compose project to the model: names in Docker, defaults, profiles, and references between the parts
//! of the file. Fields that need no other part have their final value after reading.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_files::{AppSpec, Files};
use driftless_model::{
    Build, Completion, Container, Contents, DEFAULT_PROGRESS_DEADLINE, DEFAULT_REVISION_HISTORY, Dependency,
    EngineKind, Finding, Format, Inventory, MOST_REPLICAS, NetworkMode, Probes, PullPolicy, Resources,
    RestartPolicy, RollbackSettings, Stack, Strategy, Update, Workload, WorkloadKind, WorkloadName,
};

mod build;
mod context;
mod environment;
mod in_place;
mod jobs;
pub(crate) mod mounts;
mod namespaces;
mod networks;
mod published;
mod settings;
mod volumes;

use crate::{
    load::{Loaded, profiles::active_profiles},
    lower::{
        build::{BuildInputs, Builds},
        context::Lowering,
        environment::environment,
        mounts::MountedFiles,
    },
    read::types::{DependsOn, Deploy, DeployRestart, Order, Sections, Service, UpdateConfig},
    spec::value::Placed,
};

/// Lowers a project. The stack is complete only if no finding is an error.
pub(crate) fn lower(
    files: &dyn Files,
    spec: &AppSpec,
    loaded: &Loaded,
    project: &Sections,
    findings: &mut Vec<Finding>,
) -> (Stack, Contents) {
    let (name, variables) = (loaded.name.as_str(), &loaded.variables);
    let profiles = active_profiles(spec, variables);
    let mut lowering = Lowering {
        files,
        engine: spec.engine,
        app: spec.name.to_string(),
        name,
        folder: &loaded.folder,
        variables,
        texts: &loaded.texts,
        project,
        profiles,
        files_to_mount: MountedFiles::new(files, spec, loaded),
        networks: BTreeMap::new(),
        builds: Builds::default(),
        secret_values: loaded.secret_values.clone(),
        findings,
    };
    lowering.files_to_mount.written = lowering.written_paths();
    let mut workloads = BTreeMap::new();
    for (key, service) in &project.services {
        if lowering.is_active(service) {
            workloads.insert(WorkloadName(key.clone()), lowering.workload(key, service));
        }
    }
    lowering.findings.extend(lowering.builds.add_bases(&mut workloads));
    lowering.builds.share(&mut workloads);
    lowering.check_order(&workloads);
    let inventory = Inventory { workloads: lowering.objects(&workloads), ..Inventory::default() };
    // A Swarm distributes connections itself.
    if spec.engine == EngineKind::Docker {
        lowering.publish_by_proxies(&mut workloads);
    }
    let networks = std::mem::take(&mut lowering.networks);
    let volumes = lowering.volumes(&workloads);
    let secret_values = std::mem::take(&mut lowering.secret_values);
    lowering.findings.extend(lowering.files_to_mount.overwritten_files());
    lowering.findings.extend(lowering.files_to_mount.labels_without_effect());
    let MountedFiles { contents, app_files, warnings, .. } = lowering.files_to_mount;
    lowering.findings.extend(warnings);
    let mut stack = Stack {
        app: spec.name.clone(),
        format: Format::Compose,
        project: name.to_owned(),
        workloads,
        networks,
        volumes,
        app_files,
        manifests: loaded.manifests.clone(),
        inventory,
        swarm: BTreeMap::new(),
        secret_values: BTreeSet::new(),
        encrypted: loaded.encrypted.texts.clone(),
        given: None,
        port_places: BTreeMap::new(),
        project_place: loaded.name_place.clone(),
    };
    stack.secret_values = used_values(&stack, &secret_values);
    (stack, contents)
}

/// Those of the values that the stack has anywhere. A changed value that no service uses is no other stack.
fn used_values(stack: &Stack, values: &BTreeSet<String>) -> BTreeSet<String> {
    if values.is_empty() {
        return BTreeSet::new();
    }
    let Ok(text) = serde_json::to_string(stack) else { return values.clone() };
    let is_used = |value: &&String| {
        let quoted = serde_json::to_string(value).unwrap_or_default();
        text.contains(quoted.trim_matches('"'))
    };
    values.iter().filter(is_used).cloned().collect()
}

impl Lowering<'_> {
    /// The meaning of a `deploy.restart_policy`. Without `condition` a Swarm takes it for `any`, as the specification says, and Docker
    /// Compose for no restart at all. A limit of attempts says that there is an end; without one, a service that stays down after a
    /// crash would be worse than one that is restarted.
    fn restart(&mut self, restart: &Placed<DeployRestart>) -> RestartPolicy {
        let has_limit = match restart.value {
            DeployRestart::Policy(policy) => return policy,
            DeployRestart::NoCondition { .. } if self.engine == EngineKind::Swarm => {
                return RestartPolicy::Always;
            }
            DeployRestart::NoCondition { has_limit } => has_limit,
        };
        let (policy, message) = if has_limit {
            (
                RestartPolicy::No,
                "has no `condition`, so the container is not restarted, as with `docker compose`",
            )
        } else {
            (
                RestartPolicy::Always,
                "has no `condition`, so the container is always restarted; `docker compose` would not restart it",
            )
        };
        let help = "write a `condition`: `none`, `on-failure` or `any`";
        self.findings.push(restart.warning(message).help(help));
        policy
    }

    fn workload(&mut self, key: &str, service: &Service) -> Workload {
        self.findings.extend(service.unsupported.iter().cloned());
        let path = format!("services.{key}");
        if service.container.image.is_empty() && !service.may_lack_image {
            self.findings.push(Finding::error(service.origin.clone(), path.clone(), "needs an `image`"));
        }
        let mut container = service.container.clone();
        let build = self.build(key, service, &mut container);
        let Deploy { replicas: _, restart, update, rollback, cpus, memory, pids, memory_reservation, .. } =
            &service.deploy;
        if let Some(restart) = restart {
            container.restart = self.restart(restart);
        }
        let Resources { nano_cpus, memory: limit, memory_reservation: reserved, pids: most, .. } =
            &mut container.resources;
        self.agree(nano_cpus, cpus.as_ref(), "cpus");
        self.agree(limit, memory.as_ref(), "mem_limit");
        self.agree(reserved, memory_reservation.as_ref(), "mem_reservation");
        self.agree(most, pids.as_ref(), "pids_limit");
        self.check_memory(&path, service, &container.resources);
        let environment =
            environment(self.variables, self.files, self.folder, service, self.texts, self.findings);
        container.env = environment.values;
        container.network_mode = self.network_mode(key, service);
        let (mounts, in_place) = self.mounts(service, &mut container.host.mount_options);
        container.mounts = mounts;
        self.share(key, service, &mut container);
        self.settings(key, service, &mut container);
        self.drop_ports(service, &mut container);
        let replicas = self.replicas(service);
        let mut after: Vec<_> = service.depends_on.iter().filter_map(|it| self.dependency(it)).collect();
        // An explicit dependency counts before one that a link implies.
        let linked = Self::linked(service).filter(|it| self.project.services.contains_key(&it.value.service));
        let linked: Vec<_> = linked.collect();
        after.extend(linked.iter().filter_map(|it| self.dependency(it)));
        Self::depend_on_peers(&container, &mut after);
        after.sort_by(|one, other| one.workload.cmp(&other.workload));
        after.dedup_by(|one, other| one.workload == other.workload);
        let completion = match container.restart {
            RestartPolicy::Always | RestartPolicy::UnlessStopped => Completion::Never,
            RestartPolicy::No | RestartPolicy::OnFailure { .. } => Completion::OnSuccess,
        };
        let min_ready = update.as_ref().map(min_ready_of).unwrap_or_default();
        let rollback = rollback.as_ref().map(|config| {
            Box::new(RollbackSettings {
                strategy: strategy(Some(config), replicas),
                min_ready: min_ready_of(config),
                failure: config.failure,
            })
        });
        let workload = Workload {
            origin: service.origin.clone(),
            replicas,
            container,
            parts: Vec::new(),
            container_name: self.container_name(service),
            strategy: strategy(update.as_ref(), replicas),
            min_ready,
            progress_deadline: DEFAULT_PROGRESS_DEADLINE.max(min_ready.saturating_mul(2)),
            revision_history_limit: DEFAULT_REVISION_HISTORY,
            paused: false,
            after,
            probes: Probes::default(),
            mounted_pulls: BTreeMap::new(),
            pull_secrets: BTreeSet::new(),
            pull: match &build {
                Some(_) => PullPolicy::IfNotPresent,
                None => Self::pull(service),
            },
            in_place,
            build,
            secret_env: environment.encrypted,
            completion,
            kind: WorkloadKind::Replicas,
            update: Update::Rolling,
            architecture: None,
            wave: service.wave,
            failure: update.as_ref().map(|config| config.failure).unwrap_or_default(),
            rollback,
            image_update: service.image_update.clone(),
            ignore_differences: service.ignore_differences.clone(),
            canary: service.canary.as_ref().map(|steps| steps.value.clone()).unwrap_or_default(),
            scaled_from: None,
            manifest: driftless_model::ManifestNames::default(),
        };
        self.as_template(key, service, workload)
    }

    /// The build of the service's image, if it has one. The container then uses the image by its content.
    fn build(&mut self, key: &str, service: &Service, container: &mut Container) -> Option<Build> {
        let Some(section) = &service.build else {
            if let Some(policy) = &service.must_build {
                self.findings.push(policy.error("`pull_policy: build` needs a `build`"));
            }
            return None;
        };
        let is_fresh = matches!(service.pull, Some(PullPolicy::Always | PullPolicy::Every(_)));
        if is_fresh && !container.image.is_empty() {
            self.findings.push(build::ignored(section));
            return None;
        }
        if is_fresh {
            self.findings.push(build::never_pulled(section));
        }
        let inputs = BuildInputs {
            files: self.files,
            folder: self.folder,
            project: self.name,
            variables: self.variables,
            secrets: &self.project.secrets,
            platform: container.host.platform.as_ref(),
        };
        match self.builds.lower(section, key, &container.image, &inputs, &mut self.files_to_mount) {
            Ok((image, build)) => {
                container.image = image;
                Some(build)
            }
            Err(findings) => {
                self.findings.extend(findings);
                None
            }
        }
    }

    /// A container without a network of its own has no ports to publish. The engine would drop them silently.
    fn drop_ports(&mut self, service: &Service, container: &mut Container) {
        let is_apart = match container.network_mode {
            NetworkMode::Host | NetworkMode::None => true,
            // A shared network is checked in `namespaces.rs`.
            NetworkMode::Networks(_) | NetworkMode::Bridge | NetworkMode::Of(_) => false,
        };
        if let Some(mode) = service.network_mode.as_ref().filter(|_| is_apart && !container.ports.is_empty())
        {
            container.ports.clear();
            self.findings
                .push(mode.warning(format!("`ports` are ignored with `network_mode: {}`", mode.value)));
        }
    }

    /// An engine that can limit memory refuses more reserved memory than that. Hosts without this ability run the container.
    fn check_memory(&mut self, path: &str, service: &Service, resources: &Resources) {
        let Resources { memory: Some(limit), memory_reservation: Some(reserved), .. } = resources else {
            return;
        };
        if reserved > limit {
            let message = "the engine refuses to reserve more memory than the limit (`mem_limit`)";
            let finding =
                Finding::warning(service.origin.clone(), format!("{path}.mem_reservation"), message);
            self.findings.push(finding.help("lower the reservation, or raise the limit"));
        }
    }

    /// A limit may be written in two places, but must be equal.
    fn agree<T: Copy + PartialEq>(&mut self, own: &mut Option<T>, deploy: Option<&Placed<T>>, field: &str) {
        let Some(deploy) = deploy else { return };
        if own.is_some_and(|it| it != deploy.value) {
            self.findings.push(deploy.error(format!("differs from the service's own `{field}`")));
        }
        *own = Some(deploy.value);
    }

    fn replicas(&mut self, service: &Service) -> u32 {
        let deploy = service.deploy.replicas.as_ref();
        if let Some(given) = service.scale.as_ref().or(deploy).filter(|it| it.value > MOST_REPLICAS) {
            let message =
                format!("more than {MOST_REPLICAS} replicas of a service are not supported on one host");
            self.findings.push(given.error(message));
        }
        match (&service.scale, deploy) {
            (Some(scale), Some(deploy)) if scale.value != deploy.value => {
                self.findings.push(scale.error("differs from `deploy.replicas`"));
                scale.value
            }
            (Some(scale), _) => scale.value,
            (None, deploy) => deploy.map_or(1, |it| it.value),
        }
    }

    fn container_name(&mut self, service: &Service) -> Option<String> {
        let name = service.container_name.as_ref()?;
        let is_first = |it: char| it.is_ascii_alphanumeric();
        let is_rest = |it: char| is_first(it) || matches!(it, '_' | '.' | '-');
        if name.value.starts_with(is_first) && name.value.chars().all(is_rest) && name.value.len() > 1 {
            return Some(name.value.clone());
        }
        let message = format!(
            "`{}` is not a container name: use two or more letters, digits, `_`, `.`, `-`",
            name.value
        );
        self.findings.push(name.error(message));
        None
    }

    fn dependency(&mut self, dependency: &Placed<DependsOn>) -> Option<Dependency> {
        let DependsOn { service, condition, required, restart } = &dependency.value;
        match self.project.services.get(service) {
            Some(found) if self.is_active(found) => Some(Dependency {
                workload: WorkloadName(service.clone()),
                condition: *condition,
                required: *required,
                restart: *restart,
            }),
            Some(_) if !required => None,
            Some(found) => {
                let message = format!("depends on `{service}`, whose profiles are not active");
                let finding = dependency.error(message);
                let help =
                    format!("activate one of: {}; or set `required: false`", found.profiles.join(", "));
                self.findings.push(finding.help(help));
                None
            }
            None => {
                self.findings.push(dependency.error(format!("depends on undefined service `{service}`")));
                None
            }
        }
    }
}

/// The `monitor` of Docker Swarm where the manifest has none.
const MONITOR: Duration = Duration::from_secs(5);

/// The time for which a new instance must be healthy before it counts as available. A batch ends when its containers are available, so
/// a pause after it is the same as being available later.
fn min_ready_of(config: &UpdateConfig) -> Duration {
    // Without a time to watch an instance, one that ends at once would count as available for a moment.
    let default = config.failure.is_given().then_some(MONITOR);
    let monitor = config.monitor.filter(|time| !time.is_zero()).or(default);
    monitor.max(config.delay).unwrap_or_default()
}

/// The update strategy: start-first by default. The planner stops first where two containers cannot run at once.
fn strategy(update: Option<&UpdateConfig>, replicas: u32) -> Strategy {
    let Some(UpdateConfig { order, parallelism, monitor: _, delay: _, failure: _ }) = update else {
        return Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 };
    };
    let at_once = match parallelism {
        None => 1,
        Some(0) => replicas.max(1),
        Some(number) => *number,
    };
    match order {
        Some(Order::StartFirst) | None => Strategy::RollingUpdate { max_surge: at_once, max_unavailable: 0 },
        Some(Order::StopFirst) => Strategy::RollingUpdate { max_surge: 0, max_unavailable: at_once },
    }
}
