//! `driftless config check`, `example` and `schema`: the configuration of the agent.

use std::path::PathBuf;

use clap::Args;

use driftless_git::Cause;
use driftless_model::Finding;

use crate::cli::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    findings::render_findings,
    output::{self, print},
    run::{check_access, check_certificates, check_socket, read_config, unreadable_files},
};

/// The reference of all keys.
const EXAMPLE: &str = include_str!("../../../config/driftless.yaml");

/// Check a configuration file of the agent.
///
/// Reports every mistake in keys and values with file, line and column, and files with keys, passwords or certificates that cannot
/// be read. Exits with 0 if the agent would start with the file, also with warnings, with 1 if not. It asks neither Git nor Docker: that is
/// `driftless doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless config check /etc/driftless/driftless.yaml
  driftless config check --syntax driftless.yaml")]
pub(in crate::cli) struct CheckArgs {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check the file alone, for example in CI, where the files that it names do not exist.
    #[arg(long)]
    syntax: bool,
}

/// Print the JSON schema of the agent's configuration, for editors.
#[derive(Debug, Args)]
pub(in crate::cli) struct SchemaArgs {
    /// The schema of `driftless.yaml` in a repository instead.
    #[arg(long)]
    repository: bool,
}

pub(super) fn check(args: &CheckArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let found = read_config(&args.file).and_then(|settings| {
        if !args.syntax {
            check_access(&settings, context.environment)?;
            check_certificates(&settings)?;
            check_socket(&settings.socket)?;
            driftless_agent::Agent::check(&settings, context.environment).map_err(Error::Use)?;
        }
        Ok(settings)
    });
    match found {
        Ok(settings) => {
            let file = args.file.display().to_string();
            let mut warnings = settings.warnings(&file);
            warnings.extend(settings.check(&file).into_iter().map(|broken| {
                let message = format!("{}: the agent starts only with another --listen", broken.message);
                let help = "choose another port, or write `listen` into the file";
                Finding::warning(broken.location, broken.path, message).help(help)
            }));
            if !args.syntax {
                warnings.extend(unreadable_files(&args.file));
            }
            if !warnings.is_empty() {
                context.screen.say(render_findings(&warnings, context.screen.colours()).trim_end());
            }
            let names: Vec<&str> =
                settings.repositories.iter().map(|repository| repository.name.as_str()).collect();
            print(&format!("{}: valid, follows {}\n", args.file.display(), names.join(", ")))?;
            Ok(ExitStatus::Success)
        }
        Err(error) => {
            error.report(context.screen);
            Ok(ExitStatus::Negative)
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the agent could not start with this configuration")]
    Use(#[source] driftless_agent::Error),
}

impl crate::cli::error::CommandError for Error {
    fn help(&self) -> Option<String> {
        let Self::Use(error) = self;
        let is_of_keys = matches!(error, driftless_agent::Error::Source { source, .. } if source.cause == Cause::InvalidSettings);
        let help = if is_of_keys {
            "correct the keys of the repository that the message names"
        } else {
            "correct the name of the file, or check the configuration alone with --syntax"
        };
        Some(help.to_owned())
    }
}

pub(super) fn example() -> Result<ExitStatus, CliError> {
    print(EXAMPLE)?;
    Ok(ExitStatus::Success)
}

pub(super) fn schema(args: &SchemaArgs) -> Result<ExitStatus, CliError> {
    let schema =
        if args.repository { driftless_config::schema_of_repository() } else { driftless_config::schema() };
    print(&output::json(&schema))?;
    Ok(ExitStatus::Success)
}
