//! Counting the heals of one field.

use std::time::Duration;

use driftless_model::{Heal, Record, Timestamp, WorkloadName};

use crate::{backoff::heal_delay, facts::fs_changes};

/// Heals of one field are remembered for this long. Of files inside a container, a quiet time as long ends the sequence of pauses.
pub(crate) const WINDOW: Duration = Duration::from_mins(10);

/// Number of heals of one field within [`WINDOW`] from which on somebody changes it again and again.
pub(crate) const REPEATED: usize = 3;

/// Number of times that the same difference is corrected without effect.
pub(crate) const TRIES: u32 = 2;

/// The key under which heals of a field are counted. Changed files are undone by a container of another name, so those
/// heals are counted for the workload.
pub(crate) fn heal_key(object: &str, workload: Option<&WorkloadName>, field: &str) -> String {
    match workload {
        Some(workload) if field == fs_changes::FIELD => format!("{workload} {field}"),
        Some(_) | None => format!("{object} {field}"),
    }
}

/// Whether a difference was made after its last heal, so that the heal had an effect although no round saw it.
pub(crate) fn was_undone(heal: &Heal, made: Option<Timestamp>) -> bool {
    made.is_some_and(|at| at > heal.ended)
}

/// A heal that nobody undid for this long shows that the differences have stopped.
const PEACE: Duration = Duration::from_secs(10);

/// After this time without a further difference, one of several objects is healed to find out whether it stays so.
const PROBE: Duration = Duration::from_secs(20);

/// The time from which on the heal of an existing difference need not wait for the end of its pause.
/// `None` while nothing shows that the differences have stopped.
///
/// They have stopped if something was healed after the last one appeared, and stayed so. After a storm over several
/// objects one of them is healed early to find that out. In a fight over one object each heal is undone, so its pauses
/// stay as they are.
pub(crate) fn end_of_pause(record: &Record, key: &str, now: Timestamp) -> Option<Timestamp> {
    let appeared = |(of, heal): (&String, &Heal)| match heal.again {
        Some(at) => at,
        None if of == key => now,
        None => heal.seen,
    };
    let last = record.heals.iter().map(appeared).max()?;
    let is_lasting = |(of, heal): &(&String, &Heal)| *of != key && heal.again.is_none() && heal.ended >= last;
    if let Some(healed) = record.heals.iter().filter(is_lasting).map(|(_, heal)| heal.ended).min() {
        return Some(healed.after(PEACE));
    }
    let pending = || record.heals.iter().filter(|(_, heal)| heal.again.is_some() && heal.had_effect);
    let object = |key: &str| key.split(' ').next().unwrap_or_default().to_owned();
    let first = pending().min_by_key(|(key, heal)| (heal.ended.after(heal_delay(heal.count)), *key))?.0;
    let is_storm = pending().any(|(key, _)| object(key) != object(first));
    (is_storm && first == key).then(|| last.after(PROBE))
}
