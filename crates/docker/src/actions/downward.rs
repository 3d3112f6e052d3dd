//! What a container that is about to be made is told about itself: see [`driftless_model::downward`].

use std::collections::BTreeMap;

use bollard::{models as api, query_parameters as query};

use crate::{
    call_error::CallError,
    engine::{DEADLINE, Inner},
};
use driftless_model::{Downward, DownwardValues};
use driftless_plan::Creation;

/// What one of a pod's networks gives it.
struct Addresses {
    own: Option<String>,
    gateway: Option<String>,
}

impl Inner {
    /// Everything that it wants to be told, as it is now.
    pub(crate) async fn told(&self, creation: &Creation) -> Result<DownwardValues, CallError> {
        let wanted = Downward::wanted_by(&creation.container);
        if wanted.is_empty() {
            return Ok(DownwardValues::new());
        }
        let mut name = creation.name.clone();
        let mut addresses = None;
        if let Some(of) = &creation.part {
            let options = None::<query::InspectContainerOptions>;
            let pod = self.call(DEADLINE, self.docker.inspect_container(of.pod.as_str(), options)).await?;
            addresses = addresses_of(&pod);
            let of_pod = pod.name.unwrap_or_default();
            of_pod.trim_start_matches('/').clone_into(&mut name);
        }
        let mut values = DownwardValues::new();
        for told in wanted {
            let value = match told {
                Downward::PodName => Some(name.clone()),
                Downward::NodeName => Some(self.defaults().host_name),
                Downward::PodIp => addresses.as_ref().and_then(|it| it.own.clone()),
                Downward::HostIp => addresses.as_ref().and_then(|it| it.gateway.clone()),
            };
            let Some(value) = value else {
                let message = format!("the pod has no {} yet", told.path());
                return Err(CallError::Status { code: 409, message });
            };
            values.insert(told, value);
        }
        Ok(values)
    }
}

/// Of the first of its networks on which it has one, by their names, as the agent's own probes reach it.
fn addresses_of(pod: &api::ContainerInspectResponse) -> Option<Addresses> {
    let networks = pod.network_settings.as_ref()?.networks.as_ref()?;
    let filled = |it: &Option<String>| it.clone().filter(|it| !it.is_empty());
    let sorted: BTreeMap<_, _> = networks.iter().collect();
    let found = sorted.into_values().find(|it| filled(&it.ip_address).is_some())?;
    Some(Addresses { own: filled(&found.ip_address), gateway: filled(&found.gateway) })
}
