//! Paths as text, without access to files: joined, cleaned, relative to each other.

pub(crate) use driftless_files::{paths::join, paths::parent};

/// A path without `.`, `..`, doubled and trailing slashes. A relative path keeps its leading `..`.
pub(crate) fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if is_absolute || parts.last().is_some_and(|it| *it != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    match (is_absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// Stands for each `..` in [`inside`].
pub(crate) const PARENT: &str = "_parent";

/// The path inside of `folder` that stands for `path`, both from the repository's root: `.` for the folder itself. A path
/// outside of the folder never contains `..`: `../files` becomes `_parent/files`.
pub(crate) fn inside(folder: &str, path: &str) -> String {
    let folder: Vec<&str> = folder.split('/').filter(|it| !matches!(*it, "" | ".")).collect();
    let path: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let shared = folder.iter().zip(&path).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n(PARENT, folder.len() - shared);
    let parts: Vec<&str> = up.chain(path.iter().skip(shared).copied()).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Whether a path is another one, or below it. Both are from the same place, which the folder may be: empty or `.`.
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    matches!(folder, "" | ".") || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a build context is something else than a folder, such as a URL.
pub(crate) fn is_elsewhere(context: &str) -> bool {
    const PREFIXES: &[&str] = &["service:", "github.com/", "git@"];
    context.contains("://") || PREFIXES.iter().any(|it| context.starts_with(it))
}

/// Whether a path is an absolute path on Windows, such as `C:\\data`, or a named pipe.
pub(crate) fn is_windows(path: &str) -> bool {
    let mut letters = path.chars();
    let is_drive = letters.next().is_some_and(|it| it.is_ascii_alphabetic())
        && letters.next() == Some(':')
        && letters.next().is_some_and(|it| matches!(it, '\\' | '/'));
    is_drive || path.starts_with("\\\\")
}

/// `folder` relative to `from`, both from the repository's root: `../common`, or the empty path for the same folder.
pub(crate) fn relative(from: &str, folder: &str) -> String {
    let from: Vec<&str> = from.split('/').filter(|it| !it.is_empty()).collect();
    let folder: Vec<&str> = folder.split('/').filter(|it| !it.is_empty()).collect();
    let shared = from.iter().zip(&folder).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n("..", from.len() - shared);
    up.chain(folder.iter().skip(shared).copied()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_repository() {
        assert_eq!(join("sites/shop", "./conf/").as_deref(), Some("sites/shop/conf"));
        assert_eq!(join("sites/shop", "../common/x").as_deref(), Some("sites/common/x"));
        assert_eq!(join("sites", "../.."), None);
        assert_eq!(join("", ".").as_deref(), Some(""));
        assert_eq!(clean("/a//b/../c/"), "/a/c");
        assert_eq!(clean("/.."), "/");
        assert_eq!(inside("sites/shop", "sites/shop"), ".");
        assert_eq!(inside("sites/shop", "sites/shop/a"), "a");
        assert_eq!(inside("sites/shop", "sites/shopping"), "_parent/shopping");
        assert_eq!(inside("sites/shop", ""), "_parent/_parent");
        assert_eq!(inside("", "a/b"), "a/b");
        assert_eq!(relative("sites/shop", "sites/common/x"), "../common/x");
        assert_eq!(relative("sites", "sites"), "");
        assert!(is_within("a/b", "a") && is_within("a", "a") && is_within("a", "") && is_within("a", "."));
        assert!(!is_within("ab", "a") && !is_within("a", "a/b") && !is_within("", "a"));
    }
}
