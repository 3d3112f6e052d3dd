//! The log-in with the OpenID provider, in a browser: to the provider, and back.

use axum::{
    Extension,
    extract::State,
    response::{Html, IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, html};

use super::{
    layout::head,
    login::{LoginQuery, form, is_place},
    parameters::PageParameters,
    text::Text,
};
use crate::{
    access::{ProviderLogin, audit::entry_of, remove_attempt, session},
    error::Error,
    peer::Peer,
    shared::Shared,
};
use driftless_model::{AuditEntry, AuditResult, Channel};
use driftless_oidc::Answer;

/// The path of the page that begins a log-in.
const BEGIN: &str = "/auth/login";

/// The path of the page that ends a log-in.
const CALLBACK: &str = "/auth/callback";

/// Sends the browser to the provider.
pub(crate) async fn begin(
    State(shared): State<Shared>,
    PageParameters(query): PageParameters<LoginQuery>,
) -> Result<Response, Error> {
    let Some(login) = shared.authenticator.provider_login() else {
        return Err(Error::NoSuchRoute(BEGIN.to_owned()));
    };
    let next = query.next.as_deref().filter(|next| is_place(next)).unwrap_or_default();
    Ok(match login.begin(next).await {
        Ok((url, cookie)) => {
            let mut response = StatusCode::SEE_OTHER.into_response();
            add(&mut response, header::LOCATION, &url);
            add(&mut response, header::SET_COOKIE, &cookie);
            response
        }
        Err(error) => refusal(BEGIN, &error, login),
    })
}

/// Takes the answer of the provider.
pub(crate) async fn finish(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    PageParameters(answer): PageParameters<Answer>,
) -> Result<Response, Error> {
    let Some(login) = shared.authenticator.provider_login() else {
        return Err(Error::NoSuchRoute(CALLBACK.to_owned()));
    };
    let peer = peer.map(|Extension(peer)| peer);
    let (cookie, identity, next) = match shared.authenticator.finish_log_in(&answer, &headers, peer).await {
        Ok(found) => found,
        Err(error) => return Ok(refusal(CALLBACK, &error, login)),
    };
    let entry = entry_of(identity.actor.clone(), Channel::Page, &identity.from, "login");
    if identity.scopes().is_empty() {
        let name = &identity.actor.name;
        let error =
            Error::Forbidden(format!("neither `oidc.groups` nor `oidc.users` gives a scope to {name}"));
        let (result, message) = (AuditResult::Refused, error.to_string());
        shared.auditor.store(AuditEntry { result, message, ..entry }).await;
        return Ok(refusal(CALLBACK, &error, login));
    }
    shared.auditor.store(entry).await;
    let place = format!("{}/{next}", login.settings().url);
    // A redirect would still count as one from the provider, and the browser would not send the new cookie.
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("../", "Log in"))
            body.login {
                main { p { "You are logged in. " a href=(Text(&place)) { "Continue" } } }
            }
        }
    };
    let mut response = Html(page.into_string()).into_response();
    add(&mut response, HeaderName::from_static("refresh"), &format!("0;url={place}"));
    let session = session::set_cookie(&cookie, Some(login.cookie_path()), login.is_secure());
    add(&mut response, header::SET_COOKIE, &session);
    add(&mut response, header::SET_COOKIE, &remove_attempt());
    Ok(response)
}

/// The form to log in, with the reason why it failed. A browser that came when too many log in may load the page again.
fn refusal(path: &str, error: &Error, login: &ProviderLogin) -> Response {
    let status = error.clone().into_response().status();
    let text = format!("The log-in failed: {error}.");
    let mut response = (status, form(path, "", Some(&text), Some(login))).into_response();
    if !matches!(error, Error::Busy(_)) {
        add(&mut response, header::SET_COOKIE, &remove_attempt());
    }
    response
}

fn add(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().append(name, value);
    }
}
