//! The admission policy: where a violation is reported, in both formats, by the commands and by the agent.

use std::{collections::BTreeMap, fs, net::SocketAddr};

use driftless_clock::Clock;
use driftless_config as config;
use driftless_files::MemoryFiles;
use driftless_manifest::{admission::enforce, discover, render};
use driftless_model::{AdmissionPolicy, SyncStatus};

use crate::{
    cli::{folder, run},
    preview::Clone,
    sample::NOON,
    simulation::{Simulation, minutes},
};

const LIMITED: &str = "trust: limited\nimages: ['ghcr.io/team/*']\nports: ['127.0.0.1:*']\n";

fn limited() -> AdmissionPolicy {
    config::parse_policy("policy.yaml", LIMITED).unwrap()
}

/// The findings about these files, one per line.
fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let files = MemoryFiles::new(files.iter().copied());
    let found = discover(&files, "", "infra", &[]);
    let mut all = Vec::new();
    for app in &found.apps {
        let mut rendered = render(&files, app);
        assert!(rendered.stack.is_some(), "{:?}", rendered.findings);
        enforce(&files, &limited(), &mut rendered);
        assert_eq!(rendered.stack.is_none(), rendered.findings.iter().any(|it| it.is_error()));
        all.extend(rendered.findings.iter().filter(|it| it.is_error()).map(ToString::to_string));
    }
    all
}

#[test]
fn compose_violations_are_reported_at_their_location() {
    let compose = "\
services:
  web:
    image: ghcr.io/team/web:1
    privileged: true
    cap_add:
      - NET_ADMIN
    volumes:
      - /srv/data:/data
      - /var/run/docker.sock:/var/run/docker.sock
    ports:
      - 127.0.0.1:8080:80
      - 9090:90
  db:
    image: postgres:18
    volumes: [disguise:/x]
volumes:
  disguise:
    driver_opts:
      type: none
      o: bind
      device: /opt
";
    let found = findings(&[("shop/compose.yaml", compose)]);
    let places: Vec<&str> = found.iter().map(|it| it.split(" (").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "shop/compose.yaml:14:12: error: services.db.image: the image `postgres:18` is not among the allowed images",
            "shop/compose.yaml:12:9: error: services.web.ports[1]: publishes port 9090/tcp on every address, which the policy does not allow",
            "shop/compose.yaml:4:5: error: services.web.privileged: is privileged, which the policy does not allow",
            "shop/compose.yaml:6:9: error: services.web.cap_add[0]: adds the capability NET_ADMIN, which the policy does not allow",
            "shop/compose.yaml:8:9: error: services.web.volumes[0]: mounts `/srv/data` of the host, which is not among the allowed paths",
            "shop/compose.yaml:9:9: error: services.web.volumes[1]: mounts `/run/docker.sock`, which gives access to `/run/docker.sock` of the host",
            "shop/compose.yaml:21:15: error: volumes.disguise.driver_opts.device: mounts `/opt` of the host, which is not among the allowed paths",
        ],
        "{found:#?}"
    );
    assert!(found[2].contains("allow it with `policy.privileged`"), "{}", found[2]);
}

#[test]
fn kubernetes_violations_are_reported_at_their_location() {
    let pod = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  containers:
    - name: web
      image: ghcr.io/team/web:1
    - name: spy
      image: ghcr.io/team/spy:1
      securityContext:
        privileged: true
      volumeMounts: [{name: root, mountPath: /host}]
  volumes:
    - name: root
      hostPath:
        path: /
";
    let found = findings(&[("pod/pod.yaml", pod)]);
    let has = |place: &str, text: &str| {
        assert!(
            found.iter().any(|it| it.starts_with(place) && it.contains(text)),
            "{place} {text}: {found:#?}"
        );
    };
    has("pod/pod.yaml:5:3: error: spec.hostNetwork", "the network namespace of the host");
    has("pod/pod.yaml:12:9: error: spec.containers[1].securityContext.privileged", "is privileged");
    has("pod/pod.yaml:17:15: error: spec.volumes[0].hostPath.path", "gives access to");
}

