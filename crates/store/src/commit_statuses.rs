//! What forges are to be told about commits, and what they have been told: an outbox that survives the process,
//! so that nothing is told twice and nothing is forgotten. It sends nothing.

use rusqlite::params;

use super::{Durability, Error, Store};

/// How many commits are remembered for one context.
const KEPT: i64 = 10;

/// One status of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusNote {
    pub commit: String,
    /// `driftless/shop`
    pub context: String,
    /// `pending`, `success`, `failure`, `error`
    pub state: String,
    pub description: String,
}

impl Store {
    /// What a commit's status is to be. The pending ones of other commits in its context are ended: nobody will
    /// end them later. False when all of this was known.
    pub fn note_status(&self, repository: &str, note: &StatusNote) -> Result<bool, Error> {
        let StatusNote { commit, context, state, description } = note;
        self.write("a commit's status", Durability::Process, |transaction| {
            let known: i64 = transaction
                .prepare_cached(
                    "SELECT COUNT(*) FROM statuses WHERE repository = ?1 AND context = ?2 AND commit_id = ?3 \
                     AND state = ?4 AND description = ?5",
                )?
                .query_row(params![repository, context, commit, state, description], |row| row.get(0))?;
            if known > 0 {
                return Ok(false);
            }
            let superseded = format!("superseded by {}", commit.get(..12).unwrap_or(commit));
            // Whoever was never told that it is pending need not be told that it is not.
            transaction
                .prepare_cached(
                    "DELETE FROM statuses WHERE repository = ?1 AND context = ?2 AND commit_id <> ?3 AND \
                     state = 'pending' AND told = 0",
                )?
                .execute(params![repository, context, commit])?;
            transaction
                .prepare_cached(
                    "UPDATE statuses SET state = 'error', description = ?4, sent = 0 WHERE repository = ?1 AND \
                     context = ?2 AND commit_id <> ?3 AND state = 'pending'",
                )?
                .execute(params![repository, context, commit, superseded])?;
            transaction
                .prepare_cached(
                    "INSERT INTO statuses (repository, context, commit_id, state, description, sent, told) \
                     VALUES (?1, ?2, ?3, ?4, ?5, 0, 0) ON CONFLICT (repository, context, commit_id) DO UPDATE \
                     SET state = ?4, description = ?5, sent = 0",
                )?
                .execute(params![repository, context, commit, state, description])?;
            transaction
                .prepare_cached(
                    "DELETE FROM statuses WHERE repository = ?1 AND context = ?2 AND sequence <= (SELECT sequence \
                     FROM statuses WHERE repository = ?1 AND context = ?2 ORDER BY sequence DESC LIMIT 1 OFFSET ?3)",
                )?
                .execute(params![repository, context, KEPT])?;
            Ok(true)
        })
    }

    /// What the forge has not been told yet, oldest first.
    pub fn unsent_statuses(&self, repository: &str) -> Result<Vec<StatusNote>, Error> {
        self.read("unsent statuses", |connection| {
            let notes = connection
                .prepare_cached(
                    "SELECT commit_id, context, state, description FROM statuses WHERE repository = ?1 AND \
                     sent = 0 ORDER BY sequence",
                )?
                .query_map(params![repository], |row| {
                    Ok(StatusNote {
                        commit: row.get(0)?,
                        context: row.get(1)?,
                        state: row.get(2)?,
                        description: row.get(3)?,
                    })
                })?
                .collect::<Result<_, _>>()?;
            Ok(notes)
        })
    }

    /// The forge has been told, unless there is more to tell meanwhile.
    pub fn sent_status(&self, repository: &str, note: &StatusNote) -> Result<(), Error> {
        let StatusNote { commit, context, state, description } = note;
        self.write("that a status was sent", Durability::Process, |transaction| {
            transaction
                .prepare_cached(
                    "UPDATE statuses SET told = 1, sent = (state = ?4 AND description = ?5) WHERE repository = ?1 \
                     AND context = ?2 AND commit_id = ?3",
                )?
                .execute(params![repository, context, commit, state, description])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;

    fn note(commit: &str, state: &str) -> StatusNote {
        StatusNote {
            commit: commit.repeat(40),
            context: "driftless/shop".to_owned(),
            state: state.to_owned(),
            description: String::new(),
        }
    }

    #[test]
    fn each_status_is_sent_once() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.note_status("infra", &note("a", "pending")).unwrap());
        assert!(!store.note_status("infra", &note("a", "pending")).unwrap());
        assert_eq!(store.unsent_statuses("infra").unwrap(), [note("a", "pending")]);
        // While it is being sent, there is more to say.
        assert!(store.note_status("infra", &note("a", "success")).unwrap());
        store.sent_status("infra", &note("a", "pending")).unwrap();
        assert_eq!(store.unsent_statuses("infra").unwrap(), [note("a", "success")]);
        store.sent_status("infra", &note("a", "success")).unwrap();
        assert_eq!(store.unsent_statuses("infra").unwrap(), []);
        assert!(!store.note_status("infra", &note("a", "success")).unwrap(), "nor after a restart");
    }

    #[test]
    fn what_is_pending_is_ended_when_another_commit_comes() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.note_status("infra", &note("a", "pending")).unwrap();
        store.sent_status("infra", &note("a", "pending")).unwrap();
        store.note_status("infra", &note("b", "pending")).unwrap();
        let unsent = store.unsent_statuses("infra").unwrap();
        assert_eq!(unsent.iter().map(|it| it.state.as_str()).collect::<Vec<_>>(), ["error", "pending"]);
        assert_eq!(unsent[0].description, "superseded by bbbbbbbbbbbb");
        // b was never told.
        store.note_status("infra", &note("c", "success")).unwrap();
        let unsent = store.unsent_statuses("infra").unwrap();
        assert_eq!(unsent.iter().map(|it| &it.commit[..1]).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let store = Store::in_memory(Clock::System).unwrap();
        for number in 0..50 {
            let it = StatusNote { commit: number.to_string(), ..note("a", "success") };
            store.note_status("infra", &it).unwrap();
        }
        assert_eq!(store.unsent_statuses("infra").unwrap().len(), 10);
    }
}
