//! Requests to go back to an older revision.

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{EventKind, Outcome, Pin, Timestamp};

use super::{RequestError, Rollback, broken};
use crate::app::App;

impl<D: Docker, S: Source> App<D, S> {
    /// Pins the application to an older revision.
    pub(crate) fn roll_back(&mut self, rollback: &Rollback) -> Result<Pin, RequestError> {
        let Rollback { to, reason, until } = rollback;
        let history = self.shared.store.revisions(&self.name).map_err(|it| broken(&it))?;
        let current = history.first().map(|it| it.stack.clone());
        let found = match to.as_deref() {
            None => history
                .iter()
                .find(|it| it.outcome == Outcome::Succeeded && Some(&it.stack) != current.as_ref()),
            Some(to) => match to.parse::<u64>() {
                Ok(number) if to.len() < 7 => history.iter().find(|it| it.number == number),
                Ok(_) | Err(_) if to.len() >= 7 => {
                    let of_commit = || history.iter().filter(|it| it.commit.id.starts_with(to));
                    of_commit().find(|it| it.outcome == Outcome::Succeeded).or_else(|| of_commit().next())
                }
                Ok(_) | Err(_) => None,
            },
        };
        let Some(revision) = found else {
            return Err(RequestError::Refused(match to {
                Some(to) => format!(
                    "{} has no revision `{to}`; `driftless history {}` lists them",
                    self.name, self.name
                ),
                None => format!("{} has no older revision that succeeded", self.name),
            }));
        };
        let is_pinned = self.shared.store.pin(&self.name).map_err(|it| broken(&it))?.is_some();
        if Some(&revision.stack) == current.as_ref() && !is_pinned {
            let text = format!("{} is at that state already (revision {})", self.name, revision.number);
            return Err(RequestError::Refused(text));
        }
        let now: Timestamp = self.shared.clock.now();
        let head = self.orders.wanted.commit.id.clone();
        let pin = Pin {
            revision: revision.number,
            commit: revision.commit.id.clone(),
            reason: reason.clone(),
            at: now,
            until: *until,
            skip: Some(head).filter(|it| !it.is_empty()),
        };
        self.shared.store.set_pin(&self.name, &pin).map_err(|it| broken(&it))?;
        let message = format!("to revision {} ({}): {reason}", revision.number, revision.commit.short());
        self.tell(EventKind::Normal, "RolledBack", self.name.as_str(), &message);
        Ok(pin)
    }
}
