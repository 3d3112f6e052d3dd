//! The check of the address at which forges reach the webhooks.

use std::time::Duration;

use reqwest::StatusCode;

use super::check::Check;
use driftless_config::{Settings, local_url};
use driftless_model::chain_of_causes;

/// The time limit of the request.
const LIMIT: Duration = Duration::from_secs(10);

/// The path of a webhook that the agent answers with an error of its own.
pub(super) const DOCTORS_HOOK: &str = "/hook/doctor";

/// The certificate that an address must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedCertificate {
    /// One for its name, by an authority that this machine trusts.
    Checked,
    /// Any, for an address of this machine.
    Any,
}

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
    // A certificate has the name by which forges know the host, and not that of its loopback.
    let certificate =
        if settings.webhooks.url.is_some() { AcceptedCertificate::Checked } else { AcceptedCertificate::Any };
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
    Some(match ask(&format!("{address}{DOCTORS_HOOK}"), certificate).await {
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

/// Asks an address of an agent. Nothing secret is sent.
pub(super) async fn ask(url: &str, certificate: AcceptedCertificate) -> Result<StatusCode, reqwest::Error> {
    let builder = reqwest::Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none());
    let builder = match certificate {
        AcceptedCertificate::Checked => builder,
        AcceptedCertificate::Any => builder.no_proxy().tls_danger_accept_invalid_certs(true),
    };
    Ok(builder.build()?.get(url).send().await?.status())
}
