//! From the file's keys to settings: defaults, inheritance, and the rules that look at more than one value.
//! All mistakes are found, not only the first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ApplicationSettings, Auth, Reference, Registry, Repository, Settings, Verify, VersionRange,
    access::{self, HostAccess},
    registry::RawRegistry,
    schema,
    status::{CommitStatus, RawStatus},
    url::{self, Transport},
    webhook::{RawWebhook, Webhook},
};
use driftless_model::{Adopt, AppName, FilesystemDrift, Finding, Location, Policy};

/// Collects findings about one file.
struct Check<'a> {
    file: &'a str,
    findings: Vec<Finding>,
}

/// Turns what was read into settings.
pub(super) fn settings(file: &str, raw: schema::Document) -> Result<Settings, Vec<Finding>> {
    let schema::Document {
        state_dir,
        runtime_dir,
        listen,
        token_file,
        docker,
        build_timeout,
        self_heal,
        prune,
        max_prune_percent,
        filesystem_drift,
        credentials,
        registries,
        webhooks,
        adopt,
        repositories,
    } = raw;
    let mut check = Check { file, findings: Vec::new() };
    let defaults = Settings::default();
    let policy = inherit(&Policy::default(), self_heal, prune, max_prune_percent, adopt, filesystem_drift);
    let hosts = check.hosts(credentials);
    let registries = check.registries(registries);
    let repositories = repositories
        .into_iter()
        .enumerate()
        .map(|(index, raw)| check.repository(&format!("repositories[{index}]"), raw, &policy, &hosts))
        .collect();
    let settings = Settings {
        state_dir: state_dir.unwrap_or(defaults.state_dir),
        runtime_dir: runtime_dir.unwrap_or(defaults.runtime_dir),
        listen: listen.unwrap_or(defaults.listen),
        token_file,
        docker_host: docker.unwrap_or(defaults.docker_host),
        build_timeout: build_timeout.unwrap_or(defaults.build_timeout),
        registries,
        webhooks: webhooks.unwrap_or_default().into(),
        repositories,
    };
    check.whole(&settings);
    if check.findings.is_empty() { Ok(settings) } else { Err(check.findings) }
}

/// The rules that must hold for any settings, wherever they come from.
pub(super) fn findings(file: &str, settings: &Settings) -> Vec<Finding> {
    let mut check = Check { file, findings: Vec::new() };
    for (index, repository) in settings.repositories.iter().enumerate() {
        let path = format!("repositories[{index}]");
        match url::check(&repository.url) {
            Ok(transport) => check.transport(&path, repository, transport),
            Err(message) => {
                check.error(format!("{path}.url"), message);
            }
        }
        if url::folder(&repository.path).as_ref() != Ok(&repository.path) {
            check.error(format!("{path}.path"), "it must be a path inside the repository, without `..`");
        }
        if let Reference::Commit(id) = &repository.reference
            && !url::is_commit(id)
        {
            check.error(
                format!("{path}.commit"),
                "a commit is given by its full id: 40 (or 64) hexadecimal digits",
            );
        }
    }
    check.whole(settings);
    check.findings
}

