//! How instances of a new spec take the place of the old, one safe round at a time.
//!
//! Each round scales the new up if it can, and the old down if it can. There is no state of a rollout
//! anywhere: the arithmetic of Kubernetes' deployment controller, made anew from what is observed.

use driftless_model::{Instance, Peer, Replacement, State, Timestamp, Update, Workload, WorkloadName};

use super::{
    Cause, Wait,
    census::Census,
    cron,
    gate::{self, Gate},
    in_place, inside, jobs,
    limits::limits,
    ordinals, pod, prune, repair, replace,
    round::{Difference, Round},
    share,
};

/// The instances of one workload, by what becomes of them.
#[derive(Default)]
pub(super) struct Crew<'a> {
    /// As they are wanted. They need not be well.
    pub(super) current: Vec<&'a Instance>,
    /// To be replaced, as the limits allow. Until then they serve.
    pub(super) outdated: Vec<(&'a Instance, Cause)>,
    /// To be replaced, and of no use any more.
    pub(super) lost: Vec<(&'a Instance, Cause)>,
    /// Not as wanted, and not to be touched now.
    pub(super) left: Vec<&'a Instance>,
    /// Steps that remove what is dead.
    pub(super) cleared: Vec<usize>,
}

/// Plans all workloads: first goes what only pretends to be ours or is not wanted any more, since it may hold
/// names and ports.
pub(super) fn roll_all(round: &mut Round<'_>, census: &Census<'_>) {
    expel(round, census);
    jobs::run_all(round, census);
    for (name, wanted) in share::in_order(round.target.stack) {
        if wanted.job.is_some() || wanted.cron.is_some() || is_held_back(round, name, wanted, census) {
            continue;
        }
        let before = round.target.fallback.and_then(|it| it.workloads.get(name));
        let before = before.filter(|it| !it.is_like(wanted));
        let members = census.members_of(name);
        let spec = round.spec(name, wanted);
        let is_change = members.iter().any(|it| it.spec != spec);
        // Until everything that the commit needs is at hand, what runs is kept as it was.
        let is_affected = is_change || members.is_empty() || round.unpulled.contains(name);
        let is_held = !round.unpulled.is_empty() && is_affected;
        let is_unbegun = !members.iter().any(|it| it.spec == spec);
        match before {
            Some(before) if is_held => {
                roll(round, name, before, members, census);
                wait_for_images(round, name);
            }
            None if is_held && is_change => {
                allow_starts(round, name, wanted, members);
                keep(round, name, members);
                wait_for_images(round, name);
            }
            Some(before) if round.is_paused(name, wanted) && is_change && is_unbegun => {
                let scaled = Workload { replicas: wanted.replicas, ..before.clone() };
                roll(round, name, &scaled, members, census);
                round.wait(Wait::Paused { workload: name.clone() });
            }
            Some(_) | None => match ordinals::former(round, name, wanted) {
                Some((former, wait)) => {
                    roll(round, name, &former, members, census);
                    round.wait(wait);
                }
                None => roll(round, name, wanted, members, census),
            },
        }
    }
}

/// Whether a workload is not to be touched at all: Docker Compose runs it, or it is what this agent runs in.
fn is_held_back(round: &mut Round<'_>, name: &WorkloadName, wanted: &Workload, census: &Census<'_>) -> bool {
    let members = census.members_of(name);
    if round.untaken.contains(name) {
        allow_starts(round, name, wanted, members);
        keep(round, name, members);
        return true;
    }
    let Some(own) = members.iter().find(|it| round.observed.own.as_ref() == Some(&it.id)) else {
        return false;
    };
    let what = if own.spec != round.spec(name, wanted) {
        "Git asks for another container in its place"
    } else if members.len() != wanted.replicas as usize {
        "Git asks for another number of them"
    } else {
        return true;
    };
    let container = own.name.clone();
    round.wait(Wait::Own { workload: Some(name.clone()), container, what: what.to_owned() });
    true
}

/// Removes impostors, and what the stack does not have once all that it does have is at hand.
fn expel(round: &mut Round<'_>, census: &Census<'_>) {
    for (impostor, field, want, found) in &census.impostors {
        let difference = Difference {
            kind: "container",
            object: &impostor.name,
            workload: Some(&impostor.instance.workload),
            field: field.clone(),
            want: want.clone(),
            found: found.clone(),
            at: Some(impostor.created),
        };
        if let Some(cause) = round.heal(difference) {
            round.remove(impostor, &cause, &[]);
        }
    }
    pod::expel(round);
    if !round.unpulled.is_empty() {
        return;
    }
    let is_held = prune::is_held(round, census);
    let pulls: Vec<usize> = round.pulls.values().copied().collect();
    for orphan in &census.orphans {
        if is_held && !cron::was_run(round.target.stack, &orphan.instance.workload) {
            continue;
        }
        // What Git wants goes on in its network or among its processes; it goes when they have gone.
        if share::is_needed(round, orphan) {
            continue;
        }
        if let Some(wait) = ordinals::stays(round, orphan, census) {
            round.wait(wait);
            continue;
        }
        if round.observed.own.as_ref() == Some(&orphan.id) {
            let (container, what) = (orphan.name.clone(), "Git does not have it any more".to_owned());
            round.wait(Wait::Own { workload: None, container, what });
            continue;
        }
        let cause = if cron::was_run(round.target.stack, &orphan.instance.workload) {
            Some(Cause::Finished { reason: "no longer kept".to_owned() })
        } else if round.is_settled() {
            round.heal(Difference {
                kind: "container",
                object: &orphan.name,
                workload: None,
                field: "state".into(),
                want: "no such container".into(),
                found: "present".into(),
                at: Some(orphan.created),
            })
        } else {
            Some(Cause::NotInGit)
        };
        if let Some(cause) = cause {
            round.remove(orphan, &cause, &pulls);
        }
    }
}

/// Says that a workload whose own image is there waits for those of others.
fn wait_for_images(round: &mut Round<'_>, name: &WorkloadName) {
    if !round.unpulled.contains(name) {
        let missing = round.unpulled.iter().map(ToString::to_string).collect();
        round.wait(Wait::Images { workload: name.clone(), missing });
    }
}

/// How long the engine is given to remove a container that is on its way out.
const LEAVING: std::time::Duration = std::time::Duration::from_secs(1);

/// One round for one workload.
fn roll(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    members: &[&Instance],
    census: &Census<'_>,
) {
    let wanted = workload.replicas as usize;
    allow_starts(round, name, workload, members);
    let crew = muster(round, name, workload, members, census);
    if round.is_paused(name, workload) && !crew.outdated.is_empty() {
        round.wait(Wait::Paused { workload: name.clone() });
        let outdated: Vec<&Instance> = crew.outdated.iter().map(|(it, _)| *it).collect();
        keep(round, name, &outdated);
        let all = || crew.current.iter().chain(&outdated);
        if all().count() < wanted {
            let available = all().filter(|it| it.is_available(workload.min_ready, round.now)).count();
            round.wait(Wait::Readiness {
                workload: name.clone(),
                available: u32::try_from(available).unwrap_or(u32::MAX),
                wanted: workload.replicas,
                reason: "what is missing is made once it is not paused any more".into(),
            });
        }
        return;
    }
    let missing = wanted.saturating_sub(crew.current.len());
    let gate = if missing > 0 { gate::gate(round, name, workload, census) } else { Gate::Open(vec![]) };
    let live = crew.outdated.iter().map(|(it, _)| *it).filter(|it| !replace::is_spent(round, it));
    let limits = limits(workload, live);
    let kept = match gate {
        Gate::Closed => crew.outdated.iter().map(|(it, _)| *it).collect(),
        Gate::MakeRoom(after) => replace::replace(round, (name, workload), limits, &crew, 0, after),
        Gate::Open(after) => replace::replace(round, (name, workload), limits, &crew, missing, after),
    };
    keep(round, name, &kept);
    let outdated: Vec<&Instance> = crew.outdated.iter().map(|(it, _)| *it).collect();
    remark(round, name, workload, &crew.current, &outdated);
}

/// Sets how many that do not run may be started before there are more than the limits allow: what has ended and
/// what took its place must not run side by side where there is room for one.
fn allow_starts(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload, members: &[&Instance]) {
    let spec = round.spec(name, workload);
    let leaving = members.iter().copied().filter(|it| it.spec != spec && !replace::is_spent(round, it));
    let is_up = |it: &&&Instance| match it.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Created | State::Exited { .. } | State::Removing | State::Dead => false,
    };
    let limits = limits(workload, leaving);
    let has_old = members.iter().filter(is_up).any(|it| it.spec != spec);
    let ceiling = if limits.recreate && has_old { 0 } else { workload.replicas as usize + limits.surge };
    round.may_start = ceiling.saturating_sub(members.iter().filter(is_up).count());
}

