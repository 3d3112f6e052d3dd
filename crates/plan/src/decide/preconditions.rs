//! Preconditions of new instances: images, dependencies, networks, ports and names.
//!
//! This module finds what is in the way, and the steps that clear it. [`crate::decide::rollout`] decides how many instances
//! are created.
//!
//! The first thing in the way is the one that is reported. In this order: a fixed name, another agent, what Git has given to others,
//! containers that write to the data (those of an older version, those of Docker Compose, those of other applications, those that Git
//! does not have any more), and containers with the name, a port or an address.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    AppName, Attachment, Attempt, Claims, Condition, Container, Dependency, Health, Instance, MountSource,
    Peer, Port, SpecHash, State, Subject, Update, Workload, WorkloadName,
};

use crate::{
    cause::Cause,
    decide::{addresses, images, namespaces, other_writers, platform, stateful_order, waves, writers},
    draft::Draft,
    facts::{
        ownership::{is_usable_network, is_usable_volume},
        places::{Place, places},
        standing::{awaits_run_with_files, crash_of, failure, has_run_and_ended, has_run_hooks, is_up},
    },
    wait::{Wait, WaitObject},
};

/// The time after which it is checked whether a process of the host still holds a port.
const PROCESS_CHECK: Duration = Duration::from_secs(10);

/// The number of failures in a row after which a container counts as one that cannot start.
const FAILURES_OF_OBSTRUCTED: u32 = 3;

/// Why new instances cannot be created in this round, if they cannot.
pub(crate) enum Preconditions {
    /// They can, after these steps.
    Met(Vec<usize>),
    /// They cannot, and what runs stays as it is.
    Unmet,
    /// Old instances that are being replaced are in the way: remove them now, and create in the next round.
    /// Their removal waits for these steps.
    MakeRoom(Vec<usize>),
}

/// Whether new instances of a workload may be created now.
pub(crate) fn check(draft: &mut Draft<'_>, subject: Subject<'_>) -> Preconditions {
    let Subject { name, workload } = subject;
    if let Some(wait) = stateful_order::reason_to_wait(draft, subject) {
        draft.wait(wait);
        return Preconditions::Unmet;
    }
    // Of workloads that it shares with, one instance is enough: see `namespaces::choose` below.
    let is_shared = |it: &&Dependency| {
        let peer = Peer::Workload(it.workload.clone());
        it.condition == Condition::Started && workload.container.peers().any(|it| *it == peer)
    };
    for dependency in workload.after.iter().filter(|it| !is_shared(it)) {
        let needed = needed_version(draft, subject, dependency);
        if let Some(reason) = reason_unmet(draft, dependency, needed) {
            draft.wait(Wait::dependency(name, &dependency.workload, &reason));
            return Preconditions::Unmet;
        }
    }
    let newest = workload.containers().filter_map(Container::needs).max_by_key(|it| it.api);
    if let (Some(speaks), Some(need)) = (draft.facts.observed.engine_api, newest)
        && speaks < need.api
    {
        let object = WaitObject::Workload(name.clone());
        draft.wait(Wait::engine_too_old(object, &need.field, need.api, speaks));
        return Preconditions::Unmet;
    }
    if let Some(wait) = platform::objection(draft.facts, subject) {
        draft.wait(wait);
        return Preconditions::Unmet;
    }
    // The image of an instance that is replaced for another reason than its spec may be gone from the host.
    let can_be_had = images::obtain_all(draft, subject);
    let parts = workload.parts.iter().map(|it| draft.facts.image(&workload.of_part(it)));
    let images: Vec<String> = parts.chain([draft.facts.image(workload)]).collect();
    let is_here =
        |image: &String| draft.facts.has_image(workload, image) && draft.facts.is_verified(workload, image);
    let is_known = |image: &String| is_here(image) || draft.pull_of(workload, image).is_some();
    let are_known = images.iter().all(is_known) && workload.mounted_images().all(is_known);
    if !can_be_had || !are_known {
        // The pull is backing off; that is said where pulls are planned.
        return Preconditions::Unmet;
    }
    let Some(peers) = namespaces::choose(draft, name, &workload.container) else {
        return Preconditions::Unmet;
    };
    draft.peers.insert(name.clone(), peers);
    let Some(provided) = needs(draft, subject) else { return Preconditions::Unmet };
    // All images of the commit, not only its own: nothing is stopped for a version that is not complete.
    let mut after: Vec<usize> = draft.pull_steps().into_iter().chain(provided).collect();
    match contest(draft, subject) {
        Contest::Free(Freed { steps, handed_over }) => {
            after.extend(steps);
            if handed_over.is_empty() {
                return Preconditions::Met(after);
            }
            let Some(last) = before_handing_over(draft, subject) else { return Preconditions::Unmet };
            after.extend(last);
            for holder in handed_over {
                let volumes = holder.anonymous_volumes.clone();
                if !volumes.is_empty() {
                    draft.plan.left_volumes.insert(holder.instance.to_string(), volumes);
                }
                let removal = draft.remove(holder, &Cause::SpecChanged, &after);
                after.push(removal);
            }
            Preconditions::Met(after)
        }
        Contest::Swapped => Preconditions::MakeRoom(after),
        Contest::Taken { by, what } => {
            if by == Claims::HOST_PROCESS {
                // Its end is no event of the engine.
                draft.look_again(draft.facts.now.after(PROCESS_CHECK));
            }
            let holder = draft.facts.observed.claims.name_holder(&by);
            let owner = holder.and_then(|holder| holder.app.clone());
            let project = draft.facts.adoptable_project(&by);
            let object = WaitObject::Workload(name.clone());
            draft.wait(Wait::blocked(object, &what, &by, owner.as_ref(), project));
            Preconditions::Unmet
        }
        Contest::Kept(wait) => {
            draft.wait(wait);
            Preconditions::Unmet
        }
        Contest::KeptElsewhere(wait) => {
            draft.look_again(draft.facts.now.after(other_writers::LOOK_AT_OTHERS));
            draft.wait(wait);
            Preconditions::Unmet
        }
    }
}

