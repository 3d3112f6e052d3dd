//! Logs of containers, read from the engine piece by piece, without the engine's frames. At most one piece is in memory.

use std::{fmt::Write as _, io, pin::Pin, time::Duration};

use driftless_model::Timestamp;
use futures_util::{Stream, StreamExt, stream};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use serde::Deserialize;

use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    error::Error,
    transport::{ApiVersion, Transport},
};

/// The longest time without a piece of a log that is read to its end. The engine may have to search a large one for the time from
/// which it is wanted.
const PIECE_WITHIN: Duration = Duration::from_mins(5);

/// The part of a log to read, and its form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Continue with new output until the container exits.
    pub follow: bool,
    /// The number of last lines; `None`: all.
    pub tail: Option<u64>,
    /// Only output since this time.
    pub since: Option<Timestamp>,
    /// Write the time before each line.
    pub timestamps: bool,
    /// The output before the current or last run instead of the output of that run. Nothing if the current run is the first.
    pub previous: bool,
    pub source: LogSource,
}

/// The kind of object that a log is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogSource {
    /// Of this engine.
    #[default]
    Container,
    /// Of a Swarm, on any node. It has one run.
    Task,
}

/// After this time without output the engine is asked whether the container still runs: the stream of a container that
/// was removed by force may stay open without an end (seen with 20.10).
const CHECK_AFTER: Duration = Duration::from_secs(5);

