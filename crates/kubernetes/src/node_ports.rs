//! Chooses host ports for NodePort Services without a number.
//!
//! An API server picks a random port and stores it. Here the port is computed from the names of the application and the
//! Service and from the Service's port, so it is the same after each restart and on each host. It changes only to avoid
//! a second port of the same application. Conflicts with other applications are reported where applications are
//! compared.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    object::Key,
    service::{NodePort, Service},
    workload::ReadWorkload,
};
use driftless_model::digest_hex;

/// The first port of the range from which an API server assigns; lower ones are for manifests that name a port.
const FIRST: u16 = 30_086;
const LAST: u16 = 32_767;

/// Assigns a port to each Service port that needs one.
pub(super) fn assign(app: &str, services: &mut [Service<'_>], workloads: &[ReadWorkload]) {
    let given = services.iter().flat_map(|it| &it.ports).flat_map(|it| &it.published).map(|(_, port)| *port);
    let of_pods = workloads.iter().flat_map(|it| &it.published).map(|it| it.host);
    let mut taken: BTreeSet<u16> = given.chain(of_pods).collect();
    let mut services: Vec<_> = services.iter_mut().collect();
    // In the order of names, so that the order of files does not matter.
    services.sort_by(|a, b| a.key.cmp(&b.key));
    for Service { key, ports, .. } in services {
        // A port with several protocols, such as DNS, gets one number for all of them.
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

/// The first free port from the position that the name gives.
fn free(app: &str, Key { namespace, name }: &Key, port: u16, taken: &BTreeSet<u16>) -> Option<u16> {
    let digest = digest_hex(format!("{app}/{namespace}/{name}/{port}").as_bytes());
    let number = u32::from_str_radix(digest.get(..8)?, 16).ok()?;
    let count = LAST - FIRST + 1;
    let start = u16::try_from(number % u32::from(count)).ok()?;
    (0..count).map(|step| FIRST + (start + step) % count).find(|it| !taken.contains(it))
}
