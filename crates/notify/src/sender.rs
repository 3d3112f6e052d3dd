//! Writes and sends the messages of one receiver.

use std::sync::Arc;

use driftless_config::{NotificationReceiver, Secret, Target};
use driftless_model::{Notification, Timestamp};

use crate::{
    client::{self, Request},
    email::Outgoing,
    error::Error,
    message::{self, Message},
    place::Place,
    services::{self, Batch},
};

/// Reads a secret. It is read for each message, so that it can be rotated. An error is in words.
pub type ReadSecret = Arc<dyn Fn(&Secret) -> Result<String, String> + Send + Sync>;

/// Writes and sends the messages of one receiver.
#[derive(Clone)]
pub struct Sender {
    receiver: NotificationReceiver,
    read_secret: ReadSecret,
}

impl Sender {
    /// A sender for a receiver.
    ///
    /// # Errors
    ///
    /// If one of its templates is wrong, or names a variable that there is not.
    pub fn new(receiver: NotificationReceiver, read_secret: ReadSecret) -> Result<Self, Error> {
        let place = Place { host: "host".to_owned(), url: Some("https://host".to_owned()) };
        message::check(&receiver, &place)?;
        Ok(Self { receiver, read_secret })
    }

    /// The settings of the receiver.
    pub fn receiver(&self) -> &NotificationReceiver {
        &self.receiver
    }

    /// The message of these notifications, for people.
    ///
    /// # Errors
    ///
    /// If a template fails.
    pub fn message(&self, batch: &[Notification], place: &Place, now: Timestamp) -> Result<Message, Error> {
        message::message(batch, &self.receiver, place, now)
    }

    /// Sends these notifications as one message.
    ///
    /// # Errors
    ///
    /// If the service cannot be reached or refuses it.
    pub async fn send(&self, batch: &[Notification], place: &Place, now: Timestamp) -> Result<(), Error> {
        match self.prepare(batch, place, now)? {
            Prepared::Http(request) => client::send(*request, self.receiver.ca_file.as_deref()).await,
            Prepared::Mail(outgoing) => outgoing.send().await,
        }
    }

    fn prepare(&self, batch: &[Notification], place: &Place, now: Timestamp) -> Result<Prepared, Error> {
        let message = self.message(batch, place, now)?;
        let read = |secret: &Secret| (self.read_secret)(secret).map_err(Error::Secret);
        let batch = Batch { notifications: batch, message: &message, place, now };
        if let Target::Email(email) = &self.receiver.target {
            let ca_file = self.receiver.ca_file.as_deref();
            return Outgoing::new(email, &batch, ca_file, &read).map(Box::new).map(Prepared::Mail);
        }
        services::request(&self.receiver.target, &batch, &read).map(Box::new).map(Prepared::Http)
    }
}

/// A message that is ready to be sent.
enum Prepared {
    Http(Box<Request>),
    Mail(Box<Outgoing>),
}