/// The log in pieces, of both output streams. Dropping it ends the reading.
pub type LogStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The facts about a container that decide how its log is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LoggedContainer {
    created: String,
    config: LoggedConfig,
    state: RunState,
    #[serde(default)]
    restart_count: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LoggedConfig {
    tty: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunState {
    started_at: String,
    finished_at: String,
    running: bool,
}

/// The facts about a task that decide how its log is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LoggedTask {
    spec: LoggedTaskSpec,
    status: LoggedTaskStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LoggedTaskSpec {
    container_spec: LoggedTaskContainer,
}

#[derive(Debug, Deserialize)]
struct LoggedTaskContainer {
    #[serde(rename = "TTY", default)]
    tty: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LoggedTaskStatus {
    state: String,
}

/// The states of a task that does not run any more, in the words of the engine.
const ENDED: [&str; 6] = ["complete", "failed", "shutdown", "rejected", "orphaned", "remove"];

/// Opens the log of a container, by its id or the beginning of it, or of a task of a Swarm. The engine's log spans all runs of a
/// container, whereas Kubernetes keeps one for each run; this one is cut like the latter.
pub(crate) async fn open(
    connection: &Connection,
    container: &str,
    options: &LogOptions,
) -> Result<LogStream, Error> {
    let transport = connection.transport();
    let opened = async {
        if options.source == LogSource::Task {
            if options.previous {
                return Ok(None);
            }
            let inspect = format!("/tasks/{container}");
            let found: LoggedTask = transport.send_json(Method::GET, &inspect, Vec::new()).await?;
            let path = format!("{inspect}/{}", query(options, options.since, None));
            let response = transport.send(Method::GET, &path, Vec::new()).await?;
            return Ok(Some((response, found.spec.container_spec.tty)));
        }
        let version = connection.api_version().await?;
        let inspect = format!("/containers/{container}/json");
        let found: LoggedContainer = transport.send_json(Method::GET, &inspect, Vec::new()).await?;
        let start = run_start(&found, version);
        if options.previous && start.is_none() && found.state.running {
            return Ok(None);
        }
        let path = path(container, options, start);
        let response = transport.send(Method::GET, &path, Vec::new()).await?;
        Ok(Some((response, found.config.tty)))
    };
    let opened = within(DEADLINE, opened).await;
    let opened = opened.map_err(|error| error.classify(&format!("read the log of {container}")))?;
    let Some((response, has_terminal)) = opened else { return Ok(Box::pin(stream::empty())) };
    let pieces = response.into_body().into_data_stream().map(|piece| piece.map_err(io::Error::other));
    let pieces: LogStream = if options.follow {
        until_exit(Box::pin(pieces), transport.clone(), container.to_owned(), options.source)
    } else if options.source == LogSource::Task {
        // Its node may not answer the managers.
        within_each(Box::pin(pieces), DEADLINE)
    } else {
        within_each(Box::pin(pieces), PIECE_WITHIN)
    };
    if has_terminal {
        return Ok(pieces);
    }
    let mut frames = Frames::default();
    Ok(Box::pin(pieces.map(move |piece| piece.and_then(|piece| frames.payload(&piece)))))
}

/// Bytes of a log's end that are read at most.
const LONGEST_END: usize = 32 << 10;

/// The end of a log: the lines that the options name, of which at most the first 32 KiB are read.
pub(crate) async fn read_end(
    connection: &Connection,
    container: &str,
    options: &LogOptions,
    has_terminal: bool,
) -> Result<Vec<u8>, CallError> {
    let path = path(container, options, None);
    let body = connection.transport().send(Method::GET, &path, Vec::new()).await?;
    let mut body = body.into_body().into_data_stream();
    let (mut frames, mut end) = (Frames::default(), Vec::new());
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| CallError::unreachable(&error))?;
        let piece = if has_terminal {
            piece
        } else {
            frames.payload(&piece).map_err(|error| CallError::unreachable(&error))?
        };
        end.extend_from_slice(&piece);
        if end.len() > LONGEST_END {
            // The rest of the last line is missing: a piece of it could be a piece of a secret.
            end.truncate(LONGEST_END);
            end.truncate(end.iter().rposition(|it| *it == b'\n').unwrap_or(0));
            break;
        }
    }
    Ok(end)
}

/// The time by which a container may have printed before the start that the engine noted. Engines before Docker 28.5 note
/// it after the start.
const EARLY_MILLIS: u64 = 500;
/// The same where the engine notes a start before it. The engine waits longer than this before it starts a container again.
const EARLY_MILLIS_NEWER: u64 = 50;
/// The API of Docker 28.5.
const NOTES_STARTS_FIRST: ApiVersion = ApiVersion::new(1, 51);
/// A container that was started this soon after its creation was not started before.
const FIRST_MILLIS: u64 = 10_000;

/// When the current or last run began to print; `None` if it is the first run. Older engines note the time of a start after
/// the start, when a quick program has already printed or even exited.
fn run_start(found: &LoggedContainer, version: ApiVersion) -> Option<Timestamp> {
    let RunState { started_at, finished_at, running } = &found.state;
    let before = Timestamp::parse(finished_at).filter(|it| it.0 > 0);
    if *running {
        return before;
    }
    let Timestamp(started) = Timestamp::parse(started_at)?;
    let Timestamp(created) = Timestamp::parse(&found.created)?;
    let is_first = found.restart_count == 0 && started.saturating_sub(created) < FIRST_MILLIS;
    let early = if version >= NOTES_STARTS_FIRST { EARLY_MILLIS_NEWER } else { EARLY_MILLIS };
    (!is_first).then(|| Timestamp(started.saturating_sub(early)))
}

/// The pieces until the engine ends the stream, or until none comes and the container has exited or is gone.
fn until_exit(pieces: LogStream, transport: Transport, container: String, source: LogSource) -> LogStream {
    Box::pin(stream::unfold(
        (pieces, transport, container),
        move |(mut pieces, transport, container)| async move {
            loop {
                match tokio::time::timeout(CHECK_AFTER, pieces.next()).await {
                    Ok(next) => return next.map(|piece| (piece, (pieces, transport, container))),
                    Err(_) if has_exited(&transport, &container, source).await => return None,
                    Err(_) => {}
                }
            }
        },
    ))
}

/// The pieces, and an error once none comes in time.
fn within_each(pieces: LogStream, limit: Duration) -> LogStream {
    Box::pin(stream::unfold(Some(pieces), move |pieces| async move {
        let mut pieces = pieces?;
        match tokio::time::timeout(limit, pieces.next()).await {
            Ok(next) => next.map(|piece| (piece, Some(pieces))),
            Err(late) => Some((Err(io::Error::other(late)), None)),
        }
    }))
}

/// False if the engine does not answer.
async fn has_exited(transport: &Transport, container: &str, source: LogSource) -> bool {
    let found = async {
        if source == LogSource::Task {
            let path = format!("/tasks/{container}");
            let found: LoggedTask = transport.send_json(Method::GET, &path, Vec::new()).await?;
            return Ok(ENDED.contains(&found.status.state.as_str()));
        }
        let path = format!("/containers/{container}/json");
        let found: LoggedContainer = transport.send_json(Method::GET, &path, Vec::new()).await?;
        Ok(!found.state.running)
    };
    match within(DEADLINE, found).await {
        Ok(has_exited) => has_exited,
        Err(CallError::Status { code, .. }) => code == 404,
        Err(_) => false,
    }
}

fn path(container: &str, options: &LogOptions, started: Option<Timestamp>) -> String {
    let LogOptions { since, previous, .. } = options;
    let (from, to) = if *previous { (*since, started) } else { ((*since).max(started), None) };
    format!("/containers/{container}/{}", query(options, from, to))
}

/// The last part of the path to a log, between two times.
fn query(options: &LogOptions, from: Option<Timestamp>, to: Option<Timestamp>) -> String {
    let LogOptions { follow, tail, timestamps, .. } = options;
    let tail = tail.map_or_else(|| "all".to_owned(), |it| it.to_string());
    let mut path =
        format!("logs?stdout=true&stderr=true&follow={follow}&timestamps={timestamps}&tail={tail}");
    for (key, at) in [("since", from), ("until", to)] {
        if let Some(Timestamp(millis)) = at {
            let _ = write!(path, "&{key}={}.{:03}", millis / 1000, millis % 1000);
        }
    }
    path
}

/// Removes the frames of a log without a terminal: a byte for the stream, three zeros, the length, the payload.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; 8],
    /// The number of header bytes that were read.
    read: usize,
    /// The number of payload bytes that are still to come.
    left: usize,
}

