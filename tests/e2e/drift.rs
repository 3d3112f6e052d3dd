//! Changes by hand to a managed container or network are seen, named and undone; what is not ours is
//! never touched.

use driftless_model::{DriftAction, EventKind, SyncStatus, label};

use crate::harness::{Agent, Container, Settings, Site, images, is_settled};

fn compose() -> String {
    let image = images::server("1.0");
    format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    environment: {{GREETING: hello}}
    deploy:
      resources:
        limits: {{memory: 64M}}
    networks: [front, back]
networks:
  front:
  back:
"
    )
}

/// A site on which all is well, its agent, and the container as it was.
async fn start(test: &str) -> (Site, Agent, Container) {
    let site = Site::new(test);
    let agent = site.running(&compose()).await;
    let web = site.container("web");
    (site, agent, web)
}

/// The drift was named in the event log, and all is well again.
async fn named_and_undone(site: &Site, agent: &Agent, field: &str) {
    let what = format!("drift of `{field}` is in the event log");
    let event = agent.event(&what, |it| it.reason == "DriftDetected" && it.to_string().contains(field)).await;
    assert!(!event.object.is_empty(), "{event}");
    agent.settled(&site.repository.head()).await;
}

#[tokio::test]
async fn a_stopped_container_is_started() {
    let (site, agent, web) = start("stop").await;
    site.docker.run(&["stop", &web.name()]);
    site.until("it runs again", |_| (site.container("web").state() == "running").then_some(())).await;
    named_and_undone(&site, &agent, "state").await;
    assert_eq!(site.container("web").id(), web.id(), "starting is enough");
}

#[tokio::test]
async fn a_killed_container_is_started() {
    let (site, agent, web) = start("kill").await;
    site.docker.run(&["kill", &web.name()]);
    site.until("it runs again", |docker| {
        docker.container(&web.name()).filter(|it| it.state() == "running" && it.started() != web.started())
    })
    .await;
    named_and_undone(&site, &agent, "state").await;
}

#[tokio::test]
async fn removed_container_is_recreated() {
    let (site, agent, web) = start("rm").await;
    site.docker.run(&["rm", "-f", &web.name()]);
    let replaced = site.replaced("web", &web.id()).await;
    assert_eq!(replaced.label(label::SPEC), web.label(label::SPEC));
    named_and_undone(&site, &agent, "web").await;
}

#[tokio::test]
async fn a_paused_container_is_unpaused() {
    let (site, agent, web) = start("pause").await;
    site.docker.run(&["pause", &web.name()]);
    named_and_undone(&site, &agent, "state").await;
    let after = site.container("web");
    assert_eq!((after.id(), after.state().as_str()), (web.id(), "running"));
    assert_eq!(after.started(), web.started(), "it was not restarted");
}

#[tokio::test]
async fn a_renamed_container_gets_its_name_back() {
    let (mut site, agent, web) = start("rename").await;
    let other = site.foreign("renamed");
    site.docker.run(&["rename", &web.name(), &other]);
    site.until("it has its name again", |docker| docker.container(&web.name())).await;
    named_and_undone(&site, &agent, "name").await;
    let after = site.container("web");
    assert_eq!((after.id(), after.started()), (web.id(), web.started()), "it was not restarted");
    assert!(site.docker.container(&other).is_none());
}

#[tokio::test]
async fn a_changed_memory_limit_is_set_back() {
    let (site, agent, web) = start("memory").await;
    site.docker.run(&["update", "--memory", "96m", "--memory-swap", "192m", &web.name()]);
    site.until("the limit is back", |_| {
        (site.container("web").number("/HostConfig/Memory") == 64 << 20).then_some(())
    })
    .await;
    named_and_undone(&site, &agent, "memory").await;
    assert_eq!(site.container("web").started(), web.started(), "it was not restarted");
}

