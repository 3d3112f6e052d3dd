//! A workload's pod as the `spec` of a Kubernetes pod, for `driftless get -o yaml` and `describe`. Values are masked, and what
//! only Compose has is left out.

use driftless_model::{
    Container, Mask, Mount, MountSource, NetworkMode, Probe, ProbeAction, Probes, Resources, Role, Stack,
    Workload, downward::shown,
};
use serde_json::{Map, Value, json};

use crate::fields::{container::fields, diff::knowing};

/// The pod of a workload; `name` is the name of its only container.
pub fn pod_spec(stack: &Stack, name: &str, workload: &Workload, mask: &Mask) -> Value {
    let own = &workload.container;
    let mut volumes = Volumes { project: &stack.project, all: Vec::new() };
    let mut spec = Map::new();
    if workload.parts.is_empty() {
        let name = workload.manifest.container.as_deref().unwrap_or(name);
        spec.insert("containers".into(), json!([container(name, own, &workload.probes, &mut volumes, mask)]));
    } else {
        for (key, is_app) in [("initContainers", false), ("containers", true)] {
            let parts = workload.parts.iter().filter(|part| (part.role == Role::App) == is_app);
            let containers: Vec<Value> = parts
                .map(|part| {
                    let mut found = container(&part.name, &part.container, &part.probes, &mut volumes, mask);
                    if part.role == Role::Sidecar {
                        found["restartPolicy"] = "Always".into();
                    }
                    found
                })
                .collect();
            if !containers.is_empty() {
                spec.insert(key.into(), containers.into());
            }
        }
        // The ports belong to the pod.
        let ports = ports(own);
        if let Some(first) =
            spec.get_mut("containers").and_then(|all| all.get_mut(0)).filter(|_| !ports.is_empty())
        {
            first["ports"] = ports.into();
        }
    }
    if own.network_mode == NetworkMode::Host {
        spec.insert("hostNetwork".into(), true.into());
    }
    if let Some(grace) = own.stop_grace_period {
        spec.insert("terminationGracePeriodSeconds".into(), grace.as_secs().into());
    }
    if !volumes.all.is_empty() {
        spec.insert("volumes".into(), volumes.all.into());
    }
    Value::Object(spec)
}

fn container(
    name: &str,
    container: &Container,
    probes: &Probes,
    volumes: &mut Volumes<'_>,
    mask: &Mask,
) -> Value {
    let mask = &knowing(mask, [&fields(container)]);
    let mut out = Map::new();
    out.insert("name".into(), name.into());
    out.insert("image".into(), mask.name(&container.image).into());
    for (key, list) in [("command", &container.entrypoint), ("args", &container.command)] {
        if let Some(list) = list {
            let list: Vec<String> = list.iter().map(|word| shown(word)).collect();
            out.insert(key.into(), mask.arguments(&list).into());
        }
    }
    let variable = |(name, value): (&String, &Option<String>)| {
        let value = mask.value(name, &shown(value.as_ref()?));
        Some(json!({ "name": name, "value": value }))
    };
    let env: Vec<Value> = container.env.iter().filter_map(variable).collect();
    let mounts: Vec<Value> = container.mounts.iter().map(|mount| volumes.mount(mount, mask)).collect();
    for (key, list) in [("env", env), ("ports", ports(container)), ("volumeMounts", mounts)] {
        if !list.is_empty() {
            out.insert(key.into(), list.into());
        }
    }
    if let Some(folder) = &container.working_dir {
        out.insert("workingDir".into(), mask.name(folder).into());
    }
    let resources = resources(&container.resources);
    if !resources.is_empty() {
        out.insert("resources".into(), Value::Object(resources));
    }
    for (key, found) in [
        ("startupProbe", &probes.startup),
        ("readinessProbe", &probes.readiness),
        ("livenessProbe", &probes.liveness),
    ] {
        if let Some(found) = found {
            out.insert(key.into(), probe(found, mask));
        }
    }
    Value::Object(out)
}

fn ports(container: &Container) -> Vec<Value> {
    let protocol = |protocol: driftless_model::Protocol| protocol.as_str().to_uppercase();
    let published = container.ports.iter().map(|port| {
        let mut found = json!({ "containerPort": port.container, "protocol": protocol(port.protocol) });
        if let Some(range) = port.host.filter(|range| range.first == range.last) {
            found["hostPort"] = range.first.into();
        }
        if let Some(address) = port.host_ip {
            found["hostIP"] = address.to_string().into();
        }
        found
    });
    let exposed =
        container.expose.iter().map(|(port, of)| json!({ "containerPort": port, "protocol": protocol(*of) }));
    published.chain(exposed).collect()
}

