//! The clean-up of images that the agent brought and nothing needs any more.

use std::time::Duration;

use driftless_agent::start_image_cleanup;
use driftless_model::{ImageRetention, ImageUse, KeepReason};
use driftless_store::NewRevision;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::simulation::Simulation;

const ONE: ImageRetention = ImageRetention { revisions: 1, age: Duration::from_secs(86_400) };

async fn uses(simulation: &Simulation) -> Vec<ImageUse> {
    simulation.handle().images().unwrap().uses(&ONE).await.unwrap()
}

fn unneeded(uses: &[ImageUse]) -> Vec<&str> {
    uses.iter()
        .filter(|image| image.is_unneeded())
        .flat_map(|image| &image.names)
        .map(String::as_str)
        .collect()
}

fn compose(version: u32) -> String {
    format!("services: {{web: {{image: 'web:{version}'}}}}")
}

#[tokio::test(start_paused = true)]
async fn images_of_forgotten_revisions_are_removed() {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    for version in 2..=3 {
        simulation.push(&compose(version)).await;
        simulation.synced_with_tip().await;
    }
    assert_eq!(unneeded(&uses(&simulation).await), [""; 0], "images of the last hour are kept");

    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(unneeded(&uses(&simulation).await), ["web:1", "web:2"]);
    let images = simulation.handle().images().unwrap().clone();
    let cleanup = images.clean_up(&ONE).await.unwrap();
    assert_eq!((unneeded(&cleanup.removed), cleanup.failed), (vec!["web:1", "web:2"], Vec::new()));
    let left = uses(&simulation).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].kept_for.iter().any(|reason| matches!(reason, KeepReason::Container { .. })), "{left:?}");
    assert!(left[0].kept_for.iter().any(|reason| matches!(reason, KeepReason::Revision { number: 3, .. })));
    assert_eq!(images.clean_up(&ONE).await.unwrap().removed, []);

    // An image that the agent removed is not its own any more when somebody else brings it.
    assert_eq!(simulation.store.brought_images().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn images_of_revisions_that_may_return_are_kept() {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    simulation.push(&compose(2)).await;
    simulation.synced_with_tip().await;
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    let images = simulation.handle().images().unwrap().clone();
    assert_eq!(images.clean_up(&ImageRetention::default()).await.unwrap().removed, []);

    // A revision that began and has not pulled yet needs its image too.
    let current = simulation.store.current(&simulation.app()).unwrap().unwrap();
    let stack = simulation.store.stack(&current.app, 1).unwrap().unwrap();
    let next = NewRevision {
        app: current.app,
        commit: current.commit,
        reference: current.reference,
        cause: current.cause,
        changes: Vec::new(),
        rollback_of: None,
        actor: None,
    };
    simulation.store.begin_revision(&next, &stack).unwrap();
    assert_eq!(unneeded(&uses(&simulation).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn successful_sync_is_followed_by_a_cleanup() {
    let simulation = Simulation::of(&compose(1));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let ends = (&simulation.store, simulation.clock);
    start_image_cleanup(Some(ONE), &simulation.handle(), ends, &stop, &tasks);
    simulation.synced_with_tip().await;
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(uses(&simulation).await.len(), 1);

    let mut events = simulation.handle().events();
    simulation.push(&compose(2)).await;
    simulation.synced_with_tip().await;
    let removed = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let event = events.recv().await.unwrap();
            if event.reason == "ImagesRemoved" {
                return event.message;
            }
        }
    });
    assert_eq!(removed.await.unwrap(), "removed images that nothing needs: web:1");
    let left: Vec<String> = uses(&simulation).await.into_iter().flat_map(|image| image.names).collect();
    assert_eq!(left, ["web:2"]);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn engine_without_answer_removes_nothing() {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    simulation.docker.disconnect();
    let images = simulation.handle().images().unwrap().clone();
    let error = images.clean_up(&ONE).await.unwrap_err();
    assert!(error.contains("list the images"), "{error}");
    assert_eq!(simulation.store.brought_images().unwrap().len(), 1, "it still knows what it brought");
}
