//! Selects the objects of a patch or a replacement: by kind and name, as regular expressions for the whole text, and by
//! labels and annotations in the notation of Kubernetes.

use std::collections::BTreeMap;

use regex::Regex;

use super::{
    super::reader::{Object, Value},
    keys,
    resource::{Gvk, Id, Resource},
};

#[derive(Debug)]
pub(super) struct Selector {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Vec<Requirement>,
    annotations: Vec<Requirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Above(String, i64),
    Below(String, i64),
}

impl Selector {
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(keys::TARGET)?;
        Some(Self {
            group: pattern(&object, "group")?,
            version: pattern(&object, "version")?,
            kind: pattern(&object, "kind")?,
            name: pattern(&object, "name")?,
            namespace: pattern(&object, "namespace")?,
            labels: requirements(&object, "labelSelector")?,
            annotations: requirements(&object, "annotationSelector")?,
        })
    }

    /// Whether it restricts kind, name or namespace.
    pub(super) fn has_id(&self) -> bool {
        [&self.group, &self.version, &self.kind, &self.name, &self.namespace].iter().any(|it| it.is_some())
    }

    /// Whether it selects an object, by its first or its current name and namespace.
    pub(super) fn selects(&self, resource: &Resource) -> bool {
        let (first, now) = (resource.first_id(), resource.id());
        let named = is_match(self.name.as_ref(), &first.name) || is_match(self.name.as_ref(), &now.name);
        let placed = is_match(self.namespace.as_ref(), first.namespace_text())
            || is_match(self.namespace.as_ref(), now.namespace_text());
        named && placed && self.has_kind(&now.gvk) && self.selects_metadata(resource)
    }

    /// Whether it selects one id.
    pub(super) fn selects_id(&self, id: &Id) -> bool {
        self.has_kind(&id.gvk)
            && is_match(self.name.as_ref(), &id.name)
            && is_match(self.namespace.as_ref(), id.namespace_text())
    }

    pub(super) fn selects_metadata(&self, resource: &Resource) -> bool {
        holds(&self.labels, &resource.texts("labels"))
            && holds(&self.annotations, &resource.texts("annotations"))
    }

    pub(super) fn has_metadata(&self) -> bool {
        !(self.labels.is_empty() && self.annotations.is_empty())
    }

    fn has_kind(&self, gvk: &Gvk) -> bool {
        is_match(self.group.as_ref(), &gvk.group)
            && is_match(self.version.as_ref(), &gvk.version)
            && is_match(self.kind.as_ref(), &gvk.kind)
    }
}

fn is_match(pattern: Option<&Regex>, text: &str) -> bool {
    pattern.is_none_or(|it| it.is_match(text))
}

/// The outer `None` is an error, which is reported.
#[expect(clippy::option_option, reason = "an absent pattern is no error")]
fn pattern(object: &Object<'_>, key: &str) -> Option<Option<Regex>> {
    let Some(value) = object.get(key) else { return Some(None) };
    let text = value.string()?;
    if text.is_empty() {
        return Some(None);
    }
    let regex = Regex::new(&format!("^(?:{text})$"));
    if regex.is_err() {
        value.error_help(
            format!("`{text}` is not a regular expression"),
            "put a backslash before each of `\\.+*?()|[]{}^$` that is meant literally",
        );
    }
    regex.ok().map(Some)
}

fn requirements(object: &Object<'_>, key: &str) -> Option<Vec<Requirement>> {
    let Some(value) = object.get(key) else { return Some(Vec::new()) };
    let text = value.string()?;
    let found = parse(text);
    if found.is_none() {
        value.error_help(
            format!("`{text}` is not a selector"),
            "such as `app=web,tier!=db,env in (dev,prod),!old`, all of which must hold",
        );
    }
    found
}

fn parse(text: &str) -> Option<Vec<Requirement>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(text.get(from..at)?);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(from..)?);
    parts.into_iter().map(|it| requirement(it.trim())).collect()
}

fn requirement(text: &str) -> Option<Requirement> {
    let key = |it: &str| {
        let it = it.trim();
        let is_key = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '/');
        (!it.is_empty() && it.chars().all(is_key)).then(|| it.to_owned())
    };
    let number = |it: &str| it.trim().parse().ok();
    if let Some(rest) = text.strip_prefix('!') {
        return Some(Requirement::Missing(key(rest)?));
    }
    if let Some(listed) = text.strip_suffix(')') {
        let (before, list) = listed.split_once('(')?;
        let values = list.split(',').map(|it| it.trim().to_owned()).collect();
        let (name, word) = before.trim_end().rsplit_once(char::is_whitespace)?;
        return match word {
            "in" => Some(Requirement::In(key(name)?, values)),
            "notin" => Some(Requirement::NotIn(key(name)?, values)),
            _ => None,
        };
    }
    if let Some((name, value)) = text.split_once("!=") {
        return Some(Requirement::NotIn(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Requirement::In(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = text.split_once('>') {
        return Some(Requirement::Above(key(name)?, number(value)?));
    }
    if let Some((name, value)) = text.split_once('<') {
        return Some(Requirement::Below(key(name)?, number(value)?));
    }
    key(text).map(Requirement::Exists)
}

fn holds(requirements: &[Requirement], found: &BTreeMap<&str, &str>) -> bool {
    let value = |key: &String| found.get(key.as_str()).copied();
    let number = |key: &String| value(key).and_then(|it| it.parse::<i64>().ok());
    requirements.iter().all(|it| match it {
        Requirement::Exists(key) => value(key).is_some(),
        Requirement::Missing(key) => value(key).is_none(),
        Requirement::In(key, values) => value(key).is_some_and(|it| values.iter().any(|one| one == it)),
        Requirement::NotIn(key, values) => value(key).is_none_or(|it| values.iter().all(|one| one != it)),
        Requirement::Above(key, least) => number(key).is_some_and(|it| it > *least),
        Requirement::Below(key, most) => number(key).is_some_and(|it| it < *most),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_hold_as_kubernetes_has_them() {
        let labels = BTreeMap::from([("app", "web"), ("env", "prod"), ("size", "5")]);
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!old, app", true),
            ("app=web", true),
            ("app == web,env=prod", true),
            ("app=db", false),
            ("app!=db", true),
            ("other!=db", true),
            ("env in (dev, prod)", true),
            ("env in (dev)", false),
            ("env notin (dev,test),app=web", true),
            ("other notin (dev)", true),
            ("other in (dev)", false),
            ("size>4,size<6", true),
            ("size > 5", false),
        ];
        for (text, expected) in cases {
            assert_eq!(holds(&parse(text).unwrap(), &labels), expected, "{text}");
        }
        for text in ["=a", "a b", "a in b", "a in (b", "a near (b)", ",", "a)", "size>x", "a,,b", "!"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
