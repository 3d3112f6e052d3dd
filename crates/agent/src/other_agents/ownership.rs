//! The owner of the containers on the engine: this agent, one that no longer runs, or another that runs.
//!
//! An agent whose state directory was lost has a new id, so the containers that run seem to be another agent's. If no
//! agent with that id lives and the containers run exactly what Git says, they are taken over. In any other case
//! no further container is started.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Mutex as TurnMutex, MutexGuard as Turn, mpsc, watch};
use tokio_util::sync::CancellationToken;

use driftless_model::{AgentId, Observed, Stack};
use driftless_plan::is_in_force;

use crate::known_engine::KnownEngine;

/// Knowledge about the agents on the engine, and whether it is the one of before.
pub(crate) struct Ownership {
    own: watch::Sender<Own>,
    engine: KnownEngine,
    questions: mpsc::UnboundedSender<AgentId>,
    others: Mutex<BTreeMap<AgentId, Other>>,
    /// Somebody has confirmed a loss of state in this life of the agent.
    is_confirmed: AtomicBool,
    /// Held while claims are made, so that each id has one claim at a time.
    claiming: TurnMutex<()>,
}

/// The agent's own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Not claimed yet: nothing is changed.
    Unclaimed,
    Held,
    /// Another agent with this id lives on the engine.
    Refused,
}

/// An agent whose containers were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// Whether it lives is being found out.
    Asked,
    Living,
    /// It does not run what Git says, so only a user knows whose containers these are.
    Unclear,
}

impl Ownership {
    pub(crate) fn new(living: BTreeSet<AgentId>) -> (Self, mpsc::UnboundedReceiver<AgentId>) {
        let (questions, asked) = mpsc::unbounded_channel();
        let others = living.into_iter().map(|agent| (agent, Other::Living)).collect();
        let is_confirmed = AtomicBool::new(false);
        let (own, _) = watch::channel(Own::Unclaimed);
        let claiming = TurnMutex::default();
        let engine = KnownEngine::default();
        (Self { own, engine, questions, others: Mutex::new(others), is_confirmed, claiming }, asked)
    }

    /// Whether the engine has the data that the agent has deployed to.
    pub(crate) fn engine(&self) -> &KnownEngine {
        &self.engine
    }

    pub(crate) fn own(&self) -> Own {
        *self.own.borrow()
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_own(&self, own: Own) {
        self.own.send_replace(own);
    }

    /// A user has confirmed a loss of state.
    pub(crate) fn confirm(&self) {
        self.is_confirmed.store(true, Ordering::Relaxed);
    }

    /// Waits for the turn to claim ids.
    pub(crate) async fn turn(&self) -> Turn<'_, ()> {
        self.claiming.lock().await
    }

    /// Waits until the agent's id is claimed, or until `interrupt`.
    pub(crate) async fn claimed(&self, interrupt: &CancellationToken) {
        let mut own = self.own.subscribe();
        tokio::select! {
            () = interrupt.cancelled() => {}
            _ = own.wait_for(|own| *own != Own::Unclaimed) => {}
        }
    }

    pub(crate) fn other(&self, agent: &AgentId) -> Option<Other> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).get(agent).copied()
    }

    pub(crate) fn others(&self) -> Vec<AgentId> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(crate) fn set(&self, agent: &AgentId, other: Option<Other>) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        match other {
            Some(other) => drop(others.insert(agent.clone(), other)),
            None => drop(others.remove(agent)),
        }
    }

    fn ask(&self, agent: &AgentId) {
        self.set(agent, Some(Other::Asked));
        // The receiver lives as long as the agent does.
        let _ = self.questions.send(agent.clone());
    }

    pub(crate) fn other_owner(&self, own: &AgentId, stack: &Stack, observed: &Observed) -> Option<String> {
        if self.own() == Own::Refused {
            return Some(format!(
                "another agent with the id {own} lives on this engine: stop it, or give this agent a state directory of its own, then run `driftless recover`"
            ));
        }
        let instances = || observed.instances.values();
        let foreign = instances().filter(|instance| instance.agent != *own);
        let foreign: BTreeMap<&AgentId, &str> =
            foreign.map(|instance| (&instance.agent, instance.name.as_str())).collect();
        let has_own = instances().any(|instance| instance.agent == *own);
        let mut reason = None;
        for (agent, container) in foreign {
            let is_same = || is_in_force(stack, observed, agent);
            let why = match self.other(agent) {
                Some(Other::Living) => {
                    "which lives on this engine: stop one of the two, then run `driftless recover`"
                }
                Some(Other::Asked) => "and the agent finds out whether that one still runs",
                Some(Other::Unclear) | None if !has_own && is_same() => {
                    self.ask(agent);
                    "and the agent finds out whether that one still runs"
                }
                Some(Other::Unclear) | None => {
                    self.set(agent, Some(Other::Unclear));
                    "and it does not run what Git says: run `driftless recover` to take its containers over"
                }
            };
            reason.get_or_insert_with(|| format!("container {container} belongs to agent {agent}, {why}"));
        }
        // With containers of its own, an agent may have an application of the same name as another agent.
        reason.filter(|_| !has_own)
    }
}
