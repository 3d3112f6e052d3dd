//! Changes of files that containers and Git share.

/// A change of a file in an application's own folder that its users do not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppFileChange {
    /// A container had changed it, and Git too: the former version is at the second path.
    Kept {
        /// In the application's own folder.
        path: String,
        /// The same.
        at: String,
    },
    /// It has left Git and is itself mounted: the copy stays, as the engine would create a folder in its place.
    LeftGit {
        /// In the application's own folder.
        path: String,
    },
}
