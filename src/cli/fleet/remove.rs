//! `driftless fleet remove`: forgets a host.

use clap::Args;

use driftless_model::HostIdentity;

use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::ServerArgs,
};

/// Forget a host of the fleet; it comes back when it reports again.
///
/// Needs the scope admin. Nothing changes on the host itself.
#[derive(Debug, Args)]
pub(in crate::cli) struct FleetRemoveArgs {
    /// Name of the host.
    host: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// A text that cannot be the name of a host.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no name of a host")]
pub(super) struct NoHostName(pub(super) String);

impl CommandError for NoHostName {
    fn help(&self) -> Option<String> {
        let help = "it has letters, digits, `.`, `-` and `_`, and begins with a letter or digit; `driftless fleet status` lists the hosts";
        Some(help.to_owned())
    }
}

pub(super) async fn remove(args: &FleetRemoveArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if !HostIdentity::is_name(&args.host) {
        return Err(NoHostName(args.host.clone()).into());
    }
    let client = Client::new(&args.server, context.environment)?;
    client.delete(&format!("/api/v1/fleet/hosts/{}", args.host)).await?;
    context.screen.say(format!("{} is forgotten until it reports again", args.host));
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_letters_of_a_name_are_named() {
        let help = NoHostName("my nas".to_owned()).help().unwrap();
        assert!(help.contains("letters, digits, `.`, `-` and `_`"), "{help}");
    }
}
