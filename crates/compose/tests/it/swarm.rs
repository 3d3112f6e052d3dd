//! Projects for Docker Swarm: what a service becomes, and what is refused at its place.

use std::time::Duration;

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::render;
use driftless_model::{EngineKind, Finding, SwarmMode, SwarmRestart, SwarmService, SwarmUpdate};

fn rendered(text: &str, more: &[(&'static str, String)]) -> Rendered {
    let more = more.iter().map(|(path, text)| (*path, text.as_str()));
    let files = MemoryFiles::new([("shop/compose.yaml", text)].into_iter().chain(more));
    let app = AppSpec { engine: EngineKind::Swarm, ..AppSpec::compose("shop", &["shop/compose.yaml"]) };
    render(&files, &app)
}

fn service(text: &str, more: &[(&'static str, String)]) -> SwarmService {
    let rendered = rendered(text, more);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    stack.swarm[&"web".into()].clone()
}

fn errors(text: &str) -> Vec<String> {
    let findings = rendered(text, &[]).findings;
    findings.iter().filter(|it| it.is_error()).map(Finding::to_string).collect()
}

#[test]
fn pull_policy_that_a_swarm_does_not_follow_is_a_warning() {
    let project = |image: &str, policy: &str| {
        format!("services:\n  web:\n    image: {image}\n    pull_policy: {policy}\n")
    };
    let findings = rendered(&project("web:latest", "always"), &[]).findings;
    assert!(matches!(&findings[..], [it] if !it.is_error() && it.location.line == 4), "{findings:?}");
    let digest = format!("web@sha256:{}", "0".repeat(64));
    for (image, policy) in [("web:1", "missing"), (digest.as_str(), "always")] {
        assert_eq!(rendered(&project(image, policy), &[]).findings, [], "{image} {policy}");
    }
}

#[test]
fn settings_of_a_swarm_are_read_and_not_warned_about() {
    let text = "
services:
  web:
    image: nginx:1.29
    ports:
      - '80:80'
      - {target: 81, published: '8081', mode: host}
    deploy:
      mode: replicated
      replicas: 3
      endpoint_mode: dnsrr
      labels: {team: shop}
      placement:
        constraints: [node.role == worker]
        preferences: [{spread: node.labels.zone}]
        max_replicas_per_node: 2
      update_config: {parallelism: 2, delay: 5s, monitor: 20s, failure_action: rollback, max_failure_ratio: 0.25, order: start-first}
      rollback_config: {parallelism: 0, order: stop-first}
      restart_policy: {condition: on-failure, delay: 3s, max_attempts: 4, window: 1m}
      resources:
        reservations:
          cpus: '0.5'
          generic_resources: [{discrete_resource_spec: {kind: gpu, value: 2}}]
";
    let result = rendered(text, &[]);
    assert_eq!(result.findings, []);
    let stack = result.stack.unwrap();
    assert_eq!(stack.networks["shop_default"].driver.as_deref(), Some("overlay"));
    // No proxy publishes the ports of several replicas.
    assert_eq!(stack.workloads.keys().map(|it| it.as_str()).collect::<Vec<_>>(), ["web"]);
    let found = &stack.swarm[&"web".into()];
    assert_eq!(found.mode, SwarmMode::Replicated);
    assert_eq!(found.endpoint_mode.as_deref(), Some("dnsrr"));
    assert_eq!(found.labels["team"], "shop");
    assert_eq!(
        (&*found.constraints, &*found.spread),
        (&["node.role == worker".to_owned()][..], &["node.labels.zone".to_owned()][..])
    );
    assert_eq!((found.max_replicas_per_node, found.reserved_nano_cpus), (Some(2), Some(500_000_000)));
    assert_eq!(found.generic_resources["gpu"], 2);
    assert_eq!(found.host_ports.iter().map(|it| it.container).collect::<Vec<_>>(), [81]);
    let update = SwarmUpdate {
        parallelism: Some(2),
        delay: Some(Duration::from_secs(5)),
        monitor: Some(Duration::from_secs(20)),
        failure_action: Some("rollback".into()),
        max_failure_ratio: Some(250_000),
        order: Some("start-first".into()),
    };
    assert_eq!(found.update, Some(update));
    assert_eq!(found.rollback.as_ref().unwrap().parallelism, Some(0));
    let restart = SwarmRestart {
        condition: "on-failure".into(),
        delay: Some(Duration::from_secs(3)),
        max_attempts: Some(4),
        window: Some(Duration::from_mins(1)),
    };
    assert_eq!(found.restart, Some(restart));
}

#[test]
fn keys_that_a_swarm_does_not_have_are_refused() {
    for (key, message) in [
        (
            "container_name: web",
            "shop/compose.yaml:4:21: error: services.web.container_name: Docker Swarm has no `container_name`",
        ),
        ("network_mode: host", "services.web.network_mode: Docker Swarm has no `network_mode`"),
        ("build: .", "services.web.build: Docker Swarm has no `build`"),
        ("privileged: true", "services.web.privileged: Docker Swarm has no `privileged`"),
        ("devices: ['/dev/kvm:/dev/kvm']", "Docker Swarm has no `devices`"),
        ("links: [other]", "Docker Swarm has no `links`"),
        ("pid: host", "Docker Swarm has no `pid`"),
        ("platform: linux/amd64", "Docker Swarm has no `platform`"),
        ("memswap_limit: 1g", "Docker Swarm has no `memswap_limit`"),
        ("x-driftless: {proxy: false}", "Docker Swarm has no `x-driftless.proxy` yet"),
        (
            "x-driftless: {wave: 1, canary: 50%}",
            "shop/compose.yaml:4:36: error: services.web.x-driftless.canary: Docker Swarm has no `x-driftless.canary` yet",
        ),
        ("networks: {default: {ipv4_address: 10.1.0.7}}", "has no `ipv4_address` on a network"),
        ("ports: ['127.0.0.1:80:80']", "publishes a port on all addresses of a node"),
        ("ports: ['80-81:80']", "does not choose from a range"),
        ("volumes: ['./data:/data']", "the folder at /data is writable"),
        ("deploy: {mode: job}", "`job` is not a mode; use `replicated`"),
        ("deploy: {mode: global-job, replicas: 2}", "exclude each other"),
        (
            "deploy: {mode: replicated-job, update_config: {parallelism: 2}}",
            "services.web.deploy.update_config: Docker Swarm does not update a Job, and it is a Job",
        ),
        (
            "deploy: {mode: global-job, restart_policy: {condition: any}}",
            "services.web.deploy.restart_policy: a task that has completed is not started again: it is a Job",
        ),
        (
            "restart: always\n    deploy: {mode: replicated-job}",
            "services.web.restart: a task that has completed",
        ),
        ("deploy: {mode: global}\n    x-driftless: {hook: PreSync}", "runs one task: remove `deploy.mode`"),
        ("deploy: {mode: global, replicas: 2}", "exclude each other"),
        ("scale: 2\n    deploy: {mode: global}", "exclude each other"),
        ("deploy: {endpoint_mode: dns}", "is not an endpoint mode"),
        ("healthcheck: {test: [CMD, a], start_interval: 1s}", "has no `start_interval`"),
    ] {
        let text = format!("services:\n  other: {{image: a}}\n  web:\n    {key}\n    image: a\n");
        let found = errors(&text);
        assert!(found.iter().any(|it| it.contains(message)), "{key}: {found:?}");
    }
    let found = errors("services: {a.b: {image: a}}");
    assert!(found[0].contains("the name of a service of Docker Swarm has no `.`"), "{found:?}");
    let found = errors("services: {web: {image: a}}\nnetworks: {default: {driver: macvlan}}\n");
    assert!(found[0].contains("does not reach the other nodes"), "{found:?}");
}

#[test]
fn files_become_configs_and_secrets_named_by_content() {
    let text = "
services:
  web:
    image: nginx:1.29
    volumes: ['./conf:/etc/web:ro']
    configs: [motd]
    secrets: [{source: key, target: /run/key, mode: 0400, uid: '101'}]
configs: {motd: {content: hello}}
secrets: {key: {file: ./key}}
";
    let files = |b: &str| {
        [
            ("shop/conf/a.conf", "a".to_owned()),
            ("shop/conf/sub/b.conf", b.to_owned()),
            ("shop/key", "k".to_owned()),
        ]
    };
    let found = service(text, &files("b")).files;
    let targets: Vec<(&str, bool)> = found.iter().map(|it| (it.target.as_str(), it.secret)).collect();
    assert_eq!(
        targets,
        [("/etc/web/a.conf", false), ("/etc/web/sub/b.conf", false), ("/motd", false), ("/run/key", true)]
    );
    assert_eq!((found[3].mode, found[3].uid), (0o400, 101));
    assert!(found[1].name.starts_with("shop_b.conf_"), "{}", found[1].name);
    let changed = service(text, &files("c")).files;
    assert_eq!(changed[0].name, found[0].name);
    assert_ne!(changed[1].name, found[1].name);
}

#[test]
fn files_too_large_for_a_config_are_refused() {
    let text = "services:\n  web:\n    image: a\n    volumes:\n      - ./big:/big:ro\n";
    let findings = rendered(text, &[("shop/big", "x".repeat(500_001))]).findings;
    assert!(
        findings[0].to_string().starts_with("shop/compose.yaml:5:9: error: services.web.volumes")
            && findings[0].to_string().contains("/big has 500001 bytes"),
        "{findings:?}"
    );
    assert!(rendered(text, &[("shop/big", "x".repeat(500_000))]).stack.is_some());
}

#[test]
fn unfit_configs_and_secrets_are_located_in_both_forms() {
    let big = "x".repeat(500_001);
    for (key, mount, expected) in [
        ("configs", "big", "shop/compose.yaml:4:15: error: services.web.configs[0]: /big has 500001 bytes"),
        ("configs", "{source: big}", "services.web.configs[0]: /big has 500001 bytes"),
        ("secrets", "big", "services.web.secrets[0]: /run/secrets/big has 500001 bytes"),
        ("secrets", "{source: big, target: /b}", "services.web.secrets[0]: /b has 500001 bytes"),
    ] {
        let text = format!(
            "services:\n  web:\n    image: a\n    {key}: [{mount}]\n{key}: {{big: {{file: ./big}}}}\n"
        );
        let findings = rendered(&text, &[("shop/big", big.clone())]).findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].to_string().contains(expected), "{findings:?}");
    }
}

#[test]
fn names_that_a_swarm_would_refuse_are_too_long() {
    // With `shop_` before it, and for a run the minute or the start of a hash and a number after it.
    let hook = "x-driftless: {hook: PreSync}";
    for (most, more) in [(58, ""), (49, "x-driftless: {schedule: '@daily'}"), (46, hook)] {
        let text = |letters: usize| {
            format!("services:\n  {}:\n    image: a\n    {more}\n  b: {{image: a}}\n", "a".repeat(letters))
        };
        assert_eq!(errors(&text(most)), [""; 0]);
        let found = errors(&text(most + 1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("shop/compose.yaml:"), "{found:?}");
        assert!(found[0].contains("of the Swarm has 64 letters, and at most 63 are allowed"), "{found:?}");
    }
}

#[test]
fn empty_files_are_refused_where_they_are_mounted() {
    let text = "
services:
  web:
    image: a
    volumes:
      - ./conf:/conf:ro
    secrets: [key]
secrets: {key: {file: ./key}}
";
    let files =
        [("shop/conf/a", "a".to_owned()), ("shop/conf/b", String::new()), ("shop/key", String::new())];
    let findings = rendered(text, &files).findings;
    let findings: Vec<String> = findings.iter().filter(|it| it.is_error()).map(Finding::to_string).collect();
    let expected = [
        "shop/compose.yaml:6:9: error: services.web.volumes: /conf/b is empty",
        "shop/compose.yaml:7:15: error: services.web.secrets[0]: /run/secrets/key is empty",
    ];
    for (finding, expected) in findings.iter().zip(expected) {
        assert!(finding.starts_with(expected), "{finding}");
    }
    assert_eq!(findings.len(), expected.len(), "{findings:?}");
}

#[test]
fn external_configs_and_secrets_are_named() {
    let text = "
services:
  web:
    image: nginx:1.29
    configs: [rules]
    secrets:
      - key
      - {source: cert, target: /etc/cert.pem, uid: '33', mode: 0400}
configs:
  rules: {external: true}
secrets:
  key: {external: true, name: shop_key_v3}
  cert: {external: true}
";
    let files = service(text, &[]).files;
    let all: Vec<_> = files
        .iter()
        .map(|it| (it.name.as_str(), it.target.as_str(), it.secret, it.external, it.mode, it.uid))
        .collect();
    assert_eq!(
        all,
        [
            ("rules", "/rules", false, true, 0o444, 0),
            ("shop_key_v3", "/run/secrets/key", true, true, 0o444, 0),
            ("cert", "/etc/cert.pem", true, true, 0o400, 33),
        ]
    );
    let twice = text.replace("target: /etc/cert.pem", "target: key");
    let expected = "shop/compose.yaml:8:9: error: services.web.secrets[1]: another config or secret is mounted at /run/secrets/key";
    assert_eq!(errors(&twice), [expected]);
    // On a single host nobody has them.
    let files = MemoryFiles::new([("shop/compose.yaml", text)]);
    let found = render(&files, &AppSpec::compose("shop", &["shop/compose.yaml"])).findings;
    let errors: Vec<String> = found.iter().filter(|it| it.is_error()).map(Finding::to_string).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    let expected =
        "shop/compose.yaml:10:3: error: configs.rules: an external config or secret is one of a Docker Swarm";
    assert!(errors[0].starts_with(expected), "{errors:?}");
    assert!(errors[0].contains("`engine: swarm`"), "{errors:?}");
}

#[test]
fn templates_are_configs_of_their_own() {
    let text = |driver: &str| {
        format!(
            "services:
  web: {{image: nginx:1.29, configs: [site]}}
configs:
  site: {{content: 'server {{{{.Node.Hostname}}}}'{driver}}}
"
        )
    };
    let file = |driver: &str| service(&text(driver), &[]).files.remove(0);
    let (plain, template) = (file(""), file(", template_driver: golang"));
    assert_eq!((plain.template, template.template.as_deref()), (None, Some("golang")));
    assert_ne!(plain.name, template.name);
    assert_eq!(plain.name.len(), template.name.len());
    let expected = "shop/compose.yaml:4:65: error: configs.site.template_driver: Docker Swarm has no template driver `jinja`; use `golang`";
    assert_eq!(errors(&text(", template_driver: jinja")), [expected]);
    let text = text(", template_driver: golang");
    let files = MemoryFiles::new([("shop/compose.yaml", text.as_str())]);
    let found = render(&files, &AppSpec::compose("shop", &["shop/compose.yaml"])).findings;
    let errors: Vec<String> = found.iter().filter(|it| it.is_error()).map(Finding::to_string).collect();
    assert!(errors[0].contains("it only affects Swarm (`engine: swarm`)"), "{errors:?}");
}

#[test]
fn update_that_starts_first_on_data_is_warned_about() {
    let warnings = |service: &str, deploy: &str| -> Vec<String> {
        let text = format!(
            "services:\n  web:\n    image: a\n    {service}\n    deploy: {{{deploy}}}\nvolumes: {{data: }}\n"
        );
        let rendered = rendered(&text, &[]);
        assert!(rendered.stack.is_some(), "{:?}", rendered.findings);
        let all = rendered.findings.iter().map(Finding::to_string);
        // Others are about the nodes that have the data.
        all.filter(|finding| finding.contains("_config.order: ")).collect()
    };
    let (volume, port) = ("volumes: ['data:/data']", "ports: [{target: 80, published: '80', mode: host}]");
    let first = "update_config: {order: start-first}";
    let found = warnings(volume, first);
    let expected = "shop/compose.yaml:5:37: warning: services.web.deploy.update_config.order: the old and the new task run at the \
                    same time, and both write to the volume `shop_data`: use `stop-first`";
    assert_eq!(found, [expected]);
    let found = warnings(
        port,
        "mode: global, update_config: {order: start-first}, rollback_config: {order: start-first}",
    );
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].contains("rollback_config.order: ") && found[1].contains("gets no port 80"),
        "{found:?}"
    );
    for (service, deploy) in [
        (volume, "update_config: {order: stop-first}"),
        (volume, "update_config: {parallelism: 2}"),
        (volume, "replicas: 2, update_config: {order: start-first}"),
        ("volumes: ['data:/data:ro', '/run/docker.sock:/run/docker.sock']", first),
        ("volumes: ['/etc/web:/etc/web']", first),
        ("ports: ['80:80']", first),
    ] {
        assert_eq!(warnings(service, deploy), [""; 0], "{service} {deploy}");
    }
}

#[test]
fn folder_of_the_repository_is_warned_about() {
    let warnings = |volumes: &str| -> Vec<String> {
        let text = format!("services:\n  web:\n    image: a\n    volumes: [{volumes}]\n");
        let files = [("shop/conf/a", "a".to_owned())];
        rendered(&text, &files).findings.iter().map(Finding::to_string).collect()
    };
    let found = warnings("'./conf:/etc/web:ro'");
    let expected = "shop/compose.yaml:4:15: warning: services.web.volumes: files that the image has in /etc/web stay there";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    assert_eq!(warnings("'./conf/a:/etc/web/a:ro'"), [""; 0]);
}

#[test]
fn folders_of_some_nodes_are_reported() {
    let warnings = |volumes: &str, more: &str| -> Vec<String> {
        let text = format!("services:\n  web:\n    image: a\n    volumes: [{volumes}]\n{more}");
        rendered(&text, &[]).findings.iter().map(Finding::to_string).collect()
    };
    let found = warnings("'/srv/media:/media', '/procedures:/a', '/etc/nginx:/b'", "");
    let expected =
        "shop/compose.yaml:4:15: warning: services.web.volumes: /srv/media must exist on each node";
    assert!(found[0].starts_with(expected), "{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
    let placed = "    deploy: {placement: {constraints: [node.labels.media == true]}}\n";
    assert_eq!(warnings("'/srv/media:/media'", placed), [""; 0]);
    let of_each = "'/var/run/docker.sock:/var/run/docker.sock', '/proc:/host/proc:ro', '/sys/fs/cgroup:/c:ro', '/:/rootfs:ro', \
                   '/var/lib/docker/containers:/d:ro', '/etc/hostname:/etc/nodename:ro'";
    assert_eq!(warnings(of_each, ""), [""; 0]);
}

#[test]
fn local_volumes_of_tasks_that_move_are_reported() {
    let warnings = |service: &str, volume: &str| -> Vec<String> {
        let text = format!("services:\n  web:\n    image: a\n{service}volumes: {{data: {volume}}}\n");
        let rendered = rendered(&text, &[]);
        assert!(rendered.stack.is_some(), "{:?}", rendered.findings);
        rendered.findings.iter().map(Finding::to_string).collect()
    };
    let mounted = "    volumes: ['data:/data']\n";
    for volume in ["", "{driver: local, labels: {a: b}}"] {
        let found = warnings(mounted, volume);
        let expected = "shop/compose.yaml:4:15: warning: services.web.volumes: the data of the volume `data` stay on the node";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        assert!(found[0].contains("`deploy.placement.constraints`"), "{found:?}");
    }
    for (service, volume) in [
        ("    volumes: ['data:/data:ro']\n", ""),
        ("    volumes: ['data:/data']\n    deploy: {mode: global}\n", ""),
        ("    volumes: ['data:/data']\n    deploy: {placement: {constraints: [node.hostname == a]}}\n", ""),
        (mounted, "{driver: nfs-plugin}"),
        (mounted, "{driver_opts: {type: nfs, o: addr=10.0.0.1, device: ':/data'}}"),
        (mounted, "{external: true}"),
    ] {
        assert_eq!(warnings(service, volume), [""; 0], "{service} {volume}");
    }
}

#[test]
fn options_of_mounts_that_a_swarm_lacks_are_refused() {
    let bind =
        |options: &str| format!("volumes: [{{type: bind, source: /proc, target: /p, bind: {{{options}}}}}]");
    for (mount, expected) in [
        (
            "tmpfs: '/run/app:uid=1000,mode=0700'".to_owned(),
            "4:12: error: services.web.tmpfs: a tmpfs of Docker Swarm has no option `uid=1000`, as at /run/app",
        ),
        (
            "tmpfs: [/a, '/run/:exec']".to_owned(),
            "4:17: error: services.web.tmpfs: a tmpfs of Docker Swarm has no option `exec`",
        ),
        ("tmpfs: ['/a:size=10%']".to_owned(), "has no option `size=10%`"),
        (
            "volumes: ['/proc:/p:z']".to_owned(),
            "4:15: error: services.web.volumes: Docker Swarm does not label /proc for SELinux",
        ),
        (bind("selinux: Z"), "it has no `Z`"),
        (bind("recursive: readonly"), "Docker Swarm has no `recursive: readonly` for the mount at /p"),
        (bind("recursive: disabled"), "Docker Swarm has no `recursive: disabled`"),
    ] {
        let text = format!("services:\n  web:\n    image: a\n    {mount}\n");
        let found = errors(&text);
        assert!(found.len() == 1 && found[0].contains(expected), "{mount}: {found:?}");
    }
    let fine = "services:\n  web:\n    image: a\n    tmpfs: ['/a:size=1m,mode=0700,noexec', /b]\n    volumes: ['/proc:/p:ro,rslave']\n";
    assert_eq!(rendered(fine, &[]).findings, []);
}

#[test]
fn restart_with_a_dependency_is_reported() {
    let text = |details: &str| {
        format!(
            "services:\n  db: {{image: b}}\n  web:\n    image: a\n    depends_on:\n      db: {{{details}}}\n"
        )
    };
    let found: Vec<String> = rendered(&text("condition: service_started, restart: true"), &[])
        .findings
        .iter()
        .map(Finding::to_string)
        .collect();
    let expected =
        "shop/compose.yaml:6:49: warning: services.web.depends_on.db.restart: has no effect in a Swarm";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    assert_eq!(rendered(&text("condition: service_started, restart: false"), &[]).findings, []);
    assert_eq!(rendered(&text("condition: service_healthy"), &[]).findings, []);
}

#[test]
fn entry_point_of_an_image_cannot_be_taken_away() {
    for empty in ["[]", "''"] {
        let found = errors(&format!("services: {{web: {{image: a, entrypoint: {empty}}}}}\n"));
        assert!(found[0].contains("services.web.entrypoint: Docker Swarm cannot take away"), "{found:?}");
    }
    assert!(errors("services: {web: {image: a, entrypoint: null}}\n").is_empty(), "that is the image's");
}

#[test]
fn services_that_end_become_jobs() {
    let text = "
services:
  many: {image: a, deploy: {mode: replicated-job, replicas: 3, restart_policy: {max_attempts: 2}}}
  each: {image: a, restart: 'no', deploy: {mode: global-job}}
  migrate: {image: a, restart: on-failure:4}
  web: {image: a, depends_on: {migrate: {condition: service_completed_successfully}}}
  night: {image: a, restart: on-failure, x-driftless: {schedule: '@daily'}}
  before: {image: a, x-driftless: {hook: PreSync}}
";
    let stack = rendered(text, &[]).stack.expect("no errors");
    let seen = |name: &str| {
        let (workload, service) = (&stack.workloads[&name.into()], &stack.swarm[&name.into()]);
        let job = workload.job_or_template().map(|job| (job.completions, job.parallelism));
        let restart = service.restart.as_ref().map(|it| (it.condition.as_str(), it.max_attempts));
        (service.mode, job, restart)
    };
    let job = SwarmMode::ReplicatedJob;
    assert_eq!(seen("many"), (job, Some((Some(3), 3)), Some(("on-failure", Some(2)))));
    assert_eq!(seen("each"), (SwarmMode::GlobalJob, Some((None, 1)), Some(("none", None))));
    assert_eq!(seen("migrate"), (job, Some((Some(1), 1)), Some(("on-failure", Some(4)))));
    assert_eq!(seen("web"), (SwarmMode::Replicated, None, None));
    assert_eq!(seen("night"), (job, Some((Some(1), 1)), Some(("on-failure", Some(6)))));
    assert_eq!(seen("before"), (job, Some((Some(1), 1)), Some(("none", None))));
}

#[test]
fn service_that_others_wait_for_has_to_end() {
    let found = errors(
        "services:
  migrate:
    image: a
    restart: unless-stopped
  web: {image: a, depends_on: {migrate: {condition: service_completed_successfully}}}
",
    );
    let message = "shop/compose.yaml:4:14: error: services.migrate.restart: a task that has completed is not started again: `web` waits for its completion";
    assert!(found[0].starts_with(message), "{found:?}");
}

#[test]
fn range_that_is_too_small_for_its_services_is_reported() {
    let project = |services: usize, replicas: usize, rest: &str| {
        let all: String = (0..services)
            .map(|number| format!("  web{number:03}: {{image: 'web:1', deploy: {{replicas: {replicas}}}}}\n"))
            .collect();
        format!("services:\n{all}{rest}")
    };
    let warnings = |text: &str| -> Vec<String> {
        let rendered = rendered(text, &[]);
        assert!(rendered.stack.is_some(), "{:?}", rendered.findings);
        rendered.findings.iter().map(Finding::to_string).collect()
    };
    let ipam =
        |subnet: &str| format!("networks: {{default: {{ipam: {{config: [{{subnet: {subnet}}}]}}}}}}\n");
    // Without a range of its own, a network gets one that is large enough.
    assert_eq!(warnings(&project(200, 3, "")), [""; 0]);
    assert_eq!(warnings(&project(200, 1, &ipam("10.20.0.0/20"))), [""; 0]);
    assert_eq!(warnings(&project(126, 1, &ipam("10.20.0.0/24"))), [""; 0]);
    let found = warnings(&project(200, 1, &ipam("10.20.0.0/24")));
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = "shop/compose.yaml:128:3: warning: workload web126: up to this one, services need 254 addresses of the network \
                    `shop_default`, and its `ipam` gives it 252";
    assert!(found[0].starts_with(expected), "{found:?}");
    assert_eq!(warnings(&project(63, 3, &ipam("10.20.0.0/24"))), [""; 0]);
    assert_eq!(warnings(&project(64, 3, &ipam("10.20.0.0/24"))).len(), 1);
    let found = warnings(&project(20, 1, &ipam("10.20.0.0/27")));
    assert!(
        found[0].contains("need 30 addresses of the network `shop_default`, and its `ipam` gives it 28"),
        "{found:?}"
    );
}
