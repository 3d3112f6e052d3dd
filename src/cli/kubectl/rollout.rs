//! `driftless rollout`: status in kubectl's wording, history, undo, pause, resume and restart. A revision belongs to
//! the whole application, because a commit does.

use std::{fmt::Write as _, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    args::{RolloutArgs, RolloutCommand, RolloutHistoryArgs, RolloutStatusArgs, RolloutUndoArgs},
    objects::{Error, Wanted, at, count},
    target::{Target, app_and_workload},
    unobserved,
};
use crate::{
    cli::Context, cli::Error as CliError, cli::ExitStatus, cli::client::Client, cli::goal::StatusWatch,
    cli::output::print, cli::screen::plain, cli::table::Table,
};
use driftless_model::{
    ConditionType, HealthStatus, Kind, Outcome, Revision, StatusCondition, WorkloadName, WorkloadStatus,
};
use driftless_web::{Accepted, RollbackBody, Waited};

pub(in crate::cli) async fn rollout(
    command: &RolloutCommand,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    match command {
        RolloutCommand::Status(args) => status(args, context).await,
        RolloutCommand::History(args) => history(args, context).await,
        RolloutCommand::Undo(args) => undo(args, context).await,
        RolloutCommand::Pause(args) => ask(args, "pause", "paused", context).await,
        RolloutCommand::Resume(args) => ask(args, "resume", "resumed", context).await,
        RolloutCommand::Restart(args) => ask(args, "restart", "restarted", context).await,
    }
}

async fn find(
    args: &RolloutArgs,
    client: &Client,
    context: &Context<'_>,
) -> Result<Option<Target>, CliError> {
    if let [what] = args.what.as_slice()
        && let Some((app, workload)) = app_and_workload(what)
    {
        return Target::of_application(app, workload, &args.scope, client, context).await;
    }
    let mut wanted = Wanted::parse(&args.what)?;
    let one = wanted.pop().filter(|it| it.name.is_some() && it.kinds.len() == 1);
    match one.filter(|_| wanted.is_empty()) {
        Some(one) => Target::find(&one, &args.scope, client, context).await,
        None => Err(Error::Usage("name one workload, such as deployment/web".to_owned()).into()),
    }
}

async fn ask(
    args: &RolloutArgs,
    verb: &str,
    done: &str,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let Some(target) = find(args, &client, context).await? else { return Ok(ExitStatus::Negative) };
    rolls(&target)?;
    let route = target.route(&format!("/workloads/{}/{verb}", target.workload))?;
    let _: Accepted = client.post(&route, None::<&()>).await?;
    print(&format!("{} {done}\n", target.qualified()))?;
    Ok(ExitStatus::Success)
}

async fn status(args: &RolloutStatusArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.on.server, context.environment)?;
    let Some(target) = find(&args.on, &client, context).await? else { return Ok(ExitStatus::Negative) };
    // All instances of a ReplicaSet have one specification, so none is rolled out.
    if target.kind == Kind::ReplicaSet {
        return Err(no_rollouts(target.kind).into());
    }
    rolls(&target)?;
    let began = Instant::now();
    let mut changes = StatusWatch::new(&client, &target.app)?;
    let mut said = String::new();
    loop {
        let left =
            if args.timeout.is_zero() { Duration::MAX } else { args.timeout.saturating_sub(began.elapsed()) };
        if left.is_zero() {
            context.screen.say("error: timed out waiting for the condition");
            return Ok(ExitStatus::Negative);
        }
        // The first status comes at once. Each is read before the object, so that an object from before the engine answered again
        // does not end the wait.
        let Some(now) = changes.change(left).await? else { continue };
        let unobserved = unobserved::reason(&now.application);
        let progress = match (target.again(&client).await, &unobserved) {
            (Ok(Some(item)), _) => after_failure(sentence(target.kind, &item), &target.workload, &item, &now),
            (Ok(None), None) => {
                context.screen.say("error: object has been deleted");
                return Ok(ExitStatus::Negative);
            }
            // Nothing was seen since the agent was started.
            (Ok(None), Some(why)) => Progress::UnderWay(why.clone()),
            // Wait for an agent that is being restarted.
            (Err(error), _) if error.is_absence() => continue,
            (Err(error), _) => return Err(error.into()),
        };
        let (sentence, is_over) = match as_observed(progress, &target.app, unobserved.as_deref()) {
            Progress::Done(sentence) => (sentence, true),
            Progress::UnderWay(sentence) => (sentence, false),
            Progress::Failed(sentence) => {
                context.screen.say(format!("error: {sentence}"));
                return Ok(ExitStatus::Negative);
            }
        };
        if sentence != said {
            print(&format!("{sentence}\n"))?;
        }
        if is_over || !args.watch {
            return Ok(ExitStatus::Success);
        }
        said = sentence;
    }
}

