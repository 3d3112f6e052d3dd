//! The values of each application: its record, its pin, its suspension and its repository.

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use crate::{
    error::{BoxError, Durability, Error},
    store::{KnownApplication, Store, Suspension, from_json, readable, to_json, to_sql},
};
use driftless_model::{AppName, Pin, Record};

/// The tables with what the agent remembers of an application that Git has.
const APPLICATION_TABLES: [&str; 4] = ["applications", "records", "pins", "suspensions"];

impl Store {
    /// The record of an application. It is empty if there is none or if it is unreadable.
    pub fn record(&self, app: &AppName) -> Result<Record, Error> {
        self.read("a record", |connection| {
            let text = self.record_text(connection, app)?;
            Ok(text.and_then(|text| readable("a record", &text)).unwrap_or_default())
        })
    }

    fn record_text(&self, connection: &Connection, app: &AppName) -> Result<Option<String>, BoxError> {
        let mut select = connection.prepare_cached("SELECT record FROM records WHERE app = ?1")?;
        let stored = select.query_row(params![app.as_str()], |row| row.get(0)).optional()?;
        Ok(stored.and_then(|stored| self.seal.text("records", app.as_str(), stored)))
    }

    /// Writes a record if it differs from the stored one, so that a round without changes costs no write.
    pub fn save_record(&self, app: &AppName, record: &Record) -> Result<(), Error> {
        let text = encode("a record", record)?;
        let stored = self.read("a record", |connection| self.record_text(connection, app))?;
        if stored.as_ref() == Some(&text) {
            return Ok(());
        }
        self.write("a record", Durability::Process, |transaction| {
            let sealed = self.seal.seal("records", app.as_str(), &text)?;
            let statement = "INSERT INTO records (app, record) VALUES (?1, ?2)
                             ON CONFLICT DO UPDATE SET record = excluded.record";
            transaction.prepare_cached(statement)?.execute(params![app.as_str(), sealed])?;
            Ok(())
        })
    }

    /// The pin of an application, if it is pinned.
    pub fn pin(&self, app: &AppName) -> Result<Option<Pin>, Error> {
        self.read("a pin", |connection| {
            let text = one(connection, "SELECT pin FROM pins WHERE app = ?1", app.as_str())?;
            text.as_deref().map(from_json).transpose()
        })
    }

    /// Pins an application. An existing pin is replaced.
    pub fn set_pin(&self, app: &AppName, pin: &Pin) -> Result<(), Error> {
        let text = encode("a pin", pin)?;
        self.put_twice(
            "a pin",
            Durability::Power,
            "INSERT INTO pins (app, pin) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET pin = excluded.pin",
            app.as_str(),
            &text,
        )
    }

    /// Ends the pin of an application.
    pub fn clear_pin(&self, app: &AppName) -> Result<(), Error> {
        self.delete("a pin", "DELETE FROM pins WHERE app = ?1", app)
    }

    /// Whether a user has suspended an application with [`Store::set_suspended`]. The configuration can suspend it, too.
    pub fn suspended(&self, app: &AppName) -> Result<bool, Error> {
        self.read("a suspension", |connection| {
            let mut statement = connection.prepare_cached("SELECT 1 FROM suspensions WHERE app = ?1")?;
            Ok(statement.exists(params![app.as_str()])?)
        })
    }

    /// Suspends an application, or ends its suspension.
    pub fn set_suspended(&self, app: &AppName, suspension: Suspension) -> Result<(), Error> {
        match suspension {
            Suspension::Active => self.delete("a suspension", "DELETE FROM suspensions WHERE app = ?1", app),
            Suspension::Suspended => {
                let now = to_sql(self.clock.now().0);
                self.write_twice("a suspension", Durability::Power, |transaction| {
                    let mut statement = transaction
                        .prepare_cached("INSERT OR IGNORE INTO suspensions (app, at) VALUES (?1, ?2)")?;
                    statement.execute(params![app.as_str(), now])?;
                    Ok(())
                })
            }
        }
    }