/// The last steps before a container of another workload makes way. `None`: it would make way for nothing, as an image is missing, or
/// somebody has the name of the new container.
fn before_handing_over(draft: &mut Draft<'_>, subject: Subject<'_>) -> Option<Vec<usize>> {
    let name = subject.name;
    if !draft.missing_images.is_empty() {
        let missing = draft.missing_image_names();
        draft.wait(Wait::images(name, &missing));
        return None;
    }
    let steps = images::refresh(draft, subject);
    if draft.facts.instances.members_of(name).is_empty() {
        let object = draft.facts.container_name(draft.facts.stack_of(subject), name, 1);
        draft.claim_name(name, &object)?;
    }
    Some(steps)
}

/// Whether a dependency stays at its older version for now.
fn is_held(draft: &Draft<'_>, subject: Subject<'_>) -> bool {
    !draft.missing_images.is_empty()
        || subject.workload.update != Update::Rolling
        || draft.facts.is_rollout_paused(subject)
        || waves::reason_to_wait(draft, subject).is_some()
}

/// The version of a dependency that a workload needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NeededVersion {
    Newest,
    /// The one before as well, if the dependency stays at it for now.
    OlderToo,
}

/// A workload that is as before needs no more of a dependency than it had before. The run of a CronJob is of no commit: it does not wait
/// for a dependency that a commit cannot change for now, and waits for one that it is about to change.
fn needed_version(draft: &Draft<'_>, subject: Subject<'_>, dependency: &Dependency) -> NeededVersion {
    let name = &dependency.workload;
    let is_held_back = |workload: &Workload| is_held(draft, Subject { name, workload });
    let is_run = subject.workload.is_run_of_cron();
    let goes_with_older = is_as_before(draft, subject)
        || (is_run && draft.facts.target.stack.workloads.get(name).is_some_and(is_held_back));
    if goes_with_older { NeededVersion::OlderToo } else { NeededVersion::Newest }
}

/// Whether a workload is as it was when all was as Git said, or as a container of it has run since.
fn is_as_before(draft: &Draft<'_>, Subject { name, workload }: Subject<'_>) -> bool {
    let before = draft.facts.target.reached.and_then(|before| before.workloads.get(name));
    let begun = draft.facts.record.begun.get(name);
    before.into_iter().chain(begun).any(|before| before.is_like(workload))
}

