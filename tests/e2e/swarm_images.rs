//! Newer images of a registry on a Docker Swarm, and the login to it in a manifest. `make e2e-swarm`, as root.

use driftless_model::Application;

use crate::{
    harness::{
        Swarm, manifests,
        registry::{PASSWORD, logins},
    },
    swarm::Deployed,
};

/// Passes in which nothing may be written.
const IDLE: usize = 5;

/// A Deployment that follows the digest of its tag, with the login to the registry.
fn manifest(image: &str) -> String {
    let address = image.split('/').next().unwrap();
    let deployment = manifests::deployment("web").replacen(
        "metadata: {name: web}",
        "metadata: {name: web, annotations: {driftless.update: digest}}",
        1,
    );
    assert!(deployment.contains("driftless.update"), "{deployment}");
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: registry}}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{}'
---
{deployment}      terminationGracePeriodSeconds: 1
      imagePullSecrets: [{{name: registry}}]
      containers: [{{name: web, image: \"{image}\"}}]
",
        logins(&[address]),
    )
}

/// The image of the service, and that of its task.
fn images(all: &Deployed) -> (String, String) {
    let service = all.inspect("web")["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"].clone();
    let running = ["--no-trunc", "--filter", "desired-state=running", "--format", "{{.Image}}"];
    let task = all.docker(&[&["service", "ps"], &running[..], &[&all.service("web")]].concat());
    (service.as_str().unwrap().to_owned(), task.trim().to_owned())
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn moved_tag_of_a_closed_registry_is_followed_in_a_swarm() {
    let directory = tempfile::tempdir().unwrap();
    let swarm = Swarm::with_closed_registry(directory.path()).await;
    let image = swarm.publish_as("server", "prod", "1.0").await;
    let files = |image: &str| vec![("all.yaml", manifest(image))];
    let mut all = Deployed::on("swarm-images", true, (directory, swarm, image.clone()), files).await;
    let (first, task) = images(&all);
    assert!(first.starts_with(&format!("{image}@sha256:")) && task == first, "{first}: {task}");

    // The same content under the same tag is no update.
    let before = all.versions();
    all.swarm.publish_as("server", "prod", "1.0").await;
    all.passes(IDLE).await;
    assert_eq!(all.versions(), before);

    all.swarm.publish_as("server", "prod", "2.0").await;
    all.agent.sync().await;
    all.until("the newer image runs", |all| {
        let (service, task) = images(all);
        service != first && task == service
    })
    .await;
    let is_settled = |it: &Application| it.status.revision == Some(2) && it.status.message.is_empty();
    let application = all.agent.until("it is synced", is_settled).await;
    assert!(application.status.images[0].resolved.is_some(), "{:?}", application.status.images);
    let (second, _) = images(&all);
    let written = all.versions();
    all.agent.kill9();
    all.agent.restart().await;
    all.agent.until("it has looked again", |it| it.status.observed_at.is_some()).await;
    all.passes(IDLE).await;
    assert_eq!(all.versions(), written, "{}", all.agent.log());

    // Back to the digest of before, which the tag does not name any more, and forth.
    all.agent.said(&format!("rollback {}", all.site.app));
    all.until("the former image runs again", |all| images(all) == (first.clone(), first.clone())).await;
    all.agent.said(&format!("resume {}", all.site.app));
    all.until("the newer image runs again", |all| images(all) == (second.clone(), second.clone())).await;
    let application = all.agent.application().await.unwrap();
    let told = format!("{}{}", all.agent.log(), serde_json::to_string(&application).unwrap());
    assert!(!told.contains(PASSWORD));
}
