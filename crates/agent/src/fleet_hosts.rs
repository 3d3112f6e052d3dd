//! The hosts of the fleet: those whose last reports are in the database of a collector, and those that an agent reads elsewhere.

use std::time::Duration;

use driftless_fleet::{HostView, LastReport, mark_unread, view};
use driftless_model::Timestamp;
use driftless_store as store;
use driftless_store::Store;

use crate::{Handle, stored_reports::latest};

/// Hosts of a place that could not be read for this long are stale.
const UNREAD_AFTER: Duration = Duration::from_mins(1);

/// All hosts of the fleet at this moment, worst first. Empty if this agent neither accepts nor reads reports. Reads the
/// store, so it blocks.
///
/// # Errors
///
/// If the database cannot be read.
pub fn fleet_hosts(handle: &Handle, store: &Store, now: Timestamp) -> Result<Vec<HostView>, store::Error> {
    let fleet = handle.fleet();
    let expected = expected_hosts(handle);
    let mut reports: Vec<LastReport> =
        if fleet.accept { handle.parsed_reports().last_reports(store)? } else { Vec::new() };
    let Some((status, picture)) = handle.fleet_source().read() else {
        return Ok(if fleet.accept { view(reports, &expected, now) } else { Vec::new() });
    };
    let Some(last_read) = status.last_read else {
        // Nothing is known yet, so nobody is missing.
        return Ok(view(reports, &[], now));
    };
    if now.since(last_read) < UNREAD_AFTER {
        reports.extend(picture.reports.iter().cloned());
        return Ok(view(latest(reports), &expected, now));
    }
    // The silence is ours: no host is lost because this agent cannot read.
    let reason = format!("the reports at {} cannot be read: {}", status.from, status.error);
    let mut hosts = view(picture.reports.clone(), &expected, last_read);
    mark_unread(&mut hosts, &reason);
    let own = view(reports, &[], now);
    hosts.retain(|host| !own.iter().any(|other| other.name == host.name));
    hosts.extend(own);
    hosts.sort_by(|a, b| (a.state, &a.name).cmp(&(b.state, &b.name)));
    Ok(hosts)
}

/// The hosts that the configuration names, and those that `driftless.yaml` of a followed repository has.
fn expected_hosts(handle: &Handle) -> Vec<String> {
    let mut expected = handle.fleet().expected.clone();
    for name in handle.repositories().iter().flat_map(|repository| &repository.hosts) {
        if !expected.contains(name) {
            expected.push(name.clone());
        }
    }
    expected
}