/// Whether the newest version of a dependency is not as a workload needs it yet.
pub(crate) fn is_unmet(draft: &Draft<'_>, dependency: &Dependency) -> bool {
    reason_unmet(draft, dependency, NeededVersion::Newest).is_some()
}

/// Whether a workload waits for the newest version of a dependency.
fn awaits_dependency(draft: &Draft<'_>, workload: &Workload) -> bool {
    workload.after.iter().any(|dependency| is_unmet(draft, dependency))
}

/// Why a dependency is not met yet, if it is not. Who is as before runs with what was before, too: a dependency that stays at its older
/// version for now keeps nothing down that the commit does not change.
fn reason_unmet(draft: &Draft<'_>, dependency: &Dependency, needed: NeededVersion) -> Option<String> {
    let accepts_older = needed == NeededVersion::OlderToo;
    let Dependency { workload: on, condition, required, restart: _ } = dependency;
    let workload = draft.facts.target.stack.workloads.get(on)?;
    let spec = draft.facts.spec(Subject { name: on, workload });
    let may_be_older = accepts_older && is_held(draft, Subject { name: on, workload });
    let before = draft.facts.target.reached.filter(|_| may_be_older);
    let before = before.and_then(|before| before.workloads.get(on));
    let replicas = before.map_or(workload.replicas, |before| before.replicas.min(workload.replicas));
    let spec_of = |workload| draft.facts.spec(Subject { name: on, workload });
    let begun = draft.facts.record.begun.get(on).filter(|_| may_be_older);
    let older: Vec<SpecHash> = before.into_iter().chain(begun).map(spec_of).collect();
    let is_current = |it: &&Instance| it.spec == spec || older.contains(&it.spec);
    let current: Vec<&Instance> =
        draft.facts.instances.members_of(on).iter().copied().filter(is_current).collect();
    // For what the commit changes, the end of a run with other files than those of the commit does not count.
    let has_its_files = |it: &Instance| {
        accepts_older || it.spec != spec || !awaits_run_with_files(draft.facts.record, workload, it)
    };
    let completed = |it: &Instance| draft.facts.is_completed(workload, it) && has_its_files(it);
    // With a count of 0, a request has ended its pause, and it is tried again, unless its restart policy forbids that.
    let is_final = |it: &Instance| failure(draft.facts.record, draft.facts.observed, workload, it).is_some();
    let crash = current
        .iter()
        .find_map(|it| crash_of(draft.facts.record, it).filter(|crash| crash.count > 0 || is_final(it)));
    let is_unhealthy =
        |it: &&Instance| matches!(it.state, State::Running { health: Health::Unhealthy, since: _ });
    let lacks_image = || draft.missing_images.contains(on) || draft.kept_without_image.contains(on);
    let is_short = || current.iter().filter(|it| it.is_running()).count() < replicas as usize;
    let cannot_come = || is_short() && is_obstructed(draft, Subject { name: on, workload }, replicas);
    let has_failed = || crash.is_some() || current.iter().any(is_unhealthy) || lacks_image() || cannot_come();
    if !required && has_failed() {
        return None;
    }
    // Its commands after the start are part of it.
    let is_hooked = |it: &Instance| has_run_hooks(draft.facts.record, &it.instance);
    // Docker Compose waits until the start has returned, and no longer.
    let has_started = |it: &Instance| it.is_running() || has_run_and_ended(draft.facts.record, it);
    let good = |it: &&&Instance| match condition {
        Condition::Started => (has_started(it) && is_hooked(it)) || completed(it),
        Condition::Healthy => it.is_available(Duration::ZERO, draft.facts.now) && is_hooked(it),
        Condition::CompletedSuccessfully => completed(it),
    };
    if current.iter().filter(good).count() >= replicas as usize {
        return None;
    }
    let state = match condition {
        Condition::Started => "started",
        Condition::Healthy => "healthy",
        Condition::CompletedSuccessfully => "completed",
    };
    Some(match crash {
        Some(crash) => format!("it is not {state}: it ended with code {}", crash.code),
        None => format!("it is not {state} yet"),
    })
}

