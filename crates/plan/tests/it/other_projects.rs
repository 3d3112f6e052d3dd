//! Services that Docker Compose runs under another project than that of the application in Git.

use driftless_model::{
    ComposeService, Format, HeldPort, HostMount, HostSource, Mount, MountSource, MountingContainer,
    NameHolder, Port, PortRange, Protocol, Stack, Workload,
};

use crate::{
    fixture::{Stage, stack, workload},
    prune::settle,
    shared_data::{media_writer, of_app, rounds, sentences, with_media},
};

/// A container of the Compose project `docker` that writes to the folder.
fn of_compose(service: &str) -> MountingContainer {
    MountingContainer { app: None, agent: None, ..media_writer("docker", service) }
}

/// The application, while these containers of a Compose project run.
fn during(project: &str, stack: Stack, containers: &[MountingContainer]) -> Stage {
    let mut stage = Stage::new(stack);
    let git = stage.stack.clone();
    stage.set_managed(&[], &[&git]);
    stage.set_writers(containers);
    for container in containers {
        let service = ComposeService { project: project.to_owned(), service: container.workload.clone() };
        let (id, app) = (container.id.clone(), container.app.clone());
        let holder = NameHolder { id, app, project: Some(service) };
        stage.world.observed.claims.hold_name(&container.name, holder);
    }
    stage
}

fn bind(path: &str) -> Mount {
    let source = MountSource::Bind { path: path.to_owned(), create: false, propagation: None, selinux: None };
    Mount { target: path.to_owned(), source, read_only: false }
}

fn with_folder(path: &str) -> Workload {
    let mut writing = with_media("db:1");
    writing.container.mounts.push(bind(path));
    writing
}

fn with_mount(path: &str) -> MountingContainer {
    let mut container = of_compose("db");
    container.mounts.push(HostMount { source: HostSource::Path(path.to_owned()), read_only: false });
    container
}

#[test]
fn service_of_another_compose_project_keeps_its_data() {
    for (format, advice) in [
        (Format::Compose, "write `name: docker` in the Compose file to adopt that project; otherwise "),
        (Format::Kubernetes, ""),
    ] {
        let git = Stack { format, ..stack([("db", with_media("db:1")), ("web", workload("web:1", 1))]) };
        let mut stage = during("docker", git, &[of_compose("db")]);
        let plan = rounds(&mut stage);
        assert_eq!(stage.running(), 1, "web has nothing to do with it: {plan}");
        let expected = format!(
            "db needs `/srv/media` of the host, and docker-db-1, its container of the Compose project `docker`, writes to it: {advice}it starts when docker-db-1 has ended (`docker stop docker-db-1`, then `docker rm docker-db-1`: one that is only stopped may come back with the engine), or under another name if both are to share it"
        );
        assert!(sentences(&plan).contains(&expected), "{plan}");
        assert!(plan.look_again.is_some(), "its end wakes nobody here");
        stage.set_writers(&[MountingContainer { is_up: false, ..of_compose("db") }]);
        settle(&mut stage);
        assert_eq!(stage.running(), 2);
    }
}

