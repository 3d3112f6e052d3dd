//! Checks a tree against the table of the specification: unknown keys, wrong types, and strings that cannot be read.
//! Each mistake is reported with its place.
//!
//! Rules between the parts of a file are in `consistency.rs`.

use std::collections::BTreeSet;

use driftless_yaml::{Entry, Keys as _, Kind, Node};

use crate::spec::{
    command_line,
    keys::PROJECT,
    print,
    scalar::{self, Plain},
    shape::{Form, Names, Object, Shape},
    tree::as_text,
    value::{Read as _, Value},
};

/// Checks a whole file, or several files merged into one.
pub(crate) fn check(root: &Value<'_>) {
    if let Some(service) = service_at_top_level(root.node) {
        let message =
            format!("`{}` is a service at the top level, as in version 1 of Compose files", service.key);
        let path = service.key.clone();
        let finding = driftless_model::Finding::error(service.key_place.location(), path, message);
        return root.report().say(finding.help("put all services under `services:`"));
    }
    check_object(root, &PROJECT);
}

/// The first service of a file of version 1, which has no `services`.
pub(crate) fn service_at_top_level(root: &Node) -> Option<&Entry> {
    let is_service = |entry: &&Entry| {
        let has = |key: &str| entry.value.get(key).is_some();
        PROJECT.shape(&entry.key).is_none() && !entry.key.starts_with("x-") && (has("image") || has("build"))
    };
    root.entries().iter().find(is_service).filter(|_| root.get("services").is_none())
}

/// As [`check`], for the list under `include`.
pub(crate) fn check_include(list: &Value<'_>) {
    if let Some(shape) = PROJECT.shape("include") {
        check_shape(list, shape);
    }
}

fn check_object(value: &Value<'_>, object: &Object) {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        return value.wrong_type("a map");
    }
    let entries = value.node.entries();
    for entry in entries {
        match object.shape(&entry.key) {
            Some(shape) => check_shape(&value.key(&entry.key, &entry.value), shape),
            None => check_unknown(value, entry, object),
        }
    }
    for key in object.required.iter().filter(|key| entries.iter().all(|entry| entry.key != **key)) {
        let article = if key.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
        value.error(format!("needs {article} `{key}`"));
    }
}

fn check_unknown(value: &Value<'_>, entry: &Entry, object: &Object) {
    if !entry.key.starts_with("x-") {
        value.unknown(entry, &object.names());
    } else if !object.open {
        let message = format!("unknown key `{}`: extensions are not allowed here", entry.key);
        error_at_key(value, entry, message);
    }
}

/// Reports an error at a key instead of its value.
fn error_at_key(map: &Value<'_>, entry: &Entry, message: String) {
    let path = driftless_yaml::join(&map.path, &entry.key);
    map.report().say(driftless_model::Finding::error(entry.key_place.location(), path, message));
}

