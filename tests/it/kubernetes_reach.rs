//! Kubernetes: who is reached by which name and which port of the host, where the manifest leaves it open.

use driftless_model::{Facts, NetworkMode, PortRange, Stack};

use crate::kubernetes_manifests::{assert_findings, render_files, stack_without_findings};

const WEB: &str = "
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'web:1', ports: [{containerPort: 80}]}]}
";

fn service(name: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

fn node_service(name: &str, port: &str) -> String {
    service(name, &format!("{{type: NodePort, selector: {{app: web}}, ports: [{port}]}}"))
}

/// The ports of the host by which a Service is reached, as the inventory tells them.
fn node_ports(stack: &Stack, name: &str) -> Vec<u16> {
    let found = stack.inventory.resources.iter().find(|it| it.object.name == name).unwrap();
    let Facts::Service { ports, .. } = &found.facts else { panic!("no Service") };
    ports.iter().filter_map(|it| it.node_port).collect()
}

fn published(stack: &Stack) -> Vec<(u16, &'static str, PortRange)> {
    let container = &stack.workloads[&"web".into()].container;
    container.ports.iter().map(|it| (it.container, it.protocol.as_str(), it.host.unwrap())).collect()
}

#[test]
fn a_node_port_that_is_left_open_follows_from_names_alone() {
    let one = stack_without_findings(&format!("{WEB}{}", node_service("front", "{port: 80}")));
    let [port] = node_ports(&one, "front")[..] else { panic!("one port") };
    assert!((30_086..=32_767).contains(&port), "{port}: below are those that people choose");
    assert_eq!(published(&one), [(80, "tcp", PortRange::one(port))]);

    // Other objects before and after it, in one file or in two, do not change it.
    let (front, other) =
        (node_service("front", "{port: 80}"), node_service("another", "{port: 81, targetPort: 80}"));
    for files in [
        vec![("a.yaml", format!("{WEB}{front}{other}"))],
        vec![("a.yaml", format!("{other}{front}{WEB}"))],
        vec![("a.yaml", other.clone()), ("b.yaml", format!("{front}{WEB}"))],
    ] {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let both = render_files("shop", &files).stack.unwrap();
        assert_eq!(node_ports(&both, "front"), [port]);
        assert_ne!(node_ports(&both, "another"), [port]);
    }
    // The same manifests a second time on the host are another application.
    let twin = render_files("stage", &[("a.yaml", format!("{WEB}{front}").as_str())]).stack.unwrap();
    assert_ne!(node_ports(&twin, "front"), [port]);
}

#[test]
fn external_addresses_are_in_the_inventory() {
    let spec = "{externalIPs: [192.0.2.1], selector: {app: web}, ports: [{port: 80}]}";
    let stack = stack_without_findings(&format!("{WEB}{}", service("front", spec)));
    let front = stack.inventory.resources.iter().find(|it| it.object.name == "front").unwrap();
    let Facts::Service { external_addresses, .. } = &front.facts else { panic!("no Service") };
    assert_eq!(external_addresses, &["192.0.2.1"]);
}

#[test]
fn a_node_port_keeps_out_of_the_way_of_those_that_are_given() {
    let alone = stack_without_findings(&format!("{WEB}{}", node_service("front", "{port: 80}")));
    let [port] = node_ports(&alone, "front")[..] else { panic!("one port") };
    let given = node_service("a", &format!("{{port: 80, nodePort: {port}}}"));
    let moved = stack_without_findings(&format!("{WEB}{}{given}", node_service("front", "{port: 80}")));
    assert_eq!(node_ports(&moved, "a"), [port]);
    let next = if port == 32_767 { 30_086 } else { port + 1 };
    assert_eq!(node_ports(&moved, "front"), [next]);
    let of_pod = WEB.replace("containerPort: 80}", &format!("containerPort: 80, hostPort: {port}}}"));
    assert_eq!(
        node_ports(
            &stack_without_findings(&format!("{of_pod}{}", node_service("front", "{port: 80}"))),
            "front"
        ),
        [next]
    );

    // One port of two protocols is one number, whether it is given for one of them or for none.
    let dns = |tcp: &str| {
        let ports = format!("{{name: a, port: 53{tcp}}}, {{name: b, port: 53, protocol: UDP}}");
        node_ports(&stack_without_findings(&format!("{WEB}{}", node_service("dns", &ports))), "dns")
    };
    let [tcp, udp] = dns("")[..] else { panic!("two ports") };
    assert_eq!(tcp, udp);
    assert_eq!(dns(", nodePort: 30053"), [30_053, 30_053]);
}

#[test]
fn a_name_outside_is_forwarded_to_on_the_ports_that_are_listed() {
    let outside = |spec: &str| format!("{WEB}{}", service("db", &format!("{{type: ExternalName, {spec}}}")));
    let found = stack_without_findings(&outside("externalName: db.example.com, ports: [{port: 5432}]"));
    let proxy = &found.workloads[&"db_proxy".into()];
    let command = found.workloads[&"db_proxy_worker".into()].container.command.as_ref().unwrap();
    assert_eq!(command, &["proxy", "--hand-over", "5432/tcp=db.example.com:5432"]);
    let NetworkMode::Networks(networks) = &proxy.container.network_mode else { panic!("no networks") };
    let names = ["db", "db.default", "db.default.svc", "db.default.svc.cluster.local"];
    assert_eq!(networks["shop_default"].aliases, names);
    assert!(proxy.container.ports.is_empty());
    assert_findings(&outside("externalName: db.example.com"), &["an ExternalName needs its `ports` here"]);
    assert_findings(
        &outside("externalName: 10.0.0.1, ports: [{port: 1}]"),
        &["must be a name, but it is an address"],
    );
    assert_findings(
        &outside("externalName: a.b, ports: [{port: 1, protocol: SCTP}]"),
        &["SCTP cannot be forwarded"],
    );
    assert_findings(
        &format!("{WEB}{}", service("web", "{selector: {app: web}, externalName: a.b, ports: [{port: 80}]}")),
        &["externalName: must not be set unless `type` is `ExternalName`"],
    );
}

#[test]
fn pod_has_its_host_name_in_its_headless_service() {
    let pod = |more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: busybox, labels: {{app: busybox}}}}\nspec: {{{more}, \
             containers: [{{name: a, image: 'a:1'}}]}}\n"
        )
    };
    let headless = service("sub", "{clusterIP: None, selector: {app: busybox}}");
    let found = stack_without_findings(&format!("{}{headless}", pod("hostname: one, subdomain: sub")));
    let NetworkMode::Networks(networks) = &found.workloads[&"busybox".into()].container.network_mode else {
        panic!("no networks")
    };
    let aliases = &networks["shop_default"].aliases;
    for name in ["one.sub", "one.sub.default", "one.sub.default.svc.cluster.local", "sub"] {
        assert!(aliases.iter().any(|it| it == name), "{name}: {aliases:?}");
    }
    assert_findings(
        &format!("{}{headless}", pod("subdomain: sub")),
        &["a pod without a `hostname` has no DNS name in the subdomain"],
    );
    assert_findings(
        &pod("hostname: one, subdomain: sub"),
        &["has no effect: no headless Service `sub` selects the pod"],
    );
    let answered = service("sub", "{selector: {app: busybox}, ports: [{port: 80}]}");
    assert_findings(
        &format!("{}{answered}", pod("hostname: one, subdomain: sub")),
        &["has no effect: no headless Service `sub` selects the pod"],
    );
}

