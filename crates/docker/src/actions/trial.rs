//! A trial of a definition: a container under another name that is never started and is removed at once. The engine refuses many
//! settings only when it creates a container, and then the running one that makes way would be gone.

use driftless_model::{AgentId, MountSource, label};
use driftless_plan::{Creation, RequiredSignature};
use http::Method;
use serde_json::json;

use super::stand_in;
use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    percent_encoding,
};

/// The definition of the trial of another one. It gets no data of the running container, and writes none to its volumes.
pub(super) fn of(creation: &Creation) -> Creation {
    let mut trial = creation.clone();
    trial.name = format!("{}-trial", creation.name);
    trial.inherit.clear();
    // Nothing of the image runs. The plan may pull or verify it later, so its user and its signature say nothing yet.
    trial.signature = RequiredSignature::None;
    if trial.container.host.non_root {
        trial.container.host.non_root = false;
    }
    for mount in &mut trial.container.mounts {
        if let MountSource::Volume { name: _, no_copy } = &mut mount.source {
            *no_copy = true;
        }
    }
    trial
}

/// Removes a trial by its id or name, with the volumes that the engine made for it. A container without the label of one stays,
/// and its name is an error.
pub(super) async fn remove(connection: &Connection, reference: &str) -> Result<(), CallError> {
    stand_in::remove_marked(connection, reference, label::TRIAL).await
}

/// Removes the trials that a killed process of an agent has left.
pub(super) async fn remove_left(connection: &Connection, agent: &AgentId) -> Result<(), CallError> {
    #[derive(serde::Deserialize)]
    struct Left {
        #[serde(rename = "Id")]
        id: String,
    }
    connection.api_version().await?;
    let filters = json!({ "label": [format!("{}={agent}", label::TRIAL)] }).to_string();
    let path = format!("/containers/json?all=1&filters={}", percent_encoding::encode(&filters));
    let request = connection.transport().send_json::<Vec<Left>>(Method::GET, &path, Vec::new());
    for Left { id } in within(DEADLINE, request).await? {
        remove(connection, &id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use driftless_model::{Container, Format, InstanceId, Mount, SpecHash};

    use super::*;

    #[test]
    fn trial_touches_no_data_of_the_running_container() {
        let source = MountSource::Volume { name: "shop_data".to_owned(), no_copy: false };
        let mount = Mount { target: "/data".to_owned(), source, read_only: false };
        let mut creation = Creation {
            app: "shop".into(),
            agent: "ours".into(),
            format: Format::Compose,
            project: "shop".to_owned(),
            instance: InstanceId { workload: "db".into(), slot: 1 },
            name: "shop-db-1".to_owned(),
            container: Container { mounts: vec![mount], ..Container::default() },
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
        let trial = of(&creation);
        assert_eq!((trial.name.as_str(), trial.inherit.len()), ("shop-db-1-trial", 0));
        let source = MountSource::Volume { name: "shop_data".to_owned(), no_copy: true };
        assert_eq!(trial.container.mounts[0].source, source);
        assert!(trial.signature.is_none() && !trial.container.host.non_root);
    }
}
