//! Names and ports that several applications claim: the application that has one already keeps it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{
    AppName, CommitId, Finding, ForeignObject, Held, Location, Policy, Stack, ViolatingObject, conflicts,
    foreign_objects,
};
use driftless_store::{self as store, KnownApplication, Store};

use crate::{
    Applications, absence::Absence, dependency_cycles::dependency_cycles, desired::Rendered,
    failed_reads::FailedReads, repository_view::RepositoryView,
};

/// Read of an application that is in no repository now, or whose manifests have errors.
const LAST_STACK: &str = "the last stack of an application";

/// A rendered application, with the index of its repository.
#[derive(Clone)]
pub(crate) struct Claimant {
    pub(crate) repository: usize,
    pub(crate) rendered: Arc<Rendered>,
}

/// The facts that the applications of a host are compared by.
pub(crate) struct Inventory<'a> {
    pub(crate) store: &'a Store,
    /// The published applications.
    pub(crate) applications: &'a Applications,
    /// The names of the repositories, in the order of the configuration.
    pub(crate) repositories: &'a [&'a str],
    /// The content of each repository.
    pub(crate) views: &'a [RepositoryView],
    /// The applications that were deployed before.
    pub(crate) known: &'a [KnownApplication],
}

impl Inventory<'_> {
    /// The applications of all repositories. Of two repositories that have an application of one name, the one that
    /// the application was last deployed from comes first.
    pub(crate) fn claimants(&self) -> Vec<Claimant> {
        let known_by_name: BTreeMap<&AppName, &KnownApplication> =
            self.known.iter().map(|known| (&known.app, known)).collect();
        let keeper_of = |name: &AppName| {
            let known = *known_by_name.get(name)?;
            Some((self.position(&known.repository)?, known))
        };
        // Until its own repository was read, nobody knows whether the application has moved. Its containers are not handed over where the
        // policy forbids other applications: it is removed or forgotten first.
        let has_moved = |rendered: &Rendered, (view, known): (&RepositoryView, &KnownApplication)| {
            rendered.admission.allows_other_applications()
                && view.absence(known, self.known) != Absence::Unclear
        };
        let mut claimants = Vec::new();
        for (index, view) in self.views.iter().enumerate() {
            for (name, rendered) in &view.applications {
                let keeper = keeper_of(name).filter(|(keeper, _)| *keeper != index);
                let kept_in = keeper.and_then(|(keeper, known)| Some((self.views.get(keeper)?, known)));
                let is_second = kept_in.is_some_and(|(view, _)| view.applications.contains_key(name));
                if is_second || kept_in.is_none_or(|kept| has_moved(rendered, kept)) {
                    let claimant = Claimant { repository: index, rendered: Arc::clone(rendered) };
                    claimants.push((is_second, claimant));
                }
            }
        }
        claimants.sort_by_key(|(is_second, _)| *is_second);
        claimants.into_iter().map(|(_, claimant)| claimant).collect()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.repositories.iter().position(|repository| *repository == name)
    }

    /// Whether the last round found no container of an application.
    fn has_nothing_left(&self, app: &AppName) -> bool {
        self.applications.get(app).is_some_and(|application| {
            let status = &application.status;
            let has_none = status.workloads.values().all(|workload| workload.instances.is_empty());
            status.observed_at.is_some() && has_none
        })
    }
}

/// The names, ports and volumes that the applications of a host have.
#[derive(Default)]
pub(crate) struct Claims {
    /// The last stacks of applications that are in no repository now.
    absent: BTreeMap<AppName, Option<Arc<Stack>>>,
    are_disputed: bool,
    /// The conflicts between applications of one commit.
    lasting: BTreeMap<AppName, Finding>,
    failed_reads: FailedReads,
}

impl Claims {
    /// Whether some application claims what another one has, or that is not known, because one of them could not be read.
    pub(crate) fn are_disputed(&self) -> bool {
        self.are_disputed
    }

