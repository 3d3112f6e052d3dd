//! Answers of registries about newer images.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Attempt, AvailableImage, FollowedImage, ImageUpdate, Observed, Record, Timestamp, UpdateMode,
};
use driftless_plan::{
    RegistryAnswer, followed_images, image_check, images_in_use, limit_image_pause, note_failed_check,
    note_image_check, note_newest_image, note_proven_images, note_running_images, resolve_images,
    running_digests, unproven_digests, with_resolved_images,
};

use crate::fixture::{NOON, Stage, stack, workload};

const HOUR: Duration = Duration::from_hours(1);

/// A record in which `web:1` runs under another digest than any answer has.
fn record() -> Record {
    let running = [("sha256:id".to_owned(), "sha256:running".to_owned())].into();
    let known = FollowedImage { running, ..FollowedImage::default() };
    Record { followed_images: [("web:1".to_owned(), known)].into(), ..Record::default() }
}

/// The only digest that ran when the registry was asked.
fn only(digest: &str) -> BTreeSet<String> {
    [digest.to_owned()].into()
}

/// Notes an answer, and returns the newer image that is known after it.
fn answer(
    record: &mut Record,
    update: &ImageUpdate,
    (digest, is_available): (&str, bool),
    now: Timestamp,
) -> (String, Timestamp) {
    let compared = only("sha256:running");
    let answer = RegistryAnswer { tag: "1", digest, compared: &compared, is_running: false, is_available };
    let stack = stack([("web", workload("web:1", 1))]);
    note_newest_image(record, ("web:1", update), answer, (&stack, &Observed::default()), now);
    let known = record.followed_images["web:1"].available.clone().unwrap();
    (known.image, known.since)
}

#[test]
fn index_that_changes_for_others_keeps_the_age_of_an_image() {
    let update = ImageUpdate { mode: UpdateMode::Apply, min_age: HOUR * 3, ..ImageUpdate::default() };
    let mut record = record();
    let at = |hours: u32| NOON.after(HOUR * hours);
    assert_eq!(answer(&mut record, &update, ("sha256:a", false), at(0)), ("web:1@sha256:a".into(), at(0)));
    assert_eq!(answer(&mut record, &update, ("sha256:b", true), at(1)), ("web:1@sha256:b".into(), at(0)));
    // Another image for this host begins at zero.
    assert_eq!(answer(&mut record, &update, ("sha256:c", false), at(2)), ("web:1@sha256:c".into(), at(2)));
    let followed = [("web:1".to_owned(), update)].into();
    assert_eq!(resolve_images(&mut record, &followed, at(4)), []);
    let due = resolve_images(&mut record, &followed, at(5));
    assert_eq!(due, [("web:1".to_owned(), "web:1@sha256:c".to_owned())]);
}

#[test]
fn resolved_image_that_cannot_be_pulled_is_followed_by_the_tag() {
    let update = ImageUpdate { mode: UpdateMode::Apply, ..ImageUpdate::default() };
    let resolved = "web:1@sha256:deleted".to_owned();
    let known = FollowedImage { resolved: Some(resolved.clone()), ..FollowedImage::default() };
    let mut record = Record { followed_images: [("web:1".to_owned(), known)].into(), ..Record::default() };
    let stack = stack([("web", workload("web:1", 1))]);
    let ask = |record: &mut Record, digest: &str| {
        // Nothing runs, so nothing is another image.
        let compared = BTreeSet::new();
        let answer =
            RegistryAnswer { tag: "1", digest, compared: &compared, is_running: true, is_available: false };
        note_newest_image(record, ("web:1", &update), answer, (&stack, &Observed::default()), NOON);
        record.followed_images["web:1"].available.as_ref().map(|newer| newer.image.clone())
    };
    assert_eq!(ask(&mut record, "sha256:new"), None, "it was not tried to pull the resolved one");
    let failed = Attempt { count: 1, next: NOON, error: "manifest unknown".to_owned() };
    record.pulls.insert(resolved.into(), failed);
    assert_eq!(ask(&mut record, "sha256:deleted"), None, "the tag names the same one");
    assert_eq!(ask(&mut record, "sha256:new"), Some("web:1@sha256:new".to_owned()));
    record.pulls.clear();
    assert_eq!(ask(&mut record, "sha256:new"), Some("web:1@sha256:new".to_owned()), "after a sync");
}

