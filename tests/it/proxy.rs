//! The proxy of a Service over real sockets: a name server that says what the test wants, and endpoints on addresses
//! of the loopback device.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use driftless_model::{Forward, Forwards, Protocol};
use driftless_proxy as proxy;
use driftless_proxy::{Gate, Handover, Names};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::ports;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy of one port and what it stands on; all of it ends with this.
pub(crate) struct Scene {
    /// Of the proxy.
    port: u16,
    pub(crate) endpoints: Vec<SocketAddr>,
    answers: Arc<Mutex<Vec<Ipv4Addr>>>,
    questions: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Scene {
    /// `n` endpoints at which nobody listens yet.
    async fn new(count: u8, protocol: Protocol, affinity: Option<Duration>) -> Self {
        Self::behind(Gate::open(), count, protocol, affinity).await
    }

    async fn behind(gate: Gate, count: u8, protocol: Protocol, affinity: Option<Duration>) -> Self {
        let target = free_port(protocol).await;
        let port = free_port(protocol).await;
        let addresses: Vec<Ipv4Addr> = (1..=count).map(|it| Ipv4Addr::new(127, 0, 7, it)).collect();
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let names = Names::new(server.local_addr().unwrap(), ["_endpoints.web"]);
        let answers = Arc::new(Mutex::new(addresses.clone()));
        let questions = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(answer(server, Arc::clone(&answers), Arc::clone(&questions)));
        let targets = vec![("_endpoints.web".to_owned(), target)];
        let ports = vec![Forward { port, protocol, targets }];
        let forwards = Forwards { ports, affinity, ..Forwards::default() };
        let gate = Arc::new(gate);
        tasks
            .spawn(async move { panic!("the proxy ended: {:?}", proxy::serve(forwards, names, gate).await) });
        let endpoints = addresses.into_iter().map(|it| (it, target).into()).collect();
        Self { port, endpoints, answers, questions, tasks }
    }

    /// An endpoint that sends its address, and then repeats all that it receives until the connection ends.
    async fn echo(&mut self, index: usize) {
        let address = self.endpoints[index];
        let listener = TcpListener::bind(address).await.unwrap();
        self.tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                open.spawn(async move {
                    let _ = stream.write_all(&address.ip().to_canonical().to_string().into_bytes()).await;
                    let _ = stream.write_all(b"\n").await;
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = to.shutdown().await;
                });
            }
        });
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        let began = Instant::now();
        loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await {
                Ok(stream) => return stream,
                Err(error) => assert!(began.elapsed() < PATIENCE, "the proxy does not listen: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Says something and hears all of the answer: which endpoint it was.
    async fn ask(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
        let (who, rest) = answer.split_once('\n').expect("a line");
        assert_eq!(rest, text, "what was said last comes back, though we have said that we are done");
        who.to_owned()
    }
}

/// The engine's name server: answers each question with these addresses, in another order each time.
async fn answer(server: UdpSocket, answers: Arc<Mutex<Vec<Ipv4Addr>>>, questions: Arc<AtomicUsize>) {
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = server.recv_from(&mut buffer).await.unwrap();
        questions.fetch_add(1, Ordering::Relaxed);
        // The question without the addition of eleven bytes at its end.
        let mut reply = buffer[..length - 11].to_vec();
        let addresses: Vec<Ipv4Addr> = {
            let mut answers = answers.lock().unwrap();
            answers.reverse();
            answers.clone()
        };
        reply[2] |= 0x80;
        reply[3] = if addresses.is_empty() { 3 } else { 0 };
        reply[7] = u8::try_from(addresses.len()).unwrap();
        reply[11] = 0;
        for address in addresses {
            reply.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 2, 88, 0, 4]);
            reply.extend(address.octets());
        }
        server.send_to(&reply, from).await.unwrap();
    }
}

async fn free_port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Udp => UdpSocket::bind("[::]:0").await.unwrap().local_addr().unwrap().port(),
        Protocol::Tcp | Protocol::Sctp => ports::free_port(),
    }
}

