//! Volumes that are gone when a container is created, those that are protected from removal, and their projects.

use std::{collections::BTreeMap, time::Duration};

use driftless_docker::{Claim, Docker, Error, ObserveScope};
use driftless_model::{
    AppName, Container, Format, InstanceId, Mount, MountSource, SpecHash, Volume, WorkloadName,
};
use driftless_plan::{Action, ContainerRef, Creation, RequiredSignature};
use tokio::time::{sleep, timeout};

use crate::fake_engine::{AGENT, APP, FakeEngine};

fn creation(volume: &str) -> Action {
    Action::CreateInstance(Box::new(definition(volume)))
}

fn definition(volume: &str) -> Creation {
    let source = MountSource::Volume { name: volume.to_owned(), no_copy: false };
    let mount = Mount { target: "/data".to_owned(), source, read_only: false };
    Creation {
        app: APP.into(),
        agent: "ours".into(),
        format: Format::Compose,
        project: APP.to_owned(),
        instance: InstanceId { workload: WorkloadName("db".to_owned()), slot: 1 },
        name: "shop-db-1".to_owned(),
        container: Container { image: "db:1".to_owned(), mounts: vec![mount], ..Container::default() },
        image: None,
        made_image: None,
        signature: RequiredSignature::None,
        spec: SpecHash::default(),
        inherit: BTreeMap::new(),
        peers: BTreeMap::new(),
        part: None,
        manifests: Vec::new(),
        depends_on: Vec::new(),
    }
}

/// It would keep the volume from being removed.
#[tokio::test(start_paused = true)]
async fn trial_that_is_created_late_is_removed() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    fake.delay_containers(Duration::from_secs(70));
    let definition = Creation { format: Format::Kubernetes, ..definition("shop_new") };
    let error = engine.try_definition(&definition).await.unwrap_err();
    assert!(matches!(error, Error::Transient { .. }), "{error}");
    assert!(fake.container_names().is_empty());
    sleep(Duration::from_secs(15)).await;
    assert_eq!(fake.container_names(), ["/shop-db-1-trial"]);
    sleep(Duration::from_mins(2)).await;
    assert!(fake.container_names().is_empty());
    // The volume that does not exist yet is no obstacle.
    fake.delay_containers(Duration::ZERO);
    engine.try_definition(&definition).await.unwrap();
    assert!(fake.container_names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn trial_that_an_interrupt_drops_is_removed() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    fake.delay_containers(Duration::from_secs(10));
    let definition = Creation { format: Format::Kubernetes, ..definition("shop_new") };
    timeout(Duration::from_secs(5), engine.try_definition(&definition)).await.unwrap_err();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(fake.container_names(), ["/shop-db-1-trial"]);
    sleep(Duration::from_mins(2)).await;
    assert!(fake.container_names().is_empty());
}

/// A kill between the removal of a container and that of its volumes leaves these.
#[tokio::test(start_paused = true)]
async fn empty_volumes_that_a_killed_agent_left_are_removed() {
    let fake = FakeEngine::new();
    let left = "a".repeat(64);
    let of_another = "b".repeat(64);
    for (name, agent) in [(left.as_str(), AGENT), (&of_another, "theirs"), ("shop_data", AGENT)] {
        fake.have_volume(name, "driftless.empty", agent);
    }
    let engine = fake.connect();
    assert_eq!(engine.claim(&AGENT.into(), Duration::from_secs(10)).await.unwrap(), Claim::Granted);
    let lists = fake.calls("GET /volumes?");
    let is_limited = |call: &String| call.contains("dangling") && call.contains("driftless.empty");
    assert_eq!(lists.iter().filter(|call| is_limited(call)).count(), 1, "{lists:?}");
    let removed = fake.calls("DELETE /volumes/");
    assert!(removed.contains(&format!("DELETE /volumes/{left}?")), "{removed:?}");
    let is_other = |call: &&String| call.contains(&of_another) || call.contains("shop_data");
    assert_eq!(removed.iter().find(is_other), None);
}

