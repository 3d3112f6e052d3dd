//! The paths of a kustomization that lead nowhere, and the folders that they were probably meant to name.

use std::collections::BTreeSet;

use driftless_yaml::closest;

/// The most names that are compared with a folder. More are taken for any name.
const MOST_NAMES: usize = 10_000;

/// Paths that a kustomization lists and that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// The names between the slashes of these paths.
    names: BTreeSet<String>,
    /// A kustomization file has mistakes.
    is_broken: bool,
    /// A kustomization file that may list anything: it could not be read, or it has no path.
    is_unknown: bool,
}

impl Gaps {
    /// Adds a path that does not exist or cannot be read.
    pub(super) fn add_path(&mut self, path: &str) {
        self.names
            .extend(path.split('/').filter(|name| !matches!(*name, "" | "." | "..")).map(str::to_owned));
        self.is_unknown |= self.names.len() > MOST_NAMES;
    }

    /// Adds a kustomization file that has mistakes. Every path in it may be one that it lists. `None`: its text is
    /// unknown.
    pub(super) fn add_file(&mut self, text: Option<&[u8]>) {
        let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) else {
            self.is_unknown = true;
            return;
        };
        let words = text.split(|it: char| it.is_whitespace() || "\"',[]{}#".contains(it));
        let is_file = |word: &str| matches!(word.rsplit_once('.'), Some((_, "yaml" | "yml")));
        let mut is_empty = true;
        for word in words.filter(|word| word.contains('/') || is_file(word)) {
            is_empty = false;
            // The base of an application is outside of its folder, so its path has a slash.
            if word.contains('/') {
                self.add_path(word);
            }
        }
        // A file that was cut off may have listed anything.
        self.is_unknown |= is_empty;
        self.is_broken = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.is_broken && !self.is_unknown
    }

    /// Whether one of the paths was probably meant to lead to this folder.
    pub(super) fn may_mean(&self, folder: &str) -> bool {
        let Some(own) = folder.rsplit('/').next().filter(|name| !name.is_empty()) else {
            return !self.is_empty();
        };
        self.is_unknown || self.names.iter().any(|name| closest(name, [own]).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_paths_mean_the_nearest_folder() {
        let mut gaps = Gaps::default();
        assert!(gaps.is_empty() && !gaps.may_mean("base"));
        gaps.add_path("../bsae");
        assert!(gaps.may_mean("apps/base") && !gaps.may_mean("apps/shop"));
    }

    #[test]
    fn broken_files_mean_the_paths_in_them() {
        let mut gaps = Gaps::default();
        gaps.add_file(Some(b"resorces: [../base, \"../db\"]\nnamePrefix: shop\n"));
        assert!(gaps.may_mean("base") && gaps.may_mean("x/db") && !gaps.may_mean("shop"));
        for cut_off in [None, Some(b"resources: [".as_slice())] {
            let mut gaps = Gaps::default();
            gaps.add_file(cut_off);
            assert!(gaps.may_mean("shop"));
        }
    }
}