#[tokio::test]
async fn connections_are_balanced_and_skip_dead_endpoints() {
    let mut scene = Scene::new(3, Protocol::Tcp, None).await;
    for index in 0..2 {
        scene.echo(index).await;
    }
    // The third is known and nobody listens there.
    let mut heard = BTreeMap::new();
    for number in 0..30 {
        *heard.entry(scene.ask(&format!("hello {number}")).await).or_insert(0) += 1;
    }
    assert_eq!(heard.keys().collect::<Vec<_>>(), ["127.0.7.1", "127.0.7.2"]);
    assert!(heard.values().all(|it| *it >= 10), "{heard:?}");

    // One that comes is found, and one that is gone is not asked any more.
    scene.echo(2).await;
    *scene.answers.lock().unwrap() = vec![Ipv4Addr::new(127, 0, 7, 3)];
    let began = Instant::now();
    while scene.ask("a").await != "127.0.7.3" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = scene.questions.load(Ordering::Relaxed);
    let began = Instant::now();
    let mut open = Vec::new();
    for _ in 0..150 {
        open.push(scene.connect().await);
    }
    for (number, stream) in open.iter_mut().enumerate() {
        stream.write_all(&[u8::try_from(number).unwrap(); 1000]).await.unwrap();
    }
    for (number, stream) in open.iter_mut().enumerate() {
        let mut answer = [0; 1010];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
        assert!(answer[10..].iter().all(|it| usize::from(*it) == number), "each hears its own");
    }
    let asked = scene.questions.load(Ordering::Relaxed) - before;
    assert!(asked as u64 <= began.elapsed().as_secs() + 1, "asked {asked} times in {:?}", began.elapsed());

    // No endpoint is left: new clients are refused, and open connections are served on.
    scene.answers.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut late = scene.connect().await;
    let ended = timeout(PATIENCE, late.read(&mut [0; 10])).await.expect("an end");
    assert!(ended.is_err(), "broken off, not just closed: {ended:?}");
    open[7].write_all(b"still there").await.unwrap();
    let mut answer = [0; 11];
    timeout(PATIENCE, open[7].read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(&answer, b"still there");
}

#[tokio::test]
async fn half_closes_are_forwarded_to_the_other_side() {
    let scene = Scene::new(1, Protocol::Tcp, None).await;
    let listener = TcpListener::bind(scene.endpoints[0]).await.unwrap();

    // The endpoint says its last word first.
    let mut client = scene.connect().await;
    let (mut endpoint, _) = listener.accept().await.unwrap();
    endpoint.write_all(b"first").await.unwrap();
    endpoint.shutdown().await.unwrap();
    let mut heard = String::new();
    timeout(PATIENCE, client.read_to_string(&mut heard)).await.expect("an end").unwrap();
    assert_eq!(heard, "first");

    // It does not read, and so nothing is read for it: what waits on the way is bounded.
    let piece = vec![7; 64 * 1024];
    let mut sent = 0;
    while let Ok(written) = timeout(Duration::from_millis(500), client.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < 64 << 20, "somebody keeps all of it");
    }
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    timeout(PATIENCE, endpoint.read_to_end(&mut all)).await.expect("an end").unwrap();
    assert_eq!(all.len(), sent, "nothing is lost");

    // It breaks off.
    let mut client = scene.connect().await;
    let (endpoint, _) = listener.accept().await.unwrap();
    client.write_all(b"unread").await.unwrap();
    timeout(PATIENCE, endpoint.peek(&mut [0; 6])).await.expect("a word").unwrap();
    // Closed with something unread, it is a reset.
    drop(endpoint);
    let broken = timeout(PATIENCE, client.read(&mut [0; 10])).await.expect("an end");
    assert!(broken.is_err(), "{broken:?}");
}

#[tokio::test]
async fn client_keeps_its_endpoint_as_long_as_it_answers() {
    let mut scene = Scene::new(3, Protocol::Tcp, Some(Duration::from_secs(100))).await;
    for index in 0..3 {
        scene.echo(index).await;
    }
    let first = scene.ask("a").await;
    for _ in 0..5 {
        assert_eq!(scene.ask("a").await, first);
    }
    let others: Vec<Ipv4Addr> =
        scene.answers.lock().unwrap().iter().copied().filter(|it| it.to_string() != first).collect();
    *scene.answers.lock().unwrap() = others.clone();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = scene.ask("a").await;
    assert_ne!(second, first);
    assert_eq!(scene.ask("a").await, second);
}

