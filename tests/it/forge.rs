//! Statuses of commits and comments on pull requests, as the API documents of the forges describe them: a small server plays the
//! forge, and refuses what those would refuse.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Request, State as Held},
    response::{IntoResponse, Response},
};
use driftless_config::Proxy;
use driftless_forge::{Connection, Error, Forge, ForgeKind, LONGEST_COMMENT, State, Status, Written};
use driftless_model::CommitId;
use http::StatusCode;
use serde_json::{Value, json};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/git/tests/it/tls");
const MARKER: &str = "<!-- driftless:preview -->";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A forge with one pull request. What it was sent can be looked at.
#[derive(Clone, Default)]
pub(crate) struct Played {
    state: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    kind: Option<ForgeKind>,
    comments: BTreeMap<u64, String>,
    /// The comments of others: by their number, the relation of the author to the repository, which only GitHub tells.
    others: BTreeMap<u64, &'static str>,
    statuses: Vec<(String, Value)>,
    refuse: Option<(u16, Value)>,
    seen: Vec<String>,
}

impl Played {
    pub(crate) async fn start(kind: ForgeKind) -> (Self, String) {
        let played = Self::default();
        played.state.lock().unwrap().kind = Some(kind);
        let router = Router::new().fallback(answer).with_state(played.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (played, address)
    }

    pub(crate) fn comments(&self) -> Vec<String> {
        self.state.lock().unwrap().comments.values().cloned().collect()
    }

    pub(crate) fn statuses(&self) -> Vec<(String, Value)> {
        self.state.lock().unwrap().statuses.clone()
    }

    pub(crate) fn comment(&self, text: &str) {
        let mut state = self.state.lock().unwrap();
        let id = state.comments.len() as u64 + 1;
        state.comments.insert(id, text.to_owned());
    }

    fn comment_of_another(&self, text: &str, association: &'static str) {
        self.comment(text);
        let mut state = self.state.lock().unwrap();
        let id = state.comments.len() as u64;
        state.others.insert(id, association);
    }

    pub(crate) fn refuse(&self, code: u16, body: Value) {
        self.state.lock().unwrap().refuse = Some((code, body));
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }
}

async fn answer(Held(played): Held<Played>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let header = |name: &str| parts.headers.get(name).map_or("", |it| it.to_str().unwrap()).to_owned();
    let mut state = played.state.lock().unwrap();
    let path = parts.uri.path().to_owned();
    state.seen.push(format!("{} {path}", parts.method));
    let kind = state.kind.unwrap();
    let authorized = match kind {
        ForgeKind::GitHub => {
            header("authorization") == "Bearer t0ken"
                && header("accept") == "application/vnd.github+json"
                && header("x-github-api-version") == "2022-11-28"
                && !header("user-agent").is_empty()
        }
        ForgeKind::GitLab => header("private-token") == "t0ken",
        ForgeKind::Gitea => header("authorization") == "token t0ken",
    };
    if !authorized {
        return (StatusCode::UNAUTHORIZED, Json(json!({"message": "Bad credentials"}))).into_response();
    }
    if let Some((code, body)) = &state.refuse {
        return (StatusCode::from_u16(*code).unwrap(), Json(body.clone())).into_response();
    }
    let sent: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    assert!(body.is_empty() || header("content-type") == "application/json");
    let query: BTreeMap<String, String> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|it| it.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let (list, one, status) = match kind {
        ForgeKind::GitHub => (
            "/repos/me/infra/issues/7/comments",
            "/repos/me/infra/issues/comments/",
            "/repos/me/infra/statuses/",
        ),
        ForgeKind::Gitea => (
            "/api/v1/repos/me/infra/issues/7/comments",
            "/api/v1/repos/me/infra/issues/comments/",
            "/api/v1/repos/me/infra/statuses/",
        ),
        ForgeKind::GitLab => (
            "/api/v4/projects/me%2Fgroup%2Finfra/merge_requests/7/notes",
            "/api/v4/projects/me%2Fgroup%2Finfra/merge_requests/7/notes/",
            "/api/v4/projects/me%2Fgroup%2Finfra/statuses/",
        ),
    };
    let change = if kind == ForgeKind::GitLab { "PUT" } else { "PATCH" };
    match parts.method.as_str() {
        "GET" if path == list => {
            let page: usize = query["page"].parse().unwrap();
            let size: usize =
                if kind == ForgeKind::GitHub { query["per_page"].parse().unwrap() } else { 100 };
            let skip = if kind == ForgeKind::Gitea { 0 } else { (page - 1) * size };
            let take = if kind == ForgeKind::Gitea { usize::MAX } else { size };
            let found: Vec<Value> = state
                .comments
                .iter()
                .skip(skip)
                .take(take)
                .map(|(id, body)| match (kind, state.others.get(id)) {
                    (ForgeKind::GitHub, Some(association)) => {
                        json!({"id": id, "body": body, "author_association": association, "user": {"type": "User"}})
                    }
                    (ForgeKind::GitHub, None) => {
                        json!({"id": id, "body": body, "author_association": "NONE", "user": {"type": "Bot"}})
                    }
                    (ForgeKind::GitLab | ForgeKind::Gitea, _) => json!({"id": id, "body": body}),
                })
                .collect();
            Json(found).into_response()
        }
        "POST" if path == list => {
            let text = sent["body"].as_str().unwrap().to_owned();
            if text.chars().count() > 65_536 {
                return StatusCode::UNPROCESSABLE_ENTITY.into_response();
            }
            let id = state.comments.len() as u64 + 1;
            state.comments.insert(id, text);
            (StatusCode::CREATED, Json(json!({"id": id}))).into_response()
        }
        method if method == change && path.starts_with(one) => {
            let id: u64 = path[one.len()..].parse().unwrap();
            // A token of GitHub may be allowed to change the comments of others.
            if kind != ForgeKind::GitHub && state.others.contains_key(&id) {
                return StatusCode::FORBIDDEN.into_response();
            }
            // Gitea and GitLab write lines as browsers do.
            let text = sent["body"].as_str().unwrap().replace('\n', "\r\n");
            *state.comments.get_mut(&id).unwrap() = text;
            Json(json!({"id": id})).into_response()
        }
        "POST" if path.starts_with(status) => {
            let words = match kind {
                ForgeKind::GitHub => "error failure pending success",
                ForgeKind::GitLab => "pending running success failed canceled skipped",
                ForgeKind::Gitea => "pending success error failure warning",
            };
            assert!(words.split(' ').any(|it| it == sent["state"]), "{sent}");
            assert!(sent["description"].as_str().unwrap().chars().count() <= 140);
            state.statuses.push((path[status.len()..].to_owned(), sent));
            (StatusCode::CREATED, Json(json!({}))).into_response()
        }
        _ => (StatusCode::NOT_FOUND, Json(json!({"message": "Not Found"}))).into_response(),
    }
}

fn forge(kind: ForgeKind, address: &str) -> Forge {
    let (below, project) = match kind {
        ForgeKind::GitHub => ("/", "me/infra"),
        ForgeKind::GitLab => ("/api/v4", "me/group/infra"),
        ForgeKind::Gitea => ("/api/v1/", "me/infra"),
    };
    Forge::new(kind, &format!("{address}{below}"), project, "t0ken\n", &Connection::default()).unwrap()
}

fn status(state: State) -> Status {
    Status {
        state,
        context: "driftless/preview".to_owned(),
        description: "2 of 3 applications change\nand more".to_owned(),
        url: Some("https://ci.example.com/1".to_owned()),
    }
}

#[tokio::test]
async fn a_comment_is_written_once_and_then_kept_up_to_date() {
    for kind in [ForgeKind::GitHub, ForgeKind::GitLab, ForgeKind::Gitea] {
        let (played, address) = Played::start(kind).await;
        let forge = forge(kind, &address);
        // Somebody quotes ours, and there is more than one page.
        played.comment(&format!("> {MARKER}\nwhat is this?"));
        for number in 0..130 {
            played.comment(&format!("comment {number}"));
        }
        let first = format!("{MARKER}\n# One\n");
        assert_eq!(forge.set_comment(7, MARKER, &first).await.unwrap(), Written::Created, "{kind:?}");
        assert_eq!(forge.set_comment(7, MARKER, &first).await.unwrap(), Written::Unchanged, "{kind:?}");
        let second = format!("{MARKER}\n# Two\n");
        assert_eq!(forge.set_comment(7, MARKER, &second).await.unwrap(), Written::Updated, "{kind:?}");
        assert_eq!(forge.set_comment(7, MARKER, &second).await.unwrap(), Written::Unchanged, "{kind:?}");
        let comments = played.comments();
        assert_eq!(comments.len(), 132, "{kind:?}");
        assert!(comments[131].contains("# Two") && comments[0].contains("what is this?"), "{kind:?}");
    }
}

#[tokio::test]
async fn comment_of_somebody_else_stays_as_it_is() {
    for kind in [ForgeKind::GitHub, ForgeKind::GitLab, ForgeKind::Gitea] {
        let (played, address) = Played::start(kind).await;
        let forge = forge(kind, &address);
        let foreign = format!("{MARKER}\n1 application, no change");
        played.comment_of_another(&foreign, "NONE");
        let [first, second] = ["One", "Two"].map(|word| format!("{MARKER}\n# {word}"));
        assert_eq!(forge.set_comment(7, MARKER, &first).await.unwrap(), Written::Created, "{kind:?}");
        played.comment_of_another(&foreign, "NONE");
        assert_eq!(forge.set_comment(7, MARKER, &second).await.unwrap(), Written::Updated, "{kind:?}");
        let lines: Vec<String> = played.comments().iter().map(|text| text.replace("\r\n", "\n")).collect();
        assert_eq!(lines, [foreign.clone(), second, foreign], "{kind:?}");
    }
}

#[tokio::test]
async fn commit_status_uses_the_states_of_each_forge() {
    let words = |kind| match kind {
        ForgeKind::GitHub | ForgeKind::Gitea => ["pending", "success", "failure", "error"],
        ForgeKind::GitLab => ["pending", "success", "failed", "failed"],
    };
    for kind in [ForgeKind::GitHub, ForgeKind::GitLab, ForgeKind::Gitea] {
        let (played, address) = Played::start(kind).await;
        let forge = forge(kind, &address);
        for state in [State::Pending, State::Success, State::Failure, State::Error] {
            forge.set_status(&CommitId::from_stored(COMMIT), &status(state)).await.unwrap();
        }
        let sent = played.statuses();
        let said: Vec<&str> = sent.iter().map(|(_, it)| it["state"].as_str().unwrap()).collect();
        assert_eq!(said, words(kind), "{kind:?}");
        let (commit, first) = &sent[0];
        assert_eq!(commit, COMMIT);
        let name = if kind == ForgeKind::GitLab { "name" } else { "context" };
        assert_eq!(first[name], "driftless/preview");
        assert_eq!(first["description"], "2 of 3 applications change");
        assert_eq!(first["target_url"], "https://ci.example.com/1");
    }
}

#[tokio::test]
async fn description_is_cut_to_the_limit_of_forges() {
    let (played, address) = Played::start(ForgeKind::GitHub).await;
    let long = Status { description: "ä".repeat(500), ..status(State::Success) };
    forge(ForgeKind::GitHub, &address).set_status(&CommitId::from_stored(COMMIT), &long).await.unwrap();
    let description = played.statuses()[0].1["description"].as_str().unwrap().to_owned();
    assert_eq!(description.chars().count(), 140);
    assert!(description.ends_with('…'));
}

#[tokio::test]
async fn refusal_quotes_the_forge_without_the_token() {
    let (played, address) = Played::start(ForgeKind::GitHub).await;
    let wrong = Forge::new(ForgeKind::GitHub, &address, "me/infra", "wr0ng", &Connection::default()).unwrap();
    let error = wrong.set_status(&CommitId::from_stored(COMMIT), &status(State::Success)).await.unwrap_err();
    assert!(error.is_permission());
    let told = format!("{error} {error:?} {wrong:?}");
    assert!(told.contains("Bad credentials") && !told.contains("wr0ng"), "{told}");

    played.refuse(422, json!({"message": "Validation\u{1b} Failed"}));
    let error = forge(ForgeKind::GitHub, &address).set_comment(7, MARKER, MARKER).await.unwrap_err();
    assert!(!error.is_permission());
    assert_eq!(
        error.to_string(),
        "could not comment on pull request 7: the forge answers 422 Unprocessable Entity: Validation Failed"
    );
    // It was looked for, and nothing was written over a list that could not be read.
    assert_eq!(played.seen().iter().filter(|it| !it.starts_with("GET ")).count(), 1);
}

#[tokio::test]
async fn gitlab_is_forgiven_for_refusing_the_state_it_has() {
    let (played, address) = Played::start(ForgeKind::GitLab).await;
    let forge = forge(ForgeKind::GitLab, &address);
    played.refuse(400, json!({"message": {"state": ["Cannot transition status via :run from :running"]}}));
    forge.set_status(&CommitId::from_stored(COMMIT), &status(State::Pending)).await.unwrap();
    played.refuse(400, json!({"message": "400 Bad request"}));
    forge.set_status(&CommitId::from_stored(COMMIT), &status(State::Pending)).await.unwrap_err();
}

#[tokio::test]
async fn role_for_a_protected_branch_is_named_on_gitlab() {
    for (kind, is_named) in [(ForgeKind::GitLab, true), (ForgeKind::Gitea, false)] {
        let (played, address) = Played::start(kind).await;
        played.refuse(403, json!({"message": "403 Forbidden"}));
        let status = status(State::Success);
        let commit = CommitId::from_stored(COMMIT);
        let error = forge(kind, &address).set_status(&commit, &status).await.unwrap_err();
        assert!(error.is_permission());
        let text = error.to_string();
        assert!(text.contains("403 Forbidden") && text.contains("protected branch") == is_named, "{text}");
    }
}

#[tokio::test]
async fn invalid_request_is_refused_before_anything_is_sent() {
    let make = |api: &str, project: &str, token: &str| {
        Forge::new(ForgeKind::GitHub, api, project, token, &Connection::default()).unwrap_err()
    };
    assert!(matches!(make("ftp://a", "a/b", "t"), Error::Address(_)));
    for project in ["a", "", "a/b/c", "a/../b", "a/b?c", "a b/c", "../a"] {
        assert!(matches!(make("https://a", project, "t"), Error::Project(_)), "{project}");
    }
    for token in ["", " \n", "a\u{7f}b\nc"] {
        assert!(matches!(make("https://a", "a/b", token), Error::Token), "{token:?}");
    }
    let (played, address) = Played::start(ForgeKind::GitHub).await;
    let forge = forge(ForgeKind::GitHub, &address);
    let long = "x".repeat(LONGEST_COMMENT + 1);
    assert!(matches!(forge.set_comment(7, MARKER, &long).await, Err(Error::TooLong)));
    for commit in ["main", "../0", "0123456"] {
        let error = forge.set_status(&CommitId::from_stored(commit), &status(State::Success)).await;
        assert!(matches!(error, Err(Error::Commit(_))));
    }
    assert_eq!(played.seen(), [""; 0]);
}

/// The address of the played forge over TLS, with the certificate of a private authority.
async fn over_tls(address: &str) -> String {
    use tokio_rustls::rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };
    let certificate = CertificateDer::from_pem_file(format!("{TLS}/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{TLS}/server.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = address.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut forge = tokio::net::TcpStream::connect(plain).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut forge).await;
            });
        }
    });
    format!("https://localhost:{port}")
}

