//! Observing: which calls it takes.

use std::{collections::BTreeSet, fs, time::Duration};

use driftless_docker::{Docker, EngineEvent, ObserveScope, Remembered, RememberedChange};
use driftless_model::{AppName, ContainerId};
use futures_util::future::join_all;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::fake_engine::{APP, FakeEngine};

async fn observed(engine: &impl Docker) -> BTreeSet<ContainerId> {
    let observed = engine.observe(&AppName::from(APP), &ObserveScope::default()).await.unwrap();
    observed.instances.into_keys().collect()
}

async fn await_connected(engine: &impl Docker) {
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
}

#[tokio::test(start_paused = true)]
async fn host_without_changes_is_not_listed_again() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    await_connected(&engine).await;
    assert_eq!(observed(&engine).await, [id.clone()].into());
    let before = engine.calls();
    for _ in 0..100 {
        assert_eq!(observed(&engine).await, [id.clone()].into());
    }
    assert_eq!(engine.calls(), before);
    // As long as a full pass takes to come.
    advance(Duration::from_mins(5)).await;
    fake.remove(&id);
    assert!(observed(&engine).await.is_empty(), "the event was lost, and everything was listed");
}

#[tokio::test(start_paused = true)]
async fn changed_container_is_listed_alone() {
    let fake = FakeEngine::new();
    let (web, worker) = (fake.run("web", "no"), fake.run("worker", "no"));
    let engine = fake.connect();
    await_connected(&engine).await;
    assert_eq!(observed(&engine).await.len(), 2);
    fake.remove(&web);
    fake.happen(web.as_str(), "destroy");
    let database = fake.run("database", "no");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(observed(&engine).await, [worker.clone(), database.clone()].into());
    let lists = fake.calls("/containers/json");
    assert_eq!(lists.len(), 2, "{lists:?}");
    let names = |id: &ContainerId| lists[1].contains(id.as_str());
    assert!(names(&web) && names(&database) && !names(&worker), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn container_that_exits_is_listed_until_it_has_settled() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    await_connected(&engine).await;
    observed(&engine).await;
    // The engine reports the exit before its list shows it.
    fake.happen(id.as_str(), "die");
    sleep(Duration::from_millis(10)).await;
    observed(&engine).await;
    fake.end(&id, "exited", 1);
    sleep(Duration::from_millis(100)).await;
    let instance = crate::fake_engine::instance(&engine, &id).await;
    assert!(!instance.is_running(), "{:?}", instance.state);
    sleep(Duration::from_secs(10)).await;
    observed(&engine).await;
    let lists = fake.calls("/containers/json").len();
    observed(&engine).await;
    assert_eq!(fake.calls("/containers/json").len(), lists);
}

/// As when the disk with the former state directory is mounted late.
#[tokio::test(start_paused = true)]
async fn link_to_the_folder_is_seen_without_an_event() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let former = tempfile::tempdir().unwrap();
    fake.mount(&id, &former.path().join("app").join(APP).join("data"), "/data");
    fs::create_dir_all(fake.app_dir().join(APP).join("data")).unwrap();
    let engine = fake.connect();
    await_connected(&engine).await;
    let folders = async || -> Vec<String> {
        let found = crate::fake_engine::instance(&engine, &id).await;
        found.config.app_folders().map(str::to_owned).collect()
    };
    assert!(folders().await.is_empty());
    std::os::unix::fs::symlink(fake.app_dir(), former.path().join("app")).unwrap();
    assert_eq!(folders().await, ["data"]);
    let before = inspected(&fake).len();
    assert_eq!(folders().await, ["data"]);
    assert_eq!(inspected(&fake).len(), before, "it is known now");
}

/// The ids of the containers that were inspected, in the order of the calls.
fn inspected(fake: &FakeEngine) -> Vec<String> {
    let calls = fake.calls("GET /containers/").into_iter();
    let ids = calls
        .filter_map(|call| Some(call.strip_prefix("GET /containers/")?.strip_suffix("/json?")?.to_owned()));
    // The engine is asked about the agent's own container by other names.
    ids.filter(|id: &String| id.len() == 64).collect()
}

