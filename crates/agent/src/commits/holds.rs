//! Decides whether the newest commit of one application is held back: by a sync window, by another application, or by the first
//! hosts.

use std::collections::BTreeSet;

use driftless_fleet::{AfterDecision, WaitingCommit, WaitingImages, decide_after};
use driftless_model::{AfterRecord, AppName, EventKind, Record, StackHash, Timestamp};
use driftless_plan::{closed_window, hands_over, new_digests, running_digests};

use crate::{
    commits::held_commit::{HeldCommit, Hold, unmet_dependency},
    context::AppContext,
    desired::Desired,
    error::chain,
    revisions::target::TargetRevision,
};

/// The holds of one application.
#[derive(Clone, Default)]
pub(crate) struct CommitHolds {
    /// The newest commit, if it waits for a sync window, another application or the first hosts.
    held: Option<HeldCommit>,
    /// Why the first hosts let the newest commit pass, until that is reported.
    passed: Option<String>,
    /// The wait for the first hosts, as of the last choice of a target.
    after: Option<AfterRecord>,
    /// The sync that a user last asked for and that has applied no commit yet.
    manual: Option<ManualSync>,
}

/// A sync that a user asked for.
#[derive(Clone)]
enum ManualSync {
    /// It was asked for at this time, and has not fetched yet.
    Asked(Timestamp),
    /// It has fetched a commit with this stack. `None`: nothing could be rendered.
    Fetched(Option<StackHash>),
}

impl CommitHolds {
    /// The newest commit, if it waits for a sync window, another application or the first hosts.
    pub(crate) fn held(&self) -> Option<&HeldCommit> {
        self.held.as_ref()
    }

    /// Ends the hold, until the newest commit is looked at again. Returns it.
    pub(crate) fn take(&mut self) -> Option<HeldCommit> {
        self.held.take()
    }

    /// A user has asked for a sync.
    pub(crate) fn note_sync(&mut self, at: Timestamp) {
        self.manual = Some(ManualSync::Asked(at));
    }

    /// Notes the commit that the sync of a user has fetched. It counts for no later one.
    pub(crate) fn note_fetch(&mut self, desired: &Desired) {
        let fetched_at = desired.repository().fetched_at;
        let has_fetched = |at: Timestamp| fetched_at.is_some_and(|fetched| fetched > at);
        if matches!(self.manual, Some(ManualSync::Asked(at)) if desired.is_after_fetch_since(at)) {
            self.manual = None;
        }
        if matches!(self.manual, Some(ManualSync::Asked(at)) if has_fetched(at)) {
            self.manual = Some(ManualSync::Fetched(stack_of(desired)));
        }
    }

    /// Continues with the wait for the first hosts in the record.
    pub(crate) fn continue_from(&mut self, record: &Record) {
        self.after.clone_from(&record.after);
    }

    /// Writes the wait for the first hosts to the record. True: it is another one than before.
    pub(crate) fn note_after(&self, record: &mut Record) -> bool {
        let is_other = record.after != self.after;
        if is_other {
            record.after.clone_from(&self.after);
        }
        is_other
    }

    /// Reports a commit that is held back and was not before, and one that the first hosts let pass.
    pub(crate) fn report(&mut self, context: &AppContext, desired: &Desired, before: Option<&HeldCommit>) {
        let commit = desired.commit().id.short();
        if let Some(why) = self.passed.take() {
            let message = format!("{commit} may be applied (`after`): {why}");
            context.event(EventKind::Normal, "FirstHostsReady", commit, &message);
        }
        let is_known = |held: &HeldCommit| {
            before.is_some_and(|before| before.commit == held.commit && before.event() == held.event())
        };
        if let Some(held) = self.held.as_ref().filter(|held| !is_known(held)) {
            let message = held.sentence(context.name());
            context.event(held.kind(), held.event(), held.commit.short(), &message);
        }
    }

    /// Looks whether anything holds the newest commit back. Nothing does if it is not new. True: it is held back.
    pub(crate) fn hold(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        newest: &TargetRevision,
        record: &Record,
        is_new: bool,
    ) -> bool {
        // The first hosts are looked at in any case, so that their time counts while a window is closed.
        let by_hosts = self.by_first_hosts(context, desired, newest, record, is_new);
        self.held = self.by_window(context, desired, newest, is_new);
        if self.held.is_none() && is_new {
            self.held = by_dependency(context, desired, newest, record).or(by_hosts);
        }
        self.held.is_some()
    }

