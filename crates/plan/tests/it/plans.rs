//! Golden plans: what would be done, round by round, if all went well.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_model::{
    AgentId, Build, Completion, ContainerId, Endpoint, HealthStatus, Mask, Mount, MountSource, NetworkMode,
    Observed, Policy, PullPolicy, Record, Removal, Stack, StackHash, StackHashes, State, SyncStatus, Volume,
};
use driftless_plan as plan;
use driftless_plan::{Action, Target, dry_run};

use crate::fixture::{NOON, Stage, stack, workload};

fn foretold(stack: &Stack, observed: &Observed, record: &Record) -> String {
    foretold_after(None, stack, observed, record)
}

/// The same for an update of what was reached last.
fn foretold_after(reached: Option<&Stack>, stack: &Stack, observed: &Observed, record: &Record) -> String {
    let (mask, images) = (Mask::new([7; 32]), BTreeMap::new());
    let (agent, policy) = (AgentId("ours".to_owned()), Policy::default());
    let (agent, policy, hashes) = (&agent, &policy, &StackHashes::of(stack));
    let target = Target { stack, hashes, reached, agent, policy, images: &images, mask: &mask };
    let rounds = dry_run(&target, observed, record, NOON.after(Duration::from_secs(60)));
    rounds.iter().map(ToString::to_string).collect::<Vec<_>>().join("--\n")
}

fn reached(stack: Stack) -> Stage {
    let mut stage = Stage::new(stack);
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(10));
    }
    stage
}

/// The differences of the live objects from a stack, one line for each field.
fn live_differences(stage: &Stage, stack: &Stack) -> Vec<String> {
    let (mask, images) = (Mask::new([7; 32]), BTreeMap::new());
    let (agent, policy, hashes) = (&stage.agent, &stage.policy, &StackHashes::of(stack));
    let target = Target { stack, hashes, reached: None, agent, policy, images: &images, mask: &mask };
    let all = plan::compare_live(&target, &stage.world.observed, &stage.record).into_iter();
    let lines = all.flat_map(|object| {
        let name = format!("{} {}", object.kind, object.name);
        object.fields.into_iter().map(move |it| format!("{name} {} {} -> {}", it.field, it.found, it.want))
    });
    lines.collect()
}

/// As a tool leaves it that recreates containers: it stops the old one, and starts a copy with a change.
#[test]
fn stopped_container_starts_after_its_copy_is_removed() {
    let exited = State::Exited { code: 0, finished: NOON, out_of_memory: false, error: String::new() };
    let is_start =
        |action: &Action| matches!(action, Action::StartInstance { .. } | Action::UnpauseInstance { .. });
    for state in [exited, State::Paused] {
        let mut stage = reached(stack([("db", workload("db:1", 1))]));
        let now = stage.now;
        let old = stage.named("shop-db-1");
        let mut copy = old.clone();
        (old.state, old.touched_by_hand) = (state, Some(now));
        (copy.id, copy.name) = (ContainerId("f".repeat(64)), "copy".to_owned());
        Arc::make_mut(&mut copy.config).env.insert("TZ".into(), Some("UTC".into()));
        stage.world.observed.instances.insert(copy.id.clone(), copy);
        let plan = stage.round();
        let removal = plan.steps.iter().position(|step| matches!(step.action, Action::RemoveInstance { .. }));
        let start = plan.steps.iter().find(|step| is_start(&step.action)).unwrap();
        assert!(start.after.contains(&removal.unwrap()), "{plan}");
    }
}

/// Neither the version before nor the one that is held back asks for an instance of the older one.
#[test]
fn paused_rollout_starts_nothing_that_had_no_instances() {
    let parked = |image: &str, replicas: u32| {
        stack([("api", workload("api:1", 1)), ("worker", workload(image, replicas))])
    };
    let mut stage = reached(parked("worker:1", 0));
    stage.record.paused.insert("worker".into());
    stage.stack = parked("worker:2", 1);
    for _ in 0..5 {
        stage.round();
        stage.tick(Duration::from_secs(10));
    }
    let images = |stage: &Stage| -> Vec<String> {
        let instances = stage.world.observed.instances.values();
        instances.map(|instance| instance.config.image.clone()).collect()
    };
    assert_eq!(images(&stage), ["api:1"]);
    stage.record.paused.clear();
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(10));
    }
    assert_eq!(images(&stage).len(), 2);
    assert!(images(&stage).contains(&"worker:2".to_owned()));
}

