//! The time in which a host comes up. The engine starts all containers at once then, whether those that they depend on are ready or not.

use std::{ops::Range, time::Duration};

use driftless_model::{Observed, Policy, Timestamp};

/// The least of that time: containers may need as long after a start of the engine, however short `monitor` is.
const LEAST: Duration = Duration::from_mins(1);

/// The time after the last start of the engine in which it is no fault of a commit that a container ends or is not healthy that was
/// there before. `None`: that start is not known.
pub(crate) fn coming_up(policy: &Policy, observed: &Observed, now: Timestamp) -> Option<Range<Timestamp>> {
    // With a start in the future, the clock was set back since.
    let started = observed.engine_started.filter(|started| *started <= now)?;
    Some(started..started.after(policy.monitor.max(LEAST)))
}
