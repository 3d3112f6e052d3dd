//! Tests of the rules, one case for each way around them.

use std::collections::BTreeSet;

use crate::{
    AdmissionPolicy, Build, Container, DeviceRequest, Format, Hook, HostSettings, ImageRef, Location, Mount,
    MountSource, Network, NetworkMode, Port, PortRange, PortRule, Protocol, Stack, SwarmFile, SwarmService,
    Trust, Volume, Workload, foreign_objects,
};

fn stack_of(app: &str, container: Container, build: Option<Build>) -> Stack {
    let workload = Workload { build, ..Workload::new(Location::new("compose.yaml", 2, 3), container) };
    Stack {
        workloads: [("web".into(), workload)].into(),
        manifests: vec!["compose.yaml".to_owned()],
        ..Stack::new(app.into(), Format::Compose, app)
    }
}

fn plain() -> Container {
    Container { image: "ghcr.io/team/web:1".to_owned(), ..Container::default() }
}

fn limited() -> AdmissionPolicy {
    let protected = AdmissionPolicy::PROTECTED.iter().map(|it| (*it).to_owned()).collect();
    AdmissionPolicy { trust: Trust::Limited, protected, ..AdmissionPolicy::default() }
}

fn rules(policy: &AdmissionPolicy, container: Container) -> Vec<&'static str> {
    let mut found: Vec<_> =
        policy.violations(&stack_of("shop", container, None)).into_iter().map(|it| it.rule).collect();
    found.dedup();
    found
}

fn host(settings: HostSettings) -> Container {
    Container { host: settings.into(), ..plain() }
}

fn bind(path: &str, read_only: bool) -> Container {
    let source = MountSource::Bind { path: path.to_owned(), create: true, propagation: None, selinux: None };
    Container { mounts: vec![Mount { target: "/a".to_owned(), source, read_only }], ..plain() }
}

