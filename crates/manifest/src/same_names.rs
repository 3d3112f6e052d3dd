//! Applications of one repository with the same name.

use std::collections::BTreeMap;

use driftless_files::AppSpec;
use driftless_model::{AppName, Finding, Location};

/// Leaves out applications with the same name, because they would replace each other's containers.
pub(crate) fn leave_out(found: Vec<AppSpec>, findings: &mut Vec<Finding>) -> Vec<AppSpec> {
    let mut by_name: BTreeMap<AppName, Vec<AppSpec>> = BTreeMap::new();
    for app in found {
        by_name.entry(app.name.clone()).or_default().push(app);
    }
    let mut apps = Vec::new();
    for (name, mut same) in by_name {
        if same.len() > 1 {
            let folders: Vec<String> = same.iter().map(|it| format!("`{}`", it.path)).collect();
            let message =
                format!("several folders define an application named `{name}`: {}", folders.join(", "));
            for app in &same {
                let finding = Finding::error(Location::file(app.path.clone()), "", message.clone());
                findings.push(finding.help(
                    "if each is for another host, follow one folder per host with `path: ${host}`, or say in `driftless.yaml` \
                     which `hosts` have it; else rename a folder, or name the applications in `applications`",
                ));
            }
        } else {
            apps.append(&mut same);
        }
    }
    apps
}
