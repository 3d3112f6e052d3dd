//! The hosts that a command renders a repository for, without an agent: those of `driftless.yaml`, or one.

use std::{collections::BTreeSet, sync::Arc};

use clap::Args;

use super::options::{SecretParser, parse_variable};
use driftless_agent::{discover_at, discover_elsewhere};
use driftless_config::{
    ApplicationSettings, HOST_PLACEHOLDER, Reference, Repository, SETTINGS_FILE, machine_labels,
};
use driftless_files::{AppSpec, Files, HostFile, HostValues, files::Entry};
use driftless_manifest::{Configured, Discovery, discover_for};
use driftless_model::{AppName, EngineKind, Finding, HostIdentity, Location, RepoUrl};

/// The most folders that a warning names.
const MOST_FOLDERS: usize = 8;

/// The hosts to render for.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct HostArgs {
    /// Render for this host: its applications, variables and files [default: every host that driftless.yaml or --path
    /// has]
    #[arg(long, value_name = "NAME", value_parser = HostIdentity::parse_name)]
    pub(super) host: Option<String>,
    /// Label of that host, as its agent's configuration has it: `hosts` of an application in driftless.yaml may select by it.
    /// Can be repeated. The labels `os=linux` and `engine=docker` are given.
    #[arg(long = "host-label", value_name = "NAME=VALUE", requires = "host", value_parser = parse_variable)]
    pub(super) host_labels: Vec<(String, String)>,
    /// Render for every host that driftless.yaml names, or that has a folder where --path has `${host}`; without any,
    /// this is an error.
    #[arg(long, conflicts_with = "host")]
    pub(super) all_hosts: bool,
    /// The engine that runs the applications, if the agent's configuration has the key `engine` [default: as in
    /// driftless.yaml, else docker]
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub(super) engine: Option<EngineArg>,
    /// A file that lies on the host and not in Git, from the root of the repository. It counts as an empty one, because what
    /// the agent reads for it (`valuesFrom`) is not known here. Can be repeated.
    #[arg(long = "host-file", value_name = "PATH", value_parser = parse_host_file)]
    pub(super) host_files: Vec<String>,
    /// Variable of Compose files, for variables that only the configuration of the host has (`variables`,
    /// `valuesFrom`). It is for all applications, as one of `valuesFrom`: `variables` of driftless.yaml override it,
    /// and it overrides `.env`. APP:NAME=VALUE is for one application, and overrides all others. Its value counts as a
    /// secret. Can be repeated.
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = SecretParser(parse_given_variable))]
    pub(super) variables: Vec<GivenVariable>,
}

/// A variable that the user gives instead of the configuration of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenVariable {
    /// The one application that has it. `None`: all have it.
    app: Option<AppName>,
    name: String,
    value: String,
}

/// The value of `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EngineArg {
    /// Containers of one host.
    Docker,
    /// Services of a Docker Swarm.
    Swarm,
}

impl From<EngineArg> for EngineKind {
    fn from(engine: EngineArg) -> Self {
        match engine {
            EngineArg::Docker => Self::Docker,
            EngineArg::Swarm => Self::Swarm,
        }
    }
}

/// The labels of a host that nothing is known of, unless its configuration says otherwise. Its architecture is not known.
const USUAL_LABELS: [(&str, &str); 2] = [("os", "linux"), ("engine", "docker")];

/// The applications of one host at one commit.
pub(super) struct OfHost {
    /// Empty if no host is known.
    pub(super) host: String,
    pub(super) discovery: Discovery,
    /// The settings of the repository at the commit. `None`: they are not known, or none are read.
    pub(super) settings: Option<Repository>,
}

fn parse_host_file(text: &str) -> Result<String, String> {
    let is_inside = !text.starts_with('/') && !text.ends_with('/');
    driftless_files::paths::join("", text)
        .filter(|path| is_inside && !path.is_empty())
        .ok_or_else(|| "must be the path of a file, from the root of the repository".to_owned())
}

/// Reads `NAME=VALUE` or `APP:NAME=VALUE`.
pub(super) fn parse_given_variable(text: &str) -> Result<GivenVariable, String> {
    let usage = || "write NAME=VALUE or APP:NAME=VALUE".to_owned();
    let (name, value) = parse_variable(text).map_err(|_| usage())?;
    let (app, name) = name.split_once(':').map_or((None, name.as_str()), |(app, name)| (Some(app), name));
    let app = app.map(AppName::parse).transpose().map_err(|_| usage())?;
    if name.is_empty() {
        return Err(usage());
    }
    Ok(GivenVariable { app, name: name.to_owned(), value })
}

impl HostArgs {
    /// Gives an application the engine, the files and the variables of the arguments, as the host gives them to it.
    pub(super) fn apply(&self, app: &mut AppSpec) {
        if let Some(engine) = self.engine {
            app.engine = engine.into();
        }
        app.host_files = self.host_files();
        // Of several values the later one counts, so those of the application come last.
        for owner in [None, Some(app.name.clone())] {
            let of_owner = self.variables.iter().filter(|variable| variable.app == owner);
            for GivenVariable { app: _, name, value } in of_owner {
                if owner.is_some() {
                    // Those of driftless.yaml would win over values of the host.
                    app.variables.remove(name);
                }
                app.host_values.push(HostValues {
                    source: "--variable".to_owned(),
                    name: Some(name.clone()),
                    text: value.as_str().into(),
                    is_shared: false,
                    is_secret: true,
                });
            }
        }
    }

