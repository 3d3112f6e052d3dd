//! The specification of a service as the engine's API writes it, from a workload and its Swarm settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Container, HostSettings, Job, Mount, MountSource, Port, ResolvedImage, STACK_NAMESPACE, SpecHash,
    Subject, SwarmFileKind, SwarmMode, SwarmRestart, SwarmService, SwarmUpdate, label, swarm_service_name,
};
use serde_json::{Map, Value, json};

use super::volumes::driver_config;
use crate::{
    facts::jobs::{JobPart, spec_of},
    target::Target,
};

/// The label of a service with its image as Git names it, without a digest.
pub(crate) const IMAGE: &str = "com.docker.stack.image";

/// A service as Git asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WantedService {
    /// The name in the Swarm.
    pub(crate) name: String,
    /// The digest of all that Git says about it, without that of its image.
    pub(crate) hash: String,
    /// The body of the call.
    pub(crate) spec: Value,
}

/// The specification of a service. `image` is its image with the digest.
pub(crate) fn wanted(target: &Target<'_>, subject: Subject<'_>, image: &ResolvedImage) -> WantedService {
    let Subject { name, workload } = subject;
    let stack = target.stack;
    let default = SwarmService::default();
    let service = stack.swarm.get(name).unwrap_or(&default);
    let container = &workload.container;
    let full = swarm_service_name(&stack.project, name);
    let mut labels: Map<String, Value> = text_map(&service.labels);
    labels.insert(STACK_NAMESPACE.to_owned(), stack.project.as_str().into());
    labels.insert(IMAGE.to_owned(), container.image.as_str().into());
    let mut spec = json!({
        "Name": full,
        "Labels": labels,
        "TaskTemplate": {
            "ContainerSpec": container_spec(target, container, service, &image.image),
            "Resources": resources(container, service),
            "RestartPolicy": service.restart.as_ref().map_or_else(|| default_restart(service.mode), restart),
            "Placement": placement(service, image),
            "Networks": networks(container),
            "LogDriver": container.logging.as_ref().map(|(driver, options)| json!({"Name": driver, "Options": options})),
        },
        "Mode": match (service.mode, workload.job()) {
            (SwarmMode::Global, _) => json!({"Global": {}}),
            (SwarmMode::GlobalJob, _) => json!({"GlobalJob": {}}),
            (SwarmMode::ReplicatedJob, Some(job)) => replicated_job(job),
            (SwarmMode::Replicated | SwarmMode::ReplicatedJob, _) => {
                json!({"Replicated": {"Replicas": workload.replicas}})
            }
        },
        "UpdateConfig": service.update.as_ref().map(update),
        "RollbackConfig": service.rollback.as_ref().map(update),
        "EndpointSpec": {
            "Mode": service.endpoint_mode,
            "Ports": container.ports.iter().map(|port| published(port, service)).collect::<Vec<_>>(),
        },
    });
    prune(&mut spec);
    let of_git = without_digest(&spec, &container.image);
    // The nodes get another login by an update of the service, which replaces no task.
    let logins = &workload.pull_secrets;
    let hash = if logins.is_empty() { SpecHash::of(&of_git) } else { SpecHash::of(&(of_git, logins)) }.0;
    if let Some(labels) = spec.get_mut("Labels").and_then(Value::as_object_mut) {
        labels.insert(label::AGENT.to_owned(), OWNER.into());
        labels.insert(label::APPLICATION.to_owned(), stack.app.as_str().into());
        labels.insert(label::WORKLOAD.to_owned(), name.as_str().into());
        labels.insert(label::SPEC.to_owned(), hash.as_str().into());
        if let Some(job) = workload.job() {
            labels.insert(label::JOB.to_owned(), spec_of(&[JobPart { subject, job }]).0.into());
            if let Some(cron) = &job.cron {
                labels.insert(label::CRON.to_owned(), cron.as_str().into());
            }
            if let Some(hook) = &job.hook {
                labels.insert(label::HOOK.to_owned(), hook.phase.to_string().into());
            }
        }
    }
    WantedService { name: full, hash, spec }
}

/// The digest of all that Git says about a service.
pub(crate) fn hash_of(target: &Target<'_>, subject: Subject<'_>) -> String {
    wanted(target, subject, &ResolvedImage::default()).hash
}

pub(crate) use driftless_model::SWARM_OWNER as OWNER;

