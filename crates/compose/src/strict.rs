//! Holds a tree against the tables of the specification: unknown keys, wrong types, and texts that cannot be read.
//! Each fault is told with its place; none ends the check.
//!
//! Where the parts of a file must agree with each other is looked at later, in `consistency.rs`.

use std::collections::BTreeSet;

use super::{
    reader::{Path, Reader},
    scalar::{self, Plain},
    shape::{Form, Names, Object, Shape},
    words,
};
use driftless_yaml::{Entry, Kind, Node};

/// What is wrong with a whole file, or with several merged into one.
pub(super) fn check(root: &Node, reader: &mut Reader) {
    Check { reader }.object(root, &Path::Root, &super::spec::PROJECT);
}

/// As [`check`], of the list under `include`.
pub(super) fn check_include(list: &Node, reader: &mut Reader) {
    if let Some(shape) = super::spec::PROJECT.shape("include") {
        Check { reader }.shape(list, &Path::Root.key("include"), shape);
    }
}

struct Check<'a> {
    reader: &'a mut Reader,
}

impl Check<'_> {
    fn object(&mut self, node: &Node, path: &Path<'_>, object: &Object) {
        let Kind::Mapping(entries) = &node.kind else { return self.wrong(node, path, "a mapping") };
        for entry in entries {
            match object.shape(&entry.key) {
                Some(shape) => self.shape(&entry.value, &path.key(&entry.key), shape),
                None if object.open => self.reader.unknown(entry, path, &object.keys()),
                None => self.unknown(entry, path, object),
            }
        }
        for key in object.required.iter().filter(|key| entries.iter().all(|it| it.key != **key)) {
            let article = if key.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
            self.reader.error(&node.place, path, format!("needs {article} `{key}`"));
        }
    }

    /// Here not even extensions are allowed.
    fn unknown(&mut self, entry: &Entry, path: &Path<'_>, object: &Object) {
        if entry.key.starts_with("x-") {
            let message = format!("unknown key `{}`: extensions are not allowed here", entry.key);
            self.reader.error(&entry.key_place, &path.key(&entry.key), message);
        } else {
            self.reader.unknown(entry, path, &object.keys());
        }
    }

    fn shape(&mut self, node: &Node, path: &Path<'_>, shape: &Shape) {
        match shape {
            Shape::Any => self.port_word(node, path),
            Shape::Text | Shape::Path | Shape::Context => drop(self.text(node, path)),
            Shape::TextOrNull => {
                if !node.is_null() {
                    self.text(node, path);
                }
            }
            Shape::Word(words) => self.word(node, path, words),
            Shape::Like(form) => self.like(node, path, *form),
            Shape::TextOrInteger | Shape::TextOrBoolean => self.text_or(node, path, shape),
            Shape::Boolean(_) | Shape::UnlessFalse => drop(self.reader.boolean(node, path)),
            Shape::StrictBoolean => {
                if !matches!(Plain::of(node), Some((_, Plain::Bool(_)))) {
                    self.wrong(node, path, "`true` or `false` without quotes");
                }
            }
            Shape::Integer(_) => drop(self.reader.integer::<i64>(node, path)),
            Shape::Between(least, most) => {
                let value = self.reader.integer::<i64>(node, path);
                if value.is_some_and(|it| it < *least || it > *most) {
                    self.reader.error(&node.place, path, format!("is not between {least} and {most}"));
                }
            }
            Shape::StrictInteger => {
                if !matches!(Plain::of(node), Some((_, Plain::Integer(_)))) {
                    self.wrong(node, path, "a whole number");
                }
            }
            Shape::Number | Shape::Float | Shape::Processors => drop(self.reader.float(node, path)),
            Shape::Bytes => self.bytes(node, path),
            Shape::TextBytes => {
                if self.text(node, path) {
                    self.bytes(node, path);
                }
            }
            Shape::Duration(_) => drop(self.reader.duration(node, path)),
            Shape::Mode | Shape::RawMode => self.mode(node, path),
            Shape::Count => self.count(node, path),
            Shape::Texts | Shape::Repeated | Shape::TextsOrNumbers => self.texts(node, path, shape),
            Shape::TextOrTexts | Shape::Paths => match &node.kind {
                Kind::Sequence(_) => self.texts(node, path, &Shape::Texts),
                Kind::Scalar { .. } | Kind::Mapping(_) => drop(self.text(node, path)),
            },
            Shape::Command | Shape::Test => self.command(node, path, shape),
            Shape::Environment | Shape::Labels | Shape::Contexts | Shape::Ssh => {
                self.pairs(node, path, shape);
            }
            Shape::Options | Shape::Multiple => self.options(node, path, shape),
            Shape::Hosts => self.hosts(node, path),
            Shape::External => self.external(node, path),
            Shape::Map(names, inner) => self.map(node, path, *names, inner),
            Shape::List(inner) => self.list(node, path, inner),
            Shape::Each(inner) => {
                self.list(node, path, inner);
                self.unique(node, path);
            }
            Shape::Short(short, long) => match &node.kind {
                Kind::Scalar { .. } => self.shape(node, path, short),
                Kind::Mapping(_) | Kind::Sequence(_) => self.shape(node, path, long),
            },
            Shape::Listed(list, other) => match &node.kind {
                Kind::Sequence(_) => self.shape(node, path, list),
                Kind::Mapping(_) | Kind::Scalar { .. } => self.shape(node, path, other),
            },
            Shape::OrNull(inner) => {
                if !node.is_null() {
                    self.shape(node, path, inner);
                }
            }
            Shape::Object(object) | Shape::Always(object) | Shape::Capitalised(object) => {
                self.object(node, path, object);
            }
        }
    }

    fn wrong(&mut self, node: &Node, path: &Path<'_>, expected: &str) {
        self.reader.wrong_type(node, path, expected);
    }

    fn text(&mut self, node: &Node, path: &Path<'_>) -> bool {
        self.reader.text(node, path).is_some()
    }

    /// A port in the short syntax is text, or a whole number.
    fn port_word(&mut self, node: &Node, path: &Path<'_>) {
        if !matches!(Plain::of(node), Some((_, Plain::Text | Plain::Time(_) | Plain::Integer(_)))) {
            self.wrong(node, path, "a port");
        }
    }

    fn word(&mut self, node: &Node, path: &Path<'_>, words: &[&str]) {
        let Some(text) = self.reader.text(node, path) else { return };
        if !words.contains(&&*text) {
            let quoted: Vec<String> = words.iter().map(|it| format!("`{it}`")).collect();
            let message = format!("`{text}` is not known here; use one of {}", quoted.join(", "));
            self.reader.error(&node.place, path, message);
        }
    }

    fn like(&mut self, node: &Node, path: &Path<'_>, form: Form) {
        let Some(text) = self.reader.text(node, path) else { return };
        let message = match form {
            Form::ContainerName if !has_name(&text) => {
                "is not a container's name: two or more letters, digits, `_`, `.`, `-`"
            }
            Form::PullPolicy if !is_pull_policy(&text) => {
                "is no pull policy; use `always`, `missing`, `never`, `build`, `daily`, `weekly` or `every_12h`"
            }
            Form::ContainerName | Form::PullPolicy => return,
        };
        self.reader.error(&node.place, path, format!("`{text}` {message}"));
    }

    fn text_or(&mut self, node: &Node, path: &Path<'_>, shape: &Shape) {
        let is_right = match (Plain::of(node), shape) {
            (Some((_, Plain::Text | Plain::Time(_))), _)
            | (Some((_, Plain::Integer(_))), Shape::TextOrInteger)
            | (Some((_, Plain::Bool(_))), Shape::TextOrBoolean) => true,
            (_, _) => false,
        };
        if !is_right {
            let other =
                if matches!(shape, Shape::TextOrInteger) { "a whole number" } else { "`true` or `false`" };
            self.wrong(node, path, &format!("text or {other}"));
        }
    }

    fn bytes(&mut self, node: &Node, path: &Path<'_>) {
        let is_negative = matches!(Plain::of(node), Some((text, Plain::Text)) if text.parse::<i64>().is_ok())
            || matches!(Plain::of(node), Some((_, Plain::Integer(_))));
        if !is_negative {
            self.reader.bytes(node, path);
        }
    }

    fn mode(&mut self, node: &Node, path: &Path<'_>) {
        let is_mode = match Plain::of(node) {
            Some((_, Plain::Integer(value))) => value >= 0,
            Some((text, Plain::Text)) => i64::from_str_radix(text, 8).is_ok(),
            Some((_, Plain::Null | Plain::Bool(_) | Plain::Float(_) | Plain::Time(_))) | None => false,
        };
        if !is_mode {
            self.wrong(node, path, "permissions in octal, such as `0440`");
        }
    }

    fn count(&mut self, node: &Node, path: &Path<'_>) {
        let is_all = super::tree::as_text(node).is_some_and(|it| it.eq_ignore_ascii_case("all"));
        if !is_all {
            self.reader.integer::<i64>(node, path);
        }
    }

    fn texts(&mut self, node: &Node, path: &Path<'_>, shape: &Shape) {
        for (index, item) in self.reader.sequence(node, path).iter().enumerate() {
            let at = path.index(index);
            match shape {
                Shape::TextsOrNumbers => drop(self.reader.text_or_number(item, &at)),
                _ => drop(self.text(item, &at)),
            }
        }
        if !matches!(shape, Shape::Repeated) {
            self.unique(node, path);
        }
    }

    fn command(&mut self, node: &Node, path: &Path<'_>, shape: &Shape) {
        match &node.kind {
            Kind::Sequence(_) => self.texts(node, path, &Shape::Repeated),
            Kind::Scalar { .. } if node.is_null() && matches!(shape, Shape::Command) => {}
            Kind::Scalar { .. } | Kind::Mapping(_) => {
                let Some(text) = self.reader.text(node, path) else { return };
                if matches!(shape, Shape::Command) && words::split(&text).is_none() {
                    let message = "cannot be split into words: a quote or parenthesis is left open";
                    self.reader.error(&node.place, path, message);
                }
            }
        }
    }

    fn pairs(&mut self, node: &Node, path: &Path<'_>, shape: &Shape) {
        let pairs = self.reader.pairs(node, path);
        if !matches!(node.kind, Kind::Sequence(_)) {
            return;
        }
        self.unique(node, path);
        for pair in pairs {
            let message = match shape {
                Shape::Environment if pair.name.ends_with(char::is_whitespace) => {
                    format!("the variable `{}` has a space before its `=`", pair.name.trim_end())
                }
                Shape::Contexts if pair.value.is_none() => {
                    format!("`{}` has no context; write `name=context`", pair.name)
                }
                Shape::Ssh if pair.value.is_none() && pair.name != "default" => {
                    format!("`{}` names no key; write `{}=path`", pair.name, pair.name)
                }
                _ => continue,
            };
            self.reader.error(&node.place, path, message);
        }
    }

    fn options(&mut self, node: &Node, path: &Path<'_>, shape: &Shape) {
        for entry in self.reader.mapping(node, path) {
            let at = path.key(&entry.key);
            match (&entry.value.kind, shape) {
                (Kind::Sequence(items), Shape::Multiple) => {
                    for (index, item) in items.iter().enumerate() {
                        self.reader.any_scalar(item, &at.index(index));
                    }
                }
                (Kind::Sequence(_) | Kind::Scalar { .. } | Kind::Mapping(_), _) => {
                    self.reader.any_scalar(&entry.value, &at);
                }
            }
        }
    }

    fn hosts(&mut self, node: &Node, path: &Path<'_>) {
        match &node.kind {
            Kind::Mapping(entries) => {
                for entry in entries {
                    let at = path.key(&entry.key);
                    match &entry.value.kind {
                        Kind::Sequence(_) => self.texts(&entry.value, &at, &Shape::Repeated),
                        Kind::Scalar { .. } | Kind::Mapping(_) => drop(self.text(&entry.value, &at)),
                    }
                    if entry.key.is_empty() || entry.key.contains([':', '=']) {
                        let message = format!("`{}` is not a host's name", entry.key);
                        self.reader.error(&entry.key_place, &at, message);
                    }
                }
            }
            Kind::Sequence(items) => {
                for (index, item) in items.iter().enumerate() {
                    let at = path.index(index);
                    let Some(text) = self.reader.text(item, &at) else { continue };
                    let parts = text.split_once('=').or_else(|| text.split_once(':'));
                    if parts.is_none_or(|(name, _)| name.is_empty() || name.contains(':')) {
                        self.reader.error(&item.place, &at, format!("`{text}` is not `name=address`"));
                    }
                }
                self.unique(node, path);
            }
            Kind::Scalar { .. } => self.wrong(node, path, "a mapping or a list"),
        }
    }

    fn external(&mut self, node: &Node, path: &Path<'_>) {
        match &node.kind {
            Kind::Mapping(entries) => {
                for entry in entries {
                    match entry.key.as_str() {
                        "name" => drop(self.text(&entry.value, &path.key("name"))),
                        _ => self.reader.unknown(entry, path, "name"),
                    }
                }
            }
            Kind::Scalar { .. } | Kind::Sequence(_) => drop(self.reader.boolean(node, path)),
        }
    }

    fn map(&mut self, node: &Node, path: &Path<'_>, names: Names, inner: &Shape) {
        for entry in self.reader.mapping(node, path) {
            let at = path.key(&entry.key);
            if names == Names::Plain && !is_name(&entry.key) {
                let message = format!("`{}` is not a name; use letters, digits, `.`, `_` and `-`", entry.key);
                self.reader.error(&entry.key_place, &at, message);
            }
            self.shape(&entry.value, &at, inner);
        }
    }

    fn list(&mut self, node: &Node, path: &Path<'_>, inner: &Shape) {
        for (index, item) in self.reader.sequence(node, path).iter().enumerate() {
            self.shape(item, &path.index(index), inner);
        }
    }

    fn unique(&mut self, node: &Node, path: &Path<'_>) {
        let mut seen = BTreeSet::new();
        for (index, item) in node.items().iter().enumerate() {
            if !seen.insert(super::print::raw(item).to_string()) {
                self.reader.error(&item.place, &path.index(index), "stands in the list twice");
            }
        }
    }
}