#[test]
fn changed_volume_differs_in_its_fields() {
    let with = |key: &str, device: &str| {
        let mut all = stack([("web", workload("web:1", 1))]);
        let options = [("device", device), ("o", "username=me,password=hunter2")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let volume = Volume { key: key.to_owned(), options: options.into(), ..Volume::default() };
        all.volumes.insert("shop_data".to_owned(), volume);
        all
    };
    let stage = reached(with("data", "/a"));
    assert_eq!(live_differences(&stage, &with("data", "/a")), [""; 0]);
    assert_eq!(live_differences(&stage, &with("other", "/a")), [""; 0], "its key is nothing of the volume");
    assert_eq!(live_differences(&stage, &with("data", "/b")), ["volume shop_data options.device /a -> /b"]);
}

/// The pulls and builds of each round of a rollout, by image.
fn obtained(stage: &mut Stage) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let round = stage.round();
        for step in &round.steps {
            match &step.action {
                Action::PullImage { image, .. } => all.push(format!("pull {image}")),
                Action::BuildImage { image, .. } => all.push(format!("build {image}")),
                _ => {}
            }
        }
        if round.is_settled() {
            return all;
        }
        stage.tick(Duration::from_secs(10));
    }
}

#[test]
fn mounted_images_are_pulled_by_their_own_policy() {
    let with = |policy: PullPolicy| {
        let mut web = workload("web:1", 1);
        let source = MountSource::Image("site:1".to_owned());
        web.container.mounts = vec![Mount { target: "/site".to_owned(), source, read_only: true }];
        web.pull = PullPolicy::Always;
        web.mounted_pulls = BTreeMap::from([("site:1".to_owned(), policy)]);
        web
    };
    for (policy, again) in [
        (PullPolicy::IfNotPresent, vec!["pull web:1"]),
        (PullPolicy::Always, vec!["pull web:1", "pull site:1"]),
    ] {
        let mut stage = Stage::new(stack([("web", with(policy))]));
        assert_eq!(obtained(&mut stage), ["pull web:1", "pull site:1"]);
        stage.stack.workloads.get_mut(&"web".into()).unwrap().container.user = Some("1000".to_owned());
        assert_eq!(obtained(&mut stage), again, "{policy:?}");
    }
    let mut stage = Stage::new(stack([("web", with(PullPolicy::Never))]));
    let plan = stage.round();
    assert!(plan.waits.iter().any(|wait| wait.to_string().contains("site:1")), "{plan}");
}

#[test]
fn mounted_image_that_is_built_is_never_pulled() {
    let mut app = workload("app:content", 1);
    app.build = Some(Build { context: "app".to_owned(), digest: "content".to_owned(), ..Build::default() });
    let mut web = workload("web:1", 1);
    let source = MountSource::Image("app:content".to_owned());
    web.container.mounts = vec![Mount { target: "/app".to_owned(), source, read_only: true }];
    let mut stage = Stage::new(stack([("app", app), ("web", web)]));
    assert_eq!(obtained(&mut stage), ["build app:content", "pull web:1"]);
}