/// Reports ready endpoints as the agent does, until the proxy listens.
pub(crate) async fn report(socket: &str, words: &[&str]) {
    let began = Instant::now();
    loop {
        let (socket, words): (String, Vec<String>) =
            (socket.to_owned(), words.iter().map(ToString::to_string).collect());
        let send = move || proxy::send_report(&socket, words.iter().map(String::as_str));
        match tokio::task::spawn_blocking(send).await.unwrap() {
            Ok(()) => return,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn only_ready_endpoints_get_traffic() {
    let socket = format!("driftless-test-{}-{}", std::process::id(), free_port(Protocol::Tcp).await);
    let mut scene = Scene::behind(Gate::by_report(&socket), 3, Protocol::Tcp, None).await;
    for index in 0..3 {
        scene.echo(index).await;
    }
    let heard = async |scene: &Scene| {
        let mut heard = BTreeSet::new();
        for _ in 0..9 {
            heard.insert(scene.ask("a").await);
        }
        heard.into_iter().collect::<Vec<_>>()
    };
    report(&socket, &["_endpoints.web=127.0.7.1,127.0.7.3"]).await;
    assert_eq!(heard(&scene).await, ["127.0.7.1", "127.0.7.3"]);
    // An address that the name does not resolve to may belong to another container by now.
    report(&socket, &["_endpoints.web=127.0.7.2,127.0.7.9"]).await;
    assert_eq!(heard(&scene).await, ["127.0.7.2"]);
    let mut open = scene.connect().await;
    open.read_exact(&mut [0; 10]).await.unwrap();
    report(&socket, &["_endpoints.web="]).await;
    let mut refused = scene.connect().await;
    let ended = timeout(PATIENCE, refused.read(&mut [0; 10])).await.expect("an end");
    assert!(ended.is_err(), "no endpoint is ready: {ended:?}");
    open.write_all(b"b").await.unwrap();
    timeout(PATIENCE, open.read_exact(&mut [0; 1])).await.expect("open connections stay").unwrap();
    let invalid = proxy::send_report(&socket, ["_endpoints.web=nowhere"]);
    assert!(matches!(invalid, Err(proxy::ReportError::Invalid(_))), "{invalid:?}");
}

#[tokio::test]
async fn udp_client_moves_from_a_pod_that_is_not_ready() {
    let socket = format!("driftless-test-{}-{}", std::process::id(), free_port(Protocol::Udp).await);
    let scene = Scene::behind(Gate::by_report(&socket), 2, Protocol::Udp, None).await;
    let mut tasks = JoinSet::new();
    for address in scene.endpoints.clone() {
        let endpoint = UdpSocket::bind(address).await.unwrap();
        tasks.spawn(async move {
            loop {
                let (_, from) = endpoint.recv_from(&mut [0; 64]).await.unwrap();
                endpoint.send_to(address.ip().to_string().as_bytes(), from).await.unwrap();
            }
        });
    }
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    client.connect((Ipv4Addr::LOCALHOST, scene.port)).await.unwrap();
    for ready in ["127.0.7.1", "127.0.7.2"] {
        report(&socket, &[&format!("_endpoints.web={ready}")]).await;
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "{ready} is not asked");
            let _ = client.send(b"a").await;
            let mut buffer = [0; 64];
            let answer = timeout(Duration::from_millis(200), client.recv(&mut buffer)).await;
            if matches!(answer, Ok(Ok(length)) if buffer[..length] == *ready.as_bytes()) {
                break;
            }
        }
    }
}

#[tokio::test]
async fn connections_that_a_client_makes_at_once_go_to_one_endpoint() {
    let mut scene = Scene::new(3, Protocol::Tcp, Some(Duration::from_secs(100))).await;
    for index in 0..3 {
        scene.echo(index).await;
    }
    let heard = futures_util::future::join_all((0..12).map(|_| scene.ask("a"))).await;
    assert_eq!(heard.iter().collect::<BTreeSet<_>>().len(), 1, "{heard:?}");
}

#[tokio::test]
async fn datagrams_find_their_way_there_and_back() {
    let scene = Scene::new(2, Protocol::Udp, None).await;
    let mut tasks = JoinSet::new();
    for address in scene.endpoints.clone() {
        let socket = UdpSocket::bind(address).await.unwrap();
        tasks.spawn(async move {
            let mut buffer = vec![0; 65_535];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let mut reply = address.ip().to_string().into_bytes();
                reply.extend(&buffer[..length]);
                socket.send_to(&reply, from).await.unwrap();
            }
        });
    }
    let mut heard = BTreeSet::new();
    for number in 0..4_usize {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        client.connect((Ipv4Addr::LOCALHOST, scene.port)).await.unwrap();
        let mut own = BTreeSet::new();
        for size in [0, 10, 30_000] {
            let sent = vec![u8::try_from(number).unwrap(); size];
            let mut buffer = vec![0; 65_535];
            let began = Instant::now();
            // As datagrams go, and before the proxy listens, one may be lost.
            let length = loop {
                assert!(began.elapsed() < PATIENCE);
                let _ = client.send(&sent).await;
                match timeout(Duration::from_millis(200), client.recv(&mut buffer)).await {
                    Ok(Ok(length)) if length == 9 + size => break length,
                    _ => {}
                }
            };
            assert_eq!(buffer[9..length], sent);
            own.insert(String::from_utf8(buffer[..9].to_vec()).unwrap());
        }
        assert_eq!(own.len(), 1, "a client has one endpoint: {own:?}");
        heard.extend(own);
    }
    assert_eq!(heard.len(), 2, "{heard:?}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let taken = TcpListener::bind("[::]:0").await.unwrap();
    let forward: Forward = format!("{}/tcp=web:1", taken.local_addr().unwrap().port()).parse().unwrap();
    let names = || Names::new(([127, 0, 0, 1], 1).into(), ["web"]);
    let gate = || Arc::new(Gate::open());
    let served =
        proxy::serve(Forwards { ports: vec![forward], ..Forwards::default() }, names(), gate()).await;
    assert!(matches!(served, Err(proxy::Error::Listen { .. })), "{served:?}");
    let served = proxy::serve(Forwards::default(), names(), gate()).await;
    assert!(matches!(served, Err(proxy::Error::NoPorts)), "{served:?}");
}

#[tokio::test]
async fn proxy_raises_its_limit_of_open_files() {
    let port = free_port(Protocol::Tcp).await;
    let script = "ulimit -S -n 64 && exec \"$0\" proxy \"$1\"";
    let forward = format!("{port}/tcp=web:1");
    let mut proxy = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_driftless"), &forward])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "it does not listen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", proxy.id().unwrap())).unwrap();
    let files: Vec<&str> =
        limits.lines().find(|it| it.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3], files[4], "{files:?}");
    assert_ne!(files[3], "64");
    proxy.kill().await.unwrap();
}

