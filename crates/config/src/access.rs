//! How to reach a Git server: credentials for a repository or for all of a host, pinned host keys, a GitHub App,
//! a proxy. Secrets stay names of files and variables.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de::Error};

use super::{
    Auth, Secret,
    schema::{Scalar, absolute},
    url::Transport,
};
use driftless_model::matches_star;

/// A GitHub App: its key signs requests for tokens that live for an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubApp {
    /// The App's id or its client id.
    pub app: String,
    pub installation: String,
    /// PEM, as GitHub hands it out.
    pub private_key: PathBuf,
    /// Default: `https://api.github.com`.
    pub api: String,
}

/// Where HTTP goes through. Credentials of a proxy are taken from the environment's `HTTPS_PROXY` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` of the environment.
    #[default]
    Environment,
    /// Straight to the server, whatever the environment says.
    Direct,
    Url(String),
}

/// What holds for all repositories of a host that say nothing themselves.
#[derive(Clone, Debug)]
pub(super) struct HostAccess {
    pub(super) host: String,
    pub(super) auth: Auth,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<Proxy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawHostAccess {
    pub(super) host: String,
    pub(super) auth: Option<RawAuth>,
    #[serde(default, deserialize_with = "absolute")]
    pub(super) ca_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "proxy")]
    pub(super) proxy: Option<Proxy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawAuth {
    username: Option<String>,
    username_env: Option<String>,
    #[serde(default, deserialize_with = "absolute")]
    username_file: Option<PathBuf>,
    password_env: Option<String>,
    #[serde(default, deserialize_with = "absolute")]
    password_file: Option<PathBuf>,
    token_env: Option<String>,
    #[serde(default, deserialize_with = "absolute")]
    token_file: Option<PathBuf>,
    github_app: Option<RawGithubApp>,
    #[serde(default, deserialize_with = "absolute")]
    ssh_key_file: Option<PathBuf>,
    ssh_passphrase_env: Option<String>,
    #[serde(default, deserialize_with = "absolute")]
    ssh_passphrase_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "absolute")]
    known_hosts: Option<PathBuf>,
    #[serde(default, deserialize_with = "fingerprints")]
    host_keys: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawGithubApp {
    app_id: String,
    installation_id: String,
    #[serde(default, deserialize_with = "absolute")]
    private_key_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "api")]
    api_url: Option<String>,
}

/// The settings, and what is wrong with them.
pub(super) fn auth(raw: RawAuth) -> (Auth, Vec<String>) {
    let RawAuth {
        username,
        username_env,
        username_file,
        password_env,
        password_file,
        token_env,
        token_file,
        github_app,
        ssh_key_file,
        ssh_passphrase_env,
        ssh_passphrase_file,
        known_hosts,
        host_keys,
    } = raw;
    let mut wrong = Vec::new();
    let variable = |it: Option<String>| it.map(Secret::Environment);
    let file = |it: Option<PathBuf>| it.map(Secret::File);
    let mut one = |names: &str, given: [Option<Secret>; 4]| {
        let mut given = given.into_iter().flatten();
        let first = given.next();
        if given.next().is_some() {
            wrong.push(format!("{names} exclude each other: give one of them"));
        }
        first
    };
    let usernames = [username.map(Secret::Plain), variable(username_env), file(username_file), None];
    let username = one("`username`, `usernameEnv` and `usernameFile`", usernames);
    let passwords = [variable(password_env), file(password_file), variable(token_env), file(token_file)];
    let password = one("`passwordEnv`, `passwordFile`, `tokenEnv` and `tokenFile`", passwords);
    let passphrases = [variable(ssh_passphrase_env), file(ssh_passphrase_file), None, None];
    let ssh_passphrase = one("`sshPassphraseEnv` and `sshPassphraseFile`", passphrases);
    if github_app.is_some() && (password.is_some() || username.is_some()) {
        wrong.push("`githubApp` makes its own user and token: give no others".to_owned());
    }
    if ssh_passphrase.is_some() && ssh_key_file.is_none() {
        wrong.push("a passphrase is of no use without `sshKeyFile`".to_owned());
    }
    let github_app = github_app.and_then(|it| {
        let Some(private_key) = it.private_key_file else {
            wrong.push("`githubApp` needs its `privateKeyFile`".to_owned());
            return None;
        };
        let is_plain =
            |it: &str| !it.is_empty() && it.chars().all(|it| it.is_ascii_alphanumeric() || it == '.');
        if !is_plain(&it.app_id) || !it.installation_id.bytes().all(|it| it.is_ascii_digit()) {
            wrong.push("`appId` and `installationId` are the numbers that GitHub shows".to_owned());
        }
        let api = it.api_url.unwrap_or_else(|| "https://api.github.com".to_owned());
        Some(GithubApp { app: it.app_id, installation: it.installation_id, private_key, api })
    });
    let auth = Auth {
        username,
        password,
        github_app,
        ssh_key: ssh_key_file,
        ssh_passphrase,
        known_hosts,
        host_keys,
    };
    (auth, wrong)
}

