//! The mounted files of a target: on the disk before a container starts that mounts them.

use std::sync::Arc;

use driftless_files::AppSpec;
use driftless_git as git;
use driftless_git::CommitSource;
use driftless_manifest as manifest;
use driftless_model::{CommitId, Contents, StackHash};

use crate::{context::AppContext, desired::Desired, error::chain, target_revision::TargetRevision};

/// The stack whose mounted files are on the disk.
#[derive(Default)]
pub(crate) struct Mounts {
    prepared: Option<StackHash>,
}

impl Mounts {
    /// Checks all files again before the next round.
    pub(crate) fn forget(&mut self) {
        self.prepared = None;
    }

    /// Writes the mounted files of a target to the disk, once for each stack. An error is in words.
    pub(crate) async fn prepare<S: CommitSource>(
        &mut self,
        context: &AppContext,
        source: Option<&S>,
        desired: &Desired,
        target: &TargetRevision,
    ) -> Result<(), String> {
        // A suspended application is left alone, and so is its folder.
        if target.policy.suspended || self.prepared.as_ref() == Some(&target.hash) {
            return Ok(());
        }
        // A failure may come after some of the files: then also those of the stack before have to be written again.
        self.prepared = None;
        let rendered = desired.rendered();
        if let Err(error) = write(context, target, Arc::clone(&rendered.contents)).await {
            // Secrets are kept in memory only, and those of an older commit are not among the newest commit's: render
            // the older commit once more.
            let Some(source) = source else { return Err(error) };
            let again = contents_of(source, &target.commit.id, rendered.spec.clone()).await;
            let again = again.map_err(|again| format!("{error}; {}", chain(&again)))?;
            write(context, target, Arc::new(again)).await?;
        }
        self.prepared = Some(target.hash.clone());
        Ok(())
    }
}

async fn write(context: &AppContext, target: &TargetRevision, contents: Arc<Contents>) -> Result<(), String> {
    let (directory, stack) = (context.contents().clone(), Arc::clone(&target.stack));
    let written = tokio::task::spawn_blocking(move || directory.prepare(&stack, &contents)).await;
    written.map_err(|error| error.to_string())?.map_err(|error| chain(&error))
}

/// Renders one application of one commit again, for the files that it mounts.
async fn contents_of<S: CommitSource>(
    source: &S,
    commit: &CommitId,
    spec: AppSpec,
) -> Result<Contents, git::Error> {
    let checkout = source.local(commit).await?;
    let rendered =
        tokio::task::spawn_blocking(move || manifest::render(checkout.files.as_ref(), &spec)).await;
    Ok(rendered.map(|rendered| rendered.contents).unwrap_or_default())
}
