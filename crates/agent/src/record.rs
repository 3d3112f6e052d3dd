//! The record of one application in memory and on the disk.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use driftless_docker::key_contents;
use driftless_model::{EventKind, Observed, Record, ScaleOverride, Stack, Timestamp, WorkloadName};
use driftless_plan::suppose_completed;
use driftless_store::{self as store, KnownApplication};

use crate::{
    commits::failure::failed_before, context::AppContext, desired::Desired, error::chain,
    revisions::target::TargetRevision,
};

/// When to store a record again that the disk had no room for.
const STORE_AGAIN: Duration = Duration::from_secs(30);

/// A record, and whether the disk has it.
pub(crate) struct StoredRecord {
    record: Record,
    is_stored: bool,
    /// The database had none, because the application is new or the record was lost, and nothing was concluded from that yet.
    was_missing: bool,
    /// The database had no application of this name either, so no record was lost: it is new, or a user had it forgotten.
    was_unknown: bool,
}

impl StoredRecord {
    /// Reads the record of an application. If it is lost or unreadable, the application begins with an empty one, and with the failed
    /// commit that its revisions tell of.
    pub(crate) fn load(context: &AppContext) -> Self {
        let mut record = context.store().record(context.name()).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not read the record; its counters begin at zero");
            Record::default()
        });
        let was_missing = record == Record::default();
        if was_missing {
            record.failed = failed_before(context);
        }
        let is_unknown = |all: Vec<KnownApplication>| all.iter().all(|known| known.app != *context.name());
        let was_unknown = was_missing && context.store().known_applications().is_ok_and(is_unknown);
        Self { record, is_stored: true, was_missing, was_unknown }
    }

    pub(crate) fn get(&self) -> &Record {
        &self.record
    }

    /// The record, to be changed in memory. Call [`StoredRecord::save`] afterwards.
    pub(crate) fn get_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Notes whether Git has the application. As long as Git was not read, nothing is known against the notes of an earlier life.
    pub(crate) fn note_presence(&mut self, context: &AppContext, desired: &Desired) {
        let (emptied, has_left) = (desired.emptied_count(), desired.is_gone());
        let before = (self.record.emptied, self.record.has_left);
        // Its manifest may have an error when it is back.
        if emptied.is_some() || desired.is_in_git() || desired.rendered().stack.is_some() {
            self.record.emptied = emptied;
        }
        if has_left || emptied.is_some() || desired.is_in_git() {
            self.record.has_left = has_left;
        }
        if (self.record.emptied, self.record.has_left) != before {
            self.save(context);
        }
        if self.record.has_left && !before.1 {
            let message = "Git or the configuration does not have the application any more";
            context.event(EventKind::Normal, "NotInGit", context.name().as_str(), message);
        }
    }

    /// Forgets what was verified with a key file that has another content by now.
    pub(crate) fn forget_other_keys(&mut self) {
        let verified = &mut self.record.verified_images;
        if verified.is_empty() {
            return;
        }
        let present = key_contents(verified.keys());
        verified.retain_keys(&present);
    }

    /// Ends the overrides of numbers of instances whose time has come. What follows is no drift.
    pub(crate) fn end_scales(&mut self, context: &AppContext) {
        let now = context.now();
        let is_ended = |(_, scale): &(&WorkloadName, &ScaleOverride)| scale.until <= now;
        let ended: Vec<WorkloadName> =
            self.record.scales.iter().filter(is_ended).map(|(name, _)| name.clone()).collect();
        if ended.is_empty() {
            return;
        }
        self.record.reopen(ended.iter().cloned());
        self.record.scales.retain(|name, _| !ended.contains(name));
        self.save(context);
        for name in &ended {
            let message = "its time is over; the number of instances in Git counts again";
            context.event(EventKind::Normal, "ScaleEnded", name.as_str(), message);
        }
    }

    /// Writes the record to the disk if it differs from that before the round, or if the last attempt failed. Returns when to try
    /// again.
    pub(crate) fn save_changes(
        &mut self,
        context: &AppContext,
        before: &Record,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if self.record != *before || !self.is_stored {
            self.save(context);
        }
        (!self.is_stored).then(|| now.after(STORE_AGAIN))
    }

    /// Writes the record to the disk. A failure is logged: a full disk must not keep drift from being undone.
    pub(crate) fn save(&mut self, context: &AppContext) {
        let stored = context.store().save_record(context.name(), &self.record);
        self.is_stored = stored.is_ok();
        if let Err(error) = stored {
            tracing::warn!(error = chain(&error), "could not store the record");
        }
    }

    /// If the record was lost: takes the Jobs of the revisions that were reached for complete, if no container of them is left. An
    /// application that a user had forgotten, and of which nothing is left, is a new one: its Jobs run again. So do those of a revision
    /// whose stack cannot be read, and of the ones before it. If the revisions cannot be read, nothing is concluded, and the next
    /// round reads them again.
    pub(crate) fn complete_lost_jobs(
        &mut self,
        context: &AppContext,
        target: &TargetRevision,
        observed: &Observed,
    ) -> Result<(), store::Error> {
        if !self.was_missing {
            return Ok(());
        }
        // Its former containers and volumes were removed by hand.
        let is_left = observed.containers().any(|container| container.agent == *context.agent());
        if self.was_unknown && !is_left {
            self.was_missing = false;
            return Ok(());
        }
        let (store, name) = (context.store(), context.name());
        let mut reached = Vec::new();
        for revision in store.revisions(name)? {
            let stack = if revision.stack == target.hash {
                Arc::clone(&target.stack)
            } else {
                // It may have removed the application, and the Jobs before it run again when that returns.
                match store.stack(name, revision.number) {
                    Ok(Some(stack)) => Arc::new(stack),
                    Ok(None) => break,
                    // One that a newer release cannot read any more must not stop the application for good.
                    Err(error) => {
                        let (app, number) = (name.as_str(), revision.number);
                        tracing::warn!(
                            app,
                            revision = number,
                            error = chain(&error),
                            "a stack cannot be read: its Jobs run again"
                        );
                        break;
                    }
                }
            };
            if stack.is_empty() {
                break;
            }
            if revision.has_been_reached() {
                reached.push((stack, revision.finished.unwrap_or(revision.started)));
            }
        }
        self.was_missing = false;
        let mut jobs = BTreeSet::new();
        for (stack, at) in reached {
            jobs.append(&mut suppose_completed(&mut self.record, &stack, observed, at));
        }
        self.report_supposed(context, &jobs);
        Ok(())
    }

    /// Takes the Jobs of a stack that runs for complete, if no container of them is left: the record of an earlier agent is lost.
    pub(crate) fn suppose_completed(&mut self, context: &AppContext, stack: &Stack, observed: &Observed) {
        let jobs = suppose_completed(&mut self.record, stack, observed, context.now());
        self.report_supposed(context, &jobs);
    }

    /// Stores and reports the Jobs that are taken for complete.
    fn report_supposed(&mut self, context: &AppContext, jobs: &BTreeSet<WorkloadName>) {
        if jobs.is_empty() {
            return;
        }
        self.save(context);
        let names: Vec<&str> = jobs.iter().map(WorkloadName::as_str).collect();
        let message = format!(
            "the record was lost or restored, and no container of {} is left: taken as complete, and not run again",
            names.join(", ")
        );
        context.event(EventKind::Warning, "JobsNotRunAgain", context.name().as_str(), &message);
    }

    /// Replaces the record if the new one can be written to the disk.
    pub(crate) fn replace(&mut self, context: &AppContext, record: Record) -> Result<(), store::Error> {
        context.store().save_record(context.name(), &record)?;
        self.record = record;
        Ok(())
    }
}
