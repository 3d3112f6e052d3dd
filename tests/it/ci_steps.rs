//! The shell steps of the templates for CI, run as a runner runs them, with a server of releases.

use std::{
    fs,
    path::{Path, PathBuf},
};

use driftless_forge::ForgeKind;
use serde_json::Value;

use crate::{forge::Played, install_script::Releases};

/// A file of a template.
fn template(path: &str) -> Value {
    serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The script of the step with this name.
fn step(steps: &Value, name: &str) -> String {
    let step = steps.as_array().unwrap().iter().find(|step| step["name"] == name);
    step.unwrap_or_else(|| panic!("{name}"))["run"].as_str().unwrap().to_owned()
}

/// A job with its folder and the files that a runner gives it.
struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["output", "path"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs a step in `bash -e`, without a program `driftless` in PATH.
    async fn run(&self, script: &str, variables: &[(&str, &str)]) -> (i32, String) {
        let mut command = tokio::process::Command::new("bash");
        command.args(["-e", "-c", script]).current_dir(self.path("work")).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("RUNNER_TEMP", self.folder.path());
        command.env("GITHUB_OUTPUT", self.path("output")).env("GITHUB_PATH", self.path("path"));
        command.env("GITHUB_ACTION_PATH", Path::new("deploy").canonicalize().unwrap());
        command.envs(variables.iter().copied());
        let output = command.output().await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    }
}

async fn releases() -> Releases {
    let releases = Releases::start().await;
    releases.publish("1.2.0");
    releases.publish_script("1.2.0");
    releases
}

#[tokio::test]
async fn action_downloads_a_verified_release() {
    let releases = releases().await;
    let script = step(&template("deploy/action.yml")["runs"]["steps"], "Find or download driftless");
    let none = [("BINARY", ""), ("VERSION", ""), ("OWNER", ""), ("RELEASES", ""), ("ACTION_REF", "v1.2.0")];
    let with = |more: &[(&'static str, &str)]| {
        let all = none.iter().chain(more).map(|(name, value)| ((*name), (*value).to_owned()));
        all.collect::<Vec<_>>()
    };
    for (more, code, expected) in [
        (with(&[("ACTION_REPOSITORY", ""), ("RELEASES", &releases.url)]), 0, "driftless 1.2.0"),
        (
            with(&[("ACTION_REPOSITORY", ""), ("RELEASES", &releases.url), ("VERSION", "9.9.9")]),
            1,
            "could not fetch",
        ),
        (with(&[("ACTION_REPOSITORY", ""), ("ACTION_REF", "main")]), 2, "name the release to download"),
        (with(&[("ACTION_REPOSITORY", "")]), 2, "in the input owner"),
    ] {
        let job = Job::new();
        let more: Vec<(&str, &str)> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (found, said) = job.run(&script, &more).await;
        assert!(found == code && said.contains(expected), "{found}: {said}");
        let output = job.read("output");
        assert_eq!(output.contains("/driftless/usr/local/bin/driftless"), code == 0, "{output}");
    }
    // The releases of the owner are next to the action on the same server.
    let job = Job::new();
    let server = releases.url.trim_end_matches("/releases");
    let more = with(&[("ACTION_REPOSITORY", ""), ("OWNER", "me"), ("SERVER_URL", server)]);
    let more: Vec<(&str, &str)> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (code, said) = job.run(&script, &more).await;
    assert!(code == 1 && said.contains("/me/driftless/releases/download/v1.2.0/SHA256SUMS"), "{said}");
}

#[tokio::test]
async fn action_reports_changes_between_two_commits() {
    let script = step(&template("deploy/action.yml")["runs"]["steps"], "Report");
    let job = Job::new();
    let git = "git init -q -b main && mkdir shop && printf 'services: {web: {image: \"web:1\"}}' > shop/compose.yaml && \
               git add . && git -c user.name=a -c user.email=a@example.com commit -qm one && \
               sed -i s/web:1/web:2/ shop/compose.yaml && git -c user.name=a -c user.email=a@example.com commit -qam two";
    assert_eq!(job.run(git, &[]).await.0, 0);
    let binary = env!("CARGO_BIN_EXE_driftless");
    let with = |base, fail, command| {
        [
            ("BINARY", binary),
            ("COMMAND", command),
            ("FOLDER", ""),
            ("BASE", base),
            ("HEAD", "HEAD"),
            ("SERVER", ""),
            ("AGENT_TOKEN", ""),
            ("ARGS", ""),
            ("FAIL", fail),
            ("POST", "false"),
        ]
    };
    for (base, fail, code, changed) in [
        ("HEAD", "false", 0, "changed=false"),
        ("HEAD^1", "false", 0, "changed=true"),
        ("HEAD^1", "true", 1, "changed=true"),
        ("nothing", "false", 2, "changed=false"),
    ] {
        fs::write(job.path("output"), "").unwrap();
        let (found, said) = job.run(&script, &with(base, fail, "preview")).await;
        let output = job.read("output");
        assert!(found == code && output.contains(changed), "{base} {fail}: {found}: {said}{output}");
        let files: Vec<&str> = output.lines().filter(|line| line.contains("/report.")).collect();
        for line in &files {
            let (_, file) = line.split_once('=').unwrap();
            assert!(fs::metadata(file).unwrap().len() > 0, "{line}");
        }
        assert_eq!(files.len(), if code < 2 { 3 } else { 0 }, "{output}");
        assert_eq!(said.contains("::error title=driftless::no report"), code == 2, "{said}");
    }
    // The status of the commit is as the job: changes fail both or neither.
    for (fail, code, state) in [("false", 0, "success"), ("true", 1, "failure")] {
        let (played, address) = Played::start(ForgeKind::GitHub).await;
        let mut variables = with("HEAD^1", fail, "preview").to_vec();
        let commit = "a".repeat(40);
        variables.retain(|(name, _)| *name != "POST");
        variables.extend([
            ("POST", "true"),
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_API_URL", &*address),
            ("GITHUB_REPOSITORY", "me/infra"),
            ("GITHUB_SHA", &*commit),
            ("DRIFTLESS_FORGE_TOKEN", "t0ken"),
        ]);
        fs::write(job.path("output"), "").unwrap();
        let (found, said) = job.run(&script, &variables).await;
        let output = job.read("output");
        assert!(found == code && output.contains("changed=true\nexit-code=1\n"), "{found}: {said}{output}");
        let states: Vec<String> = played.statuses().iter().map(|(_, it)| it["state"].to_string()).collect();
        assert_eq!(states, [format!("\"{state}\"")], "{said}");
    }
    // A variable that only the host has.
    let git = "printf 'services: {web: {image: \"web:3\", command: \"${WORD:?}\"}}' > shop/compose.yaml && \
               git -c user.name=a -c user.email=a@example.com commit -qam three";
    assert_eq!(job.run(git, &[]).await.0, 0);
    for (variables, code) in [("", 2), ("OTHER=a b\nWORD=x\n", 0)] {
        let mut given = with("HEAD^1", "false", "preview").to_vec();
        given.push(("VARIABLES", variables));
        let (found, said) = job.run(&script, &given).await;
        assert_eq!(found, code, "{said}");
    }
    // The lines of a secret of several lines.
    let mut given = with("HEAD^1", "false", "preview").to_vec();
    given.push(("VARIABLES", "WORD=-----BEGIN\nMIIEvhunter2\n"));
    let (code, said) = job.run(&script, &given).await;
    assert!(code == 2 && said.contains("is not NAME=VALUE") && !said.contains("hunter2"), "{said}");
    // Each line of the further options counts.
    let mut given = with("HEAD^1", "false", "preview").to_vec();
    given.extend([("VARIABLES", "WORD=x"), ("ARGS", "\n--fail-on removed\n--no-such-option\n")]);
    let (code, said) = job.run(&script, &given).await;
    assert!(code == 2 && said.contains("--no-such-option"), "{said}");
    let (code, said) = job.run(&script, &with("HEAD", "false", "deploy")).await;
    assert!(code == 2 && said.contains("command is preview or drift, not deploy"), "{said}");
}

#[tokio::test]
async fn templates_download_a_verified_release() {
    let releases = releases().await;
    let forgejo = template("deploy/forgejo.yml");
    let gitlab = template("deploy/gitlab-ci.yml");
    let install = |job: &str| step(&forgejo["jobs"][job]["steps"], "Find or download driftless");
    let scripts = [
        install("preview"),
        install("drift"),
        gitlab[".driftless-preview"]["before_script"][0].as_str().unwrap().to_owned(),
        gitlab[".driftless-drift"]["before_script"][0].as_str().unwrap().to_owned(),
    ];
    for script in scripts {
        let job = Job::new();
        // Forgejo puts the folder into the PATH of the next step, GitLab into that of the same one.
        let script = format!("{script}\nPATH=$(cat \"$GITHUB_PATH\"):$PATH\ndriftless");
        let version = [("DRIFTLESS_VERSION", "1.2.0"), ("DRIFTLESS_RELEASES", &*releases.url)];
        let (code, said) = job.run(&script, &version).await;
        assert!(code == 0 && said.contains("driftless 1.2.0"), "{said}");
        let (code, said) = job.run(&script, &version[..1]).await;
        assert!(code != 0 && said.contains("set the address of the releases"), "{said}");
    }
}
