//! Webhooks over real sockets: every forge's delivery, signed by openssl, and everything that strangers may send
//! instead.
//!
//! Bad input from a forge, from Git or into a report, and where the outcome is shown;
//! that all of them are there is checked by `docs`:
//!
//! | bad input | where |
//! |---|---|
//! | wrong signature, none, one over another payload, one by an algorithm that is not configured | `deliveries_of_every_forge_need_a_valid_signature`, `algorithm_is_configured_and_not_taken_from_a_header` |
//! | headers of several forges at once | `auto_provider_uses_the_most_specific_header` |
//! | replay, and signatures of another time | `deliveries_of_every_forge_need_a_valid_signature`, `signature_of_another_time_is_refused` |
//! | another branch, a tag of the branch's name, a deleted branch, another repository's URL | `deliveries_of_every_forge_need_a_valid_signature` |
//! | no secret, a short one, a lost one | `a_secret_that_is_changed_or_lost_counts_at_the_next_look`, `webhook_mistakes_are_reported` |
//! | another method or path | `only_one_method_and_path_is_served` |
//! | no payload, a deep or long one, a form, a packed one | `invalid_payload_is_refused_and_named` |
//! | truncated body | `a_payload_that_ends_too_early_counts_for_nothing` |
//! | a body of 100 MB, announced or not, endless headers | `a_hundred_megabytes_are_refused_before_they_are_read` |
//! | slow loris | `slow_payload_is_not_waited_for`, `idle_connections_do_not_lock_a_forge_out` |
//! | 10,000 a second for ten seconds | `a_hundred_thousand_hooks_hold_nothing_up_and_take_no_memory`, `too_many_deliveries_are_refused_with_retry_after` |
//! | a full disk while one is taken | `unwritable_database_is_reported_to_the_forge` |
//! | killed after the answer | `accepted_delivery_survives_a_restart`, `accepted_delivery_is_handled_after_a_kill` |
//! | host key changed, revoked, or of another server | `a_pinned_fingerprint_lets_its_server_in_and_no_other`, `host_certificate_is_accepted_and_revoked_key_rejected`, `ssh_fetches_with_a_key_from_a_known_host_only` |
//! | certificate expired, of another name, of an unknown authority | `invalid_certificate_is_explained_in_plain_words`, `an_unknown_authority_is_not_trusted` |
//! | token revoked while it runs | `revoked_token_is_reported_and_a_new_one_is_used` |
//! | a repository that asks for a credential that is not there | `answers_of_http_servers_are_sorted_by_next_action` |
//! | what runs while Git refuses or is away | `a_git_server_that_is_away_leaves_everything_enforced`, `unsigned_commit_is_rejected_and_the_signed_one_enforced` |
//! | links that leave the repository | `links_are_followed_inside_the_repository_only` |
//! | paths with `..` | `paths_stay_in_the_repository`, `settings_outside_of_the_repository_are_refused`, `every_fixture_renders_to_its_snapshot` |
//! | names that differ in case alone | `two_folders_of_one_name_is_an_error_naming_both`, `paths_that_differ_in_case_only_are_two_files` |
//! | submodule loop | `invalid_submodules_are_rejected_and_old_commit_stays` |
//! | for reports: every mistake in the options, files and references that are not there | `every_error_exits_with_2_or_where_asked_for_with_1` |
//! | for reports: an agent or an engine that answers wrongly, late, by half or not at all | `invalid_agent_answer_is_an_error_not_no_drift`, `invalid_engine_answer_is_an_error_not_no_drift`, `an_engine_that_is_away_is_an_error` |
//! | for reports: what cannot be rendered | `render_errors_are_listed_before_changes`, `report_of_a_broken_commit_is_an_error` |
//! | for reports: an output that is full or closed | `unwritable_output_is_an_error_even_without_drift` |
//! | for reports: values that look like markup, commands or another test | `the_markdown_reads_well_and_nothing_in_it_breaks_out`, `annotations_are_escaped_and_a_value_cannot_become_a_command`, `junit_report_matches_its_schema` |
//! | for reports: more than a comment may hold | `comment_stays_within_its_limit_and_names_every_app`, `more_applications_than_a_comment_can_name_are_counted` |

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use driftless_clock::Clock;
use driftless_config::Settings;
use driftless_forge::webhook;
use driftless_model::{
    CommitId, Delivery, DeliveryOutcome, DeliveryResult, Missed, Timestamp, WebhookProvider, WebhookStatus,
};
use driftless_store::{DeliveryState, StateDir, Store};
use driftless_web::{Access, Token, WebhookReceiver, router_with_webhooks, serve};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::sample::{self, NOW, agent};

const SECRET: &str = "s3cret-ü-0123456789-0123456789-abc";
const OTHER: &str = "another-secret-0123456789-0123456789";
const URL: &str = "https://git.example.com/acme/infra.git";
const BEFORE: &str = "1111111111111111111111111111111111111111";
const AFTER: &str = "2222222222222222222222222222222222222222";
const TOKEN: &str = "correct-horse-battery";
const ZERO: &str = "0000000000000000000000000000000000000000";

