//! The rules of an admission policy, and what the trust sets where a rule is not given.

use std::collections::BTreeSet;

use super::ports::PortRule;
use crate::SignatureRule;

/// The rules of one application (`policy:` in the configuration). `None` allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// The trust in those who may push. It sets what is not given.
    pub trust: Trust,
    /// Privileged containers and privileged hooks.
    pub privileged: Option<bool>,
    /// Containers without seccomp, `AppArmor`, `SELinux` or the masks of `/proc`, and annotations for runtimes.
    pub unconfined: Option<bool>,
    /// Namespaces of the host that containers may share: `network`, `pid`, `ipc`, `user`, `uts`, `cgroup`.
    pub host_namespaces: Option<BTreeSet<String>>,
    /// Capabilities that may be added, without `CAP_`; `*` is any text.
    pub capabilities: Option<BTreeSet<String>>,
    /// Devices of the host that containers may have, by path or by the name of a driver; `*` is any text.
    pub devices: Option<BTreeSet<String>>,
    /// Paths of the host that may be mounted: `/srv/media` alone, `/srv/**` with everything below, `:ro` read-only.
    pub bind_mounts: Option<BTreeSet<String>>,
    /// Images, as `registry/name:tag`; `*` is any text.
    pub images: Option<BTreeSet<String>>,
    /// Images need a digest.
    pub require_digests: Option<bool>,
    /// Limits that each container needs: `memory`, `cpus`, `pids`.
    pub require_limits: Option<BTreeSet<String>>,
    /// Ports and addresses of the host that may be published.
    pub ports: Option<Vec<PortRule>>,
    /// Commands and requests after the start and before the stop of containers.
    pub hooks: Option<bool>,
    /// Builds of images.
    pub builds: Option<bool>,
    /// External networks by name; `*` is any text.
    pub external_networks: Option<BTreeSet<String>>,
    /// External volumes by name; `*` is any text.
    pub external_volumes: Option<BTreeSet<String>>,
    /// External configs of a Swarm by name; `*` is any text.
    pub external_configs: Option<BTreeSet<String>>,
    /// External secrets of a Swarm by name; `*` is any text.
    pub external_secrets: Option<BTreeSet<String>>,
    /// Networks, volumes, containers, configs and secrets of other applications.
    pub other_applications: Option<bool>,
    /// Images that must be signed. The agent checks it before it deploys them.
    pub verify_images: Option<Vec<SignatureRule>>,
    /// Signed commits. The configuration must then have `verify`.
    pub signed_commits: Option<bool>,
    /// Paths of the host that give control over it: the agent's folders and the sockets of engines.
    pub protected: BTreeSet<String>,
}

/// The trust in those who may push to a repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// They may do what `root` on the host may do. Nothing is forbidden that is not written down.
    #[default]
    Full,
    /// They must not get control over the host or other applications.
    Limited,
}

impl AdmissionPolicy {
    /// The sockets and folders that control a host, wherever the agent's own are.
    pub const PROTECTED: &'static [&'static str] = &[
        "/run/docker.sock",
        "/run/podman/podman.sock",
        "/run/containerd/containerd.sock",
        "/var/lib/docker",
        "/var/lib/containerd",
        "/var/lib/driftless",
        "/run/driftless",
        "/etc/driftless",
    ];

    /// A policy whose missing rules are those of the outer one.
    #[must_use]
    pub fn within(self, outer: &Self) -> Self {
        let o = outer.clone();
        Self {
            trust: self.trust,
            privileged: self.privileged.or(o.privileged),
            unconfined: self.unconfined.or(o.unconfined),
            host_namespaces: self.host_namespaces.or(o.host_namespaces),
            capabilities: self.capabilities.or(o.capabilities),
            devices: self.devices.or(o.devices),
            bind_mounts: self.bind_mounts.or(o.bind_mounts),
            images: self.images.or(o.images),
            require_digests: self.require_digests.or(o.require_digests),
            require_limits: self.require_limits.or(o.require_limits),
            ports: self.ports.or(o.ports),
            hooks: self.hooks.or(o.hooks),
            builds: self.builds.or(o.builds),
            external_networks: self.external_networks.or(o.external_networks),
            external_volumes: self.external_volumes.or(o.external_volumes),
            external_configs: self.external_configs.or(o.external_configs),
            external_secrets: self.external_secrets.or(o.external_secrets),
            other_applications: self.other_applications.or(o.other_applications),
            verify_images: self.verify_images.or(o.verify_images),
            signed_commits: self.signed_commits.or(o.signed_commits),
            protected: self.protected.union(&o.protected).cloned().collect(),
        }
    }

    /// Whether other applications' networks, volumes and containers may be used.
    pub fn allows_other_applications(&self) -> bool {
        self.allows(self.other_applications)
    }

    /// Whether not every path of the host may be mounted.
    pub fn restricts_bind_mounts(&self) -> bool {
        self.list(self.bind_mounts.as_ref()).is_some()
    }

    /// A rule of yes or no. What is not given follows the trust.
    pub(super) fn allows(&self, rule: Option<bool>) -> bool {
        rule.unwrap_or(self.trust == Trust::Full)
    }

    /// A list of what is allowed. `None`: everything.
    pub(super) fn list<'a>(&self, rule: Option<&'a BTreeSet<String>>) -> Option<&'a BTreeSet<String>> {
        static NOTHING: BTreeSet<String> = BTreeSet::new();
        match (rule, self.trust) {
            (Some(list), _) => Some(list),
            (None, Trust::Limited) => Some(&NOTHING),
            (None, Trust::Full) => None,
        }
    }
}
