//! Commands and options of the command line with defaults and help texts. `docs/cli.md` is generated from them.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    kubectl::args::{CreateCommand, DeleteArgs, DescribeArgs, GetArgs, LogsArgs, RolloutCommand},
    report::args::{DriftArgs, PreviewArgs},
};

/// The agent's address if `--server` and `DRIFTLESS_SERVER` are not given.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:8484";

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the answer is no: errors in manifests, differences, state not reached in time
  2  the command failed: wrong usage, no agent answers, request refused, output closed

Environment:
  DRIFTLESS_SERVER      address of the agent, like --server
  DRIFTLESS_TOKEN_FILE  file with the agent's token, like --token-file
  DOCKER_HOST           address of the Docker Engine if no option or file names one
  RUST_LOG              log filter of `run`, such as driftless=debug
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
    /// Follow Git again: end a pin or a suspension.
    Resume(AppArgs),
    /// Suspend an application: observe and report, and change nothing until `resume`.
    Suspend(AppArgs),
    /// Adopt the containers that `docker compose` started under the application's project name.
    ///
    /// Containers that are equal to Git keep running; containers that differ are replaced, as by a commit. Run
    /// `driftless plan APP` first to see both, field by field. If one container cannot be adopted, none is, and
    /// the reason is printed.
    Adopt(AppArgs),
    Recover(RecoverArgs),
    /// Dry run: show what the agent would do now, round by round, and why.
    Plan(PlanArgs),
    /// Compare the live state with Git, field by field; exit with 1 if something differs.
    Diff(PlanArgs),
    Drift(Box<DriftArgs>),
    Preview(Box<PreviewArgs>),
    Events(EventsArgs),
    /// Configure and test the webhook of a repository.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    Wait(WaitArgs),
    Validate(ValidateArgs),
    Config(ConfigArgs),
    Convert(ConvertArgs),
}

/// Run the agent: follow Git and keep the containers equal to it.
///
/// With a URL, no configuration file is needed. The agent looks for applications under --path: a folder with a
/// Compose file or with Kubernetes manifests is an application, named after the folder. The agent runs until it
/// receives SIGINT or SIGTERM; containers keep running without it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless run https://git.example.com/me/infra.git --path sites --branch main
  driftless run git@git.example.com:me/infra.git --ssh-key /etc/driftless/id_ed25519 --known-hosts /etc/driftless/known_hosts
  driftless run /srv/infra.git --name infra --poll 10s
  driftless run --config /etc/driftless/driftless.yaml --listen 0.0.0.0:8484 --token-file /etc/driftless/token")]
pub(super) struct RunArgs {
    /// URL of the repository: https://, http://, ssh://, user@host:path, file:// or a folder. Without credentials.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    pub(super) url: Option<String>,
    /// Configuration file, for several repositories or for settings of applications.
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
    /// Folder of the repository to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
    pub(super) path: Option<String>,
    /// Follow this branch [default: the repository's default branch]
    #[arg(long, conflicts_with_all = ["tag", "commit", "config"])]
    pub(super) branch: Option<String>,
    /// Follow this tag, also when it moves.
    #[arg(long, conflicts_with_all = ["commit", "config"])]
    pub(super) tag: Option<String>,
    /// Stay at this commit (full id).
    #[arg(long, value_name = "ID", conflicts_with = "config")]
    pub(super) commit: Option<String>,
    /// Name of the repository [default: the last part of its URL]
    #[arg(long, conflicts_with = "config")]
    pub(super) name: Option<String>,
    /// Interval between polls of Git, such as 30s or 5m [default: 60s]
    #[arg(long, value_name = "TIME", conflicts_with = "config", value_parser = parse_span)]
    pub(super) poll: Option<std::time::Duration>,
    /// Remove the containers and networks of an application that disappears from Git. Volumes are kept.
    #[arg(long, conflicts_with = "config")]
    pub(super) prune: bool,
    /// Report manual changes, but do not undo them.
    #[arg(long, conflicts_with = "config")]
    pub(super) no_self_heal: bool,
    /// Adopt containers that `docker compose` started: after `driftless adopt` (ask), at once (auto) or never.
    #[arg(long, value_name = "POLICY", value_parser = parse_adopt, default_value = "ask", conflicts_with = "config")]
    pub(super) adopt: driftless_model::Adopt,
    /// User name for the Git server [default: git]
    #[arg(long, value_name = "USER", conflicts_with = "config")]
    pub(super) git_username: Option<String>,
    /// File with the token or password for the Git server. It is read again for each connection.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["git_password_env", "config"])]
    pub(super) git_password_file: Option<PathBuf>,
    /// Environment variable with the token or password for the Git server.
    #[arg(long, value_name = "VARIABLE", conflicts_with = "config")]
    pub(super) git_password_env: Option<String>,
    /// Private key for ssh.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) ssh_key: Option<PathBuf>,
    /// File with the keys of known ssh servers. Other servers are rejected.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) known_hosts: Option<PathBuf>,
    /// Additional certificate authorities for https, as a PEM file.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) ca_file: Option<PathBuf>,
}

