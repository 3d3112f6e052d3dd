//! Revisions with their rendered stacks, so that a rollback is possible without Git.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::{
    error::{BoxError, Durability, Error},
    sealed::stack_text,
    store::{NewRevision, Store, from_json, from_sql, readable, to_json, to_sql},
};
use driftless_model::{
    AppName, Cause, ContentId, MountSource, Outcome, Pin, Revision, Stack, StackHash, Timestamp, Workload,
};

/// The number of revisions with success that are kept for each application, and of those without.
const MAX_REVISIONS: usize = 10;

/// The number of removed applications whose revisions are kept, however long ago they were removed.
const MAX_REMOVED: usize = 50;

/// The time for which the revisions of all removed applications are kept.
const REMOVED_KEPT: Duration = Duration::from_hours(90 * 24);

impl Store {
    /// Begins the next revision. An older one that is still in progress becomes `Superseded`.
    pub fn begin_revision(&self, new: &NewRevision, stack: &Stack) -> Result<Revision, Error> {
        let now = self.clock.now();
        let hash = StackHash::of(stack);
        let json = to_json(stack).map_err(|source| Error::Write { what: "a stack", source })?;
        self.write_twice("a revision", Durability::Power, |transaction| {
            for mut older in select(transaction, &new.app, "AND outcome = 'inProgress'")? {
                older.outcome = Outcome::Superseded;
                older.finished = Some(now);
                put(transaction, &older)?;
            }
            let revision = Revision {
                app: new.app.clone(),
                number: next_number(transaction, &new.app)?,
                commit: new.commit.clone(),
                reference: new.reference.clone(),
                started: now,
                finished: None,
                cause: new.cause.clone(),
                outcome: Outcome::InProgress,
                stack: hash.clone(),
                changes: new.changes.clone(),
                images: BTreeMap::new(),
                rollback_of: new.rollback_of,
                actor: new.actor.clone(),
                was_reached: false,
            };
            let sealed = self.seal.seal("stacks", &hash.0, &json)?;
            put_stack(transaction, &hash, stack, &sealed)?;
            put(transaction, &revision)?;
            Ok(revision)
        })
    }

    /// Stores the outcome of a revision, and removes old ones: the last 10 with success and the last 10 without are kept,
    /// and always the pinned one, the last success, the last one that was reached and the newest. A failed revision may still
    /// succeed later; a superseded one stays superseded. Empty `images` leave the stored ones as they are.
    pub fn finish_revision(
        &self,
        app: &AppName,
        number: u64,
        outcome: &Outcome,
        images: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        let found = self.write_twice("a revision", Durability::Power, |transaction| {
            let Some(mut revision) = select_one(transaction, app, number)? else { return Ok(false) };
            if revision.outcome != Outcome::Superseded {
                revision.finish(outcome, images, now);
                put(transaction, &revision)?;
            }
            remove_old(transaction, app)?;
            Ok(true)
        })?;
        if found { Ok(()) } else { Err(Error::NoSuchRevision { app: app.clone(), number }) }
    }

    /// The revisions of an application, newest first.
    pub fn revisions(&self, app: &AppName) -> Result<Vec<Revision>, Error> {
        self.read("the revisions", |connection| select(connection, app, ""))
    }

    /// A revision by its number.
    pub fn revision(&self, app: &AppName, number: u64) -> Result<Option<Revision>, Error> {
        self.read("a revision", |connection| select_one(connection, app, number))
    }