/// The answer of the proxy to `driftless proxy-drain`.
async fn drained(socket: &str, milliseconds: u64, address: Ipv4Addr) -> proxy::Drained {
    let (socket, words) = (socket.to_owned(), [milliseconds.to_string(), address.to_string()]);
    let send = move || proxy::send_drain(&socket, words.iter().map(String::as_str));
    tokio::task::spawn_blocking(send).await.unwrap().unwrap()
}

pub(crate) async fn scene_by_report(protocol: Protocol) -> (String, Scene) {
    let socket = format!("driftless-test-{}-{}", std::process::id(), free_port(Protocol::Tcp).await);
    let scene = Scene::behind(Gate::by_report(&socket), 2, protocol, None).await;
    report(&socket, &["_endpoints.web=127.0.7.1,127.0.7.2"]).await;
    (socket, scene)
}

#[tokio::test]
async fn drained_endpoint_keeps_its_connections_and_gets_no_new_ones() {
    let (socket, mut scene) = scene_by_report(Protocol::Tcp).await;
    for index in 0..2 {
        scene.echo(index).await;
    }
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = scene.connect().await;
        let mut name = [0; 10];
        timeout(PATIENCE, stream.read_exact(&mut name)).await.expect("its name").unwrap();
        open.push((String::from_utf8_lossy(&name).trim().to_owned(), stream));
    }
    open.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(open.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["127.0.7.1", "127.0.7.2"]);

    let leaving = Ipv4Addr::new(127, 0, 7, 1);
    assert_eq!(drained(&socket, 0, leaving).await, proxy::Drained::SomeLeft, "the time has passed");
    let draining = tokio::spawn(async move { (drained(&socket, 20_000, leaving).await, socket) });
    for _ in 0..6 {
        assert_eq!(scene.ask("a").await, "127.0.7.2");
    }
    for (_, stream) in &mut open {
        stream.write_all(b"still").await.unwrap();
        timeout(PATIENCE, stream.read_exact(&mut [0; 5])).await.expect("an answer").unwrap();
    }
    assert!(!draining.is_finished(), "a connection is left");
    drop(open);
    let (drained, socket) = timeout(PATIENCE, draining).await.expect("an end").unwrap();
    assert_eq!(drained, proxy::Drained::All);
    report(&socket, &["_endpoints.web=127.0.7.1"]).await;
    assert_eq!(scene.ask("a").await, "127.0.7.1", "it was not stopped after all");
    let words = |words: &'static [&str]| proxy::send_drain(&socket, words.iter().copied());
    assert!(matches!(words(&["soon"]), Err(proxy::ReportError::InvalidDrain)));
    assert!(matches!(words(&["1", "host"]), Err(proxy::ReportError::InvalidDrain)));
}

