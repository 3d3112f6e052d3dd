//! Variables for Services, as the kubelet sets them in pods with `enableServiceLinks: true`. They hold the Service's name,
//! since a Service has no address of its own here.
//!
//! In Kubernetes this is the default. Here it is not, because such variables would replace all pods of a namespace with each
//! new Service; a pod whose manifest refers to one without asking for them is an error.

use super::{
    expand::Room,
    reader::Report,
    service::{Answer, Service},
    workload::ReadWorkload,
};
use driftless_model::{Container, Finding};

/// Sets the variables, and reports references to those that are not set.
pub(super) fn add(services: &[Service<'_>], workloads: &mut [ReadWorkload], room: &Room, report: &Report) {
    for found in workloads {
        let is_near = |service: &&Service<'_>| {
            let has_address = matches!(service.answer, Answer::Pods(..)) && !service.is_headless();
            has_address && service.key.namespace == found.key.namespace
        };
        let variables: Vec<(String, String)> = services.iter().filter(is_near).flat_map(variables).collect();
        if found.service_links {
            let origin = found.workload.origin.clone();
            let exceeds =
                |message, help: &str| report.say(Finding::error(origin, "spec", message).help(help));
            let containers = programs(found);
            let size = variables.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            if room.take(size * containers.len(), exceeds) {
                for container in containers {
                    set(container, &variables);
                }
            }
        } else {
            let referred = variables.iter().find(|(name, _)| {
                let reference = format!("$({name})");
                programs(found).iter().any(|container| refers_to(container, &reference))
            });
            if let Some((name, _)) = referred {
                let message = format!("`$({name})` is not set: Services set variables only on request");
                let origin = found.workload.origin.clone();
                let help =
                    "set `enableServiceLinks: true` in the pod's `spec`, or use the name of the Service";
                report.say(Finding::error(origin, "spec", message).help(help));
            }
        }
    }
}

/// The variables of one Service.
fn variables(service: &Service<'_>) -> Vec<(String, String)> {
    let host = &service.key.name;
    let prefix = upper(host);
    let Some(first) = service.ports.first() else { return Vec::new() };
    let url = |protocol: &str, port: u16| format!("{protocol}://{host}:{port}");
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), host.clone()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
        (format!("{prefix}_PORT"), url(first.protocol.as_str(), first.port)),
    ];
    for port in &service.ports {
        let (number, protocol) = (port.port, port.protocol.as_str());
        if let Some(name) = port.value.node.get("name").and_then(|name| name.as_scalar()) {
            all.push((format!("{prefix}_SERVICE_PORT_{}", upper(name)), number.to_string()));
        }
        let of_port = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        all.push((format!("{of_port}_PROTO"), protocol.to_owned()));
        all.push((format!("{of_port}_PORT"), number.to_string()));
        all.push((format!("{of_port}_ADDR"), host.clone()));
        all.push((of_port, url(protocol, number)));
    }
    all
}

fn upper(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

/// The containers of a pod that the manifest names.
fn programs(found: &mut ReadWorkload) -> Vec<&mut Container> {
    if found.workload.parts.is_empty() {
        return vec![&mut found.workload.container];
    }
    found.workload.parts.iter_mut().map(|part| &mut part.container).collect()
}

/// Variables of the manifest win, and their values and the command may refer to those of Services.
fn set(container: &mut Container, variables: &[(String, String)]) {
    for (name, value) in variables {
        let reference = format!("$({name})");
        if !container.env.contains_key(name) {
            for text in texts(container) {
                if text.contains(&reference) {
                    *text = text.replace(&reference, value);
                }
            }
        }
    }
    for (name, value) in variables {
        container.env.entry(name.clone()).or_insert_with(|| Some(value.clone()));
    }
}

fn refers_to(container: &Container, reference: &str) -> bool {
    let words = container.entrypoint.iter().chain(&container.command).flatten();
    words.chain(container.env.values().flatten()).any(|text| text.contains(reference))
}

/// The texts in which the kubelet replaces references to variables.
fn texts(container: &mut Container) -> impl Iterator<Item = &mut String> {
    let words = container.entrypoint.iter_mut().chain(&mut container.command).flatten();
    words.chain(container.env.values_mut().flatten())
}
