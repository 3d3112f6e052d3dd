//! Open incidents and the outbox of notifications. Both change in one transaction, so that an incident whose notification
//! is lost and a notification that is made twice cannot be, also after `kill -9`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{Incident, IncidentPhase, Notification, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::{
    error::{BoxError, Durability, Error},
    store::{Store, from_sql, readable, to_json, to_sql},
};

/// The number of sent messages that are kept for each receiver, for its rate limit: the highest one that `rateLimit` may have.
const MAX_SENT: i64 = 1000;

/// The number of waiting notifications for each receiver. The oldest are dropped beyond it.
const MAX_WAITING: i64 = 1000;

/// The name of the newest handled event in the table `meta`.
const EVENT_CURSOR: &str = "notifications.event";

/// A change of the incidents and of the outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentUpdate {
    /// Incidents that are new or have changed. One with the number 0 gets the next number.
    pub kept: Vec<Incident>,
    /// Incidents that are over.
    pub ended: Vec<Incident>,
    /// Notifications to make: phase, incident and receivers. The incident is one of those above, by its key.
    pub notifications: Vec<(IncidentPhase, Incident, BTreeSet<String>)>,
    /// All events up to this one are handled.
    pub handled_event: Option<u64>,
}

impl Store {
    /// The open incidents, oldest first.
    pub fn open_incidents(&self) -> Result<Vec<Incident>, Error> {
        self.read("the incidents", |connection| {
            let texts: Vec<String> = connection
                .prepare_cached("SELECT incident FROM incidents ORDER BY number")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(texts.iter().filter_map(|text| readable::<Incident>("an incident", text)).collect())
        })
    }

    /// The number of the newest event that notifications know; `None` before the first one.
    pub fn handled_event(&self) -> Result<Option<u64>, Error> {
        self.read("the incidents", |connection| {
            let value: Option<String> = connection
                .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
                .query_row(params![EVENT_CURSOR], |row| row.get(0))
                .optional()?;
            Ok(value.and_then(|value| value.parse().ok()))
        })
    }

    /// Stores a change. A receiver that has not got the last notification of an incident gets the new one in its place.
    pub fn update_incidents(&self, update: &IncidentUpdate, now: Timestamp) -> Result<(), Error> {
        self.write("the incidents", Durability::Process, |transaction| {
            let mut numbered = Vec::new();
            for incident in &update.kept {
                let number = match incident.number {
                    0 => take_number(transaction)?,
                    number => number,
                };
                let incident = Incident { number, ..incident.clone() };
                transaction
                    .prepare_cached(
                        "INSERT INTO incidents (key, number, incident) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO \
                         UPDATE SET number = ?2, incident = ?3",
                    )?
                    .execute(params![incident.key(), to_sql(number), to_json(&incident)?])?;
                numbered.push(incident);
            }
            for incident in &update.ended {
                transaction
                    .prepare_cached("DELETE FROM incidents WHERE key = ?1")?
                    .execute(params![incident.key()])?;
            }
            for (phase, incident, receivers) in &update.notifications {
                let key = incident.key();
                let is_same =
                    |known: &&Incident| known.key() == key && [0, known.number].contains(&incident.number);
                let stored = numbered.iter().find(is_same);
                let incident = stored.unwrap_or(incident);
                for receiver in receivers {
                    enqueue(transaction, receiver, *phase, incident, now)?;
                }
            }
            if let Some(sequence) = update.handled_event {
                transaction
                    .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
                    .execute(params![EVENT_CURSOR, sequence.to_string()])?;
            }
            Ok(())
        })
    }

    /// A store in memory with the incidents and messages of this one, and their numbers. For the time in which this one cannot be
    /// written.
    pub fn incidents_in_memory(&self, now: Timestamp) -> Result<Self, Error> {
        let mut rows = self.read("the incidents", IncidentRows::read)?;
        // Receivers recognise a message by its number. A restart forgets the numbers that are given in memory, and no other message may
        // get one of them.
        rows.last_sequence = rows.last_sequence.max(to_sql(now.0));
        let memory = Self::in_memory(self.clock)?;
        memory.write("the incidents", Durability::Process, |transaction| rows.replace(transaction))?;
        Ok(memory)
    }

