//! Applications of a folder of this machine, found and rendered as the agent finds and renders them.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    context::Context,
    error::{CommandError, Error as CliError},
    sops_keys::decrypted,
};
use driftless_config::DockerHost;
use driftless_files::AppSpec;
use driftless_git::Directory;
use driftless_manifest as manifest;
use driftless_model::{AdmissionPolicy, Finding, Stack};

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

/// A folder, rendered.
pub(super) struct Folder {
    /// The stack is `None` if there are errors.
    pub(super) applications: Vec<(AppSpec, Option<Stack>)>,
    /// Findings of all applications, sorted by location.
    pub(super) findings: Vec<Finding>,
}

/// Renders every application below `path` in a folder.
pub(super) fn render_folder(
    dir: &Path,
    path: &str,
    policy: Option<&AdmissionPolicy>,
    context: &Context<'_>,
) -> Result<Folder, CliError> {
    let folder = Directory::open(dir).map_err(|source| Error::Open { path: dir.to_owned(), source })?;
    let folder = Arc::new(folder);
    let files = decrypted(Arc::<Directory>::clone(&folder), context)?;
    let name = repository_name(&dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
    let discovery = manifest::discover(&files, path.trim_matches('/'), &name, &[]);
    let mut findings = discovery.findings;
    let render = |app: AppSpec| {
        let mut rendered = manifest::render(&files, &app);
        if let Some(policy) = policy {
            manifest::admission::enforce(&files, policy, &mut rendered);
        }
        (app, rendered)
    };
    let mut applications = Vec::new();
    for (app, rendered) in manifest::on_all_cores(discovery.apps, render) {
        findings.extend(rendered.findings);
        applications.push((app, rendered.stack));
    }
    if let Some(policy) = policy {
        let stacks: Vec<_> =
            applications.iter().filter_map(|(_, stack)| Some((stack.as_ref()?, policy))).collect();
        findings.extend(manifest::admission::foreign_objects(&files, &stacks).into_values().flatten());
    }
    findings.extend(folder.ignored_findings());
    // Two applications may read the same file.
    findings.sort_by(|a, b| (&a.location, &a.path).cmp(&(&b.location, &b.path)));
    findings.dedup();
    Ok(Folder { applications, findings })
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
