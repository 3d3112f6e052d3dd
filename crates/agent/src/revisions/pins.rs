//! The pin of an application, and how it ends.

use driftless_model::{EventKind, Pin, Until};
use driftless_store as store;

use crate::{context::AppContext, desired::Desired, error::chain};

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
    let Some(followed) = followed(&pin, desired) else { return Ok(Some(pin)) };
    // Without it, a changed value of `valuesFrom` and a commit of another application may end the pin.
    if let Err(error) = context.store().set_pin(context.name(), &followed) {
        tracing::warn!(error = chain(&error), "could not store which stack the pin left");
    }
    Ok(Some(followed))
}

/// The pin with the newest commit as the one that was left, if that asks for the same as the one before. The stack of one commit changes
/// with the values of `valuesFrom`, and only a commit ends a pin.
fn followed(pin: &Pin, desired: &Desired) -> Option<Pin> {
    let (newest, stack) = (&desired.commit().id, &desired.rendered().hashes.as_ref()?.stack);
    let is_left_commit = pin.skip.as_ref() == Some(newest);
    let is_left_stack = pin.skip_stack.as_ref()? == stack;
    let is_followed = pin.until != Until::Manual && !newest.is_empty() && is_left_commit != is_left_stack;
    is_followed.then(|| Pin { skip: Some(newest.clone()), skip_stack: Some(stack.clone()), ..pin.clone() })
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
    fn changed_value_of_a_secret_ends_no_pin() {
        let (context, _folder) = context();
        for until in [Until::NextCommit, Until::Time(Timestamp(2))] {
            context.store().set_pin(context.name(), &pin(until, &stack("bad"))).unwrap();
            let is_pinned = |commit: &str, project: &str| {
                let desired = present(commit, &stack(project), Policy::default());
                current_pin(&context, &desired).unwrap().is_some()
            };
            for (commit, project) in [("b", "bad-2"), ("c", "bad-2"), ("c", "bad-3"), ("d", "bad-3")] {
                assert!(is_pinned(commit, project), "{commit} {project}");
            }
            assert!(!is_pinned("e", "good"));
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
