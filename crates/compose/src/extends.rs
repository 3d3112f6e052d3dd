//! `extends`: a service that begins as a copy of another one, of the same file or of another. What the other one
//! extends itself comes first; paths of another file are seen from that file's folder.

use super::{
    canonical,
    load::{Depth, Loader, Scope, circle},
    merge, paths,
    resets::Resets,
    tree::{self, as_text},
};
use driftless_yaml::Node;

/// Services that extend services.
const DEEPEST: usize = 32;

/// Where a service stands.
struct Home<'h> {
    /// The file, from the repository's root.
    file: &'h str,
    scope: &'h Scope<'h>,
    /// What the document takes away from what it extends.
    resets: &'h Resets,
}

impl Loader<'_> {
    /// Makes every service of a document whole.
    pub(super) fn extend(&mut self, document: &mut Node, file: &str, scope: &Scope<'_>, resets: &Resets) {
        let Some(services) = tree::get_mut(document, "services") else { return };
        let names: Vec<String> = services.entries().iter().map(|it| it.key.clone()).collect();
        for name in names {
            self.service(&name, services, &Home { file, scope, resets }, &mut Vec::new());
        }
    }

    /// Makes one service whole. `trail` are those that it was asked for by.
    fn service(&mut self, name: &str, services: &mut Node, home: &Home<'_>, trail: &mut Vec<String>) {
        let Some(extends) = services.get(name).and_then(|it| it.get("extends")).cloned() else { return };
        let at = format!("services.{name}.extends");
        let step = format!("{} of {}", name, home.file);
        if trail.contains(&step) {
            let message = format!("services extend each other in a circle: {}", circle(trail, &step));
            self.findings.push(extends.finding(at, message));
            return;
        }
        if trail.len() >= DEEPEST {
            self.findings
                .push(extends.finding(at, format!("services extend each other over {DEEPEST} levels")));
            return;
        }
        let Some(wanted) = as_text(extends.get("service").unwrap_or(&extends)).map(str::to_owned) else {
            return;
        };
        trail.push(step);
        let base = if let Some(file) = extends.get("file").filter(|it| !it.is_null()) {
            self.base_elsewhere(&wanted, file, home, trail, &at)
        } else {
            if services.get(&wanted).is_none() {
                let message = format!("the service `{wanted}` does not exist in `{}`", home.file);
                self.findings.push(extends.finding(&at, message));
            }
            self.service(&wanted, services, home, trail);
            services.get(&wanted).cloned()
        };
        trail.pop();
        let Some(mut base) = base.filter(tree::is_mapping) else { return };
        if !self.charge(tree::size(&base), &extends.place.location()) {
            return;
        }
        home.resets.apply_below(&mut base, &["services", name]);
        tree::remove(&mut base, "extends");
        if let Some(service) = tree::get_mut(services, name) {
            let place = service.place.clone();
            let own = std::mem::replace(service, tree::null(&place));
            *service = merge::part(base, own, &["services", name], &mut self.findings);
            service.place = place;
            tree::remove(service, "extends");
        }
    }

    /// A service of another file, whole.
    fn base_elsewhere(
        &mut self,
        wanted: &str,
        file: &Node,
        home: &Home<'_>,
        trail: &mut Vec<String>,
        at: &str,
    ) -> Option<Node> {
        let path = self.file_at(file, as_text(file)?, home.scope.folder, at)?;
        let empty = tree::mapping(&file.place, []);
        let (mut other, resets) = self.file(empty, &path, home.scope, &[], Depth::Part);
        canonical::rebase(&mut other, &paths::relative(home.scope.folder, paths::parent(&path)));
        let services = tree::get_mut(&mut other, "services");
        if services.as_ref().and_then(|it| it.get(wanted)).is_none() {
            let message = format!("the service `{wanted}` does not exist in `{path}`");
            self.findings.push(file.finding(at, message));
        }
        let services = services?;
        self.service(wanted, services, &Home { file: &path, scope: home.scope, resets: &resets }, trail);
        services.get(wanted).cloned()
    }
}
