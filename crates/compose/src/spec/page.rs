//! The table of all keys as a page for people, as in `docs/compose.md`.

use std::fmt::Write as _;

use driftless_yaml::Support;

use crate::spec::{
    keys::PROJECT,
    shape::{Key, Object, Shape},
};

/// A Markdown table of every key, sorted by name within its object. An object that several keys share is printed once.
pub(crate) fn page() -> String {
    let mut page = Page { text: String::from("| key | | |\n|---|---|---|\n"), printed: Vec::new() };
    page.object("", &PROJECT);
    page.text
}

struct Page {
    text: String,
    printed: Vec<&'static Object>,
}

impl Page {
    fn object(&mut self, path: &str, object: &'static Object) {
        if self.printed.iter().any(|it| std::ptr::eq(*it, object)) {
            return;
        }
        self.printed.push(object);
        let mut keys: Vec<&Key> = object.fields.iter().collect();
        keys.sort_unstable_by_key(|key| key.name);
        for key in &keys {
            let path = driftless_yaml::join(path, key.name);
            let (word, note) = match key.support {
                Support::Used => ("used", key.note),
                Support::NoEffect(why) => ("no effect", why),
                Support::Refused(why) => ("refused", why),
            };
            writeln!(self.text, "| `{path}` | {word} | {note} |").expect("writing to a string cannot fail");
        }
        for key in keys.iter().filter(|key| key.support == Support::Used) {
            if let Some(inner) = inner(&key.shape) {
                self.object(&driftless_yaml::join(path, key.name), inner);
            }
        }
    }
}

/// The object inside of a shape, if there is one.
fn inner(shape: &Shape) -> Option<&'static Object> {
    match shape {
        Shape::Object(object) | Shape::Always(object) | Shape::Capitalised(object) => Some(object),
        Shape::Map(_, inner)
        | Shape::List(inner)
        | Shape::Each(inner)
        | Shape::OrNull(inner)
        | Shape::Short(_, inner)
        | Shape::Listed(_, inner) => self::inner(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once() {
        let page = page();
        let mut keys: Vec<&str> = page.lines().skip(2).filter_map(|line| line.split('`').nth(1)).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(keys.contains(&"services.deploy.resources.limits.memory"), "{page}");
    }
}
