//! The arguments of `driftless run`. Each one has an environment variable too: `--state-dir` is `DRIFTLESS_STATE_DIR`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum, builder::BoolishValueParser};
use driftless_model::CommitId;

use crate::cli::options::{parse_span, parse_variable};

/// The configuration file that is used without URL and `--config`.
pub(in crate::cli) const DEFAULT_CONFIG: &str = "/etc/driftless/driftless.yaml";

/// Run the agent: follow Git and keep the containers equal to it.
///
/// With a URL, no configuration file is needed. The agent looks for applications under --path: a folder with a
/// Compose file or with Kubernetes manifests is an application, named after the folder. The agent runs until it
/// receives SIGINT or SIGTERM; containers keep running without it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless run https://git.example.com/me/infra.git --path sites --branch main
  driftless run git@git.example.com:me/infra.git \\
    --ssh-key /etc/driftless/id_ed25519 --known-hosts /etc/driftless/known_hosts
  driftless run /srv/infra.git --name infra --poll 10s
  driftless run --config /etc/driftless/driftless.yaml \\
    --listen 0.0.0.0:8484 --token-file /etc/driftless/token")]
pub(in crate::cli) struct RunArgs {
    /// URL of the repository: https://, http://, ssh://, user@host:path, file:// or a folder. Without credentials.
    #[arg(env = "DRIFTLESS_URL", conflicts_with = "config")]
    pub(in crate::cli) url: Option<String>,
    /// Configuration file, for several repositories or for settings of applications.
    #[arg(long, value_name = "FILE", env = "DRIFTLESS_CONFIG")]
    pub(in crate::cli) config: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) repository: RepositoryArgs,
    #[command(flatten)]
    pub(in crate::cli) agent: AgentArgs,
    #[command(flatten)]
    pub(in crate::cli) logging: LoggingArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Repository")]
pub(in crate::cli) struct RepositoryArgs {
    /// Folder of the repository to look for applications in [default: its root]
    #[arg(long, value_name = "FOLDER", conflicts_with = "config", env = "DRIFTLESS_PATH")]
    pub(in crate::cli) path: Option<String>,
    /// Follow this branch [default: the repository's default branch]
    #[arg(long, conflicts_with_all = ["tag", "commit", "config"], env = "DRIFTLESS_BRANCH")]
    pub(in crate::cli) branch: Option<String>,
    /// Follow this tag, also when it moves.
    #[arg(long, conflicts_with_all = ["commit", "config"], env = "DRIFTLESS_TAG")]
    pub(in crate::cli) tag: Option<String>,
    /// Stay at this commit (full id).
    #[arg(long, value_name = "ID", conflicts_with = "config", value_parser = CommitId::parse, env = "DRIFTLESS_COMMIT")]
    pub(in crate::cli) commit: Option<CommitId>,
    /// Name of the repository [default: the last part of its URL]
    #[arg(long, conflicts_with = "config", env = "DRIFTLESS_NAME")]
    pub(in crate::cli) name: Option<String>,
    /// Interval between polls of Git, such as 30s or 5m [default: 60s]
    #[arg(long, value_name = "TIME", conflicts_with = "config", value_parser = parse_span, env = "DRIFTLESS_POLL")]
    pub(in crate::cli) poll: Option<std::time::Duration>,
    /// Remove the containers and networks of an application that disappears from Git. Volumes are kept.
    #[arg(long, conflicts_with = "config", env = "DRIFTLESS_PRUNE", value_parser = BoolishValueParser::new())]
    pub(in crate::cli) prune: bool,
    /// Report manual changes, but do not undo them.
    #[arg(long, conflicts_with = "config", env = "DRIFTLESS_NO_SELF_HEAL", value_parser = BoolishValueParser::new())]
    pub(in crate::cli) no_self_heal: bool,
    /// Adopt containers that `docker compose` started: after `driftless adopt` (ask), at once (auto) or never.
    #[arg(long, value_name = "POLICY", value_parser = parse_adopt, default_value = "ask", conflicts_with = "config", env = "DRIFTLESS_ADOPT")]
    pub(in crate::cli) adopt: driftless_model::Adopt,
    /// User name for the Git server [default: git]
    #[arg(long, value_name = "USER", conflicts_with = "config", env = "DRIFTLESS_GIT_USERNAME")]
    pub(in crate::cli) git_username: Option<String>,
    /// File with the token or password for the Git server. It is read again for each connection.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["git_password_env", "config"], env = "DRIFTLESS_GIT_PASSWORD_FILE")]
    pub(in crate::cli) git_password_file: Option<PathBuf>,
    /// Environment variable with the token or password for the Git server.
    #[arg(long, value_name = "VARIABLE", conflicts_with = "config", env = "DRIFTLESS_GIT_PASSWORD_ENV")]
    pub(in crate::cli) git_password_env: Option<String>,
    /// Private key for ssh.
    #[arg(long, value_name = "FILE", conflicts_with = "config", env = "DRIFTLESS_SSH_KEY")]
    pub(in crate::cli) ssh_key: Option<PathBuf>,
    /// File with the keys of known ssh servers. Other servers are rejected.
    #[arg(long, value_name = "FILE", conflicts_with = "config", env = "DRIFTLESS_KNOWN_HOSTS")]
    pub(in crate::cli) known_hosts: Option<PathBuf>,
    /// Additional certificate authorities for https, as a PEM file.
    #[arg(long, value_name = "FILE", conflicts_with = "config", env = "DRIFTLESS_CA_FILE")]
    pub(in crate::cli) ca_file: Option<PathBuf>,
}

