//! One application on the page: how it is, what it runs, and why it is not as it should be.

use std::fmt::{self, Write};

use super::html::{Due, Moment, Text};
use driftless_model::{
    Application, ApplicationStatus, Drift, DriftAction, Finding, HealthStatus, InstanceStatus, Operation,
    OperationPhase, PinStatus, Severity, SyncStatus, Timestamp, Until, WaitStatus, WorkloadStatus,
};

pub(super) fn card(out: &mut String, application: &Application, now: Timestamp) -> fmt::Result {
    let Application { name, spec, generation: _, status } = application;
    writeln!(
        out,
        r##"<article id="app-{name}"><div class="top"><h2><a href="#app-{name}">{name}</a></h2> {sync} {health}"##,
        name = Text(name),
        sync = sync_badge(status.sync),
        health = health_badge(status.health),
    )?;
    write_commit(out, status, now)?;
    out.push_str("</div>\n");
    if !status.message.is_empty() {
        writeln!(out, r#"<p class="note">{}</p>"#, Text(&status.message))?;
    }
    if let Some(pin) = &status.pin {
        write_pin(out, pin, now)?;
    }
    if let Some(operation) = &status.operation {
        write_operation(out, operation, now)?;
    }
    write_waits(out, &status.waits, now)?;
    write_drift(out, &status.drift, now)?;
    write_workloads(out, status, now)?;
    write_findings(out, &status.findings)?;
    write_last_plan(out, application, now)?;
    writeln!(
        out,
        r#"<p class="note soft">{} from <span class="mono">{}</span>, {}{}{}</p></article>"#,
        match spec.path.as_str() {
            "" => "The root folder".to_owned(),
            path => format!(r#"<span class="mono">{}</span>"#, Text(path)),
        },
        Text(&spec.url),
        Text(&spec.reference),
        status.fetched_at.map_or_else(String::new, |at| format!(" · Git read {}", Moment { at, now })),
        status.observed_at.map_or_else(String::new, |at| format!(" · Docker read {}", Moment { at, now })),
    )
}

fn write_commit(out: &mut String, status: &ApplicationStatus, now: Timestamp) -> fmt::Result {
    out.push_str(r#"<span class="commit">"#);
    if let Some(revision) = status.revision {
        write!(out, "revision {revision} · ")?;
    }
    match &status.commit {
        Some(commit) => write!(
            out,
            r#"<code title="{}">{}</code> {} · {} · {}"#,
            Text(&commit.id),
            Text(commit.short()),
            Text(&commit.subject),
            Text(commit.author.split('<').next().unwrap_or_default().trim()),
            Moment { at: commit.time, now },
        )?,
        None => out.push_str("nothing applied yet"),
    }
    out.push_str("</span>");
    Ok(())
}

fn write_pin(out: &mut String, pin: &PinStatus, now: Timestamp) -> fmt::Result {
    let PinStatus { revision, commit, reason, at, until, behind } = pin;
    write!(
        out,
        r#"<p class="note warn"><b>Pinned</b> to revision {revision} (<code>{}</code>) {}"#,
        Text(commit.get(..12).unwrap_or(commit)),
        Moment { at: *at, now },
    )?;
    if let Some(behind) = behind {
        write!(out, ", {behind} behind")?;
    }
    match until {
        Until::Manual => out.push_str(", until it is resumed"),
        Until::NextCommit => out.push_str(", until the next commit"),
        Until::Time(end) => write!(out, ", ends {}", Moment { at: *end, now })?,
    }
    if !reason.is_empty() {
        write!(out, ": {}", Text(reason))?;
    }
    out.push_str("</p>\n");
    Ok(())
}

fn write_operation(out: &mut String, operation: &Operation, now: Timestamp) -> fmt::Result {
    let Operation { phase, revision: _, message, started, finished: _, outcome: _, attempt, next_retry_at } =
        operation;
    let (class, what) = match phase {
        // What succeeded is told by the rest of the card.
        OperationPhase::Succeeded => return Ok(()),
        OperationPhase::Running => ("busy", "Working"),
        OperationPhase::Waiting => ("warn", "Waiting"),
        OperationPhase::Failed => ("bad", "Failed"),
    };
    write!(
        out,
        r#"<p class="note"><span class="badge {class}">{what}</span> {} <span class="soft">since {}"#,
        Text(message),
        Moment { at: *started, now },
    )?;
    if *attempt > 0 {
        write!(out, " · attempt {attempt}")?;
    }
    if let Some(at) = next_retry_at {
        write!(out, " · next try {}", Due { at: *at, now })?;
    }
    out.push_str("</span></p>\n");
    Ok(())
}

fn write_waits(out: &mut String, waits: &[WaitStatus], now: Timestamp) -> fmt::Result {
    if waits.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<h3>Waiting for</h3><div class=\"scroll\"><table><thead><tr><th scope=\"col\">Reason</th>\
         <th scope=\"col\">Object</th><th scope=\"col\">Message</th><th scope=\"col\" class=\"number\">Attempt</th>\
         <th scope=\"col\">Next try</th></tr></thead><tbody>\n",
    );
    for WaitStatus { reason, object, message, attempt, until } in waits {
        writeln!(
            out,
            r#"<tr><td><span class="badge warn">{}</span></td><td class="mono">{}</td><td>{}</td><td class="number">{}</td><td>{}</td></tr>"#,
            Text(reason),
            Text(object),
            Text(message),
            attempt.map_or_else(String::new, |it| it.to_string()),
            until.map_or_else(String::new, |at| Due { at, now }.to_string()),
        )?;
    }
    out.push_str("</tbody></table></div>\n");
    Ok(())
}

fn write_drift(out: &mut String, drift: &[Drift], now: Timestamp) -> fmt::Result {
    if drift.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<h3>Drift</h3><div class=\"scroll\"><table><thead><tr><th scope=\"col\">Object</th><th scope=\"col\">Field\
         </th><th scope=\"col\">Git says</th><th scope=\"col\">Found</th><th scope=\"col\">When</th>\
         <th scope=\"col\">What is done</th></tr></thead><tbody>\n",
    );
    for Drift { kind, object, workload: _, field, want, found, at, action } in drift {
        let (class, action) = match action {
            DriftAction::Heal => ("busy", "being set right"),
            DriftAction::BackOff => ("warn", "set right after a pause"),
            DriftAction::Report => ("idle", "reported only"),
            DriftAction::Ineffective => ("bad", "given up: healing had no effect"),
        };
        writeln!(
            out,
            r#"<tr><td>{} <span class="mono">{}</span></td><td class="mono">{}</td><td class="mono">{}</td><td class="mono">{}</td><td>{}</td><td><span class="badge {class}">{action}</span></td></tr>"#,
            Text(kind),
            Text(object),
            Text(field),
            Text(want),
            Text(found),
            at.map_or_else(String::new, |at| Moment { at, now }.to_string()),
        )?;
    }
    out.push_str("</tbody></table></div>\n");
    Ok(())
}

fn write_workloads(out: &mut String, status: &ApplicationStatus, now: Timestamp) -> fmt::Result {
    if status.workloads.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<h3>Workloads</h3><div class=\"scroll\"><table><thead><tr><th scope=\"col\">Name</th>\
         <th scope=\"col\">State</th><th scope=\"col\" class=\"number\">Ready</th><th scope=\"col\" class=\"number\">\
         Restarts</th><th scope=\"col\">Image, ports</th><th scope=\"col\">Since</th><th scope=\"col\">Message</th>\
         </tr></thead><tbody>\n",
    );
    for (name, workload) in &*status.workloads {
        let WorkloadStatus { health, reason, message, image, replicas, ready_replicas, instances, .. } =
            workload;
        let state = match reason.as_str() {
            "" => health_badge(*health),
            reason => format!(r#"<span class="badge {}">{}</span>"#, health_class(*health), Text(reason)),
        };
        writeln!(
            out,
            r#"<tr><th scope="row" title="{}">{}</th><td>{state}</td><td class="number">{ready_replicas}/{replicas}</td><td></td><td class="mono">{}</td><td></td><td>{}</td></tr>"#,
            Text(&workload.origin),
            Text(name),
            Text(image),
            Text(message),
        )?;
        for instance in instances {
            write_instance(out, instance, now)?;
        }
    }
    out.push_str("</tbody></table></div>\n");
    Ok(())
}

fn write_instance(out: &mut String, instance: &InstanceStatus, now: Timestamp) -> fmt::Result {
    let InstanceStatus {
        name,
        container,
        slot: _,
        state,
        ready,
        available: _,
        updated,
        restarts,
        since,
        message,
        spec: _,
        ports,
        ..
    } = instance;
    writeln!(
        out,
        r#"<tr class="instance"><td class="mono" title="{}">{}</td><td>{}{}</td><td class="number">{}</td><td class="number">{restarts}</td><td class="mono">{}</td><td>{}</td><td>{}</td></tr>"#,
        Text(container),
        Text(name),
        Text(state),
        if *updated { "" } else { " (old)" },
        if *ready { "yes" } else { "no" },
        Text(ports.join(", ")),
        since.map_or_else(String::new, |at| Moment { at, now }.to_string()),
        Text(message),
    )
}

fn write_findings(out: &mut String, findings: &[Finding]) -> fmt::Result {
    if findings.is_empty() {
        return Ok(());
    }
    out.push_str("<h3>About the manifests</h3><div class=\"scroll\"><table><tbody>\n");
    for Finding { severity, location, path, message, help, excerpt: _ } in findings {
        let (class, word) = match severity {
            Severity::Warning => ("warn", "warning"),
            Severity::Error => ("bad", "error"),
        };
        writeln!(
            out,
            r#"<tr><td><span class="badge {class}">{word}</span></td><td class="mono">{}</td><td class="mono">{}</td><td>{}{}</td></tr>"#,
            Text(location),
            Text(path),
            Text(message),
            help.as_ref()
                .map_or_else(String::new, |it| format!(r#" <span class="soft">{}</span>"#, Text(it))),
        )?;
    }
    out.push_str("</tbody></table></div>\n");
    Ok(())
}

fn write_last_plan(out: &mut String, application: &Application, now: Timestamp) -> fmt::Result {
    let steps = &application.status.last_plan;
    if steps.is_empty() {
        return Ok(());
    }
    write!(out, r#"<details id="plan-{}"><summary>Last plan: {} "#, Text(&application.name), steps.len())?;
    out.push_str(if steps.len() == 1 { "step" } else { "steps" });
    if let Some(at) = application.status.last_plan_at {
        write!(out, ", {}", Moment { at, now })?;
    }
    out.push_str("</summary><ol>");
    for step in &**steps {
        write!(out, "<li>{}</li>", Text(step))?;
    }
    out.push_str("</ol></details>\n");
    Ok(())
}

fn sync_badge(sync: SyncStatus) -> &'static str {
    match sync {
        SyncStatus::Synced => r#"<span class="badge good">Synced</span>"#,
        SyncStatus::OutOfSync => r#"<span class="badge warn">OutOfSync</span>"#,
        SyncStatus::Unknown => r#"<span class="badge idle">Sync unknown</span>"#,
    }
}

fn health_badge(health: HealthStatus) -> String {
    let word = match health {
        HealthStatus::Healthy => "Healthy",
        HealthStatus::Suspended => "Suspended",
        HealthStatus::Progressing => "Progressing",
        HealthStatus::Missing => "Missing",
        HealthStatus::Degraded => "Degraded",
        HealthStatus::Unknown => "Health unknown",
    };
    format!(r#"<span class="badge {}">{word}</span>"#, health_class(health))
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
