//! From the file to settings: defaults, inheritance, and the rules between values. All broken rules are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
};

use driftless_model::{AdmissionPolicy, AppName, CommitId, Finding, Location, Policy, RepoUrl, VersionRange};

use crate::{
    access::{self, HostAccess, HostEntry, RawAuth},
    admission::AdmissionEntry,
    allow::Allow,
    file::{self, ApplicationEntry, Document, RepositoryEntry},
    fleet_place::{FleetPlace, PlaceKind},
    listeners::addresses_overlap,
    located::located,
    origins::Origins,
    policy::inherit,
    registry::RegistryEntry,
    settings::{ApplicationSettings, Auth, CommitStatus, Reference, Registry, Repository, Settings, Webhook},
    status::StatusEntry,
    url::{self, HOST_PLACEHOLDER, Transport},
    values_from::ValueSource,
    webhook::WebhookEntry,
};

impl Settings {
    /// Reads a configuration file. `file` is its name for findings.
    ///
    /// # Errors
    /// All mistakes in keys and values; if there are none, all broken rules between values.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Finding>> {
        let document = file::read(file, text)?;
        settings(file, document).map_err(|findings| located(file, text, findings))
    }

    /// One repository and otherwise defaults, for `driftless run URL`. A local path must be absolute.
    ///
    /// # Errors
    /// All broken rules. After later changes, check again with [`Settings::check`].
    pub fn for_repository(url: &str, path: &str, reference: Reference) -> Result<Self, Vec<Finding>> {
        // A path without a plain form is reported by the check.
        let path = url::folder(path).unwrap_or_else(|_| path.to_owned());
        let place = "the command line";
        let url = RepoUrl::parse(url).map_err(|error| {
            let mut check = Check { file: place, findings: Vec::new() };
            check.error("repositories[0].url", error.to_string());
            check.findings
        })?;
        let repositories = vec![Repository::new(url, &path, reference)];
        let settings = Self { repositories, ..Self::default() };
        let findings = settings.check(place);
        if findings.is_empty() { Ok(settings) } else { Err(findings) }
    }

    /// The paths that need the name of the host, which it does not have. Call it after [`Settings::identify`].
    pub fn check_host(&self, file: &str) -> Vec<Finding> {
        let mut check = Check { file, findings: Vec::new() };
        for (index, repository) in self.repositories.iter().enumerate() {
            let folders = repository.applications.iter().map(|application| &application.path);
            if folders.chain([&repository.path]).any(|folder| folder.contains(HOST_PLACEHOLDER)) {
                let message = "needs the name of the host, and the hostname of this machine cannot be read: set `host.name`";
                check.error(format!("repositories[{index}].path"), message);
            }
        }
        check.findings
    }

    /// Settings that the agent accepts and that somebody should know of, such as a token that crosses the network in clear.
    pub fn warnings(&self, file: &str) -> Vec<Finding> {
        let is_collector = |place: &FleetPlace| matches!(place.kind, PlaceKind::Collector { .. });
        let warning = |place: &FleetPlace, key: &str, exception: &str| {
            let url = &place.url;
            let message = format!("the token or password crosses the network in clear to {url}{exception}");
            Finding::warning(Location::file(file), key, message).help("use https: docs/access.md#tls")
        };
        let is_exposed = |place: &&FleetPlace| place.is_exposed();
        let to = self.report.to.iter().filter(is_exposed).map(|place| {
            // The enrolments are in the state directory.
            let exception = if is_collector(place) { ", unless this host has joined it" } else { "" };
            warning(place, "report.to", exception)
        });
        let from = self.fleet.from.iter().filter(is_exposed).map(|place| warning(place, "fleet.from", ""));
        let mut warnings: Vec<Finding> = to.chain(from).collect();
        if !self.fleet.allow_requests.is_empty() && !self.report.to.iter().any(is_collector) {
            let message = "it has no effect without a collector in `report.to`";
            let finding = Finding::warning(Location::file(file), "fleet.allowRequests", message);
            warnings.push(finding.help("docs/fleet.md#requests-to-hosts"));
        }
        warnings
    }

    /// Checks the rules between values again, after options changed the settings. Returns all broken rules.
    pub fn check(&self, file: &str) -> Vec<Finding> {
        findings(file, self)
    }
}

