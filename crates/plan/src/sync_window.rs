//! Whether the sync windows of an application let a new commit be applied now.

use driftless_model::{Schedule, SyncWindow, Timestamp, WindowKind};

/// Why no new commit is applied now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedWindow {
    /// The window that forbids it, as people read it.
    pub window: String,
    /// Whether a user may sync all the same.
    pub allows_manual: bool,
    /// When the windows are to be looked at again. `None`: no window begins any more.
    pub until: Option<Timestamp>,
}

/// Why the windows forbid to apply a new commit now, if they do: a `deny` window is open, or there are `allow` windows and
/// none of them is open. A user may sync if each window that forbids it lets him.
pub fn closed_window(windows: &[SyncWindow], now: Timestamp) -> Option<ClosedWindow> {
    let states: Vec<(&SyncWindow, State)> = windows.iter().map(|it| (it, State::of(it, now))).collect();
    let of = |kind: WindowKind, is_open: bool| {
        let is_it = move |it: &&(&SyncWindow, State)| it.0.kind == kind && it.1.is_open == is_open;
        states.iter().filter(is_it).map(|(window, _)| *window).collect::<Vec<_>>()
    };
    let denying = of(WindowKind::Deny, true);
    let forbidding = if denying.is_empty() {
        let has_open = !of(WindowKind::Allow, true).is_empty();
        if has_open { Vec::new() } else { of(WindowKind::Allow, false) }
    } else {
        denying
    };
    let first = forbidding.first()?;
    Some(ClosedWindow {
        window: first.to_string(),
        allows_manual: forbidding.iter().all(|window| window.manual_sync),
        until: states.iter().filter_map(|(_, state)| state.changes).min(),
    })
}

/// A window at one moment.
struct State {
    is_open: bool,
    /// Time at which it opens or closes next, or at which it must be checked again.
    changes: Option<Timestamp>,
}

impl State {
    fn of(window: &SyncWindow, now: Timestamp) -> Self {
        let Ok(schedule) = Schedule::parse(&window.schedule, window.time_zone.as_deref()) else {
            return Self { is_open: false, changes: None };
        };
        let length = u64::try_from(window.duration.as_millis()).unwrap_or(u64::MAX);
        // The end of a window does not belong to it.
        let begun = schedule.next_begin(Timestamp(now.0.saturating_sub(length)));
        let begun = begun.filter(|begin| *begin <= now);
        let changes = begun.map(|begin| begin.after(window.duration)).or_else(|| schedule.next_begin(now));
        Self { is_open: begun.is_some(), changes }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn window(kind: WindowKind, schedule: &str, hours: u64) -> SyncWindow {
        let duration = Duration::from_hours(hours);
        SyncWindow { kind, schedule: schedule.to_owned(), time_zone: None, duration, manual_sync: false }
    }

    fn at(time: &str) -> Timestamp {
        Timestamp::parse(&format!("2026-03-{time}Z")).unwrap()
    }

    #[test]
    fn commits_are_applied_in_allow_windows_and_not_in_deny_windows() {
        use WindowKind::{Allow, Deny};
        let night = window(Deny, "0 22 * * *", 8);
        let office = window(Allow, "0 9 * * 1-5", 8);
        let noon = window(Deny, "0 12 * * *", 1);
        for (windows, time, until) in [
            (vec![], "02T12:00:00", None),
            (vec![&night], "02T21:59:59", None),
            (vec![&night], "02T22:00:00", Some("03T06:00:00")),
            (vec![&night], "03T05:59:59", Some("03T06:00:00")),
            (vec![&night], "03T06:00:00", None),
            (vec![&office], "02T09:00:00", None),
            (vec![&office], "02T17:00:00", Some("03T09:00:00")),
            // A Saturday.
            (vec![&office], "07T10:00:00", Some("09T09:00:00")),
            (vec![&office, &noon], "02T11:00:00", None),
            (vec![&office, &noon], "02T12:30:00", Some("02T13:00:00")),
        ] {
            let windows: Vec<SyncWindow> = windows.into_iter().cloned().collect();
            let closed = closed_window(&windows, at(time));
            assert_eq!(closed.and_then(|it| it.until), until.map(at), "{windows:?} at {time}");
        }
    }

    #[test]
    fn manual_sync_needs_the_leave_of_each_closed_window() {
        let strict = window(WindowKind::Deny, "0 0 * * *", 24);
        let lenient = SyncWindow { manual_sync: true, ..strict.clone() };
        let manual =
            |windows: &[SyncWindow]| closed_window(windows, at("02T12:00:00")).unwrap().allows_manual;
        assert!(manual(std::slice::from_ref(&lenient)));
        assert!(!manual(&[lenient, strict]));
    }

    #[test]
    fn window_follows_the_clock_of_its_zone() {
        let berlin = SyncWindow {
            time_zone: Some("Europe/Berlin".to_owned()),
            ..window(WindowKind::Deny, "0 22 * * *", 1)
        };
        // Summer time begins on the 29th.
        for (time, is_closed) in
            [("28T20:30:00", false), ("28T21:30:00", true), ("29T20:30:00", true), ("29T21:30:00", false)]
        {
            assert_eq!(closed_window(std::slice::from_ref(&berlin), at(time)).is_some(), is_closed, "{time}");
        }
        // On 24 April 2026, a Friday, the clocks of Cairo go from 00:00 to 01:00.
        let cairo = SyncWindow {
            time_zone: Some("Africa/Cairo".to_owned()),
            ..window(WindowKind::Deny, "0 0 * * 5", 48)
        };
        for (time, until) in [
            ("23T21:59:59", None),
            ("23T22:00:00", Some("25T22:00:00")),
            ("25T21:59:59", Some("25T22:00:00")),
            ("25T22:00:00", None),
        ] {
            let at = |time: &str| Timestamp::parse(&format!("2026-04-{time}Z")).unwrap();
            let closed = closed_window(std::slice::from_ref(&cairo), at(time));
            assert_eq!(closed.and_then(|closed| closed.until), until.map(at), "{time}");
        }
    }
}
