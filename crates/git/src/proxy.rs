//! The HTTP proxy: from the configuration, or from the environment variables that curl reads.

use reqwest::{ClientBuilder, NoProxy};

use super::credentials::Lookup;
use driftless_config::Proxy;

/// The error is a sentence, and never repeats the proxy's address, which may hold a password.
pub(super) fn apply(
    builder: ClientBuilder,
    proxy: &Proxy,
    environment: &Lookup,
) -> Result<ClientBuilder, String> {
    let except = first(environment, &["no_proxy", "NO_PROXY"]).and_then(|(_, it)| NoProxy::from_string(&it));
    match proxy {
        Proxy::Direct => Ok(builder),
        Proxy::Url(url) => {
            let proxy =
                reqwest::Proxy::all(url).map_err(|_| "the configured proxy cannot be used".to_owned())?;
            Ok(builder.proxy(proxy.no_proxy(except)))
        }
        Proxy::Environment => {
            let mut builder = builder;
            let https = first(environment, &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]);
            if let Some((name, url)) = https {
                builder = builder.proxy(make(reqwest::Proxy::https, &name, &url)?.no_proxy(except.clone()));
            }
            let http = first(environment, &["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]);
            if let Some((name, url)) = http {
                builder = builder.proxy(make(reqwest::Proxy::http, &name, &url)?.no_proxy(except));
            }
            Ok(builder)
        }
    }
}

fn make(
    of: impl Fn(String) -> reqwest::Result<reqwest::Proxy>,
    name: &str,
    url: &str,
) -> Result<reqwest::Proxy, String> {
    let wrong = || {
        format!(
            "the proxy in the variable {name} cannot be used; it must be http://host:port or https://host:port"
        )
    };
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(wrong());
    }
    of(url).map_err(|_| wrong())
}

/// The first variable that is set and not empty, with its name.
fn first(environment: &Lookup, names: &[&str]) -> Option<(String, String)> {
    names.iter().find_map(|name| {
        let value = environment(name).filter(|it| !it.trim().is_empty())?;
        Some(((*name).to_owned(), value.trim().to_owned()))
    })
}
