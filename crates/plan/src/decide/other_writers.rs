//! Data that passes from one application of the agent to another: nothing starts on what a container of the other one still writes to.
//!
//! Git decides by application: a place that both applications write to in Git is shared, under any names of their services, and nobody
//! waits. A container of a service that Git does not have any more is the exception: what others of its application write to is not its
//! own, except on a folder whose new service has no container yet, or where these two services have written together before. That others
//! have, such as one that makes backups, says nothing about a database. Nor is a volume shared by surprise while the newest manifests of the
//! other application are not known: a service that is new there waits, as they may give the volume up. Services of a Swarm wait for managed
//! applications in the same way.
//!
//! Nor does a service start on data that Docker Compose still writes to for it, under another name of the project.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use driftless_model::{
    AppName, HostMount, HostSource, Instance, ManagedApplications, MountingContainer, Stack, Subject,
    Workload, WorkloadName,
};

use crate::{
    decide::writers::{new_places, written_by},
    draft::Draft,
    facts::{
        Facts,
        places::{
            Place, Stacks, is_common, is_given_to, is_given_to_services, is_job_of, places, writes_nothing,
            writes_to, written_place,
        },
        sharing::Sharing,
    },
    wait::Wait,
};

/// The interval at which it is looked whether a container of another application still writes: its end wakes that application alone.
pub(crate) const LOOK_AT_OTHERS: Duration = Duration::from_secs(2);

/// A container of another application of this agent that writes to what a workload writes to, although Git does not give it to its service.
struct OtherWriter<'a> {
    container: &'a MountingContainer,
    owner: &'a AppName,
    place: Place,
}

/// Why a workload does not start while a container of another application of this agent writes to its data, unless they share them:
/// as when a service moves to another application, or when an application was forgotten.
pub(crate) fn reason_to_wait(draft: &Draft<'_>, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, workload } = subject;
    if workload.job_or_template().is_some() || writes_nothing(workload) {
        return None;
    }
    let held: BTreeSet<Place> = workload.containers().flat_map(places).collect();
    // Nobody is about to stop what Git has given away.
    reason_not_to_take_back(draft, name, &held)
        .or_else(|| reason_to_wait_for_new_places(draft, subject))
        .or_else(|| reason_to_wait_for_other_project(draft, subject, &held))
}

fn reason_to_wait_for_new_places(draft: &Draft<'_>, subject: Subject<'_>) -> Option<Wait> {
    let applications = draft.facts.observed.claims.applications.as_deref()?;
    let stacks = &applications.stacks;
    let own = &draft.facts.target.stack.app;
    let is_unread = |app: &AppName| applications.unread.contains(app);
    let name = subject.name;
    let wanted = new_places(draft, subject);
    let found = find_writer(draft, &wanted, |container, owner, mount, place| {
        let is_usual = || has_shared(draft, name, owner, &container.workload, place);
        let may_share = || is_given_to_services(stacks, own, place) || is_usual();
        let is_given = is_given_to(stacks, owner, &container.workload, place) && may_share();
        let is_left =
            || is_left_service(stacks, container) && !is_renamed(draft, stacks, owner, mount, place);
        let is_shared = is_given && (!is_left() || is_usual());
        // The commit that gives the volume to this workload may take it from the other one, whose application has not read that yet.
        let is_unclear =
            || is_unread(owner) && place.is_volume() && !is_job(stacks, owner, container) && !is_usual();
        (!is_shared || is_unclear()) && !is_common(stacks, [own, owner], place)
    });
    let OtherWriter { container, owner, place } = found?;
    let by = &container.name;
    Some(if applications.is_gone(owner) {
        Wait::data_in_use_by_forgotten(name, &place, by, owner)
    } else {
        wait_for_managed(applications, name, &place, by, owner)
    })
}

