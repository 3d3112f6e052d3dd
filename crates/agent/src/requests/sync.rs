//! Requests to sync an application, also to a rewritten history.

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::EventKind;

use super::{Answer, RequestError};
use crate::app::App;

impl<D: Docker, S: Source> App<D, S> {
    pub(crate) fn sync_now(&mut self) -> Answer {
        self.record.pulls.clear();
        self.record.failures.clear();
        self.record.crashes.clear();
        self.record.heals.clear();
        self.record.sync = None;
        self.prepared = None;
        self.asked = Some((self.orders.wanted.commit.id.clone(), self.shared.clock.now()));
        self.keep_record();
        if let Some(fetch) = &self.fetch {
            fetch.notify_one();
        }
        Answer::Accepted
    }

    /// Only the very commit that is refused at this moment, not whatever may have replaced it since.
    pub(crate) fn accept_rewrite(&mut self) -> Result<Answer, RequestError> {
        let refused = self.orders.refused.clone().filter(|it| it.reason == "HistoryRewritten");
        let (Some(refusal), Some(consent)) = (refused, &self.consent) else {
            let text = format!("{} has no rewritten history to accept", self.name);
            return Err(RequestError::Refused(text));
        };
        consent.give(&refusal.commit.id);
        let message = format!("to the rewritten history at {}", refusal.commit.short());
        self.tell(EventKind::Normal, "RewriteAccepted", self.name.as_str(), &message);
        Ok(self.sync_now())
    }
}
