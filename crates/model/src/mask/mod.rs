//! Hides values that may be secret. `docs/masking.md` is the rule for users.
//!
//! There are three reasons to hide a part of a text: the name that it belongs to ([`names`]), its form ([`patterns`],
//! [`arguments`]), and its value, if a secret of the application has that value. Equal values are hidden equally within
//! one run, so that a reader can tell "changed" from "the same". The key of the digest is random.

mod arguments;
mod names;
mod patterns;
mod texts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use self::{
    names::{MARK, Telling, is_no_secret, is_path, telling},
    patterns::{Spans, TextKind},
    texts::Texts,
};
use crate::{EncryptedTexts, Format, Stack, Workload, WorkloadName, label, repo_url::percent_decoded};

/// Hides secrets for one run of the program.
#[derive(Clone)]
pub struct Mask {
    /// `None`: hidden values cannot be told apart.
    key: Option<[u8; 32]>,
    /// Names of variables that hold secrets, even if the names do not suggest it.
    secrets: Texts,
    /// Names of variables of encrypted manifests. Many of their values are words like `info`.
    encrypted: Texts,
    /// Values that are hidden wherever they occur in free text: a command may contain the value of a variable.
    values: Texts,
    /// Texts that are hidden where they are a whole value or argument.
    whole: Texts,
    /// Names that everybody sees. A secret that is a word of one is hidden in its own place only.
    names: Texts,
}

impl Mask {
    /// The replacement of a value if equal values need no equal mark.
    pub const HIDDEN: &str = MARK;

    pub fn new(key: [u8; 32]) -> Self {
        Self { key: Some(key), ..Self::without_codes() }
    }

    /// One that hides every value alike, for what is kept and compared from run to run.
    pub fn without_codes() -> Self {
        Self {
            key: None,
            secrets: Texts::default(),
            encrypted: Texts::default(),
            values: Texts::default(),
            whole: Texts::default(),
            names: Texts::default(),
        }
    }

