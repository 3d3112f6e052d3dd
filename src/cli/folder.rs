//! Applications of a folder of this machine, found and rendered as the agent finds and renders them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;

use super::{
    conflicts::conflicts,
    context::Context,
    error::{CommandError, Error as CliError},
    hosts::{
        EngineArg, GivenVariable, HostArgs, OfHost, discover_for_host, discover_unlisted, host_of_engine,
        parse_given_variable,
    },
    options::{SecretParser, parse_variable},
    sops_keys::decrypted,
};
use driftless_config::{ApplicationSettings, DockerHost, RUNTIME_DIR, SETTINGS_FILE, STATE_DIR};
use driftless_files::{AppSpec, Files};
use driftless_git::Directory;
use driftless_manifest as manifest;
use driftless_model::{AdmissionPolicy, AppName, Finding, HostIdentity, Location, Stack};

/// Options to compare a folder with an engine, without an agent.
#[derive(Debug, Args)]
pub(super) struct FolderArgs {
    /// Without an agent: read the manifests of this folder and observe Docker directly.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["server", "token_file", "server_ca_file"])]
    pub(super) dir: Option<PathBuf>,
    /// Address of the Docker Engine, with --dir [default: `DOCKER_HOST`, or the local engine]
    #[arg(long, value_name = "URL", requires = "dir")]
    pub(super) docker_host: Option<String>,
    /// The host of that engine, with --dir: its applications, variables and files are compared [default: the name of this machine]
    #[arg(long, value_name = "NAME", requires = "dir", value_parser = HostIdentity::parse_name)]
    pub(super) host: Option<String>,
    /// Label of that host, with --dir, as its agent's configuration has it. Can be repeated.
    #[arg(long = "host-label", value_name = "NAME=VALUE", requires = "dir", value_parser = parse_variable)]
    pub(super) host_labels: Vec<(String, String)>,
    /// The engine that runs the applications, with --dir, if the agent's configuration has the key `engine` [default: as
    /// in driftless.yaml, else docker]
    #[arg(long, value_enum, value_name = "ENGINE", requires = "dir")]
    pub(super) engine: Option<EngineArg>,
    /// Variable of Compose files, with --dir, for variables that only the configuration of the host has (`variables`,
    /// `valuesFrom`). It is for all applications, as one of `valuesFrom`: `variables` of driftless.yaml override it,
    /// and it overrides `.env`. APP:NAME=VALUE is for one application, and overrides all others. Its value counts as a
    /// secret. Can be repeated.
    #[arg(long = "variable", value_name = "NAME=VALUE", requires = "dir", value_parser = SecretParser(parse_given_variable))]
    pub(super) variables: Vec<GivenVariable>,
    /// State directory of that host's agent, with --dir, from which containers mount files.
    #[arg(long, value_name = "FOLDER", requires = "dir", default_value = STATE_DIR)]
    pub(super) state_dir: PathBuf,
    /// Runtime directory of that host's agent, with --dir, from which containers mount secrets.
    #[arg(long, value_name = "FOLDER", requires = "dir", default_value = RUNTIME_DIR)]
    pub(super) runtime_dir: PathBuf,
}

impl FolderArgs {
    /// The host to render the folder for.
    pub(super) fn host(&self) -> HostArgs {
        host_of_engine(self.host.as_deref(), &self.host_labels, self.engine, &self.variables)
    }

    /// The engine to observe.
    pub(super) fn docker(&self, context: &Context<'_>) -> DockerHost {
        docker_host(self.docker_host.as_deref(), context)
    }
}

/// Why a folder cannot be read, or why it does not hold exactly one application.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not open {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there are several applications ({}); name the folder of one with --path", .0.join(", "))]
    SeveralApplications(Vec<String>),
    #[error("there is no application in {0}")]
    NoApplication(PathBuf),
    #[error("could not read the manifest: {0}")]
    Unreadable(String),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoApplication(_) => {
                Some("name its folder with --path, or its files with --file".to_owned())
            }
            Self::Open { .. } | Self::SeveralApplications(_) | Self::Unreadable(_) => None,
        }
    }
}

