//! The running program: its environment, its health check, its service manager, and the reload of its configuration.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::{Instant, sleep},
};

use crate::{
    ports::free_port,
    program::{LIMIT, Program},
};

#[tokio::test]
async fn broken_configuration_is_refused_and_the_old_one_stays() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml");
    let config = config.to_str().unwrap();
    program.start(&["run", "--config", config], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
    assert_eq!(program.repositories().await, ["infra"]);
    let process = program.child.as_ref().unwrap().id();

    program.configure("- {url: /srv/none/infra.git}\n- {url: /srv/none/shop.git, pol: 60s}\n");
    program.signal(Signal::SIGHUP);
    let event = program.event("ConfigurationRefused").await;
    let place = format!("{config}:7:29: error: repositories[1].pol: unknown key `pol`");
    assert!(event.contains(&place), "{event}");
    let status = program.notified();
    assert!(status.starts_with("STATUS=the new configuration is refused, the old one stays: "), "{status}");
    let (_, shown) = program.client(&["status"]).await;
    assert!(shown.contains("agent: configuration") && shown.contains(&place), "{shown}");
    assert_eq!(program.repositories().await, ["infra"]);

    // Mistakes that are in no line of the file.
    program.configure("- {url: /srv/none/infra.git}\nsops: {keyFiles: [/no/such/key]}\n");
    program.signal(Signal::SIGHUP);
    program.event("/no/such/key").await;
    program.notified();
    let text = fs::read_to_string(config).unwrap().replace("/state\n", "/other-state\n");
    fs::write(config, text).unwrap();
    program.signal(Signal::SIGHUP);
    program.event("`stateDir` cannot change while the agent runs").await;
    program.notified();
    program.configure("- {url: /srv/none/infra.git}\nstateKeyFile: /etc/driftless/other.key\n");
    program.signal(Signal::SIGHUP);
    program.event("`stateKeyFile` cannot change while the agent runs").await;
    program.notified();
    assert_eq!(program.repositories().await, ["infra"]);

    // The mistake is undone: the settings are those that the agent has.
    program.configure("- {url: /srv/none/infra.git}\n");
    assert_eq!(program.notified(), "STATUS=following 1 repository");

    program.configure("- {url: /srv/none/infra.git}\n- {url: /srv/none/shop.git}\n");
    program.signal(Signal::SIGHUP);
    let reloading = program.notified();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 2 repositories");
    assert_eq!(program.repositories().await, ["infra", "shop"]);
    program.event("ConfigurationReloaded").await;
    let (_, shown) = program.client(&["status"]).await;
    assert!(!shown.contains("agent: configuration"), "{shown}");
    assert_eq!(program.child.as_ref().unwrap().id(), process, "the process is the same");
    program.end().await;
}

#[tokio::test]
async fn repository_that_cannot_be_set_up_leaves_the_others_running() {
    let mut program = Program::new();
    let authority = program.path("ca.pem");
    let broken =
        format!("- {{url: 'https://127.0.0.1:1/shop.git', caFile: '{}', poll: 1s}}\n", authority.display());
    program.configure(&format!("- {{url: /srv/none/infra.git}}\n{broken}"));
    let config = program.path("driftless.yaml").display().to_string();
    program.start(&["run", "--config", &config], &[]);
    assert_eq!(program.repositories().await, ["infra", "shop"]);
    program.repository_says("infra", "/srv/none/infra.git").await;
    program.repository_says("shop", "ca.pem").await;
    // The file that was missing is there now: the server is asked, without a restart.
    fs::copy("crates/git/tests/it/tls/ca.pem", &authority).unwrap();
    program.repository_says("shop", "refused").await;
    program.end().await;
    drop(program);

    // Without any repository that can be followed, the agent says so and ends.
    let program = Program::new();
    program.configure(&broken);
    let config = program.path("driftless.yaml").display().to_string();
    let run =
        Command::new(env!("CARGO_BIN_EXE_driftless")).args(["run", "--config", &config]).env_clear().output();
    let refused = run.await.unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && text.contains("ca.pem"), "{text}");
}

