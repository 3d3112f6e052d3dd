//! Notifications: the receivers of one agent. One task per receiver sends what waits for it in the outbox. No round waits
//! for a receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_config::{NotificationReceiver, Notifications as Settings, Secret, Target};
use driftless_git::{Lookup, read_secret, read_secret_list};
use driftless_model::{
    Incident, IncidentKind, IncidentPhase, Notification, NotificationStatus, ReceiverStatus, Timestamp,
};
use driftless_notify::{
    Due, Message, RATE_TIME, RefusedRecipient, Sender, SenderHost, describe_routes, due, sample,
};
use driftless_plan::remote_delay;
use driftless_store as store;
use driftless_store::Store;

use crate::{RequestError, error::chain, lasting_tasks, outbox::Outbox, random::seed};

/// The pause after a refusal that only a user can end, such as that of a wrong token.
const REFUSED_PAUSE: Duration = Duration::from_mins(10);

/// The longest test: a mail server is tried at each of its addresses in turn, and the command line waits no longer than 40 seconds. An
/// error of the first address still arrives.
const TEST_WITHIN: Duration = Duration::from_secs(35);

/// Longest pause while nothing waits.
const LOOK_EVERY: Duration = Duration::from_hours(1);

/// The most incidents of one repeat. The next request has the rest.
const REPEATED_AT_ONCE: usize = 50;

/// The most notifications of one message that are refused alone before the agent waits again.
const MOST_REFUSED: usize = 10;

/// Notifications of one agent: their state, and test messages. Clones share it.
#[derive(Clone)]
pub struct Notifications(Arc<Inner>);

struct Inner {
    settings: Settings,
    senders: Vec<Sender>,
    store: Store,
    outbox: Outbox,
    clock: Clock,
    /// Notified when something waits to be sent.
    waiting: Vec<Arc<Notify>>,
    /// The host that messages name.
    host: SenderHost,
    /// The last result of each receiver.
    results: Mutex<BTreeMap<String, LastResult>>,
}

#[derive(Clone, Debug, Default)]
struct LastResult {
    sent: Option<Timestamp>,
    error: String,
}

impl Notifications {
    /// The senders of all receivers.
    ///
    /// # Errors
    ///
    /// If the template of a receiver is wrong; with the receiver's name.
    pub fn new(
        settings: &Settings,
        store: Store,
        environment: &Lookup,
        clock: Clock,
    ) -> Result<Self, (String, driftless_notify::Error)> {
        let senders = senders(settings, environment)?;
        let waiting = senders.iter().map(|_| Arc::default()).collect();
        let name = settings.host.clone().unwrap_or_else(|| "driftless".to_owned());
        let host = SenderHost { name, url: settings.url.clone() };
        let settings = settings.clone();
        let results = Mutex::default();
        let outbox = Outbox::new(store.clone());
        Ok(Self(Arc::new(Inner { settings, senders, store, outbox, clock, waiting, host, results })))
    }

    /// Whether there is a receiver.
    pub(crate) fn is_needed(&self) -> bool {
        !self.0.senders.is_empty()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The names of all receivers.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.0.senders.iter().map(|sender| sender.receiver().name.clone()).collect()
    }

    /// Something waits to be sent.
    pub(crate) fn wake(&self) {
        self.0.waiting.iter().for_each(|waiting| waiting.notify_one());
    }

    /// Starts one task per receiver.
    pub(crate) fn start_sending(&self, stop: &CancellationToken, tasks: &TaskTracker) {
        for index in 0..self.0.senders.len() {
            let sending = self.clone().send(index, stop.clone());
            lasting_tasks::start("notifications", (stop.clone(), tasks), sending);
        }
    }

