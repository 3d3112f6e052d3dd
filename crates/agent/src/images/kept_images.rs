//! The images of the engine: notes which ones the agent brings, says what each one is kept for, and removes those that
//! nothing needs.

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc};

use tokio::sync::{Mutex, broadcast::error::RecvError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_docker::{Docker, EngineEvent, ImageParents};
use driftless_model::{
    BroughtImage, DiskSpace, FreeSpace, ImageCleanup, ImageRetention, ImageUse, KeepReason, ListedImage,
};
use driftless_plan::image_uses;
use driftless_store::Store;

use crate::{error::chain, lasting_tasks};

/// An answer that is being made. An error is in words.
type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// The images of the engine.
pub trait Images: Send + Sync {
    /// All images, and what each one is kept for. Those that nothing keeps come first, the oldest at the beginning.
    fn uses<'a>(&'a self, retention: &'a ImageRetention) -> Answer<'a, Vec<ImageUse>>;

    /// Removes the images that nothing keeps, the oldest first. With `min_free` only until this much of the disk is free.
    fn clean_up<'a>(
        &'a self,
        retention: &'a ImageRetention,
        min_free: Option<FreeSpace>,
    ) -> Answer<'a, ImageCleanup>;

    /// Cuts the build cache of the engine to this many bytes. Returns the bytes that were freed.
    fn prune_build_cache(&self, keep: u64) -> Answer<'_, u64>;
}

/// The images of the engine and what the database knows of them.
pub(crate) struct EngineImages<D> {
    docker: Arc<D>,
    store: Store,
    clock: Clock,
    /// Held during a clean-up.
    cleaning: Mutex<()>,
}

impl<D: Docker> EngineImages<D> {
    pub(crate) fn new(docker: Arc<D>, store: Store, clock: Clock) -> Self {
        Self { docker, store, clock, cleaning: Mutex::new(()) }
    }

    /// The engine's disk, if there is a floor of free space.
    async fn disk(&self, min_free: Option<FreeSpace>) -> Result<Option<DiskSpace>, String> {
        if min_free.is_none() {
            return Ok(None);
        }
        self.docker.disk_space().await.map(Some).map_err(|error| chain(&error))
    }

    async fn list_uses(
        &self,
        retention: &ImageRetention,
    ) -> Result<(Vec<ListedImage>, Vec<ImageUse>), String> {
        let needed = self.store.revision_images(retention).map_err(|error| chain(&error))?;
        let needed = needed.map_err(|(app, number)| {
            format!("revision {number} of {app} cannot be read, so the images that it needs are unknown")
        })?;
        let listed = forget_gone(&*self.docker, &self.store).await?;
        let brought = self.store.brought_images().map_err(|error| chain(&error))?;
        let uses = image_uses(&listed, &brought, &needed, self.clock.now());
        Ok((listed, uses))
    }

    async fn remove_unneeded(
        &self,
        retention: &ImageRetention,
        min_free: Option<FreeSpace>,
    ) -> Result<ImageCleanup, String> {
        let _cleaning = self.cleaning.lock().await;
        let mut cleanup = ImageCleanup { disk: self.disk(min_free).await?, ..ImageCleanup::default() };
        let known = self.store.brought_images().map_err(|error| chain(&error))?;
        let (listed, uses) = self.list_uses(retention).await?;
        let may_remove_parents = !keeps_nameless(&uses, &listed);
        for image in uses.into_iter().filter(ImageUse::is_unneeded) {
            let is_enough = |(floor, disk): (FreeSpace, DiskSpace)| !floor.is_more_than(disk);
            if min_free.zip(cleanup.disk).is_some_and(is_enough) {
                break;
            }
            let Some(found) = listed.iter().find(|found| found.id == image.id) else { continue };
            let is_built = known.iter().any(|known| known.id == image.id && !known.is_pulled);
            let parents =
                if is_built && may_remove_parents { ImageParents::Remove } else { ImageParents::Keep };
            match self.docker.remove_image(found, parents).await {
                Ok(()) => {
                    tracing::info!(image = image.id, names = ?image.names, "removed an image that nothing needs");
                    cleanup.removed.push(image);
                    match self.disk(min_free).await {
                        Ok(disk) => cleanup.disk = disk,
                        Err(error) => {
                            cleanup.failed.push(error);
                            break;
                        }
                    }
                }
                Err(error) => cleanup.failed.push(chain(&error)),
            }
        }
        let is_removed = |image: &BroughtImage| cleanup.removed.iter().any(|removed| removed.id == image.id);
        let removed: Vec<BroughtImage> = known.into_iter().filter(is_removed).collect();
        self.store.forget_brought_images(&removed).map_err(|error| chain(&error))?;
        Ok(cleanup)
    }
}

