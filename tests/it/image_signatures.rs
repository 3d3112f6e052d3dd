//! Images that must be signed, on the simulated engine. `SimulatedEngine` knows which digests are signed.

use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{HealthStatus, SignatureRule};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

fn compose(version: u32, more: &str) -> String {
    format!("services: {{web: {{image: 'ghcr.io/team/web:{version}', restart: always, {more}}}}}")
}

/// An application whose images must be signed. Version 1 has the digest `a`, version 2 has `b`.
fn guarded(more: &str) -> Simulation {
    let mut it = Simulation::prepared(&compose(1, more), Clock::starting_at(NOON));
    let rule = SignatureRule { images: "ghcr.io/team/*".to_owned(), key: "/etc/driftless/cosign.pub".into() };
    it.settings.admission.verify_images = Some(vec![rule]);
    it.docker.faults(|faults| {
        for (version, letter) in [(1, 'a'), (2, 'b')] {
            faults.digests.insert(format!("ghcr.io/team/web:{version}"), digest(letter));
        }
    });
    it.begun()
}

impl Simulation {
    fn sign(&self, letter: char) {
        self.docker.faults(|faults| _ = faults.signed.insert(digest(letter)));
    }

    /// The message of the workload's condition.
    fn unsigned(&self) -> String {
        let handle = self.handle();
        let application = handle.applications().get(&app()).unwrap().clone();
        let workloads = &application.status.workloads;
        let web = workloads.values().next().unwrap();
        assert_eq!(web.reason, "ImageNotVerified", "{web:#?}");
        assert_eq!(application.status.health, HealthStatus::Degraded);
        web.message.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn image_without_a_signature_is_not_started() {
    let it = guarded("");
    minutes(3).await;
    assert_eq!(it.images(), [""; 0], "{}", it.story());
    let said = it.unsigned();
    assert!(said.contains("has no signature by a key in /etc/driftless/cosign.pub"), "{said}");
    assert!(said.contains(&digest('a')), "{said}");

    it.sign('a');
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["ghcr.io/team/web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn unsigned_commit_keeps_the_containers() {
    let it = guarded("");
    it.sign('a');
    it.synced_with_tip().await;
    let before = it.docker.observed(&app()).instances;
    it.push(&compose(2, "")).await;
    minutes(10).await;
    assert_eq!(it.docker.observed(&app()).instances, before, "{}", it.story());
    assert!(it.unsigned().contains(&digest('b')));
    let images = it.handle().applications().get(&app()).unwrap().status.images.clone();
    assert!(
        images.iter().all(|image| image.available.is_none()),
        "an image of the commit is no update: {images:?}"
    );

    it.sign('b');
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["ghcr.io/team/web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn verified_image_heals_without_its_registry() {
    let mut it = guarded("");
    it.sign('a');
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.is_registry_down = true);
    it.crash();
    it.begin();
    it.synced_with_tip().await;
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    minutes(1).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["ghcr.io/team/web:1"], "{}", it.story());

    // A new image waits, and says why.
    it.push(&compose(2, "")).await;
    it.sign('b');
    minutes(10).await;
    assert!(it.unsigned().contains("does not answer"), "{}", it.unsigned());
    it.docker.faults(|faults| faults.is_registry_down = false);
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["ghcr.io/team/web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn image_that_is_pulled_each_time_is_verified_each_time() {
    let it = guarded("pull_policy: always");
    it.sign('a');
    it.synced_with_tip().await;
    // The tag means another image by now, and somebody removes the container.
    it.docker.faults(|faults| _ = faults.digests.insert("ghcr.io/team/web:1".to_owned(), digest('c')));
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    minutes(10).await;
    assert_eq!(it.images(), [""; 0], "{}", it.story());
    assert!(it.unsigned().contains(&digest('c')), "{}", it.unsigned());
    it.sign('c');
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["ghcr.io/team/web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn images_of_other_rules_need_no_signature() {
    let it = guarded("");
    it.sign('a');
    it.synced_with_tip().await;
    it.push("services: {web: {image: 'quay.io/team/web:1', restart: always}}").await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["quay.io/team/web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn crash_at_any_step_starts_no_unverified_image() {
    for step in 1..=12 {
        let mut it = guarded("");
        it.sign('a');
        it.synced_with_tip().await;
        it.docker.crash_after(step);
        it.push(&compose(2, "")).await;
        minutes(2).await;
        it.crash();
        it.begin();
        minutes(5).await;
        assert_eq!(it.images(), ["ghcr.io/team/web:1"], "step {step}: {}", it.story());
        it.sign('b');
        it.synced_with_tip().await;
        assert_eq!(it.images(), ["ghcr.io/team/web:2"], "step {step}: {}", it.story());
    }
}