/// Whether something is in the way of the containers that a workload lacks: somebody else has its fixed name or a port, a network or
/// volume cannot be had, or the engine rejects its definition or has failed to create or start it several times in a row.
fn is_obstructed(draft: &Draft<'_>, subject: Subject<'_>, replicas: u32) -> bool {
    let Subject { name, workload } = subject;
    let facts = draft.facts;
    let claims = &facts.observed.claims;
    let is_named = workload.container_name.as_ref().is_some_and(|fixed| claims.name_holder(fixed).is_some());
    let is_held = |port: &Port| {
        claims.holder(port).is_some_and(|holder| gives_up_elsewhere(draft, holder, port).is_none())
    };
    let stack = facts.stack_of(subject);
    // An error that ends soon is no reason to give up the order.
    let is_refused = |slot: u32| {
        let object = facts.container_name(stack, name, slot);
        let has_failed = |attempt: &Attempt| {
            attempt.count >= FAILURES_OF_OBSTRUCTED || facts.record.rejected.contains(&object)
        };
        facts.record.failures.get(&object).is_some_and(has_failed)
    };
    is_named
        || workload.container.ports.iter().any(is_held)
        || needs(draft, subject).is_none()
        || (1..=replicas).any(is_refused)
}

/// The steps that provide its networks and volumes; `None` while one of them cannot be had.
fn needs(draft: &Draft<'_>, Subject { name, workload }: Subject<'_>) -> Option<Vec<usize>> {
    let mut after = Vec::new();
    for (network, attachment) in workload.container.networks() {
        if draft.kept_networks.contains(network) && gets_other_address(draft, name, network, attachment) {
            return None;
        }
        match draft.provided.get(network) {
            Some(step) => after.push(*step),
            None if is_usable_network(draft.facts, network) => {}
            None => return None,
        }
    }
    for mount in workload.containers().flat_map(|it| &it.mounts) {
        let name = match &mount.source {
            MountSource::Volume { name, no_copy: _ } => name,
            MountSource::Anonymous
            | MountSource::Image(_)
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Content(_)
            | MountSource::Secret(_)
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => continue,
        };
        match draft.provided.get(name) {
            Some(step) => after.push(*step),
            None if is_usable_volume(draft.facts, name) => {}
            None => return None,
        }
    }
    Some(after)
}

/// Whether a container of a workload runs without the fixed address that Git has for it on a network. The address may be in the subnet
/// that Git has for the network.
fn gets_other_address(
    draft: &Draft<'_>,
    name: &WorkloadName,
    network: &str,
    attachment: &Attachment,
) -> bool {
    let addresses = |it: &Attachment| (it.ipv4.clone(), it.ipv6.clone());
    let wanted = addresses(attachment);
    let has_others = |member: &Instance| {
        let present = member.config.networks().get(network);
        present.is_none_or(|present| addresses(present) != wanted)
    };
    let members = draft.facts.instances.members_of(name);
    wanted != (None, None) && members.iter().any(|member| is_up(member) && has_others(member))
}

/// The steps that free what a workload needs, and the containers of other workloads that are removed for it.
#[derive(Default)]
struct Freed<'a> {
    steps: Vec<usize>,
    handed_over: Vec<&'a Instance>,
}

/// A container of ours that has the name, a port or an address that another workload needs.
struct Holder<'a> {
    container: &'a Instance,
    /// Whether its own workload does not have that in Git any more.
    gives_up: bool,
    what: String,
}

enum Contest<'a> {
    /// Nobody else holds what we need, once these steps are done and these containers are removed.
    Free(Freed<'a>),
    /// The container that has the port or address goes for another one whose port or address its successor needs.
    Swapped,
    Taken {
        by: String,
        what: String,
    },
    /// A container that stays for now has the port or address, or writes to the same data.
    Kept(Wait),
    /// The same, of another application. Its end does not wake this one.
    KeptElsewhere(Wait),
}

/// A container of another agent for the same workload that may write to the same data: its name and the place.
fn writer_of_another_agent(draft: &Draft<'_>, subject: Subject<'_>) -> Option<(String, Place)> {
    let own: BTreeSet<Place> = subject.workload.containers().flat_map(places).collect();
    let facts = &draft.facts;
    let is_foreign = |instance: &&Instance| {
        instance.instance.workload == *subject.name && instance.agent != *facts.target.agent
    };
    facts.observed.instances.values().filter(is_foreign).find_map(|instance| {
        let place = places(&instance.config).into_iter().find(|place| own.contains(place))?;
        Some((instance.name.clone(), place))
    })
}

