//! Containers that keep exiting by themselves: the status says why, and nobody is blamed.

use std::time::Duration;

use driftless_model::{Application, ConditionStatus};

use crate::simulation::{Simulation, minutes};

const COMPOSE: &str = "
services:
  web:
    image: web:1
    restart: always
    environment: {DB_PASSWORD: geheim4711}
";

#[tokio::test(start_paused = true)]
async fn crash_loop_is_shown_with_code_output_and_next_try() {
    let it = Simulation::of(COMPOSE);
    it.docker.faults(|faults| {
        faults.exits.insert("web:1".into(), (Duration::from_secs(1), 3));
        faults.outputs.insert("web:1".into(), "starting\ncannot log in with geheim4711".into());
    });
    let is_looping = |it: &Application| it.status.waits.iter().any(|wait| wait.reason == "CrashLoopBackOff");
    let found = it.until("it is a crash loop", is_looping).await;
    for text in [&found.status.waits[0].message, &found.status.message] {
        assert!(
            text.contains("exited with code 3: last output `starting | cannot log in with ••••"),
            "{text}"
        );
    }
    assert!(found.status.waits[0].message.contains("next try"));
    // The sentence about the failed commit is kept, so it names no time.
    assert!(!found.status.message.contains("next try"), "{}", found.status.message);
    minutes(12).await;
    let found = it.until("it is a crash loop", is_looping).await;
    let is_fight = |it: &Application| {
        let conditions = it.status.conditions.iter();
        conditions.filter(|it| it.kind == "RepeatedDrift").any(|it| it.status == ConditionStatus::True)
    };
    assert!(!is_fight(&found) && found.status.drift.is_empty(), "{:#?}", found.status);
    assert!(!serde_json::to_string(&*found).unwrap().contains("geheim4711"));
}
