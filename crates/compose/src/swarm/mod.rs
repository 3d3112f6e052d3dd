//! A Compose project for Docker Swarm: the settings that only a Swarm has, and errors for all that it cannot do.
//!
//! The project is read and lowered as for a single host. This adds what `deploy` says about a Swarm, turns mounted
//! files into configs and secrets, and refuses each key that a Swarm would ignore.

mod jobs;
mod mounts;

use std::collections::BTreeMap;

use driftless_files::{UnfitFile, swarm_files};
use driftless_model::{
    Condition, Contents, Finding, Kind, LONGEST_SWARM_NAME, ObjectRef, Port, SWARM_OWNER, Stack, SwarmFile,
    SwarmMode, SwarmRestart, SwarmService, SwarmUpdate, Workload, WorkloadName, digest_hex, label,
    refused_swarm_name,
};
use driftless_yaml::{Node, Report};

use crate::{
    lower::mounts::{FileKind, target_of},
    read::{
        deploy::cpus,
        types::{FileMount, Sections, Service, Source},
    },
    spec::{
        keys::ONLY_IN_A_SWARM,
        scalar,
        value::{Placed, Read as _, Value},
    },
};

/// The keys of a service that a Swarm has, or that change nothing. `build`, `container_name` and the others are errors.
const SERVICE_KEYS: &[&str] = &[
    "attach",
    "cap_add",
    "cap_drop",
    "command",
    "configs",
    "cpus",
    "depends_on",
    "deploy",
    "develop",
    "dns",
    "dns_opt",
    "dns_search",
    "entrypoint",
    "env_file",
    "environment",
    "expose",
    "extends",
    "extra_hosts",
    "group_add",
    "healthcheck",
    "hostname",
    "image",
    "init",
    "isolation",
    "label_file",
    "labels",
    "logging",
    "mem_limit",
    "mem_reservation",
    "networks",
    "pids_limit",
    "ports",
    "profiles",
    "pull_policy",
    "read_only",
    "restart",
    "scale",
    "secrets",
    "stdin_open",
    "stop_grace_period",
    "stop_signal",
    "sysctls",
    "tmpfs",
    "tty",
    "ulimits",
    "user",
    "volumes",
    "working_dir",
    "x-driftless",
];

/// The settings of `x-driftless` that a Swarm has.
const EXTENSION_KEYS: &[&str] = &["hook", "schedule", "update", "wave"];

/// Advice for keys that Swarm does not have.
const ADVICE: &[(&str, &str)] = &[
    ("annotations", "remove it"),
    ("build", "push the image to a registry that all nodes reach, and name it in `image`"),
    ("container_name", "remove it: other services find this one by its name `<service>` on a shared network"),
    (
        "network_mode",
        "remove it and use `networks`; a port in `mode: host` is published by the node of the task",
    ),
    ("links", "remove it: services on the same network find each other by name"),
    ("platform", "use `deploy.placement.constraints`, such as `node.platform.arch == x86_64`"),
];

/// Paths of warnings about keys that have no effect on a single host, and have one in a Swarm.
const EFFECTIVE: &[&str] = &[
    ".deploy.placement",
    ".deploy.labels",
    ".deploy.endpoint_mode",
    ".deploy.restart_policy.",
    ".deploy.mode",
    ".deploy.replicas",
];

/// Removes the findings of a single host that are not true for a Swarm.
pub(crate) fn drop_host_findings(findings: &mut Vec<Finding>) {
    let is_effective = |finding: &Finding| {
        let is_reservation = [".reservations.cpus", ".reservations.generic_resources"]
            .iter()
            .any(|end| finding.path.ends_with(end));
        is_reservation || EFFECTIVE.iter().any(|part| finding.path.contains(part))
    };
    let is_template = |finding: &Finding| {
        let is_file = ["configs.", "secrets."].iter().any(|start| finding.path.starts_with(start));
        is_file && finding.path.ends_with(".template_driver") && finding.message.contains(ONLY_IN_A_SWARM)
    };
    findings.retain(
        |finding| {
            if finding.is_error() { !is_template(finding) } else { !is_effective(finding) }
        },
    );
}