#[tokio::test]
async fn a_changed_restart_policy_is_set_back() {
    let (site, agent, web) = start("restart").await;
    site.docker.run(&["update", "--restart", "no", &web.name()]);
    site.until("the policy is back", |_| {
        let policy = site.container("web").text("/HostConfig/RestartPolicy/Name");
        (policy == "unless-stopped").then_some(())
    })
    .await;
    named_and_undone(&site, &agent, "restart").await;
    assert_eq!(site.container("web").started(), web.started(), "it was not restarted");
}

#[tokio::test]
async fn a_disconnected_network_is_connected_again() {
    let (site, agent, web) = start("disconnect").await;
    let back = format!("{}_back", site.app);
    site.docker.run(&["network", "disconnect", &back, &web.name()]);
    site.until("it is connected", |_| site.container("web").networks().contains(&back).then_some(())).await;
    named_and_undone(&site, &agent, "networks").await;
    let aliases = site.container("web").0["NetworkSettings"]["Networks"][&back]["Aliases"].to_string();
    assert!(aliases.contains("\"web\""), "found by its service's name again: {aliases}");
}

#[tokio::test]
async fn a_foreign_network_is_disconnected_and_left() {
    let (mut site, agent, web) = start("connect").await;
    let foreign = site.foreign("network");
    site.docker.run(&["network", "create", &foreign]);
    site.docker.run(&["network", "connect", &foreign, &web.name()]);
    site.until("it is disconnected", |_| {
        (!site.container("web").networks().contains(&foreign)).then_some(())
    })
    .await;
    named_and_undone(&site, &agent, "networks").await;
    site.docker.run(&["network", "inspect", &foreign]);
}

#[tokio::test]
async fn a_removed_network_is_created_and_connected_again() {
    let (site, agent, web) = start("network").await;
    let back = format!("{}_back", site.app);
    site.docker.run(&["network", "disconnect", "-f", &back, &web.name()]);
    // The agent may be quicker than the second command; then there is something to disconnect again.
    while site.docker.attempt(&["network", "rm", &back]).is_err() {
        let _ = site.docker.attempt(&["network", "disconnect", "-f", &back, &site.name("web")]);
    }
    site.until("it is connected to a new one", |docker| {
        let network = docker.attempt(&["network", "inspect", &back, "--format", "{{.ID}}"]).ok()?;
        let web = docker.container(&site.name("web"))?;
        let joined = web.0["NetworkSettings"]["Networks"][&back]["NetworkID"].as_str()? == network;
        (joined && web.state() == "running").then_some(())
    })
    .await;
    named_and_undone(&site, &agent, &back).await;
}

/// Every label of a container, as options of `docker run`.
fn labels_of(container: &Container) -> Vec<String> {
    let labels = container.0["Config"]["Labels"].as_object().unwrap();
    labels.iter().map(|(name, value)| format!("--label={name}={}", value.as_str().unwrap())).collect()
}

#[tokio::test]
async fn an_extra_container_with_our_labels_copied_is_removed() {
    let (mut site, agent, web) = start("extra").await;
    let extra = site.foreign("extra");
    let labels = labels_of(&web);
    let mut words = vec!["run", "-d", "--name", &extra];
    words.extend(labels.iter().map(String::as_str));
    let image = images::server("1.0");
    words.push(&image);
    // The agent may be so quick that it is gone between the two steps of this command. That it was there is in an event.
    let _ = site.docker.attempt(&words);
    site.until("it is gone", |docker| docker.container(&extra).is_none().then_some(())).await;
    agent.event("it is named", |it| it.message.contains(&extra) || it.object.contains(&extra)).await;
    agent.settled(&site.repository.head()).await;
    assert_eq!(site.container("web").id(), web.id(), "the real one is untouched");
}