#[tokio::test(start_paused = true)]
async fn restart_inspects_containers_with_events_since() {
    let fake = FakeEngine::new();
    let (web, worker) = (fake.run("web", "no"), fake.run("worker", "no"));
    let engine = fake.connect();
    let mut known = engine.known_containers();
    await_connected(&engine).await;
    assert_eq!(known.changes(), None, "without an event there is nothing to begin from");
    sleep(Duration::from_secs(1)).await;
    fake.happen(web.as_str(), "update");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(observed(&engine).await.len(), 2);
    let RememberedChange { context, last_event, changed: containers, is_first, gone } =
        known.changes().unwrap();
    assert!(is_first && gone.is_empty() && containers.len() == 2);
    assert!(known.changes().unwrap().changed.is_empty(), "only what has changed since");
    let remembered = Remembered { context, last_event, containers };
    drop(engine);
    sleep(Duration::from_secs(1)).await;
    fake.end(&worker, "exited", 0);
    fake.happen(worker.as_str(), "die");

    let restart = async |remembered: &Remembered| {
        let before = inspected(&fake).len();
        let engine = fake.connect_remembering(Some(remembered.clone()));
        await_connected(&engine).await;
        let worker = crate::fake_engine::instance(&engine, &worker).await;
        assert!(!worker.is_running(), "{:?}", worker.state);
        assert!(crate::fake_engine::instance(&engine, &web).await.is_running());
        let mut ids = inspected(&fake).split_off(before);
        ids.sort();
        ids
    };
    let both = [web.to_string(), worker.to_string()];
    assert_eq!(Box::pin(restart(&remembered)).await, [worker.to_string()]);
    let other = Remembered { context: "another program".to_owned(), ..remembered.clone() };
    assert_eq!(Box::pin(restart(&other)).await, both);
    let mut damaged = remembered.clone();
    damaged.containers.insert(web.to_string(), "{".to_owned());
    assert_eq!(Box::pin(restart(&damaged)).await, both);
    fake.forget_events();
    assert_eq!(Box::pin(restart(&remembered)).await, both, "the engine does not remember what has happened");
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_together_agree_on_the_version_once() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    let scope = ObserveScope::default();
    let app = AppName::from(APP);
    let observed = join_all((0..20).map(|_| engine.observe(&app, &scope))).await;
    assert!(observed.iter().all(Result::is_ok), "{observed:?}");
    assert_eq!(fake.calls("/version").len(), 1, "{:?}", fake.calls("/version"));
}

#[tokio::test(start_paused = true)]
async fn everything_is_listed_once_at_a_start() {
    let fake = FakeEngine::new();
    fake.run("web", "no");
    let engine = fake.connect();
    observed(&engine).await;
    await_connected(&engine).await;
    observed(&engine).await;
    for list in ["/containers/json", "/networks", "/volumes?filters=%7B%7D"] {
        assert_eq!(fake.calls(list).len(), 1, "{:?}", fake.calls(""));
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_together_wait_once_for_a_hanging_engine() {
    let fake = FakeEngine::new();
    fake.hang();
    let engine = fake.connect();
    let scope = ObserveScope::default();
    let app = AppName::from(APP);
    let began = Instant::now();
    let observed = join_all((0..20).map(|_| engine.observe(&app, &scope))).await;
    assert!(observed.iter().all(Result::is_err), "{observed:?}");
    // One that came before them may have begun to wait already, and the event stream is waited for.
    assert!(began.elapsed() <= Duration::from_secs(21), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn engine_is_asked_about_itself_again_after_a_reload() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    await_connected(&engine).await;
    observed(&engine).await;
    assert_eq!(fake.calls("/info").len(), 1, "{:?}", fake.calls("/info"));
    fake.reload();
    let web = fake.run("web", "no");
    fake.happen(web.as_str(), "create");
    sleep(Duration::from_secs(1)).await;
    observed(&engine).await;
    assert_eq!(fake.calls("/info").len(), 2, "{:?}", fake.calls("/info"));
}

/// `docker info` may take longer than a probe has time.
#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_for_the_question_after_a_reload() {
    let fake = FakeEngine::new();
    let web = fake.run("web", "no");
    let engine = fake.connect();
    await_connected(&engine).await;
    observed(&engine).await;
    assert_eq!(fake.calls("/info").len(), 1, "{:?}", fake.calls("/info"));
    fake.delay_info(Duration::from_secs(30));
    fake.reload();
    for _ in 0..3 {
        // It has changed, so it is observed with calls.
        fake.happen(web.as_str(), "rename");
        sleep(Duration::from_secs(1)).await;
        let lists = fake.calls("/containers/").len();
        timeout(Duration::from_secs(1), observed(&engine)).await.unwrap();
        assert!(fake.calls("/containers/").len() > lists);
    }
    assert_eq!(fake.calls("/info").len(), 1, "it has no answer yet");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.calls("/info").len(), 2, "{:?}", fake.calls("/info"));
}

#[tokio::test(start_paused = true)]
async fn question_after_a_reload_is_repeated_until_it_is_answered() {
    let fake = FakeEngine::new();
    let engine = fake.connect();
    await_connected(&engine).await;
    observed(&engine).await;
    fake.delay_info(Duration::from_hours(1));
    fake.reload();
    // The time limit of the question is a minute.
    sleep(Duration::from_secs(50)).await;
    assert_eq!(fake.calls("/info").len(), 1, "{:?}", fake.calls("/info"));
    fake.delay_info(Duration::ZERO);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.calls("/info").len(), 2, "{:?}", fake.calls("/info"));
}
