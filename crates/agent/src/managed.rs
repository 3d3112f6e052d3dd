//! The applications of this agent as each one knows the others: their names, and the stacks that Git has of them.
//!
//! An application that is to use data asks here whether another one has them, and what is left of applications that are gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{AppName, ContainerId, ManagedApplications, Stack};
use driftless_store::{self as store, KnownApplication, Store};

use crate::{absence::Absence, claims::Claimant, desired::Desired, repository_view::RepositoryView};

/// The applications that have adopted containers, by the container.
pub(crate) type Adopters = BTreeMap<ContainerId, AppName>;

/// The facts that [`ManagedApplications`] are made from.
pub(crate) struct Managed<'a> {
    /// The names of the repositories, in the order of the configuration.
    pub(crate) repositories: &'a [&'a str],
    /// The content of each repository.
    pub(crate) views: &'a [RepositoryView],
    pub(crate) claimants: &'a [Claimant],
    /// The applications that were deployed before.
    pub(crate) known: &'a [KnownApplication],
    /// As the records had them when the agent started.
    pub(crate) adopters: &'a Arc<Adopters>,
}

impl Managed<'_> {
    /// The applications now. `tasks` are the desired states until now of those that have a task. `last_in_git` is asked for the stack of
    /// an application that Git may have, and that was not rendered.
    pub(crate) fn applications(
        &self,
        tasks: &BTreeMap<AppName, Arc<Desired>>,
        mut last_in_git: impl FnMut(&AppName) -> Option<Arc<Stack>>,
    ) -> ManagedApplications {
        let mut names: BTreeSet<AppName> = self.known.iter().map(|known| known.app.clone()).collect();
        let mut in_git: BTreeSet<&AppName> = BTreeSet::new();
        let mut stacks: BTreeMap<AppName, Arc<Stack>> = BTreeMap::new();
        let mut unread: BTreeSet<AppName> = BTreeSet::new();
        let of_tasks = tasks.iter().map(|(name, desired)| (name, &desired.rendered().repository));
        let deployed = self.known.iter().map(|known| (&known.app, &known.repository));
        let repositories = of_tasks.chain(deployed);
        let mut repositories: BTreeMap<AppName, String> =
            repositories.map(|(name, repository)| (name.clone(), repository.clone())).collect();
        for Claimant { rendered, .. } in self.claimants {
            let name = &rendered.spec.name;
            // The first repository that has the name keeps it.
            if !in_git.insert(name) {
                continue;
            }
            repositories.insert(name.clone(), rendered.repository.clone());
            if rendered.stack.is_none() || rendered.rejected.is_some() {
                unread.insert(name.clone());
            }
            let stack = rendered.stack.clone().or_else(|| last_in_git(name));
            stacks.extend(stack.map(|stack| (name.clone(), stack)));
        }
        let present = tasks.iter().filter(|(_, desired)| !desired.is_gone());
        names.extend(present.map(|(name, _)| name.clone()));
        for name in names.iter().filter(|name| !in_git.contains(name)) {
            let desired = tasks.get(name).filter(|desired| !desired.is_gone());
            if !self.is_unread(name, desired) {
                continue;
            }
            unread.insert(name.clone());
            let rendered = desired.and_then(|desired| desired.rendered().stack.clone());
            stacks.extend(rendered.or_else(|| last_in_git(name)).map(|stack| (name.clone(), stack)));
        }
        names.extend(in_git.into_iter().cloned());
        let followed = self.repositories.iter().zip(self.views);
        let not_read = followed.filter(|(_, view)| !view.is_read()).map(|(name, _)| (*name).to_owned());
        ManagedApplications {
            is_complete: self.views.iter().all(RepositoryView::is_read),
            unread_repositories: not_read.collect(),
            names,
            stacks,
            unread,
            repositories,
            depends_on: self.dependencies(),
            adopters: Arc::clone(self.adopters),
        }
    }

    fn dependencies(&self) -> BTreeMap<AppName, BTreeSet<AppName>> {
        let mut dependencies = BTreeMap::<AppName, BTreeSet<AppName>>::new();
        for Claimant { rendered, .. } in self.claimants.iter().rev() {
            let others = rendered.policy.depends_on.iter().map(|dependency| dependency.app.clone());
            // The first repository that has the name keeps it.
            dependencies.insert(rendered.spec.name.clone(), others.collect());
        }
        dependencies.retain(|_, others| !others.is_empty());
        dependencies
    }

    /// Whether it is not known if Git still has an application that is in no repository now, as its own cannot be read.
    fn is_unread(&self, app: &AppName, desired: Option<&Arc<Desired>>) -> bool {
        let known = self.known.iter().find(|known| known.app == *app);
        let of_task = || desired.map(|desired| desired.rendered().repository.as_str());
        let repository = known.map(|known| known.repository.as_str()).or_else(of_task);
        let index = self.repositories.iter().position(|name| repository == Some(*name));
        let Some(view) = index.and_then(|index| self.views.get(index)) else { return false };
        // The newest commit that was read is known not to have one whose removal waits for a user.
        if desired.is_some_and(|desired| desired.emptied_count().is_some()) {
            return false;
        }
        match known {
            Some(known) => view.absence(known, self.known) == Absence::Unclear,
            None => !view.is_read(),
        }
    }
}

