//! Mounted files that are rewritten while their container runs. Each instance has copies of its own.
//!
//! The engine mounts the inode of a file, so a mounted file is overwritten and never replaced. The files of a mounted
//! folder are found by name, so each one is replaced at once. After an interruption all files are written again: none
//! counts as delivered before it is on the disk. The signal to the container is a later step.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::Path,
};

use crate::{
    contents::{ContentDir, Visibility},
    contents::{create_closed, fail, remove},
    error::Error,
    overwrite::overwrite_bytes,
};
use driftless_model::{AppName, InPlace, InstanceId, in_place_of, in_place_path};

impl ContentDir {
    /// Writes the copies of one instance, by mount target. [`ContentDir::prepare`] must have written the contents.
    ///
    /// # Errors
    ///
    /// If a content is missing or a copy cannot be written.
    pub fn write_in_place(
        &self,
        app: &AppName,
        instance: &InstanceId,
        files: &BTreeMap<String, InPlace>,
    ) -> Result<(), Error> {
        for (target, file) in files {
            let visibility = Visibility::of(file);
            if visibility == Visibility::Secret {
                self.open_secrets()?;
            }
            let source = self.path(&file.content, visibility);
            let found = fs::symlink_metadata(&source);
            let found = found.map_err(|_| visibility.missing(&file.content))?;
            let path = self.folder(visibility).join(in_place_path(app, instance, target, found.is_dir()));
            if let Some(parent) = path.parent() {
                create_closed(parent)?;
            }
            let copied = if found.is_dir() { copy_folder(&source, &path) } else { overwrite(&source, &path) };
            copied.map_err(fail("write the mounted file", &path))?;
        }
        Ok(())
    }

    /// Removes the copies of an application's former instances. `instances` are those that exist.
    ///
    /// # Errors
    ///
    /// If a copy cannot be removed.
    pub fn retain_in_place(&self, app: &AppName, instances: &BTreeSet<InstanceId>) -> Result<(), Error> {
        let names: BTreeSet<OsString> =
            instances.iter().map(|instance| instance.to_string().into()).collect();
        for visibility in [Visibility::Public, Visibility::Secret] {
            let folder = self.folder(visibility).join(in_place_of(app));
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let entry = entry.map_err(fail("list", &folder))?;
                if !names.contains(&entry.file_name()) {
                    remove(&entry.path()).map_err(fail("remove", &entry.path()))?;
                }
            }
            if names.is_empty() {
                remove(&folder).map_err(fail("remove", &folder))?;
            }
        }
        Ok(())
    }
}

/// Overwrites a file with the content of another one. The inode stays, so that containers see the change.
fn overwrite(source: &Path, path: &Path) -> io::Result<()> {
    let (bytes, wanted) = (fs::read(source)?, fs::symlink_metadata(source)?);
    let Ok(found) = fs::symlink_metadata(path) else { return replace(source, path) };
    let is_same = is_like(&found, &wanted) && fs::read(path)? == bytes;
    if is_same {
        return Ok(());
    }
    // Without root, not even the owner can open a read-only file for writing.
    fs::set_permissions(path, Permissions::from_mode(wanted.mode() & 0o7777 | 0o200))?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    overwrite_bytes(&file, &bytes)?;
    copy_access(&file, &wanted)?;
    file.sync_all()
}

/// Replaces a file by a copy of another one, at once.
fn replace(source: &Path, path: &Path) -> io::Result<()> {
    let name = path.file_name().map(OsString::from).unwrap_or_default();
    let mut hidden = OsString::from(".new-");
    hidden.push(&name);
    let temporary = path.with_file_name(hidden);
    remove(&temporary)?;
    let wanted = fs::symlink_metadata(source)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all_at(&fs::read(source)?, 0)?;
    copy_access(&file, &wanted)?;
    file.sync_all()?;
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(path)?;
    }
    fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Gives a copy the owner and mode of the original.
fn copy_access(file: &File, wanted: &Metadata) -> io::Result<()> {
    let found = file.metadata()?;
    if (found.uid(), found.gid()) != (wanted.uid(), wanted.gid()) {
        fchown(file, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    // The mode comes last: a change of the owner clears its upper bits.
    file.set_permissions(Permissions::from_mode(wanted.mode() & 0o7777))
}

fn is_like(found: &Metadata, wanted: &Metadata) -> bool {
    let key = |file: &Metadata| (file.is_file(), file.len(), file.mode() & 0o7777, file.uid(), file.gid());
    key(found) == key(wanted)
}

/// Makes a folder equal to another one, file by file. The folder itself stays.
fn copy_folder(source: &Path, path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir()) {
        remove(path)?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), path.join(entry.file_name()));
        let wanted = entry.metadata()?;
        if wanted.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            let found = fs::symlink_metadata(&to);
            let is_same =
                found.is_ok_and(|found| is_like(&found, &wanted)) && fs::read(&from)? == fs::read(&to)?;
            if !is_same {
                replace(&from, &to)?;
            }
        }
        names.insert(entry.file_name());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !names.contains(&entry.file_name()) {
            remove(&entry.path())?;
        }
    }
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_file_keeps_its_inode_and_folder_is_replaced_by_file() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two, copy) = (dir.path().join("1"), dir.path().join("2"), dir.path().join("copy"));
        fs::write(&one, "a long first text").unwrap();
        fs::write(&two, "short").unwrap();
        fs::set_permissions(&two, Permissions::from_mode(0o444)).unwrap();
        overwrite(&one, &copy).unwrap();
        let inode = fs::metadata(&copy).unwrap().ino();
        overwrite(&two, &copy).unwrap();
        let found = fs::metadata(&copy).unwrap();
        assert_eq!((fs::read_to_string(&copy).unwrap().as_str(), found.ino()), ("short", inode));
        assert_eq!(found.mode() & 0o777, 0o444);
        overwrite(&one, &copy).unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "a long first text");

        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("deep/kept"), "kept").unwrap();
        fs::write(from.join("gone"), "gone").unwrap();
        copy_folder(&from, &to).unwrap();
        let (folder, kept) =
            (fs::metadata(&to).unwrap().ino(), fs::metadata(to.join("deep/kept")).unwrap().ino());
        fs::remove_file(from.join("gone")).unwrap();
        fs::write(from.join("deep/new"), "new").unwrap();
        // A half-written file of an interrupted run is removed.
        fs::write(to.join("deep/.new-new"), "n").unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("deep/new")).unwrap(), "new");
        assert!(!to.join("gone").exists() && !to.join("deep/.new-new").exists());
        assert_eq!(fs::metadata(&to).unwrap().ino(), folder);
        assert_eq!(fs::metadata(to.join("deep/kept")).unwrap().ino(), kept, "an equal file is not written");
    }
}
