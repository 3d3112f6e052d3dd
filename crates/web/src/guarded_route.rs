//! One method of a route behind the guard: its handler, the permission that it asks for, and its word in the audit.

use axum::routing::MethodRouter;

use crate::{
    access::{Needs, RouteRule, RouteRules},
    shared::Shared,
};

/// One method of a route behind the guard.
pub(crate) struct GuardedRoute {
    /// In lower case.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Shared>,
    pub(crate) rule: RouteRule,
}

impl GuardedRoute {
    /// A route that changes nothing.
    pub(crate) fn new(
        method: &'static str,
        path: &'static str,
        handler: MethodRouter<Shared>,
        needs: Needs,
    ) -> Self {
        Self { method, path, handler, rule: RouteRule { needs, audit_word: "" } }
    }

    /// It changes something, which the audit calls by this word.
    pub(crate) fn audited(mut self, word: &'static str) -> Self {
        self.rule.audit_word = word;
        self
    }
}

/// The rules of these routes.
pub(crate) fn rules(routes: &[GuardedRoute]) -> RouteRules {
    RouteRules(routes.iter().map(|route| ((route.path, route.method), route.rule)).collect())
}
