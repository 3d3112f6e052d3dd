//! Regular files as entries of a tar archive: as long as they were when they were looked at, and without their holes.
//!
//! [`tar::Builder::append_file`] writes the length of one moment and the bytes of another if a file changes meanwhile, and the
//! archive cannot be read from there on. Here the number of bytes is fixed before the header is written.

use std::{
    fs::File,
    io::{self, Read},
    iter,
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
    slice::Iter,
};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

/// The unit of an archive, in bytes.
pub(crate) const BLOCK: u64 = 512;

/// The ranges that one more header of a sparse file holds.
const RANGES_OF_HEADER: usize = 21;

/// A file, and the bytes of it that are written.
pub(crate) struct FileEntry<'a> {
    file: &'a File,
    header: Header,
    /// More headers of a file with many holes.
    more_headers: Vec<u8>,
    data: Vec<Range<u64>>,
}

impl<'a> FileEntry<'a> {
    pub(crate) fn of(file: &'a File) -> io::Result<Self> {
        let found = file.metadata()?;
        let mut header = Header::new_gnu();
        header.set_metadata(&found);
        let length = found.len();
        let mut data = data_ranges(file, length);
        let mut more_headers = Vec::new();
        let is_whole = matches!(data.as_slice(), [range] if *range == (0..length));
        if length > 0 && !is_whole {
            if data.last().is_none_or(|last| last.end < length) {
                // It says how long the file is.
                data.push(length..length);
            }
            more_headers = set_ranges(&mut header, &data, length);
        }
        Ok(Self { file, header, more_headers, data })
    }

    /// Writes the entry. Bytes that the file has lost meanwhile are zeros.
    pub(crate) fn append(mut self, archive: &mut tar::Builder<File>, name: &Path) -> io::Result<()> {
        let data = RangeReader { file: self.file, current: 0..0, ranges: self.data.iter() };
        archive.append_data(&mut self.header, name, self.more_headers.chain(data))
    }
}

/// The ranges of a file that are no holes. They begin and end at blocks of the archive, except at the end of the file.
fn data_ranges(file: &File, length: u64) -> Vec<Range<u64>> {
    let whole = || iter::once(0..length).collect();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut position = 0;
    while position < length {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) if start < length => start,
            // There is only a hole, up to the end.
            Ok(_) | Err(Errno::NXIO) => break,
            // This file system does not know holes.
            Err(_) => return whole(),
        };
        let end = match seek(file, SeekFrom::Hole(start)) {
            // The file may have changed in between.
            Ok(end) => end.max(start + 1),
            Err(Errno::NXIO) => length,
            Err(_) => return whole(),
        };
        let start = start / BLOCK * BLOCK;
        position = end.next_multiple_of(BLOCK).min(length);
        match ranges.last_mut().filter(|last| last.end >= start) {
            Some(last) => last.end = position,
            None => ranges.push(start..position),
        }
    }
    ranges
}

/// Makes the header that of a file with holes. Returns the headers that follow it.
fn set_ranges(header: &mut Header, ranges: &[Range<u64>], length: u64) -> Vec<u8> {
    fn set<'a>(headers: impl IntoIterator<Item = &'a mut GnuSparseHeader>, ranges: &[Range<u64>]) {
        for (header, range) in headers.into_iter().zip(ranges) {
            header.set_offset(range.start);
            header.set_length(range.end - range.start);
        }
    }
    header.set_entry_type(EntryType::GNUSparse);
    header.set_size(ranges.iter().map(|range| range.end - range.start).sum());
    let mut more_headers = Vec::new();
    if let Some(gnu) = header.as_gnu_mut() {
        let (first, others) = ranges.split_at(ranges.len().min(gnu.sparse.len()));
        gnu.set_real_size(length);
        gnu.set_is_extended(!others.is_empty());
        set(&mut gnu.sparse, first);
        let mut others = others.chunks(RANGES_OF_HEADER).peekable();
        while let Some(ranges) = others.next() {
            let mut more = GnuExtSparseHeader::new();
            set(more.sparse_mut(), ranges);
            more.set_is_extended(others.peek().is_some());
            more_headers.extend_from_slice(more.as_bytes());
        }
    }
    more_headers
}

