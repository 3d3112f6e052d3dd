//! The command line: its words, defaults and help. `docs/cli.md` is made from it. It does nothing.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    kubectl::args::{CreateCommand, DeleteArgs, DescribeArgs, GetArgs, LogsArgs, RolloutCommand},
    report::args::{DriftArgs, PreviewArgs},
};

/// Where a client looks for the agent, unless told otherwise.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:8484";

const EXIT_CODES: &str = "\
Exit codes:
  0  done, and the answer is yes
  1  the answer is no: findings, differences, not reached in time
  2  it could not be done: wrong usage, no agent there, refused, output closed

Environment:
  DRIFTLESS_SERVER      the agent's address, as --server
  DRIFTLESS_TOKEN_FILE  a file with the agent's token, as --token-file
  DOCKER_HOST           the Docker Engine, where no option or file names one
  RUST_LOG              what `run` logs, such as driftless=debug
  NO_COLOR              print without colours";

/// Driftless makes what runs on a Docker host equal to what Git says, and keeps it so.
///
/// `driftless run URL` is the agent: it follows a Git repository, starts the Compose and Kubernetes manifests
/// that it finds there, and undoes what is changed by hand. All other commands ask a running agent, or, like
/// `validate`, need none.
#[derive(Debug, Parser)]
#[command(name = "driftless", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Run(Box<RunArgs>),
    Status(StatusArgs),
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
    /// End a pin or a suspension: follow Git again.
    Resume(AppArgs),
    /// Freeze an application: observe and report, and change nothing until it is resumed.
    Suspend(AppArgs),
    /// Take over what `docker compose` has started under the name of an application's project.
    ///
    /// What is as Git says keeps running; what differs is replaced as by a commit. `driftless plan APP` lists it
    /// first, field by field. Where a container must not be taken over nothing is, and the reason is told.
    Adopt(AppArgs),
    /// Show what the agent would do now, round by round, and why. Nothing is done.
    Plan(PlanArgs),
    /// Show what differs between what runs and what Git says; exit with 1 when something does.
    Diff(PlanArgs),
    Drift(Box<DriftArgs>),
    Preview(Box<PreviewArgs>),
    Events(EventsArgs),
    /// Set up and try the webhook of a repository.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    Wait(WaitArgs),
    Validate(ValidateArgs),
    Config(ConfigArgs),
    Convert(ConvertArgs),
}

/// Run the agent: follow Git, and keep Docker equal to it.
///
/// With a URL, no configuration file is needed. The agent looks for applications under --path: a folder with a
/// Compose file or with Kubernetes manifests is an application, named after the folder. It runs until it is
/// told to stop (SIGINT, SIGTERM); containers keep running without it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless run https://git.example.com/me/infra.git --path sites --branch main
  driftless run git@git.example.com:me/infra.git --ssh-key /etc/driftless/id_ed25519 --known-hosts /etc/driftless/known_hosts
  driftless run /srv/infra.git --name infra --poll 10s
  driftless run --config /etc/driftless/driftless.yaml --listen 0.0.0.0:8484 --token-file /etc/driftless/token")]
