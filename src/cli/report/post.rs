//! `--post`: writes the report as a comment on the job's pull or merge request, and sets the commit status.

use super::{
    ci_job::{Job, ci_job, token, token_names},
    error::Error,
    options::ReportArgs,
};
use crate::{cli::Context, cli::ExitStatus};
use driftless_forge::{Connection, Forge, State, Status, Written};
use driftless_model::CommitId;
use driftless_report as report;
use driftless_report::{Kind, Report};

/// Without a token, or with a fork's token that may not write, it only prints a note: the report is printed, and the
/// exit code is unaffected.
pub(super) async fn post(
    report: &Report,
    args: &ReportArgs,
    exit_status: ExitStatus,
    context: &Context<'_>,
) -> Result<(), Error> {
    let Some(job) = ci_job(context.environment) else {
        let known = "GitHub, GitLab, Forgejo or Gitea";
        return Err(Error::Post(format!("this is not a CI job of {known}, so there is nothing to post to")));
    };
    let Some(token) = token(job.kind, context.environment) else {
        let names = token_names(job.kind);
        context.screen.say(format!("not posted: there is no token; set one of {names}"));
        return Ok(());
    };
    let forge = Forge::new(job.kind, &job.api, &job.project, &token, &Connection::default())?;
    let posted = write(report, args, &job, &forge, exit_status, context).await;
    match posted {
        Err(error) if job.is_fork && error.is_permission() => {
            context.screen.say(format!("not posted: the request comes from a fork: {error}"));
            Ok(())
        }
        other => Ok(other?),
    }
}

async fn write(
    report: &Report,
    args: &ReportArgs,
    job: &Job,
    forge: &Forge,
    exit_status: ExitStatus,
    context: &Context<'_>,
) -> Result<(), driftless_forge::Error> {
    if let Some(request) = job.request {
        let marker = report::marker(report.kind, &args.post_as);
        let body = report::markdown(report, &args.post_as, report::COMMENT_LIMIT);
        let done = match forge.set_comment(request, &marker, &body).await? {
            Written::Created => "written",
            Written::Updated => "updated",
            Written::Unchanged => "up to date",
        };
        context.screen.say(format!("comment on request {request}: {done}"));
    }
    if let Some(commit) = &job.commit {
        let commit = CommitId::parse(commit).map_err(|_| driftless_forge::Error::Commit(commit.clone()))?;
        forge.set_status(&commit, &status(report, args, job, exit_status)).await?;
        context.screen.say(format!("status of {}: set", commit.short()));
    }
    Ok(())
}

/// Same result as the exit code: differences that do not fail the command do not fail the status.
fn status(report: &Report, args: &ReportArgs, job: &Job, exit_status: ExitStatus) -> Status {
    let kind = match report.kind {
        Kind::Drift => "drift",
        Kind::Preview => "preview",
    };
    let state = match exit_status {
        _ if report.has_errors() => State::Error,
        ExitStatus::Success | ExitStatus::Code(0) => State::Success,
        ExitStatus::Negative | ExitStatus::Code(_) => State::Failure,
    };
    let name = if args.post_as == "default" { String::new() } else { format!("/{}", args.post_as) };
    Status {
        state,
        context: format!("driftless/{kind}{name}"),
        description: report::headline(report),
        url: job.url.clone(),
    }
}