#[test]
fn pods_of_an_indexed_job_have_names_in_their_service() {
    let job = |more: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: work}}\nspec:\n  completions: 2\n  parallelism: 2\n\
             \x20 completionMode: Indexed\n  template:\n    spec: {{{more}subdomain: near, restartPolicy: Never, \
             containers: [{{name: a, image: 'a:1'}}]}}\n"
        )
    };
    let headless = service("near", "{clusterIP: None, selector: {job-name: work}}");
    let found = stack_without_findings(&format!("{}{headless}", job("")));
    for pod in ["work-0", "work-1"] {
        let container = &found.workloads[&pod.into()].container;
        let aliases = &container.networks()["shop_default"].aliases;
        for suffix in ["near", "near.default", "near.default.svc.cluster.local"] {
            assert!(aliases.contains(&format!("{pod}.{suffix}")), "{aliases:?}");
        }
        assert_eq!(container.cluster_domain(), Some("near.default.svc.cluster.local"));
    }
    let text = format!("{}{headless}", job("hostname: one, "));
    assert_findings(&text, &["spec.hostname: has no effect: the pods have names of their own"]);
    let named = render_files("shop", &[("a.yaml", text.as_str())]).stack.unwrap();
    assert_eq!(named.workloads, found.workloads);
}

#[test]
fn host_name_is_left_out_where_others_have_that_name() {
    let hosts = |text: &str| -> Vec<String> {
        let stack = render_files("shop", &[("a.yaml", text)]).stack.unwrap();
        let own = stack.workloads.iter().filter(|(name, _)| !name.as_str().contains("_proxy"));
        own.map(|(_, workload)| workload.container.hostname.clone().unwrap_or_default()).collect()
    };
    let hello = |more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: hello, labels: {{app: hello}}}}\nspec: {{{more}\
             containers: [{{name: a, image: 'a:1', ports: [{{containerPort: 8080}}]}}]}}\n"
        )
    };
    let port = |port: &str| service("hello", &format!("{{selector: {{app: hello}}, ports: [{{{port}}}]}}"));
    let with_proxy = port("port: 80, targetPort: 8080");
    stack_without_findings(&format!("{}{with_proxy}", hello("")));
    assert_eq!(hosts(&format!("{}{with_proxy}", hello(""))), [""]);
    assert_eq!(
        hosts(&format!("{}{}", hello(""), port("port: 8080"))),
        ["hello"],
        "the name leads to the pod"
    );
    assert_findings(
        &format!("{}{with_proxy}", hello("hostname: hello, ")),
        &["spec.hostname: has no effect: the engine would make `hello` a name of the pod, too"],
    );
    let other = hello("hostname: front, ");
    assert_eq!(hosts(&format!("{other}{with_proxy}")), ["front"]);
    // Another specification would run it again.
    assert_eq!(hosts(&format!("{}{with_proxy}", hello("restartPolicy: Never, "))), ["hello"]);

    let in_namespace = |namespace: &str| {
        hello("").replace("{name: hello,", &format!("{{name: hello, namespace: {namespace},"))
    };
    assert_eq!(hosts(&in_namespace("dev")), ["hello"]);
    assert_eq!(hosts(&format!("{}{}", in_namespace("dev"), in_namespace("prod"))), ["", ""]);
}

