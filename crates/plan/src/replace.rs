//! One exchange of instances: what is made, what is removed, and in which order.
//!
//! The arithmetic of one round. Whether anything may be made at all is for [`super::gate`].

use std::collections::BTreeMap;

use driftless_model::{Instance, InstanceId, State, Workload, WorkloadName};

use super::{
    Cause, gate,
    limits::Limits,
    repair,
    rollout::Crew,
    round::{Difference, Round},
    share,
    slots::Slots,
};

/// Creates what is missing and removes what is outdated, as far as the limits allow. Everything waits for the
/// steps of the gate. Returns the outdated that stay for now.
pub(super) fn replace<'a>(
    round: &mut Round<'_>,
    (name, workload): (&WorkloadName, &Workload),
    limits: Limits,
    crew: &Crew<'a>,
    missing: usize,
    mut gate: Vec<usize>,
) -> Vec<&'a Instance> {
    let exchange = Exchange::of(round, workload, limits, crew, missing);
    if exchange.room + exchange.in_turn > 0 {
        gate.extend(gate::refresh(round, workload));
    }
    let mut cleared = crew.cleared.clone();
    let mut freed: Vec<(&Instance, &Cause)> = Vec::new();
    for (instance, cause) in crew.lost.iter().chain(exchange.spent.iter().copied()) {
        cleared.push(round.remove(instance, cause, &gate));
        freed.push((instance, cause));
    }
    let mut replaced = Vec::new();
    for (instance, cause) in &exchange.victims {
        replaced.push((*instance, cause, round.remove(instance, cause, &gate)));
    }
    // Where all of the old go first, or there are too many as it is, nobody's place is free before these are gone.
    let ahead = if limits.recreate { replaced.len() } else { exchange.excess };
    cleared.extend(replaced.iter().take(ahead).map(|(_, _, step)| *step));
    let mut after = gate;
    after.extend(&cleared);
    if exchange.room + exchange.in_turn == 0 {
        return exchange.staying;
    }
    let mut slots = Slots::new(round, name, &crew.current);
    for (instance, _) in freed.iter().take(exchange.room) {
        slots.prefer(instance.instance.slot);
    }
    let mut causes = crew.outdated.iter().map(|(_, cause)| cause);
    for _ in 0..exchange.room {
        let slot = slots.next();
        let successor_of = freed.iter().find(|(it, _)| it.instance.slot == slot);
        let inherit = successor_of.map(|(it, _)| it.anonymous_volumes.clone()).unwrap_or_default();
        let cause = successor_of.map(|(_, cause)| *cause).or_else(|| causes.next());
        create(round, (name, workload), slot, cause, after.clone(), inherit);
    }
    let mut turns = replaced.iter().skip(if limits.recreate { 0 } else { exchange.excess });
    for _ in 0..exchange.in_turn {
        let (mut after, mut inherit) = (after.clone(), BTreeMap::new());
        let (slot, cause) = match turns.next() {
            Some((instance, cause, step)) => {
                after.push(*step);
                inherit.clone_from(&instance.anonymous_volumes);
                (slots.take(instance.instance.slot), Some(*cause))
            }
            None => (slots.next(), None),
        };
        create(round, (name, workload), slot, cause, after, inherit);
    }
    exchange.staying
}

/// How many are made and who goes, in numbers.
struct Exchange<'a, 'b> {
    /// Outdated, and of no use to anybody: removing them costs nothing.
    spent: Vec<&'b (&'a Instance, Cause)>,
    /// Outdated, to be removed in this round.
    victims: Vec<&'b (&'a Instance, Cause)>,
    /// Outdated, and staying for now.
    staying: Vec<&'a Instance>,
    /// There is room for so many new ones.
    room: usize,
    /// So many more can be made, each once one of the victims is gone.
    in_turn: usize,
    /// So many are there beyond what the limits allow.
    excess: usize,
}

