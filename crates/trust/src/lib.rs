//! The certificates that servers are trusted by: those of a file of the configuration (`caFile`), and those of the
//! system. As for curl and Docker, a certificate in the file may be the server's own, also one that signed itself.
//!
//! ```
//! use driftless_trust::{Trust, read_certificates};
//!
//! let error = read_certificates("/no/such/file".as_ref()).unwrap_err();
//! assert_eq!(error.to_string(), "could not read /no/such/file: No such file or directory (os error 2)");
//! assert!(Trust::WithSystem.client_config(Vec::new()).is_ok());
//! ```

mod fault;
mod file;
mod validity;
mod verifier;

pub use fault::CertificateFault;
pub use file::{CaFileError, read_certificates, read_folder};
pub use tokio_rustls::rustls::{ClientConfig, pki_types::CertificateDer};
pub use validity::{Validity, validity};
pub use verifier::Trust;
