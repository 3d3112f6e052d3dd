//! What the status says of single instances, and of the containers of a pod of several.
//!
//! Only what each does; what follows from it for the workload is for [`super::verdict`].

use driftless_model::{
    Health, Instance, InstanceStatus, Part, PartOf, PartSpec, PartStatus, Port, Readiness, State, Workload,
};

use super::{
    account,
    tally::{Tally, is_crash_looping, is_ready},
    text,
    verdict::Scene,
};

impl Scene<'_> {
    /// One instance, and the containers of its pod.
    pub(super) fn instance(
        &self,
        instance: &Instance,
        workload: &Workload,
        tally: &Tally<'_>,
    ) -> InstanceStatus {
        let crash = self.record.crashes.get(&instance.instance).filter(|it| it.spec == instance.spec);
        let is_completed = tally.is_completed(instance, workload);
        let (state, since) = match &instance.state {
            State::Created => ("Created".to_owned(), Some(instance.created)),
            State::Running { since, health: _ } => ("Running".to_owned(), Some(*since)),
            State::Paused => ("Paused".to_owned(), None),
            State::Restarting { finished, .. } => ("Restarting".to_owned(), Some(*finished)),
            State::Exited { finished, .. } if is_completed => ("Completed".to_owned(), Some(*finished)),
            State::Exited { finished, .. }
                if crash.is_some_and(|it| is_crash_looping(it, instance, self.now)) =>
            {
                ("CrashLoopBackOff".to_owned(), Some(*finished))
            }
            State::Exited { code, finished, .. } => (format!("Exited ({code})"), Some(*finished)),
            State::Removing => ("Removing".to_owned(), None),
            State::Dead => ("Dead".to_owned(), None),
        };
        let containers = self.parts(instance, workload, tally);
        let restarts = containers.iter().filter_map(|it| it.instance.as_ref()).map(|it| it.restarts).sum();
        let state = match &instance.state {
            State::Running { .. } => account::word(&containers).unwrap_or(state),
            _ => state,
        };
        let image = if containers.is_empty() {
            instance.config.image.clone()
        } else {
            account::images_of(&containers)
        };
        InstanceStatus {
            name: instance.name.clone(),
            pod: None,
            container: instance.id.short().to_owned(),
            slot: instance.instance.slot,
            state,
            ready: is_ready(instance),
            available: tally.is_available(instance),
            updated: tally.updated.iter().any(|it| it.id == instance.id),
            restarts: instance.restarts.max(crash.map_or(0, |it| it.count)).max(restarts),
            since,
            message: condition_of(instance),
            spec: instance.spec.short().to_owned(),
            ports: instance.config.ports.iter().map(port).collect(),
            image,
            created: Some(instance.created),
            started: instance.started,
            exit: account::exit(instance),
            ip: instance.networks.values().find_map(|it| it.ip.clone()),
            containers,
        }
    }

    /// The containers of a pod, those that are still to come among them.
    fn parts(&self, pod: &Instance, workload: &Workload, tally: &Tally<'_>) -> Vec<PartStatus> {
        let found = self.observed.parts_of(&pod.id);
        let boxed = |it: &Instance, of: &Workload| Some(Box::new(self.instance(it, of, tally)));
        if pod.spec == tally.spec {
            let named = |name: &str| {
                found.iter().find(|it| it.part.as_ref().is_some_and(|it| it.name == name)).copied()
            };
            let one = |it: &Part| PartStatus {
                spec: account::part_spec(it),
                instance: named(&it.name).and_then(|found| boxed(found, &workload.of_part(it))),
            };
            return workload.parts.iter().map(one).collect();
        }
        let one = |it: &&Instance| {
            let PartOf { pod: _, name, role, told: _ } = it.part.clone()?;
            let spec = PartSpec { name, role, image: it.config.image.clone() };
            Some(PartStatus { spec, instance: boxed(it, workload) })
        };
        found.iter().filter_map(one).collect()
    }
}

/// What else there is to say about an instance.
fn condition_of(instance: &Instance) -> String {
    match (&instance.state, &instance.readiness) {
        (State::Exited { out_of_memory: true, .. }, _) => "out of memory".to_owned(),
        (State::Exited { error, .. }, _) => text::one_line(error),
        (State::Restarting { code, .. }, _) => format!("exited with code {code}"),
        (State::Running { health: Health::Unhealthy, .. }, _) => "its health check fails".to_owned(),
        (State::Running { health: Health::Starting, .. }, _) => {
            "its health check has not succeeded yet".to_owned()
        }
        (
            State::Running { health: Health::Healthy, .. },
            Readiness::Starting { reason } | Readiness::NotReady { reason } | Readiness::Dead { reason },
        ) => text::one_line(reason),
        (State::Running { health: Health::Healthy, .. }, Readiness::Ready { .. })
        | (State::Created | State::Paused | State::Removing | State::Dead, _) => String::new(),
    }
}

/// `127.0.0.1:8080->80/tcp`, as `docker ps` prints it.
fn port(Port { container, protocol, host_ip, host }: &Port) -> String {
    let inside = format!("{container}/{}", protocol.as_str());
    let Some(range) = host else { return inside };
    let outside = if range.first == range.last {
        range.first.to_string()
    } else {
        format!("{}-{}", range.first, range.last)
    };
    match host_ip {
        Some(ip) if ip.is_ipv6() => format!("[{ip}]:{outside}->{inside}"),
        Some(ip) => format!("{ip}:{outside}->{inside}"),
        None => format!("{outside}->{inside}"),
    }
}
