//! `x-driftless` of a service: the default of its mounts, and the proxy of its published ports.

use crate::{
    read::{
        on_change::read_change,
        types::{Change, ProxySetting},
    },
    spec::{
        keys::{SERVICE_EXTENSION, SERVICE_PROXY},
        scalar::Compose,
        value::{Placed, Read as _, Value},
    },
};
use driftless_model::ForwardLimits;
use driftless_yaml::{Dialect as _, Kind};

/// The extension of a service.
#[derive(Debug, Default)]
pub(crate) struct Extension {
    pub(crate) on_change: Option<Change>,
    pub(crate) proxy: Option<Placed<ProxySetting>>,
}

pub(crate) fn extension(value: &Value<'_>) -> Extension {
    let mut extension = Extension::default();
    for (key, value) in value.fields(&SERVICE_EXTENSION) {
        match key {
            "on-change" => extension.on_change = read_change(&value).map(|change| change.value),
            "proxy" => extension.proxy = proxy(&value).map(|setting| value.placed(setting)),
            _ => value.refuse("is not supported yet"),
        }
    }
    extension
}

/// `true`, `false`, or the settings of the proxy. `None`: a mistake was reported.
fn proxy(value: &Value<'_>) -> Option<ProxySetting> {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        let setting = match Compose::boolean(value.node) {
            Some(true) => ProxySetting::On { limits: ForwardLimits::default(), proxy_protocol: false },
            Some(false) => ProxySetting::Off,
            None => {
                value.error("is not a setting of the proxy; write `true`, `false`, or its settings");
                return None;
            }
        };
        return Some(setting);
    }
    let (mut limits, mut proxy_protocol) = (ForwardLimits::default(), false);
    for (key, value) in value.fields(&SERVICE_PROXY) {
        match key {
            "max-connections" => {
                limits.connections = value.whole::<u32>();
                if limits.connections == Some(0) {
                    value.error("must be at least 1");
                }
            }
            "idle-timeout" => limits.idle = value.duration(),
            "connect-timeout" => {
                limits.connect = value.duration();
                if limits.connect.is_some_and(|time| time.is_zero()) {
                    value.error("must be longer than 0");
                }
            }
            "proxy-protocol" => match value.owned().as_deref() {
                Some("v2") => proxy_protocol = true,
                Some(other) => {
                    value.error(format!("`{other}` is not a version of the PROXY protocol; use `v2`"));
                }
                None => {}
            },
            _ => value.refuse("is not supported yet"),
        }
    }
    Some(ProxySetting::On { limits, proxy_protocol })
}