impl Check<'_> {
    fn repository(
        &mut self,
        path: &str,
        raw: schema::Repository,
        inherited: &Policy,
        hosts: &[HostAccess],
    ) -> Repository {
        let schema::Repository {
            name,
            url,
            branch,
            tag,
            semver,
            commit,
            path: folder,
            poll,
            timeout,
            idle_timeout,
            auth,
            ca_file,
            proxy,
            submodules,
            require_fast_forward,
            verify,
            self_heal,
            prune,
            max_prune_percent,
            filesystem_drift,
            webhook,
            status,
            adopt,
            applications,
        } = raw;
        let transport = url::check(&url);
        let host = hosts.iter().find(|it| it.matches(&url));
        let of_host =
            |it: &HostAccess| transport.as_ref().map_or_else(|_| Auth::default(), |to| it.auth_for(*to));
        let is_https = transport == Ok(Transport::Https);
        let policy = inherit(inherited, self_heal, prune, max_prune_percent, adopt, filesystem_drift);
        let folder = folder.unwrap_or_default();
        let defaults = Repository::new(&url, "", Reference::Head);
        let mut seen = BTreeSet::new();
        let applications: Vec<_> = applications
            .into_iter()
            .enumerate()
            .map(|(index, raw)| (format!("{path}.applications[{index}]"), application(raw, &folder, &policy)))
            .collect();
        for (place, application) in &applications {
            if !seen.insert((&application.path, &application.name)) {
                let message = format!("the folder `{}` is an application already", application.path);
                self.error(format!("{place}.path"), message).help =
                    Some("give each a name of its own".to_owned());
            }
        }
        let mut repository = Repository {
            name: name.unwrap_or(defaults.name),
            url,
            reference: self.reference(path, branch, tag, semver, commit),
            path: folder,
            poll: poll.unwrap_or(defaults.poll),
            timeout: timeout.unwrap_or(defaults.timeout),
            idle_timeout: idle_timeout.unwrap_or(defaults.idle_timeout),
            auth: match auth {
                Some(auth) => self.auth(&format!("{path}.auth"), auth),
                None => host.map(of_host).unwrap_or_default(),
            },
            ca_file: ca_file.or_else(|| host.filter(|_| is_https).and_then(|it| it.ca_file.clone())),
            proxy: proxy.or_else(|| host.and_then(|it| it.proxy.clone())).unwrap_or_default(),
            submodules,
            require_fast_forward,
            verify: verify.map(Verify::from),
            applications: applications.into_iter().map(|it| it.1).collect(),
            policy,
            webhook: webhook.and_then(|it| self.webhook(path, it)),
            status: None,
        };
        repository.status = status.and_then(|it| self.status(path, &repository.url, it));
        if let Ok(transport) = transport {
            self.transport(path, &repository, transport);
        }
        self.trust(path, &repository);
        repository
    }

    fn hosts(&mut self, raw: Vec<access::RawHostAccess>) -> Vec<HostAccess> {
        let mut hosts = Vec::new();
        for (index, it) in raw.into_iter().enumerate() {
            let path = format!("credentials[{index}]");
            if it.host.is_empty() || it.host.contains(['/', '@']) || it.host.contains(char::is_whitespace) {
                self.error(
                    format!("{path}.host"),
                    "it must be a host such as `git.example.com` or `*.example.com`",
                );
            }
            let auth = it.auth.map_or_else(Auth::default, |auth| self.auth(&format!("{path}.auth"), auth));
            hosts.push(HostAccess { host: it.host, auth, ca_file: it.ca_file, proxy: it.proxy });
        }
        hosts
    }

    fn registries(&mut self, raw: Vec<RawRegistry>) -> Vec<Registry> {
        let mut registries: Vec<Registry> = Vec::new();
        for (index, it) in raw.into_iter().enumerate() {
            match it.check() {
                Ok(registry) if registries.iter().any(|it| it.host == registry.host) => {
                    self.error(format!("registries[{index}].host"), "there is a login for this host already");
                }
                Ok(registry) => registries.push(registry),
                Err((key, message)) => {
                    self.error(format!("registries[{index}].{key}"), message);
                }
            }
        }
        registries
    }

    /// A policy that nobody could meet is a mistake.
    fn trust(&mut self, path: &str, repository: &Repository) {
        let of_applications = repository
            .applications
            .iter()
            .enumerate()
            .map(|(index, it)| (format!("{path}.applications[{index}].verify"), it.verify.as_ref()));
        let all =
            std::iter::once((format!("{path}.verify"), repository.verify.as_ref())).chain(of_applications);
        let is_tag = matches!(repository.reference, Reference::Tag(_) | Reference::Semver(_));
        for (path, verify) in all.collect::<Vec<_>>() {
            let Some(verify) = verify else { continue };
            if verify.is_empty() {
                self.error(&path, "nobody is trusted, so nothing could ever be applied").help = Some(
                    "name `ssh.allowedSignersFile`, `ssh.allowedSigners` or `openpgp.keyringFile`".to_owned(),
                );
            }
            if verify.needs_tag() && !is_tag {
                self.error(&path, "a tag can only be verified where a tag is followed").help =
                    Some("follow `tag` or `semver`, or set `mode: commit`".to_owned());
            }
        }
    }

    fn status(&mut self, path: &str, url: &str, raw: RawStatus) -> Option<CommitStatus> {
        raw.check(url).map_err(|message| self.error(format!("{path}.status"), message).clone()).ok()
    }

    fn webhook(&mut self, path: &str, raw: RawWebhook) -> Option<Webhook> {
        raw.check().map_err(|message| self.error(format!("{path}.webhook"), message).clone()).ok()
    }

    fn reference(
        &mut self,
        path: &str,
        branch: Option<String>,
        tag: Option<String>,
        semver: Option<VersionRange>,
        commit: Option<String>,
    ) -> Reference {
        let given = [
            branch.map(|it| if it == "HEAD" { Reference::Head } else { Reference::Branch(it) }),
            tag.map(Reference::Tag),
            semver.map(Reference::Semver),
            commit.map(Reference::Commit),
        ];
        let mut given = given.into_iter().flatten();
        let first = given.next();
        if given.next().is_some() {
            self.error(path, "`branch`, `tag`, `semver` and `commit` exclude each other: give one of them");
        }
        first.unwrap_or(Reference::Head)
    }

    fn auth(&mut self, path: &str, raw: access::RawAuth) -> Auth {
        let (auth, wrong) = access::auth(raw);
        for message in wrong {
            self.error(path, message);
        }
        auth
    }

    /// A credential that the transport has no use for is a mistake that would show as a refusal by the server.
    fn transport(&mut self, path: &str, repository: &Repository, transport: Transport) {
        let Auth { username, password, github_app, ssh_key, ssh_passphrase: _, known_hosts, host_keys } =
            &repository.auth;
        let http = matches!(transport, Transport::Http | Transport::Https);
        if (username.is_some() || password.is_some()) && !http {
            self.error(format!("{path}.auth"), "user names, passwords and tokens are for `https` URLs only");
        }
        if username.is_some() && password.is_none() && http {
            self.error(format!("{path}.auth"), "a user name needs a password or token");
        }
        if github_app.is_some() && transport != Transport::Https {
            self.error(format!("{path}.auth"), "`githubApp` is for `https` URLs only");
        }
        let has_ssh = ssh_key.is_some() || known_hosts.is_some() || !host_keys.is_empty();
        if has_ssh && transport != Transport::Ssh {
            self.error(
                format!("{path}.auth"),
                "`sshKeyFile`, `knownHosts` and `hostKeys` are for SSH URLs only",
            );
        }
        if repository.ca_file.is_some() && transport != Transport::Https {
            self.error(format!("{path}.caFile"), "certificate authorities are for `https` URLs only");
        }
    }

    fn whole(&mut self, settings: &Settings) {
        if settings.repositories.is_empty() {
            self.error("repositories", "there is no repository to follow");
        }
        if !settings.listen.ip().is_loopback() && settings.token_file.is_none() {
            let message =
                format!("`{}` can be reached from other machines, and there is no token", settings.listen);
            self.error("listen", message).help = Some(
                "name a file that holds a secret token in `tokenFile`, or listen on 127.0.0.1".to_owned(),
            );
        }
        self.unique_repositories(settings);
        self.unique_applications(settings);
        self.unique_hooks(settings);
    }

    fn unique_repositories(&mut self, settings: &Settings) {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, repository) in settings.repositories.iter().enumerate() {
            let path = format!("repositories[{index}].name");
            if !is_repository_name(&repository.name) {
                let message = format!(
                    "`{}` is not a valid repository name: use letters, digits, `.`, `-` and `_`, beginning with a letter or digit, at most 63 characters",
                    repository.name
                );
                self.error(path, message).help = Some("set `name`".to_owned());
            } else if let Some(other) = first.get(repository.name.as_str()) {
                let message = format!("repositories[{other}] is named `{}` already", repository.name);
                self.error(path, message).help = Some("give each a `name` of its own".to_owned());
            } else {
                first.insert(&repository.name, index);
            }
        }
    }

    /// Over all repositories, for names are what containers are told apart by. Names that discovery finds are
    /// not known yet.
    fn unique_applications(&mut self, settings: &Settings) {
        let mut first: BTreeMap<AppName, String> = BTreeMap::new();
        for (index, repository) in settings.repositories.iter().enumerate() {
            for (number, application) in repository.applications.iter().enumerate() {
                let path = format!("repositories[{index}].applications[{number}]");
                let Some(name) = application.app_name() else {
                    self.error(path, "an application's name cannot be told from its folder").help =
                        Some("set `name`".to_owned());
                    continue;
                };
                if let Some(other) = first.get(&name) {
                    let message = format!("{other} is named `{name}` already");
                    self.error(format!("{path}.name"), message).help =
                        Some("give each a `name` of its own".to_owned());
                } else {
                    first.insert(name, path);
                }
            }
        }
    }

    /// An id is all that tells which hook is meant.
    fn unique_hooks(&mut self, settings: &Settings) {
        let mut seen = BTreeSet::new();
        for (index, repository) in settings.repositories.iter().enumerate() {
            let id = repository.webhook.as_ref().and_then(|it| it.id.as_deref());
            if id.is_some_and(|id| !seen.insert(id)) {
                let path = format!("repositories[{index}].webhook.id");
                self.error(path, "another webhook has the same id").help =
                    Some("give each an `id` of its own, or leave it out".to_owned());
            }
        }
    }

    fn error(&mut self, path: impl Into<String>, message: impl Into<String>) -> &mut Finding {
        self.findings.push(Finding::error(Location::file(self.file), path, message));
        self.findings.last_mut().expect("one was pushed just now")
    }
}

