//! Everything that a command uses besides its arguments, and the result of a command.

use std::sync::Arc;

use super::{
    progress::Spinner,
    screen::{Colours, Screen},
};
use driftless_clock::Clock;

/// Looks up an environment variable.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Everything that a command uses besides its arguments.
pub(crate) struct Context<'a> {
    pub(super) environment: &'a Environment,
    /// Standard error.
    pub(super) screen: &'a Screen,
    /// Whether standard output is coloured.
    pub(super) colours: Colours,
    pub(super) stdout_is_terminal: bool,
    pub(super) clock: Clock,
}

impl Context<'_> {
    /// A progress line on standard error.
    pub(super) fn spinner(&self) -> Spinner<'_> {
        Spinner::new(self.screen)
    }
}

/// Result of a command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Yes,
    No,
    /// An exit code chosen by the caller.
    Code(u8),
}
