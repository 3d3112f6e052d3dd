//! The pause after a failed download that is costly to repeat: one that is too large, fills the disk, or reaches the deadline.
//!
//! Meanwhile the references are listed as before, so that another commit is received at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use driftless_model::Timestamp;
use gix::ObjectId;

use super::{
    error::{Cause, Error},
    limits::{Limits, NetworkFailure},
};

/// The pause of one repository. It is kept in memory only: a restart downloads again.
pub(super) struct DownloadPause {
    first: Duration,
    failed: Mutex<Option<FailedDownload>>,
}

struct FailedDownload {
    commit: ObjectId,
    error: Error,
    at: Timestamp,
    pause: Duration,
}

const LONGEST: Duration = Duration::from_hours(6);

/// A disk that is full after fewer bytes than this was full before, and to try again costs nothing.
const LARGE_DOWNLOAD: u64 = 16 << 20;

impl DownloadPause {
    /// `first` is the pause after the first failure of a commit; it doubles with each further one. Zero: there is none.
    pub(super) fn new(first: Duration) -> Self {
        Self { first, failed: Mutex::default() }
    }

    /// Fails with the error of the last download during the pause of this commit.
    pub(super) fn check(&self, commit: ObjectId, now: Timestamp) -> Result<(), Error> {
        match &*self.failed() {
            Some(failed) if failed.commit == commit && failed.at.is_recent(failed.pause, now) => {
                Err(failed.error.clone())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Notes the result of a download. An error that begins a pause says when it ends.
    pub(super) fn note<T>(
        &self,
        commit: ObjectId,
        result: Result<T, Error>,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<T, Error> {
        let error = match result {
            Ok(done) => {
                self.end();
                return Ok(done);
            }
            Err(error) => error,
        };
        let Some(remedy) = remedy(&error, limits).filter(|_| !self.first.is_zero()) else {
            return Err(error);
        };
        let mut failed = self.failed();
        let before = failed.as_ref().filter(|before| before.commit == commit);
        let pause = before.map_or(self.first, |before| (before.pause * 2).min(LONGEST));
        let message = format!(
            "{}; {remedy}. This commit is not downloaded again before {}, unless you run `driftless sync`",
            error.message,
            now.after(pause).to_the_second()
        );
        let error = Error { message, ..error };
        *failed = Some(FailedDownload { commit, error: error.clone(), at: now, pause });
        Err(error)
    }

    /// The next fetch downloads.
    pub(super) fn end(&self) {
        *self.failed() = None;
    }

    fn failed(&self) -> MutexGuard<'_, Option<FailedDownload>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The remedy for a failed download that is costly to repeat; `None` for any other error.
fn remedy(error: &Error, limits: &Limits) -> Option<&'static str> {
    match (limits.failure(), error.cause) {
        (Some(NetworkFailure::Deadline(_)), _) => Some("raise `timeout`, or use a faster line"),
        (Some(NetworkFailure::TooLarge(_)), _) | (_, Cause::TooLarge) => {
            Some("keep large files out of Git, or follow a smaller repository")
        }
        (_, Cause::DiskFull) if limits.received() >= LARGE_DOWNLOAD => {
            Some("make room on the disk of the state directory")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_mins(15);

    fn commit(digit: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[digit; 20])
    }

    fn start() -> Timestamp {
        Timestamp::parse("2026-06-01T12:00:00Z").unwrap()
    }

    fn limits() -> Limits {
        Limits::start(FIRST, FIRST, 1 << 30)
    }

    fn failed(cause: Cause) -> Result<(), Error> {
        Err(cause.error("fetch", "no"))
    }

    #[tokio::test]
    async fn pause_doubles_up_to_six_hours() {
        let (pause, limits) = (DownloadPause::new(FIRST), limits());
        let mut now = start();
        for minutes in [15, 30, 60, 120, 240, 360, 360] {
            pause.check(commit(1), now).unwrap();
            let error = pause.note(commit(1), failed(Cause::TooLarge), &limits, now).unwrap_err();
            let end = now.after(Duration::from_mins(minutes));
            assert!(error.message.contains(&format!("before {}, unless", end.to_the_second())), "{error}");
            let last = Timestamp(end.0 - 1);
            assert_eq!(pause.check(commit(1), last).unwrap_err().to_string(), error.to_string());
            pause.check(commit(2), last).unwrap();
            now = end;
        }
        pause.check(commit(1), start()).unwrap();
        pause.note(commit(1), Ok(()), &limits, now).unwrap();
        let error = pause.note(commit(1), failed(Cause::TooLarge), &limits, start()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not fetch: no; keep large files out of Git, or follow a smaller repository. This commit is not \
             downloaded again before 2026-06-01 12:15:00 UTC, unless you run `driftless sync`"
        );
        pause.end();
        pause.check(commit(1), start()).unwrap();
    }

    #[tokio::test]
    async fn only_costly_downloads_are_paused() {
        for (cause, received, failure, is_paused) in [
            (Cause::ServerFailed, 1 << 20, None, false),
            (Cause::TimedOut, 1 << 20, Some(NetworkFailure::Silence(FIRST)), false),
            (Cause::TimedOut, 1 << 20, Some(NetworkFailure::Deadline(FIRST)), true),
            (Cause::RepositoryDamaged, 1 << 20, Some(NetworkFailure::TooLarge(1 << 20)), true),
            (Cause::DiskFull, 1 << 20, None, false),
            (Cause::DiskFull, 1 << 24, None, true),
        ] {
            let (pause, limits) = (DownloadPause::new(FIRST), limits());
            limits.count(received).unwrap();
            if let Some(failure) = failure {
                limits.fail(failure);
            }
            pause.note(commit(1), failed(cause), &limits, start()).unwrap_err();
            assert_eq!(pause.check(commit(1), start()).is_err(), is_paused, "{cause} {received}");
        }
        let never = DownloadPause::new(Duration::ZERO);
        let error = never.note(commit(1), failed(Cause::TooLarge), &limits(), start()).unwrap_err();
        assert_eq!(error.message, "no");
        never.check(commit(1), start()).unwrap();
    }
}