/// The containers of ours that have a port of the host which a workload needs, or get it again, without its own.
fn port_holders<'a>(
    draft: &Draft<'a>,
    name: &WorkloadName,
    port: &Port,
) -> impl Iterator<Item = &'a Instance> {
    let own = draft.facts.instances.members_of(name);
    let has_it = |holder: &Instance| holder.config.ports.iter().any(|held| held.collides(port));
    let is_holder = move |holder: &&Instance| is_up(holder) || draft.returning.contains(&holder.id);
    let holders = draft.facts.observed.instances.values().filter(is_holder);
    holders.filter(move |holder| has_it(holder) && !own.iter().any(|own| own.id == holder.id))
}

/// The containers of ours that have the fixed name of another workload, which no step of this round frees.
fn name_holders<'a>(
    draft: &Draft<'a>,
    Subject { name, workload }: Subject<'_>,
) -> impl Iterator<Item = &'a Instance> {
    let is_free =
        |holder: &Instance| draft.removed.contains_key(&holder.id) || draft.renamed.contains_key(&holder.id);
    let observed = draft.facts.observed;
    let named = workload
        .container_name
        .iter()
        .flat_map(|fixed| observed.containers().filter(move |holder| holder.name == *fixed));
    named.filter(move |holder| holder.instance.workload.whole() != *name && !is_free(holder))
}

/// Whether a workload that shares the namespaces of a container needs its host port, address or fixed name, and would start without it.
/// Any other workload gets them when the guests have others.
pub(crate) fn needs_place_of(draft: &Draft<'_>, subject: Subject<'_>, host: &Instance) -> bool {
    let Subject { name, workload } = subject;
    let is_guest = draft.facts.instances.members_of(name).iter().any(|guest| guest.hosts.contains(&host.id));
    let has_it = |port: &Port| {
        is_up(host) && is_single(port) && host.config.ports.iter().any(|held| held.collides(port))
    };
    is_guest
        && (workload.container.ports.iter().any(has_it)
            || addresses::fixed(&workload.container).any(|wanted| addresses::has(draft, host, wanted))
            || name_holders(draft, subject).any(|other| other.id == host.id))
        && !writers::is_not_rolled(draft, subject)
        && waves::reason_to_wait(draft, subject).is_none()
        && !is_foreign(draft, workload)
        && !awaits_dependency(draft, workload)
}

/// Whether it is one port of the host, and not one of a range.
fn is_single(port: &Port) -> bool {
    port.host.is_some_and(|host| host.first == host.last)
}

/// Whether the workload of a container does not publish a port of the host any more in Git.
fn gives_up_port(draft: &Draft<'_>, holder: &Instance, port: &Port) -> bool {
    let wanted = draft.facts.target.stack.workloads.get(&holder.instance.workload);
    wanted.is_some_and(|wanted| !wanted.container.ports.iter().any(|other| other.collides(port)))
}

/// The other application of this agent that a container belongs to, if it does not publish a port of the host any more in Git.
fn gives_up_elsewhere<'a>(draft: &Draft<'a>, container: &str, port: &Port) -> Option<&'a AppName> {
    let claims = &draft.facts.observed.claims;
    let owner = claims.name_holder(container)?.app.as_ref()?;
    let stack = claims.applications.as_deref()?.stacks.get(owner)?;
    let mut ports = stack.workloads.values().flat_map(|workload| &workload.container.ports);
    (!ports.any(|other| other.collides(port))).then_some(owner)
}

/// Whether the workload of a container has another fixed name in Git, or none.
fn gives_up_name(draft: &Draft<'_>, holder: &Instance) -> bool {
    let wanted = draft.facts.target.stack.workloads.get(&holder.instance.workload);
    wanted.is_some_and(|wanted| wanted.container_name.as_ref() != Some(&holder.name))
}

