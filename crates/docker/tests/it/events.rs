//! The event stream: what happens when events do not arrive.

use std::time::Duration;

use driftless_docker::{Docker, EngineEvent};
use driftless_model::ContainerId;
use tokio::{
    sync::broadcast::Receiver,
    time::{sleep, timeout},
};

use crate::fake_engine::{FakeEngine, instance};

/// Waits for an event of the stream's life.
async fn await_connected(events: &mut Receiver<EngineEvent>) {
    while events.recv().await.unwrap() != EngineEvent::Connected {}
}

#[tokio::test(start_paused = true)]
async fn silent_stream_is_replaced_when_the_engine_has_events() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    assert!(instance(&engine, &id).await.is_running());
    sleep(Duration::from_secs(10)).await;
    fake.mute();
    for action in ["kill", "die", "stop"] {
        fake.happen(id.as_str(), action);
    }
    fake.end(&id, "exited", 0);
    await_connected(&mut events).await;
    assert_eq!(fake.streams(), 2);
    let found = instance(&engine, &id).await;
    assert!(found.touched_by_hand.is_some(), "the engine remembers the stop: {found:?}");
}

#[tokio::test(start_paused = true)]
async fn exit_without_event_makes_the_agent_ask_at_once() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    sleep(Duration::from_secs(10)).await;
    fake.mute();
    for action in ["kill", "die", "stop"] {
        fake.happen(id.as_str(), action);
    }
    fake.end(&id, "exited", 137);
    // A look for another reason, such as the full pass.
    let found = instance(&engine, &id).await;
    assert!(found.touched_by_hand.is_some(), "{found:?}");
    await_connected(&mut events).await;
    assert_eq!(fake.streams(), 2, "the exit without event is proof that the stream is dead");
}

#[tokio::test(start_paused = true)]
async fn quiet_stream_of_a_quiet_engine_is_kept() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    for _ in 0..5 {
        sleep(Duration::from_mins(5)).await;
        fake.end(&id, "exited", 1);
        fake.happen(id.as_str(), "die");
        while !matches!(events.recv().await.unwrap(), EngineEvent::ObjectChanged { .. }) {}
        assert_eq!(instance(&engine, &id).await.touched_by_hand, None);
    }
    assert_eq!(fake.streams(), 1);
}

#[tokio::test(start_paused = true)]
async fn trial_of_a_definition_wakes_no_application() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    fake.happen_on_trial("trial", "create");
    fake.happen_on_trial("trial", "destroy");
    fake.happen(id.as_str(), "start");
    let first = loop {
        if let EngineEvent::ObjectChanged { name, .. } = events.recv().await.unwrap() {
            break name;
        }
    };
    assert_eq!(first, id.as_str());
}

#[tokio::test(start_paused = true)]
async fn anonymous_volume_wakes_no_application() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    let anonymous = "0f".repeat(32);
    fake.happen_to_volume(&anonymous, "create");
    fake.happen_to_volume(&anonymous, "destroy");
    fake.happen_to_volume("shop_data", "create");
    let first = loop {
        if let EngineEvent::ObjectChanged { name, .. } = events.recv().await.unwrap() {
            break name;
        }
    };
    assert_eq!(first, "shop_data");
}

#[tokio::test(start_paused = true)]
async fn hanging_engine_is_reported_within_10_seconds() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    sleep(Duration::from_secs(10)).await;
    fake.hang();
    let reported =
        async { while !matches!(events.recv().await.unwrap(), EngineEvent::Disconnected { .. }) {} };
    // Of simulated time.
    timeout(Duration::from_secs(9), reported).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_reason_of_an_outage_is_reported_once() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    fake.hang();
    let mut reasons = Vec::new();
    let listen = async {
        loop {
            if let EngineEvent::Disconnected { error } = events.recv().await.unwrap() {
                reasons.push(error);
            }
        }
    };
    assert!(timeout(Duration::from_mins(5), listen).await.is_err());
    let [first, second] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!(first, "no answer within 5 s");
    assert!(second.contains("a new connection was not answered within 5 s"), "{second}");
}

