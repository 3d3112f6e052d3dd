//! Image updates of one application: asks the registries of its images when they are due, and keeps the answers in the record.
//! The rules are in `driftless_plan`; here are the questions that are under way, in tasks of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use driftless_clock::Clock;
use driftless_docker::{Docker, ImageQuestion, NewestImage, RegistryError};
use driftless_model::{
    AvailableImage, EngineKind, EventKind, ImageRef, ImageUpdate, Observed, ObservedSwarm, Policy, Record,
    Stack, Timestamp, UpdateMode,
};
use driftless_plan::{
    RegistryAnswer, followed_images, image_check, limit_image_pause, next_image_update, note_failed_check,
    note_image_check, note_newest_image, note_proven_images, note_returned_image, note_running_images,
    resolve_images, unproven_digests,
};

use crate::{context::AppContext, error::chain, images::registry_calls::ImageCalls};

/// A sync asks again for an image that is only reported this long after the last question, else the next round after that does.
/// Scripts sync often, and each question is a connection to a registry, which may limit them.
const SYNC_PAUSE: Duration = Duration::from_secs(10);

/// After this many failures in a row, at least a few minutes, they are an event: those of a server that often fails once would displace
/// others.
const SHOWN_FAILURES: u32 = 5;

/// The questions to registries that are under way for one application.
pub(crate) struct ImageUpdates {
    questions: BTreeMap<String, Question>,
    calls: ImageCalls,
    /// The last question, by reference.
    asked: BTreeMap<String, LastQuestion>,
    /// Notified when an answer arrives.
    wake: Arc<Notify>,
    /// Whether this agent's node led the Swarm in the last round.
    leads: bool,
}

/// The answer to a question.
struct ReceivedAnswer {
    at: Timestamp,
    /// The digests that ran when the question was asked.
    compared: BTreeSet<String>,
    newest: Result<NewestImage, RegistryError>,
}

/// When a registry was last asked about a reference.
struct LastQuestion {
    at: Timestamp,
    /// The number of the last call that it answers.
    call: u64,
    /// A sync asked for another question too early.
    is_repeated: bool,
}

struct Question {
    answer: Arc<Mutex<Option<ReceivedAnswer>>>,
    /// A sync asked for it, and a newer image would be deployed.
    is_awaited: bool,
    /// Dropping it aborts the task.
    _task: AbortOnDropHandle<()>,
}

/// A stack whose images are followed, and its live state.
#[derive(Clone, Copy)]
pub(crate) struct FollowedStack<'a> {
    /// The stack of Git, without resolved images.
    pub(crate) stack: &'a Stack,
    pub(crate) policy: &'a Policy,
    pub(crate) observed: &'a Observed,
}

impl ImageUpdates {
    pub(crate) fn new(wake: Arc<Notify>, calls: ImageCalls) -> Self {
        Self { questions: BTreeMap::new(), calls, asked: BTreeMap::new(), wake, leads: false }
    }

    /// Notes what runs, also of an application that is suspended. True: it was created from resolved images that the record
    /// does not know, so the target must be chosen again.
    pub(crate) fn note_running(&mut self, record: &mut Record, followed: FollowedStack<'_>) -> bool {
        let FollowedStack { stack, policy, observed } = followed;
        let leads = observed.swarm.as_deref().is_some_and(ObservedSwarm::is_leader);
        let has_led = std::mem::replace(&mut self.leads, leads);
        // The leader asks the registries, and may get an answer.
        if policy.engine == EngineKind::Swarm && !leads {
            for known in record.followed_images.values_mut() {
                known.failure = None;
            }
        }
        note_running_images(record, stack, &followed_images(stack, policy), observed, has_led)
    }

    /// Drops the questions that are under way: until this agent may ask again, another one may deploy newer images than their
    /// answers. A failure stays in the record: a suspension is no answer.
    pub(crate) fn stop_asking(&mut self) {
        for image in self.questions.keys() {
            self.asked.remove(image);
        }
        self.questions.clear();
    }

