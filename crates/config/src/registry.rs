//! Logins for registries of images. Passwords stay names of files and variables.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Secret, schema::absolute};

/// Who we are for one registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// With its port, if it has one; `*` stands for one part of its name. A path behind it limits the login to
    /// images below it.
    pub host: String,
    pub username: Secret,
    pub password: Secret,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRegistry {
    host: String,
    username: Option<String>,
    username_env: Option<String>,
    #[serde(default, deserialize_with = "absolute")]
    username_file: Option<PathBuf>,
    password_env: Option<String>,
    #[serde(default, deserialize_with = "absolute")]
    password_file: Option<PathBuf>,
}

impl RawRegistry {
    /// The login, or the key that is wrong and why.
    pub(super) fn check(self) -> Result<Registry, (&'static str, &'static str)> {
        let Self { host, username, username_env, username_file, password_env, password_file } = self;
        if host.is_empty() || host.contains("://") || host.contains(['@', ' ', '?', '#']) {
            return Err((
                "host",
                "it must be a host such as `registry.example.com:5000`, `*.example.com` or `ghcr.io/team`",
            ));
        }
        let one = |given: [Option<Secret>; 3]| {
            let mut given = given.into_iter().flatten();
            given.next().filter(|_| given.next().is_none())
        };
        let (variable, file) = (Secret::Environment, Secret::File);
        let username =
            one([username.map(Secret::Plain), username_env.map(variable), username_file.map(file)])
                .ok_or(("username", "give one of `username`, `usernameEnv` and `usernameFile`"))?;
        let password = one([password_env.map(variable), password_file.map(file), None])
            .ok_or(("passwordFile", "give one of `passwordEnv` and `passwordFile`"))?;
        Ok(Registry { host, username, password })
    }
}
