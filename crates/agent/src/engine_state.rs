//! Whether the engine answers, as the connection to it has found. The agent works without an event stream, too.

use std::{future::pending, time::Duration};

use tokio::{sync::watch, time::sleep};

/// Time without the engine before that is published. A quick restart of it takes less.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the engine answers, or why not. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EngineState(watch::Receiver<Result<(), String>>);

impl EngineState {
    /// An engine that was not reached yet, and where its state is published.
    pub(crate) fn new() -> (watch::Sender<Result<(), String>>, Self) {
        let (sender, receiver) = watch::channel(Err("the Docker Engine has not answered yet".to_owned()));
        (sender, Self(receiver))
    }

    /// Why the engine does not answer.
    pub(crate) fn error(&self) -> Option<String> {
        self.0.borrow().clone().err()
    }

    /// Waits for the next change. Pends for ever after the last one.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Waits until the engine answers.
    pub(crate) async fn answers(&mut self) {
        if self.0.wait_for(Result::is_ok).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Waits until the engine does not answer. Returns why.
    pub(crate) async fn lost(&mut self) -> String {
        loop {
            if self.0.wait_for(Result::is_err).await.is_err() {
                pending::<()>().await;
            }
            tokio::select! {
                () = sleep(PATIENCE) => {}
                _ = self.0.wait_for(Result::is_ok) => continue,
            }
            if let Some(error) = self.error() {
                return error;
            }
        }
    }
}