pub(super) struct RunArgs {
    /// The repository: https://, http://, ssh://, user@host:path, file:// or a folder. Without credentials.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    pub(super) url: Option<String>,
    /// A configuration file, for several repositories or applications.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) repository: RepositoryArgs,
    #[command(flatten)]
    pub(super) agent: AgentArgs,
    #[command(flatten)]
    pub(super) logging: LoggingArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Repository")]
pub(super) struct RepositoryArgs {
    /// The folder in the repository to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
    pub(super) path: Option<String>,
    /// Follow this branch [default: the repository's own]
    #[arg(long, conflicts_with_all = ["tag", "commit", "config"])]
    pub(super) branch: Option<String>,
    /// Stay at this tag, wherever it goes.
    #[arg(long, conflicts_with_all = ["commit", "config"])]
    pub(super) tag: Option<String>,
    /// Stay at this commit, given by its full id.
    #[arg(long, value_name = "ID", conflicts_with = "config")]
    pub(super) commit: Option<String>,
    /// What to call the repository [default: the last part of its URL]
    #[arg(long, conflicts_with = "config")]
    pub(super) name: Option<String>,
    /// How often to ask Git for news, such as 30s or 5m [default: 60s]
    #[arg(long, value_name = "TIME", conflicts_with = "config", value_parser = parse_span)]
    pub(super) poll: Option<std::time::Duration>,
    /// Remove what runs when its application disappears from Git. Volumes are kept.
    #[arg(long, conflicts_with = "config")]
    pub(super) prune: bool,
    /// Report what was changed by hand, and leave it.
    #[arg(long, conflicts_with = "config")]
    pub(super) no_self_heal: bool,
    /// What becomes of containers that `docker compose` has started: ask, auto or never take them over.
    #[arg(long, value_name = "POLICY", value_parser = parse_adopt, default_value = "ask", conflicts_with = "config")]
    pub(super) adopt: driftless_model::Adopt,
    /// The user for the Git server [default: git]
    #[arg(long, value_name = "USER", conflicts_with = "config")]
    pub(super) git_username: Option<String>,
    /// A file with the Git server's token or password. It is read anew each time.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["git_password_env", "config"])]
    pub(super) git_password_file: Option<PathBuf>,
    /// The environment variable that holds the Git server's token or password.
    #[arg(long, value_name = "VARIABLE", conflicts_with = "config")]
    pub(super) git_password_env: Option<String>,
    /// The private key for ssh.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) ssh_key: Option<PathBuf>,
    /// The keys of known ssh servers. A server that is not in it is refused.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) known_hosts: Option<PathBuf>,
    /// Further certificate authorities for https, as PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) ca_file: Option<PathBuf>,
}

/// These go before what a configuration file says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(super) struct AgentArgs {
    /// Mirrors, database and mounted files [default: /var/lib/driftless]
    #[arg(long, value_name = "FOLDER")]
    pub(super) state_dir: Option<PathBuf>,
    /// Secrets that containers mount; on a memory file system [default: /run/driftless]
    #[arg(long, value_name = "FOLDER")]
    pub(super) runtime_dir: Option<PathBuf>,
    /// Where to serve the API and the page [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// A file with the token that clients must send. Needed to listen beyond loopback.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// The Docker Engine [default: `DOCKER_HOST` without --config, or the one of this machine]
    #[arg(long, value_name = "URL")]
    pub(super) docker_host: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(super) struct LoggingArgs {
    /// How to log, to standard error.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(super) log_format: LogFormat,
    /// Log more; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Show what the agent manages, and how it is.
///
/// With an application: its workloads, instances, waits, drift and findings as well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless status
  driftless status shop --watch
  driftless status -o json | jq -r '.[] | select(.status.health != \"Healthy\") | .name'")]
pub(super) struct StatusArgs {
    /// Only this application, in full.
    pub(super) app: Option<String>,
    /// How to print it.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    /// Print it again whenever it changes, until interrupted.
    #[arg(short, long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Aligned columns, and below them what is not as it should be.
    Table,
    /// With workloads and instances.
    Wide,
    Json,
    Yaml,
}

/// Show the revisions of an application, newest first.
///
/// The number is what `driftless rollback --to` takes.
#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    pub(super) app: String,
    /// How to print it.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Ask Git now, look at Docker now, and forget the pauses of backoff.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless sync shop
  driftless sync shop --wait --timeout 3m     # in a pipeline, after a push
  driftless sync shop --prune                 # after a commit that dropped most of it, on purpose
  driftless sync shop --accept-rewrite        # after a forced push that `requireFastForward` refuses")]
pub(super) struct SyncArgs {
    pub(super) app: String,
    /// Take up the rewritten history that is refused now, for all applications of the repository.
    #[arg(long)]
    pub(super) accept_rewrite: bool,
    /// Remove what Git does not have any more and what is kept because it is so much (`PruneHeld`).
    #[arg(long, conflicts_with = "accept_rewrite")]
    pub(super) prune: bool,
    /// Wait until the application is Synced and Healthy; exit with 1 when that takes longer than --timeout.
    #[arg(short, long)]
    pub(super) wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: std::time::Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Go back to an earlier revision, and stay there.
///
/// The application is pinned: new commits are not applied until the pin ends, while changes by hand are still
/// undone. It works while the Git server is down. Volumes are not rolled back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless rollback shop                                    # to the last revision that worked
  driftless rollback shop --to 3 --reason 'orders fail'
  driftless rollback shop --to 3f2a9c1 --until next-commit
  driftless rollback shop --until 2h")]
pub(super) struct RollbackArgs {
    pub(super) app: String,
    /// A revision's number or a commit's id, at least 7 digits of it [default: the newest revision that
    /// succeeded and is not the current one]
    #[arg(long, value_name = "N|COMMIT")]
    pub(super) to: Option<String>,
    /// Why, for those who look at the status.
    #[arg(long)]
    pub(super) reason: Option<String>,
    /// When the pin ends: manual, next-commit, a span such as 2h, or a time such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", default_value = "manual", value_parser = check_until)]
    pub(super) until: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct AppArgs {
    pub(super) app: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Only this application [default: all]
    pub(super) app: Option<String>,
    /// Without an agent: read the manifests of this folder and look at Docker.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["server", "token_file"])]
    pub(super) dir: Option<PathBuf>,
    /// The Docker Engine to look at, with --dir [default: `DOCKER_HOST`, or the one of this machine]
    #[arg(long, value_name = "URL", requires = "dir")]
    pub(super) docker_host: Option<String>,
    /// How to print it.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TextOrJson {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum YamlOrJson {
    Yaml,
    Json,
}

/// Show what happened, oldest first.
#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Only those of this application.
    #[arg(long, value_name = "APP")]
    pub(super) app: Option<String>,
    /// Go on with what happens, until interrupted.
    #[arg(short, long)]
    pub(super) follow: bool,
    /// How many of the newest to begin with.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(super) limit: u16,
    /// How to print it; json is one event per line.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    Url(WebhookUrlArgs),
    Test(WebhookTestArgs),
}

/// Print where a forge is to post to, how it is set up there, and how to try it with curl.
#[derive(Debug, Args)]
pub(super) struct WebhookUrlArgs {
    /// The repository's name in the configuration.
    pub(super) repository: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Post a signed sample of a push, and show what the agent makes of it.
///
/// It tells the agent nothing but to look: the repository is asked, and nothing is deployed that is not in it.
/// The secret is read on this machine; the agent says where, which is only believed of an agent on this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless webhook test infra
  driftless webhook test infra --public                        # through the proxy, as the forge does
  driftless webhook test infra --secret-file ./hook-secret --server https://agent.example.com")]
pub(super) struct WebhookTestArgs {
    /// The repository's name in the configuration.
    pub(super) repository: String,
    /// Post to the address that forges use, rather than to the agent itself.
    #[arg(long)]
    pub(super) public: bool,
    /// The file with the secret [default: the one that the agent reads]
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    pub(super) secret_file: Option<PathBuf>,
    /// The environment variable with the secret.
    #[arg(long, value_name = "VARIABLE")]
    pub(super) secret_env: Option<String>,
    /// How long to wait for what the agent makes of it.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_span)]
    pub(super) timeout: std::time::Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Wait until an application is in a state; exit with 1 when that takes too long.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless wait shop
  driftless wait shop --for healthy --timeout 30s")]
pub(super) struct WaitArgs {
    pub(super) app: String,
    /// All of these must be so.
    #[arg(
        long = "for",
        value_name = "STATE",
        value_enum,
        value_delimiter = ',',
        default_value = "synced,healthy"
    )]
    pub(super) states: Vec<Goal>,
    /// How long to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: std::time::Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Goal {
    Synced,
    Healthy,
    Suspended,
    Degraded,
}

/// Check the manifests of a folder, without an agent and without Docker.
///
/// Applications are looked for as the agent does, and every one is rendered. All findings are printed, with
/// their place; errors are what the agent would refuse to apply.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless validate .
  driftless validate ~/infra --path sites
  driftless validate . -o json")]
pub(super) struct ValidateArgs {
    /// The folder, as the root of a repository.
    pub(super) dir: PathBuf,
    /// The folder inside it to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(super) path: String,
    /// How to print the findings: text to standard error, json to standard output.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
}

/// Print an application as it is read, without an agent and without Docker.
///
/// Of a Compose application files are merged, variables put in, includes and extensions fetched, short forms written the
/// long way, and names, networks and dependencies filled in. Of Kubernetes manifests the documents are printed, as the
/// kustomization makes them if there is one. Values that may be secret are hidden. Findings go to standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless config .
  driftless config ~/infra --path sites/shop -o json
  driftless config . --path overlays/prod
  driftless config . --file compose.yaml --file compose.prod.yaml --profile debug --variable TAG=1.2")]
pub(super) struct ConfigArgs {
    /// The folder, as the root of a repository.
    pub(super) dir: PathBuf,
    /// The folder of the application inside it [default: its root]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(super) path: String,
    /// A Compose file, from the application's folder; each later one is laid upon those before [default: found]
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Vec<String>,
    /// A file of variables, from the application's folder [default: .env]
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Vec<String>,
    /// A variable, over those of files.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(super) variable: Vec<(String, String)>,
    /// An active profile.
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Vec<String>,
    /// Print values that may be secret, too.
    #[arg(long)]
    pub(super) show_secrets: bool,
    /// How to print it.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = YamlOrJson::Yaml)]
    pub(super) output: YamlOrJson,
}

/// Write an application in the other format, without an agent and without Docker.
///
/// A Compose file becomes Kubernetes manifests: an owner and a Service for each service, ConfigMaps and Secrets for what is
/// mounted, claims for volumes. Manifests become a Compose file. What the other format has no word for is listed on
/// standard error, with its place.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless convert compose.yaml > manifests.yaml
  driftless convert ~/infra/sites/shop
  driftless convert deployment.yaml --show-secrets > compose.yaml")]
pub(super) struct ConvertArgs {
    /// The file, or a folder that holds one application.
    pub(super) path: PathBuf,
    /// A variable of a Compose file, over those of `.env`.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(super) variable: Vec<(String, String)>,
    /// An active profile of a Compose file.
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Vec<String>,
    /// Write the values of secrets, too.
    #[arg(long)]
    pub(super) show_secrets: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Agent to ask")]
pub(super) struct ServerArgs {
    /// The agent's address [default: the one of this machine, port 8484]
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// A file with the agent's token.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

fn parse_adopt(text: &str) -> Result<driftless_model::Adopt, String> {
    use driftless_model::Adopt;
    match text {
        "ask" => Ok(Adopt::Ask),
        "auto" => Ok(Adopt::Auto),
        "never" => Ok(Adopt::Never),
        _ => Err("it is one of ask, auto and never".to_owned()),
    }
}

pub(super) fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    driftless_config::parse_duration(text)
}

/// Checked here to be told at once; read by the agent, whose clock counts.
fn check_until(text: &str) -> Result<String, String> {
    driftless_web::parse_until(text, driftless_model::Timestamp::default())
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}
