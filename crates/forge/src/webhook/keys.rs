//! Webhook secrets and the verification of signatures.
//!
//! Comparisons take constant time, over the bytes as received, before anything is parsed.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq};

use super::headers::{bytes_of, header, resolve};
use driftless_model::{Timestamp, WebhookProvider};

/// The largest difference between a signed request's time and ours.
const SKEW: Duration = Duration::from_mins(5);

/// Prefix of Standard Webhooks secrets; the rest is the key in base64.
const SIGNING: &str = "whsec_";

/// A secret in the form that its provider uses. It has no `Debug`, so it cannot be printed.
#[derive(Clone)]
pub struct Key {
    provider: WebhookProvider,
    bytes: Vec<u8>,
    /// GitLab only: the secret signs the request instead of being sent.
    signs: bool,
}

/// Why a secret cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("the secret is shorter than {} characters; make one with `openssl rand -hex 32`", Key::SHORTEST)]
    Short,
    #[error("after `whsec_` a secret is base64 of at least {} bytes", Key::FEWEST_BYTES)]
    NotBase64,
}

/// Why a request is not authentic. It contains nothing that the sender does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the header `{0}` is missing; has the forge been given the secret?")]
    Missing(&'static str),
    #[error("the header `{0}` has no signature in the expected form")]
    Malformed(&'static str),
    #[error("the signature was not made with the configured secret")]
    Wrong,
    #[error("the request was signed more than 5 minutes ago, or the clocks differ")]
    Stale,
}

impl Key {
    /// In characters. A shorter secret can be guessed from one signed request.
    pub const SHORTEST: usize = 32;
    /// In bytes, the minimum of Standard Webhooks.
    pub const FEWEST_BYTES: usize = 24;

    pub fn new(provider: WebhookProvider, secret: &str) -> Result<Self, InvalidKey> {
        let signing = secret.strip_prefix(SIGNING);
        let is_signing = match provider {
            WebhookProvider::StandardWebhooks => true,
            WebhookProvider::GitLab => signing.is_some(),
            WebhookProvider::Auto
            | WebhookProvider::GitHub
            | WebhookProvider::Gitea
            | WebhookProvider::Forgejo
            | WebhookProvider::Gogs
            | WebhookProvider::Bitbucket
            | WebhookProvider::AzureDevops
            | WebhookProvider::HmacSha256
            | WebhookProvider::HmacSha512 => false,
        };
        if is_signing {
            let bytes = BASE64_STANDARD.decode(signing.unwrap_or(secret)).ok();
            let bytes = bytes.filter(|it| it.len() >= Self::FEWEST_BYTES).ok_or(InvalidKey::NotBase64)?;
            return Ok(Self { provider, bytes, signs: true });
        }
        if secret.chars().count() < Self::SHORTEST {
            return Err(InvalidKey::Short);
        }
        Ok(Self { provider, bytes: secret.as_bytes().to_vec(), signs: false })
    }

    /// Whether this secret signs `{id}.{time}.{body}` instead of the body alone.
    pub(super) fn signs(&self) -> bool {
        self.signs
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn matches(&self, mac: &[u8], parts: &[&[u8]]) -> Choice {
        let expected = match self.provider {
            WebhookProvider::HmacSha512 => hmac_sha512(&self.bytes, parts),
            _ => hmac_sha256(&self.bytes, parts),
        };
        // Unequal lengths return early; the length is not secret.
        expected.ct_eq(mac)
    }

    /// Compares digests, so that the length of the secret is not revealed.
    fn is(&self, given: &[u8]) -> Choice {
        Sha256::digest(&self.bytes).ct_eq(&Sha256::digest(given))
    }
}

/// Verifies that a request was signed with one of `keys`. Returns the provider, as far as headers tell. All keys are
/// tried, so the time does not depend on which one matches.
pub fn verify(
    provider: WebhookProvider,
    keys: &[Key],
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<WebhookProvider, Refusal> {
    let provider = resolve(provider, headers);
    let any = |is: &dyn Fn(&Key) -> Choice| {
        let found = keys.iter().fold(Choice::from(0), |found, key| found | is(key));
        if bool::from(found) { Ok(provider) } else { Err(Refusal::Wrong) }
    };
    let signed = |name, prefix| {
        let mac = hex_of(headers, name, prefix)?;
        any(&|key| key.matches(&mac, &[body]))
    };
    match provider {
        WebhookProvider::Auto | WebhookProvider::GitHub => signed("x-hub-signature-256", "sha256="),
        WebhookProvider::Gitea => signed("x-gitea-signature", ""),
        WebhookProvider::Forgejo => signed("x-forgejo-signature", ""),
        WebhookProvider::Gogs => signed("x-gogs-signature", ""),
        // GitHub uses the same header name for SHA-1, so the name alone does not tell the algorithm.
        WebhookProvider::Bitbucket => signed("x-hub-signature", "sha256="),
        WebhookProvider::HmacSha256 => signed("x-signature", "sha256="),
        WebhookProvider::HmacSha512 => signed("x-signature", "sha512="),
        WebhookProvider::AzureDevops => {
            let password = basic_password(headers)?;
            any(&|key| key.is(password.as_bytes()))
        }
        WebhookProvider::StandardWebhooks => standard(keys, headers, body, now).map(|()| provider),
        WebhookProvider::GitLab => {
            let signing: Vec<Key> = keys.iter().filter(|it| it.signs).cloned().collect();
            // GitLab sends the other two Standard Webhooks headers with every delivery.
            if !signing.is_empty() && headers.contains_key("webhook-signature") {
                return standard(&signing, headers, body, now).map(|()| provider);
            }
            if signing.len() == keys.len() {
                return Err(Refusal::Missing("webhook-signature"));
            }
            let token = bytes_of(headers, "x-gitlab-token").ok_or(Refusal::Missing("X-Gitlab-Token"))?;
            any(&|key| key.is(token) & Choice::from(u8::from(!key.signs)))
        }
    }
}

/// Standard Webhooks: `v1,BASE64` over `{id}.{time}.{body}`. The header has several signatures, separated by spaces,
/// while the sender rotates its secret.
fn standard(keys: &[Key], headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refusal> {
    let get = |name: &'static str| header(headers, name).ok_or(Refusal::Missing(name));
    let (id, time, signatures) = (get("webhook-id")?, get("webhook-timestamp")?, get("webhook-signature")?);
    let macs: Vec<Vec<u8>> = signatures
        .split(' ')
        .filter_map(|it| it.strip_prefix("v1,"))
        .take(8)
        .filter_map(|it| BASE64_STANDARD.decode(it).ok())
        .collect();
    let malformed = Refusal::Malformed("webhook-signature");
    if macs.is_empty() {
        return Err(malformed);
    }
    let parts = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    let mut found = Choice::from(0);
    for key in keys {
        for mac in &macs {
            found |= key.matches(mac, &parts);
        }
    }
    if !bool::from(found) {
        return Err(Refusal::Wrong);
    }
    let seconds: u64 = time.parse().map_err(|_| Refusal::Malformed("webhook-timestamp"))?;
    let signed_at = Timestamp(seconds.saturating_mul(1000));
    let apart = now.since(signed_at).max(signed_at.since(now));
    if apart > SKEW { Err(Refusal::Stale) } else { Ok(()) }
}

/// The bytes of a hexadecimal signature after its required prefix.
fn hex_of(headers: &HeaderMap, name: &'static str, prefix: &str) -> Result<Vec<u8>, Refusal> {
    let text = header(headers, name).ok_or(Refusal::Missing(name))?;
    let digits = text.strip_prefix(prefix).ok_or(Refusal::Malformed(name))?;
    unhex(digits).filter(|it| !it.is_empty()).ok_or(Refusal::Malformed(name))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    // The longest digest is that of SHA-512.
    if !digits.len().is_multiple_of(2) || digits.len() > 128 {
        return None;
    }
    let value = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
    digits.as_bytes().chunks_exact(2).map(|it| Some(value(it[0])? << 4 | value(it[1])?)).collect()
}

fn basic_password(headers: &HeaderMap) -> Result<String, Refusal> {
    let malformed = Refusal::Malformed("Authorization");
    let text = header(headers, AUTHORIZATION.as_str()).ok_or(Refusal::Missing("Authorization"))?;
    let (scheme, rest) = text.split_once(' ').ok_or(malformed)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed);
    }
    let decoded = BASE64_STANDARD.decode(rest.trim()).ok().and_then(|it| String::from_utf8(it).ok());
    decoded.as_deref().and_then(|it| it.split_once(':')).map(|it| it.1.to_owned()).ok_or(malformed)
}

pub(super) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

pub(super) fn hmac_sha512(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha512>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}
