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
    routing::get,
};
use http::{StatusCode, header};

use driftless_agent::{Auditor, Handle};
use driftless_clock::Clock;
use driftless_config::Settings;
use driftless_store::Store;

mod access;
mod access_routes;
mod acting;
mod answers;
mod api;
mod cut_off;
mod error;
mod events;
mod fleet;
mod fleet_keys;
mod fleet_requests;
mod guard;
mod guarded_route;
mod headers;
mod images;
mod limits;
mod metrics;
mod notifications;
mod objects;
mod operation;
mod page;
mod parameters;
mod peer;
mod rates;
mod route;
mod routes;
mod serve;
mod shared;
mod socket_user;
mod tls;
mod until;
mod wait;
mod webhooks;
mod workloads;

pub use access::{Access, Token, TokenError};
pub use access_routes::{CreatedToken, TokenBody, WhoAmI};
pub use api::{Accepted, RollbackBody};
pub use error::{ErrorBody, ErrorDetail};
pub use fleet_keys::{CreatedInvite, EnrolledHost, EnrolmentBody, FleetKeys, InviteBody, OpenInvite};
pub use fleet_requests::{FleetRequest, FleetRequestBody};
pub use metrics::metrics_router;
pub use notifications::TestMessage;
pub use routes::openapi_paths;
pub use serve::{Listener, serve};
pub use tls::{ListenerTls, TlsError, is_key_exposed};
pub use until::{InvalidTime, InvalidUntil, parse_time, parse_until};
pub use wait::{Goal, Waited};
pub use webhooks::{WebhookReceiver, webhook_routes};
pub use workloads::ScaleBody;

use access::Authenticator;
use guard::Guard;
use guarded_route::{GuardedRoute, rules};
use operation::Operation;
use shared::Shared;

/// All routes of an agent without webhooks, behind the checks of [`Access`].
pub fn router(handle: Handle, store: Store, access: Access) -> Router {
    let none = WebhookReceiver::new(
        handle.clone(),
        store.clone(),
        &Settings::default(),
        Arc::new(|_| None),
        Clock::System,
    );
    router_with_webhooks(handle, store, access, none)
}

/// All routes except the webhooks' own, which are [`webhook_routes`], because forges have no token.
pub fn router_with_webhooks(handle: Handle, store: Store, access: Access, hooks: WebhookReceiver) -> Router {
    let clock = Clock::System;
    let auditor = Arc::new(Auditor::new(store.clone(), access.audit().clone(), clock));
    let authenticator = Arc::new(Authenticator::new(access, store.clone(), clock));
    let routes = routes::guarded();
    let guard = Guard::new(Arc::clone(&authenticator), Arc::clone(&auditor), handle.clone(), rules(&routes));
    let shared = Shared::new(handle, store, authenticator, auditor, hooks, clock);
    let add = |router: Router<Shared>, route: GuardedRoute| router.route(route.path, route.handler);
    let guarded = routes
        .into_iter()
        .fold(Router::new(), add)
        .fallback(guard::no_such_route)
        .method_not_allowed_fallback(guard::no_such_method)
        .layer(middleware::from_fn_with_state(guard, guard::guard));
    // Probes have no token, so these routes answer only yes or no. The form to log in takes one.
    let open = routes::open()
        .into_iter()
        .map(Operation::into_route)
        .fold(page::open_routes(), add)
        .route("/favicon.ico", get(favicon))
        .method_not_allowed_fallback(guard::no_such_method);
    guarded
        .merge(open)
        .layer(middleware::from_fn(answers::finish))
        .layer(middleware::map_response(headers::harden))
        .with_state(shared)
}

async fn favicon() -> Response {
    (StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "max-age=86400")]).into_response()
}
