//! The differences between networks and volumes, masked.

use driftless_model::{Mask, Network, Volume};

use crate::fields::diff::FieldDifference;

/// Between a network that Git asks for and one that is there. Where Git names no addresses, the engine chose them.
pub(crate) fn network_differences(want: &Network, found: &Network, mask: &Mask) -> Vec<FieldDifference> {
    let Network {
        key: _,
        external: _,
        driver,
        options,
        internal,
        attachable: _,
        enable_ipv6,
        disable_ipv4,
        ipam,
        ipam_driver,
        ipam_options,
        aux_addresses,
        labels,
    } = want;
    let driver_of = |it: &Option<String>| it.clone().unwrap_or_else(|| "bridge".to_owned());
    let mut out = Differences::default();
    out.compare("driver", driver_of(driver), driver_of(&found.driver));
    // The engine, its daemon's `default-network-opts` and newer releases of Compose add options of these names by themselves.
    let is_implied = |name: &&String| name.starts_with("com.docker.network.");
    for name in options.keys().chain(found.options.keys().filter(|name| !is_implied(name))) {
        out.compare_set(&format!("options.{name}"), options.get(name), found.options.get(name));
    }
    out.compare("internal", internal.to_string(), found.internal.to_string());
    // If Git says nothing, the daemon's configuration decides.
    if let Some(enable_ipv6) = enable_ipv6 {
        let found = found.enable_ipv6.unwrap_or_default();
        out.compare("enableIpv6", enable_ipv6.to_string(), found.to_string());
    }
    out.compare("disableIpv4", disable_ipv4.to_string(), found.disable_ipv4.to_string());
    let plain = |it: &Option<String>| it.clone().unwrap_or_else(|| "default".to_owned());
    out.compare("ipam.driver", plain(ipam_driver), plain(&found.ipam_driver));
    for (name, value) in ipam_options {
        out.compare_set(&format!("ipam.options.{name}"), Some(value), found.ipam_options.get(name));
    }
    for (subnet, kept) in aux_addresses {
        for (name, address) in kept {
            let there = found.aux_addresses.get(subnet).and_then(|it| it.get(name));
            out.compare_set(&format!("ipam.auxAddresses.{name}"), Some(address), there);
        }
    }
    for (subnet, gateway, range) in ipam {
        let there = found.ipam.iter().find(|it| it.0 == *subnet);
        out.compare_set("ipam.subnet", subnet.as_ref(), there.and_then(|it| it.0.as_ref()));
        if let Some((_, found_gateway, found_range)) = there {
            if gateway.is_some() {
                out.compare_set("ipam.gateway", gateway.as_ref(), found_gateway.as_ref());
            }
            out.compare_set("ipam.ipRange", range.as_ref(), found_range.as_ref());
        }
    }
    for name in labels.keys().chain(found.labels.keys()) {
        out.compare_set(&format!("labels.{name}"), labels.get(name), found.labels.get(name));
    }
    out.masked(mask)
}

pub(crate) fn volume_differences(want: &Volume, found: &Volume, mask: &Mask) -> Vec<FieldDifference> {
    let Volume { key: _, external: _, driver, options, labels } = want;
    let driver_of = |it: &Option<String>| it.clone().unwrap_or_else(|| "local".to_owned());
    let mut out = Differences::default();
    out.compare("driver", driver_of(driver), driver_of(&found.driver));
    for name in options.keys().chain(found.options.keys()) {
        out.compare_set(&format!("options.{name}"), options.get(name), found.options.get(name));
    }
    for name in labels.keys().chain(found.labels.keys()) {
        out.compare_set(&format!("labels.{name}"), labels.get(name), found.labels.get(name));
    }
    out.masked(mask)
}

/// Collects what differs, each field once.
#[derive(Default)]
struct Differences(Vec<FieldDifference>);

impl Differences {
    fn compare(&mut self, field: &str, want: String, found: String) {
        if want != found && self.0.iter().all(|it| it.field != field) {
            self.0.push(FieldDifference { field: field.to_owned(), want, found });
        }
    }

    fn compare_set(&mut self, field: &str, want: Option<&String>, found: Option<&String>) {
        let text = |it: Option<&String>| it.map_or_else(|| "unset".to_owned(), Clone::clone);
        self.compare(field, text(want), text(found));
    }

    /// `o: username=me,password=…` is how a share of another host is mounted, and a password may contain any character that
    /// could end it. So both values are hidden as a whole where the name or a part of either value tells of a secret.
    fn masked(self, mask: &Mask) -> Vec<FieldDifference> {
        let is_telling = |text: &str| text.split([',', '=']).any(Mask::is_telling);
        let masked = |FieldDifference { field, want, found }: FieldDifference| {
            let is_secret = Mask::is_telling(&field) || is_telling(&want) || is_telling(&found);
            let show = |text: &str| if is_secret { Mask::HIDDEN.to_owned() } else { mask.text(text) };
            let (want, found) = (show(&want), show(&found));
            FieldDifference { field, want, found }
        };
        self.0.into_iter().map(masked).collect()
    }
}
