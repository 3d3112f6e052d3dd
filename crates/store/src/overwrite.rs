//! Files that are overwritten in place, because a running container has their inode mounted.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::{Errno, retry_on_intr},
};

/// The largest file whose bytes are kept until the new ones are written: tracked files have at most so many together.
const LARGEST: u64 = 64 << 20;

/// Overwrites the bytes of a file. On a full disk it stays as it is, because the container would read half of each content.
pub(crate) fn overwrite_bytes(file: &File, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.len() as u64;
    reserve(file, length)?;
    write_or_undo(file, || {
        // The bytes first and the length after them, so that a reader never finds an empty file.
        file.write_all_at(bytes, 0)?;
        file.set_len(length)
    })
}

/// Reserves room for so many bytes, before any is written. Some file systems cannot, and one that copies on write reserves none
/// in place of bytes that are there.
fn reserve(file: &File, length: u64) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, length)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes to a file, and writes the bytes before back if that fails. Those that were overwritten have their room.
fn write_or_undo(file: &File, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let before = read_all(file);
    write().inspect_err(|_| {
        if let Some(before) = before {
            let _ = file.write_all_at(&before, 0);
            let _ = file.set_len(before.len() as u64);
        }
    })
}

/// The bytes of a file; `None` if it cannot be read, or is too large.
fn read_all(mut file: &File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.by_ref().take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LARGEST).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A file, open as one that is overwritten.
    fn open(folder: &tempfile::TempDir, content: &str) -> File {
        let path = folder.path().join("app.conf");
        fs::write(&path, content).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn bytes_and_length_are_those_of_the_new_content() {
        let folder = tempfile::tempdir().unwrap();
        for content in ["port = 1\nname = a\n", "port = 2\n", ""] {
            let file = open(&folder, "port = 1\n");
            overwrite_bytes(&file, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join("app.conf")).unwrap(), content);
        }
    }

    #[test]
    fn file_on_a_full_disk_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder, "port = 1\n");
        let written = write_or_undo(&file, || {
            file.write_all_at(b"port = 2\nname", 0)?;
            Err(Errno::NOSPC.into())
        });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(folder.path().join("app.conf")).unwrap(), "port = 1\n");
    }
}
