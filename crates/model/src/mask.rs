//! Hides values that may be secret. Equal values are hidden equally, so that "changed" can still be told
//! from "the same", but only within one run: the key of the digest is random.

use std::{cmp::Reverse, collections::BTreeSet, fmt};

use sha2::{Digest, Sha256};

use super::Stack;

/// Hides secrets for one run of the program.
#[derive(Clone)]
pub struct Mask {
    key: [u8; 32],
    /// Names of variables that hold secrets, whatever they are called.
    secrets: BTreeSet<String>,
    /// Values that are hidden wherever they occur: a command may contain the value of a variable. The longest
    /// first, since one may contain another.
    values: BTreeSet<Reverse<ByLength>>,
    /// The values that [`Mask::message`] hides.
    in_messages: BTreeSet<Reverse<ByLength>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ByLength(usize, String);

/// Parts of a variable's name that say its value is secret.
const TELLING: &[&str] = &[
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE",
    "CREDENTIAL",
    "AUTH",
    "DSN",
    "SALT",
    "_KEY",
    "_PASS",
    "_PWD",
    "COOKIE",
    "SIGNATURE",
    "CERT",
    "WEBHOOK",
];

impl Mask {
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, secrets: BTreeSet::new(), values: BTreeSet::new(), in_messages: BTreeSet::new() }
    }

    /// One that also hides the variables which these stacks take from Secrets, and their values wherever they
    /// occur. Equal values are hidden as this one hides them.
    #[must_use]
    pub fn with_stacks<'a>(&self, stacks: impl IntoIterator<Item = &'a Stack>) -> Self {
        let stacks: Vec<&Stack> = stacks.into_iter().collect();
        let names = stacks.iter().flat_map(|stack| stack.secret_env()).cloned().collect();
        let mut mask = Self { secrets: names, ..self.clone() };
        let values: Vec<String> = stacks
            .iter()
            .flat_map(|stack| stack.workloads.values())
            .flat_map(|workload| {
                let of_secrets = |name: &String| workload.secret_env.contains(name);
                let variables = workload.containers().flat_map(|container| &container.env);
                let set = variables.filter_map(|(name, value)| Some((name, value.as_ref()?)));
                set.filter(move |(name, value)| {
                    let shortest = if of_secrets(name) { Self::SHORTEST_OF_SECRETS } else { Self::SHORTEST };
                    value.len() >= shortest && (of_secrets(name) || Self::is_telling(name))
                })
            })
            .map(|(_, value)| value.clone())
            .collect();
        mask.in_messages.extend(
            values
                .iter()
                .filter(|value| !stacks.iter().any(|stack| is_public(value, stack)))
                .map(|value| Reverse(ByLength(value.len(), value.clone()))),
        );
        mask.with_values(values)
    }

    /// One that also hides these values wherever they occur in a field.
    #[must_use]
    pub fn with_values(mut self, values: impl IntoIterator<Item = String>) -> Self {
        self.values.extend(values.into_iter().map(|value| Reverse(ByLength(value.len(), value))));
        self
    }

    /// One that also hides the values of these variables.
    #[must_use]
    pub fn with_names<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut mask = self.clone();
        mask.secrets.extend(names.into_iter().cloned());
        mask
    }

    /// One that hides what the names and URLs tell, and leaves values alone: for the name of an image.
    #[must_use]
    pub fn without_values(&self) -> Self {
        Self { key: self.key, secrets: self.secrets.clone(), ..Self::new(self.key) }
    }

    /// In bytes. A shorter value is a word like `on` or `yes`, which occurs where it is no secret.
    pub const SHORTEST: usize = 6;
    /// The same for a value that a Secret holds: a PIN is one.
    const SHORTEST_OF_SECRETS: usize = 4;

    /// Whether a variable, option or label of this name holds a secret, or is taken to.
    pub fn is_secret(&self, name: &str) -> bool {
        Self::is_telling(name) || self.secrets.contains(name)
    }

    /// Whether a variable, option or label of this name is taken to hold a secret.
    pub fn is_telling(name: &str) -> bool {
        let name = name.to_ascii_uppercase().replace(['-', '.'], "_");
        TELLING.iter().any(|it| name.contains(it))
            || matches!(name.as_str(), "PASS" | "PWD" | "KEY" | "PGPASS")
    }

    /// `••••3f9a`: the same for the same value.
    pub fn hide(&self, value: &str) -> String {
        let digest = Sha256::new().chain_update(self.key).chain_update(value.as_bytes()).finalize();
        format!("••••{:02x}{:02x}", digest[0], digest[1])
    }

    /// The value, hidden if its name tells that it is secret, or else with the password of any URL in it hidden.
    pub fn value(&self, name: &str, value: &str) -> String {
        if self.is_secret(name) { self.hide(value) } else { self.text(value) }
    }

    /// A command as it was typed, without what is given after an option or name that tells of a secret, and cut
    /// where it becomes long.
    pub fn command(&self, command: &str) -> String {
        let mut out = Vec::new();
        let mut is_next_secret = false;
        for word in command.split_whitespace() {
            let bare = word.trim_start_matches(['-', '\'', '"']);
            let option = word.starts_with('-');
            out.push(match bare.split_once('=') {
                _ if is_next_secret => self.hide(word),
                Some((name, value)) if self.is_secret(name) => {
                    let before = word.len() - value.len();
                    format!("{}{}", word.get(..before).unwrap_or_default(), self.hide(value))
                }
                // As MySQL's tools take it.
                Some(_) | None if word.starts_with("-p") && word.len() > 2 => {
                    format!("-p{}", self.hide(word.get(2..).unwrap_or_default()))
                }
                Some(_) | None => self.text(word),
            });
            is_next_secret = option && !bare.contains('=') && self.is_secret(bare);
        }
        let out = out.join(" ");
        match out.char_indices().nth(Self::COMMAND) {
            Some((end, _)) => format!("{}…", out.get(..end).unwrap_or_default()),
            None => out,
        }
    }

    /// How much of a command is shown.
    const COMMAND: usize = 100;

    /// Any text of a configuration, with passwords in URLs and all known secret values hidden.
    pub fn text(&self, text: &str) -> String {
        self.hide_all(&self.values, self.urls(text))
    }

    /// Output of a program, with everything hidden that [`Mask::text`] hides, and the values of assignments such as
    /// `password=…` or `token: …`.
    pub fn output(&self, text: &str) -> String {
        let mut is_next_secret = false;
        let text = self.text(text);
        let words = text.split_inclusive(char::is_whitespace).map(|word| {
            let (bare, space) = word.split_at(word.trim_end().len());
            if bare.is_empty() {
                return word.to_owned();
            }
            let was_announced = std::mem::take(&mut is_next_secret);
            let named = |name: &str| self.is_secret(name.trim_matches(|it: char| !it.is_alphanumeric()));
            match bare.split_once(['=', ':']) {
                _ if was_announced => format!("{}{space}", self.hide(bare)),
                Some((name, "")) => {
                    is_next_secret = named(name);
                    word.to_owned()
                }
                Some((name, value)) if named(name) && !value.starts_with("//") => {
                    let sign = bare.get(name.len()..=name.len()).unwrap_or_default();
                    format!("{name}{sign}{}{space}", self.hide(value))
                }
                Some(_) | None => word.to_owned(),
            }
        });
        words.collect()
    }

    /// A sentence for people, such as an error of the engine. A value that is also a name in the stack stays: hiding
    /// it would make every message unreadable.
    pub fn message(&self, text: &str) -> String {
        self.hide_all(&self.in_messages, self.urls(text))
    }

    fn hide_all(&self, values: &BTreeSet<Reverse<ByLength>>, text: String) -> String {
        values.iter().fold(text, |text, Reverse(ByLength(_, value))| {
            if text.contains(value.as_str()) { text.replace(value.as_str(), &self.hide(value)) } else { text }
        })
    }

    /// With what stands between `://user:` and `@` hidden.
    fn urls(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("://") {
            let (before, after) = rest.split_at(at + 3);
            out.push_str(before);
            let end =
                after.find(|it: char| it == '/' || it.is_whitespace() || it == '"').unwrap_or(after.len());
            let (authority, tail) = after.split_at(end);
            match authority.rsplit_once('@') {
                Some((userinfo, host)) => {
                    match userinfo.split_once(':') {
                        Some((user, password)) => {
                            out.push_str(user);
                            out.push(':');
                            out.push_str(&self.hide(password));
                        }
                        None => out.push_str(&self.hide(userinfo)),
                    }
                    out.push('@');
                    out.push_str(host);
                }
                None => out.push_str(authority),
            }
            rest = tail;
        }
        out.push_str(rest);
        out
    }
}

