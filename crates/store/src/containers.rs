//! Containers as they were inspected, so that an agent that starts again need not inspect them all. It is in no backup:
//! losing it costs one inspection for each container.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, params};

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, to_sql},
};

const WHAT: &str = "the inspected containers";
const TABLE: &str = "containers";

/// Inspected containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InspectedContainers {
    /// The program and the engine that inspected them.
    pub context: String,
    /// The last event that they take into account.
    pub last_event: u64,
    /// By id, in JSON. It contains the values of environment variables and is stored encrypted.
    pub containers: BTreeMap<String, String>,
}

impl Store {
    /// The stored containers, without those that cannot be decrypted. `None`: none were ever stored.
    pub fn inspected_containers(&self) -> Result<Option<InspectedContainers>, Error> {
        self.read(WHAT, |connection| {
            let query = "SELECT context, last_event FROM known_containers";
            let known = connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((context, last_event)) = known else { return Ok(None) };
            let mut statement = connection.prepare_cached("SELECT id, container FROM containers")?;
            let mut rows = statement.query([])?;
            let mut containers = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let (id, sealed): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
                if let Some(json) = self.seal.open(TABLE, &id, &sealed) {
                    containers.insert(id, json);
                }
            }
            Ok(Some(InspectedContainers { context, last_event: from_sql(last_event), containers }))
        })
    }

    /// Stores containers in addition to those that are stored, in place of those with their ids. `gone` are forgotten, or
    /// all that are stored if it is `None`.
    pub fn store_inspected_containers(
        &self,
        changed: &InspectedContainers,
        gone: Option<&BTreeSet<String>>,
    ) -> Result<(), Error> {
        self.write(WHAT, Durability::Process, |transaction| {
            match gone {
                None => drop(transaction.execute("DELETE FROM containers", [])?),
                Some(gone) => {
                    let mut delete = transaction.prepare_cached("DELETE FROM containers WHERE id = ?1")?;
                    for id in gone {
                        delete.execute(params![id])?;
                    }
                }
            }
            let insert = "INSERT OR REPLACE INTO containers (id, container) VALUES (?1, ?2)";
            let mut insert = transaction.prepare_cached(insert)?;
            for (id, json) in &changed.containers {
                insert.execute(params![id, self.seal.seal(TABLE, id, json)?])?;
            }
            transaction.execute("DELETE FROM known_containers", [])?;
            let known = params![changed.context, to_sql(changed.last_event)];
            transaction
                .execute("INSERT INTO known_containers (context, last_event) VALUES (?1, ?2)", known)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;

    use super::*;

    #[test]
    fn inspected_containers_are_stored_encrypted() {
        let store = Store::in_memory(Clock::starting_at(driftless_model::Timestamp(1))).unwrap();
        assert_eq!(store.inspected_containers().unwrap(), None);
        let of = |last_event, ids: &[&str]| InspectedContainers {
            context: "engine".to_owned(),
            last_event,
            containers: ids.iter().map(|id| ((*id).to_owned(), format!("password of {id}"))).collect(),
        };
        store.store_inspected_containers(&of(1, &["a", "b", "c"]), None).unwrap();
        assert_eq!(store.inspected_containers().unwrap(), Some(of(1, &["a", "b", "c"])));
        store.store_inspected_containers(&of(2, &["d"]), Some(&["a".to_owned()].into())).unwrap();
        assert_eq!(store.inspected_containers().unwrap(), Some(of(2, &["b", "c", "d"])));
        let connection = store.connection();
        let clear = "SELECT count(*) FROM containers WHERE instr(container, 'password') > 0";
        assert_eq!(connection.query_row(clear, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        connection.execute("UPDATE containers SET container = x'010203' WHERE id = 'b'", []).unwrap();
        drop(connection);
        assert_eq!(
            store.inspected_containers().unwrap(),
            Some(of(2, &["c", "d"])),
            "a damaged one is left out"
        );
        store.store_inspected_containers(&of(3, &["e"]), None).unwrap();
        assert_eq!(store.inspected_containers().unwrap(), Some(of(3, &["e"])));
    }
}
