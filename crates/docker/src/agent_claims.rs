//! Claims of agent ids: how the agents on one engine find each other.
//!
//! An agent that wants to act under an id creates a volume, whose name holds the id and a number of this process.
//! Each living agent learns of it from the engine's events, and an agent that holds the id removes the volume: the
//! claim is refused. If the volume is still there after a while, no agent with this id lives on the engine. Nothing is
//! left behind by an agent that dies, and nothing is sent while nobody claims.
//!
//! An agent that gets no events cannot refuse a claim, so two may hold one id afterwards. Then it claims its ids again: the
//! process that began first keeps the id, and the other one gives way.

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
use driftless_clock::Clock;
use driftless_model::AgentId;

/// The beginning of the name of each claim's volume.
const PREFIX: &str = "driftless-claim.";
/// Before the number of a process that claims an id which it holds already. For an older agent, which compares all that follows the id, it
/// comes before each number.
const HELD: &str = "-";
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

    /// Those that it has taken over.
    pub(crate) fn taken_over(&self) -> BTreeSet<AgentId> {
        self.former().clone()
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
    /// The id of this agent. The other ones are those of agents that it may take over.
    own: AgentId,
    /// Different in each process, so that a copied state directory is noticed. A process that began earlier has a lower one.
    number: String,
    ids: Mutex<BTreeMap<AgentId, Standing>>,
    /// Claims that were heard of and not answered yet.
    heard: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Claiming(Attempt),
    /// The own id, which the agent may use although its claim was impossible. A later process with this id is refused it.
    InDoubt,
    Held,
}

impl Standing {
    /// Whether the agent may act under the id now.
    fn is_used(self) -> bool {
        matches!(self, Self::InDoubt | Self::Held)
    }
}

/// Whether a process claims an id for the first time or again. Of several claims, one that is made again comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attempt {
    Again,
    First,
}

/// The reaction of this process to another one's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Refuse,
    /// Both use the id, and the other one keeps it.
    GiveWay,
}

impl Numbers {
    fn new(own: AgentId, clock: Clock) -> Self {
        // The standard library seeds this from the operating system's source of randomness.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let number = format!("{:012x}{:08x}", clock.now().0, random >> 32);
        Self { own, number, ids: Mutex::default(), heard: Mutex::default() }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeMap<AgentId, Standing>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a new volume if it is a claim.
    fn hear(&self, volume: &str, action: &str) {
        if is_claim(volume) && action == "create" {
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(volume.to_owned());
        }
    }

    /// Begins a claim, and returns the name of its volume.
    fn begin(&self, agent: &AgentId) -> String {
        let mut ids = self.ids();
        let (attempt, mark) = match ids.get(agent) {
            Some(Standing::Held | Standing::Claiming(Attempt::Again)) => (Attempt::Again, HELD),
            Some(Standing::InDoubt | Standing::Claiming(Attempt::First)) | None => (Attempt::First, ""),
        };
        ids.insert(agent.clone(), Standing::Claiming(attempt));
        format!("{PREFIX}{agent}.{mark}{}", self.number)
    }

    /// Ends a claim. Without an answer, an id that was held stays held.
    fn end(&self, agent: &AgentId, claimed: &Result<Claim, CallError>) {
        let mut ids = self.ids();
        let was_held = ids.get(agent) == Some(&Standing::Claiming(Attempt::Again));
        let standing = match claimed {
            Ok(Claim::Granted) => Some(Standing::Held),
            Ok(Claim::Impossible(_)) | Err(_) if was_held => Some(Standing::Held),
            Ok(Claim::Impossible(_)) if *agent == self.own => Some(Standing::InDoubt),
            Ok(Claim::Refused | Claim::Impossible(_)) | Err(_) => None,
        };
        if let Some(standing) = standing {
            ids.insert(agent.clone(), standing);
        } else {
            ids.remove(agent);
        }
    }

    /// The id of another process's claim and the own standing, if this process reacts to it.
    fn reply(&self, volume: &str) -> Option<(AgentId, Standing, Reply)> {
        let (agent, attempt, number) = parse(volume)?;
        if number == self.number {
            return None;
        }
        let standing = *self.ids().get(&agent)?;
        let own = match standing {
            Standing::Claiming(attempt) => attempt,
            Standing::InDoubt => Attempt::First,
            Standing::Held => Attempt::Again,
        };
        // The lowest one wins.
        let reply = if (own, self.number.as_str()) < (attempt, number) {
            Reply::Refuse
        } else if standing.is_used() {
            Reply::GiveWay
        } else {
            return None;
        };
        Some((agent, standing, reply))
    }

    fn holds_any(&self) -> bool {
        self.ids().values().any(|standing| *standing == Standing::Held)
    }
}

/// Whether a volume is the claim of an agent.
pub(crate) fn is_claim(volume: &str) -> bool {
    volume.starts_with(PREFIX)
}

/// Whether the engine itself could not create a volume. A proxy in front of it answers with other statuses.
fn has_no_room(failure: &CallError) -> bool {
    matches!(failure.code(), Some(500 | 507))
}

/// The id, the attempt and the number in the name of a claim's volume.
fn parse(volume: &str) -> Option<(AgentId, Attempt, &str)> {
    let (agent, number) = volume.strip_prefix(PREFIX)?.rsplit_once('.')?;
    let agent = AgentId(agent.to_owned());
    Some(match number.strip_prefix(HELD) {
        Some(number) => (agent, Attempt::Again, number),
        None => (agent, Attempt::First, number),
    })
}

impl AgentClaims {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        events: &broadcast::Sender<EngineEvent>,
        own: AgentId,
        clock: Clock,
    ) -> Self {
        let numbers = Numbers::new(own, clock);
        Self { connection: Arc::clone(connection), events: events.downgrade(), numbers }
    }

