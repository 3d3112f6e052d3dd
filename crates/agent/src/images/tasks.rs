//! Image pulls, builds and imports. They run in tasks of their own, so that a slow registry or a long build delays
//! neither drift correction nor a newer commit.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use driftless_clock::Clock;
use driftless_docker as docker;
use driftless_docker::{BuildInputs, Docker, SignatureQuestion, SignedImage};
use driftless_model::{AppName, Build, PlatformImage};
use driftless_plan::Action;
use driftless_store::Store;

use crate::{error::chain, images::kept_images::Bringing, lasting_tasks::interrupts};

/// Maximum number of simultaneous builds, over all applications. More would only slow down each other and the
/// containers of the host.
pub(crate) const CONCURRENT_BUILDS: usize = 2;

/// The error of a task that a panic has ended. The words of the panic may contain a value, and are in the log.
const DEFECT: &str = "a defect of the agent has interrupted it: please report the lines of the agent's log that begin with `thread`";

/// The limits of builds, which all applications share.
#[derive(Clone)]
pub(crate) struct BuildLimits {
    pub(crate) slots: Arc<Semaphore>,
    /// The longest time that one build may take.
    pub(crate) timeout: Duration,
}

/// The pulls, builds and imports of one application.
pub(crate) struct ImageTasks {
    by_image: BTreeMap<PlatformImage, ImageTask>,
    /// Notified when a task ends.
    wake: Arc<Notify>,
    limits: BuildLimits,
    store: Store,
    clock: Clock,
}

/// The state of an image that the planner has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageState {
    /// The pull, build, import or verification has succeeded. With the image if its signatures were verified.
    Present(Option<SignedImage>),
    InProgress,
    Failed {
        error: String,
        retry_after: Option<Duration>,
    },
}

/// Reads the files and secrets of a build. An error is in words.
pub(crate) type ReadContext<'a> = &'a (dyn Fn(&Build) -> ContextRead + Send + Sync);
/// A build context that is being read.
pub(crate) type ContextRead = Pin<Box<dyn Future<Output = Result<BuildInputs, String>> + Send>>;

struct ImageTask {
    progress: Arc<Mutex<Progress>>,
    /// Of a build: the digest of what it is made from.
    build: Option<String>,
    /// Dropping it aborts the task.
    _task: AbortOnDropHandle<()>,
}

enum Progress {
    /// The last message of the engine.
    Running(String),
    Ended(ImageState),
}

/// A task whose image nobody asks for any more.
pub(crate) struct EndedTask {
    pub(crate) image: PlatformImage,
    pub(crate) is_build: bool,
}

impl ImageTask {
    fn is_running(&self) -> bool {
        matches!(*lock(&self.progress), Progress::Running(_))
    }
}

impl ImageTasks {
    pub(crate) fn new(wake: Arc<Notify>, limits: BuildLimits, store: Store, clock: Clock) -> Self {
        Self { by_image: BTreeMap::new(), wake, limits, store, clock }
    }

