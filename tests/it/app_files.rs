//! The application's own folder: when copies of tracked files that left Git are removed, and who goes on with it after a rename.

use std::{fs, time::Duration};

use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{AppName, Application};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

const WRITING: &str = "services:\n  web: {image: 'web:1', restart: always, volumes: ['./site:/site']}\n";
const PAGE: (&str, &str) = ("shop/site/index.html", "hello");

#[tokio::test(start_paused = true)]
async fn copies_stay_until_no_container_mounts_them() {
    let it = Simulation::idle_at(Clock::starting_at(NOON));
    it.git.push_files("Ada", &[("shop/compose.yaml", WRITING), PAGE, ("shop/site/old.html", "old")]);
    let it = it.begun();
    it.synced_with_tip().await;
    let folder = it.contents.app_folder(&app()).join("site");
    assert!(folder.join("index.html").exists() && folder.join("old.html").exists());
    // The folder is still the application's, and Git does not have the file any more.
    it.git.push_files("Ada", &[("shop/compose.yaml", WRITING), PAGE]);
    it.ask(RequestKind::Sync).await;
    it.synced_with_tip().await;
    assert!(folder.join("index.html").exists() && !folder.join("old.html").exists());
    // The next version mounts the files of the commit in place of the folder, and its image takes a while.
    it.docker.faults(|faults| {
        faults.pulls.insert("web:2".into(), Duration::from_mins(20));
    });
    let reading = WRITING.replace("web:1", "web:2").replace("/site']", "/site:ro']");
    it.git.push_files("Ada", &[("shop/compose.yaml", &reading), PAGE]);
    it.ask(RequestKind::Sync).await;
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"]);
    assert!(folder.join("index.html").exists(), "the running container serves it");
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
    assert!(!folder.join("index.html").exists(), "nothing mounts it any more");
}

#[tokio::test(start_paused = true)]
async fn removed_application_leaves_no_copies() {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.prune = true;
    it.git.push_files("Ada", &[("shop/compose.yaml", WRITING), PAGE]);
    let it = it.begun();
    it.synced_with_tip().await;
    let copy = it.contents.app_folder(&app()).join("site/index.html");
    assert!(copy.exists());
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(5).await;
    assert!(it.images().is_empty(), "{}", it.story());
    assert!(!copy.exists());
}

#[tokio::test(start_paused = true)]
async fn kept_files_and_mounted_ones_that_leave_git_are_events() {
    let both = WRITING.replace("'./site:/site'", "'./site:/site', './shop.db:/shop.db'");
    let database = ("shop/shop.db", "rows");
    let it = Simulation::idle_at(Clock::starting_at(NOON));
    it.git.push_files("Ada", &[("shop/compose.yaml", &both), PAGE, database]);
    let it = it.begun();
    it.synced_with_tip().await;
    let folder = it.contents.app_folder(&app());
    let page = folder.join("site/index.html");
    fs::write(&page, "of the container").unwrap();
    it.git.push_files("Ada", &[("shop/compose.yaml", &both), ("shop/site/index.html", "new"), database]);
    it.ask(RequestKind::Sync).await;
    it.synced_with_tip().await;
    assert_eq!(fs::read_to_string(&page).unwrap(), "new");
    let kept = page.with_file_name("index.html.driftless-kept");
    assert_eq!(fs::read_to_string(kept).unwrap(), "of the container");
    it.git.push_files("Ada", &[("shop/compose.yaml", &both), ("shop/site/index.html", "new")]);
    it.ask(RequestKind::Sync).await;
    it.synced_with_tip().await;
    minutes(60).await;
    assert_eq!(fs::read_to_string(folder.join("shop.db")).unwrap(), "rows");
    let events = it.store.newest_events(1000, Some(&app())).unwrap();
    let told = |reason: &str| {
        let messages = events.iter().filter(|event| event.reason == reason).map(|event| &*event.message);
        messages.collect::<Vec<_>>()
    };
    let [kept] = told("FileKept")[..] else { panic!("{events:#?}") };
    assert!(
        kept.contains("`site/index.html`") && kept.contains("`site/index.html.driftless-kept`"),
        "{kept}"
    );
    let [left] = told("FileLeftGit")[..] else { panic!("{events:#?}") };
    assert!(left.starts_with("`shop.db` is mounted"), "{left}");
}

/// As after a restart of the host without the disk that has the folder.
#[tokio::test(start_paused = true)]
async fn missing_folder_of_a_container_is_not_made_again() {
    let mut it = Simulation::of("services:\n  db: {image: 'db:1', volumes: ['./data:/data']}\n");
    it.synced_with_tip().await;
    let folder = it.contents.app_folder(&app()).join("data");
    it.crash();
    fs::remove_dir(&folder).unwrap();
    let name = it.docker.observed(&app()).instances.into_values().next().unwrap().name;
    it.hand(&UserAction::Stop { name });
    it.begin();
    let is_refused = |shown: &Application| shown.status.message.contains("data is missing, and container");
    let refused = it.until("the folder is missing", is_refused).await;
    assert!(refused.status.message.contains("mount its disk"), "{:#?}", refused.status);
    minutes(30).await;
    assert!(!folder.exists());
    assert!(it.docker.observed(&app()).instances.values().all(|found| !found.is_running()), "{}", it.story());
    // The disk is mounted, and the commit adds another path.
    fs::create_dir(&folder).unwrap();
    it.push("services:\n  db: {image: 'db:1', volumes: ['./data:/data', './more:/more']}\n").await;
    it.synced_with_tip().await;
    assert!(folder.with_file_name("more").exists(), "a new path is made");
}

#[tokio::test(start_paused = true)]
async fn renamed_application_goes_on_with_its_folder() {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.prune = true;
    let compose = format!("name: shop\n{WRITING}");
    it.git.push_files("Ada", &[("shop/compose.yaml", &compose), PAGE]);
    let mut it = it.begun();
    it.synced_with_tip().await;
    let folder = it.contents.app_folder(&app()).join("site");
    fs::write(folder.join("rows.db"), "precious").unwrap();
    fs::write(folder.join("index.html"), "changed").unwrap();
    it.git.push_files("Ada", &[("store/compose.yaml", &compose), ("store/site/index.html", "hello")]);
    minutes(10).await;
    let store = AppName::from("store");
    assert_eq!(it.docker.observed(&store).instances.len(), 1, "{}", it.story());
    let new = it.contents.app_folder(&store).join("site");
    let text = |name: &str| fs::read_to_string(new.join(name)).unwrap();
    assert_eq!((text("rows.db"), text("index.html")), ("precious".to_owned(), "changed".to_owned()));
    assert!(!it.contents.has_app_folder(&app()));
    // The rename is taken back, in the next life of the agent.
    it.crash();
    it.begin();
    it.git.push_files("Ada", &[("shop/compose.yaml", &compose), PAGE]);
    minutes(10).await;
    assert_eq!(it.docker.observed(&app()).instances.len(), 1, "{}", it.story());
    assert_eq!(fs::read_to_string(folder.join("rows.db")).unwrap(), "precious");
    assert!(!it.contents.has_app_folder(&store));
}
