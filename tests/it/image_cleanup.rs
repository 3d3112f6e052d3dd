//! The clean-up of images that the agent brought and nothing needs any more.

use std::{collections::BTreeSet, time::Duration};

use driftless_agent::start_image_cleanup;
use driftless_docker::{Docker, IMAGE_BYTES, ImageParents};
use driftless_model::{BroughtImage, CleanupRules, FreeSpace, ImageRetention, ImageUse, KeepReason};
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
    let cleanup = images.clean_up(&ONE, None).await.unwrap();
    assert_eq!((unneeded(&cleanup.removed), cleanup.failed), (vec!["web:1", "web:2"], Vec::new()));
    let left = uses(&simulation).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].kept_for.iter().any(|reason| matches!(reason, KeepReason::Container { .. })), "{left:?}");
    assert!(left[0].kept_for.iter().any(|reason| matches!(reason, KeepReason::Revision { number: 3, .. })));
    assert_eq!(images.clean_up(&ONE, None).await.unwrap().removed, []);

    // An image that the agent removed is not its own any more when somebody else brings it.
    assert_eq!(simulation.store.brought_images().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn image_that_a_user_has_removed_is_forgotten() {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    simulation.push(&compose(2)).await;
    simulation.synced_with_tip().await;
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    let listed = simulation.docker.images().await.unwrap();
    let first = listed.iter().find(|image| image.is_named("web:1")).unwrap();
    simulation.docker.remove_image(first, ImageParents::Keep).await.unwrap();
    simulation.push(&compose(3)).await;
    simulation.synced_with_tip().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let known = simulation.store.brought_images().unwrap();
    let names: BTreeSet<&str> = known.iter().flat_map(|image| &image.names).map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["web:2", "web:3"]));
}

