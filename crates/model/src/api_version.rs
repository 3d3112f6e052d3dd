//! The oldest version of the engine's API that a container or network needs. An older engine would drop the
//! field in silence, so nothing is made there instead.

use super::{Container, MountSource, Network};

/// A field, and the first version (major, minor) of the API that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    pub api: (u16, u16),
    pub field: String,
}

impl Container {
    /// The field that asks for the newest API, if one asks for more than the oldest that we speak.
    pub fn needs(&self) -> Option<Need> {
        let host = &self.host;
        let mut needs = Vec::new();
        let mut need = |is_used: bool, minor: u16, field: &str| {
            if is_used {
                needs.push(Need { api: (1, minor), field: field.to_owned() });
            }
        };
        need(host.cgroup.is_some(), 41, "cgroup");
        need(host.platform.is_some(), 41, "platform");
        need(!host.annotations.is_empty(), 43, "annotations");
        need(host.device_requests.iter().any(|it| it.driver == "cdi"), 44, "devices (CDI)");
        let networks = self.networks().values();
        let mac_addresses = networks.clone().filter(|it| it.mac_address.is_some()).count();
        need(mac_addresses > 0 && self.networks().len() > 1, 44, "networks.mac_address");
        for attachment in networks {
            need(attachment.gw_priority != 0, 48, "networks.gw_priority");
            need(attachment.driver_opts.contains_key(INTERFACE_NAME), 49, "networks.interface_name");
        }
        for mount in &self.mounts {
            let options = host.mount_options.get(&mount.target);
            let recursive = options.and_then(|it| it.recursive.as_deref());
            need(matches!(recursive, Some("writable" | "readonly")), 44, "volumes.bind.recursive");
            let is_image = matches!(mount.source, MountSource::Image(_));
            let has_subpath = options.is_some_and(|it| it.subpath.is_some());
            need(has_subpath && !is_image, 45, "volumes.volume.subpath");
            need(is_image, 48, "volumes.type: image");
        }
        needs.into_iter().max()
    }
}

impl Network {
    pub fn needs(&self) -> Option<Need> {
        let field = || Need { api: (1, 48), field: "enable_ipv4".to_owned() };
        (self.disable_ipv4 && !self.external).then(field)
    }
}

/// The option of an endpoint that names the interface inside the container.
pub const INTERFACE_NAME: &str = "com.docker.network.endpoint.ifname";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attachment, HostSettings, Mount, MountOptions, NetworkMode};

    #[test]
    fn the_field_that_asks_for_most_is_named() {
        assert_eq!(Container::default().needs(), None);
        let mount = |source| Mount { target: "/a".into(), source, read_only: false };
        let options = MountOptions { subpath: Some("a".into()), ..MountOptions::default() };
        let mut container = Container {
            mounts: vec![mount(MountSource::Volume { name: "v".into(), no_copy: false })],
            host: HostSettings {
                cgroup: Some("host".into()),
                mount_options: [("/a".to_owned(), options)].into(),
                ..HostSettings::default()
            }
            .into(),
            ..Container::default()
        };
        let needed = |it: &Container| it.needs().map(|it| (it.api.1, it.field));
        assert_eq!(needed(&container), Some((45, "volumes.volume.subpath".to_owned())));
        container.mounts = vec![mount(MountSource::Image("a".into()))];
        assert_eq!(needed(&container), Some((48, "volumes.type: image".to_owned())));
        let attachment = |it: Attachment| Container {
            network_mode: NetworkMode::Networks([("a".to_owned(), Box::new(it))].into()),
            ..Container::default()
        };
        let mac = Attachment { mac_address: Some("02:42:ac:11:00:02".into()), ..Attachment::default() };
        assert_eq!(needed(&attachment(mac)), None, "on its only network every engine can");
        let named = Attachment {
            driver_opts: [(INTERFACE_NAME.to_owned(), "eth7".to_owned())].into(),
            ..Attachment::default()
        };
        assert_eq!(needed(&attachment(named)), Some((49, "networks.interface_name".to_owned())));
    }
}
