//! Commits, references and whether they can be read: everything about a mirror's content but files.
//!
//! Works on one open handle; never touches the network.

use std::{collections::BTreeSet, time::Duration};

use gix::{
    ObjectId,
    bstr::ByteSlice,
    objs::{Kind, tree::EntryKind},
    prelude::FindExt,
    refs::{
        FullName,
        file::transaction::PackedRefs,
        transaction::{PreviousValue, RefEdit},
    },
};

use super::mirror::{Damage, damage};
use driftless_model::{CommitId, CommitInfo, Mask, Timestamp, printable};

/// The one reference that a fetch writes, independent of its name on the server: so a branch `a/b` can follow
/// on a branch `a`, and a change of the configuration leaves nothing behind.
pub(super) const TIP: &str = "refs/driftless/tip";

const KEEP: &str = "refs/driftless/keep/";

/// Verification unpacks files up to this size; of larger ones only the header is read.
const UNPACK: u64 = 32 * 1024 * 1024;

/// The most commits that are counted: a walk takes about 10 µs and 50 bytes for each.
const LONGEST: u64 = 100_000;

const LOCK_WAIT: Duration = Duration::from_secs(2);

/// The object that the last fetch received.
pub(super) enum Tip {
    Commit(ObjectId),
    /// A tag may point to anything.
    Other(Kind),
}

/// The commit that [`TIP`] points to; `None` if nothing was fetched.
pub(super) fn tip(repo: &gix::Repository) -> Result<Option<Tip>, Damage> {
    let Some(id) = tip_object(repo)? else { return Ok(None) };
    let object = repo.find_object(id).map_err(|error| damage("read the newest commit", &error))?;
    let object = object.peel_tags_to_end().map_err(|error| damage("read the newest commit", &error))?;
    Ok(Some(match object.kind {
        Kind::Commit => Tip::Commit(object.id),
        other @ (Kind::Tree | Kind::Blob | Kind::Tag) => Tip::Other(other),
    }))
}

/// The object that [`TIP`] itself points to: a commit, or an annotated tag.
pub(super) fn tip_object(repo: &gix::Repository) -> Result<Option<ObjectId>, Damage> {
    let found = repo.try_find_reference(TIP).map_err(|error| damage("read the references", &error))?;
    Ok(found.and_then(|it| it.try_id().map(gix::Id::detach)))
}

/// A commit's bytes, and those of the annotated tag by which it was fetched, if it was.
pub(super) fn raw(repo: &gix::Repository, commit: ObjectId) -> Result<(Vec<u8>, Option<Vec<u8>>), Damage> {
    let failed = |error: gix::Error| damage(&format!("read the commit {commit}"), &error);
    let bytes = repo.find_commit(commit).map_err(failed)?.data.clone();
    let is_tip = matches!(tip(repo)?, Some(Tip::Commit(it)) if it == commit);
    let Some(id) = tip_object(repo)?.filter(|it| is_tip && *it != commit) else { return Ok((bytes, None)) };
    let tag = repo.find_object(id).map_err(failed)?;
    Ok((bytes, Some(tag.data.clone())))
}

pub(super) fn has_commit(repo: &gix::Repository, id: ObjectId) -> bool {
    repo.find_header(id).is_ok_and(|it| it.kind() == Kind::Commit)
}

pub(super) fn commit_info(repo: &gix::Repository, id: ObjectId) -> Result<CommitInfo, Damage> {
    let failed = |error: gix::Error| damage(&format!("read the commit {id}"), &error);
    let commit = repo.find_commit(id).map_err(failed)?;
    let author = commit.author().map_err(failed)?;
    let time = commit.time().map_err(failed)?;
    let subject = commit.message_raw_sloppy().lines().next().unwrap_or_default();
    // Everything that shows them may be a terminal, and somebody may have pasted an address with its password.
    Ok(CommitInfo {
        id: CommitId::from_stored(id.to_string()),
        author: printable(&format!("{} <{}>", author.name.trim().as_bstr(), author.email.trim().as_bstr())),
        subject: Mask::without_codes().message(&printable(subject.to_str_lossy().trim())),
        time: Timestamp(u64::try_from(time.seconds).unwrap_or(0).saturating_mul(1000)),
    })
}

