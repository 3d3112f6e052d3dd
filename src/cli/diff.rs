//! `driftless diff`: compares the live state with Git. It is the comparison of `driftless drift`, printed as one unified
//! diff.

use std::{path::Path, time::Duration};

use clap::Args;

use super::{
    context::{Context, ExitStatus},
    error::Error,
    findings::render_findings,
    folder::{Folder, FolderApp, FolderArgs, render_folder},
    options::{ServerArgs, TextOrJson},
    output::print,
    report::{
        live::{Deadline, ObservedEngine, Rendered, compare_by_agent, compare_with_engine},
        output::painted,
        selection::Selection,
    },
    screen::plain,
};
use driftless_report as report;
use driftless_report::{Report, Type};

/// Compare the live state with Git, field by field; exit with 1 if something differs.
///
/// Prints one unified diff from the live state to Git. `driftless drift` makes the same comparison and has more output
/// formats, filters and exit codes. An application that cannot be compared is reported, the others are compared, and the
/// exit code is 2.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Only this application [default: all]
    pub(super) app: Option<String>,
    #[command(flatten)]
    pub(super) folder: FolderArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Maximum time for the comparison.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(super) async fn diff(args: &DiffArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let deadline = Deadline::after(TIMEOUT);
    let selection = Selection { apps: args.app.iter().cloned().collect(), path: None };
    let mut report = match &args.folder.dir {
        Some(dir) => at_engine(args, dir, &selection, deadline, context).await?,
        None => compare_by_agent(&args.server, &selection, None, deadline, context).await?,
    };
    report.unmanaged.clear();
    report.generated_at = Some(context.clock.now());
    report::settle(&mut report);
    match args.output {
        TextOrJson::Json => print(&report::json(&report))?,
        TextOrJson::Text => {
            let diff = context.fold_comments(&plain(&report::diff(&report)));
            print(&painted(&diff, context.colours))?;
        }
    }
    if report.has_errors() {
        context.screen.say(report::headline(&report));
        return Ok(ExitStatus::Code(2));
    }
    Ok(if report.has_drift(&Type::ALL) { ExitStatus::Negative } else { ExitStatus::Success })
}

/// Compares the manifests of a folder with an engine.
async fn at_engine(
    args: &DiffArgs,
    dir: &Path,
    selection: &Selection,
    deadline: Deadline,
    context: &Context<'_>,
) -> Result<Report, Error> {
    let Folder { applications, findings, undiscovered, .. } =
        render_folder(dir, &args.folder.host(), context)?;
    if undiscovered.is_empty() {
        selection.check(applications.iter().map(|app| app.spec.name.as_str()))?;
    }
    if !findings.is_empty() {
        context.screen.say(render_findings(&findings, context.screen.colours()).trim_end());
    }
    let applications = applications.into_iter().filter(|app| selection.names(app.spec.name.as_str()));
    let rendered = applications.map(|FolderApp { spec, stack, hosts: _ }| {
        let stack = stack.ok_or_else(|| "its manifests have errors".to_owned());
        Rendered { spec, stack }
    });
    let FolderArgs { state_dir, runtime_dir, .. } = &args.folder;
    let engine = ObservedEngine { host: &args.folder.docker(context), state_dir, runtime_dir };
    let mut report = compare_with_engine(engine, rendered.collect(), "git", deadline).await?;
    report.errors = undiscovered.iter().map(ToString::to_string).collect();
    Ok(report)
}