#[test]
fn folder_shared_with_another_compose_project_keeps_nobody() {
    let mut reader = of_compose("db");
    reader.mounts[0].read_only = true;
    let foreign = MountingContainer { agent: Some("theirs".into()), ..of_compose("db") };
    let db = || stack([("db", with_media("db:1"))]);
    let cases = [
        ("another service", db(), of_compose("indexer")),
        ("a reader", db(), reader),
        ("of another agent", db(), foreign),
        ("another service of this name", stack([("db", with_folder("/srv/one"))]), with_mount("/srv/two")),
    ];
    for (case, git, container) in cases {
        let mut stage = during("docker", git, &[container]);
        settle(&mut stage);
        assert_eq!(stage.running(), 1, "{case}");
    }
    // As `docker compose run` makes it.
    let mut stage = Stage::new(db());
    stage.set_writers(&[of_compose("db")]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
    // Git gives the folder to the application of that project as well.
    let mut stage = during("docker", db(), &[of_compose("db")]);
    let git = stage.stack.clone();
    stage.set_managed(&[], &[&git, &of_app("docker", db())]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

#[test]
fn folder_more_on_either_side_is_the_same_service() {
    let cases = [
        (with_folder("/srv/one"), of_compose("db")),
        (with_media("db:1"), with_mount("/srv/one")),
        (with_folder("/srv/one"), with_mount("/srv/one")),
    ];
    for (db, container) in cases {
        let mut stage = during("docker", stack([("db", db)]), &[container]);
        assert!(!stage.has_started("db"));
    }
}

#[test]
fn running_service_stays_with_a_copy_in_another_project() {
    let mut stage = Stage::new(stack([("db", with_media("db:1"))]));
    settle(&mut stage);
    let mut later = during("docker", stack([("db", with_media("db:2"))]), &[of_compose("db")]);
    stage.world.observed.claims = later.world.observed.claims.clone();
    stage.stack = later.stack.clone();
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
    assert!(!later.has_started("db"), "it would be new there");
    // The record alone knows that it was there.
    stage.world.observed.instances.clear();
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

/// The stack of a service that publishes a port.
fn publishing(service: &'static str) -> Stack {
    let mut publishing = workload("proxy:2", 1);
    let host = Some(PortRange { first: 80, last: 80 });
    publishing.container.ports = vec![Port { container: 8080, protocol: Protocol::Tcp, host_ip: None, host }];
    stack([(service, publishing)])
}

fn hold_port(stage: &mut Stage) {
    let by = of_compose("proxy").name;
    stage.world.observed.claims.ports.insert(HeldPort { port: 80, protocol: Protocol::Tcp, ip: None, by });
}

#[test]
fn another_project_is_proposed_to_its_likely_application() {
    let advice = "write `name: docker`";
    let waits_with = |stage: &mut Stage, what: &str| {
        // The first round pulls the image.
        stage.round();
        let waits = sentences(&stage.round());
        assert!(waits.iter().any(|wait| wait.contains("docker-proxy-1")), "{what}: {waits:?}");
        waits.iter().any(|wait| wait.contains(advice))
    };
    let holder = [of_compose("proxy")];
    for (service, is_proposed) in [("proxy", true), ("web", false)] {
        let mut stage = during("docker", publishing(service), &holder);
        hold_port(&mut stage);
        assert_eq!(waits_with(&mut stage, service), is_proposed, "{service}");
    }
    // Git has an application of that project.
    let mut stage = during("docker", publishing("proxy"), &holder);
    hold_port(&mut stage);
    let git = stage.stack.clone();
    stage.set_managed(&[], &[&git, &of_app("docker", stack([("web", workload("web:1", 1))]))]);
    assert!(!waits_with(&mut stage, "taken"));
    // Its volumes would be others from then on.
    let mut stage = Stage::new(stack([("proxy", workload("proxy:1", 1))]));
    settle(&mut stage);
    let later = during("docker", publishing("proxy"), &holder);
    stage.world.observed.claims = later.world.observed.claims;
    stage.stack = later.stack;
    hold_port(&mut stage);
    assert!(!waits_with(&mut stage, "running"));
    let mut stage = during("docker", publishing("proxy"), &holder);
    hold_port(&mut stage);
    stage.record.slots = [("web".into(), [1].into())].into();
    assert!(!waits_with(&mut stage, "reached before"));
}

#[test]
fn folder_of_two_other_applications_keeps_nobody() {
    let holder = [of_compose("db")];
    let of_git = |app: &str| of_app(app, stack([("db", with_media("db:1"))]));
    let (blog, wiki) = (of_git("blog"), of_git("wiki"));
    for (others, has_started) in [(vec![&blog], false), (vec![&blog, &wiki], true)] {
        let mut stage = during("docker", stack([("db", with_media("db:1"))]), &holder);
        let git = stage.stack.clone();
        stage.set_managed(&[], &[others, vec![&git]].concat());
        assert_eq!(stage.has_started("db"), has_started);
    }
}

#[test]
fn service_with_a_folder_of_its_own_is_updated() {
    let mut both = with_folder("/srv/one");
    both.container.mounts.push(bind("/srv/two"));
    for (after, container, is_updated) in [
        (both, with_mount("/srv/two"), true),
        // Each folder of the other container would be new here.
        (with_folder("/srv/one"), of_compose("db"), false),
        (with_media("db:1"), of_compose("db"), false),
    ] {
        let mut before = workload("db:1", 1);
        before.container.mounts.extend(["/srv/one", "/srv/two"].map(bind));
        let mut stage = Stage::new(stack([("db", before)]));
        settle(&mut stage);
        let later = during("docker", stack([("db", after.clone())]), &[container]);
        stage.world.observed.claims = later.world.observed.claims;
        stage.stack = later.stack;
        let plan = rounds(&mut stage);
        assert_eq!(stage.running(), 1, "{plan}");
        assert_eq!(stage.named("shop-db-1").config.mounts == after.container.mounts, is_updated, "{plan}");
        assert_eq!(sentences(&plan).is_empty(), is_updated, "{plan}");
    }
}
