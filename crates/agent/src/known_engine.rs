//! The engine that the agent has deployed to: whether its data are those of before.
//!
//! An engine on an empty disk, or another one, has neither the containers nor the volumes that the state directory knows. If the
//! agent created them there, databases would begin empty, and what still runs on the former engine would run twice.

use std::sync::{Mutex, MutexGuard, PoisonError};

use driftless_model::{AppName, EngineData};
use driftless_store as store;
use driftless_store::Store;

use crate::error::chain;

/// The most applications that a sentence names.
const MOST_NAMES: usize = 3;

/// Whether the engine has other data than before, as all applications of the agent know it.
#[derive(Default)]
pub(crate) struct KnownEngine(Mutex<Option<OtherData>>);

/// Other data than those that the agent has deployed to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherData {
    id: String,
    /// A sentence about the data of before.
    lost: String,
}

impl KnownEngine {
    /// A sentence about the data of before, while the engine has others.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lock().as_ref().map(|other| other.lost.clone())
    }

    /// Compares the data that were observed with those that the agent has deployed to. Containers of this agent prove that they are
    /// the same with another id: the engine was repaired, or its containers were restored. True: the result is another one than
    /// before.
    pub(crate) fn compare(
        &self,
        store: &Store,
        found: &EngineData,
        has_own: bool,
    ) -> Result<bool, store::Error> {
        let before = store.engine_data_id()?;
        let is_same = before.as_deref() == Some(found.id.as_str());
        let mut other = None;
        if !is_same {
            let may_be_lost = before.is_some() && !has_own;
            let deployed = if may_be_lost { deployed_here(store)? } else { Vec::new() };
            if deployed.is_empty() {
                accept(store, found, before.as_deref());
            } else {
                other = Some(OtherData { id: found.id.clone(), lost: sentence(&deployed) });
            }
        }
        let mut known = self.lock();
        let has_changed = *known != other;
        if let Some(other) = other.as_ref().filter(|_| has_changed) {
            let before = before.as_deref().unwrap_or_default();
            tracing::error!(
                id = other.id,
                before,
                "the engine has other data than before: nothing is changed"
            );
        }
        *known = other;
        Ok(has_changed)
    }

    /// A user has confirmed that the agent deploys to the present data. Returns the sentence about those of before.
    pub(crate) fn confirm(&self, store: &Store) -> Result<Option<String>, store::Error> {
        let other = self.lock().clone();
        let Some(other) = other else { return Ok(None) };
        store.set_engine_data_id(&other.id)?;
        *self.lock() = None;
        Ok(Some(other.lost))
    }

    fn lock(&self) -> MutexGuard<'_, Option<OtherData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The deployed applications with containers on the engine itself. The services of a Swarm are not lost with its data.
fn deployed_here(store: &Store) -> Result<Vec<AppName>, store::Error> {
    let mut here = Vec::new();
    for app in store.deployed_applications()? {
        if store.record(&app)?.swarm.is_none() {
            here.push(app);
        }
    }
    Ok(here)
}

/// Notes the data that the agent deploys to. On a full disk, the next round does it again.
fn accept(store: &Store, found: &EngineData, before: Option<&str>) {
    if let Some(before) = before {
        tracing::info!(id = found.id, before, "the engine's data have another id than before");
    }
    if let Err(error) = store.set_engine_data_id(&found.id) {
        tracing::warn!(error = chain(&error), "could not store the id of the engine's data");
    }
}

fn sentence(deployed: &[AppName]) -> String {
    let (named, more) = deployed.split_at(deployed.len().min(MOST_NAMES));
    let named: Vec<&str> = named.iter().map(AppName::as_str).collect();
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!(
        "the engine is another one than before, or has lost its data: it has no container of {}{more}",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::tests::{context, new_revision},
        desired::tests::stack,
    };

    fn data(id: &str) -> EngineData {
        EngineData { id: id.to_owned(), has_own: false }
    }

    #[test]
    fn data_of_deployed_applications_are_missed_until_confirmed() {
        let (context, _folder) = context();
        let (store, engine) = (context.store(), KnownEngine::default());
        let stored = || store.engine_data_id().unwrap();
        let compare = |id: &str, has_own: bool| engine.compare(store, &data(id), has_own).unwrap();
        // As at the first start, and at the first one after an upgrade.
        assert!(!compare("one", false));
        assert_eq!(stored().as_deref(), Some("one"));
        // Nothing was deployed yet.
        assert!(!compare("two", false));
        assert_eq!((stored().as_deref(), engine.lost()), (Some("two"), None));

        store.remember_application(context.name(), &serde_json::json!({}), "infra").unwrap();
        store.begin_revision(&new_revision(context.name()), &stack("one")).unwrap();
        assert!(compare("three", false));
        assert!(!compare("three", false), "that is known");
        let lost = engine.lost().unwrap();
        assert!(lost.ends_with("no container of shop"), "{lost}");
        assert_eq!(stored().as_deref(), Some("two"));
        // The disk is mounted again.
        assert!(compare("two", false));
        assert_eq!(engine.lost(), None);

        assert!(compare("three", false));
        assert_eq!(engine.confirm(store).unwrap(), Some(lost));
        assert_eq!((stored().as_deref(), engine.confirm(store).unwrap()), (Some("three"), None));
        assert!(!compare("three", false));
        // The containers are there.
        assert!(!compare("four", true));
        assert_eq!((stored().as_deref(), engine.lost()), (Some("four"), None));
    }

    #[test]
    fn only_some_of_many_applications_are_named() {
        let apps: Vec<AppName> = ["a", "b", "c", "d", "e"].map(AppName::from).to_vec();
        assert!(sentence(&apps).ends_with("no container of a, b, c and 2 more"));
    }
}