/// Makes a stack for Docker Swarm of a stack for a single host.
pub(crate) fn complete(
    root: &Node,
    sections: &Sections,
    stack: &mut Stack,
    contents: &Contents,
    findings: &mut Vec<Finding>,
) {
    let report = Report::default();
    let root = Value::new(root, "", &report);
    networks(&root, stack);
    let services = root.node.get("services").map(|services| root.key("services", services));
    let awaited = awaited(stack);
    let names: Vec<_> = stack.workloads.keys().cloned().collect();
    for name in names {
        let Some(workload) = stack.workloads.get(&name) else { continue };
        let node =
            services.as_ref().and_then(|all| Some(all.key(name.as_str(), all.node.get(name.as_str())?)));
        let Some(value) = node else { continue };
        if name.as_str().contains('.') {
            value.error_help("the name of a service of Docker Swarm has no `.`", "use `-` instead");
        }
        check_length(&value, &stack.project, (&name, workload));
        refuse(&value);
        let mut service = value.node.get("deploy").map(|node| deploy(&value.key("deploy", node)));
        let mut service = service.take().unwrap_or_default();
        if let Some(read) = sections.services.get(name.as_str()) {
            service.host_ports.clone_from(&read.direct_ports);
        }
        if service.restart.is_none() {
            service.restart = value.node.get("restart").map(|node| restart(&value.key("restart", node)));
        }
        if matches!(service.mode, SwarmMode::Global | SwarmMode::GlobalJob)
            && value.node.get("deploy").is_some_and(has_replicas)
        {
            value.error(
                "`deploy.replicas` and the modes `global` and `global-job` exclude each other: there is one task on each node",
            );
        }
        let read = sections.services.get(name.as_str());
        service.files = files(&value, read, (&stack.project, workload), contents);
        if let Some(read) = read {
            templates(&root, read, &mut service.files);
            external_files(&value, sections, read, &mut service.files);
        }
        mounts::check(&value, workload, &service, mounts::MountedData { volumes: &stack.volumes, contents });
        mounts::check_order(&value, workload, &service);
        check_dependencies(&value);
        check_ports(&value, workload);
        check_entrypoint(&value, workload);
        if let Some(workload) = stack.workloads.get_mut(&name) {
            jobs::complete(&value, &name, workload, &mut service, awaited.get(&name));
            if workload.job().is_some() {
                let namespace = stack.app.to_string();
                let object = ObjectRef { kind: Kind::Job, namespace, name: name.to_string() };
                stack.inventory.workloads.insert(name.clone(), object);
            }
        }
        stack.swarm.insert(name, service);
    }
    findings.extend(report.into_findings());
}

fn check_length(service: &Value<'_>, project: &str, (name, workload): (&WorkloadName, &Workload)) {
    let Some(refused) = refused_swarm_name(project, name, &workload.kind) else { return };
    let length = refused.len();
    service.error_help(
        format!("the service `{refused}` of the Swarm has {length} letters, and at most {LONGEST_SWARM_NAME} are allowed"),
        "shorten the name of the service or of the project",
    );
}

/// The services whose completion others wait for, each with one that does.
fn awaited(stack: &Stack) -> BTreeMap<WorkloadName, WorkloadName> {
    let mut awaited = BTreeMap::new();
    for (name, workload) in &stack.workloads {
        let ends = workload.after.iter().filter(|it| it.condition == Condition::CompletedSuccessfully);
        awaited.extend(ends.map(|it| (it.workload.clone(), name.clone())));
    }
    awaited
}

fn has_replicas(deploy: &Node) -> bool {
    deploy.get("replicas").is_some_and(|replicas| !replicas.is_null())
}

/// Networks of a project are overlay networks.
fn networks(root: &Value<'_>, stack: &mut Stack) {
    for network in stack.networks.values_mut().filter(|network| !network.external) {
        let node = root.node.get("networks").and_then(|all| all.get(&network.key));
        match network.driver.as_deref() {
            None | Some("overlay") => {
                network.driver = Some("overlay".to_owned());
                // The agent on another manager removes it, too.
                network.labels.insert(label::AGENT.to_owned(), SWARM_OWNER.to_owned());
            }
            Some(driver) => {
                let message =
                    format!("a network of the driver `{driver}` does not reach the other nodes of a Swarm");
                let place =
                    node.unwrap_or(root.node).finding(format!("networks.{}.driver", network.key), message);
                root.report().say(place.help("remove `driver`, or use `overlay`"));
            }
        }
    }
}

