//! A container with its state, health and endpoints.

use std::{collections::BTreeMap, sync::Arc};

use bollard::models as api;
use driftless_model::{
    AgentId, ContainerId, Endpoint, Health, Instance, InstanceId, LiveSettings, PartOf, Port, Readiness,
    Role, SpecHash, State, Timestamp, WorkloadName, label,
};

use super::{
    container::{Defaults, OwnNames, container, ports},
    host_settings::asked,
    mounts, namespaces,
};
use crate::{crash_output::last_lines, mount_paths::MountPaths};

/// The number of results of a health check that the engine keeps.
const HEALTH_LOG: usize = 5;

/// A container as the engine describes it. A container that Docker Compose created is an instance of its service. Whether
/// a user stopped it is not known here.
pub(crate) fn instance(
    id: &ContainerId,
    found: &api::ContainerInspectResponse,
    paths: &MountPaths,
    defaults: &Defaults,
) -> Instance {
    let labels = found.config.as_ref().and_then(|it| it.labels.as_ref());
    let either = |ours: &str, compose: &str| {
        labels.and_then(|it| it.get(ours).or_else(|| it.get(compose))).cloned().unwrap_or_default()
    };
    let label = |name: &str| labels.and_then(|it| it.get(name)).cloned().unwrap_or_default();
    let config = container(found, paths, defaults);
    let created = found.created.as_deref().and_then(Timestamp::parse).unwrap_or_default();
    let retries = config.healthcheck.as_ref().and_then(|it| it.retries).unwrap_or(3);
    let has_label = |name: &str| labels.is_some_and(|it| it.contains_key(name));
    // The kubelet ignores the health check of an image. In a container of an older agent the engine goes on to run it.
    let is_of_kubernetes = has_label(label::AGENT) && !has_label(label::compose::PROJECT);
    let health = found.state.as_ref().and_then(|it| it.health.as_ref()).filter(|_| !is_of_kubernetes);
    let state = found.state.as_ref().map_or(State::Created, |it| state(it, health, created));
    let name = found.name.as_deref().unwrap_or_default().trim_start_matches('/').to_owned();
    let part =
        Role::parse(&label(label::ROLE)).filter(|_| !label(label::POD).is_empty()).map(|role| PartOf {
            pod: ContainerId(label(label::POD)),
            name: label(label::PART),
            role,
            downward: asked(labels).downward.values,
        });
    let started = found.state.as_ref().and_then(|it| Timestamp::parse(it.started_at.as_deref()?));
    let log = HealthLog::of(health, started);
    let became_healthy = log.healthy_since(retries);
    let healthy_at_latest = became_healthy.or_else(|| log.healthy_at_latest());
    let is_healthy = matches!(state, State::Running { health: Health::Healthy, .. });
    let is_unhealthy = matches!(state, State::Running { health: Health::Unhealthy, .. });
    let workload = WorkloadName(either(label::WORKLOAD, label::compose::SERVICE));
    Instance {
        id: id.clone(),
        instance: InstanceId {
            workload: part.as_ref().map_or_else(|| workload.clone(), |it| workload.part(&it.name)),
            slot: either(label::SLOT, label::compose::CONTAINER_NUMBER).parse().unwrap_or_default(),
        },
        agent: AgentId(label(label::AGENT)),
        spec: SpecHash(label(label::SPEC)),
        created,
        readiness: readiness(&state, health, healthy_at_latest),
        healthy_before: is_healthy && became_healthy.is_none() && healthy_at_latest.is_some(),
        state,
        restarts: found.restart_count.and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
        networks: endpoints(found),
        name,
        live: LiveSettings { resources: config.resources.clone(), restart: config.restart },
        config: Arc::new(config),
        image_id: found.image.clone().unwrap_or_default(),
        anonymous_volumes: mounts::anonymous_volumes(found),
        empty_volumes: mounts::empty_volumes(found),
        part,
        hosts: namespaces::namespace_owners(found),
        volumes_of: namespaces::volume_owners(found),
        started,
        bound_ports: bound_ports(found),
        touched_by_hand: None,
        last_output: String::new(),
        check_output: if is_unhealthy { check_output(health) } else { String::new() },
    }
}

