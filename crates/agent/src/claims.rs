//! Which application gets a name or port that several of them claim: the one that has it already.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{AppName, Finding, Held, Location, Stack, conflicts};
use driftless_store::{self as store, KnownApplication, Store};

use crate::{
    Applications,
    repository::{View, Wanted},
};

/// An application as its repository wants it, with the index of the repository.
pub(super) type Indexed = (usize, Arc<Wanted>);

/// The applications of all repositories. Of two repositories that have an application of one name, the one that
/// the application was last deployed from comes first.
pub(super) fn wanted(repositories: &[&str], views: &[View], known: &[KnownApplication]) -> Vec<Indexed> {
    let repository_of: BTreeMap<&AppName, &str> =
        known.iter().map(|known| (&known.app, known.repository.as_str())).collect();
    let keeper_of = |name: &AppName| position(repositories, repository_of.get(name)?);
    let mut wanted = Vec::new();
    for (index, view) in views.iter().enumerate() {
        for (name, application) in &view.apps {
            let keeper = keeper_of(name).filter(|keeper| *keeper != index);
            let kept_in = keeper.and_then(|keeper| views.get(keeper));
            // Until its own repository was read, nobody knows whether the application has moved here.
            if kept_in.is_none_or(|view| view.apps.contains_key(name) || view.is_complete()) {
                let is_second = kept_in.is_some_and(|view| view.apps.contains_key(name));
                wanted.push((is_second, (index, Arc::clone(application))));
            }
        }
    }
    wanted.sort_by_key(|(is_second, _)| *is_second);
    wanted.into_iter().map(|(_, wanted)| wanted).collect()
}

/// What the applications of a host have.
#[derive(Default)]
pub(super) struct Claims {
    /// The last stacks of applications that are in no repository now.
    absent: BTreeMap<AppName, Option<Arc<Stack>>>,
    are_disputed: bool,
}

impl Claims {
    /// Whether some application claims what another one has.
    pub(super) fn are_disputed(&self) -> bool {
        self.are_disputed
    }

    /// Findings about applications that claim the same name, container name or port, over all repositories.
    pub(super) fn conflicts(
        &mut self,
        store: &Store,
        applications: &Applications,
        repositories: &[&str],
        views: &[View],
        known: &[KnownApplication],
        wanted: &[Indexed],
    ) -> BTreeMap<AppName, Vec<Finding>> {
        let names: BTreeSet<&AppName> = wanted.iter().map(|(_, wanted)| &wanted.spec.name).collect();
        self.absent.retain(|name, _| !names.contains(name));
        let mut absent = Vec::new();
        for known in known.iter().filter(|known| !names.contains(&known.app)) {
            let view = position(repositories, &known.repository).and_then(|index| views.get(index));
            let is_gone = view.is_none_or(View::is_complete);
            if is_gone && has_nothing_left(applications, &known.app) {
                continue;
            }
            let stack = self.absent.entry(known.app.clone()).or_insert_with(|| last_stack(store, &known.app));
            absent.extend(stack.clone());
        }
        let (mut found, stacks) = first_by_name(wanted);
        let held = Held { of: &|app| last_stack(store, app), absent: &absent };
        for (app, finding) in conflicts(&stacks, &held) {
            found.entry(app).or_default().push(finding);
        }
        self.are_disputed = !found.is_empty();
        found
    }
}

/// Whether its last look at Docker found no container of an application.
fn has_nothing_left(applications: &Applications, app: &AppName) -> bool {
    applications.get(app).is_some_and(|application| {
        let status = &application.status;
        let has_none = status.workloads.values().all(|workload| workload.instances.is_empty());
        status.observed_at.is_some() && has_none
    })
}

/// The stack that an application was last given.
fn last_stack(store: &Store, app: &AppName) -> Option<Arc<Stack>> {
    let stack = store.current(app).and_then(|revision| match revision {
        Some(revision) => store.stack(app, revision.number),
        None => Ok(None),
    });
    let warn =
        |error: &store::Error| tracing::warn!(%app, %error, "the application's last stack is unreadable");
    stack.inspect_err(warn).ok().flatten().map(Arc::new)
}

/// The stacks of the applications. One whose name is taken by an application before it is left out, with a finding.
fn first_by_name(wanted: &[Indexed]) -> (BTreeMap<AppName, Vec<Finding>>, Vec<&Stack>) {
    let mut found: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    let mut first: BTreeMap<&AppName, &Wanted> = BTreeMap::new();
    let mut stacks = Vec::new();
    for (_, wanted) in wanted {
        let name = &wanted.spec.name;
        if let Some(other) = first.get(name) {
            let message = format!(
                "repositories `{}` ({}) and `{}` ({}) both have an application `{name}`",
                other.repository, other.spec.path, wanted.repository, wanted.spec.path
            );
            let place = Location::file(wanted.spec.path.clone());
            let finding = Finding::warning(place, "", message)
                .help("give one of them another name in the configuration");
            found.entry(name.clone()).or_default().push(finding);
            continue;
        }
        first.insert(name, wanted);
        if let Some(stack) = &wanted.stack {
            stacks.push(stack.as_ref());
        }
    }
    (found, stacks)
}

fn position(repositories: &[&str], name: &str) -> Option<usize> {
    repositories.iter().position(|repository| *repository == name)
}
