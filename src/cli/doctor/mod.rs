//! `driftless doctor`: checks everything around the agent and says what to do about it. It changes nothing.

mod check;
mod engine;
mod host;
mod repositories;
mod unit;
mod webhooks;

use clap::Args;

use self::check::{Check, CheckResult};
use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    findings::counted,
    fold,
    options::TextOrJson,
    output::{self, print},
    run::{
        RunArgs, check_access, check_certificates, check_socket, provider, run_settings, unused_docker_host,
    },
    screen::Paint,
    topic::Topic,
};
use driftless_clock::Clock;
use driftless_config::{ApiSocket, Settings};

/// Check the machine, the engine, Git and the configuration, and say what to do.
///
/// Takes the options and environment variables of `driftless run`, so it checks what the agent would use. Run it as the
/// user and on the machine, or in the container, of the agent. It changes nothing and can run next to the agent. Exits
/// with 0 if no check failed, also with warnings, and with 1 otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless doctor
  driftless doctor --config /etc/driftless/driftless.yaml
  driftless doctor https://git.example.com/me/infra.git -o json
  docker compose exec agent driftless doctor")]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
}

const CONFIGURATION: &str = "configuration";

/// The columns before a message, next to the longest name.
const MESSAGE_INDENT: usize = 8;

/// The most columns of a name in a terminal. The message of a longer one begins on the next line.
const WIDEST_NAME: usize = 22;

/// The columns before the help.
const HELP_INDENT: usize = 6;

/// The columns of a message in a very narrow terminal.
const NARROWEST: usize = 20;

pub(super) async fn doctor(args: &DoctorArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let checks = match configuration(args, context) {
        Ok(settings) => {
            let mut checks = of_settings(&settings, context).await;
            let unused = unused_docker_host(&args.run, context.environment);
            checks.extend(unused.map(|finding| {
                Check::warn("engine address", finding.message, finding.help.unwrap_or_default())
                    .explained(Topic::Engine)
            }));
            checks
        }
        // The machine is checked with the defaults.
        Err(checks) => {
            let checks = checks.into_iter().map(|check| check.explained(Topic::Configuration)).collect();
            around(checks, &Settings::default(), context).await
        }
    };
    match args.output {
        TextOrJson::Text => print(&render(&checks, context))?,
        TextOrJson::Json => print(&output::json(&checks))?,
    }
    Ok(exit_status(&checks))
}

/// Checks everything with these settings, and prints the report for people.
pub(super) async fn check_settings(
    settings: &Settings,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    let checks = of_settings(settings, context).await;
    print(&render(&checks, context))?;
    Ok(exit_status(&checks))
}

async fn of_settings(settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    let checks = about_settings(settings, context).into_iter();
    around(checks.map(|check| check.explained(Topic::Configuration)).collect(), settings, context).await
}

/// Adds the checks of the machine, the engine and Git.
async fn around(mut checks: Vec<Check>, settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    checks.extend(host::checks(settings).await);
    for (topic, of_topic) in [
        (Topic::HostValues, host_values(settings, context).await),
        (Topic::OpenId, oidc(settings, context).await.into_iter().collect()),
        (Topic::Engine, engine::checks(settings, context).await),
    ] {
        checks.extend(of_topic.into_iter().map(|check| check.explained(topic)));
    }
    let is_running = host::holder(&settings.state_dir).is_some();
    checks.extend(webhooks::check(settings, is_running).await.map(|check| check.explained(Topic::Webhooks)));
    checks.extend(repositories::checks(settings, context).await);
    checks
}

fn exit_status(checks: &[Check]) -> ExitStatus {
    let failed = checks.iter().any(|check| check.result == CheckResult::Fail);
    if failed { ExitStatus::Negative } else { ExitStatus::Success }
}

/// The settings, or why they cannot be read.
fn configuration(args: &DoctorArgs, context: &Context<'_>) -> Result<Settings, Vec<Check>> {
    run_settings(&args.run, context.environment).map_err(|error| match error {
        CliError::Findings(findings) => {
            let help = "correct the file; `driftless config check FILE` shows the lines";
            let checks = findings.iter().map(|finding| {
                Check::fail(CONFIGURATION, finding.to_string(), help).explained(Topic::Findings)
            });
            checks.collect()
        }
        error => vec![Check::fail(CONFIGURATION, error.to_string(), error.help_text())],
    })
}

/// Whether the agent could start with these settings.
fn about_settings(settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    let count = settings.repositories.len();
    let message = match count {
        1 => "1 repository".to_owned(),
        count => format!("{count} repositories"),
    };
    let mut checks = vec![Check::ok(CONFIGURATION, message)];
    checks.push(match check_access(settings, context.environment) {
        Ok(()) => Check::ok("access", access_text(settings)),
        Err(error) => Check::fail("access", error.to_string(), error.help_text()).explained(Topic::Access),
    });
    let warnings = settings.warnings("the configuration").into_iter();
    checks.extend(warnings.map(|it| Check::warn(CONFIGURATION, it.message, it.help.unwrap_or_default())));
    checks.extend(proxies(settings, context));
    checks.extend(socket(settings));
    checks.push(files(settings, context));
    checks
}

