//! The commands of `driftless`. Only this module reads arguments, environment and working directory, and prints.
//! `run` starts the agent, most commands are clients of its API, and `validate`, `config`, `convert` and `preview`
//! need neither an agent nor Docker.

use std::{
    error::Error as _, ffi::OsString, fmt::Write as _, io, io::IsTerminal, path::PathBuf, process::ExitCode,
    sync::Arc, time::Duration,
};

use clap::Parser;

use driftless_agent as controller;
use driftless_clock::Clock;
use driftless_model::{Finding, InvalidName};

mod args;
mod ask;
mod client;
mod config;
mod convert;
mod events;
mod findings;
mod kubectl;
mod offline;
mod pause;
mod plan_text;
mod progress;
mod proxy;
mod recipe;
mod reference;
mod report;
mod run;
mod screen;
mod show;
mod status;
mod table;
mod validate;
mod webhook;
mod yaml;

pub use args::LogFormat;
pub use findings::{render_findings, summary};
pub use pause::pause;
pub use plan_text::{render_diff, render_plan};
pub use proxy::proxy;
pub use reference::reference;
pub use screen::{Colours, LogWriter, Screen};
pub use status::{Detail, render_history, render_status};

use args::{Arguments, Command};

/// Looks up an environment variable.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// How long shutdown waits for blocking calls that still run, such as one on the network.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// A parsed command line.
#[derive(Debug)]
pub struct Invocation(Arguments);

/// Settings of the log; `RUST_LOG` overrides the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    pub format: LogFormat,
    /// A directive of `tracing_subscriber::EnvFilter`.
    pub filter: &'static str,
}

/// Everything that a command uses besides its arguments.
struct Context<'a> {
    environment: &'a Environment,
    /// Standard error.
    screen: &'a Screen,
    /// Whether standard output is coloured.
    colours: Colours,
    stdout_is_terminal: bool,
    clock: Clock,
}

/// Result of a command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
    /// An exit code chosen by the caller.
    Code(u8),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Run(#[from] run::Error),
    #[error(transparent)]
    Report(#[from] report::Error),
    #[error(transparent)]
    Kubectl(#[from] kubectl::Error),
    #[error(transparent)]
    Webhook(#[from] webhook::Error),
    #[error("{dir} has no application `{app}`")]
    NoSuchApplication { app: String, dir: PathBuf },
    #[error("there are several applications ({}); name the folder of one with --path", .0.join(", "))]
    SeveralApplications(Vec<String>),
    #[error("could not read the manifest: {0}")]
    Unreadable(String),
    #[error("there is no application in {0}")]
    NoComposeFile(PathBuf),
    #[error("could not observe the engine")]
    Plan(#[source] controller::Error),
    #[error("could not open {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the agent's answer has an unknown form; the agent may be another version")]
    Release(#[source] serde_json::Error),
    /// The reader of the output closed it, which is not reported, or the disk is full.
    #[error("could not write to the output")]
    Output(#[from] io::Error),
    /// Findings, printed with their locations.
    #[error("{}", summary(.0))]
    Findings(Vec<Finding>),
}

impl Invocation {
    /// Parses a command line. Help and usage errors are printed, and their exit code is returned.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        // Other exit codes that the arguments request apply to usage errors too.
        let is_detailed = arguments.iter().any(|it| it == "--detailed-exitcode");
        Arguments::try_parse_from(arguments).map(Self).map_err(|error| {
            // A closed output cannot receive an error.
            let _ = error.print();
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ if is_detailed => ExitCode::from(1),
                _ => ExitCode::from(2),
            }
        })
    }

    /// Clients log only warnings and errors.
    pub fn logging(&self) -> Logging {
        let Command::Run(args) = &self.0.command else {
            return Logging { format: LogFormat::Text, filter: "warn" };
        };
        let filter = match args.logging.verbose {
            0 => "warn,driftless=info",
            1 => "info,driftless=debug",
            _ => "trace",
        };
        Logging { format: args.logging.log_format, filter }
    }

    /// Runs the command. Exit codes: 0 for yes, 1 for no, 2 for an error.
    ///
    /// The runtime starts here and not in `main`: asynchronous code is compiled with the crate that first polls it, and
    /// `main.rs` is compiled last and alone.
    pub fn execute(self, environment: Environment, screen: &Screen) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "could not start the runtime");
                return ExitCode::from(2);
            }
        };
        let code = runtime.block_on(self.perform(environment, screen));
        runtime.shutdown_timeout(LAST_CALLS);
        code
    }

    async fn perform(self, environment: Environment, screen: &Screen) -> ExitCode {
        let no_color = environment("NO_COLOR");
        let stdout_is_terminal = io::stdout().is_terminal();
        let context = Context {
            environment: &environment,
            screen,
            colours: Colours::on(stdout_is_terminal, no_color.as_deref()),
            stdout_is_terminal,
            clock: Clock::System,
        };
        match dispatch(&self.0.command, &context).await {
            Ok(Verdict::Yes) => ExitCode::SUCCESS,
            Ok(Verdict::No) => ExitCode::from(1),
            Ok(Verdict::Code(code)) => ExitCode::from(code),
            Err(error) => {
                complain(&error, screen);
                ExitCode::from(error_code(&self.0.command))
            }
        }
    }
}

