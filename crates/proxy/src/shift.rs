//! One shift of a proxy: the time from its start, or from taking over, until it hands over to the next proxy.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Says when a shift ends. Every task of the shift then hands over what it carries.
#[derive(Debug, Default)]
pub(crate) struct Shift {
    has_ended: AtomicBool,
    ended: Notify,
}

impl Shift {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.ended.notify_waiters();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) {
        let mut ended = pin!(self.ended.notified());
        // Counted from here, so an end between this line and the next wakes it.
        ended.as_mut().enable();
        if !self.has_ended() {
            ended.await;
        }
    }
}
