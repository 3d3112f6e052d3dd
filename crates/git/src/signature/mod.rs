//! Signatures of commits and tags, and whether their signers are trusted. Bytes in, a name or a reason out.
//!
//! Runs no `gpg` and no `ssh-keygen`, and asks no key server. Keys are read each time, so that one can be
//! added or withdrawn while the agent runs. What cannot be read or understood counts as not signed.

use std::{fs, path::Path};

use driftless_config::{Verify, VerifyMode};
use driftless_model::Timestamp;

mod allowed;
mod key_end;
mod openpgp;
mod ssh;

pub use key_end::KeyEnd;

/// A signature and what it was made over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) signature: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// No file of keys is larger; a wrong path might be that of a disk image.
const LARGEST_FILE: u64 = 16 << 20;

const SSH: &[u8] = b"-----BEGIN SSH SIGNATURE-----";
const OPENPGP: [&[u8]; 2] = [b"-----BEGIN PGP SIGNATURE-----", b"-----BEGIN PGP MESSAGE-----"];
const X509: &[u8] = b"-----BEGIN SIGNED MESSAGE-----";

/// Whether the policy is met, and by whom. The error says why not. `tag` is the followed tag's name and raw
/// object, if it is an annotated one.
pub(super) fn check(
    verify: &Verify,
    commit: &[u8],
    tag: Option<(&str, &[u8])>,
    now: Timestamp,
) -> Result<String, String> {
    let commit_signer = || {
        let signed = of_commit(commit)?.ok_or("it is not signed")?;
        signer(verify, &signed, now)
    };
    let tag_signer = || {
        let (name, raw) = tag.ok_or("what is followed is no annotated tag, so it bears no signature")?;
        let about = |why: String| format!("the tag `{name}`: {why}");
        let signed = of_tag(raw, name).map_err(about)?;
        let signed = signed.ok_or_else(|| about("it is not signed".to_owned()))?;
        signer(verify, &signed, now).map_err(about)
    };
    match verify.mode {
        VerifyMode::Commit => commit_signer(),
        VerifyMode::Tag => tag_signer(),
        VerifyMode::Both => Ok(format!("{}, tag by {}", commit_signer()?, tag_signer()?)),
    }
}

/// The OpenPGP keys of the rules that have an end. SSH keys have theirs in `valid-before`, where it is meant.
///
/// # Errors
///
/// If the keyring cannot be read, in words.
pub fn signing_key_ends(verify: &Verify) -> Result<Vec<KeyEnd>, String> {
    let Some(path) = &verify.keyring_file else { return Ok(Vec::new()) };
    let keyring = openpgp::keyring(&read(path)?, &path.display().to_string())?;
    Ok(keyring.iter().filter_map(openpgp::end).collect())
}

/// Refuses keys that are written in the configuration and cannot be understood, before anything runs.
pub(super) fn check_policy(verify: &Verify) -> Result<(), String> {
    allowed::parse(&verify.allowed_signers.join("\n"), "allowedSigners").map(drop)
}

fn signer(verify: &Verify, signed: &Signed, now: Timestamp) -> Result<String, String> {
    let armored = signed.signature.trim_ascii_start();
    if armored.starts_with(SSH) {
        let signers = allowed_signers(verify)?;
        if signers.is_empty() {
            return Err("it is signed with an SSH key, and no SSH key is trusted here".to_owned());
        }
        return ssh::verify(armored, &signed.payload, &signers, &revoked(verify)?, now);
    }
    if OPENPGP.iter().any(|it| armored.starts_with(it)) {
        let Some(path) = &verify.keyring_file else {
            return Err("it is signed with an OpenPGP key, and no OpenPGP key is trusted here".to_owned());
        };
        let keyring = openpgp::keyring(&read(path)?, &path.display().to_string())?;
        return openpgp::verify(armored, &signed.payload, &keyring, now);
    }
    if armored.starts_with(X509) {
        return Err("it is signed with an X.509 certificate, which is not supported".to_owned());
    }
    Err("it bears a signature of an unknown kind".to_owned())
}

fn allowed_signers(verify: &Verify) -> Result<Vec<allowed::Signer>, String> {
    let mut signers = allowed::parse(&verify.allowed_signers.join("\n"), "allowedSigners")?;
    if let Some(path) = &verify.allowed_signers_file {
        signers.extend(allowed::parse(&read_text(path)?, &path.display().to_string())?);
    }
    Ok(signers)
}

