//! The reports of the other hosts, for applications whose new commits wait for the first hosts (`after`).
//!
//! They are read from the places that this agent reports to, and from the reports that it accepts or reads for its own page.
//! Nothing is read while no commit waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{FleetPlace, FleetReports, PlaceKind};
use driftless_fleet::{HostView, KnownHosts, mark_unread, merge};
use driftless_git::Lookup;
use driftless_model::{AppName, Timestamp};
use driftless_store::Store;
use tokio::{sync::Notify, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    error::chain,
    fleet::{
        enrolments::Enrolments,
        reader::{FleetPicture, FleetReader, UNREAD_AFTER},
        report_error::ReportError,
        stored_reports::{last_report, stored_hosts},
    },
    lasting_tasks,
};

/// The time between two reads of an agent.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(15);

/// Reports are read for this long after an application last asked for them.
const WANTED_FOR: Duration = Duration::from_mins(1);

/// The name of the reports that this agent accepts, in messages.
const ACCEPTED: &str = "this agent";

/// The reports of the other hosts. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<PeersShared>);

#[derive(Debug, Default)]
struct PeersShared {
    state: Mutex<PeersState>,
    wanted: Notify,
}

#[derive(Debug, Default)]
struct PeersState {
    /// The applications that ask.
    asked: BTreeMap<AppName, Asked>,
    /// The places to read from.
    places: Vec<PlaceState>,
}

/// One place of reports.
#[derive(Debug)]
struct PlaceState {
    name: String,
    last_read: Option<Timestamp>,
    /// As it was read last.
    picture: FleetPicture,
    /// Why it could not be read since then. Empty: it was read, or its answer is on its way.
    error: String,
}

/// An application that asks for the reports.
#[derive(Debug)]
struct Asked {
    /// When it first asked, or had its first answer.
    first: Timestamp,
    /// When it last asked. `None`: that is too long ago.
    last: Option<Timestamp>,
    /// The places that were read for it.
    answered: BTreeSet<String>,
}

impl Asked {
    fn new(now: Timestamp) -> Self {
        Self { first: now, last: None, answered: BTreeSet::new() }
    }

    /// Whether all places were read since it first asked, or those that were not have had the time for it.
    fn is_answered(&self, places: &[PlaceState], now: Timestamp) -> bool {
        now.since(self.first) >= UNREAD_AFTER
            || places.iter().all(|place| self.answered.contains(&place.name))
    }
}

/// The answer to an application.
pub(crate) enum PeerHosts {
    /// With one sentence for each place that may have other hosts.
    Read(Vec<HostView>, Vec<String>),
    Unknown(String),
    Pending,
}

impl PeerHosts {
    pub(crate) fn as_known(&self) -> KnownHosts<'_> {
        match self {
            Self::Read(hosts, missing) => KnownHosts::Read { hosts, missing },
            Self::Unknown(why) => KnownHosts::Unknown(why),
            Self::Pending => KnownHosts::Pending,
        }
    }
}

impl Peers {
    /// The hosts at this moment. From now on they are read for a while.
    pub(crate) fn hosts(&self, app: &AppName, now: Timestamp) -> PeerHosts {
        let mut state = self.state();
        if state.places.is_empty() {
            let why = "this agent has no place to read the state of other hosts from: set `report.to`";
            return PeerHosts::Unknown(why.to_owned());
        }
        let PeersState { asked, places } = &mut *state;
        let asked = asked.entry(app.clone()).or_insert_with(|| Asked::new(now));
        asked.last = Some(now);
        let is_answered = asked.is_answered(places, now);
        self.0.wanted.notify_waiters();
        if is_answered { known_hosts(&state.places, now) } else { PeerHosts::Pending }
    }

    /// The applications that ask.
    fn wanted(&self, now: Timestamp) -> Vec<AppName> {
        let mut state = self.state();
        state.asked.retain(|_, asked| asked.last.is_some_and(|last| now.since(last) < WANTED_FOR));
        state.asked.keys().cloned().collect()
    }

    /// Waits until an application asks. Returns those that do.
    async fn until_wanted(&self, clock: Clock) -> Vec<AppName> {
        loop {
            let mut asked = pin!(self.0.wanted.notified());
            asked.as_mut().enable();
            let wanted = self.wanted(clock.now());
            if !wanted.is_empty() {
                return wanted;
            }
            asked.await;
        }
    }

    /// From now on these places are read.
    pub fn set_places(&self, names: impl IntoIterator<Item = String>) {
        self.state().places = names.into_iter().map(PlaceState::new).collect();
    }

