//! A loss of state. If the database was lost or damaged, a pin or a suspension may be lost with it, and no new commit is applied. If
//! the engine has lost its data, or is another one, nothing is changed at all. Either ends when a user confirms the loss with
//! `driftless recover`; the second one also when the data are back.

use driftless_model::{Adopted, AppName, EngineKind, EventKind, Instance, Observed};
use driftless_store as store;
use driftless_store::Store;

use crate::{context::AppContext, known_engine::KnownEngine};

/// State that was lost, with a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Pins or suspensions may be lost.
    Records(String),
    /// The engine does not have the containers and volumes.
    EngineData(String),
}

impl Loss {
    /// The present loss, until a user has confirmed it.
    pub(crate) fn current(store: &Store, engine: &KnownEngine) -> Result<Option<Self>, store::Error> {
        match engine.lost() {
            Some(what) => Ok(Some(Self::EngineData(what))),
            None => Ok(store.loss()?.map(Self::Records)),
        }
    }

    /// Whether nothing may be changed.
    pub(crate) fn is_of_engine(&self) -> bool {
        matches!(self, Self::EngineData(_))
    }

    /// The loss as the whole agent reports it.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Records(what) => {
                format!("state was lost, and no new commit is applied until `driftless recover`: {what}")
            }
            Self::EngineData(what) => format!("{what}; nothing is changed until `driftless recover`"),
        }
    }

    /// The loss as an application reports it.
    pub(crate) fn message(&self, app: &AppName, has_revisions: bool) -> String {
        let advice = self.advice(app, has_revisions);
        match self {
            Self::Records(what) => format!("{advice}: {what}"),
            Self::EngineData(what) => format!("{what}; {advice}"),
        }
    }

    /// The behaviour of an application, and how a user ends it. Without a revision there is nothing to roll back to.
    pub(crate) fn advice(&self, app: &AppName, has_revisions: bool) -> String {
        if self.is_of_engine() {
            return "nothing is changed: mount the disk of its data or set `docker` back; or stop what runs on the former engine, \
                    restore the volumes here, then run `driftless recover`"
                .to_owned();
        }
        let rollback = if has_revisions { format!("`driftless rollback {app}` or ") } else { String::new() };
        format!(
            "pins and suspensions may be lost, so no new commit is applied: set them again with {rollback}`driftless suspend {app}`, then run `driftless recover`"
        )
    }
}

/// Whether the engine has the data that the agent has deployed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineCheck {
    Same,
    /// It did not have them when the round began: the target must be chosen again.
    SameAgain,
    /// It has others: nothing may be changed.
    Other,
}

/// Whether state was lost, as one application knows it.
#[derive(Default)]
pub(crate) struct StateLoss {
    /// The loss, until a user has confirmed it.
    lost: Option<Loss>,
    /// The engine was observed since the start.
    was_observed: bool,
}

impl StateLoss {
    /// The loss, if state was lost.
    pub(crate) fn lost(&self) -> Option<&Loss> {
        self.lost.as_ref()
    }

    /// Reads whether state of an application on such an engine was lost, and reports it once. The services of a Swarm are not lost with
    /// the data of the host's own engine.
    pub(crate) fn read(&mut self, context: &AppContext, engine: EngineKind) -> Result<(), store::Error> {
        let lost = match engine {
            EngineKind::Docker => Loss::current(context.store(), context.engine())?,
            EngineKind::Swarm => context.store().loss()?.map(Loss::Records),
        };
        let name = context.name();
        let is_new = |loss: &&Loss| {
            self.lost.as_ref().is_none_or(|before| before.is_of_engine() != loss.is_of_engine())
        };
        if let Some(loss) = lost.as_ref().filter(is_new) {
            tracing::warn!(app = %name, "{}", loss.sentence());
            let has_revisions = context.store().current(name)?.is_some();
            let message = loss.message(name, has_revisions);
            context.event(EventKind::Warning, "StateLost", name.as_str(), &message);
        } else if let (Some(before), None) = (&self.lost, &lost) {
            let message = match before {
                Loss::Records(_) => "new commits are applied again",
                Loss::EngineData(_) => "the application is deployed again",
            };
            context.event(EventKind::Normal, "Recovered", name.as_str(), message);
        }
        self.lost = lost;
        Ok(())
    }

