//! The routes of the fleet: hosts report their state, and everybody who may read sees it.
//!
//! A report is the whole state, so it may arrive twice, late or never. A second machine with the name of a fresh host is
//! refused.

use std::{io::Read as _, sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    body::{Body, to_bytes},
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::LengthLimitError;
use serde::Deserialize;

use super::{
    access::{Caller, Identity, audit::AuditNote, only_text},
    error::Error,
    fleet_requests::{answer, take_results},
    parameters::Parameters,
    shared::{Shared, read},
};
use driftless_agent::{INSTANCE_HEADER, expected_by, fleet_hosts, last_report};
use driftless_config::Enrolment;
use driftless_fleet::{
    FleetHistoryEntry, FleetStatus, Freshness, HostReport, HostSignature, LARGEST_COMPRESSED, LARGEST_REPORT,
    SourceStatus, freshness, history_of,
};
use driftless_model::{HostIdentity, Timestamp, digest_hex};
use driftless_store as store;
use driftless_store::{
    FleetBounds, FleetChange, FleetFull, Store, StoredConflict, StoredFleetEntry, StoredHost,
};

/// The most entries of the history in an answer, and their number by default.
const HISTORY_MOST: u64 = 1000;
const HISTORY_DEFAULT: u64 = 100;

/// The most hosts of a collector, and the most bytes of all their reports together. 500 hosts of 50 applications need 8 MiB.
const BOUNDS: FleetBounds = FleetBounds { hosts: 1000, bytes: 64 * 1024 * 1024 };

/// Time for a host to send its report.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// A machine that was refused is no news again within this time.
const NO_NEWS_FOR: Duration = Duration::from_mins(10);

/// A refusal with a reason is kept for this time while others come without one: about as long as the views show it.
const KEEPS_REASON_FOR: Duration = Duration::from_mins(4);

/// The letters of an instance that messages show.
const SHORT: usize = 12;

/// Why the body of a report was not read to its end.
fn unread(error: &axum::Error) -> Error {
    if std::error::Error::source(error).and_then(|source| source.downcast_ref::<LengthLimitError>()).is_some()
    {
        return Error::SentReportTooLarge(LARGEST_COMPRESSED / 1024);
    }
    Error::Malformed("the body broke off".to_owned())
}

/// The hosts, and the places that this agent reports to and reads.
pub(super) async fn fleet_status(shared: &Shared) -> Result<FleetStatus, Error> {
    let (handle, now) = (shared.handle.clone(), shared.clock.now());
    let hosts = read(&shared.store, move |store| fleet_hosts(&handle, store, now)).await?;
    let handle = &shared.handle;
    Ok(FleetStatus {
        accepts: handle.fleet().settings().accept,
        hosts,
        targets: handle.fleet().targets().list(),
        source: handle.fleet().source().status(),
    })
}

pub(super) async fn list(State(shared): State<Shared>) -> Result<Json<FleetStatus>, Error> {
    Ok(Json(fleet_status(&shared).await?))
}

/// The parameters of [`peers`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeersQuery {
    applications: Option<String>,
}

/// The other hosts, without messages and places, for hosts whose new commits wait for them.
pub(super) async fn peers(
    State(shared): State<Shared>,
    Parameters(query): Parameters<PeersQuery>,
) -> Result<Json<FleetStatus>, Error> {
    if !shared.handle.fleet().settings().accept && shared.handle.fleet().source().read().is_none() {
        return Err(Error::NoCollector);
    }
    let (handle, now) = (shared.handle.clone(), shared.clock.now());
    let mut hosts = read(&shared.store, move |store| fleet_hosts(&handle, store, now)).await?;
    let wanted: Option<Vec<&str>> = query.applications.as_deref().map(|names| names.split(',').collect());
    for host in &mut hosts {
        (host.conflict, host.reason) = (None, String::new());
        host.report = host.report.take().map(|report| {
            let report = Arc::unwrap_or_clone(report);
            Arc::new(report.for_peers(wanted.as_deref()))
        });
    }
    // Hosts are missing before the first read. The place itself is nobody's business.
    let source = shared.handle.fleet().source().status();
    let source = source.map(|SourceStatus { last_read, missing, .. }| {
        let missing = if missing.is_empty() { missing } else { "not all hosts are known".to_owned() };
        SourceStatus { last_read, missing, ..Default::default() }
    });
    Ok(Json(FleetStatus { accepts: true, hosts, source, ..FleetStatus::default() }))
}

