//! Receives webhook deliveries.
//!
//! A request is checked in order of cost: method, path, rate limits, size, signature over the raw bytes, payload. An
//! accepted delivery is stored before it is answered, and the answer waits for nothing else.
//!
//! A delivery is only a hint: the agent fetches the configured repository and nothing else.

use axum::{Router, middleware, routing::post};

use super::headers;

mod keyring;
mod receive;
mod receiver;

pub use receiver::WebhookReceiver;

/// `POST /hook/{id}`, served with the API or at an address of its own.
pub fn webhook_routes(receiver: &WebhookReceiver) -> Router {
    Router::new()
        .route("/hook/{id}", post(receive::receive))
        .method_not_allowed_fallback(super::error::no_delivery)
        .layer(middleware::map_response(headers::harden))
        .with_state(receiver.clone())
}
