//! Deadlines of calls.

use std::{future::Future, time::Duration};

use tokio::time::timeout;

use crate::call_error::CallError;

/// The deadline of an ordinary call.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// The deadline of a call that any engine answers at once.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// The deadline of a call that removes much from the disk.
pub(crate) const PRUNE: Duration = Duration::from_mins(10);
/// The deadline of a ping.
pub(crate) const PING: Duration = Duration::from_secs(5);

/// Runs `call` and gives up after the deadline.
pub(crate) async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, CallError>> + Send,
) -> Result<T, CallError> {
    timeout(deadline, call).await.unwrap_or(Err(CallError::TimedOut(deadline)))
}
