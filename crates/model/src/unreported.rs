//! Settings that the engine does not report. A label of the container keeps them.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Container, Hook, downward::Templates};
use crate::defaults::is_default;

/// Settings that the engine does not report. They are kept in a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnreportedSettings {
    #[serde(skip_serializing_if = "is_default")]
    pub platform: Option<String>,
    /// By network. The engine gives every end of a network an address, asked for or not.
    #[serde(skip_serializing_if = "is_default")]
    pub mac_addresses: BTreeMap<String, String>,
    /// Older engines know no such interval.
    #[serde(skip_serializing_if = "is_default")]
    pub health_start_interval: Option<Duration>,
    #[serde(skip_serializing_if = "is_default")]
    pub post_start: Vec<Hook>,
    #[serde(skip_serializing_if = "is_default")]
    pub pre_stop: Vec<Hook>,
    /// The engine reports the final values of variables and arguments, but not the marks that they replaced.
    #[serde(rename = "told", skip_serializing_if = "is_default")]
    pub downward: Templates,
}

impl UnreportedSettings {
    /// `None` when there is nothing to write down.
    pub fn of(container: &Container) -> Option<Self> {
        let host = &container.host;
        let networks = container.networks().iter();
        let asked = Self {
            platform: host.platform.clone(),
            mac_addresses: networks
                .filter_map(|(name, it)| Some((name.clone(), it.mac_address.clone()?)))
                .collect(),
            health_start_interval: container.healthcheck.as_ref().and_then(|it| it.start_interval),
            post_start: host.post_start.clone(),
            pre_stop: host.pre_stop.clone(),
            downward: Templates::of(container),
        };
        (asked != Self::default()).then_some(asked)
    }
}
