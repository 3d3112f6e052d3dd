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

    /// Resolves `extends` of one service. `trail` is the chain of services that extend it. False: the service lacks what it
    /// extends because of an error, which was reported.
    fn service(
        &mut self,
        name: &str,
        services: &mut Node,
        origin: &Origin<'_>,
        trail: &mut Vec<String>,
    ) -> bool {
        let Some(extends) = services.get(name).and_then(|it| it.get("extends")).cloned() else { return true };
        let is_complete = self.base(name, &extends, services, origin, trail);
        if !is_complete {
            let keys = services.entries().iter().filter(|entry| entry.key == name);
            let places = keys.map(|entry| entry.key_place.location()).chain([extends.place.location()]);
            self.progress.incomplete_places.extend(places);
        }
        is_complete
    }

    /// Finds the service that another one extends, and merges both. False: as for [`Self::service`].
    fn base(
        &mut self,
        name: &str,
        extends: &Node,
        services: &mut Node,
        origin: &Origin<'_>,
        trail: &mut Vec<String>,
    ) -> bool {
        let at = format!("services.{name}.extends");
        let step = format!("{} of {}", name, origin.file);
        if trail.contains(&step) {
            let message = format!("the services extend each other in a cycle: {}", cycle(trail, &step));
            self.findings.push(extends.finding(at, message));
            return false;
        }
        if trail.len() >= DEEPEST {
            self.findings
                .push(extends.finding(at, format!("the services extend each other over {DEEPEST} levels")));
            return false;
        }
        let file = extends.get("file").filter(|it| !it.is_null());
        let wanted = as_text(extends.get("service").unwrap_or(extends)).map(str::to_owned);
        // The strict check reports a wrong type.
        let Some(wanted) = wanted.filter(|_| file.is_none_or(|file| as_text(file).is_some())) else {
            return true;
        };
        trail.push(step);
        let base = if let Some(file) = file {
            self.base_in_other_file(&wanted, file, origin, trail, &at)
        } else {
            if services.get(&wanted).is_none() {
                let message = format!("the service `{wanted}` does not exist in `{}`", origin.file);
                self.findings.push(extends.finding(&at, message));
            }
            let is_complete = self.service(&wanted, services, origin, trail);
            services.get(&wanted).cloned().map(|base| (base, is_complete))
        };
        trail.pop();
        let Some((mut base, is_complete)) = base else { return false };
        if !tree::is_mapping(&base) {
            return true;
        }
        if !self.charge(tree::weight(&base), &extends.place.location()) {
            return false;
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
        is_complete
    }

    /// A service of another file, with its `extends` resolved, and whether it lacks nothing. `None`: there is none, which was
    /// reported.
    fn base_in_other_file(
        &mut self,
        wanted: &str,
        file: &Node,
        origin: &Origin<'_>,
        trail: &mut Vec<String>,
        at: &str,
    ) -> Option<(Node, bool)> {
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
        let origin = Origin { file: &path, scope: origin.scope, resets: &resets };
        let is_complete = self.service(wanted, services, &origin, trail);
        Some((services.get(wanted).cloned()?, is_complete))
    }
}
