//! The index of a clone as a tree: the content of the next commit.
//!
//! The trees are written to the memory of a handle only; nothing is written to the repository.

use std::collections::BTreeMap;

use gix::{
    ObjectId,
    bstr::{BString, ByteSlice},
    index::{
        State,
        entry::{Flags, Stage},
    },
    objs::{
        Tree,
        tree::{Entry, EntryKind, EntryMode},
    },
};

use super::mirror::{Damage, damage};

/// One folder of the index.
#[derive(Default)]
struct Folder {
    folders: BTreeMap<BString, Self>,
    files: Vec<Entry>,
}

/// A file with a merge conflict, by its path.
pub(super) struct Conflict(pub(super) String);

/// Writes the trees of an index to the memory of `repo`, and returns the id of the root.
pub(super) fn write_tree(
    repo: &gix::Repository,
    index: &State,
) -> Result<Result<ObjectId, Conflict>, Damage> {
    let mut root = Folder::default();
    for entry in index.entries() {
        let path = entry.path(index);
        if entry.stage() != Stage::Unconflicted {
            return Ok(Err(Conflict(path.to_str_lossy().into_owned())));
        }
        // `git add --intent-to-add`: the next commit does not contain the file.
        if entry.flags.contains(Flags::INTENT_TO_ADD) {
            continue;
        }
        let Ok(mode) = EntryMode::try_from(entry.mode.bits()) else { continue };
        // A folder outside a sparse checkout ends with `/`.
        let path: &[u8] = path.strip_suffix(b"/").unwrap_or(path);
        let mut folder = &mut root;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_some() {
                folder = folder.folders.entry(name.into()).or_default();
            } else {
                folder.files.push(Entry { mode, filename: name.into(), oid: entry.id });
            }
        }
    }
    root.write(repo).map(Ok)
}

impl Folder {
    fn write(self, repo: &gix::Repository) -> Result<ObjectId, Damage> {
        let mut entries = self.files;
        for (filename, folder) in self.folders {
            entries.push(Entry { mode: EntryKind::Tree.into(), filename, oid: folder.write(repo)? });
        }
        entries.sort();
        let written = repo.write_object(&Tree { entries });
        written.map(gix::Id::detach).map_err(|error| damage("read the index", &error))
    }
}
