//! Limits of the API.

use std::time::Duration;

/// The largest request body that is read, in bytes.
pub(super) const BODY_LIMIT: usize = 64 * 1024;

/// Time for the agent to accept or refuse a request.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A request waits this long for the first look of an agent that has just started.
pub(super) const START_WITHIN: Duration = Duration::from_secs(10);

/// The most requests to the guarded routes at a time, of the 256 connections of a listener.
pub(super) const MOST_REQUESTS: usize = 160;

/// The most requests that wait for a state at a time.
pub(super) const MOST_WAITS: usize = 32;

/// The most streams of events and logs at a time.
pub(super) const MOST_STREAMS: usize = 64;
