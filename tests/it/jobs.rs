//! The ready-made jobs for CIs: their shell steps are taken out of the files and run, as the CI would, on a real
//! repository with the real program.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use driftless_forge::ForgeKind;
use serde_yaml::Value;

use crate::{
    forge::Played,
    preview::{Clone, told},
};

fn yaml(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value:?} is no text")).to_owned()
}

/// A shell with the program in its path, in the clone, and nothing of this environment.
fn shell(clone: &Clone, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_driftless")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]);
    command.env_clear().env("PATH", path).current_dir(clone.path());
    command
}

/// The step's own environment, with `${{ … }}` filled in.
fn environment(step: &Value, known: &BTreeMap<&str, &str>) -> Vec<(String, String)> {
    let fill = |value: &Value| {
        let mut value = text(value);
        for (name, known) in known {
            value = value.replace(&format!("${{{{ {name} }}}}"), known);
        }
        assert!(!value.contains("${{"), "{value} is not known");
        value
    };
    let env = step["env"].as_mapping().unwrap();
    env.iter().map(|(name, value)| (text(name), fill(value))).collect()
}

/// Runs the action's steps with these inputs; the others are at their defaults. Returns the exit code, what was
/// printed, and the outputs.
fn act(
    clone: &Clone,
    job: &[(&str, String)],
    inputs: &[(&str, &str)],
) -> (i32, String, BTreeMap<String, String>) {
    let action = yaml("action.yml");
    let (output, temp) = (clone.path().join(".git/output"), clone.path().join(".git"));
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for (name, input) in action["inputs"].as_mapping().unwrap() {
        known.insert(format!("inputs.{}", text(name)), text(&input["default"]));
    }
    known.extend(inputs.iter().map(|(name, value)| (format!("inputs.{name}"), (*value).to_owned())));
    let mut printed = String::new();
    for step in action["runs"]["steps"].as_sequence().unwrap() {
        assert_eq!(step["shell"], "bash");
        fs::write(&output, "").unwrap();
        let filled = known.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut command = shell(clone, &text(&step["run"]));
        command.env("GITHUB_OUTPUT", &output).env("RUNNER_TEMP", &temp).envs(environment(step, &filled));
        let (code, out, error) = told(command.envs(job.iter().cloned()).output().unwrap());
        printed.push_str(&out);
        printed.push_str(&error);
        let lines = fs::read_to_string(&output).unwrap();
        let outputs: BTreeMap<String, String> = lines
            .lines()
            .filter_map(|it| it.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if step["id"] == "report" {
            for declared in action["outputs"].as_mapping().unwrap().keys() {
                assert!(code == 2 || outputs.contains_key(&text(declared)), "{declared:?}: {outputs:?}");
            }
            return (code, printed, outputs);
        }
        assert_eq!(code, 0, "{printed}");
        let id = text(&step["id"]);
        known.extend(outputs.into_iter().map(|(name, value)| (format!("steps.{id}.outputs.{name}"), value)));
    }
    panic!("the action has no step that reports");
}

fn pull_request(kind: ForgeKind, address: &str, head: &str) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("GITHUB_ACTIONS", "true".to_owned()),
        ("GITHUB_REPOSITORY", "me/infra".to_owned()),
        ("GITHUB_REF", "refs/pull/7/merge".to_owned()),
        ("GITHUB_BASE_REF", "main".to_owned()),
        ("GITHUB_SHA", head.to_owned()),
    ];
    let below = if kind == ForgeKind::Gitea { "/api/v1" } else { "" };
    all.push(("GITHUB_API_URL", format!("{address}{below}")));
    all
}

/// A clone in which the pull request is merged, as GitHub checks it out.
fn merged() -> (Clone, String) {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    clone.git(&["checkout", "-q", "main"]);
    clone.commit(&[("sites/other/compose.yaml", Some("services: {o: {image: \"o:1\"}}\n"))]);
    clone.git(&["merge", "-q", "--no-ff", "-m", "Merge", "change"]);
    let head = clone.git(&["rev-parse", "HEAD"]);
    (clone, head)
}

