//! The person whom the provider has authenticated, and the scopes that the configuration gives to that person.

use std::collections::BTreeSet;

use driftless_config::Oidc;
use driftless_model::{Scope, is_unprintable};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{client::shown, error::Error};

/// The longest name that is taken from a claim, in characters.
const LONGEST_NAME: usize = 100;

/// The most names of claims in an error.
const MOST_CLAIMS: usize = 20;

/// A person whom the provider has authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The name in the claim of the configuration.
    pub name: String,
    /// The groups to which the configuration gives scopes. Others do not matter.
    pub groups: BTreeSet<String>,
}

impl Person {
    /// The person in the claims of a provider.
    pub(crate) fn new(claims: &Map<String, Value>, settings: &Oidc) -> Result<Self, Error> {
        let name = claim(claims, &settings.user_claim).and_then(Value::as_str).map(str::trim);
        let name = name.filter(|name| !name.is_empty() && !name.chars().any(is_unprintable));
        // A name that is cut could be that of somebody else.
        let name = name.filter(|name| name.chars().count() <= LONGEST_NAME);
        let no_name = || {
            let found = claims.keys().take(MOST_CLAIMS).cloned().collect::<Vec<_>>().join(", ");
            Error::NoName { claim: settings.user_claim.clone(), found: shown(&found) }
        };
        let name = name.ok_or_else(no_name)?;
        // Without that claim, people may have written any address into their profile.
        if settings.user_claim == "email" && claims.get("email_verified") != Some(&Value::Bool(true)) {
            return Err(Error::UnverifiedEmail);
        }
        let given: BTreeSet<&str> = match claim(claims, &settings.groups_claim) {
            Some(Value::String(group)) => [group.as_str()].into(),
            Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
            _ => BTreeSet::new(),
        };
        let known = settings.groups.iter().map(|(name, _)| name).filter(|name| given.contains(name.as_str()));
        let groups = known.filter(|name| *name != "*").cloned().collect();
        Ok(Self { name: name.to_owned(), groups })
    }

    /// The scopes that the configuration gives to this person.
    pub fn scopes(&self, settings: &Oidc) -> Vec<Scope> {
        let of_groups = settings.groups.iter().filter(|(name, _)| name == "*" || self.groups.contains(name));
        let own = settings.users.iter().filter(|(name, _)| name == "*" || *name == self.name);
        let scopes: BTreeSet<Scope> = of_groups.chain(own).flat_map(|(_, scopes)| scopes).cloned().collect();
        scopes.into_iter().collect()
    }
}

/// Whether the claims that the configuration asks for are there, also if they are empty.
pub(crate) fn is_complete(claims: &Map<String, Value>, settings: &Oidc) -> bool {
    let needs_groups = settings.groups.iter().any(|(name, _)| name != "*");
    claim(claims, &settings.user_claim).is_some()
        && (settings.user_claim != "email" || claims.contains_key("email_verified"))
        && (!needs_groups || claim(claims, &settings.groups_claim).is_some())
}

/// A claim by its name, such as `https://example.com/groups`, or by the way to it, such as `realm_access.roles`.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let (first, rest) = name.split_once('.')?;
    rest.split('.').try_fold(claims.get(first)?, |value, part| value.get(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(user_claim: &str, groups_claim: &str) -> Oidc {
        let read = vec![Scope::Read];
        Oidc {
            issuer: "https://auth.example.com".to_owned(),
            client_id: "driftless".to_owned(),
            client_secret: None,
            url: "https://driftless.example.com".to_owned(),
            requested_scopes: Vec::new(),
            user_claim: user_claim.to_owned(),
            groups_claim: groups_claim.to_owned(),
            groups: vec![("ops".to_owned(), vec![Scope::Admin]), ("dev".to_owned(), read.clone())],
            users: vec![("ada@example.com".to_owned(), read)],
            ca_file: None,
        }
    }

    fn person(claims: Value, settings: &Oidc) -> Result<Person, Error> {
        let Value::Object(claims) = claims else { panic!("{claims}") };
        Person::new(&claims, settings)
    }

    #[test]
    fn groups_of_the_configuration_give_their_scopes() {
        let settings = settings("preferred_username", "groups");
        let ada =
            person(json!({"preferred_username": "ada", "groups": ["dev", "other", 4]}), &settings).unwrap();
        assert_eq!(ada.groups, ["dev".to_owned()].into());
        assert_eq!(ada.scopes(&settings), [Scope::Read]);
        let one = person(json!({"preferred_username": "eve", "groups": "ops"}), &settings).unwrap();
        assert_eq!(one.scopes(&settings), [Scope::Admin]);
        let nobody = person(json!({"preferred_username": "bob", "groups": ["*"]}), &settings).unwrap();
        assert_eq!(nobody.scopes(&settings), [], "a group called `*` is not everybody");
    }

    #[test]
    fn claims_are_found_by_their_name_and_by_the_way_to_them() {
        let roles = settings("name", "realm_access.roles");
        let claims = json!({"name": "ada", "realm_access": {"roles": ["ops"]}});
        assert_eq!(person(claims, &roles).unwrap().scopes(&roles), [Scope::Admin]);
        let named = settings("name", "https://example.com/groups");
        let claims = json!({"name": "ada", "https://example.com/groups": ["ops"]});
        assert_eq!(person(claims, &named).unwrap().scopes(&named), [Scope::Admin]);
    }

    #[test]
    fn names_must_be_whole_and_addresses_verified() {
        let settings = settings("email", "groups");
        let ada = person(json!({"email": "ada@example.com", "email_verified": true}), &settings).unwrap();
        assert_eq!(ada.scopes(&settings), [Scope::Read]);
        for verified in [json!(false), json!("true"), Value::Null] {
            let unverified = json!({"email": "ada@example.com", "email_verified": verified});
            assert!(matches!(person(unverified, &settings), Err(Error::UnverifiedEmail)));
        }
        assert!(matches!(
            person(json!({"email": "ada@example.com"}), &settings),
            Err(Error::UnverifiedEmail)
        ));
        for wrong in [json!({}), json!({"email": ""}), json!({"email": 4}), json!({"email": "a\u{202e}b"})] {
            assert!(matches!(person(wrong, &settings), Err(Error::NoName { .. })));
        }
        let long = json!({"email": "a".repeat(101)});
        assert!(matches!(person(long, &settings), Err(Error::NoName { .. })));
    }
}
