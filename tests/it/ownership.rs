//! Ownership of names, volumes and containers: an application keeps what it has when another one asks for it.

use std::{fs, sync::Arc, time::Duration};

use driftless_agent::{Answer, RequestError, RequestKind, Rollback};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{AgentId, AppName, Application, ConditionStatus, Observed, SyncStatus, Until};
use driftless_store::Store;
use tokio::time::Instant;

use crate::sample::NOON;
use crate::simulation::{Simulation, agent_id, app, minutes};

fn shop(image: &str) -> String {
    format!(
        "name: tshop\nservices:\n  web: {{image: '{image}', volumes: ['data:/data']}}\nvolumes: {{data: }}\n"
    )
}

fn newcomer() -> AppName {
    "aaa".into()
}

impl Simulation {
    fn application(&self, name: &AppName) -> Arc<Application> {
        Arc::clone(self.handle().applications().get(name).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn newcomer_does_not_take_the_project_of_a_running_application() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    let (one, both) = (shop("web:2"), shop("intruder:1"));
    it.git.push_files("Ada", &[("shop/compose.yaml", &one), ("aaa/compose.yaml", &both)]);
    it.synced_with_tip().await;
    minutes(2).await;
    assert_eq!(it.images(), ["web:2"], "the running application is updated");
    assert!(it.docker.observed(&newcomer()).instances.is_empty(), "{}", it.story());
    let refused = it.application(&newcomer());
    assert!(refused.status.message.contains("is taken by application `shop`"), "{:#?}", refused.status);
    // Both are of one commit, so `driftless sync --wait` need not wait for its end.
    let obstacle = refused.status.obstacle.clone().unwrap_or_default();
    assert!(obstacle.contains("is taken by application `shop`"), "{:#?}", refused.status);

    // It is so in the next life of the agent, and while Git does not have the running application.
    it.crash();
    it.git.push_files("Ada", &[("aaa/compose.yaml", &both)]);
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:2"]);
    assert!(it.docker.observed(&newcomer()).instances.is_empty(), "{}", it.story());
    assert_eq!(it.application(&newcomer()).status.obstacle, None, "`driftless remove shop` ends it");
}

#[tokio::test(start_paused = true)]
async fn name_is_free_once_its_holder_is_removed() {
    let mut it = Simulation::prepared(&shop("web:1"), Clock::starting_at(NOON));
    it.settings.policy.prune = true;
    it.settings.policy.max_prune_percent = 100;
    let it = it.begun();
    it.synced_with_tip().await;
    it.git.push_files("Ada", &[("aaa/compose.yaml", "name: tshop\nservices: {web: {image: 'other:1'}}\n")]);
    minutes(3).await;
    assert!(it.docker.observed(&app()).instances.is_empty(), "{}", it.story());
    let status = it.application(&newcomer()).status.clone();
    assert_eq!(status.sync, SyncStatus::Synced, "{status:#?}\n{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn volume_of_another_application_is_mounted_only_as_external() {
    let it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    let mount = |external: &str| {
        format!(
            "services: {{web: {{image: 'other:1', volumes: ['vol:/data']}}}}\nvolumes: {{vol: {{name: tshop_data{external}}}}}\n"
        )
    };
    let (own, external) = (mount(""), mount(", external: true"));
    it.git.push_files("Ada", &[("shop/compose.yaml", &shop("web:1")), ("aaa/compose.yaml", &own)]);
    minutes(2).await;
    assert!(it.docker.observed(&newcomer()).instances.is_empty(), "{}", it.story());
    let waits = it.application(&newcomer()).status.waits.clone();
    assert!(waits.iter().any(|wait| wait.reason == "OfAnotherApplication"), "{waits:#?}");

    it.git.push_files("Ada", &[("shop/compose.yaml", &shop("web:1")), ("aaa/compose.yaml", &external)]);
    minutes(2).await;
    let waits = it.application(&newcomer()).status.waits.clone();
    assert!(waits.iter().any(|wait| wait.message.contains("belongs to application `shop`")), "{waits:#?}");
    assert_eq!(it.docker.observed(&newcomer()).instances.len(), 1, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn no_new_commit_is_applied_after_a_loss_of_state() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.store = Store::in_memory(it.clock).unwrap();
    it.begin();
    minutes(1).await;
    let status = it.application(&app()).status.clone();
    let lost = status.conditions.iter().find(|condition| condition.kind == "StateLost");
    assert!(lost.is_some_and(|condition| condition.message.contains("driftless recover")), "{status:#?}");
    let readiness = it.handle().readiness();
    assert!(!readiness.is_ready() && readiness.message.contains("driftless recover"), "{readiness:?}");
    let events = it.store.newest_events(20, Some(&app())).unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "StateLost").count(), 1, "{events:#?}");

    // The containers run what Git says, so they are repaired; a new commit waits, also after a restart of the agent.
    it.docker.user_action(&app(), &UserAction::Remove { name: "tshop-web-1".into() }).unwrap();
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"]);
    it.git.push(&shop("web:2"));
    minutes(5).await;
    assert_eq!(it.images(), ["web:1"]);
    it.crash();
    it.begin();
    minutes(5).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());

    it.handle().recover().await.unwrap();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
    assert!(it.handle().readiness().is_ready());
}

#[tokio::test(start_paused = true)]
async fn refusals_after_a_loss_of_state_name_the_way_out() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.store = Store::in_memory(it.clock).unwrap();
    it.git.push(&shop("web:2"));
    it.begin();
    minutes(1).await;
    for kind in [RequestKind::Restart("web".into()), RequestKind::Heal, RequestKind::Resume] {
        let why = it.refusal(kind).await;
        assert!(why.contains("run `driftless recover`") && !why.contains("resume"), "{why}");
    }
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(!plan.suspended, "{plan:?}");
    assert!(plan.waits.iter().any(|wait| wait.contains("run `driftless recover`")), "{plan:?}");
    // A suspension by a user is one, and can be ended.
    it.ask(RequestKind::Suspend).await;
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(plan.suspended, "{plan:?}");
    it.ask(RequestKind::Resume).await;
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn confirmed_loss_of_a_suspended_application_is_reported_once() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.store = Store::in_memory(it.clock).unwrap();
    it.settings.policy.suspended = true;
    it.begin();
    let is_lost = |application: &Application| {
        application
            .status
            .conditions
            .iter()
            .any(|condition| condition.kind == "StateLost" && condition.status == ConditionStatus::True)
    };
    it.until("the loss is reported", is_lost).await;
    it.handle().recover().await.unwrap();
    it.until("the loss is confirmed", |application| !is_lost(application)).await;
    minutes(1).await;
    it.crash();
    it.begin();
    minutes(10).await;
    assert!(!is_lost(&it.application(&app())), "{:#?}", it.application(&app()).status);
    assert!(it.handle().readiness().is_ready(), "{:?}", it.handle().readiness());
}

