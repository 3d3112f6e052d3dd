//! The engine as the helper container of an update sees it: the two containers of the agent, by their ids.

use std::{path::PathBuf, time::Duration};

use bollard::{models as api, query_parameters as query};
use driftless_config::DockerHost;
use driftless_model::{ContainerId, label};

use crate::{
    call_error::tolerate,
    connection::Connection,
    crash_output::last_lines,
    deadline::{DEADLINE, within},
    error::Error,
    logs::{LogOptions, read_end},
    mount_paths::MountPaths,
    transport::Address,
};

/// The time beyond the grace period of a container that its stop may take.
const STOP: Duration = Duration::from_mins(2);

/// An update of the agent's own container: all that the helper container knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUpdate {
    /// The container of the agent before.
    pub old: ContainerId,
    /// The container that takes its place.
    pub new: ContainerId,
    /// The name that the running one has.
    pub name: String,
    /// The state directory.
    pub state: PathBuf,
    /// The socket of the engine.
    pub socket: String,
    /// The time in which the new agent must be ready.
    pub deadline: Duration,
}

impl AgentUpdate {
    /// The command that the helper container runs.
    pub const COMMAND: &str = "replace-agent";

    /// The words of the helper's command.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self { old, new, name, state, socket, deadline } = self;
        let deadline = deadline.as_secs().to_string();
        let values =
            [Self::COMMAND, old.as_str(), new.as_str(), name, &state.to_string_lossy(), socket, &deadline];
        values.map(str::to_owned).to_vec()
    }

    /// Reads the words after the name of the command; `None` if they are others.
    pub fn parse(words: &[String]) -> Option<Self> {
        let [old, new, name, state, socket, deadline] = words else { return None };
        Some(Self {
            old: ContainerId(old.clone()),
            new: ContainerId(new.clone()),
            name: name.clone(),
            state: PathBuf::from(state),
            socket: socket.clone(),
            deadline: Duration::from_secs(deadline.parse().ok()?),
        })
    }

    /// The name of the helper container.
    pub fn helper_name(name: &str) -> String {
        format!("{name}-update")
    }
}

/// A container of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentContainer {
    /// Its name.
    pub name: String,
    /// It was created and never started.
    pub is_new: bool,
    /// It runs, or the engine is about to restart it.
    pub is_up: bool,
    /// The engine's restarts since its start.
    pub restarts: i64,
    /// The exit code of its last run.
    pub exit_code: i64,
    /// The image that it was created from.
    pub image: String,
    /// The application that it belongs to.
    pub app: String,
    /// The hash of its specification.
    pub spec: String,
}

/// Calls about the containers of the agent. They are looked up by id; no label is needed, because the agent itself has named
/// them.
#[derive(Debug)]
pub struct AgentContainers {
    connection: Connection,
}

impl AgentContainers {
    /// Opens no connection yet.
    ///
    /// # Errors
    ///
    /// If the path of the socket cannot be used.
    pub fn new(socket: &str) -> Result<Self, Error> {
        let doing = "connect to the engine";
        let host = DockerHost { address: format!("unix://{socket}"), tls: None };
        let address =
            Address::parse(&host).map_err(|message| Error::Rejected { doing: doing.to_owned(), message })?;
        let connection = Connection::new(address, MountPaths::default());
        Ok(Self { connection: connection.map_err(|error| error.rejected(doing))? })
    }

    /// A container; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the engine does not answer.
    pub async fn find(&self, id: &str) -> Result<Option<AgentContainer>, Error> {
        let found = self.connection.find_container(id).await;
        let found = found.map_err(|error| error.classify("look at the agent's container"))?;
        Ok(found.map(described))
    }

