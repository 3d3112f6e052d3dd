//! The last reports of hosts, as a collector stores them.

use driftless_fleet::{LastReport, NameConflict};
use driftless_store::{StoredConflict, StoredHost};

/// The last report of each host that has reported to several places.
pub(crate) fn latest(mut reports: Vec<LastReport>) -> Vec<LastReport> {
    reports.sort_by(|a, b| (&a.report.host, b.received).cmp(&(&b.report.host, a.received)));
    reports.dedup_by(|a, b| a.report.host == b.report.host);
    reports
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
