//! One application on the page: its status, what runs, and why it is not synced or healthy.

use driftless_model::{
    Application, ApplicationStatus, Drift, DriftAction, Finding, HealthStatus, InstanceStatus, Operation,
    OperationPhase, PinStatus, Severity, SyncStatus, Timestamp, Until, WaitStatus, WorkloadStatus,
};
use maud::{Markup, html};

use super::text::{Deadline, RelativeTime, Text};

pub(super) fn application_card(application: &Application, now: Timestamp) -> Markup {
    let Application { name, spec, generation: _, status } = application;
    let anchor = format!("app-{name}");
    html! {
        article id=(Text(&anchor)) {
            div.top {
                h2 { a href={ "#" (Text(&anchor)) } { (Text(name)) } }
                " " (sync_badge(status.sync)) " " (health_badge(status.health))
                (commit(status, now))
            }
            @if !status.message.is_empty() { p.note { (Text(&status.message)) } }
            @if let Some(status) = &status.pin { (pin(status, now)) }
            @if let Some(running) = &status.operation { (operation(running, now)) }
            (waits(&status.waits, now))
            (drift(&status.drift, now))
            (workloads(status, now))
            (findings(&status.findings))
            (last_plan(application, now))
            p.note.soft {
                @if spec.path.is_empty() { "The root folder" } @else { span.mono { (Text(&spec.path)) } }
                " from " span.mono { (Text(&spec.url)) } ", " (Text(&spec.reference))
                @if let Some(at) = status.fetched_at { " · Git read " (RelativeTime { at, now }) }
                @if let Some(at) = status.observed_at { " · Docker read " (RelativeTime { at, now }) }
            }
        }
    }
}

fn commit(status: &ApplicationStatus, now: Timestamp) -> Markup {
    html! {
        span.commit {
            @if let Some(revision) = status.revision { "revision " (Text(revision)) " · " }
            // The newest commit may have changed only other applications.
            @match status.revision_commit.as_ref().or(status.commit.as_ref()) {
                Some(commit) => {
                    code title=(Text(&commit.id)) { (Text(commit.short())) }
                    " · " (Text(&commit.subject))
                    " · " (Text(commit.author_name()))
                    " · " (RelativeTime { at: commit.time, now })
                    @if let Some(newest) = status.commit.as_ref().filter(|newest| newest.id != commit.id) {
                        " · unchanged since, up to " code title=(Text(&newest.id)) { (Text(newest.short())) }
                    }
                }
                None => "nothing applied yet",
            }
        }
    }
}

fn pin(pin: &PinStatus, now: Timestamp) -> Markup {
    let PinStatus { revision, commit, reason, at, until, behind, actor } = pin;
    html! {
        p.note.warn {
            b { "Pinned" } " to revision " (Text(revision)) " (" code { (Text(commit.short())) } ") "
            (RelativeTime { at: *at, now })
            @if let Some(actor) = actor { " by " (Text(actor)) }
            @if let Some(behind) = behind { ", " (Text(behind)) " behind" }
            @match until {
                Until::Manual => ", until it is resumed",
                Until::NextCommit => ", until the next commit",
                Until::Time(end) => { ", ends " (RelativeTime { at: *end, now }) }
            }
            @if !reason.is_empty() { ": " (Text(reason)) }
        }
    }
}

fn operation(operation: &Operation, now: Timestamp) -> Markup {
    let Operation { phase, revision: _, message, started, finished: _, outcome: _, attempt, next_retry_at } =
        operation;
    let (class, word) = match phase {
        // The rest of the card shows what a finished operation reached.
        OperationPhase::Succeeded => return Markup::default(),
        OperationPhase::Running => ("busy", "Working"),
        OperationPhase::Waiting => ("warn", "Waiting"),
        OperationPhase::Failed => ("bad", "Failed"),
    };
    html! {
        p.note {
            span.badge.(class) { (word) } " " (Text(message)) " "
            span.soft {
                "since " (RelativeTime { at: *started, now })
                @if *attempt > 0 { " · attempt " (Text(attempt)) }
                @if let Some(at) = next_retry_at { " · next try " (Deadline { at: *at, now }) }
            }
        }
    }
}

