//! The helper container of an update: stops the agent, starts the new one, and starts the old one again if the new one does
//! not get ready.
//!
//! Each step looks at the containers first, so a helper that was killed goes on where it was. The end is written down before
//! it is carried out. At the end exactly one of the two containers is left, and it runs under the name of the agent.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

use driftless_clock::Clock;
use driftless_docker::{AgentContainer, AgentContainers, AgentUpdate, Error as DockerError};
use driftless_model::ContainerId;
use driftless_store::{AgentUpdateNotes, EndedAgentUpdate};

use crate::error::chain;

/// The interval at which the new agent is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The pause after a call that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// A new agent that the engine has restarted as often does not get ready.
const MOST_RESTARTS: i64 = 3;

/// The host on which an agent is replaced.
trait UpdateHost {
    fn find(&self, id: &ContainerId) -> impl Future<Output = Result<Option<AgentContainer>, DockerError>>;
    fn stop(&self, id: &ContainerId) -> impl Future<Output = Result<(), DockerError>>;
    fn start(&self, id: &ContainerId) -> impl Future<Output = Result<(), DockerError>>;
    fn rename(&self, id: &ContainerId, name: &str) -> impl Future<Output = Result<(), DockerError>>;
    fn remove(&self, id: &ContainerId) -> impl Future<Output = Result<(), DockerError>>;
    fn last_output(&self, id: &ContainerId) -> impl Future<Output = String>;
    /// Copies the database. No agent runs. Why not, if it fails.
    fn keep_state(&self) -> Result<(), String>;
    /// Puts the database back if the old agent could not read it.
    fn restore_state(&self);
    fn is_ready(&self) -> bool;
    /// Why the new agent is not ready, as it said last.
    fn unready(&self) -> Option<String>;
    /// The notes of this update are there. The agent removes them when it has read how the update ended.
    fn is_noted(&self) -> bool;
    /// The end that was written down.
    fn ended(&self) -> Option<EndedAgentUpdate>;
    /// Writes the end down, with the reason of a failure.
    fn end(&self, new: Option<&AgentContainer>, failure: Option<String>);
    /// Notes that the old agent runs again. From now on it may report the failure and remove the notes.
    fn note_carried_out(&self);
}

/// Replaces the agent, and removes the helper container at the end. Calls that fail are tried again.
pub async fn replace_agent(update: AgentUpdate, clock: Clock) -> Result<(), DockerError> {
    let host = Host { containers: AgentContainers::new(&update.socket)?, update, clock };
    while let Err(error) = replace(&host, &host.update).await {
        tracing::warn!(error = chain(&error), "the update of the agent is interrupted");
        sleep(AGAIN).await;
    }
    let helper = AgentUpdate::helper_name(&host.update.name);
    while let Err(error) = host.containers.remove(&helper).await {
        tracing::warn!(error = chain(&error), "could not remove the helper container");
        sleep(AGAIN).await;
    }
    Ok(())
}

async fn replace<H: UpdateHost>(host: &H, update: &AgentUpdate) -> Result<(), DockerError> {
    let AgentUpdate { old, new, .. } = update;
    match (host.find(old).await?, host.find(new).await?, host.ended()) {
        (_, found, Some(EndedAgentUpdate { failure: Some(reason), .. })) => {
            go_back(host, update, found.as_ref(), reason).await
        }
        (Some(_), Some(_), Some(_)) => host.remove(old).await,
        (None, _, _) => Ok(()),
        // It went back before, and the agent has read how the update ended.
        (Some(before), None, None) if before.is_up && before.name == update.name => Ok(()),
        (Some(_), None, _) => go_back(host, update, None, "its container is gone".to_owned()).await,
        // The update ended well, and the agent has read that.
        (Some(_), Some(after), None) if !after.is_new && after.name == update.name && !host.is_noted() => {
            host.remove(old).await
        }
        (Some(before), Some(after), None) => go_forward(host, update, &before, &after).await,
    }
}

