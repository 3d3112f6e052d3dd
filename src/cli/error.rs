//! The error of a command, and its output: findings, message with causes, and help.

use std::{error::Error as StdError, io};

use super::{
    client,
    findings::{render_findings, summary},
    screen::{Paint, Screen},
    topic::Topic,
};
use driftless_model::{Finding, InvalidName, error_chain};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The reader of the output closed it, which is not reported, or the disk is full.
    #[error("could not write to the output")]
    Output(#[from] io::Error),
    /// Findings, printed with their locations.
    #[error("{}", summary(.0))]
    Findings(Vec<Finding>),
    /// An error of one command, with its causes.
    #[error("{}", error_chain(.0.as_ref()))]
    Command(Box<dyn CommandError>),
}

/// An error of one command or of a group of commands.
pub(crate) trait CommandError: StdError + Send + Sync + 'static {
    /// Help line: what to do next.
    fn help(&self) -> Option<String>;

    /// The section of the documents that explains the error. `None`: that of its cause, if it has one.
    fn topic(&self) -> Option<Topic> {
        None
    }
}

impl<E: CommandError> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Command(Box::new(error))
    }
}

impl CommandError for InvalidName {
    fn help(&self) -> Option<String> {
        Some("`driftless status` lists the applications".to_owned())
    }
}

impl Error {
    /// Prints the error with its causes, the help line, and the section of the documents that explains it.
    pub(super) fn report(&self, screen: &Screen) {
        if matches!(self, Self::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe) {
            return;
        }
        if let Self::Findings(findings) = self {
            screen.say(render_findings(findings, screen.colours()).trim_end());
        }
        let say = |text: String| screen.say(screen.fold(&text));
        say(format!("{}: {}", screen.colours().paint(Paint::Bad, "error"), error_chain(self)));
        if let Some(help) = self.help() {
            say(format!("{}: {help}", screen.colours().paint(Paint::Busy, "help")));
        }
        if let Some(topic) = self.topic() {
            let line = format!("explained in {}", topic.address());
            screen.say(screen.colours().paint(Paint::Soft, &line));
        }
    }

    /// The help line, or an empty text.
    pub(super) fn help_text(&self) -> String {
        self.help().unwrap_or_default()
    }

    /// The section of the documents that explains the error.
    fn topic(&self) -> Option<Topic> {
        match self {
            Self::Client(error) => Topic::of_client(error),
            Self::Output(_) => None,
            Self::Findings(_) => Some(Topic::Findings),
            Self::Command(error) => error.topic().or_else(|| Topic::of_causes(error.as_ref())),
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.help(),
            Self::Command(error) => error.help(),
            Self::Output(_) | Self::Findings(_) => None,
        }
    }
}
