//! The output of containers, streamed from the engine to a client. It stores nothing.

use std::{future::Future, pin::Pin, sync::Arc};

use driftless_docker::{Docker, LogOptions, LogStream};

use crate::error::chain;

/// A source of container logs.
pub trait Logs: Send + Sync {
    /// Starts to read the output of a container, by its id. Dropping the stream ends the reading. An error is in words.
    fn open<'a>(
        &'a self,
        container: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>>;
}

/// The logs of the engine.
pub(crate) struct EngineLogs<D>(pub(crate) Arc<D>);

impl<D: Docker> Logs for EngineLogs<D> {
    fn open<'a>(
        &'a self,
        container: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        Box::pin(async move { self.0.logs(container, options).await.map_err(|error| chain(&error)) })
    }
}
