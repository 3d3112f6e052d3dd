//! The log-in with an OpenID provider and the log-out: a provider that signs real tokens and has sessions of its own, and a browser
//! that follows its answers. `browser` opens both in Chromium.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::Query,
    extract::State,
    http::{HeaderMap, Request, Response, StatusCode},
    response::{Html, IntoResponse, Redirect},
    routing::{get, post},
};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use driftless_agent::Inbox;
use driftless_clock::Clock;
use driftless_config::Oidc;
use driftless_model::{AuditResult, Scope, Timestamp};
use driftless_oidc::Provider;
use driftless_store::Store;
use driftless_web::{Access, router};
use http_body_util::BodyExt;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::{
    access::{raw, served},
    sample::{self, agent, blog, shop},
};

/// A key on the curve P-256, for this test alone.
const SIGNING_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgW+dyiahtF84UIzkrx9d1SiioRtKINkSJlfJMjDBplCyhRANCAATrEP1GyF9S269Jak/xzkIKGsW1eLUBecitZa99mMYeqX/uoDwn9tTiHrwjrbvIbOgHBDna4nEe33wjpn4yTq6f";
const X: &str = "6xD9RshfUtuvSWpP8c5CChrFtXi1AXnIrWWvfZjGHqk";
const Y: &str = "f-6gPCf21OIevCOtu8hs6AcEOdricR7ffCOmfjJOrp8";

const SECRET: &str = "s3cret of the client";
const CODE: &str = "code-1";

/// The answers of the provider. A test changes them.
#[derive(Clone, Default)]
struct Behaviour {
    /// Claims of the identity token that differ from a good one. Null removes one.
    claims: BTreeMap<&'static str, Value>,
    /// Claims that only the endpoint for details has.
    details: Value,
    /// The algorithm and key are others than the provider's.
    is_forged: bool,
    is_unsigned: bool,
    /// Another name of the provider in its settings.
    issuer: Option<String>,
    /// The provider has no address that ends a session.
    has_no_log_out: bool,
}

#[derive(Clone)]
pub(crate) struct Idp {
    pub(crate) url: String,
    behaviour: Arc<Mutex<Behaviour>>,
    /// The query of the last log-in.
    asked: Arc<Mutex<BTreeMap<String, String>>>,
    /// The identity token of the last log-in, and the place that a log-out may lead to.
    issued: Arc<Mutex<String>>,
    after_log_out: Arc<Mutex<String>>,
    server: tokio::task::AbortHandle,
}

pub(crate) async fn idp() -> Idp {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Another site than that of the agent, as in reality.
    let url = format!("http://localhost:{}/realm", listener.local_addr().unwrap().port());
    let (set, routes) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move { axum::serve(listener, routes.await.unwrap()).await });
    let idp = Idp {
        url,
        behaviour: Arc::default(),
        asked: Arc::default(),
        issued: Arc::default(),
        after_log_out: Arc::default(),
        server: server.abort_handle(),
    };
    let routes = Router::new()
        .route("/realm/.well-known/openid-configuration", get(settings))
        .route("/realm/token", post(token))
        .route("/realm/keys", get(keys))
        .route("/realm/me", get(details))
        .route("/realm/login", get(log_in_form).post(log_in))
        .route("/realm/logout", get(log_out))
        .with_state(idp.clone());
    set.send(routes).unwrap();
    idp
}

/// The page of the provider. A person with a session there is sent back at once.
async fn log_in_form(
    State(idp): State<Idp>,
    headers: HeaderMap,
    Query(query): Query<BTreeMap<String, String>>,
) -> axum::response::Response {
    *idp.asked.lock().unwrap() = query;
    if headers.get("cookie").is_some_and(|cookie| cookie.to_str().unwrap().contains("provider=ada")) {
        return Redirect::to(&idp.answer()).into_response();
    }
    Html("<!doctype html><form method=post><button autofocus>I am Ada</button></form>").into_response()
}

/// Begins a session at the provider.
async fn log_in(State(idp): State<Idp>) -> axum::response::Response {
    ([("set-cookie", "provider=ada; HttpOnly; SameSite=Lax")], Redirect::to(&idp.answer())).into_response()
}

