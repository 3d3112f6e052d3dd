//! The hosts of the fleet: those whose last reports are in the database of a collector, and those that an agent reads elsewhere.

use driftless_fleet::{HostView, mark_unread, merge};
use driftless_model::Timestamp;
use driftless_store as store;
use driftless_store::Store;

use crate::{Handle, fleet_reader::UNREAD_AFTER};

/// All hosts of the fleet at this moment, worst first. Empty if this agent neither accepts nor reads reports. Reads the
/// store, so it blocks.
///
/// # Errors
///
/// If the database cannot be read.
pub fn fleet_hosts(handle: &Handle, store: &Store, now: Timestamp) -> Result<Vec<HostView>, store::Error> {
    let fleet = handle.fleet();
    let expected = expected_hosts(handle);
    let own = if fleet.accept { handle.parsed_reports().hosts(store, now)? } else { Vec::new() };
    let Some((status, picture)) = handle.fleet_source().read() else {
        return Ok(if fleet.accept { merge(own, &expected) } else { Vec::new() });
    };
    let mut hosts = picture.hosts.clone();
    // The silence is ours: no host is lost because this agent cannot read.
    if status.last_read.is_none_or(|last_read| now.since(last_read) >= UNREAD_AFTER) {
        mark_unread(&mut hosts, &status.problem());
    }
    // Nor has a host never reported because this agent has not read yet, or not all.
    if let Some(problem) = status.incomplete() {
        hosts.extend(expected.iter().map(|name| HostView::unknown(name, problem.clone(), None, None)));
    }
    Ok(merge(own.into_iter().chain(hosts), &expected))
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
