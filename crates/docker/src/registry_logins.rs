//! Who we are for a registry: by the Secrets of the application first, then by what the operator configured, then by
//! what `docker login` left in its file. All of it is read anew at each use and lives for one call. A login that only a
//! credential helper knows is refused: helpers are programs of somebody's desktop, and none is run here.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use serde::Deserialize;

use driftless_config::{Registry, Secret};

/// Reads a secret where it is kept. The error is a sentence without it.
pub type ReadSecret = Arc<dyn Fn(&Secret) -> Result<String, String> + Send + Sync>;

/// Where logins come from, but for those of applications.
#[derive(Clone)]
pub struct RegistryLogins {
    pub configured: Vec<Registry>,
    /// The Docker client's `config.json`, which need not be there.
    pub client: Option<PathBuf>,
    pub read: ReadSecret,
}

/// A user and a password, or a token in place of both. Has no `Debug`, so that it cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) token: Option<String>,
}

/// Docker Hub, which has several names.
const HUB: &str = "docker.io";

/// What the engine calls it.
const HUB_ADDRESS: &str = "https://index.docker.io/v1/";

/// No file of logins is larger; a wrong path might be that of anything.
const LARGEST: u64 = 1 << 20;

/// Nobody is known anywhere.
impl Default for RegistryLogins {
    fn default() -> Self {
        let read: ReadSecret = Arc::new(|_| Err("no secrets are read here".to_owned()));
        Self { configured: Vec::new(), client: None, read }
    }
}

impl fmt::Debug for RegistryLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryLogins").field("configured", &self.configured).finish_non_exhaustive()
    }
}

impl RegistryLogins {
    /// Who pulls an image. `own` are the files of the application's Secrets.
    pub(crate) fn login(&self, image: &str, own: &[PathBuf]) -> Result<Option<Login>, String> {
        let (host, repository) = place_of(image);
        for path in own {
            let name = "the Secret of `imagePullSecrets`";
            let bytes = read(path, name)?.ok_or_else(|| format!("{name} is not at hand"))?;
            if let Some(login) = parse(&bytes, name)?.login(&host, &repository)? {
                return Ok(Some(login));
            }
        }
        self.own(&host, &repository)
    }

    /// Who asks a host for whatever a build needs of it.
    pub(crate) fn for_host(&self, host: &str) -> Result<Option<Login>, String> {
        self.own(&normal(host), "")
    }

    /// Everybody that we can be, by the address of the registry, as the classic builder wants it.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, Login>, String> {
        let configured = self.configured.iter().map(|it| it.host.clone());
        let of_client = self.client_file()?.auths.into_keys();
        let hosts = configured.chain(of_client).filter(|it| !it.contains('*'));
        let mut found = BTreeMap::new();
        for host in hosts.map(|it| split(&it).0) {
            // What only a helper knows matters if it is asked for, and then the registry refuses.
            if let Ok(Some(login)) = self.own(&host, "") {
                found.insert(address_of(&host), login);
            }
        }
        Ok(found)
    }

    fn own(&self, host: &str, repository: &str) -> Result<Option<Login>, String> {
        let suiting = self.configured.iter().filter_map(|it| Some((suits(&it.host, host, repository)?, it)));
        if let Some((_, registry)) = suiting.max_by_key(|(length, _)| *length) {
            let username = (self.read)(&registry.username)?;
            return Ok(Some(Login { username, password: (self.read)(&registry.password)?, token: None }));
        }
        self.client_file()?.login(host, repository)
    }

    fn client_file(&self) -> Result<File, String> {
        let Some(path) = &self.client else { return Ok(File::default()) };
        let name = format!("the Docker client's file {}", path.display());
        read(path, &name)?.map_or_else(|| Ok(File::default()), |bytes| parse(&bytes, &name))
    }
}

impl Login {
    /// The header of a pull.
    pub(crate) fn header(&self, image: &str) -> String {
        URL_SAFE.encode(self.json(&address_of(&place_of(image).0)).to_string())
    }

    /// The header of a build with the classic builder.
    pub(crate) fn headers(all: &BTreeMap<String, Self>) -> String {
        let all: serde_json::Map<_, _> =
            all.iter().map(|(address, it)| (address.clone(), it.json(address))).collect();
        URL_SAFE.encode(serde_json::Value::from(all).to_string())
    }

    fn json(&self, address: &str) -> serde_json::Value {
        let Self { username, password, token } = self;
        match token {
            Some(token) => serde_json::json!({ "identitytoken": token, "serveraddress": address }),
            None => {
                serde_json::json!({ "username": username, "password": password, "serveraddress": address })
            }
        }
    }
}

