//! The images that the agent makes of its own executable.

/// The image of the container that holds the namespaces of a pod. The agent imports it, without a registry.
///
/// The number counts the ways in which it is called, not releases: an upgrade of the agent keeps it, and so replaces
/// no pod.
pub const HELPER_IMAGE: &str = "driftless/helper:2";

/// The image of a proxy. It has a tag of its own, so that the containers of [`HELPER_IMAGE`] stay as they are.
pub const PROXY_IMAGE: &str = "driftless/helper:4";

/// Whether the agent makes the image from itself, instead of pulling it.
pub fn is_helper_image(image: &str) -> bool {
    [HELPER_IMAGE, PROXY_IMAGE].contains(&image)
}
