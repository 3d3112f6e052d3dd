//! Joins a collector: gives it the key of this agent, with a one-time token, and learns its key.

use driftless_config::PlaceKind;
use driftless_fleet::{InvalidKey, InviteToken, JoinRequest};
use serde::{Deserialize, Serialize};

use crate::fleet::{
    collector_client::CollectorClient,
    enrolments::{Enrolments, KeyError},
    report_error::ReportError,
};

/// Why this agent could not join a collector.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token has another form.
    #[error("the token is not one that `driftless fleet invite` has made")]
    Token,
    /// The collector is not in the configuration.
    #[error("this agent does not report to {0}: add it to `report.to` in its configuration first")]
    NotConfigured(String),
    /// A bucket or folder.
    #[error("{0} is no agent: hosts join collectors only")]
    NoCollector(String),
    /// The host has no name.
    #[error("this host has no name: set `host.name` in its configuration first")]
    NoName,
    /// The collector does not answer, or refuses.
    #[error("could not join {url}")]
    Collector {
        /// The URL of the collector.
        url: String,
        /// Why.
        #[source]
        source: ReportError,
    },
    /// Another server answers, or the token is of another collector.
    #[error(
        "the answer of {0} is not signed by the collector that made the token: check the URL, and whether somebody else answers there"
    )]
    Foreign(String),
    /// The key or the database of this agent cannot be used.
    #[error("could not use the fleet key of this agent, or store the enrolment")]
    Key(#[from] KeyError),
}

/// A collector that was joined: the answer of `POST /api/v1/fleet/enrolments`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// The name of this host.
    pub host: String,
    /// The fingerprint of the key of this agent.
    pub key: String,
    /// The fingerprint of the key of the collector.
    pub collector: String,
}

/// Joins a collector of the configuration with a one-time token. All requests to it are signed from now on.
///
/// # Errors
///
/// If the token or the URL is wrong, the collector refuses or does not answer, or the state directory fails.
pub async fn join_fleet(enrolments: &Enrolments, url: &str, token: &str) -> Result<Joined, JoinError> {
    let token: InviteToken = token.parse().map_err(|InvalidKey| JoinError::Token)?;
    let url = url.trim_end_matches('/');
    let not_configured = || JoinError::NotConfigured(url.to_owned());
    let reporter = enrolments.reporter().ok_or_else(not_configured)?;
    let place = reporter.places.iter().find(|place| place.url == url).ok_or_else(not_configured)?;
    if !matches!(place.kind, PlaceKind::Collector { .. }) {
        return Err(JoinError::NoCollector(url.to_owned()));
    }
    if reporter.host.is_empty() {
        return Err(JoinError::NoName);
    }
    let key = enrolments.own_key().await?;
    let public = key.public().map_err(KeyError::Key)?;
    let request = JoinRequest::new(reporter.host, reporter.instance, &key, &token).map_err(KeyError::Key)?;
    let refused = |source| JoinError::Collector { url: url.to_owned(), source };
    let client = CollectorClient::new(place, None, reporter.environment.clone()).map_err(refused)?;
    let answer = client.join(&request).await.map_err(refused)?;
    if !answer.is_genuine(&request, &token) {
        return Err(JoinError::Foreign(url.to_owned()));
    }
    enrolments.remember(url, key, answer.key).await?;
    let host = reporter.host.to_owned();
    tracing::info!(to = url, host, "joined the fleet; reports are signed from now on");
    Ok(Joined { host, key: public.fingerprint(), collector: answer.key.fingerprint() })
}