/// `None`: there is no such file.
fn read(path: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    let size = match fs::metadata(path) {
        Ok(it) => it.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("could not read {name}: {error}")),
    };
    if size > LARGEST {
        return Err(format!("{name} has {size} bytes, too many for logins"));
    }
    fs::read(path).map(Some).map_err(|error| format!("could not read {name}: {error}"))
}

/// What `docker login` writes, as far as it concerns us.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
    #[serde(skip)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    /// `user:password`, in base64.
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// Of an error nothing is repeated: it might quote a password.
fn parse(bytes: &[u8], name: &str) -> Result<File, String> {
    let wrong = |_| format!("{name} is not a file as `docker login` writes it");
    let whole: serde_json::Value = serde_json::from_slice(bytes).map_err(wrong)?;
    // The older form is the map of registries alone.
    let is_older = whole.as_object().is_some_and(|it| {
        !it.is_empty()
            && !it.keys().any(|key| matches!(key.as_str(), "auths" | "credHelpers" | "credsStore"))
            && it.values().all(serde_json::Value::is_object)
    });
    let file = if is_older {
        File { auths: serde_json::from_value(whole).map_err(wrong)?, ..File::default() }
    } else {
        serde_json::from_value(whole).map_err(wrong)?
    };
    Ok(File { name: name.to_owned(), ..file })
}

impl File {
    fn login(&self, host: &str, repository: &str) -> Result<Option<Login>, String> {
        let suiting = self.auths.iter().filter_map(|(key, it)| Some((suits(key, host, repository)?, it)));
        let best = suiting.max_by_key(|(length, _)| *length);
        if let Some(login) = best.and_then(|(_, it)| it.login()) {
            return Ok(Some(login));
        }
        let of_host = self.cred_helpers.iter().find(|(key, _)| suits(key, host, repository).is_some());
        // The client leaves an empty entry where it gave the login away.
        let of_all = best.map(|_| &self.creds_store).filter(|it| !it.is_empty());
        match of_host.map(|(_, helper)| helper).or(of_all) {
            Some(helper) => Err(format!(
                "{} has the login of {host} in the credential helper `{helper}`, and none is asked here: name the registry \
                 under `registries` in the configuration",
                self.name
            )),
            None => Ok(None),
        }
    }
}

impl Entry {
    fn login(&self) -> Option<Login> {
        let token = Some(self.identitytoken.clone()).filter(|it| !it.is_empty());
        let decoded = STANDARD.decode(&self.auth).ok().and_then(|it| String::from_utf8(it).ok());
        let (username, password) = match decoded.as_deref().and_then(|it| it.split_once(':')) {
            // The client pads it with zeros.
            Some((user, password)) => (user.to_owned(), password.trim_end_matches('\0').to_owned()),
            None => (self.username.clone(), self.password.clone()),
        };
        let is_somebody = token.is_some() || (!username.is_empty() && !password.is_empty());
        is_somebody.then_some(Login { username, password, token })
    }
}

/// The registry's host, and the image's path on it.
pub(crate) fn place_of(image: &str) -> (String, String) {
    let name = image.split('@').next().unwrap_or(image);
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (normal(host), path),
        Some(_) | None => (HUB.to_owned(), name),
    };
    let path = path.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(path, |(path, _)| path);
    (host, path.to_owned())
}

fn normal(host: &str) -> String {
    match host.to_ascii_lowercase().as_str() {
        "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" | HUB => HUB.to_owned(),
        other => other.to_owned(),
    }
}

fn address_of(host: &str) -> String {
    if host == HUB { HUB_ADDRESS.to_owned() } else { host.to_owned() }
}

/// `https://index.docker.io/v1/`, `registry.example.com:5000` or `registry.example.com/team`: host and path.
fn split(key: &str) -> (String, String) {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    (normal(host), if matches!(path, "v1" | "v2") { String::new() } else { path.to_owned() })
}