fn waits(waits: &[WaitStatus], now: Timestamp) -> Markup {
    html! {
        @if !waits.is_empty() {
            h3 { "Waiting for" }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Reason" }
                            th scope="col" { "Object" }
                            th scope="col" { "Message" }
                            th.number scope="col" { "Attempt" }
                            th scope="col" { "Next try" }
                        }
                    }
                    tbody {
                        @for WaitStatus { reason, object, message, attempt, until } in waits {
                            tr {
                                td { span.badge.warn { (Text(reason)) } }
                                td.mono { (Text(object)) }
                                td { (Text(message)) }
                                td.number { @if let Some(attempt) = attempt { (Text(attempt)) } }
                                td { @if let Some(at) = until { (Deadline { at: *at, now }) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn drift(drift: &[Drift], now: Timestamp) -> Markup {
    html! {
        @if !drift.is_empty() {
            h3 { "Drift" }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Object" }
                            th scope="col" { "Field" }
                            th scope="col" { "Git says" }
                            th scope="col" { "Found" }
                            th scope="col" { "When" }
                            th scope="col" { "Action" }
                        }
                    }
                    tbody { @for difference in drift { (drift_row(difference, now)) } }
                }
            }
        }
    }
}

fn drift_row(drift: &Drift, now: Timestamp) -> Markup {
    let Drift { kind, object, workload: _, field, want, found, at, action } = drift;
    let (class, word) = match action {
        DriftAction::Heal => ("busy", "being healed"),
        DriftAction::BackOff => ("warn", "healed after a pause"),
        DriftAction::Report => ("idle", "reported only"),
        DriftAction::Ineffective => ("bad", "not healed: healing has no effect"),
    };
    html! {
        tr {
            td { (Text(kind)) " " span.mono { (Text(object)) } }
            td.mono { (Text(field)) }
            td.mono { (Text(want)) }
            td.mono { (Text(found)) }
            td { @if let Some(at) = at { (RelativeTime { at: *at, now }) } }
            td { span.badge.(class) { (word) } }
        }
    }
}

fn workloads(status: &ApplicationStatus, now: Timestamp) -> Markup {
    html! {
        @if !status.workloads.is_empty() {
            h3 { "Workloads" }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Name" }
                            th scope="col" { "State" }
                            th.number scope="col" { "Ready" }
                            th.number scope="col" { "Restarts" }
                            th scope="col" { "Image, ports" }
                            th scope="col" { "Since" }
                            th scope="col" { "Message" }
                        }
                    }
                    tbody {
                        @for (name, workload) in &*status.workloads {
                            (workload_row(name, workload))
                            @for instance in &workload.instances { (instance_row(instance, now)) }
                        }
                    }
                }
            }
        }
    }
}

fn workload_row(name: &driftless_model::WorkloadName, workload: &WorkloadStatus) -> Markup {
    let WorkloadStatus { health, reason, message, image, replicas, ready_replicas, origin, .. } = workload;
    html! {
        tr {
            th scope="row" title=(Text(origin)) { (Text(name)) }
            td {
                @if reason.is_empty() { (health_badge(*health)) }
                @else { span.badge.(health_class(*health)) { (Text(reason)) } }
            }
            td.number { (Text(ready_replicas)) "/" (Text(replicas)) }
            td {}
            td.mono { (Text(image)) }
            td {}
            td { (Text(message)) }
        }
    }
}

fn instance_row(instance: &InstanceStatus, now: Timestamp) -> Markup {
    let InstanceStatus { name, container, state, ready, updated, restarts, since, message, ports, .. } =
        instance;
    html! {
        tr.instance {
            td.mono title=(Text(container)) { (Text(name)) }
            td { (Text(state)) @if !*updated { " (old)" } }
            td.number { @if *ready { "yes" } @else { "no" } }
            td.number { (Text(restarts)) }
            td.mono { (Text(ports.join(", "))) }
            td { @if let Some(at) = since { (RelativeTime { at: *at, now }) } }
            td { (Text(message)) }
        }
    }
}

fn findings(findings: &[Finding]) -> Markup {
    html! {
        @if !findings.is_empty() {
            h3 { "Findings in the manifests" }
            div.scroll {
                table {
                    tbody {
                        @for Finding { severity, location, path, message, help, excerpt: _ } in findings {
                            tr {
                                td {
                                    @match severity {
                                        Severity::Warning => span.badge.warn { "warning" },
                                        Severity::Error => span.badge.bad { "error" },
                                    }
                                }
                                td.mono { (Text(location)) }
                                td.mono { (Text(path)) }
                                td { (Text(message)) @if let Some(help) = help { " " span.soft { (Text(help)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn last_plan(application: &Application, now: Timestamp) -> Markup {
    let steps = &application.status.last_plan;
    html! {
        @if !steps.is_empty() {
            details id={ "plan-" (Text(&application.name)) } {
                summary {
                    "Last plan: " (steps.len()) @if steps.len() == 1 { " step" } @else { " steps" }
                    @if let Some(at) = application.status.last_plan_at { ", " (RelativeTime { at, now }) }
                }
                ol { @for step in &**steps { li { (Text(step)) } } }
            }
        }
    }
}

fn sync_badge(sync: SyncStatus) -> Markup {
    let (class, word) = match sync {
        SyncStatus::Synced => ("good", "Synced"),
        SyncStatus::OutOfSync => ("warn", "OutOfSync"),
        SyncStatus::Unknown => ("idle", "Sync unknown"),
    };
    html! { span.badge.(class) { (word) } }
}

fn health_badge(health: HealthStatus) -> Markup {
    let word = match health {
        HealthStatus::Healthy => "Healthy",
        HealthStatus::Suspended => "Suspended",
        HealthStatus::Progressing => "Progressing",
        HealthStatus::Missing => "Missing",
        HealthStatus::Degraded => "Degraded",
        HealthStatus::Unknown => "Health unknown",
    };
    html! { span.badge.(health_class(health)) { (word) } }
}

fn health_class(health: HealthStatus) -> &'static str {
    match health {
        HealthStatus::Healthy => "good",
        HealthStatus::Suspended | HealthStatus::Unknown => "idle",
        HealthStatus::Progressing => "busy",
        HealthStatus::Missing => "warn",
        HealthStatus::Degraded => "bad",
    }
}
