//! `driftless run`: reads settings from arguments or a file, opens the listener, runs the agent, and shuts down. The
//! agent itself is [`driftless_agent`].

use std::{fs, io, net::SocketAddr, os::unix::fs::PermissionsExt, path::PathBuf};

use clap::{Args, ValueEnum};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    context::{Context, Environment, Verdict},
    error::{CommandError, Error as CliError},
    options::parse_span,
    progress,
    screen::Paint,
};
use driftless_agent as controller;
use driftless_agent::{Agent, Running};
use driftless_config::{Auth, Reference, Secret, Settings};
use driftless_web as web;
use driftless_web::{Access, Receiver, Token, TokenError};

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

/// Why the agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("could not listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("could not listen for webhooks on {address}")]
    ListenHooks {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("{0} is reachable from other machines, and there is no token")]
    Open(SocketAddr),
    #[error("could not read the token from {path}")]
    ReadToken {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the token in {path} is not valid")]
    Token {
        path: PathBuf,
        #[source]
        source: TokenError,
    },
    #[error("could not watch for signals")]
    Signals(#[source] io::Error),
    #[error("could not start the agent")]
    Start(#[source] controller::Error),
    #[error("could not read the configuration {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{path}` is not a path")]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the agent ended unexpectedly")]
    Ended,
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another program uses the address, perhaps another agent; choose another address with --listen".to_owned())
            }
            Self::ListenHooks { .. } => Some("change `webhooks.listen` in the configuration".to_owned()),
            Self::Open(_) => Some(
                "create one with `openssl rand -hex 32 > token` and name it with --token-file, or listen on 127.0.0.1"
                    .to_owned(),
            ),
            Self::Token { .. } => Some("create one with `openssl rand -hex 32`".to_owned()),
            Self::Ended => Some("the log has the cause".to_owned()),
            Self::Listen { .. } | Self::Read { .. } | Self::Path { .. } | Self::ReadToken { .. } | Self::Signals(_) | Self::Start(_) => None,
        }
    }
}

pub(super) async fn run(args: &RunArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let settings = settings(args, context.environment)?;
    let access = access(&settings)?;
    let mut signals = Signals::new()?;
    // The listener comes first, so that an address in use is reported before anything changes.
    let address = settings.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let address = listener.local_addr().unwrap_or(address);
    let hooks = match settings.webhooks.listen {
        Some(address) => {
            let bound = TcpListener::bind(address).await;
            Some(bound.map_err(|source| Error::ListenHooks { address, source })?)
        }
        None => None,
    };
    introduce(&settings, address, context);
    let starting = Agent::start(settings.clone(), context.environment.clone(), context.clock);
    let running = tokio::select! {
        running = starting => running.map_err(Error::Start)?,
        () = signals.next() => return Ok(Verdict::Yes),
    };
    let receiver = Receiver::new(
        running.handle.clone(),
        running.store.clone(),
        &settings,
        context.environment.clone(),
        context.clock,
    );
    let listeners = Listeners { api: listener, hooks };
    Ok(attend(running, listeners, receiver, access, signals, context).await?)
}

/// Listeners of the agent.
struct Listeners {
    api: TcpListener,
    /// If `None`, the API's listener serves webhooks.
    hooks: Option<TcpListener>,
}

/// Serves until a signal, then stops everything in order. A second signal ends the process at once.
async fn attend(
    running: Running,
    listeners: Listeners,
    receiver: Receiver,
    access: Access,
    mut signals: Signals,
    context: &Context<'_>,
) -> Result<Verdict, Error> {
    let stopping = CancellationToken::new();
    let hook_routes = receiver.routes();
    let router = web::router_with_hooks(running.handle.clone(), running.store.clone(), access, receiver);
    let serve =
        |listener, router| tokio::spawn(web::serve(listener, router, stopping.clone().cancelled_owned()));
    let servers = match listeners.hooks {
        Some(hooks) => vec![serve(listeners.api, router), serve(hooks, hook_routes)],
        None => vec![serve(listeners.api, router.merge(hook_routes))],
    };
    let ended = tokio::select! {
        () = signals.next() => Ok(Verdict::Yes),
        () = progress::follow(running.handle.clone(), context.screen) => Err(Error::Ended),
    };
    stopping.cancel();
    let stop = async {
        running.stop().await;
        // The server's own time limit ends this, whatever its clients do.
        for server in servers {
            if let Err(error) = server.await {
                tracing::error!(%error, "the API server failed");
            }
        }
    };
    tokio::select! {
        () = stop => ended,
        () = signals.next() => std::process::exit(130),
    }
}

/// The signals that stop the agent.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        Ok(Self { interrupt, terminate })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => tracing::info!(signal = "SIGINT", "stopping"),
            _ = self.terminate.recv() => tracing::info!(signal = "SIGTERM", "stopping"),
        }
    }
}

