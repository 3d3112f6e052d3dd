//! Differences between what Git asks of a container and what the engine reads back.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_model::{
    AgentId, AppName, Attachment, Claims, Container, ContainerId, ContentId, Format, Health, Healthcheck,
    HeldPort, IgnoredDifferences, IgnoredField, Image, InPlace, Instance, InstanceId, LiveSettings, Location,
    Mask, Mount, MountSource, NetworkMode, Observed, OnChange, Policy, Port, PortRange, Protocol, Readiness,
    Record, Resources, RestartPolicy, SpecHash, Stack, StackHashes, State, Strategy, Timestamp, Workload,
};
use driftless_plan::{
    Action, Cause, ContainerRef, FieldDifference, Step, Target, Wait, WaitObject, canonical_yaml,
    compare_live, compare_stacks, describe_steps, differences, unified_diff,
};

use crate::fixture;

fn mask() -> Mask {
    Mask::new([7; 32])
}

fn env(all: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    all.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
}

#[test]
fn changed_secrets_are_shown_without_their_digests() {
    let using = |digit: &str| {
        let id = ContentId(digit.repeat(64));
        let mut web = fixture::workload("web:1", 1);
        let source = MountSource::Secret(id.clone());
        web.container.mounts = vec![Mount { target: "/run/secrets/db".to_owned(), source, read_only: true }];
        web.pull_secrets.insert(id.clone());
        let file = InPlace { content: id, secret: true, on_change: OnChange::None };
        web.in_place.insert("/etc/key".to_owned(), file);
        fixture::stack([("web", web)])
    };
    let (before, after) = (using("a"), using("b"));
    let found = compare_stacks(Some(&before), Some(&after), &mask());
    let fields: Vec<&str> = found[0].fields.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["inPlace./etc/key.content", "mounts./run/secrets/db", "pullSecrets"]);
    assert_eq!(found[0].fields[1].found, format!("secret {}", mask().hide(&"a".repeat(64))));
    assert!(found[0].fields.iter().all(|it| it.found != it.want), "{found:?}");
    let shown = format!("{found:?}");
    assert!(!shown.contains("aaaaaaaa") && !shown.contains("bbbbbbbb"), "{shown}");
    assert!(compare_stacks(Some(&before), Some(&before), &mask()).is_empty());
}

fn words(all: &[&str]) -> Option<Vec<String>> {
    Some(all.iter().map(|it| (*it).to_owned()).collect())
}

fn desired() -> Container {
    Container {
        image: "web:1".to_owned(),
        env: env(&[("PORT", "8080")]),
        ports: vec![Port {
            container: 80,
            protocol: Protocol::Tcp,
            host_ip: None,
            host: Some(PortRange::one(8080)),
        }],
        mounts: vec![Mount {
            target: "/data".to_owned(),
            source: MountSource::Volume { name: "shop_data".to_owned(), no_copy: false },
            read_only: false,
        }],
        network_mode: NetworkMode::Networks(BTreeMap::from([(
            "shop_default".to_owned(),
            Box::new(Attachment { aliases: vec!["web".to_owned()], ..Attachment::default() }),
        )])),
        restart: RestartPolicy::Always,
        resources: Resources { memory: Some(128 << 20), ..Resources::default() },
        cap_add: vec!["NET_ADMIN".to_owned()],
        ..Container::default()
    }
}

fn image() -> Container {
    Container {
        entrypoint: words(&["/entry"]),
        command: words(&["serve"]),
        env: env(&[("PATH", "/bin"), ("PORT", "80")]),
        user: Some("app".to_owned()),
        expose: vec![(80, Protocol::Tcp), (9000, Protocol::Tcp)],
        mounts: vec![
            Mount { target: "/cache".to_owned(), source: MountSource::Anonymous, read_only: false },
            Mount { target: "/data/".to_owned(), source: MountSource::Anonymous, read_only: false },
        ],
        healthcheck: Some(Healthcheck {
            test: vec!["CMD".to_owned(), "/check".to_owned()],
            interval: None,
            timeout: None,
            retries: None,
            start_period: None,
            start_interval: None,
        }),
        ..Container::default()
    }
}