/// A specification with the image as Git names it: a new digest is no other specification in Git.
fn without_digest(spec: &Value, image: &str) -> Value {
    let mut spec = spec.clone();
    if let Some(container) = spec.pointer_mut("/TaskTemplate/ContainerSpec/Image") {
        *container = image.into();
    }
    if let Some(placement) = spec.pointer_mut("/TaskTemplate/Placement").and_then(Value::as_object_mut) {
        placement.remove("Platforms");
    }
    prune(&mut spec);
    spec
}

fn container_spec(target: &Target<'_>, container: &Container, service: &SwarmService, image: &str) -> Value {
    let HostSettings { dns_opt, .. } = &*container.host;
    let mut labels = text_map(&container.labels);
    labels.insert(STACK_NAMESPACE.to_owned(), target.stack.project.as_str().into());
    let env = container.env.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
    let check = container.healthcheck.as_ref().map(|check| {
        json!({
            "Test": check.test, "Interval": check.interval.map(nanos), "Timeout": check.timeout.map(nanos),
            "Retries": check.retries, "StartPeriod": check.start_period.map(nanos),
        })
    });
    let files = |kind: SwarmFileKind| -> Vec<Value> {
        let all = service.files.iter().filter(|file| file.kind() == kind);
        all.map(|file| {
            let place = json!({"Name": file.target, "UID": file.uid.to_string(), "GID": file.gid.to_string(), "Mode": file.mode});
            json!({kind.name_key(): file.name, "File": place})
        })
        .collect()
    };
    json!({
        "Image": image,
        "Labels": labels,
        "Command": container.entrypoint,
        "Args": container.command,
        "Hostname": container.hostname,
        "Env": env.collect::<Vec<_>>(),
        "Dir": container.working_dir,
        "User": container.user,
        "Groups": container.group_add,
        "TTY": container.tty,
        "OpenStdin": container.stdin_open,
        "ReadOnly": container.read_only,
        "Mounts": container.mounts.iter().filter_map(|it| mount(target, container, it)).collect::<Vec<_>>(),
        "StopSignal": container.stop_signal,
        "StopGracePeriod": container.stop_grace_period.map(nanos),
        "Healthcheck": check,
        "Hosts": container.extra_hosts.iter().filter_map(|it| host(it)).collect::<Vec<_>>(),
        "DNSConfig": {"Nameservers": container.dns, "Search": container.dns_search, "Options": dns_opt},
        "Configs": files(SwarmFileKind::Config),
        "Secrets": files(SwarmFileKind::Secret),
        "Init": container.init,
        "Sysctls": container.sysctls,
        "CapabilityAdd": capabilities(&container.cap_add),
        "CapabilityDrop": capabilities(&container.cap_drop),
        "Ulimits": container.ulimits.iter()
            .map(|(name, (soft, hard))| json!({"Name": name, "Soft": soft, "Hard": hard})).collect::<Vec<_>>(),
    })
}

/// As the engine writes them, so that its answer is the same.
fn capabilities(names: &[String]) -> Vec<String> {
    let full = |name: &String| match name.as_str() {
        "ALL" => name.clone(),
        name => format!("CAP_{name}"),
    };
    names.iter().map(full).collect()
}

/// `address name`, as in a file of hosts.
fn host(entry: &str) -> Option<String> {
    let (name, address) = entry.split_once(':')?;
    Some(format!("{address} {name}"))
}

fn mount(target: &Target<'_>, container: &Container, mount: &Mount) -> Option<Value> {
    let Mount { target: at, source, read_only } = mount;
    let options = container.host.mount_options.get(at);
    let subpath = options.and_then(|it| it.subpath.clone());
    let own_labels = options.map(|it| text_map(&it.labels));
    Some(match source {
        MountSource::Volume { name, no_copy } => {
            let volume = target.stack.volumes.get(name).filter(|volume| !volume.external);
            let driver = volume.and_then(driver_config);
            let labels = volume.map(|volume| {
                let mut labels = text_map(&volume.labels);
                labels.insert(STACK_NAMESPACE.to_owned(), target.stack.project.as_str().into());
                labels
            });
            let labels: Map<String, Value> = own_labels.into_iter().chain(labels).flatten().collect();
            json!({
                "Type": "volume", "Source": name, "Target": at, "ReadOnly": read_only,
                "VolumeOptions": {
                    "NoCopy": no_copy, "Labels": labels, "Subpath": subpath,
                    "DriverConfig": driver,
                },
            })
        }
        MountSource::Anonymous => json!({
            "Type": "volume", "Target": at, "ReadOnly": read_only, "VolumeOptions": {"Labels": own_labels, "Subpath": subpath},
        }),
        MountSource::Bind { path, propagation, .. } => json!({
            "Type": "bind", "Source": path, "Target": at, "ReadOnly": read_only,
            "BindOptions": {"Propagation": propagation},
        }),
        MountSource::Tmpfs { size, mode } => json!({
            "Type": "tmpfs", "Target": at, "ReadOnly": read_only, "TmpfsOptions": {"SizeBytes": size, "Mode": mode},
        }),
        // Configs and secrets; and mounts that the Compose reader refuses.
        MountSource::Content(_)
        | MountSource::Secret(_)
        | MountSource::Empty
        | MountSource::Image(_)
        | MountSource::InPlace { .. }
        | MountSource::AppFolder(_) => return None,
    })
}

