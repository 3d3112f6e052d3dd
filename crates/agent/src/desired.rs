//! The desired state of one application: the rendered manifests, the state of its repository, and the reasons why
//! the newest commit is not applied.
//!
//! The supervisor makes a [`Desired`] whenever Git or the configuration says something new. It is shared behind one
//! [`Arc`] and never changed: each new one replaces the one before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_config as config;
use driftless_files::{AppSpec, Reads};
use driftless_model::{
    AdmissionPolicy, AppName, ApplicationSpec, CommitInfo, Contents, EngineKind, Finding, Format, Missed,
    Policy, Stack, StackHashes, Timestamp,
};

use crate::commits::{status::StatusError, trust::RejectedCommit};

/// The desired state of one application, as Git and the configuration have it now.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    rendered: Arc<Rendered>,
    repository: Arc<RepositoryState>,
    presence: Presence,
    /// Why the commit may not be applied although it was rendered: the application claims what another one has, or
    /// the repository as a whole cannot be read.
    objections: Vec<Finding>,
    /// The objection that only another commit ends, if there is one.
    lasting_objection: Option<Finding>,
    /// The newest accepted commit of the repository, if it could not be rendered for this application.
    unrendered: Option<CommitInfo>,
    /// Why commit statuses do not reach the forge, if they do not.
    status_error: Option<StatusError>,
    /// When the newest fetch ended that did not have the newest commit yet, in this life of the agent.
    fetched_before: Option<Timestamp>,
}

/// One application, rendered from one commit.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    pub(crate) spec: AppSpec,
    /// The repository's name in the configuration.
    pub(crate) repository: String,
    pub(crate) url: String,
    pub(crate) reference: String,
    pub(crate) policy: Policy,
    /// The rules that the stack was checked with.
    pub(crate) admission: Arc<AdmissionPolicy>,
    pub(crate) commit: CommitInfo,
    /// `None` if a finding is an error.
    pub(crate) stack: Option<Arc<Stack>>,
    /// The hashes of the stack, if there is one.
    pub(crate) hashes: Option<Arc<StackHashes>>,
    pub(crate) findings: Vec<Finding>,
    /// Rules and sources of its settings that have no effect.
    pub(crate) rule_findings: Vec<Finding>,
    pub(crate) contents: Arc<Contents>,
    /// The files of the host that the manifests refer to, by their paths in the repository.
    pub(crate) host_files: BTreeSet<String>,
    /// The signer of the commit, if a signature is required.
    pub(crate) signer: Option<String>,
    /// A newer commit that this application rejects although its repository accepts it.
    pub(crate) rejected: Option<Arc<RejectedCommit>>,
    /// The files that rendering has read.
    pub(crate) reads: Arc<Reads>,
    /// The settings of the repository at the commit. `None`: no commit has the application.
    pub(crate) settings: Option<Arc<config::Repository>>,
}

/// The state of a repository after its last fetch, the same for all of its applications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepositoryState {
    /// Why the last fetch failed, if it failed.
    pub(crate) error: Option<FetchFailure>,
    /// Number of consecutive failed fetches.
    pub(crate) failures: u32,
    pub(crate) next_fetch: Option<Timestamp>,
    pub(crate) fetched_at: Option<Timestamp>,
    /// The number of the newest request that was made before that fetch began. The largest number for a repository that
    /// is not followed.
    pub(crate) covers: u64,
    /// The history of the reference was rewritten, and the new one is followed.
    pub(crate) rewritten: bool,
    /// The newest commit, if it is rejected.
    pub(crate) rejected: Option<Arc<RejectedCommit>>,
    /// A commit that no webhook announced, although the repository has a webhook.
    pub(crate) missed: Option<Missed>,
}

/// Why the newest commit of a repository could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchFailure {
    /// The reason of the condition `SourceReady`: the cause of the error of Git.
    pub(crate) reason: &'static str,
    /// The error as a sentence.
    pub(crate) message: String,
    /// When the first of the failures in a row was.
    pub(crate) since: Timestamp,
}

impl RepositoryState {
    /// The state of a repository that the configuration does not have.
    pub(crate) fn unfollowed() -> Self {
        Self { covers: u64::MAX, ..Self::default() }
    }

