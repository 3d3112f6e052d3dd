//! The bodies of create calls for networks and volumes.

use bollard::models as api;
use driftless_model::{AgentId, AppName, Network, SWARM_OWNER, SpecHash, Volume, label};

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
    // The stack of a Swarm says that its agents are one owner. No other label of a manifest replaces one of the agent.
    let shared = labels.get(label::AGENT).filter(|owner| *owner == SWARM_OWNER).cloned().map(AgentId);
    let mut all = hash_map(labels);
    all.extend(compose_labels(project, key, label::compose::NETWORK));
    all.extend(owner_labels(app, shared.as_ref().unwrap_or(agent), &SpecHash::of(network)));
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
    let mut all = hash_map(labels);
    all.extend(compose_labels(project, key, label::compose::VOLUME));
    all.extend(owner_labels(app, agent, &SpecHash::of(volume)));
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
    fn labels_of_a_manifest_replace_none_of_the_agent() {
        let (app, agent) = (AppName::from("spy"), AgentId::from("us"));
        let names = [label::AGENT, label::APPLICATION, label::SPEC, label::compose::PROJECT, label::PRUNE];
        let labels: std::collections::BTreeMap<_, _> =
            names.map(|name| (name.to_owned(), "shop".to_owned())).into();
        let volume = Volume { labels: labels.clone(), ..Volume::default() };
        let network = Network { labels, ..Network::default() };
        let of_volume = volume_body("shop_data", &volume, (&app, "spy"), &agent).labels.unwrap();
        let of_network = network_body("shop_data", &network, (&app, "spy"), &agent).labels.unwrap();
        for (labels, spec) in [(of_volume, SpecHash::of(&volume)), (of_network, SpecHash::of(&network))] {
            let found = names.map(|name| labels[name].as_str());
            assert_eq!(found, ["us", "spy", spec.0.as_str(), "spy", "shop"]);
        }
        let labels = [(label::AGENT.to_owned(), SWARM_OWNER.to_owned())].into();
        let network = Network { labels, ..Network::default() };
        let of_swarm = network_body("spy_net", &network, (&app, "spy"), &agent).labels.unwrap();
        assert_eq!(of_swarm[label::AGENT], SWARM_OWNER);
        assert_eq!(of_swarm[label::APPLICATION], "spy");
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
