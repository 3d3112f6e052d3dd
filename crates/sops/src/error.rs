//! Errors of encrypted files. None of them holds a value.

/// An encrypted file that cannot be read. The caller names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No key of the agent opens the file.
    #[error(
        "it is encrypted for {recipients}, and no key of the agent opens it; add the secret key to `sops.keyFiles` of the agent, or to `SOPS_AGE_KEY_FILE` of a command"
    )]
    NoKey {
        /// The recipients that the file names.
        recipients: String,
    },
    /// The file needs a key service or shares of several keys.
    #[error("it is encrypted with {0}, which is not supported; encrypt it for an age or OpenPGP key as well")]
    Unsupported(String),
    /// A value that should be encrypted is in clear, or damaged.
    #[error("its value `{0}` should be encrypted and is not; encrypt the file again with `sops`")]
    Plain(String),
    /// The file has encrypted values, and nothing says for which key.
    #[error(
        "it has encrypted values but no metadata of `sops`; restore the file, or encrypt its plain values again with `sops`"
    )]
    NoMetadata,
    /// A value does not belong to this place or key.
    #[error(
        "one of its values was changed, moved or renamed after `sops` encrypted it; edit the file with `sops`"
    )]
    Value,
    /// The file was changed after it was encrypted.
    #[error("it was changed after `sops` encrypted it (its MAC does not match); edit the file with `sops`")]
    Mac,
    /// The file is not as SOPS or age write it.
    #[error("it is not a valid encrypted file: {0}")]
    Malformed(String),
}
