//! Instructions for the webhook of each forge, and a test with curl and openssl. The user's shell reads the secret, so
//! it is never part of the text.

use std::fmt::Write;

use driftless_forge::{webhook::NO_COMMIT, webhook::SamplePush, webhook::body, webhook::event_headers};
use driftless_model::{WebhookProvider, WebhookSecret, WebhookStatus};

/// Delivery id in a command: the shell generates a new one each time.
const ID: &str = "DELIVERY";

/// Reference of a sample push.
pub(super) fn reference(hook: &WebhookStatus) -> String {
    // Only the server knows the name of the default branch; any branch works.
    if hook.reference.is_empty() { "refs/heads/main".to_owned() } else { hook.reference.clone() }
}

/// Instructions for one webhook.
pub(super) fn instructions(hook: &WebhookStatus) -> String {
    let mut out = format!("{}\n\nAt {}:\n", hook.url, forge(hook.provider));
    for line in steps(hook) {
        let _ = writeln!(out, "  {line}");
    }
    let _ = write!(out, "\nTo test from the agent's machine:\n\n{}", script(hook));
    out
}

fn forge(provider: WebhookProvider) -> &'static str {
    match provider {
        WebhookProvider::Auto => "GitHub, Gitea, Forgejo or Gogs",
        WebhookProvider::GitHub => "GitHub",
        WebhookProvider::GitLab => "GitLab",
        WebhookProvider::Gitea => "Gitea",
        WebhookProvider::Forgejo => "Forgejo",
        WebhookProvider::Gogs => "Gogs",
        WebhookProvider::Bitbucket => "Bitbucket",
        WebhookProvider::AzureDevops => "Azure DevOps",
        WebhookProvider::HmacSha256 | WebhookProvider::HmacSha512 => "the sender",
        WebhookProvider::StandardWebhooks => "the sender, by Standard Webhooks",
    }
}

fn steps(hook: &WebhookStatus) -> Vec<String> {
    let secret = format!("the content of the {} on the agent's machine", hook.secret);
    let ordinary = |place: &str| {
        vec![
            format!("{place}: add a webhook with the URL above"),
            "content type: application/json; method: POST".to_owned(),
            format!("secret: {secret}"),
            "events: pushes only".to_owned(),
        ]
    };
    match hook.provider {
        WebhookProvider::Auto | WebhookProvider::GitHub => ordinary("Settings, Webhooks"),
        WebhookProvider::Gitea | WebhookProvider::Forgejo | WebhookProvider::Gogs => {
            ordinary("Settings, Webhooks, of the forge's own type")
        }
        WebhookProvider::GitLab => vec![
            "Settings, Webhooks: add a webhook with the URL above".to_owned(),
            format!("signing token, if the secret begins with `whsec_`, or else secret token: {secret}"),
            "trigger: push events, and tag push events if a tag is followed".to_owned(),
            "a secret token does not protect the payload: use https".to_owned(),
        ],
        WebhookProvider::Bitbucket => ordinary("Repository settings, Webhooks"),
        WebhookProvider::AzureDevops => vec![
            "Project settings, Service hooks: a subscription of `Web Hooks` for `Code pushed`".to_owned(),
            format!("basic authentication: any user name; password: {secret}"),
            "the password is sent with every delivery: use https".to_owned(),
        ],
        WebhookProvider::HmacSha256 => vec![
            "POST to the URL above, with JSON or without a body".to_owned(),
            "X-Signature: sha256=HEX, the HMAC-SHA256 of the body".to_owned(),
            format!("secret: {secret}"),
            "optional: webhook-id, and in the body `ref`, `after` and `repository`".to_owned(),
        ],
        WebhookProvider::HmacSha512 => vec![
            "POST to the URL above, with JSON or without a body".to_owned(),
            "X-Signature: sha512=HEX, the HMAC-SHA512 of the body".to_owned(),
            format!("secret: {secret}"),
            "optional: webhook-id, and in the body `ref`, `after` and `repository`".to_owned(),
        ],
        WebhookProvider::StandardWebhooks => vec![
            "POST to the URL above, with `webhook-id`, `webhook-timestamp` and `webhook-signature`"
                .to_owned(),
            format!("signing secret: {secret}"),
            "optional in `data`: `ref`, `after` and `repository`".to_owned(),
        ],
    }
}

