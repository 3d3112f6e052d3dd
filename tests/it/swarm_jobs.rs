//! Jobs on a Swarm in memory, under the whole agent: each content of a Job completes once, also with faults.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{Application, HealthStatus};
use driftless_store::Store;
use tokio::time::sleep;

use crate::{
    simulation::{Dice, minutes},
    swarm_simulation::{Cluster, NODES, is_settled, mishap},
};

/// The time that a Job takes.
const WORK: Duration = Duration::from_secs(3);

/// A service that waits for a migration. The number of tasks that run of each image is that of `wanted`.
fn shop(version: u32, failure_action: &str) -> String {
    format!(
        "services:
  web:
    image: web:{version}
    depends_on: {{migrate: {{condition: service_completed_successfully}}}}
    deploy: {{replicas: 2, update_config: {{monitor: 2s, failure_action: {failure_action}}}}}
  migrate: {{image: 'migrate:{version}', restart: on-failure}}
  db: {{image: 'db:1'}}
  each: {{image: 'each:1', deploy: {{mode: global}}}}
"
    )
}

fn job(version: u32) -> String {
    format!(
        "services: {{migrate: {{image: 'migrate:{version}', deploy: {{mode: replicated-job}}, restart: 'no'}}}}"
    )
}

fn cron() -> String {
    "services:
  report: {image: 'report:1', restart: 'no', x-driftless: {schedule: '* * * * *'}}
  web: {image: 'web:1'}
"
    .to_owned()
}

/// Agents of a Swarm whose Jobs complete.
fn cluster(manifest: &str, agents: usize) -> Cluster {
    let all = Cluster::of(manifest, agents);
    all.swarm.faults(|faults| {
        let images = (0..20).map(|version| format!("migrate:{version}"));
        faults.exits.extend(images.chain(["report:1".to_owned()]).map(|image| (image, (WORK, 0))));
    });
    all
}

/// The number of times that each image of the migration has completed.
fn completed(all: &Cluster) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let ended = all.swarm.ended().into_iter().filter(|task| task.exit_code == 0);
    for task in ended.filter(|task| task.service == "shop_migrate") {
        *found.entry(task.image).or_default() += 1;
    }
    found
}