#[tokio::test]
async fn changed_configuration_file_is_reloaded_without_a_signal() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert_eq!(program.repositories().await, ["infra"]);
    // A comment is no change of settings.
    program.configure("- {url: /srv/none/infra.git} # the only one\n");
    let end = Instant::now() + LIMIT;
    while !program.log().contains("its settings have not") {
        assert!(Instant::now() < end, "{}", program.log());
        sleep(Duration::from_millis(50)).await;
    }
    program.configure("- {url: /srv/none/shop.git}\n");
    let end = Instant::now() + LIMIT;
    while program.repositories().await != ["shop"] {
        assert!(Instant::now() < end, "{}", program.log());
    }
    program.end().await;
}

/// The file does not change when the key appears that it names.
#[tokio::test]
async fn refused_configuration_is_tried_again() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let (config, key) = (program.path("driftless.yaml"), program.path("age-key.txt"));
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert_eq!(program.repositories().await, ["infra"]);
    program.configure(&format!("- {{url: /srv/none/shop.git}}\nsops: {{keyFiles: [{}]}}\n", key.display()));
    program.event("age-key.txt").await;
    assert_eq!(program.repositories().await, ["infra"]);
    fs::copy("crates/sops/tests/files/age-key.txt", &key).unwrap();
    let end = Instant::now() + LIMIT;
    while program.repositories().await != ["shop"] {
        assert!(Instant::now() < end, "{}", program.log());
        sleep(Duration::from_millis(200)).await;
    }
    let (_, events) = program.client(&["events"]).await;
    assert_eq!(events.matches("ConfigurationRefused").count(), 1, "{events}");
    program.end().await;
}

