//! `extends`: a service that starts as a copy of another one, in the same file or in another. The other service is
//! resolved first; paths of another file are relative to that file's folder.

use driftless_yaml::Node;

use crate::{
    load::{
        loader::{Depth, Loader, Scope, cycle},
        merge,
        resets::Resets,
    },
    spec::{
        canonical, paths,
        tree::{self, as_text},
    },
};

/// The longest chain of services that extend each other.
const DEEPEST: usize = 32;

/// The file that contains a service.
struct Origin<'h> {
    /// From the repository's root.
    file: &'h str,
    scope: &'h Scope<'h>,
    /// The resets of the document, which also apply to the extended service.
    resets: &'h Resets,
}

impl Loader<'_> {
    /// Resolves `extends` of every service of a document.
    pub(crate) fn extend(&mut self, document: &mut Node, file: &str, scope: &Scope<'_>, resets: &Resets) {
        let Some(services) = tree::get_mut(document, "services") else { return };
        let extending = services.entries().iter().filter(|it| it.value.get("extends").is_some());
        let names: Vec<String> = extending.map(|it| it.key.clone()).collect();
        for name in names {
            self.service(&name, services, &Origin { file, scope, resets }, &mut Vec::new());
        }
    }

    /// Resolves `extends` of one service. `trail` is the chain of services that extend it.
    fn service(&mut self, name: &str, services: &mut Node, origin: &Origin<'_>, trail: &mut Vec<String>) {
        let Some(extends) = services.get(name).and_then(|it| it.get("extends")).cloned() else { return };
        let at = format!("services.{name}.extends");
        let step = format!("{} of {}", name, origin.file);
        if trail.contains(&step) {
            let message = format!("the services extend each other in a cycle: {}", cycle(trail, &step));
            self.findings.push(extends.finding(at, message));
            return;
        }
        if trail.len() >= DEEPEST {
            self.findings
                .push(extends.finding(at, format!("the services extend each other over {DEEPEST} levels")));
            return;
        }
        let Some(wanted) = as_text(extends.get("service").unwrap_or(&extends)).map(str::to_owned) else {
            return;
        };
        trail.push(step);
        let base = if let Some(file) = extends.get("file").filter(|it| !it.is_null()) {
            self.base_in_other_file(&wanted, file, origin, trail, &at)
        } else {
            if services.get(&wanted).is_none() {
                let message = format!("the service `{wanted}` does not exist in `{}`", origin.file);
                self.findings.push(extends.finding(&at, message));
            }
            self.service(&wanted, services, origin, trail);
            services.get(&wanted).cloned()
        };
        trail.pop();
        let Some(mut base) = base.filter(tree::is_mapping) else { return };
        if !self.charge(tree::weight(&base), &extends.place.location()) {
            return;
        }
        origin.resets.apply_below(&mut base, &["services", name]);
        tree::remove(&mut base, "extends");
        if let Some(service) = tree::get_mut(services, name) {
            let place = service.place.clone();
            let own = std::mem::replace(service, tree::null(&place));
            *service = merge::part(base, own, &["services", name], &mut self.findings);
            service.place = place;
            tree::remove(service, "extends");
        }
    }

    /// A service of another file, with its `extends` resolved.
    fn base_in_other_file(
        &mut self,
        wanted: &str,
        file: &Node,
        origin: &Origin<'_>,
        trail: &mut Vec<String>,
        at: &str,
    ) -> Option<Node> {
        let path = self.file_at(file, as_text(file)?, origin.scope.folder, at)?;
        let empty = tree::mapping(&file.place, []);
        let (mut other, resets) = self.file(empty, &path, origin.scope, &[], Depth::Part);
        canonical::rebase(&mut other, &paths::relative(origin.scope.folder, paths::parent(&path)));
        let services = tree::get_mut(&mut other, "services");
        if services.as_ref().and_then(|it| it.get(wanted)).is_none() {
            let message = format!("the service `{wanted}` does not exist in `{path}`");
            self.findings.push(file.finding(at, message));
        }
        let services = services?;
        self.service(wanted, services, &Origin { file: &path, scope: origin.scope, resets: &resets }, trail);
        services.get(wanted).cloned()
    }
}
