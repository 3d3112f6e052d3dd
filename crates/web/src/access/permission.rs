//! The permission that each route asks for, and the one that a request needs.

use std::collections::BTreeMap;

use http::Method;

use crate::route::path_names;
use driftless_model::AppName;

/// The permission that a route asks for. `Act`, `Fetch`, `Report` and `Key` are about the first name in its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Read,
    /// The output of a container, which may contain anything that a program prints.
    Logs,
    /// To act on an application.
    Act,
    /// To have a repository fetched.
    Fetch,
    /// To report the state of a host.
    Report,
    /// To revoke the key of a host, as the host itself may.
    Key,
    /// To read what hosts may know about each other.
    Peers,
    Admin,
}

/// The permission that a request needs: that of its route, with the name in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    Read,
    Logs,
    Act(AppName),
    Fetch(String),
    Report(String),
    Key(String),
    Peers,
    Admin,
}

/// The access rule of one method of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRule {
    pub(crate) needs: Needs,
    /// Its action in the audit. Empty: it changes nothing.
    pub(crate) audit_word: &'static str,
}

/// The rules of all routes behind the guard, by path and by method in lower case.
#[derive(Clone, Debug)]
pub(crate) struct RouteRules(pub(crate) BTreeMap<(&'static str, &'static str), RouteRule>);

impl RouteRules {
    /// The rule of a method of a route. A route that the table does not have needs `admin`, so that a forgotten one is closed.
    /// The handlers of a route come from the table too, so a method that it does not have is answered with 405.
    pub(crate) fn rule(&self, method: &Method, route: &str) -> RouteRule {
        // The handler of GET answers HEAD as well.
        let method = if *method == Method::HEAD { Method::GET } else { method.clone() };
        let method = method.as_str().to_ascii_lowercase();
        let has_route = self.0.keys().any(|(known, _)| *known == route);
        // Nothing is there, so the answer is that there is no such route or method.
        let needs = if route.is_empty() || has_route { Needs::Read } else { Needs::Admin };
        let unknown = RouteRule { needs, audit_word: "unknown request" };
        self.0.get(&(route, method.as_str())).copied().unwrap_or(unknown)
    }
}

impl RouteRule {
    /// The permission that a request for this path needs, which has matched this route.
    pub(crate) fn needed(self, route: &str, path: &str) -> Needed {
        let name = path_names(path, route).into_iter().next().map(|(_, name)| name);
        match (self.needs, name) {
            (Needs::Read, _) => Needed::Read,
            (Needs::Logs, _) => Needed::Logs,
            (Needs::Act, Some(app)) => Needed::Act(AppName(app)),
            (Needs::Fetch, Some(repository)) => Needed::Fetch(repository),
            (Needs::Report, Some(host)) => Needed::Report(host),
            (Needs::Key, Some(host)) => Needed::Key(host),
            (Needs::Peers, _) => Needed::Peers,
            (Needs::Admin, _) | (Needs::Act | Needs::Fetch | Needs::Report | Needs::Key, None) => {
                Needed::Admin
            }
        }
    }
}
