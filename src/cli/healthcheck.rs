//! `driftless healthcheck`: whether an agent answers. For `HEALTHCHECK` of an image and for scripts.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use driftless_config::{Settings, local_url};

use super::{
    client::Client,
    context::{Context, Environment, ExitStatus},
    error::Error as CliError,
    options::{ServerArgs, file_or_none},
    run::{DEFAULT_CONFIG, read_address, read_config, state_dir},
};

/// Ask a running agent whether it answers; needs no token.
///
/// Exits with 0 if the agent answers, with 1 if it does not. The address is that of --server or `DRIFTLESS_SERVER`, else
/// the one that the running agent has noted in its state directory, else the one that `driftless run` would listen on with the
/// same environment and configuration file.
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
    /// Certificate authorities for --server, as a PEM file. Without --server the certificate is not checked.
    #[arg(long, value_name = "FILE", value_parser = file_or_none())]
    pub(super) server_ca_file: Option<PathBuf>,
    /// Not needed. `--host` gives it to every command.
    #[arg(long, value_name = "FILE", hide = true, value_parser = file_or_none())]
    token_file: Option<PathBuf>,
}

pub(super) async fn healthcheck(
    args: &HealthcheckArgs,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    let given = args.server.clone().or_else(|| set(context.environment, "DRIFTLESS_SERVER"));
    let client = match given {
        Some(server) => {
            // The token is not needed, so a file that cannot be read does not make the agent unhealthy.
            let environment = context.environment.clone();
            let without_token: Environment =
                std::sync::Arc::new(move |name| environment(name).filter(|_| name != "DRIFTLESS_TOKEN_FILE"));
            let args = ServerArgs {
                server: Some(server),
                token_file: None,
                server_ca_file: args.server_ca_file.clone(),
            };
            Client::new(&args, &without_token)?
        }
        None => Client::of_this_machine(&own_url(context.environment))?,
    };
    let path = if args.ready { "/readyz" } else { "/healthz" };
    match client.probe(path).await {
        Ok((true, _)) => Ok(ExitStatus::Success),
        Ok((false, reason)) => {
            context.screen.say(format!("the agent at {} is not ready: {reason}", client.address()));
            Ok(ExitStatus::Negative)
        }
        Err(error) if error.is_absence() => {
            context.screen.say(error.to_string());
            Ok(ExitStatus::Negative)
        }
        Err(error) => Err(error.into()),
    }
}

fn set(environment: &Environment, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.is_empty())
}

/// The address of the agent that runs with this environment: the one that it has noted, because its configuration file may
/// have changed since, else the one that it would listen on.
fn own_url(environment: &Environment) -> String {
    let is_set = |name: &str| set(environment, name).is_some();
    let file = (!is_set("DRIFTLESS_URL")).then(|| {
        PathBuf::from(set(environment, "DRIFTLESS_CONFIG").unwrap_or_else(|| DEFAULT_CONFIG.to_owned()))
    });
    let listen: Option<SocketAddr> =
        set(environment, "DRIFTLESS_LISTEN").and_then(|address| address.parse().ok());
    let given = set(environment, "DRIFTLESS_STATE_DIR").map(PathBuf::from);
    let state_dir = given.or_else(|| file.as_deref().and_then(state_dir));
    let noted = read_address(&state_dir.unwrap_or_else(|| Settings::default().state_dir));
    if let Some(url) = noted.filter(|url| listen.is_none_or(|address| has_port(url, address.port()))) {
        return url;
    }
    // A broken file is the agent's to report.
    let mut settings = file.and_then(|path| read_config(&path).ok()).unwrap_or_default();
    settings.listen = listen.unwrap_or(settings.listen);
    let has_tls = settings.tls.is_some() || is_set("DRIFTLESS_TLS_CERT_FILE");
    local_url(settings.listen, has_tls)
}

/// Whether the agent at a URL may have been told to listen on a port. With another port it is another agent of this machine.
fn has_port(url: &str, port: u16) -> bool {
    port == 0 || url.ends_with(&format!(":{port}"))
}
