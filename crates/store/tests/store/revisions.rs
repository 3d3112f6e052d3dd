//! Revisions with their stacks, and the event log.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{AppName, Content, Event, EventKind, MountSource, Outcome, StackHash, last_reached};
use driftless_store::{Error, NewRevision, StateDir};

use super::*;

fn last_succeeded(store: &Store) -> Option<Revision> {
    store.revisions(&shop()).unwrap().into_iter().find(|revision| revision.outcome == Outcome::Succeeded)
}

#[test]
fn removals_of_older_releases_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let (removal, images) =
        (stack("web:1", vec![]).emptied(), BTreeMap::from([("web:1".into(), "d".into())]));
    let without = NewRevision { changes: vec!["api: removed".to_owned()], ..new_revision() };
    let store = Store::open(&state, clock()).unwrap().store;
    for (stack, images) in [
        (&stack("web:1", vec![]), &images),
        (&removal, &BTreeMap::new()),
        (&stack("web:2", vec![]), &BTreeMap::new()),
    ] {
        let number = store.begin_revision(&without, stack).unwrap().number;
        store.finish_revision(&shop(), number, &Outcome::Succeeded, images).unwrap();
    }
    drop(store);
    for _ in 0..2 {
        let store = Store::open(&state, clock()).unwrap().store;
        let revisions = store.revisions(&shop()).unwrap();
        let causes: Vec<_> = revisions.into_iter().map(|revision| revision.cause).collect();
        assert_eq!(causes, [Cause::Commit, Cause::Removal, Cause::Commit]);
    }
}

#[test]
fn newer_revision_supersedes_the_one_in_progress() {
    let store = memory();
    let first = store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap();
    assert_eq!((first.number, &first.outcome), (1, &Outcome::InProgress));
    assert_eq!(first.stack, StackHash::of(&stack("web:1", vec![])));
    let second = store.begin_revision(&new_revision(), &stack("web:2", vec![])).unwrap();
    let newest = (second.clone(), stack("web:2", vec![]));
    assert_eq!(store.current_stack(&shop()).unwrap(), Some(newest));
    let first = store.revision(&shop(), 1).unwrap().unwrap();
    assert_eq!(first.outcome, Outcome::Superseded);
    assert!(first.finished.is_some());
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [2, 1]);
    assert_eq!(store.current(&shop()).unwrap(), Some(second));
    assert_eq!(last_succeeded(&store), None);

    store.finish_revision(&shop(), 2, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    run(&store, "web:3", failed());
    assert_eq!(last_succeeded(&store).map(|it| it.number), Some(2));
    assert_eq!(store.current(&shop()).unwrap().map(|it| it.outcome), Some(failed()));

    let other = NewRevision { app: AppName::from("other"), ..new_revision() };
    assert_eq!(
        store.begin_revision(&other, &stack("x", vec![])).unwrap().number,
        1,
        "each counts for itself"
    );
    // One that failed may still succeed; one that was superseded stays so.
    store.finish_revision(&shop(), 3, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    store.finish_revision(&shop(), 1, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    let outcomes: Vec<_> = store.revisions(&shop()).unwrap().into_iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Outcome::Succeeded, Outcome::Succeeded, Outcome::Superseded]);
    let missing = store.finish_revision(&shop(), 99, &Outcome::Succeeded, &BTreeMap::new()).unwrap_err();
    assert!(matches!(missing, Error::NoSuchRevision { number: 99, .. }));
}

#[test]
fn ten_successes_ten_others_and_the_pinned_one_are_kept() {
    let store = memory();
    let pinned = run(&store, "web:pinned", Outcome::Succeeded);
    store.set_pin(&shop(), &pin(pinned)).unwrap();
    let good = run(&store, "web:good", Outcome::Succeeded);
    for number in 0..30 {
        run(&store, &format!("web:bad-{number}"), failed());
    }
    assert_eq!(
        numbers(&store.revisions(&shop()).unwrap()),
        [32, 31, 30, 29, 28, 27, 26, 25, 24, 23, good, pinned]
    );
    for number in 0..12 {
        run(&store, &format!("web:{number}"), Outcome::Succeeded);
    }
    let kept = numbers(&store.revisions(&shop()).unwrap());
    assert_eq!(kept.len(), 21, "{kept:?}");
    assert_eq!(kept.last(), Some(&pinned));
    assert!(store.stack(&shop(), pinned).unwrap().is_some());
    assert!(store.stack(&shop(), good).unwrap().is_none());
    // A number is never used twice, even when the revision that had it is gone.
    assert_eq!(run(&store, "web:last", Outcome::Succeeded), 45);
}

