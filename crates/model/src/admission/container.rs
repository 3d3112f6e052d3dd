//! The rules about workloads and their containers.

use crate::{
    Container, Hook, HostSettings, ImageRef, MountSource, Namespace, NetworkMode, Part, Peer, Resources,
    Subject, is_helper_image, matches_star,
};

use super::{
    paths,
    policy::AdmissionPolicy,
    ports::{PortRule, Published},
    violation::{ViolatingObject, Violation},
};

/// Collects the violations of one container.
struct Check<'a> {
    policy: &'a AdmissionPolicy,
    object: ViolatingObject,
    found: &'a mut Vec<Violation>,
}

/// Checks all containers of a workload, its build and its ports.
pub(super) fn check_workload(policy: &AdmissionPolicy, subject: Subject<'_>, found: &mut Vec<Violation>) {
    let workload = subject.workload;
    let parts = workload.parts.iter().map(|Part { name, container, .. }| (Some(name.clone()), container));
    for (part, container) in std::iter::once((None, &workload.container)).chain(parts) {
        let object = ViolatingObject::Workload(subject.name.clone(), part);
        let mut check = Check { policy, object, found };
        check.ports(container);
        check.namespaces(container);
        // The agent's own program, which keeps the network of a pod or forwards for a Service, has no limits and comes from
        // no registry. A manifest may name it too, so all other rules hold for it.
        let is_helper = is_helper_image(&container.image);
        check.privileges(container);
        check.devices(container);
        check.mounts(container);
        if !is_helper {
            check.limits(&container.resources);
        }
        check.hooks(container);
        check.peers(container);
        if !is_helper && (workload.build.is_none() || container.image != workload.container.image) {
            check.image(&container.image, &["image"]);
        }
        for image in container.mounted_images() {
            check.image(image, &["source", "reference"]);
        }
    }
    if let Some(build) = &workload.build {
        let object = ViolatingObject::Workload(subject.name.clone(), None);
        let mut check = Check { policy, object, found };
        if policy.builds == Some(false) {
            check.report(
                "builds",
                &["build"],
                None,
                "builds an image, which the policy does not allow".to_owned(),
            );
        }
        if build.network.as_deref() == Some("host") {
            check.host_namespace("network", &["network"]);
        }
    }
}

