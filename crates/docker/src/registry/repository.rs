//! A repository of a registry: its manifests, blobs, tags and signatures, with the login that the registry asks for.
//!
//! Source: the OCI distribution specification. A tag is asked for by `HEAD`, which Docker Hub does not count as a pull.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use driftless_model::{Platform, TagRule, digest_hex};
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{self, HeaderMap, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    authorization::Challenge,
    error::RegistryError,
    known_manifests::KnownManifests,
    manifest::{ACCEPTED, Manifest},
    signature::{BUNDLE, KeyFile, MOST, Referrers, SIMPLE_SIGNING, SignatureManifest, Signed, check},
};
use crate::registry_login::Login;

/// The largest manifest, list of tags or token, in bytes.
const LARGEST: usize = 4 << 20;

/// A list of tags is not read further after this many.
const MOST_TAGS: usize = 100_000;

/// The most pages of a list of tags. A page has up to 1000, and on some registries only 100.
const MOST_PAGES: usize = 1000;

/// The longest wait that a registry may ask for.
const LONGEST_WAIT: Duration = Duration::from_hours(6);

/// The media type of the answer about the manifests that refer to another one.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The scheme of a header with a token.
const BEARER: &str = "Bearer ";

/// The words of rustls for a refusal by the server. One about a certificate means that of the client.
const ALERT: &str = "received fatal alert";

/// A repository of a registry, and who asks.
pub(super) struct Repository<'a> {
    pub(super) client: Client,
    /// The host as references name it.
    pub(super) host: &'a str,
    /// `https://registry-1.docker.io`.
    pub(super) base: String,
    pub(super) name: &'a str,
    pub(super) login: Option<Login>,
    /// The header that the registry has accepted.
    pub(super) authorization: Option<String>,
}

