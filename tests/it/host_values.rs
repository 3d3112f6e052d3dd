//! Variables that lie on the host (`valuesFrom`): their order, changes, and sources that cannot be read.

use std::{collections::BTreeSet, fs, path::Path, process::Command, sync::Arc, time::Duration};

use driftless_agent::{Against, RequestKind, Rollback, Supposed};
use driftless_clock::Clock;
use driftless_config::Settings;
use driftless_docker::UserAction;
use driftless_model::{Application, Mask, SyncStatus, Until};
use driftless_store::{ContentDir, StateDir};
use tempfile::TempDir;

use crate::sample::NOON;
use crate::simulation::{Simulation, app, minutes};

const COMPOSE: &str = "services: {web: {image: 'web:${TAG:-none}', environment: {PW: '${DB_PASSWORD:?is not set}', HOST: '${HOST:-none}'}}}\n";

/// A simulation whose repository has these sources.
fn prepared(sources: &str) -> Simulation {
    let mut simulation = Simulation::prepared(COMPOSE, Clock::starting_at(NOON));
    let text = format!("repositories: [{{url: 'https://git.example/infra.git', valuesFrom: {sources}}}]\n");
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    simulation
}

/// The value of a variable in the newest revision that succeeded.
fn env(simulation: &Simulation, name: &str) -> Option<String> {
    let revision = simulation.last_succeeded()?;
    let stack = simulation.store.stack(&app(), revision.number).unwrap()?;
    stack.workloads[&"web".into()].container.env[name].clone()
}

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("shop.env");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test(start_paused = true)]
async fn changed_host_value_replaces_the_containers_that_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "DB_PASSWORD=first-value\nTAG='1'\nHOST=of-file\n");
    let mut simulation =
        prepared(&format!("[{{file: {path}}}, {{env: HOST_NAME, name: HOST, secret: false}}]"));
    simulation.environment = Arc::new(|name| (name == "HOST_NAME").then(|| "of-environment".to_owned()));
    let simulation = simulation.begun();
    simulation.synced_with_tip().await;
    assert_eq!(simulation.images(), ["web:1"]);
    assert_eq!(env(&simulation, "PW").as_deref(), Some("first-value"));
    assert_eq!(env(&simulation, "HOST").as_deref(), Some("of-environment"), "the later source wins");

    file(folder.path(), "DB_PASSWORD=second-value\nTAG='1'\n");
    simulation
        .until("the new value is deployed", |_| env(&simulation, "PW").as_deref() == Some("second-value"))
        .await;
    simulation.synced_with_tip().await;
    let revisions = simulation.store.revisions(&app()).unwrap();
    assert_eq!(revisions.len(), 2, "a changed value is a revision");
    assert!(!format!("{revisions:?}").contains("-value"), "{revisions:?}");
    assert!(revisions[0].changes.iter().any(|change| change.contains("PW")), "{revisions:?}");
    let stack = simulation.store.stack(&app(), 2).unwrap().unwrap();
    let mask = Mask::new([1; 32]).with_stacks([&stack]);
    assert_eq!(mask.text("it is second-value"), format!("it is {}", mask.hide("second-value")));
    assert_eq!(mask.text("at of-environment"), "at of-environment", "it is not secret");
}

#[tokio::test(start_paused = true)]
async fn missing_source_stops_a_deployment_and_no_container() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.env");
    let simulation = prepared(&format!("[{{file: {}}}]", path.display())).begun();
    let refused = simulation
        .until("the missing file is reported", |application| application.status.message.contains("shop.env"))
        .await;
    assert_eq!(refused.status.sync, SyncStatus::Unknown, "{:#?}", refused.status);
    assert!(simulation.images().is_empty());

    file(folder.path(), "DB_PASSWORD=first-value\n");
    simulation.synced_with_tip().await;
    fs::remove_file(&path).unwrap();
    minutes(10).await;
    assert_eq!(env(&simulation, "PW").as_deref(), Some("first-value"), "the last value stays");
    let application = simulation.synced_with_tip().await;
    let findings = format!("{:?}", application.status);
    assert!(findings.contains("its last values are used"), "{findings}");

    let broken = file(folder.path(), "DB_PASSWORD='no end\n");
    let told = simulation
        .until("the mistake is reported with its line", |application| {
            format!("{:?}", application.status).contains(&broken)
        })
        .await;
    assert!(!format!("{:?}", told.status).contains("no end"), "{:#?}", told.status);
    assert_eq!(env(&simulation, "PW").as_deref(), Some("first-value"));
}

