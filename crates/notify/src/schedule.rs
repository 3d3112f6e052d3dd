//! When messages are sent: quiet hours, digests and rate limits. A decision without IO.

use std::time::Duration;

use driftless_config::NotificationReceiver;
use driftless_model::{IncidentPhase, Notification, Timestamp, Urgency};

/// The time that a rate limit counts in.
pub const RATE_TIME: Duration = Duration::from_hours(1);

/// The most notifications of one message. The next message has the rest.
const LARGEST_BATCH: usize = 50;

/// A notification that was not sent for this long after it was due waits for the younger ones. Longer than quiet hours last.
const LONG_WAIT: Duration = Duration::from_hours(24);

/// The next action for a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing waits.
    Nothing,
    /// Decide again at this time.
    At(Timestamp),
    /// Send these in one message.
    Now(Vec<Notification>),
}

/// Decides for one receiver. `waiting` are its notifications, oldest first; `sent` are the times of its messages in the last
/// hour, oldest first. Critical incidents wait for no quiet hours and no digest, but for the rate limit.
pub fn due(
    waiting: &[Notification],
    sent: &[Timestamp],
    receiver: &NotificationReceiver,
    now: Timestamp,
) -> Due {
    let mut next: Option<Timestamp> = None;
    let mut ready = Vec::new();
    for notification in waiting {
        match held_until(notification, waiting, receiver, now) {
            Some(until) => next = Some(next.map_or(until, |known| known.min(until))),
            None => ready.push(notification.clone()),
        }
    }
    if ready.is_empty() {
        return next.map_or(Due::Nothing, Due::At);
    }
    let recent: Vec<Timestamp> = sent.iter().copied().filter(|at| at.is_recent(RATE_TIME, now)).collect();
    if let Some(until) = limited_until(&ready, &recent, receiver.rate_limit).filter(|until| *until > now) {
        return Due::At(until);
    }
    // A message that fails for days, such as one that the service refuses, must not hold back all others.
    let long = LONG_WAIT.saturating_add(receiver.digest.unwrap_or_default());
    let (young, old): (Vec<_>, Vec<_>) =
        ready.into_iter().partition(|notification| now.since(notification.at) < long);
    let mut batch = if young.is_empty() { old } else { young };
    batch.truncate(LARGEST_BATCH);
    Due::Now(batch)
}

/// Until when a message waits for the rate limit, if it is reached. The last quarter of the limit is kept for critical incidents: the
/// first one is sent at once, and the others are spread over the hour.
fn limited_until(ready: &[Notification], recent: &[Timestamp], limit: usize) -> Option<Timestamp> {
    let kept = limit / 4;
    let free_at = |most: usize| {
        let index = recent.len().checked_sub(most)?;
        recent.get(index).map(|oldest| oldest.after(RATE_TIME))
    };
    let until = free_at(limit - kept)?;
    let last = recent.last()?;
    if !ready.iter().any(is_urgent) {
        return Some(until);
    }
    if recent.len() == limit - kept && kept > 0 {
        return None;
    }
    let pause = RATE_TIME / u32::try_from(kept + 1).unwrap_or(u32::MAX);
    Some(until.min(last.after(pause).max(free_at(limit).unwrap_or_default())))
}

/// Whether a notification waits for no quiet hours and no digest.
fn is_urgent(notification: &Notification) -> bool {
    notification.incident.urgency == Urgency::Critical && notification.phase != IncidentPhase::Recovered
}

