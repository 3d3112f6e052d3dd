//! From what a Compose file says to the model: names in Docker, defaults, profiles, and what must agree between
//! the parts of the file. Fields that need no other part were lowered when they were read.

use std::{collections::BTreeMap, time::Duration};

use super::{
    build::{Around, Builds},
    mounts::{FileKind, Shelf},
    reader::Placed,
    schema::{DependsOn, Deploy, Joined, Order, Project, Service, Update, VolumeMount, VolumeSource},
    variables::Variables,
};
use driftless_files::{AppSpec, Files};
use driftless_model::{
    Attachment, Build, Completion, Container, Contents, Dependency, Finding, Format, InPlace, Inventory,
    MOST_REPLICAS, Mount, MountOptions, MountSource, Network, NetworkMode, Peer, Probes, PullPolicy,
    Resources, RestartPolicy, Stack, Strategy, Volume, Workload, WorkloadName,
};

/// Compose has no such thing; this is what a Deployment has.
const PROGRESS_DEADLINE: Duration = Duration::from_mins(10);

/// As a Deployment keeps.
const REVISION_HISTORY: u32 = 10;

/// The network that services join when they name none.
const DEFAULT_NETWORK: &str = "default";

/// Lowers a project. The stack is whole only if no finding is an error.
pub(super) fn lower(
    files: &dyn Files,
    spec: &AppSpec,
    name: &str,
    variables: &Variables,
    project: &Project,
    findings: &mut Vec<Finding>,
) -> (Stack, Contents) {
    let profiles = active_profiles(spec, variables);
    let mut lowering = Lowering {
        files,
        spec,
        name,
        variables,
        project,
        profiles,
        shelf: Shelf::new(files, spec),
        networks: BTreeMap::new(),
        builds: Builds::default(),
        findings,
    };
    let mut workloads = BTreeMap::new();
    for (key, service) in &project.services {
        if lowering.is_active(service) {
            workloads.insert(WorkloadName(key.clone()), lowering.workload(key, service));
        }
    }
    lowering.builds.share(&mut workloads);
    let networks = std::mem::take(&mut lowering.networks);
    let volumes = lowering.volumes(&workloads);
    let Shelf { contents, app_files, warnings, .. } = lowering.shelf;
    lowering.findings.extend(warnings);
    let stack = Stack {
        app: spec.name.clone(),
        format: Format::Compose,
        project: name.to_owned(),
        workloads,
        networks,
        volumes,
        app_files,
        manifests: spec.files.clone(),
        inventory: Inventory::default(),
        given: None,
    };
    (stack, contents)
}

/// Those of the settings, or else of `COMPOSE_PROFILES`.
pub(super) fn active_profiles(spec: &AppSpec, variables: &Variables) -> Vec<String> {
    if !spec.profiles.is_empty() {
        return spec.profiles.clone();
    }
    let listed = variables.get("COMPOSE_PROFILES").unwrap_or_default();
    listed.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

pub(super) struct Lowering<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) spec: &'a AppSpec,
    name: &'a str,
    pub(super) variables: &'a Variables,
    pub(super) project: &'a Project,
    profiles: Vec<String>,
    pub(super) shelf: Shelf<'a>,
    /// Those that are used, by name in Docker.
    networks: BTreeMap<String, Network>,
    builds: Builds,
    pub(super) findings: &'a mut Vec<Finding>,
}

