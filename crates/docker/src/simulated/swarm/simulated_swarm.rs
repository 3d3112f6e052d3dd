//! The Swarm in memory as tests see it, and as its managers ask it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driftless_clock::Clock;
use driftless_model::Timestamp;
use http::Method;
use serde_json::Value;
use tokio::sync::broadcast;

use super::{
    cluster::{Cluster, EndedTask},
    node::{ClusterNode, Outage},
    swarm_faults::SwarmFaults,
};
use crate::{call_error::CallError, docker::EngineEvent, error::Error};

/// A Swarm in memory. Hosts become its managers with [`super::super::SimulatedEngine::join`].
#[derive(Clone, Debug)]
pub struct SimulatedSwarm {
    clock: Clock,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    cluster: Cluster,
    writes: Vec<SwarmWrite>,
    /// The events of the hosts that are managers.
    managers: Vec<broadcast::Sender<EngineEvent>>,
}

/// A call that has changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmWrite {
    pub at: Timestamp,
    /// The name of the node that was asked. `None`: a user, without the agent.
    pub by: Option<String>,
    /// Whether that node was the leader.
    pub was_leader: bool,
    /// The method, and the path without the query.
    pub call: String,
    /// The body of the call.
    pub body: Value,
}

impl SimulatedSwarm {
    /// A Swarm of managers with these names, of which the first one leads.
    pub fn new(clock: Clock, managers: &[&str]) -> Self {
        let swarm = Self { clock, shared: Arc::default() };
        {
            let cluster = &mut swarm.lock().cluster;
            cluster.now = clock.now();
            for name in managers {
                let node = ClusterNode::new_manager(name, cluster.next_index());
                cluster.leader.get_or_insert_with(|| node.id.clone());
                cluster.nodes.insert(node.id.clone(), node);
            }
        }
        swarm
    }

    /// Changes what goes wrong with tasks.
    pub fn faults(&self, change: impl FnOnce(&mut SwarmFaults)) {
        change(&mut self.change().cluster.faults);
    }

    /// A machine or its link fails.
    pub fn fail(&self, node: &str, outage: Outage) {
        self.change().cluster.fail(node, outage);
    }

    /// The machine or its link is back.
    pub fn restore(&self, node: &str) {
        self.change().cluster.restore(node);
    }

    /// A node leaves the Swarm for good.
    pub fn remove_node(&self, node: &str) {
        self.change().cluster.remove_node(node);
    }

    /// Sets the availability of a node: `active`, `pause` or `drain`.
    pub fn set_availability(&self, node: &str, availability: &str) {
        let mut shared = self.change();
        let version = shared.cluster.next_index();
        if let Some(found) = shared.cluster.nodes.values_mut().find(|found| found.name == node) {
            availability.clone_into(&mut found.availability);
            found.version = version;
        }
    }

    /// Another manager becomes the leader, as after a demotion of the present one.
    pub fn lead(&self, node: &str) {
        let cluster = &mut self.change().cluster;
        let found = cluster.nodes.values().find(|found| found.name == node).map(|found| found.id.clone());
        cluster.leader = found.or(cluster.leader.take());
        cluster.begin_to_lead();
    }

    /// The name of the leader.
    pub fn leader(&self) -> Option<String> {
        let shared = self.present();
        let leader = shared.cluster.leader()?;
        shared.cluster.nodes.get(leader).map(|node| node.name.clone())
    }

    /// A call of a user, without the agent. The body is JSON.
    ///
    /// # Errors
    ///
    /// If the Swarm refuses it.
    pub fn user_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
        let doing = format!("{method} {path}");
        let leader = self.leader().unwrap_or_default();
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|error| Error::Rejected { doing: doing.clone(), message: error.to_string() })?;
        self.answer(None, &leader, &method, path, body).map_err(|error| error.classify(&doing))
    }

    /// All calls that have changed something, in order.
    pub fn writes(&self) -> Vec<SwarmWrite> {
        self.lock().writes.clone()
    }

    /// The tasks that have ended by themselves, in order.
    pub fn ended(&self) -> Vec<EndedTask> {
        self.present().cluster.ended.clone()
    }

    /// An agent's call to the node of its engine.
    pub(in crate::simulated) fn call(
        &self,
        node: &str,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Result<Value, CallError> {
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(body).map_err(|error| CallError::unreachable(&error))?
        };
        self.answer(Some(node), node, method, path, &body)
    }

    /// From now on a host with these events reports changes.
    pub(in crate::simulated) fn report_to(&self, events: broadcast::Sender<EngineEvent>) {
        self.lock().managers.push(events);
    }

    fn answer(
        &self,
        by: Option<&str>,
        node: &str,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, CallError> {
        let (answer, managers, now) = {
            let is_read = method == Method::GET;
            let mut shared = if is_read { self.present() } else { self.change() };
            let was_leader = {
                let cluster = &shared.cluster;
                let leader = cluster.leader().and_then(|leader| cluster.nodes.get(leader));
                leader.is_some_and(|leader| leader.name == node)
            };
            let answer = shared.cluster.answer(node, method, path, body)?;
            if is_read {
                return Ok(answer);
            }
            let now = self.clock.now();
            shared.cluster.advance(now);
            let path = path.split('?').next().unwrap_or_default();
            let write = SwarmWrite {
                at: now,
                by: by.map(str::to_owned),
                was_leader,
                call: format!("{method} {path}"),
                body: body.clone(),
            };
            shared.writes.push(write);
            (answer, shared.managers.clone(), now)
        };
        for events in managers {
            // It fails if there is no receiver, which is no fault.
            let _ = events.send(EngineEvent::ObjectChanged {
                app: None,
                kind: "service".to_owned(),
                name: path.to_owned(),
                action: "update".to_owned(),
                at: Some(now),
            });
        }
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state after all that has happened by now.
    fn present(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.lock();
        shared.cluster.advance(self.clock.now());
        shared
    }

    /// The same for somebody who changes it.
    fn change(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.present();
        shared.cluster.disturb();
        shared
    }
}