impl Check<'_> {
    fn report(
        &mut self,
        rule: &'static str,
        keys: &'static [&'static str],
        value: Option<&str>,
        message: String,
    ) {
        let (object, value) = (self.object.clone(), value.map(str::to_owned));
        self.found.push(Violation { rule, object, keys, value, message });
    }

    fn privileges(&mut self, container: &Container) {
        let message = || "is privileged, which the policy does not allow".to_owned();
        if container.privileged && !self.policy.allows(self.policy.privileged) {
            self.report("privileged", &["privileged"], None, message());
        }
        if !self.policy.allows(self.policy.unconfined) {
            for option in container.security_opt.iter().filter(|option| is_unconfined(option)) {
                let message = format!(
                    "switches off a protection of the host with `{option}`, which the policy does not allow"
                );
                let keys =
                    &["security_opt", "seccompProfile", "appArmorProfile", "procMount", "seLinuxOptions"];
                self.report("unconfined", keys, Some(option), message);
            }
            for name in container.host.annotations.keys().filter(|name| orders_runtime(name)) {
                let message = format!(
                    "has the annotation `{name}`, which gives orders to the runtime of containers and which the policy does not allow"
                );
                self.report("unconfined", &["annotations"], Some(name), message);
            }
        }
        let Some(allowed) = self.policy.list(self.policy.capabilities.as_ref()) else { return };
        for capability in &container.cap_add {
            let name = capability.trim_start_matches("CAP_");
            let is_allowed = |pattern: &String| matches_star(&pattern.to_uppercase(), &name.to_uppercase());
            if !allowed.iter().any(is_allowed) {
                let message = format!("adds the capability {capability}, which the policy does not allow");
                self.report("capabilities", &["cap_add", "add"], Some(name), message);
            }
        }
    }

    fn namespaces(&mut self, container: &Container) {
        if container.network_mode == NetworkMode::Host || container.networks().contains_key("host") {
            self.host_namespace("network", &["network_mode", "hostNetwork", "networks"]);
        }
        let is_host = |mode: Option<&Namespace>| mode.is_some_and(Namespace::is_host);
        if is_host(container.pid_mode.as_ref()) {
            self.host_namespace("pid", &["pid", "hostPID"]);
        }
        if is_host(container.ipc_mode.as_ref()) {
            self.host_namespace("ipc", &["ipc", "hostIPC"]);
        }
        // All fields are named, so that the compiler asks about a new one: it may weaken the isolation of a container.
        let HostSettings {
            userns_mode,
            uts_mode,
            cgroup,
            // With the privileges.
            annotations: _,
            // With the devices.
            device_requests: _,
            device_cgroup_rules: _,
            // With the hooks.
            post_start: _,
            pre_stop: _,
            // No rule is about these.
            platform: _,
            runtime: _,
            cgroup_parent: _,
            dns_opt: _,
            block_io: _,
            memory_swappiness: _,
            oom_kill_disable: _,
            oom_score_adj: _,
            cpu_realtime_period: _,
            cpu_realtime_runtime: _,
            storage_opt: _,
            non_root: _,
            mount_options: _,
        } = &*container.host;
        for (name, mode, keys) in [
            ("user", userns_mode, &["userns_mode"]),
            ("uts", uts_mode, &["uts"]),
            ("cgroup", cgroup, &["cgroup"]),
        ] {
            if mode.as_deref() == Some("host") {
                self.host_namespace(name, keys);
            }
        }
    }

    fn host_namespace(&mut self, name: &str, keys: &'static [&'static str]) {
        let Some(allowed) = self.policy.list(self.policy.host_namespaces.as_ref()) else { return };
        if !allowed.contains(name) {
            let message = format!("uses the {name} namespace of the host, which the policy does not allow");
            self.report("hostNamespaces", keys, None, message);
        }
    }

    fn devices(&mut self, container: &Container) {
        let Some(allowed) = self.policy.list(self.policy.devices.as_ref()) else { return };
        let is_allowed = |name: &str| allowed.iter().any(|pattern| matches_star(pattern, name));
        let paths = container.devices.iter().map(|(host, _, _)| host.clone());
        let requests = container.host.device_requests.iter().flat_map(|request| {
            let driver = if request.driver.is_empty() { "gpu" } else { &request.driver };
            let ids = if request.driver == "cdi" { request.ids.clone() } else { vec![driver.to_owned()] };
            ids.into_iter()
        });
        let rules = container.host.device_cgroup_rules.iter().cloned();
        for device in paths.chain(requests).chain(rules).filter(|it| !is_allowed(it)).collect::<Vec<_>>() {
            let message = format!("has the device `{device}` of the host, which the policy does not allow");
            let keys =
                &["devices", "gpus", "device_cgroup_rules", "hostPath", "path", "reservations", "limits"];
            self.report("devices", keys, Some(&device), message);
        }
    }

    fn mounts(&mut self, container: &Container) {
        for mount in &container.mounts {
            let MountSource::Bind { path, .. } = &mount.source else { continue };
            if let Some(message) = paths::objection(self.policy, path, mount.read_only) {
                self.report(
                    "bindMounts",
                    &["volumes", "hostPath", "configs", "secrets"],
                    Some(path),
                    message,
                );
            }
        }
    }

    fn limits(&mut self, resources: &Resources) {
        let Some(required) = &self.policy.require_limits else { return };
        let given = resources.normal();
        for (name, is_given) in [
            ("memory", given.memory.is_some()),
            ("cpus", given.nano_cpus.is_some()),
            ("pids", given.pids.is_some_and(|pids| pids > 0)),
        ] {
            if required.contains(name) && !is_given {
                let message = format!("has no limit of {name}, which the policy requires");
                self.report("requireLimits", &["resources", "limits"], None, message);
            }
        }
    }

    fn ports(&mut self, container: &Container) {
        let Some(rules) = &self.policy.ports else { return };
        for port in
            container.ports.iter().filter(|port| !rules.iter().any(|rule| PortRule::allows(rule, port)))
        {
            let number = port.host.map_or(port.container, |host| host.first).to_string();
            let message = format!("publishes {}, which the policy does not allow", Published(port));
            self.report("ports", &["ports", "hostPort", "nodePort"], Some(&number), message);
        }
    }

    fn hooks(&mut self, container: &Container) {
        let hooks: Vec<&Hook> = container.host.post_start.iter().chain(&container.host.pre_stop).collect();
        let keys = &["post_start", "pre_stop", "lifecycle"];
        if self.policy.hooks == Some(false) && !hooks.is_empty() {
            let message = "has hooks, which the policy does not allow".to_owned();
            self.report("hooks", keys, None, message);
        }
        if hooks.iter().any(|hook| hook.privileged) && !self.policy.allows(self.policy.privileged) {
            let message = "has a privileged hook, which the policy does not allow".to_owned();
            self.report("privileged", keys, None, message);
        }
    }

    /// Containers outside of the application that it shares something with.
    fn peers(&mut self, container: &Container) {
        if self.policy.allows_other_applications() {
            return;
        }
        for peer in container.peers() {
            let Peer::Container(name) = peer else { continue };
            let message = format!(
                "shares with the container `{name}` of somebody else, which the policy does not allow"
            );
            let keys = &["network_mode", "pid", "ipc", "volumes_from"];
            self.report("otherApplications", keys, Some(name), message);
        }
        // The engine has networks and modes in one field.
        for name in container.networks().keys().filter(|name| name.contains(':')) {
            let message = format!(
                "joins `{name}`, which the engine takes for the network of a container of somebody else, and which the policy does not allow"
            );
            self.report("otherApplications", &["networks", "name"], Some(name), message);
        }
    }

    fn image(&mut self, image: &str, keys: &'static [&'static str]) {
        let reference = ImageRef::parse(image);
        if self.policy.require_digests == Some(true) && reference.digest().is_none() {
            let message = format!("the image `{image}` has no digest, which the policy requires");
            self.report("requireDigests", keys, Some(image), message);
        }
        let Some(allowed) = &self.policy.images else { return };
        if !allowed.iter().any(|pattern| reference.matches(pattern)) {
            let message = format!("the image `{image}` is not among the allowed images");
            self.report("images", keys, Some(image), message);
        }
    }
}