fn application(raw: schema::Application, folder: &str, inherited: &Policy) -> ApplicationSettings {
    let schema::Application {
        path,
        name,
        suspend,
        self_heal,
        prune,
        max_prune_percent,
        filesystem_drift,
        verify,
        adopt,
        variables,
        profiles,
        files,
        env_files,
    } = raw;
    let path = [folder, path.as_deref().unwrap_or_default()]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    let policy = inherit(inherited, self_heal, prune, max_prune_percent, adopt, filesystem_drift);
    let policy = Policy { suspended: suspend.unwrap_or(inherited.suspended), ..policy };
    let verify = verify.map(Verify::from);
    ApplicationSettings { name, path, policy, verify, variables, profiles, files, env_files }
}

fn inherit(
    from: &Policy,
    self_heal: Option<bool>,
    prune: Option<bool>,
    max_prune_percent: Option<u8>,
    adopt: Option<Adopt>,
    filesystem_drift: Option<FilesystemDrift>,
) -> Policy {
    Policy {
        self_heal: self_heal.unwrap_or(from.self_heal),
        prune: prune.unwrap_or(from.prune),
        max_prune_percent: max_prune_percent.unwrap_or(from.max_prune_percent),
        suspended: from.suspended,
        adopt: adopt.unwrap_or(from.adopt),
        filesystem_drift: filesystem_drift.unwrap_or(from.filesystem_drift),
    }
}

/// It becomes the name of a mirror's folder and part of the API's answers.
fn is_repository_name(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it))
        && name.len() <= 63
}
