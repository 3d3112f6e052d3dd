//! The settings of the agent, with their defaults.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use driftless_model::{
    AdmissionPolicy, AppName, CleanupRules, CommitId, HostIdentity, Location, Policy, RepoUrl, VersionRange,
    WebhookProvider,
};

use crate::{
    allow::Allow,
    api_socket::ApiSocket,
    docker_host::DockerHost,
    fleet::{Fleet, FleetReports},
    listen_tls::ListenTls,
    notifications::Notifications,
    oidc::Oidc,
    origins::Origins,
    policy::PolicyEntry,
    secret::Secret,
    trusted_proxy::{Audit, TrustedProxy},
    values_from::ValueSource,
};

/// The state directory without a setting.
pub const STATE_DIR: &str = "/var/lib/driftless";

/// The runtime directory without a setting. It is on a memory file system.
pub const RUNTIME_DIR: &str = "/run/driftless";

/// Everything the agent needs to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The state directory: mirrors, database, mounted files. Default: `/var/lib/driftless`.
    pub state_dir: PathBuf,
    /// The file with the key that encrypts stored revisions. Default: `database.key` in the state directory, which is created
    /// if it is missing.
    pub state_key_file: Option<PathBuf>,
    /// The runtime directory, on a memory file system: mounted secrets. Default: `/run/driftless`.
    pub runtime_dir: PathBuf,
    /// The address of the API. Default: `127.0.0.1:8484`. Another host than loopback needs a token.
    pub listen: SocketAddr,
    /// The certificate of the API and the page. `None`: they are served without TLS.
    pub tls: Option<ListenTls>,
    /// The Unix socket of the API.
    pub socket: ApiSocket,
    /// The file with the token of the API.
    pub token_file: Option<PathBuf>,
    /// The reverse proxy that authenticates people. Default: none.
    pub trusted_proxy: Option<TrustedProxy>,
    /// The OpenID provider that people log in with. Default: none.
    pub oidc: Option<Oidc>,
    /// Retention and file of the audit.
    pub audit: Audit,
    /// The name and labels of this host. [`Settings::identify`] adds those that the file does not have.
    pub host: HostIdentity,
    /// The engine. Default: `unix:///var/run/docker.sock`.
    pub docker: DockerHost,
    /// The time limit of an image build. Default: 1 h.
    pub build_timeout: Duration,
    /// The clean-up of images after each successful sync. Default: none.
    pub image_cleanup: Option<CleanupRules>,
    /// The files with the secret keys for encrypted files: age identities, SSH and OpenPGP private keys.
    pub sops_key_files: Vec<PathBuf>,
    /// The credentials for all repositories of a host, also those that no repository uses.
    pub credentials: Vec<Auth>,
    /// Logins for image registries. They win over those of the Docker client's file.
    pub registries: Vec<Registry>,
    /// Webhooks of all repositories.
    pub webhooks: Webhooks,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// Notifications about incidents.
    pub notifications: Notifications,
    /// The collectors that this host reports to.
    pub report: FleetReports,
    /// The fleet that reports to this agent.
    pub fleet: Fleet,
    /// The repositories that the agent follows.
    pub repositories: Vec<Repository>,
}

/// One Git repository and its applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Unique. Default: the last part of the URL without `.git`.
    pub name: String,
    /// Without credentials, which belong in `auth`.
    pub url: RepoUrl,
    /// The branch, tag or commit that the agent follows.
    pub reference: Reference,
    /// The folder that contains the applications; empty for the root.
    pub path: String,
    /// The interval between fetches. Default: 60 s; the agent adds up to 10 % of jitter.
    pub poll: Duration,
    /// The time limit of one fetch. Default: 10 min.
    pub timeout: Duration,
    /// The time limit without a byte from the server. Default: 30 s.
    pub idle_timeout: Duration,
    /// Credentials for the server.
    pub auth: Auth,
    /// A PEM file of additional certificate authorities.
    pub ca_file: Option<PathBuf>,
    /// The proxy for HTTP.
    pub proxy: Proxy,
    /// Whether submodules are read, at their pinned commits, with the same credentials and from the same host only.
    /// Default: off.
    pub submodules: bool,
    /// Folders of this machine with repositories that a submodule may be at, where the repository itself is at a path.
    /// Default: none.
    pub submodule_paths: Vec<PathBuf>,
    /// The files with the secret keys for encrypted files of this repository alone. Default: those of the agent.
    pub sops_key_files: Option<Vec<PathBuf>>,
    /// Whether a commit that is no descendant of the one before is refused. Default: on with `verify`, off without, and off
    /// for `semver`, where a newer version of an older line is no descendant.
    pub require_fast_forward: bool,
    /// The signatures that every commit needs. Default: none.
    pub verify: Option<Verify>,
    /// The applications; empty means that they are discovered.
    pub applications: Vec<ApplicationSettings>,
    /// `path` as it is written, if it has `${host}` and the name of the host is known.
    pub path_of_hosts: Option<String>,
    /// The policy of discovered applications.
    pub policy: Policy,
    /// The rules on what manifests may contain.
    pub admission: AdmissionPolicy,
    /// Variables of discovered applications that lie on the host; a later source wins.
    pub values_from: Vec<ValueSource>,
    /// The number of sources at its beginning that are those of the agent, which other repositories have, too.
    pub values_of_agent: usize,
    /// The host, for the selection of applications and for its variables.
    pub host: HostIdentity,
    /// The host as its own configuration has it, if `driftless.yaml` in Git may have added labels.
    pub host_without_git: Option<HostIdentity>,
    /// The settings that `driftless.yaml` in Git may have.
    pub allow: Allow,
    /// The places of the values of `policy`.
    pub origins: Origins,
    /// Applications that `driftless.yaml` has for other hosts.
    pub elsewhere: Vec<ApplicationSettings>,
    /// The hosts that `driftless.yaml` in Git has.
    pub hosts_in_git: Vec<HostIdentity>,
    /// Default: no webhook.
    pub webhook: Option<Webhook>,
    /// Commit statuses for the forge. Default: none.
    pub status: Option<CommitStatus>,
}

