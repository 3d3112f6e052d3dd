//! Probes: how the agent checks a running container, and how often.
//!
//! The defaults of Kubernetes: no delay, period 10 s, timeout 1 s, one success, three failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    expand::{Room, refers_to},
    fields,
    ports::NamedPorts,
    reader::{Object, Value},
};
use driftless_model::{HttpHook, Probe, ProbeAction, Probes};
use driftless_yaml::{Node, Scalar};

const MOST: i64 = 0x7FFF_FFFF;

/// The names of a container that its probes may refer to.
struct References<'a> {
    ports: &'a NamedPorts,
    /// The entries of `env` as written. Those with a `valueFrom` are empty, as for the kubelet.
    variables: BTreeMap<String, String>,
    /// The entries of `env` with a `valueFrom`.
    empty: BTreeSet<&'a str>,
    room: &'a Room,
}

impl<'a> References<'a> {
    fn new(container: &Object<'a>, ports: &'a NamedPorts, room: &'a Room) -> Self {
        let mut variables = BTreeMap::new();
        let mut empty = BTreeSet::new();
        for entry in container.value.node.get("env").map(Node::items).unwrap_or_default() {
            let Some(name) = entry.get("name").and_then(Node::as_scalar) else { continue };
            // The last entry of a name counts.
            empty.remove(name);
            if entry.get("valueFrom").is_some_and(|from| !from.is_null()) {
                empty.insert(name);
            }
            let value = entry.get("value").filter(|value| !value.is_null()).and_then(Node::as_scalar);
            variables.insert(name.to_owned(), value.unwrap_or_default().to_owned());
        }
        Self { ports, variables, empty, room }
    }

    /// The words of a command, expanded as the kubelet does it: with the values of `env` as written.
    fn expand(&self, command: &Value<'_>) -> Vec<String> {
        let words = command.items().into_iter().filter_map(|word| {
            let text = word.string()?;
            if let Some(name) = self.empty.iter().find(|name| refers_to(text, name)) {
                let message = format!("`$({name})` is empty: in a probe, Kubernetes knows only each `value`");
                word.report().say(
                    word.node
                        .warning(&*word.path, message)
                        .help("run a shell that reads the variable, such as `[sh, -c, 'check \"$NAME\"']`"),
                );
            }
            Some(self.room.expand(&word, text, &self.variables))
        });
        words.collect()
    }
}

/// The three probes of a container.
pub(super) fn read(container: &Object<'_>, ports: &NamedPorts, room: &Room) -> Probes {
    let references = &References::new(container, ports, room);
    let probe = |key| container.object(key, fields::PROBE);
    let once = |object: Object<'_>| {
        if let Some(value) = object.get("successThreshold")
            && value.node.as_i64().is_some_and(|it| it > 1)
        {
            value.error("must be 1 in a liveness or startup probe");
        }
        read_probe(&object, references)
    };
    Probes {
        startup: probe("startupProbe").and_then(once),
        readiness: probe("readinessProbe").and_then(|it| read_probe(&it, references)),
        liveness: probe("livenessProbe").and_then(once),
    }
}

fn read_probe(object: &Object<'_>, references: &References<'_>) -> Option<Probe> {
    // The API server takes 0 for the default.
    let number = |key: &str, least: i64| {
        let value = object.get(key).filter(|value| value.node.as_i64() != Some(0));
        value.and_then(|value| value.integer(least..=MOST))
    };
    let seconds = |key: &str, least: i64, default: u64| {
        Duration::from_secs(number(key, least).and_then(|it| u64::try_from(it).ok()).unwrap_or(default))
    };
    let count =
        |key: &str, default: u32| number(key, 1).and_then(|it| u32::try_from(it).ok()).unwrap_or(default);
    let initial_delay = seconds("initialDelaySeconds", 0, 0);
    let period = seconds("periodSeconds", 1, 10);
    let timeout = seconds("timeoutSeconds", 1, 1);
    let (success_threshold, failure_threshold) = (count("successThreshold", 1), count("failureThreshold", 3));
    let action = read_action(object, references)?;
    Some(Probe { action, initial_delay, period, timeout, success_threshold, failure_threshold })
}

