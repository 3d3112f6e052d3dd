//! A repository that is set up again until that succeeds.

use driftless_config::Verify;
use driftless_git::{Cause, Checkout, CommitSource, Error, Repository, RepositoryOptions};
use driftless_model::CommitId;
use tokio::sync::OnceCell;

/// A repository that is set up at its first use, and at each further use until that succeeds: its key file may be created
/// later, and until then the other repositories are followed.
pub(crate) struct ReopenedSource {
    options: RepositoryOptions,
    opened: OnceCell<Repository>,
}

impl ReopenedSource {
    pub(crate) fn new(options: RepositoryOptions) -> Self {
        Self { options, opened: OnceCell::new() }
    }

    /// The repository.
    ///
    /// # Errors
    ///
    /// If it cannot be set up, for example because a key file is missing.
    pub(crate) async fn open(&self) -> Result<&Repository, Error> {
        let open = || async {
            let options = self.options.clone();
            tokio::task::spawn_blocking(move || Repository::open(options)).await.unwrap_or_else(|error| {
                let (doing, message) = ("open the mirror".to_owned(), error.to_string());
                Err(Error { cause: Cause::Interrupted, doing, message, retry_after: None })
            })
        };
        self.opened.get_or_try_init(open).await
    }
}

impl CommitSource for ReopenedSource {
    async fn fetch(&self, known: Option<&CommitId>) -> Result<Checkout, Error> {
        self.open().await?.fetch(known).await
    }

    fn end_download_pause(&self) {
        if let Some(repository) = self.opened.get() {
            repository.end_download_pause();
        }
    }

    async fn local(&self, commit: &CommitId) -> Result<Checkout, Error> {
        self.open().await?.local(commit).await
    }

    async fn verify(&self, commit: &CommitId, policy: &Verify) -> Result<Result<String, String>, Error> {
        self.open().await?.verify(commit, policy).await
    }

    async fn ahead(&self, base: &CommitId, tip: &CommitId) -> Option<u64> {
        self.open().await.ok()?.ahead(base, tip).await
    }

    async fn history_length(&self, commit: &CommitId) -> Option<u64> {
        self.open().await.ok()?.history_length(commit).await
    }

    async fn keep(&self, commits: Vec<CommitId>) -> Result<(), Error> {
        self.open().await?.keep(commits).await
    }
}