    /// The receivers and the open incidents. Reads the store, so it blocks.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn status(&self) -> Result<NotificationStatus, store::Error> {
        let Inner { settings, senders, outbox, results, .. } = self.0.as_ref();
        let store = outbox.current();
        let mut list = Vec::new();
        for sender in senders {
            let receiver = sender.receiver();
            let result = lock(results).get(&receiver.name).cloned().unwrap_or_default();
            let stored = store.sent_times(&receiver.name, Timestamp(0))?;
            let waiting = store.waiting_notifications(&receiver.name)?;
            list.push(ReceiverStatus {
                name: receiver.name.clone(),
                kind: receiver.target.kind().to_owned(),
                routes: describe_routes(&receiver.name, settings),
                waiting: waiting.len() as u64,
                last_sent: result.sent.max(stored.last().copied()),
                error: result.error,
            });
        }
        Ok(NotificationStatus { receivers: list, incidents: store.open_incidents()? })
    }

    /// When the oldest notification was made that is due and not sent: none that waits for the end of quiet hours, a digest or a
    /// rate limit. Reads the store, so it blocks.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn oldest_due(&self) -> Result<Option<Timestamp>, store::Error> {
        let Inner { senders, outbox, clock, .. } = self.0.as_ref();
        let (store, now) = (outbox.current(), clock.now());
        let mut oldest = None;
        for receiver in senders.iter().map(Sender::receiver) {
            let waiting = store.waiting_notifications(&receiver.name)?;
            let sent = store.sent_times(&receiver.name, rate_begin(now))?;
            if let Due::Now(batch) = due(&waiting, &sent, receiver, now) {
                let first = batch.iter().map(|notification| notification.at).min();
                oldest = Timestamp::earliest(oldest, first);
            }
        }
        Ok(oldest)
    }

    /// The message about an incident as it could be, and sends it unless it is only to be seen. `None`: there is no such
    /// receiver.
    ///
    /// # Errors
    ///
    /// If the message cannot be written or sent.
    pub async fn test(
        &self,
        name: &str,
        (kind, phase): (IncidentKind, IncidentPhase),
        delivery: TestDelivery,
    ) -> Option<Result<Message, RequestError>> {
        let sender = self.0.senders.iter().find(|sender| sender.receiver().name == name)?;
        let now = self.0.clock.now();
        let host = &self.0.host;
        let incident = sample(kind, now);
        // Each test is a message of its own, also for receivers that recognise repeated ones.
        let test =
            Notification { number: now.0, receiver: name.to_owned(), phase, incident, at: now, sent: None };
        let batch = [test];
        let message = match sender.message(&batch, host, now) {
            Ok(message) => message,
            Err(error) => return Some(Err(RequestError::Refused(chain(&error)))),
        };
        if delivery == TestDelivery::Preview {
            return Some(Ok(message));
        }
        let fail = |reason: String| RequestError::Refused(format!("could not send to `{name}`: {reason}"));
        let Ok(sent) = timeout(TEST_WITHIN, sender.send(&batch, host, now)).await else {
            return Some(Err(fail(format!("no answer within {} s", TEST_WITHIN.as_secs()))));
        };
        Some(match sent {
            Ok(refused) if refused.is_empty() => Ok(message),
            Ok(refused) => Err(fail(in_words(&refused))),
            Err(error) => Err(fail(chain(&error))),
        })
    }

    /// Sends what waits for one receiver, until stopped.
    async fn send(self, index: usize, stop: CancellationToken) {
        let Inner { senders, waiting, .. } = self.0.as_ref();
        let (Some(sender), Some(news)) = (senders.get(index), waiting.get(index)) else { return };
        let name = &sender.receiver().name;
        let (mut failures, mut unmarked) = (0_u32, Unmarked::default());
        let mut repeats =
            Repeats { every: sender.repeat_every(), next: Instant::now(), error: String::new() };
        loop {
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = self.send_once(sender, &mut unmarked) => result,
            };
            let now = self.0.clock.now();
            let is_about_message = matches!(&result, Err(SendError::Send(error)) if error.is_about_message());
            let pause = match result {
                Ok(NextSend::Again { refused }) => {
                    failures = 0;
                    let result = LastResult { sent: Some(now), error: refused };
                    lock(&self.0.results).insert(name.clone(), result);
                    continue;
                }
                Ok(NextSend::At(due)) => {
                    // A wait for the end of quiet hours or of a digest is no failure: a critical incident ends it.
                    failures = 0;
                    due.map(|due| due.since(now))
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    Some(self.fail(name, &error, failures, now))
                }
            };
            // A refused message says nothing about a new one.
            let has_failed = failures > 0 && pause.is_some() && !is_about_message;
            let end = Instant::now() + pause.unwrap_or(LOOK_EVERY);
            let wait = async {
                loop {
                    tokio::select! {
                        // Something new does not shorten the pause after a failure.
                        () = news.notified(), if !has_failed => return,
                        () = sleep_until(end) => return,
                        // In this task, so that a repeat does not arrive after the end of the incident.
                        () = repeats.due() => self.repeat(sender, &unmarked, &mut repeats).await,
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = wait => {}
            }
        }
    }

    /// Repeats the open incidents to a receiver and remembers the result.
    async fn repeat(&self, sender: &Sender, unmarked: &Unmarked, repeats: &mut Repeats) {
        let name = &sender.receiver().name;
        let result = self.repeat_once(sender, unmarked).await;
        repeats.next = Instant::now() + repeats.every.unwrap_or(LOOK_EVERY);
        let error = result.err().map(|error| chain(&error)).unwrap_or_default();
        if !error.is_empty() {
            tracing::warn!(receiver = name, error, "could not repeat the open incidents");
        }
        let mut results = lock(&self.0.results);
        let shown = &mut results.entry(name.clone()).or_default().error;
        // A success says nothing about a notification that is refused.
        if !error.is_empty() || *shown == repeats.error {
            shown.clone_from(&error);
        }
        repeats.error = error;
    }

    /// Sends the open incidents that a receiver knows. Neither the outbox nor the rate limit counts that.
    async fn repeat_once(&self, sender: &Sender, unmarked: &Unmarked) -> Result<(), SendError> {
        let Inner { outbox, clock, host, .. } = self.0.as_ref();
        let (name, now) = (&sender.receiver().name, clock.now());
        let store = outbox.current();
        let open = store.open_incidents()?;
        let (waiting, _) = unmarked.apply(store.waiting_notifications(name)?, Vec::new());
        let is_known = |incident: &Incident| {
            let mut news = waiting.iter().filter(|waiting| waiting.phase == IncidentPhase::Opened);
            incident.opened.is_some()
                && incident.receivers.contains(name)
                && !news.any(|waiting| waiting.incident.number == incident.number)
        };
        let repeat = |incident| Notification {
            number: 0,
            receiver: name.clone(),
            phase: IncidentPhase::Updated,
            incident,
            at: now,
            sent: None,
        };
        let repeated: Vec<Notification> = open.into_iter().filter(is_known).map(repeat).collect();
        for batch in repeated.chunks(REPEATED_AT_ONCE) {
            sender.send(batch, host, now).await?;
        }
        Ok(())
    }

    /// Sends what waits in the outbox, in one message.
    async fn send_once(&self, sender: &Sender, unmarked: &mut Unmarked) -> Result<NextSend, SendError> {
        let Inner { outbox, clock, .. } = self.0.as_ref();
        let receiver = sender.receiver();
        // If that fails, other notifications are sent all the same.
        let marked = self.mark(receiver, unmarked);
        let store = outbox.current();
        let now = clock.now();
        let waiting = store.waiting_notifications(&receiver.name)?;
        let sent = store.sent_times(&receiver.name, rate_begin(now))?;
        let (waiting, sent) = unmarked.apply(waiting, sent);
        let batch = match due(&waiting, &sent, receiver, now) {
            Due::Nothing => return marked.map(|()| NextSend::At(None)).map_err(SendError::Store),
            Due::At(at) => return marked.map(|()| NextSend::At(Some(at))).map_err(SendError::Store),
            Due::Now(batch) => batch,
        };
        let refused = match self.send_batch(sender, batch.clone(), unmarked).await {
            Err(SendError::Send(error)) if batch.len() > 1 && error.is_about_message() => {
                let room = receiver.rate_limit.saturating_sub(sent.len()).max(1);
                self.send_each(sender, batch, room, unmarked).await?
            }
            result => result?,
        };
        Ok(NextSend::Again { refused })
    }

    /// Sends each notification of a refused message alone, so that the one at fault does not hold back the others. `room`: the
    /// most messages that the rate limit allows. Returns the recipients who did not get them.
    async fn send_each(
        &self,
        sender: &Sender,
        batch: Vec<Notification>,
        room: usize,
        unmarked: &mut Unmarked,
    ) -> Result<String, SendError> {
        let (mut sent, mut refused, mut refusals) = (0, String::new(), Vec::new());
        for notification in batch {
            match self.send_batch(sender, vec![notification], unmarked).await {
                Ok(recipients) => {
                    sent += 1;
                    if !recipients.is_empty() {
                        refused = recipients;
                    }
                }
                Err(SendError::Send(error)) if !error.is_temporary() => refusals.push(error),
                Err(error) => return Err(error),
            }
            if sent == room || refusals.len() == MOST_REFUSED {
                break;
            }
        }
        refusals.pop().map_or(Ok(refused), |refusal| Err(refusal.into()))
    }

    /// Sends one message and marks its notifications as sent. Returns the recipients who did not get it.
    async fn send_batch(
        &self,
        sender: &Sender,
        batch: Vec<Notification>,
        unmarked: &mut Unmarked,
    ) -> Result<String, SendError> {
        let Inner { clock, host, .. } = self.0.as_ref();
        let name = &sender.receiver().name;
        let refused = in_words(&sender.send(&batch, host, clock.now()).await?);
        tracing::info!(receiver = name, notifications = batch.len(), "notification sent");
        if !refused.is_empty() {
            tracing::warn!(receiver = name, refused, "a notification did not reach all recipients");
        }
        unmarked.0.push((clock.now(), batch));
        self.mark(sender.receiver(), unmarked)?;
        Ok(refused)
    }

    /// Marks what a receiver has got, also if the outbox has moved to or from memory while it was sent.
    fn mark(&self, receiver: &NotificationReceiver, unmarked: &mut Unmarked) -> Result<(), store::Error> {
        let mark = |batch: &[Notification], at| {
            self.0.outbox.change(|store| store.mark_sent(&receiver.name, batch, at))
        };
        unmarked.mark(mark)
    }

    /// Logs a failure and returns the pause before the next try.
    fn fail(&self, name: &str, error: &SendError, failures: u32, now: Timestamp) -> Duration {
        let is_temporary = match error {
            SendError::Send(error) => error.is_temporary(),
            SendError::Store(_) => true,
        };
        let pause = if is_temporary { remote_delay(failures, seed(name, now)) } else { REFUSED_PAUSE };
        let (next_try, error) = (now.after(pause), chain(error));
        tracing::warn!(receiver = name, error, attempt = failures, %next_try, "could not send a notification");
        let mut results = lock(&self.0.results);
        results.entry(name.to_owned()).or_default().error = error;
        pause
    }
}

