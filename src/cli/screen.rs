//! Output to the terminal: colours, one progress line that never mixes with the log, and a closed output that ends the
//! program quietly.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::fold::fold;

/// Standard error, shared by the log and one progress line below it.
#[derive(Clone, Debug)]
pub struct Screen {
    line: Arc<Mutex<String>>,
    is_terminal: bool,
    colours: Colours,
    /// The width where the terminal does not know it.
    columns: Option<usize>,
}

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Good,
    Busy,
    Warn,
    Bad,
    Soft,
    Strong,
}

/// A log line on its way to the screen.
#[derive(Debug)]
pub struct LogWriter(Screen);

impl Screen {
    /// Standard error as it is: a terminal or not, and with colours unless `NO_COLOR` is set to anything. `COLUMNS` is the
    /// width where there is no other.
    pub fn stderr(no_color: Option<&str>, columns: Option<&str>) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let colours = Colours::on(is_terminal, no_color);
        let columns = columns.and_then(|columns| columns.parse().ok());
        Self { line: Arc::default(), is_terminal, colours, columns }
    }

    pub fn colours(&self) -> Colours {
        self.colours
    }

    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// For [`tracing_subscriber::fmt::MakeWriter`], which a closure is.
    pub fn log_writer(&self) -> LogWriter {
        LogWriter(self.clone())
    }

    /// Text with lines that are folded where the terminal would break words. It is as it was if the width is not known.
    pub(super) fn fold(&self, text: &str) -> String {
        let terminal = terminal_size::terminal_size_of(io::stderr()).filter(|_| self.is_terminal);
        let known = |width: &usize| *width > 0;
        let width = terminal.map(|(width, _)| usize::from(width.0)).filter(known);
        let width = width.or(self.columns.filter(known));
        width.map_or_else(|| text.to_owned(), |width| fold(text, width))
    }

    /// Prints a whole line above the progress line. Errors of standard error are ignored.
    pub(super) fn say(&self, text: impl fmt::Display) {
        let line = self.clear();
        let _ = writeln!(io::stderr(), "{text}");
        drop(line);
    }

    /// Prints a sentence above the progress line. Where it is longer than a line, it is folded.
    pub(super) fn say_folded(&self, sentence: &str) {
        self.say(self.fold(sentence));
    }

    /// Replaces the progress line. Only on a terminal.
    pub(super) fn progress(&self, text: &str) {
        if self.is_terminal {
            let mut line = self.clear();
            text.clone_into(&mut line);
            let mut stderr = io::stderr();
            let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
        }
    }

    /// Removes the progress line.
    pub(super) fn no_progress(&self) {
        self.clear().clear();
    }

    /// Erases the progress line and holds the screen until the guard is dropped. The next tick draws the line again.
    fn clear(&self) -> MutexGuard<'_, String> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if !line.is_empty() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
        line
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = self.0.clear();
        let written = io::stderr().write(bytes);
        drop(line);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl Colours {
    pub(super) fn on(is_terminal: bool, no_color: Option<&str>) -> Self {
        if is_terminal && no_color.is_none_or(str::is_empty) { Self::On } else { Self::Off }
    }

    pub(super) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Good => "32",
            Paint::Busy => "36",
            Paint::Warn => "33",
            Paint::Bad => "31",
            Paint::Soft => "2",
            Paint::Strong => "1",
        };
        match self {
            Self::On if !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::On | Self::Off => text.to_owned(),
        }
    }
}

/// Foreign text without control characters, which could move the cursor or hide text.
pub(super) fn plain(text: &str) -> String {
    let is_shown =
        |letter: char| !driftless_model::is_unprintable(letter) || letter == '\n' || letter == '\t';
    text.chars().map(|letter| if is_shown(letter) { letter } else { '\u{fffd}' }).collect()
}
