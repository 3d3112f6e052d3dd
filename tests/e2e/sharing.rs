//! Services that share the network, processes, memory or volumes of another, on the real engine: after every
//! change of that other service they share with it again, and nothing else is touched.

use crate::harness::{Agent, Container, Site, images};

fn compose(vpn: &str, torrent: &str) -> String {
    format!(
        "services:
  vpn:
    image: {vpn}
    restart: unless-stopped
    ipc: shareable
    volumes: [/state]
  torrent:
    image: {torrent}
    restart: unless-stopped
    network_mode: service:vpn
    # The server of the tests takes port 8080, and there is only one in a network.
    environment: {{PORT: \"8081\"}}
  debug:
    image: {torrent}
    restart: unless-stopped
    network_mode: none
    pid: service:vpn
    ipc: service:vpn
    volumes_from: [\"vpn:ro\"]
  bystander:
    image: {torrent}
    restart: unless-stopped
"
    )
}

fn first() -> String {
    compose(&images::server("1.0"), &images::server("1.0"))
}

async fn start(test: &str) -> (Site, Agent) {
    let site = Site::new(test);
    let agent = site.running(&first()).await;
    assert_together(&site);
    (site, agent)
}

/// Everybody shares with the one that runs now, and began after it.
#[track_caller]
fn assert_together(site: &Site) {
    if let Some(why) = apart(site) {
        panic!("{why}");
    }
}

fn apart(site: &Site) -> Option<String> {
    let [vpn, torrent, debug] = ["vpn", "torrent", "debug"].map(|it| site.of(it));
    let ([vpn], [torrent], [debug]) = (vpn.as_slice(), torrent.as_slice(), debug.as_slice()) else {
        return Some("not one of each".to_owned());
    };
    let shared = format!("container:{}", vpn.id());
    let modes = [
        torrent.text("/HostConfig/NetworkMode"),
        debug.text("/HostConfig/PidMode"),
        debug.text("/HostConfig/IpcMode"),
    ];
    if modes.iter().any(|it| *it != shared) {
        return Some(format!("{modes:?} is not {shared}"));
    }
    if debug.text("/HostConfig/VolumesFrom/0") != format!("{}:ro", vpn.id()) {
        return Some("the volumes are of another".to_owned());
    }
    for guest in [torrent, debug] {
        if guest.state() != "running" || guest.started() < vpn.started() {
            return Some(format!("{} was left behind: {}", guest.name(), guest.state()));
        }
    }
    None
}

async fn together_again(site: &Site, agent: &Agent) {
    site.until("all share with the one that runs", |_| apart(site).is_none().then_some(())).await;
    agent.settled(&site.repository.head()).await;
    assert_together(site);
}

/// An agent that remembers nothing and one that remembers all find nothing to do.
async fn nothing_changes(site: &Site, mut agent: Agent, before: &[Container]) {
    agent.sync().await;
    agent.settled(&site.repository.head()).await;
    let same = |after: &[Container]| {
        let of = |all: &[Container]| all.iter().map(|it| (it.id(), it.started())).collect::<Vec<_>>();
        assert_eq!(of(after), of(before));
    };
    same(&site.docker.containers(&site.app));
    agent.restart().await;
    agent.settled(&site.repository.head()).await;
    same(&site.docker.containers(&site.app));
}

#[tokio::test]
async fn a_second_look_and_a_restart_of_the_agent_change_nothing() {
    let (site, agent) = start("sharing").await;
    let before = site.docker.containers(&site.app);
    nothing_changes(&site, agent, &before).await;
}

#[tokio::test]
async fn removed_namespace_owner_returns_with_its_sharers() {
    let (site, agent) = start("host-rm").await;
    let (vpn, torrent, bystander) =
        (site.container("vpn"), site.container("torrent"), site.container("bystander"));
    site.docker.run(&["rm", "-f", &vpn.id()]);
    together_again(&site, &agent).await;
    assert_ne!(site.container("torrent").id(), torrent.id());
    assert_eq!(site.container("bystander").started(), bystander.started());
}

#[tokio::test]
async fn guests_are_started_after_a_host_that_is_restarted_by_hand() {
    let (site, agent) = start("host-restart").await;
    let (vpn, torrent) = (site.container("vpn"), site.container("torrent"));
    site.docker.run(&["restart", "-t", "0", &vpn.id()]);
    site.until("it was restarted", |_| (site.container("vpn").started() != vpn.started()).then_some(()))
        .await;
    together_again(&site, &agent).await;
    assert_eq!(site.container("torrent").id(), torrent.id(), "a restart is enough");
    assert_ne!(site.container("torrent").started(), torrent.started());
}

#[tokio::test]
async fn new_image_of_namespace_owner_replaces_its_sharers() {
    let (site, agent) = start("host-bump").await;
    let (vpn, bystander) = (site.container("vpn"), site.container("bystander"));
    let volume = |it: &Container| it.text("/Mounts/0/Name");
    site.compose(&compose(&images::server("2.0"), &images::server("1.0")));
    agent.sync().await;
    site.replaced("vpn", &vpn.id()).await;
    together_again(&site, &agent).await;
    assert_eq!(volume(&site.container("vpn")), volume(&vpn));
    assert_eq!(site.container("bystander").started(), bystander.started());
}

#[tokio::test]
async fn a_new_image_of_a_guest_leaves_the_host_alone() {
    let (site, agent) = start("guest-bump").await;
    let (vpn, torrent) = (site.container("vpn"), site.container("torrent"));
    site.compose(&compose(&images::server("1.0"), &images::server("2.0")));
    agent.sync().await;
    site.replaced("torrent", &torrent.id()).await;
    together_again(&site, &agent).await;
    assert_eq!(site.container("vpn").started(), vpn.started());
}

#[tokio::test]
async fn network_of_a_foreign_container_is_shared_and_followed() {
    let mut site = Site::new("legacy");
    let image = images::server("1.0");
    let legacy = site.foreign("legacy");
    let commit = site.compose(&format!(
        "services:
  side:
    image: {image}
    restart: unless-stopped
    network_mode: container:{legacy}
    environment: {{PORT: \"8081\"}}
"
    ));
    let agent = site.agent().await;
    agent
        .until("it says what is missing", |application| {
            application
                .status
                .waits
                .iter()
                .any(|it| it.reason == "ExternalMissing" && it.message.contains(&legacy))
        })
        .await;
    let run = |site: &Site| site.docker.run(&["run", "-d", "--name", &legacy, &image]);
    let first = run(&site);
    agent.settled(&commit).await;
    let mode = |site: &Site| site.container("side").text("/HostConfig/NetworkMode");
    assert_eq!(mode(&site), format!("container:{first}"));
    site.docker.run(&["rm", "-f", &legacy]);
    let second = run(&site);
    site.until("it follows", |_| {
        let side = site.of("side");
        let [only] = side.as_slice() else { return None };
        let follows = only.text("/HostConfig/NetworkMode") == format!("container:{second}");
        (follows && only.state() == "running").then_some(())
    })
    .await;
    agent.settled(&commit).await;
    assert_eq!(site.docker.container(&legacy).unwrap().id(), second, "it is not ours to touch");
}
