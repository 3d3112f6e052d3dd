//! The status and the answers name only what was done: steps of the last plan, and refused requests.

use axum::body::Body;
use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_web::{Access, router};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    sample::NOON,
    simulation::{Simulation, app},
};

/// Two services that start in one round, and one that waits for both.
const SHOP: &str = "services:\n  cache:\n    image: cache:1\n  db:\n    image: db:1\n  web:\n    image: web:1\n    depends_on: [cache, db]\n";

#[tokio::test(start_paused = true)]
async fn last_plan_marks_the_steps_that_were_not_done() {
    let mut it = Simulation::prepared(SHOP, Clock::starting_at(NOON));
    it.docker.faults(|faults| faults.failing_starts = Some((1, "no room for it".to_owned())));
    it.begin();
    let has_failed = |step: &String| step.contains(": failed: ");
    let failed = it.until("a step has failed", |shop| shop.status.last_plan.iter().any(has_failed)).await;
    let steps = failed.status.last_plan.as_ref();
    let failures: Vec<&String> = steps.iter().filter(|step| has_failed(step)).collect();
    assert_eq!(failures.len(), 1, "{steps:?}");
    assert!(failures[0].contains("no room for it"), "{steps:?}");
    let story = it.story();
    let done: Vec<&String> =
        steps.iter().filter(|step| !has_failed(step) && !step.ends_with(": not done")).collect();
    assert!(!done.is_empty(), "{steps:?}");
    for step in done {
        let container = step.split_whitespace().nth(1).unwrap_or_default();
        assert!(story.contains(container), "`{step}` is listed as done:\n{story}");
    }
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn resume_of_a_followed_application_is_refused() {
    let it = Simulation::of(SHOP);
    it.synced_with_tip().await;
    let router = router(it.handle(), it.store.clone(), Access::loopback());
    let resume = || async {
        let request = Request::post(format!("/api/v1/applications/{}/resume", app()));
        let request = request.header("host", "localhost").body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, body) = resume().await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    assert_eq!(body["error"]["code"], "refused");
    assert_eq!(
        body["error"]["message"],
        "shop is neither pinned nor suspended, and no commit of it failed; it follows Git"
    );
    it.ask(RequestKind::Suspend).await;
    assert_eq!(resume().await.0, StatusCode::ACCEPTED);
    assert_eq!(resume().await.0, StatusCode::CONFLICT);
}
