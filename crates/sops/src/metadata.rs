//! SOPS' metadata: recipients, MAC, and the rule that says which values are encrypted.

use regex::Regex;
use serde_json::{Map, Value};

use super::{Error, cipher::Mac};

/// The key of the metadata in YAML, JSON and INI.
pub(super) const KEY: &str = "sops";

/// Groups of key services and their names in messages.
const SERVICES: [(&str, &str); 6] = [
    ("kms", "AWS KMS"),
    ("gcp_kms", "Google Cloud KMS"),
    ("hckms", "Huawei Cloud KMS"),
    ("azure_kv", "Azure Key Vault"),
    ("hc_vault", "HashiCorp Vault"),
    ("key_groups", "key groups"),
];

/// The metadata of one file.
pub(super) struct Metadata {
    /// Recipient and encrypted data key of each age key.
    pub(super) age: Vec<(String, String)>,
    /// Fingerprint and encrypted data key of each OpenPGP key.
    pub(super) pgp: Vec<(String, String)>,
    /// Names of the key services and of key groups in the file.
    pub(super) services: Vec<&'static str>,
    /// The encrypted MAC.
    pub(super) mac: String,
    /// The time of the last change, which authenticates the MAC.
    pub(super) last_modified: String,
    /// Whether the MAC covers encrypted values only.
    pub(super) is_mac_only_encrypted: bool,
    pub(super) rule: Rule,
}

/// The rule that says which values are encrypted. A file has one at most.
pub(super) enum Rule {
    /// All but those below a key with this ending.
    UnencryptedSuffix(String),
    /// Those below a key with this ending.
    EncryptedSuffix(String),
    /// All but those below a key that matches.
    UnencryptedRegex(Regex),
    /// Those below a key that matches.
    EncryptedRegex(Regex),
}

impl Rule {
    pub(super) fn is_encrypted(&self, path: &[&str]) -> bool {
        match self {
            Self::UnencryptedSuffix(suffix) => !path.iter().any(|key| key.ends_with(suffix.as_str())),
            Self::EncryptedSuffix(suffix) => path.iter().any(|key| key.ends_with(suffix.as_str())),
            Self::UnencryptedRegex(regex) => !path.iter().any(|key| regex.is_match(key)),
            Self::EncryptedRegex(regex) => path.iter().any(|key| regex.is_match(key)),
        }
    }

    fn read(map: &Map<String, Value>) -> Result<Self, Error> {
        for key in ["encrypted_comment_regex", "unencrypted_comment_regex"] {
            if !text(map, key).is_empty() {
                return Err(Error::Unsupported(format!("`{key}`")));
            }
        }
        let regex = |key: &str| {
            Regex::new(&text(map, key))
                .map_err(|error| Error::Malformed(format!("`{key}` is no valid expression: {error}")))
        };
        let set: Vec<&str> =
            ["unencrypted_suffix", "encrypted_suffix", "unencrypted_regex", "encrypted_regex"]
                .into_iter()
                .filter(|key| !text(map, key).is_empty())
                .collect();
        match set[..] {
            [] => Ok(Self::UnencryptedSuffix("_unencrypted".to_owned())),
            [key @ "unencrypted_suffix"] => Ok(Self::UnencryptedSuffix(text(map, key))),
            [key @ "encrypted_suffix"] => Ok(Self::EncryptedSuffix(text(map, key))),
            [key @ "unencrypted_regex"] => regex(key).map(Self::UnencryptedRegex),
            [key] => regex(key).map(Self::EncryptedRegex),
            [..] => Err(Error::Malformed(format!("`{}` exclude each other", set.join("` and `")))),
        }
    }
}

impl Metadata {
    /// Reads the value of `sops`.
    pub(super) fn read(value: &Value) -> Result<Self, Error> {
        let map = value.as_object().ok_or_else(|| Error::Malformed("`sops` is not a map".to_owned()))?;
        let keys = |group: &str, name: &str| -> Vec<(String, String)> {
            let items = map.get(group).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_object).map(|item| (text(item, name), text(item, "enc"))).collect()
        };
        let is_set =
            |key: &str| map.get(key).and_then(Value::as_array).is_some_and(|items| !items.is_empty());
        let mac = text(map, "mac");
        if mac.is_empty() {
            return Err(Error::Malformed("it has no MAC".to_owned()));
        }
        Ok(Self {
            age: keys("age", "recipient"),
            pgp: keys("pgp", "fp"),
            services: SERVICES.into_iter().filter(|(key, _)| is_set(key)).map(|(_, name)| name).collect(),
            mac,
            last_modified: text(map, "lastmodified"),
            is_mac_only_encrypted: text(map, "mac_only_encrypted") == "true",
            rule: Rule::read(map)?,
        })
    }

    /// Reads the flat keys of dotenv and INI, such as `age__list_0__map_enc`.
    pub(super) fn read_flat<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Result<Self, Error> {
        let mut root = Value::Null;
        for (name, text) in pairs {
            place(&mut root, name, text)?;
        }
        Self::read(&root)
    }

    pub(super) fn mac_hash(&self) -> Mac {
        Mac::new(self.is_mac_only_encrypted)
    }

    /// The recipients for messages.
    pub(super) fn recipients(&self) -> String {
        let age = self.age.iter().map(|(recipient, _)| format!("age {recipient}"));
        let pgp = self.pgp.iter().map(|(fingerprint, _)| format!("OpenPGP {fingerprint}"));
        let all: Vec<String> = age.chain(pgp).collect();
        if all.is_empty() { "nobody".to_owned() } else { all.join(", ") }
    }
}

/// Whether a value of a map is set, and its text. Dotenv and INI have texts only.
fn text(map: &Map<String, Value>, key: &str) -> String {
    match map.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => String::new(),
    }
}

/// Puts a text at a flat path: `__map_` starts a key, `__list_` an index.
fn place(root: &mut Value, name: &str, text: String) -> Result<(), Error> {
    let malformed = || Error::Malformed(format!("`{name}` is not a key of its metadata"));
    let mut at = root;
    let marked = format!("__map_{name}");
    let mut rest = marked.as_str();
    while !rest.is_empty() {
        let (is_list, after) = match rest.strip_prefix("__map_") {
            Some(after) => (false, after),
            None => (true, rest.strip_prefix("__list_").ok_or_else(malformed)?),
        };
        let end =
            [after.find("__map_"), after.find("__list_")].into_iter().flatten().min().unwrap_or(after.len());
        let (token, next) = after.split_at(end);
        if is_list {
            let index: usize = token.parse().map_err(|_| malformed())?;
            if at.is_null() {
                *at = Value::Array(Vec::new());
            }
            let items = at.as_array_mut().ok_or_else(malformed)?;
            if index > items.len() {
                return Err(malformed());
            }
            if index == items.len() {
                items.push(Value::Null);
            }
            at = items.get_mut(index).ok_or_else(malformed)?;
        } else {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            at = at.as_object_mut().ok_or_else(malformed)?.entry(token).or_insert(Value::Null);
        }
        rest = next;
    }
    *at = Value::String(text);
    Ok(())
}
