//! The host that messages name.

/// The host that messages name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderHost {
    /// The name of the host.
    pub name: String,
    /// The URL of the page, for links. Without a slash at the end.
    pub url: Option<String>,
}
