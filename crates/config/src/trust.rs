//! Whom to trust: whose signatures a commit or tag needs, as configured. The keys themselves stay in files that
//! are read anew at each use, but for those of SSH written in place.

use std::path::PathBuf;

use serde::Deserialize;

use super::schema::absolute;

/// A commit must be signed by somebody named here before anything of it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verify {
    pub mode: VerifyMode,
    /// In the format of `allowed_signers` (ssh-keygen(1)).
    pub allowed_signers_file: Option<PathBuf>,
    /// Lines of the same format.
    pub allowed_signers: Vec<String>,
    /// Public keys or `SHA256:` fingerprints that are not trusted any more, one per line.
    pub revoked_keys_file: Option<PathBuf>,
    /// OpenPGP public keys, armored or binary.
    pub keyring_file: Option<PathBuf>,
}

/// What must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VerifyMode {
    /// The commit that is applied.
    #[default]
    Commit,
    /// The annotated tag that is followed.
    Tag,
    /// Both of them.
    Both,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawVerify {
    #[serde(default)]
    mode: VerifyMode,
    ssh: Option<RawSsh>,
    openpgp: Option<RawOpenPgp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSsh {
    #[serde(default, deserialize_with = "absolute")]
    allowed_signers_file: Option<PathBuf>,
    #[serde(default)]
    allowed_signers: Vec<String>,
    #[serde(default, deserialize_with = "absolute")]
    revoked_keys_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawOpenPgp {
    #[serde(default, deserialize_with = "absolute")]
    keyring_file: Option<PathBuf>,
}

impl Verify {
    /// Whether nobody at all is trusted, which would refuse everything.
    pub(super) fn is_empty(&self) -> bool {
        self.allowed_signers_file.is_none() && self.allowed_signers.is_empty() && self.keyring_file.is_none()
    }

    pub(super) fn needs_tag(&self) -> bool {
        self.mode != VerifyMode::Commit
    }
}

impl From<RawVerify> for Verify {
    fn from(raw: RawVerify) -> Self {
        let RawVerify { mode, ssh, openpgp } = raw;
        let mut verify = Self { mode, ..Self::default() };
        if let Some(RawSsh { allowed_signers_file, allowed_signers, revoked_keys_file }) = ssh {
            verify.allowed_signers_file = allowed_signers_file;
            verify.allowed_signers = allowed_signers;
            verify.revoked_keys_file = revoked_keys_file;
        }
        verify.keyring_file = openpgp.and_then(|it| it.keyring_file);
        verify
    }
}
