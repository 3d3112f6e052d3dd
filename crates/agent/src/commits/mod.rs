//! Commits: whether one is accepted or held back, how it fails, and the status that the forge shows for it.

pub(crate) mod departures;
pub(crate) mod failure;
pub(crate) mod held_commit;
pub(crate) mod holds;
pub(crate) mod older_commits;
pub(crate) mod status;
pub(crate) mod trust;