#[tokio::test(flavor = "multi_thread")]
async fn github_action_reports_changes_of_a_pull_request() {
    let (clone, head) = merged();
    let (played, address) = Played::start(ForgeKind::GitHub).await;
    let job = pull_request(ForgeKind::GitHub, &address, &head);
    let (code, printed, outputs) = act(&clone, &job, &[("path", "sites"), ("token", "t0ken")]);
    assert_eq!(
        (code, outputs["changed"].as_str(), outputs["exit-code"].as_str()),
        (0, "true", "1"),
        "{printed}"
    );
    assert!(printed.contains("::warning file=sites/blog/compose.yaml"), "{printed}");
    // Commits that main got since do not belong to the request.
    assert!(printed.contains("1 of 3 applications changes: 2 removed"), "{printed}");
    assert!(fs::read_to_string(&outputs["json"]).unwrap().starts_with('{'));
    assert!(fs::read_to_string(&outputs["sarif"]).unwrap().contains("\"2.1.0\""));
    assert!(played.comments()[0].contains("### Preview: 1 of 3"), "{:?}", played.comments());
    assert_eq!(played.statuses().len(), 1);

    let (code, _, outputs) = act(&clone, &job, &[("token", "t0ken"), ("fail", "true"), ("post", "false")]);
    assert_eq!((code, outputs["changed"].as_str()), (1, "true"));
    let with_args =
        [("token", ""), ("post", "false"), ("args", "--app shop --fail-on added"), ("fail", "true")];
    let (code, _, outputs) = act(&clone, &job, &with_args);
    assert_eq!((code, outputs["changed"].as_str()), (0, "false"));
    assert_eq!(act(&clone, &job, &[("token", ""), ("base", "nothing")]).0, 2);
    assert_eq!(act(&clone, &job, &[("token", ""), ("command", "rm")]).0, 2);
}

#[tokio::test]
async fn github_action_reports_drift_and_fails_without_agent() {
    let (clone, head) = merged();
    let job = pull_request(ForgeKind::GitHub, "http://127.0.0.1:9", &head);
    let inputs = [
        ("command", "drift"),
        ("server", "http://127.0.0.1:9"),
        ("agent-token", "abc"),
        ("post", "false"),
        ("token", ""),
    ];
    let (code, printed, _) = act(&clone, &job, &inputs);
    assert_eq!((code, printed.contains("no agent answers")), (2, true), "{printed}");
    let left: Vec<_> = fs::read_dir(clone.path().join(".git"))
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path().join("agent-token");
            path.exists().then_some(path)
        })
        .collect();
    assert!(left.is_empty(), "the token stays on the disk: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gitlab_job_reports_changes_of_a_merge_request() {
    let clone = Clone::new();
    let base = clone.git(&["rev-parse", "main"]);
    let head = clone.commit(&[("sites/blog/compose.yaml", None)]);
    let (played, address) = Played::start(ForgeKind::GitLab).await;
    let job = yaml("gitlab-ci.yml")[".driftless-preview"].clone();
    for script in job["script"].as_sequence().unwrap() {
        let mut command = shell(&clone, &text(script));
        command
            .env("GITLAB_CI", "true")
            .env("CI_API_V4_URL", format!("{address}/api/v4"))
            .env("CI_PROJECT_ID", "me/group/infra")
            .env("CI_MERGE_REQUEST_IID", "7")
            .env("CI_MERGE_REQUEST_DIFF_BASE_SHA", &base)
            .env("CI_COMMIT_SHA", &head)
            .env("GITLAB_TOKEN", "t0ken")
            .env("DRIFTLESS_PATH", text(&job["variables"]["DRIFTLESS_PATH"]));
        let (code, out, error) = told(command.output().unwrap());
        assert_eq!((code, error.contains("comment on request 7: written")), (0, true), "{out}{error}");
    }
    for file in ["driftless.json", "driftless.md", "driftless.xml"] {
        assert!(clone.path().join(file).exists(), "{file}");
    }
    assert_eq!((played.comments().len(), played.statuses().len()), (1, 1));
    let script = text(&yaml("gitlab-ci.yml")[".driftless-drift"]["script"][0]);
    let (code, _, error) =
        told(shell(&clone, &script).env("DRIFTLESS_SERVER", "http://127.0.0.1:9").output().unwrap());
    assert_eq!((code, error.contains("no agent answers")), (2, true), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forgejo_workflow_reports_preview_and_drift() {
    let origin = Clone::new();
    let head = origin.commit(&[("sites/blog/compose.yaml", None)]);
    // As the runner checks it out: all branches of the remote.
    let clone = Clone::of(&origin, "change");
    let (played, address) = Played::start(ForgeKind::Gitea).await;
    let jobs = yaml("forgejo.yml")["jobs"].clone();
    let run = |job: &str, known: &[(&str, &str)]| {
        let step =
            jobs[job]["steps"].as_sequence().unwrap().iter().find(|it| it.get("run").is_some()).unwrap();
        let mut command = shell(&clone, &text(&step["run"]));
        command.envs(pull_request(ForgeKind::Gitea, &address, &head));
        command.envs(environment(step, &known.iter().copied().collect()));
        told(command.output().unwrap())
    };
    let (code, out, error) = run("preview", &[("secrets.GITHUB_TOKEN", "t0ken")]);
    assert_eq!((code, error.contains("comment on request 7: written")), (0, true), "{out}{error}");
    assert!(out.contains("1 of 2 applications changes: 2 removed"), "{out}");
    assert_eq!(played.statuses().len(), 1);
    let known = [("vars.DRIFTLESS_SERVER", "http://127.0.0.1:9"), ("secrets.DRIFTLESS_AGENT_TOKEN", "abc")];
    let (code, _, error) = run("drift", &known);
    assert_eq!((code, error.contains("no agent answers")), (2, true), "{error}");
}