/// Whether the socket of the API can be opened, if the settings have one of their own.
fn socket(settings: &Settings) -> Option<Check> {
    let name = "socket";
    if settings.socket == ApiSocket::default() {
        return None;
    }
    Some(match check_socket(&settings.socket) {
        Ok(()) => Check::ok(name, "its path and its group can be used"),
        Err(error) => Check::fail(name, error.to_string(), error.help_text()).explained(Topic::Listen),
    })
}

/// Whether the files that the agent reads at its start can be used.
fn files(settings: &Settings, context: &Context<'_>) -> Check {
    let name = "files";
    if let Err(error) = check_certificates(settings) {
        return Check::fail(name, error.to_string(), error.help_text()).explained(Topic::Certificates);
    }
    match driftless_agent::Agent::check(settings, context.environment) {
        Ok(()) => Check::ok(name, "keys, certificates and addresses can be read"),
        Err(error) => Check::fail(
            name,
            driftless_model::error_chain(&error),
            "correct the name of the file, or give the agent's user access",
        ),
    }
}

/// Whether the Docker client has proxies for containers and builds, which the agent does not give to them.
fn proxies(settings: &Settings, context: &Context<'_>) -> Option<Check> {
    let file = driftless_agent::Agent::file_with_proxies(settings, context.environment)?;
    let message =
        format!("{} has `proxies`; containers and builds of the agent do not get them", file.display());
    let help = "write HTTP_PROXY, HTTPS_PROXY and NO_PROXY into `environment` and `build.args` of the services that need them; \
                docs/adoption.md";
    Some(Check::warn("proxies", message, help))
}

/// Whether the sources of `valuesFrom` can be read, if there are any.
async fn host_values(settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    let name = "host values";
    let (count, errors) =
        driftless_agent::Agent::check_host_values(settings, context.environment, Clock::System).await;
    if count > 0 && errors.is_empty() {
        return vec![Check::ok(name, format!("sources of valuesFrom can be read: {count}"))];
    }
    let help = "make the source readable for the agent's user; its applications are not deployed without it";
    errors.into_iter().map(|error| Check::fail(name, error, help)).collect()
}

/// Whether people can log in with the OpenID provider, if there is one.
async fn oidc(settings: &Settings, context: &Context<'_>) -> Option<Check> {
    let name = "oidc";
    let provider = provider(settings, context.environment)?;
    let oidc = provider.settings();
    let help = format!("correct `oidc.issuer`; the provider must send browsers back to {}", oidc.callback());
    Some(match provider.check().await {
        Ok(()) => {
            Check::ok(name, format!("{} answers; it sends browsers back to {}", oidc.issuer, oidc.callback()))
        }
        Err(error) => Check::fail(name, driftless_model::error_chain(&error), help),
    })
}

fn access_text(settings: &Settings) -> String {
    let people = match (&settings.oidc, &settings.trusted_proxy) {
        (Some(oidc), _) => format!("people log in with {}", oidc.issuer),
        (None, Some(_)) => "people come through the trusted proxy".to_owned(),
        (None, None) => String::new(),
    };
    match &settings.token_file {
        Some(path) => format!("clients need the token of {} or a named one", path.display()),
        None if !people.is_empty() => format!("clients need a named token, {people}"),
        None => "only this machine reaches the API, and clients need no token".to_owned(),
    }
}

/// `OK    engine  28.2.2 …`, and the help below what is not in order. The messages are a column of their own, and the address of
/// the section is never broken, so that it can be copied.
fn render(checks: &[Check], context: &Context<'_>) -> String {
    let longest = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    let width = if context.columns().is_some() { longest.min(WIDEST_NAME) } else { longest };
    let mut text = String::new();
    for Check { name, result, message, help, explained } in checks {
        let (word, paint) = match result {
            CheckResult::Ok => ("OK  ", Paint::Good),
            CheckResult::Warn => ("warn", Paint::Warn),
            CheckResult::Fail => ("fail", Paint::Bad),
        };
        let padding = match width.checked_sub(name.chars().count()) {
            Some(missing) => " ".repeat(missing + 2),
            None => format!("\n{}", " ".repeat(width + MESSAGE_INDENT)),
        };
        text.extend([format!("{}  {name}{padding}", context.colours.paint(paint, word))]);
        text.extend([indented(message, width + MESSAGE_INDENT, context)]);
        if !help.is_empty() {
            text.extend([" ".repeat(HELP_INDENT), indented(&format!("help: {help}"), HELP_INDENT, context)]);
        }
        if !explained.is_empty() {
            text.extend([format!("{}explained in {explained}\n", " ".repeat(HELP_INDENT))]);
        }
    }
    let count = |result| checks.iter().filter(|check| check.result == result).count();
    let (warnings, failures) = (count(CheckResult::Warn), count(CheckResult::Fail));
    text.extend([format!("{} checks, {}, {failures} failed\n", checks.len(), counted(warnings, "warning"))]);
    text
}

/// A text that starts in column `indent`, folded at the width of the terminal with the other lines below its start.
fn indented(text: &str, indent: usize, context: &Context<'_>) -> String {
    let lines = match context.columns() {
        Some(columns) => {
            let room = columns.saturating_sub(indent).max(NARROWEST);
            fold::words(text, room, room)
        }
        None => vec![text.to_owned()],
    };
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join(&format!("\n{}", " ".repeat(indent))) + "\n"
}
