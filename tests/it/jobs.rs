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
    for (name, value) in [
        ("github.action_ref", "main"),
        ("github.action_repository", "me/driftless"),
        ("github.server_url", "http://127.0.0.1:9"),
    ] {
        known.insert(name.to_owned(), value.to_owned());
    }
    known.extend(inputs.iter().map(|(name, value)| (format!("inputs.{name}"), (*value).to_owned())));
    let mut printed = String::new();
    for step in action["runs"]["steps"].as_sequence().unwrap() {
        assert_eq!(step["shell"], "bash");
        fs::write(&output, "").unwrap();
        let filled = known.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut command = shell(clone, &text(&step["run"]));
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
        command.env("GITHUB_ACTION_PATH", deploy);
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
        if code != 0 && step["id"] == "install" {
            return (code, printed, outputs);
        }
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
        let step = jobs[job]["steps"].as_sequence().unwrap().last().unwrap();
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

/// Releases at a `file://` address: one archive with the program of this build, and its checksum.
fn releases(folder: &Path) -> String {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let arch = std::env::consts::ARCH;
    let name = format!("driftless-9.9.9-{arch}-unknown-linux-gnu");
    let release = folder.join("v9.9.9");
    fs::create_dir_all(release.join(&name)).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_driftless"), release.join(&name).join("driftless"))
        .unwrap();
    for file in ["driftless.service", "driftless.schema.json", "driftless.example.yaml"] {
        fs::write(release.join(&name).join(file), "").unwrap();
    }
    fs::copy(deploy.join("install.sh"), release.join("install.sh")).unwrap();
    let script = format!("tar -czf {name}.tar.gz {name} && sha256sum {name}.tar.gz > SHA256SUMS");
    let status = Command::new("sh").args(["-c", &script]).current_dir(&release).status().unwrap();
    assert!(status.success());
    format!("file://{}", folder.display())
}

#[tokio::test]
async fn jobs_download_a_release_with_the_right_checksum_only() {
    let (clone, head) = merged();
    let folder = tempfile::tempdir().unwrap();
    let address = releases(folder.path());
    let job = pull_request(ForgeKind::GitHub, "http://127.0.0.1:9", &head);
    let version = ("version", "v9.9.9");
    let inputs = [("token", ""), ("post", "false"), version, ("releases", &address)];
    let (code, printed, outputs) = act(&clone, &job, &inputs);
    assert_eq!((code, outputs["changed"].as_str()), (0, "true"), "{printed}");
    assert!(clone.path().join(".git/driftless/usr/local/bin/driftless").exists(), "{printed}");

    let without_program = |script: &str| {
        let mut command = shell(&clone, script);
        command.env("PATH", std::env::var("PATH").unwrap()).env("DRIFTLESS_RELEASES", &address);
        command.env("DRIFTLESS_VERSION", "9.9.9").env("GITHUB_PATH", folder.path().join("path"));
        told(command.output().unwrap())
    };
    let gitlab = text(&yaml("gitlab-ci.yml")[".driftless-drift"]["before_script"][0]);
    let forgejo = text(&yaml("forgejo.yml")["jobs"]["drift"]["steps"][0]["run"]);
    let checks = [
        format!("{gitlab}\ndriftless --version"),
        format!("{forgejo}\nPATH=$(cat \"$GITHUB_PATH\"):$PATH\ndriftless --version"),
    ];
    for script in &checks {
        let (code, out, error) = without_program(script);
        assert!(code == 0 && out.starts_with("driftless "), "{out}{error}");
    }
    let sums = folder.path().join("v9.9.9/SHA256SUMS");
    fs::write(&sums, fs::read_to_string(&sums).unwrap().replace(|it: char| it.is_ascii_digit(), "0"))
        .unwrap();
    let (code, printed, _) = act(&clone, &job, &inputs);
    assert!(code != 0 && printed.contains("nothing was installed"), "{printed}");
    for script in &checks {
        let (code, out, error) = without_program(script);
        assert!(code != 0 && error.contains("nothing was installed"), "{out}{error}");
    }
    // A branch is no release.
    let branch = [("token", ""), ("post", "false"), ("version", "main")];
    let (code, printed, _) = act(&clone, &job, &branch);
    assert!(code == 2 && printed.contains("name the release to download"), "{printed}");
}
