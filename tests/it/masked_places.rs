//! The rule of `docs/masking.md` on whole applications: a secret is planted in every place that a manifest has for one,
//! and no report shows it; and nothing innocent is changed.
use std::collections::BTreeMap;

use driftless_compose as compose;
use driftless_files::{AppSpec, MemoryFiles};
use driftless_kubernetes as kubernetes;
use driftless_manifest::render;
use driftless_model::{
    AgentId, Container, Format, Mask, Observed, ObservedNetwork, ObservedVolume, Policy, Record, Stack,
    StackHashes,
};
use driftless_plan::{Target, canonical_yaml, compare_live, differences, survey};
use driftless_report as report;
use proptest::prelude::*;

/// `§` is a secret.
const COMPOSE: &str = r#"
services:
  web:
    image: example/nextcloud:30
    hostname: nextcloud
    entrypoint: [app, "--password=§", "-p§", "--api-key", "§"]
    command: [redis-server, --requirepass, "§"]
    environment:
      DB_PASSWORD: "§"
      DB_PW: "§"
      JDBC: "jdbc:postgresql://db/app?user=a&password=§"
      AZURE: "AccountName=a;AccountKey=§;EndpointSuffix=x"
      JSON: '{"user": "me", "password": "§"}'
      URL: "postgres://app:§@db:5432/nextcloud"
      SMTP: "smtp://user:p@§/word@host"
      HOOK: "https://hooks.slack.com/services/T0123456/§"
      POSTGRES_DB: nextcloud
      AUTHOR: somebody
      PLAIN: "plain-value"
    labels:
      traefik.http.middlewares.auth.basicauth.users: "admin:§"
      backup.command: "restic -r rest:http://me:§@backup/ --password §"
      traefik.http.routers.web.rule: "Host(`nextcloud.example.com`)"
    annotations:
      note: "Authorization: Bearer §"
    healthcheck:
      test: redis-cli -a § ping | grep PONG
    post_start:
      - command: [sh, -c, "mysqladmin ping -p§"]
    logging:
      driver: splunk
      options: {splunk-token: "§"}
    volumes: [data:/nextcloud]
  db:
    image: postgres:16
    healthcheck:
      test: [CMD, mysqladmin, ping, -uroot, "-p§"]
    networks:
      default:
        driver_opts: {password: "§"}
volumes:
  data:
    driver: local
    driver_opts: {o: "username=me,password=§"}
    labels: {api-token: "§"}
configs:
  app:
    content: "[db]\npassword = §\n"
"#;

const KUBERNETES: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {ordinary: "§"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {URL: "postgres://app:§@db/nextcloud"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nextcloud, annotations: {token: "§"}}
spec:
  selector: {matchLabels: {app: nextcloud}}
  template:
    metadata: {labels: {app: nextcloud}, annotations: {webhook: "§"}}
    spec:
      containers:
      - name: main
        image: example/nextcloud:30
        command: [app, --password, "§"]
        args: ["--x=$(ORDINARY)", "run $(ORDINARY) now", "-p§"]
        env:
        - {name: ORDINARY, valueFrom: {secretKeyRef: {name: login, key: ordinary}}}
        - {name: DB_PASSWORD, value: "§"}
        - {name: DERIVED, value: "x $(ORDINARY) y"}
        - {name: POSTGRES_DB, value: nextcloud}
        - {name: PLAIN, value: plain-value}
        envFrom: [{configMapRef: {name: settings}}]
        readinessProbe:
          httpGet: {path: "/health?token=§", port: 80, httpHeaders: [{name: Authorization, value: "Bearer §"}]}
        livenessProbe:
          exec: {command: [redis-cli, -a, "§", ping]}
        lifecycle:
          preStop: {exec: {command: [sh, -c, "PGPASSWORD=§ psql"]}}
"#;

fn spec(format: Format) -> AppSpec {
    match format {
        Format::Compose => AppSpec::compose("shop", &["a.yaml"]),
        Format::Kubernetes => AppSpec::kubernetes("shop", &["a.yaml"]),
    }
}

fn stack(format: Format, text: &str) -> Stack {
    let rendered = render(&MemoryFiles::new([("a.yaml", text)]), &spec(format));
    rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings))
}

