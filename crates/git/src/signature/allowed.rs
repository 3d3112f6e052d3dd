//! The file formats of OpenSSH for trust: `allowed_signers` (ssh-keygen(1), "ALLOWED SIGNERS"), and a list of
//! keys that are not trusted any more.
//!
//! Certificate authorities and binary revocation lists (KRL) are not supported and say so. A line that cannot be
//! understood is an error, never a key less or a restriction less.

use std::collections::BTreeSet;

use ssh_key::{HashAlg, PublicKey, public::KeyData};

use driftless_model::{Timestamp, matches_star_and_question};

/// One line of `allowed_signers`.
#[derive(Clone, Debug)]
pub(super) struct Signer {
    pub(super) principals: String,
    pub(super) key: PublicKey,
    /// A pattern list; `None`: for every purpose.
    namespaces: Option<String>,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
    pub(super) is_authority: bool,
}

/// Fingerprints.
#[derive(Clone, Debug, Default)]
pub(super) struct Revoked(BTreeSet<String>);

/// Begins of key types.
const KEY_TYPES: [&str; 3] = ["ssh-", "ecdsa-", "sk-"];

/// First bytes of a binary key revocation list.
const KRL: &[u8] = b"SSHKRL\n\0";

/// Reads the whole file. `name` is for errors.
pub(super) fn parse(text: &str, name: &str) -> Result<Vec<Signer>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| Signer::parse(line).map_err(|why| format!("{name}, line {number}: {why}")))
        .collect()
}

/// Reads a list of public keys and `SHA256:` fingerprints.
pub(super) fn revoked(bytes: &[u8], name: &str) -> Result<Revoked, String> {
    if bytes.starts_with(KRL) {
        return Err(format!(
            "{name} is a binary revocation list, which is not supported; list the public keys"
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{name} is not text in UTF-8"))?;
    let mut fingerprints = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let first = line.split_whitespace().next().unwrap_or_default();
        let fingerprint = if first.starts_with("SHA256:") {
            first.trim_end_matches('=').to_owned()
        } else {
            let key = key(line).map_err(|why| format!("{name}, line {}: {why}", index + 1))?;
            key.fingerprint(HashAlg::Sha256).to_string()
        };
        fingerprints.insert(fingerprint);
    }
    Ok(Revoked(fingerprints))
}

impl Revoked {
    pub(super) fn contains(&self, key: &KeyData) -> bool {
        self.0.contains(&key.fingerprint(HashAlg::Sha256).to_string())
    }
}

impl Signer {
    fn parse(line: &str) -> Result<Self, String> {
        let (principals, rest) = word(line);
        let (options, rest) =
            if KEY_TYPES.iter().any(|it| rest.starts_with(it)) { ("", rest) } else { word(rest) };
        let mut signer = Self {
            principals: principals.trim_matches('"').to_owned(),
            key: key(rest)?,
            namespaces: None,
            after: None,
            before: None,
            is_authority: false,
        };
        for option in split_outside_quotes(options) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.trim_matches('"');
            match name.to_ascii_lowercase().as_str() {
                "cert-authority" => signer.is_authority = true,
                "namespaces" if !value.is_empty() => signer.namespaces = Some(value.to_owned()),
                "valid-after" => signer.after = Some(moment(value)?),
                "valid-before" => signer.before = Some(moment(value)?),
                _ => return Err(format!("`{name}` is not an option of allowed signers")),
            }
        }
        Ok(signer)
    }

    /// Why this line's key does not count, if it does not.
    pub(super) fn objection(&self, now: Timestamp) -> Option<String> {
        if self.is_authority {
            return Some("it is listed as a certificate authority, which is not supported".to_owned());
        }
        if self.namespaces.as_deref().is_some_and(|it| !matches_list(it, "git")) {
            return Some("it is not trusted for Git, but for other purposes (namespaces)".to_owned());
        }
        if let Some(after) = self.after.filter(|it| now < *it) {
            return Some(format!("it is trusted from {after} on only"));
        }
        self.before.filter(|it| now >= *it).map(|before| format!("it was trusted until {before} only"))
    }
}

/// The first word, which may have blanks within quotes, and what follows.
fn word(text: &str) -> (&str, &str) {
    let mut quoted = false;
    let end = text.find(|it: char| {
        quoted ^= it == '"';
        !quoted && it.is_whitespace()
    });
    let (first, rest) = text.split_at(end.unwrap_or(text.len()));
    (first, rest.trim_start())
}

fn split_outside_quotes(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |it: char| {
        quoted ^= it == '"';
        !quoted && it == ','
    })
    .filter(|it| !it.is_empty())
}

