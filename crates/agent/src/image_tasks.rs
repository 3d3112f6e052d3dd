//! Images are pulled and built beside the rounds, so that a slow registry or a long build holds up nothing: not the
//! healing of what runs, and not a newer commit.

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

use driftless_docker as docker;
use driftless_docker::{BuildInputs, Docker};
use driftless_model::{AppName, Build};
use driftless_plan::Action;

use crate::error::chain;

/// How many images are built at the same time, of all applications. More only take the processors from each other,
/// and from what runs.
pub(crate) const BUILDS_AT_ONCE: usize = 2;

/// The pulls and builds of one application.
pub(crate) struct Pulls {
    running: BTreeMap<String, Pull>,
    /// Rung when one ends.
    wake: Arc<Notify>,
    /// Of all applications, to build.
    builders: Arc<Semaphore>,
    /// The longest build.
    longest: Duration,
}

/// What is known of an image that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It was pulled or built, for whoever asked first.
    Here,
    /// It is on its way.
    Coming,
    Failed {
        error: String,
        retry_after: Option<Duration>,
    },
}

/// Fetches what a build is made from. An error is in words.
pub(crate) type Fetch<'a> = &'a (dyn Fn(&Build) -> Fetching + Send + Sync);
pub(crate) type Fetching = Pin<Box<dyn Future<Output = Result<BuildInputs, String>> + Send>>;

struct Pull {
    state: Arc<Mutex<State>>,
    /// Of a build: what it is made from.
    content: Option<String>,
    /// Dropping it ends the pull.
    _task: AbortOnDropHandle<()>,
}

enum State {
    Running(String),
    Ended(Asked),
}

impl Pull {
    fn is_running(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Running(_))
    }
}

impl Pulls {
    pub(crate) fn new(wake: Arc<Notify>, builders: Arc<Semaphore>, longest: Duration) -> Self {
        Self { running: BTreeMap::new(), wake, builders, longest }
    }

    /// Begins a pull, or tells how it goes. The end of a pull is told once.
    pub(crate) fn pull<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        app: &AppName,
        image: &str,
        action: &Action,
    ) -> Asked {
        let (docker, app, action) = (Arc::clone(docker), app.clone(), action.clone());
        self.ask(image, None, format!("pulling {image}"), move |progress| async move {
            docker.perform(&app, &action, &progress).await.map(drop)
        })
    }

    /// Begins to make the helper's image, or tells how it goes.
    pub(crate) fn import<D: Docker>(&mut self, docker: &Arc<D>, app: &AppName, image: &str) -> Asked {
        let (docker, app, action) =
            (Arc::clone(docker), app.clone(), Action::ImportImage { image: image.to_owned() });
        self.ask(image, None, format!("importing {image}"), move |progress| async move {
            docker.perform(&app, &action, &progress).await.map(drop)
        })
    }

    /// Begins a build, or tells how it goes. The same content is built once at a time: whoever asks for it under
    /// another name finds it in the engine's cache afterwards.
    pub(crate) fn build<D: Docker>(
        &mut self,
        docker: &Arc<D>,
        app: &AppName,
        (image, build): (&str, &Build),
        fetch: Fetch<'_>,
    ) -> Asked {
        let content = Some(build.digest.clone());
        let is_same =
            |(name, it): (&String, &Pull)| name != image && it.content == content && it.is_running();
        if self.running.iter().any(is_same) {
            return Asked::Coming;
        }
        let (docker, app, name, build) = (Arc::clone(docker), app.clone(), image.to_owned(), build.clone());
        let (builders, longest) = (Arc::clone(&self.builders), self.longest);
        let materials = if self.running.contains_key(image) { None } else { Some(fetch(&build)) };
        self.ask(image, content, format!("waiting to build {image}"), move |progress| async move {
            let failed = |message: String| docker::Error::Build { image: name.clone(), message };
            let _permit = builders.acquire().await;
            let materials = match materials {
                Some(materials) => materials.await.map_err(failed)?,
                None => return Ok(()),
            };
            let ended = timeout(longest, docker.build(&app, &name, &build, &materials, &progress)).await;
            ended.unwrap_or_else(|_| Err(failed(format!("not done within {} s", longest.as_secs()))))
        })
    }

    fn ask<W, F>(&mut self, image: &str, content: Option<String>, first: String, work: W) -> Asked
    where
        W: FnOnce(Box<dyn Fn(String) + Send + Sync>) -> F,
        F: Future<Output = Result<(), docker::Error>> + Send + 'static,
    {
        if let Some(pull) = self.running.get(image) {
            let asked = match &*pull.state.lock().unwrap_or_else(PoisonError::into_inner) {
                State::Running(_) => Asked::Coming,
                State::Ended(asked) => asked.clone(),
            };
            if asked != Asked::Coming {
                self.running.remove(image);
            }
            return asked;
        }
        let state = Arc::new(Mutex::new(State::Running(first)));
        let (told, shown, wake) = (Arc::clone(&state), Arc::clone(&state), Arc::clone(&self.wake));
        let work = work(Box::new(move |text| {
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = State::Running(text);
        }));
        let task = tokio::spawn(async move {
            let asked = match work.await {
                Ok(()) => Asked::Here,
                Err(docker::Error::Pull { message, retry_after, .. }) => {
                    Asked::Failed { error: message, retry_after }
                }
                Err(docker::Error::Build { message, .. }) => {
                    Asked::Failed { error: message, retry_after: None }
                }
                Err(error) => Asked::Failed { error: chain(&error), retry_after: None },
            };
            *told.lock().unwrap_or_else(PoisonError::into_inner) = State::Ended(asked);
            wake.notify_one();
        });
        let task = AbortOnDropHandle::new(task);
        self.running.insert(image.to_owned(), Pull { state, content, _task: task });
        Asked::Coming
    }

    /// Ends the pulls and builds of images that nobody asks for any more, because they are here or are not wanted.
    /// Returns their names, and whether they were built.
    pub(crate) fn keep_only(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<(String, bool)> {
        let ended = self.running.extract_if(.., |image, _| !wanted(image));
        ended.map(|(image, it)| (image, it.content.is_some())).collect()
    }

    /// What is on its way, in words.
    pub(crate) fn progress(&self) -> Option<String> {
        let texts = self.running.values().filter_map(|it| {
            match &*it.state.lock().unwrap_or_else(PoisonError::into_inner) {
                State::Running(text) => Some(text.clone()),
                State::Ended(_) => None,
            }
        });
        let all: Vec<String> = texts.collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}
