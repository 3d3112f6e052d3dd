//! Why a place of the fleet has no new report, or cannot be read.

use driftless_objects as objects;
use driftless_trust::CaFileError;
use http::StatusCode;

/// Why a place of the fleet has no new report, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The token cannot be read.
    #[error("{0}")]
    Token(String),
    /// The file of certificate authorities cannot be read.
    #[error(transparent)]
    CaFile(#[from] CaFileError),
    /// The HTTP client cannot be made.
    #[error("could not create a client: {0}")]
    Client(String),
    /// The report cannot be written as JSON.
    #[error("could not write the report: {0}")]
    Write(String),
    /// The collector does not answer.
    #[error("no collector answers: {0}")]
    Unreachable(String),
    /// The certificate of the collector is not one that this host trusts.
    #[error(
        "the certificate of the collector is not trusted ({0}): name the file with its authority in `caFile` of the place, or in \
         `report.caFile`, or correct the URL"
    )]
    Certificate(String),
    /// The certificate of the collector has expired.
    #[error(
        "the certificate of the collector has expired: renew it there, or set the clock of this host if that is wrong"
    )]
    ExpiredCertificate,
    /// The certificate of the collector is not valid yet. A host without a battery for its clock begins with a wrong time.
    #[error(
        "the certificate of the collector is not valid yet: set the clock of this host, if that is wrong"
    )]
    EarlyCertificate,
    /// The collector answers with an error.
    #[error("it answered {status}: {message}")]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// Its words.
        message: String,
    },
    /// The collector wants a key or a token, and this host sends neither.
    #[error(
        "it answered 401 Unauthorized: this host has no key there, and sends no token. Run `driftless fleet invite` on the collector \
         and `driftless fleet join {url}` with its token here"
    )]
    NotJoined {
        /// The URL of the collector.
        url: String,
    },
    /// The answer is not that of a collector.
    #[error("the answer cannot be read: {0}")]
    Foreign(String),
    /// Another machine writes the object of this host.
    #[error("another machine (instance {owner}) reports as `{host}`: give one of the two another name")]
    Taken {
        /// The name of the host.
        host: String,
        /// The beginning of the id of the other machine.
        owner: String,
    },
    /// There is an object of this host, which this host may not read.
    #[error(
        "`{object}` is there and may not be read with the key of this host, so it could be that of another machine: allow this key to \
         read it (in a bucket `s3:GetObject`), or remove the object; see docs/fleet.md#without-a-server"
    )]
    Unreadable {
        /// Its name.
        object: String,
    },
    /// The object of this host changes between each look and the next write.
    #[error("somebody else writes the report of this host all the time")]
    Contended,
    /// The request cannot be signed.
    #[error("could not sign the report: {0}")]
    Counter(String),
    /// The host has joined the collector, and its key or that of the collector cannot be used. A report without a signature
    /// would be refused.
    #[error("could not sign the report: {0}")]
    Key(String),
    /// The bucket or folder failed.
    #[error(transparent)]
    Objects(#[from] objects::Error),
}

impl ReportError {
    /// Whether it stays until somebody does something.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Token(_)
            | Self::CaFile(_)
            | Self::Certificate(_)
            | Self::ExpiredCertificate
            | Self::Foreign(_)
            | Self::NotJoined { .. }
            | Self::Key(_)
            | Self::Unreadable { .. }
            | Self::Taken { .. } => true,
            Self::Refused { status, .. } => {
                status.is_client_error() || *status == StatusCode::INSUFFICIENT_STORAGE
            }
            Self::Objects(error) => error.is_lasting(),
            Self::Client(_)
            | Self::Write(_)
            | Self::Unreachable(_)
            | Self::EarlyCertificate
            | Self::Contended
            | Self::Counter(_) => false,
        }
    }
}