    /// Starts a pull, or says how it goes. The end of a pull is reported once.
    pub(crate) fn pull<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        app: &AppName,
        image: &PlatformImage,
        action: &Action,
    ) -> ImageState {
        let (docker, app, action) = (Arc::clone(docker), app.clone(), action.clone());
        let (store, clock, names) = (self.store.clone(), self.clock, vec![image.name.clone()]);
        let signature = signature_question(&action);
        self.start_or_ask(image, None, format!("pulling {image}"), move |report| async move {
            {
                let _bringing = Bringing::begin(&docker, store, clock, names).await.pulled();
                docker.perform(&app, &action, &report).await?;
            }
            match signature {
                Some(question) => verified(&*docker, &question).await,
                None => Ok(None),
            }
        })
    }

    /// Starts to verify the signatures of an image that is here, or says how it goes.
    pub(crate) fn verify<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        image: &PlatformImage,
        action: &Action,
    ) -> ImageState {
        let Some(question) = signature_question(action) else { return ImageState::Present(None) };
        let docker = Arc::clone(docker);
        let doing = format!("verifying the signature of {}", image.name);
        self.start_or_ask(image, None, doing, move |_| async move { verified(&*docker, &question).await })
    }

    /// Starts to import the helper image, or says how it goes.
    pub(crate) fn import<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        app: &AppName,
        image: &PlatformImage,
    ) -> ImageState {
        let action = Action::ImportImage { image: image.name.clone() };
        let (docker, app) = (Arc::clone(docker), app.clone());
        self.start_or_ask(image, None, format!("importing {image}"), move |report| async move {
            docker.perform(&app, &action, &report).await.map(|_| None)
        })
    }

    /// Starts a build, or says how it goes. Of images with the same content, one is built at a time: the others find
    /// the result in the engine's cache.
    pub(crate) fn build<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        app: &AppName,
        (image, build): (&PlatformImage, &Build),
        read_context: ReadContext<'_>,
    ) -> ImageState {
        let digest = Some(build.digest.clone());
        let builds_the_same = |(other, task): (&PlatformImage, &ImageTask)| {
            other != image && task.build == digest && task.is_running()
        };
        if self.by_image.iter().any(builds_the_same) {
            return ImageState::InProgress;
        }
        let context = if self.by_image.contains_key(image) { None } else { Some(read_context(build)) };
        let (docker, app, name, build) = (Arc::clone(docker), app.clone(), image.name.clone(), build.clone());
        let BuildLimits { slots, timeout: longest } = self.limits.clone();
        let (store, clock) = (self.store.clone(), self.clock);
        self.start_or_ask(image, digest, format!("waiting to build {image}"), move |report| async move {
            let failed = |message: String| docker::Error::Build { image: name.clone(), message };
            let _slot = slots.acquire().await;
            let context = match context {
                Some(context) => context.await.map_err(failed)?,
                None => return Ok(None),
            };
            let names = [&name].into_iter().chain(&build.tags).cloned().collect();
            let _bringing = Bringing::begin(&docker, store, clock, names).await;
            let result = timeout(longest, docker.build(&app, &name, &build, &context, &report)).await;
            let late = |_| Err(failed(format!("not done within {} s", longest.as_secs())));
            result.unwrap_or_else(late).map(|()| None)
        })
    }

    fn start_or_ask<W, F>(
        &mut self,
        image: &PlatformImage,
        build: Option<String>,
        first_progress: String,
        work: W,
    ) -> ImageState
    where
        W: FnOnce(Box<dyn Fn(String) + Send + Sync>) -> F,
        F: Future<Output = Result<Option<SignedImage>, docker::Error>> + Send + 'static,
    {
        if let Some(task) = self.by_image.get(image) {
            let state = match &*lock(&task.progress) {
                Progress::Running(_) => ImageState::InProgress,
                Progress::Ended(state) => state.clone(),
            };
            if state != ImageState::InProgress {
                self.by_image.remove(image);
            }
            return state;
        }
        let progress = Arc::new(Mutex::new(Progress::Running(first_progress)));
        let (reported, ended, wake) = (Arc::clone(&progress), Arc::clone(&progress), Arc::clone(&self.wake));
        let work = work(Box::new(move |text| *lock(&reported) = Progress::Running(text)));
        let task = async move {
            let work = async { *lock(&ended) = Progress::Ended(ImageState::of(work.await)) };
            if interrupts(work).await {
                let failed = ImageState::Failed { error: DEFECT.to_owned(), retry_after: None };
                *lock(&ended) = Progress::Ended(failed);
            }
            wake.notify_one();
        };
        let task = AbortOnDropHandle::new(tokio::spawn(task.in_current_span()));
        self.by_image.insert(image.clone(), ImageTask { progress, build, _task: task });
        ImageState::InProgress
    }

    /// Ends the tasks of images that the plan does not ask for: they are present, or not needed any more.
    pub(crate) fn end_others(&mut self, is_needed: impl Fn(&PlatformImage) -> bool) -> Vec<EndedTask> {
        let ended = self.by_image.extract_if(.., |image, _| !is_needed(image));
        ended.map(|(image, task)| EndedTask { image, is_build: task.build.is_some() }).collect()
    }

    /// The progress of the running tasks, in one line. `None` if none runs.
    pub(crate) fn progress(&self) -> Option<String> {
        let running = self.by_image.values().filter_map(|task| match &*lock(&task.progress) {
            Progress::Running(text) => Some(text.clone()),
            Progress::Ended(_) => None,
        });
        let running: Vec<String> = running.collect();
        (!running.is_empty()).then(|| running.join("; "))
    }
}

