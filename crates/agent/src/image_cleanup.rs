//! The clean-up of images after each sync that succeeds.

use std::time::Duration;

use tokio::{sync::broadcast::error::RecvError, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_model::{AppName, Event, EventKind, ImageCleanup, ImageRetention};
use driftless_store::Store;

use crate::{Handle, error::chain, revisions::SYNC_SUCCEEDED};

/// Syncs that succeed within this time are followed by one clean-up.
const TOGETHER: Duration = Duration::from_secs(10);

/// Starts the task that cleans up images after each sync that succeeds, if the configuration asks for it.
pub fn start_image_cleanup(
    retention: Option<ImageRetention>,
    handle: &Handle,
    (store, clock): (&Store, Clock),
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let Some(retention) = retention else { return };
    let (handle, store, stop) = (handle.clone(), store.clone(), stop.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = clean_up_after_syncs(&retention, &handle, (&store, clock)) => {}
        }
    });
}

async fn clean_up_after_syncs(retention: &ImageRetention, handle: &Handle, (store, clock): (&Store, Clock)) {
    let mut events = handle.events();
    loop {
        match events.recv().await {
            Ok(event) if event.reason != SYNC_SUCCEEDED => continue,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
        sleep(TOGETHER).await;
        // This clean-up answers the events until now.
        events = events.resubscribe();
        let Some(images) = handle.images() else { return };
        match images.clean_up(retention).await {
            Ok(cleanup) => report(&cleanup, handle, (store, clock)),
            Err(error) => tracing::warn!(error, "could not clean up images; the next sync tries again"),
        }
    }
}

fn report(cleanup: &ImageCleanup, handle: &Handle, (store, clock): (&Store, Clock)) {
    for error in &cleanup.failed {
        tracing::warn!(error, "could not remove an image; the next sync tries again");
    }
    if cleanup.removed.is_empty() {
        return;
    }
    let names = cleanup.removed.iter().map(|image| image.names.first().unwrap_or(&image.id).as_str());
    let message = format!("removed images that nothing needs: {}", names.collect::<Vec<_>>().join(", "));
    let event = Event {
        sequence: 0,
        at: clock.now(),
        app: AppName("agent/images".to_owned()),
        kind: EventKind::Normal,
        reason: "ImagesRemoved".to_owned(),
        object: "images".to_owned(),
        message,
        actor: None,
    };
    match store.append_event(event) {
        Ok(event) => handle.publish_event(event),
        Err(error) => tracing::warn!(error = chain(&error), "could not store an event"),
    }
}