/// Until when a notification waits, if it does.
fn held_until(
    notification: &Notification,
    waiting: &[Notification],
    receiver: &NotificationReceiver,
    now: Timestamp,
) -> Option<Timestamp> {
    if is_urgent(notification) {
        return None;
    }
    let quiet = receiver.quiet_hours.as_ref().and_then(|hours| hours.end(now));
    let digest = receiver.digest.and_then(|interval| {
        let oldest = waiting.iter().map(|other| other.at).min().unwrap_or(notification.at);
        oldest.is_recent(interval, now).then(|| oldest.after(interval))
    });
    quiet.max(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;
    use driftless_config::{Secret, Target};
    use driftless_model::{IncidentKind, QuietHours};

    const NOW: Timestamp = Timestamp(1_767_225_600_000);

    fn receiver() -> NotificationReceiver {
        NotificationReceiver {
            name: "phone".to_owned(),
            target: Target::Slack { url: Secret::Environment("URL".to_owned()) },
            ca_file: None,
            title: None,
            body: None,
            quiet_hours: None,
            digest: None,
            rate_limit: 3,
        }
    }

    fn notification(number: u64, kind: IncidentKind, phase: IncidentPhase) -> Notification {
        let incident = sample(kind, NOW);
        Notification { number, receiver: "phone".to_owned(), phase, incident, at: NOW, sent: None }
    }

    fn opened(number: u64, kind: IncidentKind) -> Notification {
        notification(number, kind, IncidentPhase::Opened)
    }

    fn sent_now(due: &Due) -> Vec<u64> {
        match due {
            Due::Now(batch) => batch.iter().map(|notification| notification.number).collect(),
            Due::Nothing | Due::At(_) => Vec::new(),
        }
    }

    #[test]
    fn quiet_hours_hold_all_but_critical_incidents() {
        let quiet_hours = QuietHours::parse("22:00", "07:00", None).ok();
        let receiver = NotificationReceiver { quiet_hours, ..receiver() };
        let waiting = [
            opened(1, IncidentKind::PruneHeld),
            opened(2, IncidentKind::Degraded),
            notification(3, IncidentKind::Degraded, IncidentPhase::Recovered),
        ];
        // NOW is midnight.
        assert_eq!(sent_now(&due(&waiting, &[], &receiver, NOW)), [2]);
        let morning = NOW.after(Duration::from_hours(7));
        assert_eq!(due(&waiting[..1], &[], &receiver, NOW), Due::At(morning));
        assert_eq!(sent_now(&due(&waiting, &[], &receiver, morning)), [1, 2, 3], "as one message");
    }

    #[test]
    fn digest_collects_all_but_critical_incidents() {
        let receiver = NotificationReceiver { digest: Some(Duration::from_hours(1)), ..receiver() };
        let waiting = [opened(1, IncidentKind::PruneHeld), opened(2, IncidentKind::DriftFound)];
        let end = NOW.after(Duration::from_hours(1));
        assert_eq!(due(&waiting, &[], &receiver, NOW), Due::At(end));
        assert_eq!(sent_now(&due(&waiting, &[], &receiver, end)), [1, 2]);
        assert_eq!(sent_now(&due(&[opened(3, IncidentKind::Degraded)], &[], &receiver, NOW)), [3]);
    }

    #[test]
    fn rate_limit_holds_messages_until_the_hour_is_over() {
        let waiting = [opened(1, IncidentKind::Degraded), opened(2, IncidentKind::PruneHeld)];
        let at = |minutes: u64| Timestamp(NOW.0 - minutes * 60_000);
        assert_eq!(sent_now(&due(&waiting, &[at(50), at(2)], &receiver(), NOW)), [1, 2]);
        let held = due(&waiting, &[at(50), at(20), at(2)], &receiver(), NOW);
        assert_eq!(held, Due::At(NOW.after(Duration::from_mins(10))));
        assert_eq!(sent_now(&due(&waiting, &[at(70), at(20), at(2)], &receiver(), NOW)), [1, 2]);
        assert_eq!(due(&[], &[], &receiver(), NOW), Due::Nothing);
    }

    #[test]
    fn rate_limit_keeps_a_quarter_for_critical_incidents() {
        let receiver = NotificationReceiver { rate_limit: 4, ..receiver() };
        let at = |minutes: u64| Timestamp(NOW.0 - minutes * 60_000);
        let after = |minutes: u64| Due::At(NOW.after(Duration::from_mins(minutes)));
        let waiting = [opened(1, IncidentKind::PruneHeld), opened(2, IncidentKind::Degraded)];
        let sent = [at(50), at(40), at(31)];
        assert_eq!(due(&waiting[..1], &sent, &receiver, NOW), after(10));
        assert_eq!(sent_now(&due(&waiting, &sent, &receiver, NOW)), [1, 2]);
        let over = [notification(3, IncidentKind::Degraded, IncidentPhase::Recovered)];
        assert_eq!(due(&over, &sent, &receiver, NOW), after(10));
        assert_eq!(sent_now(&due(&waiting, &[at(50), at(40), at(1)], &receiver, NOW)), [1, 2]);
        assert_eq!(due(&waiting, &[at(50), at(40), at(31), at(1)], &receiver, NOW), after(20));
        // The first one is sent at once, and the next ones are spread over the hour.
        let receiver = NotificationReceiver { rate_limit: 20, ..receiver };
        let burst = [at(1); 15];
        assert_eq!(due(&waiting[..1], &burst, &receiver, NOW), after(59));
        assert_eq!(sent_now(&due(&waiting, &burst, &receiver, NOW)), [1, 2]);
        assert_eq!(due(&waiting, &[&burst[..], &[at(0)]].concat(), &receiver, NOW), after(10));
        // A small limit keeps none.
        let receiver = NotificationReceiver { rate_limit: 3, ..receiver };
        assert_eq!(due(&waiting, &[at(50), at(40), at(31)], &receiver, NOW), after(10));
    }

    #[test]
    fn message_that_fails_for_days_holds_back_no_younger_one() {
        let days = |days: u64| Timestamp(NOW.0 - days * 24 * 3_600_000);
        let old = Notification { at: days(3), ..opened(1, IncidentKind::RolledBack) };
        let young = opened(2, IncidentKind::Degraded);
        assert_eq!(sent_now(&due(&[old.clone(), young], &[], &receiver(), NOW)), [2]);
        assert_eq!(sent_now(&due(std::slice::from_ref(&old), &[], &receiver(), NOW)), [1]);
        let weekly = NotificationReceiver { digest: Some(Duration::from_hours(24 * 7)), ..receiver() };
        let first = Notification { at: days(7), ..old };
        let second = Notification { at: days(2), ..opened(2, IncidentKind::DriftFound) };
        assert_eq!(sent_now(&due(&[first, second], &[], &weekly, NOW)), [1, 2], "a digest stays whole");
    }

    #[test]
    fn clock_that_was_set_back_holds_no_message() {
        let ahead = NOW.after(Duration::from_hours(24));
        let waiting = [Notification { at: ahead, ..opened(1, IncidentKind::PruneHeld) }];
        assert_eq!(sent_now(&due(&waiting, &[ahead; 5], &receiver(), NOW)), [1]);
        let digest = NotificationReceiver { digest: Some(Duration::from_hours(1)), ..receiver() };
        assert_eq!(sent_now(&due(&waiting, &[], &digest, NOW)), [1]);
    }
}