/// The parameters of [`history`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    host: Option<String>,
    app: Option<String>,
    limit: Option<u64>,
}

/// The history of the fleet, newest first.
pub(super) async fn history(
    State(shared): State<Shared>,
    Parameters(HistoryQuery { host, app, limit }): Parameters<HistoryQuery>,
) -> Result<Json<Vec<FleetHistoryEntry>>, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let limit = limit.unwrap_or(HISTORY_DEFAULT).min(HISTORY_MOST);
    let entries =
        read(&shared.store, move |store| store.fleet_history(host.as_deref(), app.as_deref(), limit));
    // Another release may have written an entry.
    Ok(Json(entries.await?.iter().filter_map(|entry| serde_json::from_str(entry).ok()).collect()))
}

/// Takes a report, or a heartbeat that names one.
pub(super) async fn report(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let now = shared.clock.now();
    let is_signed = caller.signature.is_some();
    if !is_signed {
        refuse_unsigned(&shared, &name, &headers, &caller, &note).await?;
    }
    let named = only_text(&headers, &header::IF_NONE_MATCH)?;
    if !named.is_empty() {
        let digest = named.trim_matches('"').to_owned();
        let instance = instance_of(&headers);
        let parsed = shared.handle.fleet().parsed_reports().clone();
        // Another release may have stored the report.
        let heard = read(&shared.store, move |store| {
            Ok(parsed.is_readable(store, &name, &digest)?
                && store.hear_fleet_host(&name, &instance, &digest, now)?)
        });
        if !heard.await? {
            return Err(Error::ReportNeeded);
        }
        return answered(&shared, caller.signature, StatusCode::NOT_MODIFIED, now).await;
    }
    let sent = tokio::time::timeout(SENT_WITHIN, to_bytes(body, LARGEST_COMPRESSED)).await;
    let sent = sent.map_err(|_| Error::BodyTooSlow)?;
    let sent = sent.map_err(|error| unread(&error))?;
    if caller.signature.as_ref().is_some_and(|signed| signed.body != digest_hex(&sent)) {
        return Err(Error::NotEnrolled("the body is not the one that was signed".to_owned()));
    }
    let json = match headers.get(header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
        None | Some(b"identity") => sent.to_vec(),
        Some(b"gzip") => {
            let mut json = Vec::new();
            let mut reader = MultiGzDecoder::new(sent.as_ref()).take(LARGEST_REPORT + 1);
            let decoded = reader.read_to_end(&mut json);
            decoded.map_err(|error| Error::Malformed(format!("the body is no gzip: {error}")))?;
            if json.len() as u64 > LARGEST_REPORT {
                return Err(Error::ReportTooLarge(LARGEST_REPORT / 1024));
            }
            json
        }
        Some(_) => return Err(Error::Malformed("the encoding of the body must be gzip".to_owned())),
    };
    let report: HostReport =
        serde_json::from_slice(&json).map_err(|error| Error::Malformed(format!("the report: {error}")))?;
    report.check(&name).map_err(|error| Error::Malformed(error.to_string()))?;
    let (report, digest) = (Arc::new(report), digest_hex(&json));
    let host = StoredHost {
        name: name.clone(),
        instance: report.instance.clone(),
        digest: digest.clone(),
        received: now,
        report: serde_json::to_string(&*report).map_err(|error| Error::Malformed(error.to_string()))?,
        conflict: None,
    };
    let from = caller.from.clone();
    let sent = Arc::clone(&report);
    let accepted = read(&shared.store, move |store| accept(store, host, &sent, Reporter { from, is_signed }));
    match accepted.await? {
        Err(FleetFull::Hosts(most)) => {
            Err(Error::FleetFull(format!("this collector has {most} hosts already")))
        }
        Err(FleetFull::Bytes(most)) => Err(Error::FleetFull(format!(
            "all reports at this collector together would have more than {} MiB, with {} KiB of this host",
            most >> 20,
            json.len().div_ceil(1024)
        ))),
        Ok(Acceptance::Stored(news)) => {
            let ended = match &caller.signature {
                Some(_) => take_results(&shared.store, &report, now).await?,
                None => None,
            };
            shared.handle.fleet().parsed_reports().keep(&name, &digest, report);
            if let Some(news) = news.map(|news| format!("{name}: {news}")).or(ended) {
                note.set(&news);
            }
            answered(&shared, caller.signature, StatusCode::NO_CONTENT, now).await
        }
        Ok(Acceptance::Taken { owner, is_news }) => {
            if is_news {
                let other = short(&report.instance);
                note.set(&format!(
                    "{name}: refused machine {other}, because {} has this name",
                    short(&owner)
                ));
                tracing::warn!(
                    host = name,
                    owner,
                    refused = report.instance,
                    "two machines report as one host"
                );
            }
            Err(Error::Refused(format!(
                "another machine (instance {}) reports as `{name}`: give one of the two another name",
                short(&owner)
            )))
        }
    }
}

