//! The reports of the other hosts, for applications whose new commits wait for the first hosts (`after`).
//!
//! They are read from the places that this agent reports to, and from the reports that it accepts or reads for its own page.
//! Nothing is read while no commit waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{FleetPlace, FleetReports};
use driftless_fleet::{HostView, KnownHosts, LastReport, view};
use driftless_git::Lookup;
use driftless_model::{AppName, Timestamp};
use driftless_store::Store;
use tokio::{sync::Notify, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    enrolments::Enrolments,
    error::chain,
    fleet_reader::FleetReader,
    stored_reports::{last_report, latest},
};

/// The time between two reads of an agent.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(15);

/// Reports are read for this long after an application last asked for them.
const WANTED_FOR: Duration = Duration::from_mins(1);

/// Reports that could not be read again for this long are unknown.
const UNREAD_AFTER: Duration = Duration::from_mins(1);

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
    /// Whether there is a place to read from.
    has_source: bool,
    /// The applications that ask.
    asked: BTreeMap<AppName, Asked>,
    last_read: Option<Timestamp>,
    reports: Vec<LastReport>,
    error: String,
}

/// An application that asks for the reports.
#[derive(Debug)]
struct Asked {
    /// When it last asked.
    last: Timestamp,
    /// Whether there was a read since it first asked.
    is_answered: bool,
}

/// The answer to an application.
pub(crate) enum PeerHosts {
    Read(Vec<HostView>),
    Unknown(String),
    Pending,
}

impl PeerHosts {
    pub(crate) fn as_known(&self) -> KnownHosts<'_> {
        match self {
            Self::Read(hosts) => KnownHosts::Read(hosts),
            Self::Unknown(why) => KnownHosts::Unknown(why),
            Self::Pending => KnownHosts::Pending,
        }
    }
}

impl Peers {
    /// The hosts at this moment. From now on they are read for a while.
    pub(crate) fn hosts(&self, app: &AppName, now: Timestamp) -> PeerHosts {
        let mut state = self.state();
        if !state.has_source {
            let why = "this agent has no place to read the state of other hosts from: set `report.to`";
            return PeerHosts::Unknown(why.to_owned());
        }
        let asked = state.asked.entry(app.clone()).or_insert(Asked { last: now, is_answered: false });
        asked.last = now;
        let is_answered = asked.is_answered;
        self.0.wanted.notify_one();
        match state.last_read {
            _ if !is_answered => PeerHosts::Pending,
            Some(read) if now.since(read) < UNREAD_AFTER => {
                PeerHosts::Read(view(state.reports.clone(), &[], now))
            }
            Some(_) | None => PeerHosts::Unknown(format!("their reports cannot be read: {}", state.error)),
        }
    }

    /// The applications that ask.
    fn wanted(&self, now: Timestamp) -> Vec<AppName> {
        let mut state = self.state();
        state.asked.retain(|_, asked| now.since(asked.last) < WANTED_FOR);
        state.asked.keys().cloned().collect()
    }

    /// From now on there is a place to read from.
    pub fn set_readable(&self) {
        self.state().has_source = true;
    }

    /// Replaces the reports, which were read at `now` for these applications.
    pub fn publish(&self, read: Result<Vec<LastReport>, String>, apps: &[AppName], now: Timestamp) {
        let mut state = self.state();
        for app in apps {
            let asked = state.asked.entry(app.clone()).or_insert(Asked { last: now, is_answered: true });
            asked.is_answered = true;
        }
        match read {
            Ok(reports) => {
                (state.reports, state.last_read) = (reports, Some(now));
                state.error.clear();
            }
            Err(error) => {
                if state.error != error {
                    tracing::warn!(error, "could not read the reports of the first hosts; trying again");
                }
                state.error = error;
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PeersState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of the reports.
pub struct PeerSources {
    /// The reports that this agent accepts itself.
    pub accepted: Option<Store>,
    /// The place that its page reads.
    pub from: Option<FleetPlace>,
    /// For tokens, keys and passwords.
    pub environment: Lookup,
    /// The collectors that get signed requests.
    pub enrolments: Enrolments,
    /// The time between two reads.
    pub every: Duration,
    /// For the ages of reports.
    pub clock: Clock,
}

/// Starts the task that reads the reports while a commit waits for them.
pub fn start_peers(
    peers: &Peers,
    settings: &FleetReports,
    sources: PeerSources,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let places: Vec<FleetPlace> = settings.to.iter().chain(&sources.from).cloned().collect();
    if places.is_empty() && sources.accepted.is_none() {
        return;
    }
    peers.set_readable();
    let (peers, stop) = (peers.clone(), stop.clone());
    let mut places: Vec<(FleetPlace, Option<FleetReader>)> =
        places.into_iter().map(|place| (place, None)).collect();
    tasks.spawn(async move {
        loop {
            let wanted = peers.wanted(sources.clock.now());
            if wanted.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = peers.0.wanted.notified() => continue,
                }
            }
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = read_all(&sources, &mut places, &wanted) => read,
            };
            peers.publish(read, &wanted, sources.clock.now());
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(sources.every) => {}
            }
        }
    });
}

/// The reports of all places that answer. An error if none does.
async fn read_all(
    sources: &PeerSources,
    places: &mut [(FleetPlace, Option<FleetReader>)],
    wanted: &[AppName],
) -> Result<Vec<LastReport>, String> {
    let (mut reports, mut errors, mut has_answer) = (Vec::new(), Vec::new(), false);
    if let Some(store) = sources.accepted.clone() {
        match tokio::task::spawn_blocking(move || store.fleet_hosts()).await {
            Ok(Ok(hosts)) => {
                has_answer = true;
                reports.extend(hosts.into_iter().filter_map(last_report));
            }
            Ok(Err(error)) => errors.push(chain(&error)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    for (place, reader) in places {
        let ready = match reader.take() {
            Some(reader) => Ok(reader),
            None => FleetReader::of_peers(place, &sources.environment, sources.clock, &sources.enrolments),
        };
        let read = match ready {
            Ok(mut ready) => {
                let read = ready.read_of(wanted).await;
                if read.is_ok() {
                    *reader = Some(ready);
                }
                read
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(picture) => {
                has_answer = true;
                reports.extend(picture.reports);
            }
            Err(error) => errors.push(format!("{}: {}", place.url, chain(&error))),
        }
    }
    if has_answer { Ok(latest(reports)) } else { Err(errors.join("; ")) }
}
