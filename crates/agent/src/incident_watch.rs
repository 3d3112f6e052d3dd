//! Decides about incidents from what is published, and keeps them with their notifications in the outbox.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::broadcast::error::RecvError, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::LastReading;
use driftless_config::{NotificationReceiver, Notifications as Settings};
use driftless_fleet::HostState;
use driftless_model::{
    AppName, Application, ApplicationStatus, Event, HealthStatus, IncidentPhase, Location, OperationPhase,
    Stack, Timestamp, Workload, WorkloadName, WorkloadStatus, older_success,
};
use driftless_notify::receivers;
use driftless_plan::{IncidentChange, IncidentFacts, IncidentTimes, incidents};
use driftless_store as store;
use driftless_store::{IncidentUpdate, Store};

use crate::{
    Applications, Handle, error::chain, fleet::hosts::fleet_hosts, lasting_tasks,
    notifications::Notifications,
};

/// Changes of the status within this time are judged together.
const TOGETHER: Duration = Duration::from_secs(1);

/// The longest time between two judgements.
const JUDGE_EVERY: Duration = Duration::from_secs(30);

/// A longer time between two judgements means that the clock has jumped.
const JUMP: Duration = Duration::from_mins(2);

/// A difference counts as new for this long after its event.
const DRIFT_LASTS: Duration = Duration::from_mins(1);

/// Notifications of ended incidents that could not be sent for this long after they were due are dropped.
const OLDEST: Duration = Duration::from_hours(72);

/// The number of events of one read.
const PAGE: usize = 500;

/// Starts the tasks that decide about incidents and send notifications. Without a receiver there are none.
pub fn start_notifications(
    notifications: &Notifications,
    handle: &Handle,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    if !notifications.is_needed() {
        return;
    }
    let started = notifications.clock().now();
    let watcher = Watcher {
        notifications: notifications.clone(),
        handle: handle.clone(),
        drift: BTreeMap::new(),
        started,
        judged: started,
        reading: LastReading::new(started),
        jump: Duration::ZERO,
    };
    lasting_tasks::start("incidents", (stop.clone(), tasks), watcher.run(stop.clone()));
    notifications.start_sending(stop, tasks);
}

/// Decides about incidents.
struct Watcher {
    notifications: Notifications,
    handle: Handle,
    /// The newest drift of each application, and when it was seen.
    drift: BTreeMap<AppName, (Timestamp, String)>,
    /// When the agent started, or when its clock last jumped: after a sleep of the machine, or because it was set.
    started: Timestamp,
    /// When incidents were last judged.
    judged: Timestamp,
    /// The clocks then.
    reading: LastReading,
    /// By how much the clock has gone on alone since incidents were last kept.
    jump: Duration,
}

impl Watcher {
    async fn run(mut self, stop: CancellationToken) {
        let mut events = self.handle.events();
        let mut applications = self.handle.clone();
        loop {
            let now = self.notifications.clock().now();
            // The agent has not lived through that time, so silence in it says nothing about others.
            if now.since(self.judged).max(self.judged.since(now)) > JUMP {
                tracing::info!("the clock has jumped; waiting before missing reports count");
                self.started = now;
            }
            self.judged = now;
            if let Some(jump) = self.reading.jump(now) {
                self.leave_out_jump(jump, now);
            }
            let next = self.judge(now).unwrap_or_else(|error| {
                tracing::warn!(error = chain(&error), "could not decide about incidents");
                None
            });
            let pause = next.map_or(JUDGE_EVERY, |at| at.since(now).clamp(TOGETHER, JUDGE_EVERY));
            tokio::select! {
                () = stop.cancelled() => return,
                is_published = applications.changed() => if !is_published { return },
                event = events.recv() => if event == Err(RecvError::Closed) { return },
                () = sleep(pause) => continue,
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(TOGETHER) => {}
            }
        }
    }