    /// One that also hides the variables which these stacks take from Secrets, and the values of all secret variables
    /// where they occur in free text. Equal values are hidden as this one hides them.
    #[must_use]
    pub fn with_stacks<'a>(&self, stacks: impl IntoIterator<Item = &'a Stack>) -> Self {
        let stacks: Vec<&Stack> = stacks.into_iter().collect();
        let mut mask = self.clone();
        mask.secrets.extend(stacks.iter().flat_map(|stack| stack.secret_env()).cloned());
        mask.names.extend(stacks.iter().flat_map(|stack| public_names(stack)).map(str::to_owned));
        let values: BTreeSet<&str> =
            stacks.iter().flat_map(|stack| values_to_find(stack)).map(str::trim).collect();
        mask.find(values);
        let workloads = stacks.iter().flat_map(|stack| stack.workloads.values());
        let texts = workloads.flat_map(|workload| {
            let variables = workload.containers().flat_map(|container| &container.env);
            let variables = variables.filter_map(|(_, value)| value.as_deref());
            variables.chain(values_of_hooks(workload).map(|(_, value)| value))
        });
        mask.find_passwords_of_urls(texts);
        let decrypted = stacks.iter().flat_map(|stack| &stack.secret_values);
        mask.find(decrypted.map(|value| value.trim()));
        for stack in &stacks {
            mask.add_encrypted(&stack.encrypted);
        }
        // Each workload has a mask of its own, made from this one.
        let Self { key: _, secrets, encrypted, values, whole, names } = &mut mask;
        for texts in [secrets, encrypted, values, whole, names] {
            texts.share();
        }
        mask
    }

    /// Whether a value of a Secret or of an encrypted file is looked for in other texts: it has at least three letters, or
    /// four if it is a number, and is not a word such as `true`.
    pub fn is_findable(value: &str) -> bool {
        let value = value.trim();
        let is_short_number = value.len() < 4 && value.bytes().all(|byte| byte.is_ascii_digit());
        is_findable(Telling::Surely, value) && !is_short_number
    }

    /// Adds a text of an encrypted file to those that are hidden, unless it is too short or too common to be a secret.
    pub fn add_findable(texts: &mut BTreeSet<String>, text: &str) {
        if Self::is_findable(text) {
            texts.insert(text.to_owned());
        }
    }

    /// One that also hides the values of these variables.
    #[must_use]
    pub fn with_names<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut mask = self.clone();
        mask.secrets.extend(names.into_iter().cloned());
        mask
    }

    /// One that also hides the values of these variables in free text, where their names tell.
    #[must_use]
    pub fn with_variables<'a>(&self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (naming, others): (Vec<_>, Vec<_>) = variables.into_iter().partition(|(name, _)| is_naming(name));
        let mut mask = self.clone();
        mask.names.extend(naming.into_iter().map(|(_, value)| value.to_owned()));
        let is_meant = |(name, value): &(&str, &str)| {
            is_findable(self.how_telling(name), value.trim()) && !is_path(name, value)
        };
        mask.find_passwords_of_urls(others.iter().map(|(_, value)| *value));
        mask.find(others.into_iter().filter(is_meant).map(|(_, value)| value.trim()));
        mask
    }

    /// One that also hides these values of Secrets in free text.
    #[must_use]
    pub fn with_secret_values<'a>(&self, values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut mask = self.clone();
        let values = values.into_iter().map(str::trim);
        mask.find(values.filter(|value| is_findable(Telling::Surely, value)));
        mask
    }

    /// One that also hides these lines of mounted secrets in free text. Short ones are often words, such as `admin`.
    #[must_use]
    pub fn with_secret_lines<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut mask = self.clone();
        let lines = lines.into_iter().map(str::trim);
        mask.find(lines.filter(|line| is_findable(Telling::Weakly, line)));
        mask.values.share();
        mask
    }

    /// One that also hides the texts of encrypted manifests.
    #[must_use]
    pub fn with_encrypted(&self, encrypted: &EncryptedTexts) -> Self {
        let mut mask = self.clone();
        mask.add_encrypted(encrypted);
        mask
    }

    /// One that also hides these texts where they are a whole value or argument. They may be long: nothing is searched for them.
    #[must_use]
    pub fn with_whole<'a>(&self, texts: impl IntoIterator<Item = &'a String>) -> Self {
        let mut mask = self.clone();
        mask.whole.extend(texts.into_iter().cloned());
        mask
    }

    fn add_encrypted(&mut self, encrypted: &EncryptedTexts) {
        let EncryptedTexts { variables, texts } = encrypted;
        self.encrypted.extend(variables.iter().cloned());
        self.whole.extend(texts.iter().cloned());
        // A whole manifest has many short words, which would be hidden in every message.
        let long = texts.iter().map(|text| text.trim()).filter(|text| is_findable(Telling::Weakly, text));
        self.find(long);
    }

    /// One that knows that these names are shown to everybody.
    #[must_use]
    pub fn with_public_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut mask = self.clone();
        mask.names.extend(names.into_iter().map(str::to_owned));
        mask
    }

    /// Hides these values in free text, except those that are a word of a public name.
    fn find<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        let is_public = |value: &&str| self.names.iter().any(|name| is_word_of(name, value));
        let mut secret: Vec<&str> = values.into_iter().filter(|value| !is_public(value)).collect();
        // Output is shown line by line.
        let of_several = secret.iter().filter(|value| value.contains('\n')).flat_map(|value| value.lines());
        let lines =
            of_several.map(str::trim).filter(|line| is_findable(Telling::Weakly, line) && !is_public(line));
        let lines: Vec<&str> = lines.collect();
        secret.extend(lines);
        self.values.extend(secret.into_iter().flat_map(written_forms));
    }

    /// Hides the passwords in the URLs of these values in free text, as they are in the URL and as a program that has
    /// read it prints them.
    fn find_passwords_of_urls<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        let passwords: BTreeSet<&str> = values.into_iter().flat_map(patterns::passwords_of_urls).collect();
        let is_meant = |value: &str| is_findable(Telling::Surely, value);
        self.find(passwords.iter().copied().filter(|value| is_meant(value)));
        let read = passwords.iter().filter(|value| value.contains('%'));
        let read: Vec<String> = read.filter_map(|value| percent_decoded(value).ok()).collect();
        self.find(read.iter().map(String::as_str).filter(|value| is_meant(value)));
    }

    fn how_telling(&self, name: &str) -> Telling {
        match telling(name) {
            _ if self.secrets.contains(name) => Telling::Surely,
            how if self.encrypted.contains(name) => how.max(Telling::Weakly),
            how => how,
        }
    }

    /// Whether a variable, option or label of this name holds a secret, or is taken to.
    pub fn is_secret(&self, name: &str) -> bool {
        self.how_telling(name) != Telling::No
    }

    /// Whether a variable, option or label of this name is taken to hold a secret.
    pub fn is_telling(name: &str) -> bool {
        telling(name) != Telling::No
    }

    /// `••••3f9a`: the same for the same value.
    pub fn hide(&self, value: &str) -> String {
        let Some(key) = self.key else { return MARK.to_owned() };
        let digest = Sha256::new().chain_update(key).chain_update(value.as_bytes()).finalize();
        format!("{MARK}{:02x}{:02x}", digest[0], digest[1])
    }

    /// The value of a variable, option or label: hidden if its name tells that it is secret, else as [`Self::text`].
    pub fn value(&self, name: &str, value: &str) -> String {
        let is_hidden = self.secrets.contains(name)
            || self.encrypted.contains(name)
            || self.whole.contains(value)
            || (telling(name) != Telling::No && !is_no_secret(value) && !is_path(name, value));
        if is_hidden && !is_mark(value) { self.hide(value) } else { self.text(value) }
    }

    /// The labels of an object that a manifest of this format asks for. Those of Kubernetes are names, which selectors match, and are
    /// hidden by their own names only; its annotations are kept as labels too.
    pub fn labels(&self, all: &BTreeMap<String, String>, format: Format) -> BTreeMap<String, String> {
        let shown = |name: &str, value: &str| match format {
            Format::Kubernetes if !name.starts_with(label::ANNOTATION) && !Self::is_telling(name) => {
                self.name(value)
            }
            Format::Kubernetes | Format::Compose => self.value(name, value),
        };
        all.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect()
    }

    /// The arguments of a program.
    pub fn arguments(&self, all: &[String]) -> Vec<String> {
        let spans = arguments::secrets(all.iter().map(String::as_str));
        let shown = all.iter().zip(spans).map(|(text, spans)| {
            let is_hidden = self.whole.contains(text) && !is_mark(text);
            if is_hidden { self.hide(text) } else { self.cover(text, spans, TextKind::Configuration) }
        });
        shown.collect()
    }

    /// The arguments of a program, as a document has them. Those that are no text stay.
    pub fn json_arguments(&self, items: &mut [Value]) {
        let texts: Vec<String> =
            items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect();
        for (item, hidden) in items.iter_mut().zip(self.arguments(&texts)) {
            if let Value::String(text) = item {
                *text = hidden;
            }
        }
    }

    /// A command as it was typed, on one line, cut where it becomes long.
    pub fn command(&self, command: &str) -> String {
        let line = command.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = self.text(&line);
        match shown.char_indices().nth(Self::COMMAND) {
            Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
            None => shown,
        }
    }

    /// Maximum length of a shown command, in letters.
    const COMMAND: usize = 100;

    /// Free text of a configuration: the value of a variable or label, a line of shell.
    pub fn text(&self, text: &str) -> String {
        self.cover(text, arguments::secrets([text]).concat(), TextKind::Configuration)
    }

    /// Output of a program. Like a configuration it may contain assignments: `password=…`, `token: …`.
    pub fn output(&self, text: &str) -> String {
        self.text(text)
    }

    /// A sentence for people, such as an error of the engine.
    pub fn message(&self, text: &str) -> String {
        self.cover(text, arguments::secrets([text]).concat(), TextKind::Sentence)
    }

    /// A name or reference, such as that of an image, a volume or a host. A secret that happens to have the value of a
    /// name does not hide it.
    pub fn name(&self, text: &str) -> String {
        let mut spans = patterns::secrets(text, TextKind::Sentence);
        self.replace(text, &mut spans)
    }

    fn cover(&self, text: &str, mut spans: Spans, kind: TextKind) -> String {
        if text.is_empty() {
            return String::new();
        }
        spans.extend(patterns::secrets(text, kind));
        for value in self.values.iter() {
            spans.extend(occurrences(text, value));
        }
        self.replace(text, &mut spans)
    }

    /// The text with these places hidden. Places that overlap are one.
    fn replace(&self, text: &str, spans: &mut Spans) -> String {
        spans.retain(|span| text.get(span.clone()).is_some_and(|part| !part.is_empty() && !is_mark(part)));
        if spans.is_empty() {
            return text.to_owned();
        }
        spans.sort_by_key(|span| (span.start, span.end));
        let mut merged: Vec<Range<usize>> = Vec::new();
        for span in spans.iter() {
            match merged.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                Some(_) | None => merged.push(span.clone()),
            }
        }
        let mut shown = String::with_capacity(text.len());
        let mut done = 0;
        for Range { start, end } in merged {
            shown.push_str(text.get(done..start).unwrap_or_default());
            shown.push_str(&self.hide(text.get(start..end).unwrap_or_default()));
            done = end;
        }
        shown.push_str(text.get(done..).unwrap_or_default());
        shown
    }
}