/// Takes the managed container away and puts another of the same name and labels in its place.
fn impersonate(site: &Site, web: &Container, image: &str, greeting: &str) -> String {
    let labels = labels_of(web);
    let (name, variable) = (web.name(), format!("GREETING={greeting}"));
    let mut words = vec!["run", "-d", "--name", &name, "--restart", "unless-stopped"];
    words.extend(["--env", &variable, "--memory", "64m"]);
    words.extend(labels.iter().map(String::as_str));
    words.push(image);
    // The agent may be quicker than we are and have the name again before our second command.
    for _ in 0..50 {
        let _ = site.docker.attempt(&["rm", "-f", &name]);
        if let Ok(id) = site.docker.attempt(&words) {
            return id;
        }
    }
    panic!("could not put an impostor in place of {name}");
}

#[tokio::test]
async fn an_impostor_with_another_image_is_replaced() {
    let (site, agent, web) = start("image").await;
    let impostor = impersonate(&site, &web, &images::server("9.9"), "hello");
    let real = site.replaced("web", &impostor).await;
    assert_eq!(real.variable("VERSION").as_deref(), Some("1.0"));
    named_and_undone(&site, &agent, "image").await;
}

#[tokio::test]
async fn an_impostor_with_another_environment_is_replaced() {
    let (site, agent, web) = start("env").await;
    let impostor = impersonate(&site, &web, &images::server("1.0"), "goodbye");
    let real = site.replaced("web", &impostor).await;
    assert_eq!(real.variable("GREETING").as_deref(), Some("hello"));
    named_and_undone(&site, &agent, "GREETING").await;
}

#[tokio::test]
async fn extra_instance_of_a_service_is_removed() {
    let (site, agent, web) = start("scale").await;
    // `docker compose up --scale web=2` does the same: a second container with the same labels but its number.
    let second = site.name_of("web", 2);
    let mut labels = labels_of(&web);
    labels.retain(|it| !it.contains(label::SLOT) && !it.contains(label::compose::CONTAINER_NUMBER));
    labels.push(format!("--label={}=2", label::SLOT));
    labels.push(format!("--label={}=2", label::compose::CONTAINER_NUMBER));
    let image = images::server("1.0");
    let mut words = vec!["run", "-d", "--name", &second, "--env", "GREETING=hello"];
    words.extend(labels.iter().map(String::as_str));
    words.push(&image);
    // The agent may remove it between its creation and its start, and then the client says so.
    if let Err(error) = site.docker.attempt(&words) {
        assert!(error.contains("marked for removal") || error.contains("No such container"), "{error}");
    }
    site.until("the second is gone", |docker| docker.container(&second).is_none().then_some(())).await;
    agent.settled(&site.repository.head()).await;
    assert_eq!(site.container("web").id(), web.id());
}

#[tokio::test]
async fn without_self_heal_drift_is_reported_and_left() {
    let site = Site::with("report", Settings { self_heal: false, ..Settings::default() });
    let agent = site.running(&compose()).await;
    let web = site.container("web");
    site.docker.run(&["stop", &web.name()]);
    let application = agent
        .until("the drift is reported", |application| {
            application.status.drift.iter().any(|it| it.field == "state" && it.action == DriftAction::Report)
        })
        .await;
    assert_eq!(application.status.sync, SyncStatus::OutOfSync);
    // A further round, asked for by hand, leaves it too.
    agent.sync().await;
    let seen = application.status.observed_at;
    agent.until("it looked again", |it| it.status.observed_at > seen).await;
    assert_eq!(site.container("web").state(), "exited");

    site.docker.run(&["start", &web.name()]);
    let commit = site.repository.head();
    agent.until("all is well again", |it| is_settled(it, &commit) && it.status.drift.is_empty()).await;
}

#[tokio::test]
async fn a_foreign_container_that_holds_our_name_is_named_and_left() {
    let mut site = Site::new("name");
    let name = site.name("web");
    let foreign = site.docker.run(&["run", "-d", "--name", &name, &images::server("1.0")]);
    site.remove_too(&foreign);
    site.compose(&compose());
    let agent = site.agent().await;
    agent
        .until("the status names the one in the way", |application| {
            application.status.waits.iter().any(|it| it.reason == "Blocked" && it.message.contains(&name))
        })
        .await;
    let there = site.docker.container(&foreign).unwrap();
    assert_eq!((there.state().as_str(), there.name()), ("running", name.clone()));

    // Out of the way, it is not needed any more, and a restart of ours is not either.
    let aside = site.foreign("aside");
    site.docker.run(&["rename", &name, &aside]);
    agent.settled(&site.repository.head()).await;
    assert_eq!(site.docker.container(&foreign).unwrap().state(), "running");
}

