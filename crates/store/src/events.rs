//! The event log: events with ascending numbers, of which the newest are kept, also those of each application.

use rusqlite::params;

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, readable, to_json, to_sql},
};
use driftless_model::{AppName, Event};

/// The number of events that are kept, over all applications.
const MAX_EVENTS: i64 = 10_000;

/// The number of events of one application that are kept beyond that, so that a busy one does not end the history of the others.
const MAX_OF_APPLICATION: i64 = 100;

impl Store {
    /// Stores an event and returns it with its number. Its own `sequence` is ignored.
    pub fn append_event(&self, event: Event) -> Result<Event, Error> {
        self.write("an event", Durability::Process, |transaction| {
            transaction
                .prepare_cached("INSERT INTO events (app, event) VALUES (?1, ?2)")?
                .execute(params![event.app.as_str(), to_json(&event)?])?;
            let sequence = transaction.last_insert_rowid();
            // The one that is not among the newest any more, and older ones that were kept for the application.
            for condition in ["sequence = ?1", "app = ?2 AND sequence <= ?1"] {
                transaction
                    .prepare_cached(&format!(
                        "DELETE FROM events WHERE {condition} AND sequence < (
                             SELECT newer.sequence FROM events AS newer WHERE newer.app = events.app
                             ORDER BY newer.sequence DESC LIMIT 1 OFFSET ?3
                         )"
                    ))?
                    .execute(params![
                        sequence.saturating_sub(MAX_EVENTS),
                        event.app.as_str(),
                        MAX_OF_APPLICATION - 1
                    ])?;
            }
            Ok(Event { sequence: from_sql(sequence), ..event })
        })
    }

    /// Removes what was kept of applications that the database does not have any more.
    pub(crate) fn remove_former_events(&self) -> Result<(), Error> {
        self.write("events", Durability::Process, |transaction| {
            transaction.execute(
                "DELETE FROM events WHERE sequence <= (SELECT max(sequence) FROM events) - ?1
                 AND app NOT IN (SELECT app FROM applications)",
                params![MAX_EVENTS],
            )?;
            Ok(())
        })
    }

    /// The events after number `after`, oldest first.
    pub fn events(&self, after: u64, limit: usize, app: Option<&AppName>) -> Result<Vec<Event>, Error> {
        self.select_events("sequence > ?1", "ASC", to_sql(after), limit, app)
    }

    /// The newest events, oldest first, so that [`Store::events`] continues after the last one.
    pub fn newest_events(&self, limit: usize, app: Option<&AppName>) -> Result<Vec<Event>, Error> {
        let mut events = self.select_events("sequence <= ?1", "DESC", i64::MAX, limit, app)?;
        events.reverse();
        Ok(events)
    }

    fn select_events(
        &self,
        condition: &str,
        order: &str,
        bound: i64,
        limit: usize,
        app: Option<&AppName>,
    ) -> Result<Vec<Event>, Error> {
        let of_app = if app.is_some() { "app = ?3" } else { "?3 IS NULL" };
        let query = format!(
            "SELECT sequence, event FROM events WHERE {condition} AND {of_app} ORDER BY sequence {order} LIMIT ?2"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read("events", |connection| {
            let mut statement = connection.prepare_cached(&query)?;
            let mut rows = statement.query(params![bound, limit, app.map(AppName::as_str)])?;
            let mut events = Vec::new();
            while let Some(row) = rows.next()? {
                let text: String = row.get(1)?;
                if let Some(event) = readable::<Event>("an event", &text) {
                    events.push(Event { sequence: from_sql(row.get(0)?), ..event });
                }
            }
            Ok(events)
        })
    }
}