/// The report of an engine about a new container: all values filled in, in its own form.
fn read_back() -> Container {
    let mut found = desired().effective(&image());
    found.image = "docker.io/library/web:1".to_owned();
    found.hostname = Some("0123456789ab".to_owned());
    found.working_dir = Some("/".to_owned());
    found.stop_signal = Some("15".to_owned());
    found.stop_grace_period = Some(Duration::from_secs(10));
    found.init = Some(false);
    found.shm_size = Some(67_108_864);
    found.logging = Some(("json-file".to_owned(), BTreeMap::new()));
    found.ulimits = BTreeMap::from([("nofile".to_owned(), (1024, 1024))]);
    found.resources.memory_swap = Some(256 << 20);
    found.resources.pids = Some(-1);
    found.resources.nano_cpus = Some(0);
    found.cap_add = vec!["cap_net_admin".to_owned()];
    found.ipc_mode = Some("private".into());
    found.domainname = Some(String::new());
    for mount in &mut found.mounts {
        if mount.source == MountSource::Anonymous {
            mount.source = MountSource::Volume { name: "a".repeat(64), no_copy: false };
        }
    }
    for port in &mut found.ports {
        port.host_ip = Some("0.0.0.0".parse().unwrap());
    }
    found
}

fn between(found: &Container) -> Vec<FieldDifference> {
    differences(&desired(), &image(), found, &mask())
}

fn field(field: &str, want: &str, found: &str) -> FieldDifference {
    FieldDifference { field: field.to_owned(), want: want.to_owned(), found: found.to_owned() }
}

#[test]
fn domain_of_a_half_made_container_is_no_difference() {
    let wanted = |alias: &str| {
        let attachment = Box::new(Attachment { aliases: [alias.to_owned()].into(), ..Attachment::default() });
        Container {
            hostname: Some("db-0".to_owned()),
            network_mode: NetworkMode::Networks([("shop".to_owned(), attachment)].into()),
            ..desired()
        }
    };
    let want = wanted("db-0.db.default.svc.cluster.local");
    // The engine was killed after it had written the name, and before the aliases.
    let mut found = wanted("other");
    found.domainname = Some("db.default.svc.cluster.local".to_owned());
    let domain = |want: &Container| {
        let all = differences(want, &Container::default(), &found, &mask());
        all.into_iter().any(|it| it.field == "domainname")
    };
    assert!(!domain(&want));
    assert!(domain(&wanted("db-0.cache.default.svc.cluster.local")), "it is not the name of this pod");
}

#[test]
fn a_container_shows_no_difference_right_after_it_was_created() {
    assert_eq!(between(&read_back()), []);
    let mut no_swap = read_back();
    no_swap.resources.memory_swap = Some(-1);
    assert_eq!(between(&no_swap), [], "a kernel that cannot limit swap");
}

#[test]
fn port_on_the_addresses_of_ipv6_alone_is_a_difference() {
    let mut found = read_back();
    found.ports[0].host_ip = Some("::".parse().unwrap());
    assert_eq!(between(&found), [field("ports.80/tcp", "8080", "[::]:8080")]);
}

#[test]
fn values_of_the_daemon_and_of_tools_are_no_difference() {
    let options = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let own = options(&[("max-size", "10m")]);
    let mut found = read_back();
    let with_defaults = options(&[("max-size", "10m"), ("max-file", "3")]);
    found.logging = Some(("json-file".to_owned(), with_defaults));
    found.shm_size = Some(1 << 30);
    found.labels.insert("desktop.docker.io/binds/0/Source".to_owned(), "/home/ada".to_owned());
    for driver in ["", "json-file"] {
        let want = Container { logging: Some((driver.to_owned(), own.clone())), ..desired() };
        assert_eq!(differences(&want, &image(), &found, &mask()), [], "{driver}");
    }
    let want = Container { logging: Some((String::new(), options(&[("max-size", "5m")]))), ..desired() };
    assert_eq!(differences(&want, &image(), &found, &mask()), [field("logging.max-size", "5m", "10m")]);
    let want = Container { logging: Some(("local".to_owned(), own)), shm_size: Some(2 << 30), ..desired() };
    let fields = ["logging.driver", "shmSize"];
    let all = differences(&want, &image(), &found, &mask());
    assert_eq!(all.iter().map(|it| it.field.as_str()).collect::<Vec<_>>(), fields);
}

