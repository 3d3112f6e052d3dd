//! Adoption: containers that Docker Compose started are left alone or taken over, and no others.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_files::MemoryFiles;
use driftless_manifest::{discover, render};
use driftless_model::{
    Adopt, Attachment, Candidate, Completion, ComposeService, Condition, Container, ContainerId, ContentId,
    Dependency, Mask, Mount, MountSource, NameHolder, Network, NetworkMode, Observed, ObservedNetwork,
    ObservedVolume, Record, RestartPolicy, SpecHash, StackHashes, State, Volume,
};
use driftless_plan::{
    Claimed, Plan, Target, adopt, adopt_without, merge_adopted, note_observed, plan, schedule, survey,
};

use crate::fixture::{NOON, Stage, stack, workload};

/// A stage on which all of `shop` runs because Compose has started it.
fn by_compose(change: impl Fn(&mut Container)) -> Stage {
    let mut web = workload("web:1", 2);
    web.container.env.insert("PORT".into(), Some("80".into()));
    let mut stage = Stage::new(stack([("web", web), ("db", workload("db:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(60));
    }
    stage.record = Record::default();
    stage.reached = None;
    let observed = &mut stage.world.observed;
    for (id, mut instance) in std::mem::take(&mut observed.instances) {
        instance.agent = "".into();
        instance.spec = SpecHash(String::new());
        let mut config = Container::clone(&instance.config);
        change(&mut config);
        instance.config = Arc::new(config);
        let (project, service) = ("shop".to_owned(), instance.instance.workload.clone());
        let project = Some(ComposeService { project, service });
        observed.claims.hold_name(&instance.name, NameHolder { id: id.clone(), app: None, project });
        let defaults = Arc::new(Container::default());
        observed.candidates.insert(id, Candidate { instance, by_name: false, defaults });
    }
    stage
}

fn with_target<T>(stage: &Stage, then: impl FnOnce(&Target<'_>) -> T) -> T {
    let (mask, images) = (Mask::new([7; 32]), BTreeMap::new());
    then(&Target {
        stack: &stage.stack,
        hashes: &StackHashes::of(&stage.stack),
        reached: None,
        agent: &stage.agent,
        policy: &stage.policy,
        images: &images,
        mask: &mask,
    })
}

fn planned(stage: &Stage) -> Plan {
    with_target(stage, |target| plan(target, &stage.world.observed, &stage.record, stage.now))
}

/// Takes over what there is, and looks at it as the next round would.
fn take_over(stage: &mut Stage) -> Result<Vec<String>, Vec<String>> {
    let mut record = std::mem::take(&mut stage.record);
    let mut observed = stage.world.observed.clone();
    let taken = with_target(stage, |target| adopt(&mut record, target, &observed));
    merge_adopted(&mut observed, &record, &stage.agent);
    with_target(stage, |target| note_observed(&mut record, target, &observed, stage.now));
    stage.record = record;
    stage.world.observed = observed;
    taken.map(|all| all.iter().map(ToString::to_string).collect())
}

#[test]
fn nothing_is_adopted_without_a_request() {
    let mut stage = by_compose(|_| {});
    let waiting = planned(&stage);
    assert!(waiting.steps.is_empty() && !waiting.is_settled());
    let said: Vec<String> = waiting.waits.iter().map(ToString::to_string).collect();
    assert!(
        said[0].starts_with("db was started by docker compose (shop-db-1): run `driftless adopt shop`"),
        "{said:?}"
    );
    stage.policy.adopt = Adopt::Never;
    assert!(planned(&stage).waits[0].to_string().contains("`adopt` is `never`"));
}

#[test]
fn no_run_begins_before_the_adoption() {
    let mut stage = by_compose(|_| {});
    let files = MemoryFiles::new([(
        "shop/compose.yaml",
        "services: {backup: {image: 'dump:1', x-driftless: {schedule: '* * * * *'}}}",
    )]);
    let git = render(&files, &discover(&files, "", "apps", &[]).apps[0]).stack.unwrap();
    stage.stack.workloads.extend(git.workloads);
    stage.tick(Duration::from_hours(1));
    assert!(planned(&stage).due_runs.is_none());
    take_over(&mut stage).unwrap();
    assert!(planned(&stage).due_runs.is_some());
    let now = stage.now;
    schedule(&mut stage.record, &stage.stack, now);
    assert!(planned(&stage).due_runs.is_none(), "a CronJob begins with the adoption, and nothing was missed");
}

#[test]
fn equal_containers_are_adopted_without_a_step() {
    let mut stage = by_compose(|_| {});
    let lines = take_over(&mut stage).unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|it| it.ends_with(": as in Git, keeps running")), "{lines:?}");
    assert!(
        stage.world.observed.candidates.is_empty()
            && stage.world.observed.claims.name_holders().next().is_none()
    );
    assert!(planned(&stage).is_settled(), "{}", planned(&stage));
    assert_eq!(take_over(&mut stage).unwrap(), [""; 0], "the second time there is nothing to take over");
}

#[test]
fn stopped_containers_are_announced_before_they_start() {
    let exited = |code| State::Exited { code, finished: NOON, out_of_memory: false, error: String::new() };
    let mut stage = by_compose(|container| {
        if container.image == "db:1" {
            container.env.insert("PORT".into(), Some("1".into()));
        }
    });
    stage.stack.workloads.get_mut(&"web".into()).unwrap().replicas = 1;
    stage.world.observed.candidates.retain(|_, it| it.instance.name != "shop-web-2");
    for candidate in stage.world.observed.candidates.values_mut() {
        candidate.instance.state = exited(0);
    }
    let lines = |stage: &Stage| -> Vec<String> {
        let claims = with_target(stage, |target| survey(target, &stage.world.observed));
        claims.iter().map(|it| it.to_string().lines().next().unwrap().to_owned()).collect()
    };
    let replaced = "container shop-db-1: is stopped, replaced by one that is started";
    let mut all = lines(&stage);
    all.sort_unstable();
    assert_eq!(all, [replaced, "container shop-web-1: as in Git, is stopped and will be started"]);
    let web = |stage: &Stage| lines(stage).into_iter().find(|it| it.contains("-web-")).unwrap();
    stage.policy.self_heal = false;
    assert_eq!(web(&stage), "container shop-web-1: as in Git, is stopped");
    stage.policy.self_heal = true;
    // One whose end is the purpose.
    let workload = stage.stack.workloads.get_mut(&"web".into()).unwrap();
    workload.completion = Completion::OnSuccess;
    workload.container.restart = RestartPolicy::No;
    for candidate in stage.world.observed.candidates.values_mut() {
        let mut config = Container::clone(&candidate.instance.config);
        config.restart = RestartPolicy::No;
        candidate.instance.config = Arc::new(config);
    }
    assert_eq!(web(&stage), "container shop-web-1: as in Git, has completed");
    for candidate in stage.world.observed.candidates.values_mut() {
        candidate.instance.state = exited(3);
    }
    assert_eq!(web(&stage), "container shop-web-1: as in Git, has failed and is not run again");
}

/// A migration that ended before the host was started again: whether the engine ended it cannot be seen.
#[test]
fn awaited_one_shot_is_not_run_again_after_a_restart() {
    let announced = |is_awaited: bool| {
        let mut stage = by_compose(|container| {
            if container.image == "db:1" {
                container.restart = RestartPolicy::No;
            }
        });
        let db = stage.stack.workloads.get_mut(&"db".into()).unwrap();
        db.completion = Completion::OnSuccess;
        db.container.restart = RestartPolicy::No;
        if is_awaited {
            let condition = Condition::CompletedSuccessfully;
            let after = Dependency { workload: "db".into(), condition, required: true, restart: false };
            stage.stack.workloads.get_mut(&"web".into()).unwrap().after.push(after);
        }
        stage.world.observed.engine_started = Some(NOON.after(Duration::from_secs(1)));
        for candidate in stage.world.observed.candidates.values_mut() {
            if candidate.instance.name == "shop-db-1" {
                candidate.instance.state =
                    State::Exited { code: 0, finished: NOON, out_of_memory: false, error: String::new() };
            }
        }
        let lines = take_over(&mut stage).unwrap();
        let line = lines.into_iter().find(|line| line.contains("shop-db-1")).unwrap();
        let plan = planned(&stage);
        let is_started = plan.to_string().contains("start shop-db-1");
        assert!(!(is_awaited && is_started), "{plan}");
        line
    };
    assert_eq!(announced(true), "container shop-db-1: as in Git, has completed");
    assert_eq!(announced(false), "container shop-db-1: as in Git, is stopped and will be started");
}

#[test]
fn alias_that_equals_the_container_name_differs_in_nothing() {
    let attached = |aliases: Vec<String>| {
        let attachment = Box::new(Attachment { aliases, ..Attachment::default() });
        NetworkMode::Networks(BTreeMap::from([("shop_default".to_owned(), attachment)]))
    };
    let mut stage = by_compose(|it| it.network_mode = attached(Vec::new()));
    for instance in stage.world.observed.candidates.values_mut().map(|it| &mut it.instance) {
        instance.name = instance.instance.workload.to_string();
    }
    stage.stack.workloads.retain(|name, _| name.as_str() == "db");
    let db = stage.stack.workloads.get_mut(&"db".into()).unwrap();
    db.container_name = Some("db".to_owned());
    db.container.network_mode = attached(vec!["db".to_owned()]);
    let claims = with_target(&stage, |target| survey(target, &stage.world.observed));
    let claims: Vec<String> = claims.iter().map(ToString::to_string).collect();
    assert_eq!(claims, ["container db: as in Git, keeps running"]);
}

#[test]
fn adopted_containers_that_differ_are_replaced() {
    let mut stage = by_compose(|container| {
        if container.image == "web:1" {
            container.env.insert("PORT".into(), Some("8080".into()));
        }
    });
    let lines = take_over(&mut stage).unwrap();
    assert!(lines.iter().any(|it| it == "container shop-web-1: replaced\n  env.PORT differs"), "{lines:?}");
    let plan = planned(&stage);
    assert!(!plan.steps.is_empty());
    assert!(plan.steps.iter().all(|it| it.action.object().contains("-web-")), "{plan}");
}

/// As after `docker compose up -d db`.
#[test]
fn dependency_recreated_before_adoption_replaces_nothing() {
    let mut stage = by_compose(|_| {});
    let (workload, condition) = ("db".into(), Condition::Started);
    let followed = Dependency { workload, condition, required: true, restart: true };
    stage.stack.workloads.get_mut(&"web".into()).unwrap().after.push(followed);
    let now = stage.now;
    for candidate in stage.world.observed.candidates.values_mut() {
        if candidate.instance.name == "shop-db-1" {
            candidate.instance.created = now;
            candidate.instance.started = Some(now);
        }
    }
    let lines = take_over(&mut stage).unwrap();
    assert!(lines.iter().all(|it| it.ends_with(": as in Git, keeps running")), "{lines:?}");
    assert!(planned(&stage).is_settled(), "{}", planned(&stage));
    // One that the agent creates counts.
    let before = ["shop-web-1", "shop-web-2"].map(|name| stage.named(name).id.clone());
    assert!(stage.round().is_settled());
    stage.stack.workloads.get_mut(&"db".into()).unwrap().container.image = "db:2".to_owned();
    for _ in 0..10 {
        stage.round();
        stage.tick(Duration::from_mins(1));
    }
    let plan = stage.round();
    assert!(plan.is_settled(), "{plan}");
    assert!(before.iter().all(|id| !stage.world.observed.instances.contains_key(id)), "{plan}");
}

/// A database of Docker Compose that Git has under another name.
#[test]
fn data_of_a_container_without_service_are_not_shared() {
    let data = Mount {
        target: "/data".into(),
        source: MountSource::Volume { name: "shop_data".into(), no_copy: false },
        read_only: false,
    };
    let mut stage = by_compose(|container| {
        if container.image == "db:1" {
            container.mounts.push(data.clone());
        }
    });
    let renamed = |stage: &mut Stage| {
        let mut db = stage.stack.workloads.remove(&"db".into()).unwrap();
        db.container.mounts.push(data.clone());
        stage.stack.workloads.insert("postgres".into(), db);
        stage.stack.volumes.insert("shop_data".into(), Volume::default());
    };
    renamed(&mut stage);
    stage.world.observed.volumes.insert("shop_data".into(), ObservedVolume::default());
    let waits = |stage: &Stage| {
        let plan = planned(stage);
        assert!(!plan.steps.iter().any(|it| it.action.object().contains("postgres")), "{plan}");
        plan.to_string()
    };
    let sentence = "postgres needs the volume `shop_data`, and shop-db-1, a container of Docker Compose that is not adopted, writes to it: \
                    it starts when shop-db-1 has ended (`docker stop shop-db-1`, then `docker rm shop-db-1`: one that is only stopped may come back with the engine)";
    take_over(&mut stage).unwrap();
    assert!(waits(&stage).contains(sentence), "{}", waits(&stage));
    // With no service by its name there is nothing to adopt.
    let web = stage.stack.workloads.remove(&"web".into()).unwrap();
    stage.record = Record::default();
    assert!(waits(&stage).contains(sentence), "{}", waits(&stage));
    stage.stack.workloads.insert("web".into(), web);
    for candidate in stage.world.observed.candidates.values_mut() {
        candidate.instance.state =
            State::Exited { code: 0, finished: NOON, out_of_memory: false, error: String::new() };
    }
    let plan = planned(&stage);
    assert!(plan.steps.iter().any(|it| it.action.object() == "shop-postgres-1"), "{plan}");
}

#[test]
fn container_without_service_in_git_is_not_adopted() {
    let mut stage = by_compose(|_| {});
    let db = stage.stack.workloads.remove(&"db".into()).unwrap();
    take_over(&mut stage).unwrap();
    assert_eq!(stage.world.observed.candidates.len(), 1);
    assert!(planned(&stage).is_settled(), "{}", planned(&stage));
    // It comes into Git later: it is asked for again, and what is ours goes on meanwhile.
    stage.stack.workloads.insert("db".into(), db);
    let web = stage.world.observed.instances.values().next().unwrap().clone();
    stage.world.observed.instances.remove(&web.id);
    let plan = planned(&stage);
    assert!(plan.steps.iter().any(|it| it.action.object() == web.name), "{plan}");
    assert!(plan.steps.iter().all(|it| !it.action.object().contains("-db-")), "{plan}");
    assert!(
        plan.waits.iter().any(|it| it.to_string().starts_with("db was started by docker compose")),
        "{plan}"
    );
}

#[test]
fn one_container_with_foreign_data_prevents_adoption() {
    let mut stage = by_compose(|container| {
        if container.image == "db:1" {
            let path = "/home/me/shop/data".to_owned();
            let source = MountSource::Bind { path, create: true, propagation: None, selinux: None };
            container.mounts = vec![Mount { target: "/data".into(), source, read_only: false }];
        }
    });
    let source = MountSource::AppFolder("data".into());
    let wanted = Mount { target: "/data/".into(), source, read_only: false };
    stage.stack.workloads.get_mut(&"db".into()).unwrap().container.mounts = vec![wanted];
    let obstacles = take_over(&mut stage).unwrap_err();
    assert!(obstacles[0].contains("name /home/me/shop/data in Git instead"), "{obstacles:?}");
    assert!(stage.record.adopted.is_empty() && planned(&stage).steps.is_empty());
}

/// As with `adopt: auto` and a service that mounts a folder of Git, which a user decides about.
#[test]
fn container_left_to_a_user_prevents_adoption_by_its_obstacle() {
    let bind = |path: &str| {
        let source =
            MountSource::Bind { path: path.to_owned(), create: true, propagation: None, selinux: None };
        vec![Mount { target: "/var/log/nginx".into(), source, read_only: false }]
    };
    let adopted = |wanted: Vec<Mount>| {
        let mut stage = by_compose(|container| {
            if container.image == "web:1" {
                container.mounts = bind("/home/me/shop/logs");
            } else {
                container.env.insert("TZ".into(), Some("UTC".into()));
            }
        });
        stage.stack.workloads.get_mut(&"web".into()).unwrap().container.mounts = wanted;
        let is_left = |candidate: &Candidate| candidate.instance.instance.workload.as_str() == "web";
        let observed = &stage.world.observed;
        let mut record = Record::default();
        let result = with_target(&stage, |target| adopt_without(&mut record, target, observed, is_left));
        let lines = result.map(|claims| claims.iter().map(|claim| claim.name.clone()).collect::<Vec<_>>());
        (lines, record.adopted.is_empty())
    };
    let (result, is_empty) = adopted(bind("/srv/logs"));
    assert!(result.unwrap_err()[0].contains("Git names /srv/logs"));
    assert!(is_empty, "the database would be replaced under a proxy of Docker Compose");
    let (result, is_empty) = adopted(bind("/home/me/shop/logs"));
    assert_eq!(result.unwrap(), ["shop-db-1"]);
    assert!(!is_empty);
}

#[test]
fn bind_mount_of_another_folder_prevents_adoption() {
    let bind = |path: &str, read_only: bool| {
        let source =
            MountSource::Bind { path: path.to_owned(), create: true, propagation: None, selinux: None };
        vec![Mount { target: "/data".into(), source, read_only }]
    };
    let obstacles = |found: &[Mount], wanted: &[Mount]| {
        let mut stage = by_compose(|container| {
            if container.image == "db:1" {
                container.mounts = found.to_vec();
            }
        });
        wanted.clone_into(&mut stage.stack.workloads.get_mut(&"db".into()).unwrap().container.mounts);
        take_over(&mut stage).err().unwrap_or_default()
    };
    let found = bind("/home/me/shop/data", false);
    let refused = obstacles(&found, &bind("/data", false));
    assert!(
        refused[0].contains("while Git names /data; name /home/me/shop/data in Git instead"),
        "{refused:?}"
    );
    assert_eq!(obstacles(&found, &bind("/home/me/shop/data/", false)), [] as [&str; 0]);
    // Nothing is kept in a folder that is only read.
    assert_eq!(obstacles(&bind("/home/me/shop/data", true), &bind("/data", false)), [] as [&str; 0]);
    assert_eq!(obstacles(&found, &bind("/data", true)), [] as [&str; 0]);
    let socket = |path: &str| obstacles(&bind("/var/run/docker.sock", false), &bind(path, false));
    assert_eq!(socket("/run/docker.sock"), [] as [&str; 0]);
    assert_eq!(socket("/run/other.sock").len(), 1);
}

#[test]
fn container_in_a_restart_loop_does_not_keep_running() {
    let mut stage = by_compose(|_| {});
    for candidate in stage.world.observed.candidates.values_mut() {
        candidate.instance.state = State::Restarting { code: 1, finished: NOON };
    }
    let lines = take_over(&mut stage).unwrap();
    assert!(lines.iter().all(|line| line.ends_with(": as in Git, restarts again and again")), "{lines:?}");
}

#[test]
fn adoption_names_paths_of_which_git_has_a_part() {
    let mut stage = by_compose(|container| {
        if container.image == "db:1" {
            let path = "/opt/shop/certs".to_owned();
            let source = MountSource::Bind { path, create: true, propagation: None, selinux: None };
            container.mounts = vec![Mount { target: "/certs".into(), source, read_only: true }];
        }
    });
    let source = MountSource::Content(ContentId("a".repeat(64)));
    let wanted = Mount { target: "/certs".into(), source, read_only: true };
    stage.stack.workloads.get_mut(&"db".into()).unwrap().container.mounts = vec![wanted];
    let adopted = take_over(&mut stage).unwrap();
    let sentence =
        "\n  /certs will have the files of Git only, and nothing else that is in /opt/shop/certs on the host";
    let is_named = |line: &String| line.starts_with("container shop-db-1: ") && line.ends_with(sentence);
    assert!(adopted.iter().any(is_named), "{adopted:?}");
}

#[test]
fn passwords_in_options_of_networks_and_volumes_are_hidden() {
    let options = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let share = |password: &str| {
        let mounted = options("o", &format!("username=me,password={password},vers=3.0"));
        Volume { key: "media".into(), options: mounted, ..Volume::default() }
    };
    let overlay = |token: &str| Network {
        key: "lan".into(),
        options: options("api-token", token),
        ipam_options: options("url", &format!("https://me:{token}@ipam/")),
        ..Network::default()
    };
    let mut stage = Stage::new(stack([]));
    stage.stack.networks.insert("shop_lan".into(), overlay("NEW-TOKEN"));
    stage.stack.volumes.insert("shop_media".into(), share("NEW,PW"));
    let network = ObservedNetwork { compose: Some(overlay("OLD-TOKEN")), ..ObservedNetwork::default() };
    let volume = ObservedVolume { compose: Some(share("OLD,PW")), ..ObservedVolume::default() };
    stage.world.observed.networks.insert("shop_lan".into(), network);
    stage.world.observed.volumes.insert("shop_media".into(), volume);
    let claims = with_target(&stage, |target| survey(target, &stage.world.observed));
    let lines: Vec<String> = claims.iter().map(ToString::to_string).collect();
    assert!(lines[0].starts_with("network shop_lan: recreated\n  options.api-token differs\n"), "{lines:?}");
    assert_eq!(
        lines[1],
        "volume shop_media: kept as it is, although it is not as in Git\n  options.o differs"
    );
    let all = format!("{lines:?} {:?}", claims.iter().map(|claim| &claim.differences).collect::<Vec<_>>());
    for secret in ["OLD", "NEW", "PW"] {
        assert!(!all.contains(secret), "{all}");
    }
}

#[test]
fn networks_and_volumes_are_compared_by_fields_of_git() {
    let lan = Network { key: "lan".into(), ..Network::default() };
    let data = Volume { key: "data".into(), ..Volume::default() };
    // The engine chose addresses, and docker-compose 1 makes every network attachable.
    let chosen = (Some("172.30.0.0/16".to_owned()), Some("172.30.0.1".to_owned()), None);
    let made = Network { driver: Some("bridge".into()), attachable: true, ipam: vec![chosen], ..lan.clone() };
    let mut stage = Stage::new(stack([]));
    stage.stack.networks.insert("shop_lan".into(), lan);
    stage.stack.volumes.insert("shop_data".into(), data.clone());
    let observed = |network: Network, volume: Volume| Observed {
        networks: BTreeMap::from([(
            "shop_lan".to_owned(),
            ObservedNetwork { id: "n1".into(), compose: Some(network), ..ObservedNetwork::default() },
        )]),
        volumes: BTreeMap::from([(
            "shop_data".to_owned(),
            ObservedVolume { compose: Some(volume), ..ObservedVolume::default() },
        )]),
        ..Observed::default()
    };
    let said = |observed: &Observed| -> Vec<String> {
        with_target(&stage, |target| survey(target, observed).iter().map(ToString::to_string).collect())
    };
    let same = observed(made.clone(), Volume { driver: Some("local".into()), ..data.clone() });
    assert_eq!(said(&same), ["network shop_lan: as in Git, kept", "volume shop_data: as in Git, kept"]);
    // The daemon's `default-network-opts` add options, and decide about IPv6 where Git says nothing.
    let mtu = BTreeMap::from([("com.docker.network.driver.mtu".to_owned(), "1400".to_owned())]);
    let by_daemon = Network { options: mtu, enable_ipv6: Some(true), ..made.clone() };
    assert_eq!(said(&observed(by_daemon, data.clone()))[0], "network shop_lan: as in Git, kept");
    let parent = BTreeMap::from([("parent".to_owned(), "eth0".to_owned())]);
    let by_hand = Network { options: parent, ..made.clone() };
    assert!(said(&observed(by_hand, data.clone()))[0].contains("options.parent is eth0, not unset"));
    let other = observed(Network { internal: true, ..made }, Volume { driver: Some("nfs".into()), ..data });
    assert_eq!(
        said(&other),
        [
            "network shop_lan: recreated\n  internal is true, not false",
            "volume shop_data: kept as it is, although it is not as in Git\n  driver is nfs, not local",
        ]
    );
    let waits: Vec<String> = with_target(&stage, |target| {
        plan(target, &other, &Record::default(), NOON).waits.iter().map(ToString::to_string).collect()
    });
    assert!(
        waits[0]
            .starts_with("network shop_lan was created by docker compose and differs from Git (internal)")
    );
    // Taken over, a network is ours by its id alone: of another of that name nothing is known.
    let mut record = Record::default();
    let claims = with_target(&stage, |target| adopt(&mut record, target, &same)).unwrap();
    assert!(matches!(&claims[0].what, Claimed::Network { id } if id == "n1"));
    let mut again = same.clone();
    again.networks.get_mut("shop_lan").unwrap().id = "n2".into();
    merge_adopted(&mut again, &record, &stage.agent);
    assert_eq!(again.networks["shop_lan"].agent, None);
}

#[test]
fn container_of_the_agent_is_not_removed_when_git_drops_it() {
    let mut stage = by_compose(|_| {});
    take_over(&mut stage).unwrap();
    let db = stage.world.observed.instances.values().find(|it| it.name == "shop-db-1").unwrap().id.clone();
    stage.world.observed.own = Some(db.clone());
    assert!(planned(&stage).is_settled(), "{}", planned(&stage));
    let touches = |plan: &Plan, id: &ContainerId| {
        let of = |it: &str| it == id.as_str() || it.contains("-db-");
        plan.steps.iter().any(|it| of(it.action.object()))
    };
    stage.stack.workloads.remove(&"db".into());
    let plan = planned(&stage);
    assert!(!touches(&plan, &db), "{plan}");
    assert!(plan.waits.iter().any(|it| it.to_string().contains("Git does not have it any more")), "{plan}");
}

#[test]
fn nothing_starts_until_compose_has_removed_its_networks() {
    let lan = Network::default();
    let taken_down = || {
        let mut stage = by_compose(|_| {});
        stage.policy.adopt = Adopt::Never;
        stage.stack.networks.insert("shop_lan".into(), lan.clone());
        let network =
            ObservedNetwork { id: "n1".into(), compose: Some(lan.clone()), ..ObservedNetwork::default() };
        stage.world.observed.networks.insert("shop_lan".into(), network);
        let held = stage.round();
        assert!(held.steps.is_empty() && held.is_waiting_for_adoption(), "{held:#?}");
        stage.world.observed.candidates.clear();
        stage.world.observed.claims = driftless_model::Claims::default();
        stage
    };
    let mut stage = taken_down();
    let waiting = stage.round();
    assert!(waiting.steps.is_empty(), "{:#?}", waiting.steps);
    let sentence = "waits for `docker compose down` to remove the network shop_lan, for 10 s at most";
    assert!(waiting.waits.iter().all(|wait| wait.to_string().ends_with(sentence)), "{:#?}", waiting.waits);
    assert_eq!(waiting.waits.len(), 2);
    assert_eq!(waiting.look_again, Some(stage.now.after(Duration::from_secs(10))));
    stage.tick(Duration::from_secs(4));
    assert!(stage.round().steps.is_empty());
    stage.world.observed.networks.clear();
    assert!(!stage.round().steps.is_empty(), "the network is gone");

    // Only the containers were taken down.
    let mut stage = taken_down();
    assert!(stage.round().steps.is_empty());
    stage.tick(Duration::from_secs(10));
    assert!(!stage.round().steps.is_empty());
    assert_eq!(stage.record.unadopted, None);
}