/// An old observation ends no wait: the containers may have changed since.
fn as_observed(progress: Progress, app: &str, unobserved: Option<&str>) -> Progress {
    match (progress, unobserved) {
        (Progress::Failed(sentence), _) => Progress::Failed(sentence),
        (Progress::Done(_) | Progress::UnderWay(_), Some(why)) => {
            Progress::UnderWay(format!("Waiting for the agent to observe {app}: {why}"))
        }
        (progress, None) => progress,
    }
}

/// A commit that has failed ends the wait. Either the application has gone back to an older version, which the counts of the object
/// are about then, or its rollouts are paused. An object that the pause left rolled out and well is no part of the failure.
fn after_failure(progress: Progress, workload: &str, item: &Value, now: &Waited) -> Progress {
    let Waited { application, obstacle, .. } = now;
    let failed = application.status.problem(ConditionType::CommitFailed);
    let is_of_same_target = count(item, "/metadata/generation") == application.generation;
    let (Some(failed), Some(obstacle)) = (failed, obstacle.as_ref().filter(|_| is_of_same_target)) else {
        return progress;
    };
    let is_part = |(name, part): &(&WorkloadName, &WorkloadStatus)| {
        part.spec.whole.as_ref().unwrap_or(name).as_str() == workload
    };
    let is_well =
        application.status.workloads.iter().filter(is_part).all(|(_, it)| it.health < HealthStatus::Missing);
    match progress {
        Progress::Failed(sentence) => Progress::Failed(sentence),
        Progress::Done(sentence) if is_well && failed.reason != StatusCondition::ROLLED_BACK => {
            Progress::Done(sentence)
        }
        Progress::Done(_) | Progress::UnderWay(_) => Progress::Failed(plain(obstacle).replace('\n', " ")),
    }
}

/// Rejects kinds without rollouts.
fn rolls(target: &Target) -> Result<(), Error> {
    match target.kind {
        Kind::Deployment | Kind::DaemonSet | Kind::StatefulSet | Kind::ReplicaSet => Ok(()),
        Kind::Pod
        | Kind::Service
        | Kind::Endpoints
        | Kind::CronJob
        | Kind::Job
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::PersistentVolumeClaim
        | Kind::Namespace => Err(no_rollouts(target.kind)),
    }
}

fn no_rollouts(kind: Kind) -> Error {
    let kind = kind.qualified_plural();
    Error::Usage(format!("{kind} have no rollouts: name a deployment, daemonset or statefulset"))
}

enum Progress {
    Done(String),
    UnderWay(String),
    Failed(String),
}

/// kubectl's own wording, because scripts match it.
fn sentence(kind: Kind, it: &Value) -> Progress {
    // Nobody knows when somebody deletes the instances.
    if at(it, "/spec/updateStrategy/type") == "OnDelete" {
        let only = "rollout status is only available for RollingUpdate strategy type";
        return Progress::Failed(only.to_owned());
    }
    match kind {
        Kind::DaemonSet => daemon_set_sentence(it),
        Kind::StatefulSet => stateful_set_sentence(it),
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::Pod
        | Kind::Service
        | Kind::Endpoints
        | Kind::CronJob
        | Kind::Job
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::PersistentVolumeClaim
        | Kind::Namespace => deployment_sentence(it),
    }
}

/// Whether the agent has not observed the newest target of the object yet.
fn is_unseen(it: &Value) -> bool {
    count(it, "/status/observedGeneration") < count(it, "/metadata/generation")
}