/// The branch, tag or commit that the agent follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The default branch of the repository.
    Head,
    /// A branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// The tag with the highest version in a range.
    Semver(VersionRange),
    /// A commit.
    Commit(CommitId),
}

/// The sources of credentials. They are read at each use, so they can be rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// The user. Default with a token: `git`.
    pub username: Option<Secret>,
    /// A token or password.
    pub password: Option<Secret>,
    /// A GitHub App, instead of user and password.
    pub github_app: Option<GithubApp>,
    /// The file of a private SSH key.
    pub ssh_key: Option<PathBuf>,
    /// The passphrase of the SSH key.
    pub ssh_passphrase: Option<Secret>,
    /// A file of known hosts. The user's own file is not read; without a file an unknown host is refused.
    pub known_hosts: Option<PathBuf>,
    /// `SHA256:` fingerprints of the server's keys.
    pub host_keys: Vec<String>,
}

/// The settings of one application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationSettings {
    /// Default: the folder's name.
    pub name: Option<AppName>,
    /// Its folder, from the repository's root.
    pub path: String,
    /// `path` as it is written, if it has `${host}` and the name of the host is known.
    pub path_of_hosts: Option<String>,
    /// The limits of the agent for this application.
    pub policy: Policy,
    /// Those of them that its own entry in the configuration has.
    pub own_policy: PolicyEntry,
    /// The rules on what its manifests may contain.
    pub admission: AdmissionPolicy,
    /// The signatures that this application needs in addition to those of the repository.
    pub verify: Option<Verify>,
    /// Variables for interpolation in Compose files.
    pub variables: BTreeMap<String, String>,
    /// Variables that lie on the host, with those of the agent and the repository; a later source wins. `variables` win over
    /// them.
    pub values_from: Vec<ValueSource>,
    /// Active Compose profiles.
    pub profiles: Vec<String>,
    /// Compose files, from the application's folder. Default: found by name.
    pub files: Vec<String>,
    /// Files of variables, from the application's folder. Default: its `.env`.
    pub env_files: Vec<String>,
    /// The places of the values.
    pub origins: Origins,
}

/// A GitHub App. Its key signs requests for tokens that are valid for an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubApp {
    /// The id or client id of the App.
    pub app: String,
    /// The id of the installation.
    pub installation: String,
    /// The file of the private key, in PEM as GitHub provides it.
    pub private_key: PathBuf,
    /// Default: `https://api.github.com`.
    pub api: String,
}

/// The proxy for HTTP. Its credentials come from the environment variable `HTTPS_PROXY` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` of the environment.
    #[default]
    Environment,
    /// No proxy, also if the environment names one.
    Direct,
    /// This proxy.
    Url(String),
}

/// A login for an image registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// The host, with its port if it has one; `*` matches one part of the name. A path after it limits the login to images
    /// below it.
    pub host: String,
    /// The user.
    pub username: Secret,
    /// The password or token.
    pub password: Secret,
}

/// Commit statuses for the forge of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    /// The type of the forge.
    pub provider: StatusProvider,
    /// The token for its API.
    pub token: Secret,
    /// The address of its API. Default: derived from the repository's URL.
    pub api: String,
    /// `owner/name`. Default: the path of the repository's URL.
    pub project: String,
    /// The name of a status before `/` and the application's name. Hosts that follow the same repository need different
    /// ones. Default: `driftless`.
    pub context: String,
}

/// A forge that accepts commit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusProvider {
    /// GitHub.
    GitHub,
    /// GitLab.
    GitLab,
    /// Gitea and Forgejo.
    Gitea,
}

