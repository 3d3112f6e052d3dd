//! The scope that the route of a request asks for.

use axum::extract::{MatchedPath, Request};
use http::Method;

use crate::route::path_names;
use driftless_model::AppName;

/// The permission that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    Read,
    /// The output of a container, which may contain anything that a program prints.
    Logs,
    /// To act on this application.
    Act(AppName),
    /// To have this repository fetched.
    Fetch(String),
    /// To report the state of this host.
    Report(String),
    /// To revoke the key of this host, as the host itself may.
    Key(String),
    /// To read what hosts may know about each other.
    Peers,
    Admin,
}

/// The permission that a request needs. A route that is not known here and changes something needs `admin`.
pub(crate) fn needed(request: &Request) -> Needed {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    needed_by(request.method(), route, request.uri().path())
}

/// The permission that a request for this path needs, which has matched this route.
pub(crate) fn needed_by(method: &Method, route: &str, path: &str) -> Needed {
    let acts = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match route {
        "/logout" => Needed::Read,
        "/api/v1/fleet/hosts/{name}" if *method == Method::PUT => {
            match path_names(path, route).into_iter().next() {
                Some((_, host)) => Needed::Report(host),
                None => Needed::Admin,
            }
        }
        "/api/v1/fleet/keys/{name}" => match path_names(path, route).into_iter().next() {
            Some((_, host)) => Needed::Key(host),
            None => Needed::Admin,
        },
        "/api/v1/fleet/peers" => Needed::Peers,
        "/api/v1/repositories/{name}/fetch" => match path_names(path, route).into_iter().next() {
            Some((_, repository)) => Needed::Fetch(repository),
            None => Needed::Admin,
        },
        "/api/v1/audit" | "/api/v1/tokens" | "/api/v1/tokens/{token}" | "/audit" => Needed::Admin,
        _ if route.ends_with("/logs") || route.contains("/logs/") => Needed::Logs,
        _ if !acts => Needed::Read,
        _ if route.contains("/applications/{name}/") => match path_names(path, route).first() {
            Some((_, app)) => Needed::Act(AppName(app.clone())),
            None => Needed::Admin,
        },
        // Nothing is there, so the answer is that there is no such route.
        "" => Needed::Read,
        _ => Needed::Admin,
    }
}
