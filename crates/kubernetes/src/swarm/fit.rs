//! Makes services of workloads: each field is one that a Swarm has, or is refused at its place.

use std::time::Duration;

use driftless_files::{folder_hides_nothing, swarm_files};
use driftless_model::{
    AppName, Container, Content, Downward, Finding, HostSettings, Job, LONGEST_SWARM_NAME, Mount,
    MountSource, PullPolicy, Strategy, SwarmMode, SwarmRestart, SwarmUpdate, WorkloadName, downward,
    is_system_path, refused_swarm_name,
};

use super::{
    health,
    place::{ONE_HOST, at, refuse},
    placement, refused,
};
use crate::{
    catalogue::Catalogue, controller_fields::Amount, kinds::Owned, names, reader::Value, resources::quantity,
    workload::ReadWorkload,
};

/// Parts of warnings that are not true in a Swarm. This module reports the same fields in other words, or uses them.
const OF_ONE_HOST: &[&str] = &[
    "there is only one host",
    "there is one instance",
    "limits are changed without a restart",
    "have no effect: containers carry those of the pod template",
];

/// Removes the warnings of a single host that are not true for a Swarm.
pub(crate) fn drop_host_warnings(findings: &mut Vec<Finding>) {
    findings.retain(|finding| {
        finding.is_error() || !OF_ONE_HOST.iter().any(|part| finding.message.contains(part))
    });
}

