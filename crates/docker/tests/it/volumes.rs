//! Volumes that are gone when a container is created.

use std::collections::BTreeMap;

use driftless_docker::{Docker, Error};
use driftless_model::{
    AppName, Container, Format, InstanceId, Mount, MountSource, SpecHash, Volume, WorkloadName,
};
use driftless_plan::{Action, Creation, RequiredSignature};

use crate::fake_engine::{APP, FakeEngine};

fn creation(volume: &str) -> Action {
    let source = MountSource::Volume { name: volume.to_owned(), no_copy: false };
    let mount = Mount { target: "/data".to_owned(), source, read_only: false };
    Action::CreateInstance(Box::new(Creation {
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
    }))
}

#[tokio::test(start_paused = true)]
async fn no_container_is_created_on_a_volume_that_is_gone() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let app = AppName::from(APP);
    let created = Action::CreateVolume { name: "shop_data".to_owned(), volume: Volume::default() };
    // The simulated engine keeps no labels, so this says that it is somebody else's, and it is there.
    let _ = engine.perform(&app, &created, &|_| {}).await;
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
