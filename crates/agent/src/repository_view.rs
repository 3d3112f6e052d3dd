//! The content of a repository as its newest accepted commit has it, and whether an application that is not in it has left Git.

use std::{collections::BTreeMap, sync::Arc};

use driftless_config as config;
use driftless_manifest::may_hide;
use driftless_model::{AppName, CommitInfo, Finding};
use driftless_store::KnownApplication;

use crate::{
    absence::Absence,
    commits::trust::RejectedCommit,
    desired::{Rendered, RepositoryState},
    host_values::ReadValues,
};

/// The advice if a new application takes in the folder of another one.
const APART: &str =
    "move the manifest that is above it to a folder of its own, or name the applications in `applications`";

/// The content of a repository, as of its newest accepted commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepositoryView {
    pub(crate) commit: Option<CommitInfo>,
    /// The number of commits in its history, if they were counted.
    pub(crate) history_length: Option<u64>,
    pub(crate) applications: BTreeMap<AppName, Arc<Rendered>>,
    /// About the repository as a whole, such as a missing path. With an error among them, an application that is not
    /// in `applications` is not known to have left Git.
    pub(crate) findings: Vec<Finding>,
    /// The searched folder, if the commit has no application there, or not even the folder.
    pub(crate) empty_folder: Option<String>,
    /// The errors about files and folders that cannot be read. Each is of interest to an application that was found there.
    pub(crate) unread_files: Vec<Finding>,
    /// See [`Discovery::unsearched`](driftless_manifest::Discovery::unsearched).
    pub(crate) unsearched: Vec<String>,
    /// Why applications that are not in the view may be missing by mistake, apart from those that `unsearched` may hide.
    pub(crate) doubts: BTreeMap<AppName, String>,
    pub(crate) state: Arc<RepositoryState>,
    /// The settings of the repository at the newest commit whose `driftless.yaml` has no mistake. `None`: there was none
    /// yet.
    pub(crate) settings: Option<Arc<config::Repository>>,
    /// The variables that lie on the host, as of the rendering.
    pub(crate) values: Arc<ReadValues>,
    /// The signer of the commit, if a signature is required and known.
    pub(crate) signer: Option<String>,
    /// The followed tag that names the commit.
    pub(crate) tag: Option<String>,
    /// The applications that rejected the commit, as of the rendering.
    pub(crate) rejected: BTreeMap<AppName, RejectedCommit>,
    /// Those of them that had left with the last commit that they accepted, with the settings of the repository at that one.
    pub(crate) withdrawn: BTreeMap<AppName, Arc<config::Repository>>,
}

impl RepositoryView {
    /// An empty repository at a commit.
    #[cfg(test)]
    pub(crate) fn at(commit: CommitInfo) -> Self {
        Self { commit: Some(commit), ..Self::default() }
    }

    /// Whether an application, or the repository as a whole, could not be read as it is written.
    pub(crate) fn has_errors(&self) -> bool {
        let of_applications = self.applications.values().flat_map(|rendered| &rendered.findings);
        self.findings.iter().chain(of_applications).any(Finding::is_error)
    }

    /// Whether the whole repository was read and has applications, so that one that is not in it has left Git.
    pub(crate) fn is_complete(&self) -> bool {
        let is_empty = self.empty_folder.is_some();
        self.commit.is_some() && !is_empty && !self.findings.iter().any(Finding::is_error)
    }

    /// Whether the whole repository was read, also if it has no application. That is an error, but hides none.
    pub(crate) fn is_read(&self) -> bool {
        self.is_complete() || (self.commit.is_some() && self.empty_folder.is_some())
    }