#[tokio::test(start_paused = true)]
async fn rolled_back_version_stays_after_a_loss_of_state() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.push(&shop("web:2")).await;
    it.synced_with_tip().await;
    let rollback = Rollback { to: None, reason: "2 is bad".into(), until: Until::Manual };
    it.ask(RequestKind::Rollback(rollback)).await;
    it.until("it is rolled back", |_| it.images() == ["web:1"]).await;
    it.crash();
    it.store = Store::in_memory(it.clock).unwrap();
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    let status = it.application(&app()).status.clone();
    assert!(
        status.sync == SyncStatus::OutOfSync && status.message.contains("driftless recover"),
        "{status:#?}"
    );
}

fn old() -> AgentId {
    AgentId("old".into())
}

impl Simulation {
    /// The next life of the agent has an empty state directory, and another id than the containers.
    fn lose_state(&mut self, is_living: bool) {
        self.crash();
        self.store = Store::in_memory(self.clock).unwrap();
        self.docker.give_to(&old(), is_living);
    }

    fn condition(&self, kind: &str) -> Option<String> {
        let status = &self.application(&app()).status;
        status.conditions.iter().find(|condition| condition.kind == kind).map(|it| it.message.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_dead_agent_are_taken_over_without_a_restart() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    let before = it.docker.observed(&app()).instances;
    it.lose_state(false);
    it.begin();
    minutes(1).await;
    let after = it.docker.observed(&app()).instances;
    assert_eq!(after, before, "{}", it.story());
    assert_eq!(it.condition("OwnedByAnotherAgent"), None);
    assert!(it.condition("StateLost").is_some(), "a pin may be lost");
    it.docker.user_action(&app(), &UserAction::Remove { name: "tshop-web-1".into() }).unwrap();
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "it is repaired");
    it.handle().recover().await.unwrap();
    it.push(&shop("web:2")).await;
    it.synced_with_tip().await;
    assert_eq!(it.docker.observed(&app()).instances.len(), 1, "{}", it.story());

    // It is so in the next life as well.
    it.crash();
    it.begin();
    minutes(1).await;
    it.push(&shop("web:3")).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:3"]);
}

#[tokio::test(start_paused = true)]
async fn second_agent_is_refused_while_the_first_one_lives() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.lose_state(true);
    let writes = it.docker.transcript().len();
    it.begin();
    minutes(10).await;
    it.git.push(&shop("web:2"));
    minutes(10).await;
    assert_eq!(it.docker.transcript().len(), writes, "{}", it.story());
    let why = it.condition("OwnedByAnotherAgent").unwrap();
    assert!(why.contains("lives on this engine") && why.contains("driftless recover"), "{why}");
    let refused = it.handle().recover().await.unwrap_err();
    assert!(refused.to_string().contains("stop it"), "{refused}");