fn daemon_set_sentence(it: &Value) -> Progress {
    let name = at(it, "/metadata/name");
    let (desired, updated, available) = (
        count(it, "/status/desiredNumberScheduled"),
        count(it, "/status/updatedNumberScheduled"),
        count(it, "/status/numberAvailable"),
    );
    let waiting = format!("Waiting for daemon set \"{name}\" rollout to finish:");
    if is_unseen(it) {
        Progress::UnderWay("Waiting for daemon set spec update to be observed...".to_owned())
    } else if updated < desired {
        Progress::UnderWay(format!("{waiting} {updated} out of {desired} new pods have been updated..."))
    } else if available < desired {
        Progress::UnderWay(format!("{waiting} {available} of {desired} updated pods are available..."))
    } else {
        Progress::Done(format!("daemon set \"{name}\" successfully rolled out"))
    }
}

fn stateful_set_sentence(it: &Value) -> Progress {
    let (wanted, updated, ready) = (
        count(it, "/spec/replicas"),
        count(it, "/status/updatedReplicas"),
        count(it, "/status/readyReplicas"),
    );
    let revision = at(it, "/status/updateRevision");
    let partition = count(it, "/spec/updateStrategy/rollingUpdate/partition");
    if is_unseen(it) {
        Progress::UnderWay("Waiting for statefulset spec update to be observed...".to_owned())
    } else if ready < wanted {
        Progress::UnderWay(format!("Waiting for {} pods to be ready...", wanted - ready))
    } else if partition > 0 && updated < wanted.saturating_sub(partition) {
        let new = wanted.saturating_sub(partition);
        Progress::UnderWay(format!(
            "Waiting for partitioned roll out to finish: {updated} out of {new} new pods have been updated..."
        ))
    } else if partition > 0 {
        Progress::Done(format!("partitioned roll out complete: {updated} new pods have been updated..."))
    } else if updated < wanted || count(it, "/status/currentReplicas") > 0 {
        Progress::UnderWay(format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {revision}..."
        ))
    } else {
        Progress::Done(format!(
            "statefulset rolling update complete {updated} pods at revision {revision}..."
        ))
    }
}

fn deployment_sentence(it: &Value) -> Progress {
    let name = at(it, "/metadata/name");
    let (wanted, all) = (count(it, "/spec/replicas"), count(it, "/status/replicas"));
    let (updated, available) = (count(it, "/status/updatedReplicas"), count(it, "/status/availableReplicas"));
    let waiting = format!("Waiting for deployment \"{name}\" rollout to finish:");
    let conditions = it.pointer("/status/conditions").and_then(Value::as_array);
    let stopped = conditions
        .and_then(|all| all.iter().find(|it| it["type"] == "Progressing" && it["status"] == "False"));
    if is_unseen(it) {
        Progress::UnderWay("Waiting for deployment spec update to be observed...".to_owned())
    } else if let Some(stopped) = stopped {
        let why = stopped["message"].as_str().unwrap_or_default();
        Progress::Failed(match stopped["reason"].as_str() {
            Some("ProgressDeadlineExceeded") => {
                format!("deployment \"{name}\" exceeded its progress deadline")
            }
            _ => format!("the rollout of deployment \"{name}\" is stopped: {why}"),
        })
    } else if updated < wanted {
        let text = format!("{waiting} {updated} out of {wanted} new replicas have been updated...");
        Progress::UnderWay(text)
    } else if all > updated {
        let text = format!("{waiting} {} old replicas are pending termination...", all - updated);
        Progress::UnderWay(text)
    } else if available < updated && !has_completed(it) {
        let text = format!("{waiting} {available} of {updated} updated replicas are available...");
        Progress::UnderWay(text)
    } else {
        Progress::Done(format!("deployment \"{name}\" successfully rolled out"))
    }
}

/// A Compose service may have completed: no replica is available, and none will be.
fn has_completed(it: &Value) -> bool {
    let conditions = it.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| {
        all.iter().any(|it| it["type"] == "Progressing" && it["reason"] == "NewReplicaSetAvailable")
    })
}

