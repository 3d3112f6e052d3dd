//! Signatures of `ssh-keygen -Y sign`, as `git commit -S` makes them with `gpg.format=ssh`.

use ssh_key::{Algorithm, HashAlg, SshSig, public::KeyData};

use super::allowed::{Revoked, Signer};
use driftless_model::Timestamp;

/// The namespace of Git's signatures. A signature over a file has another one and is not accepted.
const NAMESPACE: &str = "git";

/// As ssh-keygen demands of RSA keys today.
const FEWEST_RSA_BITS: usize = 2048;

/// The signer, as the list names it. The error is a reason.
pub(super) fn verify(
    armored: &[u8],
    payload: &[u8],
    signers: &[Signer],
    revoked: &Revoked,
    now: Timestamp,
) -> Result<String, String> {
    let signature =
        SshSig::from_pem(armored).map_err(|error| format!("its SSH signature cannot be read: {error}"))?;
    let key = signature.public_key();
    let print = key.fingerprint(HashAlg::Sha256);
    if signature.namespace() != NAMESPACE {
        return Err(format!(
            "its signature by {print} was made for `{}`, not for Git",
            signature.namespace()
        ));
    }
    if revoked.contains(key) {
        return Err(format!("it is signed with the SSH key {print}, which is revoked"));
    }
    check_strength(&signature).map_err(|why| format!("it is signed with the SSH key {print}: {why}"))?;
    let mut objections = Vec::new();
    for signer in signers.iter().filter(|it| it.key.key_data() == key) {
        if let Some(objection) = signer.objection(now) {
            objections.push(objection);
            continue;
        }
        signer.key.verify(NAMESPACE, payload, &signature).map_err(|_| {
            format!("its signature by {print} is false: the commit was changed after signing")
        })?;
        return Ok(format!("{} ({print})", signer.principals));
    }
    match objections.first() {
        Some(objection) => Err(format!("it is signed with the SSH key {print}, but {objection}")),
        None => Err(format!("it is signed with the SSH key {print}, which is not among the allowed signers")),
    }
}

/// Refuses SHA-1, short RSA keys and security keys that nobody touched, as ssh-keygen does.
fn check_strength(signature: &SshSig) -> Result<(), String> {
    const USER_PRESENT: u8 = 1;
    const FLAGS_AND_COUNTER: usize = 5;
    match signature.public_key() {
        KeyData::Rsa(key) => {
            let bits = key.n.as_positive_bytes().map_or(0, |it| it.len() * 8);
            if bits < FEWEST_RSA_BITS {
                return Err(format!("an RSA key of {bits} bits is too short"));
            }
            if matches!(signature.signature().algorithm(), Algorithm::Rsa { hash: None }) {
                return Err("the signature uses SHA-1, which is not safe".to_owned());
            }
            Ok(())
        }
        KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_) => {
            let bytes = signature.signature_bytes();
            let flags = bytes.len().checked_sub(FLAGS_AND_COUNTER).and_then(|at| bytes.get(at));
            if flags.is_some_and(|it| it & USER_PRESENT != 0) {
                Ok(())
            } else {
                Err("the security key was not touched for it".to_owned())
            }
        }
        _ => Ok(()),
    }
}
