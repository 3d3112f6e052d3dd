//! `GET /metrics`: what the agent counts and publishes, in the text format of Prometheus.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use http::header;
use tokio::sync::Semaphore;

use super::{
    access,
    error::{self, Error},
    headers,
    shared::{Shared, read},
};
use driftless_agent::{Handle, fleet_hosts};
use driftless_clock::Clock;
use driftless_fleet::{Freshness, HostView};
use driftless_git::Cause;
use driftless_metrics::{FleetHost, Queue, Snapshot};
use driftless_store::{QueueLength, Store};

/// The content type of the text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers that are made at the same time at the listener of metrics alone.
const MOST_ANSWERS: usize = 4;

/// The route of metrics for a listener of its own, which needs no token. On loopback, only host names of loopback are
/// answered, so that no web page can read it by a name of its own.
pub fn metrics_router(handle: Handle, store: Store, address: SocketAddr) -> Router {
    let answers = Arc::new(Semaphore::new(MOST_ANSWERS));
    let guard = move |request: Request, next: Next| {
        let answers = Arc::clone(&answers);
        async move {
            if address.ip().is_loopback() && !access::names_loopback(request.headers()) {
                return Error::Forbidden("only requests to localhost are answered".to_owned())
                    .into_response();
            }
            let Ok(_answer) = answers.try_acquire() else {
                return Error::Busy("the agent makes too many answers: try again".to_owned()).into_response();
            };
            next.run(request).await
        }
    };
    Router::new()
        .route("/metrics", get(own_listener))
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(middleware::from_fn(guard))
        .layer(middleware::map_response(headers::harden))
        .with_state((handle, store))
}

async fn own_listener(State((handle, store)): State<(Handle, Store)>) -> Response {
    respond(&handle, &store).await
}

/// The route among those of the API.
pub(super) async fn metrics(State(shared): State<Shared>) -> Response {
    respond(&shared.handle, &shared.store).await
}

/// The repositories of a host that is heard, with the number of commits that it is behind, where that is known.
fn commits_behind(host: &HostView) -> Vec<(String, u64)> {
    let report = host.report.iter().filter(|_| host.freshness == Some(Freshness::Fresh));
    let repositories = report.flat_map(|report| &report.repositories).filter(|it| it.commit.is_some());
    let counted = repositories.filter_map(|repository| {
        let behind = host.behind.iter().find(|behind| behind.repository == repository.name);
        Some((repository.name.clone(), behind.map_or(Some(0), |behind| behind.commits)?))
    });
    counted.collect()
}

async fn respond(handle: &Handle, store: &Store) -> Response {
    // Without the database the other metrics are needed all the more.
    let queues = read(store, Store::queues).await.unwrap_or_default();
    let notifications = handle.notifications().cloned();
    let oldest_due =
        read(store, move |_| notifications.map_or(Ok(None), |notifications| notifications.oldest_due()));
    let oldest_due = oldest_due.await.unwrap_or_default();
    let queue = |queue: QueueLength| {
        let QueueLength { name, length, oldest } = queue;
        Queue { name, length, oldest: oldest.or(oldest_due.filter(|_| name == "notifications")) }
    };
    let own = handle.clone();
    let hosts = read(store, move |store| fleet_hosts(&own, store, Clock::System.now()));
    let hosts = hosts.await.unwrap_or_default().into_iter().map(|host| FleetHost {
        is_up: host.freshness == Some(Freshness::Fresh),
        behind: commits_behind(&host),
        name: host.name,
        last_heard: host.last_heard,
    });
    let proxies = handle.proxy_counters().await;
    let readiness = handle.readiness();
    let free_bytes = read(store, |store| Ok(store.free_bytes())).await.unwrap_or_default();
    let repositories = handle.repositories();
    let of_disk = [Cause::DiskFull, Cause::DiskFailed].map(Cause::as_str);
    let has_disk = !repositories.iter().any(|repository| of_disk.contains(&repository.reason.as_str()));
    let snapshot = Snapshot {
        applications: handle.applications(),
        repositories,
        is_ready: readiness.is_ready(),
        has_engine: readiness.docker,
        is_writable: has_disk && store.last_write_error().is_none(),
        free_bytes,
        started: handle.started(),
        queues: queues.into_iter().map(queue).collect(),
        expiries: handle.expiries().list(),
        hosts: hosts.collect(),
        proxies,
    };
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], handle.metrics().render(&snapshot)).into_response()
}