    /// Gives the removals of applications that an older release stored their cause, so that no rollback goes back to one.
    pub(crate) fn name_removals(&self) -> Result<(), Error> {
        let removals = self.read("the revisions", |connection| {
            let mut statement = connection.prepare("SELECT revision FROM revisions")?;
            let mut rows = statement.query([])?;
            let mut removals = Vec::new();
            while let Some(row) = rows.next()? {
                let text: String = row.get(0)?;
                // An unreadable one is reported when it is used.
                let Ok(revision) = serde_json::from_str::<Revision>(&text) else { continue };
                if !may_be_removal(&revision) {
                    continue;
                }
                let stack = stack_text(connection, &self.seal, &revision.app, to_sql(revision.number))?;
                if stack.is_some_and(|text| from_json::<Stack>(&text).is_ok_and(|stack| stack.is_empty())) {
                    removals.push(Revision { cause: Cause::Removal, ..revision });
                }
            }
            Ok(removals)
        })?;
        if removals.is_empty() {
            return Ok(());
        }
        self.write_twice("the causes of removals", Durability::Power, |transaction| {
            removals.iter().try_for_each(|removal| put(transaction, removal))
        })
    }

    /// The stack of a revision as it was rendered. `None`: there is none, or it was encrypted with a key that is lost.
    pub fn stack(&self, app: &AppName, number: u64) -> Result<Option<Stack>, Error> {
        self.read("a stack", |connection| {
            let text = stack_text(connection, &self.seal, app, to_sql(number))?;
            text.as_deref().map(from_json).transpose()
        })
    }

    /// Like [`Self::stack`], and `None` also if another release stored it in a form that this one cannot read.
    pub fn readable_stack(&self, revision: &Revision) -> Result<Option<Stack>, Error> {
        let (app, number) = (&revision.app, revision.number);
        let text =
            self.read("a stack", |connection| stack_text(connection, &self.seal, app, to_sql(number)))?;
        let Some(text) = text else { return Ok(None) };
        let stack = serde_json::from_str(&text).ok();
        if stack.is_none() {
            // Without the error, which may quote a value of the stack.
            tracing::warn!(%app, number, "the stack of a revision is unreadable and is ignored");
        }
        Ok(stack)
    }

    /// The stacks of all kept revisions of an application, each once. Those that were encrypted with a key that is lost, or
    /// that another release stored in a form that this one cannot read, are left out.
    pub fn stacks(&self, app: &AppName) -> Result<Vec<Stack>, Error> {
        let mut seen = BTreeSet::new();
        let revisions = self.revisions(app)?.into_iter();
        let new = revisions.filter(|revision| seen.insert(revision.stack.clone()));
        new.filter_map(|revision| self.readable_stack(&revision).transpose()).collect()
    }

    /// Replaces the stored copy of a stack, which was encrypted with a key that is lost.
    pub fn store_stack_again(&self, stack: &Stack) -> Result<(), Error> {
        let hash = StackHash::of(stack);
        let json = to_json(stack).map_err(|source| Error::Write { what: "a stack", source })?;
        self.write_twice("a stack", Durability::Power, |transaction| {
            put_stack(transaction, &hash, stack, &self.seal.seal("stacks", &hash.0, &json)?)
        })
    }

    /// The newest revision, with any outcome.
    pub fn current(&self, app: &AppName) -> Result<Option<Revision>, Error> {
        Ok(self.revisions(app)?.into_iter().next())
    }

    /// The newest revision with its stack. `None`: there is none, or its stack was encrypted with a key that is lost.
    pub fn current_stack(&self, app: &AppName) -> Result<Option<(Revision, Stack)>, Error> {
        let Some(revision) = self.current(app)? else { return Ok(None) };
        let stack = self.stack(app, revision.number)?;
        Ok(stack.map(|stack| (revision, stack)))
    }

    /// Removes the revisions of applications that were removed long ago, with their stacks. The counts of revisions stay. The number and
    /// the time must both be exceeded, so that a clock that is wrong for a moment removes little.
    pub(crate) fn remove_former_revisions(&self) -> Result<(), Error> {
        let now = self.clock.now();
        let former = self.read("the revisions", former_applications)?;
        let is_old = |removal: &Revision| removed_at(removal).after(REMOVED_KEPT) < now;
        let old: Vec<Revision> = former.into_iter().skip(MAX_REMOVED).filter(is_old).collect();
        if old.is_empty() {
            return Ok(());
        }
        self.write_twice("the revisions", Durability::Process, |transaction| {
            // An application that has just come back has newer ones.
            let mut delete =
                transaction.prepare_cached("DELETE FROM revisions WHERE app = ?1 AND number <= ?2")?;
            for removal in &old {
                delete.execute(params![removal.app.as_str(), to_sql(removal.number)])?;
            }
            remove_unused_stacks(transaction)
        })
    }

