//! The stored copy of the stack of an application's newest revision.

use driftless_model::{EncryptedTexts, Revision, StackHash};
use driftless_plan::without_runs;

use crate::{context::AppContext, error::chain, revisions::target::TargetRevision};

/// Keeps the stored stack of the newest revision complete. Plans and statuses are masked with it while Git cannot be read.
#[derive(Default)]
pub(crate) struct StoredStack {
    /// The last stack whose stored copy is known to be complete.
    compared: Option<(StackHash, EncryptedTexts)>,
    /// The last stack that could not be stored. It is tried in each round, and logged once.
    failed: Option<(StackHash, EncryptedTexts)>,
}

impl StoredStack {
    /// Stores the stack of the newest revision again if the copy cannot be decrypted any more, or if it has not the texts of
    /// manifests that are encrypted by now: these are no part of the hash, so they begin no revision.
    pub(crate) fn complete(
        &mut self,
        context: &AppContext,
        newest: Option<&Revision>,
        target: &TargetRevision,
    ) {
        let Some(newest) = newest.filter(|newest| newest.stack == target.hash) else { return };
        let encrypted = &target.stack.encrypted;
        let is_compared =
            |(hash, texts): &(StackHash, EncryptedTexts)| *hash == target.hash && texts == encrypted;
        if self.compared.as_ref().is_some_and(is_compared) {
            return;
        }
        let store = context.store();
        let is_plain = *encrypted == EncryptedTexts::default();
        let stored = match store.stack(context.name(), newest.number) {
            Ok(Some(copy)) if is_plain || copy.encrypted == *encrypted => Ok(()),
            Ok(_) => store.store_stack_again(&without_runs(&target.stack)),
            Err(error) => Err(error),
        };
        let pair = (target.hash.clone(), encrypted.clone());
        match stored {
            Ok(()) => {
                self.compared = Some(pair);
                self.failed = None;
            }
            Err(error) => {
                if self.failed.as_ref() != Some(&pair) {
                    tracing::warn!(error = chain(&error), "could not store the stack of the revision");
                }
                self.failed = Some(pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use driftless_model::{Cause, CommitInfo, Policy, Stack};

    use super::*;
    use crate::{
        context::tests::{context, context_on_disk, new_revision},
        desired::tests::stack,
    };

    /// A stack, and the same one with a text that is encrypted by now.
    fn plain_and_encrypted() -> (Stack, Stack) {
        let plain = stack("one");
        let mut encrypted = plain.clone();
        encrypted.encrypted.texts.insert("geheim4711".to_owned());
        (plain, encrypted)
    }

    /// The stored texts after a round with this stack.
    fn texts_after(
        stored: &mut StoredStack,
        context: &AppContext,
        newest: &Revision,
        target: &Stack,
    ) -> EncryptedTexts {
        let target = Arc::new(target.clone());
        let target = TargetRevision::new(target, CommitInfo::default(), Policy::default(), Cause::Commit);
        stored.complete(context, Some(newest), &target);
        context.kept_stacks().remove(0).encrypted
    }

    #[test]
    fn texts_are_stored_once_the_database_can_be_written() {
        let (context, folder) = context_on_disk();
        let (plain, encrypted) = plain_and_encrypted();
        let newest = context.store().begin_revision(&new_revision(context.name()), &plain).unwrap();
        let mut stored = StoredStack::default();
        let (state, away) = (folder.path().join("state"), folder.path().join("away"));
        fs::rename(&state, &away).unwrap();
        assert_eq!(texts_after(&mut stored, &context, &newest, &encrypted), plain.encrypted);
        fs::rename(&away, &state).unwrap();
        assert_eq!(texts_after(&mut stored, &context, &newest, &encrypted), encrypted.encrypted);
    }

    #[test]
    fn texts_of_a_manifest_that_became_encrypted_are_stored() {
        let (context, _folder) = context();
        let (plain, encrypted) = plain_and_encrypted();
        let newest = context.store().begin_revision(&new_revision(context.name()), &plain).unwrap();
        let mut stored = StoredStack::default();
        let mut texts_after = |target: &Stack| texts_after(&mut stored, &context, &newest, target);
        assert_eq!(texts_after(&plain), plain.encrypted);
        assert_eq!(texts_after(&encrypted), encrypted.encrypted);
        // A stack from the database, while Git cannot be read.
        assert_eq!(texts_after(&plain), encrypted.encrypted);
    }
}
