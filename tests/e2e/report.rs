//! `driftless drift` against a real engine: through the agent, and without one.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Agent, Settings, Site, git, images};

fn compose() -> String {
    let image = images::server("1.0");
    format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    environment: {{GREETING: hello, API_TOKEN: s3cretvalue}}
    deploy: {{resources: {{limits: {{memory: 64M}}}}}}
    configs: [motd]
    volumes: [\"data:/data\"]
  job:
    image: {image}
    command: [--once]
    restart: \"no\"
configs: {{motd: {{file: ./motd}}}}
volumes: {{data: }}
"
    )
}

/// An agent that reports what is changed by hand, and leaves it.
async fn start(test: &str) -> (Site, Agent) {
    let site = Site::with(test, Settings { self_heal: false, ..Settings::default() });
    site.repository.commit(&[(&site.path("motd"), "welcome\n")]);
    let agent = site.running(&compose()).await;
    (site, agent)
}

fn told(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Through the agent.
fn asked(agent: &Agent, more: &[&str]) -> (i32, String, String) {
    let server = format!("http://{}", agent.address);
    told(agent.command(&[&["drift", "--server", &server], more].concat()).env_remove("DRIFTLESS_TOKEN_FILE"))
}

/// Straight to the engine.
fn looked(site: &Site, agent: &Agent, more: &[&str]) -> (i32, String, String) {
    let docker =
        site.settings.docker_host.clone().unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    let (repo, state) = (site.repository.bare.display().to_string(), agent.state_dir().display().to_string());
    let runtime = agent.runtime.display().to_string();
    let words = [
        "drift",
        "--docker",
        &docker,
        "--repo",
        &repo,
        "--path",
        "sites",
        "--state-dir",
        &state,
        "--runtime-dir",
        &runtime,
    ];
    told(&mut agent.command(&[&words[..], more].concat()))
}

fn items(json: &str) -> Vec<(String, String, String)> {
    let report: Value = serde_json::from_str(json).unwrap_or_else(|it| panic!("{it}: {json}"));
    let items = report["apps"][0]["items"].as_array().unwrap().clone();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    items.iter().map(|it| (text(&it["type"]), text(&it["path"]), text(&it["got"]))).collect()
}

#[tokio::test]
async fn fresh_deployment_has_no_drift() {
    let (site, agent) = start("report-none").await;
    for (code, out, error) in [asked(&agent, &[]), looked(&site, &agent, &[])] {
        let expected = format!("no drift: {}\n1 application, no drift\n", site.app);
        assert_eq!((code, out, error.as_str()), (0, expected, ""));
    }
}

/// An agent has directories of its own in these tests, as one with another `stateDir` has.
#[tokio::test]
async fn folder_is_compared_with_the_files_of_the_agent() {
    let site = Site::new("report-folder");
    let image = images::server("1.0");
    site.repository.commit(&[(&site.path("motd"), "welcome\n")]);
    let compose = format!(
        "services: {{web: {{image: '{image}', configs: [motd]}}}}\nconfigs: {{motd: {{file: ./motd}}}}\n"
    );
    let agent = site.running(&compose).await;
    let clone = tempfile::tempdir().unwrap();
    let bare = site.repository.bare.display().to_string();
    git(clone.path(), &["clone", "-q", &bare, "."]);
    let folder = clone.path().display().to_string();
    let docker =
        site.settings.docker_host.clone().unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    let (state, runtime) = (agent.state_dir().display().to_string(), agent.runtime.display().to_string());
    let asked_about = |command: &str, more: &[&str]| {
        let words = [command, "--dir", &folder, "--docker-host", &docker];
        told(&mut agent.command(&[&words[..], more].concat()))
    };
    let directories = ["--state-dir", &state, "--runtime-dir", &runtime];
    let (code, out, error) = asked_about("diff", &directories);
    assert_eq!(code, 0, "{out}{error}");
    let (code, out, error) = asked_about("plan", &directories);
    assert!(code == 0 && out.contains("nothing to do"), "{code}: {out}{error}");
    // With those of another agent the mounted file is a difference.
    assert_eq!(asked_about("diff", &[]).0, 1);
}

#[tokio::test]
async fn manual_changes_are_reported_field_by_field() {
    let (mut site, agent) = start("report-some").await;
    let web = site.name("web");
    let other = site.foreign("other");
    site.docker.run(&["network", "create", &other]);
    // While it runs: of a stopped one newer engines do not tell it until it is started.
    site.docker.run(&["network", "connect", &other, &web]);
    site.docker.run(&["stop", &web]);
    site.docker.run(&["update", "--memory", "96m", "--memory-swap", "192m", &web]);
    agent.until("the agent sees it", |it| it.status.drift.len() >= 3).await;
    let expected = |got: String| {
        [
            ("modified", format!("networks.{other}.attached"), "true".to_owned()),
            ("modified", "resources.memory".to_owned(), "96 MiB".to_owned()),
            ("stopped", "state".to_owned(), got),
        ]
    };
    for (code, out, error) in [asked(&agent, &["-o", "json"]), looked(&site, &agent, &["-o", "json"])] {
        assert_eq!(code, 1, "{error}");
        let found = items(&out);
        let state = found.last().unwrap().2.clone();
        assert!(state.starts_with("exited ("), "{state}");
        let expected: Vec<_> = expected(state).into_iter().map(|(a, b, c)| (a.to_owned(), b, c)).collect();
        assert_eq!(found, expected, "{out}");
        assert!(!out.contains("s3cretvalue"), "{out}");
    }
    let (code, out, _) = asked(&agent, &[]);
    assert_eq!(code, 1);
    assert!(out.contains("left alone") && out.contains("/compose.yaml:2)"), "{out}");
    assert_eq!(asked(&agent, &["--fail-on", "missing,extra"]).0, 0);
}

#[tokio::test]
async fn report_names_missing_and_extra_workloads() {
    let (site, agent) = start("report-gone").await;
    let web = site.name("web");
    site.docker.run(&["rm", "-f", &web]);
    agent.until("the agent sees it", |it| !it.status.drift.is_empty()).await;
    for (code, out, error) in [asked(&agent, &["-o", "json"]), looked(&site, &agent, &["-o", "json"])] {
        assert_eq!((code, items(&out).len()), (1, 1), "{out}{error}");
        assert_eq!(items(&out)[0].0, "missing");
    }
    // Against a commit that asks for nothing of it.
    let image = images::server("1.0");
    site.compose(&format!("services:\n  other: {{image: \"{image}\", restart: always}}\n"));
    let (code, out, error) = looked(&site, &agent, &["-o", "json", "--against", "main~1"]);
    assert_eq!((code, items(&out).len()), (1, 1), "{out}{error}");
}

#[tokio::test]
async fn a_pinned_application_is_held_against_its_pin_or_against_git() {
    let site = Site::new("report-pin");
    let agent = site
        .running(
            &compose()
                .replace("configs: [motd]", "tty: false")
                .replace("configs: {motd: {file: ./motd}}\n", ""),
        )
        .await;
    let newer = compose()
        .replace("hello", "goodbye")
        .replace("configs: [motd]", "tty: false")
        .replace("configs: {motd: {file: ./motd}}\n", "");
    let commit = site.compose(&newer);
    agent.sync().await;
    agent.settled(&commit).await;
    agent.ask("rollback", serde_json::json!({"to": "1"})).await;
    agent
        .until("it is at the older revision", |application| {
            application.status.pin.is_some() && application.status.sync == driftless_model::SyncStatus::Synced
        })
        .await;
    site.until("the older one runs", |_| {
        (site.container("web").variable("GREETING").as_deref() == Some("hello")).then_some(())
    })
    .await;
    agent.until("all is well", |it| it.status.health == driftless_model::HealthStatus::Healthy).await;
    let (code, out, error) = asked(&agent, &[]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains("(pinned to "), "{out}");
    let (code, out, _) = asked(&agent, &["--against", "head", "-o", "json"]);
    assert_eq!(code, 1, "{out}");
    assert_eq!(items(&out), [("modified".to_owned(), "env.GREETING".to_owned(), "hello".to_owned())]);
    assert_eq!(asked(&agent, &["--against", "2"]).0, 1);
    assert_eq!(asked(&agent, &["--against", &commit]).0, 1);
    let (code, out, _) = asked(&agent, &["--against", "77"]);
    assert_eq!((code, out.contains("has no revision 77")), (2, true), "{out}");
}

#[tokio::test]
async fn report_of_a_broken_commit_is_an_error() {
    let (site, agent) = start("report-bad").await;
    site.compose("services: {web: {imag: a}}\n");
    agent.sync().await;
    agent.until("the mistake is seen", |it| it.status.findings.iter().any(|it| it.is_error())).await;
    for (code, out, error) in [asked(&agent, &[]), looked(&site, &agent, &[])] {
        assert_eq!(code, 2, "{out}{error}");
        assert!(out.contains(": error\n") && out.contains("unknown key `imag`"), "{out}");
    }
}

#[tokio::test]
async fn an_engine_that_is_away_is_an_error() {
    let (site, agent) = start("report-away").await;
    let repo = site.repository.bare.display().to_string();
    let words = ["drift", "--docker", "unix:///nonexistent/docker.sock", "--repo", &repo, "--path", "sites"];
    let (code, _, error) = told(&mut agent.command(&words));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("could not observe the engine"), "{error}");
}
