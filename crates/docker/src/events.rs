//! The engine's event stream: it makes the cache forget, feeds the attribution and wakes the applications. An event is
//! only a hint, and a missed one does no harm: after every interruption everything is observed again.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use driftless_clock::Clock;
use driftless_model::{AppName, ContainerId, Timestamp, label};
use driftless_plan::reconnect_delay;
use http::{Method, header::DATE};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, Incoming};
use tokio::{
    sync::{Notify, broadcast},
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{info, warn};

use crate::{
    agent_claims::{self, AgentClaims},
    attribution::{Attribution, is_healthcheck},
    cache::{Announcement, Cache, ObjectKind},
    call_error::CallError,
    catalogue::Settled,
    connection::Connection,
    deadline::{ANSWER, PING, within},
    docker::EngineEvent,
    from_engine::is_anonymous_volume,
    raw_event::{IGNORED, RawActor, RawEvent, VISITS},
    remembered::{self, Remembered},
};

/// After this time without an event the engine is pinged.
const QUIET: Duration = Duration::from_secs(3);
/// The engine is pinged this often over a new connection, however much it has to say over the open ones.
const NEW_CONNECTION: Duration = Duration::from_secs(10);
/// After so many pings in a row the engine is asked whether there were events.
const PINGS_PER_CHECK: u32 = 10;
/// The time that an event may take to arrive in the stream.
const DELIVERY: Duration = Duration::from_secs(2);
/// No engine ends and another one answers within this time.
const ENGINE_START: Duration = Duration::from_millis(300);
/// Without another event for this time, a stream has delivered those that were on their way.
const PENDING_EVENTS: Duration = Duration::from_millis(100);
/// Without an event stream, everything is observed again at this interval: nothing else says that a container has ended.
const LOOK_WITHOUT_EVENTS: Duration = Duration::from_secs(30);
/// The number of events that are read while the engine is asked over a new connection.
const MAX_MEANWHILE: usize = 4096;
/// Bytes. An event has a few hundred; an engine that sends this much without a line end is broken.
const LONGEST_LINE: usize = 1 << 20;

/// Events that the engine sends when its list of containers is up to date.
const SETTLED: &[&str] = &["create", "destroy", "health_status", "rename", "start", "unpause", "update"];

/// Follows the event stream of one engine.
pub(crate) struct EventWatcher {
    pub(crate) connection: Arc<Connection>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) attribution: Arc<Attribution>,
    pub(crate) claims: Arc<AgentClaims>,
    pub(crate) events: broadcast::Sender<EngineEvent>,
    /// Notified when a container was found that exited without an event.
    pub(crate) missed_event: Arc<Notify>,
    /// The containers that an earlier process has inspected, until the first event stream is open.
    pub(crate) remembered: Option<Remembered>,
    pub(crate) clock: Clock,
}

/// An open event stream.
struct EventStream {
    body: Incoming,
    /// The beginning of an event whose end has not arrived.
    pending: Vec<u8>,
    /// The time of the last event in nanoseconds, by the engine's clock. `None` if the engine never stated its time.
    last_event: Option<u64>,
    /// The engine's time when the stream was opened.
    opened: Option<Timestamp>,
}

impl EventStream {
    /// Takes a piece of the stream. Fails if the stream has ended.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, hyper::Error>>) -> Result<(), StreamEnd> {
        let Some(frame) = frame else {
            let ended = CallError::Unreachable("the engine ended the event stream".to_owned());
            return Err(StreamEnd::Ended(ended));
        };
        let frame = frame.map_err(|error| StreamEnd::Ended(CallError::interrupted(&error)))?;
        if let Ok(data) = frame.into_data() {
            self.pending.extend_from_slice(&data);
        }
        Ok(())
    }

    /// Takes the pieces that are on their way. Fails if the stream has ended.
    async fn take_pending(&mut self) -> Result<(), StreamEnd> {
        let end = Instant::now() + 5 * PENDING_EVENTS;
        while Instant::now() < end
            && self.pending.len() <= LONGEST_LINE
            && let Ok(frame) = timeout(PENDING_EVENTS, self.body.frame()).await
        {
            self.take(frame)?;
        }
        Ok(())
    }

    /// The events that have arrived completely.
    fn events(&mut self) -> Vec<ReadEvent> {
        let end = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let complete: Vec<u8> = self.pending.drain(..end).collect();
        let lines = complete.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
        lines.map(serde_json::from_slice).collect()
    }
}

/// An event, or why it could not be read.
type ReadEvent = Result<RawEvent, serde_json::Error>;

