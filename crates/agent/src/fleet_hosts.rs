//! The hosts whose last reports are in the database of a collector.

use driftless_fleet::{HostView, LastReport, NameConflict, view};
use driftless_model::Timestamp;
use driftless_store as store;
use driftless_store::{Store, StoredConflict, StoredHost};

use crate::Handle;

/// All hosts of the fleet at this moment, worst first. Empty if this agent is no collector. Reads the store, so it blocks.
///
/// # Errors
///
/// If the database cannot be read.
pub fn fleet_hosts(handle: &Handle, store: &Store, now: Timestamp) -> Result<Vec<HostView>, store::Error> {
    let fleet = handle.fleet();
    if !fleet.accept {
        return Ok(Vec::new());
    }
    let reports = store.fleet_hosts()?.into_iter().filter_map(last_report).collect();
    Ok(view(reports, &fleet.expected, now))
}

/// The report in a row. `None`: another release has written the row, which the next report replaces.
pub fn last_report(host: StoredHost) -> Option<LastReport> {
    let conflict = host.conflict.map(|conflict| {
        let StoredConflict { instance, from, at } = conflict;
        NameConflict { instance, from, at }
    });
    let report = serde_json::from_str(&host.report).ok()?;
    Some(LastReport { report, received: host.received, conflict })
}
