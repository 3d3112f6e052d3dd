//! Recognizes files of which Git holds another form, since a filter of a checkout makes the file: Git LFS and git-crypt. No
//! filter is run here.

use driftless_files::ReadError;

/// "Pointer files must be less than 1024 bytes in size".
const LONGEST_POINTER: usize = 1024;

/// The beginning of each file that git-crypt encrypted.
const GIT_CRYPT: &[u8] = b"\0GITCRYPT\0";

/// An error if the bytes are not those of the file itself.
pub(super) fn check(path: &str, bytes: &[u8]) -> Result<(), ReadError> {
    if is_pointer(bytes) {
        return Err(ReadError::LfsPointer { path: path.to_owned() });
    }
    if bytes.starts_with(GIT_CRYPT) {
        return Err(ReadError::GitCrypt { path: path.to_owned() });
    }
    Ok(())
}

/// By the pointer format of the Git LFS specification (docs/spec.md), version 1.
fn is_pointer(bytes: &[u8]) -> bool {
    bytes.len() < LONGEST_POINTER
        && bytes.starts_with(b"version https://git-lfs.github.com/spec/v1\n")
        && bytes.split(|it| *it == b'\n').any(|line| line.starts_with(b"oid sha256:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_pointer_is_one() {
        assert!(is_pointer(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"));
        assert!(!is_pointer(b"version https://git-lfs.github.com/spec/v1\n# how to write a pointer\n"));
        assert!(!is_pointer(b"version: 1\n"));
    }

    #[test]
    fn files_of_git_crypt_are_refused_with_a_remedy() {
        let error = check("secrets/db", b"\0GITCRYPT\0\x01\x02\xff").unwrap_err().to_string();
        assert!(error.starts_with("`secrets/db` is encrypted with git-crypt"), "{error}");
        assert!(error.contains("docs/secrets.md"), "{error}");
        for plain in [b"".as_slice(), b"GITCRYPT\0", b"\0GITCRYPT"] {
            assert_eq!(check("secrets/db", plain), Ok(()));
        }
    }
}
