//! Handles one delivery, from its path to its answer.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Extension, Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    keyring::ActiveWebhook,
    receiver::{BODY_LIMIT, BODY_WITHIN, WebhookReceiver},
};
use crate::{access::audit::entry_of, acting::ActingRequests, error::Error, peer::Peer};
use driftless_forge::webhook;
use driftless_forge::{webhook::DeliveryDecision, webhook::Moved};
use driftless_model::{Actor, ActorKind, AuditEntry, Channel, Delivery, DeliveryResult};

/// In bytes: the largest payload from an address that sent many without a valid signature. A push is smaller.
const SMALL_BODY: usize = 256 * 1024;

/// Why a delivery is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is no webhook at this path")]
    NoSuchHook,
    #[error("too many deliveries: retry later")]
    TooMany { seconds: u64 },
    #[error("the payload has more than {} MiB", BODY_LIMIT / 1024 / 1024)]
    TooLarge,
    #[error("the payload did not arrive in time")]
    TooSlow,
    #[error("the connection closed before the end of the payload")]
    Truncated,
    #[error("the payload is compressed: send it uncompressed")]
    Encoded,
    #[error("{0}")]
    Unauthentic(#[from] webhook::Refusal),
    #[error("{0}")]
    Malformed(#[from] webhook::Malformed),
    #[error("too many deliveries wait to be stored: retry later")]
    Busy,
    #[error("the delivery could not be stored: the agent's log has the cause")]
    NotKept,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchHook => StatusCode::NOT_FOUND,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Truncated | Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unauthentic(_) => StatusCode::UNAUTHORIZED,
            Self::Busy | Self::NotKept => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooMany { seconds } => Some(*seconds),
            Self::Busy | Self::NotKept => Some(5),
            _ => None,
        }
    }
}

pub(super) async fn receive(
    State(receiver): State<WebhookReceiver>,
    peer: Option<Extension<Peer>>,
    request: Request,
) -> Response {
    let peer = peer.and_then(|Extension(peer)| peer.tcp());
    let from = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.client.ip());
    let id = request.uri().path().trim_start_matches("/hook/").to_owned();
    let Some(webhook) = find(&receiver, &id).await else { return refuse(&Refusal::NoSuchHook) };
    let repository = webhook.hook.repository.name.clone();
    match accept(&receiver, &webhook, from, request).await {
        Ok(delivery) => {
            let response = answer(&delivery);
            receiver.note(&repository, delivery);
            response
        }
        Err(refusal) => {
            let status = refusal.status().as_u16();
            let delivery = Delivery {
                id: String::new(),
                at: receiver.0.clock.now(),
                provider: webhook.hook.provider,
                event: String::new(),
                reference: None,
                commit: None,
                maybe_other_branch: false,
                from: from.to_string(),
                result: DeliveryResult::Refused,
                message: format!("{status}: {refusal}"),
                outcome: None,
            };
            if receiver.note_refused(&repository, delivery) {
                tracing::warn!(repository, %from, status, reason = %refusal, "webhook delivery refused");
            }
            refuse(&refusal)
        }
    }
}

async fn find(receiver: &WebhookReceiver, id: &str) -> Option<Arc<ActiveWebhook>> {
    if receiver.0.keyring.is_stale() {
        let receiver = receiver.clone();
        // It reads a few small files; if it fails, the previous secrets stay in use.
        let _ = tokio::task::spawn_blocking(move || receiver.0.keyring.refresh()).await;
    }
    receiver.0.keyring.held().find(id)
}

