//! Published ports of services: who publishes them, and to where.

use driftless_files::{MemoryFiles, Rendered};
use driftless_manifest::{
    convert::{SecretValues, to_kubernetes},
    discover, render,
};
use driftless_model::{HELPER_IMAGE, NetworkMode, PROXY_IMAGE, Peer, Severity, Stack, Workload};

fn render_text(text: &str) -> Rendered {
    let files = MemoryFiles::new([("compose.yaml", text)]);
    render(&files, &discover(&files, "", "repository", &[]).apps[0])
}

fn stack(text: &str) -> Stack {
    let rendered = render_text(text);
    rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings))
}

fn web(settings: &str) -> String {
    format!("services: {{web: {{image: a, {settings}}}}}")
}

fn command(workload: &Workload) -> Vec<&str> {
    workload.container.command.iter().flatten().map(String::as_str).collect()
}

/// The published ports, as `HOST:CONTAINER/PROTOCOL`.
fn ports(stack: &Stack, name: &str) -> Vec<String> {
    let Some(workload) = stack.workloads.get(&name.into()) else { return Vec::new() };
    let text = |port: &driftless_model::Port| {
        let ip = port.host_ip.map(|ip| format!("{ip}:")).unwrap_or_default();
        let host = port.host.map(|host| format!("{}-{}", host.first, host.last)).unwrap_or_default();
        format!("{ip}{host}:{}/{}", port.container, port.protocol.as_str())
    };
    workload.container.ports.iter().map(text).collect()
}

#[test]
fn ports_of_several_instances_are_served_by_a_proxy() {
    for settings in [
        "scale: 2",
        "deploy: {replicas: 3}",
        "deploy: {update_config: {order: start-first}}",
        "x-driftless: {proxy: true}",
    ] {
        let found = stack(&web(&format!("ports: ['80:8080', '[::1]:53:53/udp', '90-91:90-91'], {settings}")));
        assert_eq!(ports(&found, "web"), [""; 0], "{settings}");
        let expected = ["::1:53-53:53/udp", "90-90:90/tcp", "91-91:91/tcp", "80-80:8080/tcp"];
        assert_eq!(ports(&found, "web_proxy"), expected, "{settings}");
        let proxy = &found.workloads[&"web_proxy".into()];
        assert_eq!((proxy.container.image.as_str(), proxy.replicas), (HELPER_IMAGE, 1));
        let worker = &found.workloads[&"web_proxy_worker".into()];
        assert_eq!((worker.container.image.as_str(), worker.replicas), (PROXY_IMAGE, 1));
        assert_eq!(worker.container.network_mode, NetworkMode::Of(Peer::Workload("web_proxy".into())));
        let forwards = [
            "53/udp=_web._proxy:53",
            "90/tcp=_web._proxy:90",
            "91/tcp=_web._proxy:91",
            "8080/tcp=_web._proxy:8080",
        ];
        assert_eq!(command(worker)[..3], ["proxy", "--ready-only", "--hand-over"]);
        assert_eq!(command(worker)[3..], forwards, "{settings}");
        let networks = |name: &str| found.workloads[&name.into()].container.networks().clone();
        assert_eq!(networks("web")["repository_default"].aliases, ["_web._proxy", "web"]);
        assert!(networks("web_proxy")["repository_default"].aliases.is_empty());
    }
}

/// A project whose service has two instances and these networks, by their definitions.
fn on_networks(networks: &[(&str, &str)], more: &str) -> String {
    let names: Vec<&str> = networks.iter().map(|(name, _)| *name).collect();
    let defined: Vec<String> =
        networks.iter().map(|(name, settings)| format!("{name}: {{{settings}}}")).collect();
    let (names, defined) = (names.join(", "), defined.join(", "));
    format!(
        "services: {{web: {{image: a, scale: 2, ports: ['80:8080', '6'], networks: [{names}]{more}}}}}\nnetworks: {{{defined}}}\n"
    )
}

#[test]
fn proxy_joins_a_network_that_publishes_ports() {
    let (external, internal) = (("a", "external: true"), ("b", "internal: true"));
    let (macvlan, ipvlan, plugin) =
        (("c", "driver: macvlan"), ("d", "driver: ipvlan"), ("e", "driver: other"));
    let (bridge, own) = (("y", "driver: bridge"), ("z", ""));
    for (networks, expected) in [
        (vec![external, internal, macvlan, ipvlan, plugin, own], "repository_z"),
        (vec![external, own, bridge], "repository_y"),
        (vec![external, internal, macvlan, plugin], "repository_e"),
        (vec![macvlan, internal, external], "a"),
        (
            vec![("bridge", "external: true"), ("host", "external: true"), ("shared", "external: true")],
            "shared",
        ),
    ] {
        let found = stack(&on_networks(&networks, ""));
        let proxy = found.workloads[&"web_proxy".into()].container.networks();
        assert_eq!(proxy.keys().collect::<Vec<_>>(), [expected]);
        let aliases = &found.workloads[&"web".into()].container.networks()[expected].aliases;
        // Another project may have a service `web` in an external network.
        let is_external = found.networks[expected].external;
        let alias = if is_external { "_web.repository._proxy" } else { "_web._proxy" };
        assert_eq!(*aliases, [alias, "web"]);
        let worker = &found.workloads[&"web_proxy_worker".into()].container;
        // Instances of an earlier release serve until they are replaced.
        let former = if is_external { ",_web._proxy:8080" } else { "" };
        let forward = format!("8080/tcp={alias}:8080{former}");
        assert_eq!(worker.command.as_ref().unwrap().last(), Some(&forward));
        assert_eq!(is_external, ["a", "shared"].contains(&expected));
    }
}