/// One application of a folder, rendered.
pub(super) struct FolderApp {
    pub(super) spec: AppSpec,
    /// `None`: there are errors.
    pub(super) stack: Option<Stack>,
    /// The hosts that have it in this form. Empty if no host is known.
    pub(super) hosts: Vec<String>,
}

/// A folder, rendered.
pub(super) struct Folder {
    pub(super) applications: Vec<FolderApp>,
    /// Findings of all applications, sorted by location.
    pub(super) findings: Vec<Finding>,
    /// The errors among them because of which applications may be missing.
    pub(super) undiscovered: Vec<Finding>,
    /// The applications that one of the hosts does not have, because driftless.yaml has them for others.
    elsewhere: BTreeSet<AppName>,
}

/// Settings for rendering the applications of a folder.
#[derive(Clone, Copy)]
pub(super) struct RenderOptions<'a> {
    pub(super) policy: Option<&'a AdmissionPolicy>,
    pub(super) hosts: &'a HostArgs,
    /// Further active Compose profiles.
    pub(super) profiles: &'a [String],
    /// The Compose files of the one application in the folder. Empty: applications are searched.
    pub(super) files: &'a [String],
}

/// Renders every application of a folder on this disk, for each of the hosts, to compare them with an engine. In a work tree,
/// files that Git ignores are not read. It is an error if there is nothing to compare.
pub(super) fn render_folder(dir: &Path, hosts: &HostArgs, context: &Context<'_>) -> Result<Folder, CliError> {
    let folder = Directory::open(dir).map_err(|source| Error::Open { path: dir.to_owned(), source })?;
    let folder = Arc::new(folder);
    let name = repository_name(&dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
    let options = RenderOptions { policy: None, hosts, profiles: &[], files: &[] };
    let mut rendered = render_files(Arc::<Directory>::clone(&folder), &name, "", options, context)?;
    rendered.add(folder.ignored_findings());
    rendered.report_other_hosts(hosts.host.as_deref().unwrap_or_default());
    Ok(rendered)
}

/// Renders every application below `path` of some files, for each of the hosts. `name` is that of the repository.
pub(super) fn render_files(
    files: Arc<dyn Files>,
    name: &str,
    path: &str,
    options: RenderOptions<'_>,
    context: &Context<'_>,
) -> Result<Folder, CliError> {
    let files = decrypted(files, context)?;
    let policy = options.policy;
    let hosts = options.hosts.hosts([&files as &dyn Files], path).map_err(CliError::Findings)?;
    let (mut applications, mut findings) = (Vec::<FolderApp>::new(), Vec::new());
    let mut undiscovered = Vec::new();
    let mut elsewhere = BTreeSet::new();
    let discover = |host: &HostIdentity| discover_for_host(&files, path, (name, host), options.files);
    let mut found: Vec<OfHost> = hosts.iter().map(discover).collect();
    if options.hosts.host.is_none() && options.files.is_empty() {
        found.push(discover_unlisted(&files, path, name, &hosts));
    }
    for OfHost { host, discovery, settings } in found {
        let of_others = settings.iter().flat_map(|settings| &settings.elsewhere);
        elsewhere.extend(of_others.filter_map(ApplicationSettings::app_name));
        undiscovered.extend(discovery.findings.iter().filter(|finding| finding.is_error()).cloned());
        findings.extend(discovery.findings);
        let render = |mut app: AppSpec| {
            options.hosts.apply(&mut app);
            app.profiles.extend(options.profiles.iter().cloned());
            let mut rendered = manifest::render(&files, &app);
            if let Some(policy) = policy {
                manifest::admission::enforce(&files, policy, &mut rendered);
            }
            (app, rendered)
        };
        let rendered = manifest::on_all_cores(discovery.apps, render);
        if let Some(policy) = policy {
            let stacks: Vec<_> = rendered
                .iter()
                .filter_map(|(_, rendered)| Some((rendered.stack.as_ref()?, policy)))
                .collect();
            findings.extend(manifest::admission::foreign_objects(&files, &stacks).into_values().flatten());
        }
        let stacks = rendered.iter().map(|(spec, rendered)| (&spec.name, rendered.stack.as_ref()));
        let mut in_conflict =
            settings.map(|settings| conflicts(&settings, stacks, &BTreeMap::new())).unwrap_or_default();
        for (spec, rendered) in rendered {
            let errors = in_conflict.remove(&spec.name);
            let stack = rendered.stack.filter(|_| errors.is_none());
            findings.extend(rendered.findings.into_iter().chain(errors.into_iter().flatten()));
            let is_same = |app: &&mut FolderApp| app.spec.name == spec.name && app.stack == stack;
            let host = Some(host.clone()).filter(|host| !host.is_empty());
            if let Some(known) = applications.iter_mut().find(is_same) {
                known.hosts.extend(host);
                continue;
            }
            applications.push(FolderApp { spec, stack, hosts: host.into_iter().collect() });
        }
    }
    applications.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
    undiscovered.dedup();
    let mut folder = Folder { applications, findings, undiscovered, elsewhere };
    folder.add(Vec::new());
    Ok(folder)
}

impl Folder {
    /// Adds findings, in the order of their locations.
    pub(super) fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
        // Two applications may read the same file.
        self.findings.sort_by(|a, b| (&a.location, &a.path).cmp(&(&b.location, &b.path)));
        self.findings.dedup();
    }

    /// Says which applications are left out because they are for other hosts than this one.
    fn report_other_hosts(&mut self, host: &str) {
        let place = Location::file(SETTINGS_FILE);
        let help = "give the name of the engine's host to --host";
        if self.applications.is_empty() && self.undiscovered.is_empty() {
            let message = format!("there is nothing to compare: no application is for the host `{host}`");
            let finding = Finding::error(place, "applications", message).help(help);
            self.undiscovered.push(finding.clone());
            self.add(vec![finding]);
        } else if !self.elsewhere.is_empty() {
            let names: Vec<&str> = self.elsewhere.iter().map(AppName::as_str).collect();
            let message = format!("not for the host `{host}`, so left out: {}", names.join(", "));
            self.add(vec![Finding::warning(place, "applications", message).help(help)]);
        }
    }
}

