//! The routes about notifications: receivers, open incidents, and test messages.

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use super::{
    error::Error,
    parameters::Parameters,
    shared::{Shared, read},
};
use driftless_agent::TestDelivery;
use driftless_model::{IncidentKind, IncidentPhase, NotificationStatus};

/// The query of `POST …/test`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestQuery {
    /// Default: `degraded`.
    event: Option<IncidentKind>,
    /// Default: `opened`.
    phase: Option<IncidentPhase>,
    /// Write the message and send nothing.
    #[serde(default)]
    preview: bool,
}

/// The answer to a test message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestMessage {
    /// The title of the message.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Whether the receiver has accepted it.
    pub sent: bool,
}

pub(super) async fn list(State(shared): State<Shared>) -> Result<Response, Error> {
    let Some(notifications) = shared.handle.notifications().cloned() else {
        return Ok(Json(NotificationStatus::default()).into_response());
    };
    let status = read(&shared.store, move |_| notifications.status()).await?;
    Ok(Json(status).into_response())
}

pub(super) async fn test(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Parameters(TestQuery { event, phase, preview }): Parameters<TestQuery>,
) -> Result<Response, Error> {
    let Some(notifications) = shared.handle.notifications() else { return Err(Error::NoSuchReceiver(name)) };
    let what = (event.unwrap_or(IncidentKind::Degraded), phase.unwrap_or(IncidentPhase::Opened));
    let delivery = if preview { TestDelivery::Preview } else { TestDelivery::Send };
    match notifications.test(&name, what, delivery).await {
        None => Err(Error::NoSuchReceiver(name)),
        Some(message) => {
            let message = message?;
            let answer = TestMessage { title: message.title, body: message.body, sent: !preview };
            Ok(Json(answer).into_response())
        }
    }
}
