//! `driftless.yaml` in a repository: settings of its applications that are a part of each commit.
//!
//! The file gives defaults to all applications, lists applications, and says which hosts run them. The configuration of
//! the host says with `allow` which settings it may have. The order is, with the later one winning: the defaults, the
//! configuration of the host for the agent and the repository, `driftless.yaml` for all applications, for one
//! application, for a host, and last the entry of the application in the configuration of the host.

use std::collections::BTreeMap;

use driftless_files::{Files, broken_link, files::Entry};
use driftless_model::{
    AppName, EffectiveSetting, Finding, HostIdentity, HostSelector, Location, Mask, Policy,
};
use driftless_yaml::{Keys, Limits, Report, parse};

use crate::{
    allow::Allow,
    host::selector,
    identify::with_labels,
    keys::{self, GitKeys},
    origins::Origins,
    policy::{PolicyEntry, inherit, policy},
    settings::{ApplicationSettings, Repository},
    url::{self, HOST_PLACEHOLDER},
    value::{Fields as _, Object, Value, each, variables},
};

/// The name of the file, in the folder that the agent follows.
pub const SETTINGS_FILE: &str = "driftless.yaml";

/// A name that the file may have by mistake, because Compose files may end like this.
const OTHER_NAME: &str = "driftless.yml";

/// The largest `driftless.yaml` in a repository, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// The settings of a repository at one commit.
#[derive(Clone, Debug)]
pub struct AtCommit {
    /// The settings of the host's configuration together with those of `driftless.yaml`.
    pub repository: Repository,
    /// Whether applications are searched for. Otherwise only those that are listed exist.
    pub discover: bool,
    /// The hosts that the file lists or names.
    pub hosts: Vec<HostIdentity>,
    /// Warnings, such as that the file lists applications and none is for this host.
    pub findings: Vec<Finding>,
}

/// The file as it is written.
struct FileInGit {
    hosts: Vec<HostIdentity>,
    policy: PolicyEntry,
    /// `None`: the file lists no applications.
    applications: Option<Vec<ApplicationInGit>>,
}

/// One entry of `applications`.
struct ApplicationInGit {
    /// From the folder of the file.
    path: String,
    name: Option<AppName>,
    hosts: HostSelector,
    settings: SettingsInGit,
    per_host: Vec<(HostSelector, SettingsInGit)>,
}

/// The settings of an application, for all hosts or for some.
#[derive(Clone, Default)]
struct SettingsInGit {
    policy: PolicyEntry,
    variables: BTreeMap<String, String>,
    profiles: Vec<String>,
    files: Vec<String>,
    env_files: Vec<String>,
    origins: Origins,
}