/// Collects the broken rules of one file.
struct Check<'a> {
    file: &'a str,
    findings: Vec<Finding>,
}

/// Turns a file into settings: defaults, inheritance, rules.
fn settings(file: &str, document: Document) -> Result<Settings, Vec<Finding>> {
    let Document {
        state_dir,
        state_key_file,
        runtime_dir,
        listen,
        tls,
        socket,
        token_file,
        trusted_proxy,
        oidc,
        audit,
        host,
        allow,
        docker,
        build_timeout,
        image_cleanup,
        sops_key_files,
        values_from,
        policy,
        admission,
        credentials,
        registries,
        webhooks,
        metrics,
        notifications,
        report,
        fleet,
        repositories,
    } = document;
    let mut check = Check { file, findings: Vec::new() };
    let defaults = Settings::default();
    let origins = policy.origins.clone();
    let mut policy = inherit(&Policy::default(), &policy);
    if repositories.as_slice().len() > 1 {
        // Another repository may have the workload.
        policy.ignore_differences.iter_mut().for_each(|rule| rule.place = None);
    }
    let allow = allow.unwrap_or_default();
    let admission = AdmissionEntry::within(admission, &AdmissionPolicy::default());
    let hosts = check.hosts(credentials);
    let registries = check.registries(registries);
    let repositories = repositories
        .into_iter()
        .enumerate()
        .map(|(index, raw)| {
            let inherited = Inherited {
                policy: &policy,
                admission: &admission,
                values_from: &values_from,
                allow: &allow,
                origins: &origins,
            };
            check.repository(&format!("repositories[{index}]"), raw, &inherited, &hosts)
        })
        .collect();
    let has_own_address = listen.is_some();
    let mut settings = Settings {
        state_dir: state_dir.unwrap_or(defaults.state_dir),
        state_key_file,
        runtime_dir: runtime_dir.unwrap_or(defaults.runtime_dir),
        listen: listen.unwrap_or(defaults.listen),
        tls,
        socket,
        token_file,
        trusted_proxy,
        oidc,
        audit,
        host,
        docker: docker.unwrap_or(defaults.docker),
        build_timeout: build_timeout.unwrap_or(defaults.build_timeout),
        image_cleanup,
        sops_key_files,
        credentials: hosts.into_iter().map(|host| host.auth).collect(),
        registries,
        webhooks,
        metrics,
        notifications,
        report,
        fleet,
        repositories,
    };
    settings.protect_paths();
    check.whole(&settings, has_own_address);
    if check.findings.is_empty() { Ok(settings) } else { Err(check.findings) }
}

/// The broken rules of any settings, from a file or from options.
fn findings(file: &str, settings: &Settings) -> Vec<Finding> {
    let mut check = Check { file, findings: Vec::new() };
    for (index, repository) in settings.repositories.iter().enumerate() {
        let path = format!("repositories[{index}]");
        check.transport(&path, repository, Transport::of(&repository.url));
        if url::folder(&repository.path).as_ref() != Ok(&repository.path) {
            check.error(format!("{path}.path"), "must be a path inside the repository, without `..`");
        }
    }
    check.whole(settings, true);
    check.findings
}

