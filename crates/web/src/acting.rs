//! Requests that act run in tasks of their own: the agent may do them also after their client has gone, so they are in the
//! audit then, too.

use std::{future::Future, time::Duration};

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::Extensions;
use tokio::{
    task::{JoinError, JoinHandle},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::error::Error;

/// Time to write the audit of the requests that the end of the server interrupts.
const AUDIT_WITHIN: Duration = Duration::from_secs(1);

/// The requests of one server that act now.
#[derive(Clone, Debug, Default)]
pub(super) struct ActingRequests {
    tasks: TaskTracker,
    abandoned: CancellationToken,
}

impl ActingRequests {
    /// Those of the server of a request. Without a server, as in tests of the routes, nobody waits for their end.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Runs the work of a request in a task that goes on when nobody waits for it any more.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(work)
    }

    /// The same answer, or an error as soon as the server cannot wait for it any longer.
    pub(super) fn interruptible<F: Future<Output = Response> + Send + 'static>(
        &self,
        answered: F,
    ) -> impl Future<Output = Response> + Send + use<F> {
        let abandoned = self.abandoned.clone().cancelled_owned();
        async move {
            tokio::select! {
                response = answered => response,
                () = abandoned => Error::Stopping.into_response(),
            }
        }
    }

    /// Waits until all are answered. No more may come.
    pub(super) async fn end(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Interrupts those that are not answered yet, and waits a moment for their audit.
    pub(super) async fn abandon(&self) {
        self.abandoned.cancel();
        // The log says if an entry could not be stored.
        let _ = timeout(AUDIT_WITHIN, self.end()).await;
    }
}

/// Answers the requests of a route without a guard, which writes its audit itself, also if their clients have gone.
pub(super) async fn act_without_client(request: Request, next: Next) -> Response {
    let acting = ActingRequests::of(request.extensions());
    let answered = acting.spawn(acting.interruptible(next.run(request)));
    answered.await.unwrap_or_else(|error| unanswered(&error).into_response())
}

/// The error of a request whose task has panicked, or ends with the runtime.
pub(super) fn unanswered(error: &JoinError) -> Error {
    if error.is_panic() { Error::Defect } else { Error::Stopping }
}
