//! Containers that the engine cannot start any more.

use driftless_model::{Attempt, State};

use crate::stage::{NOON, Stage, stack, workload};

/// Errors of engines about a container that they cannot start any more.
pub(crate) const UNSTARTABLE: [&str; 4] = [
    "task 489c586ddd7d: already exists: unknown",
    "failed to start shim: mkdir /run/docker/7bd0930ac2be: file exists: unknown",
    "id already in use",
    "failed to create shim task: OCI runtime create failed: runc create failed: container with given ID already exists",
];

#[test]
fn container_that_was_never_started_and_cannot_be_is_replaced() {
    for error in UNSTARTABLE {
        let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
        stage.round();
        stage.round();
        let instance = stage.named("shop-web-1");
        instance.state = State::Created;
        let id = instance.id.clone();
        let failed =
            |error: &str| Attempt { count: 1, next: NOON, error: format!("could not start: {error}") };
        stage.record.failures.insert("shop-web-1".to_owned(), failed("no space left on device"));
        let plan = stage.round_cut_short(0, |_| 0);
        assert!(!plan.to_string().contains("remove"), "{plan}");
        stage.record.failures.insert("shop-web-1".to_owned(), failed(error));
        let plan = stage.round();
        assert!(plan.drifts.is_empty(), "nobody made this difference: {plan}");
        let replaced = stage.named("shop-web-1");
        assert!(replaced.id != id && replaced.is_running(), "{error}: {plan}");
    }
}
