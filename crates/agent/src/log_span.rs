//! The spans of the log: every line within one has its fields, which `docs/metrics.md` lists. They
//! are of the level ERROR, so that no filter leaves their fields out.

use driftless_model::{Actor, AppName, Revision};
use tracing::{Span, field::display};

/// Everything that concerns one application.
pub(crate) fn application(name: &AppName) -> Span {
    tracing::error_span!("application", app = %name)
}

/// One round of an application, whose current revision is this one.
pub(crate) fn round(number: u64, revision: Option<&Revision>) -> Span {
    let actor = revision.and_then(|revision| revision.actor.as_ref()).map(display);
    let revision = revision.map(|revision| revision.number);
    tracing::error_span!("round", round = number, revision, actor)
}

/// The answer to one request.
pub(crate) fn request(actor: &Actor) -> Span {
    tracing::error_span!("request", %actor)
}

/// The round goes on with another revision.
pub(crate) fn note_revision(revision: &Revision) {
    let span = Span::current();
    span.record("revision", revision.number);
    // An empty field is not written.
    match &revision.actor {
        Some(actor) => span.record("actor", display(actor)),
        None => span.record("actor", ""),
    };
}