/// The bytes of some ranges of a file, one after the other.
struct RangeReader<'a> {
    file: &'a File,
    /// The rest of the range that is being read.
    current: Range<u64>,
    ranges: Iter<'a, Range<u64>>,
}

impl Read for RangeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            let Some(range) = self.ranges.next() else { return Ok(0) };
            self.current = range.clone();
        }
        let rest = usize::try_from(self.current.end - self.current.start).unwrap_or(usize::MAX);
        let most = rest.min(buffer.len());
        let buffer = &mut buffer[..most];
        let mut count = self.file.read_at(buffer, self.current.start)?;
        if count == 0 {
            // The file ends here by now.
            buffer.fill(0);
            count = most;
        }
        self.current.start += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    /// Writes a file into an archive while it changes, and another one after it. Returns what a reader finds in the first one.
    fn archived(file: &File, change: impl FnOnce()) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive.tar");
        let mut archive = tar::Builder::new(File::create(&path).unwrap());
        let entry = FileEntry::of(file).unwrap();
        change();
        let name = "long/".repeat(30) + "first";
        entry.append(&mut archive, Path::new(&name)).unwrap();
        let second = folder.path().join("second");
        fs::write(&second, "end").unwrap();
        FileEntry::of(&File::open(&second).unwrap())
            .unwrap()
            .append(&mut archive, Path::new("second"))
            .unwrap();
        drop(archive.into_inner().unwrap());
        let mut contents = Vec::new();
        let mut archive = tar::Archive::new(File::open(&path).unwrap());
        for entry in archive.entries().unwrap() {
            let mut bytes = Vec::new();
            entry.unwrap().read_to_end(&mut bytes).unwrap();
            contents.push(bytes);
        }
        assert_eq!((contents.len(), contents[1].as_slice()), (2, &b"end"[..]));
        // Other programs read it as well.
        let unpack = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(folder.path()).status();
        if unpack.unwrap().success() {
            assert!(fs::read(folder.path().join(&name)).unwrap() == contents[0]);
        } else {
            panic!("tar cannot read the archive");
        }
        contents.remove(0)
    }

    /// A file with a length that is no multiple of a block, and data of one byte at each offset.
    fn sparse_file(length: u64, offsets: impl IntoIterator<Item = u64>) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        for offset in offsets {
            file.write_all_at(b"x", offset).unwrap();
        }
        file
    }

    #[test]
    fn file_is_archived_with_the_length_that_it_had() {
        let spread = |count: u64| (0..count).map(|number| number << 17);
        let cases: [(&str, u64, Vec<u64>); 7] = [
            ("empty", 0, vec![]),
            ("a hole only", 100_000, vec![]),
            ("a hole at the end", 1_000_001, vec![0, 5000]),
            ("a hole at the start", 1_000_001, vec![1_000_000]),
            ("many holes", (30 << 17) + 7, spread(30).collect()),
            ("very many holes", (99 << 17) + 7, spread(99).collect()),
            ("no hole", 5000, (0..5000).step_by(100).collect()),
        ];
        for (name, length, offsets) in cases {
            let mut expected = vec![0; usize::try_from(length).unwrap()];
            for offset in &offsets {
                expected[usize::try_from(*offset).unwrap()] = b'x';
            }
            let file = sparse_file(length, offsets.iter().copied());
            assert!(archived(&file, || ()) == expected, "{name}");
            let grow = || {
                file.write_all_at(&[b'y'; 700], length).unwrap();
                file.set_len(length + (1 << 20)).unwrap();
            };
            assert!(archived(&file, grow) == expected, "{name}, which grows");
            let file = sparse_file(length, offsets);
            let half = length / 2;
            expected[usize::try_from(half).unwrap()..].fill(0);
            assert!(archived(&file, || file.set_len(half).unwrap()) == expected, "{name}, which shrinks");
        }
    }
}
