//! A Swarm explained to people: the differences object by object, and the rounds that would follow.

use driftless_model::{Network, Record, SwarmFile};
use driftless_plan::{compare_live, describe_steps, dry_run};
use serde_json::json;

use super::{Adopt, Cluster, SAME, change, shop, stack_with_files};

/// `kind name: change`, then the fields from the live value to that of Git.
pub(super) fn differences(cluster: &Cluster) -> Vec<String> {
    let mut lines = Vec::new();
    let observed = cluster.seen();
    cluster.with_target(|target| {
        for it in compare_live(target, &observed, &cluster.record) {
            lines.push(format!("{} {}: {:?}", it.kind, it.name, it.change));
            lines.extend(it.fields.iter().map(|it| format!("  {} {} -> {}", it.field, it.found, it.want)));
        }
    });
    lines
}

/// The rounds of a dry run, as `driftless plan` prints them.
pub(super) fn rounds(cluster: &Cluster) -> Vec<Vec<String>> {
    let mut rounds = Vec::new();
    let observed = cluster.seen();
    cluster.with_target(|target| {
        let plans = dry_run(target, &observed, &cluster.record, cluster.now);
        let steps =
            |plan: &driftless_plan::Plan| describe_steps(&plan.steps, target, &observed, &cluster.record);
        rounds = plans.iter().map(steps).filter(|steps| !steps.is_empty()).collect();
    });
    rounds
}

#[test]
fn dry_run_shows_the_rounds_of_a_first_deployment() {
    let mut cluster = shop();
    let file = SwarmFile { target: "/a".to_owned(), name: "shop_a_1".to_owned(), ..SwarmFile::default() };
    cluster.stack.swarm.get_mut(&"db".into()).unwrap().files.push(file);
    cluster.stack.networks.insert("shop_back".to_owned(), Network::default());
    let shown = rounds(&cluster);
    assert_eq!(
        shown,
        [
            vec![
                "create network shop_back (missing)",
                "create config shop_a_1 (missing)",
                "find the digest of db:1 (missing)",
                "find the digest of web:1 (missing)",
            ],
            vec!["create service shop_db from db:1 (missing)"],
            vec!["create service shop_web from web:1 (missing)"],
        ]
    );
    // It is the work of the real rounds.
    assert_eq!(cluster.settle().len(), shown.concat().len());
    assert_eq!(rounds(&cluster), Vec::<Vec<String>>::new());
    assert_eq!(differences(&cluster), Vec::<String>::new());
}

#[test]
fn dry_run_names_the_fields_of_an_update() {
    let mut cluster = shop();
    cluster.settle();
    change(&mut cluster, "web", "web:2");
    assert_eq!(
        rounds(&cluster),
        [
            vec!["find the digest of web:2 (missing)"],
            vec![
                "update service shop_web (spec changed: Labels.com.docker.stack.image, Image web:1@sha256:1 -> web:2)"
            ],
        ]
    );
    let standby = cluster.swarm.nodes.get_mut("n1").unwrap();
    standby.is_leader = false;
    assert_eq!(rounds(&cluster).len(), 2, "a manager that does not lead shows the same steps");
}

#[test]
fn dry_run_of_an_adoption_names_the_changed_fields_only() {
    let mut cluster = stack_with_files(SAME);
    cluster.policy.adopt = Adopt::Auto;
    let shown = rounds(&cluster);
    let update = shown.last().and_then(|round| round.last()).unwrap();
    let expected = "update service shop_web (spec changed: Labels.driftless.agent, Labels.driftless.application, Labels.driftless.workload)";
    assert_eq!(update, expected, "{shown:?}");
}

#[test]
fn secrets_of_variables_and_arguments_are_hidden() {
    let mut cluster = shop();
    cluster.settle();
    let spec = &mut cluster.swarm.services.get_mut("shop_web").unwrap().spec;
    spec["TaskTemplate"]["ContainerSpec"]["Env"] = json!(["DB_PASSWORD=hunter2hunter2", "TEAM=ops"]);
    spec["TaskTemplate"]["ContainerSpec"]["Args"] = json!(["--password", "swordfish77"]);
    let text = differences(&cluster).join("\n");
    assert!(text.contains("TaskTemplate.ContainerSpec.Env.TEAM ops -> unset"), "{text}");
    assert!(text.contains("Env.DB_PASSWORD ••••"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("swordfish"), "{text}");
    let observed = cluster.seen();
    cluster.with_target(|target| {
        let all = compare_live(target, &observed, &cluster.record);
        assert!(!all[0].found.contains("hunter2") && !all[0].found.contains("swordfish"), "{}", all[0].found);
    });
}

#[test]
fn objects_that_are_missing_or_extra_are_differences() {
    let mut cluster = shop();
    cluster.stack.networks.insert("shop_back".to_owned(), Network::default());
    cluster.settle();
    cluster.swarm.services.remove("shop_db");
    cluster.observed.networks.clear();
    let web = cluster.stack.workloads.remove(&"web".into());
    assert!(web.is_some());
    assert_eq!(
        differences(&cluster),
        ["network shop_back: Missing", "service shop_db: Missing", "service shop_web: Extra"]
    );
}

#[test]
fn change_by_hand_is_found_without_a_record() {
    let mut cluster = shop();
    cluster.settle();
    cluster.record = Record::default();
    assert_eq!(differences(&cluster), Vec::<String>::new());
    cluster.swarm.services.get_mut("shop_web").unwrap().spec["Mode"]["Replicated"]["Replicas"] = json!(5);
    assert_eq!(differences(&cluster), ["service shop_web: Modified", "  Mode.Replicated.Replicas 5 -> 2"]);
}