#[tokio::test(start_paused = true)]
async fn host_file_that_no_manifest_reads_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "DB_PASSWORD=first-value\n");
    for (place, is_reported) in [("shop/.env", false), ("shop/old.env", true), ("old/.env", true)] {
        let simulation = prepared(&format!("[{{file: {path}}}, {{file: {path}, path: {place}}}]")).begun();
        let findings = simulation.synced_with_tip().await.status.findings.clone();
        let reported = findings.iter().filter(|finding| finding.message.starts_with("no manifest reads"));
        let places: Vec<&str> = reported.map(|finding| finding.location.file.as_str()).collect();
        let expected: &[&str] = if is_reported { &[place] } else { &[] };
        assert_eq!(places, expected, "{findings:?}");
    }
}

/// `vault … > file` empties the file first, and leaves it empty if the program fails.
#[tokio::test(start_paused = true)]
async fn emptied_source_keeps_its_last_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "DB_PASSWORD=first-value\nHOST=first-host\n");
    let simulation = prepared(&format!("[{{file: {path}}}]")).begun();
    simulation.synced_with_tip().await;
    file(folder.path(), "\n");
    let is_reported = |application: &Application| {
        format!("{:?}", application.status).contains("it is empty; its last values are used")
    };
    simulation.until("the empty file is reported", is_reported).await;
    minutes(5).await;
    assert_eq!(env(&simulation, "HOST").as_deref(), Some("first-host"));
    assert_eq!(simulation.store.revisions(&app()).unwrap().len(), 1);
    file(folder.path(), "DB_PASSWORD=second-value\n");
    simulation
        .until("the new value is deployed", |_| env(&simulation, "PW").as_deref() == Some("second-value"))
        .await;
}

/// Whether a file below a folder contains these bytes.
fn has_file_with(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => has_file_with(&entry.path(), bytes),
        kind if kind.is_file() => {
            fs::read(entry.path()).unwrap().windows(bytes.len()).any(|part| part == bytes)
        }
        _ => false,
    })
}

const WITH_FILES: &str = "
services:
  web:
    image: 'web:${TAG:-none}'
    env_file: [.env]
    secrets: [db]
secrets: {db: {file: ./secret/db.txt}}
";

#[tokio::test(start_paused = true)]
async fn files_of_the_host_stand_for_files_of_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let env_file = file(folder.path(), "TAG=1\nPASSWORD=first-value\n");
    let password = folder.path().join("db.txt");
    let mut simulation = Simulation::prepared(WITH_FILES, Clock::starting_at(NOON));
    let text = format!(
        "repositories:\n- url: https://git.example/infra.git\n  valuesFrom:\n  - {{file: {env_file}, path: shop/.env}}\n  \
         - {{file: {}, path: shop/secret/db.txt}}\n",
        password.display()
    );
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(&state, memory.path(), simulation.clock).unwrap();
    let simulation = simulation.begun();
    simulation
        .until("the missing file is reported", |application| application.status.message.contains("db.txt"))
        .await;
    assert!(simulation.images().is_empty());
    fs::write(&password, b"\xff\x00 of the host").unwrap();
    simulation.synced_with_tip().await;
    assert_eq!(simulation.images(), ["web:1"], "it is the project's `.env` as well");
    assert_eq!(env(&simulation, "PASSWORD").as_deref(), Some("first-value"));
    assert!(has_file_with(memory.path(), b" of the host"), "the mounted secret is in memory");
    assert!(!has_file_with(&folder.path().join("state"), b" of the host"), "and on no disk");

    file(folder.path(), "TAG=2\nPASSWORD=second-value\n");
    simulation
        .until("the new value is deployed", |_| {
            env(&simulation, "PASSWORD").as_deref() == Some("second-value")
        })
        .await;
    simulation.synced_with_tip().await;
    let revisions = simulation.store.revisions(&app()).unwrap();
    assert!(revisions.len() == 2 && !format!("{revisions:?}").contains("-value"), "{revisions:?}");
    let stack = simulation.store.stack(&app(), 2).unwrap().unwrap();
    let mask = Mask::new([1; 32]).with_stacks([&stack]);
    assert_eq!(mask.text("it is second-value"), format!("it is {}", mask.hide("second-value")));
}