/// The beginnings of the annotations that runtimes and the programs that start them read as settings. runc and crun pass properties
/// to systemd on the host, which starts and stops any unit for them, and crun takes a filter of seccomp from an annotation.
const RUNTIME_ANNOTATIONS: [&str; 16] = [
    "com.github.containers.",
    "dev.gvisor.",
    "io.containerd.",
    "io.containers.",
    "io.crun.",
    "io.katacontainers.",
    "io.kubernetes.",
    "io.microsoft.",
    "io.nestybox.",
    "io.podman.",
    "krun.",
    "module.wasm.",
    "org.criu.",
    "org.opencontainers.",
    "org.systemd.",
    "run.oci.",
];

/// Domains before the slash of annotations that add devices and mounts to a container.
const DEVICE_ANNOTATIONS: [&str; 2] = ["cdi.k8s.io", "nri.io"];

/// Annotations of this kind only describe an image, although they have the name of the specification of runtimes.
const DESCRIPTIONS: &str = "org.opencontainers.image.";

/// Whether an annotation may be an order to a runtime, and not only a description. All names of a project that makes runtimes
/// count, since a later version may read more of them.
fn orders_runtime(annotation: &str) -> bool {
    let name = annotation.trim().to_ascii_lowercase();
    let domain = name.split('/').next().unwrap_or_default();
    let is_of =
        |known: &&str| domain.strip_suffix(*known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let has_beginning = RUNTIME_ANNOTATIONS.iter().any(|beginning| name.starts_with(beginning));
    (has_beginning && !name.starts_with(DESCRIPTIONS)) || DEVICE_ANNOTATIONS.iter().any(is_of)
}

/// Options that switch off what protects the host from a container, or that put something of the manifest in its place: a profile
/// of seccomp may allow everything, and so may a type of `SELinux`.
fn is_unconfined(option: &str) -> bool {
    let option = option.replace(':', "=");
    if let Some(profile) = option.strip_prefix("seccomp=") {
        return profile != "builtin";
    }
    matches!(
        option.as_str(),
        "apparmor=unconfined" | "systempaths=unconfined" | "label=disable" | "unmask=all"
    ) || option.starts_with("label=type=")
}
