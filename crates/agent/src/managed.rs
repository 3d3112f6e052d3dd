//! The applications of this agent as each one knows the others: their names, and the stacks that Git has of them.
//!
//! An application that is to use data asks here whether another one has them, and what is left of applications that are gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{AppName, ManagedApplications, Stack};
use driftless_store::KnownApplication;

use crate::{claims::Claimant, desired::Desired, repository::RepositoryView};

/// The facts that [`ManagedApplications`] are made from.
pub(crate) struct Managed<'a> {
    /// The names of the repositories, in the order of the configuration.
    pub(crate) repositories: &'a [&'a str],
    /// The content of each repository.
    pub(crate) views: &'a [RepositoryView],
    pub(crate) claimants: &'a [Claimant],
    /// The applications that were deployed before.
    pub(crate) known: &'a [KnownApplication],
}

impl Managed<'_> {
    /// The applications now. `tasks` are the desired states until now of those that have a task.
    pub(crate) fn applications(&self, tasks: &BTreeMap<AppName, Arc<Desired>>) -> ManagedApplications {
        let mut names: BTreeSet<AppName> = self.known.iter().map(|known| known.app.clone()).collect();
        let mut in_git: BTreeSet<&AppName> = BTreeSet::new();
        let mut stacks: BTreeMap<AppName, Arc<Stack>> = BTreeMap::new();
        for Claimant { rendered, .. } in self.claimants {
            let name = &rendered.spec.name;
            // The first repository that has the name keeps it.
            if in_git.insert(name)
                && let Some(stack) = &rendered.stack
            {
                stacks.insert(name.clone(), Arc::clone(stack));
            }
        }
        for (name, desired) in
            tasks.iter().filter(|(name, desired)| !in_git.contains(name) && !desired.is_gone())
        {
            names.insert(name.clone());
            if let Some(stack) = desired.rendered().stack.as_ref().filter(|_| self.is_kept(desired)) {
                stacks.insert(name.clone(), Arc::clone(stack));
            }
        }
        names.extend(in_git.into_iter().cloned());
        let is_read = |view: &RepositoryView| view.commit.is_some() && view.errors().next().is_none();
        ManagedApplications { is_complete: self.views.iter().all(is_read), names, stacks }
    }

    /// Whether an application that is in no repository now stays as it is: its repository cannot be read, or its removal waits for a user.
    fn is_kept(&self, desired: &Desired) -> bool {
        let index = self.repositories.iter().position(|name| *name == desired.rendered().repository);
        let view = index.and_then(|index| self.views.get(index));
        desired.emptied_count().is_some()
            || view.is_some_and(|view| !view.is_complete() && view.empty_folder.is_none())
    }
}

/// Whether an application may go on that waited for another one to be gone, or for all repositories to be read.
pub(crate) fn may_free_others(before: &ManagedApplications, now: &ManagedApplications) -> bool {
    (now.is_complete && !before.is_complete) || !before.names.is_subset(&now.names)
}

#[cfg(test)]
mod tests {
    use driftless_model::{CommitInfo, Policy};

    use super::*;
    use crate::desired::{
        Rendered,
        tests::{present, stack},
    };

    fn view() -> RepositoryView {
        RepositoryView::at(CommitInfo::default())
    }

    fn claimant(desired: &Desired) -> Claimant {
        Claimant { repository: 0, rendered: Arc::new(desired.rendered().clone()) }
    }

    #[test]
    fn application_that_left_git_has_no_data_any_more() {
        let shop = present("a", &stack("shop"), Policy::default());
        let views = [view()];
        let managed = |claimants: &[Claimant], views: &[RepositoryView]| {
            let facts = Managed { repositories: &["infra"], views, claimants, known: &[] };
            facts.applications(&[(AppName::from("shop"), Arc::new(shop.clone()))].into())
        };
        let in_git = managed(&[claimant(&shop)], &views);
        assert!(in_git.is_complete && in_git.stacks.contains_key(&AppName::from("shop")));
        let left = managed(&[], &views);
        assert!(left.stacks.is_empty() && left.names.contains(&AppName::from("shop")));
        assert!(!may_free_others(&in_git, &left));
        let unread = managed(&[], &[RepositoryView::default()]);
        assert!(!unread.is_complete && unread.stacks.contains_key(&AppName::from("shop")));
        assert!(may_free_others(&unread, &left));
    }

    #[test]
    fn removed_application_frees_others() {
        let shop = present("a", &stack("shop"), Policy::default());
        let broken = Claimant {
            repository: 0,
            rendered: Arc::new(Rendered { stack: None, ..shop.rendered().clone() }),
        };
        let views = [view()];
        let managed = |claimants: &[Claimant]| {
            Managed { repositories: &["infra"], views: &views, claimants, known: &[] }
                .applications(&BTreeMap::new())
        };
        let (invalid, removed) = (managed(&[broken]), managed(&[]));
        assert!(!invalid.is_gone(&"shop".into()) && invalid.stacks.is_empty());
        assert!(removed.is_gone(&"shop".into()));
        assert!(may_free_others(&invalid, &removed));
    }
}
