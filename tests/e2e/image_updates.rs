//! Newer images of a real registry, deployed on the real engine.

use driftless_model::{Application, Cause, ImageUpdateStatus};

use serde_json::json;

use crate::harness::{
    Registry, Site, random,
    registry::{PASSWORD, USER},
};

fn web(image: &str, update: &str) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    restart: unless-stopped\n    x-driftless: {{update: {update}}}\n"
    )
}

fn image(application: &Application) -> &ImageUpdateStatus {
    &application.status.images[0]
}

#[tokio::test]
async fn moved_tag_is_deployed_as_a_revision_and_can_be_rolled_back() {
    let site = Site::new("follow");
    let registry = Registry::start(&site.directory()).await;
    let unique = random();
    let tagged = registry.publish_as(&site.docker, &site.app, "prod", &format!("1-{unique}"));
    let mut agent = site.running(&web(&tagged, "digest")).await;
    let first = site.container("web");

    // The same content under the same tag is no update, nor is a sync.
    registry.publish_as(&site.docker, &site.app, "prod", &format!("1-{unique}"));
    agent.sync().await;
    let asked = image(&agent.application().await.unwrap()).checked;
    // An answer without news is noted by the next round.
    for _ in 0..3 {
        agent.sync().await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    agent.until("the registry was asked again", |it| image(it).checked > asked).await;
    assert_eq!(site.container("web").id(), first.id());

    registry.publish_as(&site.docker, &site.app, "prod", &format!("2-{unique}"));
    agent.sync().await;
    let second = site.replaced("web", &first.id()).await;
    assert!(
        second.text("/Config/Image").starts_with(&format!("{tagged}@sha256:")),
        "{:?}",
        second.text("/Config/Image")
    );
    agent.until("it is synced", |it| it.status.revision == Some(2) && it.status.message.is_empty()).await;
    let causes: Vec<Cause> = agent.history().await.into_iter().map(|revision| revision.cause).collect();
    assert!(causes.contains(&Cause::Image), "{causes:?}");
    let (_, history, _) = agent.asks(&format!("history {}", site.app));
    assert!(history.contains("image"), "{history}");

    // Nothing is replaced by a restart, also if the record is lost with the agent's memory.
    agent.kill9();
    agent.restart().await;
    agent.sync().await;
    agent.until("it is observed", |it| it.status.observed_at.is_some()).await;
    assert_eq!(site.container("web").id(), second.id());

    let (code, out, error) = agent.asks(&format!("rollback {}", site.app));
    assert_eq!(code, 0, "{out}{error}");
    let back = site.replaced("web", &second.id()).await;
    assert_eq!(back.text("/Image"), first.text("/Image"));
    let (code, out, error) = agent.asks(&format!("resume {}", site.app));
    assert_eq!(code, 0, "{out}{error}");
    let again = site.replaced("web", &back.id()).await;
    assert_eq!(again.text("/Image"), second.text("/Image"));
}

#[tokio::test]
async fn newest_tag_of_a_range_is_reported_and_deployed_on_request() {
    let site = Site::new("range");
    let registry = Registry::start(&site.directory()).await;
    let unique = random();
    let publish = |tag: &str| registry.publish_as(&site.docker, &site.app, tag, &format!("{tag}-{unique}"));
    let tagged = publish("1.4.2");
    let agent = site.running(&web(&tagged, "{semver: ~1.4, mode: report}")).await;
    let first = site.container("web");
    for tag in ["1.4.10", "1.5.0", "1.4.11-rc1", "latest"] {
        publish(tag);
    }
    agent.sync().await;
    let told = agent.until("the newer tag is reported", |it| image(it).available.is_some()).await;
    let newest = image(&told).available.clone().unwrap().image;
    assert!(newest.starts_with(&tagged.replace("1.4.2", "1.4.10@sha256:")), "{newest}");
    let (_, shown, _) = agent.asks(&format!("status {}", site.app));
    assert!(shown.contains("has a newer image (1.4.10, sha256:"), "{shown}");
    assert_eq!(site.container("web").id(), first.id());

    let (code, out, error) = agent.asks(&format!("sync {} --update-images --wait", site.app));
    assert_eq!(code, 0, "{out}{error}");
    assert_eq!(site.replaced("web", &first.id()).await.text("/Config/Image"), newest);
    let (code, out, error) = agent.asks(&format!("sync {} --update-images", site.app));
    assert_ne!(code, 0, "{out}");
    assert!(error.contains("no newer image"), "{error}");
}

#[tokio::test]
async fn closed_registry_is_asked_with_the_login() {
    let mut site = Site::new("closed");
    let registry = Registry::closed(&site.directory()).await;
    let unique = random();
    let tagged = registry.publish_as(&site.docker, &site.app, "prod", &format!("1-{unique}"));
    let password = site.directory().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let login = json!({ "host": registry.address, "username": USER, "passwordFile": password });
    site.settings.whole = Some(json!({ "registries": [login] }));
    let mut agent = site.running(&web(&tagged, "digest")).await;
    for _ in 0..2 {
        agent.sync().await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    agent.until("the registry has answered", |it| image(it).checked.is_some()).await;

    std::fs::write(&password, "another").unwrap();
    agent.sync().await;
    let failed = agent.until("the login is refused", |it| image(it).failure.is_some()).await;
    let failure = image(&failed).failure.clone().unwrap();
    assert_eq!(failure.reason, "Unauthorized", "{failure:?}");
    assert!(failed.status.message.is_empty(), "the application itself is well: {}", failed.status.message);
    assert!(!agent.log().contains(PASSWORD));
    agent.terminate().await;
}
