//! The signal that ends the plan of one application early, for another target, a request or the end of the agent.

use std::future::pending;

use tokio_util::sync::CancellationToken;

/// Ends a plan early: running steps are finished, and no other one begins. Where no round goes on afterwards, what has begun to be
/// replaced is brought to its end first: a container that was stopped for its successor would stay down.
pub(crate) struct Interrupt {
    /// Nothing of the application is changed after this plan.
    end: CancellationToken,
    /// A child of `end`.
    any: CancellationToken,
}

impl Interrupt {
    /// One that the end of the application's task triggers.
    pub(crate) fn new(stop: &CancellationToken) -> Self {
        let end = stop.child_token();
        let any = end.child_token();
        Self { end, any }
    }

    /// Ends the plan; the rounds that follow go on with what is left of it.
    pub(crate) fn supersede(&self) {
        self.any.cancel();
    }

    /// Ends the plan, and nothing goes on with what is left of it.
    pub(crate) fn end_work(&self) {
        self.end.cancel();
    }

    /// Whether no round goes on with what is left of the plan.
    pub(crate) fn ends_work(&self) -> bool {
        self.end.is_cancelled()
    }

    /// The token that each interrupt cancels.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.any
    }

    /// Waits until a step may not begin any more. One that may begin although the plan has ended waits for ever.
    pub(crate) async fn forbids(&self, may_begin: bool) {
        if may_begin {
            pending::<()>().await;
        }
        self.any.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_target_does_not_end_the_work_and_a_stop_does() {
        let stop = CancellationToken::new();
        let interrupt = Interrupt::new(&stop);
        interrupt.supersede();
        assert!(interrupt.token().is_cancelled() && !interrupt.ends_work());
        let suspended = Interrupt::new(&stop);
        suspended.end_work();
        assert!(suspended.token().is_cancelled() && suspended.ends_work());
        let stopped = Interrupt::new(&stop);
        stop.cancel();
        assert!(stopped.token().is_cancelled() && stopped.ends_work());
    }
}