impl Lowering<'_> {
    pub(super) fn is_active(&self, service: &Service) -> bool {
        service.profiles.is_empty()
            || self.profiles.iter().any(|it| it == "*" || service.profiles.contains(it))
    }

    fn workload(&mut self, key: &str, service: &Service) -> Workload {
        self.findings.extend(service.unsupported.iter().cloned());
        let path = format!("services.{key}");
        if service.container.image.is_empty() && !service.lacks_image_knowingly {
            self.findings.push(Finding::error(service.origin.clone(), path.clone(), "needs an `image`"));
        }
        let mut container = service.container.clone();
        let build = self.build(key, service, &mut container);
        let Deploy { replicas: _, restart, update, cpus, memory, pids, memory_reservation, .. } =
            &service.deploy;
        container.restart = restart.unwrap_or(container.restart);
        let Resources { nano_cpus, memory: limit, memory_reservation: reserved, pids: most, .. } =
            &mut container.resources;
        self.agree(nano_cpus, cpus.as_ref(), "cpus");
        self.agree(limit, memory.as_ref(), "mem_limit");
        self.agree(reserved, memory_reservation.as_ref(), "mem_reservation");
        self.agree(most, pids.as_ref(), "pids_limit");
        container.env = self.variables.environment(self.files, &self.spec.path, service, self.findings);
        container.network_mode = self.network_mode(key, service);
        let (mounts, in_place) = self.mounts(service, &mut container.host.mount_options);
        container.mounts = mounts;
        self.share(key, service, &mut container);
        self.settings(key, service, &mut container);
        self.drop_ports(service, &mut container);
        let replicas = self.replicas(service);
        let mut after: Vec<_> = service.depends_on.iter().filter_map(|it| self.dependency(it)).collect();
        // What the file says of a dependency itself counts before what its links imply.
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
        // A batch is over once what it started counts, so a pause after it is the same as counting later.
        let min_ready = update.as_ref().and_then(|it| it.monitor.max(it.delay)).unwrap_or_default();
        Workload {
            origin: service.origin.clone(),
            replicas,
            container,
            parts: Vec::new(),
            container_name: self.container_name(service),
            strategy: strategy(update.as_ref(), replicas),
            min_ready,
            progress_deadline: PROGRESS_DEADLINE.max(min_ready.saturating_mul(2)),
            revision_history_limit: REVISION_HISTORY,
            paused: false,
            after,
            probes: Probes::default(),
            pull_secrets: std::collections::BTreeSet::new(),
            pull: match &build {
                Some(_) => PullPolicy::IfNotPresent,
                None => Self::pull(service),
            },
            in_place,
            build,
            secret_env: std::collections::BTreeSet::new(),
            completion,
            member: None,
            update: driftless_model::Update::Rolling,
            job: None,
            cron: None,
        }
    }

    /// How its image is made, if it is. The container is then made of that very content.
    fn build(&mut self, key: &str, service: &Service, container: &mut Container) -> Option<Build> {
        let Some(section) = &service.build else {
            if let Some(policy) = &service.must_build {
                self.findings.push(policy.error("`pull_policy: build` needs a `build`"));
            }
            return None;
        };
        let is_fresh = matches!(service.pull, Some(PullPolicy::Always | PullPolicy::Every(_)));
        if is_fresh && !container.image.is_empty() {
            self.findings.push(section.ignored());
            return None;
        }
        let around = Around {
            files: self.files,
            folder: &self.spec.path,
            project: self.name,
            variables: self.variables,
            secrets: &self.project.secrets,
            platform: container.host.platform.as_ref(),
        };
        match self.builds.lower(section, (key, &container.image), &around, &mut self.shelf) {
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

    /// Without a network of its own a container has no ports to publish; the engine would drop them in silence.
    fn drop_ports(&mut self, service: &Service, container: &mut Container) {
        let is_apart = match container.network_mode {
            NetworkMode::Host | NetworkMode::None => true,
            // What the engine refuses with another's network is said where that is lowered.
            NetworkMode::Networks(_) | NetworkMode::Bridge | NetworkMode::Of(_) => false,
        };
        if let Some(mode) = service.network_mode.as_ref().filter(|_| is_apart && !container.ports.is_empty())
        {
            container.ports.clear();
            self.findings
                .push(mode.warning(format!("`ports` are ignored with `network_mode: {}`", mode.value)));
        }
    }

    /// One limit may be written in two places, but not differently.
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
                format!("more than {MOST_REPLICAS} containers of a service are not supported on one host");
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
        let message =
            format!("`{}` is not a container's name: two or more letters, digits, `_`, `.`, `-`", name.value);
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

    fn network_mode(&mut self, key: &str, service: &Service) -> NetworkMode {
        let joined = service.networks.as_deref().unwrap_or_default();
        let mode = service.network_mode.as_ref().filter(|it| !it.value.is_empty());
        let Some(mode) = mode else { return NetworkMode::Networks(self.attachments(key, joined)) };
        if !joined.is_empty() {
            self.findings.push(mode.error("`network_mode` and `networks` exclude each other"));
        }
        match mode.value.as_str() {
            "host" => NetworkMode::Host,
            "none" => NetworkMode::None,
            "bridge" | "default" => NetworkMode::Bridge,
            other if Peer::parse(other).is_some() => {
                self.peer(key, mode).map_or(NetworkMode::None, NetworkMode::Of)
            }
            other => {
                let finding = mode.error(format!("`{other}` is no network mode"));
                let help = "use `host`, `none`, `bridge`, `service:NAME` or `container:NAME`; a network is joined under `networks:`";
                self.findings.push(finding.help(help));
                NetworkMode::None
            }
        }
    }

    fn attachments(&mut self, key: &str, joined: &[Placed<Joined>]) -> BTreeMap<String, Attachment> {
        let mut attachments = BTreeMap::new();
        let mut attach = |name: String, mut attachment: Attachment| {
            attachment.aliases.push(key.to_owned());
            attachment.aliases.sort_unstable();
            attachment.aliases.dedup();
            attachments.insert(name, attachment);
        };
        if joined.is_empty() {
            attach(self.network(DEFAULT_NETWORK), Attachment::default());
        }
        for one in joined {
            let Joined { network, attachment } = &one.value;
            if network == DEFAULT_NETWORK || self.project.networks.contains_key(network) {
                attach(self.network(network), attachment.clone());
            } else {
                let finding = one.error(format!("refers to undefined network `{network}`"));
                self.findings.push(finding.help("add it under `networks:`"));
            }
        }
        attachments
    }

    /// Its name in Docker. Only networks that are asked for are made.
    fn network(&mut self, key: &str) -> String {
        let Some(defined) = self.project.networks.get(key) else {
            let name = format!("{}_{key}", self.name);
            self.networks.insert(name.clone(), Network { key: key.to_owned(), ..Network::default() });
            return name;
        };
        let name = self.name_in_docker(key, defined.name.as_ref(), defined.spec.external);
        self.networks.insert(name.clone(), defined.spec.clone());
        name
    }

    fn name_in_docker(&self, key: &str, name: Option<&String>, is_external: bool) -> String {
        match name.filter(|it| !it.is_empty()) {
            Some(name) => name.clone(),
            None if is_external => key.to_owned(),
            None => format!("{}_{key}", self.name),
        }
    }

    /// With what they ask for besides, by target.
    fn mounts(
        &mut self,
        service: &Service,
        options: &mut BTreeMap<String, MountOptions>,
    ) -> (Vec<Mount>, BTreeMap<String, InPlace>) {
        let mut mounts: Vec<Mount> = Vec::new();
        let mut in_place = BTreeMap::new();
        let default = service.on_change.as_ref();
        for volume in &service.volumes {
            let Some(mut mount) = self.volume(volume) else { continue };
            in_place.remove(&mount.target);
            self.rewrite(&mut mount, volume.value.on_change.as_ref(), default, &mut in_place);
            options.insert(mount.target.clone(), volume.value.options.clone());
            match mounts.iter_mut().find(|it| it.target == mount.target) {
                // As Compose does it: the later one counts.
                Some(before) => {
                    let message = format!("replaces an earlier mount on `{}`", mount.target);
                    self.findings.push(volume.warning(message));
                    *before = mount;
                }
                None => mounts.push(mount),
            }
        }
        for tmpfs in &service.tmpfs {
            let Some(mount) = self.volume(tmpfs) else { continue };
            options.insert(mount.target.clone(), tmpfs.value.options.clone());
            mounts.push(mount);
        }
        options.retain(|_, it| *it != MountOptions::default());
        let files = [
            (&service.configs, &self.project.configs, FileKind::Config, "config"),
            (&service.secrets, &self.project.secrets, FileKind::Secret, "secret"),
        ];
        for (used, defined, kind, word) in files {
            for mount in used {
                let key = &mount.value.source;
                let lowered = match defined.get(key) {
                    Some(source) => self.shelf.file(mount, source, kind, self.variables),
                    None => Err(mount.error(format!("refers to undefined {word} `{key}`"))),
                };
                match lowered {
                    Ok(mut lowered) => {
                        self.rewrite(&mut lowered, mount.value.on_change.as_ref(), default, &mut in_place);
                        mounts.push(lowered);
                    }
                    Err(finding) => self.findings.push(finding),
                }
            }
        }
        mounts.sort_unstable();
        (mounts, in_place)
    }

    fn volume(&mut self, mount: &Placed<VolumeMount>) -> Option<Mount> {
        let name = match &mount.value.source {
            VolumeSource::Named { key, no_copy: _ } => self
                .project
                .volumes
                .get(key)
                .map(|it| self.name_in_docker(key, it.name.as_ref(), it.spec.external)),
            VolumeSource::Anonymous
            | VolumeSource::Image(_)
            | VolumeSource::Path { .. }
            | VolumeSource::Tmpfs { .. } => None,
        };
        match self.shelf.volume(mount, name) {
            Ok(mount) => Some(mount),
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    /// The volumes that workloads mount, by name in Docker.
    fn volumes(&self, workloads: &BTreeMap<WorkloadName, Workload>) -> BTreeMap<String, Volume> {
        let mounts = || workloads.values().flat_map(|it| &it.container.mounts);
        let is_used = |name: &str| {
            mounts().any(|it| matches!(&it.source, MountSource::Volume { name: used, .. } if used == name))
        };
        let named = self.project.volumes.iter().map(|(key, volume)| {
            (self.name_in_docker(key, volume.name.as_ref(), volume.spec.external), volume.spec.clone())
        });
        named.filter(|(name, _)| is_used(name)).collect()
    }
}

/// Start-first unless the file says otherwise; the planner stops first where two cannot run side by side.
fn strategy(update: Option<&Update>, replicas: u32) -> Strategy {
    let Some(Update { order, parallelism, monitor: _, delay: _ }) = update else {
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
