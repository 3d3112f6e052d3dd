//! The messages of a server on its side band ("fatal: …"), which no error of gix contains. Percentages are dropped.

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering};

use gix::progress::{Id, MessageLevel, Step, StepShared, UNKNOWN, Unit};

/// Collects the server's messages; handed to gix as its progress.
#[derive(Clone, Default)]
pub(super) struct ServerMessages {
    said: Arc<Mutex<Vec<String>>>,
    steps: StepShared,
    id: Option<Id>,
}

const MOST_LINES: usize = 8;
const LONGEST_LINE: usize = 300;

impl ServerMessages {
    pub(super) fn read(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).join("; ")
    }

    fn keep(&self, line: &str) {
        let line = line.trim();
        let is_usual =
            ["Enumerating", "Counting", "Compressing", "Total"].iter().any(|it| line.starts_with(it));
        // Lines are cut where packets end, and what is left of a usual one is no sentence.
        let is_rest = !line.contains(' ');
        if line.is_empty() || is_usual || is_rest || line.contains('%') {
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == MOST_LINES {
            said.remove(0);
        }
        said.push(
            line.chars()
                .filter(|letter| !driftless_model::is_unprintable(*letter))
                .take(LONGEST_LINE)
                .collect(),
        );
    }
}

impl gix::progress::Count for ServerMessages {
    fn set(&self, step: Step) {
        self.steps.store(step, Ordering::Relaxed);
    }

    fn step(&self) -> Step {
        self.steps.load(Ordering::Relaxed)
    }

    fn inc_by(&self, step: Step) {
        self.steps.fetch_add(step, Ordering::Relaxed);
    }

    fn counter(&self) -> StepShared {
        Arc::clone(&self.steps)
    }
}

impl gix::Progress for ServerMessages {
    fn init(&mut self, _max: Option<Step>, _unit: Option<Unit>) {}

    fn set_name(&mut self, name: String) {
        if self.id == Some(gix::protocol::fetch::ProgressId::RemoteProgress.into()) {
            self.keep(&name);
        }
    }

    fn name(&self) -> Option<String> {
        None
    }

    fn id(&self) -> Id {
        self.id.unwrap_or(UNKNOWN)
    }

    fn message(&self, level: MessageLevel, message: String) {
        if matches!(level, MessageLevel::Failure) {
            self.keep(&message);
        }
    }
}

impl gix::NestedProgress for ServerMessages {
    type SubProgress = Self;

    fn add_child(&mut self, _name: impl Into<String>) -> Self {
        Self { said: Arc::clone(&self.said), ..Self::default() }
    }

    fn add_child_with_id(&mut self, _name: impl Into<String>, id: Id) -> Self {
        Self { said: Arc::clone(&self.said), steps: StepShared::default(), id: Some(id) }
    }
}