    /// The first conflict of an application with another one of the same commit, which only another commit ends.
    pub(crate) fn lasting_conflict(&self, app: &AppName) -> Option<&Finding> {
        self.lasting.get(app)
    }

    /// The project of an application that is in no repository now, as it was last deployed.
    pub(crate) fn project_of_absent(&self, app: &AppName) -> Option<&str> {
        self.absent.get(app)?.as_ref().map(|stack| stack.project.as_str())
    }

    /// The last stack of an application that is in no repository now. It is read once; after an error, the next pass reads it again.
    fn stack_of_absent(
        &mut self,
        app: &AppName,
        read: impl FnOnce() -> Result<Option<Arc<Stack>>, store::Error>,
    ) -> Result<Option<Arc<Stack>>, store::Error> {
        if let Some(stack) = self.absent.get(app) {
            return Ok(stack.clone());
        }
        let stack = read()?;
        self.absent.insert(app.clone(), stack.clone());
        Ok(stack)
    }

    /// Findings about applications that claim the same name, container name or port, over all repositories.
    pub(crate) fn conflicts(
        &mut self,
        inventory: &Inventory<'_>,
        claimants: &[Claimant],
    ) -> BTreeMap<AppName, Vec<Finding>> {
        let Inventory { store, views, known, .. } = *inventory;
        let names: BTreeSet<&AppName> =
            claimants.iter().map(|claimant| &claimant.rendered.spec.name).collect();
        self.absent.retain(|name, _| !names.contains(name));
        // At the start no repository was read: nothing is claimed, and all stacks would be read for nothing.
        if claimants.is_empty() {
            self.are_disputed = false;
            self.lasting.clear();
            return BTreeMap::new();
        }
        let (mut absent, are_unread) = (Vec::new(), Cell::new(false));
        for known in known.iter().filter(|known| !names.contains(&known.app)) {
            let view = inventory.position(&known.repository).and_then(|index| views.get(index));
            let is_gone = view.is_none_or(|view| view.absence(known, inventory.known) != Absence::Unclear);
            if is_gone && inventory.has_nothing_left(&known.app) {
                continue;
            }
            let read = self.stack_of_absent(&known.app, || last_stack(store, &known.app));
            if let Some(stack) = self.failed_reads.note(&known.app, LAST_STACK, read) {
                absent.extend(stack);
            } else {
                are_unread.set(true);
            }
        }
        let (mut found, stacks) = first_by_name(claimants);
        let known_last: RefCell<BTreeMap<AppName, Option<Arc<Stack>>>> = RefCell::default();
        let failed_reads = RefCell::new(&mut self.failed_reads);
        let last_of = |app: &AppName| {
            if let Some(stack) = known_last.borrow().get(app) {
                return stack.clone();
            }
            let found = failed_reads.borrow_mut().note(app, LAST_STACK, last_stack(store, app));
            are_unread.set(are_unread.get() || found.is_none());
            let stack = found.flatten();
            known_last.borrow_mut().insert(app.clone(), stack.clone());
            stack
        };
        let held = Held { of: &last_of, absent: &absent };
        let contested = conflicts(&stacks, &held);
        self.lasting = lasting_conflicts(&contested, claimants, &Held { of: &last_of, absent: &[] });
        for (app, finding) in contested {
            found.entry(app).or_default().push(finding);
        }
        for (app, finding) in used_objects_of_others(claimants, &absent, last_of) {
            found.entry(app).or_default().push(finding);
        }
        let policies = claimants.iter().map(|claimant| claimant.rendered.as_ref());
        let policies = policies.map(|rendered| (&rendered.spec.name, &rendered.policy));
        for (app, finding) in dependency_cycles(&dependencies(policies)) {
            found.entry(app).or_default().push(finding);
        }
        self.are_disputed = are_unread.get() || !found.is_empty();
        found
    }
}

/// An application of a repository, for the comparison with the other applications of its host.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    pub name: &'a AppName,
    /// `None`: its manifests have errors.
    pub stack: Option<&'a Stack>,
    /// The stack of the commit before, if there is one. It keeps the names and ports of that.
    pub before: Option<&'a Stack>,
    pub policy: &'a Policy,
}