/// Whether a text is a hidden value already.
fn is_mark(text: &str) -> bool {
    text.strip_prefix(MARK).is_some_and(|code| {
        let code = code.strip_prefix('#').unwrap_or(code);
        code.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// In bytes. A value that is as long occurs nowhere by accident, so it is hidden inside longer words too.
const LONG: usize = 12;

/// The ranges in which a value occurs: as a word of its own, or anywhere if it is long.
fn occurrences<'a>(text: &'a str, value: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let is_free = move |at: usize| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + value.len()..).and_then(|after| after.chars().next());
        let extends = |edge: Option<char>, neighbour: Option<char>| {
            edge.is_some_and(is_of_word) && neighbour.is_some_and(is_of_word)
        };
        value.len() >= LONG
            || !(extends(value.chars().next(), before) || extends(value.chars().next_back(), after))
    };
    text.match_indices(value).map(|(at, _)| at).filter(move |at| is_free(*at)).map(|at| at..at + value.len())
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-')
}

/// The values of the secret variables of a stack that are worth searching for.
fn values_to_find(stack: &Stack) -> impl Iterator<Item = &str> {
    let encrypted = &stack.encrypted.variables;
    stack.workloads.values().flat_map(move |workload| {
        let variables = workload.containers().flat_map(|container| &container.env);
        let variables = variables.filter_map(|(name, value)| Some((name, value.as_deref()?)));
        variables.chain(values_of_hooks(workload)).filter_map(move |(name, value)| {
            let is_secret = workload.secret_env.contains(name);
            let is_declared = is_secret || encrypted.contains(name);
            let how = match telling(name) {
                _ if is_secret => Telling::Surely,
                // A whole manifest has many short words, which would be hidden in every message.
                how if is_declared => how.max(Telling::Weakly),
                how => how,
            };
            let shortest_number = if is_declared { 4 } else { 6 };
            let is_number = value.trim().bytes().all(|byte| byte.is_ascii_digit());
            let is_too_short = is_number && value.trim().len() < shortest_number;
            let is_meant = is_findable(how, value.trim()) && !is_too_short;
            (is_meant && (is_declared || !is_path(name, value))).then_some(value)
        })
    })
}