/// Settings of the agent. They override the configuration file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(super) struct AgentArgs {
    /// State directory: database, mirrors and mounted files. Keep it across restarts [default: /var/lib/driftless]
    #[arg(long, value_name = "FOLDER")]
    pub(super) state_dir: Option<PathBuf>,
    /// Runtime directory: mounted secrets. Must be on a memory file system [default: /run/driftless]
    #[arg(long, value_name = "FOLDER")]
    pub(super) runtime_dir: Option<PathBuf>,
    /// Address of the API and the status page [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// File with the token that clients must send. Required to listen beyond loopback.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Address of the Docker Engine [default: `DOCKER_HOST` without --config, or the local engine]
    #[arg(long, value_name = "URL")]
    pub(super) docker_host: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(super) struct LoggingArgs {
    /// Format of the log on standard error.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(super) log_format: LogFormat,
    /// Log more; give it twice to log everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Show the status of all applications.
///
/// With an application: also its workloads, instances, waits, drift and findings.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless status
  driftless status shop --watch
  driftless status -o json | jq -r '.[] | select(.status.health != \"Healthy\") | .name'")]
pub(super) struct StatusArgs {
    /// Show this application in full.
    pub(super) app: Option<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    /// Print the status again whenever it changes, until interrupted.
    #[arg(short, long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Aligned columns, followed by the problems.
    Table,
    /// Also workloads and instances.
    Wide,
    Json,
    Yaml,
}

/// Show the revisions of an application, newest first.
///
/// `driftless rollback --to` takes the number of a revision.
#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    pub(super) app: String,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Sync now: fetch from Git, observe Docker, and end all backoff pauses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless sync shop
  driftless sync shop --wait --timeout 3m     # in a pipeline, after a push
  driftless sync shop --prune                 # after a commit that removes most of it on purpose
  driftless sync shop --accept-rewrite        # after a force push that `requireFastForward` rejects")]
pub(super) struct SyncArgs {
    pub(super) app: String,
    /// Accept the rewritten history that was rejected, for all applications of the repository.
    #[arg(long)]
    pub(super) accept_rewrite: bool,
    /// Confirm the removal of workloads that Git does not contain any more (`PruneHeld`).
    #[arg(long, conflicts_with = "accept_rewrite")]
    pub(super) prune: bool,
    /// Wait until the application is Synced and Healthy; exit with 1 if that takes longer than --timeout.
    #[arg(short, long)]
    pub(super) wait: bool,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: std::time::Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Go back to an earlier revision and pin the application to it.
///
/// New commits are not applied until the pin ends; manual changes are still undone. A rollback works while the
/// Git server is unavailable. Data in volumes is not rolled back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless rollback shop                                    # to the last revision that worked
  driftless rollback shop --to 3 --reason 'orders fail'
  driftless rollback shop --to 3f2a9c1 --until next-commit
  driftless rollback shop --until 2h")]
pub(super) struct RollbackArgs {
    pub(super) app: String,
    /// Number of a revision, or at least 7 digits of a commit id [default: the newest revision that succeeded
    /// and is not the current one]
    #[arg(long, value_name = "N|COMMIT")]
    pub(super) to: Option<String>,
    /// Reason, shown in the status.
    #[arg(long)]
    pub(super) reason: Option<String>,
    /// End of the pin: manual, next-commit, a duration such as 2h, or a time such as 2026-01-31T12:00:00Z.
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

/// Take over containers after a loss of state, and apply new commits again.
///
/// The containers of agents that no longer run on this engine are taken over, without a restart. Nothing is changed
/// while such an agent still runs.
///
/// After a loss of state the agent keeps what runs and applies no new commit, because a pin or a suspension may be
/// lost. `driftless status` and `/readyz` say so. Set them again with `driftless rollback` and
/// `driftless suspend` first, then run this command.
#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Only this application [default: all]
    pub(super) app: Option<String>,
    /// Without an agent: read the manifests of this folder and observe Docker directly.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["server", "token_file"])]
    pub(super) dir: Option<PathBuf>,
    /// Address of the Docker Engine, with --dir [default: `DOCKER_HOST`, or the local engine]
    #[arg(long, value_name = "URL", requires = "dir")]
    pub(super) docker_host: Option<String>,
    /// Output format.
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

/// Show the event log, oldest event first.
#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Only events of this application.
    #[arg(long, value_name = "APP")]
    pub(super) app: Option<String>,
    /// Follow new events, until interrupted.
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Number of newest events to start with.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(super) limit: u16,
    /// Output format; json prints one event per line.
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

/// Print the URL of the webhook, the settings for the forge, and a test with curl.
#[derive(Debug, Args)]
pub(super) struct WebhookUrlArgs {
    /// Name of the repository in the configuration.
    pub(super) repository: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Send a signed sample push to the webhook and show the result.
///
/// The delivery only makes the agent fetch the repository. The secret is read on this machine. Its location comes
/// from the agent, which is trusted only if the agent runs on this machine; otherwise give --secret-file or
/// --secret-env.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless webhook test infra
  driftless webhook test infra --public                        # through the reverse proxy, like the forge
  driftless webhook test infra --secret-file ./hook-secret --server https://agent.example.com")]
pub(super) struct WebhookTestArgs {
    /// Name of the repository in the configuration.
    pub(super) repository: String,
    /// Post to the address that forges use, instead of the agent's own.
    #[arg(long)]
    pub(super) public: bool,
    /// File with the secret [default: the one that the agent reads]
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    pub(super) secret_file: Option<PathBuf>,
    /// Environment variable with the secret.
    #[arg(long, value_name = "VARIABLE")]
    pub(super) secret_env: Option<String>,
    /// Maximum time to wait for the result.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_span)]
    pub(super) timeout: std::time::Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Wait until an application has reached a state; exit with 1 if that takes too long.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless wait shop
  driftless wait shop --for healthy --timeout 30s")]
pub(super) struct WaitArgs {
    pub(super) app: String,
    /// States that must all be reached.
    #[arg(
        long = "for",
        value_name = "STATE",
        value_enum,
        value_delimiter = ',',
        default_value = "synced,healthy"
    )]
    pub(super) states: Vec<Goal>,
    /// Maximum time to wait.
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
/// Finds applications like the agent and renders each of them. Prints all findings with their location; the agent
/// does not apply an application with errors. Reads the files on disk, including those that Git ignores.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless validate .
  driftless validate ~/infra --path sites
  driftless validate . -o json")]
pub(super) struct ValidateArgs {
    /// Folder, taken as the root of a repository.
    pub(super) dir: PathBuf,
    /// Folder inside it to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(super) path: String,
    /// Format of the findings: text on standard error, json on standard output.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
}

/// Print an application in its canonical form, without an agent and without Docker.
///
/// For a Compose application: files are merged, variables interpolated, `include` and `extends` resolved, short forms
/// expanded, and names, networks and dependencies filled in. For Kubernetes manifests: the documents, after the
/// kustomization if there is one. Values that may be secret are masked. Findings go to standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless config .
  driftless config ~/infra --path sites/shop -o json
  driftless config . --path overlays/prod
  driftless config . --file compose.yaml --file compose.prod.yaml --profile debug --variable TAG=1.2")]
pub(super) struct ConfigArgs {
    /// Folder, taken as the root of a repository.
    pub(super) dir: PathBuf,
    /// Folder of the application inside it [default: its root]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(super) path: String,
    /// Compose file, relative to the application's folder; later files are merged onto earlier ones [default: found by name]
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Vec<String>,
    /// File with variables, relative to the application's folder [default: .env]
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Vec<String>,
    /// Variable; overrides those from files.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(super) variable: Vec<(String, String)>,
    /// Active profile.
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Vec<String>,
    /// Print values that may be secret.
    #[arg(long)]
    pub(super) show_secrets: bool,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = YamlOrJson::Yaml)]
    pub(super) output: YamlOrJson,
}

/// Convert a Compose file to Kubernetes manifests or back, without an agent and without Docker.
///
/// A Compose file becomes Kubernetes manifests: a workload and a Service for each service, ConfigMaps and Secrets for
/// mounted files, claims for volumes. Manifests become a Compose file. Fields that the other format cannot express are
/// listed on standard error with their location.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless convert compose.yaml > manifests.yaml
  driftless convert ~/infra/sites/shop
  driftless convert deployment.yaml --show-secrets > compose.yaml")]
pub(super) struct ConvertArgs {
    /// File, or folder with one application.
    pub(super) path: PathBuf,
    /// Variable of a Compose file; overrides those from `.env`.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(super) variable: Vec<(String, String)>,
    /// Active profile of a Compose file.
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Vec<String>,
    /// Write the values of secrets.
    #[arg(long)]
    pub(super) show_secrets: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection to the agent")]
pub(super) struct ServerArgs {
    /// Address of the agent [default: port 8484 on this machine]
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// File with the agent's token.
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
        _ => Err("the value must be ask, auto or never".to_owned()),
    }
}

pub(super) fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    driftless_config::parse_duration(text)
}

/// Checks the syntax at once. The agent interprets the value, because its clock counts.
fn check_until(text: &str) -> Result<String, String> {
    driftless_web::parse_until(text, driftless_model::Timestamp::default())
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}
