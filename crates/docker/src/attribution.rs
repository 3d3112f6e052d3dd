//! Attribution: who caused what happened to containers. The agent records what it is about to do, the event stream
//! records what happened, and what the agent did not do itself was a user.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use driftless_model::{AppName, Container, ContainerId, Healthcheck, Timestamp, Visit};

use crate::call_error::CallError;

/// The number of stops by users that are remembered, over all containers.
const MAX_USER_STOPS: usize = 1000;
/// The number of new objects whose application is remembered.
const MAX_NEW: usize = 4096;
/// The number of visits of one container that are remembered.
const MAX_VISITS: usize = 32;
/// The number of commands of the agent that may run at the same time.
const MAX_EXECS: usize = 10_000;
/// The engine reports a copy into a container when it is done. It is assumed to have begun this much earlier.
const COPY_TIME: Duration = Duration::from_secs(1);

/// The event of an exit may be this much older than the time that the engine notes for it.
const EXIT_MARGIN: Duration = Duration::from_secs(1);

/// The description of a visit by `docker exec`; the command follows.
const EXEC: &str = "docker exec ";
/// The description of a visit by `docker cp`.
const COPY: &str = "docker cp";

/// The record of who did what. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct Attribution {
    state: Mutex<AttributionState>,
}

#[derive(Debug, Default)]
struct AttributionState {
    /// Names and ids of containers that the agent created. Labels never change, so these stay the agent's.
    created: BTreeMap<String, ContainerId>,
    /// The applications of containers and networks that the agent created, by id: until these are listed, their events name
    /// no application.
    new: BTreeMap<String, AppName>,
    /// Those of them that have commands to run after a start or before a stop.
    with_hooks: BTreeSet<ContainerId>,
    /// The adopted objects of each application, by its record: labels do not show them.
    adopted: BTreeMap<AppName, Adopted>,
    /// When a user last stopped, killed or paused a container.
    user_stops: BTreeMap<ContainerId, Timestamp>,
    /// Containers that the agent is stopping or has stopped.
    agent_stops: BTreeMap<ContainerId, AgentStop>,
    /// When the event stream last reported the exit of a container.
    exits: BTreeMap<ContainerId, Timestamp>,
    /// Commands that the agent runs in containers, by the engine's ids of them.
    agent_execs: BTreeSet<String>,
    /// Commands of probes that the agent no longer waits for, by the engine's ids of them. They may still run.
    unended_probes: BTreeMap<ContainerId, BTreeMap<String, ProbeCommand>>,
    /// Commands of others and copies into containers, by the ids of the commands.
    visits: BTreeMap<ContainerId, BTreeMap<String, Visit>>,
    /// Signals from the agent that are not meant to end the container, until their event arrives.
    agent_signals: BTreeMap<ContainerId, u32>,
    /// Copies into a container by the agent, until their event arrives.
    agent_copies: BTreeMap<ContainerId, u32>,
}

/// The command of a probe. Another probe may run the same words and wait longer for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeCommand {
    pub words: Vec<String>,
    /// The time limit of the probe.
    pub limit: Duration,
}

/// A stop by the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentStop {
    /// The call has not returned. The engine may start the container meanwhile by its restart policy.
    InProgress {
        /// The engine has reported a signal to the container, so the stop has begun.
        is_signalled: bool,
    },
    /// The call returned at this time.
    Done(Timestamp),
}

/// Containers and networks, by id.
#[derive(Debug)]
struct Adopted {
    containers: BTreeSet<ContainerId>,
    networks: BTreeSet<String>,
}

impl Attribution {
    /// The agent created a container.
    pub(crate) fn record_created(&self, name: &str, id: &ContainerId) {
        self.lock().created.insert(name.to_owned(), id.clone());
    }

    /// The agent created a container or network for an application.
    pub(crate) fn record_new(&self, id: &str, app: &AppName) {
        let mut state = self.lock();
        // An event of a forgotten one wakes all applications.
        if state.new.len() >= MAX_NEW {
            state.new.clear();
        }
        state.new.insert(id.to_owned(), app.clone());
    }

    /// The application that the agent created a container or network for, lately.
    pub(crate) fn creator(&self, id: &str) -> Option<AppName> {
        self.lock().new.get(id).cloned()
    }

    /// The agent created this container with commands to run after a start or before a stop.
    pub(crate) fn record_hooks(&self, id: &ContainerId) {
        self.lock().with_hooks.insert(id.clone());
    }