/// The workloads whose older containers have a port, an address or the fixed name that this one needs, and that their own workloads give
/// up.
fn holders_that_give_up<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Vec<&'a Instance> {
    let of_ports = subject.workload.container.ports.iter().flat_map(|port| {
        port_holders(draft, subject.name, port).filter(|holder| gives_up_port(draft, holder, port))
    });
    let of_addresses = addresses::fixed(&subject.workload.container).flat_map(|wanted| {
        let holders = addresses::holders(draft, subject.name, wanted).into_iter();
        holders.filter(move |holder| addresses::gives_up(draft, holder, wanted))
    });
    let of_name = name_holders(draft, subject).filter(|holder| gives_up_name(draft, holder));
    of_ports.chain(of_addresses).chain(of_name).collect()
}

/// Whether containers have ports, addresses or names that the successors of each other need, in a circle: all of them go first. Any other
/// holder goes as its own rollout wants, which may take long, or never end.
fn is_swapped(draft: &Draft<'_>, holder: &Instance, to: &WorkloadName) -> bool {
    let workloads = &draft.facts.target.stack.workloads;
    let (mut seen, mut next) = (BTreeSet::new(), vec![&holder.instance.workload]);
    while let Some(name) = next.pop() {
        if name == to {
            return true;
        }
        let Some(workload) = workloads.get(name).filter(|_| seen.insert(name)) else { continue };
        let holders = holders_that_give_up(draft, Subject { name, workload }).into_iter();
        let leaving = holders.filter(|other| is_to_leave(draft, other));
        next.extend(leaving.map(|other| &other.instance.workload));
    }
    false
}

/// Why a workload does not get the port, address or name that a container of ours has which stays for now.
pub(crate) fn held(draft: &Draft<'_>, name: &WorkloadName, holder: &Instance, what: &str) -> Wait {
    let of = &holder.instance.workload;
    if draft.facts.target.stack.workloads.contains_key(of) {
        return Wait::dependency(name, of, &format!("{} still has {what}", holder.name));
    }
    if draft.missing_images.is_empty() {
        return Wait::held_by_orphan(name, what, &holder.name);
    }
    Wait::images(name, &draft.missing_image_names())
}

/// The workload that has a port or address of an older definition by now: Git has given it to that one, and its containers have been made
/// already. They may be down just now, and would not get it again.
pub(crate) fn place_taken_over<'a>(
    draft: &Draft<'a>,
    name: &WorkloadName,
    held: &Container,
) -> Option<(&'a WorkloadName, String)> {
    port_taken_over(draft, name, &held.ports).or_else(|| addresses::taken_over(draft, name, held))
}

fn port_taken_over<'a>(
    draft: &Draft<'a>,
    name: &WorkloadName,
    held: &[Port],
) -> Option<(&'a WorkloadName, String)> {
    let workloads = &draft.facts.target.stack.workloads;
    let has = |ports: &[Port], port: &Port| ports.iter().any(|other| other.collides(port));
    let is_given_up =
        |port: &&Port| workloads.get(name).is_none_or(|wanted| !has(&wanted.container.ports, port));
    let fixed = held.iter().filter(|port| is_single(port));
    fixed.filter(is_given_up).find_map(|port| {
        let is_made = |taker: &WorkloadName| {
            let mut made = draft.facts.instances.members_of(taker).iter();
            made.any(|member| has(&member.config.ports, port))
        };
        let mut takers = workloads.iter().filter(|(taker, _)| *taker != name);
        let (taker, _) =
            takers.find(|(taker, wanted)| has(&wanted.container.ports, port) && is_made(taker))?;
        Some((taker, host_port(port)))
    })
}

fn host_port(port: &Port) -> String {
    let first = port.host.map_or(port.container, |host| host.first);
    format!("host port {first}/{}", port.protocol.as_str())
}

/// Whether nothing but the limits of its rollout keeps an older container.
fn is_to_leave(draft: &Draft<'_>, holder: &Instance) -> bool {
    let workload = draft.facts.target.stack.workloads.get(&holder.instance.workload);
    let is_waiting = workload.is_some_and(|workload| awaits_dependency(draft, workload));
    let is_held = workload.is_some_and(|workload| {
        let subject = Subject { name: &holder.instance.workload, workload };
        waves::reason_to_wait(draft, subject).is_some() || is_foreign(draft, workload)
    });
    let is_own = draft.facts.observed.own.as_ref() == Some(&holder.id);
    !is_waiting && !is_held && !is_own && !writers::is_kept(draft, holder)
}