impl HostAccess {
    /// By host name; with a port in the pattern, by both. `*` stands for anything.
    pub(super) fn matches(&self, url: &str) -> bool {
        let Some((host, port)) = host_of(url) else { return false };
        let pattern = self.host.to_ascii_lowercase();
        match pattern
            .rsplit_once(':')
            .filter(|(_, it)| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
        {
            Some((pattern, wanted)) => port.as_deref() == Some(wanted) && matches_star(pattern, &host),
            None => matches_star(&pattern, &host),
        }
    }

    /// The part of the credentials that this way of transport can use.
    pub(super) fn auth_for(&self, transport: Transport) -> Auth {
        let auth = self.auth.clone();
        match transport {
            Transport::Https => Auth {
                username: auth.username,
                password: auth.password,
                github_app: auth.github_app,
                ..Auth::default()
            },
            Transport::Ssh => Auth {
                ssh_key: auth.ssh_key,
                ssh_passphrase: auth.ssh_passphrase,
                known_hosts: auth.known_hosts,
                host_keys: auth.host_keys,
                ..Auth::default()
            },
            Transport::Http | Transport::Local => Auth::default(),
        }
    }
}

/// The host of any form of URL, in lower case, and its port if that is written.
fn host_of(url: &str) -> Option<(String, Option<String>)> {
    let authority = match url.split_once("://") {
        Some((_, rest)) => rest.split('/').next()?,
        None if url.starts_with('/') => return None,
        None => return Some((url.split(':').next()?.rsplit('@').next()?.to_ascii_lowercase(), None)),
    };
    let authority = authority.rsplit('@').next()?;
    let is_port = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| is_port(port)) {
        Some((host, port)) => (host, Some(port.to_owned())),
        None => (authority, None),
    };
    Some((host.to_ascii_lowercase(), port)).filter(|(host, _)| !host.is_empty())
}

/// `direct`, or the address of a proxy without credentials.
pub(super) fn proxy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Proxy>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| {
        if text == "direct" {
            return Ok(Proxy::Direct);
        }
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        match rest {
            Some(rest) if rest.contains('@') => {
                Err("the proxy's URL contains a credential: give it in the environment variable `HTTPS_PROXY` instead".to_owned())
            }
            Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(Proxy::Url(text.to_owned())),
            Some(_) | None => Err("a proxy is `http://host:port`, `https://host:port` or `direct`".to_owned()),
        }
    }))
}

fn api<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| {
        let is_good = text
            .strip_prefix("https://")
            .is_some_and(|it| !it.is_empty() && !it.contains(['@', '?', '#', ' ']));
        if is_good {
            Ok(text.trim_end_matches('/').to_owned())
        } else {
            Err("the API is `https://host` and perhaps a path, such as `https://github.example.com/api/v3`"
                .to_owned())
        }
    }))
}

/// One or several `SHA256:…`, as `ssh-keygen -l` prints them.
fn fingerprints<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let all = Vec::<String>::deserialize(deserializer)?;
    all.into_iter()
        .map(|it| {
            let print = it.trim_end_matches('=').to_owned();
            let digits = print.strip_prefix("SHA256:").unwrap_or_default();
            let is_good = digits.len() == 43 && digits.bytes().all(|it| it.is_ascii_alphanumeric() || b"+/".contains(&it));
            if is_good {
                Ok(print)
            } else {
                Err(D::Error::custom("a host key is pinned by its fingerprint `SHA256:…`, 43 characters, as `ssh-keygen -l` prints it"))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_pattern_takes_what_it_says_and_no_more() {
        let of =
            |host: &str| HostAccess { host: host.into(), auth: Auth::default(), ca_file: None, proxy: None };
        for (pattern, url, expected) in [
            ("git.example.com", "https://git.example.com/a/b", true),
            ("git.example.com", "https://GIT.example.com:8443/a/b", true),
            ("git.example.com:8443", "https://git.example.com/a/b", false),
            ("git.example.com:8443", "ssh://git@git.example.com:8443/a/b", true),
            ("*.example.com", "git@git.example.com:a/b", true),
            ("*.example.com", "https://example.com/a", false),
            ("*.example.com", "https://git.example.com.evil.org/a", false),
            ("*.example.com", "https://evil.org/x.example.com", false),
            ("git.*", "https://git.example.com/a", true),
            ("*", "https://[::1]:80/a", true),
            ("*", "/srv/git/x", false),
        ] {
            assert_eq!(of(pattern).matches(url), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn hostile_host_pattern_takes_no_time() {
        let host = format!("{}b", "*a".repeat(100));
        let access = HostAccess { host, auth: Auth::default(), ca_file: None, proxy: None };
        assert!(!access.matches(&format!("https://{}/x.git", "a".repeat(250))));
    }
}
