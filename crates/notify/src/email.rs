//! E-mail by SMTP.

use std::{path::Path, time::Duration};

use driftless_config::{Email, MailTls, Secret};
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
    error::{Error, REFUSES_ALL},
    services::Batch,
};

/// The time for each command of the conversation.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A server that greylists a sender refuses its first mail, and accepts it after five minutes at most. So long, a mail that is
/// refused for the moment is tried to all recipients.
const GREYLISTED: Duration = Duration::from_mins(5);

/// A recipient of a mail that the server refused, while it accepted the mail for others.
#[derive(Debug, thiserror::Error)]
#[error("{address} did not get the mail, others did: {error}")]
pub struct RefusedRecipient {
    address: String,
    error: Error,
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

    /// Sends the mail that has waited for this long. A server that refuses one recipient refuses the mail to all, so each one
    /// then gets it alone: an address that is gone would hold back all mails. Returns those that did not get it.
    pub(crate) async fn send(self, waited: Duration) -> Result<Vec<RefusedRecipient>, Error> {
        let Self { mail, transport, host } = self;
        let (envelope, text) = (mail.envelope(), mail.formatted());
        let Err(error) = transport.send_raw(envelope, &text).await else { return Ok(Vec::new()) };
        let status = error.status().map(u16::from);
        let is_about_one = status.is_some_and(|status| !REFUSES_ALL.contains(&status))
            && (waited >= GREYLISTED || !error.is_transient());
        let all = envelope.to();
        if !is_about_one || all.len() < 2 {
            return Err(fail(&host, &error));
        }
        let mut refused = Vec::new();
        for address in all {
            let alone = Envelope::new(envelope.from().cloned(), vec![address.clone()])
                .map_err(|error| Error::Address(format!("the mail has no recipient: {error}")))?;
            if let Err(error) = transport.send_raw(&alone, &text).await {
                let error = fail(&host, &error);
                refused.push(RefusedRecipient { address: address.to_string(), error });
            }
        }
        if refused.len() < all.len() { Ok(refused) } else { Err(fail(&host, &error)) }
    }
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
        let thread = format!("{}/{}", batch.place.host, one.incident.number);
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
            Error::Refused { host, status: code.into(), message: reason, is_temporary: error.is_transient() }
        }
        None => Error::Unreachable { host, reason },
    }
}
