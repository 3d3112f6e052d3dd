//! The page: what Git says, what runs, why they differ, and the actions that the API has.
//!
//! The server renders every page whole, so it can be read without JavaScript. With it, the parts that change are replaced
//! while the page is open.

mod actions;
mod application;
mod assets;
mod badge;
mod compare;
mod crashes;
pub(super) mod failure;
mod fleet;
mod fleet_cancel;
mod fleet_host;
mod fleet_invite;
mod fleet_request;
mod forge_link;
mod history;
mod layout;
mod listed;
mod live;
pub(super) mod login;
mod logs;
mod overview;
mod page_action;
mod parameters;
mod provider;
mod repository;
mod text;
mod webhooks;
mod workloads;

use axum::{
    Router,
    routing::{get, post},
};

use super::{
    access::{Needs, audit::ACTION_IN_PATH},
    guarded_route::GuardedRoute,
    shared::Shared,
};

/// The pages, behind the guard.
pub(super) fn routes() -> Vec<GuardedRoute> {
    let read = |path, handler| GuardedRoute::new("get", path, handler, Needs::Read);
    vec![
        read("/", get(overview::show)),
        read("/applications/{name}", get(application::show)),
        read("/applications/{name}/plan", get(compare::plan)),
        read("/applications/{name}/diff", get(compare::diff)),
        read("/applications/{name}/revisions/{number}", get(history::revision)),
        GuardedRoute::new("get", "/applications/{name}/logs/{instance}", get(logs::show), Needs::Logs),
        read("/applications/{name}/{action}", get(actions::ask)),
        GuardedRoute::new("post", "/applications/{name}/{action}", post(actions::act), Needs::Act)
            .audited(ACTION_IN_PATH),
        read("/repositories/{name}", get(repository::show)),
        GuardedRoute::new("get", "/audit", get(history::audit), Needs::Admin),
        read("/fleet", get(fleet::show)),
        read("/fleet/{name}", get(fleet_host::show)),
        read("/fleet/{name}/{kind}", get(fleet_request::ask)),
        GuardedRoute::new("post", "/fleet/{name}/{kind}", post(fleet_request::act), Needs::Admin)
            .audited("request host"),
        GuardedRoute::new("get", fleet_cancel::ROUTE, get(fleet_cancel::ask), Needs::Admin),
        GuardedRoute::new("post", fleet_cancel::ROUTE, post(fleet_cancel::act), Needs::Admin)
            .audited("cancel request"),
        GuardedRoute::new("get", fleet_invite::ROUTE, get(fleet_invite::ask), Needs::Admin),
        GuardedRoute::new("post", fleet_invite::ROUTE, post(fleet_invite::act), Needs::Admin)
            .audited("withdraw invite"),
        GuardedRoute::new("post", login::LOG_OUT, post(login::log_out), Needs::Read).audited("logout"),
    ]
}

/// The form to log in, style and script, which need no credentials.
pub(super) fn open_routes() -> Router<Shared> {
    Router::new()
        .route("/login", get(login::show).post(login::log_in))
        .route("/auth/login", get(provider::begin))
        .route("/auth/callback", get(provider::finish))
        .route("/assets/{name}", get(assets::show))
}
