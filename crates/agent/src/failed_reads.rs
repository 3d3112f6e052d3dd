//! Reads of the database about applications that fail: each is tried again in every pass, and logged once until it succeeds.

use std::collections::BTreeSet;

use driftless_model::AppName;
use driftless_store as store;

use crate::error::chain;

/// The reads that failed last, by the application and what is read of it. A stack that this release does not understand, as after a
/// downgrade, fails in each pass.
#[derive(Default)]
pub(crate) struct FailedReads(BTreeSet<(AppName, &'static str)>);

impl FailedReads {
    /// The result of a read. `None`: it has failed, which is logged if it had succeeded the time before.
    pub(crate) fn note<T>(
        &mut self,
        app: &AppName,
        what: &'static str,
        read: Result<T, store::Error>,
    ) -> Option<T> {
        match read {
            Ok(found) => {
                self.0.remove(&(app.clone(), what));
                Some(found)
            }
            Err(error) => {
                if self.begin_failure(app, what) {
                    tracing::warn!(%app, error = chain(&error), "could not read {what}; trying again");
                }
                None
            }
        }
    }

    /// Whether a failure is the first one in a row.
    fn begin_failure(&mut self, app: &AppName, what: &'static str) -> bool {
        self.0.insert((app.clone(), what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_read_is_logged_once_until_it_succeeds() {
        let (mut reads, app) = (FailedReads::default(), AppName::from("shop"));
        let fail = || Err::<u32, _>(store::Error::Read { what: "a stack", source: "disk I/O error".into() });
        assert_eq!(reads.note(&app, "a stack", fail()), None);
        assert!(!reads.begin_failure(&app, "a stack"));
        assert!(reads.begin_failure(&app, "a record"));
        assert!(reads.begin_failure(&AppName::from("blog"), "a stack"));
        assert_eq!(reads.note(&app, "a stack", Ok(1)), Some(1));
        assert!(reads.begin_failure(&app, "a stack"));
        assert!(!reads.begin_failure(&app, "a record"));
    }
}
