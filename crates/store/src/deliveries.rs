//! The deliveries of webhooks. A delivery is on the disk before the forge gets its answer, and stays open until the fetch
//! that it asks for has ended.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    error::{BoxError, Durability, Error},
    store::{Store, from_sql, readable, to_json, to_sql},
};
use driftless_model::{Delivery, DeliveryOutcome, Missed};

/// The number of deliveries that are kept for each repository, to recognise one that is sent twice.
const MAX_DELIVERIES: i64 = 500;

/// Whether a fetch has answered a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// A later fetch will.
    Open,
    /// The fetch has ended.
    Closed,
}

impl Store {
    /// Stores a delivery as open. True: a delivery with this id is stored already; it is open again, since a user may have
    /// sent it again on purpose.
    pub fn accept_delivery(&self, repository: &str, delivery: &Delivery) -> Result<bool, Error> {
        self.write("a delivery", Durability::Power, |transaction| {
            let seen = transaction
                .prepare_cached("DELETE FROM deliveries WHERE repository = ?1 AND id = ?2")?
                .execute(params![repository, delivery.id])?;
            transaction
                .prepare_cached(
                    "INSERT INTO deliveries (repository, id, open, delivery) VALUES (?1, ?2, 1, ?3)",
                )?
                .execute(params![repository, delivery.id, to_json(delivery)?])?;
            // Open ones, too: one fetch answers all of them.
            transaction
                .prepare_cached(
                    "DELETE FROM deliveries WHERE repository = ?1 AND sequence <= (SELECT sequence FROM \
                     deliveries WHERE repository = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)",
                )?
                .execute(params![repository, MAX_DELIVERIES])?;
            Ok(seen > 0)
        })
    }

    /// The number of the newest open delivery.
    pub fn newest_open_delivery(&self, repository: &str) -> Result<Option<u64>, Error> {
        self.read("the webhook deliveries", |connection| {
            let newest: Option<i64> = connection
                .prepare_cached("SELECT MAX(sequence) FROM deliveries WHERE repository = ?1 AND open = 1")?
                .query_row(params![repository], |row| row.get(0))?;
            Ok(newest.map(from_sql))
        })
    }

    /// The number of open deliveries.
    pub fn count_open_deliveries(&self, repository: &str) -> Result<u64, Error> {
        self.read("the webhook deliveries", |connection| {
            let count: i64 = connection
                .prepare_cached("SELECT COUNT(*) FROM deliveries WHERE repository = ?1 AND open = 1")?
                .query_row(params![repository], |row| row.get(0))?;
            Ok(from_sql(count))
        })
    }

    /// Stores the outcome of all open deliveries up to a number.
    pub fn set_delivery_outcome(
        &self,
        repository: &str,
        up_to: u64,
        outcome: &DeliveryOutcome,
        state: DeliveryState,
    ) -> Result<(), Error> {
        self.write("the outcome of a webhook delivery", Durability::Process, |transaction| {
            let open: Vec<(i64, String)> = transaction
                .prepare_cached(
                    "SELECT sequence, delivery FROM deliveries WHERE repository = ?1 AND open = 1 AND \
                     sequence <= ?2",
                )?
                .query_map(params![repository, to_sql(up_to)], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            for (sequence, text) in open {
                let text = match readable::<Delivery>("a delivery", &text) {
                    Some(delivery) => to_json(&Delivery { outcome: Some(outcome.clone()), ..delivery })?,
                    None => text,
                };
                transaction
                    .prepare_cached("UPDATE deliveries SET open = ?2, delivery = ?3 WHERE sequence = ?1")?
                    .execute(params![sequence, state == DeliveryState::Open, text])?;
            }
            Ok(())
        })
    }

    /// Closes the open deliveries of all repositories but these, with an outcome.
    pub fn close_other_deliveries(
        &self,
        repositories: &BTreeSet<&str>,
        outcome: &DeliveryOutcome,
    ) -> Result<(), Error> {
        let open: Vec<String> = self.read("the webhook deliveries", |connection| {
            let open = connection
                .prepare_cached("SELECT DISTINCT repository FROM deliveries WHERE open = 1")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(open)
        })?;
        for repository in open.iter().filter(|name| !repositories.contains(name.as_str())) {
            self.set_delivery_outcome(repository, u64::MAX, outcome, DeliveryState::Closed)?;
        }
        Ok(())
    }

    /// The newest delivery.
    pub fn last_delivery(&self, repository: &str) -> Result<Option<Delivery>, Error> {
        self.read("the webhook deliveries", |connection| {
            let text = select(
                connection,
                "SELECT delivery FROM deliveries WHERE repository = ?1 ORDER BY sequence DESC LIMIT 1",
                repository,
            )?;
            Ok(text.and_then(|it| readable("a delivery", &it)))
        })
    }

    /// The newest deliveries, newest first, at most this many.
    pub fn recent_deliveries(&self, repository: &str, limit: u64) -> Result<Vec<Delivery>, Error> {
        self.read("the webhook deliveries", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT delivery FROM deliveries WHERE repository = ?1 ORDER BY sequence DESC LIMIT ?2",
            )?;
            let texts =
                statement.query_map(params![repository, to_sql(limit)], |row| row.get::<_, String>(0))?;
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            Ok(texts.iter().filter_map(|text| readable("a delivery", text)).collect())
        })
    }

    /// The last commit that no delivery has announced, until the next delivery.
    pub fn missed(&self, repository: &str) -> Result<Option<Missed>, Error> {
        self.read("the missed webhook deliveries", |connection| {
            let text = select(connection, "SELECT missed FROM missed WHERE repository = ?1", repository)?;
            Ok(text.and_then(|it| readable("the missed webhook deliveries", &it)))
        })
    }

    /// Stores the last commit that no delivery has announced.
    pub fn set_missed(&self, repository: &str, missed: Option<&Missed>) -> Result<(), Error> {
        self.write("the missed webhook deliveries", Durability::Process, |transaction| {
            match missed {
                None => transaction
                    .prepare_cached("DELETE FROM missed WHERE repository = ?1")?
                    .execute(params![repository])?,
                Some(missed) => transaction
                    .prepare_cached("INSERT OR REPLACE INTO missed (repository, missed) VALUES (?1, ?2)")?
                    .execute(params![repository, to_json(missed)?])?,
            };
            Ok(())
        })
    }
}

