//! Filesystem scans: which files changed inside running containers. They run in tasks of their own, because the
//! engine may take long: only while nothing else is to be done, few at a time, and seldom. The planner decides what a
//! changed file means.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use driftless_clock::Clock;
use driftless_docker::{Docker, FileChanges};
use driftless_model::{
    ChangedFiles, Container, ContainerId, FileChange, FileChangeKind, FilesystemDrift, Inside, Instance,
    Observed, Policy, Record, Timestamp,
};
use driftless_plan as plan;

use crate::error::chain;

/// Maximum number of simultaneous scans, over all applications.
pub(crate) const CONCURRENT_SCANS: usize = 2;
/// The pause between two scans of a container: a little less than between two full passes, so that each full pass
/// scans every container.
const INTERVAL: Duration = Duration::from_mins(4);
/// A container that was started more recently is not scanned.
const MIN_AGE: Duration = Duration::from_mins(1);
/// Time between the end of a `docker exec` and the scan of its container. A file that changes after that was changed by
/// the container itself.
const AFTER_VISIT: Duration = Duration::from_secs(5);
/// The shortest pause between two scans because of a `docker exec`.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time that one scan may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A slow scan is followed by a pause of this many times its own duration.
const PAUSE_FACTOR: u32 = 100;
/// Maximum number of simultaneous requests about files of one container.
const CONCURRENT_FILES: usize = 4;

/// The filesystem scans of one application.
pub(crate) struct FsScans {
    by_container: BTreeMap<ContainerId, ContainerScans>,
    /// Notified when a scan ends.
    wake: Arc<Notify>,
    /// Shared by all applications.
    slots: Arc<Semaphore>,
    clock: Clock,
}

/// The scans of one container.
#[derive(Default)]
struct ContainerScans {
    last_result: Option<Arc<ChangedFiles>>,
    last_attempt: Option<Attempted>,
    running: Option<RunningScan>,
}

struct Attempted {
    began: Timestamp,
    /// Pause after the scan.
    pause: Duration,
}

struct RunningScan {
    ended: Arc<Mutex<Option<EndedScan>>>,
    /// Dropping it aborts the scan.
    _task: AbortOnDropHandle<()>,
}

struct EndedScan {
    files: Option<ChangedFiles>,
    began: Timestamp,
    took: Duration,
}

impl FsScans {
    pub(crate) fn new(wake: Arc<Notify>, slots: Arc<Semaphore>, clock: Clock) -> Self {
        Self { by_container: BTreeMap::new(), wake, slots, clock }
    }

    /// Takes over what the scans have found, forgets the containers that do not run any more, and adds the rest to the observed
    /// state, which has the adopted containers already.
    pub(crate) fn update(&mut self, observed: &mut Observed) {
        self.by_container.retain(|id, _| observed.container(id).is_some_and(Instance::is_running));
        for scans in self.by_container.values_mut() {
            scans.take_result();
        }
        self.add_to(observed);
    }

    /// Adds the last result of each running container to the observed state, which has the adopted containers already. A question
    /// of a user changes nothing: a result that is lost would be found and reported again.
    pub(crate) fn add_to(&self, observed: &mut Observed) {
        for (id, scans) in &self.by_container {
            let Some(files) = &scans.last_result else { continue };
            if observed.container(id).is_some_and(Instance::is_running) {
                observed.inside.entry(id.clone()).or_default().files = Some(Arc::clone(files));
            }
        }
    }

    /// Starts the scans that are due. Returns when the next one is due because of a `docker exec`.
    pub(crate) fn start_due<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        policy: &Policy,
        observed: &Observed,
        record: &Record,
    ) -> Option<Timestamp> {
        if policy.filesystem_drift == FilesystemDrift::Off {
            self.by_container.clear();
            return None;
        }
        let now = self.clock.now();
        let mut next: Option<Timestamp> = None;
        let is_scanned =
            |container: &&Instance| container.is_running() && record.own_containers.contains(&container.id);
        for container in observed.containers().filter(is_scanned) {
            let inside = observed.inside.get(&container.id);
            let scans = self.by_container.entry(container.id.clone()).or_default();
            if scans.running.is_some() {
                continue;
            }
            match scans.due(container, inside, record, now) {
                Some(due) if due <= now => {
                    let scan = Scan {
                        docker: Arc::clone(docker),
                        slots: Arc::clone(&self.slots),
                        clock: self.clock,
                        container: container.id.clone(),
                        config: Arc::clone(&container.config),
                        has_visits: inside.is_some_and(|inside| !inside.visits.is_empty()),
                    };
                    scans.running = Some(scan.start(Arc::clone(&self.wake)));
                }
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => {}
            }
        }
        next
    }
}