    /// The contents that stored stacks mount. Running containers may mount more: see
    /// [`driftless_model::Instance::contents`].
    pub fn contents_in_use(&self) -> Result<BTreeSet<ContentId>, Error> {
        self.read("the contents in use", |connection| {
            let mut statement = connection.prepare_cached("SELECT DISTINCT content FROM stack_contents")?;
            let ids = statement.query_map([], |row| row.get(0))?;
            Ok(ids.map(|id| id.map(ContentId)).collect::<Result<_, _>>()?)
        })
    }
}

/// Whether a revision that an older release stored may have removed the application. Few others are read for it: all of these
/// dropped a workload and have no image.
fn may_be_removal(revision: &Revision) -> bool {
    let drops = |change: &String| change.ends_with(": removed");
    !revision.is_removal() && revision.images.is_empty() && revision.changes.iter().any(drops)
}

fn next_number(transaction: &Transaction<'_>, app: &AppName) -> Result<u64, BoxError> {
    let number: i64 = transaction
        .prepare_cached(
            "INSERT INTO numbers (app, last) VALUES (?1, 1)
             ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last",
        )?
        .query_row(params![app.as_str()], |row| row.get(0))?;
    Ok(from_sql(number))
}

fn put(transaction: &Transaction<'_>, revision: &Revision) -> Result<(), BoxError> {
    let outcome = match revision.outcome {
        Outcome::InProgress => "inProgress",
        Outcome::Succeeded => "succeeded",
        Outcome::Failed { .. } => "failed",
        Outcome::Superseded => "superseded",
    };
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO revisions (app, number, outcome, stack, revision)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            revision.app.as_str(),
            to_sql(revision.number),
            outcome,
            revision.stack.0,
            to_json(revision)?
        ])?;
    Ok(())
}

/// Revisions with the same stack share it.
fn put_stack(
    transaction: &Transaction<'_>,
    hash: &StackHash,
    stack: &Stack,
    sealed: &[u8],
) -> Result<(), BoxError> {
    // A row that is there may have been sealed with a lost key.
    transaction
        .prepare_cached(
            "INSERT INTO stacks (hash, stack) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET stack = excluded.stack",
        )?
        .execute(params![hash.0, sealed])?;
    let mounted = stack
        .workloads
        .values()
        .flat_map(Workload::containers)
        .flat_map(|container| &container.mounts)
        .filter_map(|mount| match &mount.source {
            MountSource::Content(id) | MountSource::Secret(id) => Some(id),
            MountSource::Bind { .. }
            | MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Image(_)
            | MountSource::Empty
            | MountSource::Tmpfs { .. }
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => None,
        });
    let mut insert =
        transaction.prepare_cached("INSERT OR IGNORE INTO stack_contents (hash, content) VALUES (?1, ?2)")?;
    let logins = stack.workloads.values().flat_map(|workload| &workload.pull_secrets);
    let in_place =
        stack.workloads.values().flat_map(|workload| workload.in_place.values()).map(|file| &file.content);
    for id in mounted.chain(in_place).chain(stack.app_files.values()).chain(logins) {
        insert.execute(params![hash.0, id.0])?;
    }
    Ok(())
}

