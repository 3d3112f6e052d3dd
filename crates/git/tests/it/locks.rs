//! Lock files that a write left behind in the mirror.

use std::{
    fs::{self, File},
    time::UNIX_EPOCH,
};

use driftless_git::CommitSource;

use crate::{
    fetch::{open, options},
    origin::{Origin, known},
};

#[tokio::test]
async fn old_lock_files_do_not_stop_fetches() {
    let origin = Origin::new();
    let repository = open(options(&origin, origin.path().to_str().unwrap()));
    let first = repository.fetch(None).await.unwrap().commit.id;
    let locks = ["packed-refs.lock", "HEAD.lock", "config.lock", "shallow.lock", "refs/driftless/tip.lock"];
    let locks = locks.map(|name| origin.mirror().join(name));
    for lock in &locks {
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        File::create(lock).unwrap().set_modified(UNIX_EPOCH).unwrap();
    }
    let second = origin.commit("compose.yaml", "new");
    assert_eq!(repository.fetch(Some(&first)).await.unwrap().commit.id, second);
    repository.keep(vec![first, known(&second)]).await.unwrap();
    assert!(locks.iter().all(|lock| !lock.exists()));
}
