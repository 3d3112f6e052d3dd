//! The logins of registries: from the configuration, and from `docker login` of the agent's own user.

use std::{path::PathBuf, sync::Arc};

use driftless_config::Settings;
use driftless_docker::RegistryLogins;
use driftless_git::{Lookup, read_secret};

/// The logins that the engine client may use. The file of `docker login` is searched where the Docker CLI has it:
/// `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
pub(crate) fn registries(settings: &Settings, environment: &Lookup) -> RegistryLogins {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("DOCKER_CONFIG").or_else(|| variable("HOME").map(|home| home.join(".docker")));
    let environment = Arc::clone(environment);
    RegistryLogins {
        configured: settings.registries.clone(),
        client: folder.map(|folder| folder.join("config.json")),
        read: Arc::new(move |secret| read_secret(secret, &environment)),
    }
}

/// Warns of `proxies` in the Docker client's file, which containers and builds had from it before.
pub(crate) fn warn_of_proxies(settings: &Settings, environment: &Lookup) {
    if let Some(file) = registries(settings, environment).file_with_proxies() {
        let file = file.display();
        tracing::warn!(%file, "`proxies` of the Docker client are not given to containers and builds; docs/adoption.md");
    }
}