impl Repository {
    /// The settings at a commit: these, and those that `driftless.yaml` in its files has. Without the file they are these.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub fn at_commit(&self, files: &dyn Files) -> Result<AtCommit, Vec<Finding>> {
        let mut at_commit = self.with_own_file(files)?;
        at_commit.findings.extend(renamed_settings(files, &self.path));
        Ok(at_commit)
    }

    /// Warnings about settings in folders above the followed one, which are not read. They are true only of a folder that an
    /// agent follows: somebody may check one application of a repository, whose settings lie above it.
    pub fn settings_above(&self, files: &dyn Files) -> Vec<Finding> {
        let own = join(&self.path, SETTINGS_FILE);
        let (mut findings, mut above) = (Vec::new(), self.path.as_str());
        // With a file in the followed folder, one above is meant for somebody who follows that folder.
        while !is_file(files, &own) && !above.is_empty() {
            above = above.rsplit_once('/').map_or("", |(parent, _)| parent);
            for path in [SETTINGS_FILE, OTHER_NAME].map(|name| join(above, name)) {
                if has_key(files, &path, &["hosts", "applications"]) && !is_of_agent(files, &path) {
                    let help = format!(
                        "move it to `{own}`, where paths start at that folder; if it is meant for another agent, an empty \
                         `{own}` ends this warning"
                    );
                    findings.push(unread(&path, &own, help));
                }
            }
        }
        findings
    }

    fn with_own_file(&self, files: &dyn Files) -> Result<AtCommit, Vec<Finding>> {
        let path = join(&self.path, SETTINGS_FILE);
        let unreadable = |error: driftless_files::files::ReadError| {
            vec![Finding::error(Location::file(&*path), "", error.to_string())]
        };
        let unchanged = |findings| AtCommit {
            repository: self.clone(),
            discover: self.applications.is_empty(),
            hosts: Vec::new(),
            findings,
        };
        if files.entry(&path).map_err(unreadable)?.is_none() {
            // Without its settings, each host would have all applications of the folder, also suspended ones.
            let broken = broken_link(files, &path).map_err(unreadable)?;
            // A folder that does not exist is reported by the search for applications.
            return broken.map_or_else(|| Ok(unchanged(Vec::new())), |finding| Err(vec![finding]));
        }
        let bytes = files.read(&path, LARGEST_FILE).map_err(unreadable)?;
        if let Some(file) = read(&path, &bytes, &self.allow)? {
            return Ok(self.with_file(&path, file));
        }
        let message = "is the configuration of an agent, and not settings of this repository; it is ignored";
        let finding = Finding::warning(Location::file(&*path), "repositories", message);
        Ok(unchanged(vec![finding.help("move it to another folder or name")]))
    }

    fn with_file(&self, path: &str, file: FileInGit) -> AtCommit {
        let FileInGit { mut hosts, policy, applications } = file;
        let listed = hosts.iter().find(|host| host.name == self.host.name);
        let host = listed.map_or_else(|| self.host.clone(), |listed| with_labels(&self.host, &listed.labels));
        let mut repository = Self {
            policy: inherit(&self.policy, &policy),
            origins: self.origins.with(&policy.origins.clone().in_git()),
            host: host.clone(),
            host_without_git: Some(self.host.clone()),
            ..self.clone()
        };
        for other in applications.iter().flatten().flat_map(ApplicationInGit::named_hosts) {
            if !hosts.iter().any(|host| host.name == other.name) {
                hosts.push(other);
            }
        }
        repository.hosts_in_git.clone_from(&hosts);
        let Some(entries) = applications else {
            let own = self.applications.iter().map(|own| merge(&repository, None, Some(own)));
            repository.applications = own.collect();
            let discover = repository.applications.is_empty();
            return AtCommit { repository, discover, hosts, findings: Vec::new() };
        };
        let (mut chosen, mut elsewhere) = (Vec::new(), Vec::new());
        if self.applications.is_empty() {
            for entry in &entries {
                let selected = entry.hosts.selects(&host);
                let list = if selected { &mut chosen } else { &mut elsewhere };
                list.push(merge(&repository, Some(entry), None));
            }
        } else {
            for own in &self.applications {
                let all: Vec<_> = entries.iter().filter(|entry| entry.is_for(&repository, own)).collect();
                let selected = all.iter().find(|entry| entry.hosts.selects(&host));
                let list = if all.is_empty() || selected.is_some() { &mut chosen } else { &mut elsewhere };
                list.push(merge(&repository, selected.or(all.first()).copied(), Some(own)));
            }
        }
        let mut findings = Vec::new();
        // A list without entries is for a repository that no host has applications of, such as that of a collector.
        if chosen.is_empty() && !entries.is_empty() {
            let message = format!("no application is for this host (`{}`)", host.name);
            let finding = Finding::warning(Location::file(path), "applications", message);
            findings.push(finding.help("name the host, or labels that it has, in `hosts` of an application"));
        }
        // Of two entries with one name, one for this host and one for others, this host has the first.
        let taken: Vec<Option<AppName>> = chosen.iter().map(ApplicationSettings::app_name).collect();
        elsewhere.retain(|other| !taken.contains(&other.app_name()));
        repository.applications = chosen;
        repository.elsewhere = elsewhere;
        AtCommit { repository, discover: false, hosts, findings }
    }

    /// The settings of one of its applications, listed or discovered.
    fn of_application(&self, app: &AppName) -> Option<&ApplicationSettings> {
        let all = self.applications.iter().chain(&self.elsewhere);
        all.into_iter().find(|application| application.app_name().as_ref() == Some(app))
    }

    /// The policy of one of its applications, listed or discovered, also of one that other hosts have.
    pub fn policy_of(&self, app: &AppName) -> &Policy {
        self.of_application(app).map_or(&self.policy, |application| &application.policy)
    }

    /// The settings of one of its applications with their places, sorted by key. Values of variables that may be secret are
    /// masked.
    pub fn effective_settings(&self, app: &AppName, mask: &Mask) -> Vec<EffectiveSetting> {
        let mut values = fields_of(self.policy_of(app));
        if let Some(application) = self.of_application(app) {
            let lists = [
                ("profiles", &application.profiles),
                ("files", &application.files),
                ("envFiles", &application.env_files),
            ];
            for (key, list) in lists {
                values.insert(key.to_owned(), json(list));
            }
            values.insert("path".to_owned(), json(&application.path));
            for (name, value) in &application.variables {
                values.insert(format!("variables.{name}"), json(&mask.value(name, value)));
            }
        }
        self.with_places(app, values)
    }

    /// The policy of one of its applications as settings with their places, sorted by key.
    pub fn policy_settings(&self, app: &AppName) -> Vec<EffectiveSetting> {
        self.with_places(app, fields_of(self.policy_of(app)))
    }

    /// Settings of an application, with the places that they are written at.
    fn with_places(&self, app: &AppName, values: BTreeMap<String, String>) -> Vec<EffectiveSetting> {
        let application = self.of_application(app);
        let origins = application.map_or_else(|| self.origins.clone(), |own| self.origins.with(&own.origins));
        let place = |key: &str| origins.get(key).map(|place| (place.location.clone(), place.in_git)).unzip();
        let setting = |(key, value): (String, String)| {
            let (origin, in_git) = place(&key);
            EffectiveSetting { key, value, origin, in_git: in_git.unwrap_or_default() }
        };
        values.into_iter().map(setting).collect()
    }
}

