//! Symbolic links that cannot be followed, at places where a file is looked for.

use driftless_model::{Finding, Location};

use super::{Files, ReadError, paths};

/// The most letters of a link's target that a message shows.
const LONGEST_SHOWN_TARGET: usize = 200;

/// The error about a symbolic link that cannot be followed. `None`: the path has something, or no link.
///
/// A search for a file that may be missing asks this where there is none: such a link says that there should be one.
pub fn broken_link(files: &dyn Files, path: &str) -> Result<Option<Finding>, ReadError> {
    if files.entry(path)?.is_some() {
        return Ok(None);
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let links = files.links(paths::parent(path))?;
    Ok(links.get(name).map(|target| broken_link_error(path, target)))
}

/// The error about a symbolic link that cannot be followed, with its target as it is written.
pub fn broken_link_error(path: &str, target: &str) -> Finding {
    let target: String = target.chars().take(LONGEST_SHOWN_TARGET).collect();
    let message = format!(
        "is a symbolic link to `{target}`, which leads to nothing, out of the repository, or into a submodule"
    );
    let help = "correct the link, or remove it if nothing should be there";
    Finding::error(Location::file(path), "", message).help(help)
}
