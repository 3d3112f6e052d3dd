//! The parts of a delivery that are used.

use driftless_model::CommitId;

use super::origin::Origin;

/// The parts of a delivery that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// The forge's name of the event, such as `push`.
    pub event: String,
    pub kind: EventKind,
    /// References that moved; empty if the payload does not say which.
    pub moved: Vec<Moved>,
    /// The URLs and paths by which the payload names its repository.
    pub origins: Vec<Origin>,
    /// The default branch of the repository, such as `main`.
    pub default_branch: Option<String>,
    /// Images that were pushed to a registry, as references with tag. At most 100.
    pub images: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    Push,
    /// Images were pushed to a registry.
    Image,
    Ping,
    #[default]
    Other,
}

/// One reference that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The full name, such as `refs/heads/main`.
    pub reference: String,
    /// Its new commit; `None` if it was deleted or the payload does not say.
    pub commit: Option<CommitId>,
    pub deleted: bool,
}
