//! The open invites on the page of the fleet, the page that asks before one is withdrawn, and the form that withdraws it.

use axum::{
    Extension,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use maud::{Markup, html};

use super::{
    failure::PageError,
    layout::{Page, respond},
    text::Text,
};
use crate::{
    access::{Caller, audit::AuditNote},
    error::Error,
    fleet_keys::{OpenInvite, open_invites, withdraw_invite},
    shared::Shared,
};

/// Not below `/fleet/`, where the names of hosts are.
pub(super) const ROUTE: &str = "/fleet-invites/{id}";

/// The invites that nobody has used yet, each with a link to withdraw it.
pub(super) fn invite_list(invites: &[OpenInvite]) -> Markup {
    html! {
        div #invites {
            @if !invites.is_empty() {
                section aria-label="Open invites" {
                    h2 { "Open invites" }
                    ul.reasons {
                        @for invite in invites {
                            li {
                                (line(invite)) " "
                                a href={ "fleet-invites/" (invite.id) }
                                    aria-label={ "Withdraw the invite " (invite.id) } { "Withdraw" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn line(invite: &OpenInvite) -> Markup {
    let OpenInvite { id, host: _, invited_by, expires } = invite;
    html! {
        span.mono { (id) } " for " (Text(invite.hosts())) ", by " (Text(invited_by)) ", until " (Text(expires))
    }
}

/// The page that says what will happen, and asks.
pub(crate) async fn ask(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let path = format!("/fleet-invites/{id}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let invites = open_invites(&shared).await.map_err(frame)?;
    let Some(invite) = invites.into_iter().find(|invite| invite.id == id) else {
        return Err(frame(Error::NoSuchInvite(id)));
    };
    let title = format!("Withdraw the invite {}?", invite.id);
    let page = Page::new(&caller, &shared, &path).title(&title);
    let body = html! {
        p.crumbs { a href="../fleet" { "Fleet" } }
        h1 { (Text(&title)) }
        p.lead { "No host can join with its token any more. Hosts that have joined stay enrolled." }
        p { (line(&invite)) }
        form.confirm method="post" action=(invite.id) {
            p {
                button.primary type="submit" { "Withdraw" }
                " " a.button href="../fleet" data-key="Escape" data-name="cancel" { "Cancel" }
            }
        }
    };
    Ok(respond(&page, &body).into_response())
}

/// Withdraws the invite, and leads back to the fleet.
pub(crate) async fn act(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let path = format!("/fleet-invites/{id}");
    let withdrawn = withdraw_invite(&shared, &note, id).await;
    withdrawn.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, "../fleet")]).into_response())
}
