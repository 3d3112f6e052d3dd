//! A Docker Engine on a Unix socket that answers what a test tells it to. It has the calls that the tests need.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    response::Response,
};
use driftless_clock::Clock;
use driftless_docker::{Docker, Engine, EngineOptions, ObserveScope, RegistryLogins, Remembered};
use driftless_model::{AgentId, AppName, ContainerId, Instance, Timestamp};
use futures_util::{StreamExt, stream};
use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::broadcast,
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

/// 2026-01-01T12:00:00Z
pub(crate) const NOON: Timestamp = Timestamp(1_767_268_800_000);
/// The application of all containers.
pub(crate) const APP: &str = "shop";
/// The agent of all containers.
pub(crate) const AGENT: &str = "ours";

/// An engine and what happens on it.
#[derive(Clone)]
pub(crate) struct FakeEngine {
    shared: Arc<Shared>,
    _server: Arc<AbortOnDropHandle<()>>,
    folder: Arc<tempfile::TempDir>,
    pub(crate) clock: Clock,
}

struct Shared {
    state: Mutex<Host>,
    /// The last one sends to the event streams that are not mute.
    senders: Mutex<Vec<broadcast::Sender<Bytes>>>,
    clock: Clock,
}

#[derive(Default)]
struct Host {
    /// The labels of each volume.
    volumes: BTreeMap<String, Value>,
    containers: BTreeMap<String, Value>,
    /// The log of each container, as one frame of its standard output.
    logs: BTreeMap<String, String>,
    /// Events with their time in nanoseconds.
    remembered: Vec<(u64, Bytes)>,
    /// Calls other than of the event stream, with their paths.
    calls: Vec<String>,
    /// Starts of containers of these names fail with this error.
    start_errors: BTreeMap<String, String>,
    streams: u32,
    /// When the engine started; `None` is long ago.
    started: Option<String>,
    /// Calls get no answer.
    is_hanging: bool,
    /// The time that the engine takes for what it says about itself.
    info_time: Duration,
    /// A proxy in front of the engine answers that the engine is away.
    is_away: bool,
    /// A filter in front of the engine refuses calls of these paths.
    refused: BTreeSet<String>,
    /// New connections are accepted and get no answer.
    is_deaf: bool,
    /// The time that the creation of a container takes, also if its caller gives up.
    container_creation: Duration,
    /// The networks that were created.
    networks: BTreeMap<String, Value>,
    creations: NetworkCreations,
    /// Commands in containers, by id, and whether they run. `None`: the engine has no such calls.
    commands: Option<BTreeMap<String, bool>>,
}

#[derive(Default)]
struct NetworkCreations {
    running: u32,
    /// The most that ran at the same time.
    most: u32,
    /// Networks are created and their callers get no answer.
    lose_answers: bool,
}

/// The time that the creation of a network takes.
const NETWORK_CREATION: Duration = Duration::from_secs(1);