#[test]
fn ports_that_no_network_can_publish_are_reported() {
    let networks = [("a", "internal: true"), ("b", "driver: macvlan"), ("c", "driver: ipvlan")];
    let rendered = render_text(&on_networks(&networks, ""));
    let findings: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
    let expected = "compose.yaml:1:12: warning: services.web.ports: are ignored: the service has no network that can publish ports";
    assert!(findings.len() == 1 && findings[0].starts_with(expected), "{findings:?}");
    let found = rendered.stack.unwrap();
    assert_eq!((found.workloads.len(), ports(&found, "web")), (1, vec![":6/tcp".to_owned()]));

    let rendered = render_text(&on_networks(&networks, ", x-driftless: {proxy: true}"));
    let findings: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
    assert!(rendered.stack.is_none());
    assert!(
        findings.len() == 1
            && findings[0].contains("error: services.web.x-driftless.proxy: the service has no network"),
        "{findings:?}"
    );
}

#[test]
fn proxy_needs_a_network_with_ipv4() {
    let ipv6 = ("a", "enable_ipv4: false, enable_ipv6: true");
    let found = stack(&on_networks(&[ipv6, ("b", "")], ""));
    let proxy = found.workloads[&"web_proxy".into()].container.networks();
    assert_eq!(proxy.keys().collect::<Vec<_>>(), ["repository_b"]);
    for (more, path) in [("", "ports"), (", x-driftless: {proxy: true}", "x-driftless.proxy")] {
        let rendered = render_text(&on_networks(&[ipv6, ("c", "internal: true")], more));
        let expected = format!("error: services.web.{path}: the proxy reaches instances by IPv4");
        let is_found = rendered.findings.iter().any(|finding| finding.to_string().contains(&expected));
        assert!(is_found && rendered.stack.is_none(), "{:?}", rendered.findings);
    }
    // Docker publishes the ports of one instance.
    let one = on_networks(&[ipv6], "").replace("scale: 2", "scale: 1");
    assert_eq!(ports(&stack(&one), "web").len(), 2);
}

#[test]
fn ports_of_one_instance_are_published_by_the_engine() {
    for settings in [
        "scale: 1",
        "deploy: {update_config: {order: stop-first}}",
        "deploy: {update_config: {parallelism: 2}}",
        "deploy: {update_config: {order: start-first}}, x-driftless: {proxy: false}",
        "deploy: {update_config: {order: start-first}}, network_mode: bridge",
    ] {
        let found = stack(&web(&format!("ports: ['80:8080'], {settings}")));
        assert_eq!(ports(&found, "web"), ["80-80:8080/tcp"], "{settings}");
        assert_eq!(found.workloads.len(), 1, "{settings}");
    }
    let plain = stack(&web("ports: ['80:8080']"));
    let other = stack(&web("ports: ['80:8080'], x-driftless: {proxy: false}"));
    assert_eq!(plain.workloads[&"web".into()].spec(), other.workloads[&"web".into()].spec());
}

#[test]
fn ports_that_each_instance_has_itself_stay_with_it() {
    let direct = "{target: 9, published: '9', mode: host}, {target: 8, published: '8', mode: ingress}";
    let first = "deploy: {update_config: {order: start-first}}";
    let found = stack(&web(&format!("ports: ['70-75:7', '6', {direct}, '5:5/sctp'], {first}")));
    assert_eq!(ports(&found, "web"), ["5-5:5/sctp", ":6/tcp", "70-75:7/tcp", "9-9:9/tcp"]);
    assert_eq!(ports(&found, "web_proxy"), ["8-8:8/tcp"]);
}

#[test]
fn settings_of_the_proxy_are_its_arguments() {
    let settings = "max-connections: 500, idle-timeout: 10m, connect-timeout: 300ms, proxy-protocol: v2";
    let found =
        stack(&web(&format!("ports: ['80:80'], x-driftless: {{on-change: restart, proxy: {{{settings}}}}}")));
    let expected =
        ["--max-connections=500", "--idle-timeout=600000", "--connect-timeout=300", "--proxy-protocol"];
    assert_eq!(command(&found.workloads[&"web_proxy_worker".into()])[2..6], expected);
}

