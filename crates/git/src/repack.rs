//! Repacks a mirror: all objects in use go into one pack, and the other packs are removed. Every fetch adds a pack, and gix
//! neither repacks nor can open many packs.
//!
//! Must not run during a fetch. Readers continue: an open pack stays readable after it is unlinked.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use gix::{ObjectId, objs::Kind, parallel::InOrderIter};
use gix_pack::data::output::{self, count::objects::ObjectExpansion};
use nix::sys::statvfs::statvfs;

use super::{
    error::Cause,
    history,
    mirror::{Damage, damage},
};

/// From this number of packs on, repacking is worth the work.
pub(super) const MANY_PACKS: usize = 20;

/// From this number of packs on, it has to be done: gix fails soon.
pub(super) const MOST_PACKS: usize = 30;

/// Objects per chunk of work.
const CHUNK: usize = 1000;

/// Whether a mirror has at least so many packs.
pub(super) fn is_due(repo: &gix::Repository, packs: usize) -> bool {
    pack_files(repo).iter().filter(|it| it.extension().is_some_and(|it| it == "pack")).count() >= packs
}

/// Leaves one pack with everything that the references and `in_use` reach.
pub(super) fn repack(
    repo: &gix::Repository,
    in_use: &[ObjectId],
    interrupt: &AtomicBool,
) -> Result<(), Damage> {
    let mut wanted = history::referred(repo)?;
    wanted.extend(in_use.iter().copied().filter(|it| history::has_commit(repo, *it)));
    let before = pack_files(repo);
    let folder = pack_folder(repo);
    if let Some(free) = free_space(&folder) {
        check_space(free, &before)?;
    }
    let written = pack_into(repo, wanted, repo, interrupt)?;
    for path in before {
        if !written.contains(&path) && path.starts_with(&folder) {
            fs::remove_file(&path).map_err(|error| Damage::of_disk("remove an old pack", &error))?;
        }
    }
    Ok(())
}

/// Copies everything that `wanted` reaches into a pack of another repository. Returns the written files.
pub(super) fn pack_into(
    from: &gix::Repository,
    wanted: BTreeSet<ObjectId>,
    to: &gix::Repository,
    interrupt: &AtomicBool,
) -> Result<Vec<PathBuf>, Damage> {
    let folder = pack_folder(to);
    // A file with this name is removed at the next start if the process is killed.
    let temporary = folder.join(".tmp-repack");
    let written = write_pack(from, wanted, &temporary, interrupt)
        .and_then(|()| index_pack(from, &temporary, &folder, interrupt));
    // It is not needed any more, even after an error.
    let _ = fs::remove_file(&temporary);
    written
}

fn write_pack(
    repo: &gix::Repository,
    wanted: BTreeSet<ObjectId>,
    path: &Path,
    interrupt: &AtomicBool,
) -> Result<(), Damage> {
    let failed = |error: gix::Error| damage("pack the mirror", &error);
    let ids = reachable(repo, wanted, interrupt)?;
    let mut handle = repo.objects.store().to_handle_arc();
    handle.prevent_pack_unload();
    let handle = gix::odb::Cache::from(handle);
    let mut ids = ids.into_iter().map(Ok);
    let (counts, _) = output::count::objects_unthreaded(
        &handle,
        &mut ids,
        &gix::progress::Discard,
        interrupt,
        ObjectExpansion::TreeContents,
    )
    .map_err(failed)?;
    let number = u32::try_from(counts.len()).map_err(|_| Damage::new("too many objects for one pack"))?;
    let options = output::entry::iter_from_counts::Options {
        thread_limit: Some(2),
        mode: output::entry::iter_from_counts::Mode::PackCopyAndBaseObjects,
        allow_thin_pack: false,
        chunk_size: CHUNK,
        version: gix_pack::data::Version::default(),
        compression: repo.pack_compression().map_err(failed)?,
    };
    let discard = Box::new(gix::progress::Discard);
    let entries = output::entry::iter_from_counts(counts, handle, discard, options).map_err(failed)?;
    let mut entries = InOrderIter::from(entries);
    let file = File::create(path).map_err(|error| Damage::of_disk("write a pack", &error))?;
    let mut file = BufWriter::new(file);
    let bytes = output::bytes::FromEntriesIter::new(
        entries.by_ref(),
        &mut file,
        number,
        gix_pack::data::Version::default(),
        repo.object_hash(),
    );
    for step in bytes {
        step.map_err(failed)?;
        check(interrupt)?;
    }
    file.flush().map_err(|error| Damage::of_disk("write a pack", &error))
}

