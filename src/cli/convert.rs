//! `driftless convert`: converts an application to the other format and lists what is not carried over. It needs no
//! agent and no Docker.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    findings::render_findings,
    folder::{Error, repository_name},
    options::{SecretParser, parse_variable},
    output::print,
    yaml,
};
use driftless_files::{AppSpec, Files as _, LARGEST_MANIFEST};
use driftless_git::Directory;
use driftless_kubernetes as kubernetes;
use driftless_manifest as manifest;
use driftless_manifest::convert;
use driftless_manifest::{Configured, convert::Converted, convert::SecretValues};
use driftless_model::{AppName, EngineKind, Finding, Format};
use driftless_yaml as yaml_tree;

/// Convert a Compose file to Kubernetes manifests or back, without an agent and without Docker.
///
/// A Compose file becomes Kubernetes manifests: a workload and a Service for each service, ConfigMaps and Secrets for
/// mounted files, claims for volumes. Manifests become a Compose file. Fields that the other format cannot express are
/// listed on standard error with their location.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless convert compose.yaml > manifests.yaml
  driftless convert ~/infra/sites/shop
  driftless convert deployment.yaml --show-secrets > compose.yaml")]
pub(super) struct ConvertArgs {
    /// File, or folder with one application.
    pub(super) path: PathBuf,
    /// Variable of a Compose file; overrides those from `.env`.
    #[arg(long, value_name = "NAME=VALUE", value_parser = SecretParser(parse_variable))]
    pub(super) variable: Vec<(String, String)>,
    /// Active profile of a Compose file.
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Vec<String>,
    /// Write the values of secrets.
    #[arg(long)]
    pub(super) show_secrets: bool,
}

pub(super) fn convert(args: &ConvertArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let open = |source| Error::Open { path: args.path.clone(), source };
    let whole = args.path.canonicalize().map_err(open)?;
    // A file is read as a folder that contains only this file.
    let (root, file) = match whole.parent() {
        Some(parent) if whole.is_file() => (parent, whole.file_name()),
        Some(_) | None => (whole.as_path(), None),
    };
    // A conversion is of the files on this disk, not of what an agent would read.
    let files = Directory::with_ignored(root).map_err(open)?;
    let file = file.map(|it| it.to_string_lossy().into_owned());
    let spec = application(&files, root, file, args)?;
    let rendered = manifest::render(&files, &spec);
    let screen = context.screen;
    if !rendered.findings.is_empty() {
        screen.say(render_findings(&rendered.findings, screen.colours()).trim_end());
    }
    let Some(stack) = rendered.stack else { return Ok(ExitStatus::Negative) };
    let secrets = if args.show_secrets { SecretValues::Shown } else { SecretValues::Hidden };
    let Converted { documents, lost } = match spec.format {
        Format::Compose => convert::to_kubernetes(&stack, &rendered.contents, secrets),
        Format::Kubernetes => convert::to_compose(&stack, &rendered.contents, secrets),
    };
    let texts: Vec<String> = documents.iter().map(yaml::render).collect();
    print(&texts.join("---\n"))?;
    if !lost.is_empty() {
        let lines: Vec<String> = lost.iter().map(line).collect();
        screen.say(format!("not carried over:\n{}", lines.join("\n")));
    }
    Ok(ExitStatus::Success)
}

/// One field that the other format cannot express.
fn line(finding: &Finding) -> String {
    format!("  {}: {}: {}", finding.location, finding.path, finding.message)
}

/// The application that the arguments select.
fn application(
    files: &Directory,
    root: &Path,
    file: Option<String>,
    args: &ConvertArgs,
) -> Result<AppSpec, CliError> {
    let name = repository_name(root);
    let variables: BTreeMap<String, String> = args.variable.iter().cloned().collect();
    let profiles = args.profile.clone();
    if let Some(file) = file {
        let bytes = files.read(&file, LARGEST_MANIFEST).map_err(|it| Error::Unreadable(it.to_string()))?;
        let limits = yaml_tree::Limits::default();
        let documents =
            yaml_tree::parse(&file, &bytes, &limits).map_err(|it| CliError::Findings(vec![it]))?;
        let is_kubernetes = kubernetes::is_kubernetes(&documents);
        return Ok(AppSpec {
            host_values: Vec::new(),
            host_files: Vec::new(),
            name: AppName::normalise(&name).unwrap_or_else(|| AppName::from("app")),
            path: String::new(),
            format: if is_kubernetes { Format::Kubernetes } else { Format::Compose },
            files: vec![file],
            variables,
            profiles,
            env_files: Vec::new(),
            engine: EngineKind::Docker,
            has_listed_files: true,
            findings: Vec::new(),
        });
    }
    let is_plain = variables.is_empty() && profiles.is_empty();
    let configured = Configured { variables, profiles, ..Configured::default() };
    let configured = if is_plain { &[] } else { std::slice::from_ref(&configured) };
    let mut discovery = manifest::discover(files, "", &name, configured);
    if discovery.apps.len() > 1 {
        let names = discovery.apps.iter().map(|it| it.name.to_string());
        return Err(Error::SeveralApplications(names.collect()).into());
    }
    discovery.apps.pop().ok_or(CliError::Findings(discovery.findings))
}