/// The ports of the host that a running container holds. The engine lists a port on all addresses once for each family.
fn bound_ports(found: &api::ContainerInspectResponse) -> Vec<Port> {
    let mut all = ports(found.network_settings.as_ref().and_then(|settings| settings.ports.as_ref()));
    for port in &mut all {
        port.host_ip = port.host_ip.filter(|address| !address.is_unspecified());
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn endpoints(found: &api::ContainerInspectResponse) -> BTreeMap<String, Endpoint> {
    let names = OwnNames::of(found);
    let networks = found.network_settings.as_ref().and_then(|it| it.networks.as_ref());
    // The engine lists a network before it connects the container, and leaves the entry if that fails: a running
    // container is connected to the networks on which it has an endpoint.
    let runs =
        found.state.as_ref().is_some_and(|it| it.running.unwrap_or_default() && it.restarting != Some(true));
    let is_none = |it: &api::EndpointSettings| runs && it.network_id.as_ref().is_none_or(String::is_empty);
    networks
        .into_iter()
        .flatten()
        .filter(|(_, it)| !is_none(it))
        .map(|(network, it)| {
            let endpoint = Endpoint {
                network_id: it.network_id.clone().unwrap_or_default(),
                aliases: names.without(it.aliases.as_ref()),
                ip: it.ip_address.clone().filter(|it| !it.is_empty()),
                gateway: it.gateway.clone().filter(|it| !it.is_empty()),
            };
            (network.clone(), endpoint)
        })
        .collect()
}

fn state(found: &api::ContainerState, checked: Option<&api::Health>, created: Timestamp) -> State {
    use api::ContainerStateStatusEnum as Status;
    let time = |text: &Option<String>| text.as_deref().and_then(Timestamp::parse);
    let started = time(&found.started_at).unwrap_or(created);
    let finished = time(&found.finished_at).unwrap_or(created);
    let code = found.exit_code.unwrap_or_default();
    let error = found.error.clone().unwrap_or_default();
    let running = || State::Running { since: started, health: health(checked) };
    let exited = || State::Exited {
        code,
        finished,
        out_of_memory: found.oom_killed.unwrap_or_default(),
        error: error.clone(),
    };
    match found.status {
        // The engine failed to start it.
        Some(Status::CREATED) if !error.is_empty() => exited(),
        Some(Status::CREATED) => State::Created,
        Some(Status::RUNNING | Status::STOPPING) => running(),
        Some(Status::PAUSED) => State::Paused,
        Some(Status::RESTARTING) => State::Restarting { code, finished },
        Some(Status::REMOVING) => State::Removing,
        Some(Status::DEAD) => State::Dead,
        Some(Status::EMPTY) | None if found.running == Some(true) => running(),
        Some(Status::EXITED | Status::EMPTY) | None => exited(),
    }
}

/// The result of the health check.
fn health(found: Option<&api::Health>) -> Health {
    use api::HealthStatusEnum as Status;
    match found.and_then(|found| found.status) {
        Some(Status::STARTING) => Health::Starting,
        Some(Status::UNHEALTHY) => Health::Unhealthy,
        Some(Status::HEALTHY | Status::NONE | Status::EMPTY) | None => Health::Healthy,
    }
}

/// The last results of a health check, the newest last.
struct HealthLog<'a> {
    results: &'a [api::HealthcheckResult],
    /// It has the first result of the run.
    is_complete: bool,
}

impl<'a> HealthLog<'a> {
    /// The results of the present run. The engine keeps those of earlier runs of the container, too.
    fn of(health: Option<&'a api::Health>, started: Option<Timestamp>) -> Self {
        let all = health.and_then(|health| health.log.as_deref()).unwrap_or_default();
        let is_earlier =
            |result: &&api::HealthcheckResult| end(result).is_some_and(|end| Some(end) < started);
        let earlier = all.iter().take_while(is_earlier).count();
        let results = all.get(earlier..).unwrap_or_default();
        Self { results, is_complete: earlier > 0 || all.len() < HEALTH_LOG }
    }

    /// Since when a healthy container is so. `None`: the log does not reach back to the change.
    fn healthy_since(&self, retries: u32) -> Option<Timestamp> {
        let mut since = None;
        let mut was_unhealthy = self.is_complete;
        let mut failures = 0;
        for result in self.results {
            if result.exit_code == Some(0) {
                failures = 0;
                if was_unhealthy {
                    was_unhealthy = false;
                    since = end(result);
                }
            } else {
                failures += 1;
                was_unhealthy |= failures >= retries.max(1);
            }
        }
        since
    }

    /// The latest time at which a healthy container became so, if the log does not reach back to it: the first success, or the first
    /// of failures that were too few for "unhealthy".
    fn healthy_at_latest(&self) -> Option<Timestamp> {
        let success = self.results.iter().find(|result| result.exit_code == Some(0));
        end(success.or(self.results.first())?)
    }
}

/// When a run of a health check ended.
fn end(result: &api::HealthcheckResult) -> Option<Timestamp> {
    result.end.as_deref().and_then(Timestamp::parse)
}

/// The lengths at which Docker and podman cut the output of a health check, in bytes.
const CUT_OUTPUTS: [usize; 2] = [4096, 500];

/// The last run of the health check that failed.
fn failed_check(health: Option<&api::Health>) -> Option<&api::HealthcheckResult> {
    let log = health.and_then(|health| health.log.as_deref()).unwrap_or_default();
    log.iter().rev().find(|result| result.exit_code != Some(0))
}

/// The last lines that the failed health check printed. A line that the engine has cut is left out: a piece of it could be a
/// piece of a secret, which no mask recognises.
fn check_output(health: Option<&api::Health>) -> String {
    let output = failed_check(health).and_then(|result| result.output.as_deref()).unwrap_or_default();
    let cut = CUT_OUTPUTS.iter().any(|length| (*length..=length + "...".len()).contains(&output.len()));
    let is_cut = cut || output.len() > CUT_OUTPUTS[0];
    let whole = if is_cut { output.rsplit_once('\n').map_or("", |(whole, _)| whole) } else { output };
    last_lines(whole.as_bytes())
}

/// Why the health check fails, without its output.
fn check_failure(health: Option<&api::Health>) -> String {
    match failed_check(health) {
        Some(api::HealthcheckResult { exit_code: Some(code), output, .. })
            if output.as_deref().unwrap_or_default().trim().is_empty() =>
        {
            format!("its health check fails with code {code}")
        }
        Some(_) | None => "its health check fails".to_owned(),
    }
}

/// `healthy_since` is known with a health check.
fn readiness(state: &State, health: Option<&api::Health>, healthy_since: Option<Timestamp>) -> Readiness {
    match state {
        State::Running { since, health: Health::Healthy } => {
            Readiness::Ready { since: healthy_since.unwrap_or(*since) }
        }
        State::Running { since: _, health: Health::Starting } => {
            Readiness::Starting { reason: "its health check has not succeeded yet".to_owned() }
        }
        State::Running { since: _, health: Health::Unhealthy } => {
            Readiness::NotReady { reason: check_failure(health) }
        }
        State::Created => Readiness::NotReady { reason: "not started".to_owned() },
        State::Paused => Readiness::NotReady { reason: "paused".to_owned() },
        State::Restarting { .. } => Readiness::NotReady { reason: "restarting".to_owned() },
        State::Exited { .. } => Readiness::NotReady { reason: "exited".to_owned() },
        State::Removing | State::Dead => Readiness::NotReady { reason: "being removed".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(second: u8, exit_code: i64) -> api::HealthcheckResult {
        let end = Some(format!("2026-01-01T00:00:{second:02}Z"));
        api::HealthcheckResult { start: None, end, exit_code: Some(exit_code), output: None }
    }

    #[test]
    fn last_lines_of_a_failing_health_check_are_read() {
        let health = |results: &[(i64, &str)]| {
            let log = results.iter().map(|(code, output)| api::HealthcheckResult {
                exit_code: Some(*code),
                output: Some((*output).to_owned()),
                ..api::HealthcheckResult::default()
            });
            api::Health { log: Some(log.collect()), ..api::Health::default() }
        };
        let says = |results: &[(i64, &str)]| {
            let health = health(results);
            (check_failure(Some(&health)), check_output(Some(&health)))
        };
        let failure = |reason: &str, output: &str| (reason.to_owned(), output.to_owned());
        assert_eq!(check_failure(None), "its health check fails");
        assert_eq!(says(&[(0, "ok")]), failure("its health check fails", ""));
        assert_eq!(says(&[(7, "")]), failure("its health check fails with code 7", ""));
        let last = says(&[(1, "older"), (1, "HTTP/1.1\n 503\n"), (0, "ok")]);
        assert_eq!(last, failure("its health check fails", "HTTP/1.1\n503"));
        // Docker cuts at 4096 bytes and adds dots, podman at 500: the end may be half a secret.
        let secret = "hunter2-and-more";
        let docker = format!("first\n{}{secret}...", "x".repeat(4096 - 6 - secret.len()));
        assert_eq!(says(&[(1, &docker)]).1, "first");
        assert_eq!(says(&[(1, &docker.replace('\n', " "))]).1, "");
        let podman = format!("first\n{}{secret}", "x".repeat(500 - 6 - secret.len()));
        assert_eq!(says(&[(1, &podman)]).1, "first");
    }

    #[test]
    fn container_is_healthy_since_its_first_success() {
        let at = |second: u8| Timestamp::parse(&format!("2026-01-01T00:00:{second:02}Z"));
        let since = |results: &[api::HealthcheckResult], retries: u32| {
            let log = Some(results.to_vec());
            HealthLog::of(Some(&api::Health { log, ..api::Health::default() }), at(0)).healthy_since(retries)
        };
        assert_eq!(since(&[result(1, 1), result(2, 0), result(3, 0)], 3), at(2));
        assert_eq!(since(&[result(1, 0), result(2, 1), result(3, 0)], 3), at(1));
        let recovered = [result(1, 0), result(2, 1), result(3, 1), result(4, 0), result(5, 0)];
        assert_eq!(since(&recovered, 2), at(4));
        assert_eq!(since(&recovered, 3), None, "the log does not reach back");
    }

    /// The state of a container that was started at second 10, and has this log.
    fn read(results: &[api::HealthcheckResult], retries: i64) -> Instance {
        let json = serde_json::json!({
            "Config": { "Healthcheck": { "Test": ["CMD", "check"], "Retries": retries } },
            "State": { "Status": "running", "Running": true, "StartedAt": "2026-01-01T00:00:10Z" },
        });
        let mut found: api::ContainerInspectResponse = serde_json::from_value(json).unwrap();
        let log = Some(results.to_vec());
        let status = Some(api::HealthStatusEnum::HEALTHY);
        let health = api::Health { status, log, ..api::Health::default() };
        found.state.as_mut().unwrap().health = Some(health);
        let paths = MountPaths { content: "/c".into(), secret: "/s".into(), app: "/a".into() };
        instance(&ContainerId::from("web"), &found, &paths, &Defaults::default())
    }

    #[test]
    fn slow_start_is_no_time_of_health() {
        let at = |second: u8| Timestamp::parse(&format!("2026-01-01T00:00:{second:02}Z")).unwrap();
        let found = |results: &[api::HealthcheckResult], retries: i64| {
            let found = read(results, retries);
            assert_eq!(found.state, State::Running { since: at(10), health: Health::Healthy });
            let Readiness::Ready { since } = found.readiness else { panic!("{:?}", found.readiness) };
            (since, found.healthy_before)
        };
        let slow = |seconds: [u8; 5]| {
            let [one, two, three, four, last] = seconds;
            [result(one, 1), result(two, 1), result(three, 1), result(four, 1), result(last, 0)]
        };
        assert_eq!(found(&slow([40, 45, 50, 55, 59]), 3), (at(59), false));
        assert_eq!(found(&slow([40, 45, 50, 55, 59]), 5), (at(59), true), "it may have been healthy before");
        let steady = [40, 45, 50, 55, 59].map(|second| result(second, 0));
        assert_eq!(found(&steady, 3), (at(40), true));
        let failing = [40, 45, 50, 55, 59].map(|second| result(second, 1));
        assert_eq!(found(&failing, 9), (at(40), true));
        // The results of an earlier run are left in the log.
        assert_eq!(found(&slow([1, 2, 3, 12, 14]), 3), (at(14), false));
        let restarted = [result(1, 0), result(2, 0), result(3, 0), result(4, 0), result(14, 0)];
        assert_eq!(found(&restarted, 3), (at(14), false));
        assert_eq!(found(&[], 3), (at(10), false));
    }
}