    /// Whether the agent created this container without such commands, since it started itself.
    pub(crate) fn is_created_without_hooks(&self, id: &ContainerId) -> bool {
        self.is_created(id) && !self.lock().with_hooks.contains(id)
    }

    /// Whether the agent created this container since it started itself.
    pub(crate) fn is_created(&self, id: &ContainerId) -> bool {
        self.lock().created.values().any(|created| created == id)
    }

    /// The container that the agent created under this name.
    pub(crate) fn created_as(&self, name: &str) -> Option<ContainerId> {
        self.lock().created.get(name).cloned()
    }

    /// The adopted objects of an application, according to its record.
    pub(crate) fn set_adopted(
        &self,
        app: &AppName,
        containers: &BTreeSet<ContainerId>,
        networks: &BTreeSet<String>,
    ) {
        let mut state = self.lock();
        if containers.is_empty() && networks.is_empty() {
            state.adopted.remove(app);
        } else {
            let adopted = Adopted { containers: containers.clone(), networks: networks.clone() };
            state.adopted.insert(app.clone(), adopted);
        }
    }

    /// The application that has adopted a container.
    pub(crate) fn adopter(&self, id: &ContainerId) -> Option<AppName> {
        let state = self.lock();
        let found = state.adopted.iter().find(|(_, adopted)| adopted.containers.contains(id));
        found.map(|(app, _)| app.clone())
    }

    /// The adopted containers of all applications.
    pub(crate) fn adopters(&self) -> BTreeMap<ContainerId, AppName> {
        let state = self.lock();
        let of_app = |(app, adopted): (&AppName, &Adopted)| {
            let containers = adopted.containers.iter().cloned();
            containers.map(|id| (id, app.clone())).collect::<Vec<_>>()
        };
        state.adopted.iter().flat_map(of_app).collect()
    }

    pub(crate) fn is_adopted_network(&self, id: &str) -> bool {
        self.lock().adopted.values().any(|adopted| adopted.networks.contains(id))
    }

    /// The agent is about to stop a container. Stops are the agent's until the first start after
    /// [`Self::end_agent_stop`].
    pub(crate) fn begin_agent_stop(&self, id: &ContainerId) {
        self.lock().agent_stops.insert(id.clone(), AgentStop::InProgress { is_signalled: false });
    }

    /// The agent's stop has ended. One that the engine has not begun leaves no mark: the container runs on, and its next
    /// stop may be a user's.
    pub(crate) fn end_agent_stop(&self, id: &ContainerId, stopped: &Result<(), CallError>, now: Timestamp) {
        // An engine that took too long or failed may have signalled the container; with 502 and 503 a proxy says that the
        // engine is away.
        let may_have_begun = matches!(
            stopped,
            Ok(())
                | Err(CallError::TimedOut(_) | CallError::Status { code: 304 | 404 | 500 | 501 | 504.., .. })
        );
        let mut state = self.lock();
        // The connection may break while the container has time to end. The signal was reported before that.
        let is_signalled =
            matches!(state.agent_stops.get(id), Some(AgentStop::InProgress { is_signalled: true }));
        if may_have_begun || is_signalled {
            state.agent_stops.insert(id.clone(), AgentStop::Done(now));
        } else {
            state.agent_stops.remove(id);
        }
    }

    pub(crate) fn is_stopped_by_agent(&self, id: &ContainerId) -> bool {
        self.lock().agent_stops.contains_key(id)
    }

    /// The agent is about to send a signal that is not meant to end the container.
    pub(crate) fn expect_signal(&self, id: &ContainerId) {
        expect(&mut self.lock().agent_signals, id);
    }

    /// Whether a signal that the engine reports, or that could not be sent, is one that the agent announced.
    pub(crate) fn take_signal(&self, id: &ContainerId) -> bool {
        take_expected(&mut self.lock().agent_signals, id)
    }

    /// The agent is about to copy files into a container.
    pub(crate) fn expect_copy(&self, id: &ContainerId) {
        expect(&mut self.lock().agent_copies, id);
    }

    /// Whether a copy that the engine reports, or that failed, is one that the agent announced.
    pub(crate) fn take_copy(&self, id: &ContainerId) -> bool {
        take_expected(&mut self.lock().agent_copies, id)
    }

