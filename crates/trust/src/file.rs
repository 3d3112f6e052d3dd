//! Files of certificates in PEM.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

/// The largest file of certificates, in bytes.
const LARGEST: u64 = 4 << 20;

/// Why a file of certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaFileError {
    /// The file cannot be read.
    #[error("could not read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file holds nothing that is a certificate, or something broken.
    #[error("{} has no valid PEM certificate", .0.display())]
    Invalid(PathBuf),
}

/// The certificates of a file, at least one.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let failed = |error: io::Error| CaFileError::Read { path: path.to_owned(), reason: error.to_string() };
    let text = read(path).map_err(failed)?;
    match CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(CaFileError::Invalid(path.to_owned())),
    }
}

/// The certificates in a folder (`*.crt`). A file that cannot be read is as if it were not there.
pub fn read_folder(folder: &Path) -> Vec<CertificateDer<'static>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "crt"));
    files
        .filter_map(|path| read(&path).ok())
        .flat_map(|text| CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect::<Vec<_>>())
        .collect()
}

/// A file up to the limit. A larger one is an error.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it has more than {} MiB", LARGEST >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::tests::SELF_SIGNED;

    #[test]
    fn certificates_are_read_from_files_with_their_ending() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_folder(folder.path()).len(), 0);
        for (name, text) in [("ca.crt", SELF_SIGNED), ("client.key", SELF_SIGNED), ("broken.crt", "garbage")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(read_folder(folder.path()).len(), 1);
        assert_eq!(read_folder(Path::new("/no/such/folder")).len(), 0);
    }

    #[test]
    fn file_without_valid_certificate_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        for text in ["", "garbage", "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(read_certificates(&path), Err(CaFileError::Invalid(_))), "{text}");
        }
        fs::write(&path, SELF_SIGNED.repeat(2)).unwrap();
        assert_eq!(read_certificates(&path).unwrap().len(), 2);
        File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(matches!(read_certificates(&path), Err(CaFileError::Read { .. })));
    }
}
