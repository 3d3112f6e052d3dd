//! The command line: all commands in the order of the help, their dispatch, and the exit code.

use std::{env, ffi::OsString, io, io::IsTerminal, process::ExitCode, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, builder::Resettable, error::ErrorKind};

use super::{
    adopt::{AdoptArgs, adopt},
    audit::{AuditArgs, audit},
    backup::{BackupArgs, RestoreArgs, backup, restore},
    completion::{CompletionArgs, ManArgs, NamesArgs, completion, man, names},
    config::{ConfigArgs, config},
    connection::arrange,
    context::{Context, Environment, ExitStatus},
    convert::{ConvertArgs, convert},
    diff::{DiffArgs, diff},
    doctor::{DoctorArgs, doctor},
    drift::{DriftArgs, drift},
    error::Error,
    events::{EventsArgs, events},
    fleet::{FleetCommand, fleet},
    forget::{ForgetArgs, forget},
    healthcheck::{HealthcheckArgs, healthcheck},
    history::{HistoryArgs, history},
    images::{ImagesArgs, images},
    import::{ImportArgs, import},
    init::{InitArgs, init},
    kubectl,
    kubectl::args::{CreateCommand, DeleteArgs, DescribeArgs, GetArgs, LogsArgs, RolloutCommand},
    notify::{NotifyCommand, notify},
    plan::{PlanArgs, plan},
    preview::{PreviewArgs, preview},
    promote::{PromoteArgs, promote},
    recover::{RecoverArgs, recover},
    release::{ReleaseArgs, release},
    remove::{RemoveArgs, remove},
    report::output::error_code as error_code_of_report,
    resume::{ResumeArgs, resume},
    rollback::{RollbackArgs, rollback},
    run::{LogFormat, RunArgs, run},
    scale::{ScaleArgs, scale},
    screen::{Colours, Screen},
    status::{StatusArgs, status},
    suspend::{SuspendArgs, suspend},
    sync::{SyncArgs, sync},
    token::{TokenCommand, token},
    ui::{UiArgs, ui},
    unknown_command::advise,
    validate::{ValidateArgs, validate},
    wait::{WaitArgs, wait},
    webhook::{WebhookCommand, webhook},
};
use driftless_clock::Clock;
use driftless_model::error_chain;

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the answer is no: errors in manifests, differences, state not reached
  2  the command failed: wrong usage, no agent answers, request refused,
     output closed

Options of all commands that ask an agent, before or after the command:
  --server URL          address of the agent
  --token-file FILE     file with the agent's token
  --server-ca-file FILE
                        certificate authorities of the agent, for https
  --host NAME           all three, from ~/.config/driftless/hosts.yaml; for
                        commands that ask none, such as validate and drift
                        --docker, the host to render for

Environment:
  DRIFTLESS_SERVER      address of the agent, like --server
  DRIFTLESS_TOKEN_FILE  file with the agent's token, like --token-file
  DRIFTLESS_SERVER_CA_FILE
                        like --server-ca-file
  DRIFTLESS_…           options of `run`; `driftless run --help` names them
  SOPS_AGE_KEY_FILE     file with the age key for encrypted files, as for sops
  DOCKER_HOST           address of the Docker Engine, if there is neither an
                        option nor, for `run`, a configuration file
  DOCKER_TLS_VERIFY     TLS for a tcp:// address from DOCKER_HOST or an option
  DOCKER_CERT_PATH      folder of ca.pem, cert.pem, key.pem [default: ~/.docker]
  RUST_LOG              log filter of `run`, such as driftless=debug
  COLUMNS               width of the output where there is no terminal
  NO_COLOR              print without colours";

/// Keep the containers of a Docker host equal to a Git repository.
///
/// `driftless run URL` starts the agent. It follows a Git repository, runs the Compose files and Kubernetes
/// manifests in it, and undoes manual changes. Most other commands are clients of a running agent; `validate`,
/// `config`, `convert` and `preview` need none.
#[derive(Debug, Parser)]
#[command(name = "driftless", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Run(Box<RunArgs>),
    Init(InitArgs),
    Import(ImportArgs),
    Status(StatusArgs),
    Ui(UiArgs),
    History(HistoryArgs),
    Get(Box<GetArgs>),
    Describe(DescribeArgs),
    #[command(subcommand)]
    Rollout(RolloutCommand),
    Logs(LogsArgs),
    Delete(DeleteArgs),
    #[command(subcommand)]
    Create(CreateCommand),
    Sync(SyncArgs),
    Rollback(RollbackArgs),
    Resume(ResumeArgs),
    Suspend(SuspendArgs),
    Scale(ScaleArgs),
    Promote(PromoteArgs),
    Images(ImagesArgs),
    Adopt(AdoptArgs),
    Recover(RecoverArgs),
    Remove(RemoveArgs),
    Forget(ForgetArgs),
    Release(ReleaseArgs),
    Plan(PlanArgs),
    Diff(DiffArgs),
    Drift(Box<DriftArgs>),
    Preview(Box<PreviewArgs>),
    Events(EventsArgs),
    Audit(AuditArgs),
    #[command(subcommand)]
    Token(TokenCommand),
    #[command(subcommand)]
    Webhook(WebhookCommand),
    #[command(subcommand)]
    Notify(NotifyCommand),
    #[command(subcommand)]
    Fleet(FleetCommand),
    Healthcheck(HealthcheckArgs),
    Doctor(Box<DoctorArgs>),
    Backup(BackupArgs),
    Restore(RestoreArgs),
    Wait(WaitArgs),
    Validate(ValidateArgs),
    Config(Box<ConfigArgs>),
    Convert(ConvertArgs),
    Completion(CompletionArgs),
    #[command(hide = true)]
    Names(NamesArgs),
    Man(ManArgs),
}

