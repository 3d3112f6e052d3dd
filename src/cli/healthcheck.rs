//! `driftless healthcheck`: whether an agent answers. For `HEALTHCHECK` of an image and for scripts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;

use super::{
    client::Client,
    context::{Context, Environment, Verdict},
    error::Error as CliError,
    options::ServerArgs,
    run::{DEFAULT_CONFIG, read_config},
};

/// Ask a running agent whether it answers; needs no token.
///
/// Exits with 0 if the agent answers, with 1 if it does not. The address is that of --server or `DRIFTLESS_SERVER`, else
/// the one that `driftless run` would listen on with the same environment and configuration file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless healthcheck
  driftless healthcheck --ready --server http://192.0.2.7:8484")]
pub(super) struct HealthcheckArgs {
    /// Also require that the agent can work: Docker answers, Git was read, no state was lost.
    #[arg(long)]
    pub(super) ready: bool,
    /// Address of the agent [default: that of `driftless run`]
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
}

pub(super) async fn healthcheck(args: &HealthcheckArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let given = args.server.clone().or_else(|| set(context.environment, "DRIFTLESS_SERVER"));
    let server = given.unwrap_or_else(|| format!("http://{}", reachable(address(context.environment))));
    // The token is not needed, so a file that cannot be read does not make the agent unhealthy.
    let without_token: Environment = std::sync::Arc::new(|_| None);
    let client = Client::new(&ServerArgs { server: Some(server), token_file: None }, &without_token)?;
    let path = if args.ready { "/readyz" } else { "/healthz" };
    match client.probe(path).await {
        Ok((true, _)) => Ok(Verdict::Yes),
        Ok((false, reason)) => {
            context.screen.say(format!("the agent at {} is not ready: {reason}", client.address()));
            Ok(Verdict::No)
        }
        Err(error) if error.is_absence() => {
            context.screen.say(error.to_string());
            Ok(Verdict::No)
        }
        Err(error) => Err(error.into()),
    }
}

fn set(environment: &Environment, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.is_empty())
}

/// The address on which `driftless run` listens with this environment.
fn address(environment: &Environment) -> SocketAddr {
    let default = driftless_config::Settings::default().listen;
    if let Some(address) = set(environment, "DRIFTLESS_LISTEN").and_then(|text| text.parse().ok()) {
        return address;
    }
    if set(environment, "DRIFTLESS_URL").is_some() {
        return default;
    }
    let path = set(environment, "DRIFTLESS_CONFIG").unwrap_or_else(|| DEFAULT_CONFIG.to_owned());
    // A broken file is the agent's to report; the agent may still run with the one before.
    read_config(path.as_ref()).map_or(default, |settings| settings.listen)
}

/// An address that can be connected to: loopback for "all addresses".
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
