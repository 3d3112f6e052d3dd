//! Reports the proxies of ports that are on a network without published ports. The driver of an external network is not known when the
//! manifests are read.

use driftless_model::{Subject, is_helper_image};

use crate::{draft::Draft, wait::Wait};

pub(crate) fn remark(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    let publishes_none = |network: &&String| {
        facts.observed.networks.get(*network).is_some_and(|found| found.publishes_no_ports)
    };
    for Subject { name, workload } in facts.target.stack.subjects() {
        let container = &workload.container;
        let is_proxy = is_helper_image(&container.image) && !container.ports.is_empty();
        if let Some(network) = container.networks().keys().find(publishes_none).filter(|_| is_proxy) {
            draft.wait(Wait::ports_unpublished(name, network));
        }
    }
}
