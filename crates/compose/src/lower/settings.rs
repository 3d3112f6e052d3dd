//! Settings of a service that need another part of the file, a file of the repository, or a variable: links, MAC
//! addresses, seccomp profiles, label files, variables of hooks.

use std::{cmp::Reverse, collections::BTreeMap};

use driftless_model::{Attachment, Condition, Container, Finding, Mask, NetworkMode, PullPolicy};

use crate::{
    lower::{context::Lowering, environment::label_file},
    read::{
        fields::REFRESH,
        types::{DependsOn, HookKind, Joined, Link, Service},
    },
    spec::{normalise::DEFAULT_NETWORK, paths, value::Placed},
};

impl Lowering<'_> {
    pub(crate) fn settings(&mut self, key: &str, service: &Service, container: &mut Container) {
        container.security_opt = self.security(service);
        self.label_files(service, container);
        self.hook_variables(service, container);
        self.links(key, service, container);
        self.mac_address(service, container);
        let limits = &container.resources;
        let has_quota = limits.cpu_quota.is_some() || limits.cpu_period.is_some();
        if limits.nano_cpus.is_some() && has_quota {
            let message = "`cpus` and `cpu_quota` or `cpu_period` exclude each other: they are one limit";
            let finding = Finding::error(service.origin.clone(), format!("services.{key}"), message);
            self.findings.push(finding);
        }
        container.host.device_requests.extend(service.deploy.devices.iter().cloned());
    }

    /// The pull policy. `pull_refresh_after` sets the age for `pull_policy: refresh`.
    pub(crate) fn pull(service: &Service) -> PullPolicy {
        match (service.pull, service.refresh_after) {
            (Some(PullPolicy::Every(REFRESH)), Some(age)) => PullPolicy::Every(age),
            (Some(policy), _) => policy,
            (None, _) => PullPolicy::IfNotPresent,
        }
    }

    /// The security options. A seccomp profile is read from the repository, because the engine takes its content.
    fn security(&mut self, service: &Service) -> Vec<String> {
        let mut options = Vec::with_capacity(service.security.len());
        for option in &service.security {
            let profile = option.value.split_once(['=', ':']).filter(|(name, value)| {
                *name == "seccomp"
                    && !matches!(*value, "unconfined" | "builtin")
                    && !value.trim_start().starts_with('{')
            });
            let Some((_, path)) = profile else {
                options.push(option.value.clone());
                continue;
            };
            let text = self.files_to_mount.text(path).and_then(|text| {
                let json: serde_json::Value = serde_json::from_str(&text)
                    .map_err(|error| format!("`{path}` is not a seccomp profile: {error}"))?;
                Ok(format!("seccomp={json}"))
            });
            match text {
                Ok(option) => options.push(option),
                Err(message) => self.findings.push(option.error(message)),
            }
        }
        options
    }

    /// Labels of the service count before those of its `label_file`s. Values of an encrypted file are secret, as those of an
    /// encrypted `env_file` are.
    fn label_files(&mut self, service: &Service, container: &mut Container) {
        let mut labels = BTreeMap::new();
        for file in &service.label_files {
            match label_file(self.variables, self.files, self.folder, file, self.texts, self.findings) {
                Ok(found) => {
                    let path = paths::join(self.folder, &file.value.path);
                    if path.is_some_and(|path| self.files.is_encrypted(&path)) {
                        let secret = found.values().filter(|value| Mask::is_findable(value));
                        self.secret_values.extend(secret.cloned());
                    }
                    labels.extend(found);
                }
                Err(finding) => self.findings.push(finding),
            }
        }
        labels.append(&mut container.labels);
        container.labels = labels;
    }

    fn hook_variables(&mut self, service: &Service, container: &mut Container) {
        for variable in &service.hook_variables {
            let settings = &mut container.host;
            let hooks = match variable.hook {
                HookKind::PostStart => &mut settings.post_start,
                HookKind::PreStop => &mut settings.pre_stop,
            };
            let place = || service.origin.clone();
            let value = self.variables.take(&variable.name, place, self.texts, self.findings);
            if let (Some(hook), Some(value)) = (hooks.get_mut(variable.index), value) {
                hook.env.insert(variable.name.clone(), value);
            }
        }
    }

    /// A link is a name for one container, on each network that both services have. It points at the name of the service,
    /// so it outlives the containers of the service.
    fn links(&mut self, key: &str, service: &Service, container: &mut Container) {
        let NetworkMode::Networks(networks) = &mut container.network_mode else {
            let Some(link) = service.links.iter().chain(&service.external_links).next() else { return };
            self.findings.push(match container.network_mode {
                NetworkMode::Bridge => link
                    .error(
                        "links on the engine's default bridge are not supported: the name would not resolve",
                    )
                    .help("remove `network_mode`: services of the project's network find each other by name"),
                _ => link.warning("links have no effect without a network of this project"),
            });
            return;
        };
        for link in &service.links {
            let Link { name, alias } = &link.value;
            let Some(other) = self.project.services.get(name) else {
                self.findings.push(link.error(format!("links to undefined service `{name}`")));
                continue;
            };
            let is_shared = |network: &&Placed<Joined>| {
                other
                    .networks
                    .as_ref()
                    .is_some_and(|all| all.iter().any(|it| it.value.network == network.value.network))
            };
            let own = service.networks.as_deref().unwrap_or_default();
            let is_default = own.is_empty() && other.networks.as_ref().is_none_or(Vec::is_empty);
            if !is_default && !own.iter().any(|it| is_shared(&it)) {
                self.findings.push(
                    link.warning(format!("shares no network with `{name}`, so the link does not resolve")),
                );
            }
            if alias != name && name != key {
                add_link(networks, name, alias);
            }
        }
        for link in &service.external_links {
            add_link(networks, &link.value.name, &link.value.alias);
        }
    }

    /// The MAC address of a service is the address on its first network: as in Docker Compose, that of the highest priority, and
    /// of several the first key.
    fn mac_address(&mut self, service: &Service, container: &mut Container) {
        let Some(address) = &service.mac_address else { return };
        let NetworkMode::Networks(networks) = &mut container.network_mode else {
            self.findings.push(address.warning("has no effect without a network of this project"));
            return;
        };
        let joined = service.networks.iter().flatten().map(|joined| &joined.value);
        let first = joined.max_by_key(|&joined| (joined.attachment.priority, Reverse(&joined.network)));
        let first = self.network_name(first.map_or(DEFAULT_NETWORK, |joined| joined.network.as_str()));
        if let Some(attachment) = networks.get_mut(&first) {
            match &attachment.mac_address {
                Some(other) if *other != address.value => {
                    let message = format!("differs from the `mac_address` on the network `{first}`");
                    self.findings.push(address.error(message));
                }
                Some(_) | None => attachment.mac_address = Some(address.value.clone()),
            }
        }
    }

    /// The dependencies that links imply: a linked service starts first, and a service that links to it restarts with it.
    pub(crate) fn linked(service: &Service) -> impl Iterator<Item = Placed<DependsOn>> {
        service.links.iter().map(|link| Placed {
            value: DependsOn {
                service: link.value.name.clone(),
                condition: Condition::Started,
                required: true,
                restart: true,
            },
            place: link.place.clone(),
            path: link.path.clone(),
        })
    }
}

fn add_link(networks: &mut BTreeMap<String, Box<Attachment>>, name: &str, alias: &str) {
    for attachment in networks.values_mut() {
        attachment.links.push(format!("{name}:{alias}"));
        attachment.links.sort_unstable();
        attachment.links.dedup();
    }
}