/// Makes a service of each workload of an object.
pub(crate) fn fit(
    (kind, object): (Owned, &Value<'_>),
    app: &AppName,
    catalogue: &Catalogue,
    mut read: Vec<ReadWorkload>,
) -> Vec<ReadWorkload> {
    refused::annotations(object);
    let path = match kind {
        Owned::Deployment
        | Owned::ReplicaSet
        | Owned::ReplicationController
        | Owned::DaemonSet
        | Owned::Job => "spec.template.spec",
        Owned::CronJob => "spec.jobTemplate.spec.template.spec",
        Owned::Pod | Owned::StatefulSet => {
            refused::kind(kind, object);
            return read;
        }
        Owned::ConfigMap
        | Owned::PersistentVolume
        | Owned::PersistentVolumeClaim
        | Owned::Secret
        | Owned::Service => return read,
    };
    let Some(pod) = at(object, path) else { return read };
    refused::pod(&pod);
    // Of several containers each was refused.
    let Some(container) = at(&pod, "containers").and_then(|all| all.items().into_iter().next()) else {
        return read;
    };
    if matches!(kind, Owned::Job | Owned::CronJob) {
        read = as_one_service(object, read);
    }
    for found in &mut read {
        Fitting { object, pod: &pod, container: &container, app, catalogue }.fit(kind, found);
    }
    read
}

/// Makes one workload of the completions of a Job: a Swarm counts them itself.
fn as_one_service(object: &Value<'_>, read: Vec<ReadWorkload>) -> Vec<ReadWorkload> {
    let Some(mut found) = read.into_iter().next() else { return Vec::new() };
    let spec = at(object, "spec.jobTemplate.spec").or_else(|| at(object, "spec"));
    if let (Some(job), Some(spec)) = (found.workload.job_or_template(), spec) {
        refused::job(&spec, job);
    }
    found.key = found.object.clone();
    found.name = WorkloadName(found.object.dotted());
    vec![found]
}

/// A workload with one container, and its manifest.
struct Fitting<'v, 'a> {
    object: &'v Value<'a>,
    pod: &'v Value<'a>,
    container: &'v Value<'a>,
    app: &'v AppName,
    catalogue: &'v Catalogue,
}

impl<'a> Fitting<'_, 'a> {
    fn fit(&self, kind: Owned, found: &mut ReadWorkload) {
        self.check_name(found);
        if !found.workload.parts.is_empty() {
            // The containers, or the reference to an address, were refused.
            return;
        }
        let is_global = kind == Owned::DaemonSet;
        found.swarm.mode = match found.workload.job_or_template() {
            Some(_) => SwarmMode::ReplicatedJob,
            None if is_global => SwarmMode::Global,
            None => SwarmMode::Replicated,
        };
        found.swarm.constraints = placement::constraints(self.pod);
        found.workload.architecture = None;
        found.swarm.labels =
            at(self.object, "metadata.labels").map(|labels| names::labels(&labels)).unwrap_or_default();
        found.swarm.host_ports = found.workload.container.ports.iter().cloned().collect();
        found.swarm.reserved_nano_cpus =
            at(self.container, "resources.requests.cpu").and_then(|value| quantity(&value)?.nanos());
        if let Some(job) = found.workload.job_or_template() {
            found.swarm.restart = Some(restart(job));
        } else {
            let update = if is_global { self.daemon_update(found) } else { self.update(found) };
            found.swarm.update = Some(delayed(update, found.workload.min_ready));
        }
        self.check_pull(found);
        found.workload.container.healthcheck = Some(health::check(&found.workload.probes, self.container));
        found.workload.probes = driftless_model::Probes::default();
        self.fit_container(found, is_global);
        let (files, unfit) =
            swarm_files(self.app.as_str(), &found.workload.container, &self.catalogue.contents());
        for file in unfit {
            self.mount(&file.mount).error_help(file.message, file.help);
        }
        found.swarm.files = files;
    }

    fn check_name(&self, found: &ReadWorkload) {
        if let Some(name) = refused_swarm_name(self.app.as_str(), &found.name, &found.workload.kind)
            && let Some(value) = at(self.object, "metadata.name")
        {
            let length = name.len();
            value.error_help(
                format!("the service `{name}` of the Swarm has {length} letters, and at most {LONGEST_SWARM_NAME} are allowed"),
                "shorten the name of the object or of the application",
            );
        }
    }

    /// The update of a Deployment.
    fn update(&self, found: &ReadWorkload) -> SwarmUpdate {
        if found.workload.paused
            && let Some(spec) = at(self.object, "spec")
        {
            refuse(&spec, "paused", "Docker Swarm has no `paused`", "use `driftless suspend`");
        }
        let (order, parallelism) = match found.workload.strategy {
            Strategy::RollingUpdate { max_surge, max_unavailable } => {
                if max_surge > 0 && !self.is_alone(found, "spec.strategy.rollingUpdate.maxSurge") {
                    ("start-first", max_surge)
                } else {
                    ("stop-first", max_unavailable.max(1))
                }
            }
            Strategy::Recreate => {
                if found.workload.replicas > 1
                    && let Some(strategy) = at(self.object, "spec.strategy")
                {
                    let help = "set `replicas: 1`, or use `RollingUpdate` with `maxSurge: 0`";
                    refuse(
                        &strategy,
                        "type",
                        "Docker Swarm replaces one task after another, and does not stop all of them first",
                        help,
                    );
                }
                ("stop-first", 1)
            }
        };
        rolling(order, parallelism)
    }

    /// Whether a pod has what only one at a time can have or write to, so that the old one stops first. Reports a surge of the
    /// manifest, which then has no effect.
    fn is_alone(&self, found: &ReadWorkload, surge: &str) -> bool {
        let Some(reason) = exclusive(found) else { return false };
        if let Some(value) = at(self.object, surge) {
            value.warning(format!("has no effect: the old pod stops first, because {reason}"));
        }
        true
    }

    /// The update of a DaemonSet.
    fn daemon_update(&self, found: &ReadWorkload) -> SwarmUpdate {
        let strategy = at(self.object, "spec.updateStrategy");
        if let Some(strategy) = &strategy
            && at(strategy, "type").is_some_and(|it| it.node.as_scalar() == Some("OnDelete"))
        {
            refuse(strategy, "type", "Docker Swarm has no `OnDelete`", "use `RollingUpdate`");
        }
        let amount = |key: &str| {
            let value = at(strategy.as_ref()?, &format!("rollingUpdate.{key}"))?;
            match Amount::read(&value)? {
                Amount::Number(number) => Some(number).filter(|it| *it > 0),
                Amount::Percent(_) => {
                    value.error_help(
                        "a percentage of the nodes is not supported in a Swarm",
                        "write a number",
                    );
                    None
                }
            }
        };
        match (amount("maxSurge"), amount("maxUnavailable")) {
            (Some(surge), _) if !self.is_alone(found, "spec.updateStrategy.rollingUpdate.maxSurge") => {
                rolling("start-first", surge)
            }
            (_, unavailable) => rolling("stop-first", unavailable.unwrap_or(1)),
        }
    }

    fn check_pull(&self, found: &ReadWorkload) {
        let Some(value) = at(self.container, "imagePullPolicy") else { return };
        match found.workload.pull {
            PullPolicy::Never => value.error_help(
                "each node of a Swarm pulls the image by its digest",
                "push the image to a registry that all nodes reach, and use `IfNotPresent`",
            ),
            PullPolicy::Always if !found.workload.container.image.contains('@') => value.warning(
                "has no effect: the digest of an image is resolved once for each reference, and each node of a Swarm pulls that",
            ),
            PullPolicy::Always | PullPolicy::IfNotPresent | PullPolicy::Every(_) => {}
        }
    }

    /// The item of `volumeMounts` with a target, else the container.
    fn mount(&self, target: &str) -> Value<'a> {
        let items = at(self.container, "volumeMounts").map(|mounts| mounts.items()).unwrap_or_default();
        let is_it = |item: &&Value<'_>| {
            let path = item.node.get("mountPath").and_then(|it| it.as_scalar()).unwrap_or_default();
            path.trim_end_matches('/') == target.trim_end_matches('/')
        };
        items.iter().find(is_it).unwrap_or(self.container).clone()
    }

    /// Each field of the container is one that the service has, or refused.
    fn fit_container(&self, found: &mut ReadWorkload, is_global: bool) {
        let Container {
            image: _,
            entrypoint,
            command,
            env,
            user: _,
            working_dir: _,
            hostname: _,
            domainname: _,
            init: _,
            tty: _,
            stdin_open: _,
            stop_signal: _,
            stop_grace_period: _,
            labels: _,
            ports: _,
            expose: _,
            mounts,
            // `hostNetwork`, `hostPID`, `hostIPC` and `privileged` are refused with the pod.
            network_mode: _,
            pid_mode: _,
            ipc_mode: _,
            privileged: _,
            healthcheck: _,
            restart: _,
            resources,
            read_only: _,
            cap_add: _,
            cap_drop: _,
            security_opt,
            extra_hosts: _,
            dns: _,
            dns_search: _,
            sysctls: _,
            shm_size: _,
            ulimits: _,
            logging: _,
            devices,
            group_add: _,
            host,
            volumes_from: _,
        } = &mut found.workload.container;
        // A request of CPU is a reservation.
        resources.cpu_shares = None;
        for value in env.values_mut().flatten() {
            *value = template(value);
        }
        for (key, words) in [("command", entrypoint), ("args", command)] {
            if words.iter().flatten().any(|word| downward::is_of_pod(word)) {
                let message = "Docker Swarm puts the name of a task or node into variables only";
                refuse(self.container, key, message, "let the program read the variable itself");
            }
        }
        for option in security_opt.iter() {
            refused::security_option(option, self.pod, self.container);
        }
        for (_, target, _) in devices.iter() {
            self.mount(target).error_help("Docker Swarm has no devices of a node", ONE_HOST);
        }
        let is_pinned = is_global || placement::is_on_one_node(self.pod);
        self.fit_host(host);
        for mount in mounts.iter_mut() {
            self.fit_mount(mount, host, is_pinned);
        }
    }

    fn fit_host(&self, host: &HostSettings) {
        let HostSettings {
            // Manifests have none of these.
            platform: _,
            runtime: _,
            uts_mode: _,
            userns_mode: _,
            cgroup: _,
            cgroup_parent: _,
            device_cgroup_rules: _,
            block_io: _,
            memory_swappiness: _,
            oom_kill_disable: _,
            oom_score_adj: _,
            cpu_realtime_period: _,
            cpu_realtime_runtime: _,
            storage_opt: _,
            annotations: _,
            dns_opt: _,
            // With the mounts.
            mount_options: _,
            // `lifecycle` is refused with the container.
            post_start: _,
            pre_stop: _,
            device_requests,
            non_root,
        } = host;
        if let (false, Some(limits)) = (device_requests.is_empty(), at(self.container, "resources.limits")) {
            let help = "declare the device as a generic resource of its nodes, and use a Compose file";
            refuse(&limits, "nvidia.com/gpu", "Docker Swarm gives a container no GPU", help);
        }
        if *non_root {
            let contexts = [self.container, self.pod].into_iter().filter_map(|it| at(it, "securityContext"));
            if let Some(context) = contexts.into_iter().find(|it| at(it, "runAsNonRoot").is_some()) {
                refuse(
                    &context,
                    "runAsNonRoot",
                    "nobody checks the user of the image on the nodes of a Swarm",
                    "set `runAsUser`, too",
                );
            }
        }
    }

    fn fit_mount(&self, mount: &mut Mount, host: &mut HostSettings, is_pinned: bool) {
        let target = mount.target.clone();
        let options = host.mount_options.remove(&target).unwrap_or_default();
        let is_grouped = options.group.is_some() || options.tmpfs_option("gid").is_some();
        if is_grouped && let Some(context) = at(self.pod, "securityContext") {
            let help = "remove it, and let the image create the folder for its user";
            refuse(&context, "fsGroup", "Docker Swarm gives volumes no group", help);
        }
        match &mount.source {
            MountSource::Content(id) | MountSource::Secret(id) => {
                if matches!(self.catalogue.contents().get(id), Some(Content::Folder(_))) {
                    self.mount(&target).warning(folder_hides_nothing(&target));
                }
            }
            MountSource::Anonymous | MountSource::Tmpfs { .. } => {}
            MountSource::Empty if !options.tmpfs.is_empty() => {
                self.mount(&target)
                    .warning("has another effect: a Swarm mounts memory from which no program can be run");
                let size = options.tmpfs_option("size").and_then(|size| size.parse().ok());
                mount.source = MountSource::Tmpfs { size, mode: None };
            }
            MountSource::Empty => mount.source = MountSource::Anonymous,
            MountSource::Volume { name, .. } => {
                if !is_pinned && self.catalogue.is_on_one_node(name) {
                    self.mount(&target).error_help(
                        "the volume of a claim is on one node, and a Swarm may start the pod on another, where it is empty",
                        "pin the pod with `nodeSelector: {kubernetes.io/hostname: NODE}`, or use a volume of NFS",
                    );
                }
            }
            MountSource::Bind { path, create: true, .. } => self.mount(&target).error_help(
                format!("Docker Swarm creates no folder {path} on its nodes"),
                "create it on each node, and set `type: Directory`",
            ),
            MountSource::Bind { path, .. } => self.mount(&target).warning(format!(
                "{path} must exist on each node that a task may run on: limit the nodes with `nodeSelector`"
            )),
            MountSource::Image(_) => {
                self.mount(&target).error_help(
                    "Docker Swarm mounts no image",
                    "copy the files into the image of the container",
                );
            }
            MountSource::InPlace { .. } | MountSource::AppFolder(_) => {
                self.mount(&target).error_help("Docker Swarm cannot mount this", ONE_HOST);
            }
        }
    }
}