#[test]
fn log_option_of_a_driver_that_git_names_is_a_difference() {
    let (mut stack, agent) = (stack(), AgentId("us".to_owned()));
    let (policy, images, mask) = (Policy::default(), BTreeMap::new(), mask());
    let logging = |options: &[&str]| {
        let options = options.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        Some(("syslog".to_owned(), options))
    };
    stack.workloads.get_mut(&"web".into()).unwrap().container.logging = logging(&["tag"]);
    let mut found = read_back();
    found.logging = logging(&["tag", "syslog-format", "cache-disabled"]);
    let mut observed = observed(found);
    for instance in observed.instances.values_mut() {
        instance.state = State::Running { since: Timestamp(1), health: Health::Healthy };
    }
    for (driver, expected) in [("syslog", [].as_slice()), ("json-file", &["logging.syslog-format"])] {
        observed.engine_traits.log_driver = Some(driver.to_owned());
        let target = Target {
            stack: &stack,
            hashes: &StackHashes::of(&stack),
            reached: None,
            agent: &agent,
            policy: &policy,
            images: &images,
            mask: &mask,
        };
        let all = compare_live(&target, &observed, &Record::default());
        let fields: Vec<&str> = all.iter().flat_map(|it| &it.fields).map(|it| it.field.as_str()).collect();
        let fields: Vec<&str> = fields.into_iter().filter(|field| field.starts_with("logging")).collect();
        assert_eq!(fields, expected, "{driver}");
    }
}

#[test]
fn name_that_means_another_image_now_is_no_drift() {
    let (stack, agent, policy) = (stack(), AgentId("us".to_owned()), Policy::default());
    let (images, mask, hashes) = (BTreeMap::new(), mask(), StackHashes::of(&stack));
    let target = Target {
        stack: &stack,
        hashes: &hashes,
        reached: None,
        agent: &agent,
        policy: &policy,
        images: &images,
        mask: &mask,
    };
    let mut observed = observed(read_back());
    let of_image = |observed: &Observed| -> Vec<String> {
        let all = compare_live(&target, observed, &Record::default());
        let fields = all.into_iter().flat_map(|it| it.fields).map(|it| it.field);
        fields.filter(|field| ["env", "user", "command"].iter().any(|key| field.starts_with(*key))).collect()
    };
    assert_eq!(of_image(&observed), [""; 0]);
    // `docker build -t web:1`, for example.
    let other = Container {
        env: env(&[("PATH", "/usr/bin"), ("V", "2")]),
        user: None,
        command: words(&["run"]),
        ..image()
    };
    let other = Image { id: "sha256:2".to_owned(), defaults: Arc::new(other), ..Image::default() };
    observed.images.insert("web:1".to_owned(), other);
    assert_eq!(of_image(&observed), [""; 0]);
}

#[test]
fn other_way_to_write_an_address_is_no_difference() {
    let with = |ipv6: &str, link_local: &str| {
        let attachment = Attachment {
            ipv6: Some(ipv6.to_owned()),
            link_local: vec![link_local.to_owned()],
            ..Attachment::default()
        };
        let networks = [("shop_default".to_owned(), Box::new(attachment))];
        Container { network_mode: NetworkMode::Networks(networks.into()), ..Container::default() }
    };
    let written = with("FD00:0:0::10", "FE80::0:1");
    let between = |found: &Container| differences(&written, &Container::default(), found, &mask());
    assert_eq!(between(&with("fd00::10", "fe80::1")), []);
    assert_eq!(between(&with("fd00::11", "fe80::1")).len(), 1);
}

#[test]
fn each_changed_field_is_named_with_both_values() {
    let mut found = read_back();
    found.image = "web:2".to_owned();
    found.env.insert("PORT".to_owned(), Some("9".to_owned()));
    found.env.insert("EXTRA".to_owned(), Some("yes".to_owned()));
    found.env.remove("PATH");
    found.command = words(&["serve", "two words"]);
    found.mounts.retain(|it| it.target != "/data");
    found.ports[0].host = Some(PortRange { first: 81, last: 83 });
    found.network_mode = NetworkMode::Networks(BTreeMap::from([
        ("shop_default".to_owned(), Box::default()),
        ("other".to_owned(), Box::default()),
    ]));
    found.resources.memory = Some(64 << 20);
    found.resources.memory_swap = Some(128 << 20);
    found.restart = RestartPolicy::No;
    found.privileged = true;
    found.labels.insert("tier".to_owned(), "back".to_owned());
    found.labels.insert("com.docker.compose.service".to_owned(), "web".to_owned());
    assert_eq!(
        between(&found),
        [
            field("command", "serve", "serve 'two words'"),
            field("env.EXTRA", "unset", "yes"),
            field("env.PATH", "/bin", "unset"),
            field("env.PORT", "8080", "9"),
            field("image", "web:1", "web:2"),
            field("labels.tier", "unset", "back"),
            field("mounts./data", "volume shop_data", "unset"),
            field("networks.other.attached", "unset", "true"),
            field("networks.shop_default.aliases", "web", "unset"),
            field("ports.80/tcp", "8080", "81-83"),
            field("privileged", "unset", "true"),
            field("resources.memory", "128 MiB", "64 MiB"),
            field("restart", "always", "unset"),
        ]
    );
}

