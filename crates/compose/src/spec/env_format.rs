//! `format` of an `env_file`.

/// The syntax of an `env_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnvFormat {
    /// With quotes, comments and variables.
    Compose,
    /// As in `docker run --env-file`: the value is the rest of the line.
    Raw,
}
