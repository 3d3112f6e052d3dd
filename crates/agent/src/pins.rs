//! The pin of an application, and how it ends.

use driftless_model::{EventKind, Pin, Until};
use driftless_store as store;

use crate::{context::AppContext, desired::Desired};

/// The pin, unless it has ended.
pub(crate) fn current_pin(context: &AppContext, desired: &Desired) -> Result<Option<Pin>, store::Error> {
    let Some(pin) = context.store().pin(context.name())? else { return Ok(None) };
    let has_ended = match pin.until {
        Until::Manual => false,
        Until::NextCommit => is_new(&pin, desired) && desired.rendered().stack.is_some(),
        Until::Time(end) => context.now() >= end && is_new(&pin, desired),
    };
    if has_ended {
        context.store().clear_pin(context.name())?;
        let object = format!("revision {}", pin.revision);
        context.event(EventKind::Normal, "PinReleased", &object, "the pin ended");
        return Ok(None);
    }
    Ok(Some(pin))
}

/// Whether the newest commit is another one than that which the rollback left, and asks for another stack: a pin that ends does not
/// return to that commit because of one that concerns other applications. A commit that cannot be rendered may be such a one.
fn is_new(pin: &Pin, desired: &Desired) -> bool {
    let newest = &desired.commit().id;
    let is_other_commit = !newest.is_empty() && *newest != pin.commit && pin.skip.as_ref() != Some(newest);
    let is_other_stack = match (&pin.skip_stack, &desired.rendered().hashes) {
        (None, _) => true,
        (Some(left), Some(hashes)) => *left != hashes.stack,
        (Some(_), None) => desired.is_gone(),
    };
    is_other_commit && is_other_stack
}

/// A user has confirmed the loss of state, and the stack of the pinned revision cannot be read: the pin has no effect any more.
pub(crate) fn end_unreadable_pin(context: &AppContext, pin: &Pin) -> Result<(), store::Error> {
    context.store().clear_pin(context.name())?;
    let object = format!("revision {}", pin.revision);
    let message = "the pin ended, because the stored revision cannot be read; following the newest commit";
    context.event(EventKind::Warning, "PinReleased", &object, message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use driftless_model::{CommitId, Policy, Stack, StackHash, Timestamp};

    use super::*;
    use crate::{
        context::tests::context,
        desired::tests::{present, stack},
    };

    /// A pin to commit `a`, which left commit `b` with this stack.
    fn pin(until: Until, left: &Stack) -> Pin {
        Pin {
            revision: 1,
            commit: CommitId::from_stored("a"),
            reason: "orders fail".to_owned(),
            at: Timestamp(1),
            until,
            skip: Some(CommitId::from_stored("b")),
            skip_stack: Some(StackHash::of(left)),
            actor: None,
        }
    }

    #[test]
    fn commit_of_other_applications_ends_no_pin() {
        let (context, _folder) = context();
        let is_pinned = |commit: &str, stack: &Stack| {
            current_pin(&context, &present(commit, stack, Policy::default())).unwrap().is_some()
        };
        let (bad, good) = (stack("bad"), stack("good"));
        for until in [Until::NextCommit, Until::Time(Timestamp(2))] {
            context.store().set_pin(context.name(), &pin(until, &bad)).unwrap();
            assert!(is_pinned("b", &bad));
            assert!(is_pinned("c", &bad), "the commit has the stack that the rollback left");
            assert!(!is_pinned("d", &good));
        }
    }

    #[test]
    fn pin_of_an_older_release_ends_with_any_commit() {
        let (context, _folder) = context();
        let bad = stack("bad");
        let pin = Pin { skip_stack: None, ..pin(Until::NextCommit, &bad) };
        context.store().set_pin(context.name(), &pin).unwrap();
        assert_eq!(current_pin(&context, &present("c", &bad, Policy::default())).unwrap(), None);
    }
}