/// Prints or logs which repositories are followed, the address, and the directories.
fn introduce(settings: &Settings, address: SocketAddr, context: &Context<'_>) {
    let screen = context.screen;
    if !screen.is_terminal() {
        for it in &settings.repositories {
            let reference = reference_text(&it.reference);
            tracing::info!(repository = it.name, url = it.url, reference, path = it.path, "following");
        }
        tracing::info!(%address, state_dir = %settings.state_dir.display(), "starting");
        return;
    }
    let strong = |text: String| screen.colours().paint(Paint::Strong, &text);
    for it in &settings.repositories {
        let folder = if it.path.is_empty() { String::new() } else { format!(", folder {}", it.path) };
        let (url, reference) = (strong(it.url.clone()), reference_text(&it.reference));
        screen.say(format!("follows    {url} ({reference}{folder})"));
    }
    screen.say(format!("listening on {}", strong(format!("http://{address}/"))));
    screen.say(format!("keeps      {}", strong(settings.state_dir.display().to_string())));
}

fn reference_text(reference: &Reference) -> String {
    match reference {
        Reference::Head => "default branch".to_owned(),
        Reference::Branch(name) => format!("branch {name}"),
        Reference::Tag(name) => format!("tag {name}"),
        Reference::Semver(range) => format!("highest tag in {range}"),
        Reference::Commit(id) => format!("commit {id}"),
    }
}

/// Settings from a file or URL, overridden by options.
fn settings(args: &RunArgs, environment: &Environment) -> Result<Settings, CliError> {
    let RunArgs { url, config, repository, agent, logging: _ } = args;
    let mut settings = match (config, url) {
        (Some(path), _) => {
            let source = |source| Error::Read { path: path.clone(), source };
            let text = fs::read_to_string(path).map_err(source)?;
            Settings::parse(&path.display().to_string(), &text).map_err(CliError::Findings)?
        }
        (None, url) => from_url(url.as_deref().unwrap_or_default(), repository)?,
    };
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|source| Error::Path { path: path.clone(), source })
    };
    if let Some(it) = &agent.state_dir {
        settings.state_dir = absolute(it)?;
    }
    if let Some(it) = &agent.runtime_dir {
        settings.runtime_dir = absolute(it)?;
    }
    if let Some(it) = agent.listen {
        settings.listen = it;
    }
    if let Some(it) = &agent.token_file {
        settings.token_file = Some(absolute(it)?);
    }
    // A configuration file names its engine or means the default; the environment does not change it.
    let ambient = || environment("DOCKER_HOST").filter(|it| config.is_none() && !it.is_empty());
    if let Some(it) = agent.docker_host.clone().or_else(ambient) {
        settings.docker_host = it;
    }
    // A missing token has its own error with help.
    access_is_closed(&settings)?;
    let findings = settings.check("the command line");
    if findings.is_empty() { Ok(settings) } else { Err(CliError::Findings(findings)) }
}

fn from_url(url: &str, args: &RepositoryArgs) -> Result<Settings, CliError> {
    let reference = match (&args.branch, &args.tag, &args.commit) {
        (Some(branch), _, _) => Reference::Branch(branch.clone()),
        (None, Some(tag), _) => Reference::Tag(tag.clone()),
        (None, None, Some(commit)) => Reference::Commit(commit.clone()),
        (None, None, None) => Reference::Head,
    };
    // A folder of this machine may be relative; the agent needs an absolute path.
    let is_local = !url.contains("://") && std::path::Path::new(url).is_dir();
    let url = match is_local.then(|| std::path::absolute(url)) {
        Some(Ok(path)) => path.display().to_string(),
        Some(Err(_)) | None => url.to_owned(),
    };
    let path = args.path.as_deref().unwrap_or_default();
    let mut settings = Settings::for_repository(&url, path, reference).map_err(CliError::Findings)?;
    for repository in &mut settings.repositories {
        if let Some(name) = &args.name {
            repository.name.clone_from(name);
        }
        if let Some(poll) = args.poll {
            repository.poll = poll;
        }
        repository.ca_file.clone_from(&args.ca_file);
        repository.policy.prune = args.prune;
        repository.policy.self_heal = !args.no_self_heal;
        repository.policy.adopt = args.adopt;
        let password_file = args.git_password_file.clone().map(Secret::File);
        repository.auth = Auth {
            username: args.git_username.clone().map(Secret::Plain),
            password: password_file.or_else(|| args.git_password_env.clone().map(Secret::Environment)),
            ssh_key: args.ssh_key.clone(),
            known_hosts: args.known_hosts.clone(),
            ..Auth::default()
        };
    }
    Ok(settings)
}

fn access_is_closed(settings: &Settings) -> Result<(), Error> {
    if settings.token_file.is_none() && !settings.listen.ip().is_loopback() {
        return Err(Error::Open(settings.listen));
    }
    Ok(())
}

/// Access with the token if there is one, otherwise loopback only.
fn access(settings: &Settings) -> Result<Access, Error> {
    access_is_closed(settings)?;
    let Some(path) = settings.token_file.clone() else { return Ok(Access::Loopback) };
    let text = fs::read_to_string(&path).map_err(|source| Error::ReadToken { path: path.clone(), source })?;
    let readable_by_others = fs::metadata(&path).is_ok_and(|it| it.permissions().mode() & 0o004 != 0);
    if readable_by_others {
        tracing::warn!(path = %path.display(), "every user of this machine can read the token file");
    }
    Token::new(&text).map(Access::Token).map_err(|source| Error::Token { path, source })
}
