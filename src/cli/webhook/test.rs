//! `driftless webhook test`: sends a signed sample push. Secrets are read for the signature and never printed.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use reqwest::Url;
use tokio::time::{Instant, sleep};

use super::{
    error::{Error, active, find},
    instructions::reference,
};
use crate::{
    cli::Context,
    cli::Error as CliError,
    cli::ExitStatus,
    cli::client::{Authorities, Client},
    cli::options::ServerArgs,
    cli::options::parse_span,
    cli::output::print,
    cli::screen::plain,
};
use driftless_config::Secret;
use driftless_forge::{
    webhook::Key, webhook::NO_COMMIT, webhook::Sample, webhook::SamplePush, webhook::sample,
};
use driftless_git::read_secret;
use driftless_model::{DeliveryResult, WebhookSecret, WebhookStatus};

const LOOK_EVERY: Duration = Duration::from_millis(200);

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Send a signed sample push to the webhook and show the result.
///
/// The delivery only makes the agent fetch the repository. The secret is read on this machine. Its location comes
/// from the agent, which is trusted only if the agent runs on this machine; otherwise give --secret-file or
/// --secret-env.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless webhook test infra
  driftless webhook test infra --public         # through the reverse proxy
  driftless webhook test infra \\
    --secret-file ./hook-secret --server https://agent.example.com")]
pub(in crate::cli) struct WebhookTestArgs {
    /// Name of the repository in the configuration.
    pub(in crate::cli) repository: String,
    /// Post to the address that forges use, instead of the agent's own.
    #[arg(long)]
    pub(in crate::cli) public: bool,
    /// File with the secret [default: the one that the agent reads]
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    pub(in crate::cli) secret_file: Option<PathBuf>,
    /// Environment variable with the secret.
    #[arg(long, value_name = "VARIABLE")]
    pub(in crate::cli) secret_env: Option<String>,
    /// Maximum time to wait for the result.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_span)]
    pub(in crate::cli) timeout: Duration,
    #[command(flatten)]
    pub(in crate::cli) server: ServerArgs,
}

pub(super) async fn test(args: &WebhookTestArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let hook = active(find(&client, &args.repository).await?)?;
    let secret = secret(args, &hook, client.is_local(), context)?;
    let key = Key::new(hook.provider, &secret).map_err(Error::Key)?;
    let now = context.clock.now();
    let id = format!("driftless-test-{}-{}", now.0, std::process::id());
    let reference = reference(&hook);
    let push = SamplePush { repository: &hook.repository_url, reference: &reference, commit: NO_COMMIT };
    let sample = sample(hook.provider, &key, &id, now, push);
    let url = if args.public { &hook.url } else { &hook.local_url };
    print(&format!("POST {url}, signed as {}\n", hook.provider))?;
    let (status, body) = post(url, sample, client.authorities()).await?;
    print(&format!("{status} {}\n", plain(body.trim())))?;
    if !status.is_success() {
        return Ok(ExitStatus::Negative);
    }
    let end = Instant::now() + args.timeout;
    loop {
        let heard = find(&client, &args.repository).await?.last.filter(|it| it.id == id);
        if let Some(delivery) = heard
            && (delivery.outcome.is_some() || delivery.result == DeliveryResult::Ignored)
        {
            print(&format!("{}\n", plain(&delivery.summary())))?;
            let is_good = delivery.result == DeliveryResult::Accepted;
            return Ok(if is_good { ExitStatus::Success } else { ExitStatus::Negative });
        }
        if Instant::now() >= end {
            context.screen.say("the agent accepted the delivery, but its fetch did not end in time");
            return Ok(ExitStatus::Negative);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// A remote agent could name any file of this machine, and some providers send the secret itself.
fn secret(
    args: &WebhookTestArgs,
    hook: &WebhookStatus,
    is_local: bool,
    context: &Context<'_>,
) -> Result<String, Error> {
    let given = args.secret_file.clone().map(Secret::File);
    let given = given.or_else(|| args.secret_env.clone().map(Secret::Environment));
    let place = match (given, &hook.secret) {
        (Some(given), _) => given,
        (None, _) if !is_local => return Err(Error::NotLocal),
        (None, WebhookSecret::File(path)) => Secret::File(PathBuf::from(path)),
        (None, WebhookSecret::Variable(name)) => Secret::Environment(name.clone()),
    };
    read_secret(&place, context.environment).map_err(Error::Secret)
}

async fn post(
    url: &str,
    sample: Sample,
    authorities: &Authorities,
) -> Result<(reqwest::StatusCode, String), Error> {
    let parsed = Url::parse(url).map_err(|_| Error::Address(url.to_owned()))?;
    let fail = |source| Error::Post { url: url.to_owned(), source };
    let builder = reqwest::Client::builder()
        .timeout(ANSWER_WITHIN)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    let mut request = authorities.apply(builder, &parsed).build().map_err(fail)?.post(parsed);
    for (name, value) in sample.headers {
        request = request.header(name, value);
    }
    let response = request.body(sample.body).send().await.map_err(fail)?;
    let status = response.status();
    Ok((status, response.text().await.map_err(fail)?))
}