impl Frames {
    /// The payload in a piece, wherever it begins and ends.
    fn payload(&mut self, mut piece: &[u8]) -> io::Result<Bytes> {
        let mut out = Vec::with_capacity(piece.len());
        while !piece.is_empty() {
            if self.left > 0 {
                let (bytes, rest) = piece.split_at(self.left.min(piece.len()));
                out.extend_from_slice(bytes);
                self.left -= bytes.len();
                piece = rest;
                continue;
            }
            let (bytes, rest) = piece.split_at((self.header.len() - self.read).min(piece.len()));
            for byte in bytes {
                self.header[self.read] = *byte;
                self.read += 1;
            }
            piece = rest;
            if self.read == self.header.len() {
                let [stream, zeros @ .., a, b, c, d] = self.header;
                if stream > 3 || zeros != [0; 3] {
                    return Err(io::Error::other("the engine sent a log in an unknown format"));
                }
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.read = 0;
            }
        }
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn log_of_an_engine_that_hangs_ends_with_an_error() {
        let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"one"))]);
        let pieces: LogStream = Box::pin(first.chain(stream::pending()));
        let read: Vec<_> = within_each(pieces, PIECE_WITHIN).collect().await;
        assert!(matches!(read.as_slice(), [Ok(_), Err(_)]), "{read:?}");
    }

    #[test]
    fn frames_are_removed_wherever_the_pieces_end() {
        let mut stream = Vec::new();
        for (kind, text) in [(1_u8, "one\n"), (2, "two\n"), (1, ""), (1, "three")] {
            stream.extend([kind, 0, 0, 0]);
            stream.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            stream.extend(text.as_bytes());
        }
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            let all = stream.chunks(size).map(|it| frames.payload(it).unwrap());
            let text: Vec<u8> = all.flat_map(|it| it.to_vec()).collect();
            assert_eq!(String::from_utf8(text).unwrap(), "one\ntwo\nthree", "{size}");
        }
        for wrong in ["not framed", "\u{1}\u{1}\u{1}\u{1}1234"] {
            assert!(Frames::default().payload(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    /// Docker 28.5 starts a container that exits at once again within half a second.
    #[test]
    fn quick_run_before_is_no_part_of_the_last_one() {
        let found: LoggedContainer = serde_json::from_value(serde_json::json!({
            "Created": "2026-01-01T00:00:00Z", "RestartCount": 1, "Config": {"Tty": false},
            "State": {"StartedAt": "2026-01-01T00:00:02.400Z", "FinishedAt": "2026-01-01T00:00:02.450Z", "Running": false},
        }))
        .unwrap();
        let begins = |minor: u16| run_start(&found, ApiVersion::new(1, minor)).unwrap();
        let printed_before = Timestamp::parse("2026-01-01T00:00:02.200Z").unwrap();
        assert!(begins(51) > printed_before);
        // An older engine notes the start late, so a line of this run may be as old.
        assert!(begins(41) < printed_before);
    }

    #[test]
    fn log_of_one_run_is_selected_by_time() {
        let started = Some(Timestamp(1_700_000_000_123));
        let text = |options: &LogOptions| path("abc", options, started);
        let all = "/containers/abc/logs?stdout=true&stderr=true&follow=false&timestamps=false&tail=all";
        assert_eq!(text(&LogOptions::default()), format!("{all}&since=1700000000.123"));
        let later = LogOptions { since: Some(Timestamp(1_800_000_000_000)), ..LogOptions::default() };
        assert_eq!(text(&later), format!("{all}&since=1800000000.000"));
        let earlier = LogOptions { since: Some(Timestamp(1)), ..LogOptions::default() };
        assert_eq!(text(&earlier), format!("{all}&since=1700000000.123"));
        let previous = LogOptions { previous: true, ..LogOptions::default() };
        assert_eq!(text(&previous), format!("{all}&until=1700000000.123"));
    }
}
