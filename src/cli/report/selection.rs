//! The applications that `--app` and `--path` select.

use std::collections::BTreeSet;

use super::{error::Error, options::ReportArgs};

/// Whether an application is selected, by its name and folder.
pub(in crate::cli) fn is_selected(args: &ReportArgs, name: &str, folder: &str) -> bool {
    let is_named = args.app.is_empty() || args.app.iter().any(|it| it == name);
    let is_inside = args.path.as_ref().is_none_or(|path| {
        let path = path.trim_matches('/').trim_start_matches("./");
        let below = folder.strip_prefix(path);
        path.is_empty() || path == "." || below.is_some_and(|it| it.is_empty() || it.starts_with('/'))
    });
    is_named && is_inside
}

/// Every given name must exist.
pub(in crate::cli) fn check_names<'n>(
    args: &ReportArgs,
    names: impl Iterator<Item = &'n str>,
) -> Result<(), Error> {
    let names: BTreeSet<&str> = names.collect();
    match args.app.iter().find(|app| !names.contains(app.as_str())) {
        Some(unknown) => Err(Error::NoSuchApplication(unknown.clone())),
        None => Ok(()),
    }
}
