//! Networks that the agent creates, and the calls that it takes.

use driftless_docker::{Docker, EngineEvent, ObserveScope};
use driftless_model::{AppName, Network};
use driftless_plan::Action;
use futures_util::future::join_all;

use crate::fake_engine::{APP, FakeEngine};

fn creation(number: usize) -> Action {
    let (name, project) = (format!("shop_net{number}"), APP.to_owned());
    Action::CreateNetwork { name, network: Network::default(), project, addresses: None }
}

#[tokio::test(start_paused = true)]
async fn network_created_without_an_answer_is_found() {
    let fake = FakeEngine::new();
    fake.lose_networks();
    let engine = fake.connect();
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
    let app = AppName::from(APP);
    engine.observe(&app, &ObserveScope::default()).await.unwrap();
    let whole_lists =
        || fake.calls("GET /networks?").into_iter().filter(|call| !call.contains("filters")).count();
    let before = whole_lists();
    engine.perform(&app, &creation(1), &|_| {}).await.unwrap();
    assert_eq!(fake.calls("/networks/create").len(), 1);
    let observed = engine.observe(&app, &ObserveScope::default()).await.unwrap();
    assert!(observed.networks.contains_key("shop_net1"), "{:?}", observed.networks);
    assert_eq!(whole_lists(), before, "{:?}", fake.calls("GET /networks?"));
}

#[tokio::test(start_paused = true)]
async fn few_networks_are_created_at_the_same_time() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let app = AppName::from(APP);
    let create = async |number| engine.perform(&app, &creation(number), &|_| {}).await;
    let created = join_all((0..12).map(create)).await;
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    assert_eq!(fake.calls("/networks/create").len(), 12);
    assert_eq!(fake.most_network_creations(), 4);
}