impl ImageState {
    fn of(result: Result<Option<SignedImage>, docker::Error>) -> Self {
        match result {
            Ok(signed) => Self::Present(signed),
            Err(docker::Error::Pull { message, retry_after, .. }) => {
                Self::Failed { error: message, retry_after }
            }
            Err(docker::Error::Build { message, .. }) => Self::Failed { error: message, retry_after: None },
            Err(error) => Self::Failed { error: chain(&error), retry_after: None },
        }
    }
}

/// The question about the signatures of an image that a step gets, if it must be signed.
fn signature_question(action: &Action) -> Option<SignatureQuestion> {
    let (Action::PullImage { image, secrets, keys, .. } | Action::VerifyImage { image, secrets, keys, .. }) =
        action
    else {
        return None;
    };
    let question =
        || SignatureQuestion { image: image.clone(), keys: keys.clone(), secrets: secrets.clone() };
    (!keys.is_empty()).then(question)
}

/// The image with its signatures. An error is that of a pull, so that it is tried again in the same way.
async fn verified<D: Docker>(
    docker: &D,
    question: &SignatureQuestion,
) -> Result<Option<SignedImage>, docker::Error> {
    docker.verify_image(question).await.map(Some).map_err(|error| docker::Error::Pull {
        image: question.image.clone(),
        message: error.to_string(),
        retry_after: error.retry_after(),
    })
}

/// The lock is held for one assignment, so a panic of another task leaves a valid value.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use driftless_model::Platform;

    use super::*;

    fn image(platform: Option<&str>) -> PlatformImage {
        PlatformImage { name: "web:2".to_owned(), platform: platform.map(Platform::parse) }
    }

    fn no_tasks() -> (ImageTasks, Arc<Notify>) {
        let clock = Clock::System;
        let limits = BuildLimits { slots: Arc::new(Semaphore::new(1)), timeout: Duration::from_secs(1) };
        let wake = Arc::new(Notify::new());
        let store = Store::in_memory(clock).unwrap();
        (ImageTasks::new(Arc::clone(&wake), limits, store, clock), wake)
    }

    async fn defect() -> Result<Option<SignedImage>, docker::Error> {
        tokio::task::yield_now().await;
        panic!("a defect")
    }

    #[tokio::test]
    async fn pull_that_a_panic_ends_has_failed() {
        let (mut tasks, wake) = no_tasks();
        let own = image(None);
        let first = tasks.start_or_ask(&own, None, String::new(), |_| defect());
        assert_eq!(first, ImageState::InProgress);
        wake.notified().await;
        let second = tasks.start_or_ask(&own, None, String::new(), |_| defect());
        assert!(matches!(second, ImageState::Failed { .. }), "{second:?}");
    }

    #[tokio::test]
    async fn platforms_of_one_image_are_pulled_in_tasks_of_their_own() {
        let (mut tasks, wake) = no_tasks();
        let (own, other) = (image(None), image(Some("linux/amd64")));
        let ask = |tasks: &mut ImageTasks, image: &PlatformImage| {
            tasks.start_or_ask(image, None, format!("pulling {image}"), |_| async { Ok(None) })
        };
        assert_eq!(ask(&mut tasks, &own), ImageState::InProgress);
        wake.notified().await;
        assert_eq!(
            ask(&mut tasks, &other),
            ImageState::InProgress,
            "the pull for another platform is no answer"
        );
        assert_eq!(ask(&mut tasks, &own), ImageState::Present(None));
        wake.notified().await;
        assert!(tasks.end_others(|image| *image == other).is_empty());
        let ended = tasks.end_others(|image| *image == own);
        assert_eq!(ended.into_iter().map(|task| task.image).collect::<Vec<_>>(), [other]);
    }
}