    /// Notes what a place had for these applications, or why it could not be read. It then keeps the hosts of its last read.
    pub fn note(&self, place: &str, read: Result<FleetPicture, String>, apps: &[AppName], now: Timestamp) {
        let mut state = self.state();
        for app in apps {
            let asked = state.asked.entry(app.clone()).or_insert_with(|| Asked::new(now));
            asked.answered.insert(place.to_owned());
        }
        if let Some(known) = state.places.iter_mut().find(|known| known.name == place) {
            known.note(read, now);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PeersState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlaceState {
    fn new(name: String) -> Self {
        let error = "it has not answered yet".to_owned();
        Self { name, last_read: None, picture: FleetPicture::default(), error }
    }

    fn note(&mut self, read: Result<FleetPicture, String>, at: Timestamp) {
        match read {
            Ok(mut picture) => {
                picture.keep_missing(&self.picture);
                (self.picture, self.last_read) = (picture, Some(at));
                self.error.clear();
            }
            Err(error) => {
                if self.error != error {
                    let from = self.name.as_str();
                    tracing::warn!(
                        from,
                        error,
                        "could not read the reports of the first hosts; trying again"
                    );
                }
                self.error = error;
            }
        }
    }

    fn is_read(&self, now: Timestamp) -> bool {
        self.last_read.is_some_and(|at| now.since(at) < UNREAD_AFTER)
    }

    fn problem(&self) -> String {
        let error = if self.error.is_empty() { "it does not answer" } else { &self.error };
        format!("the reports at {} cannot be read: {error}", self.name)
    }

    /// A sentence if it may have hosts that this agent does not know.
    fn missing(&self) -> Option<String> {
        match (self.last_read, &self.picture.missing) {
            (None, _) => Some(self.problem()),
            (Some(_), Some(missing)) => {
                Some(format!("the hosts at {} are not all known: {missing}", self.name))
            }
            (Some(_), None) => None,
        }
    }

    /// The hosts as they were when it was read. If that is too long ago, those that were fresh are stale.
    fn hosts(&self, now: Timestamp) -> Vec<HostView> {
        let mut hosts = self.picture.hosts.clone();
        if !self.is_read(now) {
            mark_unread(&mut hosts, &self.problem());
        }
        hosts
    }
}

/// The hosts of all places. A place that does not answer adds only hosts that no other place has heard since.
fn known_hosts(places: &[PlaceState], now: Timestamp) -> PeerHosts {
    if !places.iter().any(|place| place.is_read(now)) {
        let errors: Vec<String> =
            places.iter().map(|place| format!("{}: {}", place.name, place.error)).collect();
        return PeerHosts::Unknown(format!("their reports cannot be read: {}", errors.join("; ")));
    }
    let hosts = merge(places.iter().flat_map(|place| place.hosts(now)), &[]);
    PeerHosts::Read(hosts, places.iter().filter_map(PlaceState::missing).collect())
}

/// The places of the reports.
pub struct PeerSources {
    /// The reports that this agent accepts itself.
    pub accepted: Option<Store>,
    /// The place that its page reads.
    pub from: Option<FleetPlace>,
    pub access: PeerAccess,
}

/// Everything that reading a place takes.
pub struct PeerAccess {
    /// For tokens, keys and passwords.
    pub environment: Lookup,
    /// The collectors that get signed requests.
    pub enrolments: Enrolments,
    /// The time between two reads.
    pub every: Duration,
    /// For the ages of reports.
    pub clock: Clock,
}

/// A place of reports that is read.
enum PeerSource {
    /// The reports that this agent accepts.
    Accepted(Store),
    /// Its reader is another one after a failure.
    Place(Box<FleetPlace>, Option<FleetReader>),
}

impl PeerSource {
    fn name(&self) -> &str {
        match self {
            Self::Accepted(_) => ACCEPTED,
            Self::Place(place, _) => &place.url,
        }
    }

    async fn read(&mut self, access: &PeerAccess, wanted: &[AppName]) -> Result<FleetPicture, String> {
        match self {
            Self::Accepted(store) => {
                let (store, now) = (store.clone(), access.clock.now());
                let read = tokio::task::spawn_blocking(move || accepted_hosts(&store, now)).await;
                read.unwrap_or_else(|error| Err(error.to_string()))
            }
            Self::Place(place, reader) => {
                read_place(access, place, reader, wanted).await.map_err(|error| chain(&error))
            }
        }
    }
}

/// Starts the tasks that read the reports while a commit waits for them: one for each place, so that one that hangs makes no other
/// one old.
pub fn start_peers(
    peers: &Peers,
    settings: &FleetReports,
    sources: PeerSources,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let PeerSources { accepted, from, access } = sources;
    let places = places(settings, from.as_ref());
    let places = places.into_iter().map(|place| PeerSource::Place(Box::new(place), None));
    let all: Vec<PeerSource> = accepted.map(PeerSource::Accepted).into_iter().chain(places).collect();
    peers.set_places(all.iter().map(|source| source.name().to_owned()));
    let access = Arc::new(access);
    for mut source in all {
        let (peers, stop, access) = (peers.clone(), stop.clone(), Arc::clone(&access));
        lasting_tasks::start("reports of other hosts", (stop.clone(), tasks), async move {
            let reading = async {
                loop {
                    let wanted = peers.until_wanted(access.clock).await;
                    let read = source.read(&access, &wanted).await;
                    peers.note(source.name(), read, &wanted, access.clock.now());
                    sleep(access.every).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = reading => {}
            }
        });
    }
}

/// The places to read. Of one that the agent both reports to and reads for its page, the keys are those that read: the others may
/// write alone. An agent knows each host by the key that it reports with.
fn places(settings: &FleetReports, from: Option<&FleetPlace>) -> Vec<FleetPlace> {
    let is_from = |to: &FleetPlace| from.is_some_and(|from| from.url == to.url);
    let place = |to: &FleetPlace| match (from, &to.kind) {
        (Some(from), PlaceKind::Bucket(_) | PlaceKind::Folder(_)) if is_from(to) => from.clone(),
        (Some(_) | None, _) => to.clone(),
    };
    let other = from.filter(|_| !settings.to.iter().any(is_from));
    settings.to.iter().map(place).chain(other.cloned()).collect()
}

/// After a failure there is a new reader, so that another CA file takes effect. It does not know the last reports.
async fn read_place(
    access: &PeerAccess,
    place: &FleetPlace,
    reader: &mut Option<FleetReader>,
    wanted: &[AppName],
) -> Result<FleetPicture, ReportError> {
    let mut ready = match reader.take() {
        Some(reader) => reader,
        None => FleetReader::of_peers(place, &access.environment, access.clock, &access.enrolments)?,
    };
    let picture = ready.read_of(wanted).await?;
    *reader = Some(ready);
    Ok(picture)
}

/// The hosts whose reports this agent accepts. Reads the store, so it blocks.
fn accepted_hosts(store: &Store, now: Timestamp) -> Result<FleetPicture, String> {
    let rows = store.fleet_hosts().map_err(|error| chain(&error))?;
    let hosts = stored_hosts(rows.into_iter().map(last_report), now);
    Ok(FleetPicture { hosts, ..FleetPicture::default() })
}

#[cfg(test)]
mod tests {
    use driftless_fleet::{HostReport, HostState, LastReport, RepositoryReport, view};
    use driftless_model::CommitId;

    use super::*;

    const NOW: Timestamp = Timestamp(100_000_000);

    fn at(seconds: u64) -> Timestamp {
        NOW.after(Duration::from_secs(seconds))
    }

    /// A healthy or degraded host that a place heard `age` seconds before it was read.
    fn host(name: &str, message: &str, age: u64, read: Timestamp) -> HostView {
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(CommitId::from_stored("a".repeat(40))),
            message: message.to_owned(),
            ..RepositoryReport::default()
        };
        let report = HostReport {
            host: name.to_owned(),
            every: 5,
            repositories: vec![repository],
            ..Default::default()
        };
        let received = Timestamp(read.0 - age * 1000);
        view(vec![LastReport { report: Arc::new(report), received, conflict: None }], &[], read).remove(0)
    }

    /// The hosts that an application knows after places were read at this time.
    struct Reading(Peers);

    impl Reading {
        fn new(places: &[&str]) -> Self {
            let peers = Peers::default();
            peers.set_places(places.iter().map(|name| (*name).to_owned()));
            Self(peers)
        }

        fn read(&self, place: &str, read: Result<Vec<HostView>, &str>, at: Timestamp) {
            let picture = |hosts| FleetPicture { hosts, ..FleetPicture::default() };
            let read = read.map(picture).map_err(str::to_owned);
            self.0.note(place, read, &[AppName::from("shop")], at);
        }

        fn known(&self, at: Timestamp) -> (Vec<(String, HostState)>, Vec<String>) {
            match self.0.hosts(&AppName::from("shop"), at) {
                PeerHosts::Read(hosts, missing) => {
                    (hosts.into_iter().map(|host| (host.name, host.state)).collect(), missing)
                }
                PeerHosts::Unknown(why) => (Vec::new(), vec![why]),
                PeerHosts::Pending => panic!("it was read"),
            }
        }
    }

    #[test]
    fn host_of_a_place_that_is_down_stays_in_the_picture() {
        let peers = Reading::new(&["hub", "dav"]);
        let can = |read| host("can", "", 1, read);
        peers.read("hub", Ok(vec![can(NOW)]), NOW);
        peers.read("dav", Ok(vec![host("can2", "it has a problem", 1, NOW), can(NOW)]), NOW);
        let names = |first: HostState, second: HostState| {
            let mut both = vec![("can2".to_owned(), first), ("can".to_owned(), second)];
            both.sort_by_key(|(name, state)| (*state, name.clone()));
            both
        };
        for (second, state) in [(30, HostState::OutOfSync), (61, HostState::Stale), (9000, HostState::Stale)]
        {
            peers.read("dav", Err("it does not answer"), at(second));
            peers.read("hub", Ok(vec![can(at(second))]), at(second));
            let expected = names(state, HostState::Healthy);
            assert_eq!(peers.known(at(second)), (expected, Vec::new()), "the other one is known at the hub");
        }
        peers.read("dav", Ok(vec![host("can2", "", 1, at(9010))]), at(9010));
        assert_eq!(peers.known(at(9010)).0, names(HostState::Healthy, HostState::Healthy));
        // Nobody answers.
        for place in ["hub", "dav"] {
            peers.read(place, Err("it does not answer"), at(9100));
        }
        let why = "their reports cannot be read: hub: it does not answer; dav: it does not answer";
        assert_eq!(peers.known(at(9100)), (Vec::new(), vec![why.to_owned()]));
    }

    #[test]
    fn place_that_was_never_read_may_have_other_hosts() {
        let peers = Reading::new(&["hub", "dav"]);
        peers.read("hub", Ok(Vec::new()), NOW);
        peers.read("dav", Err("it does not answer"), NOW);
        let missing = "the reports at dav cannot be read: it does not answer".to_owned();
        assert_eq!(peers.known(NOW), (Vec::new(), vec![missing]));
        peers.read("dav", Ok(Vec::new()), at(1));
        assert_eq!(peers.known(at(1)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn host_is_fresh_until_the_next_read() {
        let peers = Reading::new(&["hub"]);
        for round in 0..8 {
            let read = at(round * READ_EVERY.as_secs());
            // Its last heartbeat came five seconds before, and three of them are as long as the time between two reads.
            peers.read("hub", Ok(vec![host("can", "", 5, read)]), read);
            for later in 0..READ_EVERY.as_secs() {
                let now = read.after(Duration::from_secs(later));
                assert_eq!(peers.known(now).0, [("can".to_owned(), HostState::Healthy)], "{later}");
            }
        }
        let read = at(120);
        peers.read("hub", Ok(vec![host("can", "", 20, read)]), read);
        assert_eq!(peers.known(read).0, [("can".to_owned(), HostState::Stale)]);
    }

    #[test]
    fn place_that_hangs_makes_no_other_one_old() {
        let peers = Reading::new(&["hub", "dav"]);
        peers.read("hub", Ok(vec![host("can", "", 1, NOW)]), NOW);
        // The answer waits for all places, and not for ever.
        assert!(matches!(peers.0.hosts(&AppName::from("shop"), at(59)), PeerHosts::Pending));
        peers.read("hub", Ok(vec![host("can", "", 1, at(60))]), at(60));
        let missing = "the reports at dav cannot be read: it has not answered yet".to_owned();
        assert_eq!(peers.known(at(60)), (vec![("can".to_owned(), HostState::Healthy)], vec![missing]));
        peers.read("dav", Ok(vec![host("can2", "", 1, at(90))]), at(90));
        peers.read("hub", Ok(vec![host("can", "", 1, at(600))]), at(600));
        let both = [("can2".to_owned(), HostState::Stale), ("can".to_owned(), HostState::Healthy)];
        assert_eq!(peers.known(at(600)).0, both);
    }

    #[test]
    fn bucket_is_read_with_the_keys_that_read_it() {
        let keys = |text: &str, file: &str| {
            let mut place = FleetPlace::parse(text).unwrap();
            if let PlaceKind::Bucket(bucket) = &mut place.kind {
                bucket.credentials_file = Some(file.into());
            }
            place
        };
        let (hub, bucket) = (keys("https://hub.example.com", ""), keys("s3://fleet/prod", "/write"));
        let settings = FleetReports { to: vec![hub.clone(), bucket.clone()], ..FleetReports::default() };
        assert_eq!(places(&settings, None), [hub.clone(), bucket.clone()]);
        let reading = keys("s3://fleet/prod", "/read");
        assert_eq!(places(&settings, Some(&reading)), [hub.clone(), reading]);
        let other = keys("s3://fleet/test", "/read");
        assert_eq!(places(&settings, Some(&other)), [hub, bucket, other]);
    }
}
