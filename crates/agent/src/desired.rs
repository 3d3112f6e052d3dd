//! What an application is told from above, and when that asks for nothing new. It carries no history: the newest
//! orders replace all before.

use std::sync::Arc;

use tokio::sync::watch;

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{EventKind, Finding, Missed, Timestamp};

use crate::{app::App, repository::Wanted, trust::Refusal};

/// What an application is told from above: the newest word of Git and of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) presence: Presence,
    /// Why it may not be applied although it could be rendered: it claims what another application has, or the
    /// repository as a whole cannot be read.
    pub(crate) objections: Vec<Finding>,
    /// Why Git could not be asked, if it could not.
    pub(crate) trouble: Option<String>,
    pub(crate) next_fetch: Option<Timestamp>,
    pub(crate) fetched_at: Option<Timestamp>,
    pub(crate) rewritten: bool,
    /// The newest commit, if it may not be taken up.
    pub(crate) refused: Option<Arc<Refusal>>,
    /// A commit that no webhook announced, although one should have.
    pub(crate) missed: Option<Missed>,
    /// Why the forge refuses to be told about commits, if it does.
    pub(crate) untold: Option<String>,
}

impl Orders {
    /// Whether nothing differs that a round could act upon: a commit that this application has no part in.
    pub(crate) fn ask_the_same(&self, other: &Self) -> bool {
        let (one, another) = (&self.wanted, &other.wanted);
        let is_same_stack = match (&one.stack, &another.stack) {
            (Some(one), Some(another)) => Arc::ptr_eq(one, another),
            _ => false,
        };
        is_same_stack
            && (one.policy == another.policy && one.spec == another.spec && one.findings == another.findings)
            && (self.presence == other.presence && self.objections == other.objections)
            && (&self.trouble, &self.refused, &self.missed, &self.untold, self.rewritten)
                == (&other.trouble, &other.refused, &other.missed, &other.untold, other.rewritten)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    /// Git or the configuration does not have it any more.
    Gone,
}

impl<D: Docker, S: Source> App<D, S> {
    /// Takes up orders that ask for nothing new, without a look at Docker. False: they need a round.
    pub(crate) fn follow_quietly(&mut self, orders: &watch::Receiver<Orders>) -> bool {
        let new = orders.borrow().clone();
        let is_pinned = !matches!(self.shared.store.pin(&self.name), Ok(None));
        if is_pinned || self.status.observed_at.is_none() || !self.orders.ask_the_same(&new) {
            return false;
        }
        let before = std::mem::replace(&mut self.orders, new);
        self.forget_fruitless_ask();
        self.publish_quietly(&before);
        true
    }

    /// Says once that a commit is refused.
    pub(crate) fn tell_refusal(&mut self, new: &Orders) {
        if let Some(refusal) = new.refused.as_ref().filter(|it| self.told.as_ref() != Some(*it)) {
            self.tell(EventKind::Warning, "CommitRefused", refusal.commit.short(), &refusal.sentence());
        }
        self.told.clone_from(&new.refused);
    }
}
