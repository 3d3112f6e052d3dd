//! The image of what an application needs beside its own.

/// The image that the agent makes of its own executable, without a registry: it holds the namespaces of a pod,
/// and forwards for a Service what names alone cannot.
///
/// The number counts the ways in which it is called, not releases: an upgrade of the agent keeps it, and so replaces
/// no pod.
pub const HELPER_IMAGE: &str = "driftless/helper:2";
