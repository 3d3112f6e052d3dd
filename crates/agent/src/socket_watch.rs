//! Ends an agent in a container when the engine has removed its socket.
//!
//! The container still mounts the old one, so no waiting helps. The containers run on. When the engine runs, the restart policy starts the
//! agent again, and its container then mounts the new socket.

use driftless_config::DockerHost;
use driftless_docker::removed_socket;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::lasting_tasks;

/// Starts the task that cancels `stop` when the agent can never reach the engine again. The process then ends with an error.
pub(crate) fn start_socket_watch(host: &DockerHost, stop: &CancellationToken, tasks: &TaskTracker) {
    let (host, stop) = (host.clone(), stop.clone());
    lasting_tasks::start("socket", (stop.clone(), tasks), async move {
        let socket = tokio::select! {
            () = stop.cancelled() => return,
            socket = removed_socket(&host) => socket,
        };
        tracing::error!(
            socket = %socket.display(),
            "the engine has removed the socket that the agent's container mounts, so the agent ends: when the engine runs, the restart \
             policy starts the container with the new socket; without one, start it again with `docker start`"
        );
        stop.cancel();
    });
}
