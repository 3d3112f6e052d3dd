//! A commit that fails: how it is found out, which revision the application goes back to, and how it is reported.

use driftless_model::{
    AdmissionPolicy, Cause, EventKind, FailedCommit, Mask, OnFailure, Outcome, Revision, Stack, StackHash,
    is_same_version,
};
use driftless_plan::{CommitSpan, Round, resolved_digests};

use crate::{context::AppContext, error::chain};

/// The failure of a revision, if it has failed. The reason is masked. `span`: its own time, with the revisions that it has overtaken.
pub(crate) fn failed_now(
    revision: &Revision,
    span: CommitSpan,
    round: &Round<'_>,
    mask: &Mask,
) -> Option<FailedCommit> {
    let (failure, was_reached) = match &revision.outcome {
        Outcome::InProgress | Outcome::Failed { .. } => {
            let failure = round.rollout_failure(span).or_else(|| round.canary_failure());
            (failure?, false)
        }
        Outcome::Succeeded => {
            let monitor = round.policy.monitor;
            let monitored_from = revision.finished.map(|finished| round.monitored_from(finished));
            let is_monitored = monitored_from.is_some_and(|from| from.is_recent(monitor, round.now));
            let lost = || round.lost_health(revision.started).filter(|_| is_monitored);
            // A Job may take long, and the revision does not wait for it.
            (round.failed_job(CommitSpan::of(revision.started)).or_else(lost)?, true)
        }
        Outcome::Superseded => return None,
    };
    Some(FailedCommit {
        // Later commits changed nothing for this application.
        commit: revision.commit.id.clone(),
        stack: revision.stack.clone(),
        revision: revision.number,
        reason: mask.message(&without_attempts(&failure.reason)),
        at: round.now,
        back_to: None,
        was_reached,
        action: failure.action,
        images: Some(resolved_digests(round.record, round.stack).into_iter().collect()),
    })
}

/// A sentence without the attempts and their times that it has, because it is kept: `, attempt 3, next try 12:01:52 UTC`.
fn without_attempts(text: &str) -> String {
    const ATTEMPT: &str = ", attempt ";
    const NEXT: &str = ", next try ";
    const ZONE: &str = " UTC";
    let rest_after = |text: &str| -> Option<String> {
        let (_, at) =
            text.split_once(NEXT).filter(|(count, _)| count.bytes().all(|it| it.is_ascii_digit()))?;
        let (time, rest) = at.split_once(ZONE)?;
        time.bytes().all(|it| it.is_ascii_digit() || it == b':').then(|| without_attempts(rest))
    };
    let attempts = text.match_indices(ATTEMPT);
    let mut found = attempts.filter_map(|(at, _)| {
        let (before, attempt) = text.split_at_checked(at)?;
        Some(format!("{before}{}", rest_after(attempt.strip_prefix(ATTEMPT)?)?))
    });
    found.next().unwrap_or_else(|| text.to_owned())
}

/// The newest revision before this one that succeeded with another version, is no removal, can be read, and keeps to the policy
/// of today.
pub(crate) fn last_healthy(
    context: &AppContext,
    failing: &Revision,
    admission: &AdmissionPolicy,
) -> Option<Revision> {
    let history = context.readable_revisions()?;
    let is_admitted = |revision: &Revision| {
        readable_stack(context, revision).is_some_and(|stack| admission.violations(&stack).is_empty())
    };
    let is_healthy = |revision: &&Revision| {
        revision.number < failing.number
            && revision.is_way_back()
            && !is_same_version(&history, revision, failing)
            && is_admitted(revision)
    };
    history.iter().find(is_healthy).cloned()
}

/// The stack of a revision. `None`, with a warning: it cannot be read.
fn readable_stack(context: &AppContext, revision: &Revision) -> Option<Stack> {
    let stack = context.store().readable_stack(revision);
    let warn = |error: &driftless_store::Error| {
        let (app, error) = (context.name(), chain(error));
        tracing::warn!(%app, revision = revision.number, error, "could not read the stack of a revision");
    };
    stack.inspect_err(warn).ok().flatten()
}

/// The hash of a revision as the target of a rollback, which follows the settings for rollbacks and has no canary.
pub(crate) fn hash_as_target(context: &AppContext, back: &Revision) -> StackHash {
    let stack = readable_stack(context, back);
    stack.map_or_else(|| back.stack.clone(), |stack| StackHash::of(&stack.for_rollback()))
}

/// The failed commit of an application that went back by itself and has no record any more. `None`: the newest revision is none that
/// the application went back to.
pub(crate) fn failed_before(context: &AppContext) -> Option<FailedCommit> {
    let history = context.readable_revisions()?;
    let (newest, before) = history.split_first()?;
    let back_to = newest.rollback_of.filter(|_| newest.cause == Cause::AutomaticRollback)?;
    let (failed, reason) = before.iter().find_map(|revision| match &revision.outcome {
        Outcome::Failed { reason } => Some((revision, reason.clone())),
        _ => None,
    })?;
    Some(FailedCommit {
        commit: failed.commit.id.clone(),
        stack: failed.stack.clone(),
        revision: failed.number,
        reason,
        at: failed.finished.unwrap_or(failed.started),
        back_to: Some(back_to),
        was_reached: false,
        action: None,
        images: None,
    })
}

/// Reports a failed commit and its consequence. `stack` is that of the commit, `back` the revision that the application goes
/// back to.
pub(crate) fn report_failed_commit(
    context: &AppContext,
    stack: &Stack,
    failed: &FailedCommit,
    on_failure: OnFailure,
    back: Option<&Revision>,
) {
    let (app, commit) = (context.name(), failed.commit.short());
    let reason = &failed.reason;
    tracing::warn!(commit, revision = failed.revision, back_to = failed.back_to, reason, "the commit failed");
    let Some(back) = back else {
        let why = match on_failure {
            OnFailure::Rollback => "there is no older revision to go back to, so its rollouts are paused",
            OnFailure::None | OnFailure::Pause => "its rollouts are paused",
        };
        let message = format!("{reason}; {why}; `driftless sync {app} --retry` tries it again");
        context.event(EventKind::Warning, "CommitFailed", commit, &message);
        return;
    };
    let former = context.store().stack(app, back.number).ok().flatten();
    let is_new = |name: &&String| former.as_ref().is_some_and(|it| !it.volumes.contains_key(*name));
    let kept: Vec<&str> = stack.volumes.keys().filter(is_new).map(String::as_str).collect();
    let kept = if kept.is_empty() { String::new() } else { format!("; kept: volume {}", kept.join(", ")) };
    let message = format!(
        "{commit} failed ({reason}): back to revision {} ({}){kept}",
        back.number,
        back.commit.short()
    );
    context.event(EventKind::Warning, "RolledBack", app.as_str(), &message);
}

#[cfg(test)]
mod tests {
    use super::without_attempts;

    #[test]
    fn kept_reasons_have_no_attempts() {
        let sentence = "one.1 exited with code 3, attempt 5, next try 02:49:53 UTC; web cannot pull, attempt 1, next try 02:50:00 UTC";
        assert_eq!(without_attempts(sentence), "one.1 exited with code 3; web cannot pull");
        for other in
            ["no database, attempt 3", "it said, attempt x, next try now, attempt 2, next try later UTC", ""]
        {
            assert_eq!(without_attempts(other), other);
        }
    }
}
