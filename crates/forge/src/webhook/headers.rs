//! Headers of deliveries.

use driftless_model::WebhookProvider;
use http::HeaderMap;

/// The forge that sent this, among those that sign alike. The first three also send the headers of the later ones, so
/// the order decides; only the signature of the chosen forge counts.
pub(super) fn resolve(provider: WebhookProvider, headers: &HeaderMap) -> WebhookProvider {
    if provider != WebhookProvider::Auto {
        return provider;
    }
    let sent = |names: [&str; 2]| names.iter().any(|it| headers.contains_key(*it));
    if sent(["x-forgejo-event", "x-forgejo-signature"]) {
        WebhookProvider::Forgejo
    } else if sent(["x-gitea-event", "x-gitea-signature"]) {
        WebhookProvider::Gitea
    } else if sent(["x-gogs-event", "x-gogs-signature"]) {
        WebhookProvider::Gogs
    } else {
        WebhookProvider::GitHub
    }
}

/// The single value of a header. Two values count as none: a proxy and we might read different ones.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    std::str::from_utf8(bytes_of(headers, name)?).ok()
}

pub(super) fn bytes_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.as_bytes();
    all.next().is_none().then_some(first)
}
