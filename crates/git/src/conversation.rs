//! A conversation with a server that goes on after its references were listed.
//!
//! A fetch lists the references first, and often there is nothing to receive. Where there is, it asks for the commits in
//! the same conversation: over SSH another one would cost another login, and over HTTP another request.

use std::{any::Any, borrow::Cow, time::Duration};

use gix::{bstr::BStr, protocol::SendFlushOnDrop};
use gix_transport::{
    Protocol, Service,
    client::{
        Capabilities, Error, MessageKind, TransportWithoutIO, WriteMode,
        blocking_io::{RequestWriter, SetServiceResponse, Transport},
    },
};
use tokio::time::Instant;

use super::process::{OpenTransport, Process};

/// A conversation is not continued after this time: the server may have ended it.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A server that has greeted (protocol version 2) and waits for the next command.
pub(super) struct Conversation {
    pub(super) transport: GreetedTransport,
    /// The program behind the transport.
    pub(super) process: Option<Process>,
    last_answer: Instant,
}

/// A transport that answers the first handshake with the greeting that the server has already sent.
pub(super) struct GreetedTransport {
    /// Says goodbye to the server when it is dropped.
    inner: SendFlushOnDrop<OpenTransport>,
    greeting: Option<Capabilities>,
}

impl Conversation {
    /// Keeps a conversation open in which the server has just answered.
    pub(super) fn new(
        inner: SendFlushOnDrop<OpenTransport>,
        greeting: Capabilities,
        process: Option<Process>,
    ) -> Self {
        let transport = GreetedTransport { inner, greeting: Some(greeting) };
        Self { transport, process, last_answer: Instant::now() }
    }

    /// Whether the server still waits for a command, as far as this side can know.
    pub(super) fn can_go_on(&self) -> bool {
        self.last_answer.elapsed() < LONGEST_PAUSE
    }
}

impl TransportWithoutIO for GreetedTransport {
    fn to_url(&self) -> Cow<'_, BStr> {
        self.inner.inner.to_url()
    }

    fn supported_protocol_versions(&self) -> &[Protocol] {
        self.inner.inner.supported_protocol_versions()
    }

    fn connection_persists_across_multiple_requests(&self) -> bool {
        self.inner.inner.connection_persists_across_multiple_requests()
    }

    fn configure(&mut self, config: &dyn Any) -> gix::error::Result<()> {
        self.inner.inner.configure(config)
    }
}

impl Transport for GreetedTransport {
    fn handshake<'a>(
        &mut self,
        service: Service,
        extra_parameters: &'a [(&'a str, Option<&'a str>)],
    ) -> Result<SetServiceResponse<'_>, Error> {
        match self.greeting.take() {
            Some(capabilities) => {
                Ok(SetServiceResponse { actual_protocol: Protocol::V2, capabilities, refs: None })
            }
            None => self.inner.inner.handshake(service, extra_parameters),
        }
    }

    fn request(
        &mut self,
        write_mode: WriteMode,
        on_into_read: MessageKind,
        trace: bool,
    ) -> Result<RequestWriter<'_>, Error> {
        self.inner.inner.request(write_mode, on_into_read, trace)
    }
}