fn check_shape(value: &Value<'_>, shape: &Shape) {
    let node = value.node;
    match shape {
        Shape::Any => check_port(value),
        Shape::Text | Shape::Path | Shape::Context => drop(value.string()),
        Shape::TextOrNull => {
            if !node.is_null() {
                value.string();
            }
        }
        Shape::Word(words) => check_word(value, words),
        Shape::Like(form) => check_form(value, *form),
        Shape::TextOrInteger | Shape::TextOrBoolean => check_text_or(value, shape),
        Shape::Boolean(_) | Shape::UnlessFalse => drop(value.boolean()),
        Shape::StrictBoolean => {
            if !matches!(Plain::of(node), Some((_, Plain::Bool(_)))) {
                value.wrong_type("true or false without quotes");
            }
        }
        Shape::Integer(_) => drop(value.whole::<i64>()),
        Shape::Between(least, most) => {
            if value.whole::<i64>().is_some_and(|number| number < *least || number > *most) {
                value.error(format!("must be from {least} to {most}"));
            }
        }
        Shape::StrictInteger => {
            if !matches!(Plain::of(node), Some((_, Plain::Integer(_)))) {
                value.wrong_type("a whole number");
            }
        }
        Shape::Number | Shape::Float | Shape::Processors => drop(value.float()),
        Shape::Bytes => check_bytes(value),
        Shape::TextBytes => {
            if value.string().is_some() {
                check_bytes(value);
            }
        }
        Shape::Duration(_) => drop(value.duration()),
        Shape::Mode | Shape::RawMode => check_mode(value),
        Shape::Count => check_count(value),
        Shape::Texts | Shape::Repeated | Shape::TextsOrNumbers => check_texts(value, shape),
        Shape::TextOrTexts | Shape::Paths => match &node.kind {
            Kind::Sequence(_) => check_texts(value, &Shape::Texts),
            Kind::Scalar { .. } | Kind::Mapping(_) => drop(value.string()),
        },
        Shape::Command | Shape::Test => check_command(value, shape),
        Shape::Environment | Shape::Labels | Shape::Contexts | Shape::Ssh => check_pairs(value, shape),
        Shape::Options | Shape::Multiple => check_options(value, shape),
        Shape::Hosts => check_hosts(value),
        Shape::External => check_external(value),
        Shape::Map(names, inner) => check_map(value, *names, inner),
        Shape::List(inner) => check_list(value, inner),
        Shape::Each(inner) => {
            check_list(value, inner);
            check_unique(value);
        }
        Shape::Short(short, long) => match &node.kind {
            Kind::Scalar { .. } => check_shape(value, short),
            Kind::Mapping(_) | Kind::Sequence(_) => check_shape(value, long),
        },
        Shape::Listed(list, other) => match &node.kind {
            Kind::Sequence(_) => check_shape(value, list),
            Kind::Mapping(_) | Kind::Scalar { .. } => check_shape(value, other),
        },
        Shape::OrNull(inner) => {
            if !node.is_null() {
                check_shape(value, inner);
            }
        }
        Shape::Object(object) | Shape::Always(object) | Shape::Capitalised(object) => {
            check_object(value, object);
        }
        Shape::Extension => {}
    }
}

/// A port in the short syntax is a string or a whole number.
fn check_port(value: &Value<'_>) {
    if !matches!(Plain::of(value.node), Some((_, Plain::Text | Plain::Time(_) | Plain::Integer(_)))) {
        value.wrong_type("a port");
    }
}

fn check_word(value: &Value<'_>, words: &[&str]) {
    let Some(text) = value.string() else { return };
    if !words.contains(&&*text) {
        let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        value.error(format!("`{text}` is not a value of this key; use one of {}", quoted.join(", ")));
    }
}

fn check_form(value: &Value<'_>, form: Form) {
    let Some(text) = value.string() else { return };
    let message = match form {
        Form::ContainerName if !has_name(&text) => {
            "is not a container name: use two or more letters, digits, `_`, `.`, `-`"
        }
        Form::PullPolicy if !is_pull_policy(&text) => {
            "is not a pull policy; use `always`, `missing`, `never`, `build`, `daily`, `weekly` or `every_12h`"
        }
        Form::ContainerName | Form::PullPolicy => return,
    };
    value.error(format!("`{text}` {message}"));
}

fn check_text_or(value: &Value<'_>, shape: &Shape) {
    let is_right = match (Plain::of(value.node), shape) {
        (Some((_, Plain::Text | Plain::Time(_))), _)
        | (Some((_, Plain::Integer(_))), Shape::TextOrInteger)
        | (Some((_, Plain::Bool(_))), Shape::TextOrBoolean) => true,
        (_, _) => false,
    };
    if !is_right {
        let is_number = matches!(shape, Shape::TextOrInteger);
        value.wrong_type(if is_number { "a string or a whole number" } else { "a string or a boolean" });
    }
}