/// Whether a value is part of a name that everybody sees anyway.
fn is_public(value: &str, stack: &Stack) -> bool {
    let names = [stack.app.as_str(), stack.project.as_str()].into_iter();
    let workloads = stack.workloads.keys().map(super::WorkloadName::as_str);
    let objects = stack.networks.keys().chain(stack.volumes.keys()).chain(stack.images()).map(String::as_str);
    names.chain(workloads).chain(objects).any(|name| name.contains(value))
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_shown_without_assigned_secrets() {
        let mask = Mask::new([7; 32]).with_values(["geheim4711".to_owned()]);
        for line in [
            "cannot log in with geheim4711",
            "DB_PASSWORD=hunter2 is wrong",
            "{\"token\": \"hunter2\"}",
            "password: hunter2",
            "postgres://shop:hunter2@db/shop is down",
        ] {
            let shown = mask.output(line);
            assert!(!shown.contains("hunter2") && !shown.contains("geheim4711"), "{shown}");
        }
        let plain = "error: cannot open /etc/app.conf: no such file\nexit = 3";
        assert_eq!(mask.output(plain), plain);
    }

    #[test]
    fn a_command_is_shown_without_its_secrets() {
        let mask = Mask::new([7; 32]);
        assert_eq!(mask.command("sh -c 'touch /etc/x'"), "sh -c 'touch /etc/x'");
        for secret in [
            "mysql -phunter2 shop",
            "psql --password hunter2",
            "env PGPASSWORD=hunter2 psql",
            "curl --token=hunter2 host",
            "psql postgres://app:hunter2@db/app",
        ] {
            let shown = mask.command(secret);
            assert!(!shown.contains("hunter2") && shown.contains("••••"), "{shown}");
        }
        assert_eq!(mask.command(&"é".repeat(500)).chars().count(), 101);
    }

    #[test]
    fn equal_values_have_equal_masks_and_urls_no_password() {
        let mask = Mask::new([7; 32]);
        assert_eq!(mask.value("DB_PASSWORD", "hunter2"), mask.hide("hunter2"));
        assert_ne!(mask.hide("hunter2"), mask.hide("hunter3"));
        assert_eq!(mask.value("GREETING", "hello"), "hello");
        let knowing = mask.with_names(&["GREETING".to_owned()]);
        assert_eq!(knowing.value("GREETING", "hello"), mask.hide("hello"));
        let masked = mask.value("DATABASE", "postgres://app:hunter2@db:5432/app");
        assert!(!masked.contains("hunter2") && masked.starts_with("postgres://app:••••"), "{masked}");
        assert_eq!(mask.text("see https://example.com/a"), "see https://example.com/a");
    }
}
