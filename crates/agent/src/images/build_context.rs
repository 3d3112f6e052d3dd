//! The build context of an image: the files of the commit that is applied, which is an older one during a rollback,
//! and the secrets that its manifest names. It is read when a build begins, and never stored.

use std::{collections::BTreeMap, sync::Arc};

use driftless_docker::{BuildInputs, BuildSecrets};
use driftless_files::{AppSpec, Context, Files};
use driftless_git::CommitSource;
use driftless_model::{Build, CommitId, Content, Mask, Record};
use driftless_plan::Target;

use crate::{
    commits::older_commits::OlderCommits,
    context::AppContext,
    desired::Desired,
    error::chain,
    images::tasks::ContextRead,
    repository::RepositoryLink,
    revisions::{last_version::reached_last, target::TargetRevision},
};

/// The commit or checkout that the build contexts of one target are read from.
pub(crate) struct BuildContext<S> {
    repository: Option<RepositoryLink<S>>,
    /// The application at the newest commit.
    newest: AppSpec,
    /// The commit of the target, and that of the revision that is kept while an image of the target is missing.
    commits: Vec<CommitId>,
    mask: Mask,
}

impl<S: CommitSource> BuildContext<S> {
    pub(crate) fn of(
        context: &AppContext,
        repository: Option<RepositoryLink<S>>,
        desired: &Desired,
        target: &TargetRevision,
        planned: &Target<'_>,
        record: &Record,
    ) -> Self {
        let reached = planned.reached.and_then(|_| {
            let last = reached_last(context, target, record);
            last.unwrap_or_else(|error| {
                tracing::warn!(error = chain(&error), "could not read which version was reached last");
                None
            })
        });
        let commits = [Some(target.commit.id.clone()), reached.map(|revision| revision.commit.id)];
        let commits = commits.into_iter().flatten().collect();
        let mask = planned.mask.clone();
        Self { repository, newest: desired.rendered().spec.clone(), commits, mask }
    }

    /// Reads the context of a build from the first commit that has the files the image is named after.
    pub(crate) fn read(&self, build: &Build) -> ContextRead {
        let (repository, newest, commits) =
            (self.repository.clone(), self.newest.clone(), self.commits.clone());
        let (build, mask) = (build.clone(), self.mask.clone());
        Box::pin(async move {
            let repository = repository.ok_or("the repository is not in the configuration any more")?;
            let mut error = "there is no commit to build from".to_owned();
            for commit in commits {
                let files = match repository.source.local(&commit).await {
                    Ok(checkout) => checkout.files,
                    Err(failure) => {
                        error = chain(&failure);
                        continue;
                    }
                };
                let older = repository.older_commits.clone();
                let (newest, build, mask) = (newest.clone(), build.clone(), mask.clone());
                let read =
                    tokio::task::spawn_blocking(move || read(files, &older, &newest, &build, mask)).await;
                match read.unwrap_or_else(|failure| Err(failure.to_string())) {
                    Ok(context) => return Ok(context),
                    Err(message) => error = message,
                }
            }
            Err(error)
        })
    }
}

fn read(
    files: Arc<dyn Files>,
    older_commits: &OlderCommits,
    newest: &AppSpec,
    build: &Build,
    mask: Mask,
) -> Result<BuildInputs, String> {
    if Context::of(files.as_ref(), build)?.digest(files.as_ref())? != build.files {
        return Err("the commit does not have the files that the image is named after".to_owned());
    }
    let mut secrets = BTreeMap::new();
    if !build.secrets.is_empty() {
        let contents = older_commits.contents_at(files.as_ref(), newest);
        for id in build.secrets.values() {
            // The build itself reports a missing secret, with its name.
            if let Some(Content::File { bytes, .. }) = contents.get(id) {
                secrets.insert(id.clone(), Arc::clone(bytes));
            }
        }
    }
    Ok(BuildInputs { files, secrets: BuildSecrets(secrets), mask })
}