fn revoked(verify: &Verify) -> Result<allowed::Revoked, String> {
    let Some(path) = &verify.revoked_keys_file else { return Ok(allowed::Revoked::default()) };
    allowed::revoked(&read(path)?, &path.display().to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("could not read the keys in {}: {error}", path.display());
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST_FILE {
        return Err(format!("{} has {size} bytes, too many for a file of keys", path.display()));
    }
    fs::read(path).map_err(failed)
}

fn read_text(path: &Path) -> Result<String, String> {
    String::from_utf8(read(path)?).map_err(|_| format!("{} is not text in UTF-8", path.display()))
}

/// Takes a commit apart as Git does: the payload is the commit without the headers that hold signatures.
pub(super) fn of_commit(raw: &[u8]) -> Result<Option<Signed>, String> {
    const HEADERS: [&[u8]; 2] = [b"gpgsig ", b"gpgsig-sha256 "];
    let mut payload = Vec::with_capacity(raw.len());
    let mut signatures: Vec<Vec<u8>> = Vec::new();
    let mut inside = false;
    let mut rest = raw;
    while let Some(end) = rest.iter().position(|it| *it == b'\n') {
        let (line, after) = rest.split_at(end + 1);
        if line == b"\n" {
            // The message follows, where nothing is a header.
            break;
        }
        let header = HEADERS.iter().find_map(|it| line.strip_prefix(*it));
        match (header, line.strip_prefix(b" ")) {
            (Some(first), _) => {
                inside = true;
                signatures.push(first.to_vec());
            }
            (None, Some(more)) if inside => {
                if let Some(signature) = signatures.last_mut() {
                    signature.extend_from_slice(more);
                }
            }
            (None, _) => {
                inside = false;
                payload.extend_from_slice(line);
            }
        }
        rest = after;
    }
    payload.extend_from_slice(rest);
    if signatures.len() > 1 {
        return Err("it bears several signatures".to_owned());
    }
    Ok(signatures.pop().map(|signature| Signed { signature, payload }))
}

/// A tag's signature is at its end. The tag must contain its own name, because somebody who may push could
/// otherwise show an old tag under a new name.
fn of_tag(raw: &[u8], name: &str) -> Result<Option<Signed>, String> {
    let is_armor = |line: &[u8]| {
        line.starts_with(SSH) || line.starts_with(X509) || OPENPGP.iter().any(|it| line.starts_with(it))
    };
    let mut offset = 0;
    let mut begin = None;
    for line in raw.split_inclusive(|it| *it == b'\n') {
        if is_armor(line) {
            // The last one counts: the message may quote another.
            begin = Some(offset);
        }
        offset += line.len();
    }
    let said =
        raw.split(|it| *it == b'\n').take_while(|it| !it.is_empty()).find_map(|it| it.strip_prefix(b"tag "));
    if said != Some(name.as_bytes()) {
        let said = String::from_utf8_lossy(said.unwrap_or_default()).into_owned();
        return Err(format!("it was made as `{said}`, and shown under another name"));
    }
    Ok(begin.map(|at| Signed { signature: raw[at..].to_vec(), payload: raw[..at].to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &[u8] = b"tree 1\nauthor A <a> 1 +0000\ngpgsig -----BEGIN SSH SIGNATURE-----\n x\n -----END\n\nhi\ngpgsig no\n";

    #[test]
    fn a_commit_is_taken_apart_as_git_does() {
        let signed = of_commit(COMMIT).unwrap().unwrap();
        assert_eq!(signed.signature, b"-----BEGIN SSH SIGNATURE-----\nx\n-----END\n");
        assert_eq!(signed.payload, b"tree 1\nauthor A <a> 1 +0000\n\nhi\ngpgsig no\n");
        assert_eq!(of_commit(&signed.payload), Ok(None));
        let twice = [b"gpgsig -----BEGIN\n".as_slice(), COMMIT].concat();
        assert!(of_commit(&twice).is_err_and(|it| it.contains("several")));
        for cut in 0..COMMIT.len() {
            // A cut commit causes no panic.
            let _ = of_commit(&COMMIT[..cut]);
        }
    }

    #[test]
    fn a_tag_answers_to_its_own_name_only() {
        let raw = b"object 1\ntype commit\ntag v1\n\nfirst\n-----BEGIN PGP SIGNATURE-----\nx\n";
        let signed = of_tag(raw, "v1").unwrap().unwrap();
        assert_eq!(signed.payload, b"object 1\ntype commit\ntag v1\n\nfirst\n");
        assert!(of_tag(raw, "v2").is_err_and(|it| it.contains("`v1`")));
        assert_eq!(of_tag(b"tag v1\n\nfirst\n", "v1"), Ok(None));
    }
}