#[test]
fn setting_from_another_file_is_reported_at_the_service() {
    let compose = "services:\n  web:\n    extends: {file: ../base.yaml, service: base}\n";
    let base = "services:\n  base:\n    image: ghcr.io/team/web:1\n    pid: host\n";
    let found = findings(&[("shop/compose.yaml", compose), ("base.yaml", base)]);
    let [error] = found.as_slice() else { panic!("{found:#?}") };
    assert!(error.contains("the pid namespace of the host"), "{error}");
    assert!(error.starts_with("shop/compose.yaml:2:3") || error.starts_with("base.yaml:"), "{error}");
}

#[tokio::test]
async fn validate_and_preview_check_a_policy() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let bad = folder(&[
        (
            "db/compose.yaml",
            "services: {db: {image: 'ghcr.io/team/db:1', volumes: ['data:/d']}}\nvolumes: {data: {}}\n",
        ),
        ("shop/compose.yaml", "services:\n  web:\n    image: ghcr.io/team/web:1\n    privileged: true\n"),
        (
            "thief/compose.yaml",
            "services: {web: {image: 'ghcr.io/team/web:1', volumes: ['db_data:/d']}}\nvolumes:\n  db_data:\n    external: true\n",
        ),
    ]);
    let path = bad.path().to_str().unwrap();
    let policy = bad.path().join("policy.txt");
    fs::write(&policy, LIMITED).unwrap();
    let policy = policy.to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path]).await;
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(nobody, &["validate", path, "--policy", policy]).await;
    assert_eq!(code, 1);
    assert!(error.contains("--> shop/compose.yaml:4:5\n"), "{error}");
    assert!(error.contains("--> thief/compose.yaml:4:5\n"), "{error}");
    assert!(error.contains("the volume `db_data` of the application `db`"), "{error}");
    assert!(error.contains("2 errors"), "{error}");

    fs::write(bad.path().join("wrong.txt"), "trust: some\nprivilged: true\nports: [x]\n").unwrap();
    let wrong = bad.path().join("wrong.txt");
    let (code, _, error) = run(nobody, &["validate", path, "--policy", wrong.to_str().unwrap()]).await;
    assert_eq!(code, 2);
    for text in ["must be one of `full`, `limited`", "privileged", "`x` is not a port rule"] {
        assert!(error.contains(text), "{text}: {error}");
    }
    let (code, _, error) = run(nobody, &["validate", path, "--policy", "/nonexistent"]).await;
    assert_eq!(code, 2, "{error}");

    let clone = Clone::new();
    clone.commit(&[(
        "sites/shop/compose.yaml",
        Some("services: {web: {image: 'ghcr.io/team/web:1', pid: host}}\n"),
    )]);
    let (code, out, error) = clone.run(&["preview", "--base", "main", "--policy", policy]);
    assert_eq!(code, 2, "{out}{error}");
    assert!(
        out.contains("sites/shop/compose.yaml:1:") && out.contains("the pid namespace of the host"),
        "{out}{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn commit_against_the_policy_is_not_applied() {
    let text = "policy: {trust: limited}
repositories:
  - url: /srv/a
    applications:
      - {path: shop}
      - {path: blog, policy: {privileged: true}}
";
    let compose = |privileged: bool, image: &str| {
        format!("services:\n  web:\n    image: {image}\n    privileged: {privileged}\n")
    };
    let good = compose(false, "web:1");
    let mut it = Simulation::prepared(&good, Clock::starting_at(NOON));
    it.settings = config::Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
    let push = |it: &Simulation, compose: &str| {
        it.git.push_files("Ada", &[("shop/compose.yaml", compose), ("blog/compose.yaml", compose)]);
    };
    push(&it, &good);
    it.begin();
    minutes(5).await;
    push(&it, &compose(true, "web:2"));
    minutes(10).await;
    let images = |it: &Simulation| -> BTreeMap<String, String> {
        let of = |app: &str| {
            let observed = it.docker.observed(&app.into());
            observed.instances.values().map(|instance| instance.config.image.clone()).collect::<String>()
        };
        ["blog", "shop"].into_iter().map(|app| (app.to_owned(), of(app))).collect()
    };
    let expected = |blog: &str, shop: &str| {
        BTreeMap::from([("blog".to_owned(), blog.to_owned()), ("shop".to_owned(), shop.to_owned())])
    };
    assert_eq!(images(&it), expected("web:2", "web:1"), "the rule of one application replaces the agent's");
    let applications = it.handle().applications();
    let shop = &applications[&"shop".into()].status;
    assert_ne!(shop.sync, SyncStatus::Synced);
    let found = shop.findings.iter().find(|it| it.is_error()).unwrap().to_string();
    assert!(
        found.starts_with("shop/compose.yaml:4:5: error: services.web.privileged: is privileged"),
        "{found}"
    );
    push(&it, &compose(false, "web:3"));
    minutes(10).await;
    assert_eq!(images(&it), expected("web:3", "web:3"));
}

