//! Everything that a command uses besides its arguments, and the result of a command.

use std::sync::Arc;

use super::{
    fold::{fold, fold_comments},
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

/// Width of a list with one line for each object where the terminal's is not known, in columns.
const DEFAULT_WIDTH: usize = 80;

impl Context<'_> {
    /// The width of the terminal, or `COLUMNS`. In a pipe without it, none is known, and lines stay whole.
    pub(super) fn columns(&self) -> Option<usize> {
        let terminal = terminal_size::terminal_size_of(std::io::stdout());
        let columns = || (self.environment)("COLUMNS").and_then(|columns| columns.parse().ok());
        terminal.map(|(width, _)| usize::from(width.0)).or_else(columns).filter(|columns| *columns > 0)
    }

    /// The width to which a list with one line for each object is cut.
    pub(super) fn list_width(&self) -> usize {
        self.columns().unwrap_or(DEFAULT_WIDTH)
    }

    /// Text for people, with lines that are folded where the terminal would break words.
    pub(super) fn fold(&self, text: &str) -> String {
        self.columns().map_or_else(|| text.to_owned(), |columns| fold(text, columns))
    }

    /// A diff for people, whose comments are folded.
    pub(super) fn fold_comments(&self, diff: &str) -> String {
        self.columns().map_or_else(|| diff.to_owned(), |columns| fold_comments(diff, columns))
    }

    /// A progress line on standard error.
    pub(super) fn spinner(&self) -> Spinner<'_> {
        Spinner::new(self.screen)
    }
}

/// The exit status of a command that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// 0.
    Success,
    /// 1: the answer is no, such as drift that was found, or a goal that was not reached.
    Negative,
    /// An exit code chosen by the caller.
    Code(u8),
}
