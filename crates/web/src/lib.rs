//! The HTTP server of the agent: the JSON API under `/api/v1`, health endpoints, webhooks and the status page.
//! `docs/api.md` describes it.
//!
//! It decides nothing about applications and holds no state of its own: it shows the status that the agent published
//! last, or rows of the store.
//!
//! ```
//! use driftless_model::{Timestamp, Until};
//! use driftless_web::parse_until;
//!
//! assert_eq!(parse_until("next-commit", Timestamp(0)).ok(), Some(Until::NextCommit));
//! ```

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse, Response},
    routing::{delete, get, post, put},
};
use http::{StatusCode, header};

use driftless_agent::Handle;
use driftless_clock::Clock;
use driftless_config::Settings;
use driftless_store::Store;

mod access;
mod access_routes;
mod api;
mod error;
mod events;
mod fleet;
mod guard;
mod headers;
mod images;
mod limits;
mod metrics;
mod notifications;
mod objects;
mod page;
mod peer;
mod rates;
mod route;
mod serve;
mod shared;
mod tls;
mod until;
mod wait;
mod webhooks;
mod workloads;

pub use access::{Access, Token, TokenError};
pub use access_routes::{CreatedToken, TokenBody, WhoAmI};
pub use api::{Accepted, RollbackBody};
pub use error::{ErrorBody, ErrorDetail};
pub use limits::BODY_LIMIT;
pub use metrics::metrics_router;
pub use notifications::TestMessage;
pub use serve::{Listener, serve};
pub use tls::{ListenerTls, TlsError, is_key_exposed};
pub use until::{InvalidUntil, parse_until};
pub use wait::{Goal, Waited};
pub use webhooks::{Receiver, webhook_routes};

use access::{Authenticator, audit::Auditor};
use guard::Guard;
use shared::Shared;

/// All routes of an agent without webhooks, behind the checks of [`Access`].
pub fn router(handle: Handle, store: Store, access: Access) -> Router {
    let none =
        Receiver::new(handle.clone(), store.clone(), &Settings::default(), Arc::new(|_| None), Clock::System);
    router_with_hooks(handle, store, access, none)
}

/// All routes except the webhooks' own, which are [`webhook_routes`], because forges have no token.
pub fn router_with_hooks(handle: Handle, store: Store, access: Access, hooks: Receiver) -> Router {
    let clock = Clock::System;
    let auditor = Arc::new(Auditor::new(store.clone(), access.audit().clone(), clock));
    let authenticator = Arc::new(Authenticator::new(access, store.clone(), clock));
    let guard = Guard::new(Arc::clone(&authenticator), Arc::clone(&auditor), handle.clone());
    let shared = Shared::new(handle, store, authenticator, auditor, hooks, clock);
    let guarded = Router::new()
        .merge(page::routes())
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/applications", get(api::list))
        .route("/api/v1/applications/{name}", get(api::one))
        .route("/api/v1/applications/{name}/wait", get(wait::wait))
        .route("/api/v1/applications/{name}/revisions", get(api::revisions))
        .route("/api/v1/applications/{name}/plan", get(api::plan))
        .route("/api/v1/applications/{name}/drift", get(api::drift))
        .route("/api/v1/applications/{name}/settings", get(api::settings))
        .route("/api/v1/applications/{name}/sync", post(api::sync))
        .route("/api/v1/applications/{name}/accept-rewrite", post(api::accept_rewrite))
        .route("/api/v1/applications/{name}/rollback", post(api::rollback))
        .route("/api/v1/applications/{name}/resume", post(api::resume))
        .route("/api/v1/applications/{name}/suspend", post(api::suspend))
        .route("/api/v1/applications/{name}/prune", post(api::prune))
        .route("/api/v1/applications/{name}/retry", post(api::retry))
        .route("/api/v1/applications/{name}/heal", post(api::heal))
        .route("/api/v1/applications/{name}/remove", post(api::remove))
        .route("/api/v1/applications/{name}/forget", post(api::forget))
        .route("/api/v1/applications/{name}/adopt", post(api::adopt))
        .route("/api/v1/applications/{name}/workloads/{workload}/restart", post(workloads::restart))
        .route("/api/v1/applications/{name}/workloads/{workload}/jobs/{job}", post(workloads::create_job))
        .route("/api/v1/applications/{name}/workloads/{workload}/pause", post(workloads::pause))
        .route("/api/v1/applications/{name}/workloads/{workload}/resume", post(workloads::resume))
        .route("/api/v1/applications/{name}/instances/{instance}/delete", post(workloads::delete))
        .route("/api/v1/applications/{name}/instances/{instance}/logs", get(workloads::logs))
        .route("/api/v1/recover", post(api::recover))
        .route("/api/v1/images", get(images::list))
        .route("/api/v1/images/clean-up", post(images::clean_up))
        .route("/api/v1/agent", get(api::agent))
        .route("/api/v1/whoami", get(access_routes::whoami))
        .route("/api/v1/tokens", get(access_routes::list_tokens).post(access_routes::create_token))
        .route("/api/v1/tokens/{token}", delete(access_routes::revoke_token))
        .route("/api/v1/audit", get(access_routes::audit))
        .route("/api/v1/fleet/hosts", get(fleet::list))
        .route("/api/v1/fleet/hosts/{name}", put(fleet::report).delete(fleet::remove))
        .route("/api/v1/objects", get(objects::objects))
        .route("/api/v1/events", get(events::events))
        .route("/api/v1/repositories", get(api::repositories))
        .route("/api/v1/webhooks", get(api::webhooks))
        .route("/api/v1/notifications", get(notifications::list))
        .route("/api/v1/notifications/{name}/test", post(notifications::test))
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(middleware::from_fn_with_state(guard, guard::guard));
    // Probes have no token, so these routes answer only yes or no. The form to log in takes one.
    let open = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(api::readyz))
        .merge(page::open_routes())
        .route("/favicon.ico", get(favicon))
        .method_not_allowed_fallback(error::no_such_method);
    guarded.merge(open).layer(middleware::map_response(headers::harden)).with_state(shared)
}

/// Answers while the process and its scheduler run.
async fn healthz() -> &'static str {
    "ok\n"
}

async fn favicon() -> Response {
    (StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "max-age=86400")]).into_response()
}