    /// Whether the repository is fetched.
    pub(crate) fn is_followed(&self) -> bool {
        self.covers != u64::MAX
    }

    /// Notes a failure. `now` is its time.
    pub(crate) fn fail(&mut self, reason: &'static str, message: String, now: Timestamp) {
        let since = self.error.as_ref().map_or(now, |before| before.since);
        self.error = Some(FetchFailure { reason, message, since });
    }
}

/// Whether Git still has the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    /// A commit removed all applications of the repository, or most of them, and these were so many. The removal of each one waits
    /// for the user.
    Emptied(usize),
    /// Git or the configuration does not have the application any more.
    Gone,
    /// That was so when the repository was last read completely, and now it cannot be. Nothing is removed unasked, and nothing is
    /// managed again. A removal that a user has asked for goes on.
    WasGone,
}

impl Desired {
    /// An application that Git has.
    pub(crate) fn present(rendered: Arc<Rendered>, repository: Arc<RepositoryState>) -> Self {
        Self {
            rendered,
            repository,
            presence: Presence::Present,
            objections: Vec::new(),
            lasting_objection: None,
            unrendered: None,
            status_error: None,
            fetched_before: None,
        }
    }

    /// An application that Git or the configuration does not have any more.
    pub(crate) fn gone(rendered: Arc<Rendered>, repository: Arc<RepositoryState>) -> Self {
        Self { presence: Presence::Gone, ..Self::present(rendered, repository) }
    }

    /// With findings that keep the commit from being applied if one of them is an error.
    pub(crate) fn with_objections(self, objections: Vec<Finding>) -> Self {
        Self { objections, ..self }
    }

    /// With the objection among them that only another commit ends.
    pub(crate) fn with_lasting_objection(self, lasting_objection: Option<Finding>) -> Self {
        Self { lasting_objection, ..self }
    }

    /// With the reason why commit statuses do not reach the forge.
    pub(crate) fn with_status_error(self, status_error: Option<StatusError>) -> Self {
        Self { status_error, ..self }
    }

    /// The desired state that replaces `before`. An application that is busy may never see `before`.
    pub(crate) fn following(self, before: &Self) -> Self {
        let is_same = self.newest_commit().id == before.newest_commit().id;
        let fetched_before = if is_same { before.fetched_before } else { before.repository.fetched_at };
        Self { fetched_before, ..self }
    }

    /// The same rendered application after another fetch of its repository, whose newest commit could not be rendered
    /// for it. One that had left Git has not come back thereby.
    pub(crate) fn kept(&self, repository: Arc<RepositoryState>, newest: Option<CommitInfo>) -> Self {
        let presence = match self.presence {
            Presence::Emptied(count) => Presence::Emptied(count),
            Presence::Present => Presence::Present,
            Presence::Gone | Presence::WasGone => Presence::WasGone,
        };
        Self { repository, presence, unrendered: newest, ..self.clone() }
    }

    /// An application that a commit removed together with so many others.
    pub(crate) fn emptied(self, count: usize) -> Self {
        Self { presence: Presence::Emptied(count), ..self }
    }

    /// The number of applications that a commit removed at once, while the removal of this one waits for the user.
    pub(crate) fn emptied_count(&self) -> Option<usize> {
        match self.presence {
            Presence::Emptied(count) => Some(count),
            Presence::Present | Presence::Gone | Presence::WasGone => None,
        }
    }

    pub(crate) fn rendered(&self) -> &Rendered {
        &self.rendered
    }

    pub(crate) fn commit(&self) -> &CommitInfo {
        &self.rendered.commit
    }

    pub(crate) fn repository(&self) -> &RepositoryState {
        &self.repository
    }

    /// Whether a fetch that ended after this time did not have the newest commit yet. Then a sync of that time is not the reason
    /// for it.
    pub(crate) fn is_after_fetch_since(&self, at: Timestamp) -> bool {
        self.fetched_before.is_some_and(|fetched| fetched > at)
    }

