//! Values that a container gets about itself and its pod: see [`driftless_model::downward`].

use std::collections::BTreeMap;

use bollard::models as api;
use driftless_model::{Downward, DownwardValues};
use driftless_plan::Creation;

use crate::{call_error::CallError, connection::Connection};

/// The addresses of a pod on one network.
struct Addresses {
    own: Option<String>,
    gateway: Option<String>,
}

/// The current values that a container asks for.
pub(super) async fn values(
    connection: &Connection,
    creation: &Creation,
) -> Result<DownwardValues, CallError> {
    let wanted = Downward::wanted_by(&creation.container);
    if wanted.is_empty() {
        return Ok(DownwardValues::new());
    }
    let mut name = creation.name.clone();
    let mut addresses = None;
    if let Some(part) = &creation.part {
        let pod = connection.inspect_container(part.pod.as_str()).await?;
        addresses = addresses_of(&pod);
        let pod_name = pod.name.unwrap_or_default();
        pod_name.trim_start_matches('/').clone_into(&mut name);
    }
    let mut values = DownwardValues::new();
    for field in wanted {
        let value = match field {
            Downward::PodName => Some(name.clone()),
            Downward::NodeName => Some(connection.defaults().host_name),
            Downward::PodIp => addresses.as_ref().and_then(|addresses| addresses.own.clone()),
            Downward::HostIp => addresses.as_ref().and_then(|addresses| addresses.gateway.clone()),
        };
        let Some(value) = value else {
            let message = format!("the pod has no {} yet", field.path());
            return Err(CallError::Status { code: 409, message });
        };
        values.insert(field, value);
    }
    Ok(values)
}

/// On the first network, by name, on which the pod has an address. The agent's own probes use the same one.
fn addresses_of(pod: &api::ContainerInspectResponse) -> Option<Addresses> {
    let networks = pod.network_settings.as_ref()?.networks.as_ref()?;
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let sorted: BTreeMap<_, _> = networks.iter().collect();
    let found = sorted.into_values().find(|endpoint| filled(&endpoint.ip_address).is_some())?;
    Some(Addresses { own: filled(&found.ip_address), gateway: filled(&found.gateway) })
}
