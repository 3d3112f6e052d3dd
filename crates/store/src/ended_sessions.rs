//! Sessions of browsers that were ended by a log-out. Sessions are not stored, so those that must not be valid any more are.

use rusqlite::params;

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, to_sql},
};
use driftless_model::Timestamp;

/// The beginning of the key in the table `meta`; the digest of the session follows.
const PREFIX: &str = "ended_session.";

/// The most sessions that are kept. Beyond them, those that would end first are forgotten.
const MOST: i64 = 10_000;

impl Store {
    /// The digests of the ended sessions, each with the time at which it would have ended by itself.
    pub fn ended_sessions(&self) -> Result<Vec<(String, Timestamp)>, Error> {
        self.read("the ended sessions", |connection| {
            let query = "SELECT substr(key, length(?1) + 1), CAST(value AS INTEGER) FROM meta
                WHERE substr(key, 1, length(?1)) = ?1";
            let mut statement = connection.prepare_cached(query)?;
            let rows = statement
                .query_map(params![PREFIX], |row| Ok((row.get(0)?, Timestamp(from_sql(row.get(1)?)))))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Keeps the digest of a session until the time at which it would have ended by itself.
    pub fn end_session(&self, digest: &str, end: Timestamp) -> Result<(), Error> {
        let (key, now) = (format!("{PREFIX}{digest}"), to_sql(self.clock.now().0));
        self.write_twice("an ended session", Durability::Power, |transaction| {
            let insert = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
            transaction.execute(insert, params![key, to_sql(end.0).to_string()])?;
            let delete = "DELETE FROM meta WHERE substr(key, 1, length(?1)) = ?1
                AND (CAST(value AS INTEGER) <= ?2 OR key NOT IN (
                    SELECT key FROM meta WHERE substr(key, 1, length(?1)) = ?1
                    ORDER BY CAST(value AS INTEGER) DESC LIMIT ?3))";
            transaction.execute(delete, params![PREFIX, now, MOST])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use driftless_clock::Clock;

    #[test]
    fn ended_sessions_are_kept_until_their_end() {
        let now = Timestamp(1_000_000);
        let store = Store::in_memory(Clock::starting_at(now)).unwrap();
        let later = now.after(Duration::from_mins(1));
        store.end_session("over", now).unwrap();
        assert_eq!(store.ended_sessions().unwrap(), []);
        store.end_session("a", later).unwrap();
        store.end_session("b", later).unwrap();
        let ended: Vec<String> =
            store.ended_sessions().unwrap().into_iter().map(|(digest, _)| digest).collect();
        assert_eq!(ended, ["a", "b"]);
    }
}
