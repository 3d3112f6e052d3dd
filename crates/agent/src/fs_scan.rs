//! Looks into running containers beside the rounds, because the engine may take long over it: never while something
//! is to be done, a few at a time for the whole host, and seldom. What was seen is put into the observation; what it
//! means is for the planner.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use driftless_clock::Clock;
use driftless_docker::{Docker, FileChanges};
use driftless_model::{
    ChangedFiles, Container, ContainerId, FileChange, FileChangeKind, FilesystemDrift, Inside, Instance,
    Observed, Policy, Record, Timestamp,
};
use driftless_plan as plan;

use crate::error::chain;

/// How many containers are looked into at the same time, of all applications.
pub(crate) const LOOKS_AT_ONCE: usize = 2;
/// A little less than the pause between two full passes, each of which looks into what was not looked into since.
const EVERY: Duration = Duration::from_mins(4);
/// What starts is left alone at first.
const YOUNG: Duration = Duration::from_mins(1);
/// After a visit: what still is written then, the container writes itself.
const AFTER_VISIT: Duration = Duration::from_secs(5);
/// Whoever visits all day is looked after no more often than this.
const BETWEEN_VISITS: Duration = Duration::from_secs(30);
/// For one look.
const LONGEST: Duration = Duration::from_secs(30);
/// A look that takes long is taken so many times less often.
const COST: u32 = 100;
/// How many files are asked about at the same time.
const FILES_AT_ONCE: usize = 4;

/// The looks into the containers of one application.
pub(crate) struct Looks {
    by_container: BTreeMap<ContainerId, Look>,
    /// Rung when one ends.
    wake: Arc<Notify>,
    lookers: Arc<Semaphore>,
    clock: Clock,
}

#[derive(Default)]
struct Look {
    seen: Option<Arc<ChangedFiles>>,
    /// When it was last tried, and the pause after it.
    tried: Option<(Timestamp, Duration)>,
    running: Option<Running>,
}

struct Running {
    ended: Arc<Mutex<Option<Ended>>>,
    /// Dropping it ends the look.
    _task: AbortOnDropHandle<()>,
}

struct Ended {
    files: Option<ChangedFiles>,
    began: Timestamp,
    took: Duration,
}

impl Looks {
    pub(crate) fn new(wake: Arc<Notify>, lookers: Arc<Semaphore>, clock: Clock) -> Self {
        Self { by_container: BTreeMap::new(), wake, lookers, clock }
    }

    /// Puts what was seen last into an observation.
    pub(crate) fn overlay(&mut self, observed: &mut Observed) {
        self.by_container.retain(|id, _| observed.container(id).is_some_and(Instance::is_running));
        for (id, look) in &mut self.by_container {
            look.collect();
            if let Some(files) = &look.seen {
                observed.inside.entry(id.clone()).or_default().files = Some(Arc::clone(files));
            }
        }
    }

    /// Looks into what is due. Returns when the next visitor's traces are to be looked for.
    pub(crate) fn begin<D: Docker>(
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
        let ours = observed.containers().filter(|it| it.is_running() && record.ledger.contains(&it.id));
        for instance in ours {
            let inside = observed.inside.get(&instance.id);
            let look = self.by_container.entry(instance.id.clone()).or_default();
            if look.running.is_some() {
                continue;
            }
            match look.due(instance, inside, record, now) {
                Some(due) if due <= now => {
                    let has_visits = inside.is_some_and(|it| !it.visits.is_empty());
                    let looker = Looker {
                        docker: Arc::clone(docker),
                        lookers: Arc::clone(&self.lookers),
                        clock: self.clock,
                        id: instance.id.clone(),
                        config: Arc::clone(&instance.config),
                        has_visits,
                    };
                    look.running = Some(looker.start(Arc::clone(&self.wake)));
                }
                Some(due) => next = Some(next.map_or(due, |it| it.min(due))),
                None => {}
            }
        }
        next
    }
}

impl Look {
    fn collect(&mut self) {
        let Some(running) = &self.running else { return };
        let ended = running.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Ended { files, began, took }) = ended else { return };
        self.running = None;
        self.tried = Some((began, EVERY.max(took.saturating_mul(COST))));
        if let Some(files) = files {
            self.seen = Some(Arc::new(files));
        }
    }

    /// When to look, if that is known by now. The full pass asks again.
    fn due(
        &self,
        instance: &Instance,
        inside: Option<&Inside>,
        record: &Record,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let seen = self.seen.as_ref().map(|it| it.at);
        let is_new = |to: &Timestamp| seen.is_none_or(|seen| to.after(AFTER_VISIT) > seen);
        let left = inside.into_iter().flat_map(|it| &it.visits).filter_map(|it| it.to).filter(is_new).max();
        let of_visit = left.map(|left| {
            let pause = self.tried.map_or(Timestamp::default(), |(tried, _)| tried.after(BETWEEN_VISITS));
            left.after(AFTER_VISIT).max(pause)
        });
        let is_remembered = || record.inside.contains_key(&instance.id);
        let is_young = || instance.started.is_none_or(|it| now.since(it) < YOUNG);
        let pass = match self.tried {
            Some((tried, pause)) => now >= tried.after(pause),
            None => is_remembered() || !is_young(),
        };
        if pass { Some(now) } else { of_visit }
    }
}

/// One look.
struct Looker<D> {
    docker: Arc<D>,
    lookers: Arc<Semaphore>,
    clock: Clock,
    id: ContainerId,
    config: Arc<Container>,
    /// When files were written is asked only if there is somebody who may have written them.
    has_visits: bool,
}

impl<D: Docker> Looker<D> {
    fn start(self, wake: Arc<Notify>) -> Running {
        let ended = Arc::new(Mutex::new(None));
        let place = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            let Ok(_permit) = Arc::clone(&self.lookers).acquire_owned().await else { return };
            let began = self.clock.now();
            let found = timeout(LONGEST, self.look(began)).await;
            let took = self.clock.now().since(began);
            let files = match found {
                Ok(Ok(files)) => Some(files),
                Ok(Err(error)) => {
                    tracing::debug!(container = %self.id.short(), error, "could not look into it");
                    None
                }
                Err(_) => {
                    tracing::warn!(container = %self.id.short(), ?took, "looking into it takes too long");
                    Some(ChangedFiles { at: began, is_cut: true, ..ChangedFiles::default() })
                }
            };
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ended { files, began, took });
            wake.notify_one();
        });
        Running { ended, _task: AbortOnDropHandle::new(task) }
    }

    async fn look(&self, at: Timestamp) -> Result<ChangedFiles, String> {
        let FileChanges { files, is_truncated: is_cut } =
            self.docker.changed_files(&self.id).await.map_err(|it| chain(&it))?;
        let mut watched = plan::watched(&files, &self.config);
        let is_cut = is_cut || watched.len() > plan::FOLLOWED;
        while watched.len() > plan::FOLLOWED {
            watched.pop_last();
        }
        let asked: Vec<_> = stream::iter(watched)
            .map(|(path, kind)| async move {
                let is_there = kind != FileChangeKind::Deleted;
                let written = if self.has_visits && is_there {
                    self.docker.modified_at(&self.id, &path).await.map_err(|it| chain(&it))?
                } else {
                    None
                };
                Ok::<_, String>((path, FileChange { kind, written }))
            })
            .buffer_unordered(FILES_AT_ONCE)
            .collect()
            .await;
        let changed = asked.into_iter().collect::<Result<_, _>>()?;
        Ok(ChangedFiles { at, changed, is_cut })
    }
}
