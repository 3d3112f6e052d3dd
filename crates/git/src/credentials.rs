//! Credentials, read at each use so that they can be rotated while the agent runs.
//!
//! Keeps no secret: what is read lives for one connection. Reads no environment either; the program's edge
//! hands in a lookup.

use std::{fmt, fs, path::Path, sync::Arc};

use driftless_config::{Auth, GithubApp, Secret};

/// Answers with the value of an environment variable.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The configured sources of a repository's credentials.
#[derive(Clone)]
pub struct Credentials {
    auth: Auth,
    environment: Lookup,
}

/// A user and a password (or token). Has no `Debug`, so that it cannot be printed.
pub(super) struct Account {
    pub(super) username: String,
    pub(super) password: String,
}

/// With a token, most servers accept any user name. Deploy tokens of GitLab and tokens of Bitbucket have their own.
const DEFAULT_USER: &str = "git";

/// No password is longer; a wrong path might be that of a large file.
const LONGEST_SECRET: u64 = 64 * 1024;

impl Credentials {
    pub fn new(auth: Auth, environment: Lookup) -> Self {
        Self { auth, environment }
    }

    /// For a repository that everybody may read.
    pub fn none() -> Self {
        Self::new(Auth::default(), Arc::new(|_| None))
    }

    /// The user and password of HTTP, if there are any. The error is a sentence without any secret.
    pub(super) fn account(&self) -> Result<Option<Account>, String> {
        let Some(password) = &self.auth.password else {
            return Ok(None);
        };
        let password = read_secret(password, &self.environment)?;
        let username = self.user()?.unwrap_or_else(|| DEFAULT_USER.to_owned());
        if username.contains(':') {
            return Err("the user name holds a colon, which HTTP cannot carry".into());
        }
        Ok(Some(Account { username, password }))
    }

    pub(super) fn user(&self) -> Result<Option<String>, String> {
        self.auth.username.as_ref().map(|it| read_secret(it, &self.environment)).transpose()
    }

    pub(super) fn has_user(&self) -> bool {
        self.auth.username.is_some()
    }

    /// Whether a token is sent with the default user name.
    pub(super) fn has_default_user(&self) -> bool {
        self.auth.password.is_some() && !self.has_user()
    }

    /// Whether there is a secret for HTTP.
    pub(super) fn has_password(&self) -> bool {
        self.auth.password.is_some() || self.auth.github_app.is_some()
    }

    pub(super) fn github_app(&self) -> Option<&GithubApp> {
        self.auth.github_app.as_ref()
    }

    pub(super) fn host_keys(&self) -> &[String] {
        &self.auth.host_keys
    }

    pub(super) fn environment(&self) -> &Lookup {
        &self.environment
    }

    pub(super) fn has_passphrase(&self) -> bool {
        self.auth.ssh_passphrase.is_some()
    }

    /// Name and value of the variable for ssh's environment with which the helper gets the passphrase. Of a file only
    /// the path is passed; a value of our own environment reaches the environment of ssh only.
    pub(super) fn passphrase(&self) -> Result<Option<(&'static str, String)>, String> {
        let Some(secret) = &self.auth.ssh_passphrase else { return Ok(None) };
        // A missing secret or one of several lines is reported better here than by ssh.
        let value = read_secret(secret, &self.environment)?;
        Ok(Some(match secret {
            Secret::File(path) => ("DRIFTLESS_PASSPHRASE_FILE", path.display().to_string()),
            Secret::Environment(_) | Secret::Plain(_) => ("DRIFTLESS_PASSPHRASE", value),
        }))
    }

    pub(super) fn ssh_key(&self) -> Option<&Path> {
        self.auth.ssh_key.as_deref()
    }

    pub(super) fn known_hosts(&self) -> Option<&Path> {
        self.auth.known_hosts.as_deref()
    }
}

/// Reads a secret where it is kept. The error is a sentence without it.
pub fn read_secret(secret: &Secret, environment: &Lookup) -> Result<String, String> {
    let (text, from) = read_text(secret, environment)?;
    one_line(text.trim_end_matches(['\n', '\r']), &from)
}

/// Reads a secret that is a list: one entry per line, or several with commas between them. Empty lines and those that begin
/// with `#` are skipped. The result has commas; the error is a sentence without the secret.
pub fn read_secret_list(secret: &Secret, environment: &Lookup) -> Result<String, String> {
    let (text, from) = read_text(secret, environment)?;
    let entries = text.lines().map(|line| line.trim().trim_end_matches(','));
    let entries: Vec<&str> = entries.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    one_line(&entries.join(","), &from)
}

/// The text of a secret, and the words for its place.
fn read_text(secret: &Secret, environment: &Lookup) -> Result<(String, String), String> {
    Ok(match secret {
        Secret::File(path) => {
            let from = format!("the file {}", path.display());
            let size = fs::metadata(path).map_err(|error| format!("could not read {from}: {error}"))?.len();
            if size > LONGEST_SECRET {
                return Err(format!("{from} has {size} bytes, too many for a secret"));
            }
            (fs::read_to_string(path).map_err(|error| format!("could not read {from}: {error}"))?, from)
        }
        Secret::Environment(name) => {
            let from = format!("the environment variable {name}");
            (environment(name).ok_or_else(|| format!("{from} is not set"))?, from)
        }
        Secret::Plain(value) => (value.clone(), "the configured value".to_owned()),
    })
}

fn one_line(value: &str, from: &str) -> Result<String, String> {
    if value.is_empty() {
        return Err(format!("{from} is empty"));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("{from} has several lines or control characters"));
    }
    Ok(value.to_owned())
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_password(secret: Secret) -> Credentials {
        let auth = Auth { password: Some(secret), ..Auth::default() };
        Credentials::new(auth, Arc::new(|name| (name == "TOKEN").then(|| "from-environment\n".to_owned())))
    }

    #[test]
    fn rotated_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let credentials = with_password(Secret::File(path.clone()));
        for token in ["first", "second"] {
            fs::write(&path, format!("{token}\n")).unwrap();
            let account = credentials.account().unwrap_or_else(|it| panic!("{it}")).unwrap();
            assert_eq!((account.username.as_str(), account.password.as_str()), ("git", token));
        }
        fs::remove_file(&path).unwrap();
        assert!(credentials.account().is_err_and(|it| it.contains("token")));
    }

    #[test]
    fn list_has_one_entry_per_line_or_commas() {
        let nothing: Lookup = Arc::new(|_| None);
        let read = |text: &str| read_secret_list(&Secret::Plain(text.to_owned()), &nothing);
        let both = Ok("ntfy://a,tgram://b".to_owned());
        assert_eq!(read("ntfy://a,tgram://b\n"), both);
        assert_eq!(read("# phones\r\nntfy://a,\r\n\r\n  tgram://b\r\n"), both);
        assert!(read("# none\n").is_err_and(|error| error.contains("is empty")));
        assert!(read("hunter\u{7}2").is_err_and(|error| !error.contains("hunter")));
    }

    #[test]
    fn a_variable_is_asked_of_the_lookup_and_a_missing_one_is_named() {
        let account = with_password(Secret::Environment("TOKEN".into())).account();
        assert_eq!(account.unwrap_or_else(|it| panic!("{it}")).unwrap().password, "from-environment");
        assert!(
            with_password(Secret::Environment("OTHER".into()))
                .account()
                .is_err_and(|it| it.contains("OTHER"))
        );
        let error = with_password(Secret::Plain("two\nlines-hunter2".into())).account();
        assert!(error.is_err_and(|it| !it.contains("hunter2")));
    }
}
