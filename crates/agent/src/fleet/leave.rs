//! Leaves a collector: it removes the key of this agent, and this agent forgets the key of the collector.

use driftless_config::FleetPlace;
use serde::{Deserialize, Serialize};

use crate::{
    error::chain,
    fleet::{
        collector_client::CollectorClient,
        enrolments::{Enrolments, KeyError},
        report_error::ReportError,
    },
};

/// Why this agent could not leave a collector.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// It is not enrolled there.
    #[error("this host has not joined {0}: `driftless fleet status` lists the collectors")]
    NotJoined(String),
    /// The collector does not answer, or refuses.
    #[error("could not leave {url}")]
    Collector {
        /// The URL of the collector.
        url: String,
        /// Why.
        #[source]
        source: ReportError,
    },
    /// The database of this agent cannot be used.
    #[error("could not forget the key of the collector")]
    State(#[from] KeyError),
}

/// A collector that was left: the answer of `DELETE /api/v1/fleet/enrolments`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftCollector {
    /// The name of this host.
    pub host: String,
    /// Whether the collector has removed the key of this host.
    pub removed: bool,
    /// Why it has not. Empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Another URL at which this host reports to the same collector, which therefore keeps the key. Empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub same_as: String,
}

/// Leaves a collector, with a request that is signed by the key of this agent. Reports to it are not signed from now on. The key of
/// this agent stays: other collectors know it. A collector that was joined at another URL too, at which this agent reports to it, keeps
/// the key: only this URL is forgotten. Else the other URLs of the collector are forgotten with this one.
///
/// # Errors
///
/// If this agent has not joined it, or the state directory fails; and, unless `is_forced`, if the collector refuses or does not
/// answer.
pub async fn leave_fleet(
    enrolments: &Enrolments,
    url: &str,
    is_forced: bool,
) -> Result<LeftCollector, LeaveError> {
    let url = url.trim_end_matches('/');
    let not_joined = || LeaveError::NotJoined(url.to_owned());
    let reporter = enrolments.reporter().filter(|_| enrolments.has(url)).ok_or_else(not_joined)?;
    let others = enrolments.other_urls(url);
    // After a collector got another URL, the old one may never have been left. It needs no key.
    let is_reported_to = |other: &&String| reporter.places.iter().any(|place| place.url == **other);
    if let Some(same_as) = others.iter().find(is_reported_to).cloned() {
        enrolments.forget(url).await?;
        let host = reporter.host.to_owned();
        tracing::info!(
            from = url,
            host,
            same_as,
            "forgot a URL of a collector that knows this host by another one"
        );
        let message =
            format!("it is the collector at {same_as} too, and this host reports there with the key");
        return Ok(LeftCollector { host, removed: false, message, same_as });
    }
    // It may have been removed from the configuration first.
    let place = match reporter.places.iter().find(|place| place.url == url) {
        Some(place) => place.clone(),
        None => FleetPlace::parse(url).map_err(|_| not_joined())?,
    };
    let removed = match CollectorClient::new(&place, None, reporter.environment.clone()) {
        Ok(client) => client.signing(enrolments.clone()).leave(reporter.host, reporter.instance).await,
        Err(error) => Err(error),
    };
    let message = match removed {
        Ok(()) => String::new(),
        Err(error) if is_forced => chain(&error),
        Err(source) => return Err(LeaveError::Collector { url: url.to_owned(), source }),
    };
    enrolments.forget(url).await?;
    if message.is_empty() {
        for other in &others {
            enrolments.forget(other).await?;
        }
    }
    let host = reporter.host.to_owned();
    tracing::info!(from = url, host, problem = message, "left the fleet; reports are not signed any more");
    Ok(LeftCollector { host, removed: message.is_empty(), message, same_as: String::new() })
}