/// Why a workload does not start while Docker Compose runs it in another project, which is not adopted: as when the folder in Git has
/// another name than the project. Services of other names may share folders with it. So does one of the same name that has folders which
/// this workload does not have, and lacks some of it: it is another service. So is one that lacks a folder which this workload has had
/// here before. Nor does a folder count that Git gives to that project or, as one of films, to two other applications.
fn reason_to_wait_for_other_project(
    draft: &Draft<'_>,
    subject: Subject<'_>,
    held: &BTreeSet<Place>,
) -> Option<Wait> {
    let facts = draft.facts;
    let (claims, stack, name) = (&facts.observed.claims, facts.target.stack, subject.name);
    let is_meant = |container: &MountingContainer| {
        container.is_up
            && container.agent.is_none()
            && container.workload == *name
            && facts.observed.own.as_ref() != Some(&container.id)
    };
    let meant = claims.mounting().filter(|(container, owner)| owner.is_none() && is_meant(container));
    let mut meant = meant
        .filter_map(|(container, _)| Some((container, facts.other_project(&container.name)?)))
        .peekable();
    meant.peek()?;
    let wanted = new_places(draft, subject);
    let stacks = claims.applications.as_deref().map(|applications| &applications.stacks);
    // The volumes of two projects have different names, and relative folders lie in different places.
    let is_folder = |place: &Place| !place.is_volume() && !place.is_in_own_folder();
    let has_all = |one: &BTreeSet<Place>, of: &BTreeSet<Place>| !of.difference(one).any(is_folder);
    meant.find_map(|(container, project)| {
        let written: BTreeSet<Place> = container.mounts.iter().filter_map(written_place).collect();
        let shares = |place: &Place| {
            let is_given = |stacks: &Stacks| {
                let has_it = |other: &&Arc<Stack>| {
                    other.app != stack.app && is_given_to_services(stacks, &other.app, place)
                };
                let others = || stacks.values().filter(has_it);
                // One alone may make backups of a database.
                let is_for_many = !place.is_volume() && others().count() >= 2;
                is_for_many || others().any(|other| other.project == project)
            };
            stacks.is_some_and(is_given)
        };
        let has_own = held.difference(&written).any(|place| is_folder(place) && !wanted.contains(place));
        // All folders of the container would be shared: it is this service, although this one has more.
        let takes_all = written.iter().filter(|place| is_folder(place)).all(|place| wanted.contains(place));
        if (has_own && !takes_all) || (!has_all(held, &written) && !has_all(&written, held)) {
            return None;
        }
        let place = written.iter().find(|place| wanted.contains(*place) && !shares(place))?;
        let (by, adoptable) = (&container.name, facts.adoptable_project(&container.name));
        Some(Wait::data_in_use_by_other_project(name, place, by, project, adoptable))
    })
}

/// A wait for a container or service of an application that the agent manages, which writes to a place.
pub(crate) fn wait_for_managed(
    applications: &ManagedApplications,
    name: &WorkloadName,
    place: &Place,
    by: &str,
    owner: &AppName,
) -> Wait {
    let is_in_git = applications.stacks.contains_key(owner);
    if applications.unread.contains(owner) && (place.is_volume() || !is_in_git) {
        Wait::data_in_use_by_unread(name, place, by, owner)
    } else if applications.names.contains(owner) && !is_in_git {
        Wait::data_in_use_by_leaving(name, place, by, owner)
    } else {
        Wait::data_handed_over(name, place, by, owner)
    }
}

/// Why an older version of a service does not start on the places that it has always had: Git has given them to another application
/// since, which writes to them by now.
pub(crate) fn reason_not_to_take_back(
    draft: &Draft<'_>,
    name: &WorkloadName,
    held: &BTreeSet<Place>,
) -> Option<Wait> {
    let facts = draft.facts;
    let stacks = &facts.observed.claims.applications.as_deref()?.stacks;
    let own = &facts.target.stack.app;
    let workload = facts.target.stack.workloads.get(name);
    if held.is_empty()
        || !stacks.contains_key(own)
        || workload.is_some_and(|workload| workload.job_or_template().is_some())
    {
        return None;
    }
    let found = find_writer(draft, held, |container, owner, _, place| {
        is_given_to_services(stacks, owner, place)
            && !goes_on(draft, stacks, name, place)
            && !has_shared(draft, name, owner, &container.workload, place)
    });
    let OtherWriter { container, owner, place } = found?;
    Some(Wait::data_given_away(name, &place, &container.name, owner, own))
}

/// Why a container that is down is not started again, although nobody writes to its data: Git gives them to a service of another
/// application, and no longer to the container's own service. The other service starts as soon as this container is down, so that both
/// would start at the same moment.
pub(crate) fn reason_to_stay_down(draft: &Draft<'_>, instance: &Instance) -> Option<Wait> {
    let Facts { target, observed, .. } = *draft.facts;
    let stacks = &observed.claims.applications.as_deref()?.stacks;
    let (own, name) = (&target.stack.app, &instance.instance.workload);
    let is_job = target.definition(instance).is_some_and(|workload| workload.job_or_template().is_some());
    // The newest manifests may still give the data to a service that they have.
    let is_unknown = !stacks.contains_key(own) && target.stack.workloads.contains_key(name);
    if is_job || is_unknown {
        return None;
    }
    let takes = |app: &AppName, stack: &Stack, place: &Place| {
        stack.workloads.iter().any(|(taker, workload)| {
            workload.job_or_template().is_none()
                && writes_to(workload, place)
                && !has_shared(draft, name, app, taker, place)
        })
    };
    let mut given = written_by(draft, instance)
        .into_iter()
        .filter(|place| !place.is_in_own_folder() && !goes_on(draft, stacks, name, place));
    given.find_map(|place| {
        let mut others = stacks.iter().filter(|(app, _)| *app != own);
        let (receiver, _) = others.find(|(app, stack)| takes(app, stack, &place))?;
        Some(Wait::data_promised(name, &place, receiver, own))
    })
}