impl Check<'_> {
    fn repository(
        &mut self,
        path: &str,
        raw: RepositoryEntry,
        inherited: &Inherited<'_>,
        hosts: &[HostAccess],
    ) -> Repository {
        let RepositoryEntry {
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
            submodule_paths,
            sops_key_files,
            require_fast_forward,
            verify,
            policy,
            admission,
            webhook,
            status,
            values_from,
            allow,
            applications,
        } = raw;
        let transport = url.as_ref().map(Transport::of);
        let host = hosts.iter().find(|access| url.as_ref().is_some_and(|url| access.matches(url)));
        let of_host = |access: &HostAccess| {
            transport.map_or_else(Auth::default, |transport| access.auth_for(transport))
        };
        let is_https = transport == Some(Transport::Https);
        let allow = allow.unwrap_or_else(|| inherited.allow.clone());
        let origins = inherited.origins.with(&policy.origins);
        let policy = inherit(inherited.policy, &policy);
        let admission = AdmissionEntry::within(admission, inherited.admission);
        let values_from = [inherited.values_from, &values_from].concat();
        let folder = folder.unwrap_or_default();
        // Settings with an error are not used, so a missing URL needs no value.
        let known = url.clone().unwrap_or_else(|| RepoUrl::Local(PathBuf::new()));
        let defaults = Repository::new(known, "", Reference::Head);
        let passed_on = Inherited {
            policy: &policy,
            admission: &admission,
            values_from: &values_from,
            allow: &allow,
            origins: &origins,
        };
        let applications: Vec<_> = applications
            .into_iter()
            .enumerate()
            .map(|(index, raw)| {
                (format!("{path}.applications[{index}]"), application(raw, &folder, &passed_on))
            })
            .collect();
        self.unique_folders(&applications);
        let reference = self.reference(path, branch, tag, semver, commit);
        // A signature says who wrote a commit, not that it is newer than the one before it.
        let is_signed = verify.is_some() || applications.iter().any(|(_, it)| it.verify.is_some());
        let needs_fast_forward = is_signed && !matches!(reference, Reference::Semver(_));
        let mut repository = Repository {
            name: name.unwrap_or(defaults.name),
            url: defaults.url,
            reference,
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
            submodule_paths,
            sops_key_files,
            require_fast_forward: require_fast_forward.unwrap_or(needs_fast_forward),
            verify,
            applications: applications.into_iter().map(|it| it.1).collect(),
            policy,
            admission,
            values_from,
            values_of_agent: inherited.values_from.len(),
            allow,
            origins,
            webhook: webhook.and_then(|it| self.webhook(path, it)),
            ..defaults
        };
        repository.status = status.and_then(|entry| self.status(path, url.as_ref(), entry));
        if let Some(transport) = transport {
            self.transport(path, &repository, transport);
        }
        self.trust(path, &repository);
        repository
    }

    /// Two applications of one folder need names.
    fn unique_folders(&mut self, applications: &[(String, ApplicationSettings)]) {
        let mut seen = BTreeSet::new();
        for (place, application) in applications {
            if !seen.insert((&application.path, &application.name)) {
                let message = format!("the folder `{}` is an application already", application.path);
                self.error(format!("{place}.path"), message).help =
                    Some("give each a name of its own".to_owned());
            }
        }
    }

    fn hosts(&mut self, raw: Vec<HostEntry>) -> Vec<HostAccess> {
        let mut hosts = Vec::new();
        for (index, it) in raw.into_iter().enumerate() {
            let path = format!("credentials[{index}]");
            if it.host.is_empty() || it.host.contains(['/', '@']) || it.host.contains(char::is_whitespace) {
                self.error(
                    format!("{path}.host"),
                    "must be a host such as `git.example.com` or `*.example.com`",
                );
            }
            let auth = it.auth.map_or_else(Auth::default, |auth| self.auth(&format!("{path}.auth"), auth));
            hosts.push(HostAccess { host: it.host, auth, ca_file: it.ca_file, proxy: it.proxy });
        }
        hosts
    }

    fn registries(&mut self, raw: Vec<RegistryEntry>) -> Vec<Registry> {
        let mut registries: Vec<Registry> = Vec::new();
        for (index, it) in raw.into_iter().enumerate() {
            match it.check() {
                Ok(registry) if registries.iter().any(|it| it.host == registry.host) => {
                    self.error(format!("registries[{index}].host"), "this host has a login already");
                }
                Ok(registry) => registries.push(registry),
                Err((key, message)) => {
                    self.error(format!("registries[{index}].{key}"), message);
                }
            }
        }
        registries
    }

    /// A policy that no commit can meet is a mistake.
    fn trust(&mut self, path: &str, repository: &Repository) {
        let of_applications = repository
            .applications
            .iter()
            .enumerate()
            .map(|(index, it)| (format!("{path}.applications[{index}].verify"), it.verify.as_ref()));
        let all =
            std::iter::once((format!("{path}.verify"), repository.verify.as_ref())).chain(of_applications);
        let of_repository = repository.admission.signed_commits == Some(true);
        let unsigned = repository.applications.iter().enumerate().find(|(_, application)| {
            application.admission.signed_commits == Some(true) && application.verify.is_none()
        });
        let unsigned = match (repository.verify.is_some(), of_repository, unsigned) {
            (false, _, Some((index, _))) => Some(format!("{path}.applications[{index}].verify")),
            (false, true, None) if repository.applications.is_empty() => Some(format!("{path}.verify")),
            (true | false, ..) => None,
        };
        if let Some(path) = unsigned {
            self.error(path, "`policy.signedCommits` requires signed commits, but no key is trusted").help =
                Some("name trusted keys in `verify`".to_owned());
        }
        let is_tag = matches!(repository.reference, Reference::Tag(_) | Reference::Semver(_));
        for (path, verify) in all.collect::<Vec<_>>() {
            let Some(verify) = verify else { continue };
            if verify.is_empty() {
                self.error(&path, "no key is trusted, so no commit could be applied").help = Some(
                    "name `ssh.allowedSignersFile`, `ssh.allowedSigners` or `openpgp.keyringFile`".to_owned(),
                );
            }
            if verify.needs_tag() && !is_tag {
                self.error(&path, "a tag can only be verified if the agent follows a tag").help =
                    Some("follow `tag` or `semver`, or set `mode: commit`".to_owned());
            }
        }
    }

    fn status(&mut self, path: &str, url: Option<&RepoUrl>, raw: StatusEntry) -> Option<CommitStatus> {
        raw.check(url).map_err(|message| self.error(format!("{path}.status"), message).clone()).ok()
    }

    fn webhook(&mut self, path: &str, raw: WebhookEntry) -> Option<Webhook> {
        raw.check().map_err(|message| self.error(format!("{path}.webhook"), message).clone()).ok()
    }

    fn reference(
        &mut self,
        path: &str,
        branch: Option<String>,
        tag: Option<String>,
        semver: Option<VersionRange>,
        commit: Option<CommitId>,
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

    fn auth(&mut self, path: &str, raw: RawAuth) -> Auth {
        let (auth, wrong) = access::auth(raw);
        for message in wrong {
            self.error(path, message);
        }
        auth
    }

    /// A credential that the transport does not use is a mistake. The server would refuse the agent without a reason.
    fn transport(&mut self, path: &str, repository: &Repository, transport: Transport) {
        let Auth { username, password, github_app, ssh_key, ssh_passphrase: _, known_hosts, host_keys } =
            &repository.auth;
        let http = matches!(transport, Transport::Http | Transport::Https);
        if (username.is_some() || password.is_some()) && !http {
            self.error(format!("{path}.auth"), "user names, passwords and tokens are for `https` URLs only");
        }
        if password.is_some() && transport == Transport::Http {
            let message = "over `http` anybody on the way could read the password or token: write an `https` URL, or remove `auth`";
            self.error(format!("{path}.auth"), message);
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

    /// The rules about more than one value. `has_own_address`: no option replaces the address of the API any more.
    fn whole(&mut self, settings: &Settings, has_own_address: bool) {
        if settings.repositories.is_empty() {
            self.error("repositories", "there is no repository");
        }
        let has_credentials = settings.has_credentials();
        if !settings.listen.ip().is_loopback() && !has_credentials {
            let message =
                format!("`{}` can be reached from other machines, but there is no token", settings.listen);
            self.error("listen", message).help = Some(
                "name a file that holds a secret token in `tokenFile`, or listen on 127.0.0.1".to_owned(),
            );
        }
        self.unique_addresses(settings, has_own_address);
        self.unique_repositories(settings);
        self.unique_applications(settings);
        self.unique_webhooks(settings);
    }

    /// Only one listener can have an address, or a part of it. An option may still give the API another address than the default one, which
    /// nobody has written.
    fn unique_addresses(&mut self, settings: &Settings, has_own_address: bool) {
        let listeners: Vec<_> = settings.listeners().collect();
        for (index, &(key, address)) in listeners.iter().enumerate() {
            let clashes = |&(other, taken): &(&str, SocketAddr)| {
                let is_certain = has_own_address || other != "listen";
                addresses_overlap(taken, address) && (is_certain || taken == address)
            };
            let Some((other, taken)) = listeners.iter().take(index).copied().find(clashes) else {
                continue;
            };
            let message = if taken == address {
                format!("`{other}` has the address {address} already")
            } else {
                format!("`{other}` has the address {taken} already, which overlaps with {address}")
            };
            self.error(key, message).help = Some("choose another port".to_owned());
        }
    }

    fn unique_repositories(&mut self, settings: &Settings) {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let names: BTreeSet<&str> = settings.repositories.iter().map(|it| it.name.as_str()).collect();
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
            } else if let Some(other) = mirror_owners(&repository.name).find(|other| names.contains(other)) {
                let message =
                    format!("the mirror of the repository `{other}` uses `{}` itself", repository.name);
                self.error(path, message).help = Some("set another `name`".to_owned());
            } else {
                first.insert(&repository.name, index);
            }
        }
    }

    /// Names of applications are unique over all repositories, because containers are named after them. Names of
    /// discovered applications are not known yet.
    fn unique_applications(&mut self, settings: &Settings) {
        let mut first: BTreeMap<AppName, String> = BTreeMap::new();
        for (index, repository) in settings.repositories.iter().enumerate() {
            for (number, application) in repository.applications.iter().enumerate() {
                let path = format!("repositories[{index}].applications[{number}]");
                let Some(name) = application.app_name() else {
                    self.error(path, "the folder has no name that an application can have").help =
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

    /// The id alone identifies a webhook.
    fn unique_webhooks(&mut self, settings: &Settings) {
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
        self.findings.last_mut().expect("a finding was pushed just now")
    }
}

/// The values that an inner level of the file inherits from the outer one.
struct Inherited<'a> {
    policy: &'a Policy,
    admission: &'a AdmissionPolicy,
    values_from: &'a [ValueSource],
    allow: &'a Allow,
    origins: &'a Origins,
}

fn application(raw: ApplicationEntry, folder: &str, inherited: &Inherited<'_>) -> ApplicationSettings {
    let ApplicationEntry {
        path,
        name,
        policy: own_policy,
        admission,
        verify,
        variables,
        values_from,
        profiles,
        files,
        env_files,
        origins,
    } = raw;
    let parts = [folder, path.as_str()];
    let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let policy = inherit(inherited.policy, &own_policy);
    let origins = own_policy.origins.with(&origins);
    let values_from = [inherited.values_from, &values_from].concat();
    let admission = AdmissionEntry::within(admission, inherited.admission);
    ApplicationSettings {
        name,
        path,
        path_of_hosts: None,
        policy,
        own_policy,
        admission,
        verify,
        variables,
        values_from,
        profiles,
        files,
        env_files,
        origins,
    }
}

/// The names of repositories whose mirrors have a file or folder of this name next to them (`crates/git/src/mirror.rs`).
fn mirror_owners(name: &str) -> impl Iterator<Item = &str> {
    const ENDS: &[&str] = &[".lock", ".new", ".old", ".modules", ".ssh-helper", ".ssh-helper.new"];
    ENDS.iter().filter_map(move |end| name.strip_suffix(*end))
}

/// The name is part of folder names and of URLs of the API.
fn is_repository_name(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it))
        && name.len() <= 63
}
