//! The client of registries. One question at a time goes to each registry, and after a 429 none until it is over.
//!
//! Source: the OCI distribution specification. A tag is asked for by `HEAD`, which Docker Hub does not count as a pull.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use driftless_model::{ContentId, ImageRef, Platform, TagRule, digest_hex, error_chain};
use driftless_trust::{CertificateDer, Trust, read_folder};
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{self, HeaderMap, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::Instant,
};

use super::{
    authorization::Challenge,
    error::RegistryError,
    known_manifests::KnownManifests,
    manifest::{ACCEPTED, Manifest, missing_platform},
    question::{ImageQuestion, NewestImage, SignatureQuestion, SignedImage},
    signature::{
        self, BUNDLE, KeyFile, MOST, Referrers, SIMPLE_SIGNING, SignatureError, SignatureManifest, Signed,
    },
};
use crate::{
    connection::Connection, deadline::DEADLINE, from_engine::Defaults, registry_login::Login,
    registry_logins::RegistryLogins,
};

/// The time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// The time for one whole answer.
const ANSWER: Duration = Duration::from_secs(30);

/// The time for which a client is used. After that, changed certificates of the system count.
const CLIENT: Duration = Duration::from_mins(10);

/// The largest manifest, list of tags or token, in bytes.
const LARGEST: usize = 4 << 20;

/// The most pages of a list of tags. A page has up to 1000.
const MOST_PAGES: usize = 100;

/// The host of the API of Docker Hub.
const HUB: &str = "registry-1.docker.io";

/// Certificates of registries, in folders by host, as Docker reads them.
const CERTIFICATES: &str = "/etc/docker/certs.d";

/// The longest wait that a registry may ask for.
const LONGEST_WAIT: Duration = Duration::from_hours(6);

/// The wait after a 429 that names none.
const DEFAULT_WAIT: Duration = Duration::from_mins(5);

/// Asks registries.
pub(crate) struct RegistryClient {
    connection: Arc<Connection>,
    logins: RegistryLogins,
    hosts: Mutex<BTreeMap<String, Arc<AsyncMutex<RegistryHost>>>>,
}

/// The known facts about one registry. Its lock is held while a question is asked.
#[derive(Default)]
struct RegistryHost {
    /// The end of the wait that it has asked for.
    busy_until: Option<Instant>,
    /// Whether it speaks plain HTTP, once that is known.
    is_plain: Option<bool>,
    client: Option<HostClient>,
    manifests: KnownManifests,
}

/// A client of one registry. It reads the certificates of the system when it is made, which takes milliseconds.
struct HostClient {
    made: Instant,
    /// The further certificates that it trusts.
    further: Vec<CertificateDer<'static>>,
    client: Client,
}

impl RegistryHost {
    /// Fails while the registry has asked to wait.
    fn check(&self, registry: &str) -> Result<(), RegistryError> {
        let left = self.busy_until.and_then(|until| until.checked_duration_since(Instant::now()));
        match left {
            None => Ok(()),
            Some(_) => Err(RegistryError::TooManyRequests { host: registry.to_owned(), retry_after: left }),
        }
    }

    /// A client that trusts the authorities of the system and those that Docker trusts for this registry.
    fn client(&mut self, registry: &str) -> Result<Client, String> {
        let further = read_folder(&Path::new(CERTIFICATES).join(registry));
        let is_current = |known: &&HostClient| known.further == further && known.made.elapsed() < CLIENT;
        if let Some(known) = self.client.as_ref().filter(is_current) {
            return Ok(known.client.clone());
        }
        let client = new_client(further.clone())?;
        self.client = Some(HostClient { made: Instant::now(), further, client: client.clone() });
        Ok(client)
    }

    /// Notes whether the answer asks to wait.
    fn note<T>(&mut self, answer: &Result<T, RegistryError>) {
        if let Err(RegistryError::TooManyRequests { retry_after, .. }) = answer {
            self.busy_until = Some(Instant::now() + retry_after.unwrap_or(DEFAULT_WAIT));
        }
    }
}

/// A repository of a registry, and who asks.
struct Repository<'a> {
    client: Client,
    /// The host as references name it.
    host: &'a str,
    /// `https://registry-1.docker.io`.
    base: String,
    name: &'a str,
    login: Option<Login>,
    /// The header that the registry has accepted.
    authorization: Option<String>,
}