    /// Takes over the incidents and messages of a store that `incidents_in_memory` made. They keep their numbers, so a message that is
    /// being sent meanwhile can be marked here.
    pub fn restore_incidents(&self, memory: &Self) -> Result<(), Error> {
        let rows = memory.read("the incidents", IncidentRows::read)?;
        self.write("the incidents", Durability::Process, |transaction| rows.replace(transaction))
    }

    /// The notifications that wait for a receiver, oldest first.
    pub fn waiting_notifications(&self, receiver: &str) -> Result<Vec<Notification>, Error> {
        self.read("the notifications", |connection| {
            let rows: Vec<(i64, String)> = connection
                .prepare_cached(
                    "SELECT sequence, notification FROM notifications WHERE receiver = ?1 AND sent IS NULL ORDER BY \
                     sequence",
                )?
                .query_map(params![receiver], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            let read = |(sequence, text): &(i64, String)| {
                let notification = readable::<Notification>("a notification", text)?;
                Some(Notification { number: from_sql(*sequence), ..notification })
            };
            Ok(rows.iter().filter_map(read).collect())
        })
    }

    /// When messages were sent to a receiver since `since`, oldest first. Messages of older agents have a row for each notification.
    pub fn sent_times(&self, receiver: &str, since: Timestamp) -> Result<Vec<Timestamp>, Error> {
        self.read("the notifications", |connection| {
            let times: Vec<i64> = connection
                .prepare_cached(
                    "SELECT DISTINCT sent FROM notifications WHERE receiver = ?1 AND sent >= ?2 ORDER BY sent",
                )?
                .query_map(params![receiver, to_sql(since.0)], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(times.into_iter().map(|time| Timestamp(from_sql(time))).collect())
        })
    }

    /// Removes notifications that were sent in one message, unless they have changed in the meantime, and keeps the time of the
    /// message. It has one row, so that large messages do not push others out of the rate limit.
    pub fn mark_sent(&self, receiver: &str, sent: &[Notification], now: Timestamp) -> Result<(), Error> {
        self.write("the notifications", Durability::Process, |transaction| {
            for notification in sent {
                transaction
                    .prepare_cached("DELETE FROM notifications WHERE sequence = ?1 AND sent IS NULL")?
                    .execute(params![to_sql(notification.number)])?;
            }
            let Some(first) = sent.first() else { return Ok(()) };
            transaction
                .prepare_cached(
                    "INSERT INTO notifications (receiver, incident, at, sent, notification) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    receiver,
                    to_sql(first.incident.number),
                    to_sql(first.at.0),
                    to_sql(now.0),
                    to_json(first)?
                ])?;
            transaction
                .prepare_cached(
                    "DELETE FROM notifications WHERE receiver = ?1 AND sent IS NOT NULL AND sequence <= (SELECT \
                     sequence FROM notifications WHERE receiver = ?1 AND sent IS NOT NULL ORDER BY sequence DESC LIMIT \
                     1 OFFSET ?2)",
                )?
                .execute(params![receiver, MAX_SENT])?;
            Ok(())
        })
    }

    /// Makes the notifications that wait younger by the time by which the clock has just gone on alone, before they are dropped for their
    /// age: nothing could be sent in that time.
    pub fn leave_out_jump(&self, jump: Duration, now: Timestamp) -> Result<(), Error> {
        let millis = u64::try_from(jump.as_millis()).unwrap_or(u64::MAX);
        self.write("the notifications", Durability::Process, |transaction| {
            transaction
                .prepare_cached("UPDATE notifications SET at = MIN(at + ?1, ?2) WHERE sent IS NULL")?
                .execute(params![to_sql(millis), to_sql(now.0)])?;
            Ok(())
        })
    }

    /// Removes the notifications that wait for receivers that are not in the configuration any more, and those of ended incidents
    /// made before the time of their receiver. Returns the number of the latter. That of an open incident stays: it counts
    /// as reported, so nothing would report it again.
    pub fn drop_notifications(&self, oldest: &BTreeMap<String, Timestamp>) -> Result<usize, Error> {
        self.write("the notifications", Durability::Process, |transaction| {
            let receivers: Vec<String> = transaction
                .prepare_cached("SELECT DISTINCT receiver FROM notifications")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let mut dropped = 0;
            for receiver in &receivers {
                if let Some(oldest) = oldest.get(receiver) {
                    dropped += transaction
                        .prepare_cached(
                            "DELETE FROM notifications WHERE receiver = ?1 AND sent IS NULL AND at < ?2 AND incident NOT \
                             IN (SELECT number FROM incidents)",
                        )?
                        .execute(params![receiver, to_sql(oldest.0)])?;
                } else {
                    transaction
                        .prepare_cached("DELETE FROM notifications WHERE receiver = ?1")?
                        .execute(params![receiver])?;
                }
            }
            Ok(dropped)
        })
    }
}

/// The incidents, and all messages with their numbers.
struct IncidentRows {
    last_number: u64,
    /// The newest number of a message.
    last_sequence: i64,
    handled_event: Option<String>,
    /// Key, number and text.
    incidents: Vec<(String, i64, String)>,
    notifications: Vec<NotificationRow>,
}

struct NotificationRow {
    sequence: i64,
    receiver: String,
    incident: i64,
    at: i64,
    sent: Option<i64>,
    text: String,
}

impl IncidentRows {
    fn read(connection: &Connection) -> Result<Self, BoxError> {
        let last_sequence: Option<i64> = connection
            .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'notifications'")?
            .query_row([], |row| row.get(0))
            .optional()?;
        let handled_event: Option<String> = connection
            .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
            .query_row(params![EVENT_CURSOR], |row| row.get(0))
            .optional()?;
        let incidents: Vec<(String, i64, String)> = connection
            .prepare_cached("SELECT key, number, incident FROM incidents")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let notifications: Vec<NotificationRow> = connection
            .prepare_cached("SELECT sequence, receiver, incident, at, sent, notification FROM notifications")?
            .query_map([], |row| {
                Ok(NotificationRow {
                    sequence: row.get(0)?,
                    receiver: row.get(1)?,
                    incident: row.get(2)?,
                    at: row.get(3)?,
                    sent: row.get(4)?,
                    text: row.get(5)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        Ok(Self {
            last_number: last_number(connection)?,
            last_sequence: last_sequence.unwrap_or(0),
            handled_event,
            incidents,
            notifications,
        })
    }

    /// Puts them in the place of those of another database. A number stands for the same message in both, so rows that are in both stay
    /// as they are: a disk that is nearly full has room for few.
    fn replace(&self, transaction: &Transaction<'_>) -> Result<(), BoxError> {
        set_last_number(transaction, self.last_number)?;
        if let Some(event) = &self.handled_event {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
                .execute(params![EVENT_CURSOR, event])?;
        }
        transaction.execute("DELETE FROM incidents", [])?;
        for (key, number, incident) in &self.incidents {
            transaction
                .prepare_cached("INSERT INTO incidents (key, number, incident) VALUES (?1, ?2, ?3)")?
                .execute(params![key, number, incident])?;
        }
        let kept: BTreeSet<i64> = self.notifications.iter().map(|row| row.sequence).collect();
        let known: Vec<i64> = transaction
            .prepare_cached("SELECT sequence FROM notifications")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for sequence in known.iter().filter(|sequence| !kept.contains(*sequence)) {
            transaction
                .prepare_cached("DELETE FROM notifications WHERE sequence = ?1")?
                .execute(params![sequence])?;
        }
        for row in &self.notifications {
            transaction
                .prepare_cached(
                    "INSERT OR IGNORE INTO notifications (sequence, receiver, incident, at, sent, notification) VALUES \
                     (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![row.sequence, row.receiver, row.incident, row.at, row.sent, row.text])?;
        }
        transaction.execute("DELETE FROM sqlite_sequence WHERE name = 'notifications'", [])?;
        transaction.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('notifications', ?1)",
            params![self.last_sequence],
        )?;
        Ok(())
    }
}

/// The next number of an incident. The counter outlives the incidents, so none is used twice.
fn take_number(transaction: &Transaction<'_>) -> Result<u64, BoxError> {
    let number = last_number(transaction)?.saturating_add(1);
    set_last_number(transaction, number)?;
    Ok(number)
}

fn last_number(connection: &Connection) -> Result<u64, BoxError> {
    let last: Option<String> = connection
        .prepare_cached("SELECT value FROM meta WHERE key = 'notifications.incident'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(last.and_then(|last| last.parse::<u64>().ok()).unwrap_or(0))
}

fn set_last_number(transaction: &Transaction<'_>, number: u64) -> Result<(), BoxError> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('notifications.incident', ?1)")?
        .execute(params![number.to_string()])?;
    Ok(())
}

fn enqueue(
    transaction: &Transaction<'_>,
    receiver: &str,
    phase: IncidentPhase,
    incident: &Incident,
    now: Timestamp,
) -> Result<(), BoxError> {
    let waiting: Option<(i64, String)> = transaction
        .prepare_cached(
            "SELECT sequence, notification FROM notifications WHERE receiver = ?1 AND incident = ?2 AND sent IS NULL",
        )?
        .query_row(params![receiver, to_sql(incident.number)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let before = waiting.as_ref().and_then(|(_, text)| readable::<Notification>("a notification", text));
    let notification = Notification {
        number: 0,
        receiver: receiver.to_owned(),
        // The receiver does not know of the incident yet.
        phase: match (before.as_ref().map(|before| before.phase), phase) {
            (Some(IncidentPhase::Opened), IncidentPhase::Updated) => IncidentPhase::Opened,
            (_, phase) => phase,
        },
        incident: incident.clone(),
        at: before.map_or(now, |before| before.at),
        sent: None,
    };
    // A message that is being sent is marked by its number; a new number keeps the new text waiting.
    if let Some((sequence, _)) = waiting {
        transaction
            .prepare_cached("DELETE FROM notifications WHERE sequence = ?1")?
            .execute(params![sequence])?;
    }
    transaction
        .prepare_cached(
            "INSERT INTO notifications (receiver, incident, at, notification) VALUES (?1, ?2, ?3, ?4)",
        )?
        // The column is the age of this state, after which it is dropped. A digest counts from the first one.
        .execute(params![receiver, to_sql(incident.number), to_sql(now.0), to_json(&notification)?])?;
    transaction
        .prepare_cached(
            "DELETE FROM notifications WHERE receiver = ?1 AND sent IS NULL AND sequence <= (SELECT sequence FROM \
             notifications WHERE receiver = ?1 AND sent IS NULL ORDER BY sequence DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![receiver, MAX_WAITING])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;
    use driftless_model::{IncidentKind, Urgency};

    fn incident(app: &str, message: &str) -> Incident {
        Incident {
            number: 0,
            kind: IncidentKind::Degraded,
            urgency: Urgency::Critical,
            app: Some(app.into()),
            repository: None,
            host: None,
            message: message.to_owned(),
            notified_message: None,
            advice: String::new(),
            about: BTreeSet::new(),
            since: Timestamp(1),
            opened: Some(Timestamp(1)),
            notified: None,
            ended: None,
            unmanaged: false,
            receivers: BTreeSet::new(),
        }
    }

    fn update(phase: IncidentPhase, incident: &Incident) -> IncidentUpdate {
        let kept = if phase == IncidentPhase::Recovered { Vec::new() } else { vec![incident.clone()] };
        let ended = if phase == IncidentPhase::Recovered { vec![incident.clone()] } else { Vec::new() };
        let receivers = BTreeSet::from(["phone".to_owned()]);
        let notifications = vec![(phase, incident.clone(), receivers)];
        IncidentUpdate { kept, ended, notifications, handled_event: Some(7) }
    }

    #[test]
    fn unsent_notification_is_replaced_by_the_newer_one() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.update_incidents(&update(IncidentPhase::Opened, &incident("shop", "a")), Timestamp(5)).unwrap();
        let open = store.open_incidents().unwrap().remove(0);
        assert_eq!((open.number, store.handled_event().unwrap()), (1, Some(7)));
        let newer = Incident { message: "b".to_owned(), ..open.clone() };
        store.update_incidents(&update(IncidentPhase::Updated, &newer), Timestamp(6)).unwrap();
        let waiting = store.waiting_notifications("phone").unwrap();
        assert_eq!(waiting.len(), 1);
        assert_eq!((waiting[0].phase, waiting[0].at), (IncidentPhase::Opened, Timestamp(5)));
        assert_eq!(waiting[0].incident.message, "b");
        store.update_incidents(&update(IncidentPhase::Recovered, &newer), Timestamp(8)).unwrap();
        let waiting = store.waiting_notifications("phone").unwrap();
        assert_eq!((waiting.len(), waiting[0].phase), (1, IncidentPhase::Recovered));
        assert_eq!(store.open_incidents().unwrap(), []);
        // The next one has another number.
        store.update_incidents(&update(IncidentPhase::Opened, &incident("shop", "c")), Timestamp(9)).unwrap();
        assert_eq!(store.open_incidents().unwrap()[0].number, 2);
        assert_eq!(store.waiting_notifications("phone").unwrap().len(), 2);
    }

    #[test]
    fn text_that_changes_while_it_is_sent_stays_in_the_outbox() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.update_incidents(&update(IncidentPhase::Opened, &incident("shop", "a")), Timestamp(5)).unwrap();
        let sending = store.waiting_notifications("phone").unwrap();
        let open = store.open_incidents().unwrap().remove(0);
        store.update_incidents(&update(IncidentPhase::Recovered, &open), Timestamp(6)).unwrap();
        store.mark_sent("phone", &sending, Timestamp(7)).unwrap();
        assert_eq!(store.waiting_notifications("phone").unwrap()[0].phase, IncidentPhase::Recovered);
        let waiting = store.waiting_notifications("phone").unwrap();
        store.mark_sent("phone", &waiting, Timestamp(8)).unwrap();
        assert_eq!(store.waiting_notifications("phone").unwrap(), []);
        assert_eq!(store.sent_times("phone", Timestamp(0)).unwrap(), [Timestamp(7), Timestamp(8)]);
    }

    #[test]
    fn large_messages_push_no_others_out_of_the_rate_limit() {
        let store = Store::in_memory(Clock::System).unwrap();
        for message in 0..30 {
            for number in 0..50 {
                let incident = incident(&format!("app{message}-{number}"), "a");
                let opened = update(IncidentPhase::Opened, &incident);
                store.update_incidents(&opened, Timestamp(message)).unwrap();
            }
            let waiting = store.waiting_notifications("phone").unwrap();
            assert_eq!(waiting.len(), 50);
            store.mark_sent("phone", &waiting, Timestamp(message)).unwrap();
        }
        assert_eq!(store.waiting_notifications("phone").unwrap(), []);
        let times: Vec<Timestamp> = (0..30).map(Timestamp).collect();
        assert_eq!(store.sent_times("phone", Timestamp(0)).unwrap(), times);
    }

    #[test]
    fn jump_of_the_clock_makes_no_notification_old() {
        let store = Store::in_memory(Clock::System).unwrap();
        let (before, after) = (Timestamp(5_000), Timestamp(1_800_000_000_000));
        store.update_incidents(&update(IncidentPhase::Opened, &incident("shop", "a")), before).unwrap();
        let open = store.open_incidents().unwrap().remove(0);
        store.update_incidents(&update(IncidentPhase::Recovered, &open), before).unwrap();
        let now = after.after(Duration::from_secs(10));
        store.leave_out_jump(after.since(before), now).unwrap();
        let dropped = |oldest| {
            let limits = BTreeMap::from([("phone".to_owned(), oldest)]);
            store.drop_notifications(&limits).unwrap()
        };
        assert_eq!(dropped(after), 0);
        assert_eq!(dropped(now), 1);
    }

    #[test]
    fn old_and_unknown_notifications_are_dropped() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.update_incidents(&update(IncidentPhase::Opened, &incident("shop", "a")), Timestamp(5)).unwrap();
        let of_phone =
            |oldest| BTreeMap::from([("phone".to_owned(), oldest), ("mail".to_owned(), Timestamp(9))]);
        assert_eq!(store.drop_notifications(&of_phone(Timestamp(9))).unwrap(), 0, "it goes on");
        let open = store.open_incidents().unwrap().remove(0);
        store.update_incidents(&update(IncidentPhase::Recovered, &open), Timestamp(7)).unwrap();
        assert_eq!(store.drop_notifications(&of_phone(Timestamp(7))).unwrap(), 0, "its end is no older");
        assert_eq!(
            store.waiting_notifications("phone").unwrap()[0].at,
            Timestamp(5),
            "a digest counts from it"
        );
        assert_eq!(store.drop_notifications(&of_phone(Timestamp(8))).unwrap(), 1);
        store.update_incidents(&update(IncidentPhase::Opened, &incident("wiki", "a")), Timestamp(5)).unwrap();
        store.drop_notifications(&BTreeMap::new()).unwrap();
        assert_eq!(store.waiting_notifications("phone").unwrap(), []);
    }
}
