//! The name and labels of a host, and the selection of hosts by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::matches_star;

/// The name and labels of the host that an agent manages.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostIdentity {
    /// Empty: the host has no name, so that no name selects it and no file is made for it.
    pub name: String,
    /// Labels by key, such as `arch: amd64` and `role: web`.
    pub labels: BTreeMap<String, String>,
}

/// A selection of hosts. Without names and labels it selects every host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSelector {
    /// Names of hosts, one of which must match; `*` is any text. Empty: every name.
    pub names: Vec<String>,
    /// Labels that the host must have, all of them; `*` is any text.
    pub labels: BTreeMap<String, String>,
}

impl HostIdentity {
    /// The variables that Compose files may use: `DRIFTLESS_HOST`, and `DRIFTLESS_LABEL_ROLE` for the label `role`. A
    /// character that a variable cannot have becomes `_`.
    pub fn variables(&self) -> impl Iterator<Item = (String, &String)> {
        let name = (!self.name.is_empty()).then(|| ("DRIFTLESS_HOST".to_owned(), &self.name));
        name.into_iter().chain(self.labels.iter().map(|(label, value)| {
            let letter =
                |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
            (format!("DRIFTLESS_LABEL_{}", label.chars().map(letter).collect::<String>()), value)
        }))
    }

    /// Whether a text can be the name of a host: letters, digits, `.`, `-` and `_`, beginning with a letter or digit, at
    /// most 253 characters.
    pub fn is_name(text: &str) -> bool {
        text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && text.len() <= 253
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
    }

    /// Reads the name of a host.
    ///
    /// # Errors
    ///
    /// A sentence that follows the text, if it is no name.
    pub fn parse_name(text: &str) -> Result<String, String> {
        if Self::is_name(text) {
            Ok(text.to_owned())
        } else {
            Err("must be letters, digits, `.`, `-` and `_`, beginning with a letter or digit".to_owned())
        }
    }
}

impl HostSelector {
    /// Whether a host is selected.
    pub fn selects(&self, host: &HostIdentity) -> bool {
        let has_label = |(label, value): (&String, &String)| {
            host.labels.get(label).is_some_and(|own| matches_star(value, own))
        };
        (self.names.is_empty() || self.names.iter().any(|name| matches_star(name, &host.name)))
            && self.labels.iter().all(has_label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn host_is_selected_by_name_and_all_labels() {
        let host =
            HostIdentity { name: "web-1".to_owned(), labels: labels(&[("role", "web"), ("site", "home")]) };
        let selects = |names: &[&str], required: &[(&str, &str)]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            HostSelector { names, labels: labels(required) }.selects(&host)
        };
        assert!(selects(&[], &[]));
        assert!(selects(&["nas", "web-*"], &[("role", "web")]));
        assert!(selects(&[], &[("role", "web"), ("site", "*")]));
        assert!(!selects(&["nas"], &[("role", "web")]));
        assert!(!selects(&["web-1"], &[("role", "db")]));
        assert!(!selects(&[], &[("ring", "*")]));
    }

    #[test]
    fn variables_are_named_after_labels() {
        let host = HostIdentity { name: "nas".to_owned(), labels: labels(&[("my.role", "web")]) };
        let variables: Vec<(String, &String)> = host.variables().collect();
        let of = |index: usize| (variables[index].0.as_str(), variables[index].1.as_str());
        assert_eq!([of(0), of(1)], [("DRIFTLESS_HOST", "nas"), ("DRIFTLESS_LABEL_MY_ROLE", "web")]);
    }
}