/// The pause before another try of a Job: the first one of Kubernetes. In a Swarm it does not grow.
const RETRY: Duration = Duration::from_secs(10);

/// The tries of a Job.
fn restart(job: &Job) -> SwarmRestart {
    let retries = u64::from(job.backoff_limit);
    let condition = if retries == 0 { "none" } else { "on-failure" };
    SwarmRestart {
        condition: condition.to_owned(),
        delay: Some(RETRY),
        max_attempts: Some(retries).filter(|it| *it > 0),
        window: None,
    }
}

/// The time for which a Swarm watches a new task by default.
const MONITOR: Duration = Duration::from_secs(5);

/// Why two pods of a workload cannot run at the same time on one node. Several replicas share their data at all times.
fn exclusive(found: &ReadWorkload) -> Option<&'static str> {
    let is_data = |source: &MountSource| match source {
        MountSource::Volume { .. } => true,
        MountSource::Bind { path, .. } => !is_system_path(path),
        _ => false,
    };
    let mut mounts = found.workload.container.mounts.iter();
    let is_single = found.swarm.mode == SwarmMode::Global || found.workload.replicas == 1;
    let writes_data = is_single && mounts.any(|mount| !mount.read_only && is_data(&mount.source));
    let has_port = found.swarm.host_ports.iter().any(|port| port.host.is_some());
    match (writes_data, has_port) {
        (true, _) => Some("two pods would write to the same data"),
        (false, true) => Some("two pods cannot have the same `hostPort`"),
        (false, false) => None,
    }
}

fn rolling(order: &str, parallelism: u32) -> SwarmUpdate {
    SwarmUpdate {
        order: Some(order.to_owned()),
        parallelism: Some(parallelism.into()),
        ..SwarmUpdate::default()
    }
}

/// An update of `minReadySeconds`: the Swarm waits so long after each step, and watches new tasks for as long.
fn delayed(update: SwarmUpdate, wait: Duration) -> SwarmUpdate {
    if wait.is_zero() {
        return update;
    }
    SwarmUpdate { delay: Some(wait), monitor: Some(wait.max(MONITOR)), ..update }
}

/// A variable as a Swarm reads it: its templates fill in the names of task and node, and nothing else is one.
fn template(text: &str) -> String {
    let names = [(Downward::PodName, "{{.Task.Name}}"), (Downward::NodeName, "{{.Node.Hostname}}")];
    names.iter().fold(text.replace("{{", "{{\"{{\"}}"), |text, (fact, name)| {
        let mark = fact.mark();
        // A brace before a template would be one of its own.
        text.replace(&format!("{{{mark}"), &format!("{{{{\"{{\"}}}}{name}")).replace(&mark, name)
    })
}
