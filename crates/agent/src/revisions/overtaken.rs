//! Revisions that a newer one has overtaken before they were reached. Nobody has judged their changes, which are part of the newer one.

use driftless_model::{Outcome, Revision, Timestamp};

/// When the first of the revisions began that were overtaken before they were reached, up to the newest one. The newest revision comes
/// first.
pub(crate) fn open_since(history: &[Revision]) -> Option<Timestamp> {
    let (newest, older) = history.split_first()?;
    let overtaken = older.iter().take_while(|revision| is_unreached(revision, &Outcome::Superseded));
    Some(overtaken.last().unwrap_or(newest).started)
}

/// Whether a revision has this outcome, and was not reached before.
pub(crate) fn is_unreached(revision: &Revision, outcome: &Outcome) -> bool {
    revision.outcome == *outcome && !revision.was_reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commits::status::tests;

    fn revision(number: u64, outcome: Outcome, was_reached: bool) -> Revision {
        Revision { number, started: Timestamp(number), was_reached, ..tests::revision("a", outcome) }
    }

    #[test]
    fn overtaken_revisions_are_open_with_the_newest_one() {
        let newest = || revision(5, Outcome::InProgress, false);
        let overtaken = |number| revision(number, Outcome::Superseded, false);
        assert_eq!(open_since(&[]), None);
        assert_eq!(open_since(&[newest()]), Some(Timestamp(5)));
        assert_eq!(open_since(&[newest(), overtaken(4), overtaken(3)]), Some(Timestamp(3)));
        let reached = revision(3, Outcome::Superseded, true);
        assert_eq!(open_since(&[newest(), overtaken(4), reached, overtaken(2)]), Some(Timestamp(4)));
        let failed = revision(4, Outcome::Failed { reason: "late".to_owned() }, false);
        assert_eq!(open_since(&[newest(), failed, overtaken(3)]), Some(Timestamp(5)), "it was judged");
    }
}
