//! A trial of a definition: a container under another name that is never started and is removed at once. The engine refuses many
//! settings only when it creates a container, and then the running one that makes way would be gone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_model::{AgentId, MountSource, label};
use driftless_plan::{Creation, RequiredSignature};
use http::Method;
use serde_json::json;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use super::stand_in;
use crate::{
    call_error::CallError,
    connection::Connection,
    container_list::may_be_trial,
    deadline::{DEADLINE, within},
    percent_encoding,
};

/// The pauses after which a trial is removed that the engine may have created late, or could not remove. An overloaded engine
/// takes minutes.
const LATE_REMOVALS: [Duration; 7] = [
    Duration::from_mins(1),
    Duration::from_mins(1),
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_mins(5),
    Duration::from_mins(20),
    Duration::from_mins(30),
];

/// The definition of the trial of another one. It gets no data of the running container, writes none to its volumes, and makes no
/// volume for its own mounts. The engine makes one where the image declares it and no mount is left; it is removed with the trial.
pub(super) fn of(creation: &Creation) -> Creation {
    let mut trial = creation.clone();
    trial.name = format!("{}-trial", creation.name);
    trial.inherit.clear();
    // Nothing of the image runs. The plan may pull or verify it later, so its user and its signature say nothing yet.
    trial.signature = RequiredSignature::None;
    if trial.container.host.non_root {
        trial.container.host.non_root = false;
    }
    trial
        .container
        .mounts
        .retain(|mount| !matches!(mount.source, MountSource::Anonymous | MountSource::Empty));
    for mount in &mut trial.container.mounts {
        if let MountSource::Volume { name: _, no_copy } = &mut mount.source {
            *no_copy = true;
        }
    }
    trial
}

/// Leaves out the mounts of volumes that do not exist yet: the plan may create them, and the engine would make empty ones.
pub(super) fn leave_out(trial: &mut Creation, volumes: &BTreeSet<String>) {
    trial.container.mounts.retain(
        |mount| !matches!(&mount.source, MountSource::Volume { name, no_copy: _ } if volumes.contains(name)),
    );
}

/// Removes a trial by its id or name, with the volumes that the engine made for it. A container without the label of one stays,
/// and its name is an error.
pub(super) async fn remove(connection: &Connection, reference: &str) -> Result<(), CallError> {
    stand_in::remove_marked(connection, reference, label::TRIAL).await
}

/// The trials that may appear after their call has failed or was dropped, or that could not be removed. They would keep volumes from being
/// removed.
#[derive(Debug, Default)]
pub(super) struct LateTrials(Mutex<JoinSet<()>>);

impl LateTrials {
    /// Removes a trial after each of some pauses. Dropping these trials, or the handle's abort, ends that.
    pub(super) fn remove_later(&self, connection: &Arc<Connection>, name: String) -> AbortHandle {
        let connection = Arc::clone(connection);
        let mut removals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while removals.try_join_next().is_some() {}
        removals.spawn(async move {
            for pause in LATE_REMOVALS {
                sleep(pause).await;
                if let Err(error) = remove(&connection, &name).await {
                    tracing::debug!(%error, name, "could not remove the trial of a definition");
                }
            }
        })
    }
}

/// Removes the trials that a killed process of an agent has left. One that cannot be removed does not keep the others.
pub(super) async fn remove_left(connection: &Connection, agent: &AgentId) -> Result<(), CallError> {
    #[derive(serde::Deserialize)]
    struct Left {
        #[serde(rename = "Id")]
        id: String,
        #[serde(rename = "State", default)]
        state: String,
    }
    connection.api_version().await?;
    let label = format!("{}={agent}", label::TRIAL);
    // Podman refuses to filter by some of the states.
    let filters = json!({ "label": [label] }).to_string();
    let path = format!("/containers/json?all=1&filters={}", percent_encoding::encode(&filters));
    let request = connection.transport().send_json::<Vec<Left>>(Method::GET, &path, Vec::new());
    let mut removed = Ok(());
    let left = within(DEADLINE, request).await?;
    for Left { id, .. } in left.iter().filter(|found| may_be_trial(&found.state)) {
        removed = removed.and(remove(connection, id).await);
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use driftless_model::{Container, Format, InstanceId, Mount, SpecHash};

    use super::*;

    #[test]
    fn trial_touches_no_data_of_the_running_container() {
        let volume = |name: &str, no_copy| MountSource::Volume { name: name.to_owned(), no_copy };
        let mount = |target: &str, source| Mount { target: target.to_owned(), source, read_only: false };
        let mounts = vec![
            mount("/data", volume("shop_data", false)),
            mount("/new", volume("shop_new", false)),
            mount("/tmp", MountSource::Empty),
        ];
        let mut creation = Creation {
            app: "shop".into(),
            agent: "ours".into(),
            format: Format::Compose,
            project: "shop".to_owned(),
            instance: InstanceId { workload: "db".into(), slot: 1 },
            name: "shop-db-1".to_owned(),
            container: Container { mounts, ..Container::default() },
            image: None,
            made_image: None,
            signature: RequiredSignature::Unverified,
            spec: SpecHash::default(),
            inherit: BTreeMap::from([("/cache".to_owned(), "anonymous".to_owned())]),
            peers: BTreeMap::new(),
            part: None,
            manifests: Vec::new(),
            depends_on: Vec::new(),
        };
        creation.container.host.non_root = true;
        let mut trial = of(&creation);
        assert_eq!((trial.name.as_str(), trial.inherit.len()), ("shop-db-1-trial", 0));
        leave_out(&mut trial, &BTreeSet::from(["shop_new".to_owned()]));
        assert_eq!(trial.container.mounts, [mount("/data", volume("shop_data", true))]);
        assert!(trial.signature.is_none() && !trial.container.host.non_root);
    }
}
