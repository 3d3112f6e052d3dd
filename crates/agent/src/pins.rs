//! The pin of an application, and how it ends.

use driftless_model::{EventKind, Pin, Until};
use driftless_store as store;

use crate::{context::AppContext, desired::Desired};

/// The pin, unless it has ended.
pub(crate) fn current_pin(context: &AppContext, desired: &Desired) -> Result<Option<Pin>, store::Error> {
    let Some(pin) = context.store().pin(context.name())? else { return Ok(None) };
    let newest = &desired.commit().id;
    let is_new = !newest.is_empty() && *newest != pin.commit && pin.skip.as_ref() != Some(newest);
    let has_ended = match pin.until {
        Until::Manual => false,
        Until::NextCommit => is_new && desired.rendered().stack.is_some(),
        // A pin that runs out does not return to the commit that the rollback left.
        Until::Time(end) => context.now() >= end && is_new,
    };
    if has_ended {
        context.store().clear_pin(context.name())?;
        let object = format!("revision {}", pin.revision);
        context.event(EventKind::Normal, "PinReleased", &object, "the pin ended");
        return Ok(None);
    }
    Ok(Some(pin))
}

/// A user has confirmed the loss of state, and the stack of the pinned revision cannot be read: the pin has no effect any more.
pub(crate) fn end_unreadable_pin(context: &AppContext, pin: &Pin) -> Result<(), store::Error> {
    context.store().clear_pin(context.name())?;
    let object = format!("revision {}", pin.revision);
    let message = "the pin ended, because the stored revision cannot be read; following the newest commit";
    context.event(EventKind::Warning, "PinReleased", &object, message);
    Ok(())
}