/// A size. Any whole number is accepted, also a negative one.
fn check_bytes(value: &Value<'_>) {
    let is_number = match Plain::of(value.node) {
        Some((text, Plain::Text)) => text.parse::<i64>().is_ok(),
        Some((_, Plain::Integer(_))) => true,
        Some((_, Plain::Null | Plain::Bool(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_)))
        | None => false,
    };
    if !is_number {
        value.bytes();
    }
}

fn check_mode(value: &Value<'_>) {
    let is_mode = match Plain::of(value.node) {
        Some((_, Plain::Integer(number))) => number >= 0,
        Some((text, Plain::Text)) => i64::from_str_radix(text, 8).is_ok(),
        Some((_, Plain::Null | Plain::Bool(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_)))
        | None => false,
    };
    if !is_mode {
        value.wrong_type("permissions in octal, such as `0440`");
    }
}

fn check_count(value: &Value<'_>) {
    if !as_text(value.node).is_some_and(|text| text.eq_ignore_ascii_case("all")) {
        value.whole::<i64>();
    }
}

fn check_texts(value: &Value<'_>, shape: &Shape) {
    for item in value.sequence() {
        match shape {
            Shape::TextsOrNumbers => drop(item.text_or_number()),
            _ => drop(item.string()),
        }
    }
    if !matches!(shape, Shape::Repeated) {
        check_unique(value);
    }
}

fn check_command(value: &Value<'_>, shape: &Shape) {
    match &value.node.kind {
        Kind::Sequence(_) => check_texts(value, &Shape::Repeated),
        Kind::Scalar { .. } if value.node.is_null() && matches!(shape, Shape::Command) => {}
        Kind::Scalar { .. } | Kind::Mapping(_) => {
            let Some(text) = value.string() else { return };
            if matches!(shape, Shape::Command) && command_line::split(&text).is_none() {
                value.error("cannot be split into words: a quote or parenthesis is not closed");
            }
        }
    }
}

fn check_pairs(value: &Value<'_>, shape: &Shape) {
    let pairs = value.assignments();
    if !matches!(value.node.kind, Kind::Sequence(_)) {
        return;
    }
    check_unique(value);
    for pair in pairs {
        let name = &pair.name;
        match shape {
            Shape::Environment if name.ends_with(char::is_whitespace) => {
                value.error(format!("the variable `{}` has a space before its `=`", name.trim_end()));
            }
            Shape::Contexts if pair.value.is_none() => {
                value.error(format!("`{name}` has no context; write `name=context`"));
            }
            Shape::Ssh if pair.value.is_none() && name != "default" => {
                value.error(format!("`{name}` has no key; write `{name}=path`"));
            }
            _ => {}
        }
    }
}

fn check_options(value: &Value<'_>, shape: &Shape) {
    for entry in value.mapping() {
        let option = value.key(&entry.key, &entry.value);
        if matches!((&entry.value.kind, shape), (Kind::Sequence(_), Shape::Multiple)) {
            for item in option.sequence() {
                item.any_scalar();
            }
        } else {
            option.any_scalar();
        }
    }
}

fn check_hosts(value: &Value<'_>) {
    match &value.node.kind {
        Kind::Mapping(entries) => {
            for entry in entries {
                let addresses = value.key(&entry.key, &entry.value);
                match &entry.value.kind {
                    Kind::Sequence(_) => check_texts(&addresses, &Shape::Repeated),
                    Kind::Scalar { .. } | Kind::Mapping(_) => drop(addresses.string()),
                }
                if entry.key.is_empty() || entry.key.contains([':', '=']) {
                    error_at_key(value, entry, format!("`{}` is not a host name", entry.key));
                }
            }
        }
        Kind::Sequence(_) => {
            for item in value.sequence() {
                let Some(text) = item.string() else { continue };
                let parts = text.split_once('=').or_else(|| text.split_once(':'));
                if parts.is_none_or(|(name, _)| name.is_empty() || name.contains(':')) {
                    item.error(format!("`{text}` is not `name=address`"));
                }
            }
            check_unique(value);
        }
        Kind::Scalar { .. } => value.wrong_type("a map or a list"),
    }
}