/// An HTTP server that keeps its connections, and answers with its address.
pub(crate) async fn serve_http(scene: &mut Scene, index: usize) {
    let address = scene.endpoints[index];
    let listener = TcpListener::bind(address).await.unwrap();
    scene.tasks.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            open.spawn(async move {
                let mut request = vec![0; 4096];
                while stream.read(&mut request).await.is_ok_and(|length| length > 0) {
                    let body = address.ip().to_string();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
}

#[tokio::test]
async fn kept_alive_http_connection_moves_from_a_drained_endpoint() {
    let (socket, mut scene) = scene_by_report(Protocol::Tcp).await;
    for index in 0..2 {
        serve_http(&mut scene, index).await;
    }
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(scene.connect().await);
    }
    let get = async |client: &mut TcpStream| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 256];
        let length = timeout(PATIENCE, client.read(&mut answer)).await.expect("an answer").unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        answer.split_once("\r\n\r\n").expect("a complete answer").1.to_owned()
    };
    let mut heard = BTreeSet::new();
    for client in &mut clients {
        heard.insert(get(client).await);
    }
    assert_eq!(heard.len(), 2, "{heard:?}");
    let leaving = Ipv4Addr::new(127, 0, 7, 1);
    let draining = tokio::spawn(async move { drained(&socket, 60_000, leaving).await });
    // The drain may begin after the first of these requests.
    let began = Instant::now();
    while !draining.is_finished() {
        assert!(began.elapsed() < PATIENCE, "a connection stays");
        for client in &mut clients {
            assert!(get(client).await.starts_with("127.0.7."));
        }
    }
    assert_eq!(draining.await.unwrap(), proxy::Drained::All);
    for client in &mut clients {
        assert_eq!(get(client).await, "127.0.7.2");
    }
}