#[test]
fn entrypoint_drops_the_command_and_null_unsets_variables() {
    let mut own = desired();
    own.entrypoint = words(&["/mine"]);
    own.env.insert("PATH".to_owned(), None);
    let whole = own.effective(&image());
    assert_eq!((whole.entrypoint, whole.command), (words(&["/mine"]), None));
    assert_eq!(whole.env, env(&[("PORT", "8080")]));
    // The engine keeps the image's command where the entry point is an empty list.
    let bare = Container { entrypoint: Some(Vec::new()), command: None, ..own.clone() }.effective(&image());
    assert_eq!((bare.entrypoint, bare.command), (None, image().command));
    let targets: Vec<_> = whole.mounts.iter().map(|it| it.target.as_str()).collect();
    assert_eq!(targets, ["/cache", "/data"], "the image's volume is mounted over");
}

#[test]
fn health_check_overrides_the_image_field_by_field() {
    let mut own = desired();
    let check = |test: &[&str]| Healthcheck {
        test: test.iter().map(|it| (*it).to_owned()).collect(),
        interval: Some(Duration::from_secs(30)),
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    };
    own.healthcheck = Some(check(&[]));
    let whole = own.effective(&image());
    assert_eq!(whole.healthcheck.clone().unwrap().test, ["CMD", "/check"]);
    assert_eq!(differences(&own, &image(), &read_back(), &mask()), [], "30 s is the engine's own interval");
    own.healthcheck = Some(check(&["NONE"]));
    let found = differences(&own, &image(), &read_back(), &mask());
    assert_eq!(found, [field("healthcheck.test", "unset", "CMD /check")]);
}

#[test]
fn health_check_of_the_image_is_no_difference_in_a_pod() {
    let (agent, policy, images, mask) =
        (AgentId("us".to_owned()), Policy::default(), BTreeMap::new(), mask());
    let compared = |format: Format, check: Option<Healthcheck>| -> Vec<String> {
        let stack = Stack { format, ..stack() };
        let target = Target {
            stack: &stack,
            hashes: &StackHashes::of(&stack),
            reached: None,
            agent: &agent,
            policy: &policy,
            images: &images,
            mask: &mask,
        };
        let found = Container { healthcheck: check, ..read_back() };
        let all = compare_live(&target, &observed(found), &Record::default());
        let fields = all.into_iter().flat_map(|it| it.fields).map(|it| it.field);
        fields.filter(|field| field.starts_with("healthcheck")).collect()
    };
    // As an older agent has created it, and as this one does.
    for check in [image().healthcheck, Some(Healthcheck::disabled())] {
        assert_eq!(compared(Format::Kubernetes, check), [""; 0]);
    }
    assert_eq!(compared(Format::Compose, image().healthcheck), [""; 0]);
    assert_eq!(compared(Format::Compose, Some(Healthcheck::disabled())), ["healthcheck.test"]);
}

#[test]
fn secrets_are_compared_but_never_printed() {
    let mut want = desired();
    want.env.insert("DB_PASSWORD".to_owned(), Some("hunter2x".to_owned()));
    want.command = words(&["serve", "--db=postgres://app@db/x?p=hunter2x", "--token", "abc"]);
    let mut found = want.effective(&image());
    found.env.insert("DB_PASSWORD".to_owned(), Some("hunter3x".to_owned()));
    found.command = words(&["serve", "--password=hunter3x"]);
    let all = differences(&want, &image(), &found, &mask());
    let fields: Vec<_> = all.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["command", "env.DB_PASSWORD"]);
    let printed = format!("{all:?}\n{}", canonical_yaml(&found, &mask()));
    for secret in ["hunter", "abc"] {
        assert!(!printed.contains(secret), "{printed}");
    }
    assert_ne!(all[1].want, all[1].found, "that it changed can be told");
}