impl FakeEngine {
    pub(crate) fn new() -> Self {
        let clock = Clock::starting_at(NOON);
        let folder = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared { state: Mutex::default(), senders: Mutex::default(), clock });
        shared.mute();
        let listener = UnixListener::bind(socket(folder.path())).unwrap();
        let listener = Door { listener, shared: Arc::clone(&shared), held_back: Vec::new() };
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let server = Arc::new(AbortOnDropHandle::new(server));
        Self { shared, _server: server, folder: Arc::new(folder), clock }
    }

    /// From now on new connections are accepted and held back, or not any more. Open ones go on.
    pub(crate) fn hold_back_connections(&self, is_deaf: bool) {
        self.host(|host| host.is_deaf = is_deaf);
    }

    /// A client of this engine.
    pub(crate) fn connect(&self) -> Engine {
        self.connect_remembering(None)
    }

    /// A client of this engine that remembers containers from before.
    pub(crate) fn connect_remembering(&self, remembered: Option<Remembered>) -> Engine {
        let folder = self.folder.path();
        let options = EngineOptions {
            remembered,
            host: format!("unix://{}", socket(folder).display()).as_str().into(),
            agent: AgentId::from(AGENT),
            content_dir: folder.join("content"),
            secret_dir: folder.join("secret"),
            app_dir: self.app_dir(),
            registries: RegistryLogins::default(),
            clock: self.clock,
        };
        Engine::connect(options).unwrap()
    }

    /// Adds a running container of the agent.
    pub(crate) fn run(&self, name: &str, restart: &str) -> ContainerId {
        let id = format!("{:0>64}", name.len());
        let container = json!({
            "Id": id,
            "Name": format!("/{name}"),
            "Created": self.time(),
            "Image": "sha256:aa",
            "RestartCount": 0,
            "State": {"Status": "running", "Running": true, "StartedAt": self.time(), "ExitCode": 0, "Error": ""},
            "Config": {"Image": "web:1", "Tty": false, "Labels": {
                "driftless.application": APP,
                "driftless.agent": AGENT,
                "driftless.workload": name,
                "driftless.slot": "1",
                "driftless.spec": "spec",
            }},
            "HostConfig": {"RestartPolicy": {"Name": restart, "MaximumRetryCount": 0}, "NetworkMode": "none"},
            "NetworkSettings": {"Networks": {}},
            "Mounts": [],
        });
        self.host(|host| host.containers.insert(id.clone(), container));
        self.happen(&id, "start");
        ContainerId(id)
    }

    /// The folder with the folders of applications.
    pub(crate) fn app_dir(&self) -> PathBuf {
        self.folder.path().join("app")
    }

    /// A container has a bind mount.
    pub(crate) fn mount(&self, id: &ContainerId, source: &Path, target: &str) {
        let mount = json!({"Type": "bind", "Source": source, "Target": target});
        self.host(|host| {
            let container = host.containers.get_mut(id.as_str()).unwrap();
            container["HostConfig"]["Mounts"] = json!([mount]);
        });
    }

    /// A container has the volumes of another one.
    pub(crate) fn share_volumes(&self, id: &ContainerId) {
        self.host(|host| {
            let container = host.containers.get_mut(id.as_str()).unwrap();
            container["HostConfig"]["VolumesFrom"] = json!(["other"]);
        });
    }

    /// Sets the state of a container that does not run.
    pub(crate) fn end(&self, id: &ContainerId, status: &str, code: i64) {
        let time = self.time();
        self.host(|host| {
            let state = &mut host.containers.get_mut(id.as_str()).unwrap()["State"];
            state["Status"] = json!(status);
            state["Running"] = json!(status == "restarting");
            state["Restarting"] = json!(status == "restarting");
            state["ExitCode"] = json!(code);
            state["FinishedAt"] = json!(time);
        });
    }

    /// An event of a container, which is remembered, and sent if the stream is not mute.
    pub(crate) fn happen(&self, id: &str, action: &str) {
        self.shared.happen("container", id, action);
    }

    /// An event of a container that no agent has created.
    pub(crate) fn happen_elsewhere(&self, id: &str, action: &str) {
        let actor = json!({"ID": id, "Attributes": {"execID": "e", "name": id}});
        let event = json!({"Type": "container", "Action": action, "Actor": actor});
        self.shared.send(Bytes::from(format!("{event}\n")));
    }

    /// An event of a container that shows whether the engine accepts a definition.
    pub(crate) fn happen_on_trial(&self, id: &str, action: &str) {
        let actor = json!({"ID": id, "Attributes": {"driftless.trial": AGENT, "name": id}});
        let event = json!({"Type": "container", "Action": action, "Actor": actor});
        self.shared.send(Bytes::from(format!("{event}\n")));
    }

    /// A volume with one label, which no container mounts.
    pub(crate) fn have_volume(&self, name: &str, label: &str, value: &str) {
        self.host(|host| _ = host.volumes.insert(name.to_owned(), json!({ label: value })));
    }

    /// An event of a volume that belongs to no application.
    pub(crate) fn happen_to_volume(&self, name: &str, action: &str) {
        let event = json!({"Type": "volume", "Action": action, "Actor": {"ID": name, "Attributes": {}}});
        self.shared.send(Bytes::from(format!("{event}\n")));
    }

    /// From now on, the creation of a container takes this time, also if its caller gives up.
    pub(crate) fn delay_containers(&self, time: Duration) {
        self.host(|host| host.container_creation = time);
    }

    /// The names of all containers.
    pub(crate) fn container_names(&self) -> Vec<String> {
        self.host(|host| host.containers.values().map(|it| it["Name"].as_str().unwrap().to_owned()).collect())
    }

    /// The engine reads its configuration again.
    pub(crate) fn reload(&self) {
        let event = json!({"Type": "daemon", "Action": "reload", "Actor": {"ID": "engine"}});
        self.shared.send(Bytes::from(format!("{event}\n")));
    }

    /// Removes a container, without an event.
    pub(crate) fn remove(&self, id: &ContainerId) {
        self.host(|host| host.containers.remove(id.as_str()));
    }

    /// Forgets all events, as an engine that starts again.
    pub(crate) fn forget_events(&self) {
        self.host(|host| host.remembered.clear());
    }

    /// The engine ends and starts again: its event streams end, it forgets all events and takes new connections.
    pub(crate) fn restart(&self) {
        let now = self.time();
        self.host(|host| {
            host.remembered.clear();
            host.started = Some(now);
            host.is_deaf = false;
        });
        self.end_streams();
    }

    /// The open event streams end, as behind a proxy that ends silent connections.
    pub(crate) fn end_streams(&self) {
        self.shared.senders.lock().unwrap().clear();
        self.mute();
    }

    /// From now on, a filter in front of the engine refuses calls of this path.
    pub(crate) fn refuse(&self, path: &str) {
        self.host(|host| host.refused.insert(path.to_owned()));
    }

    /// From now on, present event streams are silent. New ones are not.
    pub(crate) fn mute(&self) {
        self.shared.mute();
    }

    /// From now on, calls get no answer, and present event streams are silent.
    pub(crate) fn hang(&self) {
        self.host(|host| host.is_hanging = true);
        self.mute();
    }

    /// From now on, the engine takes this time for what it says about itself.
    pub(crate) fn delay_info(&self, time: Duration) {
        self.host(|host| host.info_time = time);
    }

    /// From now on, a proxy in front of the engine answers that it does not reach the engine.
    pub(crate) fn leave(&self) {
        self.host(|host| host.is_away = true);
    }

    pub(crate) fn print(&self, id: &ContainerId, log: &str) {
        self.host(|host| host.logs.insert(id.to_string(), log.to_owned()));
    }

    /// Starts of this container fail while it has this name.
    pub(crate) fn fail_start(&self, name: &str, error: &str) {
        self.host(|host| host.start_errors.insert(name.to_owned(), error.to_owned()));
    }

    /// From now on, networks are created and their callers get no answer.
    pub(crate) fn lose_networks(&self) {
        self.host(|host| host.creations.lose_answers = true);
    }

    /// From now on, commands in containers can be started, and hang.
    pub(crate) fn hang_commands(&self) {
        self.host(|host| host.commands = Some(BTreeMap::new()));
    }

    /// The commands that hang in containers end.
    pub(crate) fn end_commands(&self) {
        self.host(|host| host.commands.iter_mut().flatten().for_each(|(_, runs)| *runs = false));
    }

    /// The most networks that were being created at the same time.
    pub(crate) fn most_network_creations(&self) -> u32 {
        self.host(|host| host.creations.most)
    }

    /// The number of event streams so far.
    pub(crate) fn streams(&self) -> u32 {
        self.host(|host| host.streams)
    }

    /// The calls so far whose paths contain this text.
    pub(crate) fn calls(&self, text: &str) -> Vec<String> {
        self.host(|host| host.calls.iter().filter(|call| call.contains(text)).cloned().collect())
    }

    /// The name of a container.
    pub(crate) fn name(&self, id: &ContainerId) -> String {
        self.host(|host| host.containers[id.as_str()]["Name"].as_str().unwrap().to_owned())
    }

    fn host<T>(&self, change: impl FnOnce(&mut Host) -> T) -> T {
        change(&mut self.shared.state.lock().unwrap())
    }

    fn time(&self) -> String {
        self.clock.now().to_string()
    }
}

