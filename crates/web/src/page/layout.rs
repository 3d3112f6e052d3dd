//! The frame of every page: head, header with the agent's name, navigation, footer. All links are relative, so that the
//! page works below any path of a reverse proxy.

use axum::response::Html;
use driftless_model::Actor;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{assets, text::Text};
use crate::{access::Identity, shared::Shared};

/// The logo: two open circles, the observed state and Git.
pub(super) const ICON: &str = "<svg width='22' height='22' viewBox='0 0 24 24' fill='none' stroke-width='2.6' \
stroke-linecap='round' aria-hidden='true'><path d='M20 12a8 8 0 1 1-3.2-6.4' stroke='#2f7bea'/>\
<path d='M12 8.2a3.8 3.8 0 1 0 3.8 3.8' stroke='#22a35a'/></svg>";

/// The frame of one page.
pub(super) struct Page {
    /// The way to the root: empty, or `../` for each folder.
    pub(super) root: String,
    title: String,
    /// The host and the time, for the header.
    host: String,
    time: String,
    actor: Actor,
    is_admin: bool,
    /// Whether this agent accepts, reads or sends reports of hosts.
    has_fleet: bool,
    has_session: bool,
    /// The version of the page, for its stream of changes. `None`: it does not change.
    version: Option<String>,
}

impl Page {
    pub(super) fn new(identity: &Identity, shared: &Shared, path: &str) -> Self {
        let handle = &shared.handle;
        Self {
            root: root_of(path),
            title: String::new(),
            host: handle.host().to_owned(),
            time: shared.clock.now().time_of_day(),
            actor: identity.actor.clone(),
            is_admin: identity.is_admin(),
            has_fleet: handle.fleet().settings().accept
                || handle.fleet().source().status().is_some()
                || !handle.fleet().targets().list().is_empty(),
            has_session: identity.has_session(),
            version: None,
        }
    }

    pub(super) fn title(self, title: &str) -> Self {
        Self { title: title.to_owned(), ..self }
    }

    /// The page follows its stream of changes from this version on.
    pub(super) fn live(self, version: &str) -> Self {
        Self { version: Some(version.to_owned()), ..self }
    }
}

/// The whole page.
pub(super) fn respond(page: &Page, body: &Markup) -> Html<String> {
    let Page { root, title, host, time, actor, is_admin, has_fleet, has_session, version } = page;
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(root, title))
            body data-version=[version.as_deref()] {
                a.skip href="#main" { "Skip to the content" }
                header {
                    div.wide {
                        a.brand href={ "./" (root) } data-key="o" data-name="overview" {
                            (PreEscaped(ICON)) "Driftless"
                        }
                        @if !host.is_empty() { span.host { (Text(host)) } }
                        span #fresh .badge.idle role="status" { "as of " (time) }
                        nav aria-label="Pages" {
                            @if *has_fleet { a href={ (root) "fleet" } data-key="l" data-name="fleet" { "Fleet" } }
                            @if *is_admin { a href={ (root) "audit" } data-key="a" data-name="audit" { "Audit" } }
                            span.soft { (Text(actor)) }
                            @if *has_session {
                                form method="post" action={ (root) "logout" } { button type="submit" { "Log out" } }
                            }
                        }
                    }
                }
                main #main .wide tabindex="-1" { (body) }
                footer.wide {
                    "Driftless " (env!("CARGO_PKG_VERSION")) " · as JSON: "
                    a href={ (root) "api/v1/applications" } { "applications" } ", "
                    a href={ (root) "api/v1/events" } { "events" }
                    " " span.keys { "· " kbd { "?" } " lists the keys" }
                }
                dialog #keys aria-label="Keys" {
                    h2 { "Keys" }
                    dl {}
                    form method="dialog" { button { "Close" } }
                }
            }
        }
    };
    Html(markup.into_string())
}

/// The head of a page.
pub(super) fn head(root: &str, title: &str) -> Markup {
    let icon = ICON
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('#', "%23")
        .replace("%3Csvg ", "%3Csvg xmlns='http://www.w3.org/2000/svg' ");
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { @if !title.is_empty() { (Text(title)) " · " } "Driftless" }
            link rel="icon" href={ "data:image/svg+xml," (icon) };
            link rel="stylesheet" href={ (root) (assets::style_path()) };
            script src={ (root) (assets::script_path()) } defer {}
        }
    }
}

/// The way from a page to the root, so that links work below any path.
pub(super) fn root_of(path: &str) -> String {
    "../".repeat(path.trim_start_matches('/').matches('/').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_relative_to_the_page() {
        assert_eq!(root_of("/"), "");
        assert_eq!(root_of("/login"), "");
        assert_eq!(root_of("/applications/shop"), "../");
        assert_eq!(root_of("/applications/shop/rollback"), "../../");
    }
}
