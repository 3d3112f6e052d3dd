//! Data that applications share, hand over or leave behind.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use driftless_model::{
    AppName, ContainerId, HeldPort, HostMount, HostSource, Job, ManagedApplications, Mount, MountSource,
    MountingContainer, NameHolder, Network, ObjectsOfOthers, ObservedVolume, Port, PortRange, Protocol,
    Removal, SharedPlace, SharingServices, Stack, State, Volume, Workload, WorkloadKind,
};
use driftless_plan::{Action, Plan, WaitReason, hands_over};

use crate::{
    fixture::{Stage, stack, workload},
    prune::settle,
};

const DATA: &str = "shop_data";

/// One that writes to the volume.
fn writing(image: &str) -> Workload {
    let mut writing = workload(image, 1);
    let source = MountSource::Volume { name: DATA.to_owned(), no_copy: false };
    writing.container.mounts.push(Mount { target: "/data".to_owned(), source, read_only: false });
    writing
}

/// The shop, with the volume.
fn shop(workloads: impl IntoIterator<Item = (&'static str, Workload)>) -> Stack {
    let mut shop = stack(workloads);
    shop.volumes.insert(DATA.into(), Volume { key: "data".into(), ..Volume::default() });
    shop
}

/// The same stack of another application.
pub(crate) fn of_app(app: &str, stack: Stack) -> Stack {
    Stack { app: app.into(), project: app.to_owned(), ..stack }
}

/// A container of another application that writes to the volume.
pub(crate) fn writer(app: &str, workload: &str) -> MountingContainer {
    MountingContainer {
        id: ContainerId(format!("{app}-{workload}")),
        name: format!("{app}-{workload}-1"),
        app: Some(app.into()),
        agent: Some("ours".into()),
        workload: workload.into(),
        is_up: true,
        mounts: vec![HostMount { source: HostSource::Volume(DATA.to_owned()), read_only: false }],
    }
}

impl Stage {
    /// The applications that the agent has besides those in Git, and the stacks in Git.
    pub(crate) fn set_managed(&mut self, known: &[&str], stacks: &[&Stack]) {
        let stacks = stacks.iter().map(|stack| (stack.app.clone(), Arc::new((*stack).clone())));
        let mut managed = ManagedApplications { is_complete: true, ..ManagedApplications::default() };
        managed.stacks = stacks.collect();
        managed.names = managed.stacks.keys().cloned().collect();
        managed.names.extend(known.iter().map(|name| AppName::from(*name)));
        let claims = &mut self.world.observed.claims;
        claims.applications = Some(Arc::new(managed));
        claims.deployed_volumes = Some(Default::default());
    }

    /// The newest manifests of this application have an error.
    fn set_unread(&mut self, app: &str) {
        let managed = self.world.observed.claims.applications.as_mut().unwrap();
        let managed = Arc::make_mut(managed);
        managed.unread.insert(app.into());
        managed.names.insert(app.into());
    }

    pub(crate) fn set_writers(&mut self, writers: &[MountingContainer]) {
        self.world.observed.claims.mounting = Arc::new(writers.to_vec());
    }

    pub(crate) fn running(&self) -> usize {
        self.world.observed.instances.values().filter(|instance| instance.is_running()).count()
    }
}

pub(crate) fn sentences(plan: &Plan) -> Vec<String> {
    plan.waits.iter().map(ToString::to_string).collect()
}

fn removed_volumes(plans: &[Plan]) -> usize {
    let steps = plans.iter().flat_map(|plan| &plan.steps);
    steps.filter(|step| matches!(step.action, Action::RemoveVolume { .. })).count()
}

/// Some rounds. Returns the last plan.
pub(crate) fn rounds(stage: &mut Stage) -> Plan {
    for _ in 0..5 {
        stage.round();
        stage.tick(Duration::from_secs(5));
    }
    stage.round()
}

#[test]
fn service_waits_for_the_application_that_gives_it_up() {
    let first = shop([("db", writing("db:1"))]);
    let mut stage = Stage::new(first.clone());
    let left = of_app("two", stack([("web", workload("web:1", 1))]));
    stage.set_managed(&[], &[&first, &left]);
    stage.set_writers(&[writer("two", "db")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
    let expected = "db waits for application `two`: two-db-1 still writes to the volume `shop_data`, which Git does not give to its service; it starts when two-db-1 has ended (`driftless status two` shows what keeps it)";
    assert!(sentences(&plan).iter().any(|sentence| sentence == expected), "{plan}");
    assert!(plan.look_again.is_some(), "the end of the other one wakes nobody here");
    stage.set_writers(&[MountingContainer { is_up: false, ..writer("two", "db") }]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

#[test]
fn commit_hands_over_data_that_another_application_takes() {
    let (before, taker) = (shop([("db", writing("db:1"))]), of_app("two", shop([("db", writing("db:1"))])));
    let after = stack([("web", workload("web:1", 1))]);
    let none = BTreeSet::new();
    assert!(hands_over(&before, &after, &taker, &none));
    assert!(!hands_over(&before, &before, &taker, &none), "both have them");
    assert!(!hands_over(&before, &after, &of_app("two", after.clone()), &none), "nobody takes them");
    let shared = |other: &str| {
        let services = Some(SharingServices { own: "db".into(), other: other.into() });
        let source = HostSource::Volume(DATA.to_owned());
        BTreeSet::from([SharedPlace { source, with: "two".into(), services }])
    };
    assert!(hands_over(&before, &after, &taker, &shared("backup")));
    assert!(!hands_over(&before, &after, &taker, &shared("db")), "it has had them all the time");
}

/// Another service of the old application works on the same data, such as one that makes backups.
#[test]
fn neighbour_on_the_data_shares_them_for_no_service_that_moves() {
    let first = shop([("db", writing("db:1"))]);
    let other = of_app("two", shop([("backup", writing("backup:1"))]));
    let mut stage = Stage::new(first.clone());
    stage.set_managed(&[], &[&first, &other]);
    stage.set_writers(&[writer("two", "db")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
    stage.set_writers(&[writer("two", "backup")]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);

    // Nor does the old application take them back for it.
    let (now, owner) = (shop([("backup", writing("backup:1"))]), of_app("two", first));
    let mut stage = Stage::new(shop([("backup", writing("backup:1")), ("db", writing("db:1"))]));
    settle(&mut stage);
    stage.world.observed.instances.retain(|_, instance| instance.instance.workload != "db".into());
    stage.set_managed(&[], &[&now, &owner]);
    stage.set_writers(&[writer("two", "db")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 1, "{plan}");
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::DataInUse)), "{plan}");
}

#[test]
fn renamed_service_of_others_blocks_no_shared_folder() {
    let own = stack([("indexer", with_media("web:1"))]);
    let other = of_app("two", stack([("series", with_media("sonarr:1"))]));
    let mut stage = Stage::new(own.clone());
    stage.set_managed(&[], &[&own, &other]);
    stage.set_writers(&[media_writer("two", "sonarr")]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

#[test]
fn renamed_service_on_a_shared_folder_hands_nothing_over() {
    let job = Workload { kind: WorkloadKind::Job(Job::once("migrate".into())), ..with_media("job:1") };
    let before = stack([("sonarr", with_media("web:1"))]);
    let after = stack([("series", with_media("web:1"))]);
    let gone = stack([("web", workload("web:1", 1))]);
    let none = BTreeSet::new();
    let (of_job, of_service) = (of_app("two", stack([("migrate", job)])), of_app("two", before.clone()));
    assert!(!hands_over(&before, &after, &of_service, &none));
    assert!(!hands_over(&before, &gone, &of_job, &none));
    assert!(hands_over(&before, &gone, &of_service, &none));
}

#[test]
fn applications_that_share_data_in_git_run_together() {
    let first = shop([("db", writing("db:1"))]);
    let other = of_app("two", shop([("db", writing("db:1"))]));
    let mut stage = Stage::new(first.clone());
    stage.set_managed(&[], &[&first, &other]);
    stage.set_writers(&[writer("two", "db")]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
    // Nobody takes the data from a workload that has them, also when it is made again.
    let left = of_app("two", stack([]));
    stage.set_managed(&[], &[&first, &left]);
    stage.stack = shop([("db", writing("db:2"))]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

const GIVEN_AWAY: &str = "db needs the volume `shop_data`, which Git has given to application `two`, and two-db-1 writes to it: this older version starts when two-db-1 has ended; a newer commit, or `driftless resume shop` after a rollback by hand, ends the wait";

#[test]
fn older_revision_does_not_take_its_data_back() {
    let now = shop([("web", workload("web:1", 1))]);
    let owner = of_app("two", shop([("db", writing("db:1"))]));
    // A rollback to a revision that had the database.
    let mut stage = Stage::new(shop([("db", writing("db:1"))]));
    stage.set_managed(&[], &[&now, &owner]);
    stage.set_writers(&[writer("two", "db")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
    assert!(sentences(&plan).iter().any(|sentence| sentence == GIVEN_AWAY), "{plan}");
}

#[test]
fn forgotten_container_keeps_its_data() {
    let first = shop([("database", writing("db:1"))]);
    let mut stage = Stage::new(first.clone());
    stage.set_managed(&[], &[&first]);
    stage.set_writers(&[writer("old", "db")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
    let wait = plan.waits.iter().find(|wait| wait.is(WaitReason::DataInUse)).unwrap();
    assert_eq!(
        wait.to_string(),
        "database needs the volume `shop_data`, and old-db-1 of application `old`, which this agent does not manage any more, writes to it: it starts when old-db-1 has ended (`docker stop old-db-1`, then `docker rm old-db-1`: one that is only stopped may come back with the engine)"
    );
    // Another agent does as it is asked, and so does a container that only reads.
    let foreign = MountingContainer { agent: Some("theirs".into()), ..writer("old", "db") };
    let mut reader = writer("old", "db");
    reader.mounts[0].read_only = true;
    stage.set_writers(&[foreign, reader]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

/// A stage whose application is removed with its volumes.
fn removed() -> Stage {
    let mut stage = Stage::new(shop([("db", writing("db:1"))]));
    settle(&mut stage);
    stage.record.removal = Some(Removal::WithVolumes);
    stage.stack = stack([]);
    stage
}

#[test]
fn volume_that_others_use_stays_for_good() {
    let other = of_app("two", shop([("db", writing("db:1"))]));
    let mounted = [MountingContainer { is_up: false, agent: None, app: None, ..writer("tool", "x") }];
    for by_git in [true, false] {
        let mut stage = removed();
        if by_git {
            stage.set_managed(&["shop"], &[&other]);
        } else {
            stage.set_managed(&["shop"], &[]);
            stage.set_writers(&mounted);
        }
        let plans = settle(&mut stage);
        assert_eq!(removed_volumes(&plans), 0, "{by_git}");
        let wait = plans.last().unwrap().waits.iter().find(|wait| wait.is(WaitReason::VolumeInUse)).unwrap();
        let user = if by_git { "application `two`" } else { "tool-x-1" };
        let expected = format!(
            "volume shop_data is used by {user}, so it stays; when nothing needs it any more, `docker volume rm shop_data` removes it"
        );
        assert_eq!(wait.to_string(), expected);
        // Nobody uses it for a moment, as while a container is replaced.
        stage.set_managed(&["shop"], &[]);
        stage.set_writers(&[]);
        assert_eq!(removed_volumes(&settle(&mut stage)), 0, "{by_git}");
        assert!(stage.world.observed.volumes.contains_key(DATA));
    }
}

#[test]
fn volume_of_a_deployed_revision_stays() {
    let mut stage = removed();
    stage.set_managed(&["shop", "two"], &[]);
    let deployed = [(DATA.to_owned(), AppName::from("two"))];
    stage.world.observed.claims.deployed_volumes = Some(deployed.into());
    assert_eq!(removed_volumes(&settle(&mut stage)), 0);
}

#[test]
fn volumes_wait_until_all_repositories_were_read() {
    let mut stage = removed();
    stage.world.observed.claims.applications = Some(Arc::new(ManagedApplications::default()));
    let plan = rounds(&mut stage);
    assert!(!plan.is_settled() && plan.look_again.is_some(), "{plan}");
    assert!(stage.world.observed.volumes.contains_key(DATA));
    stage.set_managed(&["shop"], &[]);
    assert_eq!(removed_volumes(&settle(&mut stage)), 1);
}

/// The shop under another name, after a rename of its folder: its volume carries the labels of the shop.
fn renamed() -> Stage {
    let mut stage = Stage::new(shop([("db", writing("db:1"))]));
    settle(&mut stage);
    stage.world.observed.instances.clear();
    stage.world.observed.volumes.get_mut(DATA).unwrap().app = Some("shop".into());
    let mut renamed = Stage::new(Stack { app: "store".into(), ..shop([("db", writing("db:1"))]) });
    renamed.world = stage.world;
    renamed
}

#[test]
fn renamed_application_goes_on_with_its_volume() {
    let mut stage = renamed();
    let store = stage.stack.clone();
    stage.set_managed(&[], &[&store]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
    assert_eq!(stage.record.former_owners, BTreeSet::from(["shop".into()]));
    // A new application of the former name takes nothing back.
    let other = Stack { project: "other".to_owned(), ..stack([("web", workload("web:1", 1))]) };
    stage.set_managed(&[], &[&store, &other]);
    stage.stack = Stack { app: "store".into(), ..shop([("db", writing("db:2"))]) };
    let plan = settle(&mut stage).pop().unwrap();
    assert_eq!((stage.running(), sentences(&plan)), (1, Vec::<String>::new()));
}

/// By the project, another application knows later that they were created for the same one.
#[test]
fn volumes_and_networks_are_created_for_the_project() {
    let mut wanted = Stack { project: "webshop".to_owned(), ..stack([("web", workload("web:1", 1))]) };
    wanted.volumes.insert("pgdata".into(), Volume { key: "pg".into(), ..Volume::default() });
    wanted.networks.insert("web".into(), Network { key: "default".into(), ..Network::default() });
    let plan = Stage::new(wanted).round();
    let projects = plan.steps.iter().filter_map(|step| match &step.action {
        Action::CreateVolume { project, .. } | Action::CreateNetwork { project, .. } => Some(project),
        _ => None,
    });
    assert_eq!(projects.collect::<Vec<&String>>(), ["webshop", "webshop"], "{plan}");
}

#[test]
fn folder_of_a_leaving_application_is_waited_for() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    stage.world.observed.claims.awaited_folder = Some("old".into());
    let plan = stage.round();
    assert!(plan.steps.is_empty() && !plan.is_settled() && plan.look_again.is_some(), "{plan}");
    let expected = "web goes on with the folder of application `old`, which had the same project: it starts when no container of that one is left and the agent does not have it any more (`driftless remove old`, unless `prune` does it)";
    assert_eq!(sentences(&plan), [expected]);
    stage.world.observed.claims.awaited_folder = None;
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

/// An application that has run for long gets its first relative mount.
#[test]
fn awaited_folder_holds_only_the_services_that_mount_it() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    settle(&mut stage);
    let mut files = workload("files:1", 1);
    let source = MountSource::AppFolder("data".to_owned());
    files.container.mounts.push(Mount { target: "/data".to_owned(), source, read_only: false });
    stage.stack = stack([("web", workload("web:2", 1)), ("files", files), ("new", workload("new:1", 1))]);
    stage.world.observed.claims.awaited_folder = Some("old".into());
    for _ in 0..20 {
        let plan = stage.round();
        assert!(!plan.is_settled() && plan.look_again.is_some(), "{plan}");
        assert!(
            sentences(&plan).iter().any(|sentence| sentence.starts_with("files goes on with the folder"))
        );
        stage.tick(Duration::from_secs(5));
    }
    let images = |stage: &Stage| -> BTreeSet<String> {
        let instances = stage.world.observed.instances.values();
        instances.map(|instance| instance.config.image.clone()).collect()
    };
    assert_eq!(images(&stage), BTreeSet::from(["web:2".to_owned(), "new:1".to_owned()]));
    stage.world.observed.claims.awaited_folder = None;
    settle(&mut stage);
    assert!(images(&stage).contains("files:1"));
}

#[test]
fn wait_for_a_folder_names_its_cause() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    stage.world.observed.claims.awaited_folder = Some("old".into());
    let git = stage.stack.clone();
    let waits = |stage: &mut Stage, expected: &str| {
        let said = sentences(&stage.round());
        assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
    };
    stage.set_managed(&["old"], &[&git]);
    waits(&mut stage, "(`driftless remove old`, unless `prune` does it)");
    stage.set_unread("old");
    waits(&mut stage, "(`driftless status old` shows the error)");
    stage.set_managed(&[], &[&git]);
    let holder = NameHolder { id: ContainerId("left".to_owned()), app: Some("old".into()), project: None };
    stage.world.observed.claims.hold_name("old-db-1", holder);
    waits(
        &mut stage,
        "it starts when old-db-1 is removed (`docker stop old-db-1`, then `docker rm old-db-1`)",
    );
    let unread = ManagedApplications {
        unread_repositories: BTreeSet::from(["notes".to_owned()]),
        ..ManagedApplications::default()
    };
    stage.world.observed.claims.applications = Some(Arc::new(unread));
    waits(&mut stage, "not read since the agent was started: `notes` (`driftless doctor` shows the error)");
}

#[test]
fn volume_of_a_living_application_is_not_mounted() {
    let store = renamed().stack;
    let of_agent = |agent: &str| {
        let mut stage = renamed();
        stage.world.observed.volumes.get_mut(DATA).unwrap().agent = Some(agent.into());
        stage
    };
    // In the database, of another agent, with a container that is left, and before all repositories were read.
    let (mut known, mut foreign, mut left, mut unread) =
        (of_agent("ours"), of_agent("theirs"), of_agent("ours"), of_agent("ours"));
    known.set_managed(&["shop"], &[&store]);
    foreign.set_managed(&[], &[&store]);
    left.set_managed(&[], &[&store]);
    let holder = NameHolder { id: ContainerId("left".to_owned()), app: Some("shop".into()), project: None };
    left.world.observed.claims.hold_name("shop-db-1", holder);
    unread.world.observed.claims.applications = Some(Arc::new(ManagedApplications::default()));
    for mut stage in [known, foreign, left, unread] {
        let plan = rounds(&mut stage);
        assert_eq!(stage.running(), 0, "{plan}");
        assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::OfAnotherApplication)), "{plan}");
    }
}

#[test]
fn volume_of_a_former_application_says_how_to_go_on() {
    let mut stage = renamed();
    // It was created for another project.
    stage.world.observed.volumes.get_mut(DATA).unwrap().compose = None;
    let store = stage.stack.clone();
    stage.set_managed(&[], &[&store]);
    let plan = rounds(&mut stage);
    let expected = "volume shop_data was created for application `shop`, which this agent does not have any more: declare it `external: true` to go on with its data; under another `name` it begins empty";
    assert!(sentences(&plan).iter().any(|sentence| sentence == expected), "{plan}");
    stage.stack.volumes.get_mut(DATA).unwrap().external = true;
    let plan = settle(&mut stage).pop().unwrap();
    assert_eq!((stage.running(), sentences(&plan)), (1, Vec::<String>::new()));
}

#[test]
fn volume_of_another_repository_is_not_taken_over() {
    for (repository, running) in [("infra", 0), ("team", 1)] {
        let mut stage = renamed();
        let store = stage.stack.clone();
        stage.set_managed(&[], &[&store]);
        let managed = Arc::make_mut(stage.world.observed.claims.applications.as_mut().unwrap());
        let of = |app: &str, repository: &str| (AppName::from(app), repository.to_owned());
        managed.repositories = [of("shop", repository), of("store", "team")].into();
        stage.policy.objects_of_others = ObjectsOfOthers::Forbidden;
        let plan = rounds(&mut stage);
        assert_eq!(stage.running(), running, "{repository}: {plan}");
    }
}

#[test]
fn external_volume_of_another_application_needs_the_policy() {
    let mut stage = Stage::new(of_app("spy", shop([("db", writing("db:1"))])));
    stage.stack.volumes.get_mut(DATA).unwrap().external = true;
    let found =
        ObservedVolume { agent: Some("ours".into()), app: Some("shop".into()), ..ObservedVolume::default() };
    stage.world.observed.volumes.insert(DATA.to_owned(), found);
    // It is not in Git now, and its containers run on.
    stage.set_managed(&["shop", "spy"], &[]);
    stage.policy.objects_of_others = ObjectsOfOthers::Forbidden;
    let plan = rounds(&mut stage);
    let expected = "volume shop_data was created for application `shop`, and the policy does not allow to use it: take another volume, or allow it with `policy.otherApplications` in the agent's configuration";
    assert_eq!(stage.running(), 0, "{plan}");
    assert!(sentences(&plan).iter().any(|sentence| sentence == expected), "{plan}");
    stage.policy.objects_of_others = ObjectsOfOthers::Allowed;
    rounds(&mut stage);
    assert_eq!(stage.running(), 1);
    // A rule that comes later does not stop what runs.
    stage.policy.objects_of_others = ObjectsOfOthers::Forbidden;
    rounds(&mut stage);
    assert_eq!(stage.running(), 1);
}

const MEDIA: &str = "/srv/media";

/// One that writes to a folder of the host for films.
pub(crate) fn with_media(image: &str) -> Workload {
    let mut writing = workload(image, 1);
    let source =
        MountSource::Bind { path: MEDIA.to_owned(), create: false, propagation: None, selinux: None };
    writing.container.mounts.push(Mount { target: "/media".to_owned(), source, read_only: false });
    writing
}

/// A container of another application that writes to that folder.
pub(crate) fn media_writer(app: &str, workload: &str) -> MountingContainer {
    let mounts = vec![HostMount { source: HostSource::Path(MEDIA.to_owned()), read_only: false }];
    MountingContainer { mounts, ..writer(app, workload) }
}

#[test]
fn shared_folder_blocks_nobody_under_other_names() {
    let own = stack([("app", with_media("web:2"))]);
    let other = of_app("two", stack([("sonarr", with_media("sonarr:1"))]));
    // A rollback to a revision in which the service had another name, and a container that was adopted by its name.
    for (workload, found) in [("web", "sonarr"), ("app", ""), ("web", "")] {
        let mut stage = Stage::new(stack([(workload, with_media("web:1"))]));
        stage.set_managed(&[], &[&own, &other]);
        stage.set_writers(&[media_writer("two", found)]);
        settle(&mut stage);
        assert_eq!(stage.running(), 1, "{workload} {found}");
    }
}

#[test]
fn run_of_a_job_shares_data_as_the_job_does() {
    let job =
        |image: &str| Workload { kind: WorkloadKind::Job(Job::once("backup".into())), ..writing(image) };
    let first = shop([("db", writing("db:1"))]);
    let other = of_app("two", shop([("backup", job("backup:1"))]));
    let mut stage = Stage::new(first.clone());
    stage.set_managed(&[], &[&first, &other]);
    stage.set_writers(&[writer("two", "backup-29384756")]);
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
    // The database that moved away is no run of it.
    let mut stage = Stage::new(first.clone());
    stage.set_managed(&[], &[&first, &other]);
    stage.set_writers(&[writer("two", "db")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
}

#[test]
fn common_folder_does_not_wait_for_applications_that_left() {
    let own = stack([("web", with_media("web:1"))]);
    let other = of_app("two", stack([("sonarr", with_media("sonarr:1"))]));
    let third = of_app("three", stack([("jellyfin", with_media("jellyfin:1"))]));
    for known in [&["old"][..], &[]] {
        let mut stage = Stage::new(own.clone());
        stage.set_managed(known, &[&own, &other, &third]);
        stage.set_writers(&[media_writer("old", "radarr")]);
        settle(&mut stage);
        assert_eq!(stage.running(), 1, "{known:?}");
    }
    // The folder of one application may hold its database.
    let mut stage = Stage::new(own.clone());
    stage.set_managed(&["old"], &[&own]);
    stage.set_writers(&[media_writer("old", "radarr")]);
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
    let expected = "web needs `/srv/media` of the host, and old-radarr-1 of application `old`, which is not in Git any more, still writes to it: it starts when old-radarr-1 is removed (`driftless remove old`, unless `prune` does it)";
    assert!(sentences(&plan).iter().any(|sentence| sentence == expected), "{plan}");
}

/// A commit renames the application of the database, and another one makes backups of its folder.
#[test]
fn backup_makes_the_folder_of_a_database_no_common_one() {
    let store = Stack { app: "store".into(), ..stack([("db", with_media("db:1"))]) };
    let backup = of_app("backup", stack([("backup", with_media("backup:1"))]));
    for (known, command) in [(&["shop"][..], "`driftless remove shop`"), (&[][..], "`docker stop shop-db-1`")]
    {
        let mut stage = Stage::new(store.clone());
        stage.set_managed(known, &[&store, &backup]);
        stage.set_writers(&[media_writer("backup", "backup"), media_writer("shop", "db")]);
        assert!(!stage.has_started("db"));
        let said = sentences(&stage.round()).join("\n");
        assert!(said.contains(command), "{said}");
        stage.set_writers(&[media_writer("backup", "backup")]);
        assert!(stage.has_started("db"));
    }
}

#[test]
fn adopted_container_is_known_before_it_is_observed() {
    let first = shop([("db", writing("db:1"))]);
    let mut stage = Stage::new(first.clone());
    stage.set_managed(&[], &[&first, &of_app("two", stack([]))]);
    stage.set_writers(&[MountingContainer { app: None, agent: None, ..writer("two", "db") }]);
    let mut unknown = Stage::new(first.clone());
    unknown.world = stage.world.clone();
    let managed = stage.world.observed.claims.applications.as_mut().unwrap();
    let adopter = (ContainerId("two-db".to_owned()), AppName::from("two"));
    Arc::make_mut(managed).adopters = Arc::new([adopter].into());
    let plan = rounds(&mut stage);
    assert_eq!(stage.running(), 0, "{plan}");
    settle(&mut unknown);
    assert_eq!(unknown.running(), 1, "nobody knows whose it is");
}

#[test]
fn folder_is_the_same_with_another_slash() {
    let written = |path: &str| {
        let mut written = with_media("web:1");
        let source =
            MountSource::Bind { path: path.to_owned(), create: false, propagation: None, selinux: None };
        written.container.mounts[0].source = source;
        written
    };
    for path in ["/srv/media/", "/srv//media", "/srv/./media"] {
        let own = stack([("web", written(path))]);
        let (shares, left) = (of_app("two", stack([("web", with_media("web:1"))])), of_app("two", stack([])));
        for (other, running) in [(shares, 1), (left, 0)] {
            let mut stage = Stage::new(own.clone());
            stage.set_managed(&[], &[&own, &other]);
            stage.set_writers(&[media_writer("two", "web")]);
            let plan = rounds(&mut stage);
            assert_eq!(stage.running(), running, "{path} {plan}");
        }
    }
}

#[test]
fn rollback_leaves_data_that_git_has_given_away() {
    let before = shop([("db", writing("db:1"))]);
    let now = stack([("web", workload("web:1", 1))]);
    let owner = of_app("two", before.clone());
    for is_removed in [true, false] {
        let mut stage = Stage::new(before.clone());
        settle(&mut stage);
        assert_eq!(stage.running(), 1);
        // A newer commit, which fails, gives the database to the other application. This one goes back.
        stage.set_managed(&[], &[&now, &owner]);
        stage.set_writers(&[writer("two", "db")]);
        let finished = stage.now;
        let instances = &mut stage.world.observed.instances;
        for instance in instances.values_mut() {
            instance.state = State::Exited { code: 1, finished, out_of_memory: false, error: String::new() };
        }
        if is_removed {
            instances.clear();
        }
        let plan = rounds(&mut stage);
        assert_eq!(stage.running(), 0, "{plan}");
        assert!(sentences(&plan).iter().any(|sentence| sentence == GIVEN_AWAY), "{plan}");
        assert!(plan.look_again.is_some());
        stage.set_writers(&[]);
        settle(&mut stage);
        assert_eq!(stage.running(), 1);
    }
}

#[test]
fn rollback_goes_on_to_share_a_folder() {
    let before = stack([("web", with_media("web:1"))]);
    let other = of_app("two", stack([("sonarr", with_media("sonarr:1"))]));
    let mut stage = Stage::new(before.clone());
    stage.set_managed(&[], &[&before, &other]);
    stage.set_writers(&[media_writer("two", "sonarr")]);
    settle(&mut stage);
    assert_eq!(stage.record.shared_places.len(), 1);
    let now = stack([("web", workload("web:2", 1))]);
    stage.set_managed(&[], &[&now, &other]);
    stage.world.observed.instances.clear();
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
    // As when the newer commit was reached in between.
    stage.stack = now;
    settle(&mut stage);
    stage.stack = before;
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}

/// A service and a container of another application that write to the volume, or to the folder.
type Data = (fn(&str) -> Workload, fn(&str, &str) -> MountingContainer);

const VOLUME_AND_FOLDER: [Data; 2] = [(writing, writer), (with_media, media_writer)];

impl Stage {
    /// Whether a workload runs after some rounds, and waits for data otherwise.
    pub(crate) fn has_started(&mut self, name: &str) -> bool {
        let plan = rounds(self);
        let mut instances = self.world.observed.instances.values();
        let runs =
            instances.any(|instance| instance.is_running() && instance.instance.workload == name.into());
        let waits = plan.waits.iter().any(|wait| wait.is(WaitReason::DataInUse));
        assert_ne!(runs, waits, "{name}: {plan}");
        runs
    }

    fn remove(&mut self, name: &str) {
        self.world.observed.instances.retain(|_, instance| instance.instance.workload != name.into());
    }
}

/// The other application makes backups of the database, which moves there, and back.
#[test]
fn backup_lets_no_second_database_start() {
    for (data, writer) in VOLUME_AND_FOLDER {
        let first = shop([("db", data("db:1")), ("web", workload("web:1", 1))]);
        let second = of_app("two", shop([("backup", data("backup:1"))]));
        let mut stage = Stage::new(first.clone());
        stage.set_managed(&[], &[&first, &second]);
        stage.set_writers(&[writer("two", "backup")]);
        settle(&mut stage);
        assert_eq!(stage.record.shared_places.len(), 1);
        // The commit that moves the database fails, and the application goes back.
        let now = shop([("web", workload("web:1", 1))]);
        let owner = of_app("two", shop([("backup", data("backup:1")), ("db", data("db:1"))]));
        stage.set_managed(&[], &[&now, &owner]);
        stage.set_writers(&[writer("two", "backup"), writer("two", "db")]);
        stage.remove("db");
        assert!(!stage.has_started("db"), "an automatic rollback");
        stage.stack = now;
        settle(&mut stage);
        stage.stack = first.clone();
        assert!(!stage.has_started("db"), "a rollback by hand");
        // Git gives it back, and the other application still stops it.
        stage.set_managed(&[], &[&first, &second]);
        assert!(!stage.has_started("db"), "a revert");
        stage.set_writers(&[writer("two", "backup")]);
        assert!(stage.has_started("db"));
    }
}

#[test]
fn backups_on_both_sides_let_no_second_database_start() {
    for (data, writer) in VOLUME_AND_FOLDER {
        let first = shop([("backup", data("backup:1"))]);
        let second = of_app("two", shop([("db", data("db:1")), ("copy", data("copy:1"))]));
        let mut stage = Stage::new(first.clone());
        stage.set_managed(&[], &[&first, &second]);
        stage.set_writers(&[writer("two", "copy"), writer("two", "db")]);
        settle(&mut stage);
        assert_eq!(stage.record.shared_places.len(), 2);
        let now = shop([("backup", data("backup:1")), ("db", data("db:1"))]);
        let left = of_app("two", shop([("copy", data("copy:1"))]));
        stage.set_managed(&[], &[&now, &left]);
        stage.stack = now;
        assert!(!stage.has_started("db"));
        stage.set_writers(&[writer("two", "copy")]);
        assert!(stage.has_started("db"));
    }
}

#[test]
fn new_backup_takes_no_database_back() {
    let before = shop([("db", writing("db:1"))]);
    let mut stage = Stage::new(before.clone());
    settle(&mut stage);
    let now = shop([("backup", writing("backup:1"))]);
    stage.set_managed(&[], &[&now, &of_app("two", before)]);
    stage.set_writers(&[writer("two", "db")]);
    stage.remove("db");
    assert!(!stage.has_started("db"));
}

/// A service of the other application has always had the volume.
#[test]
fn renamed_service_goes_back_to_a_shared_volume() {
    let before = shop([("db", writing("db:1"))]);
    let other = of_app("two", shop([("backup", writing("backup:1"))]));
    let mut stage = Stage::new(before.clone());
    stage.set_managed(&[], &[&before, &other]);
    stage.set_writers(&[writer("two", "backup")]);
    settle(&mut stage);
    stage.set_managed(&[], &[&shop([("database", writing("db:1"))]), &other]);
    stage.remove("db");
    assert!(stage.has_started("db"));
}

#[test]
fn folder_stays_shared_when_services_get_other_names() {
    let before = stack([("web", with_media("web:1"))]);
    let mut stage = Stage::new(before.clone());
    stage.set_managed(&[], &[&before, &of_app("two", stack([("sonarr", with_media("sonarr:1"))]))]);
    stage.set_writers(&[media_writer("two", "sonarr")]);
    settle(&mut stage);
    let now = stack([("web", workload("web:2", 1))]);
    stage.set_managed(&[], &[&now, &of_app("two", stack([("series", with_media("sonarr:2"))]))]);
    stage.set_writers(&[media_writer("two", "series")]);
    stage.remove("web");
    assert!(stage.has_started("web"), "the application goes back");
}

/// Older agents recorded the application alone.
#[test]
fn record_of_an_older_agent_counts_for_folders_only() {
    for ((data, writer), is_folder) in VOLUME_AND_FOLDER.into_iter().zip([false, true]) {
        let before = shop([("web", data("web:1"))]);
        let other = of_app("two", shop([("sonarr", data("sonarr:1"))]));
        let mut stage = Stage::new(before.clone());
        stage.set_managed(&[], &[&before, &other]);
        stage.set_writers(&[writer("two", "sonarr")]);
        settle(&mut stage);
        let known = std::mem::take(&mut stage.record.shared_places);
        let old = known.into_iter().map(|shared| SharedPlace { services: None, ..shared });
        stage.record.shared_places = old.collect();
        stage.set_managed(&[], &[&shop([("web", workload("web:2", 1))]), &other]);
        stage.remove("web");
        assert_eq!(stage.has_started("web"), is_folder);
    }
}

/// The commit that moves the database makes the manifest of the other application invalid, so Git last had it there.
#[test]
fn volume_waits_for_an_application_with_an_error() {
    for ((data, writer), is_folder) in VOLUME_AND_FOLDER.into_iter().zip([false, true]) {
        let first = shop([("db", data("db:1"))]);
        let other = of_app("two", shop([("db", data("db:1"))]));
        let mut stage = Stage::new(first.clone());
        stage.set_managed(&[], &[&first, &other]);
        stage.set_unread("two");
        stage.set_writers(&[writer("two", "db")]);
        assert_eq!(stage.has_started("db"), is_folder);
        if is_folder {
            continue;
        }
        let plan = stage.round();
        let expected = "db needs the volume `shop_data`, and two-db-1 of application `two`, whose newest manifests cannot be read, writes to it: it starts when they can be read and share it, or when two-db-1 has ended (`driftless status two` shows the error)";
        assert!(sentences(&plan).iter().any(|sentence| sentence == expected), "{plan}");
        // The error is corrected.
        stage.set_managed(&[], &[&first, &of_app("two", stack([("web", workload("web:1", 1))]))]);
        assert!(!stage.has_started("db"), "its container still runs");
        stage.set_writers(&[]);
        assert!(stage.has_started("db"));
        // Others that have run with it go on.
        stage.set_managed(&[], &[&first, &other]);
        stage.set_writers(&[writer("two", "db")]);
        settle(&mut stage);
        stage.set_unread("two");
        stage.stack = shop([("db", data("db:2"))]);
        settle(&mut stage);
    }
}

/// No revision has the last stack that could be read, as its commit was held back.
#[test]
fn application_with_an_error_is_not_said_to_have_left() {
    for (data, writer) in VOLUME_AND_FOLDER {
        let first = shop([("db", data("db:1"))]);
        let mut stage = Stage::new(first.clone());
        stage.set_managed(&[], &[&first]);
        stage.set_unread("two");
        stage.set_writers(&[writer("two", "db")]);
        assert!(!stage.has_started("db"));
        let said = sentences(&stage.round()).join("\n");
        assert!(said.contains("whose newest manifests cannot be read"), "{said}");
        assert!(!said.contains("driftless remove"), "{said}");
    }
}

#[test]
fn port_that_another_application_gives_up_is_awaited() {
    let publishing = |host: u16| {
        let mut publishing = workload("proxy:1", 1);
        let (protocol, host) = (Protocol::Tcp, Some(PortRange::one(host)));
        publishing.container.ports = vec![Port { container: 80, protocol, host_ip: None, host }];
        publishing
    };
    let mut stage = Stage::new(stack([("web", publishing(8080))]));
    let by = "edge-proxy-1".to_owned();
    let holder = NameHolder { id: ContainerId("e".repeat(64)), app: Some("edge".into()), project: None };
    stage.world.observed.claims.hold_name(&by, holder);
    let held = HeldPort { port: 8080, protocol: Protocol::Tcp, ip: None, by };
    stage.world.observed.claims.ports.insert(held);
    let given_up = "(`driftless status edge` shows what keeps it)";
    for (in_git, expected) in [(8080, "change one of the two in Git"), (9090, given_up)] {
        let edge = of_app("edge", stack([("proxy", publishing(in_git))]));
        stage.set_managed(&[], &[&edge]);
        let plan = stage.round();
        let wait = plan.waits.iter().find(|wait| wait.is(WaitReason::Blocked)).unwrap();
        assert!(wait.to_string().contains(expected), "{in_git}: {wait}");
    }
    stage.world.observed.claims.ports.clear();
    settle(&mut stage);
    assert_eq!(stage.running(), 1);
}
