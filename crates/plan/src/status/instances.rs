//! The status of workloads and their instances, and of the containers of their pods.

use driftless_model::{
    CanaryStatus, HealthStatus, Instance, InstanceStatus, Part, PartOf, PartSpec, PartStatus, Port, Record,
    Role, State, StatusCondition, Subject, Workload, WorkloadStatus,
};

use crate::{
    facts::{
        canary::current_step,
        jobs::is_over,
        objects,
        standing::{crash_of, is_completed, is_crash_looping},
    },
    status::{
        conditions::{self, WorkloadFacts},
        counts::{Counts, is_ready},
        health::health,
        inputs::Inputs,
        kube,
        remark::remark,
        work::WorkloadHealth,
    },
    text::NO_CODE,
    wait::{Wait, WaitReason},
};

/// The status of one workload. `before` are its conditions in the status before this one.
pub(crate) fn workload_status(
    inputs: Inputs<'_>,
    subject: Subject<'_>,
    counts: &Counts<'_>,
    before: &[StatusCondition],
) -> WorkloadStatus {
    let Inputs { stack, observed, record, plan, now, .. } = inputs;
    let workload = subject.workload;
    let WorkloadHealth { mut health, reason, message } = health(inputs, subject, counts);
    // The run of a CronJob is no rollout.
    if workload.is_run_of_cron() && health == HealthStatus::Progressing {
        health = HealthStatus::Healthy;
    }
    // A suspended application makes no progress.
    if plan.is_suspended() && health == HealthStatus::Progressing {
        health = HealthStatus::Suspended;
    }
    let is_late = |wait: &&Wait| wait.is(WaitReason::ProgressDeadlineExceeded) && wait.concerns(subject.name);
    let late = plan.waits.iter().find(is_late);
    let pod = objects::pod(stack, subject);
    let instance =
        |it: &&Instance| InstanceStatus { pod: pod.clone(), ..instance_status(inputs, it, workload, counts) };
    let facts = WorkloadFacts { workload, counts, late, reason: &reason, message: &message };
    WorkloadStatus {
        health,
        conditions: conditions::of_workload(facts, now, before),
        reason,
        message,
        image: kube::images(workload),
        replicas: workload.replicas,
        spec: kube::spec(stack, subject, counts, record),
        updated_replicas: counts.updated(),
        old_replicas: counts.old(),
        ready_replicas: counts.ready(),
        available_replicas: counts.available,
        instances: counts.all.iter().map(instance).collect(),
        awaited: kube::awaited(stack, subject, counts, record, plan),
        job: kube::job(stack, workload, observed, record),
        cron: kube::cron(subject, record),
        hook: workload.hook().or_else(|| Some(workload.job()?.hook.as_ref()?.phase)),
        wave: workload.wave,
        canary: canary(inputs, subject, counts),
        origin: workload.origin.to_string(),
    }
}

/// The step of its canary that a workload is at.
fn canary(
    inputs: Inputs<'_>,
    Subject { name, workload }: Subject<'_>,
    counts: &Counts<'_>,
) -> Option<CanaryStatus> {
    let current = current_step(inputs.record, name, workload, &counts.spec)?;
    let paused = inputs.plan.waits.iter().any(|wait| wait.is(WaitReason::Canary) && wait.concerns(name));
    let until = current.until().filter(|_| paused);
    Some(CanaryStatus {
        step: current.number,
        steps: current.of,
        instances: current.instances,
        paused,
        until,
    })
}

