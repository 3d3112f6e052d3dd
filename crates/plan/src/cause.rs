//! Why a step is in a plan.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::is_variable;

/// Why a step is in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Git asks for it and it is not there.
    Missing,
    /// Its specification in Git is another.
    SpecChanged,
    /// Git asks for fewer.
    ScaledDown,
    /// Git does not ask for it any more.
    NotInGit,
    /// It was created and not yet started.
    NotStarted,
    /// We ended before we were done with its start.
    Interrupted,
    /// It ended by itself.
    Exited,
    /// The engine cannot start it again: another one takes its place.
    Unstartable,
    /// The engine went down in its last run and does not know how that ended: its work may be done twice.
    EndUnknown { why: String },
    /// It ended with code 0 before the engine started: it was done, or the engine's shutdown stopped it.
    EndedWithEngine,
    /// Its pod has done its work, or has failed for good.
    Over,
    /// A probe or health check failed for good.
    Unhealthy { reason: String },
    /// It keeps ending: held until its pause is over, or tried again after it.
    CrashLoop { attempt: u32 },
    /// Somebody changed it: the field, what was found and what is wanted.
    Drift { field: String, found: String, want: String },
    /// Somebody asked for a new rollout of the same.
    Restarted,
    /// Somebody asked for another in its place, at once.
    Deleted,
    /// The work that it is part of has come to its end.
    Finished { reason: String },
    /// Files that are rewritten in place, by where they are mounted, are others in Git.
    FilesChanged { files: Vec<String> },
    /// A dependency was replaced, and the manifest asks to follow it, or it shares something with it.
    DependencyReplaced { on: String },
    /// The container whose namespace it shares restarts, which replaces the namespace.
    DependencyRestarted { on: String },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::SpecChanged => f.write_str("spec changed"),
            Self::ScaledDown => f.write_str("scaled down"),
            Self::NotInGit => f.write_str("not in Git"),
            Self::NotStarted => f.write_str("not started"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Exited => f.write_str("exited"),
            Self::Unstartable => f.write_str("the engine cannot start it again"),
            Self::EndUnknown { why } => write!(f, "{why}: its work may be done twice"),
            Self::EndedWithEngine => {
                f.write_str("ended with code 0 before the engine started; a service that the engine stopped looks the same")
            }
            Self::Over => f.write_str("its pod is over"),
            Self::Unhealthy { reason } => write!(f, "unhealthy: {reason}"),
            Self::CrashLoop { attempt } => write!(f, "crash loop, attempt {attempt}"),
            Self::Drift { field, .. } if is_variable(field) => write!(f, "drift: {field} was changed"),
            Self::Drift { field, found, want } => write!(f, "drift: {field} is {found}, not {want}"),
            Self::Restarted => f.write_str("restart requested"),
            Self::Deleted => f.write_str("deletion requested"),
            Self::Finished { reason } => f.write_str(reason),
            Self::FilesChanged { files } => write!(f, "{} changed", files.join(", ")),
            Self::DependencyReplaced { on } => write!(f, "{on} was replaced"),
            Self::DependencyRestarted { on } => write!(f, "follows {on}"),
        }
    }
}
