//! Why a certificate is not trusted.

use std::error::Error as StdError;

use tokio_rustls::rustls::{CertificateError, Error};

/// Why the certificate of a server is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// Its time has not begun, or this machine's clock is wrong.
    NotYetValid,
    /// Its time has ended, or this machine's clock is wrong.
    Expired,
    /// No known authority has issued it.
    UnknownIssuer,
    /// It is for another name than that of the server.
    OtherName,
    /// Anything else, such as a revoked or malformed certificate.
    Other,
}

impl CertificateFault {
    /// The fault that this very error is about, without its causes. `None` for an error about anything else.
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let Error::InvalidCertificate(fault) = error.downcast_ref::<Error>()? else { return None };
        Some(match fault {
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherName
            }
            _ => Self::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_read_from_the_error_of_tls() {
        for (fault, expected) in [
            (CertificateError::Expired, CertificateFault::Expired),
            (CertificateError::NotValidYet, CertificateFault::NotYetValid),
            (CertificateError::UnknownIssuer, CertificateFault::UnknownIssuer),
            (CertificateError::NotValidForName, CertificateFault::OtherName),
            (CertificateError::Revoked, CertificateFault::Other),
        ] {
            assert_eq!(CertificateFault::of(&Error::InvalidCertificate(fault)), Some(expected));
        }
        assert_eq!(CertificateFault::of(&Error::DecryptError), None);
        assert_eq!(CertificateFault::of(&std::io::Error::other("reset")), None);
    }
}