#[tokio::test(start_paused = true)]
async fn volume_of_an_application_outside_of_git_is_not_used() {
    let text = "policy: {trust: limited}\nrepositories: [{url: 'https://git.example/infra.git'}]\n";
    let shop = "services: {db: {image: 'web:1', volumes: ['data:/d']}}\nvolumes: {data: {}}\n";
    let spy = "services: {spy: {image: 'web:1', volumes: ['files:/files:ro']}}
volumes: {files: {name: shop_data, external: true}}
";
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings = config::Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
    it.git.push_files("Ada", &[("shop/compose.yaml", shop)]);
    it.begin();
    minutes(5).await;
    // Without `prune`, the shop runs on.
    it.git.push_files("Ada", &[("spy/compose.yaml", spy)]);
    minutes(10).await;
    let running = |app: &str| it.docker.observed(&app.into()).instances.len();
    assert_eq!((running("shop"), running("spy")), (1, 0));
    let applications = it.handle().applications();
    let found = &applications[&"spy".into()].status.findings;
    let message = "uses the volume `shop_data` of the application `shop`, which the policy does not allow";
    assert!(found.iter().any(|it| it.is_error() && it.to_string().contains(message)), "{found:#?}");
}

#[tokio::test(start_paused = true)]
async fn rule_for_signatures_holds_for_an_unchanged_application() {
    let text = "policy: {verifyImages: [{match: 'ghcr.io/team/*', cosignKey: /k/cosign}]}
repositories: [{url: 'https://git.example/infra.git'}]
";
    let compose = "services: {web: {image: 'web:1'}}\n";
    let mut it = Simulation::prepared(compose, Clock::starting_at(NOON));
    it.settings = config::Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
    it.begin();
    it.synced_with_tip().await;
    let commit = it.git.push_files("Ada", &[("shop/compose.yaml", compose), ("notes.txt", "more")]);
    let shop = it.synced(&commit).await;
    assert_eq!(shop.spec.policy.verify_images.len(), 1, "{:?}", shop.spec.policy);
}

#[test]
fn signed_commits_need_keys_in_the_configuration() {
    let parse = |text: &str| config::Settings::parse("driftless.yaml", text);
    let text = "policy: {signedCommits: true}\nrepositories: [{url: /srv/a}]\n";
    let found = parse(text).unwrap_err().remove(0).to_string();
    assert!(
        found.contains("repositories[0].verify: `policy.signedCommits` requires signed commits"),
        "{found}"
    );
    let signed = "policy: {signedCommits: true}
repositories: [{url: /srv/a, verify: {ssh: {allowedSignersFile: /etc/signers}}}]
";
    parse(signed).unwrap();
    // The agent's own folders are protected, wherever they are.
    let moved =
        "stateDir: /data/agent\nrepositories: [{url: /srv/a, policy: {trust: limited, bindMounts: [/**]}}]\n";
    let policy = parse(moved).unwrap().repositories.remove(0).admission;
    assert!(policy.protected.contains("/data/agent"), "{policy:?}");
}