/// Why there is no event stream.
enum StreamEnd {
    /// The engine does not answer, or takes no new connection.
    Lost(CallError),
    /// The open stream ended. The engine may answer all the same: a proxy in front of it ends silent connections.
    Ended(CallError),
    /// No stream was opened. The engine may answer all the same: a filter in front of it refuses the stream.
    Unopened(CallError),
    /// The engine answers and has events, which do not arrive: a half-open connection, for example.
    Mute,
}

/// The problems that were reported last, so that each is reported once.
#[derive(Default)]
struct ReportedProblems {
    /// Why the engine does not answer.
    lost: Option<CallError>,
    /// Why there is no event stream although the engine answers.
    unopened: Option<CallError>,
    /// When everything was last observed again because there is no event stream.
    last_look: Option<Instant>,
}

impl ReportedProblems {
    fn note_answer(&mut self) {
        if self.lost.take().is_some() {
            info!("the Docker Engine answers again");
        }
    }

    fn note_stream(&mut self) {
        if self.unopened.take().is_some() {
            info!("the event stream of the Docker Engine is open");
        }
        self.note_answer();
    }

    /// Reports why there is no event stream although the engine answers. Returns whether everything has to be observed again.
    fn note_unopened(&mut self, error: CallError) -> bool {
        if self.unopened.as_ref() != Some(&error) {
            let problem = problem_of_unopened(&error);
            let every = LOOK_WITHOUT_EVENTS.as_secs();
            warn!(%error, "{problem}, so changes are noticed after up to {every} s; trying again");
            self.unopened = Some(error);
        }
        let now = Instant::now();
        let is_due = self.last_look.is_none_or(|last| now.duration_since(last) >= LOOK_WITHOUT_EVENTS);
        if is_due {
            self.last_look = Some(now);
        }
        is_due
    }
}

impl EventWatcher {
    /// Runs until it is aborted.
    pub(crate) async fn run(self) {
        let connection = Arc::clone(&self.connection);
        tokio::select! {
            () = self.follow_events() => {}
            () = connection.follow_reloads() => {}
        }
    }

    async fn follow_events(mut self) {
        let mut attempt = 0;
        let mut reported = ReportedProblems::default();
        // Whether claims may have been missed.
        let mut was_deaf = false;
        loop {
            let end = match self.subscribe().await {
                Ok(stream) => {
                    attempt = 0;
                    reported.note_stream();
                    self.recall(stream.opened).await;
                    // Before the applications are woken, which then wait until the id is claimed again.
                    if was_deaf {
                        self.claims.doubt();
                    }
                    self.begin();
                    self.claims.hear_open_claims().await;
                    self.listen(stream).await
                }
                Err(end) => end,
            };
            was_deaf = true;
            self.cache.interrupt();
            self.attribution.forget_expected();
            self.report_end(end, &mut reported).await;
            sleep(reconnect_delay(attempt, self.clock.now().0)).await;
            attempt += 1;
        }
    }

    /// Reports that the engine is lost, or that it answers although there is no event stream: everything is then read each
    /// time.
    async fn report_end(&self, end: StreamEnd, reported: &mut ReportedProblems) {
        if !matches!(end, StreamEnd::Mute) {
            // Another engine may answer next.
            self.connection.forget_version();
        }
        let mut must_look = false;
        let lost = match end {
            StreamEnd::Mute => {
                warn!("the event stream misses events of the Docker Engine; opening another one");
                None
            }
            StreamEnd::Lost(error) => Some(error),
            StreamEnd::Ended(error) => {
                info!(%error, "the event stream of the Docker Engine ended; opening another one");
                self.reach().await.err()
            }
            StreamEnd::Unopened(error) => {
                let lost = self.reach().await.err();
                must_look = lost.is_none() && reported.note_unopened(error);
                lost
            }
        };
        match lost {
            Some(error) if reported.lost.as_ref() == Some(&error) => {}
            Some(error) => {
                warn!(%error, "the Docker Engine does not answer; trying again");
                self.connection.set_answering(false);
                self.send(EngineEvent::Disconnected { error: error.to_string() });
                reported.lost = Some(error);
            }
            None if self.connection.is_answering() && !must_look => {}
            None => {
                reported.note_answer();
                self.report_answer();
            }
        }
    }

    /// Takes what an earlier process has inspected and what has not changed since.
    async fn recall(&mut self, opened: Option<Timestamp>) {
        let Some(remembered) = self.remembered.take() else { return };
        let unchanged = remembered::unchanged(&self.connection, self.clock, remembered, opened).await;
        self.cache.recall(unchanged);
    }

    /// Everything is read and observed again.
    fn begin(&self) {
        self.cache.begin(self.clock.now());
        self.attribution.forget_expected();
        self.report_answer();
    }