    /// Why the sync windows hold a new commit back, if they do. A sync that a user asked for counts once it has fetched.
    fn by_window(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        newest: &TargetRevision,
        is_new: bool,
    ) -> Option<HeldCommit> {
        let closed = closed_window(&newest.policy.sync_windows, context.now()).filter(|_| is_new);
        let Some(closed) = closed else {
            self.manual = self.manual.take().filter(|manual| matches!(manual, ManualSync::Asked(_)));
            return None;
        };
        if let Some(ManualSync::Fetched(stack)) = &self.manual {
            if closed.allows_manual && *stack == stack_of(desired) {
                return None;
            }
            self.manual = None;
        }
        Some(HeldCommit { commit: newest.commit.id.clone(), hold: Hold::Window(closed) })
    }

    /// Why a new commit waits for the first hosts, if it does.
    fn by_first_hosts(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        newest: &TargetRevision,
        record: &Record,
        is_new: bool,
    ) -> Option<HeldCommit> {
        let before = self.after.take();
        let after = newest.policy.after.as_ref().filter(|_| is_new)?;
        let settings = desired.rendered().settings.as_deref()?;
        let images = WaitingImages { all: running_digests(record, &newest.stack), new: new_digests(record) };
        let waiting = WaitingCommit {
            app: context.name(),
            after,
            host: &settings.host,
            listed: &settings.hosts_in_git,
            commit: &newest.commit.id,
            stack: &newest.hash,
            images: &images,
        };
        let hosts = context.peers();
        let (record, decision) = decide_after(&waiting, before.as_ref(), hosts.as_known(), context.now());
        self.after = record;
        match decision {
            AfterDecision::Apply(why) => {
                self.passed = Some(why).filter(|why| !why.is_empty() && !newest.policy.suspended);
                None
            }
            AfterDecision::Hold(hold) => {
                Some(HeldCommit { commit: newest.commit.id.clone(), hold: Hold::FirstHosts(hold) })
            }
        }
    }
}

/// The hash of the rendered stack. Unlike that of the target, newer images do not change it.
fn stack_of(desired: &Desired) -> Option<StackHash> {
    desired.rendered().hashes.as_ref().map(|hashes| hashes.stack.clone())
}

/// Why a new commit waits for another application, if it does.
fn by_dependency(
    context: &AppContext,
    desired: &Desired,
    newest: &TargetRevision,
    record: &Record,
) -> Option<HeldCommit> {
    // Another application cannot come first if it waits for what this commit gives up.
    let is_first = |other: &AppName| !waits_for_data_of(context, newest, record, other);
    let (applications, managed) = (context.applications(), context.managed());
    let hold = unmet_dependency(context.name(), &newest.policy, desired, &applications, &managed, is_first)?;
    Some(HeldCommit { commit: newest.commit.id.clone(), hold })
}