#[test]
fn changed_spec_names_the_fields_of_its_steps() {
    let stack = stack();
    let (agent, policy, images) = (AgentId("agent".to_owned()), Policy::default(), BTreeMap::new());
    let mask = mask();
    let target = Target {
        stack: &stack,
        hashes: &StackHashes::of(&stack),
        reached: None,
        agent: &agent,
        policy: &policy,
        images: &images,
        mask: &mask,
    };
    let mut found = read_back();
    found.image = "web:0".to_owned();
    found.env.insert("PORT".to_owned(), Some("9".to_owned()));
    let mut observed = observed(found);
    for instance in observed.instances.values_mut() {
        instance.spec = SpecHash("0".repeat(64));
        instance.agent = agent.clone();
    }
    let instance = observed.instances.values().next().unwrap();
    let action = Action::StopInstance { container: ContainerRef::from(instance), grace: None };
    let step = |cause| Step { action: action.clone(), cause, after: Vec::new() };
    let steps = [step(Cause::SpecChanged), step(Cause::NotInGit)];
    let text = describe_steps(&steps, &target, &observed, &Record::default()).join("\n");
    assert!(text.ends_with("(not in Git)"), "{text}");
    assert!(text.contains("(spec changed: env.PORT, image web:0 -> web:1"), "{text}");
    assert!(!text.contains("8080"), "values of the environment are not shown: {text}");
    // The host does not have Git's image yet, so nobody knows what it gives a container.
    observed.images.clear();
    let text = describe_steps(&steps[..1], &target, &observed, &Record::default()).join("\n");
    assert!(text.ends_with("(spec changed: env.PORT, image web:0 -> web:1)"), "{text}");
}

#[test]
fn step_that_stops_first_names_the_anonymous_volumes() {
    use crate::fixture::{Stage, stack, workload};
    for (path, has_volume) in [("/image-data", true), ("", false)] {
        let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
        while !stage.round().is_settled() {
            stage.tick(Duration::from_secs(1));
        }
        if has_volume {
            stage.named("shop-web-1").anonymous_volumes =
                BTreeMap::from([(path.to_owned(), "a1".to_owned())]);
        }
        stage.stack = stack([("web", workload("web:2", 1))]);
        let observed = stage.world.observed.clone();
        let plan = stage.round();
        let (images, mask) = (BTreeMap::new(), mask());
        let target = Target {
            stack: &stage.stack,
            hashes: &StackHashes::of(&stage.stack),
            reached: None,
            agent: &stage.agent,
            policy: &stage.policy,
            images: &images,
            mask: &mask,
        };
        let text = describe_steps(&plan.steps, &target, &observed, &stage.record).join("\n");
        let stop = text.lines().find(|line| line.contains("stop shop-web-1"));
        assert_eq!(stop.is_some(), has_volume, "{text}");
        if let Some(stop) = stop {
            assert!(stop.ends_with("; stops first, as its successor takes over /image-data)"), "{text}");
        }
        assert_eq!(text.matches("stops first").count(), usize::from(has_volume), "{text}");
    }
}

#[test]
fn ignored_fields_are_marked_unless_the_spec_changed() {
    let (mut stack, agent) = (stack(), AgentId("us".to_owned()));
    let ignored = IgnoredDifferences {
        workload: Some("web".into()),
        fields: vec![IgnoredField::parse("resources.memory").unwrap(), IgnoredField::parse("state").unwrap()],
        place: None,
    };
    let policy = Policy { ignore_differences: vec![ignored], ..Policy::default() };
    let (images, mask) = (BTreeMap::new(), mask());
    let mut found = read_back();
    found.resources.memory = Some(64 << 20);
    found.restart = RestartPolicy::No;
    let observed = observed(found);
    let compared = |stack: &Stack| {
        let hashes = StackHashes::of(stack);
        let target = Target {
            stack,
            hashes: &hashes,
            reached: None,
            agent: &agent,
            policy: &policy,
            images: &images,
            mask: &mask,
        };
        compare_live(&target, &observed, &Record::default()).remove(0)
    };
    let difference = compared(&stack);
    let paths: Vec<&str> = difference.fields.iter().map(|it| it.field.as_str()).collect();
    assert!(paths.contains(&"restart") && paths.contains(&"resources.memory"), "{paths:?}");
    let marked: Vec<&String> = difference.ignored.keys().collect();
    assert_eq!(marked, ["resources.memory", "resources.memorySwap", "state"]);
    // A commit that changes the container is rolled out, so nothing of it is ignored.
    stack.workloads.get_mut(&"web".into()).unwrap().container.resources.memory = Some(32 << 20);
    assert!(compared(&stack).ignored.is_empty());
}