    /// Stops a container with its own signal and grace period.
    ///
    /// # Errors
    ///
    /// If the engine does not stop it.
    pub async fn stop(&self, id: &ContainerId) -> Result<(), Error> {
        let options = None::<query::StopContainerOptions>;
        let stop = self.connection.docker().stop_container(id.as_str(), options);
        let stopped = self.connection.call(STOP, stop).await;
        tolerate(stopped, |error| matches!(error.code(), Some(304 | 404)))
            .map_err(|error| error.classify("stop the agent's container"))
    }

    /// Starts a container.
    ///
    /// # Errors
    ///
    /// If the engine does not start it.
    pub async fn start(&self, id: &ContainerId) -> Result<(), Error> {
        let options = None::<query::StartContainerOptions>;
        let start = self.connection.docker().start_container(id.as_str(), options);
        let started = self.connection.call(DEADLINE, start).await;
        tolerate(started, |error| error.code() == Some(304)).map_err(|error| match error.code() {
            Some(_) => error.rejected("start the agent's container"),
            None => error.classify("start the agent's container"),
        })
    }

    /// Renames a container.
    ///
    /// # Errors
    ///
    /// If another container has the name.
    pub async fn rename(&self, id: &ContainerId, name: &str) -> Result<(), Error> {
        let options = query::RenameContainerOptionsBuilder::new().name(name).build();
        let rename = self.connection.docker().rename_container(id.as_str(), options);
        let renamed = self.connection.call(DEADLINE, rename).await;
        tolerate(renamed, |error| error.contains(&["same name"]))
            .map_err(|error| error.classify("rename the agent's container"))
    }

    /// Removes a container, also one that runs. Its volumes stay.
    ///
    /// # Errors
    ///
    /// If the engine does not remove it.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        let options = query::RemoveContainerOptionsBuilder::new().force(true).build();
        let removal = self.connection.docker().remove_container(id, Some(options));
        let removed = self.connection.call(STOP, removal).await;
        tolerate(removed, |error| error.is_not_found() || error.contains(&["already in progress"]))
            .map_err(|error| error.classify("remove the agent's container"))
    }

    /// The last lines that a container has printed, after `: `; empty if there are none.
    pub async fn last_output(&self, id: &ContainerId) -> String {
        last_output(&self.connection, id).await
    }
}

fn described(found: api::ContainerInspectResponse) -> AgentContainer {
    let state = found.state.unwrap_or_default();
    let labels = found.config.as_ref().and_then(|config| config.labels.clone()).unwrap_or_default();
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    AgentContainer {
        name: found.name.unwrap_or_default().trim_start_matches('/').to_owned(),
        is_new: state.status == Some(api::ContainerStateStatusEnum::CREATED),
        is_up: state.running == Some(true) || state.restarting == Some(true),
        restarts: found.restart_count.unwrap_or_default(),
        exit_code: state.exit_code.unwrap_or_default(),
        image: found.config.as_ref().and_then(|config| config.image.clone()).unwrap_or_default(),
        app: label(label::APPLICATION),
        spec: label(label::SPEC),
    }
}

/// The last lines that a container has printed, after `: `; empty if there are none.
pub(crate) async fn last_output(connection: &Connection, id: &ContainerId) -> String {
    let options = LogOptions { tail: Some(3), ..LogOptions::default() };
    match within(DEADLINE, read_end(connection, id.as_str(), &options, false)).await {
        Ok(bytes) => {
            let lines = last_lines(&bytes).replace('\n', " / ");
            if lines.is_empty() { lines } else { format!(": {lines}") }
        }
        Err(error) => {
            tracing::debug!(%error, "could not read the end of a log");
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_helper_are_read_back() {
        let update = AgentUpdate {
            old: "a".into(),
            new: "b".into(),
            name: "agent".to_owned(),
            state: PathBuf::from("/var/lib/driftless"),
            socket: "/var/run/docker.sock".to_owned(),
            deadline: Duration::from_mins(10),
        };
        assert_eq!(AgentUpdate::parse(&update.words()[1..]), Some(update.clone()));
        assert_eq!(AgentUpdate::parse(&update.words()), None);
    }
}