fn remove_old(transaction: &Transaction<'_>, app: &AppName) -> Result<(), BoxError> {
    let pin: Option<String> = transaction
        .query_row("SELECT pin FROM pins WHERE app = ?1", params![app.as_str()], |row| row.get(0))
        .optional()?;
    let pin: Option<Pin> = pin.as_deref().map(from_json).transpose()?;
    let (mut succeeded, mut others) = (0, 0);
    let mut has_removed = false;
    let revisions = select(transaction, app, "")?;
    // One that has failed since is what runs.
    let last_reached = revisions.iter().find(|revision| revision.has_been_reached());
    let last_reached = last_reached.map(|revision| revision.number);
    for (position, revision) in revisions.iter().enumerate() {
        // The newest comes first, so the last success is always within the limit.
        let seen = match revision.outcome {
            Outcome::Succeeded => &mut succeeded,
            Outcome::InProgress | Outcome::Failed { .. } | Outcome::Superseded => &mut others,
        };
        *seen += 1;
        let is_pinned = pin.as_ref().is_some_and(|pin| pin.revision == revision.number);
        let is_kept = is_pinned || last_reached == Some(revision.number);
        if *seen > MAX_REVISIONS && position > 0 && !is_kept {
            transaction
                .prepare_cached("DELETE FROM revisions WHERE app = ?1 AND number = ?2")?
                .execute(params![app.as_str(), to_sql(revision.number)])?;
            has_removed = true;
        }
    }
    if has_removed {
        remove_unused_stacks(transaction)?;
    }
    Ok(())
}

fn remove_unused_stacks(transaction: &Transaction<'_>) -> Result<(), BoxError> {
    transaction.execute("DELETE FROM stacks WHERE hash NOT IN (SELECT stack FROM revisions)", [])?;
    transaction.execute("DELETE FROM stack_contents WHERE hash NOT IN (SELECT hash FROM stacks)", [])?;
    Ok(())
}

/// The removals of applications of which nothing else is stored any more, the newest first. An application that a user has told the
/// agent to forget was not removed: its containers may be there, and its revisions say that they are no surprise.
fn former_applications(connection: &Connection) -> Result<Vec<Revision>, BoxError> {
    let mut statement = connection.prepare_cached(
        "SELECT app, MAX(number), revision FROM revisions
         WHERE app NOT IN (
            SELECT app FROM applications UNION SELECT app FROM records
            UNION SELECT app FROM pins UNION SELECT app FROM suspensions
         )
         GROUP BY app",
    )?;
    let texts: Vec<String> = statement.query_map([], |row| row.get(2))?.collect::<Result<_, _>>()?;
    let newest = texts.iter().filter_map(|text| readable::<Revision>("a revision", text));
    let mut removals: Vec<Revision> = newest.filter(Revision::is_removal).collect();
    removals.sort_by_key(|removal| Reverse(removed_at(removal)));
    Ok(removals)
}

fn removed_at(removal: &Revision) -> Timestamp {
    removal.finished.unwrap_or(removal.started)
}

fn select(connection: &Connection, app: &AppName, condition: &str) -> Result<Vec<Revision>, BoxError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT revision FROM revisions WHERE app = ?1 {condition} ORDER BY number DESC"
    ))?;
    let mut rows = statement.query(params![app.as_str()])?;
    let mut revisions = Vec::new();
    while let Some(row) = rows.next()? {
        // Not an error: a damaged row must not hide the others for good.
        let Ok(text) = row.get::<_, String>(0) else {
            tracing::warn!(%app, "a revision in the database is no text and is ignored");
            continue;
        };
        revisions.extend(readable::<Revision>("a revision", &text));
    }
    Ok(revisions)
}

fn select_one(connection: &Connection, app: &AppName, number: u64) -> Result<Option<Revision>, BoxError> {
    let text: Option<String> = connection
        .prepare_cached("SELECT revision FROM revisions WHERE app = ?1 AND number = ?2")?
        .query_row(params![app.as_str(), to_sql(number)], |row| row.get(0))
        .optional()?;
    text.as_deref().map(from_json).transpose()
}
