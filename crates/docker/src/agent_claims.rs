//! Claims of agent ids: how the agents on one engine find each other.
//!
//! An agent that wants to act under an id creates a volume, whose name holds the id and a number of this process.
//! Each living agent learns of it from the engine's events, and an agent that holds the id removes the volume: the
//! claim is refused. If the volume is still there after a while, no agent with this id lives on the engine. Nothing is
//! left behind by an agent that dies, and nothing is sent while nobody claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bollard::{models as api, query_parameters as query};
use tokio::{
    sync::broadcast,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::DEADLINE,
    docker::{Claim, EngineEvent},
};
use driftless_model::AgentId;

/// The beginning of the name of each claim's volume.
const PREFIX: &str = "driftless-claim.";
/// The interval at which a claim is looked up.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The agents whose objects belong to this agent: itself, and those that it has taken over.
#[derive(Debug)]
pub(crate) struct OwnAgents {
    own: AgentId,
    former: Mutex<BTreeSet<AgentId>>,
}

impl OwnAgents {
    pub(crate) fn new(own: AgentId) -> Self {
        Self { own, former: Mutex::default() }
    }

    /// This agent.
    pub(crate) fn own(&self) -> &AgentId {
        &self.own
    }

    /// From now on, objects of these agents belong to this agent.
    pub(crate) fn take_over(&self, former: &BTreeSet<AgentId>) {
        self.former().clone_from(former);
    }

    /// Whether objects with this label belong to this agent.
    pub(crate) fn contain(&self, agent: &str) -> bool {
        agent == self.own.as_str() || self.former().iter().any(|former| former.as_str() == agent)
    }

    /// The agent that objects with this label belong to.
    pub(crate) fn owner(&self, labelled: AgentId) -> AgentId {
        if self.former().contains(&labelled) { self.own.clone() } else { labelled }
    }

    fn former(&self) -> MutexGuard<'_, BTreeSet<AgentId>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claims of this process.
pub(crate) struct AgentClaims {
    connection: Arc<Connection>,
    /// Weak, so that receivers notice the end of the watcher.
    events: broadcast::WeakSender<EngineEvent>,
    numbers: Numbers,
}

/// The ids that this process claims or holds.
#[derive(Debug)]
struct Numbers {
    /// Different in each process, so that a copied state directory is noticed.
    number: String,
    ids: Mutex<BTreeMap<AgentId, Standing>>,
    /// Claims that were heard of and not answered yet.
    heard: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Claiming,
    Held,
}

impl Numbers {
    fn new() -> Self {
        // The standard library seeds this from the operating system's source of randomness.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self { number: format!("{random:016x}"), ids: Mutex::default(), heard: Mutex::default() }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeMap<AgentId, Standing>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a new volume if it is a claim. False: it is not.
    fn hear(&self, volume: &str, action: &str) -> bool {
        if !volume.starts_with(PREFIX) {
            return false;
        }
        if action == "create" {
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(volume.to_owned());
        }
        true
    }

    /// The id of another process's claim, if this process answers it.
    fn refused(&self, volume: &str) -> Option<(AgentId, Standing)> {
        let (agent, number) = parse(volume)?;
        let standing = *self.ids().get(&agent)?;
        let is_answered = match standing {
            Standing::Held => number != self.number,
            // Of several claims at the same time, the lowest number wins.
            Standing::Claiming => *self.number < *number,
        };
        is_answered.then_some((agent, standing))
    }
}

/// The id and the number in the name of a claim's volume.
fn parse(volume: &str) -> Option<(AgentId, &str)> {
    let (agent, number) = volume.strip_prefix(PREFIX)?.rsplit_once('.')?;
    Some((AgentId(agent.to_owned()), number))
}

impl AgentClaims {
    pub(crate) fn new(connection: &Arc<Connection>, events: &broadcast::Sender<EngineEvent>) -> Self {
        Self { connection: Arc::clone(connection), events: events.downgrade(), numbers: Numbers::new() }
    }

    /// Takes note of a volume's event if the volume is a claim. False: it is not.
    pub(crate) fn hear(&self, volume: &str, action: &str) -> bool {
        self.numbers.hear(volume, action)
    }

