//! A commit that is not applied yet, although nothing is wrong with it: it waits for a sync window, for another
//! application, or for the first hosts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_fleet::{AfterHold, AfterReason};
use driftless_model::{
    AppCondition, AppDependency, AppName, Application, CommitId, EventKind, ManagedApplications, Outcome,
    Policy, StatusCondition, SyncStatus, Timestamp, WaitStatus,
};
use driftless_plan::ClosedWindow;

use crate::desired::Desired;

/// The interval at which the applications are looked at that a commit waits for.
const LOOK_AT_DEPENDENCIES: Duration = Duration::from_secs(2);

/// The interval at which the first hosts are looked at.
const LOOK_AT_HOSTS: Duration = Duration::from_secs(5);

/// A commit that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldCommit {
    pub(crate) commit: CommitId,
    pub(crate) hold: Hold,
}

/// Why a commit is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Window(ClosedWindow),
    /// Another application is not where it has to be: what it lacks, in a few words.
    Dependency(String),
    /// The agent has no application of this name, so that the wait may have no end.
    UnknownDependency(AppName),
    /// The first hosts do not run the commit well, or not for long enough.
    FirstHosts(AfterHold),
}

impl HeldCommit {
    /// One line for people.
    pub(crate) fn sentence(&self, app: &AppName) -> String {
        let commit = self.commit.short();
        match &self.hold {
            Hold::Window(ClosedWindow { window, allows_manual, until }) => {
                let until = until.map(|at| format!(" until {at}")).unwrap_or_default();
                let manual = if *allows_manual {
                    format!("; `driftless sync {app}` applies it now")
                } else {
                    String::new()
                };
                format!("{commit} waits for a sync window{until}: {window}{manual}")
            }
            Hold::Dependency(what) => format!("{commit} waits for another application (`dependsOn`): {what}"),
            Hold::UnknownDependency(other) => format!(
                "{commit} waits for another application (`dependsOn`): {}: correct the name in Git, or add the application",
                missing(other)
            ),
            Hold::FirstHosts(AfterHold { reason: AfterReason::FirstHostFailed, message, .. }) => {
                format!("{commit} is held for a newer commit or image (`after`): {message}")
            }
            Hold::FirstHosts(AfterHold { message, until, .. }) => {
                let until = until.map(|at| format!(" until {at}")).unwrap_or_default();
                format!("{commit} waits for the first hosts (`after`){until}: {message}")
            }
        }
    }

    /// The reason of the condition `SyncAllowed`, in one word.
    pub(crate) fn reason(&self) -> &'static str {
        match &self.hold {
            Hold::Window(_) => "WindowClosed",
            Hold::Dependency(_) => "DependencyNotMet",
            Hold::UnknownDependency(_) => StatusCondition::DEPENDENCY_UNKNOWN,
            Hold::FirstHosts(hold) => hold.reason.as_str(),
        }
    }

    /// The wait in the status: for the first hosts, or for an application that the agent does not have.
    pub(crate) fn wait(&self, app: &AppName) -> Option<WaitStatus> {
        let until = match &self.hold {
            Hold::FirstHosts(hold) => hold.until,
            Hold::UnknownDependency(_) => None,
            Hold::Window(_) | Hold::Dependency(_) => return None,
        };
        Some(WaitStatus {
            reason: self.reason().to_owned(),
            object: app.to_string(),
            message: self.sentence(app),
            attempt: None,
            until,
        })
    }

    /// The reason of the event.
    pub(crate) fn event(&self) -> &'static str {
        match &self.hold {
            Hold::Window(_) => "SyncWindowClosed",
            Hold::Dependency(_) => "DependencyNotMet",
            Hold::UnknownDependency(_) => "DependencyUnknown",
            Hold::FirstHosts(hold) => hold.reason.as_str(),
        }
    }

    /// Whether somebody should look at it.
    pub(crate) fn kind(&self) -> EventKind {
        match &self.hold {
            Hold::UnknownDependency(_)
            | Hold::FirstHosts(AfterHold { reason: AfterReason::FirstHostFailed, .. }) => EventKind::Warning,
            Hold::Window(_) | Hold::Dependency(_) | Hold::FirstHosts(_) => EventKind::Normal,
        }
    }

    /// When to look again, if that is known.
    pub(crate) fn look_again(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.hold {
            Hold::Window(closed) => closed.until,
            Hold::Dependency(_) | Hold::UnknownDependency(_) => Some(now.after(LOOK_AT_DEPENDENCIES)),
            Hold::FirstHosts(AfterHold { reason: AfterReason::FirstHostFailed, .. }) => None,
            Hold::FirstHosts(hold) => {
                let next = now.after(LOOK_AT_HOSTS);
                Some(hold.until.map_or(next, |until| until.min(next)))
            }
        }
    }
}

/// The hold by the first unmet dependency, with the state that it lacks. It is judged by what the other application is now,
/// never by what it was when the commit came. So a newer commit of the other one that replaces the awaited one ends the
/// wait as well.
pub(crate) fn unmet_dependency(
    own: &AppName,
    policy: &Policy,
    desired: &Desired,
    applications: &BTreeMap<AppName, Arc<Application>>,
    managed: &ManagedApplications,
    is_first: impl Fn(&AppName) -> bool,
) -> Option<Hold> {
    let others = policy.depends_on.iter().filter(|dependency| dependency.app != *own);
    others.into_iter().find_map(|AppDependency { app, condition }| {
        let Some(other) = applications.get(app) else {
            // Until all repositories were read, it may be in another one.
            let hold = if managed.is_gone(app) {
                Hold::UnknownDependency(app.clone())
            } else {
                Hold::Dependency(missing(app))
            };
            return Some(hold);
        };
        let lacks = lack(other, *condition, desired).filter(|_| is_first(app));
        lacks.map(|what| Hold::Dependency(format!("{app} {what}")))
    })
}

fn missing(app: &AppName) -> String {
    format!("the agent has no application `{app}`")
}

/// The state that an application lacks for a condition, in a few words.
fn lack(other: &Application, condition: AppCondition, desired: &Desired) -> Option<String> {
    let status = &other.status;
    let newest = desired.commit();
    // In one repository both have to be at the same commit, also if it changes only one of them.
    let is_same_repository = other.spec.repository == desired.rendered().repository;
    let is_elsewhere = status.commit.as_ref().is_none_or(|commit| commit.id != newest.id);
    if is_same_repository && is_elsewhere {
        let at = status
            .commit
            .as_ref()
            .map_or_else(|| "at no commit yet".to_owned(), |it| format!("at {}", it.short()));
        return Some(format!("is {at}"));
    }
    let outcome = status.operation.as_ref().and_then(|operation| operation.outcome.as_ref());
    if status.sync != SyncStatus::Synced || outcome.is_some_and(|outcome| *outcome != Outcome::Succeeded) {
        return Some("is not synced".to_owned());
    }
    match condition {
        AppCondition::Ready => None,
        AppCondition::Healthy => (!other.is_well()).then(|| format!("is {:?}", status.health)),
        AppCondition::Completed => {
            let jobs = status.workloads.iter().filter(|(_, it)| it.job.is_some() && it.hook.is_none());
            let open = jobs.into_iter().find(|(_, it)| it.reason != "Completed");
            open.map(|(name, _)| format!("has the Job {name}, which has not completed"))
        }
    }
}