    // The first agent ends. Nothing changes until somebody says so.
    it.docker.give_to(&old(), false);
    minutes(10).await;
    assert_eq!(it.docker.transcript().len(), writes, "{}", it.story());
    it.handle().recover().await.unwrap();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
    assert_eq!(it.docker.observed(&app()).instances.len(), 1, "{}", it.story());
}

/// A service that runs every five minutes, and one before each sync, for two seconds each.
fn scheduled() -> Simulation {
    let backup = "  backup: {image: 'dump:1', x-driftless: {schedule: '*/5 * * * *'}}";
    let hook = "  migrate: {image: 'migrate:1', x-driftless: {hook: PreSync}}";
    let compose = shop("web:1").replace("volumes: {data", &format!("{backup}\n{hook}\nvolumes: {{data"));
    let it = Simulation::prepared(&compose, Clock::starting_at(NOON));
    it.docker.faults(|faults| {
        for image in ["dump:1", "migrate:1"] {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(2), 0));
        }
    });
    it.begun()
}

impl Simulation {
    /// The containers of runs that there are, and the runs that an event says have begun.
    fn begun_runs(&self) -> (usize, usize) {
        let observed = self.docker.observed(&app());
        let of_runs = observed.containers().filter(|container| container.config.image == "dump:1");
        let events = self.store.events(0, 1000, None).unwrap();
        (of_runs.count(), events.iter().filter(|event| event.reason == "SuccessfulCreate").count())
    }
}

