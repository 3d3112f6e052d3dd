//! Logins for registries: from the Secrets of the application first, then from the agent's configuration, then from the
//! file of `docker login`. All of them are read again for each call. Only that file may name a credential helper, since a helper is
//! a program of the host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use driftless_config::{Registry, Secret};
use driftless_model::ImageRef;

use crate::{
    credential_helper::{self, HelperError},
    registry_login::{Login, address_of},
};

/// Reads a secret from its source. The error is a message without the secret.
pub type ReadSecret = Arc<dyn Fn(&Secret) -> Result<String, String> + Send + Sync>;

/// The sources of logins, without the Secrets of applications.
#[derive(Clone)]
pub struct RegistryLogins {
    pub configured: Vec<Registry>,
    /// The Docker client's `config.json`. It need not exist.
    pub client: Option<PathBuf>,
    pub read: ReadSecret,
}

/// Bytes. A larger file is not one of logins; a wrong path could name any file.
const LARGEST: u64 = 1 << 20;

/// Without any login.
impl Default for RegistryLogins {
    fn default() -> Self {
        let read: ReadSecret = Arc::new(|_| Err("no secrets can be read here".to_owned()));
        Self { configured: Vec::new(), client: None, read }
    }
}

impl fmt::Debug for RegistryLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryLogins").field("configured", &self.configured).finish_non_exhaustive()
    }
}

impl RegistryLogins {
    /// The login for an image. `secrets` are the files of the application's Secrets.
    pub(crate) async fn login(&self, image: &str, secrets: &[PathBuf]) -> Result<Option<Login>, String> {
        let image = ImageRef::parse(image);
        let (host, repository) = (image.registry(), image.repository());
        for path in secrets {
            let name = "the Secret of `imagePullSecrets`";
            let bytes =
                read(path, name)?.ok_or_else(|| format!("{name} is missing in the runtime directory"))?;
            match parse(&bytes, name)?.entry(host, repository) {
                Some(LoginSource::Login(login)) => return Ok(Some(login)),
                Some(LoginSource::Helper(helper)) => {
                    return Err(format!(
                        "{name} names the credential helper `{}` for {host}; only the file of `docker login` on the host \
                         may name a program to run",
                        helper.escape_debug()
                    ));
                }
                // The store is a program of the host as well.
                Some(LoginSource::Store(_)) | None => {}
            }
        }
        self.own(host, repository).await
    }

    /// The login for a registry that a build from these images needs. A builder names the registry alone, so the path of an
    /// entry `HOST/PATH` cannot decide: an entry for the whole host goes first.
    pub(crate) async fn for_host(&self, host: &str, bases: &[String]) -> Result<Option<Login>, String> {
        let host = ImageRef::normal_registry(host);
        let path = self.path_for_builds(&host, bases)?;
        self.own(&host, &path).await
    }

    /// The path below a registry whose login is the one of builds. Empty: the one of the whole registry.
    fn path_for_builds(&self, host: &str, bases: &[String]) -> Result<String, String> {
        let keys = self.keys()?;
        let of_host = keys.iter().filter(|key| is_of_host(key, host));
        let paths: BTreeSet<String> = of_host.map(|key| split_key(key).1).collect();
        if paths.contains("") {
            return Ok(String::new());
        }
        let bases = bases.iter().map(|base| ImageRef::parse(base));
        let repositories: Vec<_> = bases.filter(|base| base.registry() == host).collect();
        let is_used = |path: &&String| {
            let key = format!("{host}/{path}");
            repositories.iter().any(|base| match_length(&key, host, base.repository()).is_some())
        };
        let used: BTreeSet<&String> = paths.iter().filter(is_used).collect();
        let chosen = if used.is_empty() { paths.iter().collect() } else { used };
        let mut chosen = chosen.into_iter();
        match (chosen.next(), chosen.next()) {
            (None, _) => Ok(String::new()),
            (Some(path), None) => Ok(path.clone()),
            (Some(_), Some(_)) => {
                let entries: Vec<String> = paths.iter().map(|path| format!("{host}/{path}")).collect();
                let entries = entries.join(", ");
                tracing::warn!(
                    host,
                    entries,
                    "a build names no path of its registry, so none of these logins is used; add a login for the whole host"
                );
                Ok(String::new())
            }
        }
    }

