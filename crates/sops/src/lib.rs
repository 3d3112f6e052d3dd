//! Files that SOPS or age encrypted, read in memory.
//!
//! [`decrypt()`] takes the bytes of a file and gives the text that was encrypted. Supported are the forms that SOPS 3
//! writes (YAML, JSON, dotenv, INI and binary) and whole files encrypted with age (binary or armored). A file that is
//! not encrypted is returned as [`None`].
//!
//! The data key of a SOPS file is opened with an age identity (X25519 or an SSH key) or with an OpenPGP secret key.
//! Every value is authenticated by AES-256-GCM with its path, and the whole file by SOPS' MAC. Key groups (Shamir
//! shares) and key services (AWS KMS, Google Cloud KMS, Azure Key Vault, `HashiCorp` Vault) are refused by name.
//!
//! Decrypted YAML and JSON keep the lines and columns of the encrypted file up to the first value in a line, so
//! findings point to the right place.
//!
//! [`DecryptedFiles`] wraps the files of a commit: all readers get the decrypted content.
//!
//! ```
//! use driftless_sops::{Keys, decrypt};
//!
//! assert_eq!(decrypt("app/.env", b"GREETING=hello\n", &Keys::default()), Ok(None));
//!
//! let truncated = b"age-encryption.org/v1\n";
//! assert!(decrypt("app/token.age", truncated, &Keys::default()).is_err());
//! ```

mod cipher;
mod decrypt;
mod dotenv;
mod error;
mod files;
mod ini;
mod keys;
mod leaf;
mod metadata;
mod values;
mod yaml;

pub use decrypt::decrypt;
pub use error::Error;
pub use files::DecryptedFiles;
pub use keys::{KeyError, Keys};