impl RepositoryArgs {
    /// Whether a setting is given that has no effect without a URL.
    pub(super) fn has_settings(&self) -> bool {
        let Self {
            path,
            branch,
            tag,
            commit,
            name,
            poll,
            prune,
            no_self_heal,
            adopt,
            git_username,
            git_password_file,
            git_password_env,
            ssh_key,
            known_hosts,
            ca_file,
        } = self;
        let texts = [path, branch, tag, name, git_username, git_password_env];
        let files = [git_password_file, ssh_key, known_hosts, ca_file];
        texts.iter().any(|text| text.is_some())
            || files.iter().any(|file| file.is_some())
            || commit.is_some()
            || poll.is_some()
            || *prune
            || *no_self_heal
            || *adopt != driftless_model::Adopt::Ask
    }
}

/// Settings of the agent. They override the configuration file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(in crate::cli) struct AgentArgs {
    /// State directory: database, mirrors and mounted files. Keep it across restarts [default: /var/lib/driftless]
    #[arg(long, value_name = "FOLDER", env = "DRIFTLESS_STATE_DIR")]
    pub(in crate::cli) state_dir: Option<PathBuf>,
    /// Runtime directory: mounted secrets. Must be on a memory file system [default: /run/driftless]
    #[arg(long, value_name = "FOLDER", env = "DRIFTLESS_RUNTIME_DIR")]
    pub(in crate::cli) runtime_dir: Option<PathBuf>,
    /// Address of the API and the status page [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS", env = "DRIFTLESS_LISTEN")]
    pub(in crate::cli) listen: Option<SocketAddr>,
    /// File with the token that clients must send. Required to listen beyond loopback, unless the configuration has `trustedProxy` or `oidc`.
    #[arg(long, value_name = "FILE", env = "DRIFTLESS_TOKEN_FILE")]
    pub(in crate::cli) token_file: Option<PathBuf>,
    /// Certificate of the API and the page, as a PEM file with the intermediate ones: they are served with https.
    #[arg(long, value_name = "FILE", requires = "tls_key_file", env = "DRIFTLESS_TLS_CERT_FILE")]
    pub(in crate::cli) tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate, as a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", env = "DRIFTLESS_TLS_KEY_FILE")]
    pub(in crate::cli) tls_key_file: Option<PathBuf>,
    /// Name of this host, for `driftless.yaml` in Git and `${host}` in paths [default: the hostname]
    #[arg(long, value_name = "NAME", env = "DRIFTLESS_HOST_NAME")]
    pub(in crate::cli) host_name: Option<String>,
    /// Label of this host, for `driftless.yaml` in Git. Can be given several times; the variable has them with commas.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable, value_delimiter = ',', env = "DRIFTLESS_HOST_LABEL")]
    pub(in crate::cli) host_label: Vec<(String, String)>,
    /// Address of the Docker Engine [default: `DOCKER_HOST` without --config, or the local engine]
    #[arg(long, value_name = "URL", env = "DRIFTLESS_DOCKER_HOST")]
    pub(in crate::cli) docker_host: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(in crate::cli) struct LoggingArgs {
    /// Format of the log on standard error.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text, env = "DRIFTLESS_LOG_FORMAT")]
    pub(in crate::cli) log_format: LogFormat,
    /// Log more; give it twice to log everything.
    #[arg(short, long, action = clap::ArgAction::Count, env = "DRIFTLESS_VERBOSE")]
    pub(in crate::cli) verbose: u8,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
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
