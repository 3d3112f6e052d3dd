//! The reports of the hosts of a collector, each parsed once and shared by all views. The database decides which report is
//! the last one of a host; its digest says whether the parsed one is still that.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use driftless_fleet::{HostReport, HostView, LastReport};
use driftless_model::Timestamp;
use driftless_store as store;
use driftless_store::{FleetRow, Store, StoredHost};

use crate::fleet::stored_reports::{UnreadableReport, last_report, name_conflict, stored_hosts};

/// The parsed reports by host. It has no other hosts than the database, whose size is bounded. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ParsedReports(Arc<Mutex<BTreeMap<String, ParsedReport>>>);

#[derive(Debug)]
struct ParsedReport {
    digest: String,
    /// `None`: another release has written it, and this one cannot read it.
    report: Option<Arc<HostReport>>,
}

impl ParsedReports {
    /// Keeps a report that was just stored, so that it is not parsed again.
    pub fn keep(&self, name: &str, digest: &str, report: Arc<HostReport>) {
        let parsed = ParsedReport { digest: digest.to_owned(), report: Some(report) };
        self.lock().insert(name.to_owned(), parsed);
    }

    /// The hosts with their last reports, worst first. Parses those that are new. Reads the store, so it blocks.
    pub(crate) fn hosts(&self, store: &Store, now: Timestamp) -> Result<Vec<HostView>, store::Error> {
        Ok(stored_hosts(self.last_reports(store)?, now))
    }

    /// Whether the last report of a host can be read. A host that has none has nothing to read. Reads the store, so it blocks.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn is_readable(&self, store: &Store, name: &str, digest: &str) -> Result<bool, store::Error> {
        if let Some(known) = self.lock().get(name).filter(|known| known.digest == digest) {
            return Ok(known.report.is_some());
        }
        let Some(host) = store.fleet_host(name)? else { return Ok(true) };
        Ok(parse(&mut self.lock(), host).is_ok())
    }

    /// The last reports of all hosts. Parses those that are new.
    fn last_reports(&self, store: &Store) -> Result<Vec<Result<LastReport, UnreadableReport>>, store::Error> {
        let rows = store.fleet_rows()?;
        let mut parsed = self.lock();
        parsed.retain(|name, _| rows.binary_search_by(|row| row.name.as_str().cmp(name)).is_ok());
        let mut reports = Vec::with_capacity(rows.len());
        for FleetRow { name, instance: _, digest, received, conflict } in rows {
            if let Some(known) = parsed.get(&name).filter(|known| known.digest == digest) {
                let conflict = conflict.map(name_conflict);
                reports.push(match known.report.clone() {
                    Some(report) => Ok(LastReport { report, received, conflict }),
                    None => Err(UnreadableReport { host: name, received }),
                });
                continue;
            }
            // It may have been removed or replaced a moment ago.
            if let Some(host) = store.fleet_host(&name)? {
                reports.push(parse(&mut parsed, host));
            }
        }
        Ok(reports)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ParsedReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last report of a stored host, which is parsed and kept.
fn parse(
    parsed: &mut BTreeMap<String, ParsedReport>,
    host: StoredHost,
) -> Result<LastReport, UnreadableReport> {
    let (name, digest) = (host.name.clone(), host.digest.clone());
    let last = last_report(host);
    let report = last.as_ref().ok().map(|last| Arc::clone(&last.report));
    parsed.insert(name, ParsedReport { digest, report });
    last
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driftless_clock::Clock;
    use driftless_fleet::HostState;
    use driftless_store::{FleetBounds, FleetChange};

    use super::*;

    fn set(store: &Store, name: &str, digest: &str, version: &str) {
        let report =
            HostReport { host: name.to_owned(), agent_version: version.to_owned(), ..HostReport::default() };
        let host = StoredHost {
            name: name.to_owned(),
            instance: "a1".to_owned(),
            digest: digest.to_owned(),
            received: Timestamp(1),
            report: serde_json::to_string(&report).unwrap(),
            conflict: None,
        };
        let bounds = FleetBounds { hosts: 10, bytes: 1 << 20 };
        store
            .change_fleet_host(name, bounds, |_| (FleetChange::Report(host), Vec::new(), ()))
            .unwrap()
            .unwrap();
    }

    fn last(reports: &ParsedReports, store: &Store) -> Vec<LastReport> {
        reports.last_reports(store).unwrap().into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn report_is_parsed_once_until_another_one_arrives() {
        let (store, reports) = (Store::in_memory(Clock::System).unwrap(), ParsedReports::default());
        set(&store, "nas", "1", "1.0");
        set(&store, "web", "1", "1.0");
        let first = last(&reports, &store);
        let again = last(&reports, &store);
        assert!(first.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(&a.report, &b.report)));
        set(&store, "nas", "2", "2.0");
        let next = last(&reports, &store);
        assert_eq!(next[0].report.agent_version, "2.0");
        assert!(Arc::ptr_eq(&next[1].report, &first[1].report));
        assert!(store.hear_fleet_host("web", "a1", "1", Timestamp(9)).unwrap());
        assert_eq!(last(&reports, &store)[1].received, Timestamp(9));
    }

    #[test]
    fn kept_report_counts_only_while_it_is_the_stored_one() {
        let (store, reports) = (Store::in_memory(Clock::System).unwrap(), ParsedReports::default());
        set(&store, "nas", "2", "2.0");
        let older = Arc::new(HostReport { host: "nas".to_owned(), ..HostReport::default() });
        reports.keep("nas", "1", Arc::clone(&older));
        reports.keep("gone", "1", older);
        let last = last(&reports, &store);
        assert_eq!((last.len(), last[0].report.agent_version.as_str()), (1, "2.0"));
        assert_eq!(reports.0.lock().unwrap().len(), 1, "hosts that are not stored are dropped");
    }

    #[test]
    fn report_of_another_release_is_unknown_until_the_next() {
        let (store, reports) = (Store::in_memory(Clock::System).unwrap(), ParsedReports::default());
        set(&store, "nas", "1", "1.0");
        let host = StoredHost {
            digest: "2".to_owned(),
            report: "{}".to_owned(),
            ..store.fleet_host("nas").unwrap().unwrap()
        };
        let bounds = FleetBounds { hosts: 10, bytes: 1 << 20 };
        store
            .change_fleet_host("nas", bounds, |_| (FleetChange::Report(host), Vec::new(), ()))
            .unwrap()
            .unwrap();
        // Not left out: who waits for all hosts would not wait for it.
        for _ in 0..2 {
            let hosts = reports.hosts(&store, Timestamp(2)).unwrap();
            assert_eq!((hosts.len(), hosts[0].name.as_str(), hosts[0].state), (1, "nas", HostState::Stale));
            assert!(hosts[0].reason.contains("another release"), "{}", hosts[0].reason);
        }
        // Silence makes it lost, as any other.
        let minutes = |count| Timestamp(1).after(Duration::from_mins(count));
        assert_eq!(reports.hosts(&store, minutes(9)).unwrap()[0].state, HostState::Stale);
        assert_eq!(reports.hosts(&store, minutes(10)).unwrap()[0].state, HostState::Lost);
        // Its next heartbeat is asked for a whole report.
        assert!(!reports.is_readable(&store, "nas", "2").unwrap());
        assert!(!ParsedReports::default().is_readable(&store, "nas", "2").unwrap());
        set(&store, "nas", "3", "1.0");
        assert!(reports.is_readable(&store, "nas", "3").unwrap());
        assert!(reports.is_readable(&store, "web", "3").unwrap(), "nothing is stored of it");
    }
}
