//! Reads the reports of all hosts where they are kept: in a bucket, in a folder, or at another agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{FleetPlace, PlaceKind};
use driftless_fleet::{
    FleetStatus, HostReport, HostView, LARGEST_COMPRESSED, LastReport, NameConflict, mark_unread, view,
};
use driftless_git::{Lookup, read_secret};
use driftless_model::{AppName, HostIdentity, Timestamp, printable};
use driftless_objects::{Listed, Listing, Objects, SecretSource};
use futures_util::{StreamExt as _, stream};

use crate::fleet::{
    collector_client::CollectorClient,
    enrolments::Enrolments,
    report_error::ReportError,
    report_object::{CONFLICT_END, LARGEST_CONFLICT, REPORT_END, conflict_of, read_report},
};

/// Hosts of a place that could not be read for this long are stale, and so is a host whose object could not be.
pub(crate) const UNREAD_AFTER: Duration = Duration::from_mins(1);

/// The most hosts that are read.
const MOST_HOSTS: usize = 1000;

/// Objects that are read at the same time.
const AT_ONCE: usize = 8;

/// The largest answer of another agent, in bytes.
const LARGEST_ANSWER: usize = 64 << 20;

/// The reports of a fleet, as they were read.
#[derive(Clone, Debug, Default)]
pub struct FleetPicture {
    /// The hosts as the place judged them when it was read. Times are by the clock of this machine. A host whose report cannot
    /// be read is stale.
    pub hosts: Vec<HostView>,
    /// One sentence for each report that cannot be read.
    pub unreadable: Vec<String>,
    /// A sentence if the place may have other hosts, such as a collector that cannot read its own place.
    pub missing: Option<String>,
}

impl FleetPicture {
    /// Its errors, in one line. Empty: none.
    pub fn error(&self) -> String {
        self.missing.iter().chain(&self.unreadable).cloned().collect::<Vec<_>>().join("; ")
    }

    /// Adds the hosts of an older picture that this one may lack, as unknown ones, for this reason.
    pub(crate) fn keep_missing(&mut self, before: &Self) {
        let Some(missing) = &self.missing else { return };
        let known: BTreeSet<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        let lacking = before.hosts.iter().filter(|host| !known.contains(host.name.as_str()));
        let most = MOST_HOSTS.saturating_sub(self.hosts.len());
        let mut kept: Vec<HostView> = lacking.take(most).cloned().collect();
        mark_unread(&mut kept, missing);
        self.hosts.extend(kept);
    }
}

/// Reads the reports of one place. An object that has not changed is not read again.
pub struct FleetReader {
    source: Source,
    clock: Clock,
    /// The last reports, by host.
    known: BTreeMap<String, Known>,
}

enum Source {
    Objects(Objects),
    /// Another agent, with the path of its reports.
    Collector(CollectorClient, &'static str),
}

/// A report with the version of its object.
#[derive(Clone)]
struct Known {
    tag: Option<String>,
    report: Result<Arc<HostReport>, String>,
    /// The last report that could be read, with the time at which it was written by the clock of the server.
    good: Option<(Arc<HostReport>, Timestamp)>,
    /// The last note about another machine with this name, by the clock of this machine.
    conflict: Option<NameConflict>,
    /// Since when the server refuses the object.
    unread_since: Option<Timestamp>,
}

impl Known {
    /// A report whose object the server does not give, although it lists it. For a minute, it is as it was read before.
    fn unread(before: Option<&Self>, error: &str, now: Timestamp) -> Self {
        let since = before.and_then(|known| known.unread_since).unwrap_or(now);
        let kept = before.filter(|_| now.since(since) < UNREAD_AFTER);
        Self {
            tag: None,
            report: kept.map_or_else(|| Err(error.to_owned()), |known| known.report.clone()),
            good: before.and_then(|known| known.good.clone()),
            conflict: None,
            unread_since: Some(since),
        }
    }
}

impl FleetReader {
    /// A reader of `place`. Asks no server.
    ///
    /// # Errors
    /// If the settings of the place cannot be used.
    pub fn new(place: &FleetPlace, environment: &Lookup, clock: Clock) -> Result<Self, ReportError> {
        Self::at(place, "/api/v1/fleet/hosts", environment, clock, Enrolments::default())
    }

    /// A reader of what a host may know about the others, with the token or key that it reports with.
    pub(crate) fn of_peers(
        place: &FleetPlace,
        environment: &Lookup,
        clock: Clock,
        enrolments: &Enrolments,
    ) -> Result<Self, ReportError> {
        Self::at(place, "/api/v1/fleet/peers", environment, clock, enrolments.clone())
    }