/// Sorts the members of a workload, and looks after those that are as wanted.
fn muster<'a>(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    members: &[&'a Instance],
    census: &Census<'_>,
) -> Crew<'a> {
    let spec = round.spec(name, workload);
    let mut crew = Crew::default();
    for member in members {
        let asked = round.record.replaced.get(&member.id);
        if member.state == State::Removing {
            // The engine says when it is gone; only if that went past us, we look by ourselves.
            round.look_again(round.now.after(LEAVING));
        } else if member.state == State::Dead {
            crew.cleared.push(round.remove(member, &Cause::Exited, &[]));
        } else if asked == Some(&Replacement::Delete) {
            crew.lost.push((member, Cause::Deleted));
        } else if member.spec == spec && asked == Some(&Replacement::Restart) {
            crew.outdated.push((member, Cause::Restarted));
        } else if member.spec == spec {
            // What has to be replaced is no more as it is wanted, so it does not count when there are too many.
            let bound = share::replaced(round, workload, member, census);
            if let Some(cause) = bound {
                let still_runs = member.is_running();
                (if still_runs { &mut crew.outdated } else { &mut crew.lost }).push((member, cause));
            } else if let Some(cause) = dependency_replaced(round, workload, member, census) {
                crew.outdated.push((member, cause));
            } else if let Some(cause) = repair::beyond_repair(round, name, workload, member) {
                let still_serves = member.is_running();
                (if still_serves { &mut crew.outdated } else { &mut crew.lost }).push((member, cause));
            } else if let Some(cause) = inside::revert(round, name, member) {
                crew.outdated.push((member, cause));
            } else {
                inside::remark(round, member);
                crew.current.push(member);
            }
        } else {
            match outdated(round, name, workload, member) {
                Some(cause) => crew.outdated.push((member, cause)),
                None => crew.left.push(member),
            }
        }
    }
    scale_down(round, (name, workload), &mut crew.current, census);
    for instance in &crew.current {
        repair::tend(round, name, workload, instance);
        pod::tend(round, name, workload, instance);
    }
    in_place::deliver(round, workload, &crew);
    crew
}