/// The host restarts: nothing runs, and its memory is empty. The agent is not started.
fn reboot(simulation: &mut Simulation, state: &StateDir) -> TempDir {
    simulation.crash();
    let names: Vec<String> =
        simulation.docker.observed(&app()).instances.into_values().map(|instance| instance.name).collect();
    for name in names {
        simulation.hand(&UserAction::Stop { name });
    }
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(state, memory.path(), simulation.clock).unwrap();
    memory
}

/// Nothing can be rendered from the newest commit, but the one that runs has all that it mounts.
#[tokio::test(start_paused = true)]
async fn secrets_return_after_a_reboot_despite_a_broken_commit() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("db.txt");
    fs::write(&password, "a-value").unwrap();
    let compose = "services: {web: {image: 'web:${TAG:-1}', secrets: [db]}}\n\
                   secrets: {db: {file: ./db.txt}}\n";
    let mut simulation = Simulation::prepared(compose, Clock::starting_at(NOON));
    let text = format!(
        "repositories:\n- url: https://git.example/infra.git\n  valuesFrom: [{{file: {}, path: shop/db.txt}}, \
         {{env: TOKEN, name: TOKEN}}]\n",
        password.display()
    );
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    simulation.environment = Arc::new(|_| Some("token".to_owned()));
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(&state, memory.path(), simulation.clock).unwrap();
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;

    // It has one file more, with a mistake.
    let files =
        [("shop/compose.yaml", compose), ("shop/compose.override.yaml", "services: {web: {imag: x}}\n")];
    simulation.git.push_files("Ada <a@b.c>", &files);
    let is_invalid = |application: &Application| format!("{:?}", application.status).contains("imag");
    simulation.until("the mistake is reported", is_invalid).await;
    let memory = reboot(&mut simulation, &state);
    simulation.begin();
    minutes(5).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());
    assert!(has_file_with(memory.path(), b"a-value"));

    // A source cannot be read, either.
    simulation.environment = Arc::new(|_| None);
    let memory = reboot(&mut simulation, &state);
    simulation.begin();
    minutes(5).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());
    assert!(has_file_with(memory.path(), b"a-value"));
}

/// The commit that drops the worker waits for an image, and has no secret any more.
#[tokio::test(start_paused = true)]
async fn secret_of_a_dropped_service_returns_after_a_reboot() {
    let folder = tempfile::tempdir().unwrap();
    let compose = "services: {web: {image: 'web:1'}, worker: {image: 'worker:1', secrets: [key]}}\n\
                   secrets: {key: {environment: KEY}}\n";
    let path = file(folder.path(), "KEY=a-value\n");
    let mut simulation = Simulation::prepared(compose, Clock::starting_at(NOON));
    let text =
        format!("repositories: [{{url: 'https://git.example/infra.git', valuesFrom: [{{file: {path}}}]}}]\n");
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(&state, memory.path(), simulation.clock).unwrap();
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    assert!(has_file_with(memory.path(), b"a-value"));
    simulation.docker.faults(|faults| faults.registry = Some(BTreeSet::from(["web:1".to_owned()])));
    simulation.push("services: {web: {image: 'web:2'}}\n").await;
    minutes(1).await;
    let memory = reboot(&mut simulation, &state);
    simulation.begin();
    minutes(5).await;
    assert_eq!(simulation.images(), ["web:1", "worker:1"], "{}", simulation.story());
    assert!(has_file_with(memory.path(), b"a-value"));
}