fn read_action(object: &Object<'_>, references: &References<'_>) -> Option<ProbeAction> {
    let ports = references.ports;
    let given = ["exec", "httpGet", "tcpSocket", "grpc"].map(|it| object.get(it));
    if given.iter().flatten().count() > 1 {
        object.value.error(
            "a probe must have one of `httpGet`, `tcpSocket`, `grpc` and `exec`, but this one has several",
        );
        return None;
    }
    match given {
        [Some(exec), ..] => {
            let command = exec.object(fields::EXEC)?.require("command")?;
            let words = references.expand(&command);
            if words.is_empty() {
                command.error("must name a program to run");
            }
            Some(ProbeAction::Exec { command: words })
        }
        [_, Some(http), ..] => {
            let HttpHook { path, port, https, host, headers } =
                http_get(&http.object(fields::HTTP_GET)?, ports)?;
            Some(ProbeAction::HttpGet { path, port, https, host, headers })
        }
        [_, _, Some(tcp), _] => {
            let tcp = tcp.object(fields::TCP_SOCKET)?;
            let host = tcp.filled("host").and_then(|it| it.text()).map(str::to_owned);
            Some(ProbeAction::TcpSocket { port: port_number(&tcp.require("port")?, ports)?, host })
        }
        [.., Some(grpc)] => {
            let grpc = grpc.object(fields::GRPC)?;
            let service = grpc.string("service").unwrap_or_default().to_owned();
            // A number only, as in Kubernetes.
            let port = grpc.require("port")?.integer(1..=65535).and_then(|it| u16::try_from(it).ok())?;
            Some(ProbeAction::Grpc { port, service })
        }
        [None, None, None, None] => {
            object
                .value
                .error_help("the probe has no action", "give it `httpGet`, `tcpSocket`, `grpc` or `exec`");
            None
        }
    }
}

/// An HTTP request of a probe or hook.
pub(super) fn http_get(object: &Object<'_>, ports: &NamedPorts) -> Option<HttpHook> {
    let path = object.string("path").unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let schemes = [("HTTP", false), ("HTTPS", true)];
    let https = object.filled("scheme").and_then(|it| it.one_of(&schemes)).unwrap_or(false);
    let host = object.filled("host").and_then(|it| it.text()).map(str::to_owned);
    let mut headers = Vec::new();
    for header in object.items("httpHeaders") {
        let Some(header) = header.object(fields::HEADER) else { continue };
        let Some(name) = header.require("name") else { continue };
        let value = header.string("value").unwrap_or_default();
        match name.text() {
            Some(text) if is_token(text) => headers.push((text.to_owned(), value.to_owned())),
            Some(text) => name.error(format!("`{text}` is not the name of a header")),
            None => {}
        }
    }
    let port = port_number(&object.require("port")?, ports)?;
    Some(HttpHook { path, port, https, host, headers })
}

/// A token of RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it))
}

/// A number, or the name of one of the container's ports.
fn port_number(value: &Value<'_>, ports: &NamedPorts) -> Option<u16> {
    let Some(Scalar::Text(name)) = value.node.resolved() else {
        return value.integer(1..=65535).and_then(|it| u16::try_from(it).ok());
    };
    if let Some(port) = ports.get(name) {
        return Some(*port);
    }
    if name.bytes().all(|it| it.is_ascii_digit()) {
        value.error_help(format!("must be a number, but `\"{name}\"` is a string"), "remove the quotes");
        return None;
    }
    let known: Vec<_> = ports.keys().map(|it| format!("`{it}`")).collect();
    let help = if known.is_empty() {
        "give a port of the container this name, or use its number".to_owned()
    } else {
        format!("the container's ports are named {}", known.join(", "))
    };
    value.error_help(format!("no port of the container is named `{name}`"), help);
    None
}
