//! E-mail by SMTP.

use std::{collections::BTreeSet, path::Path, time::Duration};

use driftless_config::{Email, MailTls, Secret};
use driftless_model::Timestamp;
use driftless_trust::read_certificates;
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message as Mail, Tokio1Executor,
    address::Envelope,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::Credentials,
        client::{Certificate, Tls, TlsParameters},
    },
};

use crate::{
    client::explanation,
    error::{Error, Refusal},
    recipient::RefusedRecipient,
    services::Batch,
};

/// Refusals of the connection and of the login (RFC 5321, RFC 4954): they are the same for each message and each recipient.
const REFUSES_ALL: [u16; 7] = [421, 432, 454, 530, 534, 535, 538];

/// The time for each command of the conversation.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A server that greylists a sender refuses its first mail, and accepts it after five minutes at most. So long, a recipient who
/// is refused for the moment is tried again.
const GREYLISTED: Duration = Duration::from_mins(5);

/// A server that does not answer for one recipient is asked again for this long after it has accepted the mail for another
/// one. It may have gone down in between.
const LONGEST_OUTAGE: Duration = Duration::from_hours(1);

/// Statuses of `REFUSES_ALL` that are also the answer to a single recipient: Postfix refuses with 454, and `hMailServer` with
/// 530, to relay a mail to an address outside.
const REFUSES_ALL_OR_RECIPIENT: [u16; 2] = [454, 530];

/// The progress of a mail that the server has refused for a recipient, until no recipient waits for another try.
#[derive(Debug, Default)]
pub(crate) struct MailProgress {
    /// The recipients that have got it.
    accepted: BTreeSet<Address>,
    /// When the server first refused a recipient for the moment. An unreachable server has refused nobody yet, and a refusal
    /// for good waits for nothing.
    pub(crate) refused_since: Option<Timestamp>,
}

/// A mail to all recipients, and the connection that carries it.
pub(crate) struct Outgoing {
    mail: Mail,
    transport: AsyncSmtpTransport<Tokio1Executor>,
    host: String,
}

impl Outgoing {
    /// Reads the password and the certificates, and connects to nothing yet.
    pub(crate) fn new(
        email: &Email,
        batch: &Batch<'_>,
        ca_file: Option<&Path>,
        read: &dyn Fn(&Secret) -> Result<String, Error>,
    ) -> Result<Self, Error> {
        let host = format!("{}:{}", email.server, email.port);
        Ok(Self { mail: mail(email, batch)?, transport: transport(email, ca_file, read)?, host })
    }

    /// Sends the mail to all recipients that have not got it. A server that refuses one of them refuses the mail to all, so each
    /// one then gets it alone: an address that is gone would hold back all mails. Returns those that did not get it. After an
    /// error, the next try goes on from `progress`.
    pub(crate) async fn send(
        self,
        progress: &mut MailProgress,
        now: Timestamp,
    ) -> Result<Vec<RefusedRecipient>, Error> {
        let Self { mail, transport, host } = self;
        let (envelope, text) = (mail.envelope(), mail.formatted());
        let all = envelope.to();
        if progress.accepted.is_empty() {
            let Err(error) = transport.send_raw(envelope, &text).await else { return Ok(Vec::new()) };
            if may_be_accepted(&error, progress, now) || all.len() < 2 {
                return Err(fail(&host, &error));
            }
        }
        let mut failed = Vec::new();
        for address in all {
            if progress.accepted.contains(address) {
                continue;
            }
            let alone = Envelope::new(envelope.from().cloned(), vec![address.clone()])
                .map_err(|error| Error::Address(format!("the mail has no recipient: {error}")))?;
            match transport.send_raw(&alone, &text).await {
                Ok(_) => {
                    progress.accepted.insert(address.clone());
                }
                Err(error) => failed.push((address, error)),
            }
        }
        // Judged at the end, when it is known whether the server accepts the mail for anybody.
        let (mut refused, mut waiting) = (Vec::new(), None);
        for (address, error) in failed {
            let is_waiting = may_be_accepted(&error, progress, now);
            let error = fail(&host, &error);
            if is_waiting {
                waiting = Some(error);
            } else {
                refused.push(RefusedRecipient { recipient: address.to_string(), error });
            }
        }
        if let Some(error) = waiting {
            return Err(error);
        }
        match refused.pop() {
            Some(last) if progress.accepted.is_empty() => Err(last.error),
            last => Ok(refused.into_iter().chain(last).collect()),
        }
    }
}

