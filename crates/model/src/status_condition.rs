//! Conditions of applications and workloads, and whether one is a problem.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// As in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// The word of a [`ConditionType`], or of one that only another version of the agent knows.
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ConditionStatus,
    /// One word in camel case.
    pub reason: String,
    pub message: String,
    pub last_transition_time: Timestamp,
}

/// The status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// The effect of a condition on the newest commit, while it is a problem.
#[derive(PartialEq, Eq)]
enum ProblemEffect {
    /// The commit is not applied.
    KeepsBack,
    /// The commit is applied all the same.
    Informs,
}

macro_rules! condition_types {
    ($($(#[$doc:meta])* $kind:ident: $well:ident, $effect:ident;)*) => {
        /// The types of conditions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ConditionType {
            $($(#[$doc])* $kind,)*
        }

        impl ConditionType {
            /// All types. Those of applications have an anchor in `docs/troubleshooting.md`.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word in the status, such as `SourceReady`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            /// Whether all is well with this status of the condition.
            pub fn is_well(self, status: ConditionStatus) -> bool {
                let well = match self {
                    $(Self::$kind => ConditionStatus::$well,)*
                };
                status == well
            }

            /// Whether the newest commit is not applied while the condition is a problem.
            pub fn keeps_commit_back(self) -> bool {
                let effect = match self {
                    $(Self::$kind => ProblemEffect::$effect,)*
                };
                effect == ProblemEffect::KeepsBack
            }
        }
    };
}

// Each with its status while all is well, and with its effect otherwise. A type that is named after a problem is well while it is
// `False`.
condition_types! {
    /// The repository was fetched.
    SourceReady: True, Informs;
    /// The manifests of the newest commit have no errors.
    Rendered: True, KeepsBack;
    /// The containers of the application carry the id of another agent.
    OwnedByAnotherAgent: False, KeepsBack;
    /// Git has the application.
    InGit: True, KeepsBack;
    /// Pins or suspensions may be lost.
    StateLost: False, KeepsBack;
    /// A poll found a commit that no webhook announced.
    WebhookMissed: False, Informs;
    /// The forge takes commit statuses.
    CommitStatusPosted: True, Informs;
    /// The newest commit is accepted.
    Trusted: True, KeepsBack;
    /// The newest commit failed.
    CommitFailed: False, KeepsBack;
    /// The newest commit need not wait for a sync window, another application or the first hosts.
    SyncAllowed: True, KeepsBack;
    /// The engine accepted the actions.
    Applied: True, Informs;
    /// The same field was healed again and again.
    RepeatedDrift: False, Informs;
    /// Healing a field has no effect.
    HealIneffective: False, Informs;
    /// A workload has the instances that it needs at least.
    Available: True, Informs;
    /// A rollout of a workload goes on or is complete.
    Progressing: True, Informs;
    /// Instances of a workload cannot be created.
    ReplicaFailure: False, Informs;
}

impl Statement {
    pub fn new(status: ConditionStatus, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    /// The condition of this type. Its time stays as long as its status does.
    pub fn condition(
        self,
        kind: ConditionType,
        before: &[StatusCondition],
        now: Timestamp,
    ) -> StatusCondition {
        let same = before.iter().find(|known| known.is_of(kind) && known.status == self.status);
        StatusCondition {
            kind: kind.as_str().to_owned(),
            status: self.status,
            reason: self.reason.to_owned(),
            message: self.message,
            last_transition_time: same.map_or(now, |known| known.last_transition_time),
        }
    }
}

impl StatusCondition {
    /// The reason of `CommitFailed` while an older version runs.
    pub const ROLLED_BACK: &str = "RolledBack";

    /// The reason of `SyncAllowed` while the commit waits for an application that the agent does not have.
    pub const DEPENDENCY_UNKNOWN: &str = "DependencyUnknown";

    /// Whether the condition is of this type.
    pub fn is_of(&self, kind: ConditionType) -> bool {
        self.kind == kind.as_str()
    }

    /// Whether the condition says that something is wrong. One of an unknown type counts as named after a problem.
    pub fn is_problem(&self) -> bool {
        match ConditionType::ALL.iter().find(|kind| self.is_of(**kind)) {
            Some(kind) => !kind.is_well(self.status),
            None => self.status != ConditionStatus::False,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_condition_stays_while_its_status_does() {
        let condition = |status, before: &[StatusCondition], now| {
            Statement::new(status, "Reason", "message").condition(ConditionType::Available, before, now)
        };
        let first = condition(ConditionStatus::True, &[], Timestamp(1));
        assert_eq!(first.last_transition_time, Timestamp(1));
        let before = [first];
        let same = condition(ConditionStatus::True, &before, Timestamp(2));
        assert_eq!(same.last_transition_time, Timestamp(1));
        let other = condition(ConditionStatus::False, &before, Timestamp(2));
        assert_eq!(other.last_transition_time, Timestamp(2));
    }

    #[test]
    fn condition_is_a_problem_by_its_kind_and_status() {
        let is_problem = |kind: &str, status| {
            let condition = StatusCondition {
                kind: kind.to_owned(),
                status,
                reason: String::new(),
                message: String::new(),
                last_transition_time: Timestamp(1),
            };
            condition.is_problem()
        };
        for kind in ["SourceReady", "Rendered", "Trusted", "InGit", "SyncAllowed", "Applied", "Available"] {
            assert!(!is_problem(kind, ConditionStatus::True), "{kind}");
            assert!(is_problem(kind, ConditionStatus::False), "{kind}");
        }
        for kind in ["CommitFailed", "RepeatedDrift", "StateLost", "OwnedByAnotherAgent", "WebhookMissed"] {
            assert!(is_problem(kind, ConditionStatus::True), "{kind}");
            assert!(!is_problem(kind, ConditionStatus::False), "{kind}");
        }
        assert!(is_problem("OfALaterVersion", ConditionStatus::True));
        assert!(!is_problem("OfALaterVersion", ConditionStatus::False));
    }
}
