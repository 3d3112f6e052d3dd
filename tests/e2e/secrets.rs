//! Secrets that SOPS encrypted in Git: they reach the container, and no other place.

use std::{fs, path::Path};

use serde_json::json;

use crate::harness::{Site, images};

/// Its four values begin with `PLANTED` or are `PLANT6`, and have 6, 12, 30 and 60 letters.
const ENCRYPTED: &str = include_str!("../../crates/sops/tests/files/planted.env");

/// The secrets in every place that a Compose file has for them.
fn compose(version: &str) -> String {
    format!(
        "services:\n  web:\n    image: {}\n    restart: unless-stopped\n    env_file: app.env\n    \
         environment: {{PLAIN: '${{ORDINARY}}', URL: 'http://${{PIN}}.example/${{MODE}}', SHORT: '${{PIN}}'}}\n    \
         labels: {{note: 'is ${{LONG}}', pin: '${{PIN}}', command: 'true ${{ORDINARY}} --mode=${{MODE}}'}}\n",
        images::server(version)
    )
}

/// The files below a folder that contain a planted value.
fn files_with_secrets(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_with_secrets(&path));
        } else if path.is_file() && has_secret(&fs::read(&path).unwrap()) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|window| window == b"PLANT6" || window == b"PLANTE")
}

#[track_caller]
fn assert_hidden(source: &str, text: &str) {
    let leaks: Vec<&str> = text.lines().filter(|line| has_secret(line.as_bytes())).collect();
    assert!(leaks.is_empty(), "{source}: {leaks:#?}");
}

#[tokio::test]
async fn encrypted_values_are_in_the_container_and_nowhere_else() {
    let mut site = Site::new("secrets");
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/sops/tests/files/age-key.txt");
    site.settings.whole = Some(json!({ "sops": { "keyFiles": [key] } }));
    site.settings.log = Some("trace");
    let (manifest, dotenv) = (site.path("compose.yaml"), site.path(".env"));
    let env_file = site.path("app.env");
    let first =
        [(manifest.as_str(), compose("1.0")), (&dotenv, ENCRYPTED.into()), (&env_file, ENCRYPTED.into())];
    let first = site.repository.commit(&first.each_ref().map(|(path, text)| (*path, text.as_str())));
    let mut agent = site.agent().await;
    agent.settled(&first).await;
    let web = site.container("web");
    assert_eq!(web.variable("PLAIN").as_deref(), Some("PLANTED-ordinary-30-letters-aa"));
    assert_eq!(web.variable("LONG").map(|value| value.len()), Some(60), "of `env_file`");

    // A second revision, drift, a rollback and a restart write everything that the agent ever writes.
    let second = site.compose(&compose("2.0"));
    agent.deployed(&second).await;
    site.docker.run(&["rm", "-f", &site.container("web").id()]);
    agent.event("the removed container is reported", |event| event.reason == "DriftDetected").await;
    agent.settled(&second).await;
    agent.restart().await;
    agent.settled(&second).await;
    agent.ask("rollback", json!({ "reason": "2.0 is bad" })).await;
    agent.settled(&first).await;

    let app = &site.app;
    for path in
        ["/", "/api/v1/applications", "/api/v1/events?limit=1000", "/api/v1/objects", "/api/v1/repositories"]
    {
        let (status, body) = agent.get(path).await.unwrap();
        assert_eq!(status, 200, "{path}");
        assert_hidden(path, &body.to_string());
    }
    for command in
        ["status -o json", "get all -A -o yaml", "describe pods", "describe deploy", "events", "config"]
    {
        assert_hidden(command, &format!("{:?}", agent.asks(command)));
    }
    for command in ["history", "plan", "diff", "status"] {
        assert_hidden(command, &format!("{:?}", agent.asks(&format!("{command} {app}"))));
    }
    assert_hidden("log", &agent.log());
    assert!(agent.log().contains("TRACE"), "the log has everything");
    agent.terminate().await;
    assert_eq!(files_with_secrets(&agent.state_dir()), [""; 0]);
}