#[tokio::test(start_paused = true)]
async fn application_without_an_older_secret_is_healed_after_a_reboot() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("db.txt");
    fs::write(&password, "first-value").unwrap();
    let compose = "services:
  web: {image: 'web:1', secrets: [db]}
  api: {image: 'api:1'}
secrets: {db: {file: ./db.txt}}
";
    let mut simulation = Simulation::prepared(compose, Clock::starting_at(NOON));
    let text = format!(
        "repositories:\n- url: https://git.example/infra.git\n  valuesFrom: [{{file: {}, path: shop/db.txt}}]\n",
        password.display()
    );
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(&state, memory.path(), simulation.clock).unwrap();
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    fs::write(&password, "second-value").unwrap();
    let revisions = |simulation: &Simulation| simulation.store.revisions(&app()).unwrap().len();
    simulation.until("the new value is deployed", |_| revisions(&simulation) == 2).await;
    simulation.synced_with_tip().await;
    let rollback = Rollback { to: None, reason: "2 is bad".to_owned(), until: Until::Manual };
    simulation.ask(RequestKind::Rollback(rollback)).await;
    minutes(5).await;
    assert_eq!(simulation.images(), ["api:1", "web:1"], "{}", simulation.story());

    let _memory = reboot(&mut simulation, &state);
    simulation.begin();
    minutes(5).await;
    assert_eq!(simulation.images(), ["api:1"], "{}", simulation.story());
    let application = simulation.until("it is said what to do", |application| {
        application.status.waits.iter().any(|wait| wait.message.contains("driftless resume shop"))
    });
    let status = application.await.status.clone();
    assert!(!format!("{status:?}").contains("-value"), "{status:#?}");
    fs::write(&password, "first-value").unwrap();
    let comes_back = |_: &Application| simulation.images() == ["api:1", "web:1"];
    simulation.until("the secret is there again", comes_back).await;
}

#[tokio::test(start_paused = true)]
async fn value_of_a_mounted_secret_is_hidden_in_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "KEY=Tr0ub4dor-9\n");
    let compose = "services: {web: {image: 'web:1', restart: always, secrets: [key]}}\n\
                   secrets: {key: {environment: KEY}}\n";
    let mut simulation = Simulation::prepared(compose, Clock::starting_at(NOON));
    let text =
        format!("repositories: [{{url: 'https://git.example/infra.git', valuesFrom: [{{file: {path}}}]}}]\n");
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(&state, memory.path(), simulation.clock).unwrap();
    let simulation = simulation.begun();
    simulation.docker.faults(|faults| {
        faults.exits.insert("web:1".into(), (Duration::from_secs(1), 3));
        faults.outputs.insert("web:1".into(), "cannot log in with Tr0ub4dor-9".into());
    });
    let is_looping = |application: &Application| {
        application.status.waits.iter().any(|wait| wait.message.contains("cannot log in with ••••"))
    };
    let application = simulation.until("the last words are shown", is_looping).await;
    let shown = serde_json::to_string(&*application).unwrap();
    let events = format!("{:?}", simulation.store.events(0, 1000, Some(&app())).unwrap());
    assert!(!shown.contains("Tr0ub4dor") && !events.contains("Tr0ub4dor"), "{shown} {events}");
}