fn select(connection: &Connection, query: &str, repository: &str) -> Result<Option<String>, BoxError> {
    Ok(connection.prepare_cached(query)?.query_row(params![repository], |row| row.get(0)).optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;
    use driftless_model::{CommitId, DeliveryResult, Timestamp, WebhookProvider};

    fn delivery(id: &str) -> Delivery {
        Delivery {
            id: id.to_owned(),
            at: Timestamp(1),
            provider: WebhookProvider::GitHub,
            event: "push".to_owned(),
            reference: None,
            commit: None,
            maybe_other_branch: false,
            from: "192.0.2.1".to_owned(),
            result: DeliveryResult::Accepted,
            message: String::new(),
            outcome: None,
        }
    }

    fn outcome(message: &str) -> DeliveryOutcome {
        DeliveryOutcome { at: Timestamp(2), message: message.to_owned() }
    }

    #[test]
    fn delivery_stays_open_until_its_own_fetch_ends() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(!store.accept_delivery("infra", &delivery("a")).unwrap());
        let newest = store.newest_open_delivery("infra").unwrap().unwrap();
        assert!(!store.accept_delivery("infra", &delivery("b")).unwrap());
        store.set_delivery_outcome("infra", newest, &outcome("no route"), DeliveryState::Open).unwrap();
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 2, "a fetch that failed closes none");
        store.set_delivery_outcome("infra", newest, &outcome("fetched"), DeliveryState::Closed).unwrap();
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
        assert_eq!(store.last_delivery("infra").unwrap().unwrap().outcome, None);
        let newest = store.newest_open_delivery("infra").unwrap().unwrap();
        store.set_delivery_outcome("infra", newest, &outcome("fetched"), DeliveryState::Closed).unwrap();
        assert_eq!(store.newest_open_delivery("infra").unwrap(), None);
        assert_eq!(store.last_delivery("infra").unwrap().unwrap().outcome, Some(outcome("fetched")));
        assert_eq!(store.newest_open_delivery("other").unwrap(), None);
    }

    #[test]
    fn repeated_delivery_is_recognised_and_open_again() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.accept_delivery("infra", &delivery("a")).unwrap();
        let newest = store.newest_open_delivery("infra").unwrap().unwrap();
        assert!(store.accept_delivery("infra", &delivery("a")).unwrap());
        assert!(!store.accept_delivery("other", &delivery("a")).unwrap());
        store.set_delivery_outcome("infra", newest, &outcome("fetched"), DeliveryState::Closed).unwrap();
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 1, "it came after that fetch had begun");
    }

    #[test]
    fn old_deliveries_are_removed() {
        let store = Store::in_memory(Clock::System).unwrap();
        for number in 0..MAX_DELIVERIES + 20 {
            store.accept_delivery("infra", &delivery(&number.to_string())).unwrap();
        }
        assert_eq!(store.count_open_deliveries("infra").unwrap(), from_sql(MAX_DELIVERIES));
        assert_eq!(store.last_delivery("infra").unwrap().unwrap().id, (MAX_DELIVERIES + 19).to_string());
        let recent = store.recent_deliveries("infra", 2).unwrap();
        let recent: Vec<_> = recent.into_iter().map(|delivery| delivery.id).collect();
        assert_eq!(recent, [MAX_DELIVERIES + 19, MAX_DELIVERIES + 18].map(|number| number.to_string()));
        assert!(store.recent_deliveries("other", 2).unwrap().is_empty());
    }

    #[test]
    fn missed_commit_is_stored_until_it_is_removed() {
        let store = Store::in_memory(Clock::System).unwrap();
        let missed = Missed { commit: CommitId::from_stored("a".repeat(40)), at: Timestamp(7) };
        store.set_missed("infra", Some(&missed)).unwrap();
        assert_eq!(store.missed("infra").unwrap(), Some(missed));
        store.set_missed("infra", None).unwrap();
        assert_eq!(store.missed("infra").unwrap(), None);
    }
}