    /// Finds out whether an agent with this id lives, and holds the id from then on if none does.
    pub(crate) async fn claim(&self, agent: &AgentId, patience: Duration) -> Result<Claim, CallError> {
        self.numbers.ids().insert(agent.clone(), Standing::Claiming);
        let claimed = self.try_claim(agent, patience).await;
        if matches!(claimed, Ok(Claim::Granted)) {
            self.numbers.ids().insert(agent.clone(), Standing::Held);
        } else {
            self.numbers.ids().remove(agent);
        }
        claimed
    }

    async fn try_claim(&self, agent: &AgentId, patience: Duration) -> Result<Claim, CallError> {
        let name = format!("{PREFIX}{agent}.{}", self.numbers.number);
        let body =
            api::VolumeCreateRequest { name: Some(name.clone()), ..api::VolumeCreateRequest::default() };
        self.connection.call(DEADLINE, self.connection.docker().create_volume(body)).await?;
        for other in self.open_claims().await? {
            if self.numbers.refused(&other).is_some_and(|(claimed, _)| claimed == *agent) {
                self.remove_claim(&other).await?;
            }
        }
        let end = Instant::now() + patience;
        while Instant::now() < end {
            sleep(LOOK_EVERY).await;
            match self.connection.call(DEADLINE, self.connection.docker().inspect_volume(&name)).await {
                Ok(_) => {}
                Err(failure) if failure.is_not_found() => return Ok(Claim::Refused),
                Err(failure) => return Err(failure),
            }
        }
        if !self.remove_claim(&name).await? {
            return Ok(Claim::Refused);
        }
        // Claims of processes that died before they were done.
        for other in self.open_claims().await? {
            if parse(&other).is_some_and(|(claimed, _)| claimed == *agent) {
                self.remove_claim(&other).await?;
            }
        }
        Ok(Claim::Granted)
    }

    async fn open_claims(&self) -> Result<Vec<String>, CallError> {
        let filters = [("name".to_owned(), vec![PREFIX.to_owned()])].into();
        let options = query::ListVolumesOptionsBuilder::new().filters(&filters).build();
        let found =
            self.connection.call(DEADLINE, self.connection.docker().list_volumes(Some(options))).await?;
        let names = found.volumes.into_iter().flatten().map(|volume| volume.name);
        Ok(names.filter(|name| name.starts_with(PREFIX)).collect())
    }

    /// False: it was not there any more.
    async fn remove_claim(&self, name: &str) -> Result<bool, CallError> {
        let options = None::<query::RemoveVolumeOptions>;
        match self.connection.call(DEADLINE, self.connection.docker().remove_volume(name, options)).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Takes note of the claims that were made while no events arrived.
    pub(crate) async fn hear_open_claims(&self) {
        match self.open_claims().await {
            Ok(open) => {
                for name in open {
                    self.hear(&name, "create");
                }
            }
            Err(error) => debug!(%error, "could not list the claims of other agents"),
        }
        self.answer_claims().await;
    }

    /// Refuses the claims of other processes to what this one holds.
    pub(crate) async fn answer_claims(&self) {
        let heard = std::mem::take(&mut *self.numbers.heard.lock().unwrap_or_else(PoisonError::into_inner));
        for name in heard {
            let Some((agent, standing)) = self.numbers.refused(&name) else { continue };
            match self.remove_claim(&name).await {
                Ok(true) => {
                    warn!(
                        %agent,
                        "another agent on this engine asked for this id and was refused: it has found containers with it, or it runs with a copy of the state directory"
                    );
                }
                // Its time was over before this answer: it may hold the id as well.
                Ok(false) if standing == Standing::Held => {
                    self.numbers.ids().remove(&agent);
                    let _ = self.events.upgrade().map(|events| events.send(EngineEvent::ClaimLost { agent }));
                }
                Ok(false) => {}
                Err(error) => warn!(%error, "could not refuse the claim of another agent"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_refuses_and_the_lower_number_wins() {
        let claims = Numbers { number: "5".into(), ..Numbers::new() };
        let agent = AgentId("a.b".into());
        let asks = |number: &str| claims.refused(&format!("{PREFIX}a.b.{number}")).is_some();
        assert!(!asks("7"), "it has no part in this id");
        claims.ids().insert(agent.clone(), Standing::Claiming);
        assert!(asks("7") && !asks("3") && !asks("5"));
        claims.ids().insert(agent, Standing::Held);
        assert!(asks("7") && asks("3") && !asks("5"));
        assert!(!claims.hear("data", "create") && claims.hear("driftless-claim.a.b.7", "create"));
    }
}
