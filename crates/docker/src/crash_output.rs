//! The last lines that containers printed before they exited by themselves, so that a status can say why.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use driftless_model::{ContainerId, Instance, State, Timestamp, without_escapes};

use crate::{
    connection::Connection,
    deadline::within,
    logs::{LogOptions, read_end},
};

/// The deadline for reading the end of a log. Without an answer the container has no output.
const LOG: Duration = Duration::from_secs(5);
/// The number of lines that are kept of a run.
const LINES: usize = 3;
/// The number of lines that are read: the engine counts those of the next run too, which may have begun.
const READ_LINES: u64 = 12;
/// The engine waits at least this long before it starts a container again, and doubles it each time.
const RESTART_PAUSE: u64 = 90;
/// The time by which a container may have printed before the start that the engine noted, in milliseconds.
const EARLY: u64 = 500;
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

/// The time of one run of a container. The log spans all runs.
struct Run {
    /// The end of an earlier run, if it is known.
    before: Option<Timestamp>,
    /// The start as the engine notes it: before Docker 28.5 that is late, when a quick program may have ended.
    started: Option<Timestamp>,
    finished: Timestamp,
}

impl Run {
    /// No line of this run is older.
    fn since(&self) -> Option<Timestamp> {
        let early = self.started.map(|started| Timestamp(started.0.saturating_sub(EARLY)));
        early.max(self.before.map(|before| Timestamp(before.0 + 1)))
    }

    /// The lines of this run, without the time that each begins with. A pause as long as the one before a restart
    /// divides the lines that may be of an earlier run from those of this one.
    fn lines<'l>(&self, log: &'l str) -> Vec<&'l str> {
        let timed = |line: &'l str| {
            let (time, text) = line.split_once(' ').unwrap_or((line, ""));
            Some((Timestamp::parse(time)?.0, text))
        };
        let end = self.finished.0 + RESTART_PAUSE;
        let timed: Vec<(u64, &str)> =
            log.lines().filter_map(timed).filter(|(time, _)| *time <= end).collect();
        let started = self.started.unwrap_or_default().0;
        let first = timed
            .windows(2)
            .rposition(|pair| matches!(pair, [(one, _), (next, _)] if *one < started && next - one.min(next) >= RESTART_PAUSE))
            .map_or(0, |gap| gap + 1);
        timed.get(first..).unwrap_or_default().iter().map(|(_, text)| *text).collect()
    }
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
        if let Some(known) = known.as_ref().filter(|output| output.finished == finished) {
            return known.lines.clone();
        }
        let before = known.map(|output| output.finished);
        let run = Run { before, started: instance.started, finished };
        let options = LogOptions {
            tail: Some(READ_LINES),
            since: run.since(),
            timestamps: true,
            ..LogOptions::default()
        };
        let read = within(LOG, read_end(connection, instance.id.as_str(), &options, has_terminal)).await;
        let lines = match read {
            Ok(bytes) => last_lines(run.lines(&String::from_utf8_lossy(&bytes)).join("\n").as_bytes()),
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

/// Whether a character changes the direction of the text that follows.
fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_runs_are_left_out() {
        let at = |millis: u64| Timestamp(1_700_000_000_000 + millis);
        let log = |lines: &[(u64, &str)]| {
            let lines = lines.iter().map(|(millis, text)| format!("{} {text}", at(*millis)));
            lines.collect::<Vec<_>>().join("\n")
        };
        // The first two runs ended 200 ms before the third began, which an engine before Docker 28.5 notes late.
        let quick = [(100, "first: no database"), (300, "second: no database"), (700, "third: no database")];
        let run = Run { before: None, started: Some(at(750)), finished: at(755) };
        assert_eq!(run.since(), Some(at(250)));
        assert_eq!(run.lines(&log(&quick)), ["third: no database"]);
        // The next run has begun when the log is read.
        let run = Run { before: Some(at(120)), started: Some(at(280)), finished: at(310) };
        assert_eq!(run.since(), Some(at(121)));
        assert_eq!(run.lines(&log(&quick[1..])), ["second: no database"]);
        // A slow program prints with pauses of its own after its start.
        let slow = [(1000, "starting"), (3000, "waiting"), (9000, "gave up")];
        let run = Run { before: None, started: Some(at(990)), finished: at(9001) };
        assert_eq!(run.lines(&log(&slow)), ["starting", "waiting", "gave up"]);
        assert_eq!(run.lines("no time\n"), Vec::<&str>::new());
    }

    #[test]
    fn last_lines_are_plain_text() {
        let log = b"one\r\n\n\x1b[31mtwo\x1b[0m\nthree\x07\n  four\n";
        assert_eq!(last_lines(log), "two\nthree\nfour");
        let printed = format!("{}\nend", "x".repeat(LONGEST_LINE + 1));
        assert_eq!(last_lines(printed.as_bytes()), "(a long line)\nend");
        assert_eq!(last_lines("\u{202e}desrever \u{1b}".as_bytes()), "desrever");
    }
}
