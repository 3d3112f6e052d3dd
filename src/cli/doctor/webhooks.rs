//! The check of the address at which forges reach the webhooks.

use std::time::Duration;

use reqwest::StatusCode;

use super::check::Check;
use driftless_config::{Settings, local_url};
use driftless_model::chain_of_causes;

/// The time limit of the request.
const LIMIT: Duration = Duration::from_secs(10);

/// The check of the address, if a repository has a webhook. The agent must run, because it is what answers.
pub(super) async fn check(settings: &Settings, is_running: bool) -> Option<Check> {
    let name = "webhooks";
    if settings.repositories.iter().all(|repository| repository.webhook.is_none()) {
        return None;
    }
    let listen = settings.webhooks.listen.unwrap_or(settings.listen);
    let has_tls = if settings.webhooks.listen.is_some() {
        settings.webhooks.tls.is_some()
    } else {
        settings.tls.is_some()
    };
    let address = settings.webhooks.url.clone().unwrap_or_else(|| local_url(listen, has_tls));
    if settings.webhooks.url.is_none() && listen.ip().is_loopback() {
        let message = format!("are received at {address}, which only programs of this machine reach");
        let help = "name the address that forges use in `webhooks.url`, if a reverse proxy is in front; else set \
                    `webhooks.listen`";
        return Some(Check::warn(name, message, help));
    }
    if !is_running {
        let help = "run `driftless doctor` again when the agent runs";
        return Some(Check::warn(
            name,
            format!("{address} is not checked, because the agent does not run"),
            help,
        ));
    }
    // The agent answers GET with an error of its own, and records nothing.
    let help = format!(
        "let the reverse proxy or the firewall pass {address}/hook/ to {listen}; `driftless webhook test` sends a delivery"
    );
    Some(match ask(&format!("{address}/hook/doctor")).await {
        Ok(StatusCode::METHOD_NOT_ALLOWED) => Check::ok(
            name,
            format!("{address} answers this machine; `driftless webhook test` sends a delivery"),
        ),
        Ok(status) => {
            Check::fail(name, format!("another server than the agent answers at {address}: {status}"), help)
        }
        Err(error) => {
            let cause = chain_of_causes(&error).unwrap_or_else(|| error.to_string());
            Check::fail(name, format!("{address} does not answer this machine: {cause}"), help)
        }
    })
}

async fn ask(url: &str) -> Result<StatusCode, reqwest::Error> {
    let client =
        reqwest::Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none()).build()?;
    Ok(client.get(url).send().await?.status())
}