    /// The files that only the host has, without content.
    fn host_files(&self) -> Vec<HostFile> {
        let file = |path: &String| HostFile {
            path: path.clone(),
            source: "a file of the host".to_owned(),
            content: Ok(Arc::default()),
            is_secret: true,
        };
        self.host_files.iter().map(file).collect()
    }

    /// The hosts of some commits of a repository: the one of the arguments, or all that the files name. One without a name
    /// if there are none.
    pub(super) fn hosts<'f>(
        &self,
        commits: impl IntoIterator<Item = &'f dyn Files>,
        folder: &str,
    ) -> Result<Vec<HostIdentity>, Vec<Finding>> {
        if self.host.is_some() {
            return Ok(vec![self.one_host()]);
        }
        let mut names = BTreeSet::new();
        for files in commits {
            names.extend(hosts_of(files, folder));
        }
        if names.is_empty() && self.all_hosts {
            let message = "names no host";
            let finding = Finding::error(settings_place(folder), "", message);
            return Err(vec![
                finding.help("list the hosts in `hosts` of driftless.yaml, or use --host NAME"),
            ]);
        }
        if names.is_empty() {
            names.insert(String::new());
        }
        Ok(names.into_iter().map(|name| self.identity(name)).collect())
    }

    /// The host of the arguments. Without one it has no name.
    pub(super) fn one_host(&self) -> HostIdentity {
        self.identity(self.host.clone().unwrap_or_default())
    }

    fn identity(&self, name: String) -> HostIdentity {
        let usual = USUAL_LABELS.map(|(label, value)| (label.to_owned(), value.to_owned()));
        HostIdentity { name, labels: usual.into_iter().chain(self.host_labels.iter().cloned()).collect() }
    }
}

/// Warnings about folders with manifests that the list `applications` of `driftless.yaml` names for no host. `applications` are
/// those that the list has.
pub(super) fn unlisted(
    files: &dyn Files,
    folder: &str,
    hosts: &[HostIdentity],
    applications: &[&AppSpec],
) -> Vec<Finding> {
    let folders: BTreeSet<String> =
        hosts.iter().map(|host| folder.replace(HOST_PLACEHOLDER, &host.name)).collect();
    let warning = |folder: &String| {
        let mut listed = BTreeSet::new();
        let others =
            hosts_of(files, folder).into_iter().map(|name| HostIdentity { name, ..HostIdentity::default() });
        for host in hosts.iter().cloned().chain(others) {
            let at_commit = repository("", folder, &host)?.at_commit(files).ok()?;
            if at_commit.discover {
                return None;
            }
            let Repository { applications: chosen, elsewhere, .. } = at_commit.repository;
            listed.extend(chosen.into_iter().chain(elsewhere).map(|application| application.path));
        }
        let unlisted = driftless_manifest::unlisted(files, folder, &listed, applications);
        let shown = |folder: &String| format!("`{}`", if folder.is_empty() { "." } else { folder.as_str() });
        let mut names: Vec<String> = unlisted.iter().take(MOST_FOLDERS).map(shown).collect();
        if unlisted.len() > MOST_FOLDERS {
            names.push(format!("and {} more", unlisted.len() - MOST_FOLDERS));
        }
        let message = format!(
            "does not name these folders with manifests, so they are not deployed: {}",
            names.join(", ")
        );
        let finding = Finding::warning(settings_place(folder), "applications", message);
        let help = "add them to the list, or remove the list to have all of them deployed";
        (!unlisted.is_empty()).then(|| finding.help(help))
    };
    folders.iter().filter_map(warning).collect()
}

/// The place of the settings of a folder.
fn settings_place(folder: &str) -> Location {
    Location::file([folder, SETTINGS_FILE].join("/").trim_start_matches('/'))
}

/// The names of all hosts that a commit knows.
fn hosts_of(files: &dyn Files, folder: &str) -> Vec<String> {
    let Some((parent, _)) = folder.split_once(HOST_PLACEHOLDER) else {
        // A file with mistakes names nobody; the mistakes are reported when its applications are searched.
        let repository = repository("", folder, &HostIdentity::default());
        let at_commit = repository.and_then(|repository| repository.at_commit(files).ok());
        return at_commit.map(|it| it.hosts.into_iter().map(|host| host.name).collect()).unwrap_or_default();
    };
    let entries = files.list(parent.trim_end_matches('/')).unwrap_or_default();
    let folders =
        entries.into_iter().filter(|(name, entry)| *entry == Entry::Folder && HostIdentity::is_name(name));
    folders.map(|(name, _)| name).collect()
}

