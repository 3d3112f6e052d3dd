//! `driftless run`: reads settings from arguments or a file, opens the listener, runs the agent, reloads the
//! configuration, and shuts down. The agent itself is [`driftless_agent`].

mod address_file;
mod args;
mod error;
mod listen;
mod reload;
mod service_manager;
mod settings;
mod socket;
mod socket_error;
mod tls;
mod watched_files;

use std::{net::SocketAddr, path::Path};

use tokio::{
    net::UnixListener,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    progress,
    screen::Paint,
};
use driftless_agent::{Agent, Running};
use driftless_config::{Reference, Settings, local_url};
use driftless_web as web;
use driftless_web::{Access, Listener, WebhookReceiver};

use error::Error;
use listen::TcpListeners;
use reload::{Current, RETRY, Trigger, is_refused, try_reload};
use service_manager::ServiceManager;

pub(super) use address_file::read as read_address;
pub use args::LogFormat;
pub(super) use args::{DEFAULT_CONFIG, RunArgs};
pub(super) use reload::CONFIGURATION;
pub(super) use settings::{
    check_access, docker_host_outside, hostname, provider, read as read_config, settings as run_settings,
    state_dir, state_key_file, unreadable_files, unused_docker_host,
};
use settings::{default_config, settings};
use socket::OpenSocket;
pub(super) use socket::check_socket;
use tls::Certificates;
pub(super) use tls::check_certificates;
use watched_files::WatchedFiles;

/// The hostname of a container is its id, which another container will not have.
fn warn_of_container_name(settings: &Settings) {
    let name = settings.host.name.as_str();
    let is_id = name.len() == 12 && name.chars().all(|letter| letter.is_ascii_hexdigit());
    if is_id && Path::new("/.dockerenv").exists() {
        tracing::warn!(
            name,
            "the name of this host is the id of the agent's container; set --host-name or DRIFTLESS_HOST_NAME to a name that stays"
        );
    }
}

pub(super) async fn run(args: &RunArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    settings::warn_of_unknown_variables(args);
    let mut config_file = WatchedFiles::new(default_config(args));
    let settings = settings(args, context.environment)?;
    settings::warn_of_unused_docker_host(args, context.environment);
    let mut token_file = WatchedFiles::new(settings.token_file.clone());
    let own_keys = settings.repositories.iter().filter_map(|repository| repository.sops_key_files.as_ref());
    let key_files = own_keys.chain([&settings.sops_key_files]).flatten();
    let mut decryption_keys = WatchedFiles::new(key_files.cloned());
    let access = settings::access(&settings, context.environment)?;
    let mut certificates = Certificates::load(&settings)?;
    let mut signals = Signals::new()?;
    // The listener comes first, so that an address in use is reported before anything changes.
    let TcpListeners { api, hooks, metrics } = listen::open(&settings).await?;
    let address = api.local_addr().unwrap_or(settings.listen);
    let socket = socket::open(&settings.socket, context.environment)?;
    warn_of_container_name(&settings);
    introduce(&settings, address, socket.as_ref().map(|(_, socket)| socket.path.as_path()), context);
    // With the port that the kernel has chosen, if the settings leave that to it.
    let bound = Settings { listen: address, ..settings.clone() };
    let starting = Agent::start(bound.clone(), context.environment.clone(), context.clock);
    let running = tokio::select! {
        running = starting => running.map_err(Error::Start)?,
        () = signals.stop() => return Ok(ExitStatus::Success),
    };
    address_file::write(&bound.state_dir, &bound.local_url());
    let receiver = WebhookReceiver::new(
        running.handle.clone(),
        running.store.clone(),
        &bound,
        context.environment.clone(),
        context.clock,
    );
    // Only an address that the kernel does not tell is unknown; then the strict rule for host names applies.
    let metrics_address = metrics
        .as_ref()
        .map(|metrics| metrics.local_addr().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0))));
    let listeners = Listeners {
        api: certificates.api.listener(api),
        socket,
        hooks: hooks.map(|hooks| certificates.webhooks.listener(hooks)),
        metrics: metrics.map(|metrics| certificates.metrics.listener(metrics)).zip(metrics_address),
    };
    let mut servers = Servers::start(&running, listeners, receiver, access.clone());
    let manager = ServiceManager::from_environment(context.environment);
    manager.ready(&reload::following(&settings));
    let watchdog = manager.watchdog(running.handle.clone());
    tokio::pin!(watchdog);
    let current = Current { settings: &settings, access: &access };
    let ended = loop {
        let trigger = tokio::select! {
            event = signals.next() => match event {
                Signalled::Stop => break Ok(Next::End),
                Signalled::Reload => Trigger::Signal,
            },
            () = progress::follow(running.handle.clone(), context.screen) => break Err(Error::Ended),
            () = servers.ended() => break Err(Error::Ended),
            () = &mut watchdog => continue,
            () = config_file.changed() => Trigger::File,
            () = token_file.changed() => Trigger::Token,
            () = decryption_keys.changed() => Trigger::DecryptionKeys,
            () = running.handle.restart_requested() => Trigger::Request,
            () = sleep(RETRY), if is_refused(&running) => Trigger::Retry,
            certificate = certificates.changed() => {
                certificate.reload(&running);
                continue;
            }
        };
        // A file that is being written is read when it is complete.
        if trigger == Trigger::Retry && !(config_file.are_settled() && token_file.are_settled()) {
            continue;
        }
        if try_reload(trigger, args, &current, &running, &manager, context).await {
            break Ok(Next::Again);
        }
    };
    let ended = stop_with_signals(ended, stop(running, servers), &mut signals, &manager).await;
    match ended? {
        Next::End => Ok(ExitStatus::Success),
        Next::Again => Err(Error::Again(reload::start_again()).into()),
    }
}

