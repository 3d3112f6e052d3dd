//! Data that passes from one application of the agent to another: nothing starts on what a container of the other one still writes to.
//!
//! Git decides by application, not by workload: a place that both applications write to in Git is shared, under any names, and
//! nobody waits. A wait is right only while the other application gives the place up in Git, or is not in Git any more.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_model::{
    AppName, HostMount, HostSource, MountingContainer, Stack, Subject, Workload, WorkloadName,
};

use crate::{
    decide::writers::{new_places, writes_nothing, writes_to, written_place},
    draft::Draft,
    wait::Wait,
};

/// The interval at which it is looked whether a container of another application still writes: its end wakes that application alone.
pub(crate) const LOOK_AT_OTHERS: Duration = Duration::from_secs(2);

/// A container of another application of this agent that writes to what a workload is to write to, although Git does not give it to both.
struct OtherWriter<'a> {
    container: &'a MountingContainer,
    owner: &'a AppName,
    place: String,
}

/// Why a workload does not start while a container of another application of this agent writes to its data, unless both do so in Git:
/// as when a service moves to another application, or when an application was forgotten.
pub(crate) fn reason_to_wait(draft: &Draft<'_>, subject: Subject<'_>) -> Option<Wait> {
    let OtherWriter { container, owner, place } = find_writer(draft, subject)?;
    let applications = draft.facts.observed.claims.applications.as_deref()?;
    let (name, by) = (subject.name, &container.name);
    let is_in_git = applications.stacks.contains_key(owner);
    Some(if applications.is_gone(owner) {
        Wait::data_in_use_by_forgotten(name, &place, by, owner)
    } else if applications.names.contains(owner) && !is_in_git {
        Wait::data_in_use_by_leaving(name, &place, by, owner)
    } else {
        Wait::data_handed_over(name, &place, by, owner)
    })
}

fn find_writer<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Option<OtherWriter<'a>> {
    let facts = draft.facts;
    let claims = &facts.observed.claims;
    let stacks = &claims.applications.as_deref()?.stacks;
    if subject.workload.job_or_template().is_some() || writes_nothing(subject.workload) {
        return None;
    }
    let own = &facts.target.stack.app;
    let wanted = new_places(draft, subject);
    let is_meant = |container: &MountingContainer| {
        container.is_up
            && claims.is_of_agent(container, facts.target.agent)
            && facts.observed.own.as_ref() != Some(&container.id)
    };
    claims.mounting().filter(|(container, _)| is_meant(container)).find_map(|(container, owner)| {
        let owner = owner?;
        let contested = |mount: &HostMount| {
            let place = written_place(mount).filter(|place| wanted.contains(place))?;
            let is_shared = is_given_to(stacks, owner, &container.workload, &place)
                && is_given_to_services(stacks, own, &place);
            (!is_shared && !is_common(stacks, owner, mount, &place)).then_some(place)
        };
        let place = container.mounts.iter().find_map(contested)?;
        Some(OtherWriter { container, owner, place })
    })
}

type Stacks = BTreeMap<AppName, Arc<Stack>>;

/// Whether Git gives a place to services of an application.
fn is_given_to_services(stacks: &Stacks, app: &AppName, place: &String) -> bool {
    let is_writer = |workload: &Workload| workload.job_or_template().is_none() && writes_to(workload, place);
    stacks.get(app).is_some_and(|stack| stack.workloads.values().any(is_writer))
}

/// Whether Git gives a place to the application of a container. The run of a Job that writes there ends by itself, and may share data
/// with a service; a service that Git does not have any more may not, only because a Job of its application works on them.
fn is_given_to(stacks: &Stacks, app: &AppName, workload: &WorkloadName, place: &String) -> bool {
    let is_of_job = |stack: &Stack| {
        let mut jobs = stack.workloads.iter().filter(|(_, found)| found.job_or_template().is_some());
        jobs.any(|(name, job)| is_run_of(stack, name, workload) && writes_to(job, place))
    };
    is_given_to_services(stacks, app, place) || stacks.get(app).is_some_and(|stack| is_of_job(stack))
}

/// Whether a workload is a Job, or has the name of a run of it.
fn is_run_of(stack: &Stack, job: &WorkloadName, workload: &WorkloadName) -> bool {
    let plain = stack.inventory.workloads.get(job).map_or(job.as_str(), |object| &object.name);
    let rest = workload.as_str().strip_prefix(plain);
    workload == job || rest.is_some_and(|rest| rest.starts_with('-'))
}

/// Whether a folder of the host is for several applications, such as one of films: Git gives it to two of them, without the owner of a
/// container that nobody ends, as its application has left Git or was forgotten.
fn is_common(stacks: &Stacks, owner: &AppName, mount: &HostMount, place: &String) -> bool {
    let is_folder = matches!(mount.source, HostSource::Path(_));
    let has_it = |app: &&AppName| is_given_to_services(stacks, app, place);
    is_folder && !stacks.contains_key(owner) && stacks.keys().filter(has_it).count() >= 2
}
