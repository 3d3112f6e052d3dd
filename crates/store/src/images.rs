//! The images that the agent pulled or built, and those that kept revisions need.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, params};

use crate::{
    error::{BoxError, Durability, Error},
    sealed::stack_text,
    store::{Store, from_json, from_sql, readable, to_json, to_sql},
};
use driftless_model::{
    AppName, BroughtImage, Build, ImageRetention, Outcome, Pin, Revision, RevisionImages, Stack, Timestamp,
};

const WHAT: &str = "the images of the agent";

impl Store {
    /// Notes that the agent has pulled or built an image, or adds names to one that it brought before.
    pub fn note_brought_image(&self, image: &BroughtImage) -> Result<(), Error> {
        self.write_twice(WHAT, Durability::Process, |transaction| {
            let mut image = image.clone();
            let known: Option<String> = transaction
                .prepare_cached("SELECT image FROM images WHERE id = ?1")?
                .query_row(params![image.id], |row| row.get(0))
                .optional()?;
            if let Some(known) = known.and_then(|text| readable::<BroughtImage>("an image", &text)) {
                image.names.extend(known.names);
                image.is_pulled |= known.is_pulled;
            }
            transaction
                .prepare_cached("INSERT OR REPLACE INTO images (id, image) VALUES (?1, ?2)")?
                .execute(params![image.id, to_json(&image)?])?;
            Ok(())
        })
    }

    /// The images that the agent has pulled or built. Some may be gone.
    pub fn brought_images(&self) -> Result<Vec<BroughtImage>, Error> {
        self.read(WHAT, select)
    }

    /// Forgets images that are gone. If the engine gets one of them again, somebody else has brought it. One that was noted again since
    /// it was read is kept.
    pub fn forget_brought_images(&self, gone: &[BroughtImage]) -> Result<(), Error> {
        self.write_twice(WHAT, Durability::Process, |transaction| {
            for image in select(transaction)?.iter().filter(|image| gone.contains(image)) {
                transaction.prepare_cached("DELETE FROM images WHERE id = ?1")?.execute(params![image.id])?;
            }
            Ok(())
        })
    }

    /// The images that the kept revisions of all applications need. `Err` with the first revision that cannot be read: its
    /// images are unknown. Such a revision of an application that was removed counts no more: nothing goes back to it.
    pub fn revision_images(
        &self,
        retention: &ImageRetention,
    ) -> Result<Result<Vec<RevisionImages>, (AppName, u64)>, Error> {
        let now = self.clock.now();
        self.read("the images of revisions", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT revisions.app, revisions.number, revisions.revision, pins.pin,
                    EXISTS (SELECT 1 FROM applications WHERE applications.app = revisions.app)
                 FROM revisions LEFT JOIN pins ON pins.app = revisions.app
                 ORDER BY revisions.app, revisions.number DESC",
            )?;
            let mut rows = statement.query([])?;
            let mut kept = Vec::new();
            let mut last = Position::default();
            while let Some(row) = rows.next()? {
                let (app, number): (String, i64) = (row.get(0)?, row.get(1)?);
                let (revision, pin): (String, Option<String>) = (row.get(2)?, row.get(3)?);
                let is_known: bool = row.get(4)?;
                let Some(revision) = readable::<Revision>("a revision", &revision) else {
                    if is_known {
                        return Ok(Err((AppName(app), from_sql(number))));
                    }
                    continue;
                };
                let pin: Option<Pin> = pin.as_deref().map(from_json).transpose()?;
                let is_pinned = pin.is_some_and(|pin| pin.revision == revision.number);
                if last.is_kept(&revision, retention, now) || is_pinned {
                    kept.push((revision, is_known));
                }
            }
            let mut needed = Vec::new();
            for (Revision { app, number, images, .. }, is_known) in kept {
                let Some(text) = stack_text(connection, &self.seal, &app, to_sql(number))? else {
                    if is_known {
                        return Ok(Err((app, number)));
                    }
                    continue;
                };
                let mut references = references(&from_json(&text)?);
                references.extend(images.into_values());
                needed.push(RevisionImages { app, number, images: references });
            }
            Ok(Ok(needed))
        })
    }
}

/// The place of a revision among those of its application, newest first.
#[derive(Default)]
struct Position {
    app: Option<AppName>,
    count: usize,
    has_succeeded: bool,
    has_been_reached: bool,
}

impl Position {
    /// Moves on to the next revision, and says whether its images are kept.
    fn is_kept(&mut self, revision: &Revision, retention: &ImageRetention, now: Timestamp) -> bool {
        if self.app.as_ref() != Some(&revision.app) {
            *self = Self { app: Some(revision.app.clone()), ..Self::default() };
        }
        self.count += 1;
        let is_success = revision.outcome == Outcome::Succeeded;
        let is_last_success = is_success && !self.has_succeeded;
        self.has_succeeded |= is_success;
        // One that has failed since is what runs.
        let is_last_reached = revision.has_been_reached() && !self.has_been_reached;
        self.has_been_reached |= revision.has_been_reached();
        let is_recent = self.count <= retention.revisions && now.since(revision.started) <= retention.age;
        self.count == 1 || is_last_success || is_last_reached || is_recent
    }
}

/// The images that a stack names: those that it runs and mounts, and the further names of those that it builds.
fn references(stack: &Stack) -> BTreeSet<String> {
    let builds = stack.workloads.values().filter_map(|workload| workload.build.as_ref());
    let tags = builds.flat_map(|Build { tags, .. }| tags);
    stack.images().chain(tags).cloned().collect()
}

fn select(connection: &rusqlite::Connection) -> Result<Vec<BroughtImage>, BoxError> {
    let mut statement = connection.prepare_cached("SELECT image FROM images ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut images = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        images.extend(readable::<BroughtImage>("an image", &text));
    }
    Ok(images)
}
