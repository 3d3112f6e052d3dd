//! Variables that are not set, have no default and must not become empty: those that have the name of a password or stand in
//! the place of one, and those at the start of a path.
//!
//! Compose lets them become empty with a warning, and so does the loader. The agent refuses them: a service that starts
//! with an empty password is open to everybody, or has stored that password for good, and a path without its start is
//! another folder at the root of the host, such as `/data` for `${PWD}/data`, in which a database begins empty.
//!
//! A mount without a source and a path of another Compose file have an error anyway. It names the variable.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{Finding, Location};
use driftless_yaml::{Kind, Node, Place, join};

use crate::load::errors::errors_at;

/// The last words of a name that says it holds a password, or a key from which passwords are derived. A token or an API
/// key is none: it opens another service, and most programs run without it.
const PASSWORD_WORDS: &[&str] = &["PASSWORD", "PASSWD", "PASSPHRASE", "SECRET"];

/// The same for words that are part of other words, so they must be whole.
const WHOLE_WORDS: &[&str] = &["PASS", "PWD", "PW"];

/// Names that end with these hold a key from which passwords are derived.
const KEYS: &[&str] = &["SECRET_KEY", "SECRETKEY", "ENCRYPTION_KEY", "SECRET_KEY_BASE"];

/// Variables of a shell. Compose files of other people use them for paths, and nobody sets them in Git.
const OF_SHELL: &[&str] = &["PWD", "HOME"];

/// The places for a variable.
const SET_IT: &str = "set it in the application's `variables`, in an env file in Git (encrypted if it is a secret), or on the host by \
                      `valuesFrom`: docs/secrets.md#values-that-lie-on-the-host-valuesfrom";

/// The ways to write a value of an env file.
const ENV_FILE_HELP: &str = "for a dollar sign, write `$$` or put the value in single quotes, and otherwise set the variable; the agent has \
                             none of a shell, such as `HOME`: write the absolute path";

/// A reason why a value must not be empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meaning {
    Password,
    PathStart,
    /// The value is the whole source of a mount, and the mount has an error for the lack of it.
    NoSource,
    /// The value is the path of another Compose file, which has an error if it is not found.
    ComposeFile,
}

impl Meaning {
    /// Whether the lack of the value is an error by itself, and does not only name the cause of another one.
    fn is_error(self) -> bool {
        match self {
            Self::Password | Self::PathStart => true,
            Self::NoSource | Self::ComposeFile => false,
        }
    }
}

/// An assignment of an env file with a variable that is not set. No finding has a text of its value or the name of that
/// variable: after a dollar sign it may be a part of a password.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EnvFileValue {
    /// The variable that the assignment sets.
    pub(crate) variable: String,
    pub(crate) location: Location,
}

/// A variable without a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missing {
    /// The value names the variable.
    Unset(String),
    /// The value names a variable of an env file, whose value has it.
    Part(EnvFileValue),
}

impl Missing {
    /// The error about a value at `path`.
    fn error(&self, location: Location, path: &str, meaning: Meaning) -> Finding {
        match self {
            Self::Unset(variable) => unset(location, path, variable, meaning),
            Self::Part(origin) => origin.error(path, meaning),
        }
    }
}

/// The unset variables of one application, by the location of the value that they are in.
#[derive(Default)]
pub(crate) struct MissingValues(BTreeMap<Location, BTreeMap<Missing, Meaning>>);

impl MissingValues {
    /// Records a variable that is not set and became empty.
    pub(crate) fn record(&mut self, location: &Location, missing: Missing, meaning: Meaning) {
        self.0.entry(location.clone()).or_default().insert(missing, meaning);
    }

    /// Forgets that the path of another Compose file has variables that are not set: the file was found.
    pub(crate) fn forget_compose_file(&mut self, location: &Location) {
        if let Some(missing) = self.0.get_mut(location) {
            missing.retain(|_, meaning| *meaning != Meaning::ComposeFile);
        }
    }

    /// Reports each variable at the first value that is used: an error, or a warning for a bare name. Services for which
    /// `is_active` is false are not used, nor are volumes, configs and secrets of such services alone, nor is an extension
    /// (`x-…`). An error takes the place of the warning in `findings` about the same variable.
    pub(crate) fn report(&self, root: &Node, is_active: &dyn Fn(&Node) -> bool, findings: &mut Vec<Finding>) {
        let empty = self.name_causes(Some(root), findings);
        let mut search = Search { unset: &self.0, empty, bare: BTreeSet::new(), findings: Vec::new() };
        for section in root.entries().iter().filter(|section| !section.key.starts_with("x-")) {
            match section.key.as_str() {
                "services" => {
                    for service in section.value.entries().iter().filter(|service| is_active(&service.value))
                    {
                        let path = join("services", &service.key);
                        search.node(&service.value, &path);
                        search.bare_names(&service.value, &join(&path, "environment"));
                    }
                }
                kind @ ("volumes" | "configs" | "secrets") => {
                    let used = used_by_services(root, kind, is_active);
                    for entry in section.value.entries().iter().filter(|it| used.contains(it.key.as_str())) {
                        search.node(&entry.value, &join(kind, &entry.key));
                    }
                }
                other => search.node(&section.value, other),
            }
        }
        drop_warnings(&search.empty, findings);
        // A value may have an error already.
        let reported = errors_at(findings);
        findings.extend(search.findings.into_iter().filter(|it| !reported.contains(&it.location)));
    }