/// Whether a test message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestDelivery {
    /// The receiver gets it.
    Send,
    /// It is only written.
    Preview,
}

/// The messages that a receiver has got and that could not be marked as sent, with their times: the database may be on a
/// full disk. Without this memory they would be sent again and again.
#[derive(Debug, Default)]
struct Unmarked(Vec<(Timestamp, Vec<Notification>)>);

impl Unmarked {
    /// Marks them, oldest first. Those after a failure stay.
    fn mark<E>(&mut self, mark: impl Fn(&[Notification], Timestamp) -> Result<(), E>) -> Result<(), E> {
        while let Some((at, batch)) = self.0.first() {
            mark(batch, *at)?;
            self.0.remove(0);
        }
        Ok(())
    }

    /// The notifications that wait, and when messages were sent, as if all of them were marked.
    fn apply(
        &self,
        mut waiting: Vec<Notification>,
        mut sent: Vec<Timestamp>,
    ) -> (Vec<Notification>, Vec<Timestamp>) {
        let is_sent = |number| self.0.iter().flat_map(|(_, batch)| batch).any(|known| known.number == number);
        waiting.retain(|notification| !is_sent(notification.number));
        sent.extend(self.0.iter().map(|(at, _)| *at));
        sent.sort_unstable();
        (waiting, sent)
    }
}

