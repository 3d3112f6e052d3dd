//! Connections of HTTP/1.1 whose endpoint gets no more traffic: they move between two requests, and at no other time.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use driftless_model::Protocol;
use driftless_proxy as proxy;
use driftless_proxy::Gate;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use crate::proxy::{PATIENCE, Scene, Takeover, report, scene_by_report, serve_http};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n";

/// A client with a connection to the first endpoint, which the test answers. The second endpoint answers by itself.
struct Kept {
    _scene: Scene,
    socket: String,
    client: TcpStream,
    endpoint: TcpStream,
}

impl Kept {
    async fn new() -> Self {
        let (socket, mut scene) = scene_by_report(Protocol::Tcp).await;
        let listener = TcpListener::bind(scene.endpoints[0]).await.unwrap();
        serve_http(&mut scene, 1).await;
        report(&socket, &["_endpoints.web=127.0.7.1"]).await;
        let client = scene.connect().await;
        let (endpoint, _) = timeout(PATIENCE, listener.accept()).await.expect("a connection").unwrap();
        Self { _scene: scene, socket, client, endpoint }
    }

    /// From now on the other endpoint gets the traffic.
    async fn leave(&self) {
        report(&self.socket, &["_endpoints.web=127.0.7.2"]).await;
    }

    /// The client sends bytes, which arrive at the first endpoint.
    async fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.unwrap();
        let mut received = vec![0; bytes.len()];
        timeout(PATIENCE, self.endpoint.read_exact(&mut received)).await.expect("the bytes").unwrap();
        assert_eq!(received, bytes);
    }

    /// The first endpoint sends bytes, which arrive at the client.
    async fn answer(&mut self, bytes: &[u8]) {
        self.endpoint.write_all(bytes).await.unwrap();
        assert_eq!(read(&mut self.client, bytes.len()).await.as_bytes(), bytes);
    }

    /// The client sends a request, which the second endpoint answers.
    async fn moves(&mut self) {
        self.client.write_all(GET).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n127.0.7.2";
        assert_eq!(read(&mut self.client, answer.len()).await, answer);
    }
}

async fn read(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("the bytes").unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn pipelined_requests_stay_with_their_endpoint() {
    let mut kept = Kept::new().await;
    kept.send(&[GET, GET].concat()).await;
    kept.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
    kept.leave().await;
    kept.send(GET).await;
    for answer in [&b"lf"[..], b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb"] {
        kept.answer(answer).await;
        kept.send(GET).await;
    }
}

#[tokio::test]
async fn request_during_an_answer_stays_with_its_endpoint() {
    let mut kept = Kept::new().await;
    kept.send(GET).await;
    kept.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
    kept.leave().await;
    kept.send(GET).await;
    kept.answer(b"4\r\nhalf\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn body_that_looks_like_a_request_stays_with_its_endpoint() {
    let mut kept = Kept::new().await;
    kept.leave().await;
    // Nobody else could answer the request.
    report(&kept.socket, &["_endpoints.web="]).await;
    let head = format!("POST / HTTP/1.1\r\nHost: web\r\nContent-Length: {}\r\n\r\n", GET.len());
    kept.send(head.as_bytes()).await;
    kept.answer(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    kept.leave().await;
    kept.send(GET).await;
    kept.answer(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    kept.moves().await;
}

#[tokio::test]
async fn connection_moves_after_an_answer_in_parts() {
    for (parts, end) in [
        (&["HTTP/1.1 200 OK\r\nTransfer-Encoding: chun", "ked\r\n\r\n2\r\nab\r\n"][..], "0\r\n\r\n"),
        (&["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "hal"], "f"),
    ] {
        let mut kept = Kept::new().await;
        kept.send(GET).await;
        for part in parts {
            kept.answer(part.as_bytes()).await;
        }
        kept.leave().await;
        kept.answer(end.as_bytes()).await;
        kept.moves().await;
    }
}

#[tokio::test]
async fn connection_moves_after_a_large_answer() {
    let mut kept = Kept::new().await;
    let body = vec![b'a'; 3_000_000];
    for _ in 0..3 {
        kept.send(GET).await;
        kept.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes()).await;
        let mut received = vec![0; body.len()];
        let (sent, read) = tokio::join!(
            kept.endpoint.write_all(&body),
            timeout(PATIENCE, kept.client.read_exact(&mut received))
        );
        sent.unwrap();
        read.expect("the body").unwrap();
        assert!(received == body);
    }
    kept.leave().await;
    kept.moves().await;
}

#[tokio::test]
async fn connection_of_a_leaving_endpoint_moves_after_a_takeover() {
    let mut all = Takeover::new(Protocol::Tcp).await;
    // Both are endpoints of the same name, as the reports say.
    all.scene.endpoints.push(SocketAddr::new([127, 0, 0, 2].into(), all.scene.endpoints[0].port()));
    all.scene.endpoints[0].set_ip(Ipv4Addr::LOCALHOST.into());
    let listener = TcpListener::bind(all.scene.endpoints[0]).await.unwrap();
    serve_http(&mut all.scene, 1).await;
    let sockets: Vec<String> = (0..2).map(|number| format!("{}-{number}", all.socket)).collect();
    all.start_behind(Gate::by_report(&sockets[0]), 1, Protocol::Tcp);
    report(&sockets[0], &["localhost=127.0.0.1"]).await;
    let mut client = all.scene.connect().await;
    let (mut endpoint, _) = timeout(PATIENCE, listener.accept()).await.expect("a connection").unwrap();
    client.write_all(GET).await.unwrap();
    read(&mut endpoint, GET.len()).await;
    let first = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    endpoint.write_all(first.as_bytes()).await.unwrap();
    assert_eq!(read(&mut client, first.len()).await, first);
    report(&sockets[0], &["localhost=127.0.0.2"]).await;
    all.start_behind(Gate::by_report(&sockets[1]), 1, Protocol::Tcp);
    let began = Instant::now();
    loop {
        let socket = sockets[1].clone();
        let counters = tokio::task::spawn_blocking(move || proxy::read_counters(&socket)).await.unwrap();
        if counters.is_ok_and(|it| it.contains("\"open\":1")) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the second proxy carries nothing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    endpoint.write_all(b"a").await.unwrap();
    assert_eq!(read(&mut client, 1).await, "a");
    client.write_all(GET).await.unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n127.0.0.2";
    assert_eq!(read(&mut client, answer.len()).await, answer);
}
