//! Traffic of instances: whether the proxies of a stack forward to them, and why not.

use std::collections::BTreeSet;

use driftless_model::{
    ContainerId, Forwards, HOST_ENDPOINT, Instance, Observed, Readiness, Stack, State, Subject,
    TrafficStatus, WorkloadName,
};

use crate::{
    status::{
        counts::is_ready,
        endpoints::{forwards_of, pod_of, stopped_at_once},
        remark::remark,
    },
    steps::Plan,
};

/// The proxies of a stack that forward to ready instances only.
pub(crate) struct Proxies<'a> {
    all: Vec<Proxy<'a>>,
    /// Pods that the plan stops at once.
    stopped: BTreeSet<ContainerId>,
}

struct Proxy<'a> {
    workload: &'a WorkloadName,
    forwards: Forwards,
    is_running: bool,
}

impl<'a> Proxies<'a> {
    pub(crate) fn of(stack: &'a Stack, observed: &Observed, plan: &Plan) -> Self {
        let is_running = |name: &WorkloadName| {
            observed.instances.values().any(|it| it.instance.workload == *name && it.is_running())
        };
        let proxy = |Subject { name, workload }: Subject<'a>| {
            let forwards = forwards_of(&workload.container)?;
            Some(Proxy { workload: name, forwards, is_running: is_running(name) })
        };
        let stopped = stopped_at_once(plan).iter().map(|id| pod_of(observed, id)).collect();
        Self { all: stack.subjects().filter_map(proxy).collect(), stopped }
    }

    /// The traffic of one instance. `None`: no proxy is for it.
    pub(crate) fn traffic(&self, instance: &Instance) -> Option<TrafficStatus> {
        let (mut proxies, mut ports, mut has_running) = (BTreeSet::new(), BTreeSet::new(), false);
        for proxy in &self.all {
            for port in &proxy.forwards.ports {
                let targets = port.targets.iter().filter(|(name, _)| is_target(instance, name));
                for (_, number) in targets {
                    has_running |= proxy.is_running;
                    proxies.insert(proxy.workload.clone());
                    ports.insert(format!("{number}/{}", port.protocol.as_str()));
                }
            }
        }
        if proxies.is_empty() {
            return None;
        }
        let reason = if self.stopped.contains(&instance.id) {
            "it is being stopped".to_owned()
        } else if !is_ready(instance) {
            why_not_ready(instance)
        } else if !has_running {
            "its proxy does not run".to_owned()
        } else {
            String::new()
        };
        let (proxies, ports) = (proxies.into_iter().collect(), ports.into_iter().collect());
        Some(TrafficStatus { proxies, ports, receives: reason.is_empty(), reason })
    }
}

/// Whether a proxy finds an instance by this name.
fn is_target(instance: &Instance, name: &str) -> bool {
    if let Some(workload) = name.strip_prefix(HOST_ENDPOINT).and_then(|rest| rest.strip_prefix('.')) {
        return instance.instance.workload.as_str() == workload;
    }
    instance.networks.values().any(|endpoint| endpoint.aliases.iter().any(|alias| alias == name))
}

fn why_not_ready(instance: &Instance) -> String {
    let message = remark(instance);
    match (&instance.state, &instance.readiness) {
        (State::Running { .. }, Readiness::Starting { .. }) if message.is_empty() => {
            "it is starting".to_owned()
        }
        (State::Running { .. }, _) if !message.is_empty() => message,
        (State::Running { .. }, _) => "it is not ready".to_owned(),
        (State::Paused, _) => "it is paused".to_owned(),
        (
            State::Created | State::Restarting { .. } | State::Exited { .. } | State::Removing | State::Dead,
            _,
        ) => "it does not run".to_owned(),
    }
}