/// The fields of a policy by their keys in a configuration, as JSON.
fn fields_of(policy: &Policy) -> BTreeMap<String, String> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(policy) else { return BTreeMap::new() };
    let mut fields: BTreeMap<String, serde_json::Value> = fields.into_iter().collect();
    // Left out of the JSON where they have no value.
    fields.entry("progressDeadlineSeconds".to_owned()).or_insert(serde_json::Value::Null);
    fields.entry("imageUpdate".to_owned()).or_insert_with(|| serde_json::json!("report"));
    fields.entry("after".to_owned()).or_insert_with(|| serde_json::json!("none"));
    for list in ["syncWindows", "dependsOn", "ignoreDifferences"] {
        fields.entry(list.to_owned()).or_insert_with(|| serde_json::json!([]));
    }
    let field = |(key, value): (String, serde_json::Value)| match key.strip_suffix("Seconds") {
        Some(key) if value.is_null() => (key.to_owned(), "null".to_owned()),
        Some(key) => (key.to_owned(), format!("\"{value}s\"")),
        None if key == "suspended" => ("suspend".to_owned(), value.to_string()),
        None => (key, value.to_string()),
    };
    fields.into_iter().map(field).collect()
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The settings of an application: those of `driftless.yaml`, and those of its entry in the configuration of the host, which
/// win. The host's entry also decides name, signatures and rules.
fn merge(
    repository: &Repository,
    entry: Option<&ApplicationInGit>,
    own: Option<&ApplicationSettings>,
) -> ApplicationSettings {
    let mut settings = SettingsInGit::default();
    let mut policy = repository.policy.clone();
    let mut origins = Origins::default();
    if let Some(entry) = entry {
        let of_host = entry.per_host.iter().filter(|(hosts, _)| hosts.selects(&repository.host));
        for more in std::iter::once(&entry.settings).chain(of_host.map(|(_, settings)| settings)) {
            policy = inherit(&policy, &more.policy);
            origins =
                origins.with(&more.policy.origins.clone().in_git()).with(&more.origins.clone().in_git());
            settings.variables.extend(more.variables.clone());
            for (list, more) in [
                (&mut settings.profiles, &more.profiles),
                (&mut settings.files, &more.files),
                (&mut settings.env_files, &more.env_files),
            ] {
                if !more.is_empty() {
                    list.clone_from(more);
                }
            }
        }
    }
    let path = entry.map(|entry| entry.folder(repository)).unwrap_or_default();
    let base = ApplicationSettings {
        name: entry.and_then(|entry| entry.name.clone()),
        path,
        admission: repository.admission.clone(),
        values_from: repository.values_from.clone(),
        ..ApplicationSettings::default()
    };
    let base = own.cloned().unwrap_or(base);
    let one_of = |own: &Vec<String>, other: Vec<String>| if own.is_empty() { other } else { own.clone() };
    ApplicationSettings {
        // The name decides which signatures and rules apply, so a commit cannot change it.
        name: if own.is_some() { base.app_name() } else { base.name.clone() },
        policy: inherit(&policy, &base.own_policy),
        variables: settings.variables.into_iter().chain(base.variables.clone()).collect(),
        profiles: one_of(&base.profiles, settings.profiles),
        files: one_of(&base.files, settings.files),
        env_files: one_of(&base.env_files, settings.env_files),
        origins: origins.with(&base.origins),
        ..base
    }
}