    /// Whether Git does not have the application any more, as of the last commit that could be read.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.presence, Presence::Gone | Presence::WasGone)
    }

    /// Whether nothing is done to the containers from now on: the settings suspend the application, or Git does not have it any more
    /// and they stay.
    pub(crate) fn leaves_all_running(&self) -> bool {
        let policy = &self.rendered.policy;
        policy.suspended || (self.is_gone() && !policy.prune)
    }

    /// Whether Git did not have the application when it was last read, and now it cannot be read.
    pub(crate) fn was_gone(&self) -> bool {
        self.presence == Presence::WasGone
    }

    /// Whether the last commit that could be read has the application.
    pub(crate) fn is_in_git(&self) -> bool {
        // A stand-in has no files.
        self.presence == Presence::Present && !self.rendered.spec.files.is_empty()
    }

    /// Whether that commit does not have the application, so that the removal that a user has asked for goes on.
    pub(crate) fn may_be_removed(&self) -> bool {
        self.is_gone() || self.emptied_count().is_some()
    }

    /// Why it is not known whether the newest commit has the application: it was not found there, and the commit could not be
    /// read completely.
    pub(crate) fn doubt(&self) -> Option<String> {
        let is_known = match self.presence {
            Presence::Present => self.unrendered.is_none() && self.is_in_git(),
            // No commit was read in this life of the agent.
            Presence::Emptied(_) => !self.newest_commit().id.is_empty(),
            Presence::Gone => true,
            Presence::WasGone => false,
        };
        let error = self.objections.iter().find(|finding| !is_known && finding.is_error());
        let is_unread = !is_known && self.presence != Presence::Present;
        let unread = || is_unread.then(|| "its repository was not read yet".to_owned());
        error.map(ToString::to_string).or_else(unread)
    }

    /// The newest accepted commit of the repository, also if it could not be rendered for this application.
    pub(crate) fn newest_commit(&self) -> &CommitInfo {
        self.unrendered.as_ref().unwrap_or(&self.rendered.commit)
    }

    pub(crate) fn status_error(&self) -> Option<&StatusError> {
        self.status_error.as_ref()
    }

    /// The rendered stack, unless the commit may not be applied.
    pub(crate) fn applicable_stack(&self) -> Option<&Arc<Stack>> {
        self.rendered.stack.as_ref().filter(|_| !self.objections.iter().any(Finding::is_error))
    }

    /// The findings about the manifests and about the repository, those about the newest commit first: it may have corrected those
    /// of an older one.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Finding> {
        let Rendered { findings, rule_findings, .. } = &*self.rendered;
        let (none, objections): (&[Finding], &[Finding]) = (&[], &self.objections);
        let (first, last) = if self.unrendered.is_some() { (objections, none) } else { (none, objections) };
        first.iter().chain(findings).chain(rule_findings).chain(last)
    }

    /// The first error in the manifests and settings of the application itself, of the commit that it was rendered from. A commit that
    /// is rejected has none.
    pub(crate) fn own_error(&self) -> Option<&Finding> {
        let Rendered { findings, rule_findings, .. } = &*self.rendered;
        let mut errors = findings.iter().chain(rule_findings).filter(|finding| finding.is_error());
        errors.next().filter(|_| self.rendered.is_accepted())
    }

    /// The commit that the first error of the findings is about.
    pub(crate) fn invalid_commit(&self) -> &CommitInfo {
        let is_newest = self.objections.iter().any(Finding::is_error);
        if is_newest { self.newest_commit() } else { &self.rendered.commit }
    }

    /// The first error of the newest commit that only another commit mends. `None` also while other errors may hide it: a source of
    /// `valuesFrom` may get readable, and a conflict with an application of another commit may end without one.
    pub(crate) fn lasting_error(&self) -> Option<&Finding> {
        let is_of_host = |finding: &Finding| finding.is_error() && finding.path == "valuesFrom";
        let is_newest = self.unrendered.is_none() && self.repository.error.is_none();
        let findings = &self.rendered.findings;
        if !is_newest || findings.iter().any(is_of_host) {
            return None;
        }
        let mut errors =
            findings.iter().chain(&self.rendered.rule_findings).filter(|finding| finding.is_error());
        errors.next().or(self.lasting_objection.as_ref())
    }

    /// Why there is nothing to apply or to compare with: the first error, and how to read the others.
    pub(crate) fn why_nothing(&self, app: &AppName) -> String {
        let mut errors = self.findings().filter(|finding| finding.is_error());
        match (errors.next(), errors.count()) {
            (None, _) => "no commit of it has been applied yet".to_owned(),
            (Some(error), 0) => error.to_string(),
            (Some(error), 1) => format!("{error}; `driftless status {app}` lists 1 more error"),
            (Some(error), more) => format!("{error}; `driftless status {app}` lists {more} more errors"),
        }
    }

    /// The newest commit, if the application or its repository rejects it.
    pub(crate) fn rejected(&self) -> Option<&Arc<RejectedCommit>> {
        self.rendered.rejected.as_ref().or(self.repository.rejected.as_ref())
    }

    /// Whether a round would do nothing else for `other`: the newest commit does not concern this application.
    pub(crate) fn asks_for_the_same(&self, other: &Self) -> bool {
        let (one, another) = (&self.rendered, &other.rendered);
        let is_same_stack = match (&one.stack, &another.stack) {
            (Some(one), Some(another)) => Arc::ptr_eq(one, another),
            (None, None) => self.is_gone() || one.commit == another.commit,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_same_repository_state = self.repository.error == other.repository.error
            && self.repository.missed == other.repository.missed
            && self.repository.rewritten == other.repository.rewritten;
        is_same_stack
            && is_same_repository_state
            && one.policy == another.policy
            && one.spec == another.spec
            && one.findings == another.findings
            && one.rule_findings == another.rule_findings
            && self.presence == other.presence
            && self.objections == other.objections
            && self.lasting_objection == other.lasting_objection
            && self.unrendered == other.unrendered
            && self.status_error == other.status_error
            && self.rejected() == other.rejected()
    }
}

