//! The stored copy of the stack of an application's newest revision.

use driftless_model::{EncryptedTexts, Revision, StackHash};
use driftless_plan::without_runs;

use crate::{context::AppContext, error::chain, revisions::target::TargetRevision};

/// Keeps the stored stack of the newest revision complete. Plans and statuses are masked with it while Git cannot be read.
#[derive(Default)]
pub(crate) struct StoredStack {
    /// The last stack that was compared with its stored copy.
    compared: Option<(StackHash, EncryptedTexts)>,
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
        self.compared = Some((target.hash.clone(), encrypted.clone()));
        let store = context.store();
        let is_plain = *encrypted == EncryptedTexts::default();
        let stored = match store.stack(context.name(), newest.number) {
            Ok(Some(copy)) if is_plain || copy.encrypted == *encrypted => Ok(()),
            Ok(_) => store.store_stack_again(&without_runs(&target.stack)),
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            tracing::warn!(error = chain(&error), "could not store the stack of the revision");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use driftless_model::{Cause, CommitInfo, Policy, Stack};

    use super::*;
    use crate::{
        context::tests::{context, new_revision},
        desired::tests::stack,
    };

    #[test]
    fn texts_of_a_manifest_that_became_encrypted_are_stored() {
        let (context, _folder) = context();
        let plain = stack("one");
        let mut encrypted = plain.clone();
        encrypted.encrypted.texts.insert("geheim4711".to_owned());
        let new = new_revision(context.name());
        let newest = context.store().begin_revision(&new, &plain).unwrap();
        let mut stored = StoredStack::default();
        let mut texts_after = |target: &Stack| {
            let target = Arc::new(target.clone());
            let target = TargetRevision::new(target, CommitInfo::default(), Policy::default(), Cause::Commit);
            stored.complete(&context, Some(&newest), &target);
            context.kept_stacks().remove(0).encrypted
        };
        assert_eq!(texts_after(&plain), plain.encrypted);
        assert_eq!(texts_after(&encrypted), encrypted.encrypted);
        // A stack from the database, while Git cannot be read.
        assert_eq!(texts_after(&plain), encrypted.encrypted);
    }
}
