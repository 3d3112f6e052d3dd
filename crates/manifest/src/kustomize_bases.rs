//! Kustomizations that are bases of others, and so no applications.

use driftless_files::{AppSpec, Files};
use driftless_kubernetes::kustomize;
use driftless_model::{Finding, Location};

/// Leaves out applications that a kustomization of another application uses.
///
/// A typing error in an overlay must not start its base. So an application is also left out, with an error, if a
/// kustomization lists something that cannot be read and was probably meant to be its folder.
pub(crate) fn leave_out(files: &dyn Files, found: Vec<AppSpec>, findings: &mut Vec<Finding>) -> Vec<AppSpec> {
    let is_kustomized = |it: &AppSpec| it.files.iter().any(|it| kustomize::is_kustomization(it));
    if found.len() < 2 || !found.iter().any(is_kustomized) {
        return found;
    }
    let used_by = |app: &AppSpec| {
        let kustomization = app.files.first().filter(|_| is_kustomized(app));
        kustomization.map(|path| kustomize::used_files(files, path))
    };
    let used: Vec<Option<kustomize::UsedFiles>> = found.iter().map(used_by).collect();
    let covers = |one: Option<&kustomize::UsedFiles>, files: &[String]| {
        one.is_some_and(|it| files.iter().all(|file| it.files.contains(file)))
    };
    let broken = |app: &AppSpec| {
        let may_use = |it: &kustomize::UsedFiles| it.may_use(&app.path);
        let mut all = found.iter().zip(&used).filter(|(other, _)| other.path != app.path);
        all.find(|(_, it)| it.as_ref().is_some_and(may_use))
            .map(|(it, _)| (it.path.clone(), it.files.concat()))
    };
    let mut kept = Vec::new();
    for (index, (app, own)) in found.iter().zip(&used).enumerate() {
        let others = found.iter().zip(&used).enumerate().filter(|(other, _)| *other != index);
        // Two kustomizations that use each other both stay, and rendering reports the circle.
        let is_base = others.into_iter().any(|(_, (other, used))| {
            covers(used.as_ref(), &app.files) && !covers(own.as_ref(), &other.files)
        });
        if is_base {
            continue;
        }
        let may_be_base = own.as_ref().is_some_and(|it| !it.has_gaps() && it.is_below(&app.path));
        match broken(app).filter(|_| may_be_base) {
            None => kept.push(app.clone()),
            Some((path, file)) => {
                let message = format!(
                    "`{path}` lists a file or folder that cannot be read, so `{}` may be a base of it",
                    app.path
                );
                let finding = Finding::error(Location::file(file), "", message);
                let help = "correct it, or name the applications in the configuration";
                findings.push(finding.help(help));
            }
        }
    }
    kept
}