fn is_name(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-'))
}

/// The reference parser asks only that a name is somewhere in the text; the rest is for the engine to refuse.
fn has_name(text: &str) -> bool {
    let mut letters = text.chars().skip_while(|it| !it.is_ascii_alphanumeric());
    letters.next().is_some()
        && letters.next().is_some_and(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '.' | '-'))
}

fn is_pull_policy(text: &str) -> bool {
    let words = ["always", "never", "build", "if_not_present", "missing", "refresh", "daily", "weekly"];
    words.contains(&text) || text.strip_prefix("every_").is_some_and(|it| scalar::duration(it).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_yaml::{Limits, parse};

    fn faults(text: &str) -> Vec<String> {
        let nodes = parse("a.yaml", text.as_bytes(), &Limits::default()).unwrap();
        let mut reader = Reader::default();
        check(&nodes[0], &mut reader);
        reader.findings.iter().map(|it| format!("{}: {}", it.path, it.message)).collect()
    }

    #[test]
    fn unknown_keys_are_found_at_every_level() {
        let text = "services: {web: {imgae: a, x-ours: 1, healthcheck: {tset: a}, deploy: {resources: {limits: {cpu: 1}}},\
                    networks: {a: {alias: []}}, env_file: [{path: a, x-more: 1}]}}\nvolume: {}\n";
        let found = faults(text).join("\n");
        for key in ["imgae", "tset", "cpu", "alias", "volume", "x-more"] {
            assert!(found.contains(&format!("unknown key `{key}`")), "{key}: {found}");
        }
        assert!(!found.contains("x-ours"));
    }

    #[test]
    fn wrong_types_are_told_where_they_stand() {
        let cases = [
            ("services: {web: {ports: 80}}", "services.web.ports: expected a list"),
            ("services: {web: {user: 1000}}", "services.web.user: expected text"),
            ("services: {web: {cap_add: [A, A]}}", "services.web.cap_add[1]: stands in the list twice"),
            ("services: {web: {stop_grace_period: 10}}", "services.web.stop_grace_period: expected text"),
            ("services: {web: {depends_on: {a: {}}}}", "services.web.depends_on.a: needs a `condition`"),
            ("services: {web: {cgroup: mine}}", "services.web.cgroup: `mine` is not known here"),
            ("version: 3.8", "version: expected text, found a number"),
            ("services: {web: {cpu_percent: 101}}", "services.web.cpu_percent: is not between"),
            ("services: {'a b': {}}", "services.a b: `a b` is not a name"),
        ];
        for (text, wanted) in cases {
            assert!(faults(text).iter().any(|it| it.starts_with(wanted)), "{text}: {:?}", faults(text));
        }
    }
}