#[tokio::test]
async fn large_transfers_arrive_complete_in_both_directions() {
    let mut scene = Scene::new(1, Protocol::Tcp, None).await;
    scene.echo(0).await;
    let sent: Vec<u8> =
        (0..24_000_000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for _ in 0..2 {
        let (mut from, mut to) = scene.connect().await.into_split();
        let copy = sent.clone();
        let sending = tokio::spawn(async move {
            to.write_all(&copy).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut heard = Vec::new();
        timeout(PATIENCE, from.read_to_end(&mut heard)).await.expect("an end").unwrap();
        sending.await.unwrap();
        assert!(heard[10..] == sent[..], "{} bytes came back", heard.len());
    }
}

/// A proxy with these arguments before the port, in a process of its own, and an endpoint that it forwards to.
async fn process(arguments: &[&str]) -> (tokio::process::Child, u16, TcpListener) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = free_port(Protocol::Tcp).await;
    let forward = format!("{port}/tcp=localhost:{}", listener.local_addr().unwrap().port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.arg("proxy").args(arguments).arg(forward).kill_on_drop(true);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    (child, port, listener)
}

async fn connected(port: u16) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < PATIENCE, "it does not listen: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_at_once() {
    let (_proxy, port, listener) = process(&["--max-connections=2"]).await;
    let mut open = Vec::new();
    for number in 0..2_u8 {
        let mut client = connected(port).await;
        client.write_all(&[number]).await.unwrap();
        let (mut endpoint, _) = timeout(PATIENCE, listener.accept()).await.expect("a connection").unwrap();
        assert_eq!(timeout(PATIENCE, endpoint.read_u8()).await.expect("its byte").unwrap(), number);
        open.push((client, endpoint));
    }
    for _ in 0..3 {
        let mut third = connected(port).await;
        let refused = timeout(PATIENCE, third.read_u8()).await.expect("an answer");
        assert!(refused.is_err(), "{refused:?}");
    }
    // An end makes room, and the other connection has gone on.
    drop(open.remove(0));
    let began = Instant::now();
    loop {
        let mut client = connected(port).await;
        let accepted = timeout(Duration::from_millis(200), listener.accept());
        if client.write_all(b"c").await.is_ok() && accepted.await.is_ok() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "an end makes room");
    }
    let (client, endpoint) = &mut open[0];
    client.write_all(b"b").await.unwrap();
    assert_eq!(timeout(PATIENCE, endpoint.read_u8()).await.expect("its byte").unwrap(), b'b');
}

#[tokio::test]
async fn endpoints_learn_the_address_of_the_client() {
    let (_proxy, port, listener) = process(&["--proxy-protocol"]).await;
    let mut client = connected(port).await;
    client.write_all(b"hello").await.unwrap();
    let (mut endpoint, _) = timeout(PATIENCE, listener.accept()).await.expect("a connection").unwrap();
    let mut received = [0; 28 + 5];
    timeout(PATIENCE, endpoint.read_exact(&mut received)).await.expect("the header").unwrap();
    let own = client.local_addr().unwrap().port().to_be_bytes();
    assert_eq!(received[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
    assert_eq!(received[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
    assert_eq!((&received[24..26], &received[26..28]), (&own[..], &port.to_be_bytes()[..]));
    assert_eq!(received[28..], *b"hello");
}

#[tokio::test]
async fn idle_connections_end_after_the_timeout() {
    let (_proxy, port, listener) = process(&["--idle-timeout=200"]).await;
    let mut client = connected(port).await;
    client.write_all(b"a").await.unwrap();
    let (mut endpoint, _) = timeout(PATIENCE, listener.accept()).await.expect("a connection").unwrap();
    timeout(PATIENCE, endpoint.read_exact(&mut [0])).await.expect("a byte").unwrap();
    let ended = timeout(PATIENCE, client.read(&mut [0])).await.expect("an end");
    assert!(ended.is_err(), "broken off: {ended:?}");
    assert!(timeout(PATIENCE, endpoint.read(&mut [0])).await.expect("an end").is_err());
}

/// Proxies of a scene's port that hand over to each other.
pub(crate) struct Takeover {
    pub(crate) scene: Scene,
    pub(crate) socket: String,
    proxies: Vec<tokio::task::JoinHandle<()>>,
}

impl Takeover {
    pub(crate) async fn new(protocol: Protocol) -> Self {
        let mut scene = Scene::new(1, protocol, None).await;
        // The scene's own proxy is not one of them.
        scene.port = free_port(protocol).await;
        let socket = format!("driftless-test-handover-{}-{}", std::process::id(), scene.port);
        Self { scene, socket, proxies: Vec::new() }
    }

    /// Starts a further proxy with so many threads.
    fn start(&mut self, threads: usize, protocol: Protocol) {
        self.start_behind(Gate::open(), threads, protocol);
    }

    pub(crate) fn start_behind(&mut self, gate: Gate, threads: usize, protocol: Protocol) {
        let target = ("localhost".to_owned(), self.scene.endpoints[0].port());
        let ports = vec![Forward { port: self.scene.port, protocol, targets: vec![target] }];
        let forwards = Forwards { ports, hand_over: true, ..Forwards::default() };
        let names = Names::new(proxy::name_server(), ["localhost"]);
        let handover = Handover::at(&self.socket);
        self.proxies.push(tokio::spawn(async move {
            let ended = proxy::serve_on(threads, forwards, names, Arc::new(gate), Some(&handover)).await;
            panic!("the proxy ended: {ended:?}");
        }));
    }

    /// Waits until the last proxy serves and the one before does not.
    async fn taken(&self) {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE);
            let mut stream = self.scene.connect().await;
            let mut first = [0; 1];
            if timeout(PATIENCE, stream.read_exact(&mut first)).await.is_ok_and(|it| it.is_ok()) {
                return;
            }
        }
    }
}

async fn echoed(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let mut back = vec![0; bytes.len()];
    timeout(PATIENCE, stream.read_exact(&mut back)).await.expect("the bytes back").unwrap();
    assert_eq!(back, bytes);
}

#[tokio::test]
async fn newer_proxy_takes_over_all_connections() {
    let mut all = Takeover::new(Protocol::Tcp).await;
    // `localhost` is where the endpoint of this test listens.
    all.scene.endpoints[0].set_ip(Ipv4Addr::LOCALHOST.into());
    all.scene.echo(0).await;
    all.start(2, Protocol::Tcp);
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = all.scene.connect().await;
        let mut greeting = [0; 10];
        timeout(PATIENCE, stream.read_exact(&mut greeting)).await.expect("a greeting").unwrap();
        assert_eq!(&greeting, b"127.0.0.1\n");
        echoed(&mut stream, b"before").await;
        open.push(stream);
    }
    // Much is on its way in one connection, and another has said its last.
    let (mut from, mut to) = open.pop().unwrap().into_split();
    let sent: Vec<u8> = (0..32 * 1024 * 1024_u32).map(|it| (it % 251) as u8).collect();
    let copy = sent.clone();
    let sending = tokio::spawn(async move {
        to.write_all(&copy).await.unwrap();
        to.shutdown().await.unwrap();
    });
    // Connections without end, none of which may fail.
    let (port, stop) = (all.scene.port, tokio_util::sync::CancellationToken::new());
    let stopped = stop.clone();
    let clients = tokio::spawn(async move {
        let mut count = 0_u32;
        while !stopped.is_cancelled() {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("a connection");
            let mut greeting = [0; 10];
            timeout(PATIENCE, stream.read_exact(&mut greeting)).await.expect("in time").expect("a greeting");
            echoed(&mut stream, b"new").await;
            count += 1;
        }
        count
    });
    let mut half = vec![0; sent.len() / 4];
    timeout(PATIENCE, from.read_exact(&mut half)).await.expect("a part").unwrap();
    for threads in [1, 3] {
        all.start(threads, Protocol::Tcp);
        all.taken().await;
        for stream in &mut open {
            echoed(stream, format!("after {threads}").as_bytes()).await;
        }
    }
    timeout(PATIENCE, from.read_to_end(&mut half)).await.expect("the rest").unwrap();
    sending.await.unwrap();
    assert!(half == sent, "{} of {} bytes came back", half.len(), sent.len());
    stop.cancel();
    assert!(clients.await.unwrap() > 0);
    // The last one ends, and with it its connections; one that handed over serves again.
    all.proxies.pop().unwrap().abort();
    all.taken().await;
}

#[tokio::test]
async fn proxy_that_fails_while_it_takes_over_ends_no_connection() {
    let mut all = Takeover::new(Protocol::Tcp).await;
    all.scene.endpoints[0].set_ip(Ipv4Addr::LOCALHOST.into());
    all.scene.echo(0).await;
    all.start(2, Protocol::Tcp);
    let mut stream = all.scene.connect().await;
    let mut greeting = [0; 10];
    timeout(PATIENCE, stream.read_exact(&mut greeting)).await.expect("a greeting").unwrap();
    for _ in 0..3 {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&all.socket).unwrap();
        let began = Instant::now();
        let taker = loop {
            match std::os::unix::net::UnixStream::connect_addr(&address) {
                Ok(taker) => break taker,
                Err(error) => assert!(began.elapsed() < PATIENCE, "nobody hands over: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        drop(taker);
        echoed(&mut stream, b"still here").await;
        all.taken().await;
    }
}

#[tokio::test]
async fn newer_proxy_takes_over_udp_sessions() {
    let mut all = Takeover::new(Protocol::Udp).await;
    all.scene.endpoints[0].set_ip(Ipv4Addr::LOCALHOST.into());
    let endpoint = UdpSocket::bind(all.scene.endpoints[0]).await.unwrap();
    all.scene.tasks.spawn(async move {
        loop {
            let (_, from) = endpoint.recv_from(&mut [0; 64]).await.unwrap();
            endpoint.send_to(from.to_string().as_bytes(), from).await.unwrap();
        }
    });
    all.start(1, Protocol::Udp);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    client.connect((Ipv4Addr::LOCALHOST, all.scene.port)).await.unwrap();
    let ask = async || {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "no answer");
            let mut buffer = [0; 64];
            // Refused as long as the first proxy does not listen yet.
            if client.send(b"who am I?").await.is_ok()
                && let Ok(Ok(length)) = timeout(Duration::from_millis(500), client.recv(&mut buffer)).await
            {
                return String::from_utf8_lossy(&buffer[..length]).into_owned();
            }
        }
    };
    let before = ask().await;
    all.start(2, Protocol::Udp);
    for _ in 0..20 {
        assert_eq!(ask().await, before, "the endpoint sees the same client");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