impl<'a, 'b> Exchange<'a, 'b> {
    fn of(
        round: &Round<'_>,
        workload: &Workload,
        limits: Limits,
        crew: &'b Crew<'a>,
        missing: usize,
    ) -> Self {
        let wanted = workload.replicas as usize;
        let is_available = |it: &Instance| it.is_available(workload.min_ready, round.now);
        let (spent, mut live): (Vec<_>, Vec<_>) =
            crew.outdated.iter().partition(|(it, _)| is_spent(round, it));
        let available_current = crew.current.iter().filter(|it| is_available(it)).count();
        let available_live = live.iter().filter(|(it, _)| is_available(it)).count();
        let total = crew.current.len() + live.len() + crew.left.len();
        let ceiling = wanted + limits.surge;
        let is_blocked = limits.recreate && !live.is_empty();
        let room = if is_blocked { 0 } else { ceiling.saturating_sub(total).min(missing) };
        // Never fewer available than the floor. Worked example: 10 wanted, 3 surge, 2 unavailable, 5 new of which
        // none is available, 8 old: 13 - 8 - 5 = 0, so a new version that never becomes available removes nothing
        // more, not even what is unwell among the old.
        let floor = wanted.saturating_sub(limits.unavailable);
        let mut down = total.saturating_sub(floor + (crew.current.len() - available_current));
        let mut spare = (available_current + available_live).saturating_sub(floor);
        if limits.recreate {
            (down, spare) = (live.len(), live.len());
        }
        live.sort_by_key(|(it, _)| {
            (is_available(it), it.is_running(), share::is_needed(round, it), it.instance.slot)
        });
        let (mut victims, mut staying) = (Vec::new(), Vec::new());
        for one in live {
            let serves = is_available(one.0);
            if down == 0 || (serves && spare == 0) {
                staying.push(one.0);
                continue;
            }
            down -= 1;
            spare -= usize::from(serves);
            victims.push(one);
        }
        let afterwards = ceiling.saturating_sub(total - victims.len()).min(missing);
        let in_turn = if limits.recreate { missing } else { afterwards }.saturating_sub(room);
        let excess = total.saturating_sub(ceiling).min(victims.len());
        Self { spent, victims, staying, room, in_turn, excess }
    }
}

/// Whether an outdated instance will never serve again, whatever we do.
pub(super) fn is_spent(round: &Round<'_>, instance: &Instance) -> bool {
    let is_down = matches!(instance.state, State::Exited { .. });
    instance.state == State::Created
        || (is_down && repair::deleted_network(round, instance).is_some())
        || (!instance.is_running() && share::is_orphaned(round, instance))
        || round.target.definition(instance).is_some_and(|it| repair::is_over(round, it, instance))
}

/// What an instance left behind that was removed before its successor could be made, because we were ended then.
fn bequest(round: &mut Round<'_>, name: &WorkloadName, slot: u32) -> BTreeMap<String, String> {
    let of = |slot: u32| InstanceId { workload: name.clone(), slot }.to_string();
    let is_left = |key: &String| round.record.bequests.contains_key(key) && !round.bequeathed.contains(key);
    // Its own slot's first, or else any that nobody took: the successor may have got another number.
    let is_of_workload = |key: &&String| key.rsplit_once('.').is_some_and(|(it, _)| it == name.as_str());
    let own = Some(of(slot)).filter(is_left);
    let any = || round.record.bequests.keys().filter(is_of_workload).find(|it| is_left(it)).cloned();
    let Some(key) = own.or_else(any) else { return BTreeMap::new() };
    let volumes = round.record.bequests.get(&key).cloned().unwrap_or_default();
    let is_held = |volume: &String| {
        round.observed.instances.values().any(|it| it.anonymous_volumes.values().any(|held| held == volume))
    };
    if volumes.values().any(is_held) {
        return BTreeMap::new();
    }
    round.bequeathed.insert(key);
    volumes
}

/// Creates one instance. Without a cause nothing makes way for it; if the stack was reached before, its absence
/// then is drift.
pub(super) fn create(
    round: &mut Round<'_>,
    (name, workload): (&WorkloadName, &Workload),
    slot: u32,
    cause: Option<&Cause>,
    mut after: Vec<usize>,
    inherit: BTreeMap<String, String>,
) {
    let object = round.container_name(round.stack_of(name, workload), name, slot);
    if round.is_leaving(&object) {
        return;
    }
    let Some(steps) = round.claim_name(&object) else { return };
    after.extend(steps);
    after.extend(round.slot_freed(name, slot));
    let cause = match cause {
        Some(cause) => Some(cause.clone()),
        None if !round.is_settled() => Some(Cause::Missing),
        None => round.heal(Difference {
            kind: "container",
            object: &object,
            workload: Some(name),
            field: "state".into(),
            want: "running".into(),
            found: "missing".into(),
            at: None,
        }),
    };
    let inherit = if inherit.is_empty() { bequest(round, name, slot) } else { inherit };
    if let Some(cause) = cause {
        round.create((name, workload), slot, &cause, after, inherit);
    }
}