async fn go_forward<H: UpdateHost>(
    host: &H,
    update: &AgentUpdate,
    before: &AgentContainer,
    after: &AgentContainer,
) -> Result<(), DockerError> {
    let AgentUpdate { old, new, name, deadline, .. } = update;
    // The engine starts both after a start of the host.
    if before.is_up {
        host.stop(old).await?;
    }
    if after.is_new {
        if let Err(reason) = host.keep_state() {
            return go_back(host, update, Some(after), reason).await;
        }
        match exchange(host, update, before, after).await {
            Ok(()) => {}
            Err(error @ DockerError::Transient { .. }) => return Err(error),
            Err(error) => return go_back(host, update, Some(after), chain(&error)).await,
        }
        tracing::info!(container = name, image = after.image, "the new agent was started");
    }
    let end = Instant::now() + *deadline;
    while !host.is_ready() {
        let Some(found) = host.find(new).await? else {
            return go_back(host, update, None, "its container is gone".to_owned()).await;
        };
        if !found.is_up || found.restarts >= MOST_RESTARTS {
            let reason = format!("it exited with code {}{}", found.exit_code, host.last_output(new).await);
            return go_back(host, update, Some(after), reason).await;
        }
        if Instant::now() >= end {
            let unready = host.unready().filter(|reason| !reason.is_empty());
            let unready = unready.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let output = host.last_output(new).await;
            let reason = format!("it was not ready within {} s{unready}{output}", deadline.as_secs());
            return go_back(host, update, Some(after), reason).await;
        }
        sleep(LOOK_EVERY).await;
    }
    tracing::info!(container = name, image = after.image, "the new agent is ready");
    host.end(Some(after), None);
    host.remove(old).await
}

/// Gives the new container the name of the agent, and starts it.
async fn exchange<H: UpdateHost>(
    host: &H,
    update: &AgentUpdate,
    before: &AgentContainer,
    after: &AgentContainer,
) -> Result<(), DockerError> {
    let AgentUpdate { old, new, name, .. } = update;
    if before.name == *name {
        host.rename(old, &format!("{name}-previous")).await?;
    }
    if after.name != *name {
        host.rename(new, name).await?;
    }
    host.start(new).await
}

async fn go_back<H: UpdateHost>(
    host: &H,
    update: &AgentUpdate,
    after: Option<&AgentContainer>,
    reason: String,
) -> Result<(), DockerError> {
    let AgentUpdate { old, new, name, .. } = update;
    if after.is_some() && host.find(old).await?.is_none() {
        tracing::error!(container = name, reason, "the agent before is gone, so the new one stays");
        if host.is_noted() {
            // In place of a failure that was written down before: the new agent reports the end.
            host.end(after, None);
        }
        return Ok(());
    }
    if host.ended().is_none() {
        tracing::error!(container = name, reason, "going back to the agent before");
        host.end(after, Some(reason));
    }
    if after.is_some() {
        host.stop(new).await?;
        host.remove(new).await?;
    }
    bring_back(host, update).await?;
    host.note_carried_out();
    Ok(())
}

/// Starts the old agent under its name, with a database that it can read. The new container is gone.
async fn bring_back<H: UpdateHost>(host: &H, update: &AgentUpdate) -> Result<(), DockerError> {
    let AgentUpdate { old, name, .. } = update;
    let Some(before) = host.find(old).await? else { return Ok(()) };
    if before.is_up && before.name == *name {
        return Ok(());
    }
    if before.is_up {
        host.stop(old).await?;
    }
    host.restore_state();
    if before.name != *name {
        host.rename(old, name).await?;
    }
    host.start(old).await
}

/// A real host.
struct Host {
    containers: AgentContainers,
    update: AgentUpdate,
    clock: Clock,
}

impl Host {
    fn notes(&self) -> AgentUpdateNotes {
        AgentUpdateNotes::of(&self.update.state)
    }
}

impl UpdateHost for Host {
    async fn find(&self, id: &ContainerId) -> Result<Option<AgentContainer>, DockerError> {
        self.containers.find(id.as_str()).await
    }

    async fn stop(&self, id: &ContainerId) -> Result<(), DockerError> {
        self.containers.stop(id).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), DockerError> {
        self.containers.start(id).await
    }

