//! The last lines that containers printed before they exited by themselves, so that a status can say why.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use driftless_model::{ContainerId, Instance, State, Timestamp};

use crate::{
    connection::Connection,
    deadline::within,
    logs::{LogOptions, read_end},
};

/// The deadline for reading the end of a log. Without an answer the container has no output.
const LOG: Duration = Duration::from_secs(5);
/// The number of lines that are kept of a run.
const LINES: usize = 3;
/// In bytes. A longer line is left out: a piece of it could be a piece of a secret, which no mask recognises.
const LONGEST_LINE: usize = 2048;

/// The output of crashed containers, each read once per run. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct CrashOutputs {
    by_container: Mutex<BTreeMap<ContainerId, CrashOutput>>,
}

/// The last lines of one run.
#[derive(Clone, Debug)]
struct CrashOutput {
    finished: Timestamp,
    lines: String,
}

impl CrashOutputs {
    /// The last lines of the last run that ended by itself with another code than 0. `is_stopped`: the agent or a user
    /// ended the present one.
    pub(crate) async fn of(
        &self,
        connection: &Connection,
        instance: &Instance,
        has_terminal: bool,
        is_stopped: bool,
    ) -> String {
        let known = self.lock().get(&instance.id).cloned();
        let finished = match instance.state {
            State::Restarting { code, finished } | State::Exited { code, finished, .. }
                if code != 0 && !is_stopped =>
            {
                finished
            }
            // A container that ended well does not explain an earlier run.
            State::Exited { code: 0, .. } if !is_stopped => {
                self.lock().remove(&instance.id);
                return String::new();
            }
            _ => return known.map(|output| output.lines).unwrap_or_default(),
        };
        if let Some(known) = known.filter(|output| output.finished == finished) {
            return known.lines;
        }
        let options = LogOptions {
            tail: Some(LINES as u64),
            since: instance.started.map(|started| Timestamp(started.0.saturating_sub(500))),
            ..LogOptions::default()
        };
        let read = within(LOG, read_end(connection, instance.id.as_str(), &options, has_terminal)).await;
        let lines = match read {
            Ok(bytes) => last_lines(&bytes),
            Err(error) => {
                // Some log drivers cannot be read.
                tracing::debug!(container = instance.name, %error, "could not read the end of a log");
                String::new()
            }
        };
        self.lock().insert(instance.id.clone(), CrashOutput { finished, lines: lines.clone() });
        lines
    }

    /// Forgets containers that do not exist any more.
    pub(crate) fn retain_containers(&self, exists: impl Fn(&ContainerId) -> bool) {
        self.lock().retain(|id, _| exists(id));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ContainerId, CrashOutput>> {
        self.by_container.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last lines of a log, without control characters and empty lines.
pub(crate) fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let plain = |line: &str| {
        let line = without_escapes(line);
        line.chars().filter(|it| !it.is_control() && !is_direction(*it)).collect::<String>().trim().to_owned()
    };
    let lines: Vec<String> = text
        .lines()
        .map(|line| if line.len() > LONGEST_LINE { "(a long line)".to_owned() } else { plain(line) })
        .filter(|line| !line.is_empty())
        .collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}

/// A line without the escape sequences of terminals, such as colours.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        if letter != '\u{1b}' {
            plain.push(letter);
        } else if rest.next() == Some('[') {
            // The sequence ends with its first letter.
            rest.by_ref().find(|it| it.is_ascii_alphabetic() || *it == '~');
        }
    }
    plain
}

/// Whether a character changes the direction of the text that follows.
fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_plain_text() {
        let log = b"one\r\n\n\x1b[31mtwo\x1b[0m\nthree\x07\n  four\n";
        assert_eq!(last_lines(log), "two\nthree\nfour");
        let printed = format!("{}\nend", "x".repeat(LONGEST_LINE + 1));
        assert_eq!(last_lines(printed.as_bytes()), "(a long line)\nend");
        assert_eq!(last_lines("\u{202e}desrever \u{1b}".as_bytes()), "desrever");
    }
}