/// Whether the successor of a container can start once this workload has started: nothing outside of the circle keeps it.
fn can_follow(draft: &Draft<'_>, holder: &Instance, to: &WorkloadName) -> bool {
    let workloads = &draft.facts.target.stack.workloads;
    let Some((name, workload)) = workloads.get_key_value(&holder.instance.workload) else { return false };
    let is_later = workloads.get(to).is_some_and(|to| to.wave < workload.wave);
    let is_awaited = |dependency: &Dependency| is_unmet(draft, dependency);
    let holders = |subject: Subject<'_>| holders_that_give_up(draft, subject);
    let mut awaited = workload.after.iter().filter(|dependency| is_awaited(dependency));
    (is_later || waves::reason_to_wait(draft, Subject { name, workload }).is_none())
        && !is_foreign(draft, workload)
        && awaited.all(|dependency| writers::waits_for(draft, &dependency.workload, to, is_awaited, holders))
}

/// Whether somebody else has a port or the fixed name of a workload.
fn is_foreign(draft: &Draft<'_>, workload: &Workload) -> bool {
    let claims = &draft.facts.observed.claims;
    let is_named = workload.container_name.as_ref().is_some_and(|name| claims.name_holder(name).is_some());
    is_named || workload.container.ports.iter().any(|port| claims.holder(port).is_some())
}

/// Why a workload does not start on data that Git has given to another one, or that another one keeps for now.
fn data_of_others(draft: &Draft<'_>, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, workload } = subject;
    if draft.facts.is_desired(subject) {
        let (by, place) = writers::held_back_writer(draft, subject)?;
        return Some(Wait::data_kept(name, &place, by.as_str()));
    }
    let held: Vec<Place> = workload.containers().flat_map(places).collect();
    let wanted = draft.facts.target.stack.workloads.get(name);
    let is_kept = wanted.is_some_and(|workload| writers::is_not_rolled(draft, Subject { name, workload }));
    // The older version is healed for as long as the new owner is not made either.
    let is_due = |taker: Subject<'_>| {
        draft.missing_images.is_empty()
            && !is_kept
            && !draft.facts.instances.members_of(name).iter().any(|member| is_up(member))
            && waves::reason_to_wait(draft, taker).is_none()
            && !awaits_dependency(draft, taker.workload)
    };
    let (by, place) = writers::new_owner(draft, name, &held, is_due)?;
    Some(Wait::dependency(name, &by, &format!("Git has given {place} to it")))
}

/// Looks for others who hold the fixed name, the data, the host ports or the fixed addresses of a workload. Its own instances are not
/// others: they make way for each other by the limits of its rollout.
fn contest<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Contest<'a> {
    let mut freed = Freed::default();
    let found = ownership_contest(draft, subject)
        .or_else(|| data_contest(draft, subject, &mut freed))
        .or_else(|| holder_contest(draft, subject, &mut freed));
    found.unwrap_or(Contest::Free(freed))
}

/// A fixed name that somebody else has, and data, ports and addresses that are theirs: no step of this round frees them.
fn ownership_contest<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Option<Contest<'a>> {
    let Subject { name, workload } = subject;
    if let Some(fixed) = &workload.container_name
        && draft.facts.observed.claims.name_holder(fixed).is_some()
    {
        return Some(Contest::Taken { by: fixed.clone(), what: format!("the name `{fixed}`") });
    }
    if let Some((by, place)) = writer_of_another_agent(draft, subject) {
        return Some(Contest::Taken { by, what: place.to_string() });
    }
    if let Some(wait) = data_of_others(draft, subject) {
        return Some(Contest::Kept(wait));
    }
    if draft.facts.is_desired(subject) {
        return None;
    }
    let (by, what) = place_taken_over(draft, name, &workload.container)?;
    Some(Contest::Kept(Wait::dependency(name, by, &format!("Git has given {what} to it"))))
}