/// Reports each key of a service that a Swarm does not have.
fn refuse(service: &Value<'_>) {
    for (key, value) in service.pairs() {
        let is_empty = value.node.is_null() || value.node.as_scalar() == Some("");
        if is_empty {
            continue;
        }
        match key {
            "x-driftless" => {
                for (key, value) in value.pairs().iter().filter(|(key, _)| !EXTENSION_KEYS.contains(key)) {
                    value.error_help(
                        format!("Docker Swarm has no `x-driftless.{key}` yet"),
                        "remove it, or run the application on a single host (`engine: docker`)",
                    );
                }
            }
            _ if key.starts_with("x-") => {}
            _ if !SERVICE_KEYS.contains(&key) => {
                let advice = ADVICE.iter().find(|(known, _)| *known == key).map_or(
                    "remove it, or run the application on a single host (`engine: docker`)",
                    |(_, advice)| advice,
                );
                value.error_help(format!("Docker Swarm has no `{key}`"), advice);
            }
            "networks" => networks_of_service(&value),
            "healthcheck" => {
                refuse_all(&value, &["start_interval"], "Docker Swarm has no `start_interval`");
            }
            "pull_policy"
                if !matches!(value.node.as_scalar(), Some("always" | "missing" | "if_not_present")) =>
            {
                value.error(
                    "each node of a Swarm pulls the image by its digest; use `missing`, or remove the key",
                );
            }
            "pull_policy"
                if value.node.as_scalar() == Some("always")
                    && !service
                        .node
                        .get("image")
                        .and_then(|it| it.as_scalar())
                        .is_some_and(|it| it.contains('@')) =>
            {
                value.warning(
                    "has no effect on a Swarm: the digest of an image is resolved once for each reference. \
                     `x-driftless.update: digest` follows what the tag names",
                );
            }
            "isolation" if value.node.as_scalar() != Some("default") => {
                value.error("only `default` is supported");
            }
            _ => {}
        }
    }
}

fn networks_of_service(networks: &Value<'_>) {
    for (_, network) in networks.pairs() {
        for (key, value) in network.pairs() {
            if !matches!(key, "aliases" | "driver_opts") && !value.node.is_null() {
                value.error(format!("a service of Docker Swarm has no `{key}` on a network"));
            }
        }
    }
}

fn refuse_all(value: &Value<'_>, keys: &[&str], message: &str) {
    for (_, value) in value.pairs().into_iter().filter(|(key, _)| keys.contains(key)) {
        value.error(message);
    }
}

fn check_ports(service: &Value<'_>, workload: &Workload) {
    let Some(ports) = service.node.get("ports") else { return };
    let place = service.key("ports", ports);
    for Port { container, host_ip, host, .. } in &workload.container.ports {
        if host_ip.is_some_and(|ip| !ip.is_unspecified()) {
            place.error(format!("port {container}: Docker Swarm publishes a port on all addresses of a node; remove the address"));
        }
        if host.is_some_and(|range| range.len() > 1) {
            place.error(format!(
                "port {container}: Docker Swarm does not choose from a range of ports; use one port"
            ));
        }
    }
}

/// An empty entry point takes away the image's, which a service of a Swarm cannot say.
fn check_entrypoint(service: &Value<'_>, workload: &Workload) {
    let is_empty = workload.container.entrypoint.as_ref().is_some_and(Vec::is_empty);
    if let Some(entrypoint) = service.node.get("entrypoint").filter(|_| is_empty) {
        service.key("entrypoint", entrypoint).error_help(
            "Docker Swarm cannot take away the entry point of an image",
            "name the program and its arguments in `entrypoint`",
        );
    }
}

/// Warns about dependencies that ask for a restart, which a Swarm does not do.
fn check_dependencies(service: &Value<'_>) {
    let Some(dependencies) = service.node.get("depends_on") else { return };
    for (_, dependency) in service.key("depends_on", dependencies).pairs() {
        let Some(restart) = dependency.node.get("restart").filter(|it| it.as_bool() == Some(true)) else {
            continue;
        };
        let warning = dependency
            .key("restart", restart)
            .placed(())
            .warning("has no effect in a Swarm: an update of one service restarts no other one");
        service.report().say(warning.help("remove it; the service has to connect again by itself"));
    }
}