fn key(text: &str) -> Result<PublicKey, String> {
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    if words.len() < 2 {
        return Err("no public key stands there, such as `ssh-ed25519 AAAA…`".to_owned());
    }
    PublicKey::from_openssh(&words.join(" "))
        .map_err(|error| format!("the public key cannot be read: {error}"))
}

/// `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, in UTC whether or not a `Z` says so.
fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("`{text}` is not a time such as 20261231 or 202612312359Z");
    let digits = text.trim_end_matches('Z');
    if !digits.bytes().all(|it| it.is_ascii_digit()) || ![8, 12, 14].contains(&digits.len()) {
        return Err(wrong());
    }
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("00");
    let at = |from, to| part(from, to);
    let text = format!("{}-{}-{}T{}:{}:{}Z", at(0, 4), at(4, 6), at(6, 8), at(8, 10), at(10, 12), at(12, 14));
    Timestamp::parse(&text).ok_or_else(wrong)
}

/// A pattern list as in `ssh_config(5)`: any of them, and none with a `!`.
fn matches_list(patterns: &str, text: &str) -> bool {
    let mut found = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches_star_and_question(pattern, text) => return false,
            Some(_) => {}
            None => found |= matches_star_and_question(pattern, text),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    fn objection(options: &str) -> Option<String> {
        let signers = parse(&format!("# us\n\nada@example.com {options} {KEY} comment\n"), "f").unwrap();
        signers[0].objection(Timestamp::parse("2026-06-01T00:00:00Z").unwrap())
    }

    #[test]
    fn options_restrict_as_in_openssh() {
        for options in [
            "",
            "namespaces=\"file,git\"",
            "namespaces=\"g*\"",
            "valid-after=\"20260601Z\"",
            "VALID-BEFORE=\"20260601000001\"",
        ] {
            assert_eq!(objection(options), None, "{options}");
        }
        for (options, why) in [
            ("namespaces=\"file\"", "other purposes"),
            ("namespaces=\"*,!git\"", "other purposes"),
            ("valid-after=\"202606010001Z\"", "from 2026-06-01"),
            ("valid-before=\"20260601\"", "until 2026-06-01"),
            ("cert-authority", "authority"),
            ("namespaces=\"git\",valid-before=\"20200101\"", "until 2020"),
        ] {
            assert!(objection(options).is_some_and(|it| it.contains(why)), "{options}");
        }
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error_with_its_place() {
        for line in [
            "ada",
            "ada ssh-ed25519",
            "ada ssh-ed25519 AAAA",
            "ada no-touch=1 ssh-ed25519 A",
            "ada valid-after=x ssh-ed25519 A",
            "ada ssh-dss AAAAB3NzaC1kc3M=",
        ] {
            let error = parse(&format!("\n{line}"), "f").unwrap_err();
            assert!(error.starts_with("f, line 2: "), "{error}");
        }
        let bad_option = parse(&format!("ada unknown=1 {KEY}"), "f").unwrap_err();
        assert!(bad_option.contains("`unknown`"), "{bad_option}");
        assert!(revoked(KRL, "f").is_err_and(|it| it.contains("binary")));
    }

    #[test]
    fn keys_and_fingerprints_are_revoked() {
        let key = PublicKey::from_openssh(KEY).unwrap();
        let print = key.fingerprint(HashAlg::Sha256).to_string();
        for text in [KEY.to_owned(), format!("# gone\n{print} laptop")] {
            assert!(revoked(text.as_bytes(), "f").unwrap().contains(key.key_data()));
        }
        assert!(!revoked(b"", "f").unwrap().contains(key.key_data()));
    }

    #[test]
    fn hostile_signer_pattern_takes_no_time() {
        assert!(!matches_list(&format!("{}b,{}c", "*a".repeat(100), "*?".repeat(100)), &"a".repeat(250)));
    }
}