fn index_pack(
    repo: &gix::Repository,
    pack: &Path,
    folder: &Path,
    interrupt: &AtomicBool,
) -> Result<Vec<PathBuf>, Damage> {
    let failed = |error: gix::Error| damage("index a pack", &error);
    let file = File::open(pack).map_err(|error| Damage::of_disk("read a pack", &error))?;
    let options = gix_pack::bundle::write::Options {
        thread_limit: Some(2),
        iteration_mode: gix_pack::data::input::Mode::Verify,
        index_version: gix_pack::index::Version::default(),
        alloc_limit_bytes: None,
        compression: repo.pack_compression().map_err(failed)?,
    };
    let outcome = gix_pack::Bundle::write_to_directory(
        &mut BufReader::with_capacity(1 << 20, file),
        Some(folder),
        &mut gix::progress::Discard,
        interrupt,
        None::<gix::OdbHandle>,
        repo.object_hash(),
        options,
    )
    .map_err(failed)?;
    if let Some(keep) = &outcome.keep_path {
        fs::remove_file(keep).map_err(|error| Damage::of_disk("release a pack", &error))?;
    }
    Ok([outcome.index_path, outcome.data_path].into_iter().flatten().collect())
}

/// All commits in the history of `wanted`, and the tags and other objects among them.
fn reachable(
    repo: &gix::Repository,
    wanted: BTreeSet<ObjectId>,
    interrupt: &AtomicBool,
) -> Result<Vec<ObjectId>, Damage> {
    let failed = |error: gix::Error| damage("read the history", &error);
    let (mut commits, mut others) = (Vec::new(), Vec::new());
    for id in wanted {
        let mut object = repo.find_object(id).map_err(failed)?;
        loop {
            match object.kind {
                Kind::Commit => {
                    commits.push(object.id);
                    break;
                }
                Kind::Tree | Kind::Blob => {
                    others.push(object.id);
                    break;
                }
                Kind::Tag => {
                    others.push(object.id);
                    let target = object.into_tag().target_id().map_err(failed)?.detach();
                    object = repo.find_object(target).map_err(failed)?;
                }
            }
        }
    }
    let mut ids = Vec::new();
    for commit in repo.rev_walk(commits).all().map_err(failed)? {
        check(interrupt)?;
        ids.push(commit.map_err(|error| Damage::new(format!("could not read the history: {error}")))?.id);
    }
    ids.extend(others);
    Ok(ids)
}

/// Fails if the packs could fill the disk, which containers may use, too. The new pack exists twice while it is indexed.
fn check_space(free: u64, packs: &[PathBuf]) -> Result<(), Damage> {
    let size: u64 = packs.iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum();
    let needed = size.saturating_mul(2);
    if needed <= free {
        return Ok(());
    }
    let message = format!("its disk has {} MiB free, and packing can need {} MiB", free >> 20, needed >> 20);
    Err(Damage { cause: Cause::DiskFull, message })
}

/// `None` if it is unknown. Then the write fails if there is too little.
fn free_space(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    // The types differ between platforms.
    #[allow(clippy::useless_conversion)]
    let (blocks, size) = (u64::from(found.blocks_available()), u64::from(found.fragment_size()));
    Some(blocks.saturating_mul(size))
}

fn check(interrupt: &AtomicBool) -> Result<(), Damage> {
    if interrupt.load(Ordering::Relaxed) {
        return Err(Damage::new("packing was cancelled"));
    }
    Ok(())
}

fn pack_folder(repo: &gix::Repository) -> PathBuf {
    repo.git_dir().join("objects").join("pack")
}

fn pack_files(repo: &gix::Repository) -> Vec<PathBuf> {
    let entries = fs::read_dir(pack_folder(repo)).into_iter().flatten();
    entries.filter_map(Result::ok).map(|it| it.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_needs_twice_the_size_of_the_packs() {
        let dir = tempfile::tempdir().unwrap();
        let packs = [dir.path().join("a.pack"), dir.path().join("b.pack"), dir.path().join("gone.pack")];
        for path in &packs[..2] {
            fs::write(path, [0_u8; 100]).unwrap();
        }
        assert!(check_space(400, &packs).is_ok());
        assert!(check_space(399, &packs).is_err_and(|damage| damage.cause == Cause::DiskFull));
        assert!(free_space(dir.path()).is_some());
        assert!(free_space(&packs[2]).is_none());
    }
}