/// Why an instance of another spec is to be replaced; `None` to leave it for now.
fn outdated(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    instance: &Instance,
) -> Option<Cause> {
    // What its manifest leaves as it was is no drift.
    let is_left = workload.update != Update::Rolling;
    if !round.is_settled() || is_left || round.is_paused(name, workload) {
        return Some(Cause::SpecChanged);
    }
    // All was well before: it is not a rollout that brought it here.
    round.heal(Difference {
        kind: "container",
        object: &instance.name,
        workload: Some(name),
        field: "spec".into(),
        want: round.spec(name, workload).to_string(),
        found: instance.spec.to_string(),
        at: Some(instance.created),
    })
}

/// Whether it asks to follow a dependency that was replaced after it was started.
fn dependency_replaced(
    round: &Round<'_>,
    workload: &Workload,
    instance: &Instance,
    census: &Census<'_>,
) -> Option<Cause> {
    let started = instance.started.filter(|_| instance.is_running())?;
    // Who shares something with it follows by a rule of its own.
    let is_shared =
        |on: &WorkloadName| workload.container.peers().any(|it| *it == Peer::Workload(on.clone()));
    let followed = workload.after.iter().filter(|it| it.restart && !is_shared(&it.workload));
    followed.filter(|it| gate::unmet(round, it, census).is_none()).find_map(|it| {
        // One more beside those that stand replaces nobody.
        let oldest: Option<Timestamp> = census.members_of(&it.workload).iter().map(|it| it.created).min();
        let on = || it.workload.to_string();
        oldest.is_some_and(|it| it > started).then(|| Cause::DependencyReplaced { on: on() })
    })
}

