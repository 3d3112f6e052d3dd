//! Configurations as fields with paths, and the comparison of two of them.

pub(crate) mod container;
pub(crate) mod diff;
pub(crate) mod host;
pub(crate) mod resources;
pub(crate) mod value;
