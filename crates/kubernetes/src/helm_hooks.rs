//! The hooks of Helm charts in the output of `helm template`, mapped as by Argo CD.

use std::collections::BTreeSet;

use driftless_model::HookPhase;

/// The phases in which a hook with this annotation runs. Empty: only for events that do not exist here, such as `helm test`.
/// `None`: it is no hook for a sync, but an object like any other.
pub(super) fn phases(events: &str) -> Option<BTreeSet<HookPhase>> {
    let events = events.to_ascii_lowercase();
    if events.trim() == "crd-install" {
        return None;
    }
    Some(events.split(',').filter_map(|event| phase(event.trim())).collect())
}

fn phase(event: &str) -> Option<HookPhase> {
    match event {
        "pre-install" | "pre-upgrade" => Some(HookPhase::PreSync),
        "post-install" | "post-upgrade" => Some(HookPhase::PostSync),
        "pre-delete" => Some(HookPhase::PreDelete),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_helm_have_the_phases_of_argo_cd() {
        let of = |events: &str| phases(events).map(|all| all.into_iter().collect::<Vec<_>>());
        assert_eq!(of("pre-install,pre-upgrade"), Some(vec![HookPhase::PreSync]));
        assert_eq!(of("Post-Install, post-upgrade"), Some(vec![HookPhase::PostSync]));
        assert_eq!(of("pre-delete"), Some(vec![HookPhase::PreDelete]));
        assert_eq!(of("post-install,pre-upgrade"), Some(vec![HookPhase::PreSync, HookPhase::PostSync]));
        for events in ["test", "test-success", "pre-rollback,post-rollback", "post-delete", ""] {
            assert_eq!(of(events), Some(Vec::new()), "{events}");
        }
        assert_eq!(of("test,post-upgrade"), Some(vec![HookPhase::PostSync]));
        assert_eq!(of("crd-install"), None);
    }
}
