//! Webhooks as the API, the CLI and the page show them: which forge rings, what it said last, and what became
//! of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CommitId, Timestamp, defaults::is_default};

/// The forge that sends a webhook, and therefore how it is signed and read. Always configured: no header of a request chooses
/// an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookProvider {
    /// One of Forgejo, Gitea, Gogs and GitHub, told by their headers in this order, as the first three also
    /// send the headers of those behind them. All four sign with HMAC-SHA256.
    Auto,
    #[serde(rename = "github")]
    GitHub,
    #[serde(rename = "gitlab")]
    GitLab,
    Gitea,
    Forgejo,
    Gogs,
    /// Cloud and Data Center.
    Bitbucket,
    AzureDevops,
    HmacSha256,
    HmacSha512,
    StandardWebhooks,
}

impl WebhookProvider {
    pub const ALL: [(&'static str, Self); 11] = [
        ("auto", Self::Auto),
        ("github", Self::GitHub),
        ("gitlab", Self::GitLab),
        ("gitea", Self::Gitea),
        ("forgejo", Self::Forgejo),
        ("gogs", Self::Gogs),
        ("bitbucket", Self::Bitbucket),
        ("azure-devops", Self::AzureDevops),
        ("hmac-sha256", Self::HmacSha256),
        ("hmac-sha512", Self::HmacSha512),
        ("standard-webhooks", Self::StandardWebhooks),
    ];
}

impl fmt::Display for WebhookProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|it| it.1 == *self).map_or("", |it| it.0))
    }
}

/// The webhook of one repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStatus {
    /// The repository's name in the configuration.
    pub repository: String,
    pub provider: WebhookProvider,
    /// The URL that the forge posts to; empty while there is trouble.
    pub url: String,
    /// The address that the agent itself serves it at, for a test from the same machine.
    pub local_url: String,
    /// The source of the secret: `file /etc/driftless/hook`, `variable HOOK_SECRET`.
    pub secret: WebhookSecret,
    /// The full name of what is followed, such as `refs/heads/main`; empty for the default branch.
    pub reference: String,
    /// The URL that is followed, without credentials.
    pub repository_url: String,
    /// Why every delivery is refused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The newest delivery that was signed as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Delivery>,
    /// The newest that was not, or that could not be taken, since the agent was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refused: Option<Delivery>,
    /// Number of stored deliveries that no fetch has handled yet.
    pub pending: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
}

/// The source of a secret, never its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WebhookSecret {
    File(std::path::PathBuf),
    Variable(String),
}

/// One request to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// As the forge numbers it; made here where it does not.
    pub id: String,
    pub at: Timestamp,
    pub provider: WebhookProvider,
    /// As the forge calls it, such as `push`.
    pub event: String,
    /// The full name of what was pushed, where the payload says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit that the payload speaks of. Only compared, never fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// Whether that may be a commit of another branch than the followed one: the payload does not name the default branch, which is
    /// followed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub maybe_other_branch: bool,
    /// The address of the sender, or of the proxy before it.
    pub from: String,
    pub result: DeliveryResult,
    /// Why it was ignored or refused, or a remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The result of the fetch that it started; `None` until the fetch has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<DeliveryOutcome>,
}

impl Delivery {
    /// The result with its message and the outcome of the fetch: `accepted; fetched 3f2a9c1d0b7e "…"`.
    pub fn summary(&self) -> String {
        let mut text = self.result.to_string();
        let outcome = self.outcome.as_ref().map_or("", |outcome| outcome.message.as_str());
        for part in [self.message.as_str(), outcome].into_iter().filter(|part| !part.is_empty()) {
            text.push_str("; ");
            text.push_str(part);
        }
        text
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeliveryResult {
    /// Written down; the agent fetches.
    Accepted,
    /// Had been seen before. The agent fetches all the same.
    Duplicate,
    /// About something that is not followed.
    Ignored,
    /// The forge only tried whether somebody is there.
    Pong,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryOutcome {
    pub at: Timestamp,
    /// `fetched 3f2a9c1d0b7e`, `nothing new, still at 3f2a9c1d0b7e`.
    pub message: String,
}

/// A commit that was found by asking, although the webhook should have told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Missed {
    pub commit: CommitId,
    /// When it was found.
    pub at: Timestamp,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.commit.short();
        write!(
            f,
            "{commit} was found by asking Git, and no webhook announced it: look at the forge's list of deliveries"
        )
    }
}

impl fmt::Display for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

impl fmt::Display for DeliveryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Ignored => "ignored",
            Self::Pong => "pong",
            Self::Refused => "refused",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_called_the_same_everywhere() {
        for (name, provider) in WebhookProvider::ALL {
            assert_eq!(serde_json::to_value(provider).unwrap(), name);
            assert_eq!(provider.to_string(), name);
        }
    }
}
