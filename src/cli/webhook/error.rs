//! Errors of `driftless webhook`, and the webhook of a repository.

use crate::{cli::Error as CliError, cli::client::Client, cli::error::CommandError};
use driftless_forge::webhook::InvalidKey;
use driftless_model::WebhookStatus;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the repository `{0}` has no webhook")]
    NoHook(String),
    #[error("the webhook of `{repository}` is off: {why}")]
    Off { repository: String, why: String },
    #[error("could not read the secret: {0}")]
    Secret(String),
    #[error("could not sign the sample")]
    Key(#[source] InvalidKey),
    #[error("the agent is on another machine, so the location of the secret that it names is not used")]
    NotLocal,
    #[error("no server answers at {url}")]
    Post {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("`{0}` is not a valid URL")]
    Address(String),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoHook(_) => Some(
                "add `webhook: { secretFile: … }` to it in the configuration and restart the agent"
                    .to_owned(),
            ),
            Self::NotLocal => Some("name the secret with --secret-file or --secret-env".to_owned()),
            Self::Secret(_) => Some(
                "run the command as a user who may read the secret, or name another one with --secret-file or --secret-env"
                    .to_owned(),
            ),
            Self::Post { .. } => {
                Some("the reverse proxy may be missing; without --public the sample goes to the agent itself".to_owned())
            }
            Self::Off { .. } | Self::Key(_) | Self::Address(_) => None,
        }
    }
}

/// The webhook of a repository, from the agent.
pub(super) async fn find(client: &Client, repository: &str) -> Result<WebhookStatus, CliError> {
    let hooks: Vec<WebhookStatus> = client.get("/api/v1/webhooks").await?;
    let found = hooks.into_iter().find(|it| it.repository == repository);
    Ok(found.ok_or_else(|| Error::NoHook(repository.to_owned()))?)
}

/// The webhook, unless it is off.
pub(super) fn active(hook: WebhookStatus) -> Result<WebhookStatus, Error> {
    match hook.trouble {
        Some(why) => Err(Error::Off { repository: hook.repository, why }),
        None => Ok(hook),
    }
}
