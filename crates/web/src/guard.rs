//! The door of all guarded routes: identifies the actor, checks what the request needs, limits how many requests are
//! answered at the same time, and writes the audit.

use std::{future::Future, io, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use hyper::body::Body as _;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    access::{
        Authenticator, Caller, Credential, HostRefusal, Identity, Needed, ProviderLogin, RouteRules,
        audit::{AuditNote, REPORT, completed, entry, entry_of},
        foreign_refusal, is_cross_site, is_same_origin,
    },
    acting::{ActingRequests, unanswered},
    cut_off::cut_off_at,
    error::Error,
    fleet::{instance_of, note_conflict},
    limits::MOST_REQUESTS,
    page::{
        failure::{PageError, refusal},
        login,
    },
    peer::Peer,
    route::matched_route,
    serve::RequestPermit,
    shared::Shared,
};
use driftless_agent::{Auditor, Handle};
use driftless_fleet::SIGNATURE_HEADER;
use driftless_model::{Actor, ActorKind, AuditEntry, AuditResult, Channel};
use driftless_store::StoredConflict;

/// The longest time that a stream goes on after its token or session has expired.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The state of [`guard`].
#[derive(Clone)]
pub(super) struct Guard {
    authenticator: Arc<Authenticator>,
    auditor: Arc<Auditor>,
    handle: Handle,
    rules: Arc<RouteRules>,
    /// Requests that are answered at the same time. Connections beyond them stay free for webhooks and probes.
    requests: Arc<Semaphore>,
}

impl Guard {
    pub(super) fn new(
        authenticator: Arc<Authenticator>,
        auditor: Arc<Auditor>,
        handle: Handle,
        rules: RouteRules,
    ) -> Self {
        let requests = Arc::new(Semaphore::new(MOST_REQUESTS));
        Self { authenticator, auditor, handle, rules: Arc::new(rules), requests }
    }
}

impl Guard {
    /// The host that has signed a request. A machine that uses the name of another one is noted.
    async fn identify_host(
        &self,
        called: (Method, Uri),
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Identity, Error> {
        if !self.handle.fleet().settings().accept {
            return Err(Error::NoCollector);
        }
        let refusal = match self.authenticator.identify_host(called, headers, peer).await {
            Ok(identity) => return Ok(identity),
            Err(refusal) => refusal,
        };
        let HostRefusal { error, host: Some(host), reason, from } = refusal else {
            return Err(refusal.error);
        };
        let instance = instance_of(headers);
        let (store, at) = (self.authenticator.store(), self.authenticator.now());
        let conflict = StoredConflict { instance: instance.clone(), from: from.clone(), reason, at };
        if note_conflict(store, &host, conflict).await? {
            let actor = Actor::new(ActorKind::Unknown, "");
            let mut entry = entry_of(actor, Channel::Api, &from, REPORT);
            (entry.result, entry.message) = (AuditResult::Refused, error.to_string());
            entry.detail = format!("{host}: refused machine {instance}");
            self.auditor.store(entry).await;
        }
        Err(error)
    }
}

/// Passes a request on, or answers it with an error. What changes something is in the audit before it is answered.
pub(super) async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let headers = request.headers().clone();
    let identified = if headers.contains_key(SIGNATURE_HEADER) {
        let called = (request.method().clone(), request.uri().clone());
        guard.identify_host(called, &headers, peer).await
    } else {
        guard.authenticator.identify(&headers, peer).await
    };
    let identity = match identified {
        Ok(identity) => identity,
        Err(error) => return refuse(error, &request, guard.authenticator.provider_login()),
    };
    let acts = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    // A browser adds Basic credentials and cookies by itself, so they do not prove which page sent the request. Nor is it in the
    // audit, which any page that somebody opens could fill then.
    if let Some(error) = foreign_refusal(request.headers()).filter(|_| acts || !is_navigation(&request)) {
        return refused(&request, error);
    }
    if acts && identity.credential == Credential::Cookie && !is_same_origin(request.headers()) {
        let text = "the browser does not say which page sent the request, so it is refused";
        return refused(&request, Error::Forbidden(text.to_owned()));
    }
    let route = matched_route(&request);
    let rule = guard.rules.rule(request.method(), route);
    let needed = rule.needed(route, request.uri().path());
    let note = AuditNote::default();
    let record = acts.then(|| entry(&request, &identity, &needed, rule.audit_word));
    if let Err(error) = permit(&guard, &identity, &needed) {
        let response = refused(&request, error);
        guard.auditor.store(completed(record, &note, &response)).await;
        return response;
    }
    let Ok(permit) = guard.requests.clone().try_acquire_owned() else {
        let busy = Error::Busy("the agent answers too many requests: try again".to_owned());
        let response = refused(&request, busy);
        guard.auditor.store(completed(record, &note, &response)).await;
        return response;
    };
    let credential = identity.credential;
    let acting = ActingRequests::of(request.extensions());
    request.extensions_mut().insert(identity);
    request.extensions_mut().insert(note.clone());
    let answered = async move {
        let mut response = next.run(request).await;
        response.extensions_mut().insert(RequestPermit::new(permit));
        response
    };
    let response = if let Some(record) = record {
        answer_and_audit(answered, (record, note), &acting, Arc::clone(&guard.auditor)).await
    } else {
        // The answer to a question is for its client only.
        answered.await
    };
    end_with_credentials(response, &guard.authenticator, headers, credential)
}