impl Shared {
    /// An event of an object, which is remembered and sent.
    fn happen(&self, kind: &str, id: &str, action: &str) {
        let nanos = self.clock.now().0 * 1_000_000;
        let event = json!({
            "Type": kind,
            "Action": action,
            "Actor": {"ID": id, "Attributes": {"driftless.application": APP, "name": id}},
            "timeNano": nanos,
        });
        let line = Bytes::from(format!("{event}\n"));
        self.state.lock().unwrap().remembered.push((nanos, line.clone()));
        self.send(line);
    }

    fn send(&self, line: Bytes) {
        // There may be no stream.
        let _ = self.senders.lock().unwrap().last().unwrap().send(line);
    }

    fn mute(&self) {
        self.senders.lock().unwrap().push(broadcast::channel(64).0);
    }
}

/// The observed state of one container.
pub(crate) async fn instance(engine: &Engine, id: &ContainerId) -> Instance {
    let observed = engine.observe(&AppName::from(APP), &ObserveScope::default()).await.unwrap();
    observed.instances[id].clone()
}

/// The socket of an engine. It holds connections back while the engine is deaf.
struct Door {
    listener: UnixListener,
    shared: Arc<Shared>,
    held_back: Vec<UnixStream>,
}

impl axum::serve::Listener for Door {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            if !self.shared.state.lock().unwrap().is_deaf {
                return (stream, address);
            }
            self.held_back.push(stream);
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("docker.sock")
}

