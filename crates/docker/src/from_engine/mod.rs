//! The engine's types as ours. Pure functions, except that one looks on the disk whether a mount leads to the present state directory. For a
//! container created from a specification, the configuration read back here equals the specification applied to the image's defaults.

mod container;
mod host_settings;
mod instance;
mod mounts;
mod namespaces;
mod objects;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use container::{Defaults, image_defaults, resources};
pub(crate) use host_settings::asked;
pub(crate) use instance::instance;
pub(crate) use mounts::{
    UnpreparedVolume, empty_volumes, is_anonymous_volume, may_lead_to_own_folder, shares_volumes,
    unprepared_volumes,
};
pub(crate) use objects::{addresses, bridge_subnets, network, publishes_no_ports, volume};