/// Errors of applications that one host cannot run together: two claim the same project name, container name or host port, or
/// they wait for each other.
///
/// Nothing is known of the host, so of those that claim a thing one that had it at the commit before keeps it, and otherwise the
/// first by name has it.
pub fn conflicts_on_a_host(applications: &[Contender<'_>]) -> Vec<(AppName, Finding)> {
    let stacks: Vec<&Stack> = applications.iter().filter_map(|application| application.stack).collect();
    let stack_before = |app: &AppName| {
        let application = applications.iter().find(|application| application.name == app)?;
        application.before.map(|stack| Arc::new(stack.clone()))
    };
    let mut found = conflicts(&stacks, &Held { of: &stack_before, absent: &[] });
    let policies = applications.iter().map(|application| (application.name, application.policy));
    found.extend(dependency_cycles(&dependencies(policies)));
    found
}

/// Warnings about an application that has left its repository, and that another repository has under the same name without taking it over.
pub(crate) fn found_elsewhere(app: &AppName, views: &[RepositoryView]) -> Vec<Finding> {
    let others = views.iter().filter_map(|view| view.applications.get(app));
    let warning = |rendered: &Arc<Rendered>| {
        let message = format!(
            "repository `{}` has an application `{app}`, which begins once this one is gone (`otherApplications: false`)",
            rendered.repository
        );
        let help = format!("end this one with `driftless remove {app}` or `driftless forget {app}`");
        Finding::warning(Location::file(rendered.spec.path.clone()), "", message).help(help)
    };
    others.map(warning).collect()
}

/// The first of the conflicts of each application that is one with another application of the same commit of a repository. `held` has no
/// application that is in no repository.
fn lasting_conflicts(
    contested: &[(AppName, Finding)],
    claimants: &[Claimant],
    held: &Held<'_>,
) -> BTreeMap<AppName, Finding> {
    let (mut commits, mut stacks) = (BTreeMap::new(), BTreeMap::<_, Vec<&Stack>>::new());
    for Claimant { repository, rendered } in claimants {
        let commit = (*repository, &rendered.commit.id);
        commits.entry(&rendered.spec.name).or_insert(commit);
        stacks.entry(commit).or_default().extend(rendered.stack.as_deref());
    }
    let affected: BTreeSet<(usize, &CommitId)> =
        contested.iter().filter_map(|(app, _)| commits.get(app).copied()).collect();
    let mut found: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    for commit in affected {
        let of_commit = stacks.get(&commit).map_or(&[][..], Vec::as_slice);
        for (app, finding) in conflicts(of_commit, held) {
            if commits.get(&app) == Some(&commit) {
                found.entry(app).or_default().push(finding);
            }
        }
    }
    let mut lasting = BTreeMap::new();
    for (app, finding) in contested {
        if found.get(app).is_some_and(|found| found.contains(finding)) {
            lasting.entry(app.clone()).or_insert_with(|| finding.clone());
        }
    }
    lasting
}

/// The applications that each one depends on.
fn dependencies<'a>(
    policies: impl Iterator<Item = (&'a AppName, &'a Policy)>,
) -> BTreeMap<&'a AppName, BTreeSet<&'a AppName>> {
    let others = |(name, policy): (&'a AppName, &'a Policy)| {
        let others = policy.depends_on.iter().map(|dependency| &dependency.app);
        (name, others.filter(|other| *other != name).collect())
    };
    policies.map(others).collect()
}

