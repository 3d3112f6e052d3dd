//! Jobs that somebody deletes, on the simulated engine: a run that hangs is over, and a Job of Git is run again.

use std::time::Duration;

use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_model::{Application, HealthStatus, Observed, SyncStatus};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

fn count(observed: &Observed, image: &str) -> usize {
    observed.containers().filter(|container| container.config.image == image).count()
}

/// The number of containers of this image that were created.
fn created(it: &Simulation, image: &str) -> usize {
    let transcript = it.docker.transcript();
    transcript.iter().filter(|entry| count(&entry.after, image) > count(&entry.before, image)).count()
}

/// The workloads of the containers of this image.
fn workloads(it: &Simulation, image: &str) -> Vec<String> {
    let observed = it.docker.observed(&app());
    let of_image = observed.containers().filter(|container| container.config.image == image);
    of_image.map(|container| container.instance.workload.to_string()).collect()
}

fn has_skipped(application: &Application) -> bool {
    application.status.waits.iter().any(|wait| wait.reason == "RunSkipped")
}

#[tokio::test(start_paused = true)]
async fn deleted_run_lets_the_next_one_begin() {
    let it = Simulation::of(
        "services:
  web: {image: 'web:1'}
  bill: {image: 'long:1', x-driftless: {schedule: {cron: '0 * * * *', concurrency: Forbid}}}
",
    );
    it.synced_with_tip().await;
    minutes(185).await;
    assert_eq!(created(&it, "long:1"), 1, "{}", it.story());
    it.until("the skipped times are reported", has_skipped).await;
    let hung = workloads(&it, "long:1");
    let name = hung.first().unwrap().as_str();
    it.ask(RequestKind::DeleteJob(name.into())).await;
    minutes(5).await;
    let next = workloads(&it, "long:1");
    assert!(next.len() == 1 && next != hung, "{next:?}\n{}", it.story());
    it.until("no time is skipped any more", |application| !has_skipped(application)).await;
    assert_eq!(it.refusal(RequestKind::DeleteJob(name.into())).await, format!("shop has no Job `{name}`"));
    assert_eq!(it.refusal(RequestKind::DeleteJob("web".into())).await, "shop has no Job `web`");
}

#[tokio::test(start_paused = true)]
async fn deleted_job_of_git_is_run_again_once() {
    let it = Simulation::prepared("services: {}\n", Clock::starting_at(NOON));
    it.docker.faults(|faults| {
        faults.exits.insert("job:1".to_owned(), (Duration::from_secs(2), 0));
    });
    let job = "apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: 'job:1'}]}}
";
    it.git.push_files("Ada <a@b.c>", &[("shop/job.yaml", job)]);
    let it = it.begun();
    it.synced_with_tip().await;
    minutes(60).await;
    assert_eq!(created(&it, "job:1"), 1, "{}", it.story());
    let name = workloads(&it, "job:1").remove(0);
    for times in [2, 3] {
        it.ask(RequestKind::DeleteJob(name.as_str().into())).await;
        minutes(60).await;
        assert_eq!(created(&it, "job:1"), times, "{}", it.story());
        let is_well = |now: &Application| {
            now.status.sync == SyncStatus::Synced && now.status.health == HealthStatus::Healthy
        };
        it.until("it is complete", is_well).await;
    }
}
