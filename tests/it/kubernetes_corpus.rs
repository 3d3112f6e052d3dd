//! Manifests of other people: which share of their workload files renders, and why the rest does not.
//!
//! The collection is no part of the repository: `DRIFTLESS_KUBERNETES_CORPUS` names a folder of YAML files, which is
//! measured and held against a share. What a file refers to and does not hold (a ConfigMap, a Secret, a claim) is
//! taken to be there, since most are parts of a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use driftless_files::Rendered;
use driftless_yaml as yaml;

use crate::kubernetes_manifests::render;

/// Kinds that run something.
const WORKLOADS: &[&str] = &[
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "Job",
    "CronJob",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml") {
            found.push(path);
        }
    }
}

/// Whether it is a whole object that runs something, rather than a template to be filled in, or a part that is laid upon
/// another.
fn is_workload(text: &str) -> bool {
    let Ok(documents) = yaml::parse("a.yaml", text.as_bytes(), &yaml::Limits::default()) else {
        return false;
    };
    let kinds = documents.iter().filter_map(|it| Some((it, it.get("kind")?.as_scalar()?)));
    let mut all = kinds.filter(|(_, kind)| WORKLOADS.contains(kind)).peekable();
    let is_template = text.contains("{{") || text.contains("${") || text.contains("$patch");
    all.peek().is_some()
        && !is_template
        && all.all(|(it, kind)| {
            let spec = it.get("spec");
            let pod = match kind {
                "Pod" => spec,
                "CronJob" => {
                    spec.and_then(|it| it.get("jobTemplate")?.get("spec")?.get("template")?.get("spec"))
                }
                _ => spec.and_then(|it| it.get("template")?.get("spec")),
            };
            let containers = pod.and_then(|it| it.get("containers"));
            containers.is_some_and(|containers| {
                containers.items().iter().all(|container| {
                    let image = container.get("image").and_then(|it| it.as_scalar()).unwrap_or_default();
                    // `REGISTRY/IMAGE` is to be filled in.
                    !image.is_empty() && !image.chars().any(char::is_uppercase) && !image.contains('<')
                })
            })
        })
}

/// Adds the objects that it refers to.
fn completed(text: &str) -> Rendered {
    let mut whole = text.to_owned();
    let mut added = BTreeSet::new();
    // Each round may find what the one before was hidden behind.
    for _ in 0..4 {
        let rendered = render(&whole);
        let mut more = String::new();
        for finding in &rendered.findings {
            let Some(rest) = finding.message.strip_prefix("there is no ") else { continue };
            let Some((kind, name)) =
                rest.split_once(" `").and_then(|(kind, it)| Some((kind, it.split('`').next()?)))
            else {
                continue;
            };
            let (name, namespace) = name.split_once('.').unwrap_or((name, "default"));
            if added.insert(format!("{kind} {namespace}/{name}")) {
                let metadata = format!("metadata: {{name: {name}, namespace: {namespace}}}");
                let spec = if kind == "PersistentVolumeClaim" { "spec: {}" } else { "data: {}" };
                more.push_str(&format!("---\napiVersion: v1\nkind: {kind}\n{metadata}\n{spec}\n"));
            }
        }
        if more.is_empty() {
            break;
        }
        whole = format!("{}\n{more}", whole.trim_end().trim_end_matches("---"));
    }
    let mut rendered = render(&whole);
    // The keys of what was added are not known.
    rendered.findings.retain(|it| !it.message.ends_with("has no such key"));
    rendered
}

#[test]
#[ignore = "needs DRIFTLESS_KUBERNETES_CORPUS, a folder of manifests"]
fn manifests_of_others_render_but_for_located_reasons() {
    let folder = env::var_os("DRIFTLESS_KUBERNETES_CORPUS")
        .expect("DRIFTLESS_KUBERNETES_CORPUS names the folder of manifests to measure");
    let mut found = Vec::new();
    files(Path::new(&folder), &mut found);
    found.sort();
    let (mut all, mut good) = (0, 0);
    let mut reasons: BTreeMap<String, (usize, usize, String)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for path in found {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if !is_workload(&text) || !seen.insert(text.clone()) {
            continue;
        }
        all += 1;
        let errors: Vec<_> = completed(&text).findings.into_iter().filter(|it| it.is_error()).collect();
        good += usize::from(errors.is_empty());
        assert!(errors.iter().all(|it| it.location.line > 0), "{}: {errors:?}", path.display());
        let kind_of = |it: &driftless_model::Finding| {
            let field = it.path.rsplit(['.', '[']).next().unwrap_or_default().to_owned();
            let words: String = it.message.split('`').step_by(2).collect::<Vec<_>>().join("…");
            format!("{field}: {words}")
        };
        let kinds: BTreeSet<String> = errors.iter().map(kind_of).collect();
        for kind in &kinds {
            let entry = reasons.entry(kind.clone()).or_insert((0, 0, path.display().to_string()));
            entry.0 += 1;
            entry.1 += usize::from(kinds.len() == 1);
        }
    }
    println!("{good} of {all} workload files render: {}.{} %", good * 100 / all, good * 1000 / all % 10);
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, it)| std::cmp::Reverse(it.0));
    for (reason, (count, alone, example)) in reasons {
        println!("{count} ({alone} for this alone) {reason} — {example}");
    }
    let share = env::var("DRIFTLESS_KUBERNETES_SHARE").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    assert!(all > 0 && good * 100 >= all * share, "{good} of {all}, and not {share} %");
}