#[test]
fn proxy_settings_leave_the_container_with_the_ports() {
    let with = |settings: &str| {
        stack(&web(&format!("ports: ['80:80', '81:81'], scale: 2, x-driftless: {{proxy: {settings}}}")))
    };
    let (plain, other) = (with("true"), with("{max-connections: 5, proxy-protocol: v2}"));
    let spec = |stack: &Stack, name: &str| stack.workloads[&name.into()].spec();
    assert_eq!(spec(&plain, "web_proxy"), spec(&other, "web_proxy"));
    assert_ne!(spec(&plain, "web_proxy_worker"), spec(&other, "web_proxy_worker"));
}

#[test]
fn proxy_that_cannot_serve_is_refused() {
    let cases = [
        ("ports: ['80-85:80'], x-driftless: {proxy: true}", "no port that a proxy could serve"),
        ("ports: ['80'], x-driftless: {proxy: true}", "no port that a proxy could serve"),
        ("ports: ['80:80/sctp'], x-driftless: {proxy: true}", "no port that a proxy could serve"),
        ("ports: ['80:80'], network_mode: bridge, x-driftless: {proxy: true}", "needs a network"),
        ("x-driftless: {proxy: true}", "no port that a proxy could serve"),
        ("ports: ['80:80'], x-driftless: {proxy: maybe}", "write `true`, `false`"),
        ("ports: ['80:80'], x-driftless: {proxy: {max-connections: 0}}", "at least 1"),
        ("ports: ['80:80'], x-driftless: {proxy: {connect-timeout: 0s}}", "longer than 0"),
        ("ports: ['80:80'], x-driftless: {proxy: {proxy-protocol: v1}}", "use `v2`"),
        ("ports: ['80:80'], x-driftless: {proxy: {buffers: 1}}", "buffers"),
    ];
    for (settings, message) in cases {
        let rendered = render_text(&web(settings));
        let errors = rendered.findings.iter().filter(|it| it.severity == Severity::Error);
        let errors: Vec<String> = errors.map(ToString::to_string).collect();
        assert!(rendered.stack.is_none(), "{settings}");
        assert!(errors.len() == 1 && errors[0].contains(message), "{settings}: {errors:?}");
    }
    for alone in [
        "x-driftless: {proxy: false}, ports: ['80:80']",
        "ports: [{target: 80, published: '80', mode: host}]",
    ] {
        let findings = render_text(&web(&format!("scale: 2, {alone}"))).findings;
        assert!(
            findings.iter().any(|it| it.to_string().contains("cannot share the host port")),
            "{findings:?}"
        );
    }
    for name in ["web_proxy", "web_proxy_worker"] {
        let taken =
            format!("services: {{web: {{image: a, scale: 2, ports: ['80:80']}}, {name}: {{image: b}}}}");
        let findings = render_text(&taken).findings;
        assert!(
            findings.iter().any(|it| it.to_string().contains("is the name of the proxy")),
            "{findings:?}"
        );
    }
}

#[test]
fn port_zero_is_one_that_the_engine_chooses() {
    let workloads = |ports: &str| stack(&web(&format!("scale: 2, ports: [{ports}]"))).workloads;
    let chosen = workloads("'80'");
    assert_eq!(chosen.len(), 1, "each instance publishes it itself");
    for zero in ["'0:80'", "{target: 80, published: '0'}", "{target: 80, published: 0}"] {
        assert_eq!(workloads(zero), chosen, "{zero}");
    }
}

#[test]
fn converted_service_has_its_ports_itself() {
    let rendered = render_text(&web("ports: ['80:8080'], scale: 2"));
    let converted = to_kubernetes(&rendered.stack.unwrap(), &rendered.contents, SecretValues::Hidden);
    let document = serde_json::to_string(&converted.documents).unwrap();
    assert!(document.contains("8080") && !document.contains("_proxy"), "{document}");
}

#[test]
fn port_is_published_on_all_addresses_of_both_families() {
    let both = "ports: ['0.0.0.0:80:80', '[::]:80:80', '0.0.0.0:53:53/udp', '[fd00::10]:53:53/udp']";
    let found = stack(&web(both));
    assert_eq!(
        ports(&found, "web"),
        ["0.0.0.0:53-53:53/udp", "fd00::10:53-53:53/udp", "0.0.0.0:80-80:80/tcp", ":::80-80:80/tcp"]
    );
    for twice in ["'80:80', '[::]:80:80'", "'[::]:80:80', '[::1]:80:80'", "'0.0.0.0:80:80', '10.0.0.1:80:80'"]
    {
        let findings = render_text(&web(&format!("ports: [{twice}]"))).findings;
        assert!(findings.iter().any(|it| it.message.ends_with("is published twice")), "{findings:?}");
    }
    let apart = "services: {a: {image: a, ports: ['0.0.0.0:80:80']}, b: {image: b, ports: ['[::]:80:80']}}";
    assert_eq!(stack(apart).workloads.len(), 2);
}