    /// A container was started: earlier stops do not count any more. The event may be older than a stop by the agent,
    /// and the engine may restart a container by its restart policy while the agent stops it.
    pub(crate) fn record_start(&self, id: &ContainerId, at: Timestamp) {
        let mut state = self.lock();
        state.user_stops.remove(id);
        if matches!(state.agent_stops.get(id), Some(AgentStop::Done(ended)) if *ended < at) {
            state.agent_stops.remove(id);
        }
    }

    /// The event stream reported that a container exited.
    pub(crate) fn record_exit(&self, id: &ContainerId, at: Timestamp) {
        self.lock().exits.insert(id.clone(), at);
    }

    /// Whether the event stream reported an exit of a container at this time or later.
    pub(crate) fn has_reported_exit(&self, id: &ContainerId, finished: Timestamp) -> bool {
        self.lock().exits.get(id).is_some_and(|at| at.after(EXIT_MARGIN) >= finished)
    }

    /// A container was stopped, killed or paused: by a user, unless the agent is stopping it.
    pub(crate) fn record_stop(&self, id: &ContainerId, at: Timestamp) {
        let mut state = self.lock();
        match state.agent_stops.get_mut(id) {
            Some(AgentStop::InProgress { is_signalled }) => {
                *is_signalled = true;
                return;
            }
            Some(AgentStop::Done(_)) => return,
            None => {}
        }
        state.user_stops.insert(id.clone(), at);
        if state.user_stops.len() > MAX_USER_STOPS {
            let oldest = state.user_stops.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone());
            oldest.and_then(|id| state.user_stops.remove(&id));
        }
    }

    /// When a user last stopped, killed or paused a container.
    pub(crate) fn user_stop(&self, id: &ContainerId) -> Option<Timestamp> {
        self.lock().user_stops.get(id).copied()
    }

    /// The agent is about to run a command in a container.
    pub(crate) fn record_agent_exec(&self, exec: &str) {
        let mut state = self.lock();
        while state.agent_execs.len() >= MAX_EXECS {
            state.agent_execs.pop_first();
        }
        state.agent_execs.insert(exec.to_owned());
    }

    /// The agent no longer waits for the end of a probe's command.
    pub(crate) fn record_unended_probe(&self, id: &ContainerId, exec: &str, command: &ProbeCommand) {
        let mut state = self.lock();
        state.unended_probes.entry(id.clone()).or_default().insert(exec.to_owned(), command.clone());
    }

    /// The engine's ids of the runs of a probe's command that may not have ended.
    pub(crate) fn unended_probes(&self, id: &ContainerId, command: &ProbeCommand) -> Vec<String> {
        let state = self.lock();
        let all = state.unended_probes.get(id).into_iter().flatten();
        all.filter(|(_, run)| *run == command).map(|(exec, _)| exec.clone()).collect()
    }

    /// A probe's command has ended after all.
    pub(crate) fn record_ended_probe(&self, id: &ContainerId, exec: &str) {
        let mut state = self.lock();
        if let Some(unended) = state.unended_probes.get_mut(id) {
            unended.remove(exec);
            if unended.is_empty() {
                state.unended_probes.remove(id);
            }
        }
    }

    /// A command was started in a container: by a user or the engine, unless it is one of the agent.
    pub(crate) fn record_exec_start(&self, id: &ContainerId, exec: &str, command: &str, at: Timestamp) {
        let mut state = self.lock();
        if !state.agent_execs.contains(exec) {
            let what = format!("{EXEC}{command}");
            state.add_visit(id, exec, Visit { from: at, to: None, copies: false, what });
        }
    }

    /// A command in a container has ended. Returns the visit, unless it was a command of the agent.
    pub(crate) fn record_exec_end(&self, id: &ContainerId, exec: &str, at: Timestamp) -> Option<Visit> {
        let mut state = self.lock();
        if state.agent_execs.remove(exec) {
            return None;
        }
        let visit = state.visits.get_mut(id)?.get_mut(exec)?;
        visit.to = Some(at);
        Some(visit.clone())
    }

    /// A user has copied files into a container.
    pub(crate) fn record_copy(&self, id: &ContainerId, at: Timestamp) {
        let copy_millis = u64::try_from(COPY_TIME.as_millis()).unwrap_or_default();
        let from = Timestamp(at.0.saturating_sub(copy_millis));
        let visit = Visit { from, to: Some(at), copies: true, what: COPY.to_owned() };
        self.lock().add_visit(id, &format!("copy at {}", at.0), visit);
    }

    /// Forgets a command that turned out to be no visit.
    pub(crate) fn forget_visit(&self, id: &ContainerId, exec: &str) {
        if let Some(visits) = self.lock().visits.get_mut(id) {
            visits.remove(exec);
        }
    }

    /// Commands of users in a container and copies into it.
    pub(crate) fn visits(&self, id: &ContainerId) -> Vec<Visit> {
        self.lock().visits.get(id).into_iter().flat_map(|visits| visits.values().cloned()).collect()
    }

    /// A container was removed.
    pub(crate) fn forget_container(&self, id: &ContainerId) {
        self.retain_containers(|other| other != id);
    }

    /// Forgets containers that do not exist any more.
    pub(crate) fn retain_containers(&self, exists: impl Fn(&ContainerId) -> bool) {
        let AttributionState {
            created,
            new: _,
            with_hooks,
            adopted: _,
            user_stops,
            agent_stops,
            exits,
            agent_execs: _,
            unended_probes,
            visits,
            agent_signals,
            agent_copies,
        } = &mut *self.lock();
        created.retain(|_, id| exists(id));
        with_hooks.retain(|id| exists(id));
        user_stops.retain(|id, _| exists(id));
        agent_stops.retain(|id, _| exists(id));
        exits.retain(|id, _| exists(id));
        unended_probes.retain(|id, _| exists(id));
        visits.retain(|id, _| exists(id));
        agent_signals.retain(|id, _| exists(id));
        agent_copies.retain(|id, _| exists(id));
    }

    /// The event stream was interrupted: the events of announced signals and copies may have been missed.
    pub(crate) fn forget_expected(&self) {
        let mut state = self.lock();
        state.agent_signals.clear();
        state.agent_copies.clear();
    }

    fn lock(&self) -> MutexGuard<'_, AttributionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AttributionState {
    fn add_visit(&mut self, id: &ContainerId, exec: &str, visit: Visit) {
        let visits = self.visits.entry(id.clone()).or_default();
        visits.insert(exec.to_owned(), visit);
        while visits.len() > MAX_VISITS {
            let oldest = visits.iter().min_by_key(|(_, visit)| visit.from).map(|(exec, _)| exec.clone());
            oldest.and_then(|exec| visits.remove(&exec));
        }
    }
}