/// The next action after the agent has ended.
enum Next {
    End,
    /// The program starts again in the same process, with the new configuration.
    Again,
}

/// The listeners of the agent.
struct Listeners {
    api: Listener,
    socket: Option<(UnixListener, OpenSocket)>,
    hooks: Option<Listener>,
    /// The listener of metrics alone with its address.
    metrics: Option<(Listener, SocketAddr)>,
}

/// The HTTP servers of the agent.
struct Servers {
    tasks: JoinSet<()>,
    /// Removed at the end.
    _socket: Option<OpenSocket>,
    stopping: CancellationToken,
}

impl Servers {
    /// Without a listener of their own, webhooks are served by the API's. Metrics are served there in any case.
    fn start(running: &Running, listeners: Listeners, receiver: WebhookReceiver, access: Access) -> Self {
        let Listeners { api, socket, hooks, metrics } = listeners;
        let stopping = CancellationToken::new();
        let hook_routes = driftless_web::webhook_routes(&receiver);
        let router =
            web::router_with_webhooks(running.handle.clone(), running.store.clone(), access, receiver);
        let mut tasks = JoinSet::new();
        let mut serve = |listener: Listener, router| {
            tasks.spawn(web::serve(listener, router, stopping.clone().cancelled_owned()));
        };
        let (socket, open_socket) = socket.unzip();
        if let Some(socket) = socket {
            serve(Listener::Socket(socket), router.clone());
        }
        match hooks {
            Some(hooks) => {
                serve(api, router);
                serve(hooks, hook_routes);
            }
            None => serve(api, router.merge(hook_routes)),
        }
        if let Some((metrics, address)) = metrics {
            let (handle, store) = (running.handle.clone(), running.store.clone());
            serve(metrics, web::metrics_router(handle, store, address));
        }
        Self { tasks, _socket: open_socket, stopping }
    }

    /// Waits until one of them ends, which only a defect makes it do before [`stop`].
    async fn ended(&mut self) {
        if let Some(Err(error)) = self.tasks.join_next().await {
            tracing::error!(%error, "the API server failed");
        }
    }
}

/// Waits until everything has stopped. The first signal to stop during a reload makes it an end, and a second one ends the process at
/// once.
async fn stop_with_signals(
    mut ended: Result<Next, Error>,
    stopping: impl Future<Output = ()>,
    signals: &mut Signals,
    manager: &ServiceManager,
) -> Result<Next, Error> {
    match ended {
        Ok(Next::Again) => manager.reloading(),
        Ok(Next::End) | Err(_) => manager.stopping(),
    }
    let mut has_signal = matches!(ended, Ok(Next::End));
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            // A signal that came with the end of a reload would be lost in the new start.
            biased;
            () = signals.stop() => {}
            () = &mut stopping => return ended,
        }
        if has_signal {
            std::process::exit(130);
        }
        has_signal = true;
        if matches!(ended, Ok(Next::Again)) {
            manager.stopping();
            ended = Ok(Next::End);
        }
    }
}

/// Stops everything in order.
async fn stop(running: Running, mut servers: Servers) {
    servers.stopping.cancel();
    running.stop().await;
    // The server's own time limit ends this, also with clients that stay connected.
    while !servers.tasks.is_empty() {
        servers.ended().await;
    }
}

/// The signals that the agent reacts to.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// The request that a signal stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signalled {
    Stop,
    Reload,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        let hangup = signal(SignalKind::hangup()).map_err(Error::Signals)?;
        reload::accept_hangups();
        Ok(Self { interrupt, terminate, hangup })
    }

    /// Waits for a signal to stop.
    async fn stop(&mut self) {
        while self.next().await == Signalled::Reload {}
    }

    /// Waits for a signal.
    async fn next(&mut self) -> Signalled {
        let Self { interrupt, terminate, hangup } = self;
        tokio::select! {
            _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "stopping"),
            _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "stopping"),
            _ = hangup.recv() => return Signalled::Reload,
        }
        Signalled::Stop
    }
}

/// Prints or logs which repositories are followed, the address, and the directories.
fn introduce(settings: &Settings, address: SocketAddr, socket: Option<&Path>, context: &Context<'_>) {
    let screen = context.screen;
    if !screen.is_terminal() {
        for it in &settings.repositories {
            let reference = reference_text(&it.reference);
            tracing::info!(repository = it.name, url = %it.url, reference, path = it.path, "following");
        }
        if let Some(path) = socket {
            tracing::info!(path = %path.display(), "listening on a socket for programs of this machine");
        }
        tracing::info!(%address, state_dir = %settings.state_dir.display(), "starting");
        return;
    }
    let strong = |text: String| screen.colours().paint(Paint::Strong, &text);
    for it in &settings.repositories {
        let folder = if it.path.is_empty() { String::new() } else { format!(", folder {}", it.path) };
        let (url, reference) = (strong(it.url.to_string()), reference_text(&it.reference));
        screen.say(format!("follows    {url} ({reference}{folder})"));
    }
    screen
        .say(format!("listening on {}", strong(format!("{}/", local_url(address, settings.tls.is_some())))));
    if let Some(path) = socket {
        screen.say(format!("and on     {}", strong(format!("unix://{}", path.display()))));
    }
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

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn defect_of_a_server_is_noticed() {
        let mut servers =
            Servers { tasks: JoinSet::new(), _socket: None, stopping: CancellationToken::new() };
        servers.tasks.spawn(poll_fn(|_| panic!("a defect")));
        servers.tasks.spawn(servers.stopping.clone().cancelled_owned());
        timeout(Duration::from_mins(1), servers.ended()).await.unwrap();
    }
}
