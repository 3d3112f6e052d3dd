//! The effective configuration of a container on an image, in a normal form: equal containers are equal values.
//! It applies only Docker's own rules; the planner decides which differences matter.

use std::{collections::BTreeMap, time::Duration};

use super::{Container, Healthcheck, Mount, MountSource, NetworkMode};

impl Container {
    /// The configuration that the engine gives the container on an image with these defaults, in normal form: values that the
    /// engine adds by itself are left out, so that equal containers are equal values. `docker` reads containers in this form.
    #[must_use]
    pub fn effective(&self, defaults: &Self) -> Self {
        let mut all = self.clone();
        let given = |it: &Option<Vec<String>>| it.clone().filter(|it| !it.is_empty());
        all.command = given(&self.command);
        if self.entrypoint.is_none() {
            all.entrypoint.clone_from(&defaults.entrypoint);
        }
        // An empty entry point takes away the image's, and not its command.
        if self.entrypoint.as_ref().is_none_or(Vec::is_empty) {
            all.command = all.command.or_else(|| defaults.command.clone());
        }
        all.entrypoint = given(&all.entrypoint);
        all.env = defaults.env.clone();
        all.env.extend(self.env.clone());
        all.env.retain(|_, value| value.is_some());
        all.labels = defaults.labels.clone();
        all.labels.extend(self.labels.clone());
        all.user = all.user.filter(|it| !it.is_empty()).or_else(|| defaults.user.clone());
        all.working_dir =
            all.working_dir.filter(|it| !it.is_empty()).or_else(|| defaults.working_dir.clone());
        all.stop_signal = all.stop_signal.or_else(|| defaults.stop_signal.clone());
        // Docker counts in whole seconds, rounded up so that nobody gets less than was asked for.
        all.stop_grace_period = all
            .stop_grace_period
            .map(|it| Duration::from_secs(it.as_secs() + u64::from(it.subsec_nanos() > 0)));
        all.ports.sort_unstable();
        all.expose.extend(defaults.expose.iter().copied());
        all.expose.sort_unstable();
        all.expose.dedup();
        all.expose.retain(|it| self.ports.iter().all(|port| (port.container, port.protocol) != *it));
        all.mounts = effective_mounts(&self.mounts, &defaults.mounts);
        all.healthcheck = match (&self.healthcheck, &defaults.healthcheck) {
            (Some(own), Some(image)) => Some(own.with_defaults(image)),
            (own, image) => own.clone().or_else(|| image.clone()),
        };
        if all.network_mode == NetworkMode::Networks(BTreeMap::new()) {
            all.network_mode = NetworkMode::None;
        }
        // Docker makes the host name an alias on every network, asked or not.
        if let NetworkMode::Networks(networks) = &mut all.network_mode {
            for attachment in networks.values_mut() {
                attachment.aliases.retain(|it| Some(it) != self.hostname.as_ref());
                // Of the moment of creation only: nothing tells afterwards who was joined first.
                attachment.priority = 0;
            }
        }
        // On the host's network Docker writes the host's name over ours; on another container's, that one's.
        if matches!(self.network_mode, NetworkMode::Host | NetworkMode::Of(_)) {
            all.hostname = None;
        }
        all.resources = all.resources.normal();
        all.resources.memory_swap =
            all.resources.memory_swap.filter(|it| *it != 0 && Some(*it) != twice(self.resources.memory));
        all.resources.pids = all.resources.pids.filter(|it| *it > 0);
        all.shm_size = all.shm_size.filter(|it| *it != 64 << 20);
        all.ipc_mode = all.ipc_mode.filter(|it| *it != "private".into());
        for list in [&mut all.cap_add, &mut all.cap_drop, &mut all.extra_hosts] {
            list.sort_unstable();
        }
        all.devices.sort_unstable();
        // Docker cleans the path of a mount, so `/data/` is `/data`.
        let options = std::mem::take(&mut all.host.mount_options).into_iter();
        all.host.mount_options = options.map(|(target, it)| (clean(&target), it)).collect();
        all
    }
}

impl Healthcheck {
    /// The image's own values stand where none is given.
    fn with_defaults(&self, image: &Self) -> Self {
        Self {
            test: if self.test.is_empty() { image.test.clone() } else { self.test.clone() },
            interval: self.interval.or(image.interval),
            timeout: self.timeout.or(image.timeout),
            retries: self.retries.or(image.retries),
            start_period: self.start_period.or(image.start_period),
            start_interval: self.start_interval.or(image.start_interval),
        }
    }
}

/// Swap is as large as memory unless it is limited itself, so together they are twice the memory.
fn twice(memory: Option<u64>) -> Option<i64> {
    memory.and_then(|it| i64::try_from(it).ok()).map(|it| it.saturating_mul(2))
}

/// Mounts in normal form. Files of the repository are always mounted read-only, and only the short form of a bind mount
/// supports `SELinux` labels; it creates missing folders. Volumes of the image without a mount are anonymous.
fn effective_mounts(own: &[Mount], image: &[Mount]) -> Vec<Mount> {
    let cleaned = |it: &Mount| (clean(&it.target), Mount { target: clean(&it.target), ..it.clone() });
    let mut all: BTreeMap<String, Mount> = image.iter().chain(own).map(cleaned).collect();
    for mount in all.values_mut() {
        match &mut mount.source {
            MountSource::Content(_) | MountSource::Secret(_) | MountSource::InPlace { .. } => {
                mount.read_only = true;
            }
            MountSource::Bind { create, selinux: Some(_), .. } => *create = true,
            MountSource::Bind { .. }
            | MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Image(_)
            | MountSource::Empty
            | MountSource::Tmpfs { .. }
            | MountSource::AppFolder(_) => {}
        }
    }
    all.into_values().collect()
}

/// The engine cleans the path that it is given, so `/data/` is `/data`.
fn clean(target: &str) -> String {
    match target.trim_end_matches('/') {
        "" => "/".to_owned(),
        target => target.to_owned(),
    }
}
