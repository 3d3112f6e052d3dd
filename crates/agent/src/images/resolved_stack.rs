//! The stack of Git with the images that were resolved for its references.

use std::{collections::BTreeMap, sync::Arc};

use driftless_model::{Record, Stack, StackHashes};
use driftless_plan::{resolved_images, with_resolved_images};

/// The last stack with resolved images, so that it is made once for each stack and not in each round.
#[derive(Default)]
pub(crate) struct ResolvedStack(Option<Made>);

struct Made {
    from: Arc<Stack>,
    images: BTreeMap<String, String>,
    /// `None`: the stack has none of the references.
    stack: Option<(Arc<Stack>, Arc<StackHashes>)>,
}

impl ResolvedStack {
    /// The stack of Git with the resolved images of the record, and its hashes. The same one if there are none.
    pub(crate) fn of(
        &mut self,
        stack: &Arc<Stack>,
        hashes: &Arc<StackHashes>,
        record: &Record,
    ) -> (Arc<Stack>, Arc<StackHashes>) {
        let unresolved = || (Arc::clone(stack), Arc::clone(hashes));
        let images = resolved_images(record);
        if images.is_empty() {
            self.0 = None;
            return unresolved();
        }
        let is_made = |made: &&Made| {
            let made_of = made.images.iter().map(|(image, resolved)| (image.as_str(), resolved.as_str()));
            Arc::ptr_eq(&made.from, stack)
                && made_of.eq(images.iter().map(|(image, resolved)| (*image, *resolved)))
        };
        if let Some(made) = self.0.as_ref().filter(is_made) {
            return made.stack.clone().unwrap_or_else(unresolved);
        }
        let resolved = with_resolved_images(stack, &images).map(|stack| {
            let hashes = Arc::new(StackHashes::of(&stack));
            (Arc::new(stack), hashes)
        });
        let images = images.into_iter().map(|(image, found)| (image.to_owned(), found.to_owned())).collect();
        let made = Made { from: Arc::clone(stack), images, stack: resolved.clone() };
        self.0 = Some(made);
        resolved.unwrap_or_else(unresolved)
    }
}