    /// The errors about mounts without a source and about other Compose files name the variable that became empty, instead of
    /// the warning about it.
    pub(crate) fn name_in_errors(&self, root: Option<&Node>, findings: &mut Vec<Finding>) {
        let named = self.name_causes(root, findings);
        drop_warnings(&named, findings);
    }

    /// Names the variables in these errors, each variable at its first place. Returns these variables.
    fn name_causes(&self, root: Option<&Node>, findings: &mut Vec<Finding>) -> BTreeSet<Missing> {
        let causes = self.causes(root);
        let mut named = BTreeSet::new();
        for finding in std::mem::take(findings) {
            match causes.get(&finding.location).filter(|_| finding.is_error()) {
                None => findings.push(finding),
                Some((missing, meaning)) if named.insert((*missing).clone()) => {
                    findings.push(missing.error(finding.location, &finding.path, *meaning));
                }
                Some(_) => {}
            }
        }
        named
    }

    /// The variables that became empty, by the place of the error that follows from it: a mount has no source, or a Compose file is
    /// not found. In the long form of a mount, the source has a place of its own.
    fn causes(&self, root: Option<&Node>) -> BTreeMap<Location, (&Missing, Meaning)> {
        let missing_at = |location: &Location| {
            let mut missing = self.0.get(location)?.iter();
            missing.find(|(_, meaning)| !meaning.is_error()).map(|(missing, meaning)| (missing, *meaning))
        };
        let own = self.0.keys().filter_map(|location| Some((location.clone(), missing_at(location)?)));
        let services = root.and_then(|root| root.get("services")).map(Node::entries).unwrap_or_default();
        let mounts = services.iter().filter_map(|service| service.value.get("volumes")).flat_map(Node::items);
        let binds = mounts.filter(|mount| mount.get("type").and_then(Node::as_scalar) == Some("bind"));
        let long = binds.filter_map(|mount| {
            let source = mount.get("source")?.place.location();
            Some((mount.place.location(), missing_at(&source)?))
        });
        own.chain(long).collect()
    }
}

impl EnvFileValue {
    pub(crate) fn warning(&self) -> Finding {
        let message = format!("{} and becomes empty", self.subject());
        Finding::warning(self.location.clone(), "", message).help(ENV_FILE_HELP)
    }

    /// The error where the value is used at `path`.
    pub(crate) fn error(&self, path: &str, meaning: Meaning) -> Finding {
        let message = format!("{}, so {}", self.subject(), consequence(meaning));
        Finding::error(self.location.clone(), path, message).help(ENV_FILE_HELP)
    }

    fn subject(&self) -> String {
        format!("a variable in the value of `{}` is not set", self.variable)
    }
}

/// The names of a section that active services use, or their builds.
fn used_by_services<'a>(root: &'a Node, kind: &str, is_active: &dyn Fn(&Node) -> bool) -> BTreeSet<&'a str> {
    let services = root.get("services").map(Node::entries).unwrap_or_default();
    let active = services.iter().map(|service| &service.value).filter(|service| is_active(service));
    let lists =
        active.flat_map(|service| [service.get(kind), service.get("build").and_then(|it| it.get(kind))]);
    let sources = lists.flatten().flat_map(Node::items).filter_map(|item| item.get("source"));
    sources.filter_map(Node::as_scalar).collect()
}

/// The search for values with such variables.
struct Search<'a> {
    unset: &'a BTreeMap<Location, BTreeMap<Missing, Meaning>>,
    /// The variables that were reported because they become empty.
    empty: BTreeSet<Missing>,
    /// The variables that were reported because a bare name has no value.
    bare: BTreeSet<String>,
    findings: Vec<Finding>,
}

