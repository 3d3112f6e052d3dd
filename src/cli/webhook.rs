//! `driftless webhook`: prints the settings for the forge and sends a signed sample. Secrets are read for the signature
//! and never printed.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use reqwest::Url;
use tokio::time::{Instant, sleep};

use super::{
    Context, Error as CliError, Verdict,
    args::{WebhookCommand, WebhookTestArgs, WebhookUrlArgs},
    client::Client,
    recipe,
    screen::{Colours, Paint, plain, print},
    status::span,
};
use driftless_config::Secret;
use driftless_forge::{
    webhook::InvalidKey, webhook::Key, webhook::NO_COMMIT, webhook::Push, webhook::Sample, webhook::sample,
};
use driftless_git::read_secret;
use driftless_model::{Delivery, DeliveryResult, HookSecret, HookStatus, Timestamp};

const LOOK_EVERY: Duration = Duration::from_millis(200);

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the repository `{0}` has no webhook")]
    NoHook(String),
    #[error("the webhook of `{repository}` is off: {why}")]
    Off { repository: String, why: String },
    #[error("could not read the secret: {0}")]
    Secret(String),
    #[error("could not sign the sample")]
    Key(#[source] InvalidKey),
    #[error("the agent is on another machine, so the location of the secret that it names is not used")]
    NotLocal,
    #[error("no server answers at {url}")]
    Post {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("`{0}` is not a valid URL")]
    Address(String),
}

impl Error {
    pub(super) fn help(&self) -> Option<String> {
        match self {
            Self::NoHook(_) => Some(
                "add `webhook: { secretFile: … }` to it in the configuration and restart the agent"
                    .to_owned(),
            ),
            Self::NotLocal => Some("name the secret with --secret-file or --secret-env".to_owned()),
            Self::Secret(_) => Some(
                "run the command as a user who may read the secret, or name another one with --secret-file or --secret-env"
                    .to_owned(),
            ),
            Self::Post { .. } => {
                Some("the reverse proxy may be missing; without --public the sample goes to the agent itself".to_owned())
            }
            Self::Off { .. } | Self::Key(_) | Self::Address(_) => None,
        }
    }
}

pub(super) async fn webhook(command: &WebhookCommand, context: &Context<'_>) -> Result<Verdict, CliError> {
    match command {
        WebhookCommand::Url(args) => url(args, context).await,
        WebhookCommand::Test(args) => test(args, context).await,
    }
}

async fn url(args: &WebhookUrlArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let hook = armed(find(&client, &args.repository).await?)?;
    print(&recipe::recipe(&hook))?;
    Ok(Verdict::Yes)
}

