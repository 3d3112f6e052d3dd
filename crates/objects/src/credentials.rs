//! Credentials of buckets and WebDAV servers, read at each request, so that they can be replaced.

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use driftless_config::{FleetBucket, FleetFolder, Secret};

use crate::error::Error;

/// The largest file of credentials that is read, in bytes.
const LARGEST_FILE: u64 = 64 * 1024;

/// The value of an environment variable.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The way to secrets.
#[derive(Clone)]
pub struct SecretSource {
    /// The environment of the process.
    pub environment: Lookup,
    /// Reads a secret of the configuration. The error is a sentence without it.
    pub read: fn(&Secret, &Lookup) -> Result<String, String>,
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

/// The keys of a bucket.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BucketKeys {
    pub(crate) id: String,
    pub(crate) secret: String,
    /// Of temporary keys.
    pub(crate) session: Option<String>,
}

impl SecretSource {
    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The keys of a bucket: of its file, of the environment, or of the file of Amazon's tools.
    pub(crate) fn bucket_keys(&self, bucket: &FleetBucket) -> Result<BucketKeys, Error> {
        if let Some(path) = &bucket.credentials_file {
            return self.keys_of(path);
        }
        let (id, secret) = (self.variable("AWS_ACCESS_KEY_ID"), self.variable("AWS_SECRET_ACCESS_KEY"));
        if let (Some(id), Some(secret)) = (id, secret) {
            return plain_keys(BucketKeys { id, secret, session: self.variable("AWS_SESSION_TOKEN") });
        }
        let of_home = || Some(PathBuf::from(self.variable("HOME")?).join(".aws/credentials"));
        let path = self.variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(of_home);
        match path.filter(|path| path.exists()) {
            Some(path) => self.keys_of(&path),
            None => Err(Error::Credentials(
                "there are no keys for the bucket: set `credentialsFile`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                    .to_owned(),
            )),
        }
    }

    /// The keys of the profile in a file.
    fn keys_of(&self, path: &Path) -> Result<BucketKeys, Error> {
        let failed = |why: String| Error::Credentials(format!("{}: {why}", path.display()));
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LARGEST_FILE).read_to_string(&mut text));
        read.map_err(|error| failed(format!("could not read it: {error}")))?;
        let profile = self.variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let keys = profile_keys(&text, &profile).ok_or_else(|| {
            failed(format!("the profile `{profile}` has no `aws_access_key_id` and `aws_secret_access_key`"))
        })?;
        plain_keys(keys)
    }

    /// The name and password for a WebDAV server. `None`: it is asked without.
    pub(crate) fn login(&self, folder: &FleetFolder) -> Result<Option<(String, String)>, Error> {
        if let (Some(user), Some(password)) = (&folder.user, &folder.password) {
            let password = (self.read)(password, &self.environment).map_err(Error::Credentials)?;
            return Ok(Some((user.clone(), password)));
        }
        match (self.variable("WEBDAV_USER"), self.variable("WEBDAV_PASSWORD")) {
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            (Some(_), None) => {
                Err(Error::Credentials("WEBDAV_USER is set and WEBDAV_PASSWORD is not".to_owned()))
            }
            (None, Some(_)) => {
                Err(Error::Credentials("WEBDAV_PASSWORD is set and WEBDAV_USER is not".to_owned()))
            }
        }
    }
}

/// Refuses keys that a header cannot carry, so that no later error repeats them.
fn plain_keys(keys: BucketKeys) -> Result<BucketKeys, Error> {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain(&keys.id) && keys.session.as_deref().is_none_or(is_plain) {
        Ok(keys)
    } else {
        Err(Error::Credentials("the keys of the bucket have characters that are no part of a key".to_owned()))
    }
}

/// The keys of one section of a file of Amazon's tools.
fn profile_keys(text: &str, profile: &str) -> Option<BucketKeys> {
    let mut is_wanted = false;
    let (mut id, mut secret, mut session) = (None, None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_wanted = section.trim() == profile;
        } else if is_wanted && let Some((key, value)) = line.split_once('=') {
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match key.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => session = value,
                _ => {}
            }
        }
    }
    Some(BucketKeys { id: id?, secret: secret?, session })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(variables: &'static [(&'static str, &'static str)]) -> SecretSource {
        let find =
            |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        SecretSource { environment: Arc::new(find), read: |_, _| Ok("from-file".to_owned()) }
    }

    #[test]
    fn keys_are_those_of_the_profile() {
        let text = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=s=1\n\n[ci]\naws_access_key_id=B\naws_secret_access_key = t\naws_session_token = u\n[half]\naws_access_key_id=C\n";
        let keys = profile_keys(text, "default").unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str(), keys.session), ("A", "s=1", None));
        let keys = profile_keys(text, "ci").unwrap();
        assert_eq!((keys.id.as_str(), keys.session.as_deref()), ("B", Some("u")));
        assert!(profile_keys(text, "half").is_none() && profile_keys(text, "none").is_none());
    }

    #[test]
    fn missing_and_odd_keys_are_named_without_their_values() {
        let bucket = FleetBucket::default();
        let error = |source: SecretSource| source.bucket_keys(&bucket).err().unwrap().to_string();
        assert!(error(source(&[])).contains("credentialsFile"));
        let odd = source(&[("AWS_ACCESS_KEY_ID", "a\u{1}b"), ("AWS_SECRET_ACCESS_KEY", "hush")]);
        let message = error(odd);
        assert!(message.contains("characters") && !message.contains("hush"), "{message}");
        let missing = FleetBucket { credentials_file: Some("/nonexistent/keys".into()), ..bucket.clone() };
        let message = source(&[]).bucket_keys(&missing).err().unwrap().to_string();
        assert!(message.starts_with("/nonexistent/keys: could not read it"), "{message}");
    }

    #[test]
    fn login_of_the_configuration_comes_first() {
        let environment = source(&[("WEBDAV_USER", "me"), ("WEBDAV_PASSWORD", "pw")]);
        let none = FleetFolder::default();
        assert_eq!(environment.login(&none).unwrap(), Some(("me".to_owned(), "pw".to_owned())));
        let (user, password) = (Some("nas".to_owned()), Some(Secret::File("/x".into())));
        let folder = FleetFolder { user, password, ..FleetFolder::default() };
        assert_eq!(environment.login(&folder).unwrap(), Some(("nas".to_owned(), "from-file".to_owned())));
        assert_eq!(source(&[]).login(&none).unwrap(), None);
        assert!(source(&[("WEBDAV_USER", "me")]).login(&none).is_err());
    }
}
