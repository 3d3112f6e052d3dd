//! The settings of a container beyond the defaults of its image: the inverse of [`Container::effective`].

use driftless_model::{Container, MountSource};

/// The container without what its image gives it anyway.
pub(super) fn without_defaults(config: &Container, defaults: &Container) -> Container {
    let mut own = config.clone();
    if own.entrypoint == defaults.entrypoint {
        own.entrypoint = None;
    } else if own.entrypoint.is_none() {
        own.entrypoint = Some(Vec::new());
    }
    if own.entrypoint.as_ref().is_none_or(Vec::is_empty) && own.command == defaults.command {
        own.command = None;
    }
    own.env.retain(|name, value| defaults.env.get(name) != Some(value));
    for name in defaults.env.keys().filter(|name| !config.env.contains_key(*name)) {
        own.env.insert(name.clone(), None);
    }
    own.labels.retain(|name, value| defaults.labels.get(name) != Some(value));
    for (own, default) in [
        (&mut own.user, &defaults.user),
        (&mut own.working_dir, &defaults.working_dir),
        (&mut own.stop_signal, &defaults.stop_signal),
    ] {
        if own == default {
            *own = None;
        }
    }
    own.expose.retain(|port| !defaults.expose.contains(port));
    let is_of_image = |target: &str| defaults.mounts.iter().any(|mount| mount.target == target);
    own.mounts.retain(|mount| mount.source != MountSource::Anonymous || !is_of_image(&mount.target));
    if own.healthcheck == defaults.healthcheck {
        own.healthcheck = None;
    }
    own
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use driftless_model::{Mount, Protocol};

    use super::*;

    #[test]
    fn defaults_of_the_image_are_left_out_and_come_back() {
        let words = |text: &str| Some(text.split(' ').map(str::to_owned).collect());
        let variable = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let anonymous = |target: &str| Mount {
            target: target.to_owned(),
            source: MountSource::Anonymous,
            read_only: false,
        };
        let defaults = Container {
            entrypoint: words("/entry"),
            command: words("serve"),
            env: BTreeMap::from([variable("PATH", "/bin"), variable("LANG", "C")]),
            user: Some("app".to_owned()),
            labels: BTreeMap::from([("vendor".to_owned(), "x".to_owned())]),
            expose: vec![(80, Protocol::Tcp)],
            mounts: vec![anonymous("/data")],
            ..Container::default()
        };
        let own = Container {
            image: "web:1".to_owned(),
            command: words("serve --fast"),
            env: BTreeMap::from([variable("LANG", "de"), variable("TZ", "UTC")]),
            mounts: vec![anonymous("/cache")],
            network_mode: driftless_model::NetworkMode::Bridge,
            ..Container::default()
        };
        let running = own.effective(&defaults);
        assert_ne!(running, own);
        assert_eq!(without_defaults(&running, &defaults), own);
        let bare = Container { entrypoint: Some(Vec::new()), command: None, ..own };
        assert_eq!(without_defaults(&bare.effective(&defaults), &defaults), bare);
    }
}
