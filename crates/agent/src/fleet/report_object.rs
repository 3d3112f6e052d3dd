//! Keeps the report of this host as an object of a bucket or folder, without any server of ours.
//!
//! There is one object for each host. Each heartbeat writes it again, so the time at which the server says that it was written is
//! the time at which the host was last heard. A write names the version that it replaces: a second machine with the same
//! name is noticed by both.

use std::io::Read as _;

use driftless_fleet::{Freshness, HostReport, LARGEST_COMPRESSED, LARGEST_REPORT, NameConflict, freshness};
use driftless_model::Timestamp;
use driftless_objects::{Condition, Object, Objects, Written};
use flate2::read::MultiGzDecoder;

use crate::fleet::report_error::ReportError;

/// The end of the name of a report.
pub(crate) const REPORT_END: &str = ".json.gz";

/// The end of the name of a note about a second machine with the name of a host.
pub(crate) const CONFLICT_END: &str = ".conflict.json";

/// The largest note about a second machine, in bytes.
pub(crate) const LARGEST_CONFLICT: usize = 4096;

/// The letters of an instance that messages show.
const SHORT: usize = 12;

/// Looks and writes before the others are left to themselves until the next heartbeat.
const TRIES: usize = 3;

/// Writes the object of this host.
pub(crate) struct ObjectSender {
    objects: Objects,
    /// The version that this agent wrote. `None`: it must look first.
    tag: Option<String>,
}

/// The object of this host, as it was found.
enum FoundObject {
    Absent,
    /// The server does not let this host read it, or does not say to this host that there is none.
    Hidden,
    /// It may be replaced. With its version.
    Ours(Option<String>),
    /// As before, and the last writer was another machine, which is silent.
    Left(Option<String>),
}

impl ObjectSender {
    pub(crate) fn new(objects: Objects) -> Self {
        Self { objects, tag: None }
    }

    /// Writes the report. Returns a sentence about a second machine with the name of this host, or an empty one.
    pub(crate) async fn send(
        &mut self,
        report: &HostReport,
        compressed: &[u8],
    ) -> Result<String, ReportError> {
        let name = format!("{}{REPORT_END}", report.host);
        for attempt in 1..=TRIES {
            let found = match self.tag.take() {
                Some(tag) => FoundObject::Ours(Some(tag)),
                None => self.look(report, &name).await?,
            };
            let condition = match &found {
                FoundObject::Absent | FoundObject::Hidden => Condition::Absent,
                // A server whose conditions are never met is one without conditions.
                FoundObject::Ours(_) if attempt == TRIES => Condition::Always,
                FoundObject::Ours(Some(tag)) | FoundObject::Left(Some(tag)) => Condition::Version(tag),
                FoundObject::Ours(None) | FoundObject::Left(None) => Condition::Always,
            };
            match self.objects.put(&name, compressed, condition).await? {
                Written::Done(tag) => {
                    self.tag = tag;
                    return self.second_machine(report).await;
                }
                // So there is one.
                Written::Changed if matches!(found, FoundObject::Hidden) => {
                    return Err(ReportError::Unreadable { object: name });
                }
                Written::Changed => {}
            }
        }
        Err(ReportError::Contended)
    }

    /// Looks at the object of this host. An error if another machine writes it.
    async fn look(&self, report: &HostReport, name: &str) -> Result<FoundObject, ReportError> {
        let object = match self.objects.get(name, LARGEST_COMPRESSED).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(FoundObject::Absent),
            Err(error) if error.is_forbidden() => return Ok(FoundObject::Hidden),
            Err(error) => return Err(error.into()),
        };
        let Object { body, tag, modified, now } = object;
        // A damaged object, or one of another form, is replaced.
        let Ok(other) = read_report(&body, &report.host) else { return Ok(FoundObject::Ours(tag)) };
        if other.instance == report.instance {
            return Ok(FoundObject::Ours(tag));
        }
        let (Some(modified), Some(now)) = (modified, now) else {
            return Err(ReportError::Foreign("it does not say what time it is there".to_owned()));
        };
        if freshness(modified, other.heartbeat(), now) != Freshness::Fresh {
            return Ok(FoundObject::Left(tag));
        }
        let (from, reason) = (String::new(), String::new());
        let note = NameConflict { instance: report.instance.clone(), from, reason, at: now };
        let json = serde_json::to_vec(&note).map_err(|error| ReportError::Write(error.to_string()))?;
        let note = format!("{}{CONFLICT_END}", report.host);
        self.objects.put(&note, &json, Condition::Always).await?;
        let owner = other.instance.chars().take(SHORT).collect();
        Err(ReportError::Taken { host: report.host.clone(), owner })
    }

    /// A sentence about a machine that was refused lately because this one has the name.
    async fn second_machine(&self, report: &HostReport) -> Result<String, ReportError> {
        let name = format!("{}{CONFLICT_END}", report.host);
        let object = match self.objects.get(&name, LARGEST_CONFLICT).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(String::new()),
            Err(error) if error.is_forbidden() => return Ok(String::new()),
            Err(error) => return Err(error.into()),
        };
        let conflict = conflict_of(&object.body, object.modified.or(object.now));
        let (Some(conflict), Some(now)) = (conflict, object.now) else { return Ok(String::new()) };
        let is_fresh = freshness(conflict.at, report.heartbeat(), now) == Freshness::Fresh;
        Ok(if is_fresh && conflict.instance != report.instance {
            let other: String = conflict.instance.chars().take(SHORT).collect();
            format!("another machine (instance {other}) reports as `{}` and is refused", report.host)
        } else {
            String::new()
        })
    }
}

/// The report in an object.
pub(crate) fn read_report(body: &[u8], host: &str) -> Result<HostReport, String> {
    let mut json = Vec::new();
    let mut reader = MultiGzDecoder::new(body).take(LARGEST_REPORT + 1);
    reader.read_to_end(&mut json).map_err(|error| format!("it is no gzip: {error}"))?;
    if json.len() as u64 > LARGEST_REPORT {
        return Err(format!("it has more than {} MiB", LARGEST_REPORT >> 20));
    }
    let report: HostReport = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    report.check(host).map_err(|error| error.to_string())?;
    Ok(report)
}

/// The note about a second machine in an object that was written `at`.
pub(crate) fn conflict_of(body: &[u8], at: Option<Timestamp>) -> Option<NameConflict> {
    let conflict: NameConflict = serde_json::from_slice(body).ok()?;
    let is_plain = driftless_model::HostIdentity::is_name(&conflict.instance);
    is_plain.then(|| NameConflict {
        at: at.unwrap_or(conflict.at),
        from: String::new(),
        reason: String::new(),
        ..conflict
    })
}