impl<D: Docker> Images for EngineImages<D> {
    fn uses<'a>(&'a self, retention: &'a ImageRetention) -> Answer<'a, Vec<ImageUse>> {
        Box::pin(async move { self.list_uses(retention).await.map(|(_, uses)| uses) })
    }

    fn clean_up<'a>(
        &'a self,
        retention: &'a ImageRetention,
        min_free: Option<FreeSpace>,
    ) -> Answer<'a, ImageCleanup> {
        Box::pin(self.remove_unneeded(retention, min_free))
    }

    fn prune_build_cache(&self, keep: u64) -> Answer<'_, u64> {
        Box::pin(async move { self.docker.prune_build_cache(keep).await.map_err(|error| chain(&error)) })
    }
}

/// Whether an image without a name is to stay, such as one that a revision needs by its digest. Podman removes it as a parent of another one.
/// Those of the stages of a build, which no registry had, do not count.
fn keeps_nameless(uses: &[ImageUse], listed: &[ListedImage]) -> bool {
    let is_pulled =
        |image: &ImageUse| listed.iter().any(|found| found.id == image.id && !found.digests.is_empty());
    uses.iter().filter(|image| image.names.is_empty()).any(|image| {
        let mut reasons = image.kept_for.iter();
        reasons.any(|reason| *reason != KeepReason::NotBrought || is_pulled(image))
    })
}

/// Forgets the images that the engine does not have any more, so that one that somebody else brings back is not taken for the agent's.
/// Returns those that it has.
async fn forget_gone<D: Docker>(docker: &D, store: &Store) -> Result<Vec<ListedImage>, String> {
    // Pulls and builds go on meanwhile, and what they bring is noted. It is missing in the list, and is not gone.
    let mut gone = store.brought_images().map_err(|error| chain(&error))?;
    let listed = docker.images().await.map_err(|error| chain(&error))?;
    gone.retain(|image| listed.iter().all(|found| found.id != image.id));
    if !gone.is_empty() {
        store.forget_brought_images(&gone).map_err(|error| chain(&error))?;
    }
    Ok(listed)
}

/// Starts the task that forgets the images that the engine says are removed. It does so at once, because somebody may load one again from a
/// file.
pub(crate) fn start_forgetting_images<D: Docker>(
    docker: Arc<D>,
    store: Store,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let forgetting = async move {
        let mut events = docker.events();
        loop {
            let event = events.recv().await;
            let forgotten = match event {
                Ok(EngineEvent::ObjectChanged { kind, action, name, .. }) if is_removal(&kind, &action) => {
                    forget_removed(&store, &name)
                }
                // Removals may have been missed.
                Ok(EngineEvent::Connected) | Err(RecvError::Lagged(_)) => {
                    forget_missed(&*docker, &store).await
                }
                Ok(_) => continue,
                Err(RecvError::Closed) => return,
            };
            if let Err(error) = forgotten {
                tracing::debug!(
                    error,
                    "could not forget images that are gone; the next list of images does it"
                );
            }
        }
    };
    let stop = stop.clone();
    lasting_tasks::start("removed images", (stop.clone(), tasks), async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = forgetting => {}
        }
    });
}

/// Whether an image was removed. Docker says `delete`.
fn is_removal(kind: &str, action: &str) -> bool {
    kind == "image" && matches!(action, "delete" | "remove")
}

/// Forgets the image that an event of the engine names.
fn forget_removed(store: &Store, name: &str) -> Result<(), String> {
    let mut removed = store.brought_images().map_err(|error| chain(&error))?;
    removed.retain(|image| is_meant(image, name));
    if removed.is_empty() {
        return Ok(());
    }
    store.forget_brought_images(&removed).map_err(|error| chain(&error))
}

/// Whether an event names this image: Docker by its id, Podman also without `sha256:` or by a name.
fn is_meant(image: &BroughtImage, name: &str) -> bool {
    let known = ListedImage { id: image.id.clone(), names: image.names.clone(), ..ListedImage::default() };
    known.is_named(name) || image.id.strip_prefix("sha256:") == Some(name)
}

/// Forgets the images that were removed while no event was heard. The engine is not asked if the agent has brought none.
async fn forget_missed<D: Docker>(docker: &D, store: &Store) -> Result<(), String> {
    if store.brought_images().map_err(|error| chain(&error))?.is_empty() {
        return Ok(());
    }
    forget_gone(docker, store).await.map(drop)
}