#[tokio::test(start_paused = true)]
async fn runs_do_not_pile_up_while_another_agent_lives() {
    let mut it = scheduled();
    it.synced_with_tip().await;
    it.lose_state(true);
    it.begin();
    minutes(62).await;
    assert_eq!(it.begun_runs(), (0, 0), "{}", it.story());
    it.docker.give_to(&old(), false);
    it.handle().recover().await.unwrap();
    it.synced_with_tip().await;
    minutes(1).await;
    assert!(it.begun_runs().0 <= 1, "{}", it.story());
    minutes(5).await;
    let (containers, events) = it.begun_runs();
    assert!((1..=2).contains(&containers) && containers == events, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn runs_of_schedules_and_hooks_are_taken_over() {
    let mut it = scheduled();
    it.synced_with_tip().await;
    minutes(6).await;
    assert_eq!(it.begun_runs(), (1, 1), "{}", it.story());
    let web = |it: &Simulation| {
        let instances = it.docker.observed(&app()).instances;
        let mut of_web = instances.into_values().filter(|instance| instance.config.image == "web:1");
        of_web.next().unwrap().id
    };
    let before = web(&it);
    it.lose_state(false);
    it.begin();
    minutes(1).await;
    assert_eq!(it.condition("OwnedByAnotherAgent"), None, "{}", it.story());
    minutes(5).await;
    assert_eq!((it.begun_runs().1, web(&it)), (1, before), "{}", it.story());
    let migrations = |observed: &Observed| {
        observed.containers().filter(|container| container.config.image == "migrate:1").count()
    };
    let transcript = it.docker.transcript();
    let created = transcript.iter().filter(|entry| migrations(&entry.after) > migrations(&entry.before));
    assert_eq!(created.count(), 1, "the hook has run: {}", it.story());
}

#[tokio::test(start_paused = true)]
async fn last_missed_run_starts_after_an_outage_of_the_engine() {
    let it = scheduled();
    it.synced_with_tip().await;
    it.docker.disconnect();
    minutes(62).await;
    assert_eq!(it.begun_runs(), (0, 0), "{}", it.story());
    it.docker.reconnect();
    minutes(2).await;
    assert_eq!(it.begun_runs(), (1, 1), "{}", it.story());
    let events = it.store.events(0, 1000, None).unwrap();
    let begun = events.iter().find(|event| event.reason == "SuccessfulCreate").unwrap();
    assert!(begun.message.contains("T13:00:00"), "{}", begun.message);
}

#[tokio::test(start_paused = true)]
async fn new_id_is_claimed_without_a_pause() {
    for (has_new_id, pause) in [(true, 0), (false, 1)] {
        let mut it = Simulation::prepared(&shop("web:1"), Clock::starting_at(NOON));
        it.has_new_id = has_new_id;
        let began = Instant::now();
        it.begin();
        it.synced_with_tip().await;
        assert_eq!(began.elapsed().as_secs(), pause, "{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn unclear_owner_stops_the_agent_until_recover() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.lose_state(false);
    it.git.push(&shop("web:2"));
    let writes = it.docker.transcript().len();
    it.begin();
    minutes(10).await;
    assert_eq!(it.docker.transcript().len(), writes, "{}", it.story());
    let why = it.condition("OwnedByAnotherAgent").unwrap();
    assert!(why.contains("tshop-web-1") && why.contains("driftless recover"), "{why}");
    it.handle().recover().await.unwrap();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
    assert_eq!(it.docker.observed(&app()).instances.len(), 1, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn copied_state_directory_is_refused_while_the_original_runs() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.docker.set_living(&agent_id(), true);
    it.git.push(&shop("web:2"));
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"]);
    let why = it.condition("OwnedByAnotherAgent").unwrap();
    assert!(why.contains("a state directory of its own"), "{why}");
    it.docker.set_living(&agent_id(), false);
    // The original may only be late to answer.
    it.docker.disconnect();
    it.docker.reconnect();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    it.handle().recover().await.unwrap();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn removed_question_refuses_no_agent_that_starts() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    // As `docker volume prune -a` does in the moment of the start.
    it.docker.faults(|faults| faults.removed_claims = 1);
    it.git.push(&shop("web:2"));
    it.begin();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn missed_question_grants_no_id_of_a_living_agent() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.docker.set_living(&agent_id(), true);
    // The other agent is late to answer the second question.
    it.docker.faults(|faults| faults.missed_claim = Some(1));
    it.git.push(&shop("web:2"));
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    assert!(it.condition("OwnedByAnotherAgent").is_some(), "{}", it.story());

    // An agent that was refused asks again in its next life, and the other one misses the first question.
    it.crash();
    it.docker.faults(|faults| faults.missed_claim = Some(0));
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    assert!(it.condition("OwnedByAnotherAgent").is_some(), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn refused_agent_waits_while_no_volume_can_be_created() {
    let mut it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.docker.set_living(&agent_id(), true);
    it.git.push(&shop("web:2"));
    it.begin();
    minutes(10).await;
    assert!(it.condition("OwnedByAnotherAgent").is_some(), "{}", it.story());

    // The original works on, and could not say so to the next life.
    it.crash();
    it.docker.faults(|faults| faults.has_no_room = true);
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    it.docker.set_living(&agent_id(), false);
    it.docker.faults(|faults| faults.has_no_room = false);
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);

    // An agent that was granted its id goes on.
    it.crash();
    it.docker.faults(|faults| faults.has_no_room = true);
    it.git.push(&shop("web:3"));
    it.begin();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:3"]);
}

#[tokio::test(start_paused = true)]
async fn id_is_claimed_again_after_an_outage_of_the_engine() {
    let it = Simulation::of(&shop("web:1"));
    it.synced_with_tip().await;
    it.docker.disconnect();
    // Another agent with the same id began, which this one could not refuse.
    it.docker.set_living(&agent_id(), true);
    it.git.push(&shop("web:2"));
    minutes(2).await;
    it.docker.reconnect();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    let why = it.condition("OwnedByAnotherAgent").unwrap();
    assert!(why.contains("a state directory of its own"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn recover_takes_over_from_all_agents_that_are_gone() {
    let mut it = Simulation::of(&shop("web:1"));
    let push = |it: &Simulation, image: &str| {
        let other = format!("services: {{web: {{image: '{image}'}}}}\n");
        it.git.push_files("Ada", &[("shop/compose.yaml", &shop(image)), ("aaa/compose.yaml", &other)]);
    };
    push(&it, "web:1");
    it.synced_with_tip().await;
    minutes(2).await;
    it.crash();
    it.store = Store::in_memory(it.clock).unwrap();
    // The one that lives is asked first.
    it.docker.give_app_to(&newcomer(), &AgentId("a-living".into()), true);
    it.docker.give_app_to(&app(), &AgentId("b-gone".into()), false);
    push(&it, "web:2");
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    let refused = it.handle().recover().await.unwrap_err().to_string();
    assert!(refused.contains("a-living") && refused.contains("stop it"), "{refused}");
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
    let running = it.docker.observed(&newcomer()).instances;
    assert!(running.values().all(|instance| instance.config.image == "web:1"), "{}", it.story());
}

/// A web server and a bot without a volume.
fn with_bot(web: &str, bot: &str) -> String {
    format!("services: {{web: {{image: '{web}'}}, bot: {{image: '{bot}'}}}}\n")
}

/// Another agent has made the bot, as after the restoration of a backup.
#[tokio::test(start_paused = true)]
async fn workload_that_another_agent_runs_is_reported_once() {
    for is_living in [true, false] {
        let mut it = Simulation::of(&with_bot("web:1", "bot:1"));
        it.synced_with_tip().await;
        it.crash();
        it.docker.give_workload_to(&app(), &"bot".into(), &old(), is_living);
        it.git.push(&with_bot("web:2", "bot:2"));
        it.begin();
        minutes(20).await;
        assert_eq!(it.images(), ["bot:1", "bot:2", "web:2"], "{}", it.story());
        let status = it.application(&app()).status.clone();
        assert!(status.message.starts_with("OfAnotherAgent: bot is run by "), "{}", status.message);
        // Other containers of that agent are no news.
        let observed = it.docker.observed(&app());
        let theirs = observed.instances.values().find(|instance| instance.agent == old()).unwrap();
        it.hand(&UserAction::Rename { name: theirs.name.clone(), to: "theirs".to_owned() });
        minutes(20).await;
        let status = it.application(&app()).status.clone();
        assert!(status.message.contains("theirs"), "{}", status.message);
        let obstacle = status.obstacle.as_deref().unwrap_or_default();
        assert!(obstacle.starts_with("bot is run by theirs of agent old"), "{obstacle}");
        let events = it.store.events(0, 1000, Some(&app())).unwrap();
        let events: Vec<String> =
            events.into_iter().filter(|it| it.reason == "OwnedByAnotherAgent").map(|it| it.message).collect();
        assert!(matches!(&events[..], [one] if one.contains(" of agent old, ")), "{events:#?}");

        it.docker.set_living(&old(), false);
        it.handle().recover().await.unwrap();
        it.synced_with_tip().await;
        minutes(2).await;
        assert_eq!(it.images(), ["bot:2", "web:2"], "{}", it.story());
        assert_eq!(it.application(&app()).status.message, "", "{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn files_of_running_containers_stay_after_a_loss_of_state() {
    for other_lives in [None, Some(true), Some(false)] {
        let compose =
            |image: &str| format!("services: {{web: {{image: '{image}', volumes: ['./conf:/etc/app']}}}}\n");
        let push = |it: &Simulation, image: &str| {
            it.git
                .push_files("Ada", &[("shop/compose.yaml", &compose(image)), ("shop/conf/app.conf", image)]);
        };
        let mut it = Simulation::prepared("services: {}\n", Clock::starting_at(NOON));
        push(&it, "web:1");
        it.begin();
        it.synced_with_tip().await;
        push(&it, "web:2");
        it.synced_with_tip().await;
        let rollback = Rollback { to: None, reason: "2 is bad".into(), until: Until::Manual };
        it.ask(RequestKind::Rollback(rollback)).await;
        it.until("it is rolled back", |_| it.images() == ["web:1"]).await;
        let file = it.contents.app_folder(&app()).join("conf/app.conf");
        assert_eq!(fs::read_to_string(&file).unwrap(), "web:1");
        match other_lives {
            Some(is_living) => it.lose_state(is_living),
            None => {
                it.crash();
                it.store = Store::in_memory(it.clock).unwrap();
            }
        }
        it.begin();
        minutes(10).await;
        assert_eq!(it.images(), ["web:1"], "{}", it.story());
        assert_eq!(fs::read_to_string(&file).unwrap(), "web:1", "{other_lives:?}");
        if other_lives != Some(true) {
            it.handle().recover().await.unwrap();
            it.synced_with_tip().await;
            assert_eq!(fs::read_to_string(&file).unwrap(), "web:2");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn removed_state_directory_refuses_requests_to_be_kept() {
    let mut it = Simulation::prepared(&shop("web:1"), Clock::starting_at(NOON));
    it.keep_on_disk();
    it.begin();
    it.synced_with_tip().await;
    assert!(it.handle().readiness().state);
    it.remove_state_directory();
    minutes(1).await;
    let readiness = it.handle().readiness();
    assert!(!readiness.state && readiness.message.contains("was removed"), "{readiness:?}");
    let refused = it.handle().request(app(), RequestKind::Suspend).await.unwrap_err();
    assert!(matches!(&refused, RequestError::State(why) if why.contains("was removed")), "{refused}");
    let refused = it.handle().recover().await.unwrap_err();
    assert!(matches!(refused, RequestError::State(_)), "{refused}");
    it.docker.user_action(&app(), &UserAction::Remove { name: "tshop-web-1".into() }).unwrap();
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "drift is repaired");
}