impl Repository<'_> {
    /// The digest that a tag names.
    pub(super) async fn digest(&mut self, tag: &str) -> Result<String, RegistryError> {
        let path = format!("manifests/{tag}");
        let response = self.send(&Method::HEAD, &path).await?;
        let given = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        if let Some(digest) = given {
            return if is_digest(digest) {
                Ok(digest.to_owned())
            } else {
                Err(invalid(self.host, "its digest is none"))
            };
        }
        // A registry may leave the header out.
        let body = self.get(&path).await?;
        Ok(format!("sha256:{}", digest_hex(&body)))
    }

    /// The images that a digest stands for, by platform and digest. `None`: the registry does not have it any more.
    pub(super) async fn images<'a>(
        &mut self,
        digest: &str,
        platforms: &'a [Platform],
        known: &mut KnownManifests,
    ) -> Result<Option<BTreeSet<(&'a Platform, String)>>, RegistryError> {
        if let Some(manifest) = known.get(self.name, digest) {
            return Ok(Some(manifest.images(digest, platforms)));
        }
        let body = match self.get(&format!("manifests/{digest}")).await {
            Ok(body) => body,
            Err(RegistryError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let wanted = digest.strip_prefix("sha256:");
        if wanted.is_some_and(|wanted| digest_hex(&body) != wanted) {
            return Err(invalid(self.host, "a manifest does not have the digest that it was asked by"));
        }
        let manifest: Manifest = serde_json::from_slice(&body)
            .map_err(|_| invalid(self.host, "a manifest is not JSON of the expected form"))?;
        let manifest = Arc::new(manifest);
        if wanted.is_some() {
            known.insert(self.name, digest, &manifest);
        }
        Ok(Some(manifest.images(digest, platforms)))
    }

    /// The signatures of a digest: those under its tag `.sig`, and the bundles that refer to it if those are not enough for the key
    /// files.
    pub(super) async fn signatures(
        &mut self,
        digest: &str,
        files: &[KeyFile],
    ) -> Result<Vec<Signed>, RegistryError> {
        let tag = digest.replace(':', "-");
        let (mut signed, mut refusal) = (Vec::new(), None);
        let older = self.find::<SignatureManifest>(&format!("manifests/{tag}.sig")).await;
        if let Some(manifest) = unless_forbidden(older, &mut refusal)? {
            for layer in manifest.layers.iter().filter(|layer| layer.media_type == SIMPLE_SIGNING).take(MOST)
            {
                match self.blob(&layer.digest).await {
                    Ok(payload) => signed.extend(Signed::of_layer(layer, payload, digest)),
                    Err(RegistryError::Invalid { .. } | RegistryError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if check(files, &signed, digest).is_ok() {
            return Ok(signed);
        }
        // A registry without referrers has an index under a tag instead.
        let referrers = match self.referrers(digest).await? {
            Some(referrers) => Some(referrers),
            None => unless_forbidden(self.find(&format!("manifests/{tag}")).await, &mut refusal)?,
        };
        let referrers = referrers.unwrap_or_default().manifests;
        for referrer in referrers.iter().filter(|referrer| referrer.may_sign()).take(MOST) {
            match self.bundle(&referrer.digest).await {
                Ok(bundle) => {
                    signed.extend(bundle.and_then(|bundle| Signed::of_bundle(&bundle, digest)));
                }
                // One that is too large or broken is no signature, and does not stand in the way of those that are.
                Err(RegistryError::Invalid { .. } | RegistryError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match refusal {
            // A bundle that the registry does not show may be the one that is missing.
            Some(error) if check(files, &signed, digest).is_err() => Err(error),
            Some(_) | None => Ok(signed),
        }
    }

    /// The manifests that refer to a digest. `None`: the registry does not have this question. Such registries give any answer: 400,
    /// 401, 404, 406, a page for people, or a redirect to another host, which may answer anything as well.
    async fn referrers(&mut self, digest: &str) -> Result<Option<Referrers>, RegistryError> {
        let response = match self.request(&Method::GET, &format!("referrers/{digest}")).await {
            Ok(response) => response,
            Err(RegistryError::Unauthorized(_) | RegistryError::Forbidden(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let is_answer = status.is_success() && kind.eq_ignore_ascii_case(INDEX);
        let is_own = Url::parse(&self.base).is_ok_and(|base| base.origin() == response.url().origin());
        // It has the question, and cannot answer it now.
        let is_failure = is_own && (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error());
        if !is_answer && !is_failure {
            return Ok(None);
        }
        let body = read(self.check(response)?, self.host).await?;
        self.parse(&body).map(Some)
    }

    /// The bundle of a manifest. `None`: it has none.
    async fn bundle(&mut self, manifest: &str) -> Result<Option<Vec<u8>>, RegistryError> {
        let manifest: Option<SignatureManifest> = self.find(&format!("manifests/{manifest}")).await?;
        let layers = manifest.map(|manifest| manifest.layers).unwrap_or_default();
        match layers.first().filter(|layer| layer.media_type.starts_with(BUNDLE)) {
            Some(layer) => self.blob(&layer.digest).await.map(Some),
            None => Ok(None),
        }
    }

    /// A JSON document. `None`: the registry does not have it.
    async fn find<T: DeserializeOwned>(&mut self, path: &str) -> Result<Option<T>, RegistryError> {
        let body = match self.get(path).await {
            Ok(body) => body,
            Err(RegistryError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.parse(&body).map(Some)
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, RegistryError> {
        let parsed = serde_json::from_slice(body);
        parsed.map_err(|_| invalid(self.host, "a manifest is not JSON of the expected form"))
    }

    /// A blob, with the digest that it is asked by.
    async fn blob(&mut self, digest: &str) -> Result<Vec<u8>, RegistryError> {
        if !is_digest(digest) {
            return Err(invalid(self.host, "the digest of a layer is none"));
        }
        let body = self.get(&format!("blobs/{digest}")).await?;
        let is_altered = digest.strip_prefix("sha256:").is_some_and(|wanted| digest_hex(&body) != wanted);
        if is_altered {
            return Err(invalid(self.host, "a blob does not have the digest that it was asked by"));
        }
        Ok(body)
    }

    /// The newest tag that a rule follows.
    pub(super) async fn newest_tag(
        &mut self,
        current: Option<&str>,
        rule: &TagRule,
        image: &str,
    ) -> Result<String, RegistryError> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let (mut newest, mut count): (Option<String>, usize) = (None, 0);
        let mut path = "tags/list?n=1000".to_owned();
        for _ in 0..MOST_PAGES {
            let response = self.send(&Method::GET, &path).await?;
            let next = response.headers().get(header::LINK).and_then(|value| value.to_str().ok());
            let next = next.and_then(next_page);
            let page: Page = serde_json::from_slice(&read(response, self.host).await?)
                .map_err(|_| invalid(self.host, "its list of tags is not JSON of the expected form"))?;
            let tags = page.tags.unwrap_or_default();
            let known = newest.iter().chain(&tags).map(String::as_str);
            newest = rule.newest(current, known).map(str::to_owned);
            count = count.saturating_add(tags.len());
            let Some(query) = next else {
                let range = rule.range.to_string();
                return newest.ok_or_else(|| RegistryError::NoTag { image: image.to_owned(), range });
            };
            if count >= MOST_TAGS {
                break;
            }
            path = format!("tags/list?{query}");
        }
        // The newest one may be among the others.
        Err(invalid(self.host, format!("the list of tags goes on after {count} of them")))
    }

    async fn get(&mut self, path: &str) -> Result<Vec<u8>, RegistryError> {
        let response = self.send(&Method::GET, path).await?;
        read(response, self.host).await
    }

    /// Sends a request. An answer that is no success is an error.
    async fn send(&mut self, method: &Method, path: &str) -> Result<Response, RegistryError> {
        let response = self.request(method, path).await?;
        self.check(response)
    }

    /// Sends a request, with the login if the registry asks for one.
    async fn request(&mut self, method: &Method, path: &str) -> Result<Response, RegistryError> {
        let url = format!("{}/v2/{}/{path}", self.base, self.name);
        let request = || self.client.request(method.clone(), &url).header(header::ACCEPT, ACCEPTED);
        let authorized = match &self.authorization {
            Some(value) => request().header(header::AUTHORIZATION, value),
            None => request(),
        };
        let mut response = self.answer(authorized).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            let value = self.authorize(&response).await?;
            response = self.answer(request().header(header::AUTHORIZATION, &value)).await?;
            self.authorization = Some(value);
        }
        Ok(response)
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        request.send().await.map_err(|error| broken(self.host, &error))
    }

    fn check(&self, response: Response) -> Result<Response, RegistryError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let host = self.host.to_owned();
        Err(match status {
            StatusCode::UNAUTHORIZED => RegistryError::Unauthorized(self.login_advice()),
            StatusCode::FORBIDDEN if self.login.is_none() => RegistryError::Forbidden(self.login_advice()),
            StatusCode::FORBIDDEN => {
                RegistryError::Forbidden(format!("the login for {host} may not read this image"))
            }
            StatusCode::NOT_FOUND => RegistryError::NotFound(host),
            StatusCode::TOO_MANY_REQUESTS => {
                RegistryError::TooManyRequests { retry_after: retry_after(response.headers()), host }
            }
            status if status.is_server_error() => {
                RegistryError::Unreachable { host, problem: format!("it answered {status}") }
            }
            status => RegistryError::Invalid { host, problem: format!("it answered {status}") },
        })
    }

    fn login_advice(&self) -> String {
        let host = self.host;
        // A registry gives a token for the login, also if that may not read the image.
        let has_token = self.authorization.as_ref().is_some_and(|value| value.starts_with(BEARER));
        if self.login.is_some() && has_token {
            format!("{host} has no such image, or the login may not read it")
        } else if self.login.is_some() {
            format!("{host} refuses the login")
        } else {
            format!(
                "{host} has no such image, or wants a login: add one under `registries` in the configuration"
            )
        }
    }

    /// The header that answers a challenge.
    async fn authorize(&self, response: &Response) -> Result<String, RegistryError> {
        let basic = self.basic();
        // A registry may offer both. Only a token can do without a password.
        let is_usable = |challenge: &Challenge| basic.is_some() || !matches!(challenge, Challenge::Basic);
        let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
        let challenges = challenges.filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(Challenge::parse).find(is_usable);
        match challenge {
            Some(Challenge::Basic) => basic.ok_or_else(|| RegistryError::Unauthorized(self.login_advice())),
            Some(Challenge::Bearer { realm, service, scope }) => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.name));
                let token = self.token(&realm, service.as_deref(), &scope).await?;
                Ok(format!("{BEARER}{token}"))
            }
            None => Err(RegistryError::Unauthorized(self.login_advice())),
        }
    }

    fn basic(&self) -> Option<String> {
        let login = self.login.as_ref().filter(|login| login.token.is_none())?;
        Some(format!("Basic {}", STANDARD.encode(format!("{}:{}", login.username, login.password))))
    }

    /// A token of the server that the registry names.
    async fn token(&self, realm: &str, service: Option<&str>, scope: &str) -> Result<String, RegistryError> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let url = Url::parse(realm).map_err(|_| invalid(self.host, "its address for tokens is none"))?;
        if url.scheme() != "https" && !self.base.starts_with("http://") {
            return Err(invalid(self.host, "its address for tokens is not encrypted"));
        }
        let named: Vec<(&str, &str)> =
            service.map(|service| ("service", service)).into_iter().chain([("scope", scope)]).collect();
        let mut with_query = url.clone();
        with_query.query_pairs_mut().extend_pairs(&named);
        let request = match self.login.as_ref().and_then(|login| login.token.as_ref()) {
            Some(identity) => {
                let grant = [("grant_type", "refresh_token"), ("client_id", "driftless")];
                let secret = [("refresh_token", identity.as_str())];
                let mut form = Url::parse("form:").map_err(|_| invalid(self.host, "no form can be made"))?;
                form.query_pairs_mut().extend_pairs(named.iter().chain(&grant).chain(&secret));
                let form = form.query().unwrap_or_default().to_owned();
                let content = "application/x-www-form-urlencoded";
                self.client.post(url).header(header::CONTENT_TYPE, content).body(form)
            }
            None => match self.basic() {
                Some(basic) => self.client.get(with_query).header(header::AUTHORIZATION, basic),
                None => self.client.get(with_query),
            },
        };
        let response = self.check(self.answer(request).await?)?;
        let body = read(response, self.host).await?;
        let token: Token = serde_json::from_slice(&body)
            .map_err(|_| invalid(self.host, "its token is not JSON of the expected form"))?;
        let token = token.token.or(token.access_token).filter(|token| !token.is_empty());
        token.ok_or_else(|| invalid(self.host, "it gives no token"))
    }
}

/// Takes a document that may not be read for one that is not there, and keeps the refusal: some registries answer so about a tag that
/// does not exist.
fn unless_forbidden<T>(
    found: Result<Option<T>, RegistryError>,
    refusal: &mut Option<RegistryError>,
) -> Result<Option<T>, RegistryError> {
    match found {
        Err(error @ RegistryError::Forbidden(_)) => {
            *refusal = Some(error);
            Ok(None)
        }
        found => found,
    }
}

fn is_digest(text: &str) -> bool {
    let hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.split_once(':') {
        Some(("sha256", digits)) => hex(digits, 64),
        Some(("sha512", digits)) => hex(digits, 128),
        Some(_) | None => false,
    }
}

/// The query of the next page in a `Link` header: `</v2/a/tags/list?last=x&n=1000>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let (target, relation) = link.strip_prefix('<')?.split_once('>')?;
    let (_, query) = target.split_once('?').filter(|_| relation.contains("next"))?;
    Some(query.to_owned())
}

async fn read(mut response: Response, host: &str) -> Result<Vec<u8>, RegistryError> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| broken(host, &error))? {
        if body.len() + part.len() > LARGEST {
            return Err(invalid(host, "an answer is larger than 4 MiB"));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

/// The wait that a 429 asks for: seconds, or a date by the clock of the registry, which is its `Date`.
///
/// Source: RFC 9110, section 10.2.3.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    let asked = text(header::RETRY_AFTER)?;
    let date = |text| httpdate::parse_http_date(text).ok();
    let wait = match asked.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(asked)?.duration_since(date(text(header::DATE)?)?).unwrap_or_default(),
    };
    Some(wait.min(LONGEST_WAIT))
}

pub(super) fn invalid(host: &str, problem: impl Into<String>) -> RegistryError {
    RegistryError::Invalid { host: host.to_owned(), problem: problem.into() }
}

/// The reason of an error of the client. Its first line repeats the address, which the reader knows.
fn broken(host: &str, error: &reqwest::Error) -> RegistryError {
    let host = host.to_owned();
    if error.is_timeout() {
        return RegistryError::Unreachable { host, problem: "there was no answer in time".to_owned() };
    }
    let problem = driftless_model::root_cause(error).unwrap_or_else(|| "the connection broke".to_owned());
    of_cause(host, problem)
}

fn of_cause(host: String, problem: String) -> RegistryError {
    let is_about_certificate = problem.to_lowercase().contains("certificate");
    if is_about_certificate && problem.contains(ALERT) {
        let problem =
            format!("it asks for a certificate of the client, which the agent does not send ({problem})");
        return RegistryError::Unreachable { host, problem };
    }
    if is_about_certificate {
        RegistryError::Certificate { host, problem }
    } else {
        RegistryError::Unreachable { host, problem }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::registry::signature::tests as cosign;

    /// Answers requests by their paths with a status, headers and a body, and counts them.
    async fn serve(answer: impl Fn(&str) -> (String, String) + Send + 'static) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let (head, body) = answer(request.split(' ').nth(1).unwrap_or_default());
                counted.fetch_add(1, Ordering::Relaxed);
                let length = body.len();
                let whole =
                    format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.write_all(whole.as_bytes()).await;
            }
        });
        (base, requests)
    }

    fn repository(base: String) -> Repository<'static> {
        Repository {
            client: Client::new(),
            host: "registry.example.com",
            base,
            name: "app",
            login: None,
            authorization: None,
        }
    }

    fn ok(body: impl Into<String>) -> (String, String) {
        ("200 OK".to_owned(), body.into())
    }

    #[tokio::test]
    async fn manifest_is_read_once() {
        let manifest = r#"{"schemaVersion": 2, "config": {}}"#;
        let (base, requests) = serve(move |_| ok(manifest)).await;
        let mut repository = repository(base);
        let digest = format!("sha256:{}", digest_hex(manifest.as_bytes()));
        let (mut known, platforms) = (KnownManifests::default(), [Platform::parse("linux/amd64")]);
        for _ in 0..3 {
            let images = repository.images(&digest, &platforms, &mut known).await.unwrap().unwrap();
            assert_eq!(images, BTreeSet::from([(&platforms[0], digest.clone())]));
        }
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        repository.name = "other";
        repository.images(&digest, &platforms, &mut known).await.unwrap();
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn newest_tag_is_that_of_a_whole_list() {
        let rule = TagRule { range: driftless_model::VersionRange::parse("^1").unwrap(), pattern: None };
        let page = |tags: usize, next: &str| {
            let tags: Vec<String> = (0..tags).map(|number| format!("1.{number}.0")).collect();
            let link = format!("200 OK\r\nlink: </v2/app/tags/list?{next}>; rel=\"next\"");
            (link, serde_json::json!({ "tags": tags }).to_string())
        };
        let (base, _) = serve(move |path| match path.rsplit_once('=') {
            Some((_, "200")) => ok(r#"{"tags": ["1.5000.0", "2.0.0"]}"#),
            Some((_, number)) => page(100, &format!("last={}", number.parse::<usize>().unwrap() % 1000 + 1)),
            None => ok("{}"),
        })
        .await;
        let newest = repository(base).newest_tag(Some("1.0.0"), &rule, "app:1.0.0").await;
        assert_eq!(newest.unwrap(), "1.5000.0");

        let (base, requests) = serve(move |_| page(40_000, "last=x")).await;
        let newest = repository(base).newest_tag(Some("1.0.0"), &rule, "app:1.0.0").await;
        assert_eq!(newest.unwrap_err().reason(), "Invalid");
        assert_eq!(requests.load(Ordering::Relaxed), 3);
    }

    /// A registry that gives tokens to everybody and refuses them, and the number of tokens. It offers a password first.
    async fn registry_with_tokens() -> (String, Arc<AtomicUsize>) {
        let (tokens, given) = serve(|_| ok(r#"{"token": "t"}"#)).await;
        let password = "www-authenticate: Basic realm=\"x\"";
        let token = format!("www-authenticate: Bearer realm=\"{tokens}/token\"");
        let refusal = format!("401 Unauthorized\r\n{password}\r\n{token}");
        let (base, _) = serve(move |_| (refusal.clone(), String::new())).await;
        (base, given)
    }

    #[tokio::test]
    async fn missing_image_is_no_refusal_of_the_login() {
        let (base, _) = registry_with_tokens().await;
        let login = |token: Option<&str>| Login {
            username: "ada".to_owned(),
            password: "secret".to_owned(),
            token: token.map(str::to_owned),
        };
        for (login, expected) in [
            (None, "has no such image, or wants a login"),
            (Some(login(Some("identity"))), "has no such image, or the login may not read it"),
            // It answers the password itself.
            (Some(login(None)), "refuses the login"),
        ] {
            let mut repository = repository(base.clone());
            repository.login = login;
            let error = repository.digest("1").await.unwrap_err();
            assert_eq!(error.reason(), "Unauthorized");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let (refusing, _) = serve(|_| ("401 Unauthorized".to_owned(), String::new())).await;
        let challenge = format!("401 Unauthorized\r\nwww-authenticate: Bearer realm=\"{refusing}/token\"");
        let (base, _) = serve(move |_| (challenge.clone(), String::new())).await;
        let mut repository = repository(base);
        repository.login = Some(login(None));
        let error = repository.digest("1").await.unwrap_err();
        assert!(error.to_string().contains("refuses the login"), "{error}");
    }

    #[tokio::test]
    async fn token_is_asked_for_where_a_password_is_offered_first() {
        let (base, given) = registry_with_tokens().await;
        repository(base).digest("1").await.unwrap_err();
        assert_eq!(given.load(Ordering::Relaxed), 1);
    }

    /// Whether a path asks for the tag of the signatures in the older form.
    fn is_of_signatures(path: &str) -> bool {
        path.rsplit_once('.').is_some_and(|(_, ending)| ending == "sig")
    }

    /// The answers of a registry with a signature in the older form.
    fn older_signature(path: &str) -> Option<(String, String)> {
        if is_of_signatures(path) {
            return Some(ok(format!("{{\"layers\": [{}]}}", cosign::LAYER)));
        }
        path.contains("/blobs/").then(|| ok(cosign::PAYLOAD))
    }

    #[tokio::test]
    async fn older_signature_needs_no_referrers() {
        let refused = || ("503 Service Unavailable".to_owned(), String::new());
        let (base, _) = serve(move |path| older_signature(path).unwrap_or_else(refused)).await;
        let mut repository = repository(base);
        let files = [cosign::key_file(cosign::KEY)];
        let signed = repository.signatures(cosign::IMAGE, &files).await.unwrap();
        assert!(check(&files, &signed, cosign::IMAGE).is_ok());
        // It is not enough, and the registry cannot say now whether there are others.
        let error =
            repository.signatures(cosign::IMAGE, &[cosign::key_file(cosign::OTHER)]).await.unwrap_err();
        assert_eq!(error.reason(), "Unreachable", "{error}");
    }

    #[tokio::test]
    async fn registry_without_referrers_has_them_under_a_tag() {
        let (far, _) = serve(|_| ("429 Too Many Requests".to_owned(), String::new())).await;
        let answers = [
            "400 Bad Request".to_owned(),
            "401 Unauthorized".to_owned(),
            "404 Not Found".to_owned(),
            "406 Not Acceptable".to_owned(),
            "200 OK\r\ncontent-type: text/html; charset=utf-8".to_owned(),
            format!("303 See Other\r\nlocation: {far}/packages"),
        ];
        let layer = format!("sha256:{}", digest_hex(cosign::BUNDLE.as_bytes()));
        for answer in answers {
            let (said, layer) = (answer.clone(), layer.clone());
            let (base, _) = serve(move |path| match path {
                _ if is_of_signatures(path) => ("403 Forbidden".to_owned(), String::new()),
                _ if path.contains("/referrers/") => (said.clone(), String::new()),
                _ if path.contains("/blobs/") => ok(cosign::BUNDLE),
                _ if path.contains("/manifests/sha256-") => {
                    ok(r#"{"manifests": [{"digest": "sha256:ref"}]}"#)
                }
                _ => ok(format!(r#"{{"layers": [{{"mediaType": "{BUNDLE}", "digest": "{layer}"}}]}}"#)),
            })
            .await;
            let files = [cosign::key_file(cosign::KEY)];
            let mut repository = repository(base);
            let signed = repository.signatures(cosign::IMAGE, &files).await.unwrap();
            assert!(check(&files, &signed, cosign::IMAGE).is_ok(), "{answer}");
            // The signature by another key may be the one that the registry does not show.
            let others = [cosign::key_file(cosign::OTHER)];
            let error = repository.signatures(cosign::IMAGE, &others).await.unwrap_err();
            assert_eq!(error.reason(), "Forbidden", "{answer}");
        }
    }

    #[tokio::test]
    async fn refusal_without_a_login_says_where_to_add_one() {
        let (base, _) = serve(|_| ("403 Forbidden".to_owned(), String::new())).await;
        let login = Login { username: "ada".to_owned(), password: "secret".to_owned(), token: None };
        for (login, said) in [
            (None, "or wants a login: add one under `registries`"),
            (Some(login), "the login for registry.example.com may not read this image"),
        ] {
            let mut repository = repository(base.clone());
            repository.login = login;
            let error = repository.digest("1").await.unwrap_err();
            assert_eq!(error.reason(), "Forbidden");
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[tokio::test]
    async fn refusal_of_a_tag_is_the_reason_without_signatures() {
        let (base, _) = serve(|path| {
            let status = if is_of_signatures(path) { "403 Forbidden" } else { "404 Not Found" };
            (status.to_owned(), String::new())
        })
        .await;
        let found = repository(base).signatures(cosign::IMAGE, &[cosign::key_file(cosign::KEY)]).await;
        assert_eq!(found.unwrap_err().reason(), "Forbidden");
    }

    #[test]
    fn alert_about_a_certificate_means_that_of_the_client() {
        let error = |problem: &str| of_cause("ghcr.io".to_owned(), problem.to_owned());
        let asked = error("received fatal alert: CertificateRequired");
        assert_eq!(asked.reason(), "Unreachable");
        assert!(asked.to_string().contains("asks for a certificate of the client"), "{asked}");
        assert_eq!(error("invalid peer certificate: UnknownIssuer").reason(), "Certificate");
        assert_eq!(error("connection refused").reason(), "Unreachable");
    }

    #[test]
    fn only_digests_are_taken() {
        assert!(is_digest(&format!("sha256:{}", "a1".repeat(32))));
        for wrong in ["", "sha256:", "sha256:a1", "md5:00", "latest"] {
            assert!(!is_digest(wrong), "{wrong}");
        }
        assert!(!is_digest(&format!("sha256:{}", "/".repeat(64))));
    }

    #[test]
    fn wait_is_a_number_or_a_date() {
        let wait = |asked: &'static str, date: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(asked));
            headers.extend(date.map(|date| (header::DATE, HeaderValue::from_static(date))));
            retry_after(&headers)
        };
        let noon = Some("Mon, 23 Nov 2026 12:00:00 GMT");
        assert_eq!(wait("90", None), Some(Duration::from_secs(90)));
        assert_eq!(wait("Mon, 23 Nov 2026 12:10:00 GMT", noon), Some(Duration::from_mins(10)));
        assert_eq!(wait("Mon, 23 Nov 2026 11:00:00 GMT", noon), Some(Duration::ZERO), "it is over");
        assert_eq!(wait("Tue, 24 Nov 2026 12:00:00 GMT", noon), Some(LONGEST_WAIT));
        for (asked, date) in [("soon", noon), ("Mon, 23 Nov 2026 12:10:00 GMT", None), ("-1", noon)] {
            assert_eq!(wait(asked, date), None, "{asked}");
        }
    }

    #[test]
    fn next_page_is_read_from_the_link() {
        let link = "</v2/a/tags/list?last=b&n=1000>; rel=\"next\"";
        assert_eq!(next_page(link), Some("last=b&n=1000".to_owned()));
        assert_eq!(next_page("</v2/a/tags/list?n=1>; rel=\"prev\""), None);
        assert_eq!(next_page("garbage"), None);
    }
}
