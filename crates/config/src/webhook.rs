//! Webhooks: keys and their rules. Secrets stay names of files and variables; their length is checked when they are read.

use std::path::PathBuf;

use driftless_model::WebhookProvider;

use crate::{
    keys,
    listen_tls::own_listener_tls,
    secret::Secret,
    settings::{Webhook, Webhooks},
    value::{Fields as _, Value},
};

/// The keys of `webhook`.
pub(super) struct WebhookEntry {
    provider: Option<WebhookProvider>,
    secret_env: Option<String>,
    secret_file: Option<PathBuf>,
    previous_secret_env: Option<String>,
    previous_secret_file: Option<PathBuf>,
    id: Option<String>,
}

/// Reads the value of `webhooks`.
pub(super) fn webhooks(value: Value<'_>) -> Option<Webhooks> {
    let object = value.object(&keys::WEBHOOKS)?;
    Some(Webhooks {
        listen: object.address("listen"),
        tls: own_listener_tls(&object),
        url: object.parsed("url", base_url),
    })
}

impl WebhookEntry {
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::WEBHOOK)?;
        Some(Self {
            provider: object.word("provider", WebhookProvider::ALL.as_slice()),
            secret_env: object.owned("secretEnv"),
            secret_file: object.absolute("secretFile"),
            previous_secret_env: object.owned("previousSecretEnv"),
            previous_secret_file: object.absolute("previousSecretFile"),
            id: object.parsed("id", id),
        })
    }

    /// The error is a message about the section.
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
        Ok(Webhook { provider: provider.unwrap_or(WebhookProvider::Auto), secret, previous, id })
    }
}

/// Long enough not to be guessed, and without characters that a path would have to escape.
fn id(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if (16..=128).contains(&text.len()) && text.bytes().all(is_letter) {
        Ok(text.to_owned())
    } else {
        Err("an id has 16 to 128 letters, digits, `-` and `_`".to_owned())
    }
}

fn base_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    // The URL is printed as part of a command line.
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b":/.-_[]~%".contains(&byte);
    let has_host = rest.is_some_and(|rest| !rest.trim_matches('/').is_empty() && !rest.starts_with('/'));
    if has_host && text.bytes().all(is_letter) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("the address that forges see is written as `https://hooks.example.com`".to_owned())
    }
}
