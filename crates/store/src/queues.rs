//! The queues in the database: entries that a task has yet to handle.

use driftless_model::{Delivery, Timestamp};
use rusqlite::OptionalExtension;

use crate::{
    error::Error,
    store::{Store, from_sql, readable},
};

/// The length of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLength {
    /// Such as `webhook_deliveries`.
    pub name: &'static str,
    /// The number of entries that wait.
    pub length: u64,
    /// When the oldest of them was made, if that is known. Not of notifications, some of which wait on purpose.
    pub oldest: Option<Timestamp>,
}

impl Store {
    /// The queues of all repositories together.
    pub fn queues(&self) -> Result<Vec<QueueLength>, Error> {
        self.read("the queues", |connection| {
            let count = |query: &str| -> Result<u64, rusqlite::Error> {
                let count: i64 = connection.prepare_cached(query)?.query_row([], |row| row.get(0))?;
                Ok(from_sql(count))
            };
            let deliveries = count("SELECT COUNT(*) FROM deliveries WHERE open = 1")?;
            let oldest: Option<String> = connection
                .prepare_cached("SELECT delivery FROM deliveries WHERE open = 1 ORDER BY sequence LIMIT 1")?
                .query_row([], |row| row.get(0))
                .optional()?;
            let oldest = oldest.and_then(|text| readable::<Delivery>("a delivery", &text));
            let notifications = count("SELECT COUNT(*) FROM notifications WHERE sent IS NULL")?;
            let statuses = count("SELECT COUNT(*) FROM statuses WHERE sent = 0")?;
            Ok(vec![
                QueueLength {
                    name: "webhook_deliveries",
                    length: deliveries,
                    oldest: oldest.map(|delivery| delivery.at),
                },
                QueueLength { name: "commit_statuses", length: statuses, oldest: None },
                QueueLength { name: "notifications", length: notifications, oldest: None },
            ])
        })
    }
}
