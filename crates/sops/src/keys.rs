//! Secret keys of the agent: age identities, SSH keys and OpenPGP keys.

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use age::{Decryptor, Identity, IdentityFile, armor::ArmoredReader, ssh};
use pgp::composed::{Deserializable, Message, SignedSecretKey};
use sha2::{Digest, Sha256};

use super::{Error, cipher::DataKey, metadata::Metadata};

/// Largest key file in bytes.
const MAX_KEY_FILE: u64 = 1024 * 1024;

/// Largest decrypted data key in bytes. One has 32.
const MAX_DATA_KEY: u64 = 1024;
/// Largest plain text of an age file in bytes.
const MAX_PLAIN: u64 = 64 * 1024 * 1024;

const AGE_BINARY: &[u8] = b"age-encryption.org/v1\n";
const AGE_ARMOR: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";

const PGP_BEGIN: &str = "-----BEGIN PGP PRIVATE KEY BLOCK-----";
const PGP_END: &str = "-----END PGP PRIVATE KEY BLOCK-----";

/// Secret keys in memory. Their `Debug` shows their number only.
#[derive(Clone, Default)]
pub struct Keys {
    identities: Vec<Arc<dyn Identity + Send + Sync>>,
    pgp: Vec<Arc<SignedSecretKey>>,
    fingerprint: String,
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("could not read the key file {path}: {source}")]
    Read {
        /// Of the key file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file holds no usable key.
    #[error("the key file {path} has no usable key: {message}")]
    Invalid {
        /// Of the key file.
        path: PathBuf,
        /// The cause, without content of the file.
        message: String,
    },
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} age, {} OpenPGP)", self.identities.len(), self.pgp.len())
    }
}

impl Keys {
    /// Reads files that hold secret keys: age identities (`age-keygen`), SSH private keys without passphrase, and
    /// armored OpenPGP secret keys without passphrase.
    pub fn load(files: &[PathBuf]) -> Result<Self, KeyError> {
        let mut keys = Self::default();
        let mut hash = Sha256::new();
        for path in files {
            let bytes = read(path)?;
            hash.update(Sha256::digest(&bytes));
            keys.add(&bytes).map_err(|message| KeyError::Invalid { path: path.clone(), message })?;
        }
        keys.fingerprint =
            hash.finalize().iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        Ok(keys)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty() && self.pgp.is_empty()
    }

