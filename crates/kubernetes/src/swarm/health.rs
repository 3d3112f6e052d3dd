//! The health check of a task, from the probes of its container.
//!
//! A Swarm knows one check: a command in the container. A task counts as running once it succeeds, and is replaced when it
//! fails. That is a `livenessProbe` with `exec`, whose command the other probes may share.

use std::time::Duration;

use driftless_model::{Healthcheck, Probe, ProbeAction, Probes};

use super::place::{at, refuse};
use crate::reader::Value;

/// The check of a container. Without a probe there is none, as the check of the image does not count in Kubernetes.
pub(super) fn check(probes: &Probes, container: &Value<'_>) -> Healthcheck {
    let Probes { startup, readiness, liveness } = probes;
    let all = [("livenessProbe", liveness), ("readinessProbe", readiness), ("startupProbe", startup)];
    for (name, probe) in all {
        if let (Some(probe), Some(place)) = (probe, at(container, name)) {
            check_probe(&place, name, probe, liveness.as_ref());
        }
    }
    let Some(Probe {
        action: ProbeAction::Exec { command },
        initial_delay,
        period,
        timeout,
        failure_threshold,
        ..
    }) = liveness
    else {
        return Healthcheck::disabled();
    };
    let started = startup.as_ref().map_or(Duration::ZERO, time_to_start);
    let ready = readiness.as_ref().map_or(Duration::ZERO, |probe| probe.initial_delay);
    let start_period = (*initial_delay).max(started).max(ready);
    Healthcheck {
        test: std::iter::once("CMD".to_owned()).chain(command.iter().cloned()).collect(),
        interval: Some(*period),
        timeout: Some(*timeout),
        retries: Some(*failure_threshold),
        start_period: Some(start_period).filter(|it| !it.is_zero()),
        start_interval: None,
    }
}

/// The longest time that a startup probe gives a container.
fn time_to_start(probe: &Probe) -> Duration {
    probe.initial_delay + probe.period * probe.failure_threshold
}

fn check_probe(place: &Value<'_>, name: &str, probe: &Probe, liveness: Option<&Probe>) {
    let Probe { action, initial_delay: _, period: _, timeout: _, success_threshold, failure_threshold: _ } =
        probe;
    let key = match action {
        ProbeAction::Exec { .. } => None,
        ProbeAction::HttpGet { .. } => Some("httpGet"),
        ProbeAction::TcpSocket { .. } => Some("tcpSocket"),
        ProbeAction::Grpc { .. } => Some("grpc"),
    };
    if let Some(key) = key {
        let help = "use `exec` with a program of the image, such as `wget -qO- http://localhost:8080/`";
        refuse(
            place,
            key,
            format!("Docker Swarm has no `{key}`: its health check is a command in the container"),
            help,
        );
        return;
    }
    if liveness.is_none_or(|liveness| liveness.action != *action) {
        place.error_help(
            format!("a task of Docker Swarm has one health check, and a task that fails it is replaced; a `{name}` of its own is not possible"),
            "give the `livenessProbe` the same command, or remove this probe",
        );
    } else if *success_threshold > 1 {
        refuse(place, "successThreshold", "must be 1 in a Swarm", "remove it");
    }
}