async fn history(args: &RolloutHistoryArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.on.server, context.environment)?;
    let Some(target) = find(&args.on, &client, context).await? else { return Ok(ExitStatus::Negative) };
    let mut revisions: Vec<Revision> = client.get(&target.route("/revisions")?).await?;
    revisions.reverse();
    let Some(number) = args.revision else {
        let mut table = Table::new(0, &["REVISION", "CHANGE-CAUSE"]);
        for it in &revisions {
            table.row([it.number.to_string().into(), change_cause(it, it.commit.short()).into()]);
        }
        print(&format!("{}\n{}", target.qualified(), table.render(context.colours)))?;
        return Ok(ExitStatus::Success);
    };
    let Some(found) = revisions.iter().find(|it| it.number == number) else {
        context.screen.say(format!("error: unable to find the specified revision {number}"));
        return Ok(ExitStatus::Negative);
    };
    print(&format!("{} with revision #{number}\n{}", target.qualified(), details(found)))?;
    Ok(ExitStatus::Success)
}

/// The commit of a revision, by its id or the beginning of it. That of a removal does not have the application, or is the
/// one that was applied last.
fn change_cause(revision: &Revision, id: &str) -> String {
    let removal = if revision.is_removal() { "removal: " } else { "" };
    format!("{removal}{id} {}", revision.commit.subject)
}

fn details(it: &Revision) -> String {
    let result = match &it.outcome {
        Outcome::InProgress => "in progress".to_owned(),
        Outcome::Succeeded => "succeeded".to_owned(),
        Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::Superseded => "superseded".to_owned(),
    };
    let mut out = String::new();
    for (name, value) in [
        ("Application", it.app.to_string()),
        ("Commit", change_cause(it, it.commit.id.as_str())),
        ("Author", it.commit.author.clone()),
        ("Started", it.started.to_string()),
        ("Result", result),
    ] {
        let _ = writeln!(out, "  {:<14}{}", format!("{name}:"), plain(&value).replace('\n', " "));
    }
    if !it.changes.is_empty() {
        out.push_str("  Changes:\n");
        for change in &it.changes {
            let _ = writeln!(out, "    {}", plain(change));
        }
    }
    out
}