/// Containers of others that still write to the data.
fn data_contest<'a>(draft: &Draft<'a>, subject: Subject<'_>, freed: &mut Freed<'a>) -> Option<Contest<'a>> {
    let name = subject.name;
    for (holder, place) in writers::outdated_writers(draft, subject) {
        match draft.removed.get(&holder.id) {
            Some(step) => freed.steps.push(*step),
            None if must_stop_for_data(draft, holder, name) || must_stop_for_all(draft, holder, name) => {
                freed.handed_over.push(holder);
            }
            None if writers::is_kept(draft, holder) => {
                return Some(Contest::Kept(Wait::data_kept(name, &place, &holder.name)));
            }
            None => {
                let why = format!("{} still writes to {place}", holder.name);
                return Some(Contest::Kept(Wait::dependency(name, &holder.instance.workload, &why)));
            }
        }
    }
    if let Some((writer, place)) = writers::compose_writer(draft, subject) {
        return Some(Contest::Kept(Wait::data_in_use_by_compose(name, &place, &writer.name)));
    }
    if let Some(wait) = other_writers::reason_to_wait(draft, subject) {
        return Some(Contest::KeptElsewhere(wait));
    }
    for (writer, place) in writers::orphaned_writers(draft, subject) {
        match draft.removed.get(&writer.id) {
            Some(step) => freed.steps.push(*step),
            None => return Some(Contest::Kept(writers::reason_to_wait(draft, name, writer, &place))),
        }
    }
    None
}

/// Containers that have the fixed name, a host port or a fixed address.
fn holder_contest<'a>(draft: &Draft<'a>, subject: Subject<'_>, freed: &mut Freed<'a>) -> Option<Contest<'a>> {
    let Subject { name, workload } = subject;
    let mut holders: Vec<Holder<'a>> = Vec::new();
    for container in name_holders(draft, subject) {
        let what = format!("the name `{}`", container.name);
        holders.push(Holder { container, gives_up: gives_up_name(draft, container), what });
    }
    for port in workload.container.ports.iter().filter(|port| is_single(port)) {
        if let Some(by) = draft.facts.observed.claims.holder(port) {
            if let Some(owner) = gives_up_elsewhere(draft, by, port) {
                return Some(Contest::KeptElsewhere(Wait::port_given_up(name, &host_port(port), by, owner)));
            }
            return Some(Contest::Taken { by: by.to_owned(), what: host_port(port) });
        }
        for container in port_holders(draft, name, port) {
            let gives_up = gives_up_port(draft, container, port);
            holders.push(Holder { container, gives_up, what: host_port(port) });
        }
    }
    for wanted in addresses::fixed(&workload.container) {
        for container in addresses::holders(draft, name, wanted) {
            let gives_up = addresses::gives_up(draft, container, wanted);
            holders.push(Holder {
                container,
                gives_up,
                what: addresses::described(draft, container, wanted),
            });
        }
    }
    let mut is_swap = false;
    for Holder { container, gives_up, what } in holders {
        match draft.removed.get(&container.id) {
            Some(step) => freed.steps.push(*step),
            None if container.agent != *draft.facts.target.agent => {
                return Some(Contest::Taken { by: container.name.clone(), what });
            }
            None if freed.handed_over.iter().any(|known| known.id == container.id) => {}
            None if gives_up && must_stop_for_data(draft, container, name) => {
                freed.handed_over.push(container);
            }
            None if gives_up && is_to_leave(draft, container) && is_swapped(draft, container, name) => {
                is_swap = true;
            }
            None if gives_up && must_stop_for_all(draft, container, name) => {
                freed.handed_over.push(container);
            }
            None => return Some(Contest::Kept(held(draft, name, container, &what))),
        }
    }
    is_swap.then_some(Contest::Swapped)
}

/// Whether a container has to be removed for a workload because of data, or of what its own workload waits for.
fn must_stop_for_data(draft: &Draft<'_>, holder: &Instance, to: &WorkloadName) -> bool {
    let is_awaited = |dependency: &Dependency| is_unmet(draft, dependency);
    writers::must_stop_for(draft, holder, to, is_awaited, |_| Vec::new())
}

/// The same because of names, ports and addresses too, if its successor can start afterwards.
fn must_stop_for_all(draft: &Draft<'_>, holder: &Instance, to: &WorkloadName) -> bool {
    let is_awaited = |dependency: &Dependency| is_unmet(draft, dependency);
    let holders = |subject: Subject<'_>| holders_that_give_up(draft, subject);
    writers::must_stop_for(draft, holder, to, is_awaited, holders) && can_follow(draft, holder, to)
}
