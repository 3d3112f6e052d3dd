//! A server of objects in memory, for tests: a bucket of S3 below `/bucket`, and a WebDAV folder below `/dav`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    response::Response,
};
use driftless_clock::Clock;
use driftless_model::{Timestamp, digest_hex};
use http::{HeaderMap, StatusCode, header};
use tokio::net::TcpListener;

/// The id of the key that the bucket accepts.
pub(crate) const KEY_ID: &str = "FLEETKEY";

/// The name and password that the folder accepts, as a browser sends them: `me:hush`.
const LOGIN: &str = "Basic bWU6aHVzaA==";

struct Kept {
    body: Vec<u8>,
    modified: Timestamp,
}

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Kept>,
    /// Objects that are listed and not given.
    refused: BTreeSet<String>,
    has_folder: bool,
    /// The server's clock is ahead by this.
    ahead: Duration,
    /// Requests that were not answered with an error, by method.
    requests: BTreeMap<String, usize>,
    is_down: bool,
    has_no_conditions: bool,
    /// The answers of a bucket to a key with fewer rights.
    rights: Rights,
}

/// The rights of the key of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rights {
    #[default]
    All,
    /// It may not list, so that nobody learns with it which objects are missing.
    ReadAndWrite,
    WriteOnly,
}

/// A running server. Its folder is missing at first.
#[derive(Clone)]
pub(crate) struct ObjectServer {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    contents: Arc<Mutex<Contents>>,
}

impl ObjectServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, contents: Arc::default() };
        let own = server.clone();
        let router = Router::new().fallback(move |request: Request| {
            let own = own.clone();
            async move { own.answer(request).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.contents.lock().unwrap().ahead += time;
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.contents.lock().unwrap().is_down = is_down;
    }

    /// From now on this object may not be read, as one that another account has encrypted.
    pub(crate) fn refuse(&self, name: &str) {
        self.contents.lock().unwrap().refused.insert(name.to_owned());
    }

    pub(crate) fn forget_conditions(&self) {
        self.contents.lock().unwrap().has_no_conditions = true;
    }

    pub(crate) fn restrict(&self, rights: Rights) {
        self.contents.lock().unwrap().rights = rights;
    }

    /// The names of the objects, with `bucket/` or `dav/`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.contents.lock().unwrap().objects.keys().cloned().collect()
    }

    pub(crate) fn body(&self, name: &str) -> Vec<u8> {
        self.contents.lock().unwrap().objects[name].body.clone()
    }

    pub(crate) fn set(&self, name: &str, body: &[u8]) {
        let mut contents = self.contents.lock().unwrap();
        let modified = Clock::System.now().after(contents.ahead);
        contents.objects.insert(name.to_owned(), Kept { body: body.to_vec(), modified });
    }

    pub(crate) fn requests(&self, method: &str) -> usize {
        self.contents.lock().unwrap().requests.get(method).copied().unwrap_or_default()
    }

    async fn answer(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap().to_vec();
        let mut contents = self.contents.lock().unwrap();
        let now = Clock::System.now().after(contents.ahead);
        let method = parts.method.as_str();
        let path = parts.uri.path().trim_start_matches('/').to_owned();
        let (status, headers, answer) = if contents.is_down {
            (StatusCode::BAD_GATEWAY, Vec::new(), "down".to_owned().into_bytes())
        } else {
            *contents.requests.entry(method.to_owned()).or_default() += 1;
            respond(&mut contents, method, &path, parts.uri.query(), &parts.headers, body, now)
        };
        let mut response = Response::builder().status(status).header(header::DATE, http_date(now));
        for (name, value) in headers {
            response = response.header(name, value);
        }
        response.body(Body::from(answer)).unwrap()
    }
}

/// `Mon, 23 Nov 2026 18:00:00 GMT`, rounded down to a second.
fn http_date(at: Timestamp) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap();
    let parts: Vec<usize> = date.split('-').map(|part| part.parse().unwrap()).collect();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // 1970-01-01 was a Thursday.
    let day =
        ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][usize::try_from(at.0 / 86_400_000 % 7).unwrap()];
    format!("{day}, {:02} {} {} {} GMT", parts[2], months[parts[1] - 1], parts[0], &time[..8])
}

type Answer = (StatusCode, Vec<(header::HeaderName, String)>, Vec<u8>);