/// The engine: that of the option, of `DOCKER_HOST`, or the default.
pub(super) fn docker_host(option: Option<&str>, context: &Context<'_>) -> DockerHost {
    let from_environment = || (context.environment)("DOCKER_HOST").filter(|host| !host.is_empty());
    let address = option.map(str::to_owned).or_else(from_environment);
    address.map_or_else(DockerHost::default, |address| {
        DockerHost::with_environment(&address, context.environment.as_ref())
    })
}

/// The name of the repository: that of its folder, as with a clone.
pub(super) fn repository_name(root: &Path) -> String {
    root.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;
    use crate::cli::options::ServerArgs;

    fn parsed(line: &str) -> Result<FolderArgs, clap::Error> {
        let command = ServerArgs::augment_args(FolderArgs::augment_args(Command::new("diff")));
        FolderArgs::from_arg_matches(&command.try_get_matches_from(line.split(' '))?)
    }

    #[test]
    fn folder_is_compared_with_the_directories_of_the_agent() {
        let directories = |args: FolderArgs| [args.state_dir, args.runtime_dir];
        let usual = directories(parsed("diff --dir .").unwrap());
        assert_eq!(usual, [STATE_DIR, RUNTIME_DIR].map(PathBuf::from));
        let given = parsed("diff --dir . --state-dir /srv/two --runtime-dir /run/two").unwrap();
        assert_eq!(directories(given), ["/srv/two", "/run/two"].map(PathBuf::from));
    }

    #[test]
    fn directories_of_the_agent_need_a_folder() {
        // A running agent knows its own.
        assert_eq!(parsed("diff").unwrap().dir, None);
        for option in ["--state-dir", "--runtime-dir"] {
            let error = parsed(&format!("diff {option} /srv/two")).unwrap_err();
            assert!(error.to_string().contains("--dir <FOLDER>"), "{error}");
        }
    }
}
