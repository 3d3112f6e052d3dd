//! The restoration of a backup: the application may have applied newer commits than the restored database knows.

use crate::{context::AppContext, error::chain};

/// Whether the database was restored, and the newest commit was not compared with the containers since.
pub(super) struct Restoration {
    is_open: bool,
}

impl Restoration {
    pub(super) fn load(context: &AppContext) -> Self {
        let is_open = context.store().is_restored(context.name()).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not read whether the database was restored");
            false
        });
        Self { is_open }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Ends it. True: it was open.
    pub(super) fn end(&mut self, context: &AppContext) -> bool {
        if !std::mem::take(&mut self.is_open) {
            return false;
        }
        if let Err(error) = context.store().end_restoration(context.name()) {
            tracing::warn!(error = chain(&error), "could not note that the restoration has ended");
        }
        true
    }
}