/// Answers a request that acts and writes its audit, also if the client does not wait for it.
async fn answer_and_audit(
    answered: impl Future<Output = Response> + Send + 'static,
    (record, note): (AuditEntry, AuditNote),
    acting: &ActingRequests,
    auditor: Arc<Auditor>,
) -> Response {
    // In a task of its own, so that a request that panics is in the audit: the agent may have done it.
    let answered = acting.spawn(acting.interruptible(answered));
    let audited = acting.spawn(async move {
        let response = answered.await.unwrap_or_else(|error| unanswered(&error).into_response());
        auditor.store(completed(Some(record), &note, &response)).await;
        response
    });
    audited.await.unwrap_or_else(|error| unanswered(&error).into_response())
}

/// Ends a stream when the token or session of its request is not valid any more. A stream of events has no end, and goes on in another
/// request; any other answer is cut off.
fn end_with_credentials(
    response: Response,
    authenticator: &Arc<Authenticator>,
    headers: HeaderMap,
    credential: Credential,
) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let authenticator = Arc::clone(authenticator);
    let refused = async move {
        let mut withdrawals = authenticator.withdrawals();
        while authenticator.still_admits(&headers, credential) {
            tokio::select! {
                changed = withdrawals.changed() => if changed.is_err() { return },
                () = sleep(LOOK_EVERY) => {}
            }
        }
    };
    let kind = response.headers().get(header::CONTENT_TYPE);
    let has_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    response.map(|body| {
        let data = body.into_data_stream();
        if has_events {
            Body::from_stream(data.take_until(refused))
        } else {
            Body::from_stream(cut_off_at(data.map_err(io::Error::other), refused))
        }
    })
}

/// Whether an actor may do what a request needs.
fn permit(guard: &Guard, identity: &Identity, needed: &Needed) -> Result<(), Error> {
    let is_allowed = match needed {
        Needed::Read => identity.may_read(),
        Needed::Fetch(repository) => identity.may_fetch(repository),
        Needed::Report(host) => identity.may_report(host),
        Needed::Key(host) => identity.is_admin() || identity.is_host(host),
        Needed::Peers => identity.may_read_peers(),
        Needed::Logs => identity.may_read_logs(),
        Needed::Act(app) => identity.may_act(app, guard.handle.repository_of(app).as_deref()),
        Needed::Admin => identity.is_admin(),
    };
    if is_allowed {
        return Ok(());
    }
    Err(Error::Forbidden(match (identity.credential, needed) {
        (Credential::OtherLocalUser, _) => {
            "without a token, only programs of root and of the agent's user may act and read logs".to_owned()
        }
        (_, Needed::Act(app)) => format!("{} may not act on {app}", identity.actor),
        (_, Needed::Fetch(repository)) => {
            format!("{} may not have the repository `{repository}` fetched", identity.actor)
        }
        (_, Needed::Report(host)) => format!("{} has no scope `report:host/{host}`", identity.actor),
        (_, Needed::Peers) => format!("{} has no scope `report` or `read`", identity.actor),
        (_, Needed::Read | Needed::Logs) => format!("{} has no scope `read`", identity.actor),
        (_, Needed::Admin | Needed::Key(_)) => {
            format!("{} has no scope `admin`", identity.actor)
        }
    }))
}

