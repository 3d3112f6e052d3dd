//! The tree of what runs: workloads, their instances, and the containers of pods.

use driftless_model::{
    Application, InstanceStatus, PartStatus, Revision, Timestamp, WorkloadName, WorkloadStatus,
};
use maud::{Markup, html};

use super::{
    actions::workload_actions,
    badge::{health_badge, health_class},
    text::{RelativeTime, Text},
};

/// The data that all rows share.
pub(super) struct Tree<'a> {
    pub(super) application: &'a Application,
    /// The digests of images in the current revision.
    pub(super) revision: Option<&'a Revision>,
    /// The host name that the browser uses, for links to ports.
    pub(super) host: &'a str,
    pub(super) may_act: bool,
    pub(super) may_read_logs: bool,
    pub(super) now: Timestamp,
}

/// All workloads of an application.
pub(super) fn workloads(tree: &Tree<'_>) -> Markup {
    let workloads = &tree.application.status.workloads;
    html! {
        section #workloads aria-label="Workloads" {
            h2 { "Workloads" }
            @if workloads.is_empty() { p.soft { "Nothing." } }
            @else {
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "Name" }
                                th scope="col" { "State" }
                                th.number scope="col" { "Ready" }
                                th.number scope="col" { "Restarts" }
                                th scope="col" { "Age" }
                                th scope="col" { "Image, ports" }
                                th scope="col" { "Message" }
                                th scope="col" { span.hidden { "Actions" } }
                            }
                        }
                        tbody {
                            @for (name, workload) in workloads.iter() {
                                (workload_row(tree, name, workload))
                                @for awaited in &workload.awaited {
                                    tr.instance {
                                        td.mono { (Text(&awaited.name)) }
                                        td { span.badge.warn { (Text(&awaited.reason)) } }
                                        td {} td {} td {} td {}
                                        td { (Text(&awaited.message)) }
                                        td {}
                                    }
                                }
                                @for instance in &workload.instances {
                                    (instance_row(tree, instance))
                                    @for part in &instance.containers { (part_row(tree, instance, part)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn workload_row(tree: &Tree<'_>, name: &WorkloadName, workload: &WorkloadStatus) -> Markup {
    let WorkloadStatus { health, reason, message, image, replicas, ready_replicas, origin, .. } = workload;
    html! {
        tr.workload {
            th scope="row" title=(Text(origin)) { (Text(name)) }
            td {
                @if reason.is_empty() { (health_badge(*health)) }
                @else { span.badge.(health_class(*health)) { (Text(reason)) } }
            }
            td.number data-label="ready" { (ready_replicas) "/" (replicas) }
            td {}
            td {}
            td.mono.text { (Text(image)) (digest(tree, image)) }
            td.text {
                (Text(message))
                @if let Some(cron) = &workload.cron {
                    " schedule " code { (Text(&cron.schedule)) }
                    @if let Some(at) = cron.last_schedule_time { ", last run " (RelativeTime { at, now: tree.now }) }
                }
            }
            td {
                @if tree.may_act { (workload_actions(tree.application, name)) }
            }
        }
    }
}

/// The beginning of the digest that an image had when the revision was reached.
fn digest(tree: &Tree<'_>, image: &str) -> Markup {
    let digest = tree.revision.and_then(|revision| revision.images.get(image));
    let digest = digest.and_then(|digest| digest.split_once('@')).map(|(_, digest)| digest);
    html! {
        @if let Some(digest) = digest {
            " " span.soft title=(Text(digest)) { "@" (Text(digest.chars().take(19).collect::<String>())) }
        }
    }
}

fn instance_row(tree: &Tree<'_>, instance: &InstanceStatus) -> Markup {
    let InstanceStatus {
        name,
        container,
        state,
        ready,
        updated,
        restarts,
        created,
        message,
        ports,
        image,
        traffic,
        ..
    } = instance;
    let class = if *ready || state == "Completed" {
        "good"
    } else if state == "Running" {
        "busy"
    } else {
        "bad"
    };
    html! {
        tr.instance {
            td.mono title=(Text(container)) { (Text(name)) }
            td { span.badge.(class) { (Text(state)) } @if !*updated { " old" } }
            td.number data-label="ready" { @if *ready { "yes" } @else { "no" } }
            td.number data-label="restarts" { (restarts) }
            td { @if let Some(at) = created.or(instance.since) { (RelativeTime { at, now: tree.now }) } }
            td.mono {
                @if !*updated { (Text(image)) " " }
                @for port in ports { (port_link(tree, port)) " " }
            }
            td.text {
                @match traffic {
                    Some(traffic) => (Text(traffic.sentence())),
                    None => (Text(message)),
                }
                @if let Some(exit) = &instance.exit {
                    @if !message.is_empty() { ", " }
                    @if exit.out_of_memory { "out of memory, " }
                    "ended " (RelativeTime { at: exit.finished, now: tree.now })
                }
            }
            td { (logs_link(tree, name, None)) }
        }
    }
}

fn part_row(tree: &Tree<'_>, pod: &InstanceStatus, part: &PartStatus) -> Markup {
    let PartStatus { spec, instance } = part;
    html! {
        tr.part {
            td.mono { (Text(&spec.name)) }
            @match instance {
                Some(instance) => {
                    td { (Text(&instance.state)) }
                    td.number data-label="ready" { @if instance.ready { "yes" } @else { "no" } }
                    td.number data-label="restarts" { (instance.restarts) }
                    td { @if let Some(at) = instance.created { (RelativeTime { at, now: tree.now }) } }
                    td.mono { (Text(&spec.image)) }
                    td { (Text(&instance.message)) }
                    td { (logs_link(tree, &pod.name, Some(&spec.name))) }
                }
                None => {
                    td { "waiting" }
                    td {} td {} td {}
                    td.mono { (Text(&spec.image)) }
                    td {} td {}
                }
            }
        }
    }
}

fn logs_link(tree: &Tree<'_>, instance: &str, container: Option<&str>) -> Markup {
    html! {
        @if tree.may_read_logs {
            a.button href={
                (Text(&tree.application.name)) "/logs/" (Text(instance))
                @if let Some(container) = container { "?container=" (Text(container)) }
            } { "Logs" span.hidden { " of " (Text(container.unwrap_or(instance))) } }
        }
    }
}

/// `127.0.0.1:8081→8080/tcp`, as a link if a browser elsewhere can reach the port.
fn port_link(tree: &Tree<'_>, port: &str) -> Markup {
    html! {
        @match reachable(port, tree.host) {
            Some(url) => a href=(url) rel="noreferrer" { (Text(port)) },
            None => (Text(port)),
        }
    }
}

/// The URL of a published TCP port. `None`: it is not TCP, or it is published on loopback and the page is not.
fn reachable(port: &str, host: &str) -> Option<String> {
    let (published, inner) = port.split_once('→')?;
    if !inner.ends_with("/tcp") {
        return None;
    }
    let (address, number) = published.rsplit_once(':').unwrap_or(("", published));
    let number: u16 = number.parse().ok()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-[]:".contains(letter);
    let is_local =
        |name: &str| name == "localhost" || name.starts_with("127.") || name == "[::1]" || name == "::1";
    let target = match address {
        "" | "0.0.0.0" | "::" | "[::]" | "*" => host,
        address if is_local(address) && !is_local(host) => return None,
        address => address,
    };
    (!target.is_empty() && target.chars().all(is_plain)).then(|| format!("http://{target}:{number}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_links_where_a_browser_reaches_them() {
        for (port, host, expected) in [
            ("0.0.0.0:8080→80/tcp", "nas.local", Some("http://nas.local:8080/")),
            ("8080→80/tcp", "nas.local", Some("http://nas.local:8080/")),
            ("192.0.2.7:8080→80/tcp", "nas.local", Some("http://192.0.2.7:8080/")),
            ("127.0.0.1:8080→80/tcp", "localhost", Some("http://127.0.0.1:8080/")),
            ("127.0.0.1:8080→80/tcp", "nas.local", None),
            ("0.0.0.0:53→53/udp", "nas.local", None),
            ("0.0.0.0:99999→80/tcp", "nas.local", None),
            ("0.0.0.0:80→80/tcp", "nas.local/@evil", None),
            ("80/tcp", "nas.local", None),
        ] {
            assert_eq!(reachable(port, host).as_deref(), expected, "{port} {host}");
        }
    }
}