/// The stack that Git asked for when it was last read, if a revision has it: none has that of a commit that was held back. What is
/// applied may be older, and have data that Git has given to another application since.
pub(crate) fn read_last_in_git(store: &Store, app: &AppName) -> Result<Option<Arc<Stack>>, store::Error> {
    let record = store.record(app)?;
    let Some(newest) = record.newest.as_ref().filter(|_| record.emptied.is_none()) else {
        return Ok(None);
    };
    let found = store.revisions(app)?.into_iter().find(|revision| revision.stack == newest.stack);
    let stack = found.map_or(Ok(None), |revision| store.stack(app, revision.number))?;
    Ok(stack.map(Arc::new))
}

/// The containers that all applications have adopted, by their records.
pub(crate) fn read_adopters(store: &Store, known: &[KnownApplication]) -> Result<Adopters, store::Error> {
    let mut adopters = Adopters::new();
    for KnownApplication { app, .. } in known {
        let containers = store.record(app)?.adopted.containers;
        adopters.extend(containers.into_keys().map(|id| (id, app.clone())));
    }
    Ok(adopters)
}

/// Whether an application may go on that waited for another one to be gone, or for all repositories to be read.
pub(crate) fn may_free_others(before: &ManagedApplications, now: &ManagedApplications) -> bool {
    (now.is_complete && !before.is_complete) || !before.names.is_subset(&now.names)
}

#[cfg(test)]
mod tests {
    use driftless_model::{
        AdoptedContainer, CommitInfo, Finding, InstanceId, Location, NewestStack, Policy, Record, SpecHash,
        StackHash,
    };

