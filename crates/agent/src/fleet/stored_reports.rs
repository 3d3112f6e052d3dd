//! The last reports of hosts, as a collector stores them.

use std::sync::Arc;

use driftless_fleet::{HostView, LastReport, NameConflict, view};
use driftless_model::Timestamp;
use driftless_store::{StoredConflict, StoredHost};

/// A host whose stored report this release cannot read, because another one has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableReport {
    /// The name of the host.
    pub host: String,
    /// When it was last heard.
    pub received: Timestamp,
}

/// The report in a row.
///
/// # Errors
///
/// If another release has written the row.
pub fn last_report(host: StoredHost) -> Result<LastReport, UnreadableReport> {
    let StoredHost { name, instance: _, digest: _, received, report, conflict } = host;
    match serde_json::from_str(&report) {
        Ok(report) => {
            Ok(LastReport { report: Arc::new(report), received, conflict: conflict.map(name_conflict) })
        }
        Err(_) => Err(UnreadableReport { host: name, received }),
    }
}

/// The hosts of stored reports, worst first. One whose report cannot be read is stale, and lost as any other.
pub(crate) fn stored_hosts(
    reports: impl IntoIterator<Item = Result<LastReport, UnreadableReport>>,
    now: Timestamp,
) -> Vec<HostView> {
    let (mut readable, mut hosts) = (Vec::new(), Vec::new());
    for report in reports {
        match report {
            Ok(last) => readable.push(last),
            Err(UnreadableReport { host, received }) => {
                let reason =
                    "its report was stored by another release of the agent; its next one replaces it";
                hosts.push(HostView::unknown(&host, reason.to_owned(), None, Some(received)).or_lost(now));
            }
        }
    }
    hosts.extend(view(readable, &[], now));
    hosts
}

pub(crate) fn name_conflict(conflict: StoredConflict) -> NameConflict {
    let StoredConflict { instance, from, reason, at } = conflict;
    NameConflict { instance, from, reason, at }
}
