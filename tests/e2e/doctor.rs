//! `driftless doctor` with a real engine.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

#[tokio::test]
async fn doctor_finds_a_real_engine_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(["doctor", "/srv/none/infra.git", "-o", "json", "--state-dir"]).arg(&state);
    let output = command.output().unwrap();
    let checks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let checks: BTreeMap<&str, &Value> =
        checks.iter().map(|check| (check["name"].as_str().unwrap(), check)).collect();
    let engine = checks["engine"];
    assert!(engine["result"] == "ok" && engine["message"].as_str().unwrap().contains("(API 1."), "{engine}");
    assert!(checks["storage driver"]["message"].as_str().unwrap().contains(" in /"), "{checks:?}");
    assert_eq!(checks["clock"]["result"], "ok", "{checks:?}");
    assert_ne!(checks["other agents"]["result"], "fail", "{checks:?}");
    assert_eq!(output.status.code(), Some(1), "the repository does not exist");
}
