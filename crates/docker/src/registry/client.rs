//! The client of registries. One question at a time goes to each registry, and after a 429 none until it is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_model::{ContentId, ImageRef, Platform, error_chain};
use driftless_trust::{CertificateDer, Trust, read_folder};
use reqwest::{Client, StatusCode};
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::Instant,
};

use super::{
    error::RegistryError,
    known_manifests::KnownManifests,
    manifest::missing_platform,
    question::{ImageQuestion, NewestImage, SignatureQuestion, SignedImage},
    repository::{Repository, invalid},
    signature::{self, KeyFile, SignatureError, Signed},
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

/// The host of the API of Docker Hub.
const HUB: &str = "registry-1.docker.io";

/// Certificates of registries, in folders by host, as Docker reads them.
const CERTIFICATES: &str = "/etc/docker/certs.d";

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
    /// Whether it speaks plain HTTP, once that is known. It is found out again with each new client: the registry may have got TLS.
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
        self.is_plain = None;
        Ok(client)
    }

    /// Notes whether the answer asks to wait.
    fn note<T>(&mut self, answer: &Result<T, RegistryError>) {
        if let Err(RegistryError::TooManyRequests { retry_after, .. }) = answer {
            self.busy_until = Some(Instant::now() + retry_after.unwrap_or(DEFAULT_WAIT));
        }
    }
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
            let signed = self.signatures(question, &digest, &files).await?;
            match signature::check(&files, &signed, &digest) {
                Ok(keys) => return Ok(SignedImage { id: found.id.unwrap_or_default(), digest, keys }),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// The signatures of a digest in its registry, by any key; those that are enough for the key files if there are such.
    async fn signatures(
        &self,
        question: &SignatureQuestion,
        digest: &str,
        files: &[KeyFile],
    ) -> Result<Vec<Signed>, RegistryError> {
        let image = ImageRef::parse(&question.image);
        let (mut host, mut repository) = self.enter(&question.image, &image, &question.secrets).await?;
        let signed = repository.signatures(digest, files).await;
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
        let (mut is_running, mut is_available) = (true, question.available.as_ref() == Some(&digest));
        let mut proven: BTreeSet<String> = question.unproven.get(&digest).cloned().into_iter().collect();
        if !others.is_empty() {
            let platform = |name: &Option<String>| match name {
                Some(name) => Ok(Platform::parse(name)),
                None => self.own_platform(),
            };
            let platforms = question.platforms.iter().map(platform).collect::<Result<Vec<_>, _>>()?;
            let newest = repository.images(&digest, &platforms, manifests).await?.unwrap_or_default();
            for other in others {
                let known = repository.images(other, &platforms, manifests).await?;
                if question.unproven.contains(other) {
                    if known.is_none() {
                        continue;
                    }
                    proven.insert(other.clone());
                }
                let missing = known.as_ref().and_then(|known| missing_platform(&newest, known, other));
                if let Some(platform) = missing {
                    return Err(RegistryError::NoPlatform {
                        image: format!("{}:{tag}", ImageRef::split(&question.image).name),
                        platform: platform.to_string(),
                    });
                }
                is_running &= known.is_some_and(|known| !known.is_empty() && known == newest);
            }
            if let Some(available) = question.available.as_ref().filter(|_| !is_running && !is_available) {
                let known = repository.images(available, &platforms, manifests).await?;
                is_available = known.is_some_and(|known| !known.is_empty() && known == newest);
            }
        }
        Ok(NewestImage { tag, digest, is_running, proven, is_available })
    }

    /// The platform of the engine. Without it, an index that has changed for other platforms only would count as an update.
    fn own_platform(&self) -> Result<Platform, RegistryError> {
        let own = self.connection.info().and_then(|info| info.platform());
        own.ok_or_else(|| RegistryError::Unreachable {
            host: "the engine".to_owned(),
            problem: "its platform is not known".to_owned(),
        })
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

#[cfg(test)]
mod tests {
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

    #[tokio::test(start_paused = true)]
    async fn registry_without_tls_is_tried_with_it_again() {
        let mut host = RegistryHost::default();
        host.client("localhost:5000").unwrap();
        host.is_plain = Some(true);
        host.client("localhost:5000").unwrap();
        assert_eq!(host.is_plain, Some(true));
        tokio::time::advance(CLIENT).await;
        host.client("localhost:5000").unwrap();
        assert_eq!(host.is_plain, None);
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
}
