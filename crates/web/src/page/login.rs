//! The form to log in with a token, for browsers. The token becomes a cookie that no script can read.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    response::{Html, IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Deserialize;

use super::{
    failure::refusal,
    layout::{ICON, head, root_of},
    parameters::PageParameters,
    text::Text,
};
use crate::{
    access::{Caller, ProviderLogin, audit::entry_of, foreign_refusal, session},
    api::read_body,
    error::Error,
    peer::Peer,
    shared::{Shared, read},
};
use driftless_model::{AuditEntry, Channel};

/// The path to log out.
pub(super) const LOG_OUT: &str = "/logout";

/// The query of `GET /login`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LoginQuery {
    /// The page that is shown afterwards.
    pub(super) next: Option<String>,
}

/// Answers a browser that has opened a page without credentials.
pub(crate) fn ask(uri: &Uri, provider: Option<&ProviderLogin>) -> Response {
    (StatusCode::UNAUTHORIZED, form(uri.path(), &next_of(uri), None, provider)).into_response()
}

/// Answers a browser that has sent a form after the end of its session. The log-in leads to the page of that form.
pub(crate) fn ask_again(uri: &Uri, provider: Option<&ProviderLogin>) -> Response {
    let text = "Nothing was done, because your session has ended. After the log-in you are asked again.";
    // Nobody who wants to log out is asked again.
    let text = (uri.path() != LOG_OUT).then_some(text);
    (StatusCode::UNAUTHORIZED, form(uri.path(), &next_of(uri), text, provider)).into_response()
}

/// Answers a browser that has followed a link of another site, such as that of a message in webmail. With that request it sends
/// no cookie of a session (`SameSite=Strict`), but it does with the next one, which this page begins. [`show`] leads on.
pub(crate) fn look_for_session(uri: &Uri) -> Response {
    let root = root_of(uri.path());
    let place = format!("{root}login?next={}", in_query(&next_of(uri)));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&root, "Log in"))
            body.login { main { p { a href=(Text(&place)) { "Continue" } } } }
        }
    };
    let mut response = (StatusCode::UNAUTHORIZED, Html(page.into_string())).into_response();
    if let Ok(value) = HeaderValue::try_from(format!("0;url={place}")) {
        response.headers_mut().insert(header::REFRESH, value);
    }
    response
}

/// The form. A browser that is logged in already and was on its way to a page is sent there.
pub(crate) async fn show(
    State(shared): State<Shared>,
    headers: HeaderMap,
    PageParameters(query): PageParameters<LoginQuery>,
) -> Response {
    let authenticator = &shared.authenticator;
    match query.next {
        Some(next) if is_place(&next) && authenticator.has_session(&headers) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, format!("./{next}"))]).into_response()
        }
        next => {
            form("/login", &next.unwrap_or_default(), None, authenticator.provider_login()).into_response()
        }
    }
}

/// Exchanges the token of the form for a cookie.
pub(crate) async fn log_in(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    if let Some(error) = foreign_refusal(&headers) {
        return Ok(refusal("/login", error));
    }
    let body = read_body(body).await?;
    let mut fields = form_fields(&body);
    let (token, next) =
        (fields.remove("token").unwrap_or_default(), fields.remove("next").unwrap_or_default());
    let peer = peer.map(|Extension(peer)| peer);
    let (cookie, identity) = match shared.authenticator.log_in(&token, &headers, peer) {
        Ok(session) => session,
        Err(error) => {
            let text = match &error {
                Error::Unauthorized | Error::WrongToken => "This token is wrong.".to_owned(),
                other => format!("{other}."),
            };
            let form = form("/login", &next, Some(&text), shared.authenticator.provider_login());
            return Ok((error.into_response().status(), form).into_response());
        }
    };
    let entry = entry_of(identity.actor.clone(), Channel::Page, &identity.from, "login");
    shared.auditor.store(AuditEntry { ..entry }).await;
    let is_secure = peer.and_then(Peer::tcp).is_some_and(|peer| peer.is_encrypted)
        || headers.get(header::ORIGIN).is_some_and(|it| it.as_bytes().starts_with(b"https://"));
    let place = if is_place(&next) { format!("./{next}") } else { "./".to_owned() };
    Ok(redirect(&place, &session::set_cookie(&cookie, None, is_secure)))
}