fn check_external(value: &Value<'_>) {
    match &value.node.kind {
        Kind::Mapping(entries) => {
            for entry in entries {
                match entry.key.as_str() {
                    "name" => drop(value.key("name", &entry.value).string()),
                    key if key.starts_with("x-") => {}
                    _ => value.unknown(entry, &["name"]),
                }
            }
        }
        Kind::Scalar { .. } | Kind::Sequence(_) => drop(value.boolean()),
    }
}

fn check_map(value: &Value<'_>, names: Names, inner: &Shape) {
    for entry in value.mapping() {
        if names == Names::Plain && !is_name(&entry.key) {
            let message = format!("`{}` is not a name; use letters, digits, `.`, `_` and `-`", entry.key);
            error_at_key(value, entry, message);
        }
        check_shape(&value.key(&entry.key, &entry.value), inner);
    }
}

fn check_list(value: &Value<'_>, inner: &Shape) {
    for item in value.sequence() {
        check_shape(&item, inner);
    }
}

fn check_unique(value: &Value<'_>) {
    let mut seen = BTreeSet::new();
    for (index, item) in value.node.items().iter().enumerate() {
        if !seen.insert(print::raw(item).to_string()) {
            value.item(index, item).error("is in the list twice");
        }
    }
}

/// Whether a key can be the name of a service or another object.
pub(crate) fn is_name(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-'))
}

/// The reference parser only requires a name somewhere in the string; the engine refuses the rest.
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
    use driftless_yaml::{Limits, Report, parse};

    fn errors(text: &str) -> Vec<String> {
        let nodes = parse("a.yaml", text.as_bytes(), &Limits::default()).unwrap();
        let report = Report::default();
        check(&Value::new(&nodes[0], "", &report));
        report.into_findings().iter().map(|it| format!("{}: {}", it.path, it.message)).collect()
    }

    #[test]
    fn unknown_keys_are_found_at_every_level() {
        let text = "services: {web: {imgae: a, x-ours: 1, healthcheck: {tset: a}, deploy: {resources: {limits: {cpu: 1}}},\
                    networks: {a: {alias: []}}, env_file: [{path: a, x-more: 1}]}}\nvolume: {}\n";
        let found = errors(text).join("\n");
        for key in ["imgae", "tset", "cpu", "alias", "volume", "x-more"] {
            assert!(found.contains(&format!("unknown key `{key}`")), "{key}: {found}");
        }
        assert!(!found.contains("x-ours"));
    }

    #[test]
    fn wrong_types_are_reported_with_their_path() {
        let cases = [
            ("services: {web: {ports: 80}}", "services.web.ports: must be a list"),
            ("services: {web: {user: 1000}}", "services.web.user: must be a string"),
            ("services: {web: {cap_add: [A, A]}}", "services.web.cap_add[1]: is in the list twice"),
            ("services: {web: {stop_grace_period: 10}}", "services.web.stop_grace_period: must be a string"),
            ("services: {web: {depends_on: {a: {}}}}", "services.web.depends_on.a: needs a `condition`"),
            ("services: {web: {cgroup: mine}}", "services.web.cgroup: `mine` is not a value of this key"),
            ("version: 3.8", "version: must be a string, but it is a number"),
            ("services: {web: {cpu_percent: 101}}", "services.web.cpu_percent: must be from 0 to 100"),
            ("services: {'a b': {}}", "services.a b: `a b` is not a name"),
        ];
        for (text, wanted) in cases {
            assert!(errors(text).iter().any(|it| it.starts_with(wanted)), "{text}: {:?}", errors(text));
        }
    }
}