fn texts(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn name_of_a_helper_image_opens_no_way_to_the_host() {
    let container =
        Container { privileged: true, image: crate::HELPER_IMAGE.to_owned(), ..Container::default() };
    let found = limited().violations(&stack_of("shop", container, None));
    assert_eq!(found.iter().map(|it| it.rule).collect::<Vec<_>>(), ["privileged"]);
    // The agent's own helpers have no limits and come from no registry.
    let helper = Container { image: crate::HELPER_IMAGE.to_owned(), ..Container::default() };
    let strict = AdmissionPolicy { images: Some(["ghcr.io/team/*".to_owned()].into()), ..limited() };
    assert_eq!(strict.violations(&stack_of("shop", helper, None)), []);
}

#[test]
fn every_way_to_the_host_is_closed_with_limited_trust() {
    let one = |text: &str| Some(text.to_owned());
    let cases: Vec<(&str, Container)> = vec![
        ("privileged", Container { privileged: true, ..plain() }),
        ("unconfined", Container { security_opt: vec!["seccomp:unconfined".to_owned()], ..plain() }),
        ("unconfined", Container { security_opt: vec!["apparmor=unconfined".to_owned()], ..plain() }),
        // The profile may allow everything.
        ("unconfined", Container { security_opt: vec!["seccomp={\"a\":1}".to_owned()], ..plain() }),
        ("unconfined", Container { security_opt: vec!["label:type:unconfined_t".to_owned()], ..plain() }),
        ("capabilities", Container { cap_add: vec!["SYS_ADMIN".to_owned()], ..plain() }),
        ("hostNamespaces", Container { network_mode: NetworkMode::Host, ..plain() }),
        ("hostNamespaces", Container { pid_mode: Some("host".into()), ..plain() }),
        ("hostNamespaces", Container { ipc_mode: Some("host".into()), ..plain() }),
        ("hostNamespaces", host(HostSettings { userns_mode: one("host"), ..HostSettings::default() })),
        ("hostNamespaces", host(HostSettings { uts_mode: one("host"), ..HostSettings::default() })),
        ("hostNamespaces", host(HostSettings { cgroup: one("host"), ..HostSettings::default() })),
        (
            "hostNamespaces",
            Container {
                network_mode: NetworkMode::Networks([("host".to_owned(), Box::default())].into()),
                ..plain()
            },
        ),
        (
            "devices",
            Container { devices: vec![("/dev/sda".into(), "/dev/sda".into(), "rwm".into())], ..plain() },
        ),
        (
            "devices",
            host(HostSettings { device_cgroup_rules: vec!["a *:* rwm".into()], ..HostSettings::default() }),
        ),
        (
            "devices",
            host(HostSettings { device_requests: vec![DeviceRequest::default()], ..HostSettings::default() }),
        ),
        ("bindMounts", bind("/srv", true)),
        ("bindMounts", bind("/", true)),
        ("bindMounts", bind("/var/run/docker.sock", true)),
        ("bindMounts", bind("/var/lib/driftless/driftless.db", true)),
        (
            "privileged",
            host(HostSettings {
                post_start: vec![Hook { privileged: true, ..Hook::default() }],
                ..HostSettings::default()
            }),
        ),
        ("otherApplications", Container { pid_mode: Some("container:db".into()), ..plain() }),
        (
            "otherApplications",
            Container {
                network_mode: NetworkMode::Networks([("container:db".to_owned(), Box::default())].into()),
                ..plain()
            },
        ),
    ];
    for (rule, container) in cases {
        assert_eq!(rules(&AdmissionPolicy::default(), container.clone()), [] as [&str; 0], "{rule}");
        assert_eq!(rules(&limited(), container), [rule]);
    }
    assert_eq!(rules(&limited(), plain()), [] as [&str; 0]);
}

#[test]
fn annotations_for_a_runtime_need_an_unconfined_container() {
    let with = |name: &str| {
        let annotations = [(name.to_owned(), "1".to_owned())].into();
        host(HostSettings { annotations, ..HostSettings::default() })
    };
    let unconfined = AdmissionPolicy { unconfined: Some(true), ..limited() };
    for name in [
        "org.systemd.property.Conflicts",
        "run.oci.seccomp_bpf_data",
        "io.podman.annotations.seccomp",
        "io.katacontainers.config.hypervisor.path",
        "module.wasm.image/variant",
        "org.criu.config",
        "krun.ram_mib",
        "nvidia.cdi.k8s.io/gpu",
        "devices.nri.io/container.web",
    ] {
        assert_eq!(rules(&limited(), with(name)), ["unconfined"], "{name}");
        for policy in [AdmissionPolicy::default(), unconfined.clone()] {
            assert_eq!(rules(&policy, with(name)), [] as [&str; 0], "{name}");
        }
    }
    for name in ["com.example.team", "team", "org.opencontainers.image.source", "run.example.com", "a/nri.io"]
    {
        assert_eq!(rules(&limited(), with(name)), [] as [&str; 0], "{name}");
    }
}

#[test]
fn bind_mounts_follow_their_list() {
    let mut policy = limited();
    policy.bind_mounts =
        Some(texts(&["/srv/media/**", "/etc/localtime:ro", "/srv/one", "/**", "/run/docker.sock:ro"]));
    for (path, read_only, is_allowed) in [
        ("/srv/media", false, true),
        ("/srv/media/a/../b", false, true),
        ("/etc/localtime", true, true),
        ("/var/run/docker.sock", true, true),
        // The folder of the socket is not named by itself.
        ("/run", true, false),
        ("/", true, false),
        ("/var/lib/driftless/driftless.db", true, false),
        ("/srv/media/../../var/lib/docker", true, false),
    ] {
        assert_eq!(rules(&policy, bind(path, read_only)).is_empty(), is_allowed, "{path}");
    }
    policy.bind_mounts = Some(texts(&["/srv/media/**", "/etc/localtime:ro", "/srv/one"]));
    for (path, read_only, is_allowed) in [
        ("/srv/mediathek", false, false),
        ("/etc/localtime", false, false),
        ("/srv/one/two", false, false),
        ("/srv/one/", false, true),
        ("/var/run/docker.sock", true, false),
    ] {
        assert_eq!(rules(&policy, bind(path, read_only)).is_empty(), is_allowed, "{path}");
    }
}

#[test]
fn mount_inside_a_writable_one_needs_free_bind_mounts() {
    let own = |path: &str, read_only: bool| {
        let source = MountSource::AppFolder(path.to_owned());
        Mount { target: format!("/{path}"), source, read_only }
    };
    let with = |mounts: Vec<Mount>| Container { mounts, ..plain() };
    let nested = with(vec![own("data", false), own("data/x", true)]);
    let restricted = AdmissionPolicy { bind_mounts: Some(texts(&["/**"])), ..AdmissionPolicy::default() };
    assert_eq!(rules(&AdmissionPolicy::default(), nested.clone()), [] as [&str; 0]);
    assert_eq!(rules(&restricted, nested.clone()), ["bindMounts"]);
    let found = limited().violations(&stack_of("shop", nested, None));
    let [violation] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        violation.message,
        "mounts `./data/x` inside of `./data`, which a container writes to: a symbolic link there leads anywhere on the host"
    );
    let apart = with(vec![own("data", false), own("site", true)]);
    assert_eq!(rules(&limited(), apart), [] as [&str; 0]);
    // Another workload, and a part of a pod, write to the folder as well.
    let mut stack = stack_of("shop", with(vec![own("data/x", true)]), None);
    let writer = stack_of("shop", with(vec![own("data", false)]), None).workloads.remove(&"web".into());
    stack.workloads.extend(writer.map(|writer| ("writer".into(), writer)));
    assert_eq!(limited().violations(&stack).len(), 1);
}

