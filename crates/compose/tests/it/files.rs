//! Folders on disk as files in memory.

use std::{fs, path::Path};

use driftless_files::MemoryFiles;

/// All files of a folder, with `prefix` before their paths.
pub(crate) fn folder(folder: &Path, prefix: &str) -> MemoryFiles {
    let mut files = MemoryFiles::default();
    collect(folder, prefix, &mut files);
    files
}

fn collect(folder: &Path, prefix: &str, files: &mut MemoryFiles) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        if path.is_dir() {
            collect(&path, &name, files);
        } else {
            files.0.insert(name, fs::read(&path).unwrap().into());
        }
    }
}