    fn at(
        place: &FleetPlace,
        path: &'static str,
        environment: &Lookup,
        clock: Clock,
        enrolments: Enrolments,
    ) -> Result<Self, ReportError> {
        let secrets = SecretSource { environment: environment.clone(), read: read_secret };
        let source = match (&place.kind, Objects::open(place, secrets, clock)?) {
            (_, Some(objects)) => Source::Objects(objects),
            (PlaceKind::Collector { token }, None) => {
                let client = CollectorClient::new(place, token.clone(), environment.clone())?;
                Source::Collector(client.signing(enrolments), path)
            }
            (PlaceKind::Bucket(_) | PlaceKind::Folder(_), None) => {
                return Err(ReportError::Client("the place keeps no objects".to_owned()));
            }
        };
        Ok(Self { source, clock, known: BTreeMap::new() })
    }

    /// The reports at this moment.
    pub async fn read(&mut self) -> Result<FleetPicture, ReportError> {
        self.read_at("").await
    }

    /// The reports at this moment. Another agent leaves out all but these applications.
    pub(crate) async fn read_of(&mut self, apps: &[AppName]) -> Result<FleetPicture, ReportError> {
        let names: Vec<&str> = apps.iter().map(AppName::as_str).collect();
        self.read_at(&format!("?applications={}", names.join(","))).await
    }

    async fn read_at(&mut self, query: &str) -> Result<FleetPicture, ReportError> {
        match &self.source {
            Source::Objects(objects) => {
                let listing = objects.list().await?;
                let now = self.clock.now();
                let (picture, known) = read_objects(objects, listing, &self.known, now).await?;
                self.known = known;
                Ok(picture)
            }
            Source::Collector(client, path) => {
                let answer = client.get(&format!("{path}{query}"), LARGEST_ANSWER).await?;
                let status: FleetStatus = serde_json::from_slice(&answer.body)
                    .map_err(|error| ReportError::Foreign(error.to_string()))?;
                let now = self.clock.now();
                let there = answer.date.as_deref().and_then(Timestamp::parse_http).unwrap_or(now);
                Ok(of_collector(status, there, now))
            }
        }
    }
}

/// A moment of another clock, by that of this machine.
fn here(at: Timestamp, there: Timestamp, now: Timestamp) -> Timestamp {
    now.before(there.since(at))
}

fn of_collector(status: FleetStatus, there: Timestamp, now: Timestamp) -> FleetPicture {
    let missing = match status.source {
        _ if status.hosts.len() > MOST_HOSTS => Some(too_many_hosts()),
        Some(source) if source.last_read.is_none() => {
            Some("it has not read the reports of its own place yet".to_owned())
        }
        Some(source) if !source.missing.is_empty() => {
            Some("it does not know all hosts of its own place".to_owned())
        }
        Some(_) | None => None,
    };
    let mut picture = FleetPicture { missing, ..FleetPicture::default() };
    for host in status.hosts.into_iter().take(MOST_HOSTS) {
        let checked = match &host.report {
            Some(report) => report.check(&host.name).map_err(|error| error.to_string()),
            None if HostIdentity::is_name(&host.name) => Ok(()),
            None => Err("it is no name of a host".to_owned()),
        };
        let name = printable(&host.name);
        picture.hosts.push(match checked {
            // The collector has judged the age of the report, with its own clock.
            Ok(()) => HostView {
                reason: printable(&host.reason),
                last_heard: host.last_heard.map(|heard| here(heard, there, now)),
                ..host
            },
            Err(error) => unreadable(&mut picture.unreadable, &name, &error, None),
        });
    }
    picture
}

fn too_many_hosts() -> String {
    format!("it has more than {MOST_HOSTS} hosts, and the others are not read")
}

/// A host whose report cannot be read, with the last one that could be. Adds the sentence.
fn unreadable(sentences: &mut Vec<String>, name: &str, why: &str, good: Option<LastReport>) -> HostView {
    sentences.push(format!("{name}: {why}"));
    let (report, heard) = good.map(|last| (last.report, last.received)).unzip();
    HostView::unknown(name, format!("its report cannot be read: {why}"), report, heard)
}

/// The host that an object of this name is about.
fn host_of<'a>(name: &'a str, end: &str) -> Option<&'a str> {
    name.strip_suffix(end).filter(|host| HostIdentity::is_name(host))
}

