//! The APIs that forges speak.

/// The API of the forge. Forgejo has Gitea's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgeKind {
    GitHub,
    GitLab,
    Gitea,
}
