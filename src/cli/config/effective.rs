//! `driftless config effective APP`: the settings of an application that are in force, and where they are written.

use clap::Args;

use crate::cli::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error as CliError,
    options::{ServerArgs, TextOrJson},
    output::{json, print},
    table::Table,
};
use driftless_model::EffectiveSetting;

/// Show the settings of an application that are in force, and where each is written.
///
/// Asks the agent. A setting comes from its configuration, from `driftless.yaml` in Git, or is a default. Values of
/// variables that may be secret are masked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless config effective shop
  driftless config effective shop -o json")]
pub(in crate::cli) struct EffectiveArgs {
    /// The application.
    app: String,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn effective(args: &EffectiveArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let settings: Vec<EffectiveSetting> = client.get(&application_path(&args.app, "/settings")?).await?;
    print(&match args.output {
        TextOrJson::Json => json(&settings),
        TextOrJson::Text if settings.is_empty() => {
            format!("{} is in no repository, so it has no settings\n", args.app)
        }
        TextOrJson::Text => {
            let mut table = Table::new(0, &["SETTING", "VALUE", "FROM"]);
            for EffectiveSetting { key, value, origin, in_git } in settings {
                let from = origin.map_or_else(
                    || "default".to_owned(),
                    |place| {
                        let kind = if in_git { "Git: " } else { "" };
                        format!("{kind}{}:{}", place.file, place.line)
                    },
                );
                table.row([key.into(), value.into(), from.into()]);
            }
            if let Some(width) = context.columns() {
                table.fold(width);
            }
            context.fold(&table.render(context.colours))
        }
    })?;
    Ok(ExitStatus::Success)
}