    /// Whether an application that is not in the view has left Git.
    pub(crate) fn absence(&self, known: &KnownApplication, all: &[KnownApplication]) -> Absence {
        if self.cannot_decide(known) {
            return Absence::Unclear;
        }
        let is_doubtful = self.doubt(known).is_some();
        if self.is_complete() {
            return if is_doubtful { Absence::Doubtful } else { Absence::Gone };
        }
        let is_below = |folder: &str| {
            let path = known.path();
            folder.is_empty() || path == folder || path.starts_with(&format!("{folder}/"))
        };
        // A folder of a path that the configuration did not have before is empty by mistake.
        if !self.empty_folder.as_deref().is_some_and(is_below) {
            return Absence::Unclear;
        }
        if is_doubtful {
            return Absence::Doubtful;
        }
        Absence::Emptied { count: all.iter().filter(|other| other.repository == known.repository).count() }
    }

    /// Whether the commit cannot decide that a known application has left.
    pub(crate) fn cannot_decide(&self, known: &KnownApplication) -> bool {
        self.is_undecided(&known.app)
            || self.unread_files_of(known).next().is_some()
            || self.application_above(known).is_some_and(|above| above.stack.is_none())
    }

    /// Why an application that is not in the view may be missing by mistake.
    pub(crate) fn doubt(&self, known: &KnownApplication) -> Option<String> {
        let hidden = || {
            let file = self.unsearched_path(known)?;
            Some(match self.application_above(known) {
                Some(above) => format!("{}; if that is a mistake, {APART}", taken_in(known, above)),
                None => format!(
                    "`{file}` has only kinds of another tool, so its folder is no application any more; \
                     if that is a mistake, restore the manifest"
                ),
            })
        };
        self.doubts.get(&known.app).cloned().or_else(hidden)
    }

    /// The errors about unreadable files that may be the reason why an application is not in the view.
    fn unread_files_of(&self, known: &KnownApplication) -> impl Iterator<Item = &Finding> {
        self.unread_files.iter().filter(move |unread| may_hide(&unread.location.file, known.path()))
    }

    /// A path in the folder of a known application because of which it may be missing by mistake.
    fn unsearched_path(&self, known: &KnownApplication) -> Option<&String> {
        self.unsearched.iter().find(|path| may_hide(path, known.path()))
    }

    /// The application in a folder above that of a known one, because of which the known one was not looked for. Its manifest may be
    /// there by mistake. `None` also if the folder of the known one has no manifest any more.
    fn application_above(&self, known: &KnownApplication) -> Option<&Rendered> {
        self.unsearched_path(known)?;
        let mut all = self.applications.values();
        all.find(|rendered| rendered.spec.has_below(known.path())).map(Arc::as_ref)
    }

    /// Whether the commit cannot decide that an application has left: the application rejects it, and no commit that it accepted can
    /// be read.
    pub(crate) fn is_undecided(&self, app: &AppName) -> bool {
        self.rejected.contains_key(app)
            && !self.withdrawn.contains_key(app)
            && !self.applications.contains_key(app)
    }

    /// The settings of the repository at the commit that counts for an application that is not in the view. `None`: no such commit is
    /// known.
    pub(crate) fn settings_of_absent(&self, app: &AppName) -> Option<&Arc<config::Repository>> {
        let newest = self.settings.as_ref().filter(|_| !self.is_undecided(app));
        self.withdrawn.get(app).or(newest)
    }

    /// The errors because of which it is not known whether an application has left.
    pub(crate) fn errors_about(&self, known: &KnownApplication) -> impl Iterator<Item = Finding> {
        let rejection = self.rejected.get(&known.app).filter(|_| self.is_undecided(&known.app));
        let invalid = self.application_above(known).filter(|above| above.stack.is_none());
        let above = invalid.map(|above| {
            let place = above.findings.iter().find(|finding| finding.is_error());
            let location = place.map(|finding| finding.location.clone()).unwrap_or_default();
            let message = format!("{}, which has errors", taken_in(known, above));
            Finding::error(location, "", message).help(APART)
        });
        let errors = self.errors().chain(self.unread_files_of(known)).cloned();
        errors.chain(above).chain(rejection.map(RejectedCommit::finding))
    }

    /// The errors about the repository as a whole.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_error())
    }
}

/// Says that the folder of a known application is now part of one above it.
fn taken_in(known: &KnownApplication, above: &Rendered) -> String {
    format!("the folder `{}` is now part of the application `{}`", known.path(), above.spec.name)
}
