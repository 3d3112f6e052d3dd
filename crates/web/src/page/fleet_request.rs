//! The pages that ask before a collector makes a request to a host, and the form that makes it.

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_fleet::{ApplicationReport, HostReport};
use driftless_model::{AppName, HostRequestKind};
use http::{StatusCode, header};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    failure::PageError,
    layout::{Page, respond},
    login::form_fields,
    parameters::PageParameters,
    text::Text,
};
use crate::{
    access::{Caller, audit::AuditNote},
    api::read_body,
    error::Error,
    fleet::fleet_status,
    fleet_requests::{FleetRequestBody, create_request},
    shared::{Shared, read},
};

/// The query of the page that asks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RequestQuery {
    /// The application.
    app: String,
}

/// The label of the button.
fn label(kind: HostRequestKind) -> &'static str {
    match kind {
        HostRequestKind::Sync => "Sync",
        HostRequestKind::Suspend => "Suspend",
        HostRequestKind::Resume => "Resume",
        HostRequestKind::Rollback => "Roll back",
    }
}

/// The effect on the host, in one sentence.
fn consequence(kind: HostRequestKind) -> &'static str {
    match kind {
        HostRequestKind::Sync => "The host fetches from Git and observes the application now.",
        HostRequestKind::Suspend => {
            "The host goes on observing the application and changes nothing, until somebody resumes it."
        }
        HostRequestKind::Resume => {
            "The host ends the suspension or the pin of the application, and does as Git says again."
        }
        HostRequestKind::Rollback => {
            "The host goes back to an earlier revision of the application and stays there, until somebody resumes it."
        }
    }
}

fn parse(word: &str) -> Option<HostRequestKind> {
    HostRequestKind::ALL.into_iter().find(|(known, _)| *known == word).map(|(_, kind)| kind)
}

/// Links to the pages that ask, for an application and all requests that the host allows and that make sense now. To resume ends a
/// suspension and a pin.
pub(super) fn request_links(report: &HostReport, application: &ApplicationReport) -> Markup {
    let app = &application.name;
    let query = query_of(app.as_str());
    let is_idle = |kind| match kind {
        HostRequestKind::Suspend => application.suspended == Some(true),
        HostRequestKind::Resume => application.suspended == Some(false) && application.pinned == Some(false),
        HostRequestKind::Sync | HostRequestKind::Rollback => false,
    };
    html! {
        @for (word, kind) in HostRequestKind::ALL {
            @if report.allows(kind) && !is_idle(kind) {
                a href={ (Text(&report.host)) "/" (word) "?" (query) }
                    aria-label={ (label(kind)) " " (Text(app)) } { (label(kind)) }
                " "
            }
        }
    }
}

/// The query of the page that asks.
fn query_of(app: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("app", app).finish()
}

/// The page that says what will happen, and asks.
pub(crate) async fn ask(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path((name, word)): Path<(String, String)>,
    PageParameters(RequestQuery { app }): PageParameters<RequestQuery>,
) -> Result<Response, PageError> {
    let path = format!("/fleet/{name}/{word}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let Some(kind) = parse(&word) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    if !caller.is_admin() {
        return Err(frame(Error::Forbidden(format!("{} has no scope `admin`", caller.actor))));
    }
    check(&shared, &name, kind, &app).await.map_err(frame)?;
    let title = format!("{} {app} on {name}?", label(kind));
    let page = Page::new(&caller, &shared, &path).title(&title);
    let body = html! {
        p.crumbs { a href="../../fleet" { "Fleet" } " / " a href={ "../" (Text(&name)) } { (Text(&name)) } }
        h1 { (Text(&title)) }
        p.lead { (consequence(kind)) }
        p { "The host gets the request with the answer to its next report, if that is within an hour. Its agent may refuse." }
        // The address of this page, so that a log-in between the question and the answer leads back to the same question.
        form.confirm method="post" action={ (kind.word()) "?" (query_of(&app)) } {
            input type="hidden" name="app" value=(Text(&app));
            @if kind == HostRequestKind::Rollback {
                p {
                    label for="to" { "Revision or commit" }
                    input #to name="to" maxlength="100" placeholder="the one before";
                }
            }
            p {
                button.primary type="submit" { (label(kind)) }
                " " a.button href={ "../" (Text(&name)) } data-key="Escape" data-name="cancel" { "Cancel" }
            }
        }
    };
    Ok(respond(&page, &body).into_response())
}

/// Makes the request, and leads back to the host.
pub(crate) async fn act(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path((name, word)): Path<(String, String)>,
    body: Body,
) -> Result<Response, PageError> {
    let path = format!("/fleet/{name}/{word}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let Some(kind) = parse(&word) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    let body = read_body(body).await.map_err(frame)?;
    let mut fields = form_fields(&body);
    let application = fields.remove("app").unwrap_or_default();
    let to = fields.remove("to").map(|to| to.trim().to_owned()).filter(|to| !to.is_empty());
    note.set(&format!("{name}: {word} {application}"));
    check(&shared, &name, kind, &application).await.map_err(frame)?;
    let body = FleetRequestBody { kind, application, to, expires_in: None };
    create_request(&shared, caller.clone(), &note, name.clone(), body).await.map_err(frame)?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, format!("../{name}"))]).into_response())
}

/// Whether the host is enrolled, has the application, and allows the request, as it last reported.
async fn check(shared: &Shared, name: &str, kind: HostRequestKind, app: &str) -> Result<(), Error> {
    let status = fleet_status(shared).await?;
    let Some(host) = status.hosts.iter().find(|host| host.name == name) else {
        return Err(Error::NoSuchHost(name.to_owned()));
    };
    let wanted = name.to_owned();
    if read(&shared.store, move |store| store.fleet_key(&wanted)).await?.is_none() {
        return Err(Error::Refused(format!(
            "`{name}` is not enrolled, and only enrolled hosts get requests"
        )));
    }
    let report = host.report.as_deref();
    if !report.is_some_and(|report| report.allows(kind)) {
        return Err(Error::Refused(format!(
            "`{name}` does not allow {}: `fleet.allowRequests` in its configuration says what it allows",
            kind.word()
        )));
    }
    if !report.is_some_and(|report| report.applications.iter().any(|it| it.name.as_str() == app)) {
        return Err(Error::NoSuchApplication(AppName(app.to_owned())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use driftless_model::{HealthStatus, SyncStatus};

    use super::*;

    #[test]
    fn requests_without_an_effect_are_not_offered() {
        let allows = HostRequestKind::ALL.map(|(word, _)| word.to_owned()).to_vec();
        let report = HostReport { host: "nas".to_owned(), allows, ..HostReport::default() };
        let links = |suspended, pinned| {
            let application = ApplicationReport {
                name: AppName::from("shop"),
                repository: "infra".to_owned(),
                sync: SyncStatus::Synced,
                health: HealthStatus::Healthy,
                suspended: Some(suspended),
                pinned,
                well: true,
                revision: None,
                revision_commit: None,
                commit: None,
                failed: None,
                images: None,
                failed_images: None,
                message: String::new(),
                drift: 0,
            };
            request_links(&report, &application).into_string()
        };
        let offered = |suspended, pinned| {
            let links = links(suspended, pinned);
            (links.contains("nas/suspend"), links.contains("nas/resume"))
        };
        assert_eq!(offered(false, Some(false)), (true, false));
        assert_eq!(offered(false, Some(true)), (true, true));
        assert_eq!(offered(true, Some(false)), (false, true));
        assert_eq!(offered(false, None), (true, true), "reports of older agents have no pin");
    }
}