/// The applications that a host has at a commit. `listed` are the Compose files of the one application in the folder; without
/// them, applications are searched. The repository has this name.
pub(super) fn discover_for_host(
    files: &dyn Files,
    folder: &str,
    (name, host): (&str, &HostIdentity),
    listed: &[String],
) -> OfHost {
    let folder = folder.replace(HOST_PLACEHOLDER, &host.name);
    let of_host = |discovery, settings| OfHost { host: host.name.clone(), discovery, settings };
    if !listed.is_empty() {
        let configured = Configured { path: folder.clone(), files: listed.to_vec(), ..Configured::default() };
        return of_host(discover_for(host, files, &folder, name, &[configured]), None);
    }
    let Some(settings) = repository(name, &folder, host) else {
        return of_host(Discovery::default(), None);
    };
    match discover_at(&settings, files) {
        Ok((settings, discovery)) => of_host(discovery, Some(settings)),
        Err(findings) => of_host(Discovery { findings, ..Discovery::default() }, None),
    }
}

/// The applications of a commit that none of these hosts has, although driftless.yaml lists them: for hosts with labels or names that
/// it does not list. They are found as a host without a name would find them, each with a warning.
pub(super) fn discover_unlisted(
    files: &dyn Files,
    folder: &str,
    name: &str,
    hosts: &[HostIdentity],
) -> OfHost {
    let of_no_host = |discovery, settings| OfHost { host: String::new(), discovery, settings };
    let at_commit = |host: &HostIdentity| Some(repository(name, folder, host)?.at_commit(files));
    let mut settings = match at_commit(&HostIdentity::default()) {
        Some(Ok(at_commit)) if !folder.contains(HOST_PLACEHOLDER) => at_commit.repository,
        Some(Err(findings)) => return of_no_host(Discovery { findings, ..Discovery::default() }, None),
        Some(Ok(_)) | None => return of_no_host(Discovery::default(), None),
    };
    let key = |application: &ApplicationSettings| (application.app_name(), application.path.clone());
    let of_hosts = hosts.iter().filter_map(|host| at_commit(host)?.ok());
    let listed = of_hosts.flat_map(|at_commit| at_commit.repository.applications);
    let listed: BTreeSet<_> = listed.map(|application| key(&application)).collect();
    // A folder of the host's name is not known without the host.
    let is_unlisted = |application: &ApplicationSettings| {
        !listed.contains(&key(application)) && !application.path.contains(HOST_PLACEHOLDER)
    };
    settings.elsewhere.retain(is_unlisted);
    let mut discovery = discover_elsewhere(&settings, files);
    let warning = |application: &ApplicationSettings| {
        let message = format!("no known host has `{}`, so it is checked without a host", application.path);
        Finding::warning(settings_place(folder), "applications", message).help(
            "list such a host in `hosts`, with the labels that select it, or use --host and --host-label",
        )
    };
    discovery.findings.extend(settings.elsewhere.iter().map(warning));
    of_no_host(discovery, Some(settings))
}

/// A repository with default settings, as a host follows it.
fn repository(name: &str, folder: &str, host: &HostIdentity) -> Option<Repository> {
    let url = RepoUrl::parse("/").ok()?;
    let (name, host) = (name.to_owned(), host.clone());
    Some(Repository { name, host, ..Repository::new(url, folder, Reference::Head) })
}

/// The host of an engine, for commands that compare a folder with it: the one with this name and these labels, or this machine. It
/// has these variables.
pub(super) fn host_of_engine(
    name: Option<&str>,
    labels: &[(String, String)],
    engine: Option<EngineArg>,
    variables: &[GivenVariable],
) -> HostArgs {
    let own = machine_labels().map(|(label, value)| (label.to_owned(), value.to_owned()));
    let own = own.into_iter().filter(|_| name.is_none());
    let host = name.map_or_else(super::run::hostname, str::to_owned);
    HostArgs {
        host: Some(host).filter(|name| HostIdentity::is_name(name)),
        host_labels: own.chain(labels.iter().cloned()).collect(),
        all_hosts: false,
        engine,
        host_files: Vec::new(),
        variables: variables.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_of_an_application_overrides_all_others() {
        let variables =
            ["shop:TAG=2", "TAG=1", "wiki:TAG=a:b=c"].map(|text| parse_given_variable(text).unwrap());
        let given = HostArgs { variables: variables.to_vec(), ..HostArgs::default() };
        let given_to = |name: &str| {
            let mut app = AppSpec::compose(name, &["compose.yaml"]);
            app.variables.insert("TAG".to_owned(), "0".to_owned());
            given.apply(&mut app);
            let values: Vec<String> = app.host_values.iter().map(|it| it.text.to_string()).collect();
            (app.variables.len(), values.join(" "))
        };
        assert_eq!(given_to("blog"), (1, "1".to_owned()), "as a value of the host");
        assert_eq!(given_to("shop"), (0, "1 2".to_owned()));
        assert_eq!(given_to("wiki"), (0, "1 a:b=c".to_owned()));
    }

    #[test]
    fn variable_needs_a_name_and_a_value() {
        for text in ["TAG", "=1", ":TAG=1", "shop:=1", "Shop:TAG=1", "shop:TAG"] {
            assert!(parse_given_variable(text).is_err(), "{text}");
        }
    }
}
