//! `driftless validate`: renders every application of a folder like the agent and prints all findings. In a work tree,
//! only files that are in Git, or may be added to it, are read. It needs no agent and no Docker.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{
    context::{Context, Verdict},
    error::Error,
    findings::{counted, render_findings, summary},
    folder::{Folder, FolderApp, render_folder},
    hosts::HostArgs,
    options::TextOrJson,
    output::{json, print},
    policy_file::PolicyArgs,
};
use driftless_model::{AppName, Finding, Format};

/// Check the manifests of a folder, without an agent and without Docker.
///
/// Finds applications like the agent and renders each of them. Prints all findings with their location; the agent
/// does not apply an application with errors. Reads the files on disk, but none that Git ignores: the agent has only
/// what is in Git. A file that is not committed yet is read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless validate .
  driftless validate ~/infra --path sites
  driftless validate . --policy policy.yaml
  driftless validate . --host nas
  driftless validate . -o json")]
pub(super) struct ValidateArgs {
    /// Folder, taken as the root of a repository.
    pub(super) dir: PathBuf,
    /// Folder inside it to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(super) path: String,
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
    applications: Vec<Checked>,
    findings: Vec<Finding>,
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

pub(super) fn validate(args: &ValidateArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let Folder { applications, findings } =
        render_folder(&args.dir, &args.path, args.policy.read()?.as_ref(), &args.hosts, context)?;
    let applications = applications.into_iter().map(|FolderApp { spec, stack, hosts }| Checked {
        name: spec.name,
        path: spec.path,
        format: spec.format,
        workloads: stack.map(|stack| stack.workloads.len()),
        hosts,
    });
    let report = Validation { applications: applications.collect(), findings };
    match args.output {
        TextOrJson::Json => print(&json(&report))?,
        TextOrJson::Text => {
            let screen = context.screen;
            let text = render_findings(&report.findings, screen.colours());
            let count = counted(report.applications.len(), "application");
            screen.say(format!("{text}{count}: {}", summary(&report.findings)));
        }
    }
    Ok(if report.findings.iter().any(Finding::is_error) { Verdict::No } else { Verdict::Yes })
}
