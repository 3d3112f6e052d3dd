//! Warnings about what the agent will do with a valid application on its host: relative folders that containers write to,
//! and applications of which nothing runs.

use std::collections::{BTreeMap, BTreeSet};

use super::folder::FolderApp;
use driftless_config::Settings;
use driftless_model::{Finding, Format, Location, Mount, Stack, WorkloadKind};

/// The warnings about one application. Empty if it has errors.
pub(super) fn on_host(app: &FolderApp) -> Vec<Finding> {
    let Some(stack) = &app.stack else { return Vec::new() };
    let mut findings = relative_folders(stack);
    let runs = |workload: &driftless_model::Workload| {
        workload.replicas > 0 || !matches!(workload.kind, WorkloadKind::Replicas)
    };
    if !stack.workloads.values().any(runs) {
        let file = app.spec.files.first().unwrap_or(&app.spec.path);
        let (message, help) = match stack.format {
            Format::Compose => (
                "nothing of this application would run: every service is in a profile that is not active, or has no instances",
                "activate profiles with `profiles` of the application in the configuration; here with --profile",
            ),
            Format::Kubernetes => (
                "nothing of this application would run: no workload has replicas",
                "add a workload, or set its `replicas`",
            ),
        };
        findings.push(Finding::warning(Location::file(file), "", message).help(help));
    }
    findings
}

/// Relative folders (`./data:/data`) that containers write to. The agent keeps them in its state directory. Each is reported once,
/// and files of Git are not: other warnings are about those.
fn relative_folders(stack: &Stack) -> Vec<Finding> {
    let state = Settings::default().state_dir;
    let mut writers: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (name, workload) in &stack.workloads {
        let mounts = workload.containers().flat_map(|container| &container.mounts);
        let folders: BTreeSet<&str> =
            mounts.filter(|mount| !mount.read_only).filter_map(Mount::app_folder).collect();
        for folder in folders.into_iter().filter(|folder| !stack.app_files.contains_key(*folder)) {
            writers.entry(folder).or_default().push((name, workload));
        }
    }
    let mut findings = Vec::new();
    for (folder, writers) in writers {
        let Some(((name, workload), others)) = writers.split_first() else { continue };
        let place = state.join("applications").join(stack.app.as_str());
        let (written, place) =
            if folder == "." { (".".to_owned(), place) } else { (format!("./{folder}"), place.join(folder)) };
        let others = match others.len() {
            0 => String::new(),
            1 => " (as one other service does)".to_owned(),
            others => format!(" (as {others} other services do)"),
        };
        let message = format!(
            "writes to `{written}`{others}, which will be {} on the host (in the state directory of the agent)",
            place.display()
        );
        let help = "write an absolute path of the host for data that is there already, or use a named volume";
        let path = format!("services.{name}.volumes");
        findings.push(Finding::warning(workload.origin.clone(), path, message).help(help));
    }
    findings
}
