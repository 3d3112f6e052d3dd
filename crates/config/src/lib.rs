//! What the operator asks of the agent: text in, typed settings out. Reads no environment and no working
//! directory; secrets stay names of files and variables until they are used.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use driftless_model::{AppName, Finding, Policy};

mod access;
mod check;
mod duration;
mod range;
mod registry;
mod schema;
mod status;
mod trust;
mod url;
mod webhook;

pub use access::{GithubApp, Proxy};
pub use duration::parse as parse_duration;
pub use range::VersionRange;
pub use registry::Registry;
pub use status::{CommitStatus, StatusProvider};
pub use trust::{Verify, VerifyMode};
pub use webhook::{Webhook, Webhooks};

/// Everything the agent needs to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Mirrors, database and materialised files. Default: `/var/lib/driftless`.
    pub state_dir: PathBuf,
    /// On a memory file system: secrets that containers mount. Default: `/run/driftless`.
    pub runtime_dir: PathBuf,
    /// Default: `127.0.0.1:8484`. Beyond loopback only with a token.
    pub listen: SocketAddr,
    pub token_file: Option<PathBuf>,
    /// `unix:///var/run/docker.sock` by default; also `tcp://…`.
    pub docker_host: String,
    /// The longest that the build of an image may take. Default: 1 h.
    pub build_timeout: Duration,
    /// Logins for registries of images, before those of the Docker client's file.
    pub registries: Vec<Registry>,
    pub webhooks: Webhooks,
    pub repositories: Vec<Repository>,
}

/// One Git repository and what is deployed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Unique. Default: the last part of the URL without `.git`.
    pub name: String,
    /// Never with credentials: those go to `auth`, and one in the URL is refused with a hint.
    pub url: String,
    pub reference: Reference,
    /// The folder to look for applications in; empty is the root.
    pub path: String,
    /// Default: 60 s; the agent adds up to 10 % of jitter.
    pub poll: Duration,
    /// For one whole fetch. Default: 10 min.
    pub timeout: Duration,
    /// Without a byte from the server. Default: 30 s.
    pub idle_timeout: Duration,
    pub auth: Auth,
    /// PEM file of further certificate authorities.
    pub ca_file: Option<PathBuf>,
    pub proxy: Proxy,
    /// Read submodules at their pinned commits, with the same credentials and from the same host only. Default:
    /// off.
    pub submodules: bool,
    /// A commit that does not build on the one before is refused. Default: off.
    pub require_fast_forward: bool,
    /// Whose signature every commit needs. Default: none.
    pub verify: Option<Verify>,
    /// Applications by hand; empty means discovery.
    pub applications: Vec<ApplicationSettings>,
    /// What discovered applications may do.
    pub policy: Policy,
    /// Off without.
    pub webhook: Option<Webhook>,
    /// Whether the forge is told what becomes of commits. Off without.
    pub status: Option<CommitStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The repository's own default branch.
    Head,
    Branch(String),
    Tag(String),
    /// The tag with the highest version in a range.
    Semver(VersionRange),
    /// A full id.
    Commit(String),
}

/// Where credentials come from. They are read anew at each use, so that they can be rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// With a token: any user will do; default `git`.
    pub username: Option<Secret>,
    /// Token or password.
    pub password: Option<Secret>,
    pub github_app: Option<GithubApp>,
    pub ssh_key: Option<PathBuf>,
    pub ssh_passphrase: Option<Secret>,
    /// Default: the user's own known hosts are not read; without a file an unknown host is refused.
    pub known_hosts: Option<PathBuf>,
    /// `SHA256:` fingerprints of the server's keys.
    pub host_keys: Vec<String>,
}

/// A value that is never held in the configuration itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    File(PathBuf),
    /// The name of an environment variable, looked up by the program's edge.
    Environment(String),
    /// Given openly, for what is not secret, such as a user's name.
    Plain(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationSettings {
    /// Default: the folder's name.
    pub name: Option<AppName>,
    /// From the repository's root.
    pub path: String,
    pub policy: Policy,
    /// Whose signature this one needs, beyond what the repository asks for.
    pub verify: Option<Verify>,
    pub variables: BTreeMap<String, String>,
    pub profiles: Vec<String>,
    /// Compose files, from the application's folder. Without: found by their names.
    pub files: Vec<String>,
    /// Files of variables, from the application's folder, instead of its `.env`.
    pub env_files: Vec<String>,
}

impl ApplicationSettings {
    /// The application that these settings are for: its given name, or else that of its folder.
    pub fn app_name(&self) -> Option<AppName> {
        let folder = self.path.rsplit('/').find(|part| !matches!(*part, "" | "."));
        self.name.clone().or_else(|| AppName::normalise(folder?))
    }
}

impl Settings {
    /// Reads a configuration file. `file` is its name, for findings. A mistake in a key or value ends the
    /// reading; of the rules between values, all that are broken are told.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Finding>> {
        let raw = schema::parse(file, text).map_err(|finding| vec![*finding])?;
        check::settings(file, raw)
    }

    /// One repository and otherwise defaults, for `driftless run URL`. A local path must be absolute. What is
    /// changed afterwards is to be checked with [`Settings::check`].
    pub fn for_repository(url: &str, path: &str, reference: Reference) -> Result<Self, Vec<Finding>> {
        // A path that has no plain form is found by the check.
        let path = url::folder(path).unwrap_or_else(|_| path.to_owned());
        let repositories = vec![Repository::new(url, &path, reference)];
        let settings = Self { repositories, ..Self::default() };
        let findings = settings.check("the command line");
        if findings.is_empty() { Ok(settings) } else { Err(findings) }
    }

    /// The rules that hold between values, once more: for settings that options have changed after parsing.
    pub fn check(&self, file: &str) -> Vec<Finding> {
        check::findings(file, self)
    }
}

/// Everything but repositories.
impl Default for Settings {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/driftless"),
            runtime_dir: PathBuf::from("/run/driftless"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8484)),
            token_file: None,
            docker_host: "unix:///var/run/docker.sock".to_owned(),
            build_timeout: Duration::from_hours(1),
            registries: Vec::new(),
            webhooks: Webhooks::default(),
            repositories: Vec::new(),
        }
    }
}

impl Repository {
    /// With defaults: named after its URL, polled every minute, without credentials, applications discovered.
    pub fn new(url: &str, path: &str, reference: Reference) -> Self {
        Self {
            name: url::name(url).unwrap_or("repository").to_owned(),
            url: url.to_owned(),
            reference,
            path: path.to_owned(),
            poll: Duration::from_mins(1),
            timeout: Duration::from_mins(10),
            idle_timeout: Duration::from_secs(30),
            auth: Auth::default(),
            ca_file: None,
            proxy: Proxy::default(),
            submodules: false,
            require_fast_forward: false,
            verify: None,
            applications: Vec::new(),
            policy: Policy::default(),
            webhook: None,
            status: None,
        }
    }
}
