//! Newer images under the same tag or in a range of versions, on the simulated engine.

use std::time::Duration;

use driftless_agent::{Against, Answer, RequestKind, Rollback, Ticket};
use driftless_clock::Clock;
use driftless_model::{
    Application, Cause, HealthStatus, ImageDigests, ImageUpdate, ImageUpdateStatus, OnFailure, Outcome,
    SyncStatus, Until, UpdateMode,
};
use tokio::time::sleep;

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

/// The first digits of a digest.
fn digits(letter: char) -> String {
    letter.to_string().repeat(16)
}

fn compose(image: &str, update: &str) -> String {
    format!("services: {{web: {{image: '{image}', restart: always, x-driftless: {{update: {update}}}}}}}")
}

impl Simulation {
    /// From now on, a registry names this image by this reference.
    pub(crate) fn registry_has(&self, reference: &str, letter: char) {
        self.docker.faults(|faults| _ = faults.digests.insert(reference.to_owned(), digest(letter)));
    }

    fn image_status(&self) -> ImageUpdateStatus {
        let images = self.handle().applications().get(&app()).unwrap().status.images.clone();
        assert_eq!(images.len(), 1, "{images:?}");
        images[0].clone()
    }

    /// The images as hosts of a fleet report them.
    fn digests(&self) -> ImageDigests {
        ImageDigests::clone(&self.handle().applications().get(&app()).unwrap().status.digests)
    }

    fn causes(&self) -> Vec<Cause> {
        let mut revisions = self.store.revisions(&app()).unwrap();
        revisions.sort_by_key(|revision| revision.number);
        revisions.into_iter().map(|revision| revision.cause).collect()
    }
}

async fn following(update: &str) -> Simulation {
    let it = Simulation::of(&compose("web:1", update));
    it.registry_has("web:1", 'a');
    it.synced_with_tip().await;
    minutes(2).await;
    it
}

#[tokio::test(start_paused = true)]
async fn newer_image_is_reported_and_not_deployed() {
    let it = Simulation::of("services: {web: {image: 'web:1', restart: always}}");
    it.registry_has("web:1", 'a');
    it.synced_with_tip().await;
    minutes(61).await;
    assert_eq!(it.image_status().available, None, "{}", it.story());
    let writes = it.writes();

    it.registry_has("web:1", 'b');
    minutes(61).await;
    let status = it.image_status();
    assert_eq!(status.mode, UpdateMode::Report);
    assert_eq!(status.available.unwrap().image, format!("web:1@{}", digest('b')));
    assert_eq!(it.writes(), writes, "{}", it.story());
    let events = it.store.events(0, 50, Some(&app())).unwrap();
    let told = events.iter().filter(|event| event.reason == "ImageUpdateAvailable").count();
    minutes(200).await;
    assert_eq!(told, 1, "once");

    // A tag that goes back in the registry is no newer image any more.
    it.registry_has("web:1", 'a');
    minutes(61).await;
    assert_eq!(it.image_status().available, None);
}

