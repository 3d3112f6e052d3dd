//! The rule for failures of an update, and its consequence: `deploy.update_config` and `deploy.rollback_config` of Compose.

use serde::{Deserialize, Serialize};

use super::OnFailure;
use crate::defaults::is_default;

/// The failures of instances that an update of one workload tolerates, and what follows if there are more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRule {
    /// `failure_action`. `None`: `onFailure` of the application decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub action: Option<FailureAction>,
    /// `max_failure_ratio` in millionths. `None`: not given, which is 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_ratio: Option<u32>,
}

/// The consequence of a failed update of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureAction {
    /// The rollouts of the application pause.
    Pause,
    /// The update goes on with the next instances.
    Continue,
    /// The application goes back to the last revision that succeeded.
    Rollback,
}

/// The whole of [`FailureRule::max_ratio`].
const WHOLE: u64 = 1_000_000;

impl FailureRule {
    /// Whether the manifest says anything about failures.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// The consequence of a failed update. `general` is that of the application.
    pub fn on_failure(&self, general: OnFailure) -> OnFailure {
        self.action.map_or(general, FailureAction::consequence)
    }

    /// The number of instances that may fail without a failure of the update.
    pub fn tolerated(&self, replicas: u32) -> usize {
        let ratio = u64::from(self.max_ratio.unwrap_or_default());
        usize::try_from(u64::from(replicas) * ratio / WHOLE).unwrap_or(usize::MAX)
    }

    /// `max_failure_ratio` as people write it: `0.25`.
    pub fn ratio(&self) -> String {
        (f64::from(self.max_ratio.unwrap_or_default()) / 1e6).to_string()
    }
}

impl FailureAction {
    /// The same for an application.
    pub fn consequence(self) -> OnFailure {
        match self {
            Self::Pause => OnFailure::Pause,
            Self::Continue => OnFailure::None,
            Self::Rollback => OnFailure::Rollback,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerated_failures_are_rounded_down() {
        let of =
            |ratio: u32, replicas| FailureRule { action: None, max_ratio: Some(ratio) }.tolerated(replicas);
        assert_eq!([of(250_000, 3), of(250_000, 4), of(500_000, 5), of(1_000_000, 3)], [0, 1, 2, 3]);
        assert_eq!(FailureRule::default().tolerated(1000), 0);
        assert_eq!(FailureRule { action: None, max_ratio: Some(250_000) }.ratio(), "0.25");
    }

    #[test]
    fn action_of_a_service_decides_over_the_application() {
        let rule = |action| FailureRule { action, max_ratio: None };
        assert_eq!(rule(None).on_failure(OnFailure::Rollback), OnFailure::Rollback);
        assert_eq!(rule(Some(FailureAction::Continue)).on_failure(OnFailure::Rollback), OnFailure::None);
        assert_eq!(rule(Some(FailureAction::Pause)).on_failure(OnFailure::None), OnFailure::Pause);
        assert!(!rule(None).is_given());
    }
}
