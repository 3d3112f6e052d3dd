//! What containers print, on its way from the engine to whoever asks. It keeps nothing of it.

use std::{future::Future, pin::Pin, sync::Arc};

use driftless_docker::{Docker, LogOptions, LogStream};

use crate::error::chain;

/// Where the output of containers comes from.
pub trait Logs: Send + Sync {
    /// Begins to read the output of a container. Dropping the stream ends the reading.
    fn open<'a>(
        &'a self,
        container: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>>;
}

/// From the engine.
pub(crate) struct FromEngine<D>(pub(crate) Arc<D>);

impl<D: Docker> Logs for FromEngine<D> {
    fn open<'a>(
        &'a self,
        container: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        Box::pin(async move { self.0.logs(container, options).await.map_err(|error| chain(&error)) })
    }
}