fn without_version(path: &str) -> String {
    match path.strip_prefix("/v1.").and_then(|rest| rest.find('/')) {
        Some(at) => path[4 + at..].to_owned(),
        None => path.to_owned(),
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = without_version(request.uri().path());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (is_hanging, is_away, is_refused, has_commands) = {
        let host = shared.state.lock().unwrap();
        (host.is_hanging, host.is_away, host.refused.contains(&path), host.commands.is_some())
    };
    if is_hanging {
        std::future::pending::<()>().await;
    }
    if is_away {
        return text(StatusCode::SERVICE_UNAVAILABLE, "<html><body>503 Service Unavailable</body></html>");
    }
    if is_refused {
        return error(StatusCode::FORBIDDEN, "the filter does not allow this call");
    }
    if path == "/info" {
        let time = shared.state.lock().unwrap().info_time;
        sleep(time).await;
    }
    if path == "/events" {
        return events(&shared, &query);
    }
    if has_commands && path.contains("/exec") {
        return run_command(&shared, &path).await;
    }
    if path == "/containers/create" {
        return create_container(&shared, &query, request).await;
    }
    if path == "/networks/create" {
        return create_network(&shared, request).await;
    }
    if path.starts_with("/volumes") {
        return volumes(&shared, &path, request).await;
    }
    let mut host = shared.state.lock().unwrap();
    host.calls.push(format!("{} {path}?{query}", request.method()));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (request.method(), parts.as_slice()) {
        (_, ["_ping"]) => text(StatusCode::OK, "OK"),
        (_, ["version"]) => {
            ok(&json!({"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}))
        }
        (_, ["info"]) => ok(&json!({"LoggingDriver": "json-file", "Name": "host"})),
        (_, ["networks"]) => {
            let filters = query.split('&').find_map(|part| part.strip_prefix("filters="));
            let is_wanted = |name: &str| filters.is_none_or(|filters| filters.contains(name));
            let started = host.started.as_deref().unwrap_or("2026-01-01T00:00:00Z");
            let bridge = json!({"Name": "bridge", "Id": "b", "Created": started});
            let created = host.networks.iter().filter(|(name, _)| is_wanted(name));
            ok(&std::iter::once(bridge).chain(created.map(|(_, network)| network.clone())).collect())
        }
        (_, ["containers", "json"]) => {
            // `{"id": […]}`, percent-encoded.
            let filters = query.split('&').find_map(|part| part.strip_prefix("filters="));
            let is_wanted = |id: &str| filters.is_none_or(|filters| filters.contains(id));
            let wanted = host.containers.iter().filter(|(id, _)| is_wanted(id)).map(|(_, it)| it);
            let rows = wanted.map(|container| {
                json!({
                    "Id": container["Id"],
                    "Names": [container["Name"]],
                    "ImageID": container["Image"],
                    "Labels": container["Config"]["Labels"],
                    "State": container["State"]["Status"],
                    "NetworkSettings": container["NetworkSettings"],
                    "Ports": [],
                })
            });
            ok(&rows.collect())
        }
        (_, ["containers", id, "json"]) => match host.containers.get(*id) {
            Some(container) => ok(container),
            None => error(StatusCode::NOT_FOUND, "no such container"),
        },
        (_, ["containers", id, "logs"]) => log_of(&host, id, &query),
        (&Method::DELETE, ["containers", id]) => {
            host.containers.remove(*id);
            text(StatusCode::NO_CONTENT, "")
        }
        (&Method::POST, ["containers", id, "rename"]) => {
            let name = query.split('&').find_map(|it| it.strip_prefix("name=")).unwrap();
            let container = host.containers.get_mut(*id).unwrap();
            container["Name"] = json!(format!("/{name}"));
            text(StatusCode::NO_CONTENT, "")
        }
        (&Method::POST, ["containers", id, "start"]) => {
            let name = host.containers[*id]["Name"].as_str().unwrap().trim_start_matches('/').to_owned();
            if let Some(message) = host.start_errors.get(&name) {
                return error(StatusCode::FORBIDDEN, message);
            }
            let state = &mut host.containers.get_mut(*id).unwrap()["State"];
            state["Status"] = json!("running");
            state["Running"] = json!(true);
            text(StatusCode::NO_CONTENT, "")
        }
        _ => error(StatusCode::NOT_FOUND, &format!("not made for this test: {path}")),
    }
}

async fn volumes(shared: &Shared, path: &str, request: Request) -> Response {
    let volume = |name: &str, labels: &Value| json!({"Name": name, "Driver": "local", "Mountpoint": "", "Labels": labels, "Scope": "local", "Options": {}});
    let host = || shared.state.lock().unwrap();
    let method = request.method().clone();
    host().calls.push(format!("{method} {path}?{}", request.uri().query().unwrap_or_default()));
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    match (method, path.trim_start_matches("/volumes").trim_start_matches('/')) {
        (Method::POST, "create") => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let name = body["Name"].as_str().unwrap();
            let labels = body.get("Labels").filter(|labels| labels.is_object()).cloned();
            let labels = labels.unwrap_or_else(|| json!({}));
            // An existing volume is answered as it is.
            let labels = host().volumes.entry(name.to_owned()).or_insert(labels).clone();
            shared.happen("volume", name, "create");
            ok(&volume(name, &labels))
        }
        (Method::GET, "") => {
            let found: Vec<Value> =
                host().volumes.iter().map(|(name, labels)| volume(name, labels)).collect();
            ok(&json!({"Volumes": found, "Warnings": []}))
        }
        (Method::GET, name) if host().volumes.contains_key(name) => ok(&volume(name, &host().volumes[name])),
        (Method::DELETE, name) if host().volumes.remove(name).is_some() => {
            shared.happen("volume", name, "destroy");
            text(StatusCode::NO_CONTENT, "")
        }
        _ => error(StatusCode::NOT_FOUND, "no such volume"),
    }
}

/// Commands in containers. A start gets no answer.
async fn run_command(shared: &Shared, path: &str) -> Response {
    let commands = |change: &dyn Fn(&mut BTreeMap<String, bool>) -> Value| {
        let mut host = shared.state.lock().unwrap();
        host.calls.push(path.to_owned());
        change(host.commands.as_mut().unwrap())
    };
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["containers", _, "exec"] => ok(&commands(&|all| {
            let id = format!("command-{}", all.len());
            all.insert(id.clone(), false);
            json!({"Id": id})
        })),
        ["exec", id, "start"] => {
            commands(&|all| json!(all.insert((*id).to_owned(), true)));
            std::future::pending().await
        }
        ["exec", id, "json"] => ok(&commands(&|all| json!({"ID": id, "Running": all[*id]}))),
        _ => error(StatusCode::NOT_FOUND, "no such call"),
    }
}

/// The log of a container, as one frame.
fn log_of(host: &Host, id: &str, query: &str) -> Response {
    let log = host.logs.get(id).cloned().unwrap_or_default();
    let log = if query.contains("timestamps=true") {
        let end = host.containers[id]["State"]["FinishedAt"].as_str().unwrap_or_default();
        log.lines().map(|line| format!("{end} {line}")).collect::<Vec<_>>().join("\n")
    } else {
        log
    };
    let length = u32::try_from(log.len()).unwrap().to_be_bytes();
    Response::new(Body::from([&[1, 0, 0, 0], &length[..], log.as_bytes()].concat()))
}

/// Creates a container. Its name is also its id.
async fn create_container(shared: &Arc<Shared>, query: &str, request: Request) -> Response {
    let body: Value = serde_json::from_slice(&to_bytes(request.into_body(), 1 << 20).await.unwrap()).unwrap();
    let name = query.split('&').find_map(|part| part.strip_prefix("name=")).unwrap().to_owned();
    let time = {
        let mut host = shared.state.lock().unwrap();
        host.calls.push(format!("POST /containers/create?{query}"));
        host.container_creation
    };
    let (shared, id) = (Arc::clone(shared), name.clone());
    let creation = tokio::spawn(async move {
        sleep(time).await;
        let container = json!({
            "Id": id,
            "Name": format!("/{id}"),
            "Image": "sha256:1",
            "Config": {"Labels": body["Labels"]},
            "State": {"Status": "created", "Running": false},
            "NetworkSettings": {"Networks": {}},
        });
        shared.state.lock().unwrap().containers.insert(id, container);
    });
    creation.await.unwrap();
    ok(&json!({"Id": name, "Warnings": []}))
}

async fn create_network(shared: &Shared, request: Request) -> Response {
    let body: Value = serde_json::from_slice(&to_bytes(request.into_body(), 1 << 20).await.unwrap()).unwrap();
    let name = body["Name"].as_str().unwrap().to_owned();
    {
        let mut host = shared.state.lock().unwrap();
        host.calls.push(format!("POST /networks/create {name}"));
        host.creations.running += 1;
        host.creations.most = host.creations.most.max(host.creations.running);
    }
    sleep(NETWORK_CREATION).await;
    let loses_answer = {
        let mut host = shared.state.lock().unwrap();
        host.creations.running -= 1;
        let network = json!({"Name": name, "Id": format!("id-of-{name}"), "Labels": body["Labels"]});
        host.networks.insert(name.clone(), network);
        host.creations.lose_answers
    };
    if loses_answer {
        std::future::pending::<()>().await;
    }
    ok(&json!({"Id": format!("id-of-{name}"), "Warning": ""}))
}

fn events(shared: &Shared, query: &str) -> Response {
    let bound = |name: &str| {
        let value = query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='))?;
        let (seconds, part) = value.split_once('.').unwrap_or((value, "0"));
        let nanos: u64 = format!("{part:0<9}").parse().unwrap();
        Some(seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanos)
    };
    let mut host = shared.state.lock().unwrap();
    if let (Some(since), Some(until)) = (bound("since"), bound("until")) {
        let found = host.remembered.iter().filter(|(at, _)| (since..=until).contains(at));
        let lines: Vec<Result<Bytes, std::io::Error>> = found.map(|(_, line)| Ok(line.clone())).collect();
        return Response::new(Body::from_stream(stream::iter(lines)));
    }
    host.streams += 1;
    let lines = tokio_stream(shared.senders.lock().unwrap().last().unwrap().subscribe());
    let mut response = Response::new(Body::from_stream(lines));
    // As RFC 9110 writes it.
    let Timestamp(now) = shared.clock.now();
    assert_eq!((now - NOON.0) / 3_600_000, 0, "a test takes less than an hour");
    let (minutes, seconds) = ((now - NOON.0) / 60_000, (now - NOON.0) / 1000 % 60);
    let date = format!("Thu, 01 Jan 2026 12:{minutes:02}:{seconds:02} GMT");
    response.headers_mut().insert(header::DATE, date.parse().unwrap());
    response
}

fn tokio_stream(
    receiver: broadcast::Receiver<Bytes>,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.ok().map(|line| (Ok(line), receiver))
    })
    .boxed()
}

fn ok(value: &Value) -> Response {
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .unwrap()
}

fn text(status: StatusCode, text: &'static str) -> Response {
    Response::builder().status(status).body(Body::from(text)).unwrap()
}

fn error(status: StatusCode, message: &str) -> Response {
    let body = json!({ "message": message }).to_string();
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .unwrap()
}
