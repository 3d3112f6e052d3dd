//! Access to Git servers: credentials of a repository or of all repositories of a host, pinned host keys, a GitHub App, a
//! proxy. Secrets stay names of files and variables.

use std::path::PathBuf;

use driftless_model::{RepoUrl, matches_star};

use crate::{
    keys,
    secret::Secret,
    settings::{Auth, GithubApp, Proxy},
    url::Transport,
    value::{Fields as _, Value},
};

/// Access to all repositories of a host that have no access of their own.
#[derive(Clone, Debug)]
pub(super) struct HostAccess {
    pub(super) host: String,
    pub(super) auth: Auth,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<Proxy>,
}

/// One entry of `credentials`.
pub(super) struct HostEntry {
    pub(super) host: String,
    pub(super) auth: Option<RawAuth>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<Proxy>,
}

/// The keys of `auth`.
pub(super) struct RawAuth {
    username: Option<String>,
    username_env: Option<String>,
    username_file: Option<PathBuf>,
    password_env: Option<String>,
    password_file: Option<PathBuf>,
    token_env: Option<String>,
    token_file: Option<PathBuf>,
    github_app: Option<AppEntry>,
    ssh_key_file: Option<PathBuf>,
    ssh_passphrase_env: Option<String>,
    ssh_passphrase_file: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
    host_keys: Vec<String>,
}

/// The keys of `githubApp`.
struct AppEntry {
    app_id: String,
    installation_id: String,
    private_key_file: Option<PathBuf>,
    api_url: Option<String>,
}

impl HostEntry {
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::CREDENTIALS)?;
        object.require("host");
        Some(Self {
            host: object.owned("host").unwrap_or_default(),
            auth: object.get("auth").and_then(RawAuth::read),
            ca_file: object.absolute("caFile"),
            proxy: object.parsed("proxy", proxy),
        })
    }
}

impl RawAuth {
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::AUTH)?;
        Some(Self {
            username: object.owned("username"),
            username_env: object.owned("usernameEnv"),
            username_file: object.absolute("usernameFile"),
            password_env: object.owned("passwordEnv"),
            password_file: object.absolute("passwordFile"),
            token_env: object.owned("tokenEnv"),
            token_file: object.absolute("tokenFile"),
            github_app: object.get("githubApp").and_then(AppEntry::read),
            ssh_key_file: object.absolute("sshKeyFile"),
            ssh_passphrase_env: object.owned("sshPassphraseEnv"),
            ssh_passphrase_file: object.absolute("sshPassphraseFile"),
            known_hosts: object.absolute("knownHosts"),
            host_keys: object.items("hostKeys").iter().filter_map(fingerprint).collect(),
        })
    }
}

impl AppEntry {
    fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::GITHUB_APP)?;
        object.require("appId");
        object.require("installationId");
        Some(Self {
            app_id: object.owned("appId").unwrap_or_default(),
            installation_id: object.owned("installationId").unwrap_or_default(),
            private_key_file: object.absolute("privateKeyFile"),
            api_url: object.parsed("apiUrl", api),
        })
    }
}

/// The settings, and the mistakes in their combination.
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
        wrong.push("a passphrase has no effect without `sshKeyFile`".to_owned());
    }
    let github_app = github_app.and_then(|app| {
        let Some(private_key) = app.private_key_file else {
            wrong.push("`githubApp` needs its `privateKeyFile`".to_owned());
            return None;
        };
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
        let is_plain = |id: &str| !id.is_empty() && id.chars().all(is_letter);
        if !is_plain(&app.app_id) || !app.installation_id.bytes().all(|byte| byte.is_ascii_digit()) {
            wrong.push("`appId` and `installationId` are the numbers that GitHub shows".to_owned());
        }
        let api = app.api_url.unwrap_or_else(|| "https://api.github.com".to_owned());
        Some(GithubApp { app: app.app_id, installation: app.installation_id, private_key, api })
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
    /// Whether the host of a URL matches; with a port in the pattern, also its port, written or not. `*` matches anything.
    pub(super) fn matches(&self, url: &RepoUrl) -> bool {
        let (Some(host), Some(port)) = (url.host(), url.port()) else { return false };
        let host = host.to_ascii_lowercase();
        let pattern = self.host.to_ascii_lowercase();
        match pattern
            .rsplit_once(':')
            .filter(|(_, it)| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
        {
            Some((pattern, wanted)) => wanted.parse() == Ok(port) && matches_star(pattern, &host),
            None => matches_star(&pattern, &host),
        }
    }

    /// The credentials that a transport can use.
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

/// `direct`, or the address of a proxy without credentials.
pub(super) fn proxy(text: &str) -> Result<Proxy, String> {
    if text == "direct" {
        return Ok(Proxy::Direct);
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if rest.contains('@') => {
            Err("the proxy's URL contains a credential: give it in the environment \
             variable `HTTPS_PROXY` instead"
                .to_owned())
        }
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => {
            Ok(Proxy::Url(text.to_owned()))
        }
        Some(_) | None => Err("a proxy is `http://host:port`, `https://host:port` or `direct`".to_owned()),
    }
}

fn api(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://");
    if rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#', ' '])) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("the API is `https://host` with an optional path, such as `https://github.example.com/api/v3`"
            .to_owned())
    }
}

/// `SHA256:…`, as `ssh-keygen -l` prints it.
fn fingerprint(value: &Value<'_>) -> Option<String> {
    let print = value.string()?.trim_end_matches('=');
    let digits = print.strip_prefix("SHA256:").unwrap_or_default();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    if digits.len() == 43 && digits.bytes().all(is_digit) {
        return Some(print.to_owned());
    }
    value.error(
        "a host key is pinned by its fingerprint `SHA256:…`, 43 characters, as `ssh-keygen -l` prints it",
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_patterns_match_hosts_and_ports() {
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
            ("git.example.com:443", "https://git.example.com/a", true),
            ("git.example.com:22", "git@git.example.com:a", true),
            ("*", "https://[::1]:80/a", true),
            ("*", "/srv/git/x", false),
        ] {
            let url = RepoUrl::parse(url).unwrap();
            assert_eq!(of(pattern).matches(&url), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn hostile_host_pattern_takes_no_time() {
        let host = format!("{}b", "*a".repeat(100));
        let access = HostAccess { host, auth: Auth::default(), ca_file: None, proxy: None };
        assert!(!access.matches(&RepoUrl::parse(&format!("https://{}/x.git", "a".repeat(250))).unwrap()));
    }
}