#[test]
fn volume_that_is_a_folder_of_the_host_is_a_bind_mount() {
    for (options, rule) in [
        (vec![("type", "none"), ("o", "rw,bind"), ("device", "/")], Some("bindMounts")),
        (vec![("type", "overlay"), ("o", "lowerdir=/etc:/srv")], Some("bindMounts")),
        (
            vec![("type", "overlay"), ("device", "overlay"), ("o", "lowerdir+=/etc,lowerdir+=/root")],
            Some("bindMounts"),
        ),
        (vec![("type", "overlay"), ("device", "overlay"), ("o", "datadir+=/etc")], Some("bindMounts")),
        (vec![("type", "overlay"), ("device", "overlay"), ("o", "later=/etc")], Some("bindMounts")),
        (vec![("type", "ext4"), ("device", "/dev/sda1")], Some("devices")),
        (vec![("type", "nfs"), ("o", "addr=10.0.0.1"), ("device", ":/export")], None),
        (vec![("type", "nfs"), ("o", "addr=10.0.0.1,bind"), ("device", "/etc")], Some("bindMounts")),
    ] {
        let mut stack = stack_of("shop", plain(), None);
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let volume = Volume { key: "data".to_owned(), options, ..Volume::default() };
        stack.volumes.insert("shop_data".to_owned(), volume);
        let found = limited().violations(&stack);
        assert_eq!(found.first().map(|it| it.rule), rule, "{found:?}");
    }
}

