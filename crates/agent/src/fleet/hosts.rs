//! The hosts of the fleet: those whose last reports are in the database of a collector, and those that an agent reads elsewhere.

use std::sync::Arc;

use driftless_fleet::{HostView, LastReport, mark_unread, merge, view};
use driftless_model::Timestamp;
use driftless_store as store;
use driftless_store::Store;

use crate::{Handle, fleet::reader::UNREAD_AFTER};

/// All hosts of the fleet at this moment, worst first. Empty if this agent neither accepts nor reads reports. Reads the
/// store, so it blocks.
///
/// # Errors
///
/// If the database cannot be read.
pub fn fleet_hosts(handle: &Handle, store: &Store, now: Timestamp) -> Result<Vec<HostView>, store::Error> {
    let (accepts, source) = (handle.fleet().settings().accept, handle.fleet().source().read());
    if !accepts && source.is_none() {
        return Ok(Vec::new());
    }
    let expected = expected_hosts(handle);
    let mut hosts = if accepts { handle.fleet().parsed_reports().hosts(store, now)? } else { Vec::new() };
    let mut unknown = Vec::new();
    if let Some((status, picture)) = source {
        let mut read = picture.hosts.clone();
        // The silence is ours: no host is lost because this agent cannot read.
        if status.last_read.is_none_or(|last_read| now.since(last_read) >= UNREAD_AFTER) {
            mark_unread(&mut read, &status.problem());
        }
        hosts.extend(read);
        // Nor has a host never reported because this agent has not read yet, or not all.
        if let Some(problem) = status.incomplete() {
            unknown.extend(expected.iter().map(|name| HostView::unknown(name, problem.clone(), None, None)));
        }
    }
    // A collector that is expected need not report to itself.
    let is_own = |name: &str| name == handle.host();
    let is_known = !accepts || hosts.iter().any(|host| is_own(&host.name));
    let is_missing = !is_known && expected.iter().any(|name| is_own(name));
    let own = is_missing.then(|| own_host(handle, now)).flatten();
    Ok(merge(hosts.into_iter().chain(own).chain(unknown), &expected))
}

/// The host of this agent, as it would report.
fn own_host(handle: &Handle, now: Timestamp) -> Option<HostView> {
    let report = handle.fleet().own_report()?;
    let last = LastReport { report: Arc::new(report), received: now, conflict: None };
    view(vec![last], &[], now).pop()
}

/// The place that names a host as one of the fleet, so that it is listed without a report. `None`: there is none.
pub fn expected_by(handle: &Handle, host: &str) -> Option<String> {
    let is_host = |name: &String| name == host;
    if handle.fleet().settings().expected.iter().any(is_host) {
        return Some("`fleet.expected` of the collector".to_owned());
    }
    let repositories = handle.repositories();
    let named = repositories.iter().find(|repository| repository.hosts.iter().any(is_host))?;
    Some(format!("`driftless.yaml` of the repository {}", named.name))
}

/// The hosts that the configuration names, and those that `driftless.yaml` of a followed repository has.
fn expected_hosts(handle: &Handle) -> Vec<String> {
    let mut expected = handle.fleet().settings().expected.clone();
    for name in handle.repositories().iter().flat_map(|repository| &repository.hosts) {
        if !expected.contains(name) {
            expected.push(name.clone());
        }
    }
    expected
}
