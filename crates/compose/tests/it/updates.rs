//! `deploy.update_config`, `deploy.rollback_config` and `x-driftless.ignore-differences`: what is read, and what is an error.

use std::time::Duration;

use driftless_files::{MemoryFiles, Rendered};
use driftless_manifest::{discover, render};
use driftless_model::{
    Completion, EngineKind, FailureAction, FailureRule, RestartPolicy, Strategy, Workload,
};

fn render_deploy(deploy: &str) -> Rendered {
    let text = format!("services:\n  web:\n    image: a\n    deploy: {deploy}\n");
    let files = MemoryFiles::new([("compose.yaml", text.as_str())]);
    render(&files, &discover(&files, "", "repository", &[]).apps[0])
}

fn web(deploy: &str) -> Workload {
    let rendered = render_deploy(deploy);
    assert!(rendered.findings.is_empty(), "{:?}", rendered.findings);
    rendered.stack.unwrap().workloads.remove(&"web".into()).unwrap()
}

fn rolling(max_surge: u32, max_unavailable: u32) -> Strategy {
    Strategy::RollingUpdate { max_surge, max_unavailable }
}

#[test]
fn restart_takes_the_words_of_a_restart_policy() {
    for (word, expected) in [
        ("'no'", RestartPolicy::No),
        ("none", RestartPolicy::No),
        ("any", RestartPolicy::Always),
        ("always", RestartPolicy::Always),
    ] {
        let files = MemoryFiles::new([(
            "compose.yaml",
            format!("services: {{web: {{image: a, restart: {word}}}}}").as_str(),
        )]);
        let rendered = render(&files, &discover(&files, "", "repository", &[]).apps[0]);
        assert_eq!(rendered.findings, [], "{word}");
        assert_eq!(rendered.stack.unwrap().workloads[&"web".into()].container.restart, expected, "{word}");
    }
}

/// Docker Compose restarts neither, and a Swarm both.
#[test]
fn restart_policy_without_condition_depends_on_its_limit() {
    let rendered = |policy: &str, engine: EngineKind| {
        let text = format!("services: {{web: {{image: a, deploy: {{restart_policy: {policy}}}}}}}");
        let files = MemoryFiles::new([("compose.yaml", text.as_str())]);
        let mut app = discover(&files, "", "repository", &[]).apps.remove(0);
        app.engine = engine;
        render(&files, &app)
    };
    let web = |rendered: Rendered| rendered.stack.unwrap().workloads.remove(&"web".into()).unwrap();
    let ends = (RestartPolicy::No, Completion::OnSuccess);
    let stays = (RestartPolicy::Always, Completion::Never);
    let (never, always) = ("so the container is not restarted", "so the container is always restarted");
    for (policy, expected, warning) in [
        ("{max_attempts: 3}", ends, never),
        ("{condition: '', max_attempts: 3}", ends, never),
        ("{condition: ''}", stays, always),
        ("{max_attempts: 0}", stays, always),
    ] {
        let found = rendered(policy, EngineKind::Docker);
        assert_eq!(found.findings.len(), 1, "{policy}: {:?}", found.findings);
        assert!(found.findings[0].message.contains(warning), "{policy}: {:?}", found.findings);
        let found = web(found);
        assert_eq!((found.container.restart, found.completion), expected, "{policy}");
        let found = rendered(policy, EngineKind::Swarm);
        assert!(found.findings.is_empty(), "{:?}", found.findings);
        assert_eq!(web(found).container.restart, RestartPolicy::Always);
    }
    let found = rendered("{delay: 5s, window: 2m}", EngineKind::Docker);
    assert_eq!(web(found).container.restart, RestartPolicy::Always);
    let found = rendered("{condition: any}", EngineKind::Docker);
    assert!(found.findings.is_empty());
    assert_eq!(web(found).container.restart, RestartPolicy::Always);
}

#[test]
fn failure_rules_of_updates_are_read() {
    for (word, action) in [
        ("pause", FailureAction::Pause),
        ("continue", FailureAction::Continue),
        ("rollback", FailureAction::Rollback),
    ] {
        let found = web(&format!("{{update_config: {{failure_action: {word}}}}}"));
        assert_eq!(found.failure, FailureRule { action: Some(action), max_ratio: None }, "{word}");
        assert_eq!(found.min_ready, Duration::from_secs(5), "the monitor of Swarm");
    }
    let found = web("{update_config: {max_failure_ratio: 0.25, monitor: 20s, delay: 30s}}");
    assert_eq!(found.failure, FailureRule { action: None, max_ratio: Some(250_000) });
    assert_eq!(found.min_ready, Duration::from_secs(30));
    let plain = web("{update_config: {parallelism: 2}}");
    assert_eq!((plain.failure, plain.min_ready), (FailureRule::default(), Duration::ZERO));
    assert!(plain.rollback.is_none());
}