impl ContainerScans {
    /// Takes over the result of a scan that has ended.
    fn take_result(&mut self) {
        let Some(running) = &self.running else { return };
        let ended = running.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(EndedScan { files, began, took }) = ended else { return };
        self.running = None;
        self.last_attempt = Some(Attempted { began, pause: INTERVAL.max(took.saturating_mul(PAUSE_FACTOR)) });
        if let Some(files) = files {
            self.last_result = Some(Arc::new(files));
        }
    }

    /// When to scan next, if that is known by now. The full pass asks again.
    fn due(
        &self,
        container: &Instance,
        inside: Option<&Inside>,
        record: &Record,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let is_due = if let Some(last) = &self.last_attempt {
            // A clock that was set back must not keep scans away.
            now < last.began || now >= last.began.after(last.pause)
        } else {
            let is_young = container.started.is_none_or(|started| now.since(started) < MIN_AGE);
            record.inside.contains_key(&container.id) || !is_young
        };
        if is_due { Some(now) } else { self.due_after_visit(inside) }
    }

    /// When to scan because of a `docker exec` that ended after the last scan.
    fn due_after_visit(&self, inside: Option<&Inside>) -> Option<Timestamp> {
        let scanned_at = self.last_result.as_ref().map(|files| files.at);
        let is_unseen =
            |end: &Timestamp| scanned_at.is_none_or(|scanned_at| end.after(AFTER_VISIT) > scanned_at);
        let ends = inside.into_iter().flat_map(|inside| &inside.visits).filter_map(|visit| visit.to);
        let end = ends.filter(is_unseen).max()?;
        let earliest = self.last_attempt.as_ref().map(|last| last.began.after(MIN_INTERVAL));
        Some(end.after(AFTER_VISIT).max(earliest.unwrap_or_default()))
    }
}

/// One scan of one container.
struct Scan<D> {
    docker: Arc<D>,
    slots: Arc<Semaphore>,
    clock: Clock,
    container: ContainerId,
    config: Arc<Container>,
    /// Whether to ask when each file was written: only if a user may have written it.
    has_visits: bool,
}

impl<D: Docker> Scan<D> {
    fn start(self, wake: Arc<Notify>) -> RunningScan {
        let ended = Arc::new(Mutex::new(None));
        let result = Arc::clone(&ended);
        let task = async move {
            let Ok(_slot) = Arc::clone(&self.slots).acquire_owned().await else { return };
            let began = self.clock.now();
            let start = Instant::now();
            let scanned = timeout(TIMEOUT, self.changed_files(began)).await;
            let took = start.elapsed();
            let files = match scanned {
                Ok(Ok(files)) => Some(files),
                Ok(Err(error)) => {
                    tracing::debug!(container = %self.container.short(), error, "could not scan the files of a container");
                    None
                }
                Err(_) => {
                    tracing::warn!(container = %self.container.short(), ?took, "the scan of a container's files took too long");
                    Some(ChangedFiles { at: began, is_cut: true, ..ChangedFiles::default() })
                }
            };
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(EndedScan { files, began, took });
            wake.notify_one();
        };
        RunningScan { ended, _task: AbortOnDropHandle::new(tokio::spawn(task.in_current_span())) }
    }

    async fn changed_files(&self, at: Timestamp) -> Result<ChangedFiles, String> {
        let found = self.docker.changed_files(&self.container).await.map_err(|error| chain(&error))?;
        let FileChanges { files, is_truncated } = found;
        let mut watched = plan::watched(&files, &self.config);
        let is_cut = is_truncated || watched.len() > plan::FOLLOWED;
        while watched.len() > plan::FOLLOWED {
            watched.pop_last();
        }
        let asked: Vec<_> = stream::iter(watched)
            .map(|(path, kind)| async move {
                let is_present = kind != FileChangeKind::Deleted;
                let written = if self.has_visits && is_present {
                    let written = self.docker.modified_at(&self.container, &path).await;
                    written.map_err(|error| chain(&error))?
                } else {
                    None
                };
                Ok::<_, String>((path, FileChange { kind, written }))
            })
            .buffer_unordered(CONCURRENT_FILES)
            .collect()
            .await;
        let changed = asked.into_iter().collect::<Result<_, _>>()?;
        Ok(ChangedFiles { at, changed, is_cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stay_when_a_question_does_not_see_their_container() {
        let clock = Clock::System;
        let mut scans = FsScans::new(Arc::new(Notify::new()), Arc::new(Semaphore::new(1)), clock);
        let found = ContainerScans { last_result: Some(Arc::default()), ..ContainerScans::default() };
        scans.by_container.insert(ContainerId::from("adopted"), found);
        let mut observed = Observed::default();
        scans.add_to(&mut observed);
        assert!(observed.inside.is_empty(), "it does not run");
        assert!(scans.by_container.contains_key(&ContainerId::from("adopted")));
        scans.update(&mut observed);
        assert!(scans.by_container.is_empty(), "a round knows that it has ended");
    }
}