#[test]
fn overlay_is_read_as_the_kernel_reads_it() {
    let policy = AdmissionPolicy { bind_mounts: Some(texts(&["/srv/media/**"])), ..limited() };
    for (options, is_allowed) in [
        ("lowerdir=/srv/media/a:/srv/media/b,redirect_dir=on", true),
        ("lowerdir+=/srv/media/a,lowerdir+=/srv/media/b", true),
        ("lowerdir=/srv/media/a,upperdir=/srv/media/b,workdir=/srv/media/c", true),
        // The kernel takes the backslash out of the path, and then goes up.
        (r"lowerdir=/srv/media/\../../etc:/srv/media/x", false),
        (r"lowerdir=/srv/media/a,upperdir=/srv/media/\../\../etc", false),
        ("lowerdir=/srv/media/a,upperdir+=/etc", false),
    ] {
        let mut stack = stack_of("shop", plain(), None);
        let options = [("type", "overlay"), ("device", "overlay"), ("o", options)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let volume = Volume { key: "data".to_owned(), options: options.into(), ..Volume::default() };
        stack.volumes.insert("shop_data".to_owned(), volume);
        assert_eq!(policy.violations(&stack).is_empty(), is_allowed, "{stack:?}");
    }
}

#[test]
fn images_are_compared_with_their_registry() {
    let policy =
        |images: &[&str]| AdmissionPolicy { images: Some(texts(images)), ..AdmissionPolicy::default() };
    for (pattern, image, is_allowed) in [
        ("ghcr.io/team/*", "ghcr.io/team/web:1", true),
        ("ghcr.io/team/*", "ghcr.io/teams/web:1", false),
        ("ghcr.io/team/*", "evil.example.com/ghcr.io/team/web", false),
        ("nginx", "docker.io/library/nginx:1.29", true),
        ("nginx:1.29", "nginx:1.29", true),
        ("nginx:1.29", "nginx", false),
        ("docker.io/library/*", "postgres:18", true),
        ("docker.io/library/*", "team/postgres:18", false),
        ("*", "anything/at-all", true),
    ] {
        let container = Container { image: image.to_owned(), ..Container::default() };
        assert_eq!(rules(&policy(&[pattern]), container).is_empty(), is_allowed, "{pattern} {image}");
    }
    let pinned = format!("ghcr.io/team/web:1@sha256:{}", "0".repeat(64));
    assert!(ImageRef::check(&pinned).is_ok());
    let policy = AdmissionPolicy { require_digests: Some(true), ..AdmissionPolicy::default() };
    assert_eq!(rules(&policy, plain()), ["requireDigests"]);
    assert!(rules(&policy, Container { image: pinned, ..Container::default() }).is_empty());
}

#[test]
fn ports_follow_their_rules() {
    let publish = |address: Option<&str>, host: Option<u16>| {
        let host_ip = address.map(|it| it.parse().unwrap());
        let port = Port { container: 80, protocol: Protocol::Tcp, host_ip, host: host.map(PortRange::one) };
        Container { ports: vec![port], ..plain() }
    };
    for (rule, container, is_allowed) in [
        ("127.0.0.1:*", publish(Some("127.0.0.1"), Some(80)), true),
        ("127.0.0.1:*", publish(Some("127.0.0.1"), None), true),
        ("127.0.0.1:*", publish(None, Some(80)), false),
        ("8000-8999", publish(None, Some(8080)), true),
        ("8000-8999", publish(None, Some(80)), false),
        ("8000-8999", publish(None, None), false),
        ("0.0.0.0:443", publish(None, Some(443)), true),
        ("[::1]:443", publish(Some("::1"), Some(443)), true),
    ] {
        let policy =
            AdmissionPolicy { ports: Some(vec![rule.parse().unwrap()]), ..AdmissionPolicy::default() };
        assert_eq!(rules(&policy, container).is_empty(), is_allowed, "{rule}");
    }
    for wrong in ["", "a", "0", "70000", "9-8", "host:80", "1.2.3:80"] {
        assert!(wrong.parse::<PortRule>().is_err(), "{wrong}");
    }
}

#[test]
fn limits_hooks_and_builds_are_checked() {
    let policy = AdmissionPolicy {
        require_limits: Some(texts(&["memory", "cpus"])),
        hooks: Some(false),
        builds: Some(false),
        ..AdmissionPolicy::default()
    };
    let mut container = host(HostSettings { pre_stop: vec![Hook::default()], ..HostSettings::default() });
    container.resources.memory = Some(1);
    let found = policy.violations(&stack_of("shop", container, Some(Build::default())));
    let rules: Vec<_> = found.iter().map(|it| it.rule).collect();
    assert_eq!(rules, ["requireLimits", "hooks", "builds"]);
    assert_eq!(found[0].message, "has no limit of cpus, which the policy requires");
}

#[test]
fn networks_and_volumes_of_others_are_checked() {
    let mut owner = stack_of("db", plain(), None);
    owner.volumes.insert("db_data".to_owned(), Volume::default());
    owner.networks.insert("db_default".to_owned(), Network::default());
    let mut user = stack_of("shop", plain(), None);
    let volume = |key: &str| Volume { key: key.to_owned(), external: true, ..Volume::default() };
    user.volumes.insert("db_data".to_owned(), volume("stolen"));
    user.volumes.insert("free".to_owned(), volume("free"));
    let network = Network { key: "net".to_owned(), external: true, ..Network::default() };
    user.networks.insert("db_default".to_owned(), network);
    let (full, limited) = (AdmissionPolicy::default(), limited());
    assert!(foreign_objects(&[(&owner, &full), (&user, &full)], &[]).is_empty());
    let found = foreign_objects(&[(&owner, &limited), (&user, &limited)], &[]);
    assert_eq!(foreign_objects(&[(&user, &limited)], &[&owner]), found, "it has left Git and still runs");
    assert!(foreign_objects(&[(&user, &full)], &[&owner]).is_empty());
    let messages: Vec<_> = found.iter().map(|it| it.violation.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "uses the network `db_default` of the application `db`, which the policy does not allow",
            "uses the volume `db_data` of the application `db`, which the policy does not allow",
        ]
    );
    let policy = AdmissionPolicy {
        external_networks: Some(texts(&["proxy"])),
        external_volumes: Some(texts(&["free"])),
        ..AdmissionPolicy::default()
    };
    let rules: Vec<_> = policy.violations(&user).into_iter().map(|it| it.rule).collect();
    assert_eq!(rules, ["externalNetworks", "externalVolumes"]);
}

