//! The commands as clients of a server with given answers, such as those of a reverse proxy in front of an agent that starts again.

use std::net::SocketAddr;

use driftless_model::{AgentStatus, Timestamp, label};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::cli::run;

/// A server that gives answers with these statuses and bodies, one for each connection, and then none.
async fn answering(answers: Vec<(&'static str, String)>) -> SocketAddr {
    sending(answers.iter().map(|(status, body)| whole(status, body)).collect()).await
}

fn whole(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// A server that sends these texts, one for each connection, and then none.
async fn sending(answers: Vec<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

/// The answer of nginx while the agent behind it does not listen.
fn bad_gateway() -> (&'static str, String) {
    ("502 Bad Gateway", "<html><h1>502 Bad Gateway</h1></html>".to_owned())
}

#[tokio::test]
async fn proxy_without_an_agent_behind_it_is_named() {
    let server = answering(vec![bad_gateway()]).await;
    let (code, _, error) = run(server, &["status"]).await;
    assert_eq!(code, 2);
    let sentence = format!(
        "error: no agent answers at http://{server}: a proxy in front of it answers 502 Bad Gateway\n"
    );
    assert!(error.starts_with(&sentence), "{error}");
}

#[tokio::test]
async fn agent_may_still_do_a_request_that_a_proxy_gives_up() {
    let late = || vec![("504 Gateway Timeout", "<html></html>".to_owned())];
    let server = answering(late()).await;
    let (code, _, error) = run(server, &["images", "--remove"]).await;
    assert_eq!(code, 2);
    let sentence = format!(
        "error: the agent at http://{server} may still do what was asked: a proxy in front of it did not wait for its answer (504 Gateway Timeout)\n"
    );
    assert!(error.starts_with(&sentence), "{error}");
    let (_, _, error) = run(answering(late()).await, &["images"]).await;
    assert!(error.starts_with("error: no agent answers at "), "{error}");
}

#[tokio::test]
async fn agent_may_still_do_a_request_without_an_answer() {
    // The first closes the connection, as an agent that is killed. nginx answers 502 for such a one.
    let cut = whole("202 Accepted", r#"{"accepted":true}"#).replace("}", "");
    for answers in [vec![String::new()], vec![cut], vec![whole("502 Bad Gateway", "<html></html>")]] {
        let (code, _, error) = run(sending(answers.clone()).await, &["release", "--undo"]).await;
        assert_eq!(code, 2, "{error}");
        assert!(error.starts_with("error: no agent answers at "), "the first request only asks: {error}");
        let server = sending(answers).await;
        let (code, _, error) = run(server, &["images", "--remove"]).await;
        assert_eq!(code, 2, "{error}");
        let sentence = format!("error: the agent at http://{server} may still do what was asked: ");
        assert!(error.starts_with(&sentence), "{error}");
    }
}

#[tokio::test]
async fn route_that_an_older_agent_lacks_is_explained() {
    let body = r#"{"error":{"code":"noSuchRoute","message":"there is no route `/api/v1/x`","help":"docs/api.md lists the routes"}}"#;
    let help = "help: the agent is of another release than this program, which is ";
    for words in [&["status"][..], &["notify", "test", "phone"], &["token", "revoke", "ci"]] {
        let server = answering(vec![("404 Not Found", body.to_owned()); 2]).await;
        let (code, _, error) = run(server, words).await;
        assert!(
            code == 2 && error.contains("there is no route") && error.contains(help),
            "{words:?}: {error}"
        );
    }
}

#[tokio::test]
async fn release_waits_for_an_agent_behind_a_proxy() {
    let status = AgentStatus {
        version: "0.1.0".to_owned(),
        host: "nas".to_owned(),
        url: String::new(),
        started: Timestamp(1),
        ready: true,
        message: String::new(),
        problems: Vec::new(),
        unobserved: Vec::new(),
    };
    let agent = || ("200 OK", serde_json::to_string(&status).unwrap());
    let server = answering(vec![
        agent(),
        ("200 OK", "[]".to_owned()),
        ("202 Accepted", r#"{"accepted":true}"#.to_owned()),
        bad_gateway(),
        agent(),
    ]);
    let (code, _, error) = run(server.await, &["release", "--undo"]).await;
    assert_eq!(code, 0, "{error}");
}

#[tokio::test]
async fn expired_token_is_not_called_a_wrong_one() {
    let body = r#"{"error":{"code":"tokenExpired","message":"the token ci has expired","help":"make one"}}"#;
    let server = answering(vec![("401 Unauthorized", body.to_owned())]).await;
    let (code, _, error) = run(server, &["status"]).await;
    assert_eq!(code, 2);
    assert!(error.starts_with("error: the token ci has expired\nhelp: make one\n"), "{error}");
    // A proxy asks for a password of its own.
    let server = answering(vec![("401 Unauthorized", "<html></html>".to_owned())]).await;
    let (_, _, error) = run(server, &["status"]).await;
    assert!(error.contains("requires a token"), "{error}");
}

#[tokio::test]
async fn last_line_of_a_log_that_breaks_off_is_printed() {
    let pod = json!({
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "namespace": "shop",
            "labels": { (label::APPLICATION): "shop", (label::WORKLOAD): "web" },
        },
        "spec": { "containers": [{ "name": "web" }] },
        "status": { "containerStatuses": [{ "name": "web", "containerID": "docker://abc" }] },
    });
    let pods = whole("200 OK", &json!({ "items": [pod] }).to_string());
    // The last chunk, of length 0, does not come.
    let log = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\nready\r\n";
    let server = sending(vec![pods.clone(), pods, log.to_owned()]).await;
    let (code, out, error) = run(server, &["logs", "web-1", "--prefix"]).await;
    assert_eq!((code, out.as_str()), (2, "[pod/web-1/web] ready\n"), "{error}");
    let sentence = format!("error: the output of the agent at http://{server} broke off: ");
    assert!(error.starts_with(&sentence), "{error}");
}
