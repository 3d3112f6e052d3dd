//! `driftless token`: creates, lists and revokes named tokens of the agent's API.

use clap::{Args, Subcommand};

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Paint, plain},
    span::span,
    table::{Cell, Table},
};
use driftless_model::{ApiToken, Scope};
use driftless_web::{CreatedToken, TokenBody};

/// Create, list and revoke tokens for the API and the page.
///
/// Each token has a name, which the audit and the history show, and scopes: read, act (on everything), act:app/NAME,
/// act:repo/NAME, report:host/NAME and admin. Every scope but report may read. The agent stores only a digest of a token. Needs the scope admin: a
/// program of root or of the agent's user on the agent's machine, or the token of `tokenFile`.
#[derive(Debug, Subcommand)]
#[command(name = "token")]
pub(super) enum TokenCommand {
    Create(CreateTokenArgs),
    List(ListTokensArgs),
    Revoke(RevokeTokenArgs),
}

/// Create a token and print it, once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless token create grafana --scope read
  driftless token create ci --scope act:app/shop --expires 90d
  driftless token create nas --scope report:host/nas
  driftless token create deploy --scope 'act:repo/infra-*' > token")]
pub(super) struct CreateTokenArgs {
    /// Name of the token: letters, digits, `.`, `-` and `_`.
    name: String,
    /// Scope: read, act, act:app/NAME, act:repo/NAME, report:host/NAME or admin; give it several times for several.
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = Scope::parse)]
    scopes: Vec<Scope>,
    /// Lifetime, such as 90d, or never.
    #[arg(long, value_name = "TIME", default_value = "365d")]
    expires: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// List the tokens, without their secrets.
#[derive(Debug, Args)]
pub(super) struct ListTokensArgs {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// Revoke a token: from now on it is refused, and its sessions in browsers end.
#[derive(Debug, Args)]
pub(super) struct RevokeTokenArgs {
    /// Name of the token.
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn token(command: &TokenCommand, context: &Context<'_>) -> Result<ExitStatus, Error> {
    match command {
        TokenCommand::Create(args) => create(args, context).await,
        TokenCommand::List(args) => list(args, context).await,
        TokenCommand::Revoke(args) => revoke(args, context).await,
    }
}

async fn create(args: &CreateTokenArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let body = TokenBody {
        name: args.name.clone(),
        scopes: args.scopes.clone(),
        expires_in: Some(args.expires.clone()),
    };
    let created: CreatedToken = client.post("/api/v1/tokens", Some(&body)).await?;
    print(&format!("{}\n", plain(&created.secret)))?;
    // Not in the output, so that it can be redirected to a file.
    if context.stdout_is_terminal {
        context
            .screen
            .say("this is shown once; write it to a file and name that in DRIFTLESS_TOKEN_FILE".to_owned());
    }
    Ok(ExitStatus::Success)
}

async fn list(args: &ListTokensArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let tokens: Vec<ApiToken> = client.get("/api/v1/tokens").await?;
    let text = match args.output {
        Output::Json => json(&tokens),
        Output::Yaml => yaml(&tokens),
        Output::Table | Output::Wide => table(&tokens, context),
    };
    print(&text)?;
    Ok(ExitStatus::Success)
}

fn table(tokens: &[ApiToken], context: &Context<'_>) -> String {
    if tokens.is_empty() {
        return "no tokens; `driftless token create NAME --scope read` makes one\n".to_owned();
    }
    let now = context.clock.now();
    let mut table = Table::new(0, &["NAME", "AGE", "EXPIRES", "BY", "SCOPES"]);
    for token in tokens {
        let expires = match token.expires {
            None => "never".into(),
            Some(_) if token.has_expired(now) => Cell::painted(Paint::Bad, "expired".to_owned()),
            Some(end) => format!("in {}", span(end.since(now))).into(),
        };
        let scopes: Vec<String> = token.scopes.iter().map(ToString::to_string).collect();
        table.row([
            Cell::painted(Paint::Strong, token.name.clone()),
            span(now.since(token.created)).into(),
            expires,
            plain(&token.created_by.to_string()).into(),
            scopes.join(" ").into(),
        ]);
    }
    if let Some(width) = context.columns() {
        table.fold(width);
    }
    context.fold(&table.render(context.colours))
}

async fn revoke(args: &RevokeTokenArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    client.delete(&format!("/api/v1/tokens/{}", url_part(&args.name))).await?;
    context.screen.say(format!("the token {} is refused from now on", plain(&args.name)));
    Ok(ExitStatus::Success)
}

/// A name of a token needs no encoding; anything else is no name and is not found.
fn url_part(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' })
        .collect()
}
