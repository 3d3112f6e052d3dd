//! The ports of the host for each `NodePort` of which the manifest says no number.
//!
//! An API server takes one by chance and writes it down. Here nothing is written down: the port follows from the names of
//! the application and the Service and from the Service's own port, so that it is the same after each restart, on each
//! host, and whatever else stands in the manifests, unless two of one application would get the same. Not here: whether
//! another application has it, which is said where applications are held against each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Found,
    catalogue::Key,
    service::{NodePort, Service},
};
use driftless_model::digest_hex;

/// Where an API server looks for one first: below are those that people choose themselves.
const FIRST: u16 = 30_086;
const LAST: u16 = 32_767;

/// Gives a port to all that must have one.
pub(super) fn assign(app: &str, services: &mut [Service<'_>], workloads: &[Found]) {
    let given = services.iter().flat_map(|it| &it.ports).flat_map(|it| &it.published).map(|(_, port)| *port);
    let of_pods = workloads.iter().flat_map(|it| &it.published).map(|it| it.host);
    let mut taken: BTreeSet<u16> = given.chain(of_pods).collect();
    let mut services: Vec<_> = services.iter_mut().collect();
    // In the order of their names, so that it does not matter in which file they stand.
    services.sort_by(|a, b| a.key.cmp(&b.key));
    for Service { key, ports, .. } in services {
        // One port of several protocols, such as that of a name server, is one number outside as well.
        let mut own: BTreeMap<u16, u16> =
            ports.iter().filter_map(|it| Some((it.port, it.node.number()?))).collect();
        for port in ports.iter_mut().filter(|it| it.node == NodePort::Any) {
            let number = own.get(&port.port).copied().or_else(|| free(app, key, port.port, &taken));
            let Some(number) = number else {
                port.value.error_help("no port of the host is left for it", "add `nodePort`");
                continue;
            };
            own.insert(port.port, number);
            taken.insert(number);
            port.assign(number);
        }
    }
}

/// The first that is free, from where its name puts it.
fn free(app: &str, Key { namespace, name }: &Key, port: u16, taken: &BTreeSet<u16>) -> Option<u16> {
    let digest = digest_hex(format!("{app}/{namespace}/{name}/{port}").as_bytes());
    let number = u32::from_str_radix(digest.get(..8)?, 16).ok()?;
    let count = LAST - FIRST + 1;
    let start = u16::try_from(number % u32::from(count)).ok()?;
    (0..count).map(|step| FIRST + (start + step) % count).find(|it| !taken.contains(it))
}
