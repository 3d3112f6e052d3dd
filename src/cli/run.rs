//! `driftless run`: reads settings from arguments or a file, opens the listener, runs the agent, and shuts down. The
//! agent itself is [`driftless_agent`].

use std::{fs, io, net::SocketAddr, os::unix::fs::PermissionsExt, path::PathBuf};

use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Environment, Error as CliError, Verdict,
    args::{RepositoryArgs, RunArgs},
    progress,
    screen::Paint,
};
use driftless_agent as controller;
use driftless_agent::{Agent, Running};
use driftless_config::{Auth, Reference, Secret, Settings};
use driftless_web as web;
use driftless_web::{Access, Receiver, Token, TokenError};

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
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
    #[error("the agent ended unexpectedly")]
    Ended,
}

impl Error {
    /// Help line: what to do next.
    pub(super) fn help(&self) -> Option<String> {
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
            Self::Listen { .. } | Self::ReadToken { .. } | Self::Signals(_) | Self::Start(_) => None,
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
            let source = |source| CliError::Open { path: path.clone(), source };
            let text = fs::read_to_string(path).map_err(source)?;
            Settings::parse(&path.display().to_string(), &text).map_err(CliError::Findings)?
        }
        (None, url) => from_url(url.as_deref().unwrap_or_default(), repository)?,
    };
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|source| CliError::Open { path: path.clone(), source })
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
