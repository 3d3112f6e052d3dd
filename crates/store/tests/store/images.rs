//! Images that the agent brought, and those that revisions need.

use driftless_model::{BroughtImage, ImageRetention};

use driftless_store::StateDir;

use super::*;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The numbers of the revisions that keep their images.
fn kept(store: &Store, revisions: usize, age: Duration) -> Vec<u64> {
    let found = store.revision_images(&ImageRetention { revisions, age }).unwrap().unwrap();
    found.into_iter().map(|revision| revision.number).collect()
}

#[test]
fn names_of_a_brought_image_are_collected() {
    let store = memory();
    let image = |given: &[&str]| BroughtImage {
        id: "sha256:a".to_owned(),
        names: names(given),
        at: NOW,
        is_pulled: given == ["web:1"],
    };
    store.note_brought_image(&image(&["web:1"])).unwrap();
    store.note_brought_image(&image(&["web:latest"])).unwrap();
    let known = BroughtImage { is_pulled: true, ..image(&["web:1", "web:latest"]) };
    assert_eq!(store.brought_images().unwrap(), [known]);
    store.forget_brought_images(&[]).unwrap();
    assert_eq!(store.brought_images().unwrap().len(), 1);
    store.forget_brought_images(&store.brought_images().unwrap()).unwrap();
    assert!(store.brought_images().unwrap().is_empty());
}

#[test]
fn brought_images_outlive_a_lost_database() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    let image =
        BroughtImage { id: "sha256:a".to_owned(), names: names(&["web:1"]), at: NOW, is_pulled: true };
    store.note_brought_image(&image).unwrap();
    drop(store);
    for file in ["driftless.db", "driftless.db-wal", "driftless.db-shm"] {
        drop(fs::remove_file(directory.path().join(file)));
    }
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.brought_images().unwrap(), [image]);
}

#[test]
fn image_that_was_noted_again_is_not_forgotten() {
    let store = memory();
    let image =
        |at| BroughtImage { id: "sha256:a".to_owned(), names: names(&["web:1"]), at, is_pulled: true };
    store.note_brought_image(&image(NOW)).unwrap();
    let gone = store.brought_images().unwrap();
    let again = image(NOW.after(Duration::from_secs(1)));
    store.note_brought_image(&again).unwrap();
    store.forget_brought_images(&gone).unwrap();
    assert_eq!(store.brought_images().unwrap(), [again]);
}

#[test]
fn recent_successful_and_pinned_revisions_keep_images() {
    let store = memory();
    let resolved = BTreeMap::from([("web:1".to_owned(), "web@sha256:1".to_owned())]);
    for image in ["web:1", "web:2", "web:3", "web:4", "web:5"] {
        let begun = store.begin_revision(&new_revision(), &stack(image, vec![])).unwrap();
        let outcome = match image {
            "web:4" | "web:5" => Outcome::Failed { reason: "no progress".to_owned() },
            _ => Outcome::Succeeded,
        };
        let images = if image == "web:1" { resolved.clone() } else { BTreeMap::new() };
        store.finish_revision(&shop(), begun.number, &outcome, &images).unwrap();
    }
    let day = Duration::from_secs(86_400);
    assert_eq!(kept(&store, 10, day), [5, 4, 3, 2, 1]);
    assert_eq!(kept(&store, 2, day), [5, 4, 3], "the last success always does");
    store.set_pin(&shop(), &pin(1)).unwrap();
    assert_eq!(kept(&store, 1, day), [5, 3, 1], "and the pinned one");
    store.finish_revision(&shop(), 3, &failed(), &BTreeMap::new()).unwrap();
    assert_eq!(kept(&store, 1, day), [5, 3, 2, 1], "and the last one that was reached");
    let all = store.revision_images(&ImageRetention::default()).unwrap().unwrap();
    assert_eq!(all.last().unwrap().images, names(&["web:1", "web@sha256:1"]));
}