fn resources(resources: &Resources) -> Map<String, Value> {
    let Resources { nano_cpus, memory, memory_reservation, .. } = resources.normal();
    let mut limits = Map::new();
    if let Some(cpus) = nano_cpus.filter(|cpus| *cpus > 0) {
        limits.insert("cpu".into(), cpu(cpus).into());
    }
    if let Some(bytes) = memory.filter(|bytes| *bytes > 0) {
        limits.insert("memory".into(), quantity(bytes).into());
    }
    let mut all = Map::new();
    if !limits.is_empty() {
        all.insert("limits".into(), Value::Object(limits));
    }
    if let Some(bytes) = memory_reservation.filter(|bytes| *bytes > 0) {
        all.insert("requests".into(), json!({ "memory": quantity(bytes) }));
    }
    all
}

/// `2` or `1500m`.
fn cpu(nano: u64) -> String {
    let milli = nano.div_ceil(1_000_000);
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

/// `128Mi`, or the bytes.
fn quantity(bytes: u64) -> String {
    let units = [("Gi", 1_u64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

fn probe(probe: &Probe, mask: &Mask) -> Value {
    let Probe { action, initial_delay, period, timeout, success_threshold, failure_threshold } = probe;
    let (key, action) = match action {
        ProbeAction::HttpGet { path, port, https, host, headers } => {
            let mut found = json!({
                "path": mask.text(path), "port": port, "scheme": if *https { "HTTPS" } else { "HTTP" },
            });
            if let Some(host) = host {
                found["host"] = mask.name(host).into();
            }
            if !headers.is_empty() {
                let header = |(name, value): &(String, String)| json!({ "name": name, "value": mask.value(name, value) });
                found["httpHeaders"] = headers.iter().map(header).collect();
            }
            ("httpGet", found)
        }
        ProbeAction::TcpSocket { port, host } => {
            let mut found = json!({ "port": port });
            if let Some(host) = host {
                found["host"] = mask.name(host).into();
            }
            ("tcpSocket", found)
        }
        ProbeAction::Grpc { port, service } => {
            ("grpc", json!({ "port": port, "service": mask.name(service) }))
        }
        ProbeAction::Exec { command } => ("exec", json!({ "command": mask.arguments(command) })),
    };
    json!({
        key: action, "initialDelaySeconds": initial_delay.as_secs(), "periodSeconds": period.as_secs(),
        "timeoutSeconds": timeout.as_secs(), "successThreshold": success_threshold,
        "failureThreshold": failure_threshold,
    })
}

/// The volumes of a pod, collected from the mounts of its containers. The model does not keep the names of the manifest.
struct Volumes<'a> {
    project: &'a str,
    all: Vec<Value>,
}

impl Volumes<'_> {
    fn mount(&mut self, mount: &Mount, mask: &Mask) -> Value {
        let Mount { target, source, read_only } = mount;
        let source = self.source(source, mask);
        let known = self.all.iter().position(|volume| {
            let is_shared = source.get("emptyDir").is_none();
            is_shared
                && volume
                    .as_object()
                    .is_some_and(|volume| source.iter().all(|(key, value)| volume.get(key) == Some(value)))
        });
        let index = known.unwrap_or_else(|| {
            let mut volume = source;
            volume.insert("name".into(), format!("volume-{}", self.all.len()).into());
            self.all.push(Value::Object(volume));
            self.all.len() - 1
        });
        let mut found = json!({ "name": format!("volume-{index}"), "mountPath": mask.name(target) });
        if *read_only {
            found["readOnly"] = true.into();
        }
        found
    }

    fn source(&self, source: &MountSource, mask: &Mask) -> Map<String, Value> {
        let (key, value) = match source {
            MountSource::Volume { name, .. } => {
                let claim = name.strip_prefix(self.project).and_then(|name| name.strip_prefix('_'));
                ("persistentVolumeClaim", json!({ "claimName": claim.unwrap_or(name) }))
            }
            MountSource::Anonymous | MountSource::Empty => ("emptyDir", json!({})),
            MountSource::Bind { path, .. } | MountSource::AppFolder(path) => {
                ("hostPath", json!({ "path": mask.name(path) }))
            }
            MountSource::Tmpfs { .. } => ("emptyDir", json!({ "medium": "Memory" })),
            MountSource::Image(reference) => ("image", json!({ "reference": mask.name(reference) })),
            MountSource::Content(_) | MountSource::InPlace { secret: false, .. } => ("configMap", json!({})),
            MountSource::Secret(_) | MountSource::InPlace { secret: true, .. } => ("secret", json!({})),
        };
        Map::from_iter([(key.to_owned(), value)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_in_manifests() {
        assert_eq!([quantity(128 << 20), quantity(3 << 30), quantity(1000)], ["128Mi", "3Gi", "1000"]);
        assert_eq!([cpu(1_500_000_000), cpu(2_000_000_000), cpu(1)], ["1500m", "2", "1m"]);
    }
}
