//! `docker::Engine` on a real engine: what is asked for is what is read back, and hands are seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bollard::{
    API_DEFAULT_VERSION,
    models::{ContainerCreateBody, ContainerUpdateBody, NetworkDisconnectRequest},
    query_parameters as query,
};
use driftless_clock::Clock;
use driftless_docker::{
    ApiVersion, Docker, Effect, Engine, EngineEvent, EngineOptions, Error, ObserveScope, RegistryLogins,
};
use driftless_model::{
    AgentId, AppName, Attachment, BlockIo, Container, ContainerId, ContentId, DeviceRequest, Format, Health,
    Healthcheck, Hook, HostSettings, Instance, InstanceId, LiveSettings, Mask, Mount, MountOptions,
    MountSource, Network, NetworkMode, Observed, Port, PortRange, Protocol, Resources, RestartPolicy, State,
    Volume,
};
use driftless_plan as plan;
use driftless_plan::{Action, ContainerRef, Creation, RequiredSignature};
use futures_util::StreamExt;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::harness::{PATIENCE, free_port};

const IMAGE: &str = "dl-docker-test:1";

/// One test's corner of the engine: names that nobody else uses, and all of them removed at the end.
struct Corner {
    app: AppName,
    agent: AgentId,
    engine: Engine,
    /// The hand that drifts.
    raw: bollard::Docker,
    dir: TempDir,
}

impl Corner {
    async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let app = AppName(format!("dl-docker-{}-{number:02}", std::process::id()));
        let dir = tempfile::tempdir().unwrap();
        let agent = AgentId(format!("agent-of-{app}"));
        let engine = connect(&host(), &agent, dir.path());
        image().await;
        Self { app, agent, engine, raw: raw(), dir }
    }

    fn interest(&self) -> ObserveScope {
        ObserveScope { images: BTreeSet::from([IMAGE.to_owned()]), ..ObserveScope::default() }
    }

    fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.app)
    }

    fn creation(&self, slot: u32, container: Container) -> Creation {
        Creation {
            app: self.app.clone(),
            agent: self.agent.clone(),
            format: Format::Compose,
            project: self.app.to_string(),
            instance: InstanceId { workload: "web".into(), slot },
            name: self.name(&format!("web-{slot}")),
            spec: container.spec(),
            container,
            image: None,
            made_image: None,
            signature: RequiredSignature::None,
            inherit: BTreeMap::new(),
            peers: BTreeMap::new(),
            part: None,
            manifests: vec!["sites/shop/compose.yaml".to_owned()],
            depends_on: vec!["db:service_started:false".to_owned()],
        }
    }

    fn network_creation(&self, name: &str, network: Network) -> Action {
        let (name, project) = (name.to_owned(), self.app.to_string());
        Action::CreateNetwork { name, network, project, addresses: None }
    }

    /// Creates the volume `v`.
    fn volume_creation(&self, volume: Volume) -> Action {
        Action::CreateVolume { name: self.name("v"), volume, project: self.app.to_string() }
    }

    async fn act(&self, action: Action) -> Result<Effect, Error> {
        self.engine.perform(&self.app, &action, &|_| {}).await
    }

    async fn create(&self, creation: &Creation) -> ContainerId {
        match self.act(Action::CreateInstance(Box::new(creation.clone()))).await.unwrap() {
            Effect::Created(id) => id,
            Effect::Swarm(_) | Effect::Done => panic!("a creation has an id"),
        }
    }

    async fn observe(&self) -> Observed {
        self.engine.observe(&self.app, &self.interest()).await.unwrap()
    }

    async fn instance(&self, id: &ContainerId) -> Instance {
        self.observe().await.instances[id].clone()
    }

    async fn network(&self, name: &str) {
        let network = Network { key: "default".into(), ..Network::default() };
        self.act(self.network_creation(name, network)).await.unwrap();
    }

    /// A container that sleeps, running, in a network of its own.
    async fn running(&self) -> (ContainerRef, ContainerId) {
        let network = self.name("net");
        self.network(&network).await;
        let networks = BTreeMap::from([(
            network,
            Box::new(Attachment { aliases: vec!["web".into()], ..Attachment::default() }),
        )]);
        let container = Container { network_mode: NetworkMode::Networks(networks), ..sleeper() };
        let creation = self.creation(1, container);
        let id = self.create(&creation).await;
        let container = ContainerRef::Id(id.clone(), creation.name);
        self.act(Action::StartInstance { container: container.clone() }).await.unwrap();
        (container, id)
    }
}

impl Drop for Corner {
    fn drop(&mut self) {
        let app = self.app.to_string();
        let cleaning = std::thread::spawn(move || {
            tokio::runtime::Runtime::new().unwrap().block_on(async {
                let raw = raw();
                let all = query::ListContainersOptionsBuilder::new().all(true).build();
                for container in raw.list_containers(Some(all)).await.unwrap() {
                    if container.names.iter().flatten().any(|it| it.contains(&app)) {
                        let force = query::RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                        let _ = raw.remove_container(&container.id.unwrap(), Some(force)).await;
                    }
                }
                for network in raw.list_networks(None::<query::ListNetworksOptions>).await.unwrap() {
                    if network.name.unwrap().contains(&app) {
                        let _ = raw.remove_network(&network.id.unwrap()).await;
                    }
                }
                let volumes = raw.list_volumes(None::<query::ListVolumesOptions>).await.unwrap().volumes;
                for volume in volumes.unwrap_or_default().iter().filter(|it| it.name.contains(&app)) {
                    let _ = raw.remove_volume(&volume.name, None::<query::RemoveVolumeOptions>).await;
                }
            });
        });
        cleaning.join().unwrap();
    }
}

