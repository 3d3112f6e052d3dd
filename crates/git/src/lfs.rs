//! Recognizes Git LFS pointers. The files are not fetched.

/// By the pointer format of the Git LFS specification (docs/spec.md), version 1.
pub(super) fn is_pointer(bytes: &[u8]) -> bool {
    bytes.len() < LONGEST
        && bytes.starts_with(b"version https://git-lfs.github.com/spec/v1\n")
        && bytes.split(|it| *it == b'\n').any(|line| line.starts_with(b"oid sha256:"))
}

/// "Pointer files must be less than 1024 bytes in size".
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_pointer_is_one() {
        assert!(is_pointer(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"));
        assert!(!is_pointer(b"version https://git-lfs.github.com/spec/v1\n# how to write a pointer\n"));
        assert!(!is_pointer(b"version: 1\n"));
    }
}
