//! The message of one or several notifications: title and text, from the templates of the receiver.

use std::{cmp::Reverse, time::Duration};

use driftless_config::NotificationReceiver;
use driftless_model::{AppName, Incident, IncidentPhase, Notification, Timestamp, Urgency};
use minijinja::{Environment, UndefinedBehavior, context};

use crate::{error::Error, sample::sample, sender_host::SenderHost};

/// The title if the receiver has no template of its own.
const TITLE: &str = "[{{ host }}] {{ headline }}";

/// The text if the receiver has no template of its own.
const BODY: &str = "\
{{ message }}
{% if phase == 'recovered' %}It lasted {{ duration }}, from {{ since }}.\
{% else %}Since {{ since }} ({{ duration }}).
To do: {{ advice }}\
{% endif %}{% if link %}
{{ link }}{% endif %}";

/// The instructions that a template may take, so that a loop without an end is an error.
const FUEL: u64 = 50_000;

/// The most notifications that a message names.
const MOST_LINES: usize = 20;

/// A message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One line.
    pub title: String,
    /// Several lines.
    pub body: String,
    /// The page of the application or of the agent.
    pub link: Option<String>,
    /// The highest urgency of what goes on; that of a recovery is [`Urgency::Info`].
    pub urgency: Urgency,
    /// Everything that it reports is over.
    pub is_recovery: bool,
}

/// The message of a batch.
pub(crate) fn message(
    batch: &[Notification],
    receiver: &NotificationReceiver,
    host: &SenderHost,
    now: Timestamp,
) -> Result<Message, Error> {
    let urgency = batch.iter().filter_map(ongoing_urgency).max().unwrap_or_default();
    let is_recovery = batch.iter().all(|notification| ongoing_urgency(notification).is_none());
    let (title, body, link) = match batch {
        [one] => {
            let title = render("title", receiver.title.as_deref().unwrap_or(TITLE), one, host, now)?;
            let body = render("body", receiver.body.as_deref().unwrap_or(BODY), one, host, now)?;
            (title, body, link(&one.incident, host))
        }
        several => (digest_title(several, host), digest_body(several, host, now), host.url.clone()),
    };
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Message { title, body: body.trim().to_owned(), link, urgency, is_recovery })
}

/// Checks the templates of a receiver with an incident of each kind.
pub(crate) fn check(receiver: &NotificationReceiver, host: &SenderHost) -> Result<(), Error> {
    let now = Timestamp(1_767_225_600_000);
    for (_, kind) in driftless_model::IncidentKind::ALL {
        for phase in [IncidentPhase::Opened, IncidentPhase::Updated, IncidentPhase::Recovered] {
            let incident = sample(kind, now);
            let number = 0;
            let receiver_name = receiver.name.clone();
            let one = Notification { number, receiver: receiver_name, phase, incident, at: now, sent: None };
            message(&[one], receiver, host, now)?;
        }
    }
    Ok(())
}

fn render(
    part: &'static str,
    template: &str,
    notification: &Notification,
    host: &SenderHost,
    now: Timestamp,
) -> Result<String, Error> {
    let Notification { incident, phase, .. } = notification;
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let values = context! {
        host => host.name.as_str(),
        app => incident.app.as_ref().map(AppName::as_str).unwrap_or_default(),
        repository => incident.repository.clone().unwrap_or_default(),
        event => incident.kind.name(),
        severity => incident.urgency.name(),
        phase => phase_name(*phase),
        number => incident.number,
        headline => incident.headline(*phase),
        message => incident.message.as_str(),
        advice => advice(notification),
        since => incident.since.to_the_minute(),
        duration => duration(end(notification, now).since(incident.since)),
        link => link(incident, host).unwrap_or_default(),
    };
    let fail = |error: minijinja::Error| {
        let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
        Error::Template { part, reason: format!("{line}{error}") }
    };
    environment.render_str(template, values).map_err(fail)
}

/// The advice about an incident. None once it is over.
pub(crate) fn advice(notification: &Notification) -> &str {
    if notification.phase == IncidentPhase::Recovered { "" } else { &notification.incident.advice }
}

/// The urgency of an incident that goes on. `None`: it is over.
fn ongoing_urgency(notification: &Notification) -> Option<Urgency> {
    let is_over = notification.phase == IncidentPhase::Recovered;
    (!is_over).then_some(notification.incident.urgency)
}

