//! Writes and sends the messages of one receiver.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use driftless_config::{NotificationReceiver, Secret, Target};
use driftless_model::{Notification, Timestamp};

use crate::{
    answers,
    client::{self, Request},
    email::{MailProgress, Outgoing},
    error::Error,
    message::{self, Message},
    recipient::RefusedRecipient,
    sender_host::SenderHost,
    services::{self, Batch},
};

/// The text of a message whose own text or link the service has refused.
const REFUSED_TEXT: &str =
    "The service has refused the text or link of this message: `driftless notify list` shows the incidents.";

/// A mail that some recipients have got is remembered for this long after it was first refused for another one.
const REMEMBER_MAIL: Duration = Duration::from_hours(72);

/// Reads a secret. It is read for each message, so that it can be rotated. An error is in words.
pub type ReadSecret = Arc<dyn Fn(&Secret) -> Result<String, String> + Send + Sync>;

/// Writes and sends the messages of one receiver.
#[derive(Clone)]
pub struct Sender {
    receiver: NotificationReceiver,
    read_secret: ReadSecret,
    /// The mails that are tried again, by the id of their batch.
    mails: Arc<Mutex<BTreeMap<String, MailProgress>>>,
    /// Whether the service answered last that a recipient has not got a message and others have.
    in_part: Arc<AtomicBool>,
}

impl Sender {
    /// A sender for a receiver.
    ///
    /// # Errors
    ///
    /// If one of its templates is wrong, or names a variable that there is not.
    pub fn new(receiver: NotificationReceiver, read_secret: ReadSecret) -> Result<Self, Error> {
        let host = SenderHost { name: "host".to_owned(), url: Some("https://host".to_owned()) };
        message::check(&receiver, &host)?;
        Ok(Self { receiver, read_secret, mails: Arc::default(), in_part: Arc::default() })
    }

    /// The settings of the receiver.
    pub fn receiver(&self) -> &NotificationReceiver {
        &self.receiver
    }

    /// The pause between two repeats of the open incidents, for a service that forgets or ends those that are not repeated.
    pub fn repeat_every(&self) -> Option<Duration> {
        matches!(self.receiver.target, Target::Alertmanager { .. }).then_some(services::REPEAT_ALERTS)
    }

    /// The message of these notifications, for people.
    ///
    /// # Errors
    ///
    /// If a template fails.
    pub fn message(
        &self,
        batch: &[Notification],
        host: &SenderHost,
        now: Timestamp,
    ) -> Result<Message, Error> {
        message::message(batch, &self.receiver, host, now)
    }

    /// Sends these notifications as one message. A service that refuses its content gets it without text and link: one that is
    /// refused each time would hold back all later ones. For the same reason, a recipient that is refused does not hold back the
    /// message of others. Returns these recipients.
    ///
    /// # Errors
    ///
    /// If the service cannot be reached or refuses it.
    pub async fn send(
        &self,
        batch: &[Notification],
        host: &SenderHost,
        now: Timestamp,
    ) -> Result<Vec<RefusedRecipient>, Error> {
        let message = self.message(batch, host, now)?;
        let refusal = match self.deliver(&Batch { notifications: batch, message: &message, host, now }).await
        {
            Err(error) if error.is_about_content() && self.is_for_people() => error,
            result => return result,
        };
        // A link is content, too: a service may refuse its host or its length.
        let message = Message { body: REFUSED_TEXT.to_owned(), link: None, ..message };
        let sent = self.deliver(&Batch { notifications: batch, message: &message, host, now }).await;
        sent.map_err(|_| refusal)
    }

    /// Whether the text is what the service shows. Programs get fields.
    fn is_for_people(&self) -> bool {
        !matches!(self.receiver.target, Target::Webhook { .. } | Target::Alertmanager { .. })
    }

    async fn deliver(&self, batch: &Batch<'_>) -> Result<Vec<RefusedRecipient>, Error> {
        match self.prepare(batch)? {
            Prepared::Http(request) => {
                let answer = client::send(*request, self.receiver.ca_file.as_deref()).await?;
                self.confirmed(answers::outcome(&self.receiver.target, &answer))
            }
            Prepared::Mail(outgoing) => {
                let id = batch.id();
                let mut progress = {
                    let mut mails = self.mails(batch.now);
                    // Each notification that joins makes another batch, and must not begin the time again.
                    let refused_since = mails.values().filter_map(|mail| mail.refused_since).min();
                    let mut progress = mails.remove(&id).unwrap_or_default();
                    progress.refused_since = refused_since;
                    progress
                };
                let result = outgoing.send(&mut progress, batch.now).await;
                let mut mails = self.mails(batch.now);
                if result.is_ok() {
                    mails.clear();
                } else if progress.refused_since.is_some() {
                    mails.insert(id, progress);
                }
                drop(mails);
                result
            }
        }
    }

    /// The outcome of a message that one HTTP server passes on to several recipients. Apprise can answer with entries of its log that
    /// are about the messages of other clients, so one answer does not prove that anybody has got this message: it is refused, and
    /// counts as sent if the next answer says the same. It may be about another message: with a pause for each one, a service that
    /// fails for good would hold back all incidents.
    fn confirmed(
        &self,
        outcome: Result<Vec<RefusedRecipient>, Error>,
    ) -> Result<Vec<RefusedRecipient>, Error> {
        let is_partial = outcome.as_ref().is_ok_and(|refused| !refused.is_empty());
        let was_partial = self.in_part.swap(is_partial, Ordering::Relaxed);
        match outcome {
            Ok(mut refused) if is_partial && !was_partial => Err(refused.remove(0).error),
            outcome => outcome,
        }
    }

    /// The mails that are tried again, without those that are too old.
    fn mails(&self, now: Timestamp) -> MutexGuard<'_, BTreeMap<String, MailProgress>> {
        let mut mails = self.mails.lock().unwrap_or_else(PoisonError::into_inner);
        let is_young = |since: Timestamp| since.is_recent(REMEMBER_MAIL, now);
        mails.retain(|_, progress| progress.refused_since.is_some_and(is_young));
        mails
    }

    fn prepare(&self, batch: &Batch<'_>) -> Result<Prepared, Error> {
        let read = |secret: &Secret| (self.read_secret)(secret).map_err(Error::Secret);
        if let Target::Email(email) = &self.receiver.target {
            let ca_file = self.receiver.ca_file.as_deref();
            return Outgoing::new(email, batch, ca_file, &read).map(Box::new).map(Prepared::Mail);
        }
        services::request(&self.receiver.target, batch, &read).map(Box::new).map(Prepared::Http)
    }
}

/// A message that is ready to be sent.
enum Prepared {
    Http(Box<Request>),
    Mail(Box<Outgoing>),
}