/// The answer to a report that was taken: requests for the host, if there are any.
async fn answered(
    shared: &Shared,
    signature: Option<HostSignature>,
    status: StatusCode,
    now: Timestamp,
) -> Result<Response, Error> {
    let requests = match signature {
        Some(signature) => answer(&shared.store, signature, now).await?,
        None => None,
    };
    Ok(requests.unwrap_or_else(|| status.into_response()))
}

/// Forgets a host. It comes back when it reports again.
pub(super) async fn remove(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, Error> {
    let wanted = name.clone();
    let is_removed = read(&shared.store, move |store| store.remove_fleet_host(&wanted)).await?;
    if is_removed {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(match expected_by(&shared.handle, &name) {
        Some(place) => Error::Refused(format!(
            "`{name}` has no report that could be forgotten: it is listed because {place} names it, so remove it there"
        )),
        None => Error::NoSuchHost(name),
    })
}

/// Refuses a report without a signature if the host is enrolled, or must be.
async fn refuse_unsigned(
    shared: &Shared,
    name: &str,
    headers: &HeaderMap,
    caller: &Identity,
    note: &AuditNote,
) -> Result<(), Error> {
    let host = name.to_owned();
    let known = read(&shared.store, move |store| store.fleet_key(&host)).await?;
    if known.is_some() {
        let instance = instance_of(headers);
        let (from, at) = (caller.from.clone(), shared.clock.now());
        let conflict = StoredConflict { instance: instance.clone(), from, reason: String::new(), at };
        if note_conflict(&shared.store, name, conflict).await? {
            note.set(&format!("{name}: refused machine {}, which has no key", short(&instance)));
        }
        return Err(Error::NotEnrolled(format!(
            "`{name}` is enrolled, and this report is not signed with its key: give this host another name, or run `driftless fleet revoke {name}` on the collector and join again"
        )));
    }
    match shared.handle.fleet().settings().enrolment {
        Enrolment::Optional => Ok(()),
        Enrolment::Required => Err(Error::NotEnrolled(format!(
            "this collector accepts only enrolled hosts: run `driftless fleet invite --name {name}` on it and `driftless fleet join` on this host"
        ))),
    }
}

/// The id of the machine in the headers of its request. Empty: it has none.
pub(super) fn instance_of(headers: &HeaderMap) -> String {
    let instance = only_text(headers, &HeaderName::from_static(INSTANCE_HEADER)).unwrap_or_default();
    if HostIdentity::is_name(&instance) { instance } else { String::new() }
}

/// Notes that a machine was refused which has the name or the key of the host. True: it is news.
pub(super) async fn note_conflict(
    store: &Store,
    host: &str,
    conflict: StoredConflict,
) -> Result<bool, Error> {
    let StoredConflict { instance, from, reason, at: now } = conflict.clone();
    let name = host.to_owned();
    let noted = read(store, move |store| store.note_fleet_conflict(&name, &conflict, KEEPS_REASON_FOR));
    let Some(before) = noted.await? else { return Ok(false) };
    // The id does not count, so that nobody without a key fills the audit. The first reason is news also among refusals without.
    let is_known = before.is_some_and(|before| {
        now.since(before.at) < NO_NEWS_FOR && (reason.is_empty() || !before.reason.is_empty())
    });
    if !is_known && reason.is_empty() {
        tracing::warn!(host, refused = instance, from, "two machines report as one host");
    } else if !is_known {
        tracing::warn!(
            host,
            refused = instance,
            from,
            reason,
            "a machine with the key of a host was refused"
        );
    }
    Ok(!is_known)
}

/// The machine that sends a report.
struct Reporter {
    /// Its address.
    from: String,
    /// Whether the report is signed with the key of the host.
    is_signed: bool,
}

/// The result of a report.
enum Acceptance {
    /// It is stored. With a sentence if the host or its machine is new.
    Stored(Option<&'static str>),
    /// Another machine has the name.
    Taken { owner: String, is_news: bool },
}

fn accept(
    store: &Store,
    host: StoredHost,
    report: &HostReport,
    reporter: Reporter,
) -> Result<Result<Acceptance, FleetFull>, store::Error> {
    let (name, received) = (host.name.clone(), host.received);
    store.change_fleet_host(&name, BOUNDS, |known| {
        let before = known.clone().and_then(|host| last_report(host).ok());
        let before = before.as_ref().map(|last| &*last.report);
        let (change, answer) = decide(known, host, before.map(HostReport::heartbeat), reporter);
        let news = match &change {
            FleetChange::Report(_) => {
                history_of(before, report, received).into_iter().filter_map(stored_entry).collect()
            }
            FleetChange::Refusal(_) => Vec::new(),
        };
        (change, news, answer)
    })
}

fn stored_entry(entry: FleetHistoryEntry) -> Option<StoredFleetEntry> {
    let json = serde_json::to_string(&entry).ok()?;
    Some(StoredFleetEntry { host: entry.host, app: entry.application.to_string(), entry: json })
}

/// The first machine, which is heard `every` so often, keeps the name while it is fresh. A machine with the key of the host has it
/// in any case.
fn decide(
    known: Option<StoredHost>,
    host: StoredHost,
    every: Option<Duration>,
    Reporter { from, is_signed }: Reporter,
) -> (FleetChange, Acceptance) {
    let now = host.received;
    let (news, conflict) = match known {
        None => (Some("new host"), None),
        Some(known) if known.instance == host.instance => (None, known.conflict),
        Some(_) if is_signed => (Some("the enrolled machine took the name"), None),
        Some(known) => {
            let every = every.unwrap_or_default();
            if freshness(known.received, every, now) == Freshness::Fresh {
                let before = known.conflict.filter(|conflict| {
                    conflict.instance == host.instance
                        && freshness(conflict.at, every, now) == Freshness::Fresh
                });
                let (instance, reason) = (host.instance, String::new());
                let conflict = StoredConflict { instance, from, reason, at: now };
                let taken = Acceptance::Taken { owner: known.instance, is_news: before.is_none() };
                return (FleetChange::Refusal(conflict), taken);
            }
            (Some("another machine took the name, after the first was silent"), None)
        }
    };
    (FleetChange::Report(StoredHost { conflict, ..host }), Acceptance::Stored(news))
}

fn short(instance: &str) -> &str {
    instance.get(..SHORT).unwrap_or(instance)
}
