//! Connects Services with the workloads that they select: names, host ports, and proxies where these are not enough.
//!
//! The engine's name resolution answers with the addresses of all selected instances. A proxy is used where that is not
//! enough: another port than the container's, one host port for several instances, session affinity, or an address that stays. See
//! [`super::proxy`].

use std::collections::{BTreeMap, BTreeSet};

use super::{
    networks::AppNetworks,
    object::{Key, help_with_namespace},
    proxy,
    reader::Report,
    service::{self, Answer, Service, publish},
    swarm,
    workload::ReadWorkload,
};
use driftless_model::{EngineKind, Finding};

/// The most workloads that the Services of an application select together. Each of them gets a name for each Service, so what
/// is made grows with the product of both numbers, and nothing less than a bound keeps it small.
const MOST_ROUTES: usize = 10_000;

/// Gives each Service's names and ports to the workloads it selects, or to a proxy, which is a workload as well.
pub(super) fn connect(
    services: &[Service<'_>],
    workloads: &mut [ReadWorkload],
    networks: &AppNetworks,
    engine: EngineKind,
    report: &Report,
) -> Vec<ReadWorkload> {
    let names: BTreeSet<&str> = services.iter().map(|it| it.key.name.as_str()).collect();
    for found in workloads.iter_mut() {
        networks.join(found, &names);
        check_subdomain(found, services, report);
    }
    let mut proxies = Vec::new();
    let mut routes = 0;
    for service in services {
        let (selector, place) = match &service.answer {
            // Refused for a Swarm.
            Answer::Outside(_) if engine == EngineKind::Swarm => continue,
            Answer::Outside(name) => {
                proxies.extend(proxy::to(service, name, networks).into_iter().flatten());
                continue;
            }
            Answer::Pods(selector, place) => (selector, place),
        };
        let selects =
            |it: &&mut ReadWorkload| it.key.namespace == service.key.namespace && is_selected(selector, it);
        let mut selected: Vec<&mut ReadWorkload> = workloads.iter_mut().filter(selects).collect();
        routes += selected.len();
        if routes > MOST_ROUTES {
            place.error(format!("the Services select more than {MOST_ROUTES} workloads together"));
            return proxies;
        }
        if selected.is_empty() {
            let message = format!(
                "`{}` selects no workload of this application, so its name does not resolve",
                service.key.dotted()
            );
            let nearest = nearest(&service.key, selector, workloads);
            let finding = place.node.warning(&*place.path, message);
            report.say(match nearest {
                Some(help) => finding.help(help),
                None => finding,
            });
            continue;
        }
        service::check_targets(service, &mut selected, report);
        if engine == EngineKind::Swarm {
            swarm::services::route(service, place, selected, networks);
            continue;
        }
        // Pods of a StatefulSet have their own names, also if a proxy has the Service's.
        for found in &mut selected {
            networks.name_pod(found, &service.key);
            if service.is_headless() {
                networks.name_host(found, &service.key);
            }
        }
        if proxy::is_needed(service, &selected) {
            proxies.extend(proxy::before(service, &mut selected, networks).into_iter().flatten());
            continue;
        }
        for found in selected {
            if proxy::is_on_host(found) {
                place.warning(format!(
                    "`{}` uses the network of the host, so the name of a headless Service does not resolve to it",
                    found.name
                ));
            }
            networks.name(found, &service.key);
            for port in &service.ports {
                let Some(target) = port.target_in(found) else { continue };
                for (address, host) in &port.published {
                    publish(port, target, (*address, *host), found);
                }
            }
        }
    }
    if engine == EngineKind::Docker {
        networks.drop_taken_host_names(workloads, &proxies, report);
    }
    proxies
}

/// A pod has its DNS name only in a headless Service that selects it.
fn check_subdomain(found: &ReadWorkload, services: &[Service<'_>], report: &Report) {
    let Some(wanted) = &found.subdomain else { return };
    let knows_it = |it: &Service<'_>| {
        let selects = matches!(&it.answer, Answer::Pods(selector, _) if is_selected(selector, found));
        selects && it.is_headless() && it.key == Key::new(&found.key.namespace, &wanted.service)
    };
    if !services.iter().any(knows_it) {
        let message = format!("has no effect: no headless Service `{}` selects the pod", wanted.service);
        report.say(Finding::warning(wanted.location.clone(), &*wanted.path, message));
    }
}

fn is_selected(selector: &BTreeMap<String, String>, found: &ReadWorkload) -> bool {
    selector.iter().all(|(key, value)| found.labels.get(key) == Some(value))
}

/// Explains a selector that matches workloads of another namespace, or a workload only partly.
fn nearest(service: &Key, selector: &BTreeMap<String, String>, workloads: &[ReadWorkload]) -> Option<String> {
    let elsewhere = workloads.iter().filter(|it| is_selected(selector, it)).map(|it| &it.key);
    if let Some(help) = help_with_namespace(elsewhere, &service.namespace, "Service") {
        return Some(help);
    }
    workloads.iter().filter(|it| it.key.namespace == service.namespace).find_map(|workload| {
        let (key, value) = selector
            .iter()
            .find(|(key, value)| workload.labels.get(*key).is_some_and(|found| found != *value))?;
        let found = workload.labels.get(key)?;
        Some(format!("`{}` has `{key}: {found}`, the Service wants `{key}: {value}`", workload.name))
    })
}
