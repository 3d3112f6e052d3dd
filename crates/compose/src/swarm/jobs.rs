//! Services of a Swarm that end: those in the mode of a Job, those whose completion others wait for, hooks, and services with a
//! schedule.

use driftless_model::{
    Completion, Job, RestartPolicy, Strategy, SwarmMode, SwarmRestart, SwarmService, Workload, WorkloadKind,
    WorkloadName,
};

use crate::spec::value::Value;

/// Keys of `deploy` that a Job does not have: it is run again, and not updated.
const OF_UPDATES: &[&str] = &["update_config", "rollback_config"];

/// Makes a service a Job, if it is one. `awaited_by` is a service that waits for its completion.
pub(super) fn complete(
    value: &Value<'_>,
    name: &WorkloadName,
    workload: &mut Workload,
    service: &mut SwarmService,
    awaited_by: Option<&WorkloadName>,
) {
    let is_template = workload.job_or_template().is_some();
    if !service.mode.is_job() && !is_template && awaited_by.is_none() {
        return;
    }
    if is_template && !matches!(service.mode, SwarmMode::Replicated | SwarmMode::ReplicatedJob) {
        value.error("a hook, or a service with a schedule, runs one task: remove `deploy.mode`");
    }
    service.mode = match service.mode {
        SwarmMode::Replicated | SwarmMode::ReplicatedJob => SwarmMode::ReplicatedJob,
        SwarmMode::Global | SwarmMode::GlobalJob => SwarmMode::GlobalJob,
    };
    let policy = value.node.get("deploy").and_then(|deploy| deploy.get("restart_policy"));
    let is_given = policy.is_some_and(|policy| policy.get("condition").is_some_and(|it| !it.is_null()));
    if let Some(restart) = service.restart.as_mut().filter(|_| policy.is_some() && !is_given) {
        "on-failure".clone_into(&mut restart.condition);
    }
    check(value, service, awaited_by);
    if let Some(template) = workload.job_or_template() {
        let limit = retries(template.backoff_limit);
        let restart = service.restart.get_or_insert_with(|| limit.clone());
        restart.max_attempts = restart.max_attempts.or(limit.max_attempts);
        return;
    }
    let job = Job {
        completions: Some(workload.replicas).filter(|_| service.mode == SwarmMode::ReplicatedJob),
        parallelism: workload.replicas,
        // The Swarm limits the tries of each task. All together have no limit.
        backoff_limit: u32::MAX,
        ..Job::once(name.clone())
    };
    workload.container.restart = RestartPolicy::No;
    workload.replicas = workload.replicas.min(1);
    (workload.strategy, workload.completion) = (Strategy::Recreate, Completion::OnSuccess);
    workload.kind = WorkloadKind::Job(job);
}

fn retries(limit: u32) -> SwarmRestart {
    let condition = if limit == 0 { "none" } else { "on-failure" };
    SwarmRestart {
        condition: condition.to_owned(),
        max_attempts: Some(u64::from(limit)).filter(|it| *it > 0),
        ..SwarmRestart::default()
    }
}

/// Reports what a Job does not have.
fn check(value: &Value<'_>, service: &SwarmService, awaited_by: Option<&WorkloadName>) {
    let why = awaited_by
        .map_or_else(|| "it is a Job".to_owned(), |other| format!("`{other}` waits for its completion"));
    let deploy = value.node.get("deploy").map(|node| value.key("deploy", node));
    for (key, value) in deploy.iter().flat_map(Value::pairs) {
        if OF_UPDATES.contains(&key) && !value.node.is_null() {
            value.error_help(
                format!("Docker Swarm does not update a Job, and {why}"),
                "remove it: a changed Job is run again",
            );
        }
    }
    if service.restart.as_ref().is_none_or(|restart| restart.condition != "any") {
        return;
    }
    let policy = deploy.as_ref().and_then(|deploy| {
        Some(deploy.key("restart_policy", deploy.node.get("restart_policy").filter(|it| !it.is_null())?))
    });
    let place = match (policy, value.node.get("restart")) {
        (Some(policy), _) => policy,
        (None, Some(restart)) => value.key("restart", restart),
        (None, None) => value.clone(),
    };
    place.error_help(
        format!("a task that has completed is not started again: {why}"),
        "use `on-failure` or `no`; in `deploy.restart_policy`, the `condition` is `on-failure` or `none`",
    );
}
