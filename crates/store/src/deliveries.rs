//! The inbox of webhooks: a delivery is on the disk before the forge is told that it was taken, and stays open
//! until the fetch that it rang for is over. It judges none.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Durability, Error, Source, Store, from_sql, readable, to_json, to_sql};
use driftless_model::{Delivery, DeliveryOutcome, Missed};

/// How many deliveries are kept for each repository, so that one that comes again is recognised.
const KEPT: i64 = 500;

impl Store {
    /// Keeps a delivery, as open. True when one with its id had been kept before; it is open again, as someone
    /// may have sent it anew for a reason.
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
            // Open ones too: one ring is as good as many.
            transaction
                .prepare_cached(
                    "DELETE FROM deliveries WHERE repository = ?1 AND sequence <= (SELECT sequence FROM \
                     deliveries WHERE repository = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)",
                )?
                .execute(params![repository, KEPT])?;
            Ok(seen > 0)
        })
    }

    /// The place of the newest delivery that is open, if one is.
    pub fn open_deliveries(&self, repository: &str) -> Result<Option<u64>, Error> {
        self.read("open deliveries", |connection| {
            let newest: Option<i64> = connection
                .prepare_cached("SELECT MAX(sequence) FROM deliveries WHERE repository = ?1 AND open = 1")?
                .query_row(params![repository], |row| row.get(0))?;
            Ok(newest.map(from_sql))
        })
    }

    /// How many are open.
    pub fn count_open_deliveries(&self, repository: &str) -> Result<u64, Error> {
        self.read("open deliveries", |connection| {
            let count: i64 = connection
                .prepare_cached("SELECT COUNT(*) FROM deliveries WHERE repository = ?1 AND open = 1")?
                .query_row(params![repository], |row| row.get(0))?;
            Ok(from_sql(count))
        })
    }

    /// What became of all deliveries up to a place. With `over` they are not open any more.
    pub fn settle_deliveries(
        &self,
        repository: &str,
        up_to: u64,
        outcome: &DeliveryOutcome,
        over: bool,
    ) -> Result<(), Error> {
        self.write("what became of deliveries", Durability::Process, |transaction| {
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
                    .execute(params![sequence, !over, text])?;
            }
            Ok(())
        })
    }

    /// The newest delivery that was taken.
    pub fn last_delivery(&self, repository: &str) -> Result<Option<Delivery>, Error> {
        self.read("the last delivery", |connection| {
            let text = select(
                connection,
                "SELECT delivery FROM deliveries WHERE repository = ?1 ORDER BY sequence DESC LIMIT 1",
                repository,
            )?;
            Ok(text.and_then(|it| readable("a delivery", &it)))
        })
    }

    /// The commit that no webhook announced, if the last one was such.
    pub fn missed(&self, repository: &str) -> Result<Option<Missed>, Error> {
        self.read("what webhooks missed", |connection| {
            let text = select(connection, "SELECT missed FROM missed WHERE repository = ?1", repository)?;
            Ok(text.and_then(|it| readable("what a webhook missed", &it)))
        })
    }

    pub fn set_missed(&self, repository: &str, missed: Option<&Missed>) -> Result<(), Error> {
        self.write("what a webhook missed", Durability::Process, |transaction| {
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

fn select(connection: &Connection, query: &str, repository: &str) -> Result<Option<String>, Source> {
    Ok(connection.prepare_cached(query)?.query_row(params![repository], |row| row.get(0)).optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;
    use driftless_model::{DeliveryResult, HookProvider, Timestamp};

    fn delivery(id: &str) -> Delivery {
        Delivery {
            id: id.to_owned(),
            at: Timestamp(1),
            provider: HookProvider::GitHub,
            event: "push".to_owned(),
            reference: None,
            commit: None,
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
        let place = store.open_deliveries("infra").unwrap().unwrap();
        assert!(!store.accept_delivery("infra", &delivery("b")).unwrap());
        store.settle_deliveries("infra", place, &outcome("no route"), false).unwrap();
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 2, "a fetch that failed closes none");
        store.settle_deliveries("infra", place, &outcome("fetched"), true).unwrap();
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
        assert_eq!(store.last_delivery("infra").unwrap().unwrap().outcome, None);
        let place = store.open_deliveries("infra").unwrap().unwrap();
        store.settle_deliveries("infra", place, &outcome("fetched"), true).unwrap();
        assert_eq!(store.open_deliveries("infra").unwrap(), None);
        assert_eq!(store.last_delivery("infra").unwrap().unwrap().outcome, Some(outcome("fetched")));
        assert_eq!(store.open_deliveries("other").unwrap(), None);
    }

    #[test]
    fn one_that_comes_again_is_recognised_and_open_again() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.accept_delivery("infra", &delivery("a")).unwrap();
        let place = store.open_deliveries("infra").unwrap().unwrap();
        assert!(store.accept_delivery("infra", &delivery("a")).unwrap());
        assert!(!store.accept_delivery("other", &delivery("a")).unwrap());
        store.settle_deliveries("infra", place, &outcome("fetched"), true).unwrap();
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 1, "it came after that fetch had begun");
    }

    #[test]
    fn no_more_are_kept_than_needed() {
        let store = Store::in_memory(Clock::System).unwrap();
        for number in 0..KEPT + 20 {
            store.accept_delivery("infra", &delivery(&number.to_string())).unwrap();
        }
        assert_eq!(store.count_open_deliveries("infra").unwrap(), from_sql(KEPT));
        assert_eq!(store.last_delivery("infra").unwrap().unwrap().id, (KEPT + 19).to_string());
    }

    #[test]
    fn what_was_missed_is_kept_until_it_is_taken_back() {
        let store = Store::in_memory(Clock::System).unwrap();
        let missed = Missed { commit: "a".repeat(40), at: Timestamp(7) };
        store.set_missed("infra", Some(&missed)).unwrap();
        assert_eq!(store.missed("infra").unwrap(), Some(missed));
        store.set_missed("infra", None).unwrap();
        assert_eq!(store.missed("infra").unwrap(), None);
    }
}