/// How much of an image's place a key names, if it is one for it. A `*` stands for one part of the host's name.
fn suits(key: &str, host: &str, repository: &str) -> Option<usize> {
    let (pattern, path) = split(key);
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    let is_host = patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(|(pattern, part)| *pattern == "*" || pattern == part);
    let below = repository.strip_prefix(path.as_str());
    let is_inside = path.is_empty() || below.is_some_and(|it| it.is_empty() || it.starts_with('/'));
    (is_host && is_inside).then_some(path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With this file of the client, and one registry that is configured.
    fn registries(folder: &Path, file: &str) -> RegistryLogins {
        let client = folder.join("config.json");
        fs::write(&client, file).unwrap();
        let plain = |text: &str| Secret::Plain(text.to_owned());
        let registry = |host: &str, user: &str| Registry {
            host: host.to_owned(),
            username: plain(user),
            password: plain("open-sesame"),
        };
        RegistryLogins {
            configured: vec![
                registry("ghcr.io", "all"),
                registry("ghcr.io/team", "team"),
                registry("*.example.com", "any"),
            ],
            client: Some(client),
            read: Arc::new(|it| match it {
                Secret::Plain(text) => Ok(text.clone()),
                Secret::File(_) | Secret::Environment(_) => Err("not here".to_owned()),
            }),
        }
    }

    fn user(found: Result<Option<Login>, String>) -> String {
        match found {
            Ok(Some(login)) => login.token.map_or(login.username, |it| format!("token {it}")),
            Ok(None) => "nobody".to_owned(),
            Err(error) => error,
        }
    }

    #[test]
    fn most_specific_configured_login_is_used_first() {
        let folder = tempfile::tempdir().unwrap();
        let hub = STANDARD.encode("hub:secret:with:colons");
        let file = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{hub}"}}, "ghcr.io": {{"auth": "{hub}"}},
                "quay.io": {{"identitytoken": "t"}}, "kept.example.org": {{}}}}, "credsStore": "desktop",
                "credHelpers": {{"helped.example.org": "ecr"}}}}"#
        );
        let all = registries(folder.path(), &file);
        for (image, expected) in [
            ("ghcr.io/web:1", "all"),
            ("ghcr.io/team/web:1", "team"),
            ("ghcr.io/teams/web", "all"),
            ("registry.example.com/a@sha256:00", "any"),
            ("a.b.example.com/a", "nobody"),
            ("registry.example.com:5000/a", "nobody"),
            ("alpine", "hub"),
            ("docker.io/library/alpine:3", "hub"),
            ("quay.io/a", "token t"),
            ("localhost/a", "nobody"),
            ("127.0.0.1:5000/a", "nobody"),
        ] {
            assert_eq!(user(all.login(image, &[])), expected, "{image}");
        }
        assert_eq!(user(all.for_host("registry-1.docker.io")), "hub");
        for (image, helper) in [("kept.example.org/a", "desktop"), ("helped.example.org/a", "ecr")] {
            let error = user(all.login(image, &[]));
            assert!(
                error.contains(&format!("helper `{helper}`")) && error.contains("`registries`"),
                "{error}"
            );
        }
        let known = all.all().unwrap();
        let hosts: Vec<&str> = known.keys().map(String::as_str).collect();
        assert_eq!(hosts, ["ghcr.io", HUB_ADDRESS, "quay.io"]);
        assert_eq!(known[HUB_ADDRESS].password, "secret:with:colons");
    }

    #[test]
    fn a_secret_of_the_application_comes_before_all_in_either_form() {
        let folder = tempfile::tempdir().unwrap();
        let all = registries(folder.path(), "{}");
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&new, r#"{"auths": {"ghcr.io": {"username": "app", "password": "p"}}}"#).unwrap();
        fs::write(&old, r#"{"old.example.org": {"username": "old", "password": "p"}}"#).unwrap();
        let own = [new, old];
        assert_eq!(user(all.login("ghcr.io/web", &own)), "app");
        assert_eq!(user(all.login("old.example.org/web", &own)), "old");
        assert_eq!(user(all.login("registry.example.com/web", &own)), "any");
        assert_eq!(
            user(all.login("elsewhere.org/web", &[folder.path().join("gone")])),
            "the Secret of `imagePullSecrets` is not at hand"
        );
    }

    #[test]
    fn a_broken_file_is_told_without_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["{\"auths\": \"hunter2\"}", "hunter2", "{\"auths\": {\"a\": {\"auth\": 5, \"x\": \"hunter2\"}}}"]
        {
            let error = registries(folder.path(), text).login("a.org/b", &[]).err().unwrap();
            assert!(error.contains("as `docker login` writes it") && !error.contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", registries(folder.path(), "{}")).contains("read"));
    }

    #[test]
    fn headers_are_what_the_engine_decodes() {
        let login = Login { username: "a".into(), password: "??>>~~é".into(), token: None };
        let decoded = |text: String| -> serde_json::Value {
            serde_json::from_slice(&URL_SAFE.decode(text).unwrap()).unwrap()
        };
        let one = decoded(login.header("alpine:3"));
        assert_eq!(
            (one["password"].as_str(), one["serveraddress"].as_str()),
            (Some("??>>~~é"), Some(HUB_ADDRESS))
        );
        let all = decoded(Login::headers(&[("quay.io".to_owned(), login)].into()));
        assert_eq!(all["quay.io"]["username"], "a");
    }
}