#[tokio::test]
async fn changed_token_is_read_again() {
    let mut program = Program::new();
    let token = program.path("token");
    fs::write(&token, "first-token-first-token-first-token").unwrap();
    program.configure(&format!("- {{url: /srv/none/infra.git}}\ntokenFile: {}\n", token.display()));
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert!(program.notified().starts_with("READY=1"));
    let url = format!("http://127.0.0.1:{}/api/v1/agent", program.port);
    let ask = async |token: &str| {
        let answer = reqwest::Client::new().get(&url).bearer_auth(token).send().await;
        answer.map(|answer| answer.status().as_u16()).unwrap_or_default()
    };
    assert_eq!(ask("first-token-first-token-first-token").await, 200);
    fs::write(&token, "other-token-other-token-other-token").unwrap();
    let end = Instant::now() + LIMIT;
    while ask("other-token-other-token-other-token").await != 200 {
        assert!(Instant::now() < end, "{}", program.log());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ask("first-token-first-token-first-token").await, 401);
    // Other permissions, or the same token again, are no reason to start again.
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let end = Instant::now() + LIMIT;
    while !program.log().contains("the token file has changed, its token has not") {
        assert!(Instant::now() < end, "{}", program.log());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(program.log().matches("reloading the configuration").count(), 1, "{}", program.log());
    program.end().await;
}

#[tokio::test]
async fn added_decryption_key_is_used_without_a_signal() {
    let mut program = Program::new();
    let keys = program.path("age-key.txt");
    let read = |name: &str| fs::read_to_string(format!("crates/sops/tests/files/{name}")).unwrap();
    fs::write(&keys, read("other-key.txt")).unwrap();
    let config = format!("- {{url: /srv/none/infra.git}}\nsops: {{keyFiles: ['{}']}}\n", keys.display());
    program.configure(&config);
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
    fs::write(&keys, "# no key yet\n").unwrap();
    program.event("has no usable key").await;
    let refused = program.notified();
    assert!(refused.starts_with("STATUS=the new configuration is refused, the old one stays: "), "{refused}");
    // As `age-keygen >>` leaves it.
    fs::write(&keys, read("other-key.txt") + &read("age-key.txt")).unwrap();
    let reloading = program.notified();
    assert!(reloading.starts_with("RELOADING=1\n"), "{reloading}");
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
    program.end().await;
}

#[tokio::test]
async fn release_waits_while_the_configuration_is_refused() {
    let mut program = Program::new();
    let infra = "- {url: /srv/none/infra.git}\n";
    program.configure(infra);
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
    assert_eq!(program.repositories().await, ["infra"]);
    let (code, said) = program.client(&["release", "--undo"]).await;
    assert!(code == 0 && said.contains("nothing to undo"), "{said}");

    program.configure("- {url: /srv/none/infra.git, pol: 60s}\n");
    program.signal(Signal::SIGHUP);
    program.event("ConfigurationRefused").await;
    let (code, said) = program.client(&["release", "--all"]).await;
    assert!(code == 2 && said.contains("completes it once it can start again"), "{code}: {said}");
    assert!(said.contains("unknown key `pol`"), "{said}");
    let (_, shown) = program.client(&["status"]).await;
    assert!(shown.contains("agent: release\n") && shown.contains("everything was released at"), "{shown}");
    assert_eq!(program.repositories().await, ["infra"], "it goes on managing");
    // A release that has not begun can be ended, and nothing of it comes back later.
    let (code, said) = program.client(&["release", "--undo"]).await;
    assert!(code == 0 && said.contains("the release is ended before it began"), "{code}: {said}");
    let (_, shown) = program.client(&["status"]).await;
    assert!(!shown.contains("agent: release\n"), "{shown}");
    let (code, _) = program.client(&["release", "--all"]).await;
    assert_eq!(code, 2);
    // The settings are those that the agent has, and it starts again for the release.
    program.configure(infra);
    let end = Instant::now() + LIMIT;
    loop {
        let (_, shown) = program.client(&["status"]).await;
        if shown.contains("agent: released") {
            assert!(
                !shown.contains("agent: release\n") && !shown.contains("agent: configuration"),
                "{shown}"
            );
            break;
        }
        assert!(Instant::now() < end, "{shown}\n{}", program.log());
        sleep(Duration::from_millis(50)).await;
    }
    let (code, said) = program.client(&["release", "--undo"]).await;
    assert!(code == 0 && said.contains("the agent manages again what Git says"), "{code}: {said}");
    assert_eq!(program.repositories().await, ["infra"]);
    program.end().await;
}

#[tokio::test]
async fn first_signal_to_stop_during_a_reload_ends_the_agent() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert!(program.notified().starts_with("READY=1"));
    // A request that is being answered keeps the agent from stopping for 3 seconds.
    let mut client = TcpStream::connect(("127.0.0.1", program.port)).await.unwrap();
    let head = "POST /api/v1/tokens HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n";
    client.write_all(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 100");
    program.signal(Signal::SIGHUP);
    assert!(program.notified().starts_with("RELOADING=1"));
    program.signal(Signal::SIGTERM);
    assert_eq!(program.notified(), "STOPPING=1");
    let status = program.child.take().unwrap().wait().await.unwrap();
    assert_eq!(status.code(), Some(0), "{}", program.log());
}

#[tokio::test]
async fn listeners_swap_their_addresses() {
    let mut program = Program::new();
    let free = free_port();
    let with_metrics =
        |port: u16| format!("- {{url: /srv/none/infra.git}}\nmetrics: {{listen: '127.0.0.1:{port}'}}\n");
    program.configure(&with_metrics(free));
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert!(program.notified().starts_with("READY=1"));
    let before = std::mem::replace(&mut program.port, free);
    program.configure(&with_metrics(before));
    program.signal(Signal::SIGHUP);
    let reloading = program.notified();
    assert!(reloading.starts_with("RELOADING=1"), "{reloading}: {}", program.log());
    assert_eq!(program.repositories().await, ["infra"]);
    program.end().await;
}

#[tokio::test]
async fn health_check_finds_the_agent_despite_its_changed_file() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert!(program.notified().starts_with("READY=1"));
    let healthy = async |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        let command = command.arg("healthcheck").env_clear().env("DRIFTLESS_CONFIG", &config);
        command.envs(environment.iter().copied()).output().await.unwrap().status.code()
    };
    assert_eq!(healthy(&[]).await, Some(0));
    // The agent cannot listen there, so it refuses the file.
    let real = fs::read_to_string(&config).unwrap();
    let listen = format!("127.0.0.1:{}", program.port);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = real.replace(&listen, &taken.local_addr().unwrap().to_string());
    for refused in [elsewhere.clone(), format!("pol: 60s\n{elsewhere}")] {
        fs::write(&config, refused).unwrap();
        assert_eq!(healthy(&[]).await, Some(0));
    }
    // An address that is given is that of another agent of this machine.
    assert_eq!(healthy(&[("DRIFTLESS_LISTEN", "127.0.0.1:1")]).await, Some(1));
    assert_eq!(healthy(&[("DRIFTLESS_LISTEN", &listen)]).await, Some(0));
    // With other syntax than YAML the state directory has to be known.
    fs::write(&config, "listen: [").unwrap();
    let state = program.path("state").display().to_string();
    assert_eq!(healthy(&[("DRIFTLESS_STATE_DIR", &state)]).await, Some(0));
    fs::write(&config, real).unwrap();
    program.end().await;
    assert_eq!(healthy(&[]).await, Some(1));
}