fn host() -> String {
    std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned())
}

fn raw() -> bollard::Docker {
    bollard::Docker::connect_with_unix(&host(), 60, API_DEFAULT_VERSION).unwrap()
}

fn connect(host: &str, agent: &AgentId, dir: &Path) -> Engine {
    let options = EngineOptions {
        remembered: None,
        host: host.into(),
        agent: agent.clone(),
        content_dir: dir.join("content"),
        secret_dir: dir.join("secret"),
        app_dir: dir.join("app"),
        registries: RegistryLogins::default(),
        clock: Clock::System,
    };
    Engine::connect(options).unwrap()
}

/// An image with one of everything that an image can say.
async fn image() {
    static BUILT: OnceCell<()> = OnceCell::const_new();
    BUILT
        .get_or_init(|| async {
            let dockerfile = "FROM scratch\nCOPY bin /bin\nENV PATH=/bin FROM_IMAGE=yes DROPPED=yes\nUSER 0\n\
                 WORKDIR /srv\nEXPOSE 7/udp\nVOLUME /image-data\nLABEL from=image both=image\n\
                 STOPSIGNAL SIGINT\nHEALTHCHECK --interval=1s --retries=7 CMD true\nCMD [\"sleep\",\"1000\"]\n";
            let mut tar = tar::Builder::new(Vec::new());
            let mut add = |path: &str, bytes: &[u8], mode| {
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_mode(mode);
                tar.append_data(&mut header, path, bytes).unwrap();
            };
            add("Dockerfile", dockerfile.as_bytes(), 0o644);
            add("bin/busybox", &std::fs::read("/bin/busybox").unwrap(), 0o755);
            for applet in ["sh", "sleep", "true", "cat", "echo"] {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
            }
            let body = bollard::body_full(tar.into_inner().unwrap().into());
            let options = query::BuildImageOptionsBuilder::new().t(IMAGE).rm(true).build();
            let raw = raw();
            let mut building = raw.build_image(options, None, Some(body));
            while let Some(step) = building.next().await {
                step.unwrap();
            }
        })
        .await;
}

fn sleeper() -> Container {
    Container {
        image: IMAGE.to_owned(),
        stop_grace_period: Some(Duration::ZERO),
        healthcheck: Some(Healthcheck {
            test: vec!["NONE".to_owned()],
            interval: None,
            timeout: None,
            retries: None,
            start_period: None,
            start_interval: None,
        }),
        ..Container::default()
    }
}

/// Waits for a state, looking again whenever something happened.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("never: {what}"))
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn mount(target: &str, source: MountSource, read_only: bool) -> Mount {
    Mount { target: target.to_owned(), source, read_only }
}