    /// Takes the answers that have arrived, asks what is due, and resolves the images that the settings deploy. True: the
    /// target must be chosen again.
    pub(crate) fn advance<D: Docker>(
        &mut self,
        context: &AppContext,
        docker: &Arc<D>,
        record: &mut Record,
        followed: FollowedStack<'_>,
    ) -> bool {
        let FollowedStack { stack, policy, observed } = followed;
        let images = followed_images(stack, policy);
        self.questions.retain(|image, _| images.contains_key(image));
        self.asked.retain(|image, _| images.contains_key(image));
        let mut has_returned = false;
        for (image, update) in &images {
            if let Some(answer) = self.take_answer(image) {
                has_returned |= note_answer(context, record, (image, update), &answer, followed);
            }
        }
        let now = context.now();
        let resolved = resolve_images(record, &images, now);
        for (image, newest) in &resolved {
            let message = format!("deploying {newest} for {image}");
            tracing::info!(image, newest, "deploying a newer image");
            context.event(EventKind::Normal, "ImageUpdated", image, &message);
        }
        for (image, update) in &images {
            limit_image_pause(record, (image, update), now);
            let Some(known) = record.followed_images.get_mut(image) else { continue };
            let last = self.asked.get_mut(image);
            // The question of an agent that has ended was never answered.
            let is_lost = last.is_none()
                && known.failure.is_none()
                && known.checked.is_none_or(|checked| checked.after(update.every) <= now);
            let is_due = known.next <= now || is_lost;
            let call = self.calls.number(image);
            let is_called = call > last.as_ref().map_or(0, |last| last.call);
            // A sync made it due. The answer of a question before it may be older than that sync.
            let is_requested = known.next == Timestamp(0);
            if let Some(last) = last.filter(|last| last.at.is_recent(SYNC_PAUSE, now))
                && is_requested
                && !is_called
                && update.mode == UpdateMode::Report
            {
                known.next = last.at.after(SYNC_PAUSE);
                last.is_repeated = true;
                continue;
            }
            if (is_due || is_called) && (is_requested || !self.questions.contains_key(image)) {
                self.asked.insert(image.clone(), LastQuestion { at: now, call, is_repeated: false });
                note_own_pulls(context, record, image);
                self.ask(context.clock(), docker, record, (stack, observed), (image, update));
                note_image_check(record, (image, update), now);
            }
        }
        has_returned || !resolved.is_empty()
    }

    /// When to look again, if no answer arrives before.
    pub(crate) fn look_again(&self, record: &Record, followed: FollowedStack<'_>) -> Option<Timestamp> {
        let mut images = followed_images(followed.stack, followed.policy);
        let is_repeated = |image: &str| self.asked.get(image).is_some_and(|last| last.is_repeated);
        images.retain(|image, _| !self.questions.contains_key(image) && !is_repeated(image));
        next_image_update(record, &images)
    }

    /// Whether a sync waits for an answer, after which a newer image may be deployed.
    pub(crate) fn is_awaited(&self) -> bool {
        self.questions.values().any(|question| question.is_awaited)
    }

    fn take_answer(&mut self, image: &str) -> Option<ReceivedAnswer> {
        let question = self.questions.get(image)?;
        let answer = question.answer.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.questions.remove(image);
        Some(answer)
    }

    fn ask<D: Docker>(
        &mut self,
        clock: Clock,
        docker: &Arc<D>,
        record: &Record,
        (stack, observed): (&Stack, &Observed),
        (image, update): (&str, &ImageUpdate),
    ) {
        let (tags, running, platforms) = image_check(record, (stack, observed), (image, update));
        let of_image = |workload: &&driftless_model::Workload| {
            workload.containers().any(|container| container.image == image)
        };
        let secrets =
            stack.workloads.values().filter(of_image).flat_map(|it| it.pull_secrets.iter().cloned());
        let secrets = secrets.collect();
        let known = record.followed_images.get(image);
        let available = known.and_then(|known| known.available.as_ref());
        let available = available.and_then(|newer| ImageRef::parse(&newer.image).digest().map(str::to_owned));
        let unproven = unproven_digests(record, image);
        let question =
            ImageQuestion { image: image.to_owned(), tags, running, unproven, available, platforms, secrets };
        let (docker, wake, answer) = (Arc::clone(docker), Arc::clone(&self.wake), Arc::default());
        let given: Arc<Mutex<Option<ReceivedAnswer>>> = Arc::clone(&answer);
        let failed_before = known.and_then(|known| known.failure.clone());
        let is_requested = known.is_some_and(|known| known.next == Timestamp(0));
        let is_awaited = is_requested && update.mode == UpdateMode::Apply && update.min_age.is_zero();
        // The client has deadlines of its own.
        let task = async move {
            let newest = docker.newest_image(&question).await;
            // An answer without news waits for the next round, so that it causes none.
            let is_news = match &newest {
                Ok(newest) => !newest.is_running || failed_before.is_some(),
                Err(error) => failed_before.is_none_or(|failure| failure.reason != error.reason()),
            };
            let received = ReceivedAnswer { at: clock.now(), compared: question.running, newest };
            *given.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
            if is_news || is_awaited {
                wake.notify_one();
            }
        };
        let task = AbortOnDropHandle::new(tokio::spawn(task.in_current_span()));
        self.questions.insert(image.to_owned(), Question { answer, is_awaited, _task: task });
    }
}