/// The variables and headers of the hooks of a workload.
fn values_of_hooks(workload: &Workload) -> impl Iterator<Item = (&String, &str)> {
    let hosts = workload.containers().map(|container| &container.host);
    let hooks = hosts.flat_map(|host| host.post_start.iter().chain(&host.pre_stop));
    hooks.flat_map(|hook| {
        let headers = hook.http.iter().flat_map(|http| &http.headers);
        let headers = headers.map(|(name, value)| (name, value.as_str()));
        hook.env.iter().map(|(name, value)| (name, value.as_str())).chain(headers)
    })
}

/// Whether a value is looked for in other texts. A short one under a name that tells weakly is a word like `basic`.
fn is_findable(how: Telling, value: &str) -> bool {
    let shortest = match how {
        Telling::No => return false,
        Telling::Weakly => 8,
        Telling::Surely => 3,
    };
    value.len() >= shortest && !is_no_secret(value)
}

/// A value as it is, in a URL, and in JSON.
fn written_forms(value: &str) -> impl Iterator<Item = String> {
    // As RFC 3986 has it, in both cases, and as the `encodeURIComponent` of JavaScript writes it.
    let in_url = |unreserved: &[u8], is_large: bool| -> String {
        let written = value.bytes().map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || unreserved.contains(&byte) => {
                char::from(byte).to_string()
            }
            byte if is_large => format!("%{byte:02X}"),
            byte => format!("%{byte:02x}"),
        });
        written.collect()
    };
    let in_urls = [in_url(b"-_.~", true), in_url(b"-_.~", false), in_url(b"-_.~!*'()", true)];
    let in_json = serde_json::to_string(value).unwrap_or_default();
    let in_json = in_json.trim_matches('"').to_owned();
    let mut forms = vec![value.to_owned()];
    for form in in_urls.into_iter().chain([in_json]) {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms.into_iter()
}