#[tokio::test(start_paused = true)]
async fn images_of_revisions_that_may_return_are_kept() {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    simulation.push(&compose(2)).await;
    simulation.synced_with_tip().await;
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    let images = simulation.handle().images().unwrap().clone();
    assert_eq!(images.clean_up(&ImageRetention::default(), None).await.unwrap().removed, []);

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
    let rules = CleanupRules { retention: ONE, ..CleanupRules::default() };
    start_image_cleanup(Some(rules), &simulation.handle(), ends, &stop, &tasks);
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

/// An application that had three images, of which two are not needed any more.
async fn with_two_unneeded_images() -> Simulation {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    for version in 2..=3 {
        simulation.push(&compose(version)).await;
        simulation.synced_with_tip().await;
    }
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    simulation
}

#[tokio::test(start_paused = true)]
async fn image_that_is_brought_during_a_cleanup_is_remembered() {
    let simulation = with_two_unneeded_images().await;
    let images = simulation.handle().images().unwrap().clone();
    let image = BroughtImage {
        id: "sha256:new".to_owned(),
        names: BTreeSet::from(["wiki:1".to_owned()]),
        at: simulation.clock.now(),
        is_pulled: true,
    };
    simulation.docker.faults(|faults| faults.latency = Duration::from_secs(10));
    // The images are listed after ten seconds, and each removal takes ten more.
    let pull = async {
        tokio::time::sleep(Duration::from_secs(15)).await;
        simulation.store.note_brought_image(&image).unwrap();
    };
    let (cleanup, ()) = tokio::join!(images.clean_up(&ONE, None), pull);
    assert_eq!(unneeded(&cleanup.unwrap().removed), ["web:1", "web:2"]);
    let known = simulation.store.brought_images().unwrap();
    assert!(known.contains(&image), "{known:?}");
    assert_eq!(known.len(), 2, "{known:?}");
}

#[tokio::test(start_paused = true)]
async fn image_that_somebody_brought_back_is_kept() {
    let simulation = with_two_unneeded_images().await;
    let loaded = simulation.docker.remove_image_by_hand("web:1").unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let known = simulation.store.brought_images().unwrap();
    assert!(known.len() == 2 && known.iter().all(|image| image.id != loaded.id), "{known:?}");

    simulation.docker.load_image_by_hand("web:1", loaded);
    let images = simulation.handle().images().unwrap().clone();
    let cleanup = images.clean_up(&ONE, None).await.unwrap();
    assert_eq!(unneeded(&cleanup.removed), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn image_that_is_loaded_again_at_once_is_kept() {
    let simulation = with_two_unneeded_images().await;
    let loaded = simulation.docker.remove_image_by_hand("web:1").unwrap();
    simulation.docker.load_image_by_hand("web:1", loaded);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let images = simulation.handle().images().unwrap().clone();
    let cleanup = images.clean_up(&ONE, None).await.unwrap();
    assert_eq!(unneeded(&cleanup.removed), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn list_of_images_forgets_those_that_are_gone() {
    let simulation = with_two_unneeded_images().await;
    let loaded = simulation.docker.remove_image_by_hand("web:1").unwrap();
    // The event of the engine is not handled yet.
    assert_eq!(unneeded(&uses(&simulation).await), ["web:2"]);
    simulation.docker.load_image_by_hand("web:1", loaded);
    assert_eq!(unneeded(&uses(&simulation).await), ["web:2"]);
}

async fn event(simulation: &Simulation, reason: &str) -> String {
    let known = simulation.store.newest_events(1000, None).unwrap();
    if let Some(found) = known.into_iter().find(|event| event.reason == reason) {
        return found.message;
    }
    let mut events = simulation.handle().events();
    let found = tokio::time::timeout(Duration::from_secs(1300), async {
        loop {
            let event = events.recv().await.unwrap();
            if event.reason == reason {
                return event.message;
            }
        }
    });
    found.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn floor_of_free_space_keeps_images_while_there_is_room() {
    let simulation = with_two_unneeded_images().await;
    // Three images leave 8 GB free, and each removal gives 1 GB back.
    simulation.docker.faults(|faults| faults.disk = 11 * IMAGE_BYTES);
    let images = simulation.handle().images().unwrap().clone();
    let floor = |gigabytes| Some(FreeSpace::Bytes(gigabytes * IMAGE_BYTES));
    let cleanup = images.clean_up(&ONE, floor(8)).await.unwrap();
    assert_eq!(cleanup.removed, [], "there is room");
    let cleanup = images.clean_up(&ONE, floor(9)).await.unwrap();
    assert_eq!(unneeded(&cleanup.removed), ["web:1"], "the oldest is enough");
    assert_eq!(cleanup.disk.unwrap().free, 9 * IMAGE_BYTES);
    assert_eq!(unneeded(&uses(&simulation).await), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn full_disk_is_reported_until_there_is_room() {
    let simulation = with_two_unneeded_images().await;
    simulation.docker.faults(|faults| faults.disk = 4 * IMAGE_BYTES);
    let rules =
        CleanupRules { retention: ONE, min_free: Some(FreeSpace::Percent(10)), max_build_cache: None };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let ends = (&simulation.store, simulation.clock);
    start_image_cleanup(Some(rules), &simulation.handle(), ends, &stop, &tasks);
    // No sync is needed: the disk is looked at by itself.
    let message = event(&simulation, "FreeDiskSpaceFailed").await;
    assert!(message.contains("3000 MB free of 100000 MB"), "{message}");
    assert_eq!(uses(&simulation).await.len(), 1, "all that nothing needs is removed");
    let handle = simulation.handle();
    assert_eq!(handle.problems().list().len(), 1);

    simulation.docker.faults(|faults| faults.disk = 50 * IMAGE_BYTES);
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(handle.problems().list(), []);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn build_cache_is_cut_after_a_sync() {
    let simulation = Simulation::of(&compose(1));
    simulation.docker.faults(|faults| faults.build_cache = 7 * IMAGE_BYTES);
    let rules = CleanupRules { max_build_cache: Some(2 * IMAGE_BYTES), ..CleanupRules::default() };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let ends = (&simulation.store, simulation.clock);
    start_image_cleanup(Some(rules), &simulation.handle(), ends, &stop, &tasks);
    simulation.synced_with_tip().await;
    let message = event(&simulation, "BuildCachePruned").await;
    assert_eq!(message, "cut the build cache of the engine: 5000 MB are free again");
    simulation.docker.faults(|faults| assert_eq!(faults.build_cache, 2 * IMAGE_BYTES));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn engine_without_answer_removes_nothing() {
    let simulation = Simulation::of(&compose(1));
    simulation.synced_with_tip().await;
    simulation.docker.disconnect();
    let images = simulation.handle().images().unwrap().clone();
    let error = images.clean_up(&ONE, None).await.unwrap_err();
    assert!(error.contains("list the images"), "{error}");
    assert_eq!(simulation.store.brought_images().unwrap().len(), 1, "it still knows what it brought");
}