/// Reads every folder and file of a commit, since a truncated pack shows only then. What the commit `verified` has, too, was
/// read before and is not read again.
pub(super) fn verify(
    repo: &gix::Repository,
    commit: ObjectId,
    verified: Option<ObjectId>,
) -> Result<(), Damage> {
    let failed = |error: gix::Error| damage(&format!("read the files of {commit}"), &error);
    let mut seen = BTreeSet::new();
    if let Some(verified) = verified
        && has_commit(repo, verified)
    {
        each_new_file(repo, verified, &mut seen, |_| Ok(()))?;
    }
    each_new_file(repo, commit, &mut seen, |file| {
        if repo.find_header(file).map_err(failed)?.size() <= UNPACK {
            repo.find_object(file).map_err(failed)?;
        }
        Ok(())
    })
}

/// Reads the folders of a commit that are not in `seen`, and calls `read` for each file that is not. All become seen.
fn each_new_file(
    repo: &gix::Repository,
    commit: ObjectId,
    seen: &mut BTreeSet<ObjectId>,
    mut read: impl FnMut(ObjectId) -> Result<(), Damage>,
) -> Result<(), Damage> {
    let failed = |error: gix::Error| damage(&format!("read the files of {commit}"), &error);
    let root = repo.find_commit(commit).and_then(|it| it.tree_id().map(gix::Id::detach)).map_err(failed)?;
    let mut trees = Vec::new();
    if seen.insert(root) {
        trees.push(root);
    }
    let mut buffer = Vec::new();
    while let Some(tree) = trees.pop() {
        let mut files = Vec::new();
        let entries = repo.objects.find_tree_iter(&tree, &mut buffer);
        for entry in
            entries.map_err(|error| Damage::new(format!("could not read the folder {tree}: {error}")))?
        {
            let entry =
                entry.map_err(|error| Damage::new(format!("could not read the folder {tree}: {error}")))?;
            let id = entry.oid.to_owned();
            if !seen.insert(id) {
                continue;
            }
            match entry.mode.kind() {
                EntryKind::Tree => trees.push(id),
                EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link => files.push(id),
                EntryKind::Commit => {}
            }
        }
        files.into_iter().try_for_each(&mut read)?;
    }
    Ok(())
}

/// Reads all references and all commits, and all files of those commits that are referred to.
pub(super) fn verify_all(repo: &gix::Repository) -> Result<(), Damage> {
    let mut commits = Vec::new();
    for id in referred(repo)? {
        let object = repo.find_object(id).and_then(gix::Object::peel_tags_to_end);
        let object = object.map_err(|error| damage(&format!("read the object {id}"), &error))?;
        if object.kind == Kind::Commit {
            commits.push(object.id);
        }
    }
    let walk = repo.rev_walk(commits.iter().copied()).all();
    for commit in walk.map_err(|error| damage("read the history", &error))? {
        commit.map_err(|error| Damage::new(format!("could not read the history: {error}")))?;
    }
    commits.into_iter().try_for_each(|it| verify(repo, it, None))
}

/// Whether all of `commit`'s history is in that of `tip`.
pub(super) fn is_ancestor(repo: &gix::Repository, commit: ObjectId, tip: ObjectId) -> Result<bool, Damage> {
    if commit == tip {
        return Ok(true);
    }
    if !has_commit(repo, commit) {
        // A full clone holds all ancestors.
        return Ok(false);
    }
    Ok(count(repo, tip, commit, 1)? == 0)
}

/// The number of commits in `tip` that are not in `base`.
pub(super) fn ahead(repo: &gix::Repository, base: ObjectId, tip: ObjectId) -> Result<Option<u64>, Damage> {
    if !has_commit(repo, base) || !has_commit(repo, tip) {
        return Ok(None);
    }
    count(repo, base, tip, u64::MAX).map(Some)
}

