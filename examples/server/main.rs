//! A tiny HTTP server for images made from scratch: the demo and the tests deploy it instead of real software.
//! Plain standard library, one thread per connection, one static file of about a megabyte.
//!
//! | path | answer |
//! |---|---|
//! | `/` | name, version, host name, and the file `$MESSAGE_FILE` if that is set |
//! | `/healthz` | 200, or 503 until `$READY_AFTER` seconds have passed or while `/tmp/unhealthy` exists |
//! | `/exit?code=N` | ends the process with that code |
//!
//! With `KEEP_ALIVE=1` a connection serves further requests. Datagrams to the same port are sent back.
//!
//! It handles no signals, because that needs `unsafe` code or a foreign crate: as process 1 it would ignore
//! SIGTERM and hold every stop up until its grace period is over. So its image says `STOPSIGNAL SIGKILL`,
//! which makes a stop take milliseconds; where a clean exit code matters, run it under `init: true`.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{self, ExitCode},
    thread,
    time::{Duration, Instant},
};

const UNHEALTHY: &str = "/tmp/unhealthy";
const HELP: &str = "server                    serve on $PORT (8080)
server --once             print a greeting and end with code 0
server --fail             complain and end with code 1
server --wait             print a greeting, run for $RUN_FOR seconds (1) and end with code $EXIT_CODE (0)
server --healthcheck URL  end with code 0 if URL answers 2xx, else 1
server --unhealthy        make /healthz answer 503, from inside the container
server --healthy          make it answer 200 again";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => serve(),
        ["--once"] => {
            print!("{}", greeting());
            ExitCode::SUCCESS
        }
        ["--fail"] => {
            eprintln!("{} {} fails, as asked", name(), version());
            ExitCode::FAILURE
        }
        ["--wait"] => {
            print!("{}", greeting());
            wait(Duration::from_secs(number("RUN_FOR", 1)));
            ExitCode::from(u8::try_from(number("EXIT_CODE", 0)).unwrap_or(255))
        }
        ["--healthcheck", url] => match status_of(url) {
            Some(200..=299) => ExitCode::SUCCESS,
            Some(_) | None => ExitCode::FAILURE,
        },
        ["--unhealthy"] => done(fs::create_dir_all("/tmp").and_then(|()| fs::write(UNHEALTHY, ""))),
        ["--healthy"] => done(fs::remove_file(UNHEALTHY)),
        _ => {
            eprintln!("{HELP}");
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a program of its own, without the agent's clock")]
fn serve() -> ExitCode {
    let started = Instant::now();
    let port = env::var("PORT").unwrap_or_else(|_| "8080".to_owned());
    let listener = match TcpListener::bind(format!("0.0.0.0:{port}")) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("could not listen on port {port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    match UdpSocket::bind(format!("0.0.0.0:{port}")) {
        Ok(socket) => drop(thread::spawn(move || send_back(&socket))),
        Err(error) => eprintln!("could not receive datagrams on port {port}: {error}"),
    }
    println!("{} {} listens on port {port}", name(), version());
    for stream in listener.incoming().flatten() {
        thread::spawn(move || serve_connection(stream, started));
    }
    ExitCode::SUCCESS
}

fn send_back(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        // The error may be that of an earlier answer.
        if let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], client);
        }
    }
}

/// Answers requests until one of the sides closes the connection. A client that hangs up early is its own problem.
fn serve_connection(mut stream: TcpStream, started: Instant) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let is_kept = env::var("KEEP_ALIVE").is_ok_and(|it| it == "1");
    while answer(&mut stream, started, is_kept) == Connection::Kept {}
}

#[derive(PartialEq, Eq)]
enum Connection {
    Kept,
    Closed,
}

/// Answers one request.
fn answer(stream: &mut TcpStream, started: Instant, is_kept: bool) -> Connection {
    let mut line = String::new();
    let mut is_last = !is_kept;
    {
        let mut reader = BufReader::new((&*stream).take(16 * 1024));
        if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            return Connection::Closed;
        }
        let mut header = String::new();
        while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
            is_last |= header.trim().eq_ignore_ascii_case("connection: close");
            header.clear();
        }
    }
    let connection = if is_last { Connection::Closed } else { Connection::Kept };
    let target = line.split(' ').nth(1).unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, body) = match path {
        "/" => ("200 OK", greeting()),
        "/healthz" => health(started),
        "/exit" => {
            let code = query.strip_prefix("code=").and_then(|it| it.parse().ok()).unwrap_or(0);
            respond(stream, "200 OK", "bye\n", &Connection::Closed);
            process::exit(code);
        }
        _ => ("404 Not Found", "there is nothing here\n".to_owned()),
    };
    respond(stream, status, &body, &connection);
    connection
}

fn respond(stream: &mut TcpStream, status: &str, body: &str, connection: &Connection) {
    let length = body.len();
    let word = if *connection == Connection::Kept { "keep-alive" } else { "close" };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: {word}\r\n\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes());
}

fn health(started: Instant) -> (&'static str, String) {
    let ready_after = Duration::from_secs(number("READY_AFTER", 0));
    if fs::exists(UNHEALTHY).unwrap_or(false) {
        ("503 Service Unavailable", "unhealthy, as asked\n".to_owned())
    } else if started.elapsed() < ready_after {
        ("503 Service Unavailable", "not ready yet\n".to_owned())
    } else {
        ("200 OK", "ok\n".to_owned())
    }
}

fn greeting() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut text = format!("{} {} on {}\n", name(), version(), host.trim());
    if let Some(message) = env::var("MESSAGE_FILE").ok().and_then(|it| fs::read_to_string(it).ok()) {
        text.push_str(message.trim());
        text.push('\n');
    }
    text
}

/// The status that `http://ADDRESS[:PORT]/PATH` answers with. Names are not resolved, except `localhost`.
fn status_of(url: &str) -> Option<u16> {
    let rest = url.strip_prefix("http://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let address = format!("{host}:{port}").parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "a program of its own, without the agent's clock")]
fn wait(time: Duration) {
    thread::sleep(time);
}

fn done(result: std::io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn name() -> String {
    env::var("NAME").unwrap_or_else(|_| "server".to_owned())
}

fn version() -> String {
    env::var("VERSION").unwrap_or_else(|_| "0".to_owned())
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}