#[tokio::test(start_paused = true)]
async fn engine_that_answers_no_new_connection_is_reported() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    sleep(Duration::from_secs(5)).await;
    fake.hold_back_connections(true);
    // The open connections go on, and so do events.
    let chatter = tokio::spawn({
        let (fake, id) = (fake.clone(), id.clone());
        async move {
            loop {
                fake.happen(id.as_str(), "start");
                sleep(Duration::from_secs(1)).await;
            }
        }
    });
    let error = loop {
        if let EngineEvent::Disconnected { error } = events.recv().await.unwrap() {
            break error;
        }
    };
    assert!(error.contains("a new connection was not answered within 5 s"), "{error}");
    // It stays so, although an idle connection answers.
    let again = timeout(Duration::from_mins(1), await_connected(&mut events)).await;
    assert!(again.is_err(), "the engine is called reachable");
    fake.hold_back_connections(false);
    await_connected(&mut events).await;
    chatter.abort();
    assert!(instance(&engine, &id).await.is_running());
}

#[tokio::test(start_paused = true)]
async fn end_of_the_stream_alone_is_no_outage() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    for streams in 2..5 {
        sleep(Duration::from_mins(1)).await;
        fake.end_streams();
        loop {
            match events.recv().await.unwrap() {
                EngineEvent::Connected => break,
                event => assert!(!matches!(event, EngineEvent::Disconnected { .. }), "{event:?}"),
            }
        }
        assert_eq!(fake.streams(), streams);
        assert!(instance(&engine, &id).await.is_running());
    }
}

#[tokio::test(start_paused = true)]
async fn engine_that_refuses_its_event_stream_is_reachable() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    fake.refuse("/events");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    assert!(instance(&engine, &id).await.is_running());
    fake.end(&id, "exited", 1);
    assert!(!instance(&engine, &id).await.is_running(), "nothing is kept without events");
    // The end of a container is noticed before the full pass, and not by asking all the time.
    for _ in 0..3 {
        assert!(timeout(Duration::from_secs(20), await_connected(&mut events)).await.is_err());
        timeout(Duration::from_secs(20), await_connected(&mut events)).await.unwrap();
    }
    // A receiver that comes later.
    await_connected(&mut engine.events()).await;
    fake.hold_back_connections(true);
    timeout(Duration::from_secs(15), await_disconnected(&mut events)).await.unwrap();
    fake.hold_back_connections(false);
    await_connected(&mut events).await;
    assert_eq!(fake.streams(), 0);
}

/// The events of a stop, and its result.
fn stop(fake: &FakeEngine, id: &ContainerId) {
    for action in ["kill", "die", "stop"] {
        fake.happen(id.as_str(), action);
    }
    fake.end(id, "exited", 143);
}

async fn await_disconnected(events: &mut Receiver<EngineEvent>) {
    loop {
        match events.recv().await.unwrap() {
            EngineEvent::Disconnected { .. } => return,
            EngineEvent::ObjectChanged { name, .. } => panic!("{name} is reported to have changed"),
            EngineEvent::Connected | EngineEvent::ClaimLost => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stops_by_an_engine_that_shuts_down_are_not_a_users() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    assert!(instance(&engine, &id).await.is_running());
    sleep(Duration::from_secs(1)).await;
    fake.hold_back_connections(true);
    stop(&fake, &id);
    // Of simulated time: the stop itself makes the agent ask for a new connection.
    timeout(Duration::from_secs(6), await_disconnected(&mut events)).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    fake.restart();
    await_connected(&mut events).await;
    let found = instance(&engine, &id).await;
    assert!(!found.is_running() && found.touched_by_hand.is_none(), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn stop_by_a_user_outlives_a_restart_of_the_engine() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    assert!(instance(&engine, &id).await.is_running());
    stop(&fake, &id);
    sleep(Duration::from_millis(500)).await;
    fake.restart();
    await_connected(&mut events).await;
    assert!(instance(&engine, &id).await.touched_by_hand.is_some());
}

#[tokio::test(start_paused = true)]
async fn commands_in_foreign_containers_wake_nobody() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    for action in ["exec_create: check", "exec_start: check", "exec_die", "start"] {
        fake.happen_elsewhere("foreign", action);
    }
    let first = loop {
        if let EngineEvent::ObjectChanged { action, .. } = events.recv().await.unwrap() {
            break action;
        }
    };
    assert_eq!(first, "start");
}
