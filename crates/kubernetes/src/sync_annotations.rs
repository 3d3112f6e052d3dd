//! The names of the annotations that order a sync, update images, name ignored differences, give a Deployment a canary, or give a
//! Service a proxy.

pub(super) const HOOKS: [&str; 2] = ["argocd.argoproj.io/hook", "driftless.hook"];
pub(super) const WAVES: [&str; 2] = ["argocd.argoproj.io/sync-wave", "driftless.wave"];
pub(super) const IGNORE_DIFFERENCES: &str = "driftless.ignore-differences";
pub(super) const CANARY: &str = "driftless.canary";
pub(super) const DELETE_POLICY: &str = "argocd.argoproj.io/hook-delete-policy";

/// The only delete policy that is supported: containers are kept until the next attempt.
pub(super) const BEFORE_CREATION: &str = "BeforeHookCreation";

/// The same settings in the output of a Helm chart. They count as for Argo CD.
pub(super) const HELM_HOOK: &str = "helm.sh/hook";
pub(super) const HELM_WEIGHT: &str = "helm.sh/hook-weight";
pub(super) const HELM_DELETE_POLICY: &str = "helm.sh/hook-delete-policy";
pub(super) const HELM_BEFORE_CREATION: &str = "before-hook-creation";

/// Image updates: one word or a range of versions, and the settings that go with a range.
pub(super) const UPDATE: &str = "driftless.update";
pub(super) const UPDATE_TAGS: &str = "driftless.update-tags";
pub(super) const UPDATE_MIN_AGE: &str = "driftless.update-min-age";
pub(super) const UPDATE_EVERY: &str = "driftless.update-every";

/// On a Service: a proxy has its names, also where names alone would do.
pub(super) const PROXY: &str = "driftless.proxy";

/// Whether an annotation says when an object is applied.
pub(super) fn is_order(annotation: &str) -> bool {
    let others = [DELETE_POLICY, HELM_HOOK, HELM_WEIGHT, HELM_DELETE_POLICY];
    HOOKS.contains(&annotation) || WAVES.contains(&annotation) || others.contains(&annotation)
}

/// Whether an annotation says how newer images are followed.
pub(super) fn is_update(annotation: &str) -> bool {
    [UPDATE, UPDATE_TAGS, UPDATE_MIN_AGE, UPDATE_EVERY].contains(&annotation)
}

/// Whether an annotation of any object has an effect.
pub(super) fn is_known(annotation: &str) -> bool {
    is_order(annotation) || is_update(annotation) || [IGNORE_DIFFERENCES, CANARY].contains(&annotation)
}