async fn undo(args: &RolloutUndoArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.on.server, context.environment)?;
    let Some(target) = find(&args.on, &client, context).await? else { return Ok(ExitStatus::Negative) };
    let body = RollbackBody {
        to: Some(args.to_revision).filter(|it| *it > 0).map(|it| it.to_string()),
        reason: Some(format!("rollout undo of {}", target.qualified())),
        until: None,
    };
    let accepted: Accepted = client.post(&target.route("/rollback")?, Some(&body)).await?;
    print(&format!("{} rolled back\n", target.qualified()))?;
    if let Some(pin) = accepted.pin {
        context.screen.say(format!(
            "the whole application {0} is pinned to revision {1}; `driftless resume {0}` ends the pin",
            target.app, pin.revision
        ));
    }
    if let Some(note) = accepted.note {
        context.screen.say(plain(&note));
    }
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(kind: Kind, item: &Value) -> String {
        match sentence(kind, item) {
            Progress::Done(it) => format!("done: {it}"),
            Progress::UnderWay(it) => it,
            Progress::Failed(it) => format!("error: {it}"),
        }
    }

    #[test]
    fn rollout_status_uses_the_sentences_of_kubectl() {
        let deployment = |generation: u64, all: u64, updated: u64, available: u64, reason: &str| {
            let is_stopped = matches!(reason, "ProgressDeadlineExceeded" | "CommitFailed");
            let progressing = json!({
                "type": "Progressing", "reason": reason, "message": "web made no progress",
                "status": if is_stopped { "False" } else { "True" },
            });
            let item = json!({
                "metadata": { "name": "web", "generation": generation },
                "spec": { "replicas": 3 },
                "status": {
                    "observedGeneration": 1, "replicas": all, "updatedReplicas": updated, "availableReplicas": available,
                    "conditions": [progressing],
                },
            });
            said(Kind::Deployment, &item)
        };
        let waiting = "Waiting for deployment \"web\" rollout to finish:";
        let cases = [
            (deployment(2, 3, 3, 3, ""), "Waiting for deployment spec update to be observed...".to_owned()),
            (deployment(1, 4, 1, 3, ""), format!("{waiting} 1 out of 3 new replicas have been updated...")),
            (deployment(1, 4, 3, 3, ""), format!("{waiting} 1 old replicas are pending termination...")),
            (deployment(1, 3, 3, 2, ""), format!("{waiting} 2 of 3 updated replicas are available...")),
            (
                deployment(1, 3, 1, 2, "ProgressDeadlineExceeded"),
                "error: deployment \"web\" exceeded its progress deadline".to_owned(),
            ),
            (
                deployment(1, 4, 1, 3, "CommitFailed"),
                "error: the rollout of deployment \"web\" is stopped: web made no progress".to_owned(),
            ),
            (
                deployment(1, 3, 3, 3, "NewReplicaSetAvailable"),
                "done: deployment \"web\" successfully rolled out".to_owned(),
            ),
        ];
        for (found, wanted) in cases {
            assert_eq!(found, wanted);
        }
        let partitioned = |updated: u64| {
            let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } });
            let status = json!({ "observedGeneration": 1, "updatedReplicas": updated, "readyReplicas": 4, "currentReplicas": 4 - updated });
            let spec = json!({ "replicas": 4, "updateStrategy": strategy });
            said(
                Kind::StatefulSet,
                &json!({ "metadata": { "name": "db", "generation": 1 }, "spec": spec, "status": status }),
            )
        };
        assert_eq!(
            partitioned(1),
            "Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated..."
        );
        assert_eq!(partitioned(2), "done: partitioned roll out complete: 2 new pods have been updated...");
        let set = |updated: u64, ready: u64| {
            let status = json!({
                "observedGeneration": 1, "updatedReplicas": updated, "readyReplicas": ready, "updateRevision": "db-1a",
            });
            let item = json!({ "metadata": { "name": "db", "generation": 1 }, "spec": { "replicas": 2 }, "status": status });
            said(Kind::StatefulSet, &item)
        };
        assert_eq!(set(1, 1), "Waiting for 1 pods to be ready...");
        assert_eq!(
            set(1, 2),
            "waiting for statefulset rolling update to complete 1 pods at revision db-1a..."
        );
        assert_eq!(set(2, 2), "done: statefulset rolling update complete 2 pods at revision db-1a...");
        let daemons = |updated: u64, available: u64| {
            let status = json!({
                "observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": updated,
                "numberAvailable": available,
            });
            said(
                Kind::DaemonSet,
                &json!({ "metadata": { "name": "log", "generation": 1 }, "status": status }),
            )
        };
        let waiting = "Waiting for daemon set \"log\" rollout to finish:";
        assert_eq!(daemons(0, 1), format!("{waiting} 0 out of 1 new pods have been updated..."));
        assert_eq!(daemons(1, 0), format!("{waiting} 0 of 1 updated pods are available..."));
        assert_eq!(daemons(1, 1), "done: daemon set \"log\" successfully rolled out");
    }

    #[test]
    fn update_that_waits_for_a_deletion_has_no_end() {
        let wanted = "error: rollout status is only available for RollingUpdate strategy type";
        for kind in [Kind::StatefulSet, Kind::DaemonSet] {
            let strategy = json!({ "type": "OnDelete" });
            let item = json!({
                "metadata": { "name": "db", "generation": 1 },
                "spec": { "replicas": 2, "updateStrategy": strategy },
                "status": { "observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 2 },
            });
            assert_eq!(said(kind, &item), wanted);
        }
    }

    #[test]
    fn old_observation_is_no_end_of_a_rollout() {
        let seen = |progress, why| match as_observed(progress, "shop", why) {
            Progress::Done(it) => format!("done: {it}"),
            Progress::UnderWay(it) => it,
            Progress::Failed(it) => format!("error: {it}"),
        };
        let done = || Progress::Done("rolled out".to_owned());
        assert_eq!(seen(done(), None), "done: rolled out");
        assert_eq!(seen(done(), Some("no socket")), "Waiting for the agent to observe shop: no socket");
        assert_eq!(seen(Progress::Failed("over".to_owned()), Some("no socket")), "error: over");
    }
}
