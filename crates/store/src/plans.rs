//! Plans, written down before the first step is taken, so that after a crash it can be told what was under
//! way. They are never replayed: the next round looks at Docker and plans anew.

use rusqlite::{Connection, params};

use super::{
    Durability, Error, OpenPlan, PlanId, Source, StepResult, Store, WrittenStep, from_sql, readable, to_json,
    to_sql,
};
use driftless_model::{AppName, Timestamp};
use driftless_plan::Step;

/// How many closed plans are kept per application.
const KEPT: i64 = 20;

impl Store {
    /// Before acting. `revision` is `None` when it undoes drift.
    pub fn write_plan(&self, app: &AppName, revision: Option<u64>, steps: &[Step]) -> Result<PlanId, Error> {
        let now = to_sql(self.clock.now().0);
        self.write("a plan", Durability::Process, |transaction| {
            transaction
                .prepare_cached("INSERT INTO plans (app, revision, at) VALUES (?1, ?2, ?3)")?
                .execute(params![app.as_str(), revision.map(to_sql), now])?;
            let plan = transaction.last_insert_rowid();
            let mut insert =
                transaction.prepare_cached("INSERT INTO steps (plan, position, step) VALUES (?1, ?2, ?3)")?;
            for (position, step) in (0_i64..).zip(steps) {
                insert.execute(params![plan, position, to_json(step)?])?;
            }
            Ok(PlanId(plan))
        })
    }

    /// `index` counts from 0, as in the slice that was given to [`Store::write_plan`]. The error is masked.
    pub fn finish_step(&self, plan: PlanId, index: usize, result: Result<(), &str>) -> Result<(), Error> {
        let position = i64::try_from(index).unwrap_or(i64::MAX);
        // An empty text means "done", so an error without words gets some.
        let result = match result {
            Ok(()) => "",
            Err("") => "failed",
            Err(error) => error,
        };
        self.write("a step", Durability::Process, |transaction| {
            transaction
                .prepare_cached("UPDATE steps SET result = ?3 WHERE plan = ?1 AND position = ?2")?
                .execute(params![plan.0, position, result])?;
            Ok(())
        })
    }

    /// All steps were tried. Keeps the newest closed plans of the application.
    pub fn close_plan(&self, plan: PlanId) -> Result<(), Error> {
        self.write("a plan", Durability::Process, |transaction| {
            transaction.prepare_cached("UPDATE plans SET closed = 1 WHERE id = ?1")?.execute([plan.0])?;
            transaction
                .prepare_cached(
                    "DELETE FROM plans WHERE closed = 1 AND app = (SELECT app FROM plans WHERE id = ?1)
                     AND id NOT IN (SELECT id FROM plans AS other WHERE other.app = plans.app
                                    AND other.closed = 1 ORDER BY id DESC LIMIT ?2)",
                )?
                .execute(params![plan.0, KEPT])?;
            transaction
                .prepare_cached("DELETE FROM steps WHERE plan <= ?1 AND plan NOT IN (SELECT id FROM plans)")?
                .execute([plan.0])?;
            Ok(())
        })
    }

    /// Plans in the midst of which the agent died, oldest first. Close them once they are reported.
    pub fn open_plans(&self, app: &AppName) -> Result<Vec<OpenPlan>, Error> {
        self.read("the open plans", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, revision, at FROM plans WHERE app = ?1 AND closed = 0 ORDER BY id",
            )?;
            let mut rows = statement.query(params![app.as_str()])?;
            let mut plans = Vec::new();
            while let Some(row) = rows.next()? {
                let id = PlanId(row.get(0)?);
                let revision: Option<i64> = row.get(1)?;
                plans.push(OpenPlan {
                    id,
                    app: app.clone(),
                    revision: revision.map(from_sql),
                    at: Timestamp(from_sql(row.get(2)?)),
                    steps: steps(connection, id)?,
                });
            }
            Ok(plans)
        })
    }
}

fn steps(connection: &Connection, plan: PlanId) -> Result<Vec<WrittenStep>, Source> {
    let mut statement =
        connection.prepare_cached("SELECT step, result FROM steps WHERE plan = ?1 ORDER BY position")?;
    let mut rows = statement.query([plan.0])?;
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        let result: Option<String> = row.get(1)?;
        let result = match result {
            None => StepResult::Unknown,
            Some(error) if error.is_empty() => StepResult::Done,
            Some(error) => StepResult::Failed(error),
        };
        steps.extend(readable::<Step>("a step", &text).map(|step| WrittenStep { step, result }));
    }
    Ok(steps)
}