    /// Takes note of a volume's event if the volume is a claim.
    pub(crate) fn hear(&self, volume: &str, action: &str) {
        self.numbers.hear(volume, action);
    }

    /// Finds out whether an agent with this id lives, and holds the id from then on if none does.
    pub(crate) async fn claim(&self, agent: &AgentId, patience: Duration) -> Result<Claim, CallError> {
        let volume = self.numbers.begin(agent);
        let claimed = self.try_claim(agent, volume, patience).await;
        self.numbers.end(agent, &claimed);
        claimed
    }

    async fn try_claim(&self, agent: &AgentId, name: String, patience: Duration) -> Result<Claim, CallError> {
        let body =
            api::VolumeCreateRequest { name: Some(name.clone()), ..api::VolumeCreateRequest::default() };
        match self.connection.call(DEADLINE, self.connection.docker().create_volume(body)).await {
            Ok(_) => {}
            Err(failure) if has_no_room(&failure) => return Ok(Claim::Impossible(failure.to_string())),
            Err(failure) => return Err(failure),
        }
        for other in self.open_claims().await? {
            if self.numbers.reply(&other).is_some_and(|(claimed, ..)| claimed == *agent) {
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
            if parse(&other).is_some_and(|(claimed, ..)| claimed == *agent) {
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
        Ok(names.filter(|name| is_claim(name)).collect())
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

    /// Reports that another process may hold an id as well, because no events arrived for a while.
    pub(crate) fn doubt(&self) {
        if self.numbers.holds_any() {
            self.report_lost();
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
            let Some((agent, standing, reply)) = self.numbers.reply(&name) else { continue };
            if reply == Reply::GiveWay {
                self.report_lost();
                continue;
            }
            match self.remove_claim(&name).await {
                Ok(true) => {
                    warn!(
                        %agent,
                        "another agent on this engine asked for this id and was refused: it has found containers with it, or it runs with a copy of the state directory"
                    );
                }
                // Its time was over before this answer: it may hold the id as well.
                Ok(false) if standing.is_used() => self.report_lost(),
                Ok(false) => {}
                Err(error) => warn!(%error, "could not refuse the claim of another agent"),
            }
        }
    }

    fn report_lost(&self) {
        let _ = self.events.upgrade().map(|events| events.send(EngineEvent::ClaimLost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(number: &str) -> Numbers {
        Numbers { number: number.into(), ..Numbers::new(AgentId("a".into()), Clock::System) }
    }

    #[test]
    fn holder_refuses_and_the_lower_number_wins() {
        let claims = numbers("5");
        let agent = AgentId("a.b".into());
        let reply = |number: &str| claims.reply(&format!("{PREFIX}a.b.{number}")).map(|(.., reply)| reply);
        assert_eq!(reply("7"), None, "it has no part in this id");
        assert_eq!(claims.begin(&agent), "driftless-claim.a.b.5");
        assert_eq!(
            [reply("7"), reply("3"), reply("5"), reply("-7")],
            [Some(Reply::Refuse), None, None, None]
        );
        claims.end(&agent, &Ok(Claim::Granted));
        assert_eq!([reply("7"), reply("3"), reply("5")], [Some(Reply::Refuse), Some(Reply::Refuse), None]);
        assert_eq!([reply("-7"), reply("-3")], [Some(Reply::Refuse), Some(Reply::GiveWay)]);
        assert_eq!(claims.begin(&agent), "driftless-claim.a.b.-5");
        assert_eq!([reply("3"), reply("-7"), reply("-3")], [Some(Reply::Refuse), Some(Reply::Refuse), None]);
        assert!(!is_claim("data") && is_claim("driftless-claim.a.b.7"));
    }

    #[test]
    fn unanswered_claim_keeps_an_id_that_was_held() {
        let claims = numbers("5");
        let agent = AgentId("a".into());
        let unanswered = Err(CallError::Unreachable("connection refused".to_owned()));
        let impossible = Ok(Claim::Impossible("no space left on device".to_owned()));
        for (granted, is_held) in [(Ok(Claim::Refused), false), (Ok(Claim::Granted), true)] {
            claims.begin(&agent);
            claims.end(&agent, &unanswered);
            assert!(!claims.holds_any());
            claims.begin(&agent);
            claims.end(&agent, &granted);
            claims.begin(&agent);
            claims.end(&agent, &unanswered);
            assert_eq!(claims.holds_any(), is_held);
            claims.begin(&agent);
            claims.end(&agent, &impossible);
            assert_eq!(claims.holds_any(), is_held);
        }
    }

    #[test]
    fn later_process_is_refused_an_id_that_is_used_in_doubt() {
        let claims = numbers("5");
        let impossible = Ok(Claim::Impossible("no space left on device".to_owned()));
        for (agent, replies) in [
            ("a", [Some(Reply::Refuse), Some(Reply::GiveWay), Some(Reply::GiveWay)]),
            ("b", [None, None, None]),
        ] {
            claims.begin(&AgentId(agent.into()));
            claims.end(&AgentId(agent.into()), &impossible);
            let reply =
                |number: &str| claims.reply(&format!("{PREFIX}{agent}.{number}")).map(|(.., reply)| reply);
            assert_eq!([reply("7"), reply("3"), reply("-7")], replies, "{agent}");
        }
        assert_eq!(claims.begin(&AgentId("a".into())), "driftless-claim.a.5");
    }

    #[test]
    fn engine_that_cannot_create_volumes_is_known_by_its_answer() {
        let answer = |code: u16| CallError::status(code, br#"{"message": "no space left on device"}"#);
        assert!(has_no_room(&answer(500)));
        assert!([403, 404, 409, 502, 503].into_iter().all(|code| !has_no_room(&answer(code))));
        assert!(!has_no_room(&CallError::TimedOut(DEADLINE)));
        assert!(!has_no_room(&CallError::Unreachable("connection refused".to_owned())));
    }
}