fn expect(counts: &mut BTreeMap<ContainerId, u32>, id: &ContainerId) {
    let count = counts.entry(id.clone()).or_default();
    *count = count.saturating_add(1);
}

fn take_expected(counts: &mut BTreeMap<ContainerId, u32>, id: &ContainerId) -> bool {
    let Some(count) = counts.get_mut(id) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(id);
    }
    true
}

/// Whether a visit is the container's own health check, as the engine runs it.
pub(crate) fn is_healthcheck(visit: &Visit, container: &Container) -> bool {
    let Some(command) = visit.what.strip_prefix(EXEC) else { return false };
    let Some(Healthcheck { test, .. }) = &container.healthcheck else { return false };
    match test.as_slice() {
        // The image chooses the shell.
        [kind, script] if kind == "CMD-SHELL" => command.ends_with(&format!(" {script}")),
        [kind, words @ ..] if kind == "CMD" => command == words.join(" "),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_agent_are_no_visits() {
        let attribution = Attribution::default();
        let id = ContainerId::from("a");
        attribution.record_agent_exec("ours");
        attribution.record_exec_start(&id, "ours", "probe", Timestamp(1));
        assert_eq!(attribution.record_exec_end(&id, "ours", Timestamp(2)), None);
        attribution.record_exec_start(&id, "theirs", "sh", Timestamp(3));
        assert_eq!(attribution.visits(&id)[0].to, None);
        let ended = attribution.record_exec_end(&id, "theirs", Timestamp(4));
        assert_eq!(ended.map(|visit| visit.to), Some(Some(Timestamp(4))));
        // The end of a command that began before the event stream.
        assert_eq!(attribution.record_exec_end(&id, "unknown", Timestamp(4)), None);
        for number in 0..100 {
            attribution.record_exec_start(&id, &number.to_string(), "sh", Timestamp(5 + number));
        }
        let visits = attribution.visits(&id);
        let first = visits.iter().map(|visit| visit.from).min();
        assert_eq!((visits.len(), first), (32, Some(Timestamp(73))));
        attribution.forget_container(&id);
        assert_eq!(attribution.visits(&id), []);
    }

    #[test]
    fn stops_by_the_agent_are_not_attributed_to_users() {
        let attribution = Attribution::default();
        let id = ContainerId::from("a");
        attribution.begin_agent_stop(&id);
        // The event of an earlier start arrives late.
        attribution.record_start(&id, Timestamp(3));
        attribution.record_stop(&id, Timestamp(5));
        assert_eq!(attribution.user_stop(&id), None);
        attribution.end_agent_stop(&id, &Ok(()), Timestamp(5));
        attribution.record_start(&id, Timestamp(6));
        attribution.record_stop(&id, Timestamp(7));
        assert_eq!(attribution.user_stop(&id), Some(Timestamp(7)));
    }

    #[test]
    fn restart_policy_during_a_stop_makes_no_user_stop() {
        let attribution = Attribution::default();
        let id = ContainerId::from("a");
        attribution.begin_agent_stop(&id);
        // The engine restarts the crashed container just before the agent's signal reaches it.
        attribution.record_start(&id, Timestamp(5));
        attribution.record_stop(&id, Timestamp(6));
        attribution.end_agent_stop(&id, &Ok(()), Timestamp(8));
        attribution.record_stop(&id, Timestamp(7));
        assert_eq!(attribution.user_stop(&id), None);
        assert!(attribution.is_stopped_by_agent(&id));
    }

    #[test]
    fn failed_stop_by_the_agent_hides_no_later_stop_by_a_user() {
        let id = ContainerId::from("a");
        let refused = CallError::Status { code: 409, message: "no".to_owned() };
        let failed = CallError::Status { code: 500, message: "no exit event".to_owned() };
        let away = CallError::Status { code: 503, message: "the engine answered with status 503".to_owned() };
        for (error, user_stop) in [
            (CallError::Unreachable("connection refused".to_owned()), Some(Timestamp(9))),
            (refused, Some(Timestamp(9))),
            (away, Some(Timestamp(9))),
            (CallError::TimedOut(Duration::from_secs(40)), None),
            (failed, None),
        ] {
            let attribution = Attribution::default();
            attribution.begin_agent_stop(&id);
            attribution.end_agent_stop(&id, &Err(error.clone()), Timestamp(5));
            attribution.record_stop(&id, Timestamp(9));
            assert_eq!(attribution.user_stop(&id), user_stop, "{error}");
        }
    }

    #[test]
    fn stop_goes_on_when_its_connection_breaks_after_the_signal() {
        let attribution = Attribution::default();
        let id = ContainerId::from("a");
        let broken = Err(CallError::Unreachable("connection closed before message completed".to_owned()));
        attribution.begin_agent_stop(&id);
        attribution.record_stop(&id, Timestamp(1));
        attribution.end_agent_stop(&id, &broken, Timestamp(5));
        // The container ends later.
        attribution.record_stop(&id, Timestamp(9));
        assert_eq!(attribution.user_stop(&id), None);
        assert!(attribution.is_stopped_by_agent(&id));
        // The next start ends that.
        attribution.record_start(&id, Timestamp(10));
        attribution.begin_agent_stop(&id);
        attribution.end_agent_stop(&id, &broken, Timestamp(12));
        attribution.record_stop(&id, Timestamp(13));
        assert_eq!(attribution.user_stop(&id), Some(Timestamp(13)));
    }

    #[test]
    fn health_checks_are_no_commands_of_users() {
        let container = |test: &[&str]| {
            let test = test.iter().map(|word| (*word).to_owned()).collect();
            let healthcheck = Healthcheck {
                test,
                interval: None,
                timeout: None,
                retries: None,
                start_period: None,
                start_interval: None,
            };
            Container { healthcheck: Some(healthcheck), ..Container::default() }
        };
        let is_check = |command: &str, container: &Container| {
            let what = format!("docker exec {command}");
            let visit = Visit { from: Timestamp(1), to: None, copies: false, what };
            is_healthcheck(&visit, container)
        };
        let shell = container(&["CMD-SHELL", "curl -f localhost"]);
        assert!(is_check("/bin/sh -c curl -f localhost", &shell));
        assert!(!is_check("sh", &shell));
        assert!(is_check("/healthz -q", &container(&["CMD", "/healthz", "-q"])));
        assert!(!is_check("/healthz -q; id", &container(&["CMD", "/healthz", "-q"])));
        assert!(!is_check("sh", &container(&["NONE"])));
        assert!(!is_check("sh", &Container::default()));
    }
}
