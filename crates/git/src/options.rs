//! The options of a repository.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::credentials::{Credentials, Lookup};
use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{Proxy, Reference, Verify};
use driftless_model::RepoUrl;

/// The options of a [`Repository`](super::Repository).
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    pub url: RepoUrl,
    pub reference: Reference,
    pub credentials: Credentials,
    /// PEM file of further certificate authorities, for `https://`.
    pub ca_file: Option<PathBuf>,
    pub proxy: Proxy,
    /// Read submodules, too.
    pub submodules: bool,
    /// Folders of this machine in which submodules of a repository at a path may be.
    pub submodule_paths: Vec<PathBuf>,
    /// The policies for [`CommitSource::verify`](super::CommitSource::verify). Opening the repository fails if one is invalid.
    pub policies: Vec<Verify>,
    /// The deadline of a fetch.
    pub timeout: Duration,
    /// The longest time without a byte from the server.
    pub idle_timeout: Duration,
    /// The path of the mirror. The same path with `.lock`, `.new` and `.old` appended is used too.
    pub mirror: PathBuf,
    /// The maximum number of bytes that a fetch may receive. Default: 4 GiB.
    pub most_bytes: u64,
    /// The pause after a damaged mirror was cloned again before it is cloned another time. Default: 5 min.
    pub clone_pause: Duration,
    /// The pause after a download failed that is costly to repeat, before the same commit is downloaded again. It doubles with
    /// each failure, up to six hours. Zero: none, for a command that fetches once. Default: 15 min.
    pub download_pause: Duration,
    /// Shared by all repositories of an agent.
    pub permits: FetchPermits,
    /// For servers that give a date for the next try, and for the pause after a failed download.
    pub clock: Clock,
}

/// Limits how many fetches receive commits at the same time, since each needs memory. A fetch that waits for longer than its
/// idle timeout continues without a permit: stalled servers must not delay others. Only one mirror is packed at a time.
#[derive(Clone, Debug)]
pub struct FetchPermits {
    fetches: Arc<Semaphore>,
    packing: Arc<Semaphore>,
}

const MOST_BYTES: u64 = 4 << 30;
const CLONE_PAUSE: Duration = Duration::from_mins(5);
const DOWNLOAD_PAUSE: Duration = Duration::from_mins(15);
const PARALLEL_FETCHES: usize = 4;

impl RepositoryOptions {
    /// The options from the configuration.
    pub fn new(
        repository: &config::Repository,
        mirror: PathBuf,
        environment: Lookup,
        permits: FetchPermits,
    ) -> Self {
        Self {
            url: repository.url.clone(),
            reference: repository.reference.clone(),
            credentials: Credentials::new(repository.auth.clone(), environment),
            ca_file: repository.ca_file.clone(),
            proxy: repository.proxy.clone(),
            submodules: repository.submodules,
            submodule_paths: repository.submodule_paths.clone(),
            policies: repository
                .applications
                .iter()
                .filter_map(|it| it.verify.clone())
                .chain(repository.verify.clone())
                .collect(),
            timeout: repository.timeout,
            idle_timeout: repository.idle_timeout,
            mirror,
            most_bytes: MOST_BYTES,
            clone_pause: CLONE_PAUSE,
            download_pause: DOWNLOAD_PAUSE,
            permits,
            clock: Clock::System,
        }
    }
}

impl Default for FetchPermits {
    fn default() -> Self {
        Self { fetches: Arc::new(Semaphore::new(PARALLEL_FETCHES)), packing: Arc::new(Semaphore::new(1)) }
    }
}

impl FetchPermits {
    /// Waits for a permit. `None` never happens: the semaphore is never closed.
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.fetches.acquire().await.ok()
    }

    /// The permit to pack a mirror. `None` while another one is packed.
    pub(super) fn try_pack(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.packing).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_mirror_of_an_agent_is_packed_at_a_time() {
        let (first, second) = (FetchPermits::default(), FetchPermits::default());
        let packing = first.clone().try_pack().unwrap();
        assert!(first.try_pack().is_none());
        assert!(first.acquire().await.is_some(), "fetches go on");
        assert!(second.try_pack().is_some());
        drop(packing);
        assert!(first.try_pack().is_some());
    }
}