impl ApplicationInGit {
    /// The folder, from the root of the repository.
    fn folder(&self, repository: &Repository) -> String {
        let host = &repository.host.name;
        // Without a name it would be the folder of all hosts.
        let own = if host.is_empty() { self.path.clone() } else { self.path.replace(HOST_PLACEHOLDER, host) };
        join(&repository.path, &own)
    }

    /// Whether the entry is about an application of the configuration of the host.
    fn is_for(&self, repository: &Repository, own: &ApplicationSettings) -> bool {
        self.folder(repository) == own.path && (self.name.is_none() || self.name == own.app_name())
    }

    /// The hosts that it names without a pattern.
    fn named_hosts(&self) -> impl Iterator<Item = HostIdentity> {
        let names = self.hosts.names.iter().filter(|name| HostIdentity::is_name(name));
        names.map(|name| HostIdentity { name: name.clone(), labels: BTreeMap::new() })
    }
}

/// Reads the file. `None`: it is the configuration of an agent.
fn read(file: &str, bytes: &[u8], allow: &Allow) -> Result<Option<FileInGit>, Vec<Finding>> {
    let documents = parse(file, bytes, &Limits::default()).map_err(|finding| vec![finding])?;
    let root = match documents.as_slice() {
        [] => {
            return Ok(Some(FileInGit {
                hosts: Vec::new(),
                policy: PolicyEntry::default(),
                applications: None,
            }));
        }
        [root] => root,
        [_, ..] => {
            let finding = Finding::error(Location::file(file), "", "the file has more than one document");
            return Err(vec![finding.help("remove the line `---`")]);
        }
    };
    if root.get("repositories").is_some() {
        return Ok(None);
    }
    let report = Report::default();
    match document(Value::new(root, "", &report), allow) {
        Some(found) if !report.has_errors() => Ok(Some(found)),
        Some(_) | None => Err(report.into_findings()),
    }
}

/// A warning about a file in the followed folder that looks like its settings and has another name.
fn renamed_settings(files: &dyn Files, folder: &str) -> Option<Finding> {
    let (own, renamed) = (join(folder, SETTINGS_FILE), join(folder, OTHER_NAME));
    if !is_file(files, &renamed) || is_of_agent(files, &renamed) {
        return None;
    }
    let help = if is_file(files, &own) { "remove it".to_owned() } else { format!("rename it to `{own}`") };
    Some(unread(&renamed, &own, help))
}

