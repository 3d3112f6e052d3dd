//! Decryption of files in Git: every checkout of a repository is read through [`DecryptedFiles`].

use std::sync::Arc;

use driftless_config::Verify;
use driftless_git::{Checkout, CommitSource, Error};
use driftless_model::CommitId;
use driftless_sops::{DecryptedFiles, Keys};

/// A repository whose encrypted files are decrypted as they are read.
#[derive(Debug)]
pub(crate) struct DecryptedSource<S> {
    source: S,
    keys: Arc<Keys>,
}

impl<S> DecryptedSource<S> {
    /// Decrypts the files of `source` with `keys`.
    pub(crate) fn new(source: S, keys: Arc<Keys>) -> Self {
        Self { source, keys }
    }

    fn decrypted(&self, checkout: Checkout) -> Checkout {
        let files = DecryptedFiles::new(checkout.files, Arc::clone(&self.keys));
        Checkout { files: Arc::new(files), ..checkout }
    }
}

impl<S: CommitSource> CommitSource for DecryptedSource<S> {
    async fn fetch(&self, known: Option<&CommitId>) -> Result<Checkout, Error> {
        self.source.fetch(known).await.map(|checkout| self.decrypted(checkout))
    }

    fn end_download_pause(&self) {
        self.source.end_download_pause();
    }

    async fn local(&self, commit: &CommitId) -> Result<Checkout, Error> {
        self.source.local(commit).await.map(|checkout| self.decrypted(checkout))
    }

    async fn verify(&self, commit: &CommitId, policy: &Verify) -> Result<Result<String, String>, Error> {
        self.source.verify(commit, policy).await
    }

    async fn ahead(&self, base: &CommitId, tip: &CommitId) -> Option<u64> {
        self.source.ahead(base, tip).await
    }

    async fn history_length(&self, commit: &CommitId) -> Option<u64> {
        self.source.history_length(commit).await
    }

    async fn keep(&self, commits: Vec<CommitId>) -> Result<(), Error> {
        self.source.keep(commits).await
    }
}