/// Last words of variables that hold a name: `POSTGRES_DB`, `DB_USER`.
const NAMING: &[&str] =
    &["USER", "USERNAME", "LOGIN", "DB", "DATABASE", "NAME", "HOST", "HOSTNAME", "SCHEMA", "DOMAIN", "REALM"];

/// Whether a variable of this name holds a name: hiding it everywhere would garble what is shown.
fn is_naming(variable: &str) -> bool {
    let last = variable.rsplit('_').next().unwrap_or_default();
    NAMING.iter().any(|naming| last.eq_ignore_ascii_case(naming))
}

/// The names of a stack that everybody sees anyway: of the application, the workloads, images, networks and volumes,
/// and the values of variables that hold a name.
fn public_names(stack: &Stack) -> impl Iterator<Item = &str> {
    let names = [stack.app.as_str(), stack.project.as_str()].into_iter();
    let names = names.chain(stack.workloads.keys().map(WorkloadName::as_str));
    let objects = stack.networks.keys().chain(stack.volumes.keys()).chain(stack.images());
    let encrypted = &stack.encrypted.variables;
    let naming = stack.workloads.values().flat_map(move |workload| {
        let variables = workload.containers().flat_map(|container| &container.env);
        let is_declared = move |name: &String| workload.secret_env.contains(name) || encrypted.contains(name);
        variables
            .filter(move |&(name, _)| is_naming(name) && !is_declared(name))
            .filter_map(|(_, value)| value.as_deref())
    });
    names.chain(objects.map(String::as_str)).chain(naming)
}

/// Whether a value is a word of a name.
fn is_word_of(name: &str, value: &str) -> bool {
    name.match_indices(value).any(|(at, _)| {
        let before = name.get(..at).and_then(|before| before.chars().next_back());
        let after = name.get(at + value.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")
    }
}

#[cfg(test)]
mod tests;