async fn dispatch(command: &Command, context: &Context<'_>) -> Result<Verdict, Error> {
    match command {
        Command::Run(args) => run::run(args, context).await,
        Command::Status(args) => show::status(args, context).await,
        Command::History(args) => show::history(args, context).await,
        Command::Sync(args) => ask::sync(args, context).await,
        Command::Rollback(args) => ask::rollback(args, context).await,
        Command::Resume(args) => ask::resume(args, context).await,
        Command::Suspend(args) => ask::suspend(args, context).await,
        Command::Adopt(args) => ask::adopt(args, context).await,
        Command::Recover(args) => ask::recover(args, context).await,
        Command::Plan(args) => show::plan(args, context).await,
        Command::Diff(args) => show::diff(args, context).await,
        Command::Drift(args) => report::drift(args, context).await,
        Command::Preview(args) => report::preview(args, context).await,
        Command::Get(args) => kubectl::get(args, context).await,
        Command::Describe(args) => kubectl::describe(args, context).await,
        Command::Rollout(command) => kubectl::rollout(command, context).await,
        Command::Logs(args) => kubectl::logs(args, context).await,
        Command::Delete(args) => kubectl::delete(args, context).await,
        Command::Create(command) => kubectl::create(command, context).await,
        Command::Events(args) => events::events(args, context).await,
        Command::Webhook(command) => webhook::webhook(command, context).await,
        Command::Wait(args) => ask::wait(args, context).await,
        Command::Validate(args) => validate::validate(args, context),
        Command::Config(args) => config::config(args, context),
        Command::Convert(args) => convert::convert(args, context),
    }
}

/// Exit code of a command that failed.
fn error_code(command: &Command) -> u8 {
    match command {
        Command::Drift(args) => report::error_code(&args.report),
        Command::Preview(args) => report::error_code(&args.report),
        _ => 2,
    }
}

/// Prints the error, its causes, and the help line.
fn complain(error: &Error, screen: &Screen) {
    if matches!(error, Error::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe) {
        return;
    }
    if let Error::Findings(findings) = error {
        screen.say(render_findings(findings, screen.colours()).trim_end());
    }
    let mut text = format!("{}: {error}", screen.colours().paint(screen::Paint::Bad, "error"));
    let mut cause = error.source();
    while let Some(it) = cause {
        let _ = write!(text, ": {it}");
        cause = it.source();
    }
    let help = match error {
        Error::Client(error) => error.help(),
        Error::Run(error) => error.help(),
        Error::Report(error) => error.help(),
        Error::NoComposeFile(_) => Some("name its folder with --path, or its files with --file".to_owned()),
        Error::Kubectl(error) => error.help(),
        Error::Webhook(error) => error.help(),
        Error::NoSuchApplication { .. } => Some("`driftless validate DIR -o json` lists them".to_owned()),
        Error::Name(_)
        | Error::SeveralApplications(_)
        | Error::Unreadable(_)
        | Error::Plan(_)
        | Error::Open { .. }
        | Error::Release(_)
        | Error::Output(_)
        | Error::Findings(_) => None,
    };
    if let Some(help) = help {
        let _ = write!(text, "\n{}: {help}", screen.colours().paint(screen::Paint::Busy, "help"));
    }
    screen.say(text);
}