/// Ends the session and removes the cookie. A person who has logged in with the OpenID provider is led there, to end the session there too.
pub(crate) async fn log_out(Caller(_): Caller, State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let authenticator = &shared.authenticator;
    let (ending, of) = (Arc::clone(authenticator), headers.clone());
    if read(&shared.store, move |_| ending.end_session(&of)).await.is_err() {
        tracing::warn!(
            "a log-out could not be stored: the cookie is valid again after a restart of the agent"
        );
    }
    let host = authenticator.provider_login().map(ProviderLogin::host).unwrap_or_default();
    let (text, refresh) = match authenticator.log_out_url(&headers).await {
        Ok(None) => return redirect("./", &session::remove_cookie()),
        Ok(Some(url)) => {
            let text =
                html! { "You are logged out here. " a href=(Text(&url)) { "Log out at " (Text(host)) } };
            (text, Some(format!("0;url={url}")))
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a person has logged out here, and the OpenID provider could not be asked to end the session there"
            );
            let text = html! {
                "You are logged out here, and still logged in at " (Text(host)) ": " (Text(&error)) ". "
                a href="login" { "Log in again" }
            };
            (text, None)
        }
    };
    // A redirect of a form to another host is against the content security policy of the page that has the form.
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&root_of(LOG_OUT), "Log out"))
            body.login { main { p { (text) } } }
        }
    };
    let mut response = Html(page.into_string()).into_response();
    let cookie = Some((header::SET_COOKIE, session::remove_cookie()));
    for (name, value) in cookie.into_iter().chain(refresh.map(|value| (header::REFRESH, value))) {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn redirect(place: &str, cookie: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    for (name, value) in [(header::LOCATION, place), (header::SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The place of a page, with its query if that is usual. The address to log out is that of a form, and no page.
fn next_of(uri: &Uri) -> String {
    if uri.path() == LOG_OUT {
        return String::new();
    }
    let path = uri.path().trim_start_matches('/');
    let whole = uri.query().map(|query| format!("{path}?{query}"));
    whole.filter(|whole| is_place(whole)).unwrap_or_else(|| path.to_owned())
}

/// A place as the value of a query.
fn in_query(place: &str) -> String {
    if is_place(place) {
        place.replace('%', "%25").replace('&', "%26").replace('+', "%2B")
    } else {
        String::new()
    }
}

/// Whether a text is the place of a page below this one, and of no other host.
pub(super) fn is_place(text: &str) -> bool {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let has_only = |text: &str, marks: &str| {
        text.chars().all(|letter| letter.is_ascii_alphanumeric() || marks.contains(letter))
    };
    text.len() <= 300
        && has_only(path, "._-/%")
        && has_only(query, "._-/%=&+:~")
        && !path.starts_with('/')
        && !path.contains("//")
        && !path.contains("..")
}

/// The fields of a form, decoded.
pub(super) fn form_fields(body: &[u8]) -> std::collections::BTreeMap<String, String> {
    form_urlencoded::parse(body).into_owned().collect()
}

/// The form of the page at a path. `next` is the page that is shown afterwards.
pub(super) fn form(
    path: &str,
    next: &str,
    error: Option<&str>,
    provider: Option<&ProviderLogin>,
) -> Html<String> {
    let root = root_of(path);
    let action = format!("{root}login");
    let begin = format!("{root}auth/login?next={}", in_query(next));
    let page: Markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&root, "Log in"))
            body.login {
                main {
                    h1 { (PreEscaped(ICON)) "Driftless" }
                    @if let Some(error) = error { p.note.bad role="alert" { (Text(error)) } }
                    @if let Some(provider) = provider {
                        p { a.button.primary href=(begin) { "Log in with " (Text(provider.host())) } }
                        p.soft { "or with a token:" }
                    }
                    form method="post" action=(action) {
                        label for="token" { "Token" }
                        input #token name="token" type="password" autocomplete="current-password" required
                            autofocus[provider.is_none()];
                        input type="hidden" name="next" value=(Text(next));
                        button.primary[provider.is_none()] type="submit" { "Log in" }
                    }
                    p.soft { code { "driftless token create NAME --scope read" } " makes a token." }
                }
            }
        }
    };
    Html(page.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_leads_only_to_pages_of_the_agent() {
        for good in ["", "applications/shop", "applications/shop/revisions/4", "?app=shop", "a?b=c&d=12%3A00"]
        {
            assert!(is_place(good), "{good}");
        }
        for bad in
            ["/evil.example", "//evil.example", "https://evil.example", "a//b", "../x", "a\\b", "a?b;c"]
        {
            assert!(!is_place(bad), "{bad}");
        }
        assert_eq!(in_query("a?b=c&d=12%3A00"), "a?b=c%26d=12%253A00");
        let next = |text: &'static str| next_of(&Uri::from_static(text));
        assert_eq!([next("/"), next("/a?b=c"), next("/a?b;c"), next("/logout")], ["", "a?b=c", "a", ""]);
    }
}