    /// Changes with the keys; reveals nothing about them.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not a text".to_owned())?;
        if text.contains(PGP_BEGIN) {
            self.pgp.extend(pgp_keys(text)?);
            return Ok(());
        }
        if text.contains("PRIVATE KEY-----") {
            let identity = ssh::Identity::from_buffer(bytes, None).map_err(|error| error.to_string())?;
            return match identity {
                ssh::Identity::Unencrypted(_) => {
                    self.identities.push(Arc::new(identity));
                    Ok(())
                }
                ssh::Identity::Encrypted(_) => Err("it needs a passphrase; use a key without one".to_owned()),
                ssh::Identity::Unsupported(_) => {
                    Err("this type of SSH key is not supported; use Ed25519 or RSA".to_owned())
                }
            };
        }
        let identities = IdentityFile::from_buffer(bytes).map_err(|error| error.to_string())?;
        let identities = identities.into_identities().map_err(|error| error.to_string())?;
        if identities.is_empty() {
            return Err("it holds neither an age identity nor an SSH or OpenPGP private key".to_owned());
        }
        self.identities.extend(identities.into_iter().map(Arc::from));
        Ok(())
    }

    /// The data key of a SOPS file, opened with the first key that fits.
    pub(super) fn data_key(&self, metadata: &Metadata) -> Result<DataKey, Error> {
        if metadata.services.contains(&"key groups") {
            return Err(Error::Unsupported("key groups (shares of several keys)".to_owned()));
        }
        let by_age = metadata.age.iter().find_map(|(_, key)| self.open_age(key.as_bytes()).ok());
        let mut unreadable = None;
        let by_pgp = |(_, key): &(String, String)| {
            self.open_pgp(key).unwrap_or_else(|message| {
                unreadable = Some(message);
                None
            })
        };
        let found = by_age.or_else(|| metadata.pgp.iter().find_map(by_pgp));
        if let (None, Some(message)) = (&found, unreadable) {
            return Err(Error::Malformed(format!(
                "the OpenPGP message with its data key cannot be read: {message}"
            )));
        }
        match found.map(DataKey::try_from) {
            Some(Ok(key)) => Ok(key),
            Some(Err(_)) => Err(Error::Malformed("its data key has not 32 bytes".to_owned())),
            None if metadata.age.is_empty() && metadata.pgp.is_empty() && !metadata.services.is_empty() => {
                Err(Error::Unsupported(metadata.services.join(" and ")))
            }
            None => Err(Error::NoKey { recipients: metadata.recipients() }),
        }
    }

    /// The content of a whole file encrypted with age.
    pub(super) fn open_age_file(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        self.open_age(bytes).map_err(|error| match error {
            Some(message) => Error::Malformed(message),
            None => Error::NoKey { recipients: "age recipients that the file does not name".to_owned() },
        })
    }

    /// Opens an age file. The error is `None` where no identity fits.
    fn open_age(&self, bytes: &[u8]) -> Result<Vec<u8>, Option<String>> {
        let decryptor = Decryptor::new(ArmoredReader::new(bytes)).map_err(|error| Some(error.to_string()))?;
        let identities = self.identities.iter().map(|identity| &**identity as &dyn Identity);
        let reader = decryptor.decrypt(identities).map_err(|error| match error {
            age::DecryptError::NoMatchingKeys => None,
            other => Some(other.to_string()),
        })?;
        let mut plain = Vec::new();
        reader.take(MAX_PLAIN + 1).read_to_end(&mut plain).map_err(|error| Some(error.to_string()))?;
        if plain.len() as u64 > MAX_PLAIN {
            return Err(Some(format!("it has more than {MAX_PLAIN} bytes")));
        }
        Ok(plain)
    }

    /// Opens an armored OpenPGP message. `None`: it is for another key.
    fn open_pgp(&self, armored: &str) -> Result<Option<Vec<u8>>, String> {
        let text = |error: pgp::errors::Error| error.to_string();
        for key in &self.pgp {
            let (message, _) = Message::from_string(armored).map_err(text)?;
            let message = match message.decrypt(&"".into(), key) {
                Err(pgp::errors::Error::MissingKey) => continue,
                other => other.map_err(text)?,
            };
            let message = if message.is_compressed() { message.decompress().map_err(text)? } else { message };
            let mut plain = Vec::new();
            // Compressed bytes may stand for any number of others.
            message.take(MAX_DATA_KEY + 1).read_to_end(&mut plain).map_err(|error| error.to_string())?;
            if plain.len() as u64 > MAX_DATA_KEY {
                return Err(format!("the data key has more than {MAX_DATA_KEY} bytes"));
            }
            return Ok(Some(plain));
        }
        Ok(None)
    }
}

/// The armored OpenPGP secret keys in a text. `gpg --export-secret-keys` writes several keys into one block, and files
/// may have several blocks.
fn pgp_keys(text: &str) -> Result<Vec<Arc<SignedSecretKey>>, String> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices(PGP_BEGIN) {
        let block = &text[start..];
        let end = block.find(PGP_END).ok_or("an OpenPGP key has no end")? + PGP_END.len();
        let (keys, _) =
            SignedSecretKey::from_string_many(&block[..end]).map_err(|error| error.to_string())?;
        for key in keys {
            found.push(Arc::new(key.map_err(|error| error.to_string())?));
        }
    }
    Ok(found)
}

/// Whether a file is encrypted with age.
pub(super) fn is_age_file(bytes: &[u8]) -> bool {
    bytes.starts_with(AGE_BINARY) || bytes.trim_ascii_start().starts_with(AGE_ARMOR)
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_KEY_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_KEY_FILE {
        let message = format!("it has more than {MAX_KEY_FILE} bytes");
        return Err(KeyError::Invalid { path: path.to_owned(), message });
    }
    Ok(bytes)
}