fn resources(container: &Container, service: &SwarmService) -> Value {
    let limits = &container.resources;
    let generic = service.generic_resources.iter();
    json!({
        "Limits": {"NanoCPUs": limits.nano_cpus, "MemoryBytes": limits.memory, "Pids": limits.pids},
        "Reservations": {
            "NanoCPUs": service.reserved_nano_cpus,
            "MemoryBytes": limits.memory_reservation,
            "GenericResources": generic
                .map(|(kind, value)| json!({"DiscreteResourceSpec": {"Kind": kind, "Value": value}})).collect::<Vec<_>>(),
        },
    })
}

fn placement(service: &SwarmService, image: &ResolvedImage) -> Value {
    let platforms: BTreeSet<(&str, &str)> =
        image.platforms.iter().map(|(os, arch)| (os.as_str(), placed_architecture(arch))).collect();
    let platforms = platforms.into_iter();
    json!({
        "Constraints": service.constraints,
        "Preferences": service.spread.iter().map(|by| json!({"Spread": {"SpreadDescriptor": by}})).collect::<Vec<_>>(),
        "MaxReplicas": service.max_replicas_per_node,
        "Platforms": platforms.map(|(os, arch)| json!({"Architecture": arch, "OS": os})).collect::<Vec<_>>(),
    })
}

/// The architecture that a node must have. Empty: any. Registries say `arm`, and nodes report `armv7l` and the like, which a Swarm does
/// not take for the same. Docker's client leaves it out, too.
fn placed_architecture(architecture: &str) -> &str {
    if architecture.eq_ignore_ascii_case("arm") { "" } else { architecture }
}

fn networks(container: &Container) -> Vec<Value> {
    let all = container.networks().iter();
    all.map(|(name, it)| json!({"Target": name, "Aliases": it.aliases, "DriverOpts": it.driver_opts}))
        .collect()
}

fn published(port: &Port, service: &SwarmService) -> Value {
    let mode = if service.host_ports.contains(port) { "host" } else { "ingress" };
    json!({
        "Protocol": port.protocol.as_str(), "TargetPort": port.container,
        "PublishedPort": port.host.map(|range| range.first), "PublishMode": mode,
    })
}

fn restart(restart: &SwarmRestart) -> Value {
    json!({
        "Condition": restart.condition, "Delay": restart.delay.map(nanos),
        "MaxAttempts": restart.max_attempts, "Window": restart.window.map(nanos),
    })
}

/// Without a policy in the manifest, a service runs forever, and a Job is tried until it succeeds, as Swarm's defaults are.
fn default_restart(mode: SwarmMode) -> Value {
    json!({"Condition": if mode.is_job() { "on-failure" } else { "any" }})
}

fn replicated_job(job: &Job) -> Value {
    let completions = job.completions.unwrap_or(1);
    let parallelism = job.parallelism.min(completions).max(1);
    json!({"ReplicatedJob": {"MaxConcurrent": parallelism, "TotalCompletions": completions}})
}

fn update(update: &SwarmUpdate) -> Value {
    json!({
        // Swarm's own default is all at once; that of the Compose specification is one.
        "Parallelism": update.parallelism.unwrap_or(1),
        "Delay": update.delay.map(nanos),
        "FailureAction": update.failure_action,
        "Monitor": update.monitor.map(nanos),
        "MaxFailureRatio": update.max_failure_ratio.map(|millionths| f64::from(millionths) / 1e6),
        "Order": update.order,
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn text_map(map: &BTreeMap<String, String>) -> Map<String, Value> {
    map.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
}

/// Removes what says nothing: null, and empty maps and lists.
pub(crate) fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(prune);
            map.retain(|name, value| !is_nothing(value) || matches!(name.as_str(), "Global" | "GlobalJob"));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