    fn report_answer(&self) {
        self.connection.set_answering(true);
        self.send(EngineEvent::Connected);
    }

    /// Fails if the engine does not answer. One that answers over open connections alone is not reachable.
    async fn reach(&self) -> Result<(), CallError> {
        self.connection.ping_over_new_connection().await?;
        self.connection.api_version().await.map(drop)
    }

    /// Returns as soon as the engine has opened the stream.
    async fn subscribe(&self) -> Result<EventStream, StreamEnd> {
        self.reach().await.map_err(StreamEnd::Lost)?;
        let request = self.connection.transport().send(Method::GET, "/events", Vec::new());
        let response = within(ANSWER, request).await.map_err(StreamEnd::Unopened)?;
        // The header has whole seconds: events up to the next one may be older than the stream.
        let opened = response.headers().get(DATE).and_then(|it| Timestamp::parse_http(it.to_str().ok()?));
        let last_event = opened.map(|at| at.after(Duration::from_secs(1)).0.saturating_mul(1_000_000));
        Ok(EventStream { body: response.into_body(), pending: Vec::new(), last_event, opened })
    }

    /// Returns why the stream ended.
    async fn listen(&self, mut stream: EventStream) -> StreamEnd {
        let mut pings = 0;
        let mut next_connection = Instant::now() + NEW_CONNECTION;
        loop {
            let must_check = tokio::select! {
                frame = stream.body.frame() => {
                    pings = 0;
                    if let Err(end) = self.handle_frame(&mut stream, frame).await {
                        return end;
                    }
                    continue;
                }
                () = self.missed_event.notified() => true,
                () = self.connection.doubted() => {
                    next_connection = Instant::now();
                    continue;
                }
                () = sleep_until(next_connection) => {
                    if let Err(error) = self.connection.ping_over_new_connection().await {
                        return StreamEnd::Lost(error);
                    }
                    next_connection = Instant::now() + NEW_CONNECTION;
                    continue;
                }
                // A process that is stopped keeps the connection open and sends nothing.
                () = sleep(QUIET) => {
                    if self.connection.ping().await.is_err() {
                        return StreamEnd::Lost(CallError::TimedOut(PING));
                    }
                    pings += 1;
                    pings % PINGS_PER_CHECK == 0
                }
            };
            if must_check && self.has_events_since(stream.last_event).await {
                match timeout(DELIVERY, stream.body.frame()).await {
                    Ok(frame) => {
                        if let Err(end) = self.handle_frame(&mut stream, frame).await {
                            return end;
                        }
                    }
                    Err(_) => return StreamEnd::Mute,
                }
            }
        }
    }