    /// The registries with a login in the configuration or in the file of `docker login`, with their paths.
    fn keys(&self) -> Result<Vec<String>, String> {
        let configured = self.configured.iter().map(|it| it.host.clone());
        let LoginFile { auths, cred_helpers, .. } = self.client_file()?;
        Ok(configured.chain(auths.into_keys()).chain(cred_helpers.into_keys()).collect())
    }

    /// All logins by the address of the registry, as the classic builder expects them: of the registries with a login, and
    /// of those that the build begins from.
    pub(crate) async fn all(&self, bases: &[String]) -> Result<BTreeMap<String, Login>, String> {
        let known = self.keys()?.into_iter().filter(|key| !key.contains('*')).map(|key| split_key(&key).0);
        let of_bases = bases.iter().map(|base| ImageRef::parse(base).registry().to_owned());
        let hosts: BTreeSet<String> = known.chain(of_bases).collect();
        let mut found = BTreeMap::new();
        for host in hosts {
            // A build may need none of them: a helper that fails is not its fault.
            match self.for_host(&host, bases).await {
                Ok(Some(login)) => drop(found.insert(address_of(&host), login)),
                Ok(None) => {}
                Err(error) => tracing::warn!(host, error, "a build has no login for this registry"),
            }
        }
        Ok(found)
    }

    async fn own(&self, host: &str, repository: &str) -> Result<Option<Login>, String> {
        let matching =
            self.configured.iter().filter_map(|it| Some((match_length(&it.host, host, repository)?, it)));
        if let Some((_, registry)) = matching.max_by_key(|(length, _)| *length) {
            let username = (self.read)(&registry.username)?;
            return Ok(Some(Login { username, password: (self.read)(&registry.password)?, token: None }));
        }
        match self.client_file()?.entry(host, repository) {
            Some(LoginSource::Login(login)) => Ok(Some(login)),
            Some(LoginSource::Helper(helper)) => {
                credential_helper::ask(&helper, &address_of(host)).await.map_err(|error| error.to_string())
            }
            Some(LoginSource::Store(helper)) => Ok(ask_store(&helper, host).await),
            None => Ok(None),
        }
    }

    /// The Docker client's file, if it has `proxies`. The client gives these to the containers and builds that it starts; the agent
    /// does not, because Git does not name them.
    #[must_use]
    pub fn file_with_proxies(&self) -> Option<&Path> {
        let has_some = |proxies: &serde_json::Value| {
            let hosts = proxies.as_object().into_iter().flatten();
            hosts.filter_map(|(_, host)| host.as_object()).any(|host| !host.is_empty())
        };
        // An error is that of the pull that needs the file.
        let file = self.client_file().ok()?;
        self.client.as_deref().filter(|_| has_some(&file.proxies))
    }

    fn client_file(&self) -> Result<LoginFile, String> {
        let Some(path) = &self.client else { return Ok(LoginFile::default()) };
        let name = format!("the Docker client's file {}", path.display());
        read(path, &name)?.map_or_else(|| Ok(LoginFile::default()), |bytes| parse(&bytes, &name))
    }
}

/// The login that the store of all registries has for this one. Most registries are none of the store's: one that is not
/// installed, as on a server with the file of a desktop, or that fails must not hinder a pull without a login.
async fn ask_store(helper: &str, host: &str) -> Option<Login> {
    match credential_helper::ask(helper, &address_of(host)).await {
        Ok(login) => login,
        Err(error @ HelperError::NotInstalled(_)) => {
            tracing::debug!(host, %error, "`credsStore` is not asked for a login");
            None
        }
        Err(error @ HelperError::Failed(_)) => {
            tracing::warn!(host, %error, "`credsStore` gave no login for this registry, so it is asked without one");
            None
        }
    }
}