#[tokio::test]
async fn certificates_and_proxy_of_the_repository_are_used() {
    let (played, address) = Played::start(ForgeKind::GitHub).await;
    let set = |api: String, connection: Connection| async move {
        let forge = Forge::new(ForgeKind::GitHub, &api, "me/infra", "t0ken", &connection)?;
        forge.set_status(&CommitId::from_stored(COMMIT), &status(State::Success)).await
    };
    let secure = over_tls(&address).await;
    let error = set(secure.clone(), Connection::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let trusting =
        |name: &str| Connection { ca_file: Some(format!("{TLS}/{name}").into()), proxy: Proxy::Direct };
    set(secure.clone(), trusting("ca.pem")).await.unwrap();
    let error = set(secure, trusting("missing.pem")).await.unwrap_err();
    assert!(matches!(&error, Error::CaFile(_)) && error.to_string().contains("missing.pem"), "{error}");

    let behind = |url: &str| Connection { ca_file: None, proxy: Proxy::Url(url.to_owned()) };
    set("http://forge.invalid".to_owned(), behind(&address)).await.unwrap();
    assert_eq!(played.statuses().len(), 2);
    let error = set("http://forge.invalid".to_owned(), behind("http://:0")).await.unwrap_err();
    assert!(matches!(error, Error::Proxy), "{error}");
}

#[tokio::test]
async fn a_forge_that_is_not_there_is_named() {
    let error =
        forge(ForgeKind::GitHub, "http://127.0.0.1:9").set_comment(7, MARKER, MARKER).await.unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with("could not comment on pull request 7: 127.0.0.1 is unreachable: "), "{told}");
}
