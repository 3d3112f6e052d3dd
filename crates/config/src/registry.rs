//! Logins for image registries. Passwords stay names of files and variables.

use std::path::PathBuf;

use crate::{
    keys,
    secret::Secret,
    settings::Registry,
    value::{Fields as _, Value},
};

/// One entry of `registries`.
pub(super) struct RegistryEntry {
    host: String,
    username: Option<String>,
    username_env: Option<String>,
    username_file: Option<PathBuf>,
    password_env: Option<String>,
    password_file: Option<PathBuf>,
}

impl RegistryEntry {
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::REGISTRY)?;
        object.require("host");
        Some(Self {
            host: object.owned("host").unwrap_or_default(),
            username: object.owned("username"),
            username_env: object.owned("usernameEnv"),
            username_file: object.absolute("usernameFile"),
            password_env: object.owned("passwordEnv"),
            password_file: object.absolute("passwordFile"),
        })
    }

    /// The login, or the wrong key and the reason.
    pub(super) fn check(self) -> Result<Registry, (&'static str, &'static str)> {
        let Self { host, username, username_env, username_file, password_env, password_file } = self;
        if host.is_empty() || host.contains("://") || host.contains(['@', ' ', '?', '#']) {
            return Err((
                "host",
                "must be a host such as `registry.example.com:5000`, `*.example.com` or `ghcr.io/team`",
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