/// `None` if there is no such file.
fn read(path: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    let size = match fs::metadata(path) {
        Ok(it) => it.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("could not read {name}: {error}")),
    };
    if size > LARGEST {
        return Err(format!("{name} has {size} bytes; a file of logins has at most {LARGEST}"));
    }
    fs::read(path).map(Some).map_err(|error| format!("could not read {name}: {error}"))
}

/// The file that `docker login` writes, as far as it is used.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LoginFile {
    auths: BTreeMap<String, LoginEntry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
    /// The addresses of proxies by the address of the engine, or `default`.
    proxies: serde_json::Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoginEntry {
    /// `user:password`, in base64.
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// The error repeats nothing of the file: it might quote a password.
fn parse(bytes: &[u8], name: &str) -> Result<LoginFile, String> {
    let wrong = |_| format!("{name} is not a file as `docker login` writes it");
    let whole: serde_json::Value = serde_json::from_slice(bytes).map_err(wrong)?;
    // The older form is only the map of registries.
    let is_older = whole.as_object().is_some_and(|file| {
        !file.is_empty()
            && !file
                .keys()
                .any(|key| matches!(key.as_str(), "auths" | "credHelpers" | "credsStore" | "proxies"))
            && file.values().all(serde_json::Value::is_object)
    });
    if is_older {
        return Ok(LoginFile {
            auths: serde_json::from_value(whole).map_err(wrong)?,
            ..LoginFile::default()
        });
    }
    serde_json::from_value(whole).map_err(wrong)
}

/// The entry of a file for a registry.
enum LoginSource {
    Login(Login),
    /// The name of the credential helper that keeps the login.
    Helper(String),
    /// The name of the credential helper that keeps the logins of registries without an entry (`credsStore`).
    Store(String),
}

impl LoginFile {
    /// A helper for the registry goes before the entry, as for the Docker client.
    fn entry(&self, host: &str, repository: &str) -> Option<LoginSource> {
        let of_host = self.cred_helpers.iter().find(|(key, _)| match_length(key, host, repository).is_some());
        if let Some((_, helper)) = of_host {
            return Some(LoginSource::Helper(helper.clone()));
        }
        let matching =
            self.auths.iter().filter_map(|(key, it)| Some((match_length(key, host, repository)?, it)));
        let best = matching.max_by_key(|(length, _)| *length);
        if let Some(login) = best.and_then(|(_, it)| it.login()) {
            return Some(LoginSource::Login(login));
        }
        // The client leaves an empty entry if a helper keeps the login. Helpers of clouds make logins for registries that nobody
        // has logged in to, so they have no entry.
        let source = if best.is_some() { LoginSource::Helper } else { LoginSource::Store };
        Some(&self.creds_store).filter(|store| !store.is_empty()).map(|store| source(store.clone()))
    }
}

impl LoginEntry {
    fn login(&self) -> Option<Login> {
        let token = Some(self.identitytoken.clone()).filter(|it| !it.is_empty());
        let decoded = STANDARD.decode(&self.auth).ok().and_then(|it| String::from_utf8(it).ok());
        let (username, password) = match decoded.as_deref().and_then(|it| it.split_once(':')) {
            // The client pads the password with zeros.
            Some((user, password)) => (user.to_owned(), password.trim_end_matches('\0').to_owned()),
            None => (self.username.clone(), self.password.clone()),
        };
        let is_complete = token.is_some() || (!username.is_empty() && !password.is_empty());
        is_complete.then_some(Login { username, password, token })
    }
}

/// Splits `https://index.docker.io/v1/`, `registry.example.com:5000` or `registry.example.com/team` into host and path.
fn split_key(key: &str) -> (String, String) {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    (
        ImageRef::normal_registry(host),
        if matches!(path, "v1" | "v2") { String::new() } else { path.to_owned() },
    )
}

/// The number of bytes of the repository's path a key matches, if it matches.
fn match_length(key: &str, host: &str, repository: &str) -> Option<usize> {
    let path = split_key(key).1;
    let official = repository.strip_prefix("library/").unwrap_or(repository);
    let is_below = |repository: &str| {
        let rest = repository.strip_prefix(path.as_str());
        path.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_inside = is_below(repository) || is_below(official);
    (is_of_host(key, host) && is_inside).then_some(path.len())
}

/// Whether a key is one of this host. A `*` stands for one part of the host's name.
fn is_of_host(key: &str, host: &str) -> bool {
    let pattern = split_key(key).0;
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(|(pattern, part)| *pattern == "*" || pattern == part)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE;

    use super::*;
    use crate::registry_login::HUB_ADDRESS;

    /// Logins from this client file and from configured registries.
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

    #[tokio::test]
    async fn most_specific_configured_login_is_used_first() {
        let folder = tempfile::tempdir().unwrap();
        let hub = STANDARD.encode("hub:secret:with:colons");
        let file = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{hub}"}}, "ghcr.io": {{"auth": "{hub}"}},
                "quay.io": {{"identitytoken": "t"}}, "kept.example.org": {{}}}}, "credsStore": "absent-one",
                "credHelpers": {{"helped.example.org": "absent-two"}}}}"#
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
            assert_eq!(user(all.login(image, &[]).await), expected, "{image}");
        }
        assert_eq!(user(all.for_host("registry-1.docker.io", &[]).await), "hub");
        for (image, helper) in [("kept.example.org/a", "absent-one"), ("helped.example.org/a", "absent-two")]
        {
            let error = user(all.login(image, &[]).await);
            assert!(
                error.contains(&format!("the credential helper docker-credential-{helper} is not installed")),
                "{error}"
            );
        }
        let known = all.all(&[]).await.unwrap();
        let hosts: Vec<&str> = known.keys().map(String::as_str).collect();
        assert_eq!(hosts, ["ghcr.io", HUB_ADDRESS, "quay.io"]);
        assert_eq!(known[HUB_ADDRESS].password, "secret:with:colons");
    }

    #[tokio::test]
    async fn store_is_asked_for_registries_without_an_entry() {
        let folder = tempfile::tempdir().unwrap();
        let ecr = "1.dkr.ecr.eu-west-1.amazonaws.com";
        // The whole file that the documentation of ECR's helper asks for. No test installs that program.
        let mut all = registries(folder.path(), r#"{"credsStore": "absent-one"}"#);
        let source = all.client_file().unwrap().entry(ecr, "web");
        assert!(matches!(source, Some(LoginSource::Store(store)) if store == "absent-one"));
        // A store that is not installed, as on a server with the file of a desktop, hinders no pull.
        assert_eq!(user(all.login(&format!("{ecr}/web:1"), &[]).await), "nobody");
        assert_eq!(user(all.for_host(ecr, &[]).await), "nobody");
        all.configured.clear();
        assert!(all.all(&[format!("{ecr}/base:1")]).await.unwrap().is_empty());
        // A Secret from Git names no program of the host in this way either.
        let secret = folder.path().join("secret");
        fs::write(&secret, r#"{"credsStore": "sh"}"#).unwrap();
        assert_eq!(user(all.login("a.org/web", &[secret]).await), "nobody");
    }

    #[tokio::test]
    async fn build_uses_the_login_for_a_path_of_its_registry() {
        let folder = tempfile::tempdir().unwrap();
        let mut all =
            registries(folder.path(), r#"{"auths": {"quay.io/b": {"username": "b", "password": "p"}}}"#);
        all.configured.retain(|it| it.host == "ghcr.io/team");
        assert_eq!(user(all.for_host("ghcr.io", &[]).await), "team", "the only entry of the host");
        assert_eq!(user(all.for_host("quay.io", &["quay.io/other/x".to_owned()]).await), "b");
        let other = Registry { host: "ghcr.io/other".to_owned(), ..all.configured[0].clone() };
        all.configured.push(Registry { username: Secret::Plain("other".to_owned()), ..other });
        assert_eq!(user(all.for_host("ghcr.io", &[]).await), "nobody", "it cannot be told which");
        let base = ["golang:1", "ghcr.io/other/base:1"].map(str::to_owned);
        assert_eq!(user(all.for_host("ghcr.io", &base).await), "other");
        let known = all.all(&base).await.unwrap();
        let users: Vec<(&str, &str)> =
            known.iter().map(|(host, it)| (host.as_str(), it.username.as_str())).collect();
        assert_eq!(users, [("ghcr.io", "other"), ("quay.io", "b")]);
        all.configured.push(Registry {
            host: "ghcr.io".to_owned(),
            username: Secret::Plain("all".to_owned()),
            ..all.configured[0].clone()
        });
        assert_eq!(user(all.for_host("ghcr.io", &base).await), "all");
    }

    #[tokio::test]
    async fn secret_of_the_application_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let all = registries(folder.path(), "{}");
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&new, r#"{"auths": {"ghcr.io": {"username": "app", "password": "p"}}}"#).unwrap();
        fs::write(&old, r#"{"old.example.org": {"username": "old", "password": "p"}}"#).unwrap();
        let own = [new, old];
        assert_eq!(user(all.login("ghcr.io/web", &own).await), "app");
        assert_eq!(user(all.login("old.example.org/web", &own).await), "old");
        assert_eq!(user(all.login("registry.example.com/web", &own).await), "any");
        // A Secret comes from Git, and must not name a program of the host.
        let program = folder.path().join("program");
        fs::write(&program, r#"{"credHelpers": {"ghcr.io": "sh"}}"#).unwrap();
        let error = user(all.login("ghcr.io/web", &[program]).await);
        assert!(error.contains("names the credential helper `sh`"), "{error}");
        assert_eq!(
            user(all.login("elsewhere.org/web", &[folder.path().join("gone")]).await),
            "the Secret of `imagePullSecrets` is missing in the runtime directory"
        );
    }

    #[tokio::test]
    async fn proxies_of_the_client_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        for (file, expected) in [
            (r#"{"proxies": {"default": {"httpProxy": "http://proxy:3128"}}}"#, true),
            (r#"{"auths": {}, "proxies": {"tcp://host:2376": {"noProxy": "*.lan"}}}"#, true),
            (r#"{"auths": {}, "proxies": {"default": {}}}"#, false),
            (r#"{"auths": {}, "proxies": "http://proxy:3128"}"#, false),
            (r#"{"proxies.example.org": {"username": "u", "password": "p"}}"#, false),
            ("{}", false),
            ("broken", false),
        ] {
            let mut all = registries(folder.path(), file);
            assert_eq!(all.file_with_proxies(), all.client.as_deref().filter(|_| expected), "{file}");
            all.configured.clear();
            assert!(!all.keys().unwrap_or_default().contains(&"proxies".to_owned()), "{file}");
        }
        assert_eq!(RegistryLogins::default().file_with_proxies(), None);
    }

    #[tokio::test]
    async fn broken_login_file_is_reported_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["{\"auths\": \"hunter2\"}", "hunter2", "{\"auths\": {\"a\": {\"auth\": 5, \"x\": \"hunter2\"}}}"]
        {
            let error = registries(folder.path(), text).login("a.org/b", &[]).await.err().unwrap();
            assert!(error.contains("as `docker login` writes it") && !error.contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", registries(folder.path(), "{}")).contains("read"));
    }

    #[test]
    fn login_headers_decode_to_their_login() {
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
