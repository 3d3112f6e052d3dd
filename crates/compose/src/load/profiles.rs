//! Compose profiles: which are active, and which services they activate.

use driftless_files::AppSpec;
use driftless_yaml::Node;

use crate::load::variables::Variables;

/// The profiles of the settings, or else of `COMPOSE_PROFILES`.
pub(crate) fn active_profiles(spec: &AppSpec, variables: &Variables) -> Vec<String> {
    if !spec.profiles.is_empty() {
        return spec.profiles.clone();
    }
    let listed = variables.get("COMPOSE_PROFILES").unwrap_or_default();
    listed.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// Whether a service is used with these profiles.
pub(crate) fn is_active(service: &Node, profiles: &[String]) -> bool {
    let own = service.get("profiles").map(Node::items).unwrap_or_default();
    let is_on = |name: &str| profiles.iter().any(|profile| profile == "*" || profile == name);
    own.is_empty() || own.iter().filter_map(Node::as_scalar).any(is_on)
}
