//! The clean-up of images and of the build cache after each sync that succeeds.

use std::time::Duration;

use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_model::{AppName, CleanupRules, DiskSpace, Event, EventKind, FreeSpace, ImageCleanup};
use driftless_store::Store;

use crate::{Handle, error::chain, images::kept_images::Images, lasting_tasks, revisions::SYNC_SUCCEEDED};

/// Syncs that succeed within this time are followed by one clean-up.
const TOGETHER: Duration = Duration::from_secs(10);

/// The time between two looks at the disk if there is a floor of free space, and until the next try after a failure.
const LOOK_AT_DISK: Duration = Duration::from_mins(10);

/// The subject of the problem of a disk with too little free space.
const DISK: &str = "disk";

/// The subject of the problem of a clean-up that failed.
const CLEANUP: &str = "imageCleanup";

/// Starts the task that cleans up after each sync that succeeds, if the configuration asks for it.
pub fn start_image_cleanup(
    rules: Option<CleanupRules>,
    handle: &Handle,
    (store, clock): (&Store, Clock),
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let Some(rules) = rules else { return };
    let (handle, store, stop) = (handle.clone(), store.clone(), stop.clone());
    lasting_tasks::start("clean-up of images", (stop.clone(), tasks), async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = clean_up_after_syncs(&rules, &handle, (&store, clock)) => {}
        }
    });
}

async fn clean_up_after_syncs(rules: &CleanupRules, handle: &Handle, (store, clock): (&Store, Clock)) {
    let mut events = handle.events();
    let mut has_failed = false;
    while next_occasion(rules.min_free.is_some() || has_failed, &mut events).await {
        // This clean-up answers the events until now.
        events = events.resubscribe();
        let Some(images) = handle.images() else { return };
        match images.clean_up(&rules.retention, rules.min_free).await {
            Ok(cleanup) => {
                has_failed = false;
                handle.problems().set(CLEANUP, None);
                report_disk(rules.min_free, cleanup.disk, handle, (store, clock));
                report(&cleanup, handle, (store, clock));
            }
            Err(error) => {
                has_failed = true;
                tracing::warn!(error, "could not clean up images; trying again in ten minutes");
                handle.problems().set(CLEANUP, Some(format!("could not clean up images: {error}")));
            }
        }
        if let Some(most) = rules.max_build_cache {
            cut_build_cache(&**images, most, handle, (store, clock)).await;
        }
    }
}

/// Waits until a sync has succeeded, or for some minutes if the clean-up is due without one. False: the agent stops.
async fn next_occasion(is_due: bool, events: &mut Receiver<Event>) -> bool {
    let sync = async {
        loop {
            match events.recv().await {
                Ok(event) if event.reason != SYNC_SUCCEEDED => {}
                Ok(_) | Err(RecvError::Lagged(_)) => break true,
                Err(RecvError::Closed) => break false,
            }
        }
    };
    let has_synced = if is_due {
        match timeout(LOOK_AT_DISK, sync).await {
            Ok(has_synced) => has_synced,
            Err(_) => return true,
        }
    } else {
        sync.await
    };
    if has_synced {
        sleep(TOGETHER).await;
    }
    has_synced
}

fn report(cleanup: &ImageCleanup, handle: &Handle, ends: (&Store, Clock)) {
    for error in &cleanup.failed {
        tracing::warn!(error, "could not remove an image; the next sync tries again");
    }
    if cleanup.removed.is_empty() {
        return;
    }
    let names = cleanup.removed.iter().map(|image| image.names.first().unwrap_or(&image.id).as_str());
    let message = format!("removed images that nothing needs: {}", names.collect::<Vec<_>>().join(", "));
    add_event(EventKind::Normal, "ImagesRemoved", message, handle, ends);
}

/// Says once that the disk has too little free space, and shows it as a problem of the agent until that is over.
fn report_disk(floor: Option<FreeSpace>, disk: Option<DiskSpace>, handle: &Handle, ends: (&Store, Clock)) {
    let Some((floor, disk)) = floor.zip(disk) else { return };
    if !floor.is_more_than(disk) {
        handle.problems().set(DISK, None);
        return;
    }
    let message = format!(
        "the engine's disk has {} MB free of {} MB, less than `minFree`, and no image is left that nothing needs: make room, \
         or look at `driftless images` and `docker system df`",
        disk.free / 1_000_000,
        disk.total / 1_000_000
    );
    let is_known = handle.problems().list().iter().any(|problem| problem.subject == DISK);
    handle.problems().set(DISK, Some(message.clone()));
    if !is_known {
        tracing::warn!(
            free = disk.free,
            total = disk.total,
            "the engine's disk has less free space than `minFree`"
        );
        add_event(EventKind::Warning, "FreeDiskSpaceFailed", message, handle, ends);
    }
}

async fn cut_build_cache(images: &dyn Images, most: u64, handle: &Handle, ends: (&Store, Clock)) {
    match images.prune_build_cache(most).await {
        Ok(0) => {}
        Ok(freed) => {
            tracing::info!(freed, "cut the build cache");
            let message =
                format!("cut the build cache of the engine: {} MB are free again", freed / 1_000_000);
            add_event(EventKind::Normal, "BuildCachePruned", message, handle, ends);
        }
        Err(error) => tracing::warn!(error, "could not cut the build cache; the next sync tries again"),
    }
}

fn add_event(
    kind: EventKind,
    reason: &str,
    message: String,
    handle: &Handle,
    (store, clock): (&Store, Clock),
) {
    let event = Event {
        sequence: 0,
        at: clock.now(),
        app: AppName("agent/images".to_owned()),
        kind,
        reason: reason.to_owned(),
        object: "images".to_owned(),
        message,
        actor: None,
    };
    match store.append_event(event) {
        Ok(event) => handle.publish_event(event),
        Err(error) => tracing::warn!(error = chain(&error), "could not store an event"),
    }
}
