//! Who the agent is for registries: by its configuration, and by what `docker login` left for its own user.

use std::{path::PathBuf, sync::Arc};

use driftless_config::Settings;
use driftless_docker::RegistryLogins;
use driftless_git::{Lookup, read_secret};

/// The client's file is where the client itself looks for it.
pub(crate) fn registries(settings: &Settings, environment: &Lookup) -> RegistryLogins {
    let variable = |name: &str| environment(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let folder = variable("DOCKER_CONFIG").or_else(|| variable("HOME").map(|it| it.join(".docker")));
    let environment = Arc::clone(environment);
    RegistryLogins {
        configured: settings.registries.clone(),
        client: folder.map(|it| it.join("config.json")),
        read: Arc::new(move |secret| read_secret(secret, &environment)),
    }
}
