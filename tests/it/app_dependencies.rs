//! Applications that wait for others (`dependsOn`), on the simulated engine.

use std::time::Duration;

use driftless_config::ApplicationSettings;
use driftless_model::{
    AppCondition, AppDependency, AppName, ConditionStatus, EventKind, HealthStatus, OnFailure, Policy,
    SyncStatus,
};

use crate::simulation::{Simulation, app, minutes};

fn db() -> AppName {
    "db".into()
}

/// The shop and its database, each an application.
fn files(version: u8) -> [(String, String); 2] {
    let web = format!("services: {{web: {{image: 'web:{version}', restart: always}}}}");
    let database = format!(
        "services: {{db: {{image: 'db:{version}', restart: always, healthcheck: {{test: [CMD, check]}}}}}}"
    );
    [("shop/compose.yaml".to_owned(), web), ("db/compose.yaml".to_owned(), database)]
}

impl Simulation {
    fn push_version(&self, version: u8) -> String {
        let files = files(version);
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        self.git.push_files("Ada", &files)
    }

    fn images_of(&self, name: &AppName) -> Vec<String> {
        let observed = self.docker.observed(name);
        let running = observed.containers().filter(|container| container.is_running());
        running.map(|container| container.config.image.clone()).collect()
    }
}

fn on(app: &str, condition: AppCondition) -> AppDependency {
    AppDependency { app: app.into(), condition }
}

fn shop_on_db(condition: AppCondition) -> Simulation {
    let mut it = Simulation::idle();
    it.settings.path = String::new();
    it.settings.policy.on_failure = OnFailure::None;
    // `db` does not wait for itself.
    it.settings.policy.depends_on = vec![on("db", condition)];
    it
}

#[tokio::test(start_paused = true)]
async fn commit_waits_until_the_other_application_is_healthy() {
    let it = shop_on_db(AppCondition::Healthy);
    it.docker.faults(|faults| faults.unhealthy = ["db:1".to_owned(), "db:2".to_owned()].into());
    it.push_version(1);
    let it = it.begun();
    minutes(3).await;
    assert!(it.images_of(&app()).is_empty(), "{}", it.story());
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    let condition = shown.conditions.iter().find(|condition| condition.kind == "SyncAllowed").unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "DependencyNotMet"));
    assert!(condition.message.contains("(`dependsOn`): db is"), "{}", condition.message);
    it.docker.faults(|faults| _ = faults.unhealthy.remove("db:1"));
    minutes(3).await;
    it.synced_with_tip().await;
    assert_eq!(it.images_of(&app()), ["web:1"], "{}", it.story());

    // The second version of the database never becomes healthy. The third one replaces the awaited commit.
    it.push_version(2);
    minutes(5).await;
    assert_eq!(it.images_of(&app()), ["web:1"], "{}", it.story());
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    assert_eq!(shown.sync, SyncStatus::OutOfSync);
    it.push_version(3);
    minutes(3).await;
    it.synced_with_tip().await;
    assert_eq!(
        (it.images_of(&app()), it.images_of(&db())),
        (vec!["web:3".to_owned()], vec!["db:3".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn suspended_job_of_the_other_application_holds_nothing() {
    let it = shop_on_db(AppCondition::Healthy);
    let [(path, web), _] = files(1);
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: reindex}\nspec:\n  suspend: true\n  template:\n    \
               spec: {restartPolicy: Never, containers: [{name: reindex, image: 'db:1'}]}\n";
    it.git.push_files("Ada", &[(path.as_str(), web.as_str()), ("db/db.yaml", job)]);
    let it = it.begun();
    it.synced_with_tip().await;
    let other = it.handle().applications().get(&db()).unwrap().status.health;
    assert_eq!(other, HealthStatus::Suspended, "{}", it.story());
    assert_eq!(it.images_of(&app()), ["web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn drift_is_undone_while_a_commit_waits_for_another_one() {
    let it = shop_on_db(AppCondition::Ready);
    it.push_version(1);
    let mut it = it.begun();
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.unhealthy = ["db:2".to_owned()].into());
    it.push_version(2);
    minutes(2).await;
    it.hand(&driftless_docker::UserAction::Remove { name: "shop-web-1".into() });
    it.crash();
    it.begin();
    minutes(6).await;
    assert_eq!(it.images_of(&app()), ["web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn wait_for_an_application_that_is_missing_is_reported() {
    let mut it = shop_on_db(AppCondition::Healthy);
    it.settings.policy.depends_on = vec![on("databse", AppCondition::Healthy)];
    it.push_version(1);
    let it = it.begun();
    minutes(3).await;
    assert!(it.images_of(&app()).is_empty(), "{}", it.story());
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    let condition = shown.conditions.iter().find(|condition| condition.kind == "SyncAllowed").unwrap();
    assert_eq!(condition.reason, "DependencyUnknown");
    assert!(condition.message.contains("no application `databse`"), "{}", condition.message);
    assert!(shown.waits.iter().any(|wait| wait.reason == "DependencyUnknown"), "{:?}", shown.waits);
    let events = it.store.events(0, 1000, Some(&app())).unwrap();
    let warnings =
        events.iter().filter(|event| event.reason == "DependencyUnknown" && event.kind == EventKind::Warning);
    assert_eq!(warnings.count(), 1, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn applications_that_wait_for_each_other_are_findings() {
    let mut it = Simulation::idle();
    it.settings.path = String::new();
    let application = |path: &str, other: &str| ApplicationSettings {
        path: path.to_owned(),
        policy: Policy { depends_on: vec![on(other, AppCondition::Healthy)], ..Policy::default() },
        ..ApplicationSettings::default()
    };
    it.settings.applications = vec![application("shop", "db"), application("db", "shop")];
    it.push_version(1);
    let it = it.begun();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(it.images_of(&app()).is_empty() && it.images_of(&db()).is_empty(), "{}", it.story());
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    assert!(shown.message.contains("shop waits for db waits for shop"), "{}", shown.message);
    assert!(shown.message.contains("`dependsOn`"), "{}", shown.message);
}
