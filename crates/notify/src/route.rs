//! Routes: which receivers get an incident.

use std::{collections::BTreeSet, fmt::Write as _};

use driftless_config::{NotificationRoute, Notifications};
use driftless_model::{AppName, Incident, Urgency, matches_star};

/// The names of the receivers of an incident. Every route that matches counts. Without a route, all receivers get warnings
/// and critical incidents.
pub fn receivers(incident: &Incident, settings: &Notifications) -> BTreeSet<String> {
    if settings.routes.is_empty() {
        let is_enough = incident.urgency >= Urgency::Warning;
        let names = settings.receivers.iter().map(|receiver| receiver.name.clone());
        return names.filter(|_| is_enough).collect();
    }
    let matching = settings.routes.iter().filter(|route| is_match(route, incident));
    matching.flat_map(|route| route.receivers.iter().cloned()).collect()
}

fn is_match(route: &NotificationRoute, incident: &Incident) -> bool {
    let NotificationRoute { receivers: _, applications, repositories, severity, events } = route;
    let suits = |patterns: &[String], name: Option<&str>| {
        patterns.is_empty()
            || name.is_some_and(|name| patterns.iter().any(|pattern| matches_star(pattern, name)))
    };
    incident.urgency >= *severity
        && (events.is_empty() || events.contains(&incident.kind))
        && suits(applications, incident.app.as_ref().map(AppName::as_str))
        && suits(repositories, incident.repository.as_deref())
}

/// One sentence for each route that leads to a receiver.
pub fn describe_routes(receiver: &str, settings: &Notifications) -> Vec<String> {
    if settings.routes.is_empty() {
        return vec!["all incidents from warning on".to_owned()];
    }
    let leads = |route: &&NotificationRoute| route.receivers.iter().any(|name| name == receiver);
    settings.routes.iter().filter(leads).map(describe).collect()
}

fn describe(route: &NotificationRoute) -> String {
    let NotificationRoute { receivers: _, applications, repositories, severity, events } = route;
    let what = if events.is_empty() {
        "all incidents".to_owned()
    } else {
        events.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("{what} from {severity} on");
    for (word, names) in [("applications", applications), ("repositories", repositories)] {
        if !names.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, ", {word} {}", names.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;
    use driftless_model::{IncidentKind, Timestamp};

    fn route(change: impl Fn(&mut NotificationRoute)) -> Notifications {
        let mut route =
            NotificationRoute { receivers: vec!["phone".to_owned()], ..NotificationRoute::default() };
        change(&mut route);
        Notifications { routes: vec![route], ..Notifications::default() }
    }

    fn gets(kind: IncidentKind, settings: &Notifications) -> bool {
        receivers(&sample(kind, Timestamp(0)), settings).contains("phone")
    }

    #[test]
    fn routes_match_by_application_repository_severity_and_event() {
        let all = route(|_| {});
        assert!(gets(IncidentKind::Degraded, &all) && gets(IncidentKind::RolledBack, &all));
        let critical = route(|route| route.severity = Urgency::Critical);
        assert!(gets(IncidentKind::Degraded, &critical) && !gets(IncidentKind::PruneHeld, &critical));
        let shops = route(|route| route.applications = vec!["sh*".to_owned()]);
        assert!(gets(IncidentKind::Degraded, &shops) && !gets(IncidentKind::GitUnreachable, &shops));
        let other = route(|route| route.applications = vec!["wiki".to_owned()]);
        assert!(!gets(IncidentKind::Degraded, &other));
        let infra = route(|route| route.repositories = vec!["infra".to_owned()]);
        assert!(gets(IncidentKind::GitUnreachable, &infra) && gets(IncidentKind::Degraded, &infra));
        assert!(!gets(IncidentKind::EngineUnreachable, &infra));
        let events = route(|route| route.events = vec![IncidentKind::SyncFailed]);
        assert!(gets(IncidentKind::SyncFailed, &events) && !gets(IncidentKind::Degraded, &events));
    }
}