#[test]
fn a_first_deployment_is_one_round() {
    let wanted = stack([("web", workload("web:1", 2))]);
    insta::assert_snapshot!(foretold(&wanted, &Observed::default(), &Record::default()), @r"
    0: pull web:1 (missing)
    1: create shop-web-1 from web:1 at 99f7206b (missing) after [0]
    2: start shop-web-1 (missing) after [1]
    3: create shop-web-2 from web:1 at 99f7206b (missing) after [0]
    4: start shop-web-2 (missing) after [3]
    wait: web has 0 of 2 available
    ");
}

#[test]
fn an_update_surges_by_one_and_never_dips() {
    let stage = reached(stack([("web", workload("web:1", 2))]));
    let wanted = stack([("web", workload("web:2", 2))]);
    insta::assert_snapshot!(foretold(&wanted, &stage.world.observed, &stage.record), @r"
    0: pull web:2 (missing)
    1: create shop-web-3 from web:2 at 20fdd61b (spec changed) after [0]
    2: start shop-web-3 (spec changed) after [1]
    wait: web has 0 of 2 new instances available (2 old ones are available)
    --
    0: stop shop-web-1 (spec changed)
    1: remove shop-web-1 (spec changed) after [0]
    2: create shop-web-1 from web:2 at 20fdd61b (spec changed) after [1]
    3: start shop-web-1 (spec changed) after [2]
    wait: web has 1 of 2 new instances available (2 old ones are available)
    --
    0: stop shop-web-2 (spec changed)
    1: remove shop-web-2 (spec changed) after [0]
    wait: web waits for 1 old instance to stop
    ");
}

#[test]
fn reached_state_needs_no_step() {
    let stage = reached(stack([("web", workload("web:1", 2))]));
    assert_eq!(foretold(&stage.stack, &stage.world.observed, &stage.record), "");
}

#[test]
fn dropped_workload_is_removed_once_the_new_one_can_start() {
    let stage = reached(stack([("old", workload("old:1", 1))]));
    let wanted = stack([("new", workload("new:1", 1))]);
    insta::assert_snapshot!(foretold(&wanted, &stage.world.observed, &stage.record), @r"
    0: pull new:1 (missing)
    1: stop shop-old-1 (not in Git) after [0]
    2: remove shop-old-1 (not in Git) after [1]
    3: create shop-new-1 from new:1 at 327f84c1 (missing) after [0]
    4: start shop-new-1 (missing) after [3]
    wait: new has 0 of 1 available
    ");
}

#[test]
fn removing_most_workloads_waits_for_confirmation() {
    let of = |names: &[&'static str]| stack(names.iter().map(|it| (*it, workload("app:1", 1))));
    let mut stage = reached(of(&["a", "b", "c", "d", "e", "f"]));
    let removed = |stage: &Stage, wanted: &Stack| {
        foretold(wanted, &stage.world.observed, &stage.record).matches(": remove ").count()
    };
    let cut = of(&["a"]);
    insta::assert_snapshot!(foretold(&cut, &stage.world.observed, &stage.record), @"wait: this commit removes 5 of 6 workloads (b, c, d, e, f), more than maxPrunePercent (50 %): confirm with `driftless sync shop --prune`, or restore them in Git");
    // The same stack, confirmed; another is not.
    stage.record.prune = Some(StackHash::of(&cut));
    assert_eq!(removed(&stage, &cut), 5);
    assert_eq!(removed(&stage, &of(&["f"])), 0);
    stage.record.prune = None;
    // Half of it, or a new name for everything, is no accident.
    assert_eq!(removed(&stage, &of(&["a", "b", "c", "g", "h"])), 3);
    assert_eq!(removed(&stage, &of(&["g", "h", "i", "j", "k", "l"])), 6);
    assert_eq!(removed(&stage, &of(&["a", "b"])), 0);
    // Nor is what has ended, or what is little.
    let now = stage.now;
    for name in ["shop-b-1", "shop-c-1"] {
        let ended = State::Exited { code: 0, finished: now, out_of_memory: false, error: String::new() };
        stage.named(name).state = ended;
    }
    assert_eq!(removed(&stage, &of(&["a"])), 5);
    // A container that was paused, or stopped together with the host, has not ended.
    let mut down = reached(of(&["a", "b", "c", "d", "e", "f"]));
    down.now = down.now.after(Duration::from_secs(60));
    for it in down.world.observed.instances.values_mut() {
        it.state = State::Exited { code: 137, finished: now, out_of_memory: false, error: String::new() };
    }
    down.world.observed.engine_started = Some(down.now);
    down.named("shop-b-1").state = State::Paused;
    assert_eq!(removed(&down, &of(&["a"])), 0);
    // The limit is the policy's.
    let (mut stage, cut) = (reached(of(&["a", "b", "c", "d", "e", "f"])), of(&["a"]));
    stage.stack = cut;
    for (limit, steps) in [(82, true), (84, false)] {
        stage.policy.max_prune_percent = limit;
        let plan = stage.round();
        let held = plan.waits.iter().any(|it| it.is(plan::WaitReason::PruneHeld));
        assert_eq!((held, plan.steps.is_empty()), (steps, steps), "{limit}: {plan}");
    }
}

#[test]
fn commit_without_any_workload_waits_for_confirmation() {
    let names = ["a", "b", "c", "d"];
    let stage = reached(stack(names.map(|name| (name, workload("app:1", 1)))));
    let none = stack([]);
    let removed =
        |record: &Record| foretold(&none, &stage.world.observed, record).matches(": remove ").count();
    let held = foretold(&none, &stage.world.observed, &stage.record);
    assert!(held.contains("this commit removes 4 of 4 workloads (a, b, c, d)"), "{held}");
    assert_eq!(removed(&stage.record), 0);
    // Confirmed, or removed as a whole.
    let confirmed = Record { prune: Some(StackHash::of(&none)), ..stage.record.clone() };
    let left = Record { has_left: true, ..stage.record.clone() };
    let asked = Record { removal: Some(Removal::KeepVolumes), ..stage.record.clone() };
    for record in [confirmed, left, asked] {
        assert_eq!(removed(&record), 4);
    }
}

/// Without a network, on the host's or on the default bridge: the engine says so of each container, and gives these
/// networks ids, but nobody ever lists them as wanted.
#[test]
fn ended_container_on_an_engine_network_is_not_disconnected() {
    for (network, mode) in
        [("none", NetworkMode::None), ("host", NetworkMode::Host), ("bridge", NetworkMode::Bridge)]
    {
        let mut job = workload("job:1", 1);
        job.completion = Completion::OnSuccess;
        job.container.network_mode = mode;
        let mut stage = reached(stack([("job", job)]));
        let now = stage.now;
        let instance = stage.named("shop-job-1");
        let endpoint = Endpoint { network_id: "a082ae7a7959".to_owned(), ..Endpoint::default() };
        instance.networks.insert(network.to_owned(), endpoint);
        instance.state = State::Exited { code: 0, finished: now, out_of_memory: false, error: String::new() };
        let plan = stage.round();
        assert!(plan.is_settled(), "{network}: {plan}");
    }
}

/// While an application is suspended, its record has the size of the rollout that waits.
#[test]
fn update_of_a_suspended_application_is_foretold_to_its_end() {
    for replicas in [1, 2] {
        let before = stack([("web", workload("web:1", replicas))]);
        let mut stage = reached(before.clone());
        stage.policy.suspended = true;
        stage.stack = stack([("web", workload("web:2", replicas))]);
        for _ in 0..3 {
            stage.round();
            stage.tick(Duration::from_secs(10));
        }
        let foretold = foretold_after(Some(&before), &stage.stack, &stage.world.observed, &stage.record);
        let rounds: Vec<&str> = foretold.split("--\n").collect();
        assert!(rounds.len() <= 4, "{foretold}");
        assert!(!foretold.contains("from web:1"), "{foretold}");
    }
}

/// Nobody knows here whether that agent is gone, so its container stays, and that both run is said.
#[test]
fn workload_that_another_agent_runs_as_well_is_reported() {
    let mut stage = reached(stack([("bot", workload("bot:1", 1)), ("web", workload("web:1", 1))]));
    let mut theirs = stage.named("shop-bot-1").clone();
    (theirs.id, theirs.name) = (ContainerId("f".repeat(64)), "theirs".to_owned());
    (theirs.instance.slot, theirs.agent) = (9, "0123456789abcdef".into());
    let id = theirs.id.clone();
    stage.world.observed.instances.insert(id.clone(), theirs);
    // Also when the deadline of a rollout is over.
    for _ in 0..2 {
        let plan = stage.round();
        assert!(plan.is_settled(), "{plan}");
        let wait = plan.waits.iter().find(|wait| wait.is(plan::WaitReason::OfAnotherAgent)).unwrap();
        let text = wait.to_string();
        assert!(text.starts_with("bot is run by theirs of agent 0123456789ab, "), "{text}");
        assert!(text.contains("`driftless recover`"), "{text}");
        let status = stage.assess(&plan);
        assert_eq!((status.sync, status.health), (SyncStatus::OutOfSync, HealthStatus::Degraded));
        assert_eq!(status.message, format!("OfAnotherAgent: {text}"));
        stage.tick(Duration::from_hours(1));
    }

    // The agent goes on with its own.
    stage.stack.workloads.get_mut(&"bot".into()).unwrap().container.image = "bot:2".to_owned();
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(10));
    }
    let bots = stage.world.observed.instances.values().filter(|it| it.instance.workload == "bot".into());
    let mut images: Vec<&str> = bots.map(|it| it.config.image.as_str()).collect();
    images.sort_unstable();
    assert_eq!(images, ["bot:1", "bot:2"]);

    stage.world.observed.instances.remove(&id);
    let plan = stage.round();
    assert!(plan.waits.is_empty(), "{plan}");
    assert_eq!(stage.assess(&plan).sync, SyncStatus::Synced);
}