/// Whether the same recipient may get the mail at another try: the server could not be reached or refuses everything, or it
/// has refused for the moment, and not for as long as it greylists. Once it has accepted the mail for another recipient, it
/// is neither out of reach nor refuses everything for long: the reason is then this recipient.
fn may_be_accepted(
    error: &lettre::transport::smtp::Error,
    progress: &mut MailProgress,
    now: Timestamp,
) -> bool {
    let status = error.status().map(u16::from);
    let is_about_all = status
        .is_none_or(|status| REFUSES_ALL.contains(&status) && !REFUSES_ALL_OR_RECIPIENT.contains(&status));
    if is_about_all && progress.accepted.is_empty() {
        return true;
    }
    let longest = if is_about_all { LONGEST_OUTAGE } else { GREYLISTED };
    (is_about_all || error.is_transient()) && now.since(*progress.refused_since.get_or_insert(now)) < longest
}

fn transport(
    email: &Email,
    ca_file: Option<&Path>,
    read: &dyn Fn(&Secret) -> Result<String, Error>,
) -> Result<AsyncSmtpTransport<Tokio1Executor>, Error> {
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&email.server)
        .port(email.port)
        .timeout(Some(ANSWER_WITHIN));
    if email.tls != MailTls::Off {
        let mut parameters = TlsParameters::builder(email.server.clone());
        if let Some(path) = ca_file {
            let fail = |reason: String| Error::Certificates { path: path.display().to_string(), reason };
            for certificate in read_certificates(path)? {
                let certificate = Certificate::from_der(certificate.to_vec());
                parameters =
                    parameters.add_root_certificate(certificate.map_err(|error| fail(error.to_string()))?);
            }
        }
        let parameters = parameters.build_rustls().map_err(|error| fail(&email.server, &error))?;
        builder = builder.tls(match email.tls {
            MailTls::Tls => Tls::Wrapper(parameters),
            MailTls::StartTls | MailTls::Off => Tls::Required(parameters),
        });
    }
    if let Some((user, password)) = &email.login {
        builder = builder.credentials(Credentials::new(user.clone(), read(password)?));
    }
    Ok(builder.build())
}

/// A plain text. The messages of one incident refer to the same id, so that a mail program shows them together.
fn mail(email: &Email, batch: &Batch<'_>) -> Result<Mail, Error> {
    let mailbox = |text: &str| {
        text.parse::<Mailbox>().map_err(|_| Error::Address(format!("`{text}` is no address of e-mail")))
    };
    let from = mailbox(&email.from)?;
    let domain = Address::domain(&from.email).to_owned();
    let mut builder = Mail::builder()
        .subject(batch.message.title.clone())
        .message_id(Some(format!("<{}@{domain}>", batch.id())))
        .header(ContentType::TEXT_PLAIN)
        .from(from);
    if let [one] = batch.notifications {
        let thread = format!("{}/{}", batch.host.name, one.incident.number);
        let thread = &driftless_model::digest_hex(thread.as_bytes())[..32];
        builder = builder.references(format!("<incident.{thread}@{domain}>"));
    }
    for recipient in &email.to {
        builder = builder.to(mailbox(recipient)?);
    }
    let body = format!("{}\n", batch.message.body);
    builder.body(body).map_err(|error| Error::Address(format!("the mail could not be written: {error}")))
}

fn fail(host: &str, error: &lettre::transport::smtp::Error) -> Error {
    let host = host.to_owned();
    let reason = explanation(driftless_model::error_chain(error).as_bytes());
    match error.status() {
        Some(code) => {
            let status = u16::from(code);
            let refusal = if error.is_transient() {
                Refusal::TryAgain
            } else if REFUSES_ALL.contains(&status) {
                Refusal::All
            } else {
                // The text or the recipient.
                Refusal::Message
            };
            Error::Refused { host, status, message: reason, refusal }
        }
        None => Error::Unreachable { host, reason },
    }
}