#[test]
fn pods_that_write_to_a_volume_keep_their_host_names() {
    let text = |host: &str, source: &str| {
        let port = "{selector: {app: mq}, ports: [{port: 80, targetPort: 15672}]}";
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: c}}\nspec: {{}}\n---\napiVersion: v1\n\
             kind: Pod\nmetadata: {{name: mq, labels: {{app: mq}}}}\nspec:\n  {host}\n  volumes: [{{name: v, \
             {source}}}]\n  containers:\n  - {{name: mq, image: 'mq:1', ports: [{{containerPort: \
             15672}}], volumeMounts: [{{name: v, mountPath: /data}}]}}\n{}",
            service("mq", port)
        )
    };
    let host_of = |text: &str| {
        let stack = render_files("shop", &[("a.yaml", text)]).stack.unwrap();
        assert!(stack.workloads.contains_key(&"mq_proxy".into()));
        stack.workloads[&"mq".into()].container.hostname.clone()
    };
    let written = "persistentVolumeClaim: {claimName: c}";
    let bare = text("", written);
    assert_eq!(host_of(&bare).as_deref(), Some("mq"));
    assert_findings(&bare, &["metadata.name: a Service or another workload has the name `mq`, too"]);
    assert_eq!(host_of(&text("", "hostPath: {path: /srv/mq}")).as_deref(), Some("mq"));
    for source in [
        "persistentVolumeClaim: {claimName: c, readOnly: true}",
        // Sockets are no data.
        "hostPath: {path: /var/run/docker.sock}",
    ] {
        assert_eq!(host_of(&text("", source)), None, "{source}");
    }
    let named = text("hostname: mq", written);
    assert_eq!(host_of(&named).as_deref(), Some("mq"));
    assert_findings(
        &named,
        &[
            "spec.hostname: a Service or another workload has the name `mq`, too, which the engine also resolves",
        ],
    );
}

#[test]
fn pods_of_a_set_keep_their_host_names() {
    let set = "---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: 'db:1', ports: [{containerPort: 5432}]}]}
";
    let headless = service("db", "{clusterIP: None, selector: {app: db}}");
    let one = service("db-0", "{selector: {app: db}, ports: [{port: 80, targetPort: 5432}]}");
    let text = format!("{set}{headless}{one}");
    let found = render_files("shop", &[("a.yaml", text.as_str())]).stack.unwrap();
    assert!(found.workloads.contains_key(&"db-0_proxy".into()));
    assert_eq!(found.workloads[&"db-0".into()].container.hostname.as_deref(), Some("db-0"));
}
