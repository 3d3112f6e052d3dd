//! Nodes that fail, drain and leave, and the leader of the managers.

use std::time::Duration;

use driftless_model::Timestamp;

use super::{
    cluster::Cluster,
    node::{ClusterNode, Outage},
};

/// The time after which managers call a node `down` that does not answer: three heartbeats.
const DOWN: Duration = Duration::from_secs(15);
/// The time after which managers choose another leader.
const ELECTION: Duration = Duration::from_secs(3);

impl Cluster {
    /// The leader, if most managers reach each other.
    pub(super) fn leader(&self) -> Option<&str> {
        let leader = self.leader.as_deref()?;
        let reachable = self.nodes.get(leader).is_some_and(ClusterNode::is_reachable);
        (reachable && self.has_quorum()).then_some(leader)
    }

    pub(super) fn has_quorum(&self) -> bool {
        let managers = self.nodes.values().filter(|node| node.is_manager);
        let reachable = managers.clone().filter(|node| node.is_reachable()).count();
        reachable * 2 > managers.count()
    }

    /// Managers notice nodes that do not answer, and choose another leader in the place of one that does not.
    pub(super) fn watch_nodes(&mut self) -> bool {
        let (now, mut changed) = (self.now, false);
        let has_leader = self.leader().is_some();
        for node in self.nodes.values_mut() {
            let is_down = node.outage.is_some_and(|(_, since)| since.after(DOWN) <= now);
            if has_leader && is_down && !node.is_down {
                (node.is_down, changed) = (true, true);
            }
        }
        if !has_leader && self.has_quorum() && self.election().is_none_or(|at| at <= now) {
            let next = self.nodes.values().find(|node| node.is_manager && node.is_reachable());
            self.leader = next.map(|node| node.id.clone());
            self.begin_to_lead();
            changed = true;
        }
        changed
    }

    /// Another manager begins each rollout again where it is, and counts the tasks of Jobs.
    pub(super) fn begin_to_lead(&mut self) {
        for service in self.services.values_mut() {
            service.rollout = None;
            service.runs.is_uncounted = true;
        }
    }

    /// When the managers choose another leader.
    fn election(&self) -> Option<Timestamp> {
        let lost = self.leader.as_ref().and_then(|leader| self.nodes.get(leader))?;
        lost.outage.map(|(_, since)| since.after(ELECTION))
    }

    /// When something happens to nodes by itself.
    pub(super) fn nodes_due(&self) -> impl Iterator<Item = Timestamp> + '_ {
        let lost = self.nodes.values().filter(|node| !node.is_down);
        let down = lost.filter_map(|node| node.outage.map(|(_, since)| since.after(DOWN)));
        down.chain(self.election())
    }

    /// A machine or its link fails.
    pub(super) fn fail(&mut self, name: &str, outage: Outage) {
        let now = self.now;
        if let Some(node) = self.nodes.values_mut().find(|node| node.name == name) {
            node.outage = Some((outage, now));
        }
    }

    /// The machine is back, or unlocked. Without power, its containers have ended.
    pub(super) fn restore(&mut self, name: &str) {
        let now = self.now;
        let Some(node) = self.nodes.values_mut().find(|node| node.name == name) else { return };
        let outage = node.outage.take();
        node.is_down = false;
        let id = node.id.clone();
        if matches!(outage, Some((Outage::Power | Outage::Lock, _))) {
            let own = self.tasks.values_mut().filter(|task| task.node.as_ref() == Some(&id));
            own.for_each(|task| task.lose(now));
        }
    }

    /// The node is no part of the Swarm any more, and neither are its tasks.
    pub(super) fn remove_node(&mut self, name: &str) {
        let Some(id) = self.nodes.values().find(|node| node.name == name).map(|node| node.id.clone()) else {
            return;
        };
        self.nodes.remove(&id);
        self.leader.take_if(|leader| *leader == id);
        for task in self.tasks.values_mut().filter(|task| task.node.as_ref() == Some(&id)) {
            task.lose(self.now);
        }
    }
}
