//! The names of the annotations that order a sync.

pub(super) const HOOKS: [&str; 2] = ["argocd.argoproj.io/hook", "driftless.hook"];
pub(super) const WAVES: [&str; 2] = ["argocd.argoproj.io/sync-wave", "driftless.wave"];
pub(super) const DELETE_POLICY: &str = "argocd.argoproj.io/hook-delete-policy";

/// The only delete policy that is supported: containers are kept until the next attempt.
pub(super) const BEFORE_CREATION: &str = "BeforeHookCreation";

/// Whether an annotation of an object has an effect.
pub(super) fn is_known(annotation: &str) -> bool {
    HOOKS.contains(&annotation) || WAVES.contains(&annotation) || annotation == DELETE_POLICY
}