    /// Leaves out a time by which the clock has gone on alone: nobody could see or send anything in it.
    fn leave_out_jump(&mut self, jump: Duration, now: Timestamp) {
        self.jump = self.jump.saturating_add(jump);
        let moved = self.notifications.outbox().change(|store| store.leave_out_jump(jump, now));
        if let Err(error) = moved {
            tracing::warn!(error = chain(&error), "could not leave out a jump of the clock");
        }
        // The end of a digest or of quiet hours may have come.
        self.notifications.wake();
    }

    /// Compares what is published with the open incidents. Returns when to do so again.
    fn judge(&mut self, now: Timestamp) -> Result<Option<Timestamp>, store::Error> {
        let (store, settings) = (self.notifications.store(), self.notifications.settings());
        let known = self.notifications.names();
        let kept = self.notifications.outbox().current();
        let open = kept.open_incidents()?;
        let handled_event = read_events(store, kept.handled_event()?, &mut self.drift, now)?;
        self.drift.retain(|_, (seen, _)| seen.is_recent(DRIFT_LASTS, now));
        let drift = self.drift.iter().map(|(app, (_, message))| (app.clone(), message.clone())).collect();
        let readiness = self.handle.readiness();
        let engine_error = (!readiness.docker).then_some(match readiness.message.as_str() {
            "" => "it has not answered yet",
            message => message,
        });
        let (applications, repositories) = (self.handle.applications(), self.handle.repositories());
        let hosts = hosts(&self.handle, store, now)?;
        let source = self.handle.fleet().source().status();
        let expiries = self.handle.expiries().list();
        let with_older = with_older(&applications, store);
        let facts = IncidentFacts {
            expiries: &expiries,
            hosts: &hosts,
            is_fleet_read: source.is_none_or(|source| source.incomplete().is_none()),
            applications: &applications,
            repositories: &repositories,
            engine_error,
            is_ready: readiness.is_ready(),
            drift: &drift,
            with_older: &with_older,
            started: self.started,
            jump: self.jump,
            now,
        };
        let times = IncidentTimes {
            degraded: settings.degraded_after,
            git: settings.git_unreachable_after,
            update: settings.update_interval,
        };
        let (changes, next) = incidents(&open, &facts, &times);
        let mut update = IncidentUpdate { handled_event, ..IncidentUpdate::default() };
        for change in changes {
            note(change, settings, &known, &mut update);
        }
        self.notifications.outbox().update(&update, now)?;
        self.jump = Duration::ZERO;
        let limits = settings.receivers.iter().map(|receiver| (receiver.name.clone(), oldest(receiver, now)));
        let limits: BTreeMap<String, Timestamp> = limits.collect();
        let dropped = self.notifications.outbox().change(|store| store.drop_notifications(&limits));
        let dropped = dropped.unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not remove old notifications");
            0
        });
        if dropped > 0 {
            tracing::warn!(dropped, "notifications could not be sent for too long");
        }
        for (_, incident, receivers) in &update.notifications {
            let app = incident.app.as_ref().map(tracing::field::display);
            tracing::info!(app, incident = incident.key(), problem = incident.message, receivers = ?receivers, "incident");
        }
        if !update.notifications.is_empty() {
            self.notifications.wake();
        }
        let drift_ends = self.drift.values().map(|(seen, _)| seen.after(DRIFT_LASTS)).min();
        Ok([next, drift_ends].into_iter().flatten().min())
    }
}

/// The time before which the notifications of a receiver are dropped. A digest collects them first.
fn oldest(receiver: &NotificationReceiver, now: Timestamp) -> Timestamp {
    let longest = OLDEST.saturating_add(receiver.digest.unwrap_or_default());
    now.before(longest)
}

/// The applications that are not well and have an older revision that may be well.
fn with_older(applications: &Applications, store: &Store) -> BTreeSet<AppName> {
    // It is only an advice: a revision that cannot be read must not hold back the incidents.
    let may_go_back = |name: &AppName, status: &ApplicationStatus| {
        has_way_back(name, status, store).unwrap_or_else(|error| {
            tracing::warn!(app = %name, error = chain(&error), "could not read the older revisions");
            false
        })
    };
    let mut found = BTreeSet::new();
    for Application { name, status, .. } in applications.values().map(Arc::as_ref) {
        let is_unwell = matches!(status.health, HealthStatus::Degraded | HealthStatus::Missing)
            || status.operation.as_ref().is_some_and(|operation| operation.phase == OperationPhase::Failed);
        if is_unwell && may_go_back(name, status) {
            found.insert(name.clone());
        }
    }
    found
}