fn refused(result: Result<Effect, Error>) -> String {
    match result {
        Err(error @ Error::Refused { .. }) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Every field of `Container` set to something that is not its default.
fn everything(corner: &Corner) -> Container {
    let api = corner.engine.info().unwrap().api;
    let priority = if api >= ApiVersion::new(1, 48) { 7 } else { 0 };
    let start_interval = (api >= ApiVersion::new(1, 44)).then_some(Duration::from_millis(200));
    let id = |letter: &str| ContentId(letter.repeat(64));
    let dir = corner.dir.path();
    for (folder, id) in [("content", id("c")), ("secret", id("d"))] {
        std::fs::create_dir_all(dir.join(folder)).unwrap();
        std::fs::write(dir.join(folder).join(&id.0), "x").unwrap();
    }
    std::fs::create_dir_all(dir.join("app").join(corner.app.as_str()).join("data")).unwrap();
    std::fs::create_dir_all(dir.join("plain")).unwrap();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let bind = |path, create| MountSource::Bind { path, create, propagation: None, selinux: None };
    let shared = Some("rslave".to_owned());
    let mut networks = BTreeMap::new();
    networks.insert(
        corner.name("a"),
        Box::new(Attachment { aliases: words("shop web"), ..Attachment::default() }),
    );
    let fixed = Some(format!("10.213.{}.9", std::process::id() % 250));
    networks.insert(
        corner.name("b"),
        Box::new(Attachment {
            aliases: words("web"),
            ipv4: fixed,
            gw_priority: priority,
            ..Attachment::default()
        }),
    );
    Container {
        image: IMAGE.to_owned(),
        entrypoint: Some(words("/bin/sh -c")),
        command: Some(words("sleep 1000")),
        env: BTreeMap::from([
            ("GREETING".to_owned(), Some("a=b c".to_owned())),
            ("EMPTY".to_owned(), Some(String::new())),
            ("DROPPED".to_owned(), None),
        ]),
        user: Some("1000:1000".into()),
        working_dir: Some("/tmp".into()),
        hostname: Some("shop".into()),
        domainname: Some("example.org".into()),
        init: Some(true),
        tty: true,
        stdin_open: true,
        stop_signal: Some("SIGUSR1".into()),
        stop_grace_period: Some(Duration::from_millis(2500)),
        labels: map(&[("mine", "1"), ("both", "manifest")]),
        ports: vec![
            Port { container: 80, protocol: Protocol::Tcp, host_ip: None, host: None },
            Port {
                container: 81,
                protocol: Protocol::Udp,
                host_ip: Some("127.0.0.1".parse().unwrap()),
                host: Some(PortRange { first: 45_000, last: 45_009 }),
            },
        ],
        expose: vec![(90, Protocol::Sctp), (91, Protocol::Tcp)],
        mounts: vec![
            mount("/anonymous", MountSource::Anonymous, false),
            mount("/app", MountSource::AppFolder("data".into()), false),
            mount("/app-whole", MountSource::AppFolder(".".into()), true),
            mount("/content", MountSource::Content(id("c")), false),
            mount("/made", bind(path("made"), true), true),
            mount(
                "/made-too",
                MountSource::Bind {
                    path: path("made"),
                    create: true,
                    propagation: shared.clone(),
                    selinux: None,
                },
                false,
            ),
            mount("/plain", bind(path("plain"), false), true),
            mount(
                "/plain-too",
                MountSource::Bind { path: path("plain"), create: false, propagation: shared, selinux: None },
                false,
            ),
            mount("/secret", MountSource::Secret(id("d")), true),
            mount("/tmpfs", MountSource::Tmpfs { size: Some(1 << 20), mode: Some(0o1770) }, false),
            mount("/volume", MountSource::Volume { name: corner.name("v"), no_copy: true }, true),
        ],
        network_mode: NetworkMode::Networks(networks),
        healthcheck: Some(Healthcheck {
            test: words("CMD true"),
            interval: None,
            timeout: Some(Duration::from_secs(3)),
            retries: Some(4),
            start_period: Some(Duration::from_secs(5)),
            start_interval,
        }),
        restart: RestartPolicy::OnFailure { max_retries: Some(3) },
        resources: Resources {
            nano_cpus: Some(500_000_000),
            memory: Some(64 << 20),
            memory_reservation: Some(32 << 20),
            memory_swap: Some(96 << 20),
            cpu_shares: Some(512),
            pids: Some(50),
            cpuset: Some("0".into()),
            ..Resources::default()
        },
        privileged: true,
        read_only: true,
        cap_add: words("NET_ADMIN SYS_TIME"),
        cap_drop: words("MKNOD"),
        security_opt: words("no-new-privileges"),
        extra_hosts: words("a:10.0.0.1 b:10.0.0.2"),
        dns: words("10.0.0.53"),
        dns_search: words("example.org"),
        sysctls: map(&[("net.core.somaxconn", "1024")]),
        shm_size: Some(1 << 20),
        ulimits: BTreeMap::from([("nofile".to_owned(), (100, 200))]),
        logging: Some(("json-file".into(), map(&[("max-size", "1m")]))),
        devices: vec![("/dev/null".into(), "/dev/nothing".into(), "r".into())],
        group_add: words("20"),
        pid_mode: Some("host".into()),
        ipc_mode: Some("host".into()),
        host: HostSettings::default().into(),
        volumes_from: Vec::new(),
    }
}

/// Settings that exclude others: every setting of the host that this engine and kernel can do, and all that an
/// end of a network can have.
fn all_settings(corner: &Corner) -> Container {
    let dir = corner.dir.path();
    std::fs::create_dir_all(dir.join("plain")).unwrap();
    let bind = MountSource::Bind {
        path: dir.join("plain").to_str().unwrap().to_owned(),
        create: false,
        propagation: None,
        selinux: None,
    };
    let volume = MountSource::Volume { name: corner.name("v"), no_copy: false };
    let options = |change: fn(&mut MountOptions)| {
        let mut options = MountOptions::default();
        change(&mut options);
        options
    };
    let hook = Hook {
        command: words("echo hello"),
        sleep: None,
        http: None,
        user: Some("1000".into()),
        privileged: true,
        working_dir: Some("/srv".into()),
        env: map(&[("A", "b")]),
    };
    let gpu = DeviceRequest {
        driver: "nvidia".into(),
        count: -1,
        ids: Vec::new(),
        capabilities: words("gpu utility"),
        options: map(&[("virtualization", "false")]),
    };
    let some = DeviceRequest { count: 0, ids: words("GPU-1 GPU-2"), ..gpu.clone() };
    let attachment = Attachment {
        aliases: words("web"),
        link_local: words("169.254.34.68"),
        mac_address: Some("02:42:ac:11:00:42".into()),
        driver_opts: map(&[("com.example.option", "1")]),
        links: words("db:database"),
        ..Attachment::default()
    };
    let rates = |rate| BTreeMap::from([("/dev/null".to_owned(), rate)]);
    Container {
        mounts: vec![
            mount("/bound", bind, true),
            mount("/tmpfs", MountSource::Tmpfs { size: Some(1 << 20), mode: Some(0o1770) }, true),
            mount("/volume", volume, false),
        ],
        network_mode: NetworkMode::Networks([(corner.name("a"), Box::new(attachment))].into()),
        resources: Resources {
            memory: Some(64 << 20),
            cpu_quota: Some(50_000),
            cpu_period: Some(200_000),
            ..Resources::default()
        },
        security_opt: vec![
            "seccomp={\"defaultAction\":\"SCMP_ACT_ALLOW\"}".into(),
            "apparmor=unconfined".into(),
            "systempaths=unconfined".into(),
        ],
        host: HostSettings {
            platform: Some(format!(
                "linux/{}",
                if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
            )),
            runtime: Some("runc".into()),
            uts_mode: Some("host".into()),
            userns_mode: Some("host".into()),
            cgroup: Some("host".into()),
            cgroup_parent: Some("/driftless-test".into()),
            dns_opt: words("ndots:2 timeout:1"),
            device_cgroup_rules: vec!["c 1:3 mr".into()],
            device_requests: vec![gpu, some],
            block_io: BlockIo {
                weight: None,
                weight_device: BTreeMap::new(),
                read_bps: rates(1 << 20),
                write_bps: rates(2 << 20),
                read_iops: rates(100),
                write_iops: rates(200),
            },
            memory_swappiness: Some(10),
            oom_kill_disable: true,
            oom_score_adj: 100,
            // These the kernel or the file system refuses on most machines; the unit tests have them.
            cpu_realtime_period: None,
            cpu_realtime_runtime: None,
            storage_opt: BTreeMap::new(),
            annotations: match corner.engine.info().unwrap().api >= ApiVersion::new(1, 43) {
                true => map(&[("com.example.note", "1")]),
                false => BTreeMap::new(),
            },
            mount_options: BTreeMap::from([
                ("/bound".to_owned(), options(|it| it.recursive = Some("disabled".into()))),
                ("/tmpfs".to_owned(), options(|it| it.tmpfs = words("exec uid=1000"))),
                (
                    "/volume".to_owned(),
                    options(|options| {
                        options.labels = [("a".to_owned(), "b".to_owned())].into();
                        options.group = Some(3000);
                    }),
                ),
            ]),
            // Looked at when it is made, and told of by nothing.
            non_root: false,
            post_start: vec![hook.clone()],
            pre_stop: vec![hook],
        }
        .into(),
        ..sleeper()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_of_the_host_comes_back_as_it_was_asked_for() {
    let corner = Corner::new().await;
    corner.act(corner.volume_creation(Volume::default())).await.unwrap();
    corner.network(&corner.name("a")).await;
    let wanted = all_settings(&corner);
    assert!(wanted.needs().is_none_or(|it| it.api <= (1, 43)), "{:?}", wanted.needs());
    let id = corner.create(&corner.creation(1, wanted.clone())).await;
    let observed = corner.observe().await;
    let found = &observed.instances[&id];
    let defaults = &observed.images[IMAGE].defaults;
    assert_eq!(*found.config, wanted.effective(defaults));
    let mask = Mask::new([7; 32]);
    assert_eq!(plan::differences(&wanted, defaults, &found.config, &mask), []);
    assert_eq!(found.live.resources.nano_cpus, Some(250_000_000));
    let found =
        corner.raw.inspect_container(id.as_str(), None::<query::InspectContainerOptions>).await.unwrap();
    let host = found.host_config.unwrap();
    assert_eq!(host.tmpfs.unwrap()["/tmpfs"], "size=1048576,mode=1770,ro,exec,uid=1000");
    assert_eq!(host.masked_paths, Some(Vec::new()));

    let mut network = Network { key: "n".into(), ..Network::default() };
    network.ipam_options = map(&[("com.example.option", "1")]);
    let subnet = format!("10.215.{}.0/24", std::process::id() % 250);
    network.ipam = vec![(Some(subnet.clone()), None, None)];
    let kept = format!("10.215.{}.7", std::process::id() % 250);
    network.aux_addresses = [(subnet, map(&[("router", &kept)]))].into();
    corner.act(corner.network_creation(&corner.name("n"), network)).await.unwrap();
    let found = corner.raw.inspect_network(&corner.name("n"), None::<query::InspectNetworkOptions>).await;
    let ipam = found.unwrap().ipam.unwrap();
    assert_eq!(ipam.options.unwrap()["com.example.option"], "1");
    assert_eq!(ipam.config.unwrap()[0].auxiliary_addresses.as_ref().unwrap()["router"], kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_and_a_failing_start_hook_stops_the_container() {
    let corner = Corner::new().await;
    corner.act(corner.volume_creation(Volume::default())).await.unwrap();
    let hook = |text: &str| Hook {
        command: vec!["sh".into(), "-c".into(), format!("echo {text} $WHO >> /data/log")],
        env: map(&[("WHO", "me")]),
        ..Hook::default()
    };
    let volume = MountSource::Volume { name: corner.name("v"), no_copy: false };
    let mut container = Container {
        mounts: vec![mount("/data", volume, false)],
        network_mode: NetworkMode::None,
        ..sleeper()
    };
    container.host.post_start = vec![hook("started"), hook("then")];
    container.host.pre_stop = vec![hook("stopping")];
    let creation = corner.creation(1, container.clone());
    let id = corner.create(&creation).await;
    let name = ContainerRef::Name(creation.name);
    let instance = creation.instance;
    corner.act(Action::StartInstance { container: name.clone() }).await.unwrap();
    let run = Action::RunHooks { container: name.clone(), instance };
    corner.act(run.clone()).await.unwrap();
    let log = words("cat /data/log");
    let printed = corner.engine.exec(&id, &log, PATIENCE).await.unwrap();
    assert_eq!(printed.output, "started me\nthen me\n");
    corner.act(Action::StopInstance { container: name.clone(), grace: None }).await.unwrap();
    // Another agent, that remembers nothing, finds them on the container.
    let later = connect(&host(), &corner.agent, corner.dir.path());
    later.perform(&corner.app, &Action::StartInstance { container: name.clone() }, &|_| {}).await.unwrap();
    later.perform(&corner.app, &run, &|_| {}).await.unwrap();
    let printed = corner.engine.exec(&id, &log, PATIENCE).await.unwrap();
    assert_eq!(printed.output, "started me\nthen me\nstopping me\nstarted me\nthen me\n");

    container.host.post_start = vec![Hook { command: words("cat /no/such/file"), ..Hook::default() }];
    let creation = corner.creation(2, container);
    let id = corner.create(&creation).await;
    let (container, instance) = (ContainerRef::Name(creation.name), creation.instance);
    corner.act(Action::StartInstance { container: container.clone() }).await.unwrap();
    let error = corner.act(Action::RunHooks { container, instance }).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("post_start command `cat` ended with code 1"), "{error}");
    assert!(matches!(corner.instance(&id).await.state, State::Exited { .. }));
}

/// Without what every engine fills in by its own configuration.
fn without_fillings(found: &Container) -> Container {
    let mut found = found.clone();
    (found.host.runtime, found.host.cgroup) = (None, None);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_every_field_comes_back_as_it_was_asked_for() {
    let corner = Corner::new().await;
    corner.network(&corner.name("a")).await;
    let subnet = format!("10.213.{}.0/24", std::process::id() % 250);
    let network = Network { key: "b".into(), ipam: vec![(Some(subnet), None, None)], ..Network::default() };
    corner.act(corner.network_creation(&corner.name("b"), network)).await.unwrap();
    corner.act(corner.volume_creation(Volume::default())).await.unwrap();
    let wanted = everything(&corner);
    let mut creation = corner.creation(1, wanted.clone());
    let id = corner.create(&creation).await;
    let observed = corner.observe().await;
    let found = &observed.instances[&id];
    let defaults = &observed.images[IMAGE].defaults;
    assert_eq!(without_fillings(&found.config), wanted.effective(defaults));
    assert_eq!(found.state, State::Created);
    assert_eq!(
        (found.instance.clone(), found.agent.clone()),
        (creation.instance.clone(), corner.agent.clone())
    );
    assert_eq!((found.spec.clone(), found.name.clone()), (wanted.spec(), creation.name.clone()));
    assert_eq!(found.live, LiveSettings { resources: wanted.resources.clone(), restart: wanted.restart });
    let anonymous: Vec<&String> = found.anonymous_volumes.keys().collect();
    assert_eq!(anonymous, ["/anonymous", "/image-data"]);

    // A successor that says nothing at all takes over the volume that the image declares, and is what the image says.
    creation.instance.slot = 2;
    creation.name = corner.name("web-2");
    creation.container = Container { image: IMAGE.to_owned(), ..Container::default() };
    creation.inherit = found.anonymous_volumes.clone();
    let heir = corner.create(&creation).await;
    let found_heir = corner.instance(&heir).await;
    let mut of_image = found.anonymous_volumes.clone();
    of_image.retain(|target, _| target == "/image-data");
    assert_eq!(found_heir.anonymous_volumes, of_image);
    assert_eq!(without_fillings(&found_heir.config), creation.container.effective(defaults));
    assert_eq!(defaults.env["FROM_IMAGE"].as_deref(), Some("yes"));
    assert!(!found.config.env.contains_key("DROPPED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_succeeds_without_effect() {
    let corner = Corner::new().await;
    let (container, id) = corner.running().await;
    let network = corner.name("net");
    corner.network(&network).await;
    let volume = Volume { key: "v".into(), ..Volume::default() };
    for _ in 0..2 {
        corner.act(corner.volume_creation(volume.clone())).await.unwrap();
        corner.act(Action::StartInstance { container: container.clone() }).await.unwrap();
        corner.act(Action::UnpauseInstance { container: container.clone() }).await.unwrap();
        let settings = LiveSettings {
            resources: Resources { memory: Some(32 << 20), ..Resources::default() },
            restart: RestartPolicy::UnlessStopped,
        };
        corner
            .act(Action::UpdateInstance { container: container.clone(), settings: settings.clone() })
            .await
            .unwrap();
        assert_eq!(corner.instance(&id).await.live, settings);
        corner
            .act(Action::RenameInstance { container: container.clone(), to: corner.name("new") })
            .await
            .unwrap();
    }
    let attachment = Attachment { aliases: vec!["web".into()], ..Attachment::default() };
    for _ in 0..2 {
        let (container, network) = (container.clone(), network.clone());
        corner.act(Action::Disconnect { container, network }).await.unwrap();
        assert!(corner.instance(&id).await.networks.is_empty());
    }
    for _ in 0..2 {
        let (container, network, attachment) = (container.clone(), network.clone(), attachment.clone());
        corner.act(Action::Connect { container, network, attachment }).await.unwrap();
    }
    let endpoint = &corner.instance(&id).await.networks[&network];
    assert_eq!(endpoint.aliases, ["web"]);
    assert!(endpoint.ip.is_some());
    let running = refused(
        corner.act(Action::RemoveInstance { container: container.clone(), with_volumes: false }).await,
    );
    assert!(running.contains("running"), "{running}");
    for _ in 0..2 {
        corner.act(Action::StopInstance { container: container.clone(), grace: None }).await.unwrap();
    }
    assert_eq!(corner.instance(&id).await.touched_by_hand, None, "it was our own hand");
    let volumes = corner.instance(&id).await.anonymous_volumes;
    for _ in 0..2 {
        corner
            .act(Action::RemoveInstance { container: container.clone(), with_volumes: false })
            .await
            .unwrap();
    }
    assert_eq!(volumes.keys().collect::<Vec<_>>(), ["/image-data"]);
    for volume in volumes.values() {
        // It is still there, and this time we are the hand that tidies up.
        corner.raw.remove_volume(volume, None::<query::RemoveVolumeOptions>).await.unwrap();
    }
    let network_id = corner.observe().await.networks[&network].id.clone();
    for _ in 0..2 {
        let (name, id) = (network.clone(), network_id.clone());
        corner.act(Action::RemoveNetwork { name, id }).await.unwrap();
    }
    assert_eq!(corner.observe().await.networks, BTreeMap::new());
    assert!(corner.raw.inspect_volume(&corner.name("v")).await.is_ok(), "volumes are never removed");
}

/// The engine writes the network down before it connects, and leaves that in place when it fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_failed_half_way_is_none() {
    let corner = Corner::new().await;
    let (container, id) = corner.running().await;
    let network = corner.name("pool");
    let range = std::process::id() % 250;
    let ranges = vec![(Some(format!("10.214.{range}.0/24")), Some(format!("10.214.{range}.1")), None)];
    let pool = Network { key: "pool".into(), ipam: ranges, ..Network::default() };
    corner.act(corner.network_creation(&network, pool)).await.unwrap();
    let connect = |ipv4| {
        let attachment = Attachment { ipv4, ..Attachment::default() };
        corner.act(Action::Connect { container: container.clone(), network: network.clone(), attachment })
    };
    // The gateway has this address.
    connect(Some(format!("10.214.{range}.1"))).await.unwrap_err();
    assert!(!corner.instance(&id).await.networks.contains_key(&network));
    connect(None).await.unwrap();
    assert!(corner.instance(&id).await.networks.contains_key(&network));
}

#[tokio::test(flavor = "multi_thread")]
async fn name_in_use_is_refused_even_with_the_agents_labels() {
    let corner = Corner::new().await;
    let creation = corner.creation(1, sleeper());
    corner.create(&creation).await;
    // Another engine stands for the agent after a crash: it has no memory.
    let after = connect(&host(), &corner.agent, corner.dir.path());
    let again =
        after.perform(&corner.app, &Action::CreateInstance(Box::new(creation.clone())), &|_| {}).await;
    // Labels can be copied, so the holder of a name is never taken for ours without a look at it.
    assert!(matches!(again, Err(Error::Refused { .. })), "{again:?}");
    let other = Creation { spec: driftless_model::SpecHash("another".into()), ..creation };
    refused(corner.act(Action::CreateInstance(Box::new(other))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn container_is_created_from_the_image_that_was_made_for_it() {
    let corner = Corner::new().await;
    corner.create(&corner.creation(1, sleeper())).await;
    let docker = crate::harness::Docker { host: None };
    let id = |image: &str| docker.run(&["image", "inspect", "--format", "{{.Id}}", image]).trim().to_owned();
    let (made, name) = (id(IMAGE), format!("{}:1-0123", corner.name("built")));
    // Another program has given the name to another image.
    docker.run(&["tag", &crate::harness::images::placeholder(), &name]);
    assert_ne!(id(&name), made);
    let container = Container { image: name.clone(), ..sleeper() };
    let creation = Creation { made_image: Some(made.clone()), ..corner.creation(2, container) };
    let instance = corner.instance(&corner.create(&creation).await).await;
    assert_eq!((&instance.image_id, &instance.config.image), (&made, &name));
    assert_eq!(id(&name), made, "the name is given back");
    docker.run(&["rmi", "--force", &name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_manual_change_is_observed_at_once() {
    let corner = Corner::new().await;
    let mut changes = corner.engine.events();
    let (_, id) = corner.running().await;
    until("the start is over", || async {
        let instance = corner.instance(&id).await;
        (instance.is_running() && corner.engine.info().is_some()).then_some(())
    })
    .await;
    let key = id.as_str();
    corner
        .raw
        .rename_container(key, query::RenameContainerOptionsBuilder::new().name(&corner.name("x")).build())
        .await
        .unwrap();
    touched(&mut changes, &corner.app, "rename").await;
    assert_eq!(corner.instance(&id).await.name, corner.name("x"));

    let update = ContainerUpdateBody {
        memory: Some(48 << 20),
        memory_swap: Some(96 << 20),
        ..ContainerUpdateBody::default()
    };
    corner.raw.update_container(key, update).await.unwrap();
    touched(&mut changes, &corner.app, "update").await;
    assert_eq!(corner.instance(&id).await.live.resources.memory, Some(48 << 20));
    let settings = LiveSettings::default();
    let container = ContainerRef::Id(id.clone(), "web".into());
    let message = refused(corner.act(Action::UpdateInstance { container, settings }).await);
    assert!(message.contains("cannot take away the limit on memory"), "{message}");

    corner.raw.pause_container(key).await.unwrap();
    touched(&mut changes, &corner.app, "pause").await;
    let paused = corner.instance(&id).await;
    assert_eq!(paused.state, State::Paused);
    assert!(paused.touched_by_hand.is_some());
    corner.raw.unpause_container(key).await.unwrap();

    let request = NetworkDisconnectRequest { container: id.to_string(), force: None };
    corner.raw.disconnect_network(&corner.name("net"), request).await.unwrap();
    touched(&mut changes, &corner.app, "disconnect").await;
    assert!(corner.instance(&id).await.networks.is_empty());

    corner
        .raw
        .stop_container(key, Some(query::StopContainerOptionsBuilder::new().t(0).build()))
        .await
        .unwrap();
    touched(&mut changes, &corner.app, "stop").await;
    let stopped = corner.instance(&id).await;
    assert!(matches!(stopped.state, State::Exited { code: 137 | 130, .. }), "{:?}", stopped.state);
    assert!(stopped.touched_by_hand.is_some());

    // An agent that was not there asks the engine's memory.
    let later = connect(&host(), &corner.agent, corner.dir.path());
    let seen = later.observe(&corner.app, &ObserveScope::default()).await.unwrap();
    assert!(seen.instances[&id].touched_by_hand.is_some());
}

/// Waits until the engine's event arrives.
async fn touched(changes: &mut tokio::sync::broadcast::Receiver<EngineEvent>, of: &AppName, word: &str) {
    let waiting = async {
        loop {
            match changes.recv().await.unwrap() {
                // Objects of other tests have no owner, or another one.
                EngineEvent::ObjectChanged { app, action, .. }
                    if app.as_ref() == Some(of) && action == word =>
                {
                    return;
                }
                EngineEvent::ObjectChanged { .. }
                | EngineEvent::Connected
                | EngineEvent::ClaimLost
                | EngineEvent::Disconnected { .. } => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("no {word} arrived"));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_passed_on() {
    let corner = Corner::new().await;
    let healthcheck = Healthcheck {
        test: words("CMD true"),
        interval: Some(Duration::from_millis(100)),
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    };
    let container =
        Container { healthcheck: Some(healthcheck), network_mode: NetworkMode::None, ..sleeper() };
    let creation = corner.creation(1, container);
    let id = corner.create(&creation).await;
    corner.act(Action::StartInstance { container: ContainerRef::Name(creation.name) }).await.unwrap();
    let since = until("it is healthy", || async {
        match corner.instance(&id).await.state {
            State::Running { health: Health::Healthy, since } => Some(since),
            _ => None,
        }
    })
    .await;
    assert!(since > corner.instance(&id).await.created);
    let folder = corner.engine.exec(&id, &words("sh -c pwd"), PATIENCE).await.unwrap();
    assert_eq!(folder.success().as_deref(), Ok("/srv\n"));
    let late = corner.engine.exec(&id, &words("sleep 5"), Duration::from_millis(200)).await;
    assert!(matches!(late, Err(Error::Transient { .. })), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn observing_an_unchanged_application_is_one_call() {
    let corner = Corner::new().await;
    let (_, id) = corner.running().await;
    corner.act(corner.volume_creation(Volume::default())).await.unwrap();
    let proxied = connect(&host(), &corner.agent, corner.dir.path());
    // Other tests share the engine, and their networks and images make ours old: some pass is undisturbed.
    let passes = until("a pass costs one call", || async {
        let (calls, writes) = (proxied.calls(), proxied.writes());
        let seen = proxied.observe(&corner.app, &corner.interest()).await.unwrap();
        assert!(seen.instances[&id].is_running());
        assert_eq!(proxied.writes(), writes);
        (proxied.calls() == calls + 1).then_some(seen)
    })
    .await;
    assert_eq!(passes.images.keys().collect::<Vec<_>>(), [IMAGE]);
    assert_eq!(passes.networks[&corner.name("net")].agent, Some(corner.agent.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_are_left_alone() {
    let corner = Corner::new().await;
    let name = corner.name("foreign");
    let body = ContainerCreateBody { image: Some(IMAGE.into()), ..ContainerCreateBody::default() };
    let options = query::CreateContainerOptionsBuilder::new().name(&name).build();
    let id = ContainerId(corner.raw.create_container(Some(options), body).await.unwrap().id);
    let container = ContainerRef::Id(id.clone(), name.clone());
    let settings = LiveSettings::default();
    let network = "bridge".to_owned();
    for action in [
        Action::StopInstance { container: container.clone(), grace: None },
        Action::RemoveInstance { container: container.clone(), with_volumes: false },
        Action::StartInstance { container: container.clone() },
        Action::RenameInstance { container: container.clone(), to: "x".into() },
        Action::UpdateInstance { container: container.clone(), settings },
        Action::Disconnect { container: container.clone(), network },
        Action::RemoveInstance { container: ContainerRef::Name(name.clone()), with_volumes: false },
    ] {
        assert!(refused(corner.act(action).await).contains("does not belong to this agent"));
    }
    let claims = corner.observe().await.claims;
    assert_eq!(claims.name_holder(&name).map(|holder| &holder.id), Some(&id));
    let bridges = corner.raw.inspect_network("bridge", None::<query::InspectNetworkOptions>).await.unwrap();
    let bridge = Action::RemoveNetwork { name: "bridge".into(), id: bridges.id.unwrap() };
    assert!(refused(corner.act(bridge).await).contains("does not belong to this agent"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_start_names_the_reason() {
    let corner = Corner::new().await;
    let port = |first| Port {
        container: 80,
        protocol: Protocol::Tcp,
        host_ip: Some("127.0.0.1".parse().unwrap()),
        host: Some(PortRange::one(first)),
    };
    let free = free_port();
    let publishing = Container { ports: vec![port(free)], network_mode: NetworkMode::Bridge, ..sleeper() };
    for slot in [1, 2] {
        corner.create(&corner.creation(slot, publishing.clone())).await;
    }
    let start =
        |slot| Action::StartInstance { container: ContainerRef::Name(corner.name(&format!("web-{slot}"))) };
    corner.act(start(1)).await.unwrap();
    let message = refused(corner.act(start(2)).await);
    assert!(message.contains(&format!("host port {free} is in use")), "{message}");

    let wrong = Container { command: Some(words("/no/such/program")), ..sleeper() };
    corner.create(&corner.creation(3, wrong)).await;
    let error = corner.act(start(3)).await.unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error:?}");

    // Its image has no user, and so is root's.
    let mut forbidden = sleeper();
    forbidden.host.non_root = true;
    let create = Action::CreateInstance(Box::new(corner.creation(4, forbidden)));
    let error = corner.act(create).await.unwrap_err();
    let says = |it: &Error| matches!(it, Error::Rejected { message, .. } if message.contains("runs as root"));
    assert!(says(&error), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_cannot_be_pulled() {
    let corner = Corner::new().await;
    let port = free_port();
    let config = corner.dir.path().join("registry.yml");
    let root = corner.dir.path().join("registry");
    std::fs::write(
        &config,
        format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
            root.display()
        ),
    )
    .unwrap();
    let mut registry = tokio::process::Command::new("docker-registry")
        .arg("serve")
        .arg(&config)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until("the registry listens", || async {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
    })
    .await;

    let repository = format!("127.0.0.1:{port}/{}", corner.app);
    let options = query::TagImageOptionsBuilder::new().repo(&repository).tag("1").build();
    corner.raw.tag_image(IMAGE, Some(options)).await.unwrap();
    let push = query::PushImageOptionsBuilder::new().tag("1").build();
    let anonymous = Some(bollard::auth::DockerCredentials::default());
    let mut pushing = corner.raw.push_image(&repository, Some(push), anonymous);
    while let Some(step) = pushing.next().await {
        step.unwrap();
    }
    let image = format!("{repository}:1");
    corner.raw.remove_image(&image, None::<query::RemoveImageOptions>, None).await.unwrap();

    let told = std::sync::Mutex::new(Vec::new());
    let progress = |text| told.lock().unwrap().push(text);
    let pull = Action::PullImage {
        image: image.clone(),
        platform: None,
        secrets: Vec::new(),
        keys: BTreeSet::new(),
    };
    corner.engine.perform(&corner.app, &pull, &progress).await.unwrap();
    assert_eq!(told.lock().unwrap()[0], format!("pulling {image}"));
    let interest = ObserveScope { images: BTreeSet::from([image.clone()]), ..ObserveScope::default() };
    let seen = corner.engine.observe(&corner.app, &interest).await.unwrap();
    assert!(seen.images[&image].digests[0].starts_with(&repository), "{:?}", seen.images[&image].digests);
    corner.raw.remove_image(&image, None::<query::RemoveImageOptions>, None).await.unwrap();

    let missing = corner
        .act(Action::PullImage {
            image: format!("{repository}:2"),
            platform: None,
            secrets: Vec::new(),
            keys: BTreeSet::new(),
        })
        .await;
    match missing {
        Err(Error::Pull { image, message, retry_after: None }) => {
            assert_eq!(image, format!("{repository}:2"));
            // The image store of containerd says it in other words.
            let is_missing = message.contains("manifest unknown") || message.contains(": not found");
            assert!(is_missing && !message.contains('\n'), "{message}");
        }
        other => panic!("{other:?}"),
    }
    registry.kill().await.unwrap();
    let gone = corner
        .act(Action::PullImage {
            image: format!("{repository}:3"),
            platform: None,
            secrets: Vec::new(),
            keys: BTreeSet::new(),
        })
        .await;
    assert!(matches!(gone, Err(Error::Pull { .. })), "{gone:?}");
}

async fn next(changes: &mut tokio::sync::broadcast::Receiver<EngineEvent>) -> EngineEvent {
    tokio::time::timeout(Duration::from_secs(60), changes.recv())
        .await
        .expect("a change is reported")
        .unwrap()
}

// On one thread nothing is sent before we listen.
#[tokio::test]
async fn an_engine_may_come_late_and_go() {
    let corner = Corner::new().await;
    let socket = corner.dir.path().join("late.sock");
    let late = connect(&format!("unix://{}", socket.display()), &corner.agent, corner.dir.path());
    let mut changes = late.events();
    assert!(matches!(late.ping().await, Err(Error::Transient { .. })));
    assert!(matches!(next(&mut changes).await, EngineEvent::Disconnected { .. }));
    assert_eq!(late.info(), None);

    let real = host().trim_start_matches("unix://").to_owned();
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let proxy = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = tokio::net::UnixStream::connect(&real).await.unwrap();
            open.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    assert_eq!(next(&mut changes).await, EngineEvent::Connected);
    assert!(late.info().is_some());
    late.ping().await.unwrap();
    proxy.abort();
    std::fs::remove_file(&socket).unwrap();
    let lost = async {
        loop {
            if matches!(changes.recv().await.unwrap(), EngineEvent::Disconnected { .. }) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), lost).await.unwrap();
}