/// The files of a service as configs and secrets. Those that a Swarm would refuse are errors.
fn files(
    value: &Value<'_>,
    read: Option<&Service>,
    (project, workload): (&str, &Workload),
    contents: &Contents,
) -> Vec<SwarmFile> {
    let (files, unfit) = swarm_files(project, &workload.container, contents);
    for UnfitFile { mount, message, help } in unfit {
        let is_it = |(file, kind): &(&Placed<FileMount>, FileKind)| target_of(&file.value, *kind) == mount;
        if let Some((file, _)) = read.and_then(|read| file_mounts(read).find(is_it)) {
            value.report().say(file.error(message).help(help));
            continue;
        }
        mounts::place_of(value, &mount).error_help(message, help);
    }
    files
}

/// The configs and secrets of a service.
fn file_mounts(service: &Service) -> impl Iterator<Item = (&Placed<FileMount>, FileKind)> {
    let configs = service.configs.iter().map(|file| (file, FileKind::Config));
    configs.chain(service.secrets.iter().map(|file| (file, FileKind::Secret)))
}

/// Marks the configs and secrets of a service that are templates. Another language gives the same content another name.
fn templates(root: &Value<'_>, service: &Service, files: &mut [SwarmFile]) {
    let uses =
        [("configs", &service.configs, FileKind::Config), ("secrets", &service.secrets, FileKind::Secret)];
    for (section, mounts, kind) in uses {
        for mount in mounts {
            let defined = root.node.get(section).and_then(|all| all.get(&mount.value.source));
            let Some(driver) = defined.and_then(|defined| defined.get("template_driver")) else { continue };
            let Some(name) = driver.as_scalar().filter(|name| !name.is_empty()) else { continue };
            if name != "golang" {
                let path = format!("{section}.{}.template_driver", mount.value.source);
                let message = format!("Docker Swarm has no template driver `{name}`; use `golang`");
                root.report().say(driver.finding(path, message));
                continue;
            }
            let target = target_of(&mount.value, kind);
            for file in files.iter_mut().filter(|file| file.target == target) {
                file.template = Some(name.to_owned());
                if let Some((start, digest)) = file.name.rsplit_once('_') {
                    let other = digest_hex(format!("{name} {digest}").as_bytes());
                    file.name = format!("{start}_{}", other.get(..digest.len()).unwrap_or(&other));
                }
            }
        }
    }
}

/// Adds the external configs and secrets of a service: those that somebody else creates in the Swarm.
fn external_files(value: &Value<'_>, sections: &Sections, service: &Service, files: &mut Vec<SwarmFile>) {
    let uses = [
        (&service.configs, &sections.configs, FileKind::Config),
        (&service.secrets, &sections.secrets, FileKind::Secret),
    ];
    for (mounts, defined, kind) in uses {
        for mount in mounts {
            let FileMount { source, target: _, mode, uid, gid, on_change } = &mount.value;
            let Some(Source::External(name)) = defined.get(source).map(|found| &found.source) else {
                continue;
            };
            if let Some(change) = on_change {
                value.report().say(change.error("an external config or secret of a Swarm never changes"));
            }
            let target = target_of(&mount.value, kind);
            if files.iter().any(|file| file.target == target) {
                value.report().say(mount.error(format!("another config or secret is mounted at {target}")));
            }
            files.push(SwarmFile {
                target,
                content: None,
                path: String::new(),
                name: name.clone(),
                secret: kind == FileKind::Secret,
                external: true,
                template: None,
                mode: mode.unwrap_or(0o444),
                uid: uid.unwrap_or_default(),
                gid: gid.unwrap_or_default(),
            });
        }
    }
}

