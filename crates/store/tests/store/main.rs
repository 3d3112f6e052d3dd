//! The store as the agent uses it: the database, and the files next to it.

#![allow(clippy::unwrap_used, clippy::pedantic)]

mod archive;
mod contents;
mod database;
mod encryption;
mod images;
mod revisions;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};

use driftless_clock::Clock;
use driftless_model::{
    AppName, Cause, CommitId, CommitInfo, Container, Format, Location, Mount, MountSource, Outcome, Pin,
    Revision, Stack, Strategy, Timestamp, Until, Workload, WorkloadName,
};
use driftless_store::{NewRevision, Store};

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

pub(crate) fn clock() -> Clock {
    Clock::starting_at(NOW)
}

pub(crate) fn shop() -> AppName {
    AppName::from("shop")
}

pub(crate) fn memory() -> Store {
    Store::in_memory(clock()).unwrap()
}

/// A stack that runs an image and mounts what it is given.
pub(crate) fn stack(image: &str, mounts: Vec<MountSource>) -> Stack {
    let mounts = mounts
        .into_iter()
        .enumerate()
        .map(|(index, source)| Mount { target: format!("/mnt/{index}"), source, read_only: true })
        .collect();
    let container = Container { image: image.to_owned(), mounts, ..Container::default() };
    let workload =
        Workload { strategy: Strategy::Recreate, ..Workload::new(Location::file("compose.yaml"), container) };
    Stack {
        workloads: [(WorkloadName::from("web"), workload)].into(),
        manifests: vec!["compose.yaml".to_owned()],
        ..Stack::new(shop(), Format::Compose, "shop")
    }
}

pub(crate) fn new_revision() -> NewRevision {
    NewRevision {
        app: shop(),
        commit: CommitInfo {
            id: CommitId::from_stored("c".repeat(40)),
            subject: "Ship it".to_owned(),
            time: NOW,
            ..CommitInfo::default()
        },
        reference: "main".to_owned(),
        cause: Cause::Commit,
        changes: vec!["web: image".to_owned()],
        rollback_of: None,
        actor: None,
    }
}

/// Begins and finishes a revision.
pub(crate) fn run(store: &Store, image: &str, outcome: Outcome) -> u64 {
    let number = store.begin_revision(&new_revision(), &stack(image, vec![])).unwrap().number;
    store.finish_revision(&shop(), number, &outcome, &BTreeMap::new()).unwrap();
    number
}

pub(crate) fn failed() -> Outcome {
    Outcome::Failed { reason: "it does not start".to_owned() }
}

pub(crate) fn numbers(revisions: &[Revision]) -> Vec<u64> {
    revisions.iter().map(|it| it.number).collect()
}

pub(crate) fn pin(revision: u64) -> Pin {
    Pin {
        revision,
        commit: CommitId::from_stored("c".repeat(40)),
        reason: "it broke".to_owned(),
        at: NOW,
        until: Until::NextCommit,
        skip: Some(CommitId::from_stored("d".repeat(40))),
        skip_stack: None,
        actor: None,
    }
}

/// Makes a database one of version 4: without the tables that came later.
pub(crate) fn make_older(connection: &rusqlite::Connection) {
    let later = [
        "tokens",
        "audit",
        "incidents",
        "notifications",
        "fleet_hosts",
        "fleet_reports",
        "fleet_history",
        "fleet_keys",
        "fleet_invites",
        "enrolments",
        "fleet_requests",
        "host_requests",
        "images",
        "containers",
        "known_containers",
    ];
    for table in later {
        connection.execute(&format!("DROP TABLE IF EXISTS {table}"), []).unwrap();
    }
    connection.pragma_update(None, "user_version", 4).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