#[tokio::test]
async fn agent_runs_with_settings_from_the_environment_alone() {
    let mut program = Program::new();
    let state = program.path("state").display().to_string();
    let runtime = program.runtime.path().display().to_string();
    let listen = format!("127.0.0.1:{}", program.port);
    let engine = format!("unix://{}", program.path("no-engine.sock").display());
    let environment = [
        ("DRIFTLESS_URL", "/srv/none/infra.git"),
        ("DRIFTLESS_NAME", "site"),
        ("DRIFTLESS_BRANCH", ""),
        ("DRIFTLESS_TAG", "v1"),
        ("DRIFTLESS_PRUNE", "yes"),
        ("DRIFTLESS_STATE_DIR", &state),
        ("DRIFTLESS_RUNTIME_DIR", &runtime),
        ("DRIFTLESS_LISTEN", &listen),
        ("DRIFTLESS_DOCKER_HOST", &engine),
        ("DRIFTLESS_BRACNH", "main"),
    ];
    program.start(&["run"], &environment);
    assert_eq!(program.repositories().await, ["site"]);
    assert!(program.log().contains("tag v1"), "{}", program.log());
    assert!(program.log().contains("DRIFTLESS_BRACNH"), "{}", program.log());

    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml").display().to_string();
    let both = [("DRIFTLESS_CONFIG", config.as_str()), ("DRIFTLESS_PATH", "sites")];
    let refused = Command::new(env!("CARGO_BIN_EXE_driftless")).arg("run").env_clear().envs(both).output();
    let refused = refused.await.unwrap();
    assert_eq!(refused.status.code(), Some(2), "a file and settings of one repository exclude each other");

    let (code, text) = program.client(&["healthcheck"]).await;
    assert_eq!((code, text.as_str()), (0, ""));
    let (code, text) = program.client(&["healthcheck", "--ready"]).await;
    assert!(code == 1 && text.contains("is not ready"), "{code}: {text}");
    // The agent's own environment names the address too.
    let healthy = |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.arg("healthcheck").env_clear().envs(environment.iter().copied());
        async move { command.output().await.unwrap().status.code() }
    };
    assert_eq!(healthy(&environment).await, Some(0));
    let everywhere = format!("0.0.0.0:{}", program.port);
    assert_eq!(healthy(&[("DRIFTLESS_LISTEN", &everywhere)]).await, Some(0));
    assert_eq!(healthy(&[("DRIFTLESS_CONFIG", &config)]).await, Some(0));
    program.end().await;
    assert_eq!(healthy(&environment).await, Some(1));
}

#[test]
fn every_option_of_run_has_an_environment_variable() {
    let page = driftless::cli::reference();
    let (_, run) = page.split_once("\n## driftless run\n").unwrap();
    let (run, _) = run.split_once("\n## ").unwrap();
    let options: Vec<&str> = run
        .lines()
        .filter_map(|line| line.trim_start().split_once("--").filter(|(before, _)| before.len() <= 4))
        .filter_map(|(_, rest)| rest.split([' ', '.']).next())
        .filter(|name| *name != "help")
        .collect();
    assert!(options.len() > 20, "{options:?}");
    let variable = |name: &str| format!("[env: DRIFTLESS_{}]", name.to_uppercase().replace('-', "_"));
    let missing: Vec<&&str> = options.iter().filter(|name| !run.contains(&variable(name))).collect();
    assert_eq!(missing, [&""; 0]);
}
