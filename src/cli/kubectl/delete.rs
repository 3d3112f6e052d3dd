//! `driftless delete pod` replaces an instance, and `driftless delete job` ends a run or runs a Job again. Other objects are deleted in Git.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    args::DeleteArgs,
    objects::{Error, Wanted, at, path},
    target::Target,
};
use crate::{
    cli::Context, cli::Error as CliError, cli::ExitStatus, cli::client::Client, cli::goal::StatusWatch,
    cli::output::print,
};
use driftless_model::Kind;
use driftless_web::Accepted;

pub(in crate::cli) async fn delete(args: &DeleteArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let wanted = Wanted::parse(&args.what)?;
    for it in &wanted {
        if it.kinds != [Kind::Pod] && it.kinds != [Kind::Job] {
            let kinds: Vec<&str> = it.kinds.iter().map(|it| it.plural()).collect();
            let text = format!(
                "{} are defined in Git: delete them there. To restart a workload: driftless rollout restart",
                kinds.join(" and ")
            );
            return Err(Error::Usage(text).into());
        }
        if it.name.is_none() {
            let (kinds, kind) = if it.kinds == [Kind::Job] { ("jobs", "job") } else { ("pods", "pod") };
            return Err(Error::Usage(format!("name the {kinds}: driftless delete {kind} NAME…")).into());
        }
    }
    let client = Client::new(&args.server, context.environment)?;
    let mut exit_status = ExitStatus::Success;
    let mut awaited = Vec::new();
    for it in &wanted {
        let Some(target) = Target::find(it, &args.scope, &client, context).await? else {
            exit_status = ExitStatus::Negative;
            continue;
        };
        if target.kind == Kind::Job {
            let route = target.route(&format!("/workloads/{}/delete", target.workload))?;
            let _: Accepted = client.post(&route, None::<&()>).await?;
            print(&format!("{} \"{}\" deleted\n", target.kind.qualified(), target.name))?;
            continue;
        }
        let before = container_id(&target.item);
        if before.is_empty() {
            let text = format!("pod \"{}\" has no container yet", target.name);
            return Err(Error::Usage(text).into());
        }
        let route = target.route(&format!("/instances/{}/delete", target.name))?;
        let route = path(&route, [("namespace", target.namespace.as_str())]);
        let _: Accepted = client.post(&route, None::<&()>).await?;
        awaited.push((target, before));
    }
    let began = Instant::now();
    for (target, before) in &awaited {
        if !args.wait
            || is_replaced(target, before, &client, || args.timeout.saturating_sub(began.elapsed())).await?
        {
            print(&format!("pod \"{}\" deleted\n", target.name))?;
        } else {
            context.screen.say(format!("error: timed out waiting for the condition on pods/{}", target.name));
            exit_status = ExitStatus::Negative;
        }
    }
    Ok(exit_status)
}

/// Waits until the pod has another container, or is gone. False: that has not happened in time.
async fn is_replaced(
    target: &Target,
    before: &str,
    client: &Client,
    time_left: impl Fn() -> Duration,
) -> Result<bool, CliError> {
    let mut changes = StatusWatch::new(client, &target.app)?;
    loop {
        match target.again(client).await {
            Ok(Some(pod)) if container_id(&pod) == before => {}
            Ok(_) => return Ok(true),
            // The request is stored: wait for an agent that is being restarted.
            Err(error) if error.is_absence() => {}
            Err(error) => return Err(error.into()),
        }
        let left = time_left();
        if left.is_zero() {
            return Ok(false);
        }
        changes.change(left).await?;
    }
}

/// The container that a pod has now.
fn container_id(pod: &serde_json::Value) -> String {
    at(pod, "/status/containerStatuses/0/containerID")
}
