//! The clean-up of images, with a real registry and a real engine.

use std::time::Duration;

use driftless_model::{ImageUse, KeepReason};
use rusqlite::{Connection, params};

use crate::harness::{Agent, Registry, Site, random};

fn web(image: &str) -> String {
    format!("services:\n  web:\n    image: {image}\n    restart: unless-stopped\n")
}

async fn uses(agent: &Agent, name: &str) -> Vec<ImageUse> {
    let (status, body) = agent.get("/api/v1/images").await.unwrap();
    assert_eq!(status, 200, "{body}");
    let all: Vec<ImageUse> = serde_json::from_value(body).unwrap();
    all.into_iter().filter(|image| image.names.iter().any(|found| found.contains(name))).collect()
}

fn unneeded(uses: &[ImageUse]) -> Vec<&str> {
    uses.iter()
        .filter(|image| image.is_unneeded())
        .flat_map(|image| &image.names)
        .map(String::as_str)
        .collect()
}

/// Makes everything that the agent has noted older than the limits.
fn make_older(agent: &Agent) {
    let database = agent.database().into_iter().find(|path| path.ends_with("driftless.db")).unwrap();
    let connection = Connection::open(database).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let past = "2026-01-01T00:00:00Z";
    let set = "UPDATE images SET image = json_set(image, '$.at', ?1)";
    assert!(connection.execute(set, params![past]).unwrap() > 0);
    let set = "UPDATE revisions SET revision = json_set(revision, '$.started', ?1)";
    assert!(connection.execute(set, params![past]).unwrap() > 0);
}

#[tokio::test]
async fn only_unneeded_images_of_the_agent_are_removed() {
    let site = Site::new("images");
    let registry = Registry::start(&site.directory()).await;
    // The version is part of the image, so no other test has brought the same image.
    let unique = random();
    let publish = |number: &str| registry.publish(&site.docker, &site.app, &format!("{number}-{unique}"));
    let first = publish("1.0.0");
    let version = |number: &str| first.replace("1.0.0", number);
    let images = ["1.0.1", "1.0.2"].map(publish);
    let mut agent = site.running(&web(&first)).await;
    for image in &images {
        let commit = site.compose(&web(image));
        agent.sync().await;
        agent.settled(&commit).await;
    }
    assert_eq!(unneeded(&uses(&agent, &site.app).await), [""; 0], "all are new");

    agent.terminate().await;
    make_older(&agent);
    agent.restart().await;
    agent.until("the application is observed", |it| it.status.observed_at.is_some()).await;
    // Somebody else relies on the image between the two.
    let backup = format!("{}-backup:before", site.app);
    site.docker.run(&["tag", &version("1.0.1"), &backup]);
    let listed = uses(&agent, &site.app).await;
    assert_eq!(unneeded(&listed), [first.as_str()], "{listed:?}");
    let tagged = listed.iter().find(|image| image.names.contains(&backup)).unwrap();
    assert_eq!(tagged.kept_for, [KeepReason::OtherName { name: backup.clone() }]);

    let (code, out, _) = agent.asks("images --remove");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(&format!("removed {first}")), "{out}");
    let exists = |image: &str| site.docker.attempt(&["image", "inspect", image]).is_ok();
    assert!(!exists(&first));
    assert!(exists(&backup) && exists(&version("1.0.1")) && exists(&version("1.0.2")));
    let (_, table, _) = agent.asks("images -o wide");
    assert!(table.contains(&format!("container {}", site.container("web").name())), "{table}");

    // Without the other name it goes too, and the one that runs stays.
    site.docker.run(&["rmi", &backup]);
    agent.asks("images --remove");
    assert!(!exists(&version("1.0.1")) && exists(&version("1.0.2")));
    assert_eq!(
        agent.asks("images --remove").1,
        "nothing to remove: every image is needed or was not brought by the agent\n"
    );
    drop(agent);
    let _ = site.docker.attempt(&["rm", "-f", &site.container("web").name()]);
    let _ = site.docker.attempt(&["rmi", &version("1.0.2")]);
}
