//! Paths that people take for one: they differ in letter case or in the Unicode form only, as file systems of macOS and Windows allow.

use unicode_normalization::UnicodeNormalization;

/// The path that `path` is taken for. Only the first folder or file on the way that is missing counts, so that the names of one
/// folder are read at most. `exists` answers for a path, `names` for a folder.
///
/// # Errors
///
/// Those of the two functions.
pub fn similar_path<E>(
    path: &str,
    exists: impl Fn(&str) -> Result<bool, E>,
    names: impl FnOnce(&str) -> Result<Vec<String>, E>,
) -> Result<Option<String>, E> {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    let mut folder = "";
    for part in ends.map(|end| &path[..end]) {
        if !exists(part)? {
            let name = part.rsplit('/').next().unwrap_or(part);
            let wanted = comparable(name);
            let found = names(folder)?.into_iter().find(|other| other != name && comparable(other) == wanted);
            let whole = |found: String| if folder.is_empty() { found } else { format!("{folder}/{found}") };
            return Ok(found.map(whole));
        }
        folder = part;
    }
    Ok(None)
}

fn comparable(name: &str) -> String {
    name.to_lowercase().nfc().collect()
}

#[cfg(test)]
mod tests {
    use crate::{Files, MemoryFiles};

    #[test]
    fn paths_are_similar_in_other_case_and_unicode_form() {
        let files = MemoryFiles::new([("app/config/main.conf", ""), ("app/Mu\u{308}ller/a", ""), ("b", "")]);
        for (path, similar) in [
            ("app/Config", Some("app/config")),
            ("App/Config/x", Some("app")),
            ("app/config/Main.conf", Some("app/config/main.conf")),
            ("app/M\u{fc}ller", Some("app/Mu\u{308}ller")),
            ("app/m\u{dc}ller/a", Some("app/Mu\u{308}ller")),
            ("B", Some("b")),
            ("app/configs", None),
            ("app/config/other", None),
            ("b/c", None),
            ("app/config", None),
            ("", None),
        ] {
            assert_eq!(files.similar(path), Ok(similar.map(str::to_owned)), "{path}");
        }
    }
}
