//! The image that pods of several containers need beside their own.

/// The image that the agent makes of its own executable, without a registry: it holds the namespaces of a pod.
///
/// The number counts the ways in which it is called, not releases: an upgrade of the agent keeps it, and so replaces
/// no pod.
pub const HELPER_IMAGE: &str = "driftless/helper:1";