#[test]
fn blocked_workload_names_the_application_of_the_holder() {
    let blog: AppName = "blog".into();
    let wait = |owner, project| {
        let object = WaitObject::Workload("web".into());
        Wait::blocked(object, "host port 80/tcp", "blog-web-1", owner, project).to_string()
    };
    assert_eq!(
        wait(Some(&blog), None),
        "web needs host port 80/tcp, which blog-web-1 of the application `blog` holds: change one of the two in Git, \
         or remove the container if `blog` was forgotten"
    );
    assert_eq!(
        wait(None, None),
        "web needs host port 80/tcp, which blog-web-1 holds and this agent does not own"
    );
    assert_eq!(
        wait(None, Some("docker")),
        "web needs host port 80/tcp, which blog-web-1 of the Compose project `docker` holds and this agent does not own: \
         write `name: docker` in the Compose file to adopt that project, or stop and remove the container"
    );
}

#[test]
fn port_of_a_process_is_checked_again_without_a_stop() {
    use crate::fixture::{Stage, stack, workload};
    let with_port = |port: u16| {
        let mut web = workload("web:1", 1);
        let host = Some(PortRange { first: port, last: port });
        web.container.ports = vec![Port { container: 8080, protocol: Protocol::Tcp, host_ip: None, host }];
        stack([("web", web)])
    };
    let mut stage = Stage::new(with_port(80));
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(1));
    }
    let by = Claims::HOST_PROCESS.to_owned();
    let held = HeldPort { port: 81, protocol: Protocol::Tcp, ip: None, by };
    stage.world.observed.claims.ports.insert(held);
    stage.stack = with_port(81);
    let plan = stage.round();
    assert!(plan.steps.is_empty(), "{plan}");
    assert_eq!(plan.look_again, Some(stage.now.after(Duration::from_secs(10))));
    let wait = "web needs host port 81/tcp, which a process of the host holds: end it (`ss -lntup` lists it), or change the port in Git";
    assert!(plan.waits.iter().any(|found| found.to_string() == wait), "{plan}");
    stage.world.observed.claims.ports.clear();
    assert!(!stage.round().steps.is_empty());
}

#[test]
fn unified_diff_has_three_lines_of_context() {
    let from = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    assert_eq!(unified_diff("a", from, "b", from), "");
    let text = unified_diff("a", from, "b", &from.replace('5', "five"));
    assert_eq!(text, "--- a\n+++ b\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
}

fn stack() -> Stack {
    let workload =
        Workload { strategy: Strategy::Recreate, ..Workload::new(Location::file("compose.yaml"), desired()) };
    let workloads = BTreeMap::from([("web".into(), workload)]);
    Stack { workloads, ..Stack::new("shop".into(), Format::Compose, "shop") }
}

fn observed(config: Container) -> Observed {
    let id = ContainerId("c1".to_owned());
    let instance = Instance {
        id: id.clone(),
        name: "shop-web-1".to_owned(),
        instance: InstanceId { workload: "web".into(), slot: 1 },
        agent: AgentId("us".to_owned()),
        spec: desired().spec(),
        created: Timestamp(1),
        state: State::Created,
        readiness: Readiness::Ready { since: Timestamp(1) },
        restarts: 0,
        networks: BTreeMap::new(),
        live: LiveSettings::default(),
        config: Arc::new(config),
        image_id: "sha256:1".to_owned(),
        anonymous_volumes: BTreeMap::new(),
        empty_volumes: BTreeMap::new(),
        part: None,
        hosts: Default::default(),
        volumes_of: Default::default(),
        started: None,
        bound_ports: Vec::new(),
        touched_by_hand: None,
        last_output: String::new(),
        check_output: String::new(),
        healthy_before: false,
    };
    let image = Image { id: "sha256:1".to_owned(), defaults: Arc::new(image()), ..Image::default() };
    Observed {
        instances: BTreeMap::from([(id, instance)]),
        images: BTreeMap::from([("web:1".to_owned(), image)]),
        ..Observed::default()
    }
}
