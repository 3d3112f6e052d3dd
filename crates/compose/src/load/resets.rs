//! `!reset` and `!override`: values that a document removes from the documents before it.
//!
//! Both remove the value at their path from everything that the document is merged onto; `!override` then adds its own.
//! The merge itself knows neither.

use driftless_yaml::{Kind, Node};

use crate::spec::{path::Path, tree};

/// The paths that one document removes.
#[derive(Debug, Default)]
pub(crate) struct Resets(Vec<Vec<String>>);

impl Resets {
    /// Finds the tags in a document, and removes values with `!reset` from it.
    pub(crate) fn take(root: &mut Node) -> Self {
        let mut resets = Self::default();
        resets.find(root, &Path::Root);
        resets
    }

    fn find(&mut self, node: &mut Node, path: &Path<'_>) {
        match &mut node.kind {
            Kind::Mapping(entries) => {
                entries.retain_mut(|it| self.keep(&mut it.value, &path.key(&it.key)));
            }
            Kind::Sequence(items) => {
                let mut indices = 0..;
                items.retain_mut(|it| self.keep(it, &path.index(indices.next().unwrap_or_default())));
            }
            Kind::Scalar { .. } => {}
        }
    }

    fn keep(&mut self, node: &mut Node, path: &Path<'_>) -> bool {
        match node.tag.as_deref() {
            Some("!reset") => {
                self.0.push(parts(path));
                return false;
            }
            Some("!override") => {
                self.0.push(parts(path));
                node.tag = None;
            }
            Some(_) | None => {}
        }
        self.find(node, path);
        true
    }

    /// Removes the paths from a tree.
    pub(crate) fn apply(&self, root: &mut Node) {
        self.apply_below(root, &[]);
    }

    /// As [`Self::apply`], for a tree at `path`.
    pub(crate) fn apply_below(&self, root: &mut Node, path: &[&str]) {
        for reset in &self.0 {
            if let Some((last, parents)) = below(reset, path).and_then(<[String]>::split_last) {
                let parent = parents.iter().try_fold(&mut *root, |node, key| tree::get_mut(node, key));
                if let Some(parent) = parent {
                    tree::remove(parent, last);
                }
            }
        }
    }
}

fn parts(path: &Path<'_>) -> Vec<String> {
    let (parent, part) = match path {
        Path::Root => return Vec::new(),
        Path::Key(parent, key) => (parent, (*key).to_owned()),
        Path::Index(parent, index) => (parent, format!("[{index}]")),
    };
    let mut parts = parts(parent);
    parts.push(part);
    parts
}

/// The rest of a path below another.
fn below<'p>(path: &'p [String], prefix: &[&str]) -> Option<&'p [String]> {
    let (start, rest) = path.split_at_checked(prefix.len())?;
    start.iter().zip(prefix).all(|(one, other)| one == other).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_yaml::{Limits, parse};

    fn tree(text: &str) -> Node {
        parse("a.yaml", text.as_bytes(), &Limits::default()).unwrap().remove(0)
    }

    #[test]
    fn tagged_paths_are_removed_from_the_base() {
        let mut over = tree("services: {web: {ports: !override ['81:81'], image: !reset null, tty: true}}");
        let mut base = tree("services: {web: {ports: ['80:80'], image: a, user: u}}");
        let resets = Resets::take(&mut over);
        resets.apply(&mut base);
        let keys = |node: &Node| -> Vec<String> {
            let web = node.get("services").and_then(|it| it.get("web")).unwrap();
            web.entries().iter().map(|it| it.key.clone()).collect()
        };
        assert_eq!(keys(&over), ["ports", "tty"]);
        assert_eq!(keys(&base), ["user"]);
    }

    #[test]
    fn resets_apply_to_one_service_only() {
        let mut over = tree("services: {web: {image: !reset null}, api: {user: !reset null}}");
        let mut base = tree("{image: a, user: u}");
        Resets::take(&mut over).apply_below(&mut base, &["services", "web"]);
        assert_eq!(base.entries().len(), 1);
    }
}