    use super::*;
    use crate::{
        commits::trust::RejectedCommit,
        context::tests::{context, new_revision},
        desired::{
            Rendered,
            tests::{present, stack},
        },
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
            let facts =
                Managed { repositories: &["infra"], views, claimants, known: &[], adopters: &Arc::default() };
            facts.applications(&[(AppName::from("shop"), Arc::new(shop.clone()))].into(), |_| None)
        };
        let in_git = managed(&[claimant(&shop)], &views);
        assert!(in_git.is_complete && in_git.stacks.contains_key(&AppName::from("shop")));
        let left = managed(&[], &views);
        assert!(left.are_of_one_repository(&"shop".into(), &"shop".into()), "also after it has left");
        assert!(left.stacks.is_empty() && left.names.contains(&AppName::from("shop")));
        assert!(!may_free_others(&in_git, &left));
        let unread = managed(&[], &[RepositoryView::default()]);
        assert!(!unread.is_complete && unread.stacks.contains_key(&AppName::from("shop")));
        assert_eq!(unread.unread_repositories, BTreeSet::from(["infra".to_owned()]));
        assert!(may_free_others(&unread, &left));
    }

    #[test]
    fn repository_without_applications_was_read() {
        let is_complete = |other: &RepositoryView| {
            let views = [view(), other.clone()];
            let facts = Managed {
                repositories: &["infra", "notes"],
                views: &views,
                claimants: &[],
                known: &[],
                adopters: &Arc::default(),
            };
            facts.applications(&BTreeMap::new(), |_| None).is_complete
        };
        assert!(!is_complete(&RepositoryView::default()));
        let mut other = view();
        other.findings.push(Finding::error(Location::default(), "", "no application was found"));
        assert!(!is_complete(&other), "the error may hide some");
        other.empty_folder = Some(String::new());
        assert!(is_complete(&other));
    }

    #[test]
    fn broken_link_keeps_the_application_behind_it() {
        let known = |path: &str| KnownApplication {
            app: "shop".into(),
            repository: "infra".to_owned(),
            spec: serde_json::json!({ "path": path }),
        };
        let mut view = view();
        view.unread_files = vec![Finding::error(Location::file("hosts/nas/shop"), "", "is a symbolic link")];
        for path in ["hosts/nas/shop", "hosts/nas/shop/web"] {
            assert_eq!(view.absence(&known(path), &[]), Absence::Unclear, "{path}");
            assert_eq!(view.errors_about(&known(path)).count(), 1, "{path}");
        }
        for path in ["hosts/nas/shop-2", "hosts/nas", ""] {
            assert_eq!(view.absence(&known(path), &[]), Absence::Gone, "{path}");
        }
        view.unread_files = vec![Finding::error(Location::file("shop/.env"), "", "is a symbolic link")];
        assert_eq!(view.absence(&known("shop"), &[]), Absence::Unclear, "it may name the Compose files");
        let manifest = Finding::error(Location::file("shop/deployment.yaml"), "", "is a symbolic link");
        view.unread_files = vec![manifest];
        assert_eq!(view.absence(&known("shop"), &[]), Absence::Unclear, "it was the manifest");
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
            Managed {
                repositories: &["infra"],
                views: &views,
                claimants,
                known: &[],
                adopters: &Arc::default(),
            }
            .applications(&BTreeMap::new(), |_| None)
        };
        let (invalid, removed) = (managed(&[broken]), managed(&[]));
        assert!(!invalid.is_gone(&"shop".into()) && invalid.stacks.is_empty());
        assert!(removed.is_gone(&"shop".into()));
        assert!(may_free_others(&invalid, &removed));
    }

    #[test]
    fn unread_application_has_the_stack_of_git_before() {
        let shop = present("a", &stack("shop"), Policy::default());
        let nothing = Rendered { stack: None, ..shop.rendered().clone() };
        let broken = Claimant { repository: 0, rendered: Arc::new(nothing) };
        let known = [KnownApplication {
            app: "shop".into(),
            repository: "infra".to_owned(),
            spec: serde_json::json!({ "path": "shop" }),
        }];
        let is_known = |claimants: &[Claimant], view: RepositoryView| {
            let facts = Managed {
                repositories: &["infra"],
                views: &[view],
                claimants,
                known: &known,
                adopters: &Arc::default(),
            };
            let managed = facts.applications(&BTreeMap::new(), |_| Some(Arc::new(stack("shop"))));
            let has_stack = managed.stacks.contains_key(&AppName::from("shop"));
            assert_eq!(managed.unread.contains(&AppName::from("shop")), has_stack);
            has_stack
        };
        assert!(is_known(&[broken], view()), "its manifest has an error");
        assert!(is_known(&[], RepositoryView::default()), "the agent was restarted, and the forge is down");
        assert!(!is_known(&[], view()), "Git does not have it any more");
    }

    #[test]
    fn application_that_rejects_its_newest_commit_is_unread() {
        let shop = present("a", &stack("shop"), Policy::default());
        let rejected = RejectedCommit::unsigned(&CommitInfo::default(), "no signature".to_owned());
        let kept = Rendered { rejected: Some(Arc::new(rejected)), ..shop.rendered().clone() };
        let of = |rendered: Rendered| {
            let claimants = [Claimant { repository: 0, rendered: Arc::new(rendered) }];
            let facts = Managed {
                repositories: &["infra"],
                views: &[view()],
                claimants: &claimants,
                known: &[],
                adopters: &Arc::default(),
            };
            facts.applications(&BTreeMap::new(), |_| None)
        };
        let (accepted, rejected) = (of(shop.rendered().clone()), of(kept));
        assert!(accepted.unread.is_empty());
        assert!(rejected.unread.contains(&AppName::from("shop")));
        assert_eq!(rejected.stacks, accepted.stacks);
    }

    #[test]
    fn application_with_a_waiting_removal_shares_no_data() {
        let waiting = present("a", &stack("shop"), Policy::default()).emptied(5);
        let tasks = BTreeMap::from([(AppName::from("shop"), Arc::new(waiting))]);
        for view in [view(), RepositoryView::default()] {
            let facts = Managed {
                repositories: &["infra"],
                views: &[view],
                claimants: &[],
                known: &[],
                adopters: &Arc::default(),
            };
            let managed = facts.applications(&tasks, |_| Some(Arc::new(stack("shop"))));
            assert!(managed.stacks.is_empty() && managed.names.contains(&AppName::from("shop")));
        }
    }

    #[test]
    fn stack_that_git_last_asked_for_is_read() {
        let (context, _folder) = context();
        let (app, store) = (context.name(), context.store());
        let new = new_revision(app);
        store.begin_revision(&new, &stack("one")).unwrap();
        let read = |newest: Option<&str>, emptied: Option<usize>| {
            let newest = newest.map(|project| NewestStack {
                stack: StackHash::of(&stack(project)),
                commit: CommitInfo::default().id,
            });
            store.save_record(app, &Record { newest, emptied, ..Record::default() }).unwrap();
            read_last_in_git(store, app).unwrap()
        };
        assert!(read(Some("one"), None).is_some());
        assert!(read(Some("two"), None).is_none(), "a held commit has given something away");
        assert!(read(None, None).is_none(), "Git was read without it");
        assert!(read(Some("one"), Some(4)).is_none(), "its removal waits");
    }

    #[test]
    fn adopted_containers_are_known_before_they_are_observed() {
        let (context, _folder) = context();
        let instance = InstanceId { workload: "web".into(), slot: 1 };
        let adopted = AdoptedContainer { instance, spec: SpecHash::default() };
        let mut record = Record::default();
        record.adopted.containers.insert(ContainerId("c1".to_owned()), adopted);
        context.store().save_record(context.name(), &record).unwrap();
        let known = KnownApplication {
            app: context.name().clone(),
            repository: "infra".to_owned(),
            spec: serde_json::Value::Null,
        };
        let adopters = Arc::new(read_adopters(context.store(), &[known]).unwrap());
        let facts =
            Managed { repositories: &[], views: &[], claimants: &[], known: &[], adopters: &adopters };
        let managed = facts.applications(&BTreeMap::new(), |_| None);
        let expected = BTreeMap::from([(ContainerId("c1".to_owned()), AppName::from("shop"))]);
        assert_eq!(*managed.adopters, expected);
    }
}
