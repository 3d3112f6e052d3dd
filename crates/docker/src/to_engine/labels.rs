//! Labels of the agent and of Docker Compose.
#![expect(clippy::disallowed_types, reason = "the engine's types contain hash maps")]

use std::collections::HashMap;

use driftless_model::{AgentId, AppName, Format, PartOf, SpecHash, UnreportedSettings, label};
use driftless_plan::Creation;

use super::values::hash_map;

/// The label with what the engine does not store.
pub(super) fn asked_text(asked: &UnreportedSettings) -> String {
    serde_json::to_string(asked).expect("strings and maps of strings serialize")
}

/// All labels of a container: those of its specification, those of the agent, and those of Docker Compose.
pub(super) fn container_labels(creation: &Creation) -> HashMap<String, String> {
    let Creation {
        app,
        agent,
        format,
        project,
        instance,
        name: _,
        container,
        image: _,
        made_image: _,
        signature: _,
        spec,
        inherit: _,
        peers: _,
        part,
        manifests,
        depends_on,
    } = creation;
    let mut all = hash_map(&container.labels);
    if *format == Format::Compose {
        let folder = manifests.first().and_then(|it| it.rsplit_once('/')).map_or(".", |(folder, _)| folder);
        all.extend(
            [
                (label::compose::PROJECT, project.clone()),
                (label::compose::SERVICE, instance.workload.to_string()),
                (label::compose::CONTAINER_NUMBER, instance.slot.to_string()),
                (label::compose::ONEOFF, "False".to_owned()),
                (label::compose::CONFIG_HASH, spec.0.clone()),
                (label::compose::CONFIG_FILES, manifests.join(",")),
                (label::compose::WORKING_DIR, folder.to_owned()),
                (label::compose::DEPENDS_ON, depends_on.join(",")),
                (label::compose::VERSION, created_by()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    all.extend(owner_labels(app, agent, spec));
    all.insert(label::WORKLOAD.to_owned(), instance.workload.whole().to_string());
    all.insert(label::SLOT.to_owned(), instance.slot.to_string());
    if let Some(PartOf { pod, name, role, downward: _ }) = part {
        all.insert(label::POD.to_owned(), pod.to_string());
        all.insert(label::PART.to_owned(), name.clone());
        all.insert(label::ROLE.to_owned(), role.as_str().to_owned());
    }
    if let Some(asked) = UnreportedSettings::of(container) {
        all.insert(label::ASKED.to_owned(), asked_text(&asked));
    }
    all
}

pub(super) fn owner_labels(app: &AppName, agent: &AgentId, spec: &SpecHash) -> HashMap<String, String> {
    [(label::AGENT, agent.as_str()), (label::APPLICATION, app.as_str()), (label::SPEC, spec.0.as_str())]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The labels of Docker Compose for a network or volume.
pub(super) fn compose_labels(project: &str, key: &str, kind: &str) -> HashMap<String, String> {
    [
        (label::compose::PROJECT, project.to_owned()),
        (kind, key.to_owned()),
        (label::compose::VERSION, created_by()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn created_by() -> String {
    concat!("driftless-", env!("CARGO_PKG_VERSION")).to_owned()
}