/// Whether an application has an older revision, and it is another one for a workload that is not well. A commit whose `PreSync` hooks
/// have not succeeded has changed nothing, so there is no way to go back.
fn has_way_back(name: &AppName, status: &ApplicationStatus, store: &Store) -> Result<bool, store::Error> {
    let history = store.revisions(name)?;
    let Some((current, older)) = history.first().zip(older_success(&history)) else { return Ok(false) };
    if store.record(name)?.hooks.is_some_and(|hooks| !hooks.passed) {
        return Ok(false);
    }
    let stacks = store.stack(name, current.number)?.zip(store.stack(name, older.number)?);
    // Nothing goes back to one that cannot be read.
    let Some((present, former)) = stacks else { return Ok(false) };
    let is_unwell =
        |workload: &WorkloadStatus| matches!(workload.health, HealthStatus::Degraded | HealthStatus::Missing);
    let mut unwell = status.workloads.iter().filter(|(_, workload)| is_unwell(workload)).peekable();
    // Another line of the manifest changes nothing.
    let definition = |stack: &Stack, name: &WorkloadName| {
        let workload = stack.workloads.get(name)?;
        Some(Workload { origin: Location::default(), ..workload.clone() })
    };
    let is_other = |name: &WorkloadName| definition(&present, name) != definition(&former, name);
    Ok(unwell.peek().is_none() || unwell.any(|(name, _)| is_other(name)))
}

/// The hosts of a collector, each with a sentence if it is lost. One that is only expected is left out: it stays listed
/// after it was removed, and while its reports cannot be read, and is not back.
fn hosts(
    handle: &Handle,
    store: &Store,
    now: Timestamp,
) -> Result<BTreeMap<String, Option<String>>, store::Error> {
    let hosts = fleet_hosts(handle, store, now)?.into_iter();
    Ok(hosts
        .filter(|host| host.report.is_some() || host.last_heard.is_some())
        .map(|host| {
            let sentence = || host.last_heard.map(|at| format!("last heard at {at}")).unwrap_or_default();
            let lost = (host.state == HostState::Lost).then(sentence);
            (host.name, lost)
        })
        .collect())
}

/// Adds a change to the update, with the receivers of its notification.
fn note(change: IncidentChange, settings: &Settings, known: &BTreeSet<String>, update: &mut IncidentUpdate) {
    match change {
        IncidentChange::Keep(incident) => update.kept.push(incident),
        IncidentChange::Drop(incident) => update.ended.push(incident),
        IncidentChange::Notify(phase, mut incident) => {
            let before = std::mem::take(&mut incident.receivers);
            let told = match phase {
                IncidentPhase::Opened => receivers(&incident, settings),
                IncidentPhase::Updated => &receivers(&incident, settings) | &before,
                IncidentPhase::Recovered => before,
            };
            let told: BTreeSet<String> = &told & known;
            incident.receivers.clone_from(&told);
            if phase == IncidentPhase::Recovered {
                update.ended.push(incident.clone());
            } else {
                update.kept.push(incident.clone());
            }
            if !told.is_empty() {
                update.notifications.push((phase, incident, told));
            }
        }
    }
}