/// Verifies, reads and stores a delivery.
async fn accept(
    receiver: &WebhookReceiver,
    webhook: &ActiveWebhook,
    from: IpAddr,
    request: Request,
) -> Result<Delivery, Refusal> {
    let rates = &receiver.0.rates;
    let (parts, body) = request.into_parts();
    let announced = length(&parts.headers)?;
    // Senders of many deliveries without a valid signature may send small ones only. They are not refused, because a
    // reverse proxy gives the deliveries of the forge the same address.
    if let Err(seconds) = rates.check_failures(from)
        && announced.is_none_or(|length| length > SMALL_BODY)
    {
        return Err(Refusal::TooMany { seconds });
    }
    let _room = reserve(receiver, announced)?;
    let body = tokio::time::timeout(BODY_WITHIN, read(body, announced)).await;
    let body = body.map_err(|_| Refusal::TooSlow)??;
    let now = receiver.0.clock.now();
    let provider = webhook::verify(webhook.hook.provider, &webhook.keys, &parts.headers, &body, now);
    let provider = provider.inspect_err(|_| rates.note_failure(from))?;
    // Only a signed delivery counts for the limit of the webhook.
    rates.take(&webhook.hook.repository.name).map_err(|seconds| Refusal::TooMany { seconds })?;
    let (notice, id) = webhook::read(provider, &parts.headers, &body)?;
    let id = id.unwrap_or_else(|| format!("{}-{}", now.0, next_number()));
    let delivery = |result, moved: Option<Moved>, message: String| Delivery {
        id: id.clone(),
        at: now,
        provider,
        event: notice.event.chars().take(100).collect(),
        reference: moved.as_ref().map(|it| it.reference.clone()),
        commit: moved.and_then(|it| it.commit),
        maybe_other_branch: false,
        from: from.to_string(),
        result,
        message,
        outcome: None,
    };
    if notice.kind == webhook::EventKind::Ping {
        return Ok(delivery(DeliveryResult::Pong, None, String::new()));
    }
    match webhook::judge(&notice, &webhook.hook.repository) {
        DeliveryDecision::Ignore { moved, why } => Ok(delivery(DeliveryResult::Ignored, moved, why)),
        DeliveryDecision::AskRegistries { images } => {
            for image in &images {
                receiver.0.handle.ask_registry(image);
            }
            let repository = webhook.hook.repository.name.clone();
            let message = format!("the registry is asked about {}", images.join(", "));
            tracing::info!(repository, provider = %provider, ?images, "webhook delivery about images accepted");
            let entry = entry_of(
                Actor::new(ActorKind::Webhook, repository),
                Channel::Webhook,
                &from.to_string(),
                "ask registry",
            );
            receiver.0.auditor.store(AuditEntry { detail: message.clone(), ..entry }).await;
            Ok(delivery(DeliveryResult::Accepted, None, message))
        }
        DeliveryDecision::Fetch { moved, maybe_other_branch, remark } => {
            let delivery = delivery(DeliveryResult::Accepted, moved, remark);
            let delivery = Delivery { maybe_other_branch, ..delivery };
            let repository = webhook.hook.repository.name.clone();
            // It is in the audit also if the sender disconnects.
            let acting = ActingRequests::of(&parts.extensions);
            let stored = acting.spawn(store(receiver.clone(), repository, delivery));
            stored.await.unwrap_or(Err(Refusal::NotKept))
        }
    }
}

/// Stores a delivery and triggers a fetch. The fetch is triggered even if storing failed; it is then lost if the agent
/// ends.
async fn store(
    receiver: WebhookReceiver,
    repository: String,
    delivery: Delivery,
) -> Result<Delivery, Refusal> {
    let place = receiver.0.queue.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let (inner, name, kept) = (Arc::clone(&receiver.0), repository.clone(), delivery.clone());
    let written = tokio::task::spawn_blocking(move || {
        let _place = place;
        let written = inner.store.accept_delivery(&name, &kept);
        inner.handle.note_delivery(&name);
        written
    })
    .await;
    match written {
        Ok(Ok(is_known)) => {
            tracing::info!(
                repository,
                provider = %delivery.provider,
                delivery = delivery.id,
                reference = delivery.reference,
                "webhook delivery accepted"
            );
            let actor = Actor::new(ActorKind::Webhook, repository);
            let detail = format!("{} delivery {}", delivery.event, delivery.id);
            let entry = entry_of(actor, Channel::Webhook, &delivery.from, "fetch");
            receiver.0.auditor.store(AuditEntry { detail, ..entry }).await;
            let result = if is_known { DeliveryResult::Duplicate } else { DeliveryResult::Accepted };
            Ok(Delivery { result, ..delivery })
        }
        Ok(Err(error)) => {
            tracing::error!(
                repository,
                error = &error as &dyn std::error::Error,
                "could not store a webhook delivery"
            );
            Err(Refusal::NotKept)
        }
        Err(_) => Err(Refusal::NotKept),
    }
}

/// The announced length of the payload, if any.
fn length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|it| it != "identity") {
        return Err(Refusal::Encoded);
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    match length.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(length)) if length <= BODY_LIMIT => Ok(Some(length)),
        Some(_) => Err(Refusal::TooLarge),
    }
}

/// Reserves memory for a payload.
fn reserve(receiver: &WebhookReceiver, announced: Option<usize>) -> Result<OwnedSemaphorePermit, Refusal> {
    let kibibytes = announced.unwrap_or(BODY_LIMIT).div_ceil(1024);
    let permits = u32::try_from(kibibytes).unwrap_or(u32::MAX);
    receiver.0.bodies.clone().try_acquire_many_owned(permits).map_err(|_| Refusal::Busy)
}

/// Reads the payload up to the limit.
async fn read(mut body: Body, announced: Option<usize>) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::with_capacity(announced.unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::Truncated)?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > BODY_LIMIT {
            return Err(Refusal::TooLarge);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn answer(delivery: &Delivery) -> Response {
    let status = match delivery.result {
        DeliveryResult::Accepted => StatusCode::ACCEPTED,
        DeliveryResult::Duplicate
        | DeliveryResult::Ignored
        | DeliveryResult::Pong
        | DeliveryResult::Refused => StatusCode::OK,
    };
    let mut body = json!({ "result": delivery.result, "id": delivery.id });
    if !delivery.message.is_empty() {
        body["message"] = json!(delivery.message);
    }
    (status, Json(body)).into_response()
}

fn refuse(refusal: &Refusal) -> Response {
    let mut response = Error::Hook(refusal.status(), refusal.to_string()).into_response();
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A number that is unique in this run.
fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}