/// Ends the session at the provider. It asks a person who comes without the identity token, as real ones do.
async fn log_out(
    State(idp): State<Idp>,
    Query(query): Query<BTreeMap<String, String>>,
) -> axum::response::Response {
    let is_known = query.get("post_logout_redirect_uri") == Some(&*idp.after_log_out.lock().unwrap());
    if query["client_id"] != "driftless" || !is_known {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if query.get("id_token_hint") != Some(&*idp.issued.lock().unwrap()) {
        return Html("<!doctype html>Do you want to log out?").into_response();
    }
    let gone = "provider=; HttpOnly; SameSite=Lax; Max-Age=0";
    ([("set-cookie", gone)], Redirect::to(&query["post_logout_redirect_uri"])).into_response()
}

impl Idp {
    /// The settings of an agent at `url` for this provider.
    pub(crate) fn settings(&self, url: &str) -> Oidc {
        let settings = Oidc {
            issuer: self.url.clone(),
            client_id: "driftless".to_owned(),
            client_secret: None,
            url: url.to_owned(),
            requested_scopes: Vec::new(),
            user_claim: "preferred_username".to_owned(),
            groups_claim: "groups".to_owned(),
            groups: vec![("ops".to_owned(), vec![Scope::parse("act:app/shop").unwrap()])],
            users: vec![("root".to_owned(), vec![Scope::Admin])],
            ca_file: None,
        };
        *self.after_log_out.lock().unwrap() = settings.after_log_out();
        settings
    }

    /// A provider for an agent at `url`.
    pub(crate) fn provider(&self, url: &str) -> Provider {
        Provider::new(self.settings(url), Arc::new(|| Ok(Some(SECRET.to_owned()))), Clock::System)
    }

    /// The place with the code and the state that a browser is sent back to.
    fn answer(&self) -> String {
        let asked = self.asked.lock().unwrap();
        format!("{}?code={CODE}&state={}", asked["redirect_uri"], asked["state"])
    }
}

async fn settings(State(idp): State<Idp>) -> Json<Value> {
    let at = |path: &str| format!("{}/{path}", idp.url);
    let has_log_out = !idp.behaviour.lock().unwrap().has_no_log_out;
    Json(json!({
        "end_session_endpoint": has_log_out.then(|| at("logout")),
        "issuer": idp.behaviour.lock().unwrap().issuer.clone().unwrap_or_else(|| idp.url.clone()),
        "authorization_endpoint": at("login"), "token_endpoint": at("token"), "jwks_uri": at("keys"),
        "userinfo_endpoint": at("me"), "scopes_supported": ["openid", "profile", "groups"],
    }))
}

async fn keys() -> Json<Value> {
    let other = json!({"kty": "of the future", "kid": "2"});
    Json(json!({"keys": [other, {"kty": "EC", "crv": "P-256", "x": X, "y": Y, "kid": "1", "use": "sig"}]}))
}

/// The token endpoint checks the client, the code and the proof of the challenge, as a real one does.
async fn token(State(idp): State<Idp>, headers: HeaderMap, body: String) -> (StatusCode, Json<Value>) {
    let form = reqwest::Url::parse(&format!("http://localhost/?{body}")).unwrap();
    let form: BTreeMap<String, String> = form.query_pairs().into_owned().collect();
    let asked = idp.asked.lock().unwrap().clone();
    let client = format!("Basic {}", BASE64_STANDARD.encode("driftless:s3cret+of+the+client"));
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
    let is_good = headers["authorization"] == client.as_str()
        && form["grant_type"] == "authorization_code"
        && form["code"] == CODE
        && form["redirect_uri"] == asked["redirect_uri"]
        && challenge == asked["code_challenge"];
    if !is_good {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant", "error_description": "no"})));
    }
    let behaviour = idp.behaviour.lock().unwrap().clone();
    let mut claims = json!({
        "iss": idp.url, "aud": "driftless", "sub": "7", "exp": now().0 / 1000 + 60, "iat": now().0 / 1000,
        "nonce": asked["nonce"], "preferred_username": "ada", "groups": ["ops"],
    });
    for (name, value) in behaviour.claims {
        claims[name] = value;
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let token = if behaviour.is_unsigned {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.", part(json!({"alg": "none", "typ": "JWT"})), part(claims))
    } else if behaviour.is_forged {
        // The public key as the secret of a signature that needs one: an old way to deceive checks.
        let header = Header { kid: Some("1".to_owned()), ..Header::new(Algorithm::HS256) };
        encode(&header, &claims, &EncodingKey::from_secret(X.as_bytes())).unwrap()
    } else {
        let header = Header { kid: Some("1".to_owned()), ..Header::new(Algorithm::ES256) };
        let key = EncodingKey::from_ec_der(&BASE64_STANDARD.decode(SIGNING_KEY).unwrap());
        encode(&header, &claims, &key).unwrap()
    };
    token.clone_into(&mut idp.issued.lock().unwrap());
    (StatusCode::OK, Json(json!({"access_token": "at", "token_type": "Bearer", "id_token": token})))
}

async fn details(State(idp): State<Idp>, headers: HeaderMap) -> (StatusCode, Json<Value>) {
    if headers["authorization"] != "Bearer at" {
        return (StatusCode::UNAUTHORIZED, Json(Value::Null));
    }
    (StatusCode::OK, Json(idp.behaviour.lock().unwrap().details.clone()))
}

fn now() -> Timestamp {
    Clock::System.now()
}

/// An agent with a provider, and a browser.
struct Fixture {
    idp: Idp,
    router: Router,
    store: Store,
    _inbox: Inbox,
}

/// The page that a browser gets for its log-in.
struct Ended {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Ended {
    /// The cookie of the session as the browser sends it, and its attributes.
    fn session(&self) -> Option<(String, String)> {
        let cookies = self.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
        let session = cookies.into_iter().find(|cookie| cookie.starts_with("driftless_session="))?;
        let (pair, attributes) = session.split_once(';').unwrap();
        Some((pair.to_owned(), attributes.to_owned()))
    }
}

async fn fixture() -> Fixture {
    let idp = idp().await;
    let provider = idp.provider("https://driftless.example/agents/nas");
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    let router = router(handle, store.clone(), Access::closed().with_provider(Some(provider)));
    Fixture { idp, router, store, _inbox: inbox }
}

impl Fixture {
    fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        let mut behaviour = Behaviour::default();
        change(&mut behaviour);
        *self.idp.behaviour.lock().unwrap() = behaviour;
    }

    async fn get(&self, path: &str, cookie: &str) -> Response<Body> {
        let request = Request::builder().uri(path).header("host", "driftless.example");
        let request = request.header("accept", "text/html").header("cookie", cookie);
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Begins a log-in. The cookie that the browser keeps.
    async fn begin(&self, next: &str) -> String {
        let response = self.get(&format!("/auth/login?next={next}"), "").await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax;") && cookie.ends_with("; Secure"), "{cookie}");
        let place = reqwest::Url::parse(response.headers()["location"].to_str().unwrap()).unwrap();
        assert_eq!(place.path(), "/realm/login");
        let query: BTreeMap<String, String> = place.query_pairs().into_owned().collect();
        assert_eq!(query["scope"], "openid profile groups");
        assert_eq!(query["redirect_uri"], "https://driftless.example/agents/nas/auth/callback");
        assert!(!cookie.contains(&query["state"]) && !cookie.contains(&query["nonce"]));
        *self.idp.asked.lock().unwrap() = query;
        cookie.split(';').next().unwrap().to_owned()
    }

    async fn end(&self, query: &str, cookie: &str) -> Ended {
        let response = self.get(&format!("/auth/callback?{query}"), cookie).await;
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Ended { status: parts.status, headers: parts.headers, text }
    }

    async fn log_in(&self) -> Ended {
        let cookie = self.begin("applications/shop").await;
        let state = self.idp.asked.lock().unwrap()["state"].clone();
        self.end(&format!("code={CODE}&state={state}"), &cookie).await
    }

    async fn act(&self, path: &str, cookie: &str) -> StatusCode {
        self.post(path, cookie).await.status()
    }

    async fn post(&self, path: &str, cookie: &str) -> Response<Body> {
        let request = Request::builder().method("POST").uri(path).header("host", "driftless.example");
        let request = request.header("cookie", cookie).header("origin", "https://driftless.example");
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Logs out: the query of the URL at the provider, if there is one, and the page.
    async fn log_out(&self, session: &str) -> (Option<BTreeMap<String, String>>, String) {
        let (parts, body) = self.post("/logout", session).await.into_parts();
        let cookie = parts.headers["set-cookie"].to_str().unwrap();
        assert!(cookie.starts_with("driftless_session=;") && cookie.contains("Max-Age=0"), "{cookie}");
        let page = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let url =
            parts.headers.get("refresh").map(|value| value.to_str().unwrap().trim_start_matches("0;url="));
        let query = url.map(|url| {
            let url = reqwest::Url::parse(url).unwrap();
            assert_eq!(url.path(), "/realm/logout");
            url.query_pairs().into_owned().collect()
        });
        (query, page)
    }
}

#[tokio::test]
async fn log_out_ends_the_session_at_the_provider_too() {
    let it = fixture().await;
    let (session, _) = it.log_in().await.session().unwrap();
    let (query, page) = it.log_out(&session).await;
    let query = query.unwrap();
    assert_eq!(query["client_id"], "driftless");
    assert_eq!(query["post_logout_redirect_uri"], "https://driftless.example/agents/nas/login");
    assert_eq!(query["id_token_hint"], *it.idp.issued.lock().unwrap());
    assert!(page.contains("You are logged out here"), "{page}");
    let who = it.get("/api/v1/whoami", &session).await;
    assert_eq!(who.status(), StatusCode::UNAUTHORIZED, "a copy of the cookie is refused");
    // A session of before a restart has no identity token any more, so the provider asks the person.
    let (session, _) = it.log_in().await.session().unwrap();
    let provider = it.idp.provider("https://driftless.example/agents/nas");
    let sample::Agent { handle, store: _, inbox: _inbox } = agent([shop()]);
    let router = router(handle, it.store.clone(), Access::closed().with_provider(Some(provider)));
    let (query, _) = Fixture { router, ..it }.log_out(&session).await;
    let query = query.unwrap();
    assert!(!query.contains_key("id_token_hint") && query["client_id"] == "driftless", "{query:?}");
}

#[tokio::test]
async fn log_out_works_without_the_provider() {
    let it = fixture().await;
    it.change(|behaviour| behaviour.has_no_log_out = true);
    let (session, _) = it.log_in().await.session().unwrap();
    assert_eq!(it.log_out(&session).await, (None, String::new()));
    // The agent starts again while the provider is gone.
    let it = fixture().await;
    let (session, _) = it.log_in().await.session().unwrap();
    it.idp.server.abort();
    let provider = it.idp.provider("https://driftless.example/agents/nas");
    let sample::Agent { handle, store: _, inbox: _inbox } = agent([shop()]);
    let router = router(handle, it.store.clone(), Access::closed().with_provider(Some(provider)));
    let (query, page) = Fixture { router, ..it }.log_out(&session).await;
    assert_eq!(query, None);
    assert!(page.contains("still logged in at localhost") && page.contains("Log in again"), "{page}");
}

#[tokio::test]
async fn person_logs_in_and_has_the_scopes_of_the_groups() {
    let it = fixture().await;
    let form = it.get("/applications/shop", "").await;
    assert_eq!(form.status(), StatusCode::UNAUTHORIZED);
    let form = String::from_utf8(form.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(form.contains("href=\"../auth/login?next=applications/shop\""), "{form}");

    let ended = it.log_in().await;
    assert_eq!(ended.status, StatusCode::OK, "{}", ended.text);
    assert_eq!(ended.headers["refresh"], "0;url=https://driftless.example/agents/nas/applications/shop");
    let (session, attributes) = ended.session().unwrap();
    assert!(
        attributes.contains("HttpOnly; SameSite=Strict") && attributes.contains("; Secure"),
        "{attributes}"
    );
    assert!(attributes.contains("; Path=/agents/nas;"), "{attributes}");

    let who = it.get("/api/v1/whoami", &session).await.into_body().collect().await.unwrap().to_bytes();
    let who: Value = serde_json::from_slice(&who).unwrap();
    assert_eq!(who, json!({"actor": {"kind": "user", "name": "ada"}, "scopes": ["act:app/shop"]}));
    assert_eq!(it.act("/api/v1/applications/blog/sync", &session).await, StatusCode::FORBIDDEN);
    assert_eq!(it.get("/api/v1/audit", &session).await.status(), StatusCode::FORBIDDEN);
    let audit = it.store.audit(None, 10, None).unwrap();
    let entry = audit.last().unwrap();
    assert_eq!((entry.actor.to_string().as_str(), entry.action.as_str()), ("user ada", "login"));
    assert_eq!(entry.result, AuditResult::Accepted);

    it.change(|behaviour| drop(behaviour.claims.insert("preferred_username", json!("root"))));
    let (root, _) = it.log_in().await.session().unwrap();
    assert_eq!(
        it.get("/api/v1/audit", &root).await.status(),
        StatusCode::OK,
        "a person with scopes of its own"
    );
}

#[tokio::test]
async fn person_without_scopes_gets_no_session() {
    let it = fixture().await;
    it.change(|behaviour| drop(behaviour.claims.insert("groups", json!(["sales"]))));
    let ended = it.log_in().await;
    assert_eq!(ended.status, StatusCode::FORBIDDEN);
    assert!(ended.session().is_none());
    assert!(
        ended.text.contains("neither `oidc.groups` nor `oidc.users` gives a scope to ada"),
        "{}",
        ended.text
    );
    let audit = it.store.audit(None, 10, None).unwrap();
    let entry = audit.last().unwrap();
    assert_eq!((entry.actor.to_string().as_str(), entry.result), ("user ada", AuditResult::Refused));
}

#[tokio::test]
async fn groups_are_read_from_the_details_of_a_person() {
    let it = fixture().await;
    it.change(|behaviour| {
        behaviour.claims.insert("groups", Value::Null);
        behaviour.details = json!({"sub": "7", "groups": ["ops"]});
    });
    assert!(it.log_in().await.session().is_some());
    it.change(|behaviour| {
        behaviour.claims.insert("groups", Value::Null);
        behaviour.details = json!({"sub": "8", "groups": ["ops"]});
    });
    let ended = it.log_in().await;
    assert_eq!(ended.status, StatusCode::BAD_GATEWAY);
    assert!(ended.text.contains("another person"), "{}", ended.text);
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() {
    let it = fixture().await;
    let soon = |seconds: i64| json!(i64::try_from(now().0 / 1000).unwrap() + seconds);
    let wrong: Vec<(&str, Value, &str)> = vec![
        ("iss", json!("https://evil.example"), "it is of another provider"),
        ("aud", json!("other"), "it is for another client"),
        ("aud", json!(["driftless", "other"]), "it is for another client"),
        ("azp", json!("other"), "it is for another client"),
        ("nonce", json!("guess"), "it is of another log-in"),
        ("nonce", Value::Null, "it is of another log-in"),
        ("exp", soon(-300), "its time is over"),
        ("exp", Value::Null, "it has no end"),
        ("nbf", soon(300), "its time has not come"),
        ("sub", Value::Null, "it names nobody"),
        (
            "preferred_username",
            Value::Null,
            "no usable claim `preferred_username` (it has aud, exp, groups, iat, iss, nonce, sub)",
        ),
    ];
    for (claim, value, reason) in wrong {
        it.change(|behaviour| {
            behaviour.claims.insert(claim, value.clone());
            behaviour.details = json!({"sub": "7"});
        });
        let ended = it.log_in().await;
        assert!(ended.session().is_none() && !ended.status.is_success(), "{claim}: {value}");
        assert!(ended.text.contains(reason), "{claim}: {value}: {}", ended.text);
    }
    it.change(|behaviour| behaviour.is_forged = true);
    assert!(it.log_in().await.session().is_none(), "a signature by the public key");
    it.change(|behaviour| behaviour.is_unsigned = true);
    assert!(it.log_in().await.session().is_none(), "no signature");
}

#[tokio::test]
async fn answers_of_another_log_in_are_refused() {
    let it = fixture().await;
    let cookie = it.begin("").await;
    let state = it.idp.asked.lock().unwrap()["state"].clone();
    let good = format!("code={CODE}&state={state}");
    let changed = format!("{}x", &cookie[..cookie.len() - 1]);
    for (query, cookie) in [
        (good.as_str(), ""),
        (good.as_str(), changed.as_str()),
        (&format!("code={CODE}&state=guess"), cookie.as_str()),
        (&format!("code={CODE}"), cookie.as_str()),
        (&format!("{good}&iss=https://evil.example"), cookie.as_str()),
    ] {
        let ended = it.end(query, cookie).await;
        assert_eq!(ended.status, StatusCode::FORBIDDEN, "{query} {cookie}");
        assert!(ended.session().is_none() && ended.text.contains("log in again"), "{}", ended.text);
    }
    let denied =
        it.end(&format!("error=access_denied&error_description=%3Cb%3Eno&state={state}"), &cookie).await;
    assert_eq!(denied.status, StatusCode::FORBIDDEN);
    assert!(denied.text.contains("access_denied: &lt;b&gt;no"), "{}", denied.text);
    let code = it.end(&format!("code=stolen&state={state}"), &cookie).await;
    assert_eq!(code.status, StatusCode::BAD_GATEWAY);
    assert!(code.text.contains("the provider answers 400: invalid_grant: no"), "{}", code.text);
    assert_eq!(it.end(&good, &cookie).await.status, StatusCode::OK);
}

#[tokio::test]
async fn refused_answers_lock_nobody_out() {
    let it = fixture().await;
    // All requests have one address, as behind a reverse proxy.
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    for _ in 0..12 {
        let refused = raw(address, "GET /auth/callback?state=x", &[host], "").await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    }
    let cookie = it.begin("").await;
    let state = it.idp.asked.lock().unwrap()["state"].clone();
    let line = format!("GET /auth/callback?code={CODE}&state={state}");
    let ended = raw(address, &line, &[host, ("cookie", &cookie)], "").await;
    assert!(ended.starts_with("HTTP/1.1 200") && ended.contains("You are logged in."), "{ended}");
}

#[tokio::test]
async fn log_in_leads_only_to_pages_of_the_agent() {
    let it = fixture().await;
    let cookie = it.begin("https%3A%2F%2Fevil.example").await;
    let state = it.idp.asked.lock().unwrap()["state"].clone();
    let ended = it.end(&format!("code={CODE}&state={state}"), &cookie).await;
    assert_eq!(ended.headers["refresh"], "0;url=https://driftless.example/agents/nas/");
}

#[tokio::test]
async fn provider_with_another_name_is_refused() {
    let it = fixture().await;
    it.change(|behaviour| behaviour.issuer = Some("https://evil.example".to_owned()));
    let response = it.get("/auth/login", "").await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    let page = response.into_body().collect().await.unwrap().to_bytes();
    let page = String::from_utf8_lossy(&page);
    assert!(page.contains("calls itself https://evil.example: set `oidc.issuer`"), "{page}");
}

#[tokio::test]
async fn agent_without_a_provider_has_no_such_page() {
    let sample::Agent { handle, store, inbox: _inbox } = agent([shop()]);
    let router = router(handle, store, Access::closed());
    for path in ["/auth/login", "/auth/callback?code=1&state=2"] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let status = router.clone().oneshot(request).await.unwrap().status();
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn session_ends_when_another_claim_names_the_person() {
    let it = fixture().await;
    let (session, _) = it.log_in().await.session().unwrap();
    let url = "https://driftless.example/agents/nas";
    let configured = |change: fn(&mut Oidc)| {
        let mut settings = it.idp.settings(url);
        change(&mut settings);
        let provider = Provider::new(settings, Arc::new(|| Ok(Some(SECRET.to_owned()))), Clock::System);
        let sample::Agent { handle, .. } = agent([shop(), blog()]);
        router(handle, it.store.clone(), Access::closed().with_provider(Some(provider)))
    };
    for (change, expected) in [
        ((|_| {}) as fn(&mut Oidc), StatusCode::OK),
        (|settings| settings.user_claim = "email".to_owned(), StatusCode::UNAUTHORIZED),
        (|settings| settings.groups_claim = "roles".to_owned(), StatusCode::UNAUTHORIZED),
        (|settings| settings.client_id = "other".to_owned(), StatusCode::UNAUTHORIZED),
    ] {
        let request = Request::builder().uri("/api/v1/whoami").header("host", "driftless.example");
        let request = request.header("cookie", &session).body(Body::empty()).unwrap();
        assert_eq!(configured(change).oneshot(request).await.unwrap().status(), expected);
    }
}