/// Removes what is too much: the least useful first, then the highest slots. Nobody is
/// made to move who shares something with one that can stay.
fn scale_down(
    round: &mut Round<'_>,
    (name, workload): (&WorkloadName, &Workload),
    current: &mut Vec<&Instance>,
    census: &Census<'_>,
) {
    let wanted = workload.replicas as usize;
    current.sort_by_key(|it| {
        let is_available = it.is_available(workload.min_ready, round.now);
        (!is_available, !it.is_running(), !share::is_needed(round, it), it.instance.slot)
    });
    let surplus = current.split_off(wanted.min(current.len()));
    for instance in surplus.into_iter().rev() {
        if let Some(wait) = ordinals::stays(round, instance, census) {
            round.wait(wait);
            continue;
        }
        let cause = if round.is_settled() {
            round.heal(Difference {
                kind: "container",
                object: &instance.name,
                workload: Some(name),
                field: "replicas".into(),
                want: format!("{wanted}"),
                found: "one too many".into(),
                at: Some(instance.created),
            })
        } else {
            Some(Cause::ScaledDown)
        };
        if let Some(cause) = cause {
            round.remove(instance, &cause, &[]);
        }
    }
    current.sort_by_key(|it| it.instance.slot);
}

/// Leaves what is outdated as it is, and only sees that it does run: it serves until its successors do.
fn keep(round: &mut Round<'_>, name: &WorkloadName, members: &[&Instance]) {
    for member in members {
        if member.state != State::Created
            && let Some(workload) = round.target.definition(member)
        {
            repair::revive(round, name, workload, member, vec![]);
            pod::tend(round, name, workload, member);
        }
    }
}

/// Says what a rollout is waiting for.
fn remark(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    current: &[&Instance],
    outdated: &[&Instance],
) {
    use driftless_model::Readiness;
    let now = round.now;
    let done = |it: &&&Instance| {
        it.is_available(workload.min_ready, now)
            || repair::is_completed(round.record, round.observed.engine_started, workload, it)
    };
    let good = u32::try_from(current.iter().filter(done).count()).unwrap_or(u32::MAX);
    if good >= workload.replicas && outdated.is_empty() {
        return;
    }
    let is_held = |it: &Wait| matches!(it, Wait::Held { workload, .. } if workload == name);
    let kept = outdated.iter().filter(|it| it.is_available(workload.min_ready, now)).count();
    if round.plan.waits.iter().any(is_held) && good as usize + kept >= workload.replicas as usize {
        return;
    }
    let settling = current.iter().filter_map(|it| match (&it.state, &it.readiness) {
        (State::Running { .. }, Readiness::Ready { since }) => Some(since.after(workload.min_ready)),
        _ => None,
    });
    if let Some(until) = settling.filter(|it| *it > now).min() {
        round.wait(Wait::MinReady { workload: name.clone(), until });
        round.look_again(until);
    }
    let reason = current.iter().find_map(|it| match (&it.state, &it.readiness) {
        (State::Running { .. }, Readiness::Starting { reason } | Readiness::NotReady { reason }) => {
            Some(reason.clone())
        }
        (State::Running { .. }, Readiness::Ready { .. } | Readiness::Dead { .. })
        | (
            State::Created
            | State::Paused
            | State::Restarting { .. }
            | State::Exited { .. }
            | State::Removing
            | State::Dead,
            _,
        ) => None,
    });
    let is_waiting = good < workload.replicas || !outdated.is_empty();
    if is_waiting {
        round.wait(Wait::Readiness {
            workload: name.clone(),
            available: good,
            wanted: workload.replicas,
            reason: reason.unwrap_or_default(),
        });
    }
    if let Some(progress) = round.record.progress.get(name).filter(|it| it.spec == round.spec(name, workload))
    {
        let deadline = progress.at.after(workload.progress_deadline);
        if now >= deadline {
            round.wait(Wait::ProgressDeadlineExceeded { workload: name.clone(), since: progress.at });
        } else {
            round.look_again(deadline);
        }
    }
}