#[tokio::test(start_paused = true)]
async fn no_container_is_created_on_a_volume_that_is_gone() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let app = AppName::from(APP);
    let (name, project) = ("shop_data".to_owned(), APP.to_owned());
    let created = Action::CreateVolume { name, volume: Volume::default(), project };
    engine.perform(&app, &created, &|_| {}).await.unwrap();
    let error = engine.perform(&app, &creation("shop_gone"), &|_| {}).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { message, .. } if message.contains("does not exist")),
        "{error}"
    );
    assert!(fake.calls("/containers/create").is_empty());
    // Of the other one, the engine itself is asked, and not a list.
    let made = engine.perform(&app, &creation("shop_data"), &|_| {}).await;
    assert!(!fake.calls("GET /volumes/shop_data").is_empty());
    assert_eq!(fake.calls("/containers/create").len(), 1, "{made:?}");
}

#[tokio::test(start_paused = true)]
async fn anonymous_volumes_go_with_a_container_on_request() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let [one, other, guest] = ["report", "exports", "guest"].map(|name| fake.run(name, "no"));
    // Some of its volumes are those of another container.
    fake.share_volumes(&guest);
    for (id, with_volumes) in [(&one, true), (&other, false), (&guest, true)] {
        fake.end(id, "exited", 0);
        let container = ContainerRef::Id(id.clone(), fake.name(id));
        let removal = Action::RemoveInstance { container, with_volumes };
        engine.perform(&AppName::from(APP), &removal, &|_| {}).await.unwrap();
    }
    let calls = fake.calls("DELETE /containers");
    let with_volumes: Vec<bool> = calls.iter().map(|call| call.contains("v=true")).collect();
    assert_eq!(with_volumes, [true, false, false], "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn protected_volume_is_known_and_never_removed() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let app = AppName::from(APP);
    // Of a claim in Kubernetes, and of a Compose file that gives the volume a name.
    for (name, key, label) in
        [("shop_db", "db", "annotation.driftless.prune"), ("pgdata", "pg", "driftless.prune")]
    {
        let labels = BTreeMap::from([(label.to_owned(), "false".to_owned())]);
        let volume = Volume { key: key.to_owned(), labels: labels.clone(), ..Volume::default() };
        let project = APP.to_owned();
        let creation = Action::CreateVolume { name: name.to_owned(), volume, project };
        engine.perform(&app, &creation, &|_| {}).await.unwrap();
        for project in [None, Some("webshop".to_owned())] {
            let scope = ObserveScope { project, ..ObserveScope::default() };
            let observed = engine.observe(&app, &scope).await.unwrap();
            let found = observed.volumes[name].compose.as_ref().map(|volume| &volume.labels);
            assert_eq!(found, Some(&labels), "{name}");
        }
        let removal = Action::RemoveVolume { name: name.to_owned() };
        let error = engine.perform(&app, &removal, &|_| {}).await.unwrap_err();
        let is_refused =
            matches!(&error, Error::Refused { message, .. } if message.contains("driftless.prune"));
        assert!(is_refused, "{error}");
    }
    assert!(fake.calls("DELETE /volumes").is_empty());
}

#[tokio::test(start_paused = true)]
async fn volume_with_its_own_name_is_known_by_its_project() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let (name, project) = ("pgdata".to_owned(), "webshop".to_owned());
    let creation = Action::CreateVolume { name, volume: Volume::default(), project };
    engine.perform(&AppName::from(APP), &creation, &|_| {}).await.unwrap();
    // After a rename of its folder, the application has another name.
    for (project, is_known) in [("webshop", true), (APP, false)] {
        let (project, volumes) = (Some(project.to_owned()), ["pgdata".to_owned()].into());
        let scope = ObserveScope { project, volumes, ..ObserveScope::default() };
        let observed = engine.observe(&AppName::from("store"), &scope).await.unwrap();
        assert_eq!(observed.volumes["pgdata"].compose.is_some(), is_known);
    }
}
