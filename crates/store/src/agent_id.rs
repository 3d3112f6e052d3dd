//! The agent's id. It is in the labels of everything that the agent creates, so that an agent without its id would not
//! know its own containers. It is stored twice: in the database and in the file `agent-id`.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    database,
    error::{BoxError, Durability, Error},
    state_dir::BACKUP,
    store::{OtherAgent, Store},
};
use driftless_model::AgentId;

impl Store {
    /// The agent's id: 128 random bits in hexadecimal, generated once for each state directory. If one of the two copies is
    /// lost, it is restored from the other.
    ///
    /// # Errors
    ///
    /// If the database or the file cannot be read or written.
    pub fn agent_id(&self) -> Result<AgentId, Error> {
        let (stored, mirrored) = self.known_id()?;
        let id = match (stored.clone(), mirrored.clone()) {
            (Some(id), _) | (None, Some(id)) => id,
            (None, None) => random_id().map_err(|source| Error::Directory {
                doing: "read random numbers from",
                path: URANDOM.into(),
                source,
            })?,
        };
        // The file first: if the process ends in between, the next one takes the id from it.
        if let Some(file) = &self.agent_id_file
            && mirrored.as_deref() != Some(&id)
        {
            write_id(file, &id).map_err(|source| Error::Directory {
                doing: "write the agent's id to",
                path: file.clone(),
                source,
            })?;
        }
        if stored.is_none() {
            self.write_twice("the agent's id", Durability::Power, |transaction| {
                transaction.execute("INSERT INTO meta (key, value) VALUES ('agent_id', ?1)", params![id])?;
                Ok(())
            })?;
        }
        Ok(AgentId(id))
    }

    /// Whether the state directory has an id, so that [`Self::agent_id`] will not generate one.
    ///
    /// # Errors
    ///
    /// If the database or the file cannot be read.
    pub fn has_agent_id(&self) -> Result<bool, Error> {
        let (stored, mirrored) = self.known_id()?;
        Ok(stored.is_some() || mirrored.is_some())
    }

    /// The id in the database, and the one in the file.
    fn known_id(&self) -> Result<(Option<String>, Option<String>), Error> {
        let stored = self.read("the agent's id", |connection| {
            Ok(connection
                .query_row("SELECT value FROM meta WHERE key = 'agent_id'", [], |row| row.get(0))
                .optional()?)
        })?;
        let mirrored = match &self.agent_id_file {
            Some(file) => read_id(file)?,
            None => None,
        };
        Ok((stored, mirrored))
    }
}

impl Store {
    /// The other agents that were stored as such.
    pub fn other_agents(&self, kind: OtherAgent) -> Result<BTreeSet<AgentId>, Error> {
        self.read("the other agents", |connection| read_others(connection, kind))
    }

    /// Stores what is known of another agent, in place of what was known before.
    pub fn set_other_agent(&self, agent: &AgentId, kind: OtherAgent) -> Result<(), Error> {
        self.write_twice("another agent", Durability::Power, |transaction| {
            for kind in [OtherAgent::Former, OtherAgent::Living] {
                let key = format!("{}{agent}", key_of(kind));
                transaction.execute("DELETE FROM meta WHERE key = ?1", params![key])?;
            }
            let key = format!("{}{agent}", key_of(kind));
            transaction.execute("INSERT INTO meta (key, value) VALUES (?1, '')", params![key])?;
            Ok(())
        })
    }
}

impl Store {
    /// Whether the agent was refused its own id, because another agent with it lives, and was not granted it since.
    pub fn is_own_id_refused(&self) -> Result<bool, Error> {
        self.read("whether the agent's id was refused", |connection| {
            let query = "SELECT 1 FROM meta WHERE key = 'own_id_refused'";
            Ok(connection.prepare_cached(query)?.exists([])?)
        })
    }

    /// Stores whether the agent was refused its own id.
    pub fn set_own_id_refused(&self, is_refused: bool) -> Result<(), Error> {
        if self.is_own_id_refused()? == is_refused {
            return Ok(());
        }
        self.write_twice("whether the agent's id was refused", Durability::Power, |transaction| {
            let statement = if is_refused {
                "INSERT OR IGNORE INTO meta (key, value) VALUES ('own_id_refused', '1')"
            } else {
                "DELETE FROM meta WHERE key = 'own_id_refused'"
            };
            transaction.execute(statement, [])?;
            Ok(())
        })
    }
}

/// The agents whose containers the agent of a state directory has taken over, for another process. None if they cannot be read.
///
/// They are read from the backup: unlike the database it has no log, for which a reader would create files.
pub fn former_agents(state_dir: &Path) -> BTreeSet<AgentId> {
    let backup = database::look_into_backup(&state_dir.join(BACKUP));
    let former = backup.map_err(BoxError::from).and_then(|it| read_others(&it, OtherAgent::Former));
    former.unwrap_or_default()
}

fn read_others(connection: &Connection, kind: OtherAgent) -> Result<BTreeSet<AgentId>, BoxError> {
    let query = "SELECT substr(key, length(?1) + 1) FROM meta WHERE substr(key, 1, length(?1)) = ?1";
    let mut statement = connection.prepare_cached(query)?;
    let ids = statement.query_map(params![key_of(kind)], |row| row.get(0))?;
    Ok(ids.map(|id| id.map(AgentId)).collect::<Result<_, _>>()?)
}

/// The beginning of the key in the table `meta`.
fn key_of(kind: OtherAgent) -> &'static str {
    match kind {
        OtherAgent::Former => "former_agent:",
        OtherAgent::Living => "living_agent:",
    }
}

const URANDOM: &str = "/dev/urandom";

/// The id in a file. A file without a valid id counts as missing.
fn read_id(file: &Path) -> Result<Option<String>, Error> {
    match fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            Ok(is_id.then_some(text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => {
            Err(Error::Directory { doing: "read the agent's id from", path: file.to_owned(), source })
        }
    }
}

fn write_id(file: &Path, id: &str) -> io::Result<()> {
    let temporary = file.with_extension("new");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    writeln!(out, "{id}")?;
    out.sync_all()?;
    fs::rename(&temporary, file)?;
    match file.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open(URANDOM)?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