type Headers = Vec<(&'static str, String)>;

/// The HMAC that openssl, and not this program, computes from a key and a message.
pub(crate) fn hmac_of(digest: &str, hexkey: &str, message: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args([
            "dgst",
            &format!("-{digest}"),
            "-mac",
            "HMAC",
            "-macopt",
            &format!("hexkey:{hexkey}"),
            "-binary",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    child.stdin.take().unwrap().write_all(message).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn mac(secret: &str, body: &str) -> String {
    hex(&hmac_of("sha256", &hex(secret.as_bytes()), body.as_bytes()))
}

fn standard(secret: &str, id: &str, time: u64, body: &str) -> Headers {
    let key = BASE64_STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
    let signed = hmac_of("sha256", &hex(&key), format!("{id}.{time}.{body}").as_bytes());
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", time.to_string()),
        ("webhook-signature", format!("v1,{}", BASE64_STANDARD.encode(signed))),
    ]
}

fn whsec() -> String {
    format!("whsec_{}", BASE64_STANDARD.encode("a-key-of-more-than-24-bytes-ü"))
}

/// One forge: how its secret looks, its payload for a reference, and the headers that go with it.
struct Forge {
    provider: &'static str,
    secret: String,
    payload: fn(&str, &str) -> Value,
    headers: fn(&str, &str, &str) -> Headers,
}

fn github_payload(reference: &str, after: &str) -> Value {
    json!({
        "ref": reference, "before": BEFORE, "after": after, "created": false, "deleted": after == ZERO,
        "forced": false, "base_ref": null, "compare": "https://git.example.com/acme/infra/compare/1...2",
        "repository": {
            "id": 1, "name": "infra", "full_name": "acme/infra", "private": true, "owner": { "login": "acme" },
            "html_url": "https://git.example.com/acme/infra", "clone_url": URL,
            "ssh_url": "git@git.example.com:acme/infra.git", "default_branch": "main", "topics": [], "size": 12.5,
        },
        "pusher": { "name": "dev", "email": null },
        "head_commit": { "id": after, "message": "bump shöp 🚀", "added": [], "modified": ["shop/compose.yaml"] },
        "commits": [{ "id": after, "message": "bump", "added": null, "removed": null }],
    })
}

fn gitlab_payload(reference: &str, after: &str) -> Value {
    json!({
        "object_kind": "push", "event_name": "push", "before": BEFORE, "after": after, "ref": reference,
        "ref_protected": true, "checkout_sha": null, "message": null, "user_id": 4, "project_id": 15,
        "project": {
            "id": 15, "name": "infra", "path_with_namespace": "acme/infra", "default_branch": "main",
            "git_http_url": URL, "git_ssh_url": "git@git.example.com:acme/infra.git", "ci_config_path": null,
        },
        "commits": [{ "id": after, "message": "größer" }], "total_commits_count": 1, "push_options": {},
        "repository": { "name": "infra", "url": "git@git.example.com:acme/infra.git", "visibility_level": 0 },
    })
}

fn cloud_payload(reference: &str, after: &str) -> Value {
    let (kind, name) = match reference.strip_prefix("refs/tags/") {
        Some(name) => ("tag", name),
        None => ("branch", reference.trim_start_matches("refs/heads/")),
    };
    let side =
        json!({ "type": kind, "name": name, "target": { "type": "commit", "hash": after, "parents": [] } });
    let (new, old) = if after == ZERO { (Value::Null, side) } else { (side, Value::Null) };
    // Two changes: the second is the one that counts.
    let feature = json!({ "type": "branch", "name": "feature/ä", "target": { "hash": BEFORE } });
    json!({
        "actor": { "display_name": "dev" },
        "repository": {
            "type": "repository", "full_name": "acme/infra", "name": "infra", "is_private": true,
            "links": { "self": { "href": "https://api.example.com/2.0/repositories/acme/infra" },
                       "html": { "href": "https://git.example.com/acme/infra" } },
            "project": { "key": "AC", "name": "Acme" },
        },
        "push": { "changes": [
            { "new": feature, "old": null, "created": true, "closed": false },
            { "new": new, "old": old, "created": false, "closed": after == ZERO, "truncated": false, "commits": [] },
        ] },
    })
}

fn center_payload(reference: &str, after: &str) -> Value {
    let kind = if after == ZERO { "DELETE" } else { "UPDATE" };
    let change = |name: &str, to: &str, kind: &str| {
        json!({
            "ref": { "id": name, "displayId": name, "type": "BRANCH" }, "refId": name,
            "fromHash": BEFORE, "toHash": to, "type": kind,
        })
    };
    json!({
        "eventKey": "repo:refs_changed", "date": "2026-01-01T00:00:00+0000", "actor": { "name": "dev" },
        "repository": { "slug": "infra", "id": 84, "project": { "key": "ACME", "id": 1 }, "public": false },
        "changes": [change("refs/heads/feature", BEFORE, "ADD"), change(reference, after, kind)],
    })
}

fn azure_payload(reference: &str, after: &str) -> Value {
    json!({
        "subscriptionId": "4f6e6328-0251-4814-a009-c01dfa368e3f", "notificationId": 7,
        "id": "03c164c2-8912-4d5e-8009-3707d5f83734", "eventType": "git.push", "publisherId": "tfs",
        "message": { "text": "dev pushed updates" },
        "resource": {
            "commits": [], "pushId": 14, "url": "https://git.example.com/x",
            "refUpdates": [{ "name": reference, "oldObjectId": BEFORE, "newObjectId": after }],
            "repository": { "id": "r", "name": "infra", "defaultBranch": "refs/heads/main", "remoteUrl": URL },
        },
        "resourceVersion": "1.0", "createdDate": "2026-01-01T00:00:00.0Z",
    })
}

/// All the names under which Forgejo sends one signature.
fn forgejo_headers(secret: &str, id: &str, body: &str) -> Headers {
    let signature = mac(secret, body);
    vec![
        ("X-Forgejo-Event", "push".into()),
        ("X-Forgejo-Delivery", id.into()),
        ("X-Forgejo-Signature", signature.clone()),
        ("X-Gitea-Event", "push".into()),
        ("X-Gitea-Delivery", id.into()),
        ("X-Gitea-Signature", signature.clone()),
        ("X-Gogs-Event", "push".into()),
        ("X-Gogs-Signature", signature.clone()),
        ("X-GitHub-Event", "push".into()),
        ("X-Hub-Signature-256", format!("sha256={signature}")),
    ]
}

fn forges() -> Vec<Forge> {
    let hmac = |provider, payload, headers| Forge { provider, secret: SECRET.to_owned(), payload, headers };
    vec![
        hmac("github", github_payload, |secret, id, body| {
            vec![
                ("X-GitHub-Event", "push".into()),
                ("X-GitHub-Delivery", id.into()),
                ("X-Hub-Signature", format!("sha1={}", "0".repeat(40))),
                ("X-Hub-Signature-256", format!("sha256={}", mac(secret, body))),
            ]
        }),
        hmac("forgejo", github_payload, forgejo_headers),
        hmac("gitea", github_payload, |secret, id, body| forgejo_headers(secret, id, body).split_off(3)),
        hmac("gogs", github_payload, |secret, id, body| {
            vec![
                ("X-Gogs-Event", "push".into()),
                ("X-Gogs-Delivery", id.into()),
                ("X-Github-Event", "push".into()),
                ("X-Gogs-Signature", mac(secret, body)),
            ]
        }),
        hmac("gitlab", gitlab_payload, |secret, id, _| {
            vec![
                ("X-Gitlab-Event", "Push Hook".into()),
                ("X-Gitlab-Token", secret.into()),
                ("Idempotency-Key", id.into()),
                // With every delivery, signed or not.
                ("webhook-id", id.into()),
                ("webhook-timestamp", "1".into()),
            ]
        }),
        Forge {
            provider: "gitlab",
            secret: whsec(),
            payload: gitlab_payload,
            headers: |secret, id, body| {
                let mut headers = standard(secret, id, NOW.0 / 1000 + 290, body);
                headers.push(("X-Gitlab-Event", "Push Hook".into()));
                headers
            },
        },
        hmac("bitbucket", cloud_payload, |secret, id, body| {
            vec![
                ("X-Event-Key", "repo:push".into()),
                ("X-Hook-UUID", "{aaaa}".into()),
                ("X-Request-UUID", id.into()),
                ("X-Hub-Signature", format!("sha256={}", mac(secret, body))),
            ]
        }),
        hmac("bitbucket", center_payload, |secret, id, body| {
            vec![
                ("X-Event-Key", "repo:refs_changed".into()),
                ("X-Request-Id", id.into()),
                ("X-Hub-Signature", format!("sha256={}", mac(secret, body))),
            ]
        }),
        hmac("azure-devops", azure_payload, |secret, _, _| {
            vec![("Authorization", format!("Basic {}", BASE64_STANDARD.encode(format!("any:{secret}"))))]
        }),
        hmac("hmac-sha256", github_payload, |secret, id, body| {
            vec![("webhook-id", id.into()), ("X-Signature", format!("sha256={}", mac(secret, body)))]
        }),
        hmac("hmac-sha512", github_payload, |secret, id, body| {
            let signature = hex(&hmac_of("sha512", &hex(secret.as_bytes()), body.as_bytes()));
            vec![("webhook-id", id.into()), ("X-Signature", format!("sha512={signature}"))]
        }),
        Forge {
            provider: "standard-webhooks",
            secret: whsec(),
            payload: |reference, after| {
                let data = json!({ "ref": reference, "after": after, "repository": URL });
                json!({ "type": "push", "timestamp": "2026-01-01T00:00:00Z", "data": data })
            },
            headers: |secret, id, body| standard(secret, id, NOW.0 / 1000 - 290, body),
        },
    ]
}

/// An agent with one webhook, and nobody who would fetch.
struct Stand {
    address: SocketAddr,
    path: String,
    store: Store,
    secret: PathBuf,
    _agent: sample::Agent,
    _directory: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Stand {
    async fn new(provider: &str, secret: &str) -> Self {
        Self::with(provider, secret, json!({}), Access::loopback()).await
    }

    async fn with(provider: &str, secret: &str, more: Value, access: Access) -> Self {
        Self::on(agent([sample::shop()]), provider, secret, more, access).await
    }

    async fn on(agent: sample::Agent, provider: &str, secret: &str, more: Value, access: Access) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        fs::write(&file, format!("{secret}\n")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut hook = json!({ "provider": provider, "secretFile": file });
        hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let settings = json!({
            "listen": address.to_string(),
            "repositories": [{ "name": "infra", "url": URL, "branch": "main", "webhook": hook }],
        });
        let settings = Settings::parse("driftless.yaml", &settings.to_string()).unwrap();
        let (handle, store) = (agent.handle.clone(), agent.store.clone());
        let clock = Clock::starting_at(NOW);
        let receiver =
            WebhookReceiver::new(handle.clone(), store.clone(), &settings, Arc::new(|_| None), clock);
        let router = router_with_webhooks(handle, store.clone(), access, receiver.clone());
        let router = router.merge(driftless_web::webhook_routes(&receiver));
        let server = tokio::spawn(serve(listener, router, std::future::pending()));
        let mut stand = Self {
            address,
            path: String::new(),
            store,
            secret: file,
            _agent: agent,
            _directory: directory,
            server,
        };
        let url = stand.status().await.url;
        stand.path = url.trim_start_matches(&format!("http://{address}")).to_owned();
        stand
    }

    async fn status(&self) -> WebhookStatus {
        // Needed by one of the tests.
        let token = [("authorization", format!("Bearer {TOKEN}"))];
        let (status, _, body) = self.request("GET", "/api/v1/webhooks", &token, b"").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_value::<Vec<WebhookStatus>>(body).unwrap().remove(0)
    }

    async fn deliver(&self, headers: &[(&'static str, String)], body: &str) -> (u16, String, Value) {
        self.request("POST", &self.path, headers, body.as_bytes()).await
    }

    /// The status, the header lines and the JSON of an answer.
    async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> (u16, String, Value) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        if !headers.iter().any(|it| it.0.eq_ignore_ascii_case("content-type")) {
            text.push_str("content-type: application/json\r\n");
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        socket.write_all(text.as_bytes()).await.unwrap();
        socket.write_all(body).await.unwrap();
        answer(&mut socket).await
    }

    fn deliveries(&self) -> u64 {
        self.store.count_open_deliveries("infra").unwrap()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Reads one whole answer of a connection that ends with it, or as much of one as came.
async fn answer(socket: &mut TcpStream) -> (u16, String, Value) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match socket.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
        }
        if is_whole(&bytes) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.get(9..12).and_then(|it| it.parse().ok()).unwrap_or(0);
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.split("content-length: ").nth(1).and_then(|it| it.lines().next()?.parse::<usize>().ok());
    length.is_some_and(|it| body.len() >= it)
}

fn github(secret: &str, id: &str, body: &str) -> Headers {
    (forges()[0].headers)(secret, id, body)
}

#[tokio::test]
async fn published_vector_of_github_equals_that_of_openssl() {
    let made = mac("It's a Secret to Everybody", "Hello, World!");
    assert_eq!(made, "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
}

#[tokio::test]
async fn deliveries_of_every_forge_need_a_valid_signature() {
    for forge in forges() {
        let Forge { provider, secret, payload, headers } = forge;
        let stand = Stand::new(provider, &secret).await;
        let body = payload("refs/heads/main", AFTER).to_string();
        let good = headers(&secret, "delivery-1", &body);
        let (status, _, answer) = stand.deliver(&good, &body).await;
        assert_eq!((status, &answer["result"]), (202, &json!("accepted")), "{provider}: {answer}");
        assert_eq!(stand.deliveries(), 1, "{provider}");
        let kept = stand.store.last_delivery("infra").unwrap().unwrap();
        assert_eq!(kept.reference.as_deref(), Some("refs/heads/main"), "{provider}");
        assert_eq!(kept.commit.as_ref().map(CommitId::as_str), Some(AFTER), "{provider}");
        assert_eq!(kept.provider.to_string(), provider);

        // The same again is known, and rings all the same.
        let place = stand.store.newest_open_delivery("infra").unwrap().unwrap();
        let outcome = DeliveryOutcome { at: NOW, message: "fetched".into() };
        stand.store.set_delivery_outcome("infra", place, &outcome, DeliveryState::Closed).unwrap();
        let (status, _, answer) = stand.deliver(&good, &body).await;
        assert_eq!((status, &answer["result"]), (200, &json!("duplicate")), "{provider}: {answer}");
        assert_eq!(stand.deliveries(), 1, "{provider}: a duplicate rings as well");

        // Signed by somebody else; not at all; over another payload.
        let wrong = if secret.starts_with("whsec_") {
            format!("whsec_{}", BASE64_STANDARD.encode("another-key-of-more-than-24-bytes"))
        } else {
            OTHER.to_owned()
        };
        let plain = ["azure-devops"].contains(&provider) || (provider == "gitlab" && secret == SECRET);
        let mut refused = vec![
            (headers(&wrong, "delivery-2", &body), body.clone()),
            (headers(&wrong, "delivery-2", &body).into_iter().take(1).collect(), body.clone()),
        ];
        if !plain {
            refused.push((good.clone(), format!("{body} ")));
        }
        for (headers, body) in refused {
            let headers: Headers = headers.into_iter().collect();
            let (status, _, answer) = stand.deliver(&headers, &body).await;
            assert_eq!(status, 401, "{provider}: {answer}");
        }
        assert_eq!(stand.deliveries(), 1, "{provider}: nothing of that was kept");

        // A push to a branch that is not followed is accepted and starts no fetch.
        for (reference, after) in
            [("refs/heads/other", AFTER), ("refs/tags/main", AFTER), ("refs/heads/main", ZERO)]
        {
            let body = payload(reference, after).to_string();
            let (status, _, answer) = stand.deliver(&headers(&secret, "delivery-3", &body), &body).await;
            assert_eq!((status, &answer["result"]), (200, &json!("ignored")), "{provider}: {answer}");
            assert!(!answer["message"].as_str().unwrap().is_empty());
        }
        let elsewhere = body.replace("infra", "shop");
        let (status, _, answer) =
            stand.deliver(&headers(&secret, "delivery-4", &elsewhere), &elsewhere).await;
        assert_eq!((status, &answer["result"]), (200, &json!("ignored")), "{provider}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("shop"), "{provider}: {answer}");
        assert_eq!(stand.deliveries(), 1, "{provider}");
    }
}

#[tokio::test]
async fn pings_are_answered_and_other_events_ignored() {
    for (provider, event, name, result) in [
        ("github", "X-GitHub-Event", "ping", "pong"),
        ("github", "X-GitHub-Event", "issues", "ignored"),
        ("auto", "X-GitHub-Event", "ping", "pong"),
        ("bitbucket", "X-Event-Key", "diagnostics:ping", "pong"),
        ("bitbucket", "X-Event-Key", "pullrequest:created", "ignored"),
    ] {
        let stand = Stand::new(provider, SECRET).await;
        let body = r#"{"zen":"Keep it logically awesome.","hook_id":1}"#;
        let signature = format!("sha256={}", mac(SECRET, body));
        let header = if provider == "bitbucket" { "X-Hub-Signature" } else { "X-Hub-Signature-256" };
        let (status, _, answer) = stand.deliver(&[(event, name.into()), (header, signature)], body).await;
        assert_eq!((status, &answer["result"]), (200, &json!(result)), "{provider} {name}");
        assert_eq!(stand.status().await.last.unwrap().event, name);
        assert_eq!(stand.deliveries(), 0);
    }
}

#[tokio::test]
async fn signed_delivery_about_an_image_asks_its_registry() {
    let stand = Stand::new("hmac-sha256", SECRET).await;
    let body = r#"{"image": "ghcr.io/acme/web:prod"}"#;
    let signed = [("x-signature", format!("sha256={}", mac(SECRET, body)))];
    let (code, _, answer) = stand.deliver(&signed, body).await;
    assert_eq!((code, &answer["result"]), (202, &json!("accepted")), "{answer}");
    assert_eq!(answer["message"], "the registry is asked about ghcr.io/acme/web:prod");
    let unsigned = [("x-signature", format!("sha256={}", mac(OTHER, body)))];
    assert_eq!(stand.deliver(&unsigned, body).await.0, 401);
    let newest = stand.status().await.last.unwrap();
    assert_eq!((newest.event.as_str(), newest.result), ("image", DeliveryResult::Accepted));
}

#[tokio::test]
async fn auto_provider_uses_the_most_specific_header() {
    let stand = Stand::new("auto", SECRET).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let all = forgejo_headers(SECRET, "one", &body);
    // From Forgejo's headers to GitHub's alone.
    for (skipped, provider) in [
        (0, WebhookProvider::Forgejo),
        (3, WebhookProvider::Gitea),
        (6, WebhookProvider::Gogs),
        (8, WebhookProvider::GitHub),
    ] {
        let (status, _, answer) = stand.deliver(&all[skipped..], &body).await;
        assert!(status < 300, "{answer}");
        assert_eq!(stand.status().await.last.unwrap().provider, provider);
    }
    let mut spoiled = all;
    spoiled[2].1 = mac(OTHER, &body);
    assert_eq!(stand.deliver(&spoiled, &body).await.0, 401, "no other signature comes to its rescue");
    spoiled.remove(2);
    assert_eq!(stand.deliver(&spoiled, &body).await.0, 401, "nor when it is left out");
}

#[tokio::test]
async fn algorithm_is_configured_and_not_taken_from_a_header() {
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let sha1 = hex(&hmac_of("sha1", &hex(SECRET.as_bytes()), body.as_bytes()));
    let sha512 = hex(&hmac_of("sha512", &hex(SECRET.as_bytes()), body.as_bytes()));
    let sha256 = mac(SECRET, &body);
    for (provider, header, value) in [
        ("github", "X-Hub-Signature-256", format!("sha1={sha1}")),
        ("github", "X-Hub-Signature", format!("sha1={sha1}")),
        ("github", "X-Hub-Signature-256", sha256.clone()),
        ("github", "X-Hub-Signature-256", "sha256=".to_owned()),
        ("github", "X-Hub-Signature-256", format!("sha256={}", &sha256[..62])),
        ("github", "X-Hub-Signature-256", format!("sha256={sha256}00")),
        ("github", "X-Hub-Signature-256", "sha256=zz".to_owned()),
        ("bitbucket", "X-Hub-Signature", format!("sha1={sha1}")),
        ("hmac-sha256", "X-Signature", format!("sha512={sha512}")),
        ("hmac-sha256", "X-Signature", format!("sha1={sha1}")),
        ("hmac-sha512", "X-Signature", format!("sha256={sha256}")),
        ("hmac-sha512", "X-Signature", format!("sha512={sha256}")),
        ("gitea", "X-Gitea-Signature", format!("sha256={sha256}")),
        ("gitlab", "X-Gitlab-Token", String::new()),
        ("azure-devops", "Authorization", format!("Bearer {SECRET}")),
    ] {
        let stand = Stand::new(provider, SECRET).await;
        let event = [("X-GitHub-Event", "push".to_owned()), (header, value.clone())];
        let (status, _, answer) = stand.deliver(&event, &body).await;
        assert_eq!(status, 401, "{provider} {header}: {value}: {answer}");
    }
    // A header twice is none: a proxy might have looked at the other.
    let stand = Stand::new("github", SECRET).await;
    let mut twice = github(SECRET, "one", &body);
    twice.push(("X-Hub-Signature-256", format!("sha256={}", mac(OTHER, &body))));
    assert_eq!(stand.deliver(&twice, &body).await.0, 401);
}

#[tokio::test]
async fn signature_of_another_time_is_refused() {
    let secret = whsec();
    for provider in ["standard-webhooks", "gitlab"] {
        let stand = Stand::new(provider, &secret).await;
        for (time, expected) in [(-301, 401), (301, 401), (-299, 202), (299, 202), (-1_767_225_600, 401)] {
            let time = (NOW.0 / 1000).checked_add_signed(time).unwrap();
            let body = gitlab_payload("refs/heads/main", AFTER).to_string();
            let mut headers = standard(&secret, &format!("at-{time}"), time, &body);
            headers.push(("X-Gitlab-Event", "Push Hook".into()));
            let (status, _, answer) = stand.deliver(&headers, &body).await;
            assert_eq!(status, expected, "{provider} at {time}: {answer}");
        }
    }
}

#[tokio::test]
async fn both_secrets_and_paths_work_during_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let previous = directory.path().join("previous");
    fs::write(&previous, OTHER).unwrap();
    let more = json!({ "previousSecretFile": previous });
    let stand = Stand::with("github", SECRET, more, Access::loopback()).await;
    let old = Stand::new("github", OTHER).await;
    assert_ne!(stand.path, old.path);
    let body = github_payload("refs/heads/main", AFTER).to_string();
    for path in [&stand.path, &old.path] {
        for secret in [SECRET, OTHER] {
            let headers = github(secret, "one", &body);
            let (status, _, answer) = stand.request("POST", path, &headers, body.as_bytes()).await;
            assert!(status < 300, "{answer}");
        }
    }
    assert_eq!(stand.deliver(&github("a third one 0123456789 0123456789 x", "1", &body), &body).await.0, 401);
}

#[tokio::test]
async fn a_secret_that_is_changed_or_lost_counts_at_the_next_look() {
    let stand =
        Stand::with("github", SECRET, json!({ "id": "a-path-that-stays-the-same" }), Access::loopback())
            .await;
    assert!(stand.path.ends_with("/hook/a-path-that-stays-the-same"), "{}", stand.path);
    let body = github_payload("refs/heads/main", AFTER).to_string();
    assert_eq!(stand.deliver(&github(SECRET, "one", &body), &body).await.0, 202);
    for (text, trouble) in
        [("too-short", "shorter than 32"), ("", "empty"), ("two\nlines of it", "several lines")]
    {
        fs::write(&stand.secret, text).unwrap();
        let status = stand.status().await;
        assert!(status.trouble.as_ref().is_some_and(|it| it.contains(trouble)), "{status:?}");
        assert_eq!(status.url, "");
        assert_eq!(stand.deliver(&github(SECRET, "two", &body), &body).await.0, 404, "it is off");
    }
    fs::write(&stand.secret, OTHER).unwrap();
    assert_eq!(stand.status().await.trouble, None);
    assert_eq!(stand.deliver(&github(SECRET, "three", &body), &body).await.0, 401);
    assert_eq!(stand.deliver(&github(OTHER, "four", &body), &body).await.0, 202);
}

#[tokio::test]
async fn only_one_method_and_path_is_served() {
    let stand = Stand::new("github", SECRET).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let headers = github(SECRET, "one", &body);
    for method in ["GET", "PUT", "DELETE"] {
        let (status, _, body) = stand.request(method, &stand.path, &headers, b"").await;
        assert_eq!(status, 405, "{method}");
        assert!(body.to_string().contains("driftless webhook test"), "{method}: {body}");
    }
    for path in
        ["/hook/x", "/hook/%ff", "/hook/..%2f", &format!("{}0", stand.path), &stand.path.to_uppercase()]
    {
        let (status, ..) = stand.request("POST", path, &headers, body.as_bytes()).await;
        assert!(status == 404 || status == 401, "{path}: {status}");
        assert_ne!(status, 202);
    }
    assert_eq!(stand.deliveries(), 0);
}

#[tokio::test]
async fn the_token_of_the_api_is_neither_needed_nor_enough() {
    let access = Access::token(Token::new(TOKEN).unwrap());
    let stand = Stand::with("github", SECRET, json!({}), access).await;
    assert_eq!(stand.request("GET", "/api/v1/webhooks", &[], b"").await.0, 401);
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let mut headers = github(SECRET, "one", &body);
    // As a forge calls it: by a name that is not loopback's, and from another origin.
    headers.push(("origin", "https://git.example.com".into()));
    let (status, _, answer) = stand.deliver(&headers, &body).await;
    assert_eq!(status, 202, "{answer}");
    let token = [("authorization", format!("Bearer {TOKEN}")), ("X-GitHub-Event", "push".into())];
    assert_eq!(stand.deliver(&token, &body).await.0, 401);
}

#[tokio::test]
async fn invalid_payload_is_refused_and_named() {
    let stand = Stand::new("github", SECRET).await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(20_000), "}".repeat(20_000));
    let long = json!({ "ref": "x".repeat(5000) }).to_string();
    for (body, expected) in [
        ("{", 400),
        ("[]", 400),
        ("null", 400),
        (r#"{"ref": 5}"#, 400),
        (r#"{"ref": "a", "ref": "b"}"#, 400),
        // Skipped without following it down.
        (deep.as_str(), 202),
        (long.as_str(), 400),
        ("\u{0}", 400),
        ("{}", 200),
    ] {
        let (status, _, answer) = stand.deliver(&github(SECRET, "one", body), body).await;
        assert_eq!(status, expected, "{}: {answer}", &body[..body.len().min(60)]);
    }
    let form = "payload=%7B%7D";
    let mut headers = github(SECRET, "one", form);
    headers.push(("content-type", "application/x-www-form-urlencoded".into()));
    let (status, _, answer) = stand.deliver(&headers, form).await;
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("application/json"), "{answer}");
    let mut zipped = github(SECRET, "one", "{}");
    zipped.push(("content-encoding", "gzip".into()));
    assert_eq!(stand.deliver(&zipped, "{}").await.0, 415);
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_before_they_are_read() {
    let stand = Stand::new("github", SECRET).await;
    let head = format!("POST {} HTTP/1.1\r\nhost: a\r\n", stand.path);
    // Announced: not a byte of it is waited for.
    let mut socket = TcpStream::connect(stand.address).await.unwrap();
    socket.write_all(format!("{head}content-length: 104857600\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(answer(&mut socket).await.0, 413);
    // Not announced: it ends where there is too much.
    let mut socket = TcpStream::connect(stand.address).await.unwrap();
    socket.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
    let chunk =
        [format!("{:x}\r\n", 64 * 1024).into_bytes(), vec![b'x'; 64 * 1024], b"\r\n".to_vec()].concat();
    let mut sent = 0;
    while sent < 100 * 1024 * 1024 && socket.write_all(&chunk).await.is_ok() {
        sent += 64 * 1024;
    }
    assert!(sent < 20 * 1024 * 1024, "{sent} bytes were taken");
    assert_eq!(stand.deliveries(), 0);
    let refused = stand.status().await.last_refused.unwrap();
    assert!(refused.message.starts_with("413"), "{refused:?}");
    // Headers without end are none either.
    let mut socket = TcpStream::connect(stand.address).await.unwrap();
    let _ = socket.write_all(format!("{head}x: {}\r\n\r\n", "x".repeat(200 * 1024)).as_bytes()).await;
    let status = answer(&mut socket).await.0;
    assert!(status == 431 || status == 0, "{status}");
}

#[tokio::test]
async fn a_payload_that_ends_too_early_counts_for_nothing() {
    let stand = Stand::new("github", SECRET).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let mut text = format!("POST {} HTTP/1.1\r\nhost: a\r\n", stand.path);
    for (name, value) in github(SECRET, "one", &body) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{}", body.len(), &body[..200]));
    let mut socket = TcpStream::connect(stand.address).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let (status, ..) = answer(&mut socket).await;
    assert!(status == 400 || status == 0, "{status}");
    assert_eq!(stand.deliveries(), 0);
    assert_eq!(stand.deliver(&github(SECRET, "one", &body), &body).await.0, 202, "it may come again, whole");
}

#[tokio::test]
async fn slow_payload_is_not_waited_for() {
    let stand = Stand::new("github", SECRET).await;
    let mut socket = TcpStream::connect(stand.address).await.unwrap();
    let text = format!("POST {} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nx", stand.path);
    socket.write_all(text.as_bytes()).await.unwrap();
    // Paused time jumps to the limit as soon as nobody has anything else to do.
    tokio::time::pause();
    assert_eq!(answer(&mut socket).await.0, 408);
}

#[tokio::test]
async fn idle_connections_do_not_lock_a_forge_out() {
    let stand = Stand::new("github", SECRET).await;
    let mut idlers = Vec::new();
    for _ in 0..400 {
        let mut socket = TcpStream::connect(stand.address).await.unwrap();
        socket.write_all(format!("POST {} HTTP/1.1\r\nhost: a", stand.path).as_bytes()).await.unwrap();
        idlers.push(socket);
    }
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let headers = github(SECRET, "one", &body);
    let delivered = tokio::time::timeout(Duration::from_secs(60), stand.deliver(&headers, &body));
    assert_eq!(delivered.await.expect("it is answered while they are there").0, 202);
    drop(idlers);
}

#[tokio::test]
async fn too_many_deliveries_are_refused_with_retry_after() {
    let stand = Stand::new("github", SECRET).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let mut text = format!("POST {} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n", stand.path);
    for (name, value) in github(SECRET, "one", &body) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    let began = tokio::time::Instant::now();
    let mut statuses = Vec::new();
    let mut last = String::new();
    for _ in 0..300 {
        let mut socket = TcpStream::connect(stand.address).await.unwrap();
        socket.write_all(text.as_bytes()).await.unwrap();
        let (status, head, _) = answer(&mut socket).await;
        statuses.push(status);
        if status == 429 {
            last = head;
        }
    }
    let taken = statuses.iter().filter(|it| **it < 300).count();
    // The buffered bytes, and those received since.
    let most = 60 + usize::try_from(began.elapsed().as_secs()).unwrap() * 5 + 5;
    assert!((60..=most).contains(&taken), "{taken} of at most {most}");
    assert!(statuses.iter().all(|it| [200, 202, 429].contains(it)), "{statuses:?}");
    assert!(last.contains("retry-after: 1"), "{last}");
    assert_eq!(stand.deliveries(), 1, "they were all the same");
}

#[tokio::test]
async fn unsigned_deliveries_do_not_lock_signed_ones_out() {
    let stand = Stand::new("github", SECRET).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    let request = |secret: &str, body: &str| {
        let mut text =
            format!("POST {} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n", stand.path);
        for (name, value) in github(secret, "one", body) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        text
    };
    let deliver_unsigned = async || {
        let mut socket = TcpStream::connect(stand.address).await.unwrap();
        socket.write_all(request("another secret of 32 characters!", &body).as_bytes()).await.unwrap();
        assert_eq!(answer(&mut socket).await.0, 401);
    };
    for _ in 0..120 {
        deliver_unsigned().await;
    }
    // A large payload is not even read. One more is allowed each second, so a busy machine may let some in.
    let head = request("x", "").replace("content-length: 0", "content-length: 1000000");
    let mut larges = Vec::new();
    for _ in 0..10 {
        deliver_unsigned().await;
        let mut socket = TcpStream::connect(stand.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        larges.push(socket);
    }
    let mut statuses = Vec::new();
    for large in &mut larges {
        statuses.push(answer(large).await.0);
    }
    assert!(statuses.contains(&429), "{statuses:?}");

    let mut socket = TcpStream::connect(stand.address).await.unwrap();
    socket.write_all(request(SECRET, &body).as_bytes()).await.unwrap();
    assert_eq!(answer(&mut socket).await.0, 202);
    assert_eq!(stand.deliveries(), 1);
}

#[tokio::test]
async fn accepted_delivery_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let state = StateDir::lock(directory.path()).unwrap();
        let store = Store::open(&state, Clock::System).unwrap().store;
        (state, store)
    };
    let (state, store) = open();
    let delivery = Delivery {
        id: "one".into(),
        at: NOW,
        provider: WebhookProvider::Gitea,
        event: "push".into(),
        reference: Some("refs/heads/main".into()),
        commit: Some(CommitId::from_stored(AFTER)),
        maybe_other_branch: false,
        from: "192.0.2.1".into(),
        result: DeliveryResult::Accepted,
        message: String::new(),
        outcome: None,
    };
    store.accept_delivery("infra", &delivery).unwrap();
    drop((store, state));
    let (_state, store) = open();
    assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
    assert_eq!(store.last_delivery("infra").unwrap(), Some(delivery));
}

#[tokio::test]
async fn unwritable_database_is_reported_to_the_forge() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, Clock::System).unwrap().store;
    let agent = sample::Agent { store, ..agent([]) };
    let stand = Stand::on(agent, "github", SECRET, json!({}), Access::loopback()).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    assert_eq!(stand.deliver(&github(SECRET, "zero", &body), &body).await.0, 202);
    rusqlite::Connection::open(state.database())
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON deliveries BEGIN SELECT RAISE(ABORT, 'full'); END",
        )
        .unwrap();
    let (status, head, answer) = stand.deliver(&github(SECRET, "one", &body), &body).await;
    assert_eq!(status, 503, "{answer}");
    assert!(head.contains("retry-after"), "{head}");
    assert!(stand.status().await.last_refused.unwrap().message.starts_with("503"));
}

#[tokio::test]
async fn status_and_page_show_deliveries_without_secrets() {
    let stand = Stand::new("github", SECRET).await;
    let body = github_payload("refs/heads/main", AFTER).to_string();
    stand.deliver(&github(SECRET, "delivery-<b>", &body), &body).await;
    stand.deliver(&github(OTHER, "two", &body), &body).await;
    let missed = Missed { commit: CommitId::from_stored("c".repeat(40)), at: NOW };
    stand.store.set_missed("infra", Some(&missed)).unwrap();
    let status = stand.status().await;
    assert_eq!(status.pending, 1);
    assert_eq!(status.reference, "refs/heads/main");
    assert_eq!(status.last.as_ref().unwrap().id, "delivery-<b>");
    assert!(status.last_refused.as_ref().unwrap().message.starts_with("401"), "{status:?}");
    assert_eq!(status.missed, Some(missed));
    let (_, _, raw) = stand.request("GET", "/api/v1/webhooks", &[], b"").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = client.get(format!("http://localhost:{}/repositories/infra", stand.address.port()));
    let page = page.send().await.unwrap().text().await.unwrap();
    for text in [raw.to_string(), page.clone()] {
        assert!(!text.contains(SECRET) && !text.contains(OTHER), "{text}");
    }
    for shown in
        ["<h2>Webhook</h2>", "refs/heads/main", "fetching", "delivery-&lt;b&gt;", "WebhookMissed", "401: "]
    {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains(&stand.path), "the page does not show the path");
}

/// Runs the program against a stand.
async fn driftless(stand: &Stand, words: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(words).arg("--server").arg(format!("http://{}", stand.address)).env("NO_COLOR", "1");
    let output = command.output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn printed_test_commands_work_and_contain_no_secret() {
    for forge in forges() {
        // The printed command signs at the time of day.
        let stand = Stand::new(forge.provider, &forge.secret).await;
        let (code, text) = driftless(&stand, &["webhook", "url", "infra"]).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with(&format!("http://{}{}\n", stand.address, stand.path)), "{text}");
        assert!(!text.contains(&forge.secret), "{text}");
        let script = text.split("from the agent's machine:\n\n").nth(1).unwrap();
        let script = script.replace("$(date +%s)", &(NOW.0 / 1000).to_string());
        let output = tokio::process::Command::new("sh").arg("-c").arg(&script).output().await.unwrap();
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(answer.contains(r#""result":"accepted""#), "{}: {answer}{stderr}\n{script}", forge.provider);
    }
}

#[tokio::test]
async fn webhook_test_signs_for_each_forge() {
    for forge in forges().into_iter().filter(|it| it.provider != "standard-webhooks") {
        if forge.secret.starts_with("whsec_") {
            continue; // The stand's clock stands still; the end-to-end test has a real one.
        }
        let stand = Stand::new(forge.provider, &forge.secret).await;
        let store = stand.store.clone();
        let fetching = tokio::spawn(async move {
            loop {
                if let Some(place) = store.newest_open_delivery("infra").unwrap() {
                    let outcome = DeliveryOutcome { at: NOW, message: "nothing new, still at abc".into() };
                    return store
                        .set_delivery_outcome("infra", place, &outcome, DeliveryState::Closed)
                        .unwrap();
                }
                tokio::task::yield_now().await;
            }
        });
        let (code, text) = driftless(&stand, &["webhook", "test", "infra"]).await;
        assert_eq!(code, Some(0), "{}: {text}", forge.provider);
        assert!(text.contains("202") && text.contains("nothing new, still at abc"), "{text}");
        assert!(!text.contains(&forge.secret), "{text}");
        fetching.await.unwrap();
    }
    let stand = Stand::new("github", SECRET).await;
    let wrong = stand.secret.with_extension("wrong");
    fs::write(&wrong, OTHER).unwrap();
    let wrong = wrong.to_str().unwrap();
    let (code, text) = driftless(&stand, &["webhook", "test", "infra", "--secret-file", wrong]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("401"), "{text}");
    let (code, text) = driftless(&stand, &["webhook", "test", "nothing"]).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("has no webhook"), "{text}");
}

fn some_headers() -> impl Strategy<Value = HeaderMap> {
    let names = prop::sample::select(vec![
        "x-github-event",
        "x-hub-signature-256",
        "x-hub-signature",
        "x-gitlab-event",
        "x-gitlab-token",
        "x-gitea-event",
        "x-gitea-signature",
        "x-forgejo-event",
        "x-forgejo-signature",
        "x-gogs-event",
        "x-gogs-signature",
        "x-event-key",
        "x-signature",
        "authorization",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "content-type",
        "x-github-delivery",
    ]);
    let values = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::sample::select(vec![
            "push",
            "repo:push",
            "repo:refs_changed",
            "Push Hook",
            "System Hook",
            "sha256=00",
            "sha512=",
            "v1,",
            "v1,AAAA v1,=",
            "Basic Og==",
            "Basic",
            "99999999999999999999999",
            "-1",
            "application/json",
        ])
        .prop_map(|it| it.as_bytes().to_vec()),
    ];
    prop::collection::vec((names, values), 0..8).prop_map(|pairs| {
        let pairs = pairs.into_iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_bytes(&value).ok()?))
        });
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    })
}

/// Nonsense, and payloads of forges with bytes changed, cut out or doubled.
fn some_body() -> impl Strategy<Value = Vec<u8>> {
    let payloads: Vec<Vec<u8>> =
        forges().iter().map(|it| (it.payload)("refs/heads/main", AFTER).to_string().into_bytes()).collect();
    let spoiled = (
        prop::sample::select(payloads),
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<u8>(),
    );
    let spoiled = spoiled.prop_map(|(mut body, at, to, byte)| {
        let (at, to) = (at.index(body.len()), to.index(body.len()));
        match byte % 4 {
            0 => body[at] = byte,
            1 => drop(body.drain(at.min(to)..at.max(to))),
            2 => {
                let part = body[at.min(to)..at.max(to)].to_vec();
                body.splice(at..at, part);
            }
            _ => body.truncate(at),
        }
        body
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..400), spoiled]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_request_is_refused_or_read_without_harm(headers in some_headers(), body in some_body()) {
        let settings = format!("repositories:\n- url: {URL}\n");
        let repository = &Settings::parse("a", &settings).unwrap().repositories[0];
        for (_, provider) in WebhookProvider::ALL {
            let secret = if provider == WebhookProvider::StandardWebhooks { whsec() } else { SECRET.to_owned() };
            let keys = [webhook::Key::new(provider, &secret).unwrap_or_else(|it| panic!("{it}"))];
            prop_assert!(webhook::verify(provider, &keys, &headers, &body, NOW).is_err());
            if let Ok((notice, id)) = webhook::read(provider, &headers, &body) {
                let _ = webhook::judge(&notice, repository);
                prop_assert!(id.is_none_or(|it| it.len() <= 200));
            }
        }
    }

    #[test]
    fn any_secret_is_accepted_or_refused(secret in any::<String>(), body in some_body()) {
        for (_, provider) in WebhookProvider::ALL {
            if let Ok(key) = webhook::Key::new(provider, &secret) {
                let keys = [key];
                let verdict = webhook::verify(provider, &keys, &HeaderMap::new(), &body, Timestamp(0));
                prop_assert!(verdict.is_err());
            }
        }
    }

    #[test]
    fn no_name_of_a_repository_does_harm(one in any::<String>(), two in any::<String>()) {
        let _ = (webhook::Origin::of(&one), webhook::Origin::path(&two));
    }
}