/// Whether Git still gives a place to this service, or a folder of the host to a later name of it. A neighbour that both versions have does
/// not go on with its data, nor does a new one on its volume, such as one that makes backups.
fn goes_on(draft: &Draft<'_>, stacks: &Stacks, name: &WorkloadName, place: &Place) -> bool {
    let stack = draft.facts.target.stack;
    let is_later = |other: &WorkloadName| !place.is_volume() && !stack.workloads.contains_key(other);
    let is_it = |other: &WorkloadName| other == name || is_later(other);
    let is_writer = |workload: &Workload| workload.job_or_template().is_none() && writes_to(workload, place);
    let mut workloads = stacks.get(&stack.app).into_iter().flat_map(|newest| &newest.workloads);
    workloads.any(|(other, workload)| is_it(other) && is_writer(workload))
}

/// A running container of another application that writes to one of these places, for which a rule holds.
fn find_writer<'a>(
    draft: &Draft<'a>,
    wanted: &BTreeSet<Place>,
    is_contested: impl Fn(&MountingContainer, &AppName, &HostMount, &Place) -> bool,
) -> Option<OtherWriter<'a>> {
    if wanted.is_empty() {
        return None;
    }
    let facts = draft.facts;
    let claims = &facts.observed.claims;
    let is_meant = |container: &MountingContainer| {
        container.is_up
            && claims.is_of_agent(container, facts.target.agent)
            && facts.observed.own.as_ref() != Some(&container.id)
    };
    claims.mounting().filter(|(container, _)| is_meant(container)).find_map(|(container, owner)| {
        let owner = owner?;
        let contested = |mount: &HostMount| {
            let place = written_place(mount).filter(|place| wanted.contains(place))?;
            is_contested(container, owner, mount, &place).then_some(place)
        };
        let place = container.mounts.iter().find_map(contested)?;
        Some(OtherWriter { container, owner, place })
    })
}

/// Whether a workload and one of another application have written to a place at the same time before.
fn has_shared(
    draft: &Draft<'_>,
    name: &WorkloadName,
    owner: &AppName,
    other: &WorkloadName,
    place: &Place,
) -> bool {
    let Facts { target, observed, record, .. } = *draft.facts;
    if record.shared_places.is_empty() {
        return false;
    }
    let (own, other) = (name.whole(), other.whole());
    let sharing = Sharing { known: &record.shared_places, place, own: &own, with: owner, other: &other };
    let applications = observed.claims.applications.as_deref();
    let stack = applications.and_then(|applications| applications.stacks.get(owner));
    sharing.is_usual(target.stack, stack.map(Arc::as_ref))
}

/// Whether a container is a run of a Job of its application, which ends by itself.
fn is_job(stacks: &Stacks, owner: &AppName, container: &MountingContainer) -> bool {
    stacks.get(owner).is_some_and(|stack| is_job_of(stack, &container.workload))
}

/// Whether a container is one of a service that Git does not have any more, although it still has its application. What other services
/// of that application write to is no more its own.
fn is_left_service(stacks: &Stacks, container: &MountingContainer) -> bool {
    let (app, workload) = (container.app.as_ref(), &container.workload);
    let stack = app.filter(|_| !workload.as_str().is_empty()).and_then(|app| stacks.get(app));
    stack.is_some_and(|stack| !stack.workloads.contains_key(&workload.whole()) && !is_job_of(stack, workload))
}

/// Whether an application has a folder of the host in Git for a service of which there is no container yet. That may be the other name
/// of a service that Git does not have any more: it comes when the container of that one has ended.
fn is_renamed(draft: &Draft<'_>, stacks: &Stacks, owner: &AppName, mount: &HostMount, place: &Place) -> bool {
    let has_container = |name: &WorkloadName| {
        let mut mounting = draft.facts.observed.claims.mounting();
        mounting.any(|(container, of)| of == Some(owner) && container.workload.whole() == *name)
    };
    let is_new = |(name, workload): (&WorkloadName, &Workload)| {
        workload.job_or_template().is_none() && writes_to(workload, place) && !has_container(name)
    };
    matches!(mount.source, HostSource::Path(_))
        && stacks.get(owner).is_some_and(|stack| stack.workloads.iter().any(is_new))
}
