//! Encryption of the rows that hold values of environment variables: stacks and records.
//!
//! A sealed row is a blob: one version byte, a nonce of 12 bytes, and AES-256-GCM-SIV (RFC 8452) over the JSON, whose random
//! nonces may repeat without harm. Table and row are authenticated with it, so that a row cannot take the place of another.
//! Rows of releases that did not encrypt are text; they are sealed when the database is opened. The key lies in a file of its
//! own, so that a copy of the database reveals nothing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use aws_lc_rs::{
    aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest, rand,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params, types::Value};

use crate::error::{BoxError, Error};
use driftless_model::{AppName, Pin};

const VERSION: u8 = 1;

/// Bytes of a generated key file, and the fewest that a key file may have.
pub(crate) const KEY_LENGTH: usize = 32;

/// Most bytes of a key file.
const LARGEST_KEY: u64 = 4096;

/// The sealed tables: each with the column that names the row, and the one that is sealed.
const TABLES: [(&str, &str, &str); 2] = [("stacks", "hash", "stack"), ("records", "app", "record")];

/// The key of the database.
pub(crate) struct Seal {
    key: LessSafeKey,
    /// Signs the sessions of browsers.
    session_key: [u8; 32],
    /// Tells whether another key has sealed the rows. It reveals nothing about the key.
    id: String,
    /// The key file was missing, and a new one was written.
    is_new: bool,
    /// A row could not be decrypted. The first one is a warning.
    has_warned: AtomicBool,
}

impl Seal {
    /// Reads the key file.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let bytes = read_key(path).map_err(|source| key_error(path, source))?;
        Self::of(&bytes, false).map_err(|source| key_error(path, io::Error::other(source)))
    }

    /// Reads the key file, or generates one (mode 0600) if it is missing.
    pub(crate) fn load_or_create(path: &Path) -> Result<Self, Error> {
        match read_key(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) | Err(_) => return Self::load(path),
        }
        let bytes = create_key(path).map_err(|source| key_error(path, source))?;
        Self::of(&bytes, true).map_err(|source| key_error(path, io::Error::other(source)))
    }

    /// A key that ends with the process, for a database in memory.
    pub(crate) fn in_memory() -> Result<Self, BoxError> {
        let mut bytes = [0; KEY_LENGTH];
        rand::fill(&mut bytes)?;
        Self::of(&bytes, true)
    }

    fn of(file: &[u8], is_new: bool) -> Result<Self, BoxError> {
        let digest = |prefix: &[u8]| digest::digest(&digest::SHA256, &[prefix, file].concat());
        let mut id = [0; 8];
        id.copy_from_slice(&digest(b"driftless database key id").as_ref()[..8]);
        let id = format!("{:016x}", u64::from_be_bytes(id));
        let key = UnboundKey::new(&AES_256_GCM_SIV, digest(b"driftless database key").as_ref())?;
        let mut session_key = [0; 32];
        session_key.copy_from_slice(digest(b"driftless session key").as_ref());
        let has_warned = AtomicBool::new(false);
        Ok(Self { key: LessSafeKey::new(key), session_key, id, is_new, has_warned })
    }

    /// A key that signs the sessions of browsers. It is derived from the key file, so that a copy of the database does not
    /// suffice to make one up.
    pub(crate) fn session_key(&self) -> [u8; 32] {
        self.session_key
    }

    /// Encrypts the JSON of a row.
    pub(crate) fn seal(&self, table: &str, row: &str, json: &str) -> Result<Vec<u8>, BoxError> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce)?;
        let mut data = json.as_bytes().to_vec();
        let sealing = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(sealing, Aad::from(format!("{table}/{row}")), &mut data)?;
        Ok([&[VERSION], &nonce[..], &data].concat())
    }

    /// The JSON of a row. `None`: it was sealed with another key, or is damaged.
    pub(crate) fn text(&self, table: &'static str, row: &str, stored: Value) -> Option<String> {
        let text = match stored {
            Value::Text(text) => Some(text),
            Value::Blob(sealed) => self.open(table, row, &sealed),
            Value::Null | Value::Integer(_) | Value::Real(_) => None,
        };
        if text.is_none() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                table,
                row,
                "a row of the database cannot be decrypted and is ignored; others are ignored without a message"
            );
        }
        text
    }

    /// Like [`Self::text`], without a message.
    pub(crate) fn open(&self, table: &str, row: &str, sealed: &[u8]) -> Option<String> {
        let (version, rest) = sealed.split_first()?;
        let (nonce, data) = rest.split_at_checked(NONCE_LEN)?;
        if *version != VERSION {
            return None;
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut data = data.to_vec();
        let plain = self.key.open_in_place(nonce, Aad::from(format!("{table}/{row}")), &mut data).ok()?;
        String::from_utf8(plain.to_vec()).ok()
    }
}