    /// Handles the events in a piece of the stream. Fails if the stream has ended, or the engine shuts down.
    async fn handle_frame(
        &self,
        stream: &mut EventStream,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Result<(), StreamEnd> {
        stream.take(frame)?;
        let mut events = self.arrived_events(stream).await?;
        while !events.is_empty() {
            let later = if events.iter().flatten().any(|event| self.is_end_by_others(event)) {
                self.require_no_shutdown(stream).await?
            } else {
                Vec::new()
            };
            for event in std::mem::replace(&mut events, later) {
                stream.last_event = self.handle_read(event).max(stream.last_event);
            }
        }
        Ok(())
    }

    /// The events that have arrived completely. The claims among them are answered at once: another agent waits only a second
    /// for that.
    async fn arrived_events(&self, stream: &mut EventStream) -> Result<Vec<ReadEvent>, StreamEnd> {
        let events = stream.events();
        if stream.pending.len() > LONGEST_LINE {
            let endless = CallError::Unreachable("the engine sent an event without an end".to_owned());
            return Err(StreamEnd::Ended(endless));
        }
        for RawEvent { kind, action, actor, time_nano: _ } in events.iter().flatten() {
            if kind == "volume" {
                self.claims.hear(&actor.id, action);
            }
        }
        self.claims.answer_claims().await;
        Ok(events)
    }

    /// Whether a container of the agent has ended, or is being stopped, and not by the agent.
    fn is_end_by_others(&self, event: &RawEvent) -> bool {
        let RawEvent { kind, action, actor: RawActor { id, attributes }, time_nano: _ } = event;
        if kind != "container" || !matches!(action.as_str(), "kill" | "die" | "stop") {
            return false;
        }
        let id = ContainerId(id.clone());
        self.app_of(&id, attributes).is_some() && !self.attribution.is_stopped_by_agent(&id)
    }

    /// Fails if the engine shuts down: it then stops its containers, which looks like stops by users. Before that it closes
    /// its socket, so a stop is a user's if the engine takes a new connection after it. Returns the events that arrived
    /// meanwhile.
    async fn require_no_shutdown(&self, stream: &mut EventStream) -> Result<Vec<ReadEvent>, StreamEnd> {
        let began = Instant::now();
        let mut meanwhile = Vec::new();
        let mut answer = pin!(self.connection.ping_over_new_connection());
        loop {
            tokio::select! {
                answered = &mut answer => {
                    answered.map_err(StreamEnd::Lost)?;
                    break;
                }
                frame = stream.body.frame(), if meanwhile.len() < MAX_MEANWHILE => {
                    stream.take(frame)?;
                    meanwhile.extend(self.arrived_events(stream).await?);
                }
            }
        }
        if began.elapsed() >= ENGINE_START {
            // systemd may keep the socket for the next engine, which has answered then; this one has ended the stream.
            stream.take_pending().await?;
            meanwhile.extend(self.arrived_events(stream).await?);
        }
        Ok(meanwhile)
    }

    /// Whether the engine remembers events after a time in nanoseconds. False if it cannot tell.
    async fn has_events_since(&self, nanos: Option<u64>) -> bool {
        let Some(nanos) = nanos.map(|it| it.saturating_add(1)) else { return false };
        let Timestamp(now) = self.clock.now();
        // Podman remembers events that it does not send.
        if nanos / 1_000_000 >= now || self.connection.is_podman() {
            return false;
        }
        let (since, since_nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let path = format!("/events?since={since}.{since_nanos:09}&until={}.{:03}", now / 1000, now % 1000);
        let remembered = async {
            let response = self.connection.transport().send(Method::GET, &path, Vec::new()).await?;
            Ok(matches!(response.into_body().frame().await, Some(Ok(_))))
        };
        within(PING, remembered).await.unwrap_or_default()
    }

    /// Handles one event and returns its time in nanoseconds. After an unreadable one everything is observed again.
    fn handle_read(&self, event: ReadEvent) -> Option<u64> {
        match event {
            Ok(event) => {
                let time = event.time_nano;
                self.handle(event);
                self.cache.note_event(time);
                time
            }
            Err(error) => {
                warn!(%error, "could not read an event of the Docker Engine; observing everything again");
                self.begin();
                None
            }
        }
    }

    fn handle(&self, event: RawEvent) {
        let RawEvent { kind, action, actor: RawActor { id, attributes }, time_nano } = event;
        let action_name = action.split(':').next().unwrap_or_default();
        let is_known = matches!(
            kind.as_str(),
            "container"
                | "network"
                | "volume"
                | "image"
                | "daemon"
                | "service"
                | "node"
                | "config"
                | "secret"
        );
        if !is_known || IGNORED.contains(&action_name) {
            return;
        }
        // It is removed at once, and no list has it. An image may have the label too.
        let is_trial = attributes.contains_key(label::TRIAL) && !attributes.contains_key(label::APPLICATION);
        if kind == "container" && is_trial {
            return;
        }
        // A claim was heard when it arrived.
        if kind == "volume" && agent_claims::is_claim(&id) {
            return;
        }
        let at = time_nano.map(|nanos| Timestamp(nanos / 1_000_000));
        let is_visit = VISITS.contains(&action_name);
        if is_visit {
            let id = ContainerId(id.clone());
            // No application depends on commands in the containers of others, such as their health checks.
            if self.app_of(&id, &attributes).is_none() || !self.record_visit(&id, &action, &attributes, at) {
                return;
            }
        }
        let app = match kind.as_str() {
            "container" => {
                let id = ContainerId(id.clone());
                if !is_visit {
                    self.record_container(&id, action_name, at);
                }
                self.app_of(&id, &attributes)
            }
            "network" => self.record_network(&id, action_name, &attributes),
            "volume" => {
                let volumes = self.cache.objects(ObjectKind::Volumes);
                let app = volumes.last_known().and_then(|volumes| volumes.app(&id).cloned());
                volumes.note_change(&id, Settled::Yes);
                // It comes and goes with a container, such as the trial of a definition, and would wake all applications.
                if app.is_none() && is_anonymous_volume(&id) {
                    return;
                }
                app
            }
            "image" => {
                self.cache.invalidate_images();
                None
            }
            "daemon" => {
                self.connection.note_reload();
                None
            }
            _ => None,
        };
        let name = attributes.get("name").cloned().unwrap_or(id);
        self.send(EngineEvent::ObjectChanged { app, kind, name, action, at });
    }

    /// The application that a container belongs to, by its label or because it has adopted it.
    fn app_of(&self, id: &ContainerId, attributes: &BTreeMap<String, String>) -> Option<AppName> {
        let labelled = attributes.get(label::APPLICATION).cloned().map(AppName);
        labelled.or_else(|| self.attribution.adopter(id))
    }

    /// Records a command in a container or a copy into it. True if a visit by a user has ended, which may have changed
    /// files.
    fn record_visit(
        &self,
        id: &ContainerId,
        action: &str,
        attributes: &BTreeMap<String, String>,
        at: Option<Timestamp>,
    ) -> bool {
        let at = at.unwrap_or_else(|| self.clock.now());
        let exec = attributes.get("execID").map(String::as_str).unwrap_or_default();
        match action.split_once(": ") {
            Some(("exec_start", command)) => {
                self.attribution.record_exec_start(id, exec, command, at);
                false
            }
            None if action == "exec_die" => {
                let Some(visit) = self.attribution.record_exec_end(id, exec, at) else { return false };
                let inspected = self.cache.container(id);
                let is_check =
                    inspected.is_some_and(|inspected| is_healthcheck(&visit, &inspected.instance.config));
                if is_check {
                    self.attribution.forget_visit(id, exec);
                }
                !is_check
            }
            None if action == "extract-to-dir" => {
                if self.attribution.take_copy(id) {
                    return false;
                }
                self.attribution.record_copy(id, at);
                true
            }
            _ => false,
        }
    }

    fn record_container(&self, id: &ContainerId, action: &str, at: Option<Timestamp>) {
        let at = at.unwrap_or_else(|| self.clock.now());
        match action {
            "kill" if self.attribution.take_signal(id) => {}
            "kill" | "stop" | "pause" => self.attribution.record_stop(id, at),
            "start" | "unpause" => self.attribution.record_start(id, at),
            "die" => self.attribution.record_exit(id, at),
            "destroy" => self.attribution.forget_container(id),
            _ => {}
        }
        let settled = if SETTLED.contains(&action) { Settled::Yes } else { Settled::Soon };
        match action {
            "create" => self.cache.announce(id, Announcement::Created, settled),
            "start" => self.cache.announce(id, Announcement::Started(at), settled),
            _ => self.cache.invalidate_container(id, settled),
        }
    }

    /// Returns the application to wake: the container's owner when it connects or disconnects, else the network's.
    fn record_network(
        &self,
        id: &str,
        action: &str,
        attributes: &BTreeMap<String, String>,
    ) -> Option<AppName> {
        let networks = self.cache.objects(ObjectKind::Networks);
        let of_network = networks.last_known().and_then(|networks| networks.app(id).cloned());
        let of_network = of_network.or_else(|| self.attribution.creator(id));
        if !matches!(action, "connect" | "disconnect") {
            networks.note_change(id, Settled::Yes);
            return of_network;
        }
        let container = ContainerId(attributes.get("container")?.clone());
        let inspected = self.cache.container(&container);
        let of_container = inspected.and_then(|inspected| inspected.listed.app.clone());
        // An event without an application wakes all of them: with 100 applications, each connection of a container that
        // was not inspected yet made 100 rounds.
        let of_container = of_container.or_else(|| {
            let list = self.cache.container_list().last_known()?;
            list.containers.get(&container)?.app.clone()
        });
        let of_container = of_container.or_else(|| self.attribution.creator(container.as_str()));
        let of_container = of_container.or_else(|| self.attribution.adopter(&container));
        if action == "connect" {
            self.cache.announce(&container, Announcement::Connected(id.to_owned()), Settled::Soon);
        } else {
            self.cache.invalidate_container(&container, Settled::Soon);
        }
        of_container.or(of_network)
    }

    fn send(&self, event: EngineEvent) {
        // It fails if there is no receiver, which is no fault.
        let _ = self.events.send(event);
    }
}

/// The sentence about an engine that answers and gives no event stream. Only an answer is a refusal: a slow engine may open the
/// stream at the next try.
fn problem_of_unopened(error: &CallError) -> &'static str {
    match error {
        CallError::Status { .. } => "the Docker Engine answers and refuses its event stream (`GET /events`)",
        CallError::Unreachable(_) | CallError::TimedOut(_) => {
            "the Docker Engine answers, but its event stream did not open"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_that_does_not_open_in_time_is_not_refused() {
        let refused = CallError::Status { code: 403, message: "forbidden".to_owned() };
        assert!(problem_of_unopened(&refused).contains("refuses"));
        for error in [CallError::TimedOut(ANSWER), CallError::Unreachable("broken pipe".to_owned())] {
            assert!(!problem_of_unopened(&error).contains("refuses"), "{error}");
        }
    }
}