/// A pull or a build that is under way. Its end is noted when this is dropped, because a round that finds the image ends the
/// task before the engine has reported the end.
pub(crate) struct Bringing<D: Docker> {
    docker: Arc<D>,
    store: Store,
    clock: Clock,
    /// The names that the image gets; the first one is new for this image.
    names: Vec<String>,
    /// The images that the engine had before. `None` if it did not say: then the image counts as foreign.
    before: Option<BTreeSet<String>>,
    is_pull: bool,
}

impl<D: Docker> Bringing<D> {
    pub(crate) async fn begin(docker: &Arc<D>, store: Store, clock: Clock, names: Vec<String>) -> Self {
        let listed = docker.images().await.ok();
        let before = listed.map(|listed| listed.into_iter().map(|image| image.id).collect());
        Self { docker: Arc::clone(docker), store, clock, names, before, is_pull: false }
    }

    /// The image comes from a registry.
    pub(crate) fn pulled(mut self) -> Self {
        self.is_pull = true;
        self
    }
}

impl<D: Docker> Drop for Bringing<D> {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (docker, store, clock) = (Arc::clone(&self.docker), self.store.clone(), self.clock);
        let (names, is_pull) = (std::mem::take(&mut self.names), self.is_pull);
        // It ends by itself after one call, which has a deadline.
        runtime.spawn(async move { note_brought(&*docker, &store, clock, (&names, is_pull), &before).await });
    }
}

/// Notes an image that was pulled or built, if the engine did not have it before or the agent brought it earlier.
async fn note_brought<D: Docker>(
    docker: &D,
    store: &Store,
    clock: Clock,
    (names, is_pulled): (&[String], bool),
    before: &BTreeSet<String>,
) {
    let listed = match forget_gone(docker, store).await {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(error, "could not note an image; it will not be cleaned up");
            return;
        }
    };
    let known = store.brought_images().unwrap_or_default();
    let Some(found) = listed.into_iter().find(|image| names.first().is_some_and(|name| image.is_named(name)))
    else {
        return;
    };
    let is_new = !before.contains(&found.id);
    if !is_new && !known.iter().any(|image| image.id == found.id) {
        return;
    }
    // A new image has only the names that this pull or build gave it.
    let own = found.names.into_iter().filter(|name| {
        let listed = ListedImage { names: BTreeSet::from([name.clone()]), ..ListedImage::default() };
        is_new || names.iter().any(|given| listed.is_named(given))
    });
    let image = BroughtImage { id: found.id, names: own.collect(), at: clock.now(), is_pulled };
    if let Err(error) = store.note_brought_image(&image) {
        tracing::warn!(
            error = chain(&error),
            image = image.id,
            "could not note an image; it will not be cleaned up"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_stay_if_an_image_without_a_name_is_needed() {
        let revision = KeepReason::Revision { app: "shop".into(), number: 3 };
        for (name, kept_for, digest, is_kept) in [
            (None, vec![revision.clone()], None, true),
            (None, vec![KeepReason::NotBrought], Some("redis@sha256:d1"), true),
            (None, vec![KeepReason::NotBrought], None, false),
            (None, Vec::new(), Some("redis@sha256:d1"), false),
            (Some("redis:7"), vec![revision], Some("redis@sha256:d1"), false),
        ] {
            let set =
                |text: Option<&str>| -> BTreeSet<String> { text.map(str::to_owned).into_iter().collect() };
            let (id, names) = ("sha256:ab12".to_owned(), set(name));
            let digests = set(digest);
            let listed = ListedImage { id: id.clone(), digests, ..ListedImage::default() };
            let image = ImageUse { id, names, bytes: 1, brought_at: None, kept_for };
            assert_eq!(keeps_nameless(std::slice::from_ref(&image), &[listed]), is_kept, "{image:?}");
        }
    }

    #[test]
    fn events_name_images_by_id_or_name() {
        let image = BroughtImage {
            id: "sha256:ab12".to_owned(),
            names: BTreeSet::from(["docker.io/library/web:1".to_owned()]),
            at: driftless_model::Timestamp(0),
            is_pulled: true,
        };
        for (name, is_its) in
            [("sha256:ab12", true), ("ab12", true), ("web:1", true), ("sha256:ab13", false), ("web:2", false)]
        {
            assert_eq!(is_meant(&image, name), is_its, "{name}");
        }
    }
}