/// Encrypts the rows that an older release stored as text. Returns whether there were any.
pub(crate) fn seal_text_rows(transaction: &Transaction<'_>, seal: &Seal) -> Result<bool, BoxError> {
    let mut has_sealed = false;
    for (table, name, column) in TABLES {
        let mut names =
            transaction.prepare(&format!("SELECT {name} FROM {table} WHERE typeof({column}) = 'text'"))?;
        let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut select = transaction.prepare(&format!("SELECT {column} FROM {table} WHERE {name} = ?1"))?;
        let mut update =
            transaction.prepare(&format!("UPDATE {table} SET {column} = ?2 WHERE {name} = ?1"))?;
        for row in names {
            let json: String = select.query_row(params![row], |row| row.get(0))?;
            update.execute(params![row, seal.seal(table, &row, &json)?])?;
            has_sealed = true;
        }
    }
    Ok(has_sealed)
}

/// Whether a database has rows that this key has not sealed: the id of its key is another one.
pub(crate) fn has_other_key(connection: &Connection, seal: &Seal) -> Result<bool, BoxError> {
    let query = "SELECT value FROM meta WHERE key = 'key_id'";
    let stored: Option<String> = connection.query_row(query, [], |row| row.get(0)).optional()?;
    if let Some(stored) = stored {
        return Ok(stored != seal.id);
    }
    // The id may be lost with its table.
    let query = "SELECT 1 FROM stacks WHERE typeof(stack) = 'blob' LIMIT 1";
    Ok(seal.is_new && connection.prepare(query)?.exists([])?)
}