/// The number of commits in the history of `tip`, with itself. `known` is the length of another history, which need not be
/// read again if it is a part of this one. `None`: there are more than [`LONGEST`].
pub(super) fn length(
    repo: &gix::Repository,
    tip: ObjectId,
    known: Option<(ObjectId, u64)>,
) -> Result<Option<u64>, Damage> {
    if let Some((base, length)) = known
        && is_ancestor(repo, base, tip)?
    {
        return Ok(Some(length + count(repo, base, tip, u64::MAX)?));
    }
    let walk = repo.rev_walk([tip]).all().map_err(|error| damage("read the history", &error))?;
    let mut counted = 0;
    for commit in walk {
        commit.map_err(|error| Damage::new(format!("could not read the history: {error}")))?;
        counted += 1;
        if counted > LONGEST {
            return Ok(None);
        }
    }
    Ok(Some(counted))
}

/// All objects that references point to.
pub(super) fn referred(repo: &gix::Repository) -> Result<BTreeSet<ObjectId>, Damage> {
    let failed = |error: gix::Error| damage("read the references", &error);
    let platform = repo.references().map_err(failed)?;
    let mut found = BTreeSet::new();
    for reference in platform.all().map_err(failed)? {
        let reference =
            reference.map_err(|error| Damage::new(format!("could not read a reference: {error}")))?;
        found.extend(reference.try_id().map(gix::Id::detach));
    }
    Ok(found)
}

/// The commits of [`keep`].
pub(super) fn kept(repo: &gix::Repository) -> Result<BTreeSet<ObjectId>, Damage> {
    let failed = |error: gix::Error| damage("read the references", &error);
    let platform = repo.references().map_err(failed)?;
    let mut found = BTreeSet::new();
    for reference in platform.prefixed(KEEP).map_err(failed)? {
        let reference =
            reference.map_err(|error| Damage::new(format!("could not read a reference: {error}")))?;
        found.extend(reference.try_id().map(gix::Id::detach));
    }
    Ok(found)
}

/// Keeps exactly these commits, which must all be here.
pub(super) fn keep(repo: &gix::Repository, wanted: &BTreeSet<ObjectId>) -> Result<(), Damage> {
    let present = kept(repo)?;
    let mut edits = Vec::new();
    for id in wanted.difference(&present) {
        edits.push(RefEdit::update(full_name(*id)?, *id, PreviousValue::Any, ""));
    }
    for id in present.difference(wanted) {
        edits.push(RefEdit::delete(full_name(*id)?, PreviousValue::Any));
    }
    if edits.is_empty() {
        return Ok(());
    }
    let wait = gix::lock::acquire::Fail::AfterDurationWithBackoff(LOCK_WAIT);
    let packed =
        PackedRefs::DeletionsAndNonSymbolicUpdatesRemoveLooseSourceReference(Box::new(&repo.objects));
    repo.refs
        .transaction()
        .packed_refs(packed)
        .prepare(edits, wait, wait)
        .and_then(|it| it.commit(None))
        .map(drop)
        .map_err(|error| damage("write the references", &error))
}

/// The reference that keeps a commit.
pub(super) fn keep_name(id: ObjectId) -> String {
    format!("{KEEP}{id}")
}

fn full_name(id: ObjectId) -> Result<FullName, Damage> {
    FullName::try_from(keep_name(id)).map_err(|error| Damage::new(format!("{id} is no name: {error}")))
}

/// Commits of `tip` that are not in `hidden`, up to a limit.
fn count(repo: &gix::Repository, hidden: ObjectId, tip: ObjectId, most: u64) -> Result<u64, Damage> {
    let walk = repo.rev_walk([tip]).with_hidden([hidden]).all();
    let mut counted = 0;
    for commit in walk.map_err(|error| damage("read the history", &error))? {
        commit.map_err(|error| Damage::new(format!("could not read the history: {error}")))?;
        counted += 1;
        if counted >= most {
            break;
        }
    }
    Ok(counted)
}
