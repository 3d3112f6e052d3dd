//! Services that end: hooks, and services with a schedule. They become templates of Jobs.

use std::collections::BTreeMap;

use driftless_model::{
    Completion, Condition, EngineKind, FailureRule, Finding, Healthcheck, Job, Kind, ObjectRef,
    RestartPolicy, Strategy, Workload, WorkloadKind, WorkloadName,
};

use crate::{
    lower::context::Lowering,
    read::types::{JobCause, JobSetting, Service},
    spec::value::Placed,
};

/// The retries of a Job that `restart: on-failure` does not limit: those of Kubernetes.
const RETRIES: u32 = 6;

impl Lowering<'_> {
    /// Makes a service with `x-driftless.hook` or `x-driftless.schedule` the template of its Jobs.
    pub(super) fn as_template(&mut self, key: &str, service: &Service, mut workload: Workload) -> Workload {
        let Some(setting) = &service.job else { return workload };
        self.findings.extend(obstacles(service, setting, &workload));
        let backoff_limit = match workload.container.restart {
            RestartPolicy::OnFailure { max_retries } => max_retries.unwrap_or(RETRIES),
            RestartPolicy::No | RestartPolicy::Always | RestartPolicy::UnlessStopped => 0,
        };
        let JobSetting { cause, deadline } = &setting.value;
        let once = Job::once(WorkloadName(key.to_owned()));
        let template = Job { backoff_limit, active_deadline: *deadline, ..once };
        workload.container.restart = RestartPolicy::No;
        let kind = match cause {
            JobCause::Hook(phase) => WorkloadKind::Hook { phase: *phase, template },
            JobCause::Schedule(schedule) => {
                WorkloadKind::CronJob { schedule: schedule.as_ref().clone(), template }
            }
        };
        let (strategy, completion) = (Strategy::Recreate, Completion::OnSuccess);
        let (failure, rollback) = (FailureRule::default(), None);
        let canary = Vec::new();
        Workload { replicas: 0, strategy, completion, kind, failure, rollback, canary, ..workload }
    }

    /// The objects of the templates, as `kubectl`'s words show them.
    pub(super) fn objects(
        &self,
        workloads: &BTreeMap<WorkloadName, Workload>,
    ) -> BTreeMap<WorkloadName, ObjectRef> {
        let object = |(name, workload): (&WorkloadName, &Workload)| {
            let kind = match &workload.kind {
                WorkloadKind::CronJob { .. } => Kind::CronJob,
                WorkloadKind::Hook { .. } => Kind::Job,
                WorkloadKind::Replicas | WorkloadKind::StatefulSetPod(_) | WorkloadKind::Job(_) => {
                    return None;
                }
            };
            Some((name.clone(), ObjectRef { kind, namespace: self.app.clone(), name: name.to_string() }))
        };
        workloads.iter().filter_map(object).collect()
    }

    /// Reports dependencies that cannot be met: on a template, which never runs itself, on a later wave, on the health of a service
    /// without a health check, and on the end of one that is always restarted.
    pub(super) fn check_order(&mut self, workloads: &BTreeMap<WorkloadName, Workload>) {
        for (name, workload) in workloads {
            let Some(service) = self.project.services.get(name.as_str()) else { continue };
            for dependency in &workload.after {
                let Some(on) = workloads.get(&dependency.workload) else { continue };
                let of = &dependency.workload;
                let message = if let Some(phase) = on.hook() {
                    format!(
                        "depends on the hook `{of}`, which runs by itself ({phase}): remove the dependency"
                    )
                } else if on.schedule().is_some() {
                    format!("depends on `{of}`, which runs by its schedule only: remove the dependency")
                } else if on.wave > workload.wave {
                    format!(
                        "depends on `{of}` of wave {}, which comes after wave {} of `{name}`: give `{name}` the same wave or a higher one",
                        on.wave, workload.wave
                    )
                } else if dependency.condition == Condition::Healthy
                    && dependency.required
                    && on.container.healthcheck.as_ref().is_some_and(Healthcheck::is_disabled)
                {
                    format!(
                        "waits until `{of}` is healthy, and the health check of `{of}` is disabled: give it a `test`, or use \
                         `condition: service_started`"
                    )
                } else if dependency.condition == Condition::CompletedSuccessfully
                    && on.completion == Completion::Never
                    && self.engine == EngineKind::Docker
                {
                    format!(
                        "waits until `{of}` has completed, and `{of}` is always restarted: give it `restart: on-failure` or `no`"
                    )
                } else {
                    continue;
                };
                let written = service.depends_on.iter().find(|it| it.value.service == of.as_str());
                self.findings.push(match written {
                    Some(place) => place.error(message),
                    None => Finding::error(service.origin.clone(), format!("services.{name}"), message),
                });
            }
        }
    }
}

/// Settings that a service cannot have that ends and runs again.
fn obstacles(service: &Service, setting: &Placed<JobSetting>, workload: &Workload) -> Vec<Finding> {
    let what = match setting.value.cause {
        JobCause::Hook(_) => "a hook",
        JobCause::Schedule(_) => "a service with a schedule",
    };
    let restarts = matches!(workload.container.restart, RestartPolicy::Always | RestartPolicy::UnlessStopped);
    let is_hook = matches!(setting.value.cause, JobCause::Hook(_));
    let all = [
        (restarts, "ends, so its `restart` is `no` or `on-failure`"),
        (workload.replicas != 1, "runs once at a time: remove `replicas` and `scale`"),
        (
            workload.container_name.is_some(),
            "has a container of its own for each run: remove `container_name`",
        ),
        (service.proxy.is_some(), "serves no requests: remove `x-driftless.proxy`"),
        (
            workload.failure.is_given() || workload.rollback.is_some(),
            "is not updated while it runs: remove `failure_action`, `max_failure_ratio` and `rollback_config`",
        ),
        (service.canary.is_some(), "is not updated while it runs: remove `x-driftless.canary`"),
        (
            is_hook && !workload.after.is_empty(),
            "depends on no service: its phase says when it runs, and `x-driftless.wave` orders hooks of one phase; remove \
             `depends_on`, `links` and shared namespaces",
        ),
    ];
    let found = all.into_iter().filter(|(is_so, _)| *is_so);
    found.map(|(_, why)| setting.error(format!("{what} {why}"))).collect()
}
