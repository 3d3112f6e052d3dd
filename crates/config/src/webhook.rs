//! Webhooks in the configuration: their keys, and what must hold for them. Secrets stay names of files and
//! variables; whether they are long enough is seen when they are read.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Deserializer};

use super::{Secret, schema};
use driftless_model::HookProvider;

/// For the webhooks of all repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// An address of their own. Default: where the API listens.
    pub listen: Option<SocketAddr>,
    /// What forges put before `/hook/…`, when a proxy stands between. Without a slash at the end.
    pub url: Option<String>,
}

/// How a forge tells of a push to one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub provider: HookProvider,
    pub secret: Secret,
    /// Accepted as well, while the secret is being changed.
    pub previous: Option<Secret>,
    /// The end of its path. Default: a digest of the secret and the repository's name.
    pub id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawWebhooks {
    #[serde(default, deserialize_with = "schema::address")]
    listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "base_url")]
    url: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawWebhook {
    #[serde(default, deserialize_with = "provider")]
    provider: Option<HookProvider>,
    secret_env: Option<String>,
    #[serde(default, deserialize_with = "schema::absolute")]
    secret_file: Option<PathBuf>,
    previous_secret_env: Option<String>,
    #[serde(default, deserialize_with = "schema::absolute")]
    previous_secret_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "id")]
    id: Option<String>,
}

impl From<RawWebhooks> for Webhooks {
    fn from(RawWebhooks { listen, url }: RawWebhooks) -> Self {
        Self { listen, url }
    }
}

impl RawWebhook {
    /// The error is a sentence about the section as a whole.
    pub(super) fn check(self) -> Result<Webhook, &'static str> {
        let Self { provider, secret_env, secret_file, previous_secret_env, previous_secret_file, id } = self;
        let secret = match (secret_env, secret_file) {
            (None, None) => {
                return Err(
                    "a webhook needs a secret: name a file in `secretFile` or a variable in `secretEnv`",
                );
            }
            (Some(_), Some(_)) => {
                return Err("`secretEnv` and `secretFile` exclude each other: give one of them");
            }
            (Some(name), None) => Secret::Environment(name),
            (None, Some(path)) => Secret::File(path),
        };
        let previous = match (previous_secret_env, previous_secret_file) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(
                    "`previousSecretEnv` and `previousSecretFile` exclude each other: give one of them",
                );
            }
            (Some(name), None) => Some(Secret::Environment(name)),
            (None, Some(path)) => Some(Secret::File(path)),
        };
        Ok(Webhook { provider: provider.unwrap_or(HookProvider::Auto), secret, previous, id })
    }
}

fn provider<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HookProvider>, D::Error> {
    deserializer.deserialize_option(schema::Scalar(|text| {
        HookProvider::ALL.iter().find(|it| it.0 == text).map(|it| it.1).ok_or_else(|| {
            let names: Vec<&str> = HookProvider::ALL.iter().map(|it| it.0).collect();
            format!("this provider is not known: use one of {}", names.join(", "))
        })
    }))
}

/// Long enough not to be guessed, and nothing that a path would have to escape.
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(schema::Scalar(|text| {
        let is_good = (16..=128).contains(&text.len())
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it));
        if is_good {
            Ok(text.to_owned())
        } else {
            Err("an id has 16 to 128 letters, digits, `-` and `_`".to_owned())
        }
    }))
}

fn base_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(schema::Scalar(|text| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        // It is printed as part of a command line.
        let is_good = rest.is_some_and(|it| !it.trim_matches('/').is_empty() && !it.starts_with('/'))
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || b":/.-_[]~%".contains(&it));
        if is_good {
            Ok(text.trim_end_matches('/').to_owned())
        } else {
            Err("the address that forges see is written as `https://hooks.example.com`".to_owned())
        }
    }))
}