/// A test for a POSIX shell with curl and openssl.
fn script(hook: &WebhookStatus) -> String {
    let reference = reference(hook);
    let push = SamplePush { repository: &hook.repository_url, reference: &reference, commit: NO_COMMIT };
    let body = body(hook.provider, ID, push);
    let secret = match &hook.secret {
        WebhookSecret::File(path) => format!("$(cat {})", shell_words::quote(&path.to_string_lossy())),
        WebhookSecret::Variable(name) => format!("${{{name}}}"),
    };
    let mut lines = vec![
        format!("secret=\"{secret}\""),
        "id=\"test-$(date +%s)-$$\"".to_owned(),
        // One forge sends the id in the payload.
        match body.split_once(ID) {
            Some((before, after)) => {
                format!("body={}\"$id\"{}", shell_words::quote(before), shell_words::quote(after))
            }
            None => format!("body={}", shell_words::quote(&body)),
        },
    ];
    lines.extend(signature(hook.provider).iter().map(|it| (*it).to_owned()));
    lines.push(format!("curl -sS -X POST {} \\", shell_words::quote(&hook.local_url)));
    for (name, value) in event_headers(hook.provider, "$id") {
        lines.push(format!("  -H \"{name}: {value}\" \\"));
    }
    lines.push("  -H 'Content-Type: application/json' \\".to_owned());
    lines.extend(signature_headers(hook.provider).iter().map(|it| format!("  {it} \\")));
    lines.push("  --data-binary \"$body\"".to_owned());
    lines.join("\n") + "\n"
}

const HEX_256: &str = r#"mac=$(printf %s "$body" | openssl dgst -sha256 -hmac "$secret" -r | cut -d' ' -f1)"#;
const HEX_512: &str = r#"mac=$(printf %s "$body" | openssl dgst -sha512 -hmac "$secret" -r | cut -d' ' -f1)"#;
const KEY: &str =
    r#"key=$(printf %s "${secret#whsec_}" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \n')"#;
const STANDARD: &str = r#"mac=$(printf %s "$id.$time.$body" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | openssl base64 -A)"#;

fn signature(provider: WebhookProvider) -> &'static [&'static str] {
    match provider {
        WebhookProvider::Auto
        | WebhookProvider::GitHub
        | WebhookProvider::Gitea
        | WebhookProvider::Forgejo
        | WebhookProvider::Gogs
        | WebhookProvider::Bitbucket
        | WebhookProvider::HmacSha256 => &[HEX_256],
        WebhookProvider::HmacSha512 => &[HEX_512],
        WebhookProvider::StandardWebhooks => &["time=$(date +%s)", KEY, STANDARD],
        WebhookProvider::GitLab => &[
            "time=$(date +%s)",
            "case $secret in whsec_*)",
            KEY,
            STANDARD,
            "set -- -H \"webhook-timestamp: $time\" -H \"webhook-signature: v1,$mac\";;",
            "*) set -- -H \"X-Gitlab-Token: $secret\";; esac",
        ],
        WebhookProvider::AzureDevops => &[],
    }
}

fn signature_headers(provider: WebhookProvider) -> &'static [&'static str] {
    match provider {
        WebhookProvider::Auto | WebhookProvider::GitHub => &["-H \"X-Hub-Signature-256: sha256=$mac\""],
        WebhookProvider::Gitea => &["-H \"X-Gitea-Signature: $mac\""],
        WebhookProvider::Forgejo => &["-H \"X-Forgejo-Signature: $mac\""],
        WebhookProvider::Gogs => &["-H \"X-Gogs-Signature: $mac\""],
        WebhookProvider::Bitbucket => &["-H \"X-Hub-Signature: sha256=$mac\""],
        WebhookProvider::HmacSha256 => &["-H \"X-Signature: sha256=$mac\""],
        WebhookProvider::HmacSha512 => &["-H \"X-Signature: sha512=$mac\""],
        WebhookProvider::AzureDevops => &["-u \"driftless:$secret\""],
        WebhookProvider::GitLab => &["\"$@\""],
        WebhookProvider::StandardWebhooks => {
            &["-H \"webhook-timestamp: $time\"", "-H \"webhook-signature: v1,$mac\""]
        }
    }
}