async fn read_objects(
    objects: &Objects,
    listing: Listing,
    known: &BTreeMap<String, Known>,
    now: Timestamp,
) -> Result<(FleetPicture, BTreeMap<String, Known>), ReportError> {
    let there = listing.now.unwrap_or(now);
    let mut reports: Vec<(&str, &Listed)> =
        listing.objects.iter().filter_map(|it| Some((host_of(&it.name, REPORT_END)?, it))).collect();
    let missing = (reports.len() > MOST_HOSTS).then(too_many_hosts);
    reports.truncate(MOST_HOSTS);
    let mut conflicts = BTreeMap::new();
    for listed in &listing.objects {
        let Some(host) = host_of(&listed.name, CONFLICT_END) else { continue };
        let conflict = match objects.get(&listed.name, LARGEST_CONFLICT).await {
            Ok(object) => object
                .and_then(|object| conflict_of(&object.body, listed.modified))
                .map(|conflict| NameConflict { at: here(conflict.at, there, now), ..conflict }),
            Err(_) => known.get(host).and_then(|known| known.conflict.clone()),
        };
        conflicts.extend(conflict.map(|conflict| (host, conflict)));
    }
    let mut reads = Vec::new();
    for (host, listed) in &reports {
        reads.push(read_one(objects, host, listed, known.get(*host)));
    }
    let read: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    let (mut picture, mut kept) = (FleetPicture { missing, ..FleetPicture::default() }, BTreeMap::new());
    let (mut last_reports, mut failures) = (Vec::new(), Vec::new());
    for ((host, _), one) in reports.into_iter().zip(read) {
        let one = match one {
            Ok(Some(one)) => one,
            Ok(None) => continue,
            // One object, such as that of a host which is gone for good, hides no other.
            Err(error) => {
                let unread = Known::unread(known.get(host), &error.to_string(), now);
                failures.push(error);
                unread
            }
        };
        let conflict = conflicts.remove(host);
        let good = one.good.clone().map(|(report, written)| LastReport {
            report,
            received: here(written, there, now),
            conflict: conflict.clone(),
        });
        let why = match &one.report {
            Ok(_) => "the server does not say when it was written",
            Err(error) => error,
        };
        match good {
            Some(last) if one.report.is_ok() => last_reports.push(last),
            good => picture.hosts.push(unreadable(&mut picture.unreadable, host, why, good)),
        }
        kept.insert(host.to_owned(), Known { conflict, ..one });
    }
    // Not one can be read: the key or the server is the cause.
    if failures.len() == kept.len()
        && let Some(error) = failures.into_iter().next()
    {
        return Err(error);
    }
    picture.hosts.extend(view(last_reports, &[], now));
    Ok((picture, kept))
}

/// A report, if it is still there. One of the known version is not read again.
async fn read_one(
    objects: &Objects,
    host: &str,
    listed: &Listed,
    known: Option<&Known>,
) -> Result<Option<Known>, ReportError> {
    let good = known.and_then(|known| known.good.clone());
    let (tag, report) = match known.filter(|known| known.tag.is_some() && known.tag == listed.tag) {
        Some(known) => (known.tag.clone(), known.report.clone()),
        None => match objects.get(&listed.name, LARGEST_COMPRESSED).await? {
            Some(object) => (object.tag, read_report(&object.body, host).map(Arc::new)),
            None => return Ok(None),
        },
    };
    let written = report.as_ref().ok().cloned().zip(listed.modified);
    Ok(Some(Known { tag, report, good: written.or(good), conflict: None, unread_since: None }))
}

#[cfg(test)]
mod tests {
    use driftless_fleet::{Freshness, HostState, SourceStatus};

    use super::*;

    #[test]
    fn age_is_that_of_the_other_clock() {
        // The other clock is an hour ahead.
        let (there, now) = (Timestamp(10_000_000), Timestamp(6_400_000));
        assert_eq!(here(Timestamp(9_970_000), there, now), Timestamp(6_370_000));
        assert_eq!(here(Timestamp(10_000_500), there, now), now, "from its future");
        assert_eq!(here(Timestamp(0), Timestamp(u64::MAX), now), Timestamp(0));
    }