fn deploy(value: &Value<'_>) -> SwarmService {
    let mut service = SwarmService::default();
    for (key, value) in value.pairs() {
        if value.node.is_null() {
            continue;
        }
        match key {
            "mode" => match value.node.as_scalar() {
                None | Some("replicated" | "") => {}
                Some("global") => service.mode = SwarmMode::Global,
                Some("replicated-job") => service.mode = SwarmMode::ReplicatedJob,
                Some("global-job") => service.mode = SwarmMode::GlobalJob,
                Some(mode) => value.error(format!(
                    "`{mode}` is not a mode; use `replicated`, `global`, `replicated-job` or `global-job`"
                )),
            },
            "endpoint_mode" => match value.node.as_scalar() {
                None | Some("") => {}
                Some(mode @ ("vip" | "dnsrr")) => service.endpoint_mode = Some(mode.to_owned()),
                Some(mode) => value.error(format!("`{mode}` is not an endpoint mode; use `vip` or `dnsrr`")),
            },
            "labels" => {
                service.labels = value
                    .assignments()
                    .into_iter()
                    .map(|pair| (pair.name, pair.value.unwrap_or_default()))
                    .collect();
            }
            "placement" => placement(&mut service, &value),
            "update_config" => service.update = Some(update(&value)),
            "rollback_config" => service.rollback = Some(update(&value)),
            "restart_policy" => service.restart = Some(restart_policy(&value)),
            "resources" => resources(&mut service, &value),
            // Read as for a single host.
            _ => {}
        }
    }
    service
}

fn placement(service: &mut SwarmService, value: &Value<'_>) {
    for (key, value) in value.pairs() {
        match key {
            "constraints" => service.constraints = value.strings(),
            "preferences" => {
                for preference in value.sequence() {
                    service.spread.extend(preference.pairs().iter().filter_map(|(_, value)| value.owned()));
                }
            }
            "max_replicas_per_node" => {
                service.max_replicas_per_node = value.whole().filter(|number| *number > 0);
            }
            _ => value.error("is not supported"),
        }
    }
}

fn update(value: &Value<'_>) -> SwarmUpdate {
    let mut update = SwarmUpdate::default();
    for (key, value) in value.pairs() {
        match key {
            "parallelism" => update.parallelism = value.whole(),
            "delay" => update.delay = value.duration(),
            "monitor" => update.monitor = value.duration(),
            "failure_action" => update.failure_action = value.filled(),
            "max_failure_ratio" => {
                let millionths =
                    value.float().and_then(scalar::billionths).map(|billionths| billionths / 1000);
                update.max_failure_ratio = millionths.and_then(|it| u32::try_from(it).ok());
            }
            "order" => update.order = value.filled(),
            _ => value.error("is not supported"),
        }
    }
    update
}

fn restart_policy(value: &Value<'_>) -> SwarmRestart {
    let mut restart = SwarmRestart { condition: "any".to_owned(), ..SwarmRestart::default() };
    for (key, value) in value.pairs() {
        match key {
            "condition" => {
                let condition = match value.owned().as_deref() {
                    Some("none" | "no") => "none",
                    Some("on-failure") => "on-failure",
                    _ => "any",
                };
                condition.clone_into(&mut restart.condition);
            }
            "delay" => restart.delay = value.duration(),
            "window" => restart.window = value.duration(),
            "max_attempts" => restart.max_attempts = value.whole().filter(|number| *number > 0),
            _ => value.error("is not supported"),
        }
    }
    restart
}

/// `restart` of a service, which `docker stack` ignores.
fn restart(value: &Value<'_>) -> SwarmRestart {
    let text = value.node.as_scalar().unwrap_or_default();
    let (condition, attempts) = match text.split_once(':') {
        Some(("on-failure", attempts)) => ("on-failure", attempts.parse().ok()),
        _ => match text {
            "no" | "none" => ("none", None),
            "on-failure" => ("on-failure", None),
            _ => ("any", None),
        },
    };
    SwarmRestart { condition: condition.to_owned(), max_attempts: attempts, ..SwarmRestart::default() }
}

fn resources(service: &mut SwarmService, value: &Value<'_>) {
    let Some(reservations) = value.node.get("reservations") else { return };
    for (key, value) in value.key("reservations", reservations).pairs() {
        match key {
            "cpus" => service.reserved_nano_cpus = cpus(&value),
            "devices" if !value.node.is_null() => value.error_help(
                "Docker Swarm reserves no devices",
                "declare the device as a generic resource of its nodes",
            ),
            "generic_resources" => {
                for item in value.sequence() {
                    let Some(spec) = item.node.get("discrete_resource_spec") else { continue };
                    let number = |key: &str| spec.get(key).and_then(Node::as_scalar);
                    match (number("kind"), number("value").and_then(|text| text.parse().ok())) {
                        (Some(kind), Some(count)) => {
                            service.generic_resources.insert(kind.to_owned(), count);
                        }
                        _ => item.error("needs a `kind` and a whole number as `value`"),
                    }
                }
            }
            _ => {}
        }
    }
}