#[test]
fn rollback_config_replaces_update_config_in_a_rollback() {
    let rollback =
        "{order: stop-first, parallelism: 0, monitor: 9s, failure_action: continue, max_failure_ratio: 1}";
    let deploy = format!(
        "{{replicas: 3, update_config: {{parallelism: 2, failure_action: rollback}}, rollback_config: {rollback}}}"
    );
    let stack = render_deploy(&deploy).stack.unwrap();
    let before = &stack.workloads[&"web".into()];
    assert_eq!((before.strategy, before.failure.action), (rolling(2, 0), Some(FailureAction::Rollback)));
    let back = stack.clone().for_rollback();
    let after = &back.workloads[&"web".into()];
    let rule = FailureRule { action: Some(FailureAction::Continue), max_ratio: Some(1_000_000) };
    assert_eq!(
        (after.strategy, after.min_ready, after.failure),
        (rolling(0, 3), Duration::from_secs(9), rule)
    );
    assert_eq!(after.spec(), before.spec(), "no container is replaced because of it");
    assert_eq!(back.clone().for_rollback(), back);
    let without = render_deploy("{update_config: {parallelism: 2}}").stack.unwrap();
    assert_eq!(without.clone().for_rollback(), without);
}

#[test]
fn wrong_failure_rules_are_errors_at_their_location() {
    for (deploy, expected) in [
        (
            "{update_config: {failure_action: explode}}",
            "is not a failure action; use `pause`, `continue` or `rollback`",
        ),
        (
            "{rollback_config: {failure_action: rollback}}",
            "a rollback that fails does not go back any further; use `pause` or `continue`",
        ),
        ("{rollback_config: {failure_action: stop}}", "is not a failure action; use `pause` or `continue`"),
        (
            "{update_config: {max_failure_ratio: 1.5}}",
            "is not a share of the instances; use a number from 0 to 1, such as `0.25`",
        ),
        (
            "{update_config: {max_failure_ratio: -0.1}}",
            "is not a share of the instances; use a number from 0 to 1, such as `0.25`",
        ),
        (
            "{update_config: {max_failure_ratio: .nan}}",
            "is not a share of the instances; use a number from 0 to 1, such as `0.25`",
        ),
    ] {
        let rendered = render_deploy(deploy);
        let found: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
        assert!(found.len() == 1 && found[0].contains(expected), "{deploy}: {found:?}");
        assert!(found[0].starts_with("compose.yaml:4:"), "{found:?}");
        assert!(rendered.stack.is_none(), "{deploy}");
    }
}

#[test]
fn ignored_differences_of_a_service_are_read() {
    let render_text = |fields: &str| {
        let text =
            format!("services:\n  web:\n    image: a\n    x-driftless: {{ignore-differences: {fields}}}\n");
        let files = MemoryFiles::new([("compose.yaml", text.as_str())]);
        render(&files, &discover(&files, "", "repository", &[]).apps[0])
    };
    let fields = |text: &str| {
        let stack = render_text(text).stack.unwrap_or_else(|| panic!("{:?}", render_text(text).findings));
        stack.workloads[&"web".into()].ignore_differences.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(fields("[restart, resources.memory]"), ["resources.memory", "restart"]);
    assert_eq!(fields("networks.a"), ["networks.a"]);
    let wrong = render_text("[restart, env.PORT]");
    let found = wrong.findings[0].to_string();
    assert!(found.starts_with("compose.yaml:4:") && found.contains("`env.PORT` is not a field"), "{found}");
    assert!(wrong.stack.is_none());
}

#[test]
fn canary_of_a_service_is_read_and_checked_at_its_place() {
    let render_text = |rest: &str| {
        let files =
            MemoryFiles::new([("compose.yaml", &*format!("services:\n  web:\n    image: a\n{rest}"))]);
        render(&files, &discover(&files, "", "repository", &[]).apps[0])
    };
    let steps = |rest: &str| {
        let stack = render_text(rest).stack.unwrap_or_else(|| panic!("{:?}", render_text(rest).findings));
        stack.workloads[&"web".into()].canary.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let five = "    deploy: {replicas: 5}\n    x-driftless: {canary: ";
    assert_eq!(steps(&format!("{five}[20% for 10m, 3]}}\n")), ["20% for 600s", "3"]);
    assert_eq!(steps(&format!("{five}50%}}\n")), ["50%"]);
    for (rest, place, message) in [
        (format!("{five}[20%, half]}}\n"), "compose.yaml:5:33", "`half` is no step of a canary"),
        (format!("{five}['5']}}\n"), "compose.yaml:2:3", "the canary step `5` is no share of 5 instances"),
        ("    x-driftless: {canary: 20%}\n".to_owned(), "compose.yaml:2:3", "needs at least 2 instances"),
        (
            "    restart: 'no'\n    x-driftless: {hook: PreSync, canary: 20%}\n".to_owned(),
            "compose.yaml:5:25",
            "remove `x-driftless.canary`",
        ),
    ] {
        let rendered = render_text(&rest);
        let found: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|it| it.starts_with(place) && it.contains(message)), "{rest}\n{found:?}");
        assert!(rendered.stack.is_none(), "{rest}");
    }
}