/// The status of one instance, and of the containers of its pod.
fn instance_status(
    inputs: Inputs<'_>,
    instance: &Instance,
    workload: &Workload,
    counts: &Counts<'_>,
) -> InstanceStatus {
    let Inputs { observed, record, now, .. } = inputs;
    // An init container of an older pod has ended as it should.
    let has_prepared = instance.part.as_ref().is_some_and(|it| it.role == Role::Init)
        && matches!(instance.state, State::Exited { code: 0, .. });
    let is_completed =
        has_prepared || (instance.spec == counts.spec && is_completed(record, observed, workload, instance));
    let is_crashing = is_crash_looping(record, instance, now) && !is_over(record, inputs.stack, workload);
    let (state, since) = match &instance.state {
        State::Created => ("Created".to_owned(), Some(instance.created)),
        State::Running { since, health: _ } => ("Running".to_owned(), Some(*since)),
        State::Paused => ("Paused".to_owned(), None),
        State::Restarting { finished, .. } => ("Restarting".to_owned(), Some(*finished)),
        State::Exited { finished, .. } if is_completed => ("Completed".to_owned(), Some(*finished)),
        State::Exited { finished, .. } if is_crashing => ("CrashLoopBackOff".to_owned(), Some(*finished)),
        State::Exited { code: NO_CODE, finished, .. } => ("Failed".to_owned(), Some(*finished)),
        State::Exited { code, finished, .. } => (format!("Exited ({code})"), Some(*finished)),
        State::Removing => ("Removing".to_owned(), None),
        State::Dead => ("Dead".to_owned(), None),
    };
    let containers = parts(inputs, instance, workload, counts);
    let restarts = containers.iter().filter_map(|it| it.instance.as_ref()).map(|it| it.restarts).sum();
    let state = match &instance.state {
        State::Running { .. } => kube::pod_state(&containers).unwrap_or(state),
        _ => state,
    };
    let image =
        if containers.is_empty() { instance.config.image.clone() } else { kube::images_of(&containers) };
    InstanceStatus {
        name: instance.name.clone(),
        pod: None,
        container: instance.id.short().to_owned(),
        slot: instance.instance.slot,
        state,
        ready: is_ready(instance),
        available: counts.is_available(instance),
        updated: counts.is_updated(instance),
        restarts: instance.restarts.max(restarts_of(record, instance)).max(restarts),
        crashes: crash_of(record, instance).map_or(0, |crash| crash.count),
        since,
        message: remark(instance),
        spec: instance.spec.short().to_owned(),
        ports: match instance.bound_ports.as_slice() {
            [] => instance.config.ports.iter().map(port).collect(),
            bound => bound.iter().map(port).collect(),
        },
        image,
        created: Some(instance.created),
        started: instance.started,
        exit: kube::exit(instance),
        ip: instance.networks.values().find_map(|it| it.ip.clone()),
        traffic: inputs.proxies.and_then(|proxies| proxies.traffic(instance)),
        containers,
    }
}

/// Number of starts after the first: one less than the number of ends, until the container runs again.
fn restarts_of(record: &Record, instance: &Instance) -> u32 {
    let ends = record.ends.get(&instance.id).copied().unwrap_or_default();
    let runs_again = match instance.state {
        // A container that failed its liveness probe has ended as well, but runs until it is stopped.
        State::Running { since, .. } => {
            crash_of(record, instance).is_none_or(|crash| crash.dead_run != Some(since))
        }
        State::Paused => true,
        State::Created | State::Restarting { .. } | State::Exited { .. } | State::Removing | State::Dead => {
            false
        }
    };
    if runs_again { ends } else { ends.saturating_sub(1) }
}

/// The containers of a pod, including those that do not exist yet.
fn parts(inputs: Inputs<'_>, pod: &Instance, workload: &Workload, counts: &Counts<'_>) -> Vec<PartStatus> {
    let found = inputs.observed.parts_of(&pod.id);
    let status = |it: &Instance, of: &Workload| Some(Box::new(instance_status(inputs, it, of, counts)));
    if pod.spec == counts.spec {
        let named =
            |name: &str| found.iter().find(|it| it.part.as_ref().is_some_and(|of| of.name == name)).copied();
        let one = |part: &Part| PartStatus {
            spec: kube::part_spec(part),
            instance: named(&part.name).and_then(|found| status(found, &workload.of_part(part))),
        };
        return workload.parts.iter().map(one).collect();
    }
    let one = |found: &&Instance| {
        let PartOf { pod: _, name, role, downward: _ } = found.part.clone()?;
        let spec = PartSpec { name, role, image: found.config.image.clone() };
        Some(PartStatus { spec, instance: status(found, workload) })
    };
    found.iter().filter_map(one).collect()
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