    #[test]
    fn refused_object_is_as_it_was_read_for_a_minute() {
        let report = Arc::new(HostReport::default());
        let read = Known {
            tag: Some("a".to_owned()),
            report: Ok(Arc::clone(&report)),
            good: Some((report, Timestamp(1))),
            conflict: None,
            unread_since: None,
        };
        let at = |seconds: u64| Timestamp(10_000_000 + seconds * 1000);
        let refused = Known::unread(Some(&read), "403", at(0));
        assert!(refused.report.is_ok() && refused.tag.is_none(), "it is asked for again");
        let refused = Known::unread(Some(&refused), "403", at(59));
        assert!(refused.report.is_ok());
        let refused = Known::unread(Some(&refused), "403", at(60));
        assert_eq!(refused.report.unwrap_err(), "403");
        assert!(refused.good.is_some(), "with its last report");
        assert!(Known::unread(None, "403", at(0)).report.is_err(), "it was never read");
    }

    #[test]
    fn collector_judges_its_hosts() {
        let now = Timestamp(10_000_000);
        let report = |host: &str| HostReport {
            host: host.to_owned(),
            instance: "a1".to_owned(),
            every: 180,
            ..HostReport::default()
        };
        let last = |host| LastReport { report: Arc::new(report(host)), received: now, conflict: None };
        let mut hosts = view(vec![last("nas"), last("web")], &["tv".to_owned()], now);
        hosts
            .iter_mut()
            .filter(|host| host.name == "web")
            .for_each(|web| mark_unread(std::slice::from_mut(web), "x"));
        hosts.push(HostView::unknown("pi", "it is no gzip".to_owned(), None, None));
        hosts.push(HostView::unknown("../pi", String::new(), None, None));
        let later = HostReport { schema: 2, ..report("old") };
        let later = LastReport { report: Arc::new(later), received: now, conflict: None };
        hosts.extend(view(vec![later], &[], now));
        let states = |picture: &FleetPicture| -> Vec<(String, HostState)> {
            picture.hosts.iter().map(|host| (host.name.clone(), host.state)).collect()
        };
        let listed = FleetStatus { hosts, ..FleetStatus::default() };
        let picture = of_collector(listed.clone(), now, now);
        let expected = [
            ("tv", HostState::NeverReported),
            ("web", HostState::Stale),
            ("nas", HostState::Progressing),
            ("pi", HostState::Stale),
            ("../pi", HostState::Stale),
            ("old", HostState::Stale),
        ];
        let mut found = states(&picture);
        found.sort();
        let mut expected = expected.map(|(name, state)| (name.to_owned(), state));
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(
            (picture.unreadable.len(), picture.missing.as_deref()),
            (2, None),
            "{:?}",
            picture.unreadable
        );
        let source = Some(SourceStatus::default());
        let unread = of_collector(FleetStatus { source, ..listed.clone() }, now, now);
        assert_eq!(unread.missing.as_deref(), Some("it has not read the reports of its own place yet"));
        let source =
            SourceStatus { last_read: Some(now), missing: "x".to_owned(), ..SourceStatus::default() };
        let nas = listed.hosts.iter().filter(|host| host.name == "nas").cloned().collect();
        let mut some = of_collector(FleetStatus { source: Some(source), hosts: nas, ..listed }, now, now);
        assert_eq!(some.missing.as_deref(), Some("it does not know all hosts of its own place"));
        // A host that was known is still there, and its state is not.
        some.keep_missing(&picture);
        let old = HostView {
            state: HostState::Healthy,
            freshness: Some(Freshness::Fresh),
            ..picture.hosts[0].clone()
        };
        let before = FleetPicture {
            hosts: vec![HostView { name: "tv2".to_owned(), ..old }],
            ..FleetPicture::default()
        };
        some.keep_missing(&before);
        assert_eq!(some.hosts.iter().filter(|host| host.name == "nas").count(), 1);
        let (name, state) = states(&some).into_iter().find(|(name, _)| name == "tv2").unwrap();
        assert_eq!((name.as_str(), state), ("tv2", HostState::Stale));
        some.missing = None;
        let count = some.hosts.len();
        some.keep_missing(&FleetPicture {
            hosts: vec![HostView::unknown("gone", String::new(), None, None)],
            ..before
        });
        assert_eq!(some.hosts.len(), count, "a whole picture lacks none");
    }

    #[test]
    fn only_names_of_hosts_are_reports() {
        assert_eq!(host_of("nas.json.gz", REPORT_END), Some("nas"));
        assert_eq!(host_of("nas.conflict.json", REPORT_END), None);
        assert_eq!(host_of("nas.conflict.json", CONFLICT_END), Some("nas"));
        assert_eq!(host_of("..%2f.json.gz", REPORT_END), None);
        assert_eq!(host_of(".json.gz", REPORT_END), None);
    }
}
