//! The time in which certificates are valid.

use std::path::Path;

use x509_cert::{Certificate, der::Decode as _};

use crate::{CaFileError, read_certificates};

/// The time in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: u64,
    /// The last second.
    pub until: u64,
}

/// The validity of the certificate in a file that ends first: the server's or the client's own, or an intermediate one.
///
/// # Errors
///
/// If the file cannot be read or contains no valid certificate.
pub fn validity(path: &Path) -> Result<Validity, CaFileError> {
    let all = read_certificates(path)?.into_iter().map(|certificate| {
        let certificate = Certificate::from_der(&certificate).ok()?;
        let validity = certificate.tbs_certificate.validity;
        let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
        Some(Validity { from: seconds(validity.not_before), until: seconds(validity.not_after) })
    });
    let all: Option<Vec<Validity>> = all.collect();
    let first = all.and_then(|all| all.into_iter().min_by_key(|validity| validity.until));
    first.ok_or_else(|| CaFileError::Invalid(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::tests::SELF_SIGNED;

    #[test]
    fn validity_is_that_of_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.pem");
        std::fs::write(&path, SELF_SIGNED).unwrap();
        // `openssl x509 -dates`: 2026-11-23 19:57:13 to 2126-10-30 19:57:13.
        assert_eq!(validity(&path), Ok(Validity { from: 1_795_463_833, until: 4_949_063_833 }));
        std::fs::write(&path, "garbage").unwrap();
        assert_eq!(validity(&path), Err(CaFileError::Invalid(path)));
    }
}