impl Rendered {
    /// Whether the application accepts the commit that it was rendered from. Of one that rejects its only commit nothing is
    /// rendered.
    pub(crate) fn is_accepted(&self) -> bool {
        self.rejected.as_ref().is_none_or(|rejected| rejected.commit != self.commit)
    }

    /// The desired state as the status shows it as long as there is no target. The policy is that of now.
    pub(crate) fn shown(&self, policy: Policy) -> ApplicationSpec {
        ApplicationSpec {
            repository: self.repository.clone(),
            url: self.url.clone(),
            reference: self.reference.clone(),
            path: self.spec.path.clone(),
            format: self.stack.as_ref().map(|stack| stack.format),
            policy,
            commit: Some(self.commit.clone()).filter(|commit| !commit.id.is_empty()),
        }
    }

    /// Stands in for an application that Git or the configuration does not have any more.
    pub(crate) fn nothing(app: &AppName, repository: &str, commit: CommitInfo, policy: Policy) -> Self {
        Self {
            spec: AppSpec {
                name: app.clone(),
                path: String::new(),
                format: Format::Compose,
                files: Vec::new(),
                variables: BTreeMap::new(),
                host_values: Vec::new(),
                host_files: Vec::new(),
                profiles: Vec::new(),
                env_files: Vec::new(),
                engine: EngineKind::Docker,
                has_listed_files: false,
                findings: Vec::new(),
            },
            repository: repository.to_owned(),
            url: String::new(),
            reference: String::new(),
            policy,
            admission: Arc::default(),
            commit,
            stack: None,
            hashes: None,
            findings: Vec::new(),
            rule_findings: Vec::new(),
            contents: Arc::default(),
            host_files: BTreeSet::new(),
            signer: None,
            rejected: None,
            reads: Arc::default(),
            settings: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A stack that differs from others by the name of its project.
    pub(crate) fn stack(project: &str) -> Stack {
        let stack = serde_json::json!({
            "app": "shop", "format": "compose", "project": project, "workloads": {},
        });
        serde_json::from_value(stack).unwrap()
    }

    /// A commit with this stack.
    pub(crate) fn present(commit: &str, stack: &Stack, policy: Policy) -> Desired {
        let commit =
            CommitInfo { id: driftless_model::CommitId::from_stored(commit), ..CommitInfo::default() };
        let rendered = Rendered {
            stack: Some(Arc::new(stack.clone())),
            hashes: Some(Arc::new(StackHashes::of(stack))),
            ..Rendered::nothing(&"shop".into(), "infra", commit, policy)
        };
        Desired::present(Arc::new(rendered), Arc::default())
    }

    #[test]
    fn error_lasts_unless_it_may_end_without_a_commit() {
        let error = |path: &str| Finding::error(driftless_model::Location::default(), path, "no");
        let invalid = |findings: Vec<Finding>| {
            let nothing =
                Rendered::nothing(&"shop".into(), "infra", CommitInfo::default(), Policy::default());
            Desired::present(Arc::new(Rendered { findings, ..nothing }), Arc::default())
        };
        let broken = invalid(vec![error("services")]);
        assert_eq!(broken.lasting_error(), Some(&error("services")));
        assert_eq!(invalid(vec![error("services"), error("valuesFrom")]).lasting_error(), None);
        let taken = invalid(Vec::new()).with_objections(vec![error("ports")]);
        assert_eq!(taken.lasting_error(), None);
        let taken = taken.with_lasting_objection(Some(error("ports")));
        assert_eq!(taken.lasting_error(), Some(&error("ports")));
        let failure = FetchFailure { reason: "UnknownHost", message: String::new(), since: Timestamp(1) };
        let unfetched = RepositoryState { error: Some(failure), ..RepositoryState::default() };
        assert_eq!(broken.kept(Arc::new(unfetched), None).lasting_error(), None);
        assert_eq!(broken.kept(Arc::default(), Some(CommitInfo::default())).lasting_error(), None);
    }

    #[test]
    fn error_is_attributed_to_the_commit_that_has_it() {
        let error = |path: &str| Finding::error(driftless_model::Location::default(), path, "no");
        let commit =
            |id: &str| CommitInfo { id: driftless_model::CommitId::from_stored(id), ..CommitInfo::default() };
        let nothing = Rendered::nothing(&"shop".into(), "infra", commit("a"), Policy::default());
        let rendered = Rendered { findings: vec![error("services")], ..nothing };
        let broken = Desired::present(Arc::new(rendered), Arc::default());
        assert_eq!(broken.invalid_commit(), &commit("a"));
        // Nothing is known about the newest commit.
        let unread = broken.kept(Arc::default(), Some(commit("b")));
        assert_eq!(unread.invalid_commit(), &commit("a"));
        let unread = unread.with_objections(vec![error("applications")]);
        assert_eq!(unread.findings().next(), Some(&error("applications")));
        assert_eq!(unread.invalid_commit(), &commit("b"));
        // The error of the application itself comes first where both are of one commit.
        let taken = broken.with_objections(vec![error("ports")]);
        assert_eq!(taken.findings().next(), Some(&error("services")));
    }

    fn gone(commit: &str) -> Desired {
        let commit =
            CommitInfo { id: driftless_model::CommitId::from_stored(commit), ..CommitInfo::default() };
        let nothing = Rendered::nothing(&"shop".into(), "infra", commit, Policy::default());
        Desired::gone(Arc::new(nothing), Arc::default())
    }

    #[test]
    fn unreadable_commit_brings_no_application_back() {
        let error = Finding::error(driftless_model::Location::default(), "", "unknown key");
        let left = gone("a");
        assert!(left.is_gone() && !left.was_gone() && left.doubt().is_none());
        let unread = left.kept(Arc::default(), None);
        assert!(unread.doubt().is_some(), "the agent was restarted");
        for unread in [&unread, &unread.kept(Arc::default(), Some(CommitInfo::default()))] {
            let unread = unread.clone().with_objections(vec![error.clone()]);
            assert!(unread.is_gone() && unread.was_gone() && unread.may_be_removed());
            assert_eq!(unread.doubt(), Some(error.to_string()));
            assert!(!unread.asks_for_the_same(&left));
        }
    }

    #[test]
    fn emptied_application_is_in_doubt_until_a_commit_is_read() {
        let nothing = Rendered::nothing(&"shop".into(), "infra", CommitInfo::default(), Policy::default());
        let unread = Desired::present(Arc::new(nothing), Arc::default()).emptied(5);
        let unread = unread.kept(Arc::default(), None);
        assert!(unread.may_be_removed() && unread.doubt().is_some());
        let read = unread.kept(Arc::default(), Some(gone("a").commit().clone()));
        assert!(read.may_be_removed() && read.doubt().is_none());
    }

    #[test]
    fn application_that_left_git_is_the_same_in_each_commit() {
        assert!(gone("a").asks_for_the_same(&gone("b")));
    }
}