fn respond(
    contents: &mut Contents,
    method: &str,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Vec<u8>,
    now: Timestamp,
) -> Answer {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let plain = |status, text: &str| (status, Vec::new(), text.to_owned().into_bytes());
    let is_bucket = path.starts_with("bucket");
    let authorization = header("authorization").unwrap_or_default();
    if is_bucket {
        let stamp = header("x-amz-date").unwrap_or_default();
        let expected: String = now.to_string().chars().filter(char::is_ascii_alphanumeric).take(13).collect();
        if !authorization.starts_with(&format!("AWS4-HMAC-SHA256 Credential={KEY_ID}/")) {
            return plain(
                StatusCode::FORBIDDEN,
                "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>",
            );
        }
        // As a server that accepts only its own minute.
        if stamp.get(..11) != expected.get(..11) {
            return plain(
                StatusCode::FORBIDDEN,
                "<Error><Code>RequestTimeTooSkewed</Code><Message>wrong clock</Message></Error>",
            );
        }
        assert_eq!(header("x-amz-content-sha256").unwrap(), digest_hex(&body));
    } else if authorization != LOGIN {
        return plain(StatusCode::UNAUTHORIZED, "");
    }
    let tag = |kept: &Kept| format!("\"{}\"", &digest_hex(&kept.body)[..16]);
    let is_hidden = match contents.rights {
        Rights::All => false,
        Rights::ReadAndWrite => !contents.objects.contains_key(path),
        Rights::WriteOnly => true,
    };
    match method {
        "GET" if contents.refused.contains(path) => plain(StatusCode::FORBIDDEN, ""),
        "GET" if is_bucket && is_hidden => plain(
            StatusCode::FORBIDDEN,
            "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
        ),
        "PUT" if !is_bucket && !contents.has_folder => plain(StatusCode::CONFLICT, ""),
        "PUT" => {
            let known = contents.objects.get(path).map(tag);
            let is_met = match (header("if-match"), header("if-none-match")) {
                _ if contents.has_no_conditions => true,
                (Some(wanted), _) => known.as_ref() == Some(&wanted),
                (None, Some(_)) => known.is_none(),
                (None, None) => true,
            };
            if !is_met {
                return plain(StatusCode::PRECONDITION_FAILED, "");
            }
            let kept = Kept { body, modified: now };
            let headers = vec![(header::ETAG, tag(&kept))];
            contents.objects.insert(path.to_owned(), kept);
            (StatusCode::OK, headers, Vec::new())
        }
        "GET" if is_bucket && path.trim_end_matches('/') == "bucket" => {
            let query = query.unwrap_or_default();
            assert!(query.starts_with("delimiter=%2F&list-type=2&prefix="), "{query}");
            let prefix = query.rsplit('=').next().unwrap().replace("%2F", "/");
            let entries = contents.objects.iter().filter_map(|(name, kept)| {
                let key = name.strip_prefix("bucket/").filter(|key| key.starts_with(&prefix))?;
                let (tag, modified) = (tag(kept).replace('"', "&quot;"), kept.modified);
                Some(format!("<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{tag}</ETag></Contents>"))
            });
            plain(
                StatusCode::OK,
                &format!("<ListBucketResult>{}</ListBucketResult>", entries.collect::<String>()),
            )
        }
        "GET" => match contents.objects.get(path) {
            Some(kept) => {
                let times =
                    vec![(header::ETAG, tag(kept)), (header::LAST_MODIFIED, http_date(kept.modified))];
                (StatusCode::OK, times, kept.body.clone())
            }
            None => plain(StatusCode::NOT_FOUND, ""),
        },
        "MKCOL" => {
            contents.has_folder = true;
            plain(StatusCode::CREATED, "")
        }
        "PROPFIND" if !contents.has_folder => plain(StatusCode::NOT_FOUND, ""),
        "PROPFIND" => {
            let entries = contents.objects.iter().filter(|(name, _)| name.starts_with("dav/")).map(|(name, kept)| {
                let (tag, modified) = (tag(kept), http_date(kept.modified));
                format!("<d:response><d:href>/{name}</d:href><d:propstat><d:prop><d:getetag>{tag}</d:getetag><d:getlastmodified>{modified}</d:getlastmodified></d:prop></d:propstat></d:response>")
            });
            let folder = "<d:response><d:href>/dav/</d:href></d:response>";
            let list = format!(
                "<d:multistatus xmlns:d='DAV:'>{folder}{}</d:multistatus>",
                entries.collect::<String>()
            );
            plain(StatusCode::MULTI_STATUS, &list)
        }
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
    }
}
