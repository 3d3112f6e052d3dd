//! The fleet: the places that this agent reports to, and the hosts whose reports it accepts or reads. A token stays the name
//! of a file or variable.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{HostIdentity, HostRequestKind};
use driftless_yaml::Kind;

use crate::{
    fleet_place::{FleetPlace, PlaceKind, secret},
    keys,
    value::{Fields as _, Value},
};

/// The fastest and the slowest heartbeat. A host must be stale, after three missed ones, before it is lost after ten minutes.
const EVERY: [Duration; 2] = [Duration::from_secs(5), Duration::from_mins(3)];

/// Reports of the state of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetReports {
    /// Each of them gets all reports. Empty: none.
    pub to: Vec<FleetPlace>,
    /// The time between two heartbeats. Default: 30 s.
    pub every: Duration,
}

/// The fleet that reports to this agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Whether reports are accepted. Default: no.
    pub accept: bool,
    /// Whether hosts must be enrolled. Default: they may report with a token as well.
    pub enrolment: Enrolment,
    /// The requests that a collector may make to this host, which has joined it. Default: none.
    pub allow_requests: BTreeSet<HostRequestKind>,
    /// The place of reports that the agent reads in addition to those that it accepts. Default: none.
    pub from: Option<FleetPlace>,
    /// The names of hosts that are shown also if they have never reported.
    pub expected: Vec<String>,
}

/// Whether hosts must be enrolled to report. A host that is enrolled always needs its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enrolment {
    /// Hosts that are not enrolled may report with a token of the scope `report`.
    #[default]
    Optional,
    /// Only enrolled hosts may report.
    Required,
}

impl Default for FleetReports {
    fn default() -> Self {
        Self { to: Vec::new(), every: Duration::from_secs(30) }
    }
}

/// Reads the value of `report`.
pub(super) fn fleet_reports(value: Value<'_>) -> Option<FleetReports> {
    let object = value.object(&keys::REPORT)?;
    object.require("to");
    let (shared, shared_ca) = (secret(&object, "tokenFile", "tokenEnv"), object.absolute("caFile"));
    let every = object.duration("every").unwrap_or(FleetReports::default().every);
    if !(EVERY[0]..=EVERY[1]).contains(&every)
        && let Some(value) = object.get("every")
    {
        value.error("must be from `5s` to `3m`");
    }
    let to = object.get("to").map(|to| match &to.node.kind {
        Kind::Sequence(_) => to.items(),
        Kind::Scalar { .. } | Kind::Mapping(_) => vec![to],
    });
    let mut targets: Vec<FleetPlace> = Vec::new();
    for item in to.unwrap_or_default() {
        let Some(mut place) = FleetPlace::read(&item) else { continue };
        if targets.iter().any(|other| other.url == place.url) {
            item.error("this place is in the list already");
        }
        if let PlaceKind::Collector { token } = &mut place.kind {
            *token = token.take().or_else(|| shared.clone());
        }
        place.ca_file = place.ca_file.or_else(|| shared_ca.clone());
        targets.push(place);
    }
    Some(FleetReports { to: targets, every })
}

/// Reads the value of `fleet`.
pub(super) fn fleet(value: Value<'_>) -> Option<Fleet> {
    let object = value.object(&keys::FLEET)?;
    let accept = object.boolean("accept").unwrap_or_default();
    let words = [("optional", Enrolment::Optional), ("required", Enrolment::Required)];
    let enrolment = object.word("enrolment", &words);
    let mut allow_requests = BTreeSet::new();
    for item in object.items("allowRequests") {
        let Some(text) = item.string() else { continue };
        match HostRequestKind::ALL.iter().find(|(word, _)| *word == text) {
            Some((_, kind)) => {
                allow_requests.insert(*kind);
            }
            None => item.error("must be `sync`, `suspend`, `resume` or `rollback`"),
        }
    }
    let mut expected = Vec::new();
    for item in object.items("expected") {
        match item.string().map(HostIdentity::parse_name) {
            Some(Ok(name)) if expected.contains(&name) => item.error("this host is in the list already"),
            Some(Ok(name)) => expected.push(name),
            Some(Err(message)) => item.error(message),
            None => {}
        }
    }
    let from = object.get("from").as_ref().and_then(FleetPlace::read);
    if !accept && from.is_none() && !expected.is_empty() {
        object.value.error("`expected` has no effect without `accept: true` or `from`");
    }
    if !accept && enrolment.is_some() {
        object.value.error("`enrolment` has no effect without `accept: true`");
    }
    let enrolment = enrolment.unwrap_or_default();
    Some(Fleet { accept, enrolment, allow_requests, from, expected })
}