/// The definition of the command line.
///
/// An empty environment variable counts as none, as for a variable of Docker Compose without a value. Help texts do not
/// print the values of variables.
pub(super) fn definition() -> clap::Command {
    Arguments::command().mut_subcommands(|command| {
        command.mut_args(|argument| {
            let value = argument.get_env().and_then(env::var_os);
            let argument = argument.hide_env_values(true);
            if value.is_some_and(|value| value.is_empty()) {
                argument.env(Resettable::Reset)
            } else {
                argument
            }
        })
    })
}

/// Time that shutdown waits for running blocking calls, such as one on the network.
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

/// `driftless help sync` means `driftless sync --help`. A command `help` would have a page for each other one.
fn help_option(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

impl Invocation {
    /// Parses a command line. Help and usage errors are printed, and their exit code is returned.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let arguments = help_option(arguments.into_iter().collect());
        // Other exit codes that the arguments request apply to usage errors too.
        let is_detailed = arguments.iter().any(|it| it == "--detailed-exitcode");
        let wrong = if is_detailed { 1 } else { 2 };
        let command = definition();
        let arguments = arrange(arguments, &command).map_err(|error| {
            // A closed output cannot receive an error.
            let _ = definition().error(ErrorKind::ValueValidation, error_chain(&error)).print();
            ExitCode::from(wrong)
        })?;
        let parsed = command.try_get_matches_from(arguments);
        parsed.and_then(|matches| Arguments::from_arg_matches(&matches)).map(Self).map_err(|mut error| {
            advise(&mut error);
            // A closed output cannot receive an error.
            let _ = error.print();
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::from(wrong),
            }
        })
    }

    /// Whether this is the agent, which runs until it is ended.
    pub fn is_agent(&self) -> bool {
        matches!(self.0.command, Command::Run(_))
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
            Ok(ExitStatus::Success) => ExitCode::SUCCESS,
            Ok(ExitStatus::Negative) => ExitCode::from(1),
            Ok(ExitStatus::Code(code)) => ExitCode::from(code),
            Err(error) => {
                error.report(screen);
                ExitCode::from(error_code(&self.0.command))
            }
        }
    }
}

async fn dispatch(command: &Command, context: &Context<'_>) -> Result<ExitStatus, Error> {
    match command {
        Command::Run(args) => run(args, context).await,
        Command::Init(args) => init(args, context).await,
        Command::Import(args) => import(args, context).await,
        Command::Status(args) => status(args, context).await,
        Command::Ui(args) => ui(args, context).await,
        Command::History(args) => history(args, context).await,
        Command::Get(args) => kubectl::get(args, context).await,
        Command::Describe(args) => kubectl::describe(args, context).await,
        Command::Rollout(command) => kubectl::rollout(command, context).await,
        Command::Logs(args) => kubectl::logs(args, context).await,
        Command::Delete(args) => kubectl::delete(args, context).await,
        Command::Create(command) => kubectl::create(command, context).await,
        Command::Sync(args) => sync(args, context).await,
        Command::Rollback(args) => rollback(args, context).await,
        Command::Resume(args) => resume(args, context).await,
        Command::Suspend(args) => suspend(args, context).await,
        Command::Scale(args) => scale(args, context).await,
        Command::Promote(args) => promote(args, context).await,
        Command::Images(args) => images(args, context).await,
        Command::Adopt(args) => adopt(args, context).await,
        Command::Recover(args) => recover(args, context).await,
        Command::Remove(args) => remove(args, context).await,
        Command::Forget(args) => forget(args, context).await,
        Command::Release(args) => release(args, context).await,
        Command::Plan(args) => plan(args, context).await,
        Command::Diff(args) => diff(args, context).await,
        Command::Drift(args) => drift(args, context).await,
        Command::Preview(args) => preview(args, context).await,
        Command::Events(args) => events(args, context).await,
        Command::Audit(args) => audit(args, context).await,
        Command::Token(command) => token(command, context).await,
        Command::Webhook(command) => webhook(command, context).await,
        Command::Notify(command) => notify(command, context).await,
        Command::Fleet(command) => fleet(command, context).await,
        Command::Healthcheck(args) => healthcheck(args, context).await,
        Command::Wait(args) => wait(args, context).await,
        Command::Validate(args) => validate(args, context),
        Command::Config(args) => config(args, context).await,
        Command::Convert(args) => convert(args, context),
        Command::Doctor(args) => doctor(args, context).await,
        Command::Backup(args) => backup(args, context),
        Command::Restore(args) => restore(args, context),
        Command::Completion(args) => completion(args, definition()),
        Command::Names(args) => names(args, context).await,
        Command::Man(args) => man(args, definition()),
    }
}

/// Exit code of a command that failed.
fn error_code(command: &Command) -> u8 {
    match command {
        Command::Drift(args) => error_code_of_report(&args.report),
        Command::Preview(args) => error_code_of_report(&args.report),
        _ => 2,
    }
}