/// A warning that a file is not read. `own` is the place of the settings.
fn unread(path: &str, own: &str, help: String) -> Finding {
    let message = format!("`{path}` is not read: the settings of this repository are in `{own}`");
    Finding::warning(Location::file(path), "", message).help(help)
}

fn is_file(files: &dyn Files, path: &str) -> bool {
    matches!(files.entry(path), Ok(Some(Entry::File { .. })))
}

/// Whether a file looks like an agent's own configuration.
fn is_of_agent(files: &dyn Files, path: &str) -> bool {
    has_key(files, path, &["repositories"])
}

/// Whether there is a file whose first document has one of these keys.
fn has_key(files: &dyn Files, path: &str, keys: &[&str]) -> bool {
    let Ok(bytes) = files.read(path, LARGEST_FILE) else { return false };
    let documents = parse(path, &bytes, &Limits::default()).unwrap_or_default();
    documents.first().is_some_and(|root| keys.iter().any(|key| root.get(key).is_some()))
}

fn document(root: Value<'_>, allow: &Allow) -> Option<FileInGit> {
    let object = object(root, &GitKeys(&keys::GIT_FILE), allow)?;
    let applications = object
        .get("applications")
        .map(|list| list.items().into_iter().filter_map(|item| application(item, allow)).collect());
    Some(FileInGit { hosts: each(&object, "hosts", host), policy: policy(&object), applications })
}

/// A map with these keys, of which the host must allow each.
fn object<'a>(value: Value<'a>, keys: &(impl Keys + ?Sized), allow: &Allow) -> Option<Object<'a>> {
    let is_root = value.path.is_empty();
    let object = value.object(keys)?;
    for entry in object.value.node.entries() {
        // The list of hosts selects nothing, although the key is called like the selection.
        let is_list = is_root && entry.key == "hosts";
        if !is_list && !allow.has(&entry.key) {
            let path = driftless_yaml::join(&object.value.path, &entry.key);
            let message =
                format!("the configuration of this host does not let a repository set `{}`", entry.key);
            let finding = Finding::error(entry.key_place.location(), path, message);
            object.value.report().say(finding.help("name it in `allow` there, or set it there"));
        }
    }
    Some(object)
}

fn host(value: Value<'_>) -> Option<HostIdentity> {
    let object = value.object(&keys::GIT_HOST)?;
    object.require("name");
    let labels = object.get("labels").map(|map| variables(&map)).unwrap_or_default();
    Some(HostIdentity { name: object.parsed("name", HostIdentity::parse_name)?, labels })
}

fn application(value: Value<'_>, allow: &Allow) -> Option<ApplicationInGit> {
    let object = object(value, &GitKeys(&keys::GIT_APPLICATION), allow)?;
    if object.value.node.get("path").is_none() {
        object.require("path");
    }
    let per_host = |item: Value<'_>| {
        let object = self::object(item, &GitKeys(&keys::PER_HOST), allow)?;
        let hosts = object.require("hosts").and_then(selector)?;
        Some((hosts, settings(&object)))
    };
    let name = object.parsed("name", |text| AppName::parse(text).map_err(|error| error.to_string()));
    let path = object.parsed("path", url::folder).unwrap_or_default();
    Some(ApplicationInGit {
        path,
        name,
        hosts: object.get("hosts").and_then(selector).unwrap_or_default(),
        settings: settings(&object),
        per_host: object.items("perHost").into_iter().filter_map(per_host).collect(),
    })
}

fn settings(object: &Object<'_>) -> SettingsInGit {
    SettingsInGit {
        policy: policy(object),
        variables: object.get("variables").map(|map| variables(&map)).unwrap_or_default(),
        profiles: object.strings("profiles"),
        files: object.strings("files"),
        env_files: object.strings("envFiles"),
        origins: Origins::of_application(object),
    }
}

fn join(folder: &str, path: &str) -> String {
    [folder, path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}