/// Everything that is printed of an application of which `before` runs and `after` is in Git.
fn outputs(format: Format, before: &str, after: &str) -> String {
    let mask = Mask::new([7; 32]);
    let (from, to) = (stack(format, before), stack(format, after));
    let mut all = String::new();
    for (from, to) in [(Some(&from), Some(&to)), (None, Some(&to)), (Some(&from), None)] {
        let mask = mask.with_stacks(from.into_iter().chain(to));
        let mut app = report::application(&"shop".into(), "shop");
        let context = report::Context { from: "base", to: "head" };
        report::of_stacks(&mut app, from, to, &mask, context);
        let mut report = report::Report::new(report::Kind::Preview);
        report.apps = vec![app];
        report::settle(&mut report);
        for text in [
            report::text(&report),
            report::diff(&report),
            report::json(&report),
            report::ndjson(&report),
            report::markdown(&report, "default", 60_000),
            report::annotations(&report),
            report::junit(&report),
            report::sarif(&report),
        ] {
            all.push_str(&text);
        }
    }
    // The agent does not know any more which variables of what runs came from a Secret: it hides values by the new stack.
    let known = mask.with_stacks([&from, &to]);
    let (agent, policy, images) = (AgentId("agent".to_owned()), Policy::default(), BTreeMap::new());
    let hashes = &StackHashes::of(&to);
    let (agent, policy, images) = (&agent, &policy, &images);
    let target = Target { stack: &to, hashes, reached: None, agent, policy, images, mask: &known };
    let live = compare_live(&target, &Observed::default(), &Record::default());
    for difference in live {
        all.push_str(&difference.want);
        all.push_str(&format!("{:?}\n", difference.labels));
    }
    for claim in survey(&target, &made_by_compose(&from)) {
        all.push_str(&format!("{claim}\n{:?}\n", claim.differences));
    }
    for (old, new) in from.workloads.values().zip(to.workloads.values()) {
        for (old, new) in old.containers().zip(new.containers()) {
            all.push_str(&canonical_yaml(new, &known));
            all.push_str(&format!("{:?}\n", differences(new, &Container::default(), old, &known)));
        }
    }
    let files = MemoryFiles::new([("a.yaml", after)]);
    let printed = match format {
        Format::Compose => {
            compose::load(&files, &spec(format), "/shop", Some(&mask)).model.unwrap().to_string()
        }
        Format::Kubernetes => {
            format!("{:?}", kubernetes::documents(&files, &spec(format), Some(&mask)).documents.unwrap())
        }
    };
    all.push_str(&printed);
    all
}

/// The networks and volumes of a stack, as Docker Compose has made them.
fn made_by_compose(stack: &Stack) -> Observed {
    let networks = stack.networks.iter().map(|(name, network)| {
        let made = ObservedNetwork { compose: Some(network.clone()), ..ObservedNetwork::default() };
        (name.clone(), made)
    });
    let volumes = stack.volumes.iter().map(|(name, volume)| {
        let made = ObservedVolume { compose: Some(volume.clone()), ..ObservedVolume::default() };
        (name.clone(), made)
    });
    Observed { networks: networks.collect(), volumes: volumes.collect(), ..Observed::default() }
}

const FORMATS: [(Format, &str); 2] = [(Format::Compose, COMPOSE), (Format::Kubernetes, KUBERNETES)];

/// Texts that every output has, also with other secrets.
const INNOCENT: &[&str] = &["example/nextcloud:30", "plain-value", "POSTGRES_DB: nextcloud"];

fn planted(template: &str, secret: &str) -> String {
    template.replace('§', secret)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn secrets_in_any_place_are_in_no_report(
        one in "[g-zG-Z][A-Za-z0-9]{1,58}[g-zG-Z]",
        two in "[g-zG-Z][A-Za-z0-9]{1,58}[g-zG-Z]",
    ) {
        for (format, template) in FORMATS {
            // A word of the manifest or of a report says nothing.
            let other = outputs(format, &planted(template, "Zq9Zq9Zq9Zq9Zq9"), &planted(template, "Qz8Qz8Qz8Qz8Qz8"));
            prop_assume!(one != two && !other.contains(&one) && !other.contains(&two));
            let found = outputs(format, &planted(template, &one), &planted(template, &two));
            for secret in [&one, &two] {
                let leaks: Vec<&str> = found.lines().filter(|line| line.contains(secret.as_str())).collect();
                prop_assert!(leaks.is_empty(), "{secret}: {leaks:#?}");
            }
            for text in INNOCENT {
                prop_assert!(found.contains(text), "{text}: {found}");
            }
        }
    }
}

/// Selectors match labels, such as that of `driftless drift -l`.
#[test]
fn kubernetes_labels_are_masked_by_their_names_only() {
    let mut wanted = stack(Format::Kubernetes, &planted(KUBERNETES, "hunter2"));
    wanted.encrypted.texts.insert("nextcloud".to_owned());
    let mask = Mask::new([7; 32]).with_stacks([&wanted]);
    let hashes = &StackHashes::of(&wanted);
    let (agent, policy, images) = (&AgentId("agent".to_owned()), &Policy::default(), &BTreeMap::new());
    let target = Target { stack: &wanted, hashes, reached: None, agent, policy, images, mask: &mask };
    let live = compare_live(&target, &Observed::default(), &Record::default());
    let container = live.iter().find(|difference| difference.kind == "container").unwrap();
    assert_eq!(container.labels["app"], "nextcloud");
    assert_eq!(container.labels["annotation.webhook"], mask.hide("hunter2"));
}

#[test]
fn password_that_is_also_a_name_garbles_nothing() {
    for (format, template) in FORMATS {
        let before = template.replace("nextcloud:30", "nextcloud:29");
        let found = outputs(format, &planted(&before, "nextcloud"), &planted(template, "nextcloud"));
        for text in INNOCENT {
            assert!(found.contains(text), "{text}: {found}");
        }
        assert!(!found.contains("PASSWORD: nextcloud"), "{found}");
        if format == Format::Compose {
            for text in ["Host(`nextcloud.example.com`)", "/nextcloud", "hostname: nextcloud"] {
                assert!(found.contains(text), "{text}: {found}");
            }
        }
    }
}