impl RegistryClient {
    pub(crate) fn new(connection: &Arc<Connection>, logins: RegistryLogins) -> Self {
        Self { connection: Arc::clone(connection), logins, hosts: Mutex::default() }
    }

    /// The newest image for a reference.
    pub(crate) async fn newest(&self, question: &ImageQuestion) -> Result<NewestImage, RegistryError> {
        let image = ImageRef::parse(&question.image);
        let (mut host, mut repository) = self.enter(&question.image, &image, &question.secrets).await?;
        let answer = self.ask(&mut repository, &mut host.manifests, &image, question).await;
        host.note(&answer);
        answer
    }

    /// Whether an image of the engine has a signature by a key of each file.
    pub(crate) async fn verify(&self, question: &SignatureQuestion) -> Result<SignedImage, SignatureError> {
        let files: Vec<KeyFile> =
            question.keys.iter().map(|path| KeyFile::read(path)).collect::<Result<_, _>>()?;
        // Not from the cache: the name may have got to another image a moment ago.
        let inspect = self.connection.docker().inspect_image(&question.image);
        let found = self.connection.call(DEADLINE, inspect).await;
        let found = found.map_err(|error| SignatureError::Engine(error_chain(&error)))?;
        let image = ImageRef::parse(&question.image);
        let named = found.repo_digests.unwrap_or_default();
        let named = named.iter().map(|named| ImageRef::parse(named));
        let named = named.filter(|named| named.is_same_repository(&image));
        let digests: Vec<String> = named.filter_map(|named| named.digest().map(str::to_owned)).collect();
        let mut refusal = SignatureError::NoDigest;
        // The same image may have been pulled by several digests. One that is signed is enough.
        for digest in digests {
            let signed = self.signatures(question, &digest).await?;
            match signature::check(&files, &signed, &digest) {
                Ok(keys) => return Ok(SignedImage { id: found.id.unwrap_or_default(), digest, keys }),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// The signatures of a digest in its registry, by any key.
    async fn signatures(
        &self,
        question: &SignatureQuestion,
        digest: &str,
    ) -> Result<Vec<Signed>, RegistryError> {
        let image = ImageRef::parse(&question.image);
        let (mut host, mut repository) = self.enter(&question.image, &image, &question.secrets).await?;
        let signed = repository.signatures(digest).await;
        host.note(&signed);
        signed
    }

    /// The repository of an image, once no other question is asked to its registry. `reference` is the image as it is written.
    async fn enter<'a>(
        &self,
        reference: &str,
        image: &'a ImageRef,
        secrets: &[ContentId],
    ) -> Result<(OwnedMutexGuard<RegistryHost>, Repository<'a>), RegistryError> {
        let folder = &self.connection.local_paths().secret;
        let secrets: Vec<PathBuf> = secrets.iter().map(|id| folder.join(&id.0)).collect();
        let login = self.logins.login(reference, &secrets).await.map_err(RegistryError::Login)?;
        let mut host = self.host(image.registry()).lock_owned().await;
        host.check(image.registry())?;
        let repository = self.open(image, login, &mut host).await?;
        Ok((host, repository))
    }

    fn host(&self, name: &str) -> Arc<AsyncMutex<RegistryHost>> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(hosts.entry(name.to_owned()).or_default())
    }

    /// Finds out how the registry is reached.
    async fn open<'a>(
        &self,
        image: &'a ImageRef,
        login: Option<Login>,
        host: &mut RegistryHost,
    ) -> Result<Repository<'a>, RegistryError> {
        let registry = image.registry();
        let name = image.repository();
        let address = if registry == ImageRef::DOCKER_HUB { HUB } else { registry };
        let client = host.client(registry).map_err(|problem| invalid(registry, problem))?;
        let repository = |base: String| Repository {
            client: client.clone(),
            host: registry,
            base,
            name,
            login: login.clone(),
            authorization: None,
        };
        let (secure, plain) = (format!("https://{address}"), format!("http://{address}"));
        let is_plain = match host.is_plain {
            Some(is_plain) => is_plain,
            None if is_loopback(registry) => {
                // As Docker does: a registry of this machine may do without TLS.
                let answer = client.get(format!("{secure}/v2/")).send().await;
                answer.is_err() && speaks_http(&client, &plain).await
            }
            None => {
                self.is_insecure(registry).await
                    && client.get(format!("{secure}/v2/")).send().await.is_err()
                    && speaks_http(&client, &plain).await
            }
        };
        host.is_plain = is_plain.then_some(true);
        Ok(repository(if is_plain { plain } else { secure }))
    }

    /// Whether the engine is configured to speak to this registry without TLS, by its name or by the network that it is in. False
    /// if the engine does not answer.
    async fn is_insecure(&self, registry: &str) -> bool {
        if self.connection.api_version().await.is_err() {
            return false;
        }
        let Defaults { registries, insecure_networks, .. } = self.connection.defaults();
        if let Some(is_secure) = registries.get(registry) {
            return !is_secure;
        }
        let (host, port) = split_port(registry);
        let Ok(addresses) = tokio::net::lookup_host((host, port.unwrap_or(443))).await else { return false };
        let is_insecure = |address: &SocketAddr| insecure_networks.iter().any(|it| it.contains(address.ip()));
        addresses.into_iter().any(|address| is_insecure(&address))
    }

    async fn ask(
        &self,
        repository: &mut Repository<'_>,
        manifests: &mut KnownManifests,
        image: &ImageRef,
        question: &ImageQuestion,
    ) -> Result<NewestImage, RegistryError> {
        let tag = match &question.tags {
            Some(rule) => repository.newest_tag(image.tag(), rule, &question.image).await?,
            None => image.effective_tag().unwrap_or("latest").to_owned(),
        };
        let digest = repository.digest(&tag).await?;
        let others: Vec<&String> = question.running.iter().filter(|running| **running != digest).collect();
        let mut is_running = true;
        if !others.is_empty() {
            let mut platforms: Vec<Platform> =
                question.platforms.iter().map(|name| Platform::parse(name)).collect();
            if platforms.is_empty() {
                // Without it, an index that has changed for other platforms only would count as an update.
                let own = self.connection.info().and_then(|info| info.architecture);
                let own = own.ok_or_else(|| RegistryError::Unreachable {
                    host: "the engine".to_owned(),
                    problem: "its platform is not known".to_owned(),
                })?;
                platforms.push(Platform::parse(&format!("linux/{own}")));
            }
            let newest = repository.images(&digest, &platforms, manifests).await?.unwrap_or_default();
            for other in others {
                let known = repository.images(other, &platforms, manifests).await?;
                let missing = known.as_ref().and_then(|known| missing_platform(&newest, known, other));
                if let Some(platform) = missing {
                    return Err(RegistryError::NoPlatform {
                        image: format!("{}:{tag}", ImageRef::split(&question.image).name),
                        platform: platform.to_string(),
                    });
                }
                is_running &= known.is_some_and(|known| !known.is_empty() && known == newest);
            }
        }
        Ok(NewestImage { tag, digest, is_running })
    }
}