/// Only a pull needs the login of a registry.
#[tokio::test(start_paused = true)]
async fn service_without_its_older_login_is_started_after_a_reboot() {
    let folder = tempfile::tempdir().unwrap();
    let login = folder.path().join("login.json");
    let rotate = |password: &str| {
        let text = format!(r#"{{"auths": {{"ghcr.io": {{"username": "a", "password": "{password}"}}}}}}"#);
        fs::write(&login, text).unwrap();
    };
    rotate("first-value");
    let mut simulation = Simulation::idle_at(Clock::starting_at(NOON));
    let text = format!(
        "repositories:\n- url: https://git.example/infra.git\n  valuesFrom: [{{file: {}, path: shop/login.json}}]\n",
        login.display()
    );
    simulation.settings = Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
    let kustomization = "resources: [web.yaml]
secretGenerator:
- {name: key, literals: [key=of-git]}
- name: registry
  type: kubernetes.io/dockerconfigjson
  files: ['.dockerconfigjson=login.json']
";
    let web = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      imagePullSecrets: [{name: registry}]
      volumes: [{name: key, secret: {secretName: key}}]
      containers:
      - {name: web, image: 'web:1', volumeMounts: [{name: key, mountPath: /etc/key}]}
";
    let files = [("shop/kustomization.yaml", kustomization), ("shop/web.yaml", web)];
    simulation.git.push_files("Ada <a@b.c>", &files);
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    simulation.contents = ContentDir::open(&state, memory.path(), simulation.clock).unwrap();
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    rotate("second-value");
    let revisions = |simulation: &Simulation| simulation.store.revisions(&app()).unwrap().len();
    simulation.until("the new login is stored", |_| revisions(&simulation) == 2).await;
    simulation.synced_with_tip().await;
    let rollback = Rollback { to: None, reason: "2 is bad".to_owned(), until: Until::Manual };
    simulation.ask(RequestKind::Rollback(rollback)).await;
    minutes(5).await;

    let memory = reboot(&mut simulation, &state);
    simulation.begin();
    minutes(5).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());
    assert!(has_file_with(memory.path(), b"of-git"), "{}", simulation.story());
    assert!(!has_file_with(memory.path(), b"first-value"));
}

#[tokio::test]
async fn output_of_a_program_is_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "from program\n");
    let mut simulation = prepared(&format!(
        "[{{exec: [cat, {path}], name: DB_PASSWORD, interval: 1h}}, {{exec: [echo, 'TAG=7']}}]"
    ));
    simulation.clock = Clock::System;
    let simulation = simulation.begun();
    simulation.synced_with_tip().await;
    assert_eq!(env(&simulation, "PW").as_deref(), Some("from program"));
    assert_eq!(simulation.images(), ["web:7"]);
    // A fetch that a user asks for runs it again.
    file(folder.path(), "of the second run\n");
    let is_new = |_: &Application| env(&simulation, "PW").as_deref() == Some("of the second run");
    simulation.handle().request_fetch("infra");
    tokio::time::timeout(Duration::from_secs(60), simulation.until("it is run again", is_new)).await.unwrap();
}

#[tokio::test]
async fn failing_program_is_reported_with_its_error() {
    for (program, expected) in [
        ("[sh, -c, 'echo locked >&2; exit 3']", "it ended with exit status: 3: locked"),
        ("[/does/not/exist]", "No such file"),
        ("[sh, -c, 'head -c 2000000 /dev/zero']", "larger than 1 MiB"),
        ("[sleep, '600']", "it did not end within 1 s"),
        ("[sh, -c, 'sleep 600613 & wait']", "it did not end within 1 s"),
    ] {
        let mut simulation = prepared(&format!("[{{exec: {program}, name: DB_PASSWORD, timeout: 1s}}]"));
        simulation.clock = Clock::System;
        let simulation = simulation.begun();
        let until =
            simulation.until(expected, |application| format!("{:?}", application.status).contains(expected));
        until.await;
        assert!(simulation.images().is_empty());
    }
    // The shell's child has ended with it.
    let has_child = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        commands.into_iter().any(|command| command.starts_with(b"sleep\x00600613"))
    };
    let ended = async {
        while has_child() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("it was killed");
}