/// The repeats of the open incidents to one receiver.
struct Repeats {
    /// `None` if the receiver needs none.
    every: Option<Duration>,
    next: Instant,
    /// Why the last one failed; empty after a success.
    error: String,
}

impl Repeats {
    /// Waits for the time of the next one.
    async fn due(&self) {
        if self.every.is_none() {
            std::future::pending::<()>().await;
        }
        sleep_until(self.next).await;
    }
}

/// The next action of a receiver's task.
enum NextSend {
    /// More may wait. `refused` names the recipients who did not get the message, and is empty if all got it.
    Again { refused: String },
    /// Nothing is due before this time.
    At(Option<Timestamp>),
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Send(#[from] driftless_notify::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The recipients who did not get a message, and why; empty without any.
fn in_words(refused: &[RefusedRecipient]) -> String {
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The beginning of the time in which a rate limit counts messages.
fn rate_begin(now: Timestamp) -> Timestamp {
    now.before(RATE_TIME)
}

/// The senders of all receivers; the error has the receiver's name.
fn senders(
    settings: &Settings,
    environment: &Lookup,
) -> Result<Vec<Sender>, (String, driftless_notify::Error)> {
    let sender = |receiver: &NotificationReceiver| {
        let environment = Arc::clone(environment);
        // The only secret of Apprise is a list of URLs.
        let is_list = matches!(receiver.target, Target::Apprise { .. });
        let read: fn(&Secret, &Lookup) -> Result<String, String> =
            if is_list { read_secret_list } else { read_secret };
        let read = Arc::new(move |secret: &Secret| read(secret, &environment));
        Sender::new(receiver.clone(), read).map_err(|error| (receiver.name.clone(), error))
    };
    settings.receivers.iter().map(sender).collect()
}

/// Checks the templates of all receivers.
pub(crate) fn check(
    settings: &Settings,
    environment: &Lookup,
) -> Result<(), (String, driftless_notify::Error)> {
    senders(settings, environment).map(drop)
}

/// The lock is held for one assignment, so a panic of another task leaves a valid value.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use driftless_config::Login;
    use driftless_model::QuietHours;
    use driftless_store::IncidentUpdate;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::sleep,
    };

    use super::*;

    /// Stores an incident that the receiver is to hear of, as the watch of incidents does.
    fn open(notifications: &Notifications, kind: IncidentKind) {
        let now = notifications.clock().now();
        let receivers = BTreeSet::from(["phone".to_owned()]);
        let incident = Incident { ended: None, receivers: receivers.clone(), ..sample(kind, now) };
        let made = (IncidentPhase::Opened, incident.clone(), receivers);
        let update =
            IncidentUpdate { kept: vec![incident], notifications: vec![made], ..IncidentUpdate::default() };
        notifications.store().update_incidents(&update, now).unwrap();
        notifications.wake();
    }

    #[test]
    fn sent_message_is_not_sent_again_because_it_cannot_be_marked() {
        let now = Timestamp(1_800_000_000_000);
        let notification = |number| Notification {
            number,
            receiver: "phone".to_owned(),
            phase: IncidentPhase::Opened,
            incident: sample(IncidentKind::Degraded, now),
            at: now,
            sent: None,
        };
        let mut unmarked = Unmarked(vec![(now, vec![notification(1), notification(2)])]);
        assert_eq!(unmarked.mark(|_, _| Err("the disk is full")), Err("the disk is full"));
        let waiting = vec![notification(1), notification(2), notification(3)];
        let before = Timestamp(now.0 - 1);
        let (left, sent) = unmarked.apply(waiting.clone(), vec![before]);
        assert_eq!(left, [notification(3)]);
        assert_eq!(sent, [before, now], "the rate limit counts it");
        assert_eq!(
            unmarked.mark(|batch, at| if (batch.len(), at) == (2, now) { Ok(()) } else { Err("") }),
            Ok(())
        );
        assert_eq!(unmarked.apply(waiting.clone(), Vec::new()), (waiting, Vec::new()));
    }

    /// The settings of a receiver that is quiet at night.
    fn quiet_at_night() -> Settings {
        let phone = NotificationReceiver {
            name: "phone".to_owned(),
            target: Target::Slack { url: Secret::Environment("URL".to_owned()) },
            ca_file: None,
            title: None,
            body: None,
            quiet_hours: Some(QuietHours::parse("22:00", "07:00", None).unwrap()),
            digest: None,
            rate_limit: 10,
        };
        Settings { receivers: vec![phone], ..Settings::default() }
    }

    #[test]
    fn notifications_of_quiet_hours_are_not_due() {
        let clock = Clock::starting_at(Timestamp::parse("2026-01-01T22:05:00Z").unwrap());
        let environment: Lookup = Arc::new(|_| None);
        let store = Store::in_memory(clock).unwrap();
        let notifications = Notifications::new(&quiet_at_night(), store, &environment, clock).unwrap();
        assert_eq!(notifications.oldest_due().unwrap(), None);
        open(&notifications, IncidentKind::DriftFound);
        assert_eq!(notifications.oldest_due().unwrap(), None);
        open(&notifications, IncidentKind::Degraded);
        assert!(notifications.oldest_due().unwrap().is_some(), "a critical incident is due");
    }

    #[tokio::test(start_paused = true)]
    async fn open_incidents_are_repeated_to_alertmanager() {
        let mut settings = quiet_at_night();
        let login = Login::Token(Secret::Environment("TOKEN".to_owned()));
        settings.receivers[0].target = Target::Alertmanager { url: "http://127.0.0.1:1".to_owned(), login };
        let clock = Clock::starting_at(Timestamp::parse("2026-01-01T22:05:00Z").unwrap());
        // Each attempt looks up the token, which is missing.
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let environment: Lookup = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            None
        });
        let store = Store::in_memory(clock).unwrap();
        let notifications = Notifications::new(&settings, store.clone(), &environment, clock).unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        open(&notifications, IncidentKind::DriftFound);
        notifications.start_sending(&stop, &tasks);
        sleep(Duration::from_mins(30)).await;
        assert_eq!(attempts.load(Ordering::SeqCst), 0, "the receiver does not know it yet");
        let waiting = store.waiting_notifications("phone").unwrap();
        store.mark_sent("phone", &waiting, clock.now()).unwrap();
        sleep(Duration::from_mins(31)).await;
        let repeats = attempts.load(Ordering::SeqCst);
        assert!((10..=11).contains(&repeats), "{repeats}");
        let error = notifications.status().unwrap().receivers.remove(0).error;
        assert!(error.contains("TOKEN"), "{error}");
        let ended = store.open_incidents().unwrap();
        store.update_incidents(&IncidentUpdate { ended, ..IncidentUpdate::default() }, clock.now()).unwrap();
        sleep(Duration::from_mins(30)).await;
        assert_eq!(attempts.load(Ordering::SeqCst), repeats, "it is over");
        assert_eq!(notifications.status().unwrap().receivers.remove(0).error, "");
        stop.cancel();
    }

    /// A server that refuses requests with this word, until the test ends.
    async fn refuse(word: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                // The body is an object.
                while !request.ends_with(b"}") && stream.read_buf(&mut request).await.unwrap() > 0 {}
                let is_refused = String::from_utf8_lossy(&request).contains(word);
                let status = if is_refused { "400 Bad Request" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        url
    }

    #[tokio::test]
    async fn new_message_does_not_wait_for_one_that_is_refused() {
        let url = refuse("hostLost").await;
        let mut settings = quiet_at_night();
        settings.receivers[0].quiet_hours = None;
        settings.receivers[0].target =
            Target::Webhook { url: Secret::Environment("URL".to_owned()), secret: None };
        let environment: Lookup = Arc::new(move |_| Some(url.clone()));
        let store = Store::in_memory(Clock::System).unwrap();
        let made = Notifications::new(&settings, store.clone(), &environment, Clock::System);
        let notifications = made.unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        open(&notifications, IncidentKind::HostLost);
        notifications.start_sending(&stop, &tasks);
        let end = Instant::now() + Duration::from_secs(30);
        while !notifications.status().unwrap().receivers[0].error.contains("400") {
            assert!(Instant::now() < end, "it is not refused");
            sleep(Duration::from_millis(20)).await;
        }
        // The wake of the first one may have been left over.
        sleep(Duration::from_secs(1)).await;
        open(&notifications, IncidentKind::Degraded);
        let end = Instant::now() + Duration::from_secs(30);
        while store.waiting_notifications("phone").unwrap().len() > 1 {
            assert!(Instant::now() < end, "it waits for the other one");
            sleep(Duration::from_millis(20)).await;
        }
        let waiting = store.waiting_notifications("phone").unwrap();
        assert_eq!(waiting[0].incident.kind, IncidentKind::HostLost);
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn critical_incident_is_sent_in_quiet_hours_after_a_failure() {
        let settings = quiet_at_night();
        let clock = Clock::starting_at(Timestamp::parse("2026-01-01T21:55:00Z").unwrap());
        // Each attempt looks up the address, which is missing.
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let environment: Lookup = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            None
        });
        let store = Store::in_memory(clock).unwrap();
        let notifications = Notifications::new(&settings, store, &environment, clock).unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        open(&notifications, IncidentKind::DriftFound);
        notifications.start_sending(&stop, &tasks);
        sleep(Duration::from_hours(1)).await;
        assert_eq!(
            attempts.load(Ordering::SeqCst),
            1,
            "the second attempt waits for the end of the quiet hours"
        );
        open(&notifications, IncidentKind::Degraded);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(attempts.load(Ordering::SeqCst), 2, "a critical incident does not wait");
        stop.cancel();
    }
}
