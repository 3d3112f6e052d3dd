//! Signatures of commits whose keys change while the agent runs: keys that are added, expire, or cannot be read for a moment.

use std::{fs, path::PathBuf};

use driftless_clock::Clock;
use driftless_config::{ApplicationSettings, Settings, Verify};
use driftless_model::{Application, ConditionStatus};

use crate::{
    sample::NOON,
    simulation::{Simulation, is_refused, minutes},
};

const ADA: &str = "Ada <a@b.c>";
const EVE: &str = "Eve <e@b.c>";

fn compose(version: u32) -> String {
    format!("services: {{web: {{image: 'web:{version}'}}}}\n")
}

/// A policy that trusts the lines of a file.
fn trusting(path: PathBuf) -> Option<Verify> {
    Some(Verify { allowed_signers_file: Some(path), ..Verify::default() })
}

fn is_signed(application: &Application) -> bool {
    let mut conditions = application.status.conditions.iter();
    conditions.any(|condition| {
        condition.kind == "Trusted"
            && condition.status == ConditionStatus::True
            && condition.message == format!("signed by {ADA}")
    })
}

#[tokio::test(start_paused = true)]
async fn key_that_is_added_is_used_at_the_next_poll() {
    let folder = tempfile::tempdir().unwrap();
    let signers = folder.path().join("signers");
    let mut simulation = Simulation::prepared(&compose(1), Clock::starting_at(NOON));
    simulation.settings.applications = vec![ApplicationSettings {
        path: "shop".into(),
        verify: trusting(signers.clone()),
        ..ApplicationSettings::default()
    }];
    let simulation = simulation.begun();
    simulation.until("the unreadable file is named", |it| it.status.message.contains("could not read")).await;
    fs::write(&signers, "Eve <e@b.c>\n").unwrap();
    simulation.until("the new reason is named", |it| it.status.message.contains("it is not signed")).await;
    assert!(simulation.images().is_empty());
    fs::write(&signers, ADA).unwrap();
    assert!(!is_refused(&*simulation.synced_with_tip().await));
    assert_eq!(simulation.images(), ["web:1"]);

    // The file is not readable for a moment, such as while it is replaced.
    fs::remove_file(&signers).unwrap();
    simulation.git.push(&compose(2));
    simulation.until("the commit is refused", is_refused).await;
    assert_eq!(simulation.images(), ["web:1"]);
    fs::write(&signers, ADA).unwrap();
    assert!(!is_refused(&*simulation.synced_with_tip().await));
    assert_eq!(simulation.images(), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn accepted_commit_stays_accepted_when_host_values_change() {
    let folder = tempfile::tempdir().unwrap();
    let (signers, values) = (folder.path().join("signers"), folder.path().join("shop.env"));
    fs::write(&signers, ADA).unwrap();
    fs::write(&values, "TAG='1'\n").unwrap();
    let mut simulation =
        Simulation::prepared("services: {web: {image: 'web:${TAG}'}}\n", Clock::starting_at(NOON));
    let text = format!(
        "repositories: [{{url: 'https://git.example/infra.git', valuesFrom: [{{file: {}}}]}}]\n",
        values.display()
    );
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    simulation.settings.verify = trusting(signers.clone());
    simulation.begin();
    assert!(is_signed(&*simulation.synced_with_tip().await));
    assert_eq!(simulation.images(), ["web:1"]);

    // The key has expired.
    fs::write(&signers, "").unwrap();
    fs::write(&values, "TAG='2'\n").unwrap();
    simulation.until("the new value is used", |_| simulation.images() == ["web:2"]).await;
    let application = simulation.synced_with_tip().await;
    assert!(is_signed(&application) && !is_refused(&application), "{:#?}", application.status);

    // Nor does a restart undo it, also not the second one after a change of the policy.
    fs::write(&signers, ADA).unwrap();
    simulation.crash();
    let other = folder.path().join("other");
    fs::write(&other, ADA).unwrap();
    simulation.settings.verify = trusting(other.clone());
    simulation.begin();
    simulation.until("the signer is shown again", is_signed).await;
    minutes(5).await;
    simulation.crash();
    fs::write(&other, "").unwrap();
    fs::write(&values, "TAG='3'\n").unwrap();
    simulation.begin();
    simulation.until("the value of the restart is used", |_| simulation.images() == ["web:3"]).await;
    assert!(!is_refused(&*simulation.synced_with_tip().await));

    // A newer commit needs a key that is trusted now.
    simulation.git.push(&compose(4));
    simulation.until("the newer commit is refused", is_refused).await;
    assert_eq!(simulation.images(), ["web:3"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_commit_changes_nothing_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let signers = folder.path().join("signers");
    fs::write(&signers, ADA).unwrap();
    let mut simulation = Simulation::idle_at(Clock::starting_at(NOON));
    let settings = |path: &str, verify| ApplicationSettings {
        path: path.into(),
        verify,
        ..ApplicationSettings::default()
    };
    simulation.settings.applications = vec![settings("shop", trusting(signers)), settings("blog", None)];
    let (first, second) = (compose(1), compose(2));
    simulation.git.push_files(ADA, &[("shop/compose.yaml", &first), ("blog/compose.yaml", &first)]);
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;

    let removal = "applications: [{path: shop, hosts: {names: [web-2]}, prune: true}, {path: blog}]\n";
    for settings in [
        "applications: [{path: shop, suspend: true, prune: true}, {path: blog}]\n",
        "applications: [{path: shop, suspended: true}]\n",
        removal,
    ] {
        let files = [
            ("driftless.yaml", settings),
            ("shop/compose.yaml", second.as_str()),
            ("blog/compose.yaml", first.as_str()),
        ];
        simulation.git.push_files(EVE, &files);
        minutes(3).await;
        simulation.crash();
        simulation.begin();
        minutes(10).await;
        let application = simulation.until("the commit is refused", is_refused).await;
        assert_eq!(simulation.images(), ["web:1"], "{settings}{}", simulation.story());
        assert!(application.status.message.contains("is kept"), "{settings}{:#?}", application.status);
        assert!(!application.spec.policy.suspended, "{settings}");
    }

    // Under other keys no commit is accepted, so none says that the application has left.
    simulation.crash();
    let others = folder.path().join("others");
    fs::write(&others, "").unwrap();
    simulation.settings.applications[0].verify = trusting(others);
    simulation.begin();
    minutes(10).await;
    let reason = |it: &Application| format!("{:?}", it.status).contains("it is not signed");
    simulation.until("the reason is named", reason).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());
}

#[tokio::test(start_paused = true)]
async fn host_value_is_used_while_the_newest_commit_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (signers, values) = (folder.path().join("signers"), folder.path().join("shop.env"));
    fs::write(&signers, ADA).unwrap();
    fs::write(&values, "TAG='1'\n").unwrap();
    let mut simulation =
        Simulation::prepared("services: {web: {image: 'web:${TAG}'}}\n", Clock::starting_at(NOON));
    let text = format!(
        "repositories:\n- url: https://git.example/infra.git\n  applications: [{{path: shop, valuesFrom: [{{file: {}}}]}}]\n",
        values.display()
    );
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    simulation.settings.applications[0].verify = trusting(signers);
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    assert_eq!(simulation.images(), ["web:1"]);
    simulation.git.push_files(
        EVE,
        &[("shop/compose.yaml", "services: {web: {image: 'evil:${TAG}', restart: always}}\n")],
    );
    simulation.until("the commit is refused", is_refused).await;

    fs::write(&values, "TAG='2'\n").unwrap();
    simulation.until("the new value is used", |_| simulation.images() == ["web:2"]).await;
    simulation.crash();
    fs::write(&values, "TAG='3'\n").unwrap();
    simulation.begin();
    simulation.until("the value of the restart is used", |_| simulation.images() == ["web:3"]).await;
    simulation.until("the commit is still refused", is_refused).await;
}