/// The signatures that a commit needs before anything of it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verify {
    /// The objects that must be signed.
    pub mode: VerifyMode,
    /// A file in the format of `allowed_signers` (ssh-keygen(1)).
    pub allowed_signers_file: Option<PathBuf>,
    /// Lines in the same format.
    pub allowed_signers: Vec<String>,
    /// A file of public keys or `SHA256:` fingerprints that are revoked, one per line.
    pub revoked_keys_file: Option<PathBuf>,
    /// A file of OpenPGP public keys, armored or binary.
    pub keyring_file: Option<PathBuf>,
}

/// The objects that must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyMode {
    /// The commit.
    #[default]
    Commit,
    /// The annotated tag that the agent follows.
    Tag,
    /// Both.
    Both,
}

/// Webhooks of all repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// An address for webhooks alone. Default: the address of the API.
    pub listen: Option<SocketAddr>,
    /// The certificate of that address. `None`: it is served without TLS.
    pub tls: Option<ListenTls>,
    /// The URL before `/hook/…` as forges see it, if there is a proxy. Without a slash at the end.
    pub url: Option<String>,
}

/// Metrics for Prometheus, at `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// An address for metrics alone, which needs no token. Default: the address of the API.
    pub listen: Option<SocketAddr>,
    /// The certificate of that address. `None`: it is served without TLS.
    pub tls: Option<ListenTls>,
}

/// The webhook of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The forge that sends it.
    pub provider: WebhookProvider,
    /// The secret that signs deliveries.
    pub secret: Secret,
    /// The secret before, accepted during a change.
    pub previous: Option<Secret>,
    /// The end of its path. Default: a digest of the secret and the repository's name.
    pub id: Option<String>,
}

impl ApplicationSettings {
    /// The name of the application: `name`, or else the name of its folder. `None`: there is no valid name.
    pub fn app_name(&self) -> Option<AppName> {
        let folder = self.path.rsplit('/').find(|part| !matches!(*part, "" | "."));
        self.name.clone().or_else(|| AppName::normalise(folder?))
    }

    /// The place of its entry in `applications`: that of its folder. `None`: no file lists it.
    pub fn place(&self) -> Option<&Location> {
        self.origins.get("path").map(|place| &place.location)
    }
}

/// The address of a listener for programs of this machine, without a slash at the end: loopback for "all addresses".
pub fn local_url(listen: SocketAddr, has_tls: bool) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let scheme = if has_tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, listen.port()))
}

/// All defaults, without a repository.
impl Default for Settings {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from(STATE_DIR),
            state_key_file: None,
            runtime_dir: PathBuf::from(RUNTIME_DIR),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8484)),
            tls: None,
            socket: ApiSocket::default(),
            token_file: None,
            trusted_proxy: None,
            oidc: None,
            audit: Audit::default(),
            host: HostIdentity::default(),
            docker: DockerHost::default(),
            build_timeout: Duration::from_hours(1),
            image_cleanup: None,
            sops_key_files: Vec::new(),
            credentials: Vec::new(),
            registries: Vec::new(),
            webhooks: Webhooks::default(),
            metrics: Metrics::default(),
            notifications: Notifications::default(),
            report: FleetReports::default(),
            fleet: Fleet::default(),
            repositories: Vec::new(),
        }
    }
}

impl Settings {
    /// The address of the API for programs of this machine, without a slash at the end.
    pub fn local_url(&self) -> String {
        local_url(self.listen, self.tls.is_some())
    }

    /// The address of the page: the one that messages contain, else the one for programs of this machine.
    pub fn page_url(&self) -> String {
        self.notifications.url.clone().unwrap_or_else(|| self.local_url())
    }

    /// Whether clients beyond loopback can prove who they are.
    pub fn has_credentials(&self) -> bool {
        self.token_file.is_some() || self.trusted_proxy.is_some() || self.oidc.is_some()
    }
}

impl Repository {
    /// A repository with defaults: named after its URL, fetched every minute, without credentials, applications discovered.
    pub fn new(url: RepoUrl, path: &str, reference: Reference) -> Self {
        Self {
            name: url.name().unwrap_or("repository").to_owned(),
            url,
            reference,
            path: path.to_owned(),
            poll: Duration::from_mins(1),
            timeout: Duration::from_mins(10),
            idle_timeout: Duration::from_secs(30),
            auth: Auth::default(),
            ca_file: None,
            proxy: Proxy::default(),
            submodules: false,
            submodule_paths: Vec::new(),
            sops_key_files: None,
            require_fast_forward: false,
            verify: None,
            applications: Vec::new(),
            path_of_hosts: None,
            policy: Policy::default(),
            admission: AdmissionPolicy::default(),
            values_from: Vec::new(),
            values_of_agent: 0,
            host: HostIdentity::default(),
            host_without_git: None,
            allow: Allow::default(),
            origins: Origins::default(),
            elsewhere: Vec::new(),
            hosts_in_git: Vec::new(),
            webhook: None,
            status: None,
        }
    }
}