#[tokio::test]
async fn named_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut simulation = prepared(&format!("[{{file: {}}}]", pipe.display()));
    simulation.clock = Clock::System;
    let simulation = simulation.begun();
    let refused = simulation.until("the pipe is refused", |application| {
        format!("{:?}", application.status).contains("it is not a regular file")
    });
    refused.await;
}

#[test]
fn mistakes_in_sources_are_reported_at_their_location() {
    for (source, expected) in [
        ("{file: a.env}", "must be absolute"),
        ("{name: X}", "needs exactly one of `file`, `exec` and `env`"),
        ("{file: /a, env: B}", "needs exactly one of `file`, `exec` and `env`"),
        ("{env: 'A B'}", "must be the name of a variable"),
        ("{file: /a, interval: 5m}", "`interval` is for `exec` only"),
        ("{exec: [a], intervall: 5m}", "did you mean `interval`"),
    ] {
        let text = format!("repositories: [{{url: 'https://git.example/i.git', valuesFrom: [{source}]}}]\n");
        let findings = Settings::parse("driftless.yaml", &text).unwrap_err();
        let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|finding| finding.contains(expected)), "{source}: {all:?}");
        assert!(all[0].starts_with("driftless.yaml:1:"), "{all:?}");
    }
}

/// The live containers may be of any revision, so all answers hide the values of all of them.
#[tokio::test(start_paused = true)]
async fn no_answer_shows_a_value_of_another_revision() {
    const MANIFEST: &str = "services:
  web:
    image: 'web:1'
    command: [serve, --dsn, x, '${DB_PASSWORD}']
    environment: {GREETING: 'hi ${DB_PASSWORD}', ONCE: '${DB_PASSWORD}'}
  job: {image: 'job:1', restart: 'no', command: [run, '${DB_PASSWORD}']}
";
    let folder = tempfile::tempdir().unwrap();
    let value = |text: &str| file(folder.path(), &format!("DB_PASSWORD={text}-value\n"));
    let all = prepared(&format!("[{{file: {}}}]", value("first")));
    all.git.push(MANIFEST);
    let all = all.begun();
    all.synced_with_tip().await;
    let check = async |when: &str| {
        let mut texts = vec![format!("{:?}", all.handle().applications())];
        texts.push(format!("{:?}", all.store.newest_events(500, None).unwrap()));
        let mut kinds = vec![RequestKind::Plan, RequestKind::PlanAfter(Supposed::Rollback(None))];
        let against = ["1", "2", "3"].map(|number| Against::Revision(number.to_owned()));
        kinds.extend([Against::Pin, Against::Head].into_iter().chain(against).map(RequestKind::Drift));
        for kind in kinds {
            texts.push(format!("{:?}", all.handle().request(app(), kind).await));
        }
        for text in &texts {
            assert!(!text.contains("-value"), "{when}: {text}");
        }
        texts.concat()
    };
    let shown = check("at first").await;
    assert!(shown.contains("hi ••••"), "{shown}");

    // It fails, so it is not the last one that succeeded.
    all.docker.faults(|faults| faults.unhealthy.extend(["web:2".to_owned()]));
    let failing = MANIFEST.replace("web:1'", "web:2'\n    healthcheck: {test: check, retries: 1}");
    value("second");
    all.push(&failing).await;
    minutes(15).await;
    check("while it fails").await;
    value("third");
    minutes(15).await;
    check("after a rotation").await;
    all.ask(RequestKind::Suspend).await;
    value("fourth");
    all.push(&MANIFEST.replace(", ONCE: '${DB_PASSWORD}'", "")).await;
    minutes(5).await;
    let shown = check("while suspended").await;
    assert!(shown.contains("env.ONCE"), "{shown}");
    all.ask(RequestKind::Resume).await;
    all.synced_with_tip().await;
    check("at the end").await;
    let rollback = Rollback { to: Some("1".into()), reason: "slow".into(), until: Until::Manual };
    all.ask(RequestKind::Rollback(rollback)).await;
    minutes(5).await;
    check("after a rollback").await;
}
