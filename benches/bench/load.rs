//! The load on published ports: a client that measures, and the small HTTP server behind the ports. Both do as little as
//! possible for each request, so that the way between them is what counts.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::report::Samples;

/// The port of the server.
pub const PORT: u16 = 8080;
/// The length of a small answer in bytes.
const SMALL: u64 = 64;
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const BUFFER: usize = 256 * 1024;

/// Many small requests: how many a second, and the time that each took.
pub struct Found {
    pub rate: f64,
    pub times: Samples,
    pub count: usize,
}

/// This many requests, each on a connection of its own, by some clients at the same time. The server closes first, so
/// no port of the client stays in use.
pub async fn connections(address: SocketAddr, count: usize, clients: usize) -> Found {
    let each = count / clients;
    measure(clients, move || async move {
        let (mut times, mut buffer) = (Vec::with_capacity(each), vec![0; BUFFER]);
        for _ in 0..each {
            let began = Instant::now();
            let mut stream = connect(address).await?;
            ask(&mut stream, SMALL, false, &mut buffer).await?;
            if timeout(PATIENCE, stream.read(&mut buffer)).await?? != 0 {
                return Err(io::Error::other("the connection goes on after its answer"));
            }
            times.push(began.elapsed());
        }
        Ok(times)
    })
    .await
}

/// Requests on kept connections for this time, one after the other on each.
pub async fn requests(address: SocketAddr, time: Duration, clients: usize) -> Found {
    measure(clients, move || async move {
        let (mut times, mut buffer) = (Vec::new(), vec![0; BUFFER]);
        let mut stream = connect(address).await?;
        let end = Instant::now() + time;
        loop {
            let began = Instant::now();
            if began >= end {
                return Ok(times);
            }
            ask(&mut stream, SMALL, true, &mut buffer).await?;
            times.push(began.elapsed());
        }
    })
    .await
}

/// The bytes a second of large answers, one on each connection.
pub async fn bodies(address: SocketAddr, length: u64, clients: usize) -> f64 {
    let began = Instant::now();
    run(clients, move || async move {
        let (mut stream, mut buffer) = (connect(address).await?, vec![0; BUFFER]);
        ask(&mut stream, length, false, &mut buffer).await
    })
    .await;
    (length * clients as u64) as f64 / began.elapsed().as_secs_f64()
}

/// This many open connections, each of which has had an answer.
pub async fn idle(address: SocketAddr, count: usize, clients: usize) -> Vec<TcpStream> {
    let each = count / clients;
    let all = run(clients, move || async move {
        let (mut streams, mut buffer) = (Vec::with_capacity(each), vec![0; BUFFER]);
        for _ in 0..each {
            let mut stream = connect(address).await?;
            ask(&mut stream, SMALL, true, &mut buffer).await?;
            streams.push(stream);
        }
        Ok(streams)
    });
    all.await.into_iter().flatten().collect()
}

async fn measure<F>(clients: usize, one: impl Fn() -> F + Copy) -> Found
where
    F: Future<Output = io::Result<Vec<Duration>>> + Send + 'static,
{
    let began = Instant::now();
    let times: Vec<Duration> = run(clients, one).await.into_iter().flatten().collect();
    let took = began.elapsed();
    let count = times.len();
    Found { rate: count as f64 / took.as_secs_f64(), times: Samples::new(times), count }
}

/// The results of some clients at the same time.
async fn run<T, F>(clients: usize, one: impl Fn() -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let tasks: JoinSet<io::Result<T>> = (0..clients).map(|_| one()).collect();
    tasks.join_all().await.into_iter().map(|it| it.expect("each request is answered")).collect()
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads its answer of this length.
async fn ask(stream: &mut TcpStream, length: u64, is_kept: bool, buffer: &mut [u8]) -> io::Result<()> {
    let word = if is_kept { "keep-alive" } else { "close" };
    stream.write_all(format!("GET /{length} HTTP/1.1\r\nConnection: {word}\r\n\r\n").as_bytes()).await?;
    let mut left = head(length).len() as u64 + length;
    while left > 0 {
        match timeout(PATIENCE, stream.read(buffer)).await?? {
            0 => return Err(io::Error::other(format!("closed {left} bytes before the end of an answer"))),
            count => left = left.checked_sub(count as u64).expect("no more than the answer"),
        }
    }
    Ok(())
}

fn head(length: u64) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

/// Answers `GET /LENGTH` with so many bytes, for ever.
pub async fn serve_at(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 1024];
    loop {
        let mut filled = 0;
        while !buffer[..filled].ends_with(b"\r\n\r\n") {
            match stream.read(&mut buffer[filled..]).await? {
                0 => return Ok(()),
                count => filled += count,
            }
        }
        let request = std::str::from_utf8(&buffer[..filled]).map_err(io::Error::other)?;
        let length = request.split(' ').nth(1).and_then(|it| it.strip_prefix('/'));
        let length: u64 = length.and_then(|it| it.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let is_last = request.contains("Connection: close");
        let mut answer = head(length).into_bytes();
        if length <= SMALL {
            answer.resize(answer.len() + length as usize, b'.');
            stream.write_all(&answer).await?;
        } else {
            stream.write_all(&answer).await?;
            let body = vec![b'.'; BUFFER];
            let mut left = length;
            while left > 0 {
                let count = left.min(BUFFER as u64);
                stream.write_all(&body[..count as usize]).await?;
                left -= count;
            }
        }
        if is_last {
            return Ok(());
        }
    }
}