/// The answer to an address that no route has.
pub(super) async fn no_such_route(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let (path, error) = (uri.path(), Error::NoSuchRoute(uri.path().to_owned()));
    if asks_for_page(&headers, path) {
        PageError::new(&caller, &shared, path, error).into_response()
    } else {
        error.into_response()
    }
}

/// The answer to a method that the route of an address does not have, such as after somebody has opened that of a form.
pub(super) async fn no_such_method(request: Request) -> Response {
    let error = Error::NoSuchMethod(request.method().clone());
    refused(&request, error)
}

/// A refusal before the request reaches its route: a page for a browser, else an error of the API.
fn refused(request: &Request, error: Error) -> Response {
    let path = request.uri().path();
    if asks_for_page(request.headers(), path) { refusal(path, error) } else { error.into_response() }
}

/// A browser that opens a page, or sends the form of one, gets the form to log in instead of JSON.
fn refuse(error: Error, request: &Request, provider: Option<&ProviderLogin>) -> Response {
    let has_credentials = request.headers().contains_key(header::AUTHORIZATION);
    if matches!(error, Error::Unauthorized | Error::WrongToken | Error::Expired(_)) {
        if !has_credentials && *request.method() == Method::GET && accepts_html(request.headers()) {
            if is_navigation(request) && is_cross_site(request.headers()) {
                return login::look_for_session(request.uri());
            }
            return login::ask(request.uri(), provider);
        }
        // A browser adds no credentials to this one: the session has ended since the page was opened.
        let is_form = *request.method() == Method::POST && is_same_origin(request.headers());
        if !has_credentials && is_form && asks_for_page(request.headers(), request.uri().path()) {
            return login::ask_again(request.uri(), provider);
        }
        let mut response = error.into_response();
        // The browser would ask for a password in the middle of an open page.
        if is_stream(request.headers()) || is_of_script(request.headers()) {
            return response;
        }
        let challenge = HeaderValue::from_static(r#"Basic realm="Driftless: the token is the password""#);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return response;
    }
    refused(request, error)
}

fn accepts_html(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

/// Whether the answer is shown in a browser, and is not one of the API.
fn asks_for_page(headers: &HeaderMap, path: &str) -> bool {
    accepts_html(headers) && !path.starts_with("/api/")
}

/// Whether a request is for a stream of events.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    accepts(headers, "text/event-stream")
}

/// Whether the browser says that a script of a page asks.
fn is_of_script(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-mode").is_some_and(|mode| mode.as_bytes() != b"navigate")
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|part| part.trim().split(';').next() == Some(kind))
}

/// Whether a browser opens a page because somebody followed a link. Opening a page changes nothing.
fn is_navigation(request: &Request) -> bool {
    let is = |name: &str, wanted: &[u8]| {
        request.headers().get(name).is_some_and(|value| value.as_bytes() == wanted)
    };
    let is_page = !request.uri().path().starts_with("/api/");
    is_page && is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document")
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use driftless_clock::Clock;
    use driftless_config::Audit;
    use driftless_store::Store;
    use http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn request_that_panics_is_in_the_audit() {
        let store = Store::in_memory(Clock::System).unwrap();
        let auditor = Arc::new(Auditor::new(store.clone(), Audit::default(), Clock::System));
        let record = entry_of(Actor::agent(), Channel::Api, "127.0.0.1", "sync");
        let answered = poll_fn(|_| -> Poll<Response> { panic!("a defect") });
        let acting = ActingRequests::default();
        let response = answer_and_audit(answered, (record, AuditNote::default()), &acting, auditor).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let entry = store.audit(None, 1, None).unwrap().remove(0);
        assert_eq!((entry.action.as_str(), entry.result), ("sync", AuditResult::Failed));
        assert_eq!(entry.message, Error::Defect.to_string());
    }
}
