//! The ranges of addresses of overlay networks: choosing a free one that is large enough, and waiting until a network has one.

use std::{collections::BTreeMap, net::Ipv4Addr, ops::RangeInclusive, time::Duration};

use bollard::models as api;
use driftless_model::{ObservedNetwork, SWARM_OWNER, addresses_of_subnet};
use serde::Deserialize;

use super::manager_api::{ManagerApi, get};
use crate::{call_error::CallError, percent_encoding::encode};

/// The pool of a Swarm that was created without another one.
const DEFAULT_POOL: &str = "10.0.0.0/8";

/// The time that a manager has for giving a new network its range. It takes milliseconds, and a step that is refused is tried again.
const ALLOCATION: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The addresses of a range for each one that is needed, so that the services may grow.
const ROOM: u64 = 2;

/// Why a network gets no range.
pub(crate) const NO_RANGE: &str = "the Swarm gives it no addresses, so its services would wait for ever: its `ipam` overlaps with the range \
                                   of another network; choose another one, see `docker network inspect` of the others";

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct AboutPools {
    swarm: AboutSwarm,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct AboutSwarm {
    cluster: Option<AboutCluster>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct AboutCluster {
    default_addr_pool: Option<Vec<String>>,
    subnet_size: u32,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct ListedNetwork {
    #[serde(rename = "IPAM")]
    ipam: ListedIpam,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct ListedIpam {
    driver: String,
    config: Option<Vec<ListedRange>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct ListedRange {
    subnet: String,
}

/// The settings of a range for a number of addresses. `None`: the one that the Swarm gives is large enough.
///
/// The range is from the pool that the Swarm takes ranges from, too, and overlaps with none of the networks that this manager knows.
pub(crate) async fn choose(
    manager: &impl ManagerApi,
    addresses: u64,
) -> Result<Option<api::Ipam>, CallError> {
    let AboutPools { swarm } = get(manager, "/info").await?;
    let cluster = swarm.cluster.unwrap_or_default();
    let size = if cluster.subnet_size == 0 { 24 } else { cluster.subnet_size };
    if addresses <= room(size) {
        return Ok(None);
    }
    let pools = cluster.default_addr_pool.filter(|pools| !pools.is_empty());
    let pools = pools.unwrap_or_else(|| vec![DEFAULT_POOL.to_owned()]);
    let pools: Vec<Range> = pools.iter().filter_map(|pool| range_of(pool)).collect();
    let networks: Vec<ListedNetwork> = get(manager, "/networks").await?;
    let all = networks.iter().flat_map(|network| network.ipam.config.iter().flatten());
    let used: Vec<Range> = all.filter_map(|range| range_of(&range.subnet)).collect();
    let found = [addresses.saturating_mul(ROOM), addresses]
        .into_iter()
        .filter_map(|wanted| (0..size.min(32)).rev().find(|prefix| room(*prefix) >= wanted))
        .find_map(|prefix| pools.iter().find_map(|pool| first_free(pool, prefix, &used)));
    let Some(subnet) = found else {
        let message = format!(
            "no range of {addresses} addresses is free in the pools of the Swarm: set `ipam` at the network, or split it"
        );
        return Err(CallError::Status { code: 409, message });
    };
    let range = api::IpamConfig { subnet: Some(subnet), ..api::IpamConfig::default() };
    Ok(Some(api::Ipam {
        driver: Some("default".to_owned()),
        config: Some(vec![range]),
        ..api::Ipam::default()
    }))
}

/// Waits until a new network has its range. `false`: it gets none.
pub(crate) async fn is_allocated(manager: &impl ManagerApi, id: &str) -> Result<bool, CallError> {
    let path = format!("/networks/{}", encode(id));
    let end = tokio::time::Instant::now() + ALLOCATION;
    loop {
        let found: ListedNetwork = get(manager, &path).await?;
        if !found.ipam.driver.is_empty() {
            return Ok(true);
        }
        if tokio::time::Instant::now() >= end {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Finds the networks of agents that have no range and get none: an agent may have ended before it saw that. What a list says may be
/// older than the range of a new network, so it is looked at once more.
pub(crate) async fn note_unallocated(
    manager: &impl ManagerApi,
    networks: &mut BTreeMap<String, ObservedNetwork>,
) -> Result<(), CallError> {
    let is_own = |network: &ObservedNetwork| network.agent.as_ref().is_some_and(|it| it.0 == SWARM_OWNER);
    for network in networks.values_mut().filter(|network| network.addresses.is_none() && is_own(network)) {
        match is_allocated(manager, &network.id).await {
            Ok(is_allocated) => network.is_unallocated = !is_allocated,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The first and the last address of a range.
pub(crate) type Range = RangeInclusive<u32>;

/// The addresses of a subnet with this prefix for services and tasks.
fn room(prefix: u32) -> u64 {
    addresses_of_subnet(&format!("0.0.0.0/{prefix}")).unwrap_or_default()
}

pub(crate) fn range_of(subnet: &str) -> Option<Range> {
    let (address, prefix) = subnet.split_once('/')?;
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let prefix: u32 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    let host = u32::MAX.checked_shr(prefix).unwrap_or_default();
    Some((address & !host)..=(address | host))
}

/// The first subnet of a pool that overlaps with no used range.
pub(crate) fn first_free(pool: &Range, prefix: u32, used: &[Range]) -> Option<String> {
    let host = u32::MAX.checked_shr(prefix).unwrap_or_default();
    let mut start = *pool.start();
    loop {
        // Pools are aligned, so a subnet of a pool that is smaller than the pool is in it.
        let end = start.checked_add(host).filter(|end| start & host == 0 && end <= pool.end())?;
        let overlapping = used.iter().find(|range| *range.start() <= end && *range.end() >= start);
        let Some(overlapping) = overlapping else {
            return Some(format!("{}/{prefix}", Ipv4Addr::from(start)));
        };
        start = (overlapping.end() | host).checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{first_free, range_of};

    #[test]
    fn first_subnet_that_nobody_uses_is_taken() {
        let free = |pool: &str, prefix: u32, used: &[&str]| {
            let used: Vec<_> = used.iter().filter_map(|subnet| range_of(subnet)).collect();
            first_free(&range_of(pool).unwrap(), prefix, &used)
        };
        let found = |subnet: &str| Some(subnet.to_owned());
        assert_eq!(free("10.0.0.0/8", 22, &[]), found("10.0.0.0/22"));
        // Ranges that are smaller, larger, out of order, one over another, and outside of the pool.
        let used = ["10.0.9.0/24", "10.0.0.0/24", "172.17.0.0/16", "10.0.0.0/21", "10.0.4.128/25"];
        assert_eq!(free("10.0.0.0/8", 22, &used), found("10.0.12.0/22"));
        assert_eq!(free("10.0.0.0/8", 24, &used), found("10.0.8.0/24"));
        assert_eq!(free("10.0.0.0/16", 22, &["10.0.0.0/8"]), None);
        assert_eq!(free("10.20.0.0/22", 22, &["10.20.3.0/24"]), None);
        assert_eq!(free("10.20.0.0/22", 20, &[]), None);
        assert_eq!(free("255.255.0.0/16", 17, &["255.255.0.0/17"]), found("255.255.128.0/17"));
        assert_eq!(free("255.255.0.0/16", 17, &["255.255.0.0/16"]), None);
        assert_eq!(free("0.0.0.0/0", 0, &[]), found("0.0.0.0/0"));
    }

    #[test]
    fn ranges_of_other_texts_are_none() {
        assert_eq!(range_of("10.0.1.7/24"), Some(0x0a00_0100..=0x0a00_01ff));
        for text in ["", "10.0.0.0", "fd00::/64", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/x"] {
            assert_eq!(range_of(text), None, "{text}");
        }
    }
}