impl Search<'_> {
    fn node(&mut self, node: &Node, path: &str) {
        if self.unset.is_empty() {
            return;
        }
        // A list or map may be the long form of a text, in its place.
        self.value(node, path);
        match &node.kind {
            Kind::Mapping(entries) => {
                for entry in entries {
                    self.node(&entry.value, &join(path, &entry.key));
                }
            }
            Kind::Sequence(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.node(item, &join(path, &format!("[{index}]")));
                }
            }
            Kind::Scalar { .. } => {}
        }
    }

    /// Names without a value in `environment`: their variables are not set, or the loader had given them the value.
    fn bare_names(&mut self, service: &Node, path: &str) {
        let Some(environment) = service.get("environment") else { return };
        for entry in environment.entries().iter().filter(|entry| entry.value.is_null()) {
            self.bare_name(&entry.key, &entry.key_place, &join(path, &entry.key));
        }
        for (index, item) in environment.items().iter().enumerate() {
            if let Some(name) = item.as_scalar().filter(|text| !text.contains('=')) {
                self.bare_name(name, &item.place, &join(path, &format!("[{index}]")));
            }
        }
    }

    fn bare_name(&mut self, name: &str, place: &Place, path: &str) {
        if is_password(name) && self.bare.insert(name.to_owned()) {
            self.findings.push(not_passed(place.location(), path, name));
        }
    }

    fn value(&mut self, node: &Node, path: &str) {
        for (missing, meaning) in self.unset.get(&node.place.location()).into_iter().flatten() {
            // Without an error about its mount, a source may be missing.
            if meaning.is_error() && self.empty.insert(missing.clone()) {
                self.findings.push(missing.error(node.place.location(), path, *meaning));
            }
        }
    }
}

/// Drops the warnings about variables that have an error.
fn drop_warnings(reported: &BTreeSet<Missing>, findings: &mut Vec<Finding>) {
    let (mut messages, mut warnings) = (BTreeSet::new(), BTreeSet::new());
    for missing in reported {
        match missing {
            Missing::Unset(variable) => messages.insert(becomes_empty(variable)),
            Missing::Part(origin) => warnings.insert(origin.warning()),
        };
    }
    let is_replaced = |finding: &Finding| messages.contains(&finding.message) || warnings.contains(finding);
    findings.retain(|finding| finding.is_error() || !is_replaced(finding));
}

/// The warning about a variable that is not set.
pub(crate) fn becomes_empty(variable: &str) -> String {
    format!("the variable `{variable}` is not set and becomes empty")
}

/// The effect of an empty value that must not be empty.
pub(crate) fn consequence(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Password => "an empty password would be used",
        Meaning::PathStart => "the path would start at the root of the host",
        Meaning::NoSource => "the mount has no source",
        Meaning::ComposeFile => "the path of the other Compose file is incomplete",
    }
}

/// The error about a variable that must not be empty.
fn unset(location: Location, path: &str, variable: &str, meaning: Meaning) -> Finding {
    let message = format!("the variable `{variable}` is not set, so {}", consequence(meaning));
    let help = match meaning {
        Meaning::ComposeFile if OF_SHELL.contains(&variable) => {
            "the agent has no variables of a shell; write the path relative to the folder of this file".to_owned()
        }
        Meaning::PathStart | Meaning::NoSource if OF_SHELL.contains(&variable) => {
            "the agent has no variables of a shell; write the absolute path of the host, or `./…` for a file or folder of the \
             application"
                .to_owned()
        }
        Meaning::NoSource | Meaning::ComposeFile => {
            format!("{SET_IT} (`validate` and `preview` then take `--variable {variable}=…`)")
        }
        Meaning::Password | Meaning::PathStart => format!(
            "{SET_IT} (`validate` and `preview` then take `--variable {variable}=…`); write `${{{variable}:-}}` if it may be empty"
        ),
    };
    Finding::error(location, path, message).help(help)
}

/// The warning about a password that a service takes from a variable by its bare name. The container then lacks the
/// variable, which is not the same as an empty password, and programs notice it.
fn not_passed(location: Location, path: &str, variable: &str) -> Finding {
    let message = format!("the variable `{variable}` is not set, so the container does not have it");
    Finding::warning(location, path, message).help(format!("{SET_IT}, or remove the line"))
}

/// Whether a variable has the name of a password. `PWD` alone is the working directory of a shell.
pub(crate) fn is_password(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_');
    let ends_with_word = |word: &str| name.strip_suffix(word).is_some_and(|before| before.ends_with('_'));
    PASSWORD_WORDS.iter().chain(KEYS).any(|word| name.ends_with(word))
        || WHOLE_WORDS.iter().any(|word| ends_with_word(word))
        || matches!(name, "PASS" | "PW")
}

#[cfg(test)]
mod tests {
    use super::is_password;

    #[test]
    fn names_of_passwords_are_recognised() {
        for name in
            ["DB_PASSWORD", "mysqlPassword", "SMTP_PASS", "PASS", "JWT_SECRET", "PG_PWD", "A_PASSWORD_2"]
        {
            assert!(is_password(name), "{name}");
        }
        for name in ["PAPERLESS_SECRET_KEY", "SECRET_KEY_BASE", "N8N_ENCRYPTION_KEY", "REDIS_PASSPHRASE"] {
            assert!(is_password(name), "{name}");
        }
        for name in
            ["PWD", "COMPASS", "PASSWORD_FILE", "TOKEN_TTL", "GITHUB_TOKEN", "API_KEY", "SECRETS_DIR", ""]
        {
            assert!(!is_password(name), "{name}");
        }
    }
}
