//! Builds a delivery as a forge would, to test a webhook. It sends nothing.

use std::fmt::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::keys::{self, Key};
use driftless_model::{Timestamp, WebhookProvider};

/// A request without its address.
#[derive(Clone, Debug)]
pub struct Sample {
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// The commit id in samples. No commit has it.
pub const NO_COMMIT: &str = "0123456789012345678901234567890123456789";

/// The push in a sample.
#[derive(Clone, Copy, Debug)]
pub struct SamplePush<'a> {
    pub repository: &'a str,
    /// The full name of the reference.
    pub reference: &'a str,
    pub commit: &'a str,
}

/// A signed push.
pub fn sample(
    provider: WebhookProvider,
    key: &Key,
    id: &str,
    now: Timestamp,
    push: SamplePush<'_>,
) -> Sample {
    let body = body(provider, id, push);
    let time = (now.0 / 1000).to_string();
    let mut headers = event_headers(provider, id);
    headers.push(("Content-Type", "application/json".to_owned()));
    let secret = || String::from_utf8_lossy(key.bytes()).into_owned();
    if key.signs() {
        let parts = [id.as_bytes(), b".", time.as_bytes(), b".", body.as_bytes()];
        let mac = BASE64_STANDARD.encode(keys::hmac_sha256(key.bytes(), &parts));
        headers.push(("webhook-timestamp", time));
        headers.push(("webhook-signature", format!("v1,{mac}")));
    } else {
        let mac = || hex(keys::hmac_sha256(key.bytes(), &[body.as_bytes()]));
        headers.push(match provider {
            WebhookProvider::Auto | WebhookProvider::GitHub => {
                ("X-Hub-Signature-256", format!("sha256={}", mac()))
            }
            WebhookProvider::Gitea => ("X-Gitea-Signature", mac()),
            WebhookProvider::Forgejo => ("X-Forgejo-Signature", mac()),
            WebhookProvider::Gogs => ("X-Gogs-Signature", mac()),
            WebhookProvider::Bitbucket => ("X-Hub-Signature", format!("sha256={}", mac())),
            WebhookProvider::HmacSha256 | WebhookProvider::StandardWebhooks => {
                ("X-Signature", format!("sha256={}", mac()))
            }
            WebhookProvider::HmacSha512 => {
                let mac = hex(keys::hmac_sha512(key.bytes(), &[body.as_bytes()]));
                ("X-Signature", format!("sha512={mac}"))
            }
            WebhookProvider::GitLab => ("X-Gitlab-Token", secret()),
            WebhookProvider::AzureDevops => {
                let account = BASE64_STANDARD.encode(format!("driftless:{}", secret()));
                ("Authorization", format!("Basic {account}"))
            }
        });
    }
    Sample { headers, body }
}

fn hex(mac: Vec<u8>) -> String {
    mac.into_iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The headers that name the event and the delivery.
pub fn event_headers(provider: WebhookProvider, id: &str) -> Vec<(&'static str, String)> {
    let of = |event: &'static str, name: &str, delivery: &'static str| {
        vec![(event, name.to_owned()), (delivery, id.to_owned())]
    };
    match provider {
        WebhookProvider::Auto | WebhookProvider::GitHub => of("X-GitHub-Event", "push", "X-GitHub-Delivery"),
        WebhookProvider::Gitea => of("X-Gitea-Event", "push", "X-Gitea-Delivery"),
        WebhookProvider::Forgejo => of("X-Forgejo-Event", "push", "X-Forgejo-Delivery"),
        WebhookProvider::Gogs => of("X-Gogs-Event", "push", "X-Gogs-Delivery"),
        WebhookProvider::GitLab => of("X-Gitlab-Event", "Push Hook", "webhook-id"),
        WebhookProvider::Bitbucket => of("X-Event-Key", "repo:push", "X-Request-UUID"),
        // Azure DevOps has the id in the body.
        WebhookProvider::AzureDevops => Vec::new(),
        WebhookProvider::HmacSha256 | WebhookProvider::HmacSha512 | WebhookProvider::StandardWebhooks => {
            vec![("webhook-id", id.to_owned())]
        }
    }
}

/// The payload in the forge's own form.
pub fn body(provider: WebhookProvider, id: &str, push: SamplePush<'_>) -> String {
    let SamplePush { repository, reference, commit } = push;
    let body: Value = match provider {
        WebhookProvider::GitLab => json!({
            "object_kind": "push", "event_name": "push", "ref": reference, "after": commit,
            "project": { "git_http_url": repository },
        }),
        WebhookProvider::Bitbucket => {
            let (kind, name) = match reference.strip_prefix("refs/tags/") {
                Some(name) => ("tag", name),
                None => ("branch", reference.trim_start_matches("refs/heads/")),
            };
            let new = json!({ "type": kind, "name": name, "target": { "hash": commit } });
            json!({
                "push": { "changes": [{ "new": new }] },
                "repository": { "links": { "html": { "href": repository } } },
            })
        }
        WebhookProvider::AzureDevops => json!({
            "id": id, "eventType": "git.push",
            "resource": {
                "refUpdates": [{ "name": reference, "newObjectId": commit }],
                "repository": { "remoteUrl": repository },
            },
        }),
        WebhookProvider::StandardWebhooks => json!({
            "type": "push",
            "data": { "ref": reference, "after": commit, "repository": repository },
        }),
        WebhookProvider::Auto
        | WebhookProvider::GitHub
        | WebhookProvider::Gitea
        | WebhookProvider::Forgejo
        | WebhookProvider::Gogs
        | WebhookProvider::HmacSha256
        | WebhookProvider::HmacSha512 => json!({
            "ref": reference, "after": commit, "repository": { "clone_url": repository },
        }),
    };
    body.to_string()
}
