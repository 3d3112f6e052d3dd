//! `driftless validate`: renders every application of a folder like the agent and prints all findings. It needs no
//! agent and no Docker.

use std::path::Path;

use serde::Serialize;

use super::{
    Context, Error, Verdict,
    args::{TextOrJson, ValidateArgs},
    findings::{counted, render_findings, summary},
    screen::print,
    show::json,
};
use driftless_files::AppSpec;
use driftless_git::Directory;
use driftless_manifest as manifest;
use driftless_model::{AppName, Finding, Format, Stack};

/// What `-o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
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
}

pub(super) fn validate(args: &ValidateArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let Folder { applications, findings } = render_folder(&args.dir, &args.path)?;
    let applications = applications.into_iter().map(|(app, stack)| Checked {
        name: app.name,
        path: app.path,
        format: app.format,
        workloads: stack.map(|it| it.workloads.len()),
    });
    let report = Report { applications: applications.collect(), findings };
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

/// A folder, rendered.
pub(super) struct Folder {
    /// The stack is `None` if there are errors.
    pub(super) applications: Vec<(AppSpec, Option<Stack>)>,
    /// Findings of all applications, sorted by location.
    pub(super) findings: Vec<Finding>,
}

/// Renders every application below `path` in a folder.
pub(super) fn render_folder(dir: &Path, path: &str) -> Result<Folder, Error> {
    let files = Directory::open(dir).map_err(|source| Error::Open { path: dir.to_owned(), source })?;
    // The repository is named after its folder, as with a clone.
    let root = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let name = root.file_name().map_or_else(|| "root".to_owned(), |it| it.to_string_lossy().into_owned());
    let discovery = manifest::discover(&files, path.trim_matches('/'), &name, &[]);
    let mut findings = discovery.findings;
    let render = |app: AppSpec| {
        let rendered = manifest::render(&files, &app);
        (app, rendered)
    };
    let mut applications = Vec::new();
    for (app, rendered) in manifest::on_all_cores(discovery.apps, render) {
        findings.extend(rendered.findings);
        applications.push((app, rendered.stack));
    }
    // Two applications may read the same file.
    findings.sort_by(|a, b| (&a.location, &a.path).cmp(&(&b.location, &b.path)));
    findings.dedup();
    Ok(Folder { applications, findings })
}
