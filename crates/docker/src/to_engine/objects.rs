//! The bodies of create calls for networks and volumes.

use bollard::models as api;
use driftless_model::{AgentId, AppName, Network, SpecHash, Volume, label};

use super::{
    labels::{compose_labels, owner_labels},
    values::hash_map,
};

pub(crate) fn network_body(
    name: &str,
    network: &Network,
    (app, project): (&AppName, &str),
    agent: &AgentId,
) -> api::NetworkCreateRequest {
    let Network {
        key,
        external: _,
        driver,
        options,
        internal,
        attachable,
        enable_ipv6,
        disable_ipv4,
        ipam,
        ipam_driver,
        ipam_options,
        aux_addresses,
        labels,
    } = network;
    let mut all = owner_labels(app, agent, &SpecHash::of(network));
    all.extend(compose_labels(project, key, label::compose::NETWORK));
    all.extend(labels.clone());
    let reserved =
        |subnet: &Option<String>| subnet.as_ref().and_then(|it| aux_addresses.get(it)).map(hash_map);
    let ranges: Vec<api::IpamConfig> = ipam
        .iter()
        .map(|(subnet, gateway, range)| api::IpamConfig {
            subnet: subnet.clone(),
            gateway: gateway.clone(),
            ip_range: range.clone(),
            auxiliary_addresses: reserved(subnet),
        })
        .collect();
    let has_address_settings = !ranges.is_empty() || ipam_driver.is_some() || !ipam_options.is_empty();
    api::NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some(driver.clone().unwrap_or_else(|| "bridge".to_owned())),
        internal: Some(*internal),
        attachable: Some(*attachable),
        enable_ipv4: disable_ipv4.then_some(false),
        enable_ipv6: *enable_ipv6,
        options: Some(hash_map(options)),
        ipam: has_address_settings.then(|| api::Ipam {
            driver: Some(ipam_driver.clone().unwrap_or_else(|| "default".to_owned())),
            config: Some(ranges),
            options: (!ipam_options.is_empty()).then(|| hash_map(ipam_options)),
        }),
        labels: Some(all),
        ..api::NetworkCreateRequest::default()
    }
}

pub(crate) fn volume_body(
    name: &str,
    volume: &Volume,
    (app, project): (&AppName, &str),
    agent: &AgentId,
) -> api::VolumeCreateRequest {
    let Volume { key, external: _, driver, options, labels } = volume;
    let mut all = owner_labels(app, agent, &SpecHash::of(volume));
    all.extend(compose_labels(project, key, label::compose::VOLUME));
    all.extend(labels.clone());
    api::VolumeCreateRequest {
        name: Some(name.to_owned()),
        driver: Some(driver.clone().unwrap_or_else(|| "local".to_owned())),
        driver_opts: Some(hash_map(options)),
        labels: Some(all),
        cluster_volume_spec: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_left_to_the_engine_unless_git_decides() {
        let sent = |enable_ipv6| {
            let network = Network { enable_ipv6, ..Network::default() };
            network_body("lan", &network, (&"shop".into(), "shop"), &AgentId::from("us")).enable_ipv6
        };
        for decided in [None, Some(false), Some(true)] {
            assert_eq!(sent(decided), decided);
        }
    }

    #[test]
    fn objects_with_their_own_names_are_of_the_project() {
        let (app, agent) = (AppName::from("shop"), AgentId::from("us"));
        let owner = (&app, "webshop");
        for name in ["webshop_data", "shop_data", "web"] {
            let volume = Volume { key: "data".to_owned(), ..Volume::default() };
            let network = Network { key: "data".to_owned(), ..Network::default() };
            let of_volume = volume_body(name, &volume, owner, &agent).labels.unwrap();
            let of_network = network_body(name, &network, owner, &agent).labels.unwrap();
            for labels in [of_volume, of_network] {
                assert_eq!(labels[label::compose::PROJECT], "webshop", "{name}");
                assert_eq!(labels[label::APPLICATION], "shop");
            }
        }
    }
}