#[test]
fn last_success_is_kept_across_many_failures() {
    let store = memory();
    let id = Content::file(*b"configuration").id();
    let mounted = stack("web:1", vec![MountSource::Content(id.clone())]);
    let first = store.begin_revision(&new_revision(), &mounted).unwrap().number;
    store.finish_revision(&shop(), first, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    for _ in 0..25 {
        let number = store.begin_revision(&new_revision(), &mounted).unwrap().number;
        store.finish_revision(&shop(), number, &failed(), &BTreeMap::new()).unwrap();
    }
    assert_eq!(last_succeeded(&store).map(|it| it.number), Some(first));
    assert_eq!(store.stack(&shop(), first).unwrap(), Some(mounted));
    assert_eq!(store.contents_in_use().unwrap(), BTreeSet::from([id]));
}

#[test]
fn last_reached_revision_is_kept_across_many_failures() {
    let store = memory();
    let first = run(&store, "web:1", Outcome::Succeeded);
    let reached = run(&store, "web:2", Outcome::Succeeded);
    store.finish_revision(&shop(), reached, &failed(), &BTreeMap::new()).unwrap();
    for number in 0..25 {
        run(&store, &format!("web:bad-{number}"), failed());
    }
    let history = store.revisions(&shop()).unwrap();
    assert_eq!(last_reached(&history).map(|it| it.number), Some(reached));
    assert!(store.stack(&shop(), reached).unwrap().is_some());
    assert_eq!(last_succeeded(&store).map(|it| it.number), Some(first));
}

#[test]
fn contents_of_stored_stacks_are_in_use() {
    let store = memory();
    let [public, secret, tracked] = [*b"public", *b"secret", *b"trackd"].map(|it| Content::file(it).id());
    let mut full =
        stack("web:1", vec![MountSource::Content(public.clone()), MountSource::Secret(secret.clone())]);
    full.app_files.insert("a".to_owned(), tracked.clone());
    let number = store.begin_revision(&new_revision(), &full).unwrap().number;
    store.finish_revision(&shop(), number, &failed(), &BTreeMap::new()).unwrap();
    assert_eq!(store.contents_in_use().unwrap(), BTreeSet::from([public, secret, tracked]));
    for _ in 0..11 {
        run(&store, "web:2", failed());
    }
    assert_eq!(store.contents_in_use().unwrap(), BTreeSet::new());
}

#[test]
fn events_are_read_from_a_number_on() {
    let store = memory();
    let event = |app: &str, message: &str| Event {
        sequence: 77,
        at: NOW,
        app: AppName::from(app),
        kind: EventKind::Normal,
        reason: "Pulled".to_owned(),
        object: "web.1".to_owned(),
        message: message.to_owned(),
        actor: None,
    };
    for message in ["a", "b", "c"] {
        store.append_event(event("shop", message)).unwrap();
        store.append_event(event("other", message)).unwrap();
    }
    let told = |events: Vec<Event>| -> Vec<(u64, String)> {
        events.into_iter().map(|it| (it.sequence, it.message)).collect()
    };
    let of = |pairs: &[(u64, &str)]| pairs.iter().map(|it| (it.0, it.1.to_owned())).collect::<Vec<_>>();
    assert_eq!(told(store.events(3, 2, None).unwrap()), of(&[(4, "b"), (5, "c")]));
    assert_eq!(told(store.events(1, 10, Some(&shop())).unwrap()), of(&[(3, "b"), (5, "c")]));
    assert_eq!(told(store.newest_events(2, Some(&shop())).unwrap()), of(&[(3, "b"), (5, "c")]));
    assert_eq!(told(store.events(6, 10, None).unwrap()), []);
    assert_eq!(store.events(u64::MAX, usize::MAX, None).unwrap(), []);
}

#[test]
fn newest_ten_thousand_events_are_kept() {
    let store = memory();
    for number in 0..10_050 {
        let event = Event {
            sequence: 0,
            at: NOW,
            app: shop(),
            kind: EventKind::Warning,
            reason: "BackOff".to_owned(),
            object: String::new(),
            message: number.to_string(),
            actor: None,
        };
        store.append_event(event).unwrap();
    }
    let events = store.events(0, usize::MAX, None).unwrap();
    assert_eq!((events.len(), events[0].sequence, events[9999].sequence), (10_000, 51, 10_050));
}

#[test]
fn busy_application_leaves_the_events_of_others() {
    let store = memory();
    let append = |app: &str, count: u32| {
        for number in 0..count {
            let event = Event {
                sequence: 0,
                at: NOW,
                app: AppName::from(app),
                kind: EventKind::Warning,
                reason: "RolledBack".to_owned(),
                object: String::new(),
                message: number.to_string(),
                actor: None,
            };
            store.append_event(event).unwrap();
        }
    };
    let kept = |app: &str| store.newest_events(1000, Some(&AppName::from(app))).unwrap();
    append("shop", 150);
    append("wiki", 1);
    append("busy", 10_100);
    assert_eq!((kept("shop").len(), kept("wiki").len()), (100, 1));
    assert_eq!(kept("shop")[0].message, "50");
    assert_eq!(store.events(0, usize::MAX, None).unwrap().len(), 10_101);
    append("shop", 1);
    assert_eq!((kept("shop").len(), kept("shop")[99].message.as_str()), (100, "0"));
    // Of an application that is gone, nothing more is kept.
    for app in ["wiki", "former"] {
        store.remember_application(&AppName::from(app), &serde_json::json!({}), "infra").unwrap();
    }
    assert!(store.forget_application(&AppName::from("former")).unwrap());
    assert_eq!((kept("shop").len(), kept("wiki").len()), (1, 1));
}

#[test]
fn revisions_of_applications_removed_long_ago_go() {
    let clock = Clock::jumping(NOW);
    let Clock::Jumping { epoch, .. } = clock else { panic!() };
    let store = Store::in_memory(clock).unwrap();
    let apply = |app: &AppName, cause: Cause, stack: &Stack| {
        let new = NewRevision { app: app.clone(), cause, ..new_revision() };
        let number = store.begin_revision(&new, stack).unwrap().number;
        store.finish_revision(app, number, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
        number
    };
    let deploy = |app: &AppName| {
        let id = Content::file(app.as_str().as_bytes()).id();
        store.remember_application(app, &serde_json::Value::Null, "infra").unwrap();
        apply(app, Cause::Commit, &stack("web:1", vec![MountSource::Content(id)]))
    };
    let remove = |app: &AppName| {
        apply(app, Cause::Removal, &stack("web:1", vec![]).emptied());
        assert!(store.forget_application(app).unwrap());
    };
    let days = |count: u64| NOW.after(Duration::from_hours(24 * count)).0;
    let [stays, forgotten, last] = ["stays", "forgotten", "last"].map(AppName::from);
    let previews: Vec<AppName> =
        (0..60).map(|number| AppName::from(format!("preview-{number}").as_str())).collect();
    deploy(&stays);
    deploy(&forgotten);
    assert!(store.forget_application(&forgotten).unwrap());
    for preview in &previews {
        deploy(preview);
        remove(preview);
    }
    let kept = || previews.iter().filter(|app| store.current(app).unwrap().is_some()).count();
    for (day, expected) in [(80, 60), (100, 49)] {
        epoch.store(days(day), std::sync::atomic::Ordering::SeqCst);
        deploy(&last);
        remove(&last);
        assert_eq!(kept(), expected, "after {day} days");
    }
    // Their contents go with them, and all others stay.
    assert_eq!(store.contents_in_use().unwrap().len(), 49 + 3);
    assert!([&stays, &forgotten, &last].iter().all(|app| store.current(app).unwrap().is_some()));
    let gone = previews.iter().find(|app| store.current(app).unwrap().is_none()).unwrap();
    assert_eq!(deploy(gone), 3, "no number is used twice");
}
