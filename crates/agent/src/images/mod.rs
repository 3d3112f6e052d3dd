//! Images: pulled, built, followed in their registries, and removed when nothing needs them.

pub(crate) mod build_context;
pub(crate) mod cleanup;
pub(crate) mod kept_images;
pub(crate) mod registry_calls;
pub(crate) mod registry_logins;
pub(crate) mod resolved_stack;
pub(crate) mod tasks;
pub(crate) mod updates;