async fn test(args: &WebhookTestArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let hook = armed(find(&client, &args.repository).await?)?;
    let secret = secret(args, &hook, client.is_local(), context)?;
    let key = Key::new(hook.provider, &secret).map_err(Error::Key)?;
    let now = context.clock.now();
    let id = format!("driftless-test-{}-{}", now.0, std::process::id());
    let reference = recipe::reference(&hook);
    let push = Push { repository: &hook.repository_url, reference: &reference, commit: NO_COMMIT };
    let sample = sample(hook.provider, &key, &id, now, push);
    let url = if args.public { &hook.url } else { &hook.local_url };
    print(&format!("POST {url}, signed as {}\n", hook.provider))?;
    let (status, body) = post(url, sample).await?;
    print(&format!("{status} {}\n", plain(body.trim())))?;
    if !status.is_success() {
        return Ok(Verdict::No);
    }
    let end = Instant::now() + args.timeout;
    loop {
        let heard = find(&client, &args.repository).await?.last.filter(|it| it.id == id);
        if let Some(delivery) = heard
            && (delivery.outcome.is_some() || delivery.result == DeliveryResult::Ignored)
        {
            print(&format!("{}\n", plain(&made_of(&delivery))))?;
            let is_good = delivery.result == DeliveryResult::Accepted;
            return Ok(if is_good { Verdict::Yes } else { Verdict::No });
        }
        if Instant::now() >= end {
            context.screen.say("the agent accepted the delivery, but its fetch did not end in time");
            return Ok(Verdict::No);
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn find(client: &Client, repository: &str) -> Result<HookStatus, CliError> {
    let hooks: Vec<HookStatus> = client.get("/api/v1/webhooks").await?;
    let found = hooks.into_iter().find(|it| it.repository == repository);
    Ok(found.ok_or_else(|| Error::NoHook(repository.to_owned()))?)
}

fn armed(hook: HookStatus) -> Result<HookStatus, Error> {
    match hook.trouble {
        Some(why) => Err(Error::Off { repository: hook.repository, why }),
        None => Ok(hook),
    }
}

/// A remote agent could name any file of this machine, and some providers send the secret itself.
fn secret(
    args: &WebhookTestArgs,
    hook: &HookStatus,
    is_local: bool,
    context: &Context<'_>,
) -> Result<String, Error> {
    let given = args.secret_file.clone().map(Secret::File);
    let given = given.or_else(|| args.secret_env.clone().map(Secret::Environment));
    let place = match (given, &hook.secret) {
        (Some(given), _) => given,
        (None, _) if !is_local => return Err(Error::NotLocal),
        (None, HookSecret::File(path)) => Secret::File(PathBuf::from(path)),
        (None, HookSecret::Variable(name)) => Secret::Environment(name.clone()),
    };
    read_secret(&place, context.environment).map_err(Error::Secret)
}

async fn post(url: &str, sample: Sample) -> Result<(reqwest::StatusCode, String), Error> {
    let parsed = Url::parse(url).map_err(|_| Error::Address(url.to_owned()))?;
    let fail = |source| Error::Post { url: url.to_owned(), source };
    let builder = reqwest::Client::builder()
        .timeout(ANSWER_WITHIN)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    // Without https no certificates are needed, which a small machine may not have.
    let builder = if parsed.scheme() == "https" { builder } else { builder.tls_certs_only([]) };
    let mut request = builder.build().map_err(fail)?.post(parsed);
    for (name, value) in sample.headers {
        request = request.header(name, value);
    }
    let response = request.body(sample.body).send().await.map_err(fail)?;
    let status = response.status();
    Ok((status, response.text().await.map_err(fail)?))
}

/// Webhooks, one line each, with their errors.
pub(super) fn render_hooks(hooks: &[HookStatus], now: Timestamp, colours: Colours) -> String {
    let mut out = String::new();
    for hook in hooks {
        let name = colours.paint(Paint::Strong, &hook.repository);
        let _ = writeln!(out, "\nwebhook {name} ({})", hook.provider);
        let mut line = |paint, text: String| {
            let text = plain(&text).replace('\n', " ");
            let _ = writeln!(out, "  {}", colours.paint(paint, &text));
        };
        if let Some(trouble) = &hook.trouble {
            line(Paint::Bad, format!("off: {trouble}"));
        }
        match &hook.last {
            Some(last) => line(Paint::Soft, format!("last {} ago: {}", span(now.since(last.at)), told(last))),
            None => line(Paint::Soft, "no delivery yet".to_owned()),
        }
        if hook.pending > 0 {
            line(Paint::Warn, format!("{} deliveries wait for a fetch", hook.pending));
        }
        let is_newer = |refused: &&Delivery| hook.last.as_ref().is_none_or(|it| refused.at >= it.at);
        if let Some(refused) = hook.last_refused.as_ref().filter(is_newer) {
            let ago = span(now.since(refused.at));
            line(Paint::Warn, format!("refused {ago} ago, from {}: {}", refused.from, refused.message));
        }
        if let Some(missed) = &hook.missed {
            line(Paint::Warn, format!("WebhookMissed, {} ago: {missed}", span(now.since(missed.at))));
        }
    }
    out
}

/// `push refs/heads/main by gitea (5b0c…), accepted; fetched 3f2a9c1d0b7e "…"`
fn told(delivery: &Delivery) -> String {
    let Delivery { id, provider, event, reference, .. } = delivery;
    let reference = reference.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
    format!("{event}{reference} by {provider} ({id}), {}", made_of(delivery))
}

fn made_of(delivery: &Delivery) -> String {
    let Delivery { result, message, outcome, .. } = delivery;
    let mut text = result.to_string();
    for more in [message.as_str(), outcome.as_ref().map_or("", |it| it.message.as_str())] {
        if !more.is_empty() {
            text.push_str("; ");
            text.push_str(more);
        }
    }
    text
}