/// External networks and volumes of another application, of any repository, where the policy forbids that. `absent` are the last stacks
/// of applications that are in no repository now, and `last_of` reads that of one whose manifests have errors.
fn used_objects_of_others(
    claimants: &[Claimant],
    absent: &[Arc<Stack>],
    last_of: impl Fn(&AppName) -> Option<Arc<Stack>>,
) -> Vec<(AppName, Finding)> {
    let rendered = || claimants.iter().map(|claimant| claimant.rendered.as_ref());
    if rendered().all(|rendered| rendered.admission.allows_other_applications()) {
        return Vec::new();
    }
    let unread = rendered().filter(|rendered| rendered.stack.is_none());
    let unread: Vec<Arc<Stack>> = unread.filter_map(|rendered| last_of(&rendered.spec.name)).collect();
    let others: Vec<&Stack> = absent.iter().chain(&unread).map(Arc::as_ref).collect();
    let stacks: Vec<_> = rendered()
        .filter_map(|rendered| Some((rendered.stack.as_ref()?.as_ref(), rendered.admission.as_ref())))
        .collect();
    let finding = |foreign: ForeignObject| {
        let stack = stacks.iter().find(|(stack, _)| stack.app == foreign.app).map(|(stack, _)| *stack);
        let file = stack.and_then(|stack| stack.manifests.first()).cloned().unwrap_or_default();
        let violation = foreign.violation;
        let path = match &violation.object {
            ViolatingObject::Network(key) => format!("networks.{key}"),
            ViolatingObject::Volume(key) => format!("volumes.{key}"),
            ViolatingObject::Workload(name, _) => name.to_string(),
        };
        let help = violation.help();
        (foreign.app, Finding::error(Location::file(file), path, violation.message).help(help))
    };
    foreign_objects(&stacks, &others).into_iter().map(finding).collect()
}

/// The stack of an application's newest revision.
fn last_stack(store: &Store, app: &AppName) -> Result<Option<Arc<Stack>>, store::Error> {
    Ok(store.current_stack(app)?.map(|(_, stack)| Arc::new(stack)))
}

/// The stacks of the applications. One whose name is taken by an application before it is left out, with a finding.
fn first_by_name(claimants: &[Claimant]) -> (BTreeMap<AppName, Vec<Finding>>, Vec<&Stack>) {
    let mut found: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    let mut first: BTreeMap<&AppName, &Rendered> = BTreeMap::new();
    let mut stacks = Vec::new();
    for Claimant { rendered, .. } in claimants {
        let name = &rendered.spec.name;
        if let Some(other) = first.get(name) {
            let message = format!(
                "repositories `{}` ({}) and `{}` ({}) both have an application `{name}`",
                other.repository, other.spec.path, rendered.repository, rendered.spec.path
            );
            let place = Location::file(rendered.spec.path.clone());
            let finding = Finding::warning(place, "", message)
                .help("give one of them another name in the configuration");
            found.entry(name.clone()).or_default().push(finding);
            continue;
        }
        first.insert(name, rendered);
        if let Some(stack) = &rendered.stack {
            stacks.push(stack.as_ref());
        }
    }
    (found, stacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::tests::{present, stack};

    #[test]
    fn same_name_in_another_repository_is_found() {
        let app = AppName::from("shop");
        let mut view = RepositoryView::default();
        assert!(found_elsewhere(&app, std::slice::from_ref(&view)).is_empty());
        let rendered = present("a", &stack("shop"), Policy::default()).rendered().clone();
        view.applications.insert(app.clone(), Arc::new(rendered));
        let found = found_elsewhere(&app, &[RepositoryView::default(), view]);
        let [warning] = &found[..] else { panic!("{found:?}") };
        assert!(!warning.is_error() && warning.message.contains("repository `infra`"), "{warning:?}");
    }

    #[test]
    fn failed_read_of_a_stack_is_not_remembered() {
        let (mut claims, app) = (Claims::default(), AppName::from("shop"));
        let fail = || Err(store::Error::Read { what: "a stack", source: "disk I/O error".into() });
        assert!(claims.stack_of_absent(&app, fail).is_err());
        assert_eq!(claims.project_of_absent(&app), None);
        let read = claims.stack_of_absent(&app, || Ok(Some(Arc::new(stack("shop")))));
        assert!(read.unwrap().is_some());
        assert!(claims.stack_of_absent(&app, fail).unwrap().is_some(), "it is read once");
        assert_eq!(claims.project_of_absent(&app), Some("shop"));
    }
}
