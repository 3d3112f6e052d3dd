//! Registries that ask who we are: a Secret of the application, the configuration, what `docker login` wrote, and
//! nobody.

use serde_json::json;

use crate::harness::{
    Registry, Settings, Site, manifests,
    registry::{PASSWORD, USER, logins},
};

/// A configuration with the login in a file.
fn configured(directory: &std::path::Path, host: &str) -> serde_json::Value {
    let file = directory.join("registry-password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    json!({ "registries": [{ "host": host, "username": USER, "passwordFile": file }] })
}

#[tokio::test]
async fn private_registry_serves_pulls_and_builds_with_a_login() {
    let mut site = Site::new("login");
    let registry = Registry::closed(&site.directory()).await;
    let image = registry.publish(&site.docker, &site.app, "1.0");
    let compose = format!("services:\n  web:\n    image: {image}\n    restart: unless-stopped\n");
    let commit = site.compose(&compose);
    {
        let agent = site.agent().await;
        let refused = |it: &driftless_model::Application| {
            let host = &registry.address;
            it.status.waits.iter().any(|wait| {
                wait.message.contains(&format!("there is no login for {host}: add one under `registries`"))
            })
        };
        agent.until("nobody is refused, with advice", refused).await;
    }
    site.settings =
        Settings { whole: Some(configured(&site.directory(), &registry.address)), ..Settings::default() };
    let agent = site.agent().await;
    // The pause after the refusal outlives the agent, and a user who has corrected the login need not wait for its end.
    agent.sync().await;
    agent.settled(&commit).await;

    // The base of a build as well, which is on this host no more.
    let base = registry.publish(&site.docker, &format!("{}-base", site.app), "2.0");
    let compose = "services:\n  web:\n    build: {context: app}\n    restart: unless-stopped\n";
    let commit = site.repository.commit(&[
        (&site.path("compose.yaml"), compose),
        (&site.path("app/Dockerfile"), &format!("FROM {base}\nENV BUILT=yes\n")),
    ]);
    agent.sync().await;
    agent.settled(&commit).await;
    assert_eq!(site.container("web").variable("BUILT").as_deref(), Some("yes"));
    assert!(!agent.log().contains(PASSWORD));
}

#[tokio::test]
async fn the_secret_of_a_pod_is_its_login_and_stays_one() {
    let site = Site::new("pull-secret");
    let registry = Registry::closed(&site.directory()).await;
    let image = registry.publish(&site.docker, &site.app, "1.0");
    let text = format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: registry}}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{}'
---
{}      terminationGracePeriodSeconds: 1
      imagePullSecrets: [{{name: registry}}]
      containers: [{{name: web, image: \"{image}\"}}]
",
        logins(&[&registry.address]),
        manifests::deployment("web")
    );
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &text)]);
    let agent = site.agent().await;
    let application = agent.settled(&commit).await;
    let told = format!("{}{}", agent.log(), serde_json::to_string(&application).unwrap());
    assert!(!told.contains(PASSWORD));
    // Neither is it on the disk: it lies where mounted secrets lie.
    for entry in std::fs::read_dir(agent.state_dir()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let auth = logins(&["x"]);
        let auth = auth.split("\"auth\":\"").nth(1).unwrap().split('"').next().unwrap();
        let is_in = |word: &str| bytes.windows(word.len()).any(|it| it == word.as_bytes());
        assert!(!is_in(PASSWORD) && !is_in(auth), "{}", path.display());
    }
}

#[tokio::test]
async fn credential_helper_gives_the_login_of_a_pull() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut site = Site::new("helper");
    let registry = Registry::closed(&site.directory()).await;
    let image = registry.publish(&site.docker, &site.app, "1.0");
    let tools = site.directory().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let program = tools.join("docker-credential-vault");
    let script = format!(
        "#!/bin/sh\nread -r host\ntest \"$1 $host\" = \"get {}\" || exit 1\necho '{}'\n",
        registry.address,
        json!({ "ServerURL": registry.address, "Username": USER, "Secret": PASSWORD })
    );
    std::fs::write(&program, script).unwrap();
    let client = json!({ "credHelpers": { &registry.address: "vault" } });
    std::fs::write(tools.join("config.json"), client.to_string()).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let environment = vec![("DOCKER_CONFIG", tools.display().to_string()), ("PATH", path)];
    site.settings = Settings { environment, ..Settings::default() };
    let commit = site.compose(&format!("services: {{web: {{image: \"{image}\", stop_grace_period: 1s}}}}\n"));
    let agent = site.agent().await;
    // It must not be run before its mode is that of a program.
    agent
        .until("the helper to be reported", |application| {
            application
                .status
                .waits
                .iter()
                .any(|wait| wait.message.contains("docker-credential-vault could not be run"))
        })
        .await;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    agent.sync().await;
    let application = agent.settled(&commit).await;
    let told = format!("{}{}", agent.log(), serde_json::to_string(&application).unwrap());
    assert!(!told.contains(PASSWORD));
}