    /// Compares the engine with the one that the agent has deployed to. The services of a Swarm are not the engine's own.
    pub(crate) fn check_engine(
        &mut self,
        context: &AppContext,
        engine: EngineKind,
        observed: &Observed,
    ) -> Result<EngineCheck, store::Error> {
        if engine == EngineKind::Swarm {
            return Ok(EngineCheck::Same);
        }
        let was_lost = self.lost.as_ref().is_some_and(Loss::is_of_engine);
        if let Some(found) = &observed.engine_data {
            // Adopted containers, too.
            let is_own = |instance: &Instance| instance.agent == *context.agent();
            let has_own = found.has_own || observed.instances.values().any(is_own);
            if context.engine().compare(context.store(), found, has_own)? {
                // The other applications and `/readyz` report it, too.
                context.wake_all();
            }
        }
        if context.engine().lost().is_some() {
            self.read(context, engine)?;
            return Ok(EngineCheck::Other);
        }
        Ok(if was_lost { EngineCheck::SameAgain } else { EngineCheck::Same })
    }

    /// Detects a loss in the first observation: the agent has containers of an application of which the state directory
    /// knows neither a revision (a suspended one may have none) nor that a user has confirmed the loss. An adopted container is
    /// the agent's because the state directory says so. True: the target must be chosen again.
    pub(crate) fn detect(
        &mut self,
        context: &AppContext,
        is_known: bool,
        adopted: &Adopted,
        observed: &Observed,
    ) -> Result<bool, store::Error> {
        let was_observed = std::mem::replace(&mut self.was_observed, true);
        // The services of a Swarm may be the work of the agent on another manager.
        let is_shared = observed.swarm.is_some();
        if is_known || is_shared || was_observed || context.ownership().is_confirmed() || self.lost.is_some()
        {
            return Ok(false);
        }
        let is_own = |instance: &&Instance| {
            instance.agent == *context.agent() && !adopted.containers.contains_key(&instance.id)
        };
        let Some(found) = observed.instances.values().find(is_own) else {
            return Ok(false);
        };
        if context.store().is_loss_confirmed()? {
            return Ok(false);
        }
        let what = format!("the state directory knows nothing of the container {}", found.name);
        context.store().note_loss(&what)?;
        // The other applications and `/readyz` report it, too.
        context.wake_all();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use driftless_model::{EngineData, Record};

    use super::*;
    use crate::{context::tests::new_revision, desired::tests::stack};

    #[test]
    fn services_of_a_swarm_are_not_missed() {
        let (context, _folder) = crate::context::tests::context();
        let (store, engine, app) = (context.store(), context.engine(), context.name());
        let compare = |id: &str| {
            let found = EngineData { id: id.to_owned(), has_own: false };
            engine.compare(store, &found, false).unwrap()
        };
        store.remember_application(app, &serde_json::json!({}), "infra").unwrap();
        store.begin_revision(&new_revision(app), &stack("one")).unwrap();
        store.set_engine_data_id("one").unwrap();
        let on_swarm = Record { swarm: Some(Box::default()), ..Record::default() };
        store.save_record(app, &on_swarm).unwrap();
        assert!(!compare("two"));
        assert_eq!(store.engine_data_id().unwrap().as_deref(), Some("two"));

        // Nor do they stop for what another application has lost.
        store.save_record(app, &Record::default()).unwrap();
        assert!(compare("three"));
        let mut loss = StateLoss::default();
        loss.read(&context, EngineKind::Swarm).unwrap();
        assert_eq!(loss.lost(), None);
        let observed = Observed::default();
        assert_eq!(loss.check_engine(&context, EngineKind::Swarm, &observed).unwrap(), EngineCheck::Same);
        assert_eq!(loss.check_engine(&context, EngineKind::Docker, &observed).unwrap(), EngineCheck::Other);
        assert!(loss.lost().is_some_and(Loss::is_of_engine));
    }
}