#[test]
fn external_secrets_of_a_swarm_are_checked() {
    let file = |name: &str, secret: bool, external: bool| SwarmFile {
        name: name.to_owned(),
        secret,
        external,
        ..SwarmFile::default()
    };
    let with = |app: &str, files: Vec<SwarmFile>| {
        let mut stack = stack_of(app, plain(), None);
        let name = stack.workloads.keys().next().unwrap().clone();
        stack.swarm.insert(name, SwarmService { files, ..SwarmService::default() });
        stack
    };
    let owner = with("db", vec![file("db_key_1", true, false)]);
    let user = with("shop", vec![file("db_key_1", true, true), file("rules", false, true)]);
    let rules = |policy: &AdmissionPolicy| -> Vec<&str> {
        policy.violations(&user).into_iter().map(|it| it.rule).collect()
    };
    assert_eq!(rules(&AdmissionPolicy::default()), [""; 0]);
    assert_eq!(rules(&limited()), ["externalSecrets", "externalConfigs"]);
    let some = AdmissionPolicy {
        external_secrets: Some(texts(&["*"])),
        external_configs: Some(texts(&["rules"])),
        ..limited()
    };
    assert_eq!(rules(&some), [""; 0]);
    // Nobody gets the secret of another application by its name.
    let found = foreign_objects(&[(&owner, &some), (&user, &some)], &[]);
    let messages: Vec<_> = found.iter().map(|it| it.violation.message.as_str()).collect();
    assert_eq!(
        messages,
        ["uses the secret `db_key_1` of the application `db`, which the policy does not allow"]
    );
}

#[test]
fn inner_rule_wins_over_the_outer_one() {
    let outer = AdmissionPolicy {
        privileged: Some(false),
        capabilities: Some(texts(&["NET_ADMIN"])),
        ..AdmissionPolicy::default()
    };
    let inner = AdmissionPolicy { privileged: Some(true), ..AdmissionPolicy::default() }.within(&outer);
    assert!(rules(&inner, Container { privileged: true, ..plain() }).is_empty());
    assert_eq!(
        rules(&inner, Container { cap_add: vec!["SYS_ADMIN".to_owned()], ..plain() }),
        ["capabilities"]
    );
    assert!(rules(&inner, Container { cap_add: vec!["NET_ADMIN".to_owned()], ..plain() }).is_empty());
}
