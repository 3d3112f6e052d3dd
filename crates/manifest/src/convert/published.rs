//! Gives the published ports of proxies back to the services that they are for: the other format has means of its own.

use std::borrow::Cow;

use driftless_model::{Format, Forwards, NetworkMode, Stack, WorkloadName, is_proxy_image, worker_of};

/// The stack without the proxies of Compose services.
pub(super) fn without_proxies(stack: &Stack) -> Cow<'_, Stack> {
    let is_worker = |name: &WorkloadName| {
        stack.workloads.get(name).is_some_and(|workload| is_proxy_image(&workload.container.image))
    };
    if stack.format != Format::Compose || !stack.workloads.keys().any(is_worker) {
        return Cow::Borrowed(stack);
    }
    let mut changed = stack.clone();
    for name in stack.workloads.keys().filter(|name| is_worker(name)) {
        let of = name.as_str().strip_suffix(&worker_of("_proxy")).map(WorkloadName::from);
        let Some(of) = of else { continue };
        let Some(worker) = changed.workloads.remove(name) else { continue };
        let Some(proxy) = changed.workloads.remove(&WorkloadName(format!("{of}_proxy"))) else { continue };
        let command = worker.container.command.unwrap_or_default();
        let Ok(forwards) = Forwards::parse(command.iter().skip(1).map(String::as_str)) else { continue };
        let aliases: Vec<String> =
            forwards.ports.into_iter().flat_map(|port| port.targets).map(|(alias, _)| alias).collect();
        let Some(workload) = changed.workloads.get_mut(&of) else { continue };
        workload.container.ports.extend(proxy.container.ports);
        workload.container.ports.sort_unstable();
        if let NetworkMode::Networks(networks) = &mut workload.container.network_mode {
            for attachment in networks.values_mut() {
                attachment.aliases.retain(|alias| !aliases.contains(alias));
            }
        }
    }
    Cow::Owned(changed)
}
