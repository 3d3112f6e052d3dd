//! A set of texts that many copies share, each with a few texts of its own.

use std::{collections::BTreeSet, sync::Arc};

/// A set of texts. A copy costs as much as the texts that were added since [`Texts::share`].
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    shared: Arc<BTreeSet<String>>,
    own: BTreeSet<String>,
}

impl Texts {
    pub(super) fn contains(&self, text: &str) -> bool {
        self.shared.contains(text) || self.own.contains(text)
    }

    /// All of them, each once.
    pub(super) fn iter(&self) -> impl Iterator<Item = &String> {
        self.shared.iter().chain(&self.own)
    }

    /// From now on, copies of this set share all its texts.
    pub(super) fn share(&mut self) {
        if self.own.is_empty() {
            return;
        }
        let own = std::mem::take(&mut self.own);
        Arc::make_mut(&mut self.shared).extend(own);
    }
}

impl Extend<String> for Texts {
    fn extend<T: IntoIterator<Item = String>>(&mut self, texts: T) {
        self.own.extend(texts.into_iter().filter(|text| !self.shared.contains(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_texts_and_keep_their_own() {
        let mut texts = Texts::default();
        texts.extend(["a".to_owned(), "b".to_owned()]);
        texts.share();
        let mut copy = texts.clone();
        copy.extend(["b".to_owned(), "c".to_owned()]);
        assert!(Arc::ptr_eq(&texts.shared, &copy.shared));
        assert_eq!(copy.iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(copy.contains("a") && copy.contains("c") && !texts.contains("c"));
        copy.share();
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
