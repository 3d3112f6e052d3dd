//! Finds out which other agents live on the engine, and takes over the containers of those that do not.

use std::{collections::BTreeSet, future::pending, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::{broadcast::error::RecvError, mpsc},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use driftless_docker::{Claim, Docker, EngineEvent};
use driftless_model::AgentId;
use driftless_store::OtherAgent;

use crate::{
    context::Services,
    error::chain,
    other_agents::ownership::{Other, Own, Ownership},
    request::RequestError,
};

/// Time for other agents to refuse the claim of this agent's own id.
const OWN_CLAIM: Duration = Duration::from_secs(1);

/// The tries to claim an id before a refusal is believed.
const TRIES: u32 = 3;

/// The time after which an agent goes on, although the engine cannot tell whether another one has its id; and the time between two
/// claims of that agent from then on.
const DOUBT: Duration = Duration::from_secs(30);

/// Time for other agents to refuse the claim of another id.
const OTHER_CLAIM: Duration = Duration::from_secs(5);
/// Between two attempts while the engine does not answer.
const AGAIN: Duration = Duration::from_secs(2);

/// The engine and the services that finding other agents needs.
pub(crate) struct AgentFinder<D> {
    pub(crate) docker: Arc<D>,
    pub(crate) services: Arc<Services>,
    /// No other agent can have the id: its claim waits for nobody. A first deployment begins a second earlier.
    pub(crate) has_new_id: bool,
}

impl<D> Clone for AgentFinder<D> {
    fn clone(&self) -> Self {
        Self {
            docker: Arc::clone(&self.docker),
            services: Arc::clone(&self.services),
            has_new_id: self.has_new_id,
        }
    }
}

impl<D: Docker> AgentFinder<D> {
    /// Claims the agent's id, and finds out about other agents, until stopped.
    pub(crate) async fn run(self, questions: mpsc::UnboundedReceiver<AgentId>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.find(questions) => {}
        }
    }

    async fn find(&self, mut questions: mpsc::UnboundedReceiver<AgentId>) {
        let mut events = self.docker.events();
        let mut doubt = self.claim_own(if self.has_new_id { Duration::ZERO } else { OWN_CLAIM }).await;
        loop {
            tokio::select! {
                () = end_of(doubt) => doubt = self.claim_in_doubt().await,
                Some(agent) = questions.recv() => self.settle(&agent).await,
                event = events.recv() => match event {
                    // The loss of a claim may be among those that were missed.
                    Ok(EngineEvent::ClaimLost) | Err(RecvError::Lagged(_)) => doubt = self.claim_again().await,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// Claims the ids again that another agent may have been granted as well. An agent that was refused has none, and waits for
    /// `driftless recover`: the other one may only be late to answer.
    async fn claim_again(&self) -> Option<Instant> {
        if self.ownership().own() == Own::Refused { None } else { self.claim_own(OWN_CLAIM).await }
    }

    /// Claims the agent's own id, which it uses in doubt, once more. The work goes on meanwhile.
    async fn claim_in_doubt(&self) -> Option<Instant> {
        let _turn = self.ownership().turn().await;
        if self.ownership().own() != Own::Held {
            return None;
        }
        match self.claim(&self.services.agent, OWN_CLAIM, TRIES).await {
            Ok(Claim::Granted) => {
                tracing::info!("no other agent on this engine has this id");
                self.note_refusal(false);
                None
            }
            Ok(Claim::Refused) => {
                self.set_own(Own::Refused);
                None
            }
            Ok(Claim::Impossible(_)) | Err(driftless_docker::Error::Transient { .. }) => {
                Some(Instant::now() + DOUBT)
            }
            Err(_) => None,
        }
    }

    fn set_own(&self, own: Own) {
        if own == Own::Refused {
            let agent = &self.services.agent;
            tracing::error!(%agent, "another agent with this id lives on this engine: nothing is changed");
            self.note_refusal(true);
        }
        self.ownership().set_own(own);
        self.services.wakes.wake_all();
    }

    /// Stores whether the id was refused, for the next life of the agent: an engine that cannot create volumes does not say so again.
    fn note_refusal(&self, is_refused: bool) {
        if let Err(error) = self.services.store.set_own_id_refused(is_refused) {
            tracing::warn!(error = chain(&error), "could not store whether another agent has this id");
        }
    }

    /// The standing of the agent's own id up to now, also that of an earlier life that was refused it.
    fn own_before(&self) -> Own {
        let own = self.ownership().own();
        let was_refused = own == Own::Unclaimed
            && self.services.store.is_own_id_refused().unwrap_or_else(|error| {
                tracing::warn!(error = chain(&error), "could not read whether another agent has this id");
                false
            });
        if was_refused { Own::Refused } else { own }
    }

    fn ownership(&self) -> &Ownership {
        &self.services.ownership
    }

    fn former(&self) -> BTreeSet<AgentId> {
        self.services.store.other_agents(OtherAgent::Former).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not read the agents that were taken over");
            BTreeSet::new()
        })
    }

    /// Claims the agent's own id and those that it took over. Other agents have this time to refuse the own one.
    ///
    /// An id is not lost by one refusal, as somebody may have removed the claim with all unused volumes, nor by an engine that cannot create
    /// volumes, as one with a full disk. Nor does such an engine keep an agent from its work that has just started.
    ///
    /// Returns when to claim the id once more, if it is used in doubt.
    async fn claim_own(&self, patience: Duration) -> Option<Instant> {
        let _turn = self.ownership().turn().await;
        let before = self.own_before();
        self.ownership().set_own(Own::Unclaimed);
        // An id that was refused for good is asked for once more.
        let tries = if before == Own::Refused { 1 } else { TRIES };
        let former = self.former();
        let agent = &self.services.agent;
        let began = Instant::now();
        let mut impossible_since = None;
        let mut has_failed = false;
        let (own, is_in_doubt) = loop {
            let claims = former.iter().map(|agent| self.claim(agent, OWN_CLAIM, tries));
            let (own, others) = tokio::join!(self.claim(agent, patience, tries), join_all(claims));
            for (agent, claim) in former.iter().zip(others) {
                if matches!(claim, Ok(Claim::Refused)) {
                    self.note(agent, OtherAgent::Living);
                }
            }
            let error = match own {
                Ok(Claim::Granted) => {
                    self.note_refusal(false);
                    break (Own::Held, false);
                }
                Ok(Claim::Refused) => break (Own::Refused, false),
                Ok(Claim::Impossible(error)) => {
                    impossible_since.get_or_insert_with(Instant::now);
                    error
                }
                Err(error @ driftless_docker::Error::Transient { .. }) => {
                    impossible_since = None;
                    chain(&error)
                }
                Err(error) => {
                    // An engine that lets nobody create volumes can never tell.
                    tracing::warn!(error = chain(&error), "other agents on this engine are not noticed");
                    break (Own::Held, false);
                }
            };
            let since = doubted_since(before, began, impossible_since);
            if since.is_some_and(|since| since.elapsed() >= DOUBT) {
                tracing::warn!(error, "other agents on this engine are not noticed for now");
                break (Own::Held, true);
            }
            if !has_failed {
                has_failed = true;
                tracing::warn!(error, "could not find out whether another agent has this id; trying again");
            }
            sleep(AGAIN).await;
        };
        self.set_own(own);
        is_in_doubt.then(|| Instant::now() + DOUBT)
    }

    /// Claims an id. A living agent refuses each of the tries, but may be late for one of them. So after a refusal, only two grants in a
    /// row count.
    async fn claim(
        &self,
        agent: &AgentId,
        patience: Duration,
        tries: u32,
    ) -> Result<Claim, driftless_docker::Error> {
        // With a single try, the id was refused before.
        let (mut refusals, mut is_granted) = (u32::from(tries == 1), false);
        loop {
            match self.docker.claim(agent, patience).await {
                Ok(Claim::Refused) => {
                    (refusals, is_granted) = (refusals + 1, false);
                    if refusals >= tries {
                        return Ok(Claim::Refused);
                    }
                }
                Ok(Claim::Granted) if refusals > 0 && !is_granted => {
                    is_granted = true;
                    tracing::warn!(%agent, "the id was refused and then granted; asking once more whether another agent with it lives");
                }
                other => return other,
            }
        }
    }

    /// Finds out whether another agent lives, and takes over its containers if not.
    async fn settle(&self, agent: &AgentId) {
        let _turn = self.ownership().turn().await;
        let known = self.ownership().other(agent);
        if self.former().contains(agent) || known != Some(Other::Asked) {
            // It was taken over, or found to live, since the question.
            self.ownership().set(agent, known.filter(|other| *other != Other::Asked));
            self.services.wakes.wake_all();
            return;
        }
        match self.docker.claim(agent, OTHER_CLAIM).await {
            Ok(Claim::Granted) => self.note(agent, OtherAgent::Former),
            Ok(Claim::Refused) => self.note(agent, OtherAgent::Living),
            Ok(Claim::Impossible(error)) => self.leave_open(agent, &error),
            Err(error) => self.leave_open(agent, &chain(&error)),
        }
    }

    /// The question is asked again by the next round that finds its containers.
    fn leave_open(&self, agent: &AgentId, error: &str) {
        tracing::warn!(%agent, error, "could not find out whether another agent lives");
        self.ownership().set(agent, None);
    }

    fn note(&self, agent: &AgentId, kind: OtherAgent) {
        if let Err(error) = self.services.store.set_other_agent(agent, kind) {
            tracing::warn!(%agent, error = chain(&error), "could not store what is known of another agent");
        }
        let mut former = self.former();
        match kind {
            OtherAgent::Former => {
                tracing::warn!(%agent, "no agent with this id lives: its containers are taken over");
                former.insert(agent.clone());
                self.docker.take_over(&former);
                self.ownership().set(agent, None);
            }
            OtherAgent::Living => {
                tracing::error!(%agent, "another agent lives on this engine: its containers are left alone");
                former.remove(agent);
                self.docker.take_over(&former);
                self.ownership().set(agent, Some(Other::Living));
            }
        }
        self.services.wakes.wake_all();
    }

    /// Takes over the containers of all agents that no longer live, because a user asks for it, and confirms a loss
    /// of state. Returns a line for each change.
    pub(crate) async fn recover(&self) -> Result<Vec<String>, RequestError> {
        if let Some(why) = self.services.store.replaced() {
            return Err(RequestError::State(why));
        }
        let mut done = Vec::new();
        let agent = &self.services.agent;
        if self.ownership().own() == Own::Refused {
            self.claim_own(OWN_CLAIM).await;
            if self.ownership().own() == Own::Refused {
                return Err(RequestError::Refused(format!(
                    "another agent with the id {agent} lives on this engine: stop it, or give this agent a state directory of its own, then run `driftless recover` again"
                )));
            }
            done.push("this agent is the only one with its id".to_owned());
        }
        let _turn = self.ownership().turn().await;
        let others = self.ownership().others();
        let claims = join_all(others.iter().map(|agent| self.docker.claim(agent, OTHER_CLAIM))).await;
        let mut refused = None;
        // To the last one: this process holds each id that was granted, so its containers are taken over in any case.
        for (agent, claim) in others.iter().zip(claims) {
            match claim {
                Ok(Claim::Granted) => {
                    self.ownership().confirm();
                    self.note(agent, OtherAgent::Former);
                    done.push(format!("the containers of agent {agent} are taken over"));
                }
                Ok(Claim::Refused) => {
                    self.note(agent, OtherAgent::Living);
                    refused.get_or_insert_with(|| {
                        RequestError::Refused(format!(
                            "agent {agent} lives on this engine: stop it, then run `driftless recover` again"
                        ))
                    });
                }
                Ok(Claim::Impossible(error)) => {
                    refused.get_or_insert_with(|| {
                        RequestError::Refused(format!(
                            "could not find out whether agent {agent} lives on this engine: {error}"
                        ))
                    });
                }
                Err(error) => {
                    refused.get_or_insert_with(|| error.into());
                }
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let store = &self.services.store;
        if let Some(what) = self.ownership().engine().confirm(store)? {
            done.push(format!("applications are deployed to this engine from now on ({what})"));
        }
        if let Some(what) = store.loss()? {
            store.clear_loss()?;
            done.push(format!("new commits are applied again (lost: {what})"));
        }
        self.services.wakes.wake_all();
        self.services.changed.notify_one();
        Ok(done)
    }
}

/// Since when an agent waits to use its id although the engine cannot tell whether another one has it; `None`: it may not.
///
/// While an engine does not answer, another agent may have been granted the id. One that cannot create volumes grants it to nobody. An id
/// that was refused is another agent's until the engine says otherwise.
fn doubted_since(before: Own, began: Instant, impossible_since: Option<Instant>) -> Option<Instant> {
    match before {
        Own::Held => Some(began),
        Own::Unclaimed => impossible_since,
        Own::Refused => None,
    }
}

/// Waits for the end of a doubt; for ever without a doubt.
async fn end_of(doubt: Option<Instant>) {
    match doubt {
        Some(end) => sleep_until(end).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn full_disk_does_not_keep_an_agent_from_starting() {
        let began = Instant::now();
        sleep(AGAIN).await;
        let impossible = Instant::now();
        assert_eq!(doubted_since(Own::Unclaimed, began, Some(impossible)), Some(impossible));
        assert_eq!(
            doubted_since(Own::Unclaimed, began, None),
            None,
            "another agent may be granted the id meanwhile"
        );
        assert_eq!(doubted_since(Own::Held, began, Some(impossible)), Some(began));
        assert_eq!(doubted_since(Own::Held, began, None), Some(began));
        assert_eq!(doubted_since(Own::Refused, began, Some(impossible)), None);
    }
}
