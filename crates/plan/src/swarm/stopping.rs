//! Services without tasks: the tasks of a Job run on when its service is removed, and those with data may be waited for, so both are
//! stopped before.

use driftless_model::{AppName, FITS_NO_NODE, ObservedService, label};
use serde_json::{Map, Value, json};

use super::{action::SwarmAction, ownership::workload_of, spec::OWNER};
use crate::{action::Action, cause::Cause, draft::Draft};

/// Stops all tasks of a service. `false`: its specification has none already. A service of `docker stack deploy` that may be adopted
/// is adopted with it: the agent has to start and remove it later.
pub(super) fn stop(draft: &mut Draft<'_>, found: &ObservedService, cause: &Cause) -> bool {
    let Some(spec) = stopped(&found.spec, &draft.facts.target.stack.app) else { return false };
    let name = found.spec.get("Name").and_then(Value::as_str).unwrap_or_default().to_owned();
    draft.plan.removed_from.insert(workload_of(&name, found));
    let action = SwarmAction::StopService { name, id: found.id.clone(), version: found.version, spec };
    draft.push(Action::Swarm(Box::new(action)), cause.clone(), Vec::new());
    true
}

/// The specification without any task. `None`: it is so already.
fn stopped(spec: &Value, app: &AppName) -> Option<Value> {
    let mut stopped = spec.clone();
    let mode = stopped.get_mut("Mode")?;
    if mode.get("ReplicatedJob").is_some() {
        *mode = json!({"ReplicatedJob": {"MaxConcurrent": 0, "TotalCompletions": 0}});
    } else if mode.get("Replicated").is_some() {
        *mode = json!({"Replicated": {"Replicas": 0}});
    } else {
        let task = stopped.get_mut("TaskTemplate")?.as_object_mut()?;
        let placement = task.entry("Placement").or_insert_with(|| Map::new().into());
        placement.as_object_mut()?.insert("Constraints".to_owned(), json!([FITS_NO_NODE]));
    }
    // It does nobody's work any more.
    let labels = stopped.as_object_mut()?.entry("Labels").or_insert(Value::Null);
    if labels.is_null() {
        *labels = Map::new().into();
    }
    let labels = labels.as_object_mut()?;
    labels.remove(label::JOB);
    labels.remove(label::SPEC);
    labels.insert(label::AGENT.to_owned(), OWNER.into());
    labels.insert(label::APPLICATION.to_owned(), app.as_str().into());
    (stopped != *spec).then_some(stopped)
}
