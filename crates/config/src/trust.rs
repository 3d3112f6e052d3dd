//! The signatures that a commit or tag needs. Keys stay in files that are read at each use, except lines of
//! `allowedSigners`.

use crate::{
    keys,
    settings::{Verify, VerifyMode},
    value::{Fields as _, Value},
};

const MODES: &[(&str, VerifyMode)] =
    &[("commit", VerifyMode::Commit), ("tag", VerifyMode::Tag), ("both", VerifyMode::Both)];

/// Reads the value of `verify`.
pub(super) fn verify(value: Value<'_>) -> Option<Verify> {
    let object = value.object(&keys::VERIFY)?;
    let ssh = object.object("ssh", &keys::SSH_SIGNERS);
    let openpgp = object.object("openpgp", &keys::OPENPGP_SIGNERS);
    Some(Verify {
        mode: object.word("mode", MODES).unwrap_or_default(),
        allowed_signers_file: ssh.as_ref().and_then(|ssh| ssh.absolute("allowedSignersFile")),
        allowed_signers: ssh.as_ref().map(|ssh| ssh.strings("allowedSigners")).unwrap_or_default(),
        revoked_keys_file: ssh.as_ref().and_then(|ssh| ssh.absolute("revokedKeysFile")),
        keyring_file: openpgp.and_then(|openpgp| openpgp.absolute("keyringFile")),
    })
}

impl Verify {
    /// Whether no key is trusted, so that every commit would be refused.
    pub(super) fn is_empty(&self) -> bool {
        self.allowed_signers_file.is_none() && self.allowed_signers.is_empty() && self.keyring_file.is_none()
    }

    /// Whether a tag must be signed.
    pub(super) fn needs_tag(&self) -> bool {
        self.mode != VerifyMode::Commit
    }
}