    async fn rename(&self, id: &ContainerId, name: &str) -> Result<(), DockerError> {
        self.containers.rename(id, name).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<(), DockerError> {
        self.containers.remove(id.as_str()).await
    }

    async fn last_output(&self, id: &ContainerId) -> String {
        self.containers.last_output(id).await
    }

    fn keep_state(&self) -> Result<(), String> {
        self.notes().begin(&self.update.new).map_err(|error| chain(&error))
    }

    fn restore_state(&self) {
        match self.notes().go_back() {
            Ok(true) => tracing::warn!("the database is the one before the update again"),
            Ok(false) => {}
            Err(error) => tracing::error!(error = chain(&error), "could not put the database back"),
        }
    }

    fn is_ready(&self) -> bool {
        self.notes().ready().as_ref() == Some(&self.update.new)
    }

    fn unready(&self) -> Option<String> {
        self.notes().unready()
    }

    fn is_noted(&self) -> bool {
        self.notes().pending().as_ref() == Some(&self.update.new)
    }

    fn ended(&self) -> Option<EndedAgentUpdate> {
        self.notes().ended().filter(|ended| ended.new == self.update.new)
    }

    fn end(&self, new: Option<&AgentContainer>, failure: Option<String>) {
        let new = new.cloned().unwrap_or_default();
        let ended = EndedAgentUpdate {
            new: self.update.new.clone(),
            app: new.app,
            container: self.update.name.clone(),
            spec: new.spec,
            image: new.image,
            at: self.clock.now(),
            failure,
        };
        if let Err(error) = self.notes().end(&ended) {
            tracing::error!(error = chain(&error), "could not write down how the update ended");
        }
    }

    fn note_carried_out(&self) {
        if let Err(error) = self.notes().note_carried_out() {
            tracing::error!(error = chain(&error), "could not note that the agent before runs again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        collections::BTreeMap,
        path::PathBuf,
    };

    use super::*;
    use driftless_model::Timestamp;

    /// Two containers in memory. After `left` more calls the helper is killed.
    struct SimulatedHost {
        containers: RefCell<BTreeMap<ContainerId, AgentContainer>>,
        ended: RefCell<Option<EndedAgentUpdate>>,
        is_noted: Cell<bool>,
        /// The copy of the database is there.
        has_copy: Cell<bool>,
        /// An agent that runs reports the end as soon as it may.
        reads: Cell<bool>,
        reported: RefCell<Option<EndedAgentUpdate>>,
        works: bool,
        left: Cell<usize>,
        most_running: Cell<usize>,
    }

    fn update() -> AgentUpdate {
        AgentUpdate {
            old: "old".into(),
            new: "new".into(),
            name: "agent".to_owned(),
            state: PathBuf::from("/state"),
            socket: "/socket".to_owned(),
            deadline: Duration::from_secs(30),
        }
    }

    impl SimulatedHost {
        fn new(works: bool) -> Self {
            let container = |name: &str, is_up: bool| AgentContainer {
                name: name.to_owned(),
                is_new: !is_up,
                is_up,
                ..AgentContainer::default()
            };
            let all =
                [("old".into(), container("agent", true)), ("new".into(), container("agent-next", false))];
            Self {
                containers: RefCell::new(all.into()),
                ended: RefCell::default(),
                is_noted: Cell::new(false),
                has_copy: Cell::new(false),
                reads: Cell::new(false),
                reported: RefCell::default(),
                works,
                left: Cell::new(usize::MAX),
                most_running: Cell::new(1),
            }
        }

        /// The agent that runs reports the end of the update and removes the notes, by the rule of
        /// [`AgentUpdateNotes::carried_out`].
        fn read_end(&self) {
            let is_one_up = self.containers.borrow().values().any(|container| container.is_up);
            let mut ended = self.ended.borrow_mut();
            let is_final = |ended: &EndedAgentUpdate| ended.failure.is_none() || !self.is_noted.get();
            if self.reads.get() && is_one_up && ended.as_ref().is_some_and(is_final) {
                *self.reported.borrow_mut() = ended.take();
                self.is_noted.set(false);
                self.has_copy.set(false);
            }
        }

        fn change(
            &self,
            id: &ContainerId,
            change: impl FnOnce(&mut AgentContainer),
        ) -> Result<(), DockerError> {
            self.read_end();
            let Some(left) = self.left.get().checked_sub(1) else {
                return Err(DockerError::Transient { doing: "go on".to_owned(), source: "killed".into() });
            };
            self.left.set(left);
            if let Some(found) = self.containers.borrow_mut().get_mut(id) {
                change(found);
            }
            let running = self.containers.borrow().values().filter(|container| container.is_up).count();
            self.most_running.set(self.most_running.get().max(running));
            Ok(())
        }
    }

    impl UpdateHost for SimulatedHost {
        async fn find(&self, id: &ContainerId) -> Result<Option<AgentContainer>, DockerError> {
            Ok(self.containers.borrow().get(id).cloned())
        }

        async fn stop(&self, id: &ContainerId) -> Result<(), DockerError> {
            self.change(id, |container| container.is_up = false)
        }

        async fn start(&self, id: &ContainerId) -> Result<(), DockerError> {
            self.change(id, |container| (container.is_up, container.is_new) = (true, false))
        }

        async fn rename(&self, id: &ContainerId, name: &str) -> Result<(), DockerError> {
            let is_taken = self.containers.borrow().iter().any(|(other, it)| other != id && it.name == name);
            assert!(!is_taken, "{name}");
            self.change(id, |container| name.clone_into(&mut container.name))
        }

        async fn remove(&self, id: &ContainerId) -> Result<(), DockerError> {
            self.change(id, |_| {})?;
            self.containers.borrow_mut().remove(id);
            Ok(())
        }

        async fn last_output(&self, _id: &ContainerId) -> String {
            String::new()
        }

        fn keep_state(&self) -> Result<(), String> {
            assert!(self.containers.borrow().values().all(|container| !container.is_up), "an agent runs");
            self.is_noted.set(true);
            self.has_copy.set(true);
            Ok(())
        }

        fn restore_state(&self) {
            assert!(self.containers.borrow().values().all(|container| !container.is_up), "an agent runs");
            assert!(self.has_copy.get() || !self.is_noted.get(), "the copy is gone");
            assert!(self.ended.borrow().is_some(), "the failure would be forgotten");
        }

        fn is_ready(&self) -> bool {
            self.works
                && self.is_noted.get()
                && self.containers.borrow().get(&ContainerId::from("new")).is_some_and(|new| new.is_up)
        }

        fn unready(&self) -> Option<String> {
            Some("second: the token is wrong".to_owned())
        }

        fn is_noted(&self) -> bool {
            self.is_noted.get()
        }

        fn ended(&self) -> Option<EndedAgentUpdate> {
            self.ended.borrow().clone()
        }

        fn end(&self, _new: Option<&AgentContainer>, failure: Option<String>) {
            let ended = EndedAgentUpdate {
                new: "new".into(),
                app: String::new(),
                container: String::new(),
                spec: String::new(),
                image: String::new(),
                at: Timestamp(0),
                failure,
            };
            *self.ended.borrow_mut() = Some(ended);
        }

        fn note_carried_out(&self) {
            self.is_noted.set(false);
        }
    }

    /// The container that is left, after a helper that is killed after so many changes and started again. The agent reads how the
    /// update ended as soon as that is noted, or never.
    async fn left_after_kill(works: bool, changes: usize, (reboots, reads): (bool, bool)) -> (String, bool) {
        let host = SimulatedHost::new(works);
        host.reads.set(reads);
        host.left.set(changes);
        let was_killed = replace(&host, &update()).await.is_err();
        if was_killed && reboots {
            // The engine starts every container that was started before.
            for container in host.containers.borrow_mut().values_mut().filter(|container| !container.is_new) {
                container.is_up = true;
            }
        }
        host.read_end();
        host.left.set(usize::MAX);
        replace(&host, &update()).await.unwrap();
        host.read_end();
        let has_failed = host.reported.borrow().as_ref().map(|ended| ended.failure.is_some());
        assert_eq!(has_failed, reads.then_some(!works), "{changes}");
        assert!(host.most_running.get() == 1 || reboots, "two agents ran");
        let containers = host.containers.borrow();
        let (id, container) = containers.first_key_value().unwrap();
        assert_eq!(
            (containers.len(), container.is_up, container.name.as_str()),
            (1, true, "agent"),
            "{changes}"
        );
        (id.to_string(), was_killed)
    }

    #[tokio::test(start_paused = true)]
    async fn one_agent_runs_after_a_kill_at_any_step() {
        for works in [true, false] {
            for (reboots, reads) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut kills = 0;
                for changes in 0..20 {
                    let (left, was_killed) = left_after_kill(works, changes, (reboots, reads)).await;
                    assert_eq!(left, if works { "new" } else { "old" }, "{changes} {reboots} {reads}");
                    kills += usize::from(was_killed);
                }
                assert!(kills >= 5, "{kills}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_agent_stays_if_the_one_before_is_gone() {
        for failure in [None, Some("it is slow".to_owned())] {
            let host = SimulatedHost::new(false);
            host.is_noted.set(true);
            if failure.is_some() {
                host.end(None, failure);
            }
            host.containers.borrow_mut().remove(&ContainerId::from("old"));
            let after = host.find(&"new".into()).await.unwrap();
            go_back(&host, &update(), after.as_ref(), "it is slow".to_owned()).await.unwrap();
            assert!(host.containers.borrow().contains_key(&ContainerId::from("new")));
            assert_eq!(host.ended().map(|ended| ended.failure), Some(None), "nobody went back");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agent_that_is_not_ready_in_time_is_taken_back() {
        let host = SimulatedHost::new(false);
        replace(&host, &update()).await.unwrap();
        let failure = host.ended().unwrap().failure.unwrap();
        assert!(failure.contains("not ready within 30 s (second: the token is wrong)"), "{failure}");
    }
}