/// Reads the events after `handled`, the newest one of the last time, and notes the drift among them. Returns the new position
/// if it must be stored.
fn read_events(
    store: &Store,
    handled: Option<u64>,
    drift: &mut BTreeMap<AppName, (Timestamp, String)>,
    now: Timestamp,
) -> Result<Option<u64>, store::Error> {
    let newest = store.newest_events(1, None)?.last().map_or(0, |event| event.sequence);
    let Some(handled) = handled.filter(|handled| *handled <= newest) else {
        // Earlier events are no news, and a position beyond the newest belongs to a database that was lost.
        return Ok(Some(newest));
    };
    let mut position = handled;
    let mut found: BTreeMap<AppName, Vec<String>> = BTreeMap::new();
    loop {
        let page = store.events(position, PAGE, None)?;
        let Some(last) = page.last() else { break };
        position = last.sequence;
        let is_whole = page.len() == PAGE;
        for event in page.into_iter().filter(|event| event.reason == "DriftDetected") {
            let Event { app, object, message, .. } = event;
            found.entry(app).or_default().push(format!("{object}: {message}"));
        }
        if !is_whole {
            break;
        }
    }
    let has_found = !found.is_empty();
    for (app, sentences) in found {
        let more = sentences.len().saturating_sub(3);
        let mut text = sentences.into_iter().take(3).collect::<Vec<_>>().join("; ");
        if more > 0 {
            text = format!("{text}; and {more} more");
        }
        drift.insert(app, (now, text));
    }
    let is_far = position.saturating_sub(handled) >= PAGE as u64;
    Ok((has_found || is_far).then_some(position))
}

#[cfg(test)]
mod tests {
    use driftless_config::{Secret, Target};
    use driftless_model::{
        Completion, Container, HookRecord, Outcome, PullPolicy, Record, StackHash, Strategy,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        context::tests::{context, new_revision},
        desired::tests::stack as empty_stack,
    };

    /// A stack of a service `web` and a service `worker` with these images. Their lines are those of this revision.
    fn stack(number: u32, web: &str, worker: &str) -> Stack {
        let mut stack = empty_stack("shop");
        for (name, image) in [("web", web), ("worker", worker)] {
            let workload = json!({
                "origin": Location { line: number, ..Location::default() }, "replicas": 1,
                "container": Container { image: image.to_owned(), ..Container::default() },
                "strategy": Strategy::Recreate, "progressDeadline": Duration::from_mins(10),
                "pull": PullPolicy::IfNotPresent, "completion": Completion::OnSuccess,
            });
            stack.workloads.insert(name.into(), serde_json::from_value(workload).unwrap());
        }
        stack
    }

    #[test]
    fn way_back_leads_to_another_version_of_the_unwell() {
        let (context, _folder) = context();
        let (name, store) = (context.name(), context.store());
        for (number, stack) in [(1, stack(1, "web:1", "worker:1")), (2, stack(2, "web:2", "worker:1"))] {
            store.begin_revision(&new_revision(name), &stack).unwrap();
            store.finish_revision(name, number, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
        }
        let unwell = |workload: &str| {
            let degraded = WorkloadStatus { health: HealthStatus::Degraded, ..WorkloadStatus::default() };
            let workloads = Arc::new(BTreeMap::from([(workload.into(), degraded)]));
            ApplicationStatus { workloads, ..ApplicationStatus::default() }
        };
        for (workload, expected) in [("web", true), ("worker", false)] {
            assert_eq!(has_way_back(name, &unwell(workload), store).unwrap(), expected, "{workload}");
        }
        // As with a hook that fails: it is no workload of Git.
        let failed = ApplicationStatus::default();
        assert!(has_way_back(name, &failed, store).unwrap());
        let hash = StackHash::of(&stack(2, "web:2", "worker:1"));
        let hooks = Some(Box::new(HookRecord::new(2, 1, hash, BTreeMap::new())));
        store.save_record(name, &Record { hooks, ..Record::default() }).unwrap();
        assert!(!has_way_back(name, &failed, store).unwrap(), "nothing of it is applied");
    }

    #[test]
    fn digest_of_a_week_is_sent_before_it_is_dropped() {
        let now = Timestamp(1_800_000_000_000);
        let receiver = |digest| NotificationReceiver {
            name: "mail".to_owned(),
            target: Target::Slack { url: Secret::Environment("URL".to_owned()) },
            ca_file: None,
            title: None,
            body: None,
            quiet_hours: None,
            digest,
            rate_limit: 10,
        };
        let day = Duration::from_hours(24);
        assert_eq!(oldest(&receiver(None), now).after(day * 3), now);
        assert_eq!(oldest(&receiver(Some(day * 7)), now).after(day * 10), now);
    }
}
