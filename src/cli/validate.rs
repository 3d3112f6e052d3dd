//! `driftless validate`: renders every application of a folder like the agent and prints all findings. In a work tree,
//! it reads what the next commit contains. It needs no agent and no Docker.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use clap::Args;
use serde::Serialize;

use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    findings::{counted, render_findings, summary},
    folder::{Error, Folder, FolderApp, RenderOptions, render_files, repository_name},
    hosts::{HostArgs, unlisted},
    on_host::on_host,
    options::TextOrJson,
    output::{json, print},
    policy_file::PolicyArgs,
    report::error::Error as ReportError,
    work_tree::WorkTree,
};
use driftless_files::{AppSpec, Files};
use driftless_git::{Directory, LocalRepository};
use driftless_model::{AppName, Finding, Format};

/// Check the manifests of a folder, without an agent and without Docker.
///
/// Finds applications like the agent and renders each of them. Prints all findings with their location; the agent
/// does not apply an application with errors.
///
/// In a clone it reads what the next commit contains (the index of Git), because the agent has only what is in Git. It
/// warns about files that differ on disk, and about variables that only a `.env` has that Git ignores. With `--worktree` it
/// reads the files on disk, except those that Git ignores. A folder that is in no clone is read as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless validate .
  driftless validate . --worktree             # before `git add`
  driftless validate ~/infra --path sites
  driftless validate shop --file compose.yaml --file compose.prod.yaml
  driftless validate . --policy policy.yaml
  driftless validate . --host nas
  driftless validate . -o json")]
pub(super) struct ValidateArgs {
    /// Folder: the root of a repository, or a folder in it.
    pub(super) dir: PathBuf,
    /// Folder inside it to look for applications in [default: DIR itself]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(super) path: String,
    /// Compose file of the one application in the folder, from that folder. Can be given several times; a later one
    /// overrides earlier ones. For applications whose configuration names their files.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Vec<String>,
    /// Read the files on disk instead of the index of Git.
    #[arg(long)]
    pub(super) worktree: bool,
    /// Active profile of Compose files, for all applications.
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Vec<String>,
    #[command(flatten)]
    pub(super) hosts: HostArgs,
    #[command(flatten)]
    pub(super) policy: PolicyArgs,
    /// Format of the findings: text on standard error, json on standard output.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
}

/// The result as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Validation {
    source: FilesRead,
    applications: Vec<Checked>,
    findings: Vec<Finding>,
}

/// The place that the files were read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum FilesRead {
    /// The index of Git.
    Index,
    /// The files on disk, without those that Git ignores.
    Worktree,
    /// A folder that is in no work tree.
    Folder,
}

impl FilesRead {
    /// For the last line.
    fn words(self) -> &'static str {
        match self {
            Self::Index => "read from Git",
            Self::Worktree => "read from disk",
            Self::Folder => "read from disk, because the folder is in no Git repository",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    name: AppName,
    path: String,
    format: Format,
    /// Number of workloads; `None` if the application cannot be rendered.
    workloads: Option<usize>,
    /// The hosts that have it in this form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
}

pub(super) fn validate(args: &ValidateArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let (source, folder) = read(args, context)?;
    let applications = folder.applications.into_iter().map(|FolderApp { spec, stack, hosts }| Checked {
        name: spec.name,
        path: spec.path,
        format: spec.format,
        workloads: stack.map(|stack| stack.workloads.len()),
        hosts,
    });
    let report = Validation { source, applications: applications.collect(), findings: folder.findings };
    match args.output {
        TextOrJson::Json => print(&json(&report))?,
        TextOrJson::Text => {
            let screen = context.screen;
            let text = render_findings(&report.findings, screen.colours());
            let count = counted(report.applications.len(), "application");
            let source = source.words();
            // One that several hosts have in different forms is there several times.
            let names: BTreeSet<&str> = report.applications.iter().map(|it| it.name.as_str()).collect();
            let mut names = screen.fold(&Vec::from_iter(names).join(", "));
            if !names.is_empty() {
                names.push('\n');
            }
            screen.say(format!("{text}{names}{count}, {source}: {}", summary(&report.findings)));
        }
    }
    Ok(if report.findings.iter().any(Finding::is_error) { ExitStatus::Negative } else { ExitStatus::Success })
}

/// Renders the folder with all findings.
fn read(args: &ValidateArgs, context: &Context<'_>) -> Result<(FilesRead, Folder), CliError> {
    let open = |source| Error::Open { path: args.dir.clone(), source };
    let disk = Directory::open(&args.dir).map_err(open)?;
    let policy = args.policy.read()?;
    let options = RenderOptions {
        policy: policy.as_ref(),
        hosts: &args.hosts,
        profiles: &args.profile,
        files: &args.file,
    };
    let path = args.path.trim_matches('/').trim_start_matches("./");
    let path = if path == "." { "" } else { path };
    let (source, mut folder) = if disk.is_in_work_tree() {
        let repository = LocalRepository::open(&args.dir).map_err(ReportError::from)?;
        let path = [repository.prefix().as_str(), path].join("/");
        let path = path.trim_matches('/');
        let root = repository.work_tree().unwrap_or(&args.dir);
        let index = if args.worktree {
            None
        } else {
            Some(repository.index(context.environment).map_err(ReportError::from)?)
        };
        let source = if index.is_some() { FilesRead::Index } else { FilesRead::Worktree };
        let files = Arc::new(WorkTree::open(root, index).map_err(open)?);
        let mut folder =
            render_files(Arc::<WorkTree>::clone(&files), &repository.name(), path, options, context)?;
        if let Some(not_added) = files.not_added(path) {
            // It was said not to exist.
            folder.findings.retain(|finding| finding.location.file != path);
            folder.add(vec![not_added]);
        }
        let applications: Vec<&str> = folder.applications.iter().map(|app| app.spec.path.as_str()).collect();
        let stacks = folder.applications.iter();
        let stacks = stacks.filter_map(|app| Some((app.spec.path.as_str(), app.stack.as_ref()?)));
        let mut findings = files.findings(&applications);
        findings.extend(files.renamed_projects(stacks));
        // The agent has these from the host.
        findings.retain(|finding| !args.hosts.host_files.contains(&finding.location.file));
        folder.add(findings);
        folder.add(unlisted_folders(args, &*files, path, &folder));
        (source, folder)
    } else {
        let name = repository_name(&args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone()));
        let disk = Arc::new(disk);
        let mut folder = render_files(Arc::<Directory>::clone(&disk), &name, path, options, context)?;
        folder.add(unlisted_folders(args, &*disk, path, &folder));
        (FilesRead::Folder, folder)
    };
    let findings = folder.applications.iter().flat_map(on_host).collect();
    folder.add(findings);
    Ok((source, folder))
}

/// Warnings about folders with manifests that a list of applications leaves out.
fn unlisted_folders(args: &ValidateArgs, files: &dyn Files, path: &str, folder: &Folder) -> Vec<Finding> {
    // With an error, the applications that the list has may be missing.
    let Ok(hosts) = args.hosts.hosts([files], path) else { return Vec::new() };
    if !args.file.is_empty() || !folder.undiscovered.is_empty() {
        return Vec::new();
    }
    let applications: Vec<&AppSpec> = folder.applications.iter().map(|app| &app.spec).collect();
    unlisted(files, path, &hosts, &applications)
}
