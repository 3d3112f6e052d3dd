//! Explains differences to people: as unified diffs, and object by object.

pub(crate) mod live;
pub(crate) mod named;
pub(crate) mod objects;
pub(crate) mod preview;
pub(crate) mod step;
pub(crate) mod unified;