#[tokio::test]
async fn a_foreign_container_that_holds_our_port_is_named_and_left() {
    let mut site = Site::new("port");
    let image = images::server("1.0");
    let foreign = site.foreign("port");
    let publish = format!("127.0.0.1:{}:8080", crate::harness::free_port());
    site.docker.run(&["run", "-d", "--name", &foreign, "-p", &publish, &image]);
    let commit = site.compose(&format!(
        "services:\n  web:\n    image: {image}\n    restart: always\n    ports: [\"{publish}\"]\n"
    ));
    let agent = site.agent().await;
    agent
        .until("the status names the one in the way", |application| {
            application.status.waits.iter().any(|it| it.reason == "Blocked" && it.message.contains(&foreign))
        })
        .await;
    assert_eq!(site.docker.container(&foreign).unwrap().state(), "running");
    site.docker.run(&["rm", "-f", &foreign]);
    agent.settled(&commit).await;
}

#[tokio::test]
async fn a_fight_over_one_field_is_slowed_down_and_called_by_its_name() {
    let (site, agent, web) = start("fight").await;
    for _ in 0..3 {
        site.until("it runs", |docker| docker.container(&web.name()).filter(|it| it.state() == "running"))
            .await;
        site.docker.run(&["stop", &web.name()]);
    }
    let application = agent
        .until("the drift is called repeated", |application| {
            application.status.conditions.iter().any(|it| it.kind == "RepeatedDrift")
        })
        .await;
    let condition = application.status.conditions.iter().find(|it| it.kind == "RepeatedDrift").unwrap();
    assert!(condition.message.contains("state"), "{}", condition.message);
    let events = agent.events().await;
    assert!(events.iter().any(|it| it.kind == EventKind::Warning), "{events:?}");
}

#[tokio::test]
async fn applications_that_take_long_to_stop_hold_no_other_up() {
    let mut site = Site::new("quick");
    let image = images::placeholder();
    // As process 1 it hears of no such signal.
    let slow = |version: u8| {
        format!(
            "services:\n  web:\n    image: {image}\n    environment: {{VERSION: '{version}'}}\n    restart: always\n    \
             container_name: NAME\n    network_mode: none\n    stop_signal: SIGUSR1\n    stop_grace_period: 10m\n"
        )
    };
    let names: Vec<String> = (0..6).map(|it| site.also(&format!("slow{it}"))).collect();
    let commit = |site: &Site, version: u8| {
        let files: Vec<(String, String)> = names
            .iter()
            .map(|name| {
                (format!("sites/{name}/compose.yaml"), slow(version).replace("NAME", &format!("{name}-web")))
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        site.repository.commit(&files)
    };
    commit(&site, 1);
    let agent = site
        .running(&format!("services:\n  web: {{image: {image}, restart: always, stop_grace_period: 0s}}\n"))
        .await;
    for name in &names {
        crate::harness::wait_until("it runs", || (site.docker.running(name).len() == 1).then_some(())).await;
    }
    let second = commit(&site, 2);
    agent.sync().await;
    agent.settled(&second).await;
    // More of them than may act at the same time are stopping now.
    crate::harness::wait_until("the others are stopping", || {
        (agent.log().matches("within 10m (spec changed)").count() >= 4).then_some(())
    })
    .await;
    let before = site.container("web");
    site.docker.run(&["rm", "-f", &before.id()]);
    site.replaced("web", &before.id()).await;
    assert!(names.iter().all(|it| site.docker.running(it).len() == 1), "they are still stopping");
}
