//! E-mail by SMTP.

use std::{path::Path, time::Duration};

use driftless_config::{Email, MailTls, Secret};
use driftless_trust::read_certificates;
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message as Mail, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::Credentials,
        client::{Certificate, Tls, TlsParameters},
    },
};

use crate::{client::explanation, error::Error, services::Batch};

/// The time for each command of the conversation.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

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

    /// Sends the mail.
    pub(crate) async fn send(self) -> Result<(), Error> {
        let Self { mail, transport, host } = self;
        transport.send(mail).await.map(drop).map_err(|error| fail(host, &error))
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
        let parameters = parameters.build_rustls().map_err(|error| fail(email.server.clone(), &error))?;
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

fn fail(host: String, error: &lettre::transport::smtp::Error) -> Error {
    let reason = explanation(driftless_model::error_chain(error).as_bytes());
    match error.status() {
        Some(code) => {
            Error::Refused { host, status: code.into(), message: reason, is_temporary: error.is_transient() }
        }
        None => Error::Unreachable { host, reason },
    }
}