fn once(versions: impl IntoIterator<Item = u32>) -> BTreeMap<String, usize> {
    versions.into_iter().map(|version| (format!("migrate:{version}"), 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn job_of_a_swarm_completes_before_its_dependants() {
    let all = cluster(&shop(1, "pause"), 2);
    all.synced().await;
    assert_eq!(completed(&all), once([1]));
    let story = all.story();
    let place = |name: &str| story.find(&format!("POST /services/create \"{name}\"")).unwrap();
    assert!(place("shop_migrate") < place("shop_web"), "{story}");
    all.first().push(&shop(2, "pause")).await;
    all.synced().await;
    // Each content once, also when it comes back.
    all.first().push(&shop(1, "pause")).await;
    all.synced().await;
    let writes = all.writes();
    minutes(120).await;
    assert_eq!(all.writes(), writes, "{}", all.story());
    assert_eq!(completed(&all), once([1, 2]));
    all.check();
}

#[tokio::test(start_paused = true)]
async fn job_of_a_swarm_completes_once_after_a_kill_at_any_step() {
    for keeps_store in [true, false] {
        for steps in 1..10 {
            let mut all = cluster(&shop(1, "pause"), 1);
            all.synced().await;
            all.first().docker.crash_after(steps);
            all.first().push(&shop(2, "pause")).await;
            // In the middle of the Job, and after it.
            sleep(Duration::from_secs(if steps % 2 == 0 { 2 } else { 60 })).await;
            let agent = &mut all.agents[0];
            agent.crash();
            if !keeps_store {
                agent.store = Store::in_memory(agent.clock).unwrap();
            }
            agent.begin();
            all.synced().await;
            minutes(10).await;
            assert_eq!(completed(&all), once([1, 2]), "after {steps} steps\n{}", all.story());
            all.check();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_managers_run_no_job_twice() {
    for lost in 1..6 {
        let all = cluster(&shop(1, "pause"), 1);
        all.synced().await;
        all.first().docker.faults(|faults| faults.lost_answers = lost);
        all.first().push(&shop(2, "pause")).await;
        all.synced().await;
        minutes(10).await;
        assert_eq!(completed(&all), once([1, 2]), "{lost} answers\n{}", all.story());
    }
}

#[tokio::test(start_paused = true)]
async fn change_of_the_leader_runs_no_job_twice() {
    for seconds in 0..8 {
        let mut all = cluster(&shop(1, "pause"), 3);
        all.synced().await;
        all.first().push(&shop(2, "pause")).await;
        sleep(Duration::from_secs(seconds)).await;
        all.lead("two");
        all.synced().await;
        all.lead("three");
        minutes(10).await;
        all.synced().await;
        assert_eq!(completed(&all), once([1, 2]), "after {seconds} s\n{}", all.story());
        all.check();
    }
}

/// The managers themselves try a task again that has failed for good, as soon as another of them leads.
#[tokio::test(start_paused = true)]
async fn failed_job_stays_failed_with_the_next_leader() {
    let mut all = cluster(&job(1), 3);
    all.swarm.faults(|faults| {
        faults.exits.insert("migrate:1".to_owned(), (WORK, 3));
    });
    let has_failed = |app: &Application| {
        app.status.health == HealthStatus::Degraded && app.status.message.contains("exited with code 3")
    };
    for agent in &all.agents {
        agent.until("it has failed", has_failed).await;
    }
    for leader in ["two", "three", "one"] {
        all.lead(leader);
        minutes(10).await;
        for agent in &all.agents {
            agent.until("it has failed", has_failed).await;
        }
    }
    assert_eq!(completed(&all), BTreeMap::new());
    // The agent then removes it, so that the leader after that has nothing to try.
    let tries = all.swarm.ended().len();
    assert!((1..=2).contains(&tries), "{tries} tries\n{}", all.story());
    // Another content is another Job.
    all.first().push(&job(2)).await;
    for agent in &all.agents {
        agent.until("the next one completes", is_settled).await;
    }
    minutes(10).await;
    assert_eq!(completed(&all), once([2]), "{}", all.story());
    all.check();
}

/// It is a new application then, also to the agents of the other managers.
#[tokio::test(start_paused = true)]
async fn removed_application_of_a_swarm_runs_its_job_when_it_returns() {
    let all = cluster(&job(1), 2);
    all.synced().await;
    minutes(2).await;
    all.first().git.push_files("Ada", &[("README.md", "empty")]);
    minutes(10).await;
    assert_eq!(all.names("services"), Vec::<String>::new(), "{}", all.story());
    assert_eq!(completed(&all), once([1]));
    all.first().git.push(&job(1));
    minutes(10).await;
    all.synced().await;
    assert_eq!(completed(&all), BTreeMap::from([("migrate:1".to_owned(), 2)]), "{}", all.story());
}

#[tokio::test(start_paused = true)]
async fn each_minute_has_one_run_on_all_managers() {
    let mut all = cluster(&cron(), 3);
    all.synced().await;
    minutes(5).await;
    for (leader, seconds) in [("two", 50), ("three", 61), ("one", 65), ("two", 119)] {
        all.lead(leader);
        sleep(Duration::from_secs(seconds)).await;
    }
    all.agents[1].crash();
    all.agents[1].begin();
    minutes(5).await;
    let mut runs: Vec<String> = all.swarm.ended().into_iter().map(|task| task.service).collect();
    let all_runs = runs.len();
    assert!((13..=16).contains(&all_runs), "{runs:?}\n{}", all.story());
    // The name of a run has its minute.
    runs.dedup();
    assert_eq!(runs.len(), all_runs, "{runs:?}\n{}", all.story());
    let left: Vec<String> =
        all.names("services").into_iter().filter(|name| name.starts_with("shop_report")).collect();
    assert!((1..=4).contains(&left.len()), "{left:?}");
    all.check();
}

async fn survive(seed: u64) {
    eprintln!("seed {seed}; to run it alone: SEED={seed}");
    let mut dice = Dice(seed);
    let mut all = cluster(&shop(0, "pause"), NODES.len());
    for _ in 0..25 {
        mishap(&mut all, &mut dice, shop).await;
        sleep(Duration::from_millis(dice.roll(40_000))).await;
    }
    all.repair();
    all.synced().await;
    minutes(6).await;
    let writes = all.writes();
    minutes(30).await;
    assert_eq!(all.writes(), writes, "seed {seed}\n{}", all.story());
    let found = completed(&all);
    assert!(found.values().all(|number| *number == 1), "seed {seed}: {found:?}\n{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_swarm_in_any_order_run_no_job_twice() {
    if let Ok(seed) = std::env::var("SEED") {
        return survive(seed.parse().unwrap()).await;
    }
    for seed in 0..2 {
        survive(seed).await;
    }
}
