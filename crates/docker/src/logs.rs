//! What a container prints, as it comes: read from the engine piece by piece, with the engine's frames taken off,
//! and never more of it in memory than one piece.

use std::{fmt::Write as _, io, pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt, stream};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use serde::Deserialize;

use crate::{
    Error,
    call_error::CallError,
    engine::{DEADLINE, Inner, within},
    transport::Transport,
};
use driftless_model::Timestamp;

/// Which part of the output, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on with what comes, until the container ends.
    pub follow: bool,
    /// So many of the last lines; `None`: all.
    pub tail: Option<u64>,
    /// Not what was printed before.
    pub since: Option<Timestamp>,
    /// A time before each line.
    pub timestamps: bool,
    /// What it printed before its present or last run began, rather than since.
    pub previous: bool,
}

/// After so long without output we ask whether the container still runs: the engine may go on to follow one that
/// was removed by force, without a word and without an end (seen with 20.10).
const ASK_AFTER: Duration = Duration::from_secs(5);

/// The output in pieces, of both streams as they come. Dropping it ends the reading.
pub type LogStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What of a container decides how its output is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    created: String,
    config: Config,
    state: State,
    #[serde(default)]
    restart_count: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    tty: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    started_at: String,
    finished_at: String,
    running: bool,
}

impl Inner {
    /// The engine's log of a container spans all of its runs, and Kubernetes' each one.
    pub(crate) async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, Error> {
        let opened = async {
            self.agree().await?;
            let found: Found =
                self.transport.ask(Method::GET, &format!("/containers/{container}/json"), Vec::new()).await?;
            let path = path(container, options, began(&found));
            let response = self.transport.send(Method::GET, &path, Vec::new()).await?;
            Ok((response, found.config.tty))
        };
        let opened = within(DEADLINE, opened).await;
        let (response, has_terminal) =
            opened.map_err(|failure| failure.sort(&format!("read the output of {container}")))?;
        let pieces = response.into_body().into_data_stream().map(|it| it.map_err(io::Error::other));
        let pieces: LogStream = if options.follow {
            until_its_end(Box::pin(pieces), self.transport.clone(), container.to_owned())
        } else {
            Box::pin(pieces)
        };
        if has_terminal {
            return Ok(pieces);
        }
        let mut frames = Frames::default();
        Ok(Box::pin(pieces.map(move |it| it.and_then(|it| frames.take_off(&it)))))
    }
}

/// How long before the engine noted a start the container may have printed already.
const EARLY_MILLIS: u64 = 500;
/// What was started so soon after it was made was not started before.
const FIRST_MILLIS: u64 = 10_000;

/// When the present or last run began, for what it printed; `None`: there was none before it. The engine notes the
/// time of a start after the start, when a quick program has printed, or even ended.
fn began(found: &Found) -> Option<Timestamp> {
    let State { started_at, finished_at, running } = &found.state;
    let before = Timestamp::parse(finished_at).filter(|it| it.0 > 0);
    if *running {
        return before;
    }
    let Timestamp(started) = Timestamp::parse(started_at)?;
    let Timestamp(created) = Timestamp::parse(&found.created)?;
    let is_first = found.restart_count == 0 && started.saturating_sub(created) < FIRST_MILLIS;
    (!is_first).then(|| Timestamp(started.saturating_sub(EARLY_MILLIS)))
}

/// The pieces until the engine ends them, or until none comes and the container has ended or is gone.
fn until_its_end(pieces: LogStream, transport: Transport, container: String) -> LogStream {
    Box::pin(stream::unfold(
        (pieces, transport, container),
        |(mut pieces, transport, container)| async move {
            loop {
                match tokio::time::timeout(ASK_AFTER, pieces.next()).await {
                    Ok(piece) => return piece.map(|it| (it, (pieces, transport, container))),
                    Err(_) if has_ended(&transport, &container).await => return None,
                    Err(_) => {}
                }
            }
        },
    ))
}

/// An engine that does not answer is not one that says so.
async fn has_ended(transport: &Transport, container: &str) -> bool {
    let path = format!("/containers/{container}/json");
    match within(DEADLINE, transport.ask::<Found>(Method::GET, &path, Vec::new())).await {
        Ok(found) => !found.state.running,
        Err(CallError::Status { code, .. }) => code == 404,
        Err(_) => false,
    }
}

fn path(container: &str, options: &LogOptions, started: Option<Timestamp>) -> String {
    let LogOptions { follow, tail, since, timestamps, previous } = options;
    let (from, to) = if *previous { (*since, started) } else { ((*since).max(started), None) };
    let tail = tail.map_or_else(|| "all".to_owned(), |it| it.to_string());
    let mut path = format!(
        "/containers/{container}/logs?stdout=true&stderr=true&follow={follow}&timestamps={timestamps}&tail={tail}"
    );
    for (key, at) in [("since", from), ("until", to)] {
        if let Some(Timestamp(millis)) = at {
            let _ = write!(path, "&{key}={}.{:03}", millis / 1000, millis % 1000);
        }
    }
    path
}

/// The frames of a container without a terminal: a letter for the stream, three zeros, the length, the bytes.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; 8],
    /// So many bytes of the head are there.
    read: usize,
    /// So many bytes of the frame are still to come.
    left: usize,
}

impl Frames {
    /// What a piece holds besides heads, wherever it begins and ends.
    fn take_off(&mut self, mut piece: &[u8]) -> io::Result<Bytes> {
        let mut out = Vec::with_capacity(piece.len());
        while !piece.is_empty() {
            if self.left > 0 {
                let (bytes, rest) = piece.split_at(self.left.min(piece.len()));
                out.extend_from_slice(bytes);
                self.left -= bytes.len();
                piece = rest;
                continue;
            }
            let (bytes, rest) = piece.split_at((self.head.len() - self.read).min(piece.len()));
            for byte in bytes {
                self.head[self.read] = *byte;
                self.read += 1;
            }
            piece = rest;
            if self.read == self.head.len() {
                let [stream, zeros @ .., a, b, c, d] = self.head;
                if stream > 3 || zeros != [0; 3] {
                    return Err(io::Error::other("the engine sends its output in a form that is not known"));
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

    #[test]
    fn frames_are_taken_off_wherever_the_pieces_end() {
        let mut stream = Vec::new();
        for (kind, text) in [(1_u8, "one\n"), (2, "two\n"), (1, ""), (1, "three")] {
            stream.extend([kind, 0, 0, 0]);
            stream.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            stream.extend(text.as_bytes());
        }
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            let all = stream.chunks(size).map(|it| frames.take_off(it).unwrap());
            let text: Vec<u8> = all.flat_map(|it| it.to_vec()).collect();
            assert_eq!(String::from_utf8(text).unwrap(), "one\ntwo\nthree", "{size}");
        }
        for wrong in ["not framed", "\u{1}\u{1}\u{1}\u{1}1234"] {
            assert!(Frames::default().take_off(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_log_of_one_run_is_cut_out_of_that_of_all() {
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
