//! The reports of the hosts of a collector, each parsed once and shared by all views. The database decides which report is
//! the last one of a host; its digest says whether the parsed one is still that.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use driftless_fleet::{HostReport, LastReport};
use driftless_store as store;
use driftless_store::{FleetRow, Store};

use crate::stored_reports::{last_report, name_conflict};

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), parsed);
    }

    /// The last reports of all hosts. Parses those that are new. Reads the store, so it blocks.
    pub(crate) fn last_reports(&self, store: &Store) -> Result<Vec<LastReport>, store::Error> {
        let rows = store.fleet_rows()?;
        let mut parsed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parsed.retain(|name, _| rows.binary_search_by(|row| row.name.as_str().cmp(name)).is_ok());
        let mut reports = Vec::with_capacity(rows.len());
        for FleetRow { name, instance: _, digest, received, conflict } in rows {
            if let Some(known) = parsed.get(&name).filter(|known| known.digest == digest) {
                let conflict = conflict.map(name_conflict);
                let report = known.report.clone();
                reports.extend(report.map(|report| LastReport { report, received, conflict }));
                continue;
            }
            // It may have been removed or replaced a moment ago.
            let Some(host) = store.fleet_host(&name)? else { continue };
            let digest = host.digest.clone();
            let last = last_report(host);
            let report = last.as_ref().map(|last| Arc::clone(&last.report));
            parsed.insert(name, ParsedReport { digest, report });
            reports.extend(last);
        }
        Ok(reports)
    }
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;
    use driftless_model::Timestamp;
    use driftless_store::{FleetBounds, FleetChange, StoredHost};

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

    #[test]
    fn report_is_parsed_once_until_another_one_arrives() {
        let (store, reports) = (Store::in_memory(Clock::System).unwrap(), ParsedReports::default());
        set(&store, "nas", "1", "1.0");
        set(&store, "web", "1", "1.0");
        let first = reports.last_reports(&store).unwrap();
        let again = reports.last_reports(&store).unwrap();
        assert!(first.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(&a.report, &b.report)));
        set(&store, "nas", "2", "2.0");
        let next = reports.last_reports(&store).unwrap();
        assert_eq!(next[0].report.agent_version, "2.0");
        assert!(Arc::ptr_eq(&next[1].report, &first[1].report));
        assert!(store.hear_fleet_host("web", "a1", "1", Timestamp(9)).unwrap());
        assert_eq!(reports.last_reports(&store).unwrap()[1].received, Timestamp(9));
    }

    #[test]
    fn kept_report_counts_only_while_it_is_the_stored_one() {
        let (store, reports) = (Store::in_memory(Clock::System).unwrap(), ParsedReports::default());
        set(&store, "nas", "2", "2.0");
        let older = Arc::new(HostReport { host: "nas".to_owned(), ..HostReport::default() });
        reports.keep("nas", "1", Arc::clone(&older));
        reports.keep("gone", "1", older);
        let last = reports.last_reports(&store).unwrap();
        assert_eq!((last.len(), last[0].report.agent_version.as_str()), (1, "2.0"));
        assert_eq!(reports.0.lock().unwrap().len(), 1, "hosts that are not stored are dropped");
    }

    #[test]
    fn report_of_another_release_is_left_out() {
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
        assert_eq!(reports.last_reports(&store).unwrap(), []);
        assert_eq!(reports.last_reports(&store).unwrap(), []);
    }
}