#[tokio::test(start_paused = true)]
async fn new_digest_is_a_revision_with_a_way_back() {
    let mut it = following("digest").await;
    assert_eq!(it.images(), ["web:1"]);
    it.registry_has("web:1", 'b');
    minutes(62).await;
    let newest = format!("web:1@{}", digest('b'));
    assert_eq!(it.images(), [newest.as_str()], "{}", it.story());
    it.synced_with_tip().await;
    assert_eq!(it.digests().running, [digits('b')]);
    assert_eq!(it.causes(), [Cause::Start, Cause::Image]);
    let revision = it.store.current(&app()).unwrap().unwrap();
    assert_eq!(revision.outcome, Outcome::Succeeded);
    assert!(revision.changes.iter().any(|change| change.contains(&digest('b'))), "{:?}", revision.changes);

    // An agent that starts again keeps it, and one that has lost its record, too.
    it.crash();
    it.begin();
    minutes(70).await;
    assert_eq!(it.images(), [newest.as_str()]);
    assert_eq!(it.causes().len(), 2, "{}", it.story());

    let back = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::NextCommit };
    it.ask(RequestKind::Rollback(back)).await;
    minutes(2).await;
    let former = format!("create shop-web-1 from web@{}", digest('a'));
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    assert!(it.story().contains(&former), "{}", it.story());
    minutes(200).await;
    assert_eq!(it.images(), ["web:1"], "it stays pinned");
    assert_eq!(it.digests().running, [digits('a')]);
    it.ask(RequestKind::Resume).await;
    minutes(2).await;
    assert_eq!(it.images(), [newest.as_str()], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn old_image_on_the_host_is_compared_once_it_runs() {
    for has_classic_store in [true, false] {
        let it = following("digest").await;
        it.docker.faults(|faults| faults.has_classic_store = has_classic_store);
        it.registry_has("other:1", 'x');
        it.push(&compose("other:1", "digest")).await;
        it.synced_with_tip().await;
        // The tag moves on, and nothing pulls it: the host has an image of that name.
        it.registry_has("web:1", 'b');
        it.push(&compose("web:1", "digest")).await;
        minutes(70).await;
        assert_eq!(it.images(), [format!("web:1@{}", digest('b'))], "{}", it.story());
        it.synced_with_tip().await;
        assert_eq!(it.digests().running, [digits('b')]);
    }
}

#[tokio::test(start_paused = true)]
async fn commit_of_another_tag_is_one_revision() {
    let it = following("digest").await;
    it.registry_has("web:1", 'b');
    minutes(62).await;
    assert_eq!(it.images(), [format!("web:1@{}", digest('b'))], "{}", it.story());
    let before = it.causes().len();
    it.registry_has("web:2", 'c');
    // The answer of the registry arrives before the pull has ended.
    it.docker.faults(|faults| _ = faults.pulls.insert("web:2".to_owned(), Duration::from_secs(20)));
    it.push(&compose("web:2", "digest")).await;
    it.synced_with_tip().await;
    minutes(130).await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
    assert_eq!(it.causes().len(), before + 1, "{:?}", it.causes());
    assert_eq!(it.digests().running, [digits('c')]);
}

#[tokio::test(start_paused = true)]
async fn resolved_image_is_no_drift_from_its_commit() {
    let it = following("digest").await;
    it.registry_has("web:1", 'b');
    minutes(62).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), [format!("web:1@{}", digest('b'))], "{}", it.story());
    let commit = it.store.current(&app()).unwrap().unwrap().commit.id;
    for against in [Against::Pin, Against::Head, Against::Revision(commit.to_string())] {
        let Ok(Answer::Drift(found)) = it.handle().request(app(), RequestKind::Drift(against.clone())).await
        else {
            panic!("no answer")
        };
        assert_eq!((found.app.error.as_deref(), found.app.items.as_slice()), (None, &[][..]), "{against:?}");
    }
}

/// The image b of the tag has failed, and the application has gone back to a.
async fn gone_back() -> Simulation {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Rollback;
    it.settings.policy.progress_deadline = Some(Duration::from_mins(2));
    let compose = "services: {web: {image: 'web:1', restart: always, healthcheck: {test: [CMD, check]}, \
                   x-driftless: {update: digest}}}";
    it.registry_has("web:1", 'a');
    it.git.push(compose);
    let it = it.begun();
    it.synced_with_tip().await;
    minutes(2).await;
    let bad = format!("web:1@{}", digest('b'));
    it.docker.faults(|faults| _ = faults.unhealthy.insert(bad.clone()));
    it.registry_has("web:1", 'b');
    minutes(75).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    it
}