impl Repository<'_> {
    /// The digest that a tag names.
    async fn digest(&mut self, tag: &str) -> Result<String, RegistryError> {
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
    async fn images<'a>(
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

    /// The signatures of a digest: those under its tag `.sig`, and the bundles that refer to it.
    async fn signatures(&mut self, digest: &str) -> Result<Vec<Signed>, RegistryError> {
        let tag = digest.replace(':', "-");
        let mut signed = Vec::new();
        if let Some(manifest) = self.find::<SignatureManifest>(&format!("manifests/{tag}.sig")).await? {
            for layer in manifest.layers.iter().filter(|layer| layer.media_type == SIMPLE_SIGNING).take(MOST)
            {
                match self.blob(&layer.digest).await {
                    Ok(payload) => signed.extend(Signed::of_layer(layer, payload, digest)),
                    Err(RegistryError::Invalid { .. } | RegistryError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // A registry without referrers has an index under a tag instead.
        let referrers = match self.find::<Referrers>(&format!("referrers/{digest}")).await? {
            Some(referrers) => Some(referrers),
            None => self.find(&format!("manifests/{tag}")).await?,
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
        Ok(signed)
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
        let read = serde_json::from_slice(&body);
        read.map(Some).map_err(|_| invalid(self.host, "a manifest is not JSON of the expected form"))
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
    async fn newest_tag(
        &mut self,
        current: Option<&str>,
        rule: &TagRule,
        image: &str,
    ) -> Result<String, RegistryError> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let mut newest: Option<String> = None;
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
            match next {
                Some(query) => path = format!("tags/list?{query}"),
                None => break,
            }
        }
        let range = rule.range.to_string();
        newest.ok_or_else(|| RegistryError::NoTag { image: image.to_owned(), range })
    }

    async fn get(&mut self, path: &str) -> Result<Vec<u8>, RegistryError> {
        let response = self.send(&Method::GET, path).await?;
        read(response, self.host).await
    }

    /// Sends a request, with the login if the registry asks for one.
    async fn send(&mut self, method: &Method, path: &str) -> Result<Response, RegistryError> {
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
        self.check(response)
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
            StatusCode::FORBIDDEN => RegistryError::Forbidden(host),
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
        if self.login.is_some() {
            format!("{host} refuses the login")
        } else {
            format!(
                "{host} has no such image, or wants a login: add one under `registries` in the configuration"
            )
        }
    }

    /// The header that answers a challenge.
    async fn authorize(&self, response: &Response) -> Result<String, RegistryError> {
        let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
        let challenge = challenges.filter_map(|value| value.to_str().ok()).find_map(Challenge::parse);
        match challenge {
            Some(Challenge::Basic) => {
                self.basic().ok_or_else(|| RegistryError::Unauthorized(self.login_advice()))
            }
            Some(Challenge::Bearer { realm, service, scope }) => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.name));
                let token = self.token(&realm, service.as_deref(), &scope).await?;
                Ok(format!("Bearer {token}"))
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

fn new_client(further: Vec<CertificateDer<'static>>) -> Result<Client, String> {
    let mut builder = Client::builder()
        .connect_timeout(CONNECT)
        .timeout(ANSWER)
        .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
    if !further.is_empty() {
        builder = builder.tls_backend_preconfigured(Trust::WithSystem.client_config(further)?);
    }
    builder.build().map_err(|error| format!("no client can be made: {}", error_chain(&error)))
}

/// Whether a registry is on this machine.
fn is_loopback(registry: &str) -> bool {
    let (host, _) = split_port(registry);
    host == "localhost" || host == "::1" || host.starts_with("127.")
}

/// The name or address of a registry, and its port.
fn split_port(registry: &str) -> (&str, Option<u16>) {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port.parse().ok()),
        Some(_) | None => (registry, None),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

/// Whether a registry answers without TLS. One with TLS answers that as well, with 400.
async fn speaks_http(client: &Client, base: &str) -> bool {
    let answer = client.get(format!("{base}/v2/")).send().await;
    answer.is_ok_and(|answer| answer.status() != StatusCode::BAD_REQUEST)
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

fn invalid(host: &str, problem: impl Into<String>) -> RegistryError {
    RegistryError::Invalid { host: host.to_owned(), problem: problem.into() }
}

/// The reason of an error of the client. Its first line repeats the address, which the reader knows.
fn broken(host: &str, error: &reqwest::Error) -> RegistryError {
    let host = host.to_owned();
    if error.is_timeout() {
        return RegistryError::Unreachable { host, problem: "there was no answer in time".to_owned() };
    }
    let problem = driftless_model::root_cause(error).unwrap_or_else(|| "the connection broke".to_owned());
    let is_certificate = problem.to_lowercase().contains("certificate");
    if is_certificate {
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

    #[tokio::test(start_paused = true)]
    async fn client_of_a_registry_is_kept_for_a_while() {
        let mut host = RegistryHost::default();
        let mut made = || {
            host.client("registry.example.com").unwrap();
            host.client.as_ref().unwrap().made
        };
        let first = made();
        tokio::time::advance(CLIENT / 2).await;
        assert_eq!(made(), first);
        tokio::time::advance(CLIENT / 2).await;
        assert_eq!(made(), first + CLIENT);
    }

    /// Answers requests with a manifest, and counts them.
    async fn serve_manifest(manifest: &'static str) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                counted.fetch_add(1, Ordering::Relaxed);
                let length = manifest.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{manifest}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (base, requests)
    }

    #[tokio::test]
    async fn manifest_is_read_once() {
        let manifest = r#"{"schemaVersion": 2, "config": {}}"#;
        let (base, requests) = serve_manifest(manifest).await;
        let mut repository = Repository {
            client: new_client(Vec::new()).unwrap(),
            host: "registry.example.com",
            base,
            name: "app",
            login: None,
            authorization: None,
        };
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

    #[test]
    fn registries_of_this_machine_are_known() {
        for local in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(local), "{local}");
        }
        for far in ["ghcr.io", "localhost.example.com", "10.0.0.1:5000", "[::2]:5000"] {
            assert!(!is_loopback(far), "{far}");
        }
        assert_eq!(split_port("[fd00::2]:5000"), ("fd00::2", Some(5000)));
        assert_eq!(split_port("ghcr.io"), ("ghcr.io", None));
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
