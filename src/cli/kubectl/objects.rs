//! The objects that a kubectl-compatible command is about: how they are written, how they are asked for, and how fields are
//! read from them.

use reqwest::Url;
use serde_json::Value;

use super::{jsonpath, unobserved::warn_of_unobserved};
use crate::cli::{Context, client, client::Client, error::CommandError, screen::plain};
use driftless_model::{InvalidSelector, Kind};

/// Errors before a request.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    /// kubectl's own wording, because scripts may match it.
    #[error("the server doesn't have a resource type \"{0}\"")]
    NoSuchKind(String),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Selector(#[from] InvalidSelector),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoSuchKind(_) => {
                let kinds: Vec<&str> = Kind::ALL.into_iter().map(Kind::plural).collect();
                Some(format!("there are {} and all", kinds.join(", ")))
            }
            Self::Usage(_) | Self::Selector(_) => None,
        }
    }
}

/// Selected objects: kinds, with names or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) kinds: Vec<Kind>,
    pub(super) name: Option<String>,
}

/// Selects one of several objects with the same name.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) app: Option<&'a str>,
    pub(super) selector: Option<&'a str>,
}

impl Wanted {
    /// Reads `pods`, `pods,svc`, `pod web-1 web-2`, `pod/web-1 deploy/web`.
    pub(super) fn parse(words: &[String]) -> Result<Vec<Self>, Error> {
        let (first, rest) = words
            .split_first()
            .ok_or_else(|| Error::Usage("a kind is missing: write one, such as pods".into()))?;
        if first.contains('/') {
            return words.iter().map(|it| Self::pair(it)).collect();
        }
        if let Some(pair) = rest.iter().find(|it| it.contains('/')) {
            let text = format!("`{pair}`: write KIND NAME…, or KIND/NAME for every object");
            return Err(Error::Usage(text));
        }
        let kinds = kinds(first)?;
        if rest.is_empty() {
            return Ok(vec![Self { kinds, name: None }]);
        }
        Ok(rest.iter().map(|it| Self { kinds: kinds.clone(), name: Some(it.clone()) }).collect())
    }

    pub(super) fn pair(text: &str) -> Result<Self, Error> {
        match text.split_once('/') {
            Some((kind, name)) if !name.is_empty() && !name.contains('/') => {
                Ok(Self { kinds: kinds(kind)?, name: Some(name.to_owned()) })
            }
            Some(_) | None => Err(Error::Usage(format!("`{text}`: write KIND/NAME"))),
        }
    }
}

fn kinds(text: &str) -> Result<Vec<Kind>, Error> {
    let mut kinds = Vec::new();
    for word in text.split(',').filter(|it| !it.is_empty()) {
        if word.eq_ignore_ascii_case("all") {
            kinds.extend(Kind::ALL.into_iter().filter(|it| it.is_of_all()));
        } else {
            kinds.push(Kind::parse(word).ok_or_else(|| Error::NoSuchKind(word.to_owned()))?);
        }
    }
    Ok(kinds)
}

/// The selected objects from the agent.
pub(super) async fn objects(
    client: &Client,
    wanted: &Wanted,
    scope: &Scope<'_>,
) -> Result<Vec<Value>, client::Error> {
    let kinds: Vec<&str> = wanted.kinds.iter().map(|it| it.plural()).collect();
    let kinds = kinds.join(",");
    let asked = [
        ("kind", Some(kinds.as_str())),
        ("name", wanted.name.as_deref()),
        ("namespace", scope.namespace),
        ("app", scope.app),
        ("labelSelector", scope.selector),
    ];
    let pairs = asked.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let mut answer: Value = client.get(&path("/api/v1/objects", pairs)).await?;
    match answer.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        Some(_) | None => Err(client.foreign("the answer is not a list of objects".to_owned())),
    }
}

/// A path with escaped parameters.
pub(super) fn path<'a>(route: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    // The host does not matter: only the path and the query are used.
    let Ok(mut url) = Url::parse(&format!("http://agent{route}")) else { return route.to_owned() };
    for (key, value) in pairs {
        url.query_pairs_mut().append_pair(key, value);
    }
    url.query().map_or_else(|| route.to_owned(), |it| format!("{route}?{it}"))
}

/// Reports that an object does not exist, in the words of an API server, and why the agent may not know it.
pub(super) async fn say_missing(wanted: &Wanted, app: Option<&str>, client: &Client, context: &Context<'_>) {
    let kind = wanted.kinds.first().copied().unwrap_or_default();
    let name = wanted.name.as_deref().unwrap_or_default();
    context.screen.say(format!(
        "Error from server (NotFound): {} \"{}\" not found",
        kind.qualified_plural(),
        plain(name)
    ));
    warn_of_unobserved(app, &[], client, context).await;
}

/// The text at a pointer, or an empty text.
pub(super) fn at(it: &Value, pointer: &str) -> String {
    it.pointer(pointer).map_or_else(String::new, jsonpath::text)
}

pub(super) fn count(it: &Value, pointer: &str) -> u64 {
    it.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

pub(super) fn words(it: &Value, pointer: &str) -> Vec<String> {
    let items = it.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten().map(jsonpath::text).collect()
}

pub(super) fn kind_of(it: &Value) -> Kind {
    it["kind"].as_str().and_then(Kind::parse).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = Vec<(Vec<Kind>, Option<String>)>;

    fn parse(words: &[&str]) -> Result<Parsed, String> {
        let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
        let wanted = Wanted::parse(&words).map_err(|it| it.to_string())?;
        Ok(wanted.into_iter().map(|it| (it.kinds, it.name)).collect())
    }

    #[test]
    fn kinds_and_names_are_read_as_kubectl_reads_them() {
        use Kind::{Deployment, Pod, Service};
        let named = |kind, name: &str| (vec![kind], Some(name.to_owned()));
        assert_eq!(parse(&["po,svc"]), Ok(vec![(vec![Pod, Service], None)]));
        assert_eq!(parse(&["pod", "a", "b"]), Ok(vec![named(Pod, "a"), named(Pod, "b")]));
        assert_eq!(parse(&["pod/a", "deploy/b"]), Ok(vec![named(Pod, "a"), named(Deployment, "b")]));
        assert_eq!(parse(&["all"]).unwrap()[0].0.len(), 8);
        assert_eq!(parse(&["ingress"]).unwrap_err(), "the server doesn't have a resource type \"ingress\"");
        for wrong in [&["pod/"][..], &["pod/a/b"], &["pod/a", "b"], &["pod", "deploy/b"], &[]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn parameters_cannot_change_the_route() {
        let path =
            path("/api/v1/objects", [("name", "a&kind=secrets#x"), ("labelSelector", "app in (a, b)")]);
        assert_eq!(path, "/api/v1/objects?name=a%26kind%3Dsecrets%23x&labelSelector=app+in+%28a%2C+b%29");
    }
}