/// Whether a key file is the key of the database in a state directory, which an agent may use. A database of which the key is not
/// known has no other one.
///
/// # Errors
///
/// If the key file or the database cannot be read.
pub fn is_database_key(key_file: &Path, state_dir: &Path) -> Result<bool, Error> {
    let seal = Seal::load(key_file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let is_other = Connection::open_with_flags(state_dir.join("driftless.db"), flags)
        .map_err(BoxError::from)
        .and_then(|connection| has_other_key(&connection, &seal));
    is_other.map(|is_other| !is_other).map_err(|source| Error::Read { what: "the id of the key", source })
}

/// Stores the id of the key.
pub(crate) fn put_key_id(transaction: &Transaction<'_>, seal: &Seal) -> Result<(), BoxError> {
    let statement = "INSERT INTO meta (key, value) VALUES ('key_id', ?1) ON CONFLICT DO UPDATE SET value = excluded.value";
    transaction.execute(statement, params![seal.id])?;
    Ok(())
}

/// Whether a database is new: nothing was ever stored in it.
pub(crate) fn is_empty(connection: &Connection) -> Result<bool, BoxError> {
    let query = "SELECT 1 FROM meta WHERE key <> 'generation' UNION ALL SELECT 1 FROM stacks UNION ALL SELECT 1 FROM records";
    Ok(!connection.prepare(query)?.exists([])?)
}

/// Whether no file of the database holds a text of an older release any more.
pub(crate) fn is_clean(connection: &Connection) -> Result<bool, BoxError> {
    Ok(connection.prepare("SELECT 1 FROM meta WHERE key = 'all_encrypted'")?.exists([])?)
}

/// Stores that no file of the database holds a text of an older release any more.
pub(crate) fn put_clean(transaction: &Transaction<'_>) -> Result<(), BoxError> {
    transaction.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('all_encrypted', '1')", [])?;
    Ok(())
}

/// Whether the database knows the key.
pub(crate) fn has_key_id(connection: &Connection, seal: &Seal) -> Result<bool, BoxError> {
    let mut known = connection.prepare("SELECT 1 FROM meta WHERE key = 'key_id' AND value = ?1")?;
    Ok(known.exists(params![seal.id])?)
}

/// The pinned applications with a revision of which the stack cannot be decrypted.
pub(crate) fn pins_without_stack(connection: &Connection, seal: &Seal) -> Result<Vec<AppName>, BoxError> {
    let mut pins = connection.prepare("SELECT app, pin FROM pins ORDER BY app")?;
    let mut rows = pins.query([])?;
    let mut without = Vec::new();
    while let Some(row) = rows.next()? {
        let (app, text): (String, String) = (row.get(0)?, row.get(1)?);
        let app = AppName(app);
        // An unreadable pin is reported when it is used.
        let Ok(pin) = serde_json::from_str::<Pin>(&text) else { continue };
        let Ok(number) = i64::try_from(pin.revision) else { continue };
        if stack_text(connection, seal, &app, number)?.is_none() {
            without.push(app);
        }
    }
    Ok(without)
}

/// The JSON of the stack of a revision. `None`: there is none, or it cannot be decrypted.
pub(crate) fn stack_text(
    connection: &Connection,
    seal: &Seal,
    app: &AppName,
    number: i64,
) -> Result<Option<String>, BoxError> {
    let mut select = connection.prepare_cached(
        "SELECT stacks.hash, stacks.stack FROM revisions JOIN stacks ON stacks.hash = revisions.stack
         WHERE app = ?1 AND number = ?2",
    )?;
    let stored: Option<(String, Value)> =
        select.query_row(params![app.as_str(), number], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(stored.and_then(|(hash, stack)| seal.text("stacks", &hash, stack)))
}

fn key_error(path: &Path, source: io::Error) -> Error {
    Error::Directory { doing: "use the key of the database", path: path.to_owned(), source }
}

pub(crate) fn read_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_KEY + 1).read_to_end(&mut bytes)?;
    if bytes.len() < KEY_LENGTH || bytes.len() as u64 > LARGEST_KEY {
        let message = format!("it has {} bytes; a key has {KEY_LENGTH} to {LARGEST_KEY}", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// Writes a new key into another file and then renames it, so that no process finds half of it.
pub(crate) fn create_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; KEY_LENGTH];
    rand::fill(&mut bytes).map_err(io::Error::other)?;
    let new = path.with_extension("key-new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_row_opens_only_in_its_place_with_its_key() {
        let (seal, other) = (Seal::in_memory().unwrap(), Seal::in_memory().unwrap());
        let sealed = seal.seal("stacks", "a", "{\"x\":1}").unwrap();
        assert_eq!(seal.open("stacks", "a", &sealed).as_deref(), Some("{\"x\":1}"));
        assert_eq!(seal.open("stacks", "b", &sealed), None);
        assert_eq!(seal.open("records", "a", &sealed), None);
        assert_eq!(other.open("stacks", "a", &sealed), None);
        for length in 0..sealed.len() {
            assert_eq!(seal.open("stacks", "a", &sealed[..length]), None);
        }
        assert_ne!(
            seal.seal("stacks", "a", "{\"x\":1}").unwrap(),
            sealed,
            "every row has a nonce of its own"
        );
    }

    #[test]
    fn key_file_is_private_and_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database.key");
        let first = Seal::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = Seal::load_or_create(&path).unwrap();
        assert!(first.is_new && !second.is_new);
        let sealed = first.seal("records", "shop", "{}").unwrap();
        assert_eq!(second.open("records", "shop", &sealed).as_deref(), Some("{}"));
        fs::write(&path, "short").unwrap();
        assert!(Seal::load_or_create(&path).is_err(), "a damaged key is not replaced");
        assert!(Seal::load(&folder.path().join("missing")).is_err());
    }
}