#[test]
fn digest_that_only_the_engine_says_is_compared_once_proven() {
    for keeps_one_platform in [false, true] {
        let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
        for _ in 0..5 {
            stage.round();
            stage.tick(Duration::from_secs(10));
        }
        stage.world.observed.engine_traits.keeps_one_platform = keeps_one_platform;
        stage.world.observed.images.get_mut("web:1").unwrap().digests = vec!["web@sha256:local".to_owned()];
        let followed = followed_images(&stage.stack, &stage.policy);
        note_running_images(&mut stage.record, &stage.stack, &followed, &stage.world.observed, false);
        let unproven = unproven_digests(&stage.record, "web:1");
        assert_eq!(unproven.len(), usize::from(!keeps_one_platform), "{unproven:?}");
        assert_eq!(running_digests(&stage.record, &stage.stack).len(), 1);
        // The registry does not have the digest, so the client compares nothing.
        let answered = |record: &mut Record, is_running: bool| {
            let (digest, compared) = ("sha256:other", only("sha256:local"));
            let answer =
                RegistryAnswer { tag: "1", digest, compared: &compared, is_running, is_available: false };
            let on_host = (&stage.stack, &stage.world.observed);
            note_newest_image(record, ("web:1", &followed["web:1"]), answer, on_host, NOON).is_some()
        };
        assert!(!answered(&mut stage.record.clone(), true));
        note_proven_images(&mut stage.record, "web:1", |_, digest| digest == "sha256:another");
        assert_eq!(unproven_digests(&stage.record, "web:1"), unproven);
        note_proven_images(&mut stage.record, "web:1", |_, digest| digest == "sha256:local");
        assert!(unproven_digests(&stage.record, "web:1").is_empty());
        // It stays proven, also for the next round.
        note_running_images(&mut stage.record, &stage.stack, &followed, &stage.world.observed, false);
        assert!(unproven_digests(&stage.record, "web:1").is_empty());
        assert!(answered(&mut stage.record, false));
    }
}

#[test]
fn unproven_digest_is_kept_when_the_registry_names_another_one() {
    let mut record = record();
    let known = record.followed_images.get_mut("web:1").unwrap();
    known.unproven.insert("sha256:id".to_owned());
    let stack = stack([("web", workload("web:1", 1))]);
    let on_host = (&stack, &Observed::default());
    let (digest, compared) = ("sha256:other", only("sha256:running"));
    let answer =
        RegistryAnswer { tag: "1", digest, compared: &compared, is_running: true, is_available: false };
    let update = ImageUpdate::default();
    assert_eq!(note_newest_image(&mut record, ("web:1", &update), answer, on_host, NOON), None);
    assert_eq!(record.followed_images["web:1"].running["sha256:id"], "sha256:running");
}

#[test]
fn answer_counts_for_the_digests_that_were_compared() {
    let (stack, update) = (stack([("web", workload("web:1", 1))]), ImageUpdate::default());
    let later = NOON.after(HOUR);
    // Nothing ran when the registry was asked, so nothing was another image; or another container ran, which was one.
    for (compared, is_running) in [(BTreeSet::new(), true), (only("sha256:former"), false)] {
        let mut record = record();
        record.followed_images.get_mut("web:1").unwrap().next = later;
        let answer = |digest| RegistryAnswer {
            tag: "1",
            digest,
            compared: &compared,
            is_running,
            is_available: false,
        };
        let on_host = (&stack, &Observed::default());
        let newest =
            note_newest_image(&mut record, ("web:1", &update), answer("sha256:other"), on_host, NOON);
        assert_eq!(newest, None);
        let known = &record.followed_images["web:1"];
        assert_eq!(known.running["sha256:id"], "sha256:running");
        assert_eq!(known.next, NOON, "it is asked again");

        record.followed_images.get_mut("web:1").unwrap().next = later;
        note_newest_image(&mut record, ("web:1", &update), answer("sha256:running"), on_host, NOON);
        assert_eq!(record.followed_images["web:1"].next, later, "it is the newest one");
    }
}

#[test]
fn containers_show_the_images_that_were_resolved() {
    let of_git = stack([("web", workload("web:1", 1))]);
    // The same tag, a version in a range, and two that say nothing about the reference.
    for (image, is_shown) in
        [("web:1@sha256:a", true), ("web:1.4@sha256:a", true), ("web:2", false), ("other:1@sha256:a", false)]
    {
        let resolved = [("web:1", image)].into();
        let mut stage = Stage::new(with_resolved_images(&of_git, &resolved).unwrap());
        for _ in 0..5 {
            stage.round();
            stage.tick(Duration::from_secs(10));
        }
        assert_eq!(stage.world.observed.instances.len(), 1);
        let shown = images_in_use(&of_git, &stage.world.observed);
        assert_eq!(shown, if is_shown { resolved } else { BTreeMap::new() }, "{image}");
        // Another version of a manifest with other settings is a difference, and not a version in a range.
        let mut changed = of_git.clone();
        changed.workloads.values_mut().for_each(|web| web.container.user = Some("1".to_owned()));
        let is_same_tag = image == "web:1@sha256:a";
        assert_eq!(images_in_use(&changed, &stage.world.observed).len(), usize::from(is_same_tag), "{image}");
    }
}

