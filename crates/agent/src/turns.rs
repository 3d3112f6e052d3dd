//! Turns: which applications act at the same time, and how many steps the engine gets at once.

use std::time::Duration;

use driftless_plan::Action;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Maximum number of applications that act at the same time.
const CONCURRENT_TURNS: usize = 4;

/// Longest time that an application waits for its turn to act. Then it acts all the same: the others may be stopping
/// containers that take long.
const MAX_WAIT_FOR_TURN: Duration = Duration::from_secs(10);

/// Maximum number of steps of one application that are performed at the same time.
const STEPS_OF_A_TURN: usize = 16;

/// The same without a turn to act.
const STEPS_WITHOUT_TURN: usize = 2;

/// Maximum number of steps of all applications that the engine performs at the same time. It does not get faster with more
/// than 16. Of 100 applications at a first start, 96 have no turn after ten seconds; without this limit the engine got 250
/// steps at once and answered some of them only after a minute, which is too late. It is twice what one application
/// may perform, so that one whose steps hang does not stop the others.
const CONCURRENT_STEPS: usize = 2 * STEPS_OF_A_TURN;

/// The turns and steps of all applications.
pub(crate) struct Turns {
    turns: Semaphore,
    steps: Semaphore,
}

/// The permission of one application to act.
pub(crate) struct Turn<'a> {
    /// `None` after too long a wait.
    permit: Option<SemaphorePermit<'a>>,
    steps: &'a Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { turns: Semaphore::new(CONCURRENT_TURNS), steps: Semaphore::new(CONCURRENT_STEPS) }
    }
}

impl Turns {
    /// Waits for a turn, but not too long.
    pub(crate) async fn take(&self) -> Turn<'_> {
        let permit = timeout(MAX_WAIT_FOR_TURN, self.turns.acquire()).await;
        Turn { permit: permit.ok().and_then(Result::ok), steps: &self.steps }
    }

    /// Waits until the engine can try a definition, which is as much work for it as a step.
    pub(crate) async fn trial(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.steps.acquire().await.ok()
    }
}

impl<'a> Turn<'a> {
    /// Maximum number of steps of this application that are performed at the same time.
    pub(crate) fn concurrent_steps(&self) -> usize {
        if self.permit.is_some() { STEPS_OF_A_TURN } else { STEPS_WITHOUT_TURN }
    }

    /// Waits until the engine can perform this step. The step holds the permit while it is performed.
    pub(crate) async fn step(&self, action: &Action) -> Option<SemaphorePermit<'a>> {
        if waits_for_others(action) {
            return None;
        }
        // It is never closed.
        self.steps.acquire().await.ok()
    }
}

/// Whether a step waits for a registry, a build or a program in a container, and hardly for the engine. Such a step may take
/// minutes, in which other applications are healed.
fn waits_for_others(action: &Action) -> bool {
    matches!(
        action,
        Action::PullImage { .. }
            | Action::VerifyImage { .. }
            | Action::BuildImage { .. }
            | Action::StopInstance { .. }
            | Action::RunHooks { .. }
            | Action::ReplaceAgent(_)
    )
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, task::Poll};

    use driftless_model::ContainerId;
    use driftless_plan::ContainerRef;
    use futures_util::{FutureExt, future::join_all};
    use tokio::{task::unconstrained, time::Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn application_without_a_turn_acts_with_fewer_steps() {
        let turns = Turns::default();
        let began = Instant::now();
        let taken = join_all((0..10).map(|_| turns.take())).await;
        assert_eq!(began.elapsed(), MAX_WAIT_FOR_TURN);
        let steps: Vec<_> = taken.iter().map(Turn::concurrent_steps).collect();
        assert_eq!(steps, [16, 16, 16, 16, 2, 2, 2, 2, 2, 2]);
        drop(taken);
        assert_eq!(turns.take().await.concurrent_steps(), 16);
    }

    /// The permit of a step that may begin now. Without the budget of a task, after which everything seems to wait.
    fn step<'a>(turn: &Turn<'a>, action: &Action) -> Poll<Option<SemaphorePermit<'a>>> {
        unconstrained(turn.step(action)).now_or_never().map_or(Poll::Pending, Poll::Ready)
    }

    #[tokio::test(start_paused = true)]
    async fn steps_of_all_applications_are_limited() {
        let turns = Turns::default();
        let taken = join_all((0..100).map(|_| turns.take())).await;
        let remove = Action::RemoveVolume { name: "data".to_owned() };
        let held: Vec<_> = taken.iter().map(|turn| step(turn, &remove)).filter(Poll::is_ready).collect();
        assert_eq!(held.len(), CONCURRENT_STEPS);
        let container = ContainerRef::Id(ContainerId("1".to_owned()), "web".to_owned());
        let stop = Action::StopInstance { container, grace: None };
        assert!(step(&taken[99], &stop).is_ready(), "a stop does not wait");
        let (image, platform, secrets, keys) = ("web:1".to_owned(), None, Vec::new(), BTreeSet::new());
        let pull = Action::PullImage { image, platform, secrets, keys };
        assert!(step(&taken[99], &pull).is_ready(), "a pull does not wait");
        let pulls: Vec<_> =
            taken.iter().filter_map(|turn| turn.step(&pull).now_or_never().flatten()).collect();
        assert!(pulls.is_empty(), "a pull holds no permit");
        assert!(unconstrained(turns.trial()).now_or_never().is_none(), "a trial waits");
        drop(held);
        assert!(step(&taken[99], &remove).is_ready());
    }
}