/// Notes which running images of a reference the agent has pulled: a registry had their digests, also if it has deleted them since.
fn note_own_pulls(context: &AppContext, record: &mut Record, image: &str) {
    if unproven_digests(record, image).is_empty() {
        return;
    }
    let brought = match context.store().brought_images() {
        Ok(brought) => brought,
        Err(error) => {
            tracing::warn!(error = chain(&error), "could not read which images the agent has pulled");
            return;
        }
    };
    let wanted = ImageRef::parse(image);
    let is_named = |name: &String| ImageRef::parse(name).is_same_repository(&wanted);
    let pulled = brought.into_iter().filter(|image| image.is_pulled && image.names.iter().any(is_named));
    let pulled: BTreeSet<String> = pulled.map(|image| image.id).collect();
    note_proven_images(record, image, |id, _| pulled.contains(id));
}

/// Notes an answer. True: the image that runs takes the place of one that was resolved, so the target must be chosen again.
fn note_answer(
    context: &AppContext,
    record: &mut Record,
    (image, update): (&str, &ImageUpdate),
    ReceivedAnswer { at, compared, newest }: &ReceivedAnswer,
    followed: FollowedStack<'_>,
) -> bool {
    let now = *at;
    let failures = |record: &Record| {
        let known = record.followed_images.get(image).filter(|_| update.mode == UpdateMode::Apply);
        known.and_then(|known| known.failure.as_ref()).map_or(0, |failure| failure.count)
    };
    let mut has_returned = false;
    match newest {
        Ok(NewestImage { tag, digest, is_running, proven, is_available }) => {
            note_proven_images(record, image, |_, running| proven.contains(running));
            let (is_running, is_available) = (*is_running, *is_available);
            if failures(record) >= SHOWN_FAILURES {
                let message = format!("the registry of {image} answers again");
                context.event(EventKind::Normal, "ImageChecked", image, &message);
            }
            let answer = RegistryAnswer { tag, digest, compared, is_running, is_available };
            let on_host = (followed.stack, followed.observed);
            has_returned = note_returned_image(record, (image, update), answer, on_host);
            if has_returned {
                tracing::info!(image, digest, "the registry names the image again that runs");
                let message = format!("{image} names {digest} again, which runs");
                context.event(EventKind::Normal, "ImageUpdated", image, &message);
            }
            let news = note_newest_image(record, (image, update), answer, on_host, now);
            if let Some(AvailableImage { image: newest, .. }) = news {
                tracing::info!(image, newest, "a newer image is available");
                let message = match update.mode {
                    UpdateMode::Apply if !update.min_age.is_zero() => {
                        format!("{newest} is available, and is deployed at {}", now.after(update.min_age))
                    }
                    _ => format!("{newest} is available"),
                };
                context.event(EventKind::Normal, "ImageUpdateAvailable", image, &message);
            }
        }
        Err(error) => {
            let failure = (error.reason(), error.to_string());
            let is_news = note_failed_check(record, (image, update), failure, error.retry_after(), now);
            if is_news {
                tracing::info!(image, error = %error, "could not ask the registry for a newer image");
            }
            if failures(record) == SHOWN_FAILURES {
                let message = format!("could not look for a newer image of {image}: {error}");
                context.event(EventKind::Warning, "ImageCheckFailed", image, &message);
            }
        }
    }
    has_returned
}
