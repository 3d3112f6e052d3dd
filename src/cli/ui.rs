//! `driftless ui`: opens the page of the agent in a browser, or prints its address.

use std::process::Stdio;

use clap::Args;
use reqwest::Url;
use tokio::process::Command;

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
};
use driftless_model::AgentStatus;

/// Programs that open an address in the user's browser.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];

/// Open the page of the agent in a browser, or print its address.
///
/// The address is printed in any case. It is `notifications.url` of the configuration, if the agent has that, else the one
/// that this command reaches the agent at. A browser is opened only from a terminal on a machine with a desktop.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless ui
  driftless --host nas ui --print")]
pub(super) struct UiArgs {
    /// Only print the address.
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn ui(args: &UiArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let agent: AgentStatus = client.get("/api/v1/agent").await?;
    let address = page_address(&agent.url, client.url());
    print(&format!("{address}\n"))?;
    let has = |name: &str| (context.environment)(name).is_some_and(|value| !value.is_empty());
    let has_desktop = cfg!(target_os = "macos") || has("DISPLAY") || has("WAYLAND_DISPLAY");
    if args.print || !context.stdout_is_terminal || !has_desktop {
        return Ok(ExitStatus::Success);
    }
    for opener in OPENERS {
        let mut command = Command::new(opener);
        command.arg(&address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(status) = command.status().await
            && status.success()
        {
            return Ok(ExitStatus::Success);
        }
    }
    context.screen.say(format!("no program opened a browser; tried {}", OPENERS.join(", ")));
    Ok(ExitStatus::Success)
}

/// The address of the page: the agent's own, unless that is one of loopback and the agent was reached at another one, for
/// example through a tunnel.
fn page_address(own: &str, reached: Option<&str>) -> String {
    let is_loopback = Url::parse(own).ok().is_none_or(|url| match url.host_str() {
        Some("localhost") | None => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
    });
    let address = reached.filter(|_| is_loopback).unwrap_or(own);
    format!("{}/", address.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_at_the_address_that_people_reach() {
        for (own, reached, expected) in [
            ("https://nas.example.com", Some("http://127.0.0.1:8484"), "https://nas.example.com/"),
            ("http://127.0.0.1:8484", Some("http://localhost:9000"), "http://localhost:9000/"),
            ("http://127.0.0.1:8484", None, "http://127.0.0.1:8484/"),
            ("https://[::1]:8484", Some("https://nas:8484/"), "https://nas:8484/"),
            ("", Some("http://nas:8484"), "http://nas:8484/"),
        ] {
            assert_eq!(page_address(own, reached), expected);
        }
    }
}