fn digest_title(batch: &[Notification], host: &SenderHost) -> String {
    let counted = |urgency: Option<Urgency>, name: &str| {
        let count = batch.iter().filter(|notification| ongoing_urgency(notification) == urgency).count();
        (count > 0).then(|| format!("{count} {name}"))
    };
    let ongoing = Urgency::ALL.into_iter().rev().map(|(name, urgency)| counted(Some(urgency), name));
    let counts: Vec<String> = ongoing.chain([counted(None, "over")]).flatten().collect();
    format!("[{}] {} notifications: {}", host.name, batch.len(), counts.join(", "))
}

/// One line for each incident, the most urgent first, and the link.
fn digest_body(batch: &[Notification], host: &SenderHost, now: Timestamp) -> String {
    let line = |notification: &Notification| {
        let Notification { incident, phase, .. } = notification;
        let headline = incident.headline(*phase);
        let lasted = duration(end(notification, now).since(incident.since));
        match phase {
            IncidentPhase::Recovered => format!("- {headline}, after {lasted}"),
            IncidentPhase::Opened | IncidentPhase::Updated => {
                format!(
                    "- {}: {headline} since {}: {}",
                    incident.urgency,
                    incident.since.to_the_minute(),
                    incident.message
                )
            }
        }
    };
    let mut ordered: Vec<&Notification> = batch.iter().collect();
    ordered.sort_by_key(|notification| Reverse(ongoing_urgency(notification)));
    let mut lines: Vec<String> = ordered.into_iter().take(MOST_LINES).map(line).collect();
    if let Some(more) = batch.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        lines.push(format!("- and {more} more: `driftless notify list`"));
    }
    lines.extend(host.url.clone());
    lines.join("\n")
}

/// The moment that the duration of an incident counts to.
fn end(notification: &Notification, now: Timestamp) -> Timestamp {
    match notification.phase {
        IncidentPhase::Recovered => notification.incident.ended.unwrap_or(now),
        IncidentPhase::Opened | IncidentPhase::Updated => now,
    }
}

pub(crate) fn phase_name(phase: IncidentPhase) -> &'static str {
    match phase {
        IncidentPhase::Opened => "opened",
        IncidentPhase::Updated => "updated",
        IncidentPhase::Recovered => "recovered",
    }
}

/// The page of an application, a host of the fleet or a repository, or of the agent. What is not managed any more has no page.
pub(crate) fn link(incident: &Incident, host: &SenderHost) -> Option<String> {
    let base = host.url.as_ref()?;
    Some(match (&incident.app, &incident.host, &incident.repository) {
        (Some(app), _, _) => format!("{base}/applications/{app}"),
        _ if incident.unmanaged => format!("{base}/"),
        (None, Some(name), _) => format!("{base}/fleet/{name}"),
        (None, None, Some(name)) => format!("{base}/repositories/{name}"),
        (None, None, None) => format!("{base}/"),
    })
}

/// `40 s`, `12 min`, `3 h`, `2 d`
fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Shortens a text to a number of bytes, and cuts no character apart.
pub(crate) fn shorten_bytes(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub('…'.len_utf8());
    let ends = text.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|end| *end <= room).last().unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Shortens a text to a number of characters.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use driftless_model::IncidentKind;

    use super::*;

    #[test]
    fn link_leads_to_the_page_of_the_subject() {
        let host = SenderHost { name: "hub".to_owned(), url: Some("https://hub.example.com".to_owned()) };
        let linked = |incident: &Incident| link(incident, &host).unwrap();
        let of_kind = |kind| sample(kind, Timestamp(1_767_225_600_000));
        for (kind, page) in [
            (IncidentKind::Degraded, "/applications/shop"),
            (IncidentKind::HostLost, "/fleet/nas"),
            (IncidentKind::GitUnreachable, "/repositories/infra"),
            (IncidentKind::EngineUnreachable, "/"),
        ] {
            assert_eq!(linked(&of_kind(kind)), format!("https://hub.example.com{page}"), "{kind:?}");
        }
        let removed = Incident { unmanaged: true, ..of_kind(IncidentKind::HostLost) };
        assert_eq!(linked(&removed), "https://hub.example.com/");
    }
}