#[tokio::test(start_paused = true)]
async fn image_that_is_taken_back_ends_its_failure() {
    let it = gone_back().await;
    let found = it.until("it has failed", |found| found.status.failed_commit.is_some()).await;
    assert_eq!(found.status.sync, SyncStatus::OutOfSync);
    let (tries, writes) = (it.causes().len(), it.writes());
    it.registry_has("web:1", 'a');
    minutes(75).await;
    let found = it.synced_with_tip().await;
    assert_eq!(found.status.failed_commit, None, "{found:?}");
    assert_eq!(it.image_status().resolved, None);
    assert_eq!((it.causes().len(), it.writes()), (tries, writes), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn failed_image_is_rolled_back_and_skipped() {
    let it = gone_back().await;
    let digests = it.digests();
    assert_eq!((digests.running, digests.failed), (vec![digits('a')], Some(vec![digits('b')])));
    let tries = it.causes().len();
    minutes(600).await;
    assert_eq!(it.causes().len(), tries, "{}", it.story());

    it.registry_has("web:1", 'c');
    minutes(65).await;
    assert_eq!(it.images(), [format!("web:1@{}", digest('c'))], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn newest_tag_of_a_range_is_deployed_once_it_is_old_enough() {
    let it = Simulation::of(&compose("web:1.4.2", "{semver: '~1.4', min-age: 3h}"));
    it.registry_has("web:1.4.2", 'a');
    it.synced_with_tip().await;
    minutes(62).await;
    it.registry_has("web:1.5.0", 'x');
    it.registry_has("web:1.4.10", 'b');
    it.registry_has("web:1.4.11-rc1", 'y');
    minutes(62).await;
    assert_eq!(it.images(), ["web:1.4.2"]);
    let status = it.image_status();
    let newest = format!("web:1.4.10@{}", digest('b'));
    assert_eq!(status.available.unwrap().image, newest);
    assert!(status.due.is_some());
    minutes(2 * 60).await;
    assert_eq!(it.images(), ["web:1.4.2"], "{}", it.story());
    minutes(62).await;
    assert_eq!(it.images(), [newest.as_str()], "{}", it.story());

    // The same tag with other content is no newer version.
    it.registry_has("web:1.4.10", 'c');
    minutes(300).await;
    assert_eq!(it.images(), [newest.as_str()], "{}", it.story());
    assert_eq!(it.image_status().available, None);
}

#[tokio::test(start_paused = true)]
async fn tag_that_was_never_pulled_gives_way_to_its_next_digest() {
    let it = Simulation::of(&compose("web:1.4.2", "{semver: '~1.4'}"));
    it.registry_has("web:1.4.2", 'a');
    it.synced_with_tip().await;
    minutes(2).await;
    // The registry announces an image that it cannot give to this host.
    it.docker.faults(|faults| faults.registry = Some(["web:1.4.2".to_owned()].into()));
    it.registry_has("web:1.4.3", 'b');
    minutes(130).await;
    let broken = format!("web:1.4.3@{}", digest('b'));
    assert_eq!(it.image_status().resolved, Some(broken), "{}", it.story());
    assert_eq!(it.images(), ["web:1.4.2"]);

    let whole = format!("web:1.4.3@{}", digest('c'));
    it.docker.faults(|faults| faults.registry = Some([whole.clone()].into()));
    it.registry_has("web:1.4.3", 'c');
    minutes(130).await;
    assert_eq!(it.images(), [whole.as_str()], "{}", it.story());
    assert_eq!(it.image_status().available, None);
}

#[tokio::test(start_paused = true)]
async fn lost_tag_of_a_range_is_not_followed_by_an_older_one() {
    let it = Simulation::of(&compose("web:1.4.2", "{semver: '~1.4'}"));
    it.registry_has("web:1.4.2", 'a');
    it.synced_with_tip().await;
    it.registry_has("web:1.4.8", 'b');
    it.registry_has("web:1.4.9", 'c');
    minutes(125).await;
    let deployed = format!("web:1.4.9@{}", digest('c'));
    assert_eq!(it.images(), [deployed.as_str()], "{}", it.story());

    it.docker.faults(|faults| _ = faults.digests.remove("web:1.4.9"));
    minutes(300).await;
    assert_eq!(it.images(), [deployed.as_str()], "{}", it.story());
    it.registry_has("web:1.4.10", 'd');
    minutes(125).await;
    assert_eq!(it.images(), [format!("web:1.4.10@{}", digest('d'))], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn sync_of_a_user_asks_the_registry_at_once() {
    let it = following("digest").await;
    it.registry_has("web:1", 'b');
    it.ask(RequestKind::Sync).await;
    minutes(1).await;
    assert_eq!(it.images(), [format!("web:1@{}", digest('b'))], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn syncs_ask_again_for_reported_images_after_a_pause() {
    let it = following("report").await;
    it.ask(RequestKind::Sync).await;
    sleep(Duration::from_secs(2)).await;
    it.registry_has("web:1", 'b');
    it.ask(RequestKind::Sync).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(it.image_status().available, None, "asked two seconds before");
    minutes(6).await;
    let newest = it.image_status().available.map(|available| available.image);
    assert_eq!(newest, Some(format!("web:1@{}", digest('b'))), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn sync_is_answered_after_its_image_is_deployed() {
    let it = following("digest").await;
    // The registry answers later than Git.
    it.docker.faults(|faults| faults.latency = Duration::from_secs(2));
    let is_reached = |ticket: Ticket, application: &Application| {
        let status = &application.status;
        let is_current = status.observed_generation >= application.generation;
        let is_whole = status.sync == SyncStatus::Synced && status.health == HealthStatus::Healthy;
        ticket.is_answered_by(status) && is_current && is_whole
    };
    for letter in ['b', 'c'] {
        it.registry_has("web:1", letter);
        // The second sync finds nothing newer, and does not wait for the next full pass.
        for _ in 0..2 {
            let began = it.clock.now();
            let (_, ticket) = it.handle().request_with_ticket(app(), RequestKind::Sync).await.unwrap();
            it.until("the sync is answered", |application| is_reached(ticket, application)).await;
            assert_eq!(it.images(), [format!("web:1@{}", digest(letter))], "{}", it.story());
            let took = it.clock.now().since(began);
            assert!(took < Duration::from_secs(100), "{took:?}: {}", it.story());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn registry_is_asked_at_once_when_an_image_was_pushed() {
    let it = following("digest").await;
    it.registry_has("web:1", 'b');
    it.handle().ask_registry("docker.io/library/other:1");
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    it.handle().ask_registry("docker.io/library/web:1");
    minutes(1).await;
    assert_eq!(it.images(), [format!("web:1@{}", digest('b'))], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn image_stays_when_it_is_not_followed_any_more() {
    let it = following("digest").await;
    it.registry_has("web:1", 'b');
    minutes(62).await;
    let newest = format!("web:1@{}", digest('b'));
    for update in ["off", "report"] {
        it.push(&compose("web:1", update)).await;
        it.synced_with_tip().await;
        minutes(200).await;
        assert_eq!(it.images(), [newest.as_str()], "{update}: {}", it.story());
    }
    it.push(&compose("web:2", "off")).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn removed_range_does_not_lead_back_to_the_tag_in_git() {
    let it = Simulation::of(&compose("web:29.0.1", "{semver: '>=29'}"));
    it.registry_has("web:29.0.1", 'a');
    it.synced_with_tip().await;
    minutes(2).await;
    it.registry_has("web:30.0.4", 'b');
    minutes(62).await;
    let deployed = format!("web:30.0.4@{}", digest('b'));
    assert_eq!(it.images(), [deployed.as_str()], "{}", it.story());
    for update in ["report", "digest"] {
        it.push(&compose("web:29.0.1", update)).await;
        it.synced_with_tip().await;
        minutes(130).await;
        let status = it.image_status();
        assert_eq!(status.available, None, "{update}");
        assert!(status.note.contains("stays at the image"), "{update}: {}", status.note);
        assert_eq!(it.images(), [deployed.as_str()], "{update}: {}", it.story());
    }
    // The tag that Git names from now on is followed.
    it.push(&compose("web:30.0.4", "digest")).await;
    it.synced_with_tip().await;
    it.registry_has("web:30.0.4", 'c');
    minutes(62).await;
    assert_eq!(it.images(), [format!("web:30.0.4@{}", digest('c'))], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn version_outside_of_a_narrowed_range_stays_with_a_note() {
    let it = Simulation::of(&compose("web:1.4.2", "{semver: '^1'}"));
    it.registry_has("web:1.4.2", 'a');
    it.synced_with_tip().await;
    minutes(2).await;
    it.registry_has("web:1.5.0", 'b');
    minutes(62).await;
    let deployed = format!("web:1.5.0@{}", digest('b'));
    assert_eq!(it.images(), [deployed.as_str()], "{}", it.story());
    assert_eq!(it.image_status().note, "");
    for update in ["{semver: '~1.4'}", "{semver: '^1', tags: '1.4.*'}"] {
        it.push(&compose("web:1.4.2", update)).await;
        it.synced_with_tip().await;
        minutes(130).await;
        let note = it.image_status().note;
        assert!(note.contains("no longer allow"), "{update}: {note}");
        assert_eq!(it.images(), [deployed.as_str()], "{update}: {}", it.story());
    }
    it.registry_has("web:1.4.3", 'c');
    it.push(&compose("web:1.4.3", "{semver: '~1.4'}")).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:1.4.3"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn image_of_former_settings_is_not_deployed() {
    let it = Simulation::of(&compose("web:1.4.2", "{semver: '~1.4', min-age: 720h}"));
    it.registry_has("web:1.4.2", 'a');
    it.synced_with_tip().await;
    minutes(2).await;
    it.registry_has("web:1.4.3", 'b');
    minutes(62).await;
    assert!(it.image_status().available.is_some(), "{}", it.story());
    it.push(&compose("web:1.4.2", "digest")).await;
    it.synced_with_tip().await;
    minutes(130).await;
    assert_eq!(it.images(), ["web:1.4.2"], "{}", it.story());
    assert_eq!(it.image_status().available, None);
}

#[tokio::test(start_paused = true)]
async fn lost_state_keeps_the_images_that_were_resolved() {
    let mut it = following("digest").await;
    it.registry_has("web:1", 'b');
    minutes(62).await;
    let newest = format!("web:1@{}", digest('b'));
    assert_eq!(it.images(), [newest.as_str()]);
    let (writes, containers) = (it.writes(), it.docker.observed(&app()).containers().count());
    it.end().await;
    it.store = driftless_store::Store::in_memory(it.clock).unwrap();
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), [newest.as_str()], "{}", it.story());
    assert_eq!(it.docker.observed(&app()).containers().count(), containers);
    assert_eq!(it.writes(), writes, "{}", it.story());
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    assert_eq!(shown.images[0].resolved.as_deref(), Some(newest.as_str()), "{:?}", shown.conditions);
}

#[tokio::test(start_paused = true)]
async fn image_with_two_settings_is_an_error() {
    let service = |update: &str| format!("{{image: 'web:1', x-driftless: {{update: {update}}}}}");
    let two = |one: &str, other: &str| format!("services: {{a: {}, b: {}}}", service(one), service(other));
    let it = Simulation::of(&two("digest", "off"));
    minutes(1).await;
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    let error = shown.findings.iter().find(|finding| finding.is_error()).unwrap();
    assert!(error.message.contains("the update of the image `web:1`"), "{error}");
    assert!(it.images().is_empty(), "{}", it.story());
    it.push(&two("digest", "digest")).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:1", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn update_of_an_image_that_is_never_newer_is_a_warning() {
    let pinned = format!("image: 'web:1@{}'", digest('a'));
    for (image, reason) in [
        (pinned.as_str(), Some("the image is named by a digest")),
        ("image: 'web:1', pull_policy: never", Some("the image is never pulled")),
        (
            "build: {context: ., dockerfile_inline: FROM scratch}",
            Some("the image is built from the repository"),
        ),
        ("image: 'web:1'", None),
    ] {
        for (update, is_on) in [("digest", true), ("off", false)] {
            let it =
                Simulation::of(&format!("services: {{web: {{{image}, x-driftless: {{update: {update}}}}}}}"));
            minutes(1).await;
            let shown = it.handle().applications().get(&app()).unwrap().status.clone();
            let found =
                shown.findings.iter().find(|finding| finding.message.contains("`update` has no effect"));
            let expected = reason.filter(|_| is_on);
            assert_eq!(found.is_some(), expected.is_some(), "{image}: {:?}", shown.findings);
            if let (Some(found), Some(expected)) = (found, expected) {
                assert!(found.message.ends_with(expected) && !found.is_error(), "{found}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn registry_that_does_not_answer_changes_nothing() {
    let it = Simulation::of(&compose("web:1", "digest"));
    it.synced_with_tip().await;
    minutes(30).await;
    let failure = it.image_status().failure.unwrap();
    assert_eq!(failure.reason, "NotFound");
    assert!(failure.count >= 4 && failure.count < 10, "{failure:?}");
    assert_eq!(it.images(), ["web:1"]);
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    assert_eq!(shown.message, "", "it is no fault of the application");
}

#[tokio::test(start_paused = true)]
async fn failing_image_checks_are_one_event_and_so_is_their_end() {
    for (update, expected) in [("digest", vec!["ImageCheckFailed", "ImageChecked"]), ("report", vec![])] {
        let it = Simulation::of(&compose("web:1", update));
        it.synced_with_tip().await;
        minutes(120).await;
        it.registry_has("web:1", 'a');
        minutes(70).await;
        assert_eq!(it.image_status().failure, None, "{update}");
        let events = it.store.events(0, 500, Some(&app())).unwrap();
        let reasons = events.iter().map(|event| event.reason.as_str());
        let found: Vec<&str> = reasons.filter(|reason| reason.starts_with("ImageCheck")).collect();
        assert_eq!(found, expected, "{update}");
    }
}

#[tokio::test(start_paused = true)]
async fn suspended_application_has_no_failed_image_check() {
    let it = Simulation::of(&compose("web:1", "digest"));
    it.synced_with_tip().await;
    minutes(30).await;
    assert!(it.image_status().failure.is_some());
    it.ask(RequestKind::Suspend).await;
    let is_asked = |it: &Application| it.status.images.iter().any(|image| image.failure.is_some());
    it.until("nothing is asked", |it| it.spec.policy.suspended && !is_asked(it)).await;
}

#[tokio::test(start_paused = true)]
async fn suspension_does_not_shorten_failed_image_checks() {
    let it = Simulation::of(&compose("web:1", "digest"));
    it.synced_with_tip().await;
    minutes(30).await;
    let since = it.image_status().failure.unwrap().since;
    assert!(since.is_some());
    it.ask(RequestKind::Suspend).await;
    minutes(30).await;
    it.ask(RequestKind::Resume).await;
    minutes(30).await;
    assert_eq!(it.image_status().failure.unwrap().since, since);
}

#[tokio::test(start_paused = true)]
async fn suspended_application_asks_no_registry() {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.suspended = true;
    it.settings.policy.image_update = ImageUpdate { mode: UpdateMode::Apply, ..ImageUpdate::default() };
    it.registry_has("web:1", 'a');
    it.git.push("services: {web: {image: 'web:1', restart: always}}");
    let it = it.begun();
    minutes(200).await;
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    assert!(shown.images.iter().all(|image| image.checked.is_none()), "{:?}", shown.images);
}
