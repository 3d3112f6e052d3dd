//! The last reports of hosts, as a collector stores them.

use std::sync::Arc;

use driftless_fleet::{LastReport, NameConflict};
use driftless_store::{StoredConflict, StoredHost};

/// The report in a row. `None`: another release has written the row, which the next report replaces.
pub fn last_report(host: StoredHost) -> Option<LastReport> {
    let report = serde_json::from_str(&host.report).ok()?;
    let conflict = host.conflict.map(name_conflict);
    Some(LastReport { report: Arc::new(report), received: host.received, conflict })
}

pub(crate) fn name_conflict(conflict: StoredConflict) -> NameConflict {
    let StoredConflict { instance, from, at } = conflict;
    NameConflict { instance, from, at }
}