    /// Stores the repository of an application, so that the agent notices when the application leaves Git.
    pub fn remember_application(
        &self,
        app: &AppName,
        spec: &serde_json::Value,
        repository: &str,
    ) -> Result<(), Error> {
        let text = encode("an application", spec)?;
        let known = self.read("an application", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT 1 FROM applications WHERE app = ?1 AND repository = ?2 AND spec = ?3",
            )?;
            Ok(statement.exists(params![app.as_str(), repository, text])?)
        })?;
        if known {
            return Ok(());
        }
        self.write_twice("an application", Durability::Process, |transaction| {
            transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO applications (app, repository, spec) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![app.as_str(), repository, text])?;
            Ok(())
        })
    }

    /// Removes an application with its record, pin and suspension, and returns whether there was anything to remove. Its
    /// revisions and events stay, and so does the count of its revisions: if it comes back, no number is used twice. Revisions of
    /// applications that were removed long ago go.
    pub fn forget_application(&self, app: &AppName) -> Result<bool, Error> {
        // The rounds of an application that is gone come here again, and must not write each time.
        let is_known = self.read("an application", |connection| {
            for table in APPLICATION_TABLES {
                let query = format!("SELECT 1 FROM {table} WHERE app = ?1");
                if connection.prepare_cached(&query)?.exists(params![app.as_str()])? {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        if !is_known {
            return Ok(false);
        }
        self.write_twice("an application", Durability::Power, |transaction| {
            for table in APPLICATION_TABLES {
                transaction.execute(&format!("DELETE FROM {table} WHERE app = ?1"), params![app.as_str()])?;
            }
            Ok(())
        })?;
        // The next removal tries it again.
        let removed = self.remove_former_revisions().and_then(|()| self.remove_former_events());
        if let Err(error) = removed {
            tracing::warn!(%error, "could not remove the revisions and events of former applications");
        }
        Ok(true)
    }

    /// The applications that were stored and not removed, by name.
    pub fn known_applications(&self) -> Result<Vec<KnownApplication>, Error> {
        self.read("the applications", |connection| {
            let mut statement =
                connection.prepare_cached("SELECT app, repository, spec FROM applications ORDER BY app")?;
            let mut rows = statement.query([])?;
            let mut known = Vec::new();
            while let Some(row) = rows.next()? {
                let spec: String = row.get(2)?;
                known.push(KnownApplication {
                    app: AppName(row.get(0)?),
                    repository: row.get(1)?,
                    spec: from_json(&spec)?,
                });
            }
            Ok(known)
        })
    }

    /// The applications that were deployed and not removed, by name.
    pub fn deployed_applications(&self) -> Result<Vec<AppName>, Error> {
        self.read("the deployed applications", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT app FROM applications WHERE app IN (SELECT app FROM revisions) ORDER BY app",
            )?;
            let rows = statement.query_map([], |row| Ok(AppName(row.get(0)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    pub(crate) fn put(
        &self,
        what: &'static str,
        durability: Durability,
        statement: &str,
        key: &str,
        value: &str,
    ) -> Result<(), Error> {
        self.write(what, durability, |transaction| {
            transaction.prepare_cached(statement)?.execute(params![key, value])?;
            Ok(())
        })
    }

    /// Writes a value that the backup holds too.
    fn put_twice(
        &self,
        what: &'static str,
        durability: Durability,
        statement: &str,
        key: &str,
        value: &str,
    ) -> Result<(), Error> {
        self.write_twice(what, durability, |transaction| {
            transaction.prepare_cached(statement)?.execute(params![key, value])?;
            Ok(())
        })
    }

    fn delete(&self, what: &'static str, statement: &str, app: &AppName) -> Result<(), Error> {
        self.write_twice(what, Durability::Power, |transaction| {
            transaction.prepare_cached(statement)?.execute(params![app.as_str()])?;
            Ok(())
        })
    }
}

fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<String, Error> {
    to_json(value).map_err(|source| Error::Write { what, source })
}

pub(crate) fn one(connection: &Connection, query: &str, key: &str) -> Result<Option<String>, BoxError> {
    Ok(connection.prepare_cached(query)?.query_row(params![key], |row| row.get(0)).optional()?)
}
