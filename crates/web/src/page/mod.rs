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
mod fleet_host;
mod fleet_request;
mod forge_link;
mod history;
mod layout;
mod listed;
mod live;
pub(super) mod login;
mod logs;
mod overview;
mod parameters;
mod provider;
mod repository;
mod text;
mod webhooks;
mod workloads;

use axum::{Router, routing::get};

use super::shared::Shared;

/// The pages, behind the guard.
pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(overview::show))
        .route("/applications/{name}", get(application::show))
        .route("/applications/{name}/plan", get(compare::plan))
        .route("/applications/{name}/diff", get(compare::diff))
        .route("/applications/{name}/revisions/{number}", get(history::revision))
        .route("/applications/{name}/logs/{instance}", get(logs::show))
        .route("/applications/{name}/{action}", get(actions::ask).post(actions::act))
        .route("/repositories/{name}", get(repository::show))
        .route("/audit", get(history::audit))
        .route("/fleet", get(fleet::show))
        .route("/fleet/{name}", get(fleet_host::show))
        .route("/fleet/{name}/{kind}", get(fleet_request::ask).post(fleet_request::act))
        .route("/logout", axum::routing::post(login::log_out))
}

/// The form to log in, style and script, which need no credentials.
pub(super) fn open_routes() -> Router<Shared> {
    Router::new()
        .route("/login", get(login::show).post(login::log_in))
        .route("/auth/login", get(provider::begin))
        .route("/auth/callback", get(provider::finish))
        .route("/assets/{name}", get(assets::show))
}