#[test]
fn containers_of_another_tag_are_not_compared() {
    let of_git = stack([("web", workload("web:2.0.0", 1))]);
    let tag = ImageUpdate::default;
    let semver = || ImageUpdate { semver: Some("^2".to_owned()), ..ImageUpdate::default() };
    for (image, update, is_compared) in [
        ("web:1.0.0@sha256:a", tag(), false),
        ("web:2.0.0@sha256:a", tag(), true),
        ("web@sha256:a", tag(), true),
        ("web:2.1.0@sha256:a", tag(), false),
        ("web:2.1.0@sha256:a", semver(), true),
        ("web:3.0.0@sha256:a", semver(), false),
        ("other:2.0.0@sha256:a", tag(), false),
    ] {
        let mut stage = Stage::new(with_resolved_images(&of_git, &[("web:2.0.0", image)].into()).unwrap());
        for _ in 0..5 {
            stage.round();
            stage.tick(Duration::from_secs(10));
        }
        let newest = AvailableImage { image: "web:2.0.0@sha256:a".to_owned(), since: NOON };
        let known = FollowedImage { available: Some(newest), ..FollowedImage::default() };
        let mut record =
            Record { followed_images: [("web:2.0.0".to_owned(), known)].into(), ..Record::default() };
        let followed = [("web:2.0.0".to_owned(), update)].into();
        note_running_images(&mut record, &of_git, &followed, &stage.world.observed, false);
        let known = &record.followed_images["web:2.0.0"];
        let running: Vec<&String> = known.running.values().collect();
        assert_eq!(running, if is_compared { vec!["sha256:a"] } else { Vec::new() }, "{image}");
        assert_eq!(known.available.is_none(), is_compared, "an image that runs is no newer one: {image}");
    }
}

#[test]
fn clock_that_was_ahead_delays_no_question_for_years() {
    let update = ImageUpdate::default();
    let mut record = record();
    let ahead = NOON.after(HOUR * 24 * 365 * 70);
    note_image_check(&mut record, ("web:1", &update), ahead);
    note_failed_check(&mut record, ("web:1", &update), ("Certificate", "expired".to_owned()), None, ahead);
    assert!(record.followed_images["web:1"].next > ahead);
    limit_image_pause(&mut record, ("web:1", &update), NOON);
    assert_eq!(record.followed_images["web:1"].next, NOON.after(update.every.max(HOUR * 6)));
    // A shorter pause is left.
    note_failed_check(&mut record, ("web:1", &update), ("Certificate", "expired".to_owned()), None, NOON);
    let next = record.followed_images["web:1"].next;
    limit_image_pause(&mut record, ("web:1", &update), NOON);
    assert_eq!(record.followed_images["web:1"].next, next);
}

#[test]
fn failure_of_a_registry_counts_from_the_first_one() {
    let update = ImageUpdate::default();
    let mut record = record();
    let fail = |record: &mut Record, hours: u32| {
        let failure = ("Unreachable", "no answer".to_owned());
        note_failed_check(record, ("web:1", &update), failure, None, NOON.after(HOUR * hours));
        record.followed_images["web:1"].failure.as_ref().unwrap().since
    };
    let first = Some(NOON.after(HOUR * 2));
    assert_eq!(fail(&mut record, 2), first);
    assert_eq!(fail(&mut record, 30), first);
    assert_eq!(fail(&mut record, 1), Some(NOON.after(HOUR)), "the clock was ahead");
    answer(&mut record, &update, ("sha256:a", false), NOON.after(HOUR * 3));
    assert_eq!(fail(&mut record, 4), Some(NOON.after(HOUR * 4)));
}

#[test]
fn clock_that_is_behind_for_a_moment_makes_no_image_older() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    stage.record = record();
    let update = ImageUpdate { mode: UpdateMode::Apply, min_age: HOUR * 3, ..ImageUpdate::default() };
    answer(&mut stage.record, &update, ("sha256:a", false), NOON);
    let since = |stage: &Stage| stage.record.followed_images["web:1"].available.clone().unwrap().since;
    for behind in [Timestamp(10_000), NOON.before(HOUR)] {
        let right = std::mem::replace(&mut stage.now, behind);
        stage.round();
        assert_eq!(since(&stage), behind);
        stage.tick(Duration::from_secs(10));
        stage.round();
        assert_eq!(since(&stage), behind);
        stage.now = right;
        stage.round();
        assert_eq!(since(&stage), NOON);
    }
}

#[test]
fn platforms_of_all_containers_of_an_image_count() {
    let of = |platform: Option<&str>| {
        let mut web = workload("web:1", 1);
        web.container.host.platform = platform.map(str::to_owned);
        web
    };
    let (amd, arm) = (Some("linux/amd64"), Some("linux/arm64"));
    for (asked, expected) in [
        ([amd, arm], &[amd, arm][..]),
        ([None, arm], &[None, arm][..]),
        ([arm, arm], &[arm][..]),
        ([None, None], &[None][..]),
    ] {
        let mut other = of(Some("linux/s390x"));
        other.container.image = "other:1".to_owned();
        let stack = stack([("a", of(asked[0])), ("b", of(asked[1])), ("c", other)]);
        let on_host = (&stack, &Observed::default());
        let (_, _, found) = image_check(&Record::default(), on_host, ("web:1", &ImageUpdate::default()));
        let found: Vec<Option<&str>> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, expected);
    }
}