/// Whether the commit gives data of this application to another one, which starts when these containers have ended, or to one that the
/// other one depends on, itself or through others.
fn waits_for_data_of(
    context: &AppContext,
    newest: &TargetRevision,
    record: &Record,
    other: &AppName,
) -> bool {
    let (managed, store) = (context.managed(), context.store());
    let before = match store.current_stack(context.name()) {
        Ok(Some((_, before))) => before,
        Ok(None) => return false,
        Err(error) => {
            let app = context.name();
            tracing::warn!(%app, error = chain(&error), "could not read which data a commit gives up");
            return false;
        }
    };
    let takes = |app: &AppName| {
        let shared = &record.shared_places;
        managed.stacks.get(app).is_some_and(|taker| hands_over(&before, &newest.stack, taker, shared))
    };
    let (mut seen, mut next) = (BTreeSet::from([context.name()]), vec![other]);
    while let Some(app) = next.pop() {
        if !seen.insert(app) {
            continue;
        }
        if takes(app) {
            return true;
        }
        next.extend(managed.depends_on.get(app).into_iter().flatten());
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc, time::Duration};

    use driftless_model::{
        Actor, Cause, CommitId, CommitInfo, Completion, Container, FailedCommit, HostSource, Location,
        ManagedApplications, Mount, MountSource, Outcome, Policy, PullPolicy, Revision, SharedPlace,
        SharingServices, Stack, Strategy, SyncWindow, WindowKind,
    };
    use driftless_store::NewRevision;
    use tempfile::TempDir;

    use super::*;
    use crate::{
        context::tests::{context, new_revision},
        desired::{
            RepositoryState,
            tests::{present, stack},
        },
        revisions::Revisions,
    };

    fn images() -> BTreeMap<String, String> {
        BTreeMap::from([("web:1".to_owned(), "web@sha256:aa".to_owned())])
    }

    fn begin(context: &AppContext, project: &str, cause: Cause, rollback_of: Option<u64>) -> Revision {
        let commit = CommitInfo { id: CommitId::from_stored(project), ..CommitInfo::default() };
        let new = NewRevision { commit, cause, rollback_of, ..new_revision(context.name()) };
        context.store().begin_revision(&new, &stack(project)).unwrap()
    }

    /// The commit `b` has failed, and the application goes back to `a` in a third revision.
    fn gone_back(cause: Cause) -> (AppContext, TempDir, Record) {
        let (context, folder) = context();
        let finish = |revision: &Revision, outcome: Outcome| {
            context.store().finish_revision(context.name(), revision.number, &outcome, &images()).unwrap();
        };
        finish(&begin(&context, "a", Cause::Commit, None), Outcome::Succeeded);
        let failed = begin(&context, "b", Cause::Commit, None);
        finish(&failed, Outcome::Failed { reason: "deadline".to_owned() });
        begin(&context, "a", cause, Some(1));
        let failed = FailedCommit {
            commit: failed.commit.id.clone(),
            stack: failed.stack,
            revision: failed.number,
            reason: "deadline".to_owned(),
            at: context.now(),
            back_to: Some(1),
            was_reached: false,
            action: None,
            images: None,
        };
        (context, folder, Record { failed: Some(failed), ..Record::default() })
    }

    /// A window that is always closed.
    fn closed() -> Policy {
        let window = SyncWindow {
            kind: WindowKind::Deny,
            schedule: "* * * * *".to_owned(),
            time_zone: None,
            duration: Duration::from_hours(1),
            manual_sync: false,
        };
        Policy { sync_windows: vec![window], ..Policy::default() }
    }

    fn target(context: &AppContext, newest: &str, record: &Record) -> (TargetRevision, bool) {
        let mut revisions = Revisions::load(context);
        let desired = present(newest, &stack(newest), closed());
        let target = revisions.target(context, &desired, record).unwrap().unwrap();
        (target, revisions.held().is_some())
    }

    /// An application with a service, which writes to a volume.
    fn stack_of_app(app: &str, volume: Option<&str>) -> Stack {
        let mount = |name: &str| Mount {
            target: "/data".to_owned(),
            source: MountSource::Volume { name: name.to_owned(), no_copy: false },
            read_only: false,
        };
        let container = Container { mounts: volume.map(mount).into_iter().collect(), ..Container::default() };
        let service = serde_json::json!({
            "origin": Location::default(), "replicas": 1, "container": container,
            "strategy": Strategy::Recreate, "progressDeadline": Duration::from_mins(10),
            "pull": PullPolicy::IfNotPresent, "completion": Completion::Never,
        });
        let service = serde_json::from_value(service).unwrap();
        Stack { app: app.into(), workloads: BTreeMap::from([("service".into(), service)]), ..stack(app) }
    }

    #[test]
    fn data_go_first_through_a_third_application() {
        let (context, _folder) = context();
        let before = new_revision(context.name());
        context.store().begin_revision(&before, &stack_of_app("shop", Some("data"))).unwrap();
        let newest = TargetRevision::new(
            Arc::new(stack_of_app("shop", None)),
            CommitInfo::default(),
            Policy::default(),
            Cause::Commit,
        );
        let names = ["db", "pooler", "mail"];
        let stacks = names.map(|app| {
            let volume = (app == "db").then_some("data");
            (AppName::from(app), Arc::new(stack_of_app(app, volume)))
        });
        let depends_on = [("pooler", "db"), ("mail", "shop"), ("db", "pooler")];
        let managed = ManagedApplications {
            stacks: stacks.into(),
            depends_on: depends_on.map(|(app, on)| (app.into(), BTreeSet::from([on.into()]))).into(),
            ..ManagedApplications::default()
        };
        context.set_managed(managed);
        let waits =
            |record: &Record, other: &str| waits_for_data_of(&context, &newest, record, &other.into());
        let mut record = Record::default();
        assert!(waits(&record, "db") && waits(&record, "pooler"));
        assert!(!waits(&record, "mail"));
        // It has written there all the time.
        record.shared_places.insert(SharedPlace {
            source: HostSource::Volume("data".to_owned()),
            with: "db".into(),
            services: Some(SharingServices { own: "service".into(), other: "service".into() }),
        });
        assert!(!waits(&record, "db") && !waits(&record, "pooler"));
    }

    #[test]
    fn closed_window_does_not_hold_the_way_back() {
        let (context, _folder, record) = gone_back(Cause::AutomaticRollback);
        let (way_back, is_held) = target(&context, "b", &record);
        assert!(!is_held);
        assert_eq!((way_back.back_to, way_back.images), (Some(1), images()));
    }

    #[test]
    fn held_commit_leaves_the_way_back_as_it_is() {
        let (context, _folder, record) = gone_back(Cause::AutomaticRollback);
        let (kept, is_held) = target(&context, "c", &record);
        assert!(is_held);
        assert_eq!((kept.hash, kept.back_to, kept.images), (StackHash::of(&stack("a")), Some(1), images()));
        // A rollback by a user runs the hooks of its revision.
        let (context, _folder, record) = gone_back(Cause::Rollback);
        let (kept, is_held) = target(&context, "c", &record);
        assert!(is_held);
        assert_eq!((kept.back_to, kept.images), (None, images()));
    }

    #[test]
    fn closed_window_holds_a_failed_commit_that_is_retried() {
        let (context, _folder, record) = gone_back(Cause::AutomaticRollback);
        let (kept, is_held) = target(&context, "b", &Record { failed: None, ..record });
        assert!(is_held);
        assert_eq!((kept.back_to, kept.images), (Some(1), images()));
    }

    /// The commit waits for something else than the window, and a later one comes meanwhile.
    #[test]
    fn requested_sync_counts_for_the_commit_that_it_fetched() {
        let (context, _folder) = context();
        begin(&context, "a", Cause::Commit, None);
        let window = SyncWindow { manual_sync: true, ..closed().sync_windows.remove(0) };
        let policy = Policy { sync_windows: vec![window], suspended: true, ..Policy::default() };
        let fetched = |commit: &str, seconds: u64| {
            let fetched_at = Some(context.now().after(Duration::from_secs(seconds)));
            let state = RepositoryState { fetched_at, ..RepositoryState::default() };
            present(commit, &stack(commit), policy.clone()).kept(Arc::new(state), None)
        };
        let mut revisions = Revisions::load(&context);
        revisions.request_sync(&context, &fetched("a", 0), &Actor::agent());
        let mut is_held = |desired: &Desired| {
            revisions.target(&context, desired, &Record::default()).unwrap();
            revisions.held().is_some()
        };
        for seconds in [60, 120] {
            assert!(!is_held(&fetched("b", seconds)), "it waits for the end of the suspension");
        }
        assert!(is_held(&fetched("c", 180)));
        assert!(is_held(&fetched("b", 240)), "the sync is used up");
    }

    #[test]
    fn commit_after_an_unseen_fetch_is_not_the_users() {
        let (context, _folder) = context();
        begin(&context, "a", Cause::Commit, None);
        let window = SyncWindow { manual_sync: true, ..closed().sync_windows.remove(0) };
        let policy = Policy { sync_windows: vec![window], ..Policy::default() };
        let fetched = |commit: &str, seconds: u64| {
            let fetched_at = Some(context.now().after(Duration::from_secs(seconds)));
            let state = RepositoryState { fetched_at, ..RepositoryState::default() };
            present(commit, &stack(commit), policy.clone()).kept(Arc::new(state), None)
        };
        let (first, next) = (fetched("a", 0), fetched("b", 120));
        let empty = fetched("a", 60).following(&first);
        let later = next.clone().following(&empty);
        for (desired, is_late) in [(next.following(&first), false), (later, true)] {
            let mut revisions = Revisions::load(&context);
            revisions.request_sync(&context, &first, &Actor::agent());
            // The application was busy while the fetch of the sync found nothing new.
            let target = revisions.target(&context, &desired, &Record::default()).unwrap().unwrap();
            assert_eq!(revisions.held().is_some(), is_late);
            assert_eq!(target.cause == Cause::User, !is_late);
        }
    }
}
