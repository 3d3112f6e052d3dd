//! OpenPGP signatures, as `git commit -S` makes them with gpg, against a keyring in a file.
//!
//! rPGP does the arithmetic; which key may sign, and until when, is decided here. Whether a key has expired or is
//! revoked is judged at the time of the check and not at the time that the signature claims, because somebody who
//! found an old key can claim any time.

use std::io::Cursor;

use pgp::{
    composed::{Deserializable, DetachedSignature, SignedPublicKey, SignedPublicSubKey},
    crypto::hash::HashAlgorithm,
    packet::{Signature, SignatureType},
    ser::Serialize,
    types::{KeyDetails, Tag, Timestamp as Moment, VerifyingKey},
};

use driftless_model::Timestamp;

use super::key_end::KeyEnd;

/// Reads a keyring, armored or binary. Keys that this program cannot read are an error: one of them might be the
/// very revocation that matters.
pub(super) fn keyring(bytes: &[u8], name: &str) -> Result<Vec<SignedPublicKey>, String> {
    let wrong =
        |error: pgp::errors::Error| format!("{name} is not a keyring of OpenPGP public keys: {error}");
    let mut keys: Vec<SignedPublicKey> = Vec::new();
    for block in blocks(bytes) {
        let (parsed, _) = SignedPublicKey::from_reader_many(Cursor::new(block)).map_err(wrong)?;
        for key in parsed {
            let key = key.map_err(wrong)?;
            match keys.iter_mut().find(|known| known.primary_key == key.primary_key) {
                Some(known) => merge(known, key),
                None => keys.push(key),
            }
        }
    }
    if keys.is_empty() {
        return Err(format!("{name} holds no OpenPGP public key"));
    }
    Ok(keys)
}

/// Adds what another copy of a key says, such as a revocation that was appended to the keyring: gpg does the same.
fn merge(known: &mut SignedPublicKey, other: SignedPublicKey) {
    let SignedPublicKey { primary_key: _, details, public_subkeys } = other;
    known.details.revocation_signatures.extend(details.revocation_signatures);
    known.details.direct_signatures.extend(details.direct_signatures);
    known.details.user_attributes.extend(details.user_attributes);
    for user in details.users {
        match known.details.users.iter_mut().find(|same| same.id.id() == user.id.id()) {
            Some(same) => same.signatures.extend(user.signatures),
            None => known.details.users.push(user),
        }
    }
    for subkey in public_subkeys {
        match known.public_subkeys.iter_mut().find(|same| same.key == subkey.key) {
            Some(same) => same.signatures.extend(subkey.signatures),
            None => known.public_subkeys.push(subkey),
        }
    }
}

/// Armored blocks one after another, as `cat` makes them, are read one by one; what is binary, at once.
fn blocks(bytes: &[u8]) -> Vec<&[u8]> {
    const BEGIN: &[u8] = b"-----BEGIN PGP";
    let mut starts: Vec<usize> = Vec::new();
    let mut offset = 0;
    for line in bytes.split_inclusive(|it| *it == b'\n') {
        if line.starts_with(BEGIN) {
            starts.push(offset);
        }
        offset += line.len();
    }
    if starts.is_empty() {
        return vec![bytes];
    }
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    starts.iter().copied().zip(ends).map(|(from, to)| &bytes[from..to]).collect()
}

/// The signer, as the key names its owner. The error is a reason.
pub(super) fn verify(
    armored: &[u8],
    payload: &[u8],
    keyring: &[SignedPublicKey],
    now: Timestamp,
) -> Result<String, String> {
    let (detached, _) = DetachedSignature::from_armor_single(Cursor::new(armored))
        .map_err(|error| format!("its OpenPGP signature cannot be read: {error}"))?;
    let signature = &detached.signature;
    if !matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
        return Err("its OpenPGP signature is not one over a document".to_owned());
    }
    match signature.hash_alg() {
        Some(HashAlgorithm::Sha256 | HashAlgorithm::Sha384 | HashAlgorithm::Sha512) => {}
        other => return Err(format!("its OpenPGP signature uses {other:?}, which is not safe")),
    }
    for primary in keyring {
        if is_issuer(signature, &primary.primary_key) {
            check_primary(primary, now, Use::Sign)?;
            return finish(&detached, &primary.primary_key, payload, primary, now);
        }
        if let Some(subkey) = primary.public_subkeys.iter().find(|it| is_issuer(signature, &it.key)) {
            check_primary(primary, now, Use::Certify)?;
            check_subkey(primary, subkey, now)?;
            return finish(&detached, &subkey.key, payload, primary, now);
        }
    }
    Err(format!("it is signed with the OpenPGP key {}, which is not in the keyring", issuer(signature)))
}

/// The use of a primary key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Sign,
    Certify,
}

fn finish(
    detached: &DetachedSignature,
    key: &impl VerifyingKey,
    payload: &[u8],
    primary: &SignedPublicKey,
    now: Timestamp,
) -> Result<String, String> {
    let print = shown(key);
    let signature = &detached.signature;
    let created = signature.created().map_or(0, Moment::as_secs);
    if created < key.created_at().as_secs() {
        return Err(format!("its signature claims to be older than its key {print}"));
    }
    let lifetime = signature.signature_expiration_time().map_or(0, pgp::types::Duration::as_secs);
    if is_over(created, lifetime, now) {
        return Err(format!("its signature by the OpenPGP key {print} has expired"));
    }
    detached.verify(key, payload).map_err(|_| {
        format!("its signature by the OpenPGP key {print} is false: it was changed after signing")
    })?;
    let owner = primary.details.users.first().map(|it| String::from_utf8_lossy(it.id.id()).into_owned());
    Ok(format!("{} ({print})", owner.unwrap_or_else(|| "OpenPGP key".to_owned())))
}

/// Not revoked, not expired, and fit for what it is used for, by its own newest word about itself.
fn check_primary(key: &SignedPublicKey, now: Timestamp, needed: Use) -> Result<(), String> {
    let print = shown(&key.primary_key);
    let wrong = |what: &str| Err(format!("it is signed with the OpenPGP key {print}, which {what}"));
    // One that cannot be checked, such as by a designated revoker, counts all the same.
    if !key.details.revocation_signatures.is_empty() {
        return wrong("is revoked");
    }
    let Some(newest) = newest_certification(key) else {
        return wrong("bears no valid signature of its own, so nothing it says can be relied on");
    };
    if is_expired(&key.primary_key, newest, now) {
        return wrong("has expired");
    }
    if needed == Use::Sign && !may_sign(newest) {
        return wrong("may not sign (its usage flags)");
    }
    Ok(())
}

/// The newest valid signature of a primary key about itself.
fn newest_certification(key: &SignedPublicKey) -> Option<&Signature> {
    let users = key.details.users.iter().flat_map(|user| {
        let is_own = |it: &&Signature| {
            it.is_certification() && it.verify_certification(&key.primary_key, Tag::UserId, &user.id).is_ok()
        };
        user.signatures.iter().filter(is_own).collect::<Vec<_>>()
    });
    let direct = key.details.direct_signatures.iter().filter(|it| it.verify_key(&key.primary_key).is_ok());
    users.chain(direct).max_by_key(|it| created(it))
}

/// The time from which a key can sign no more: itself, and all of its subkeys. `None`: there is none, or it never could.
pub(super) fn end(key: &SignedPublicKey) -> Option<KeyEnd> {
    let newest = newest_certification(key)?;
    let of_primary = end_of(&key.primary_key, newest);
    let own = may_sign(newest).then_some(of_primary);
    let of_subkeys = key.public_subkeys.iter().filter_map(|subkey| {
        let is_bound = |it: &&Signature| is_bound(&key.primary_key, subkey, it);
        let newest = subkey.signatures.iter().filter(is_bound).max_by_key(|it| created(it))?;
        may_sign(newest).then(|| end_of(&subkey.key, newest).min(of_primary))
    });
    let ends = own.into_iter().chain(of_subkeys).max().filter(|end| *end != NEVER)?;
    let created = Timestamp(u64::from(key.primary_key.created_at().as_secs()) * 1000);
    Some(KeyEnd { fingerprint: shown(&key.primary_key), created, ends })
}

fn check_subkey(
    primary: &SignedPublicKey,
    subkey: &SignedPublicSubKey,
    now: Timestamp,
) -> Result<(), String> {
    let print = shown(&subkey.key);
    let wrong = |what: &str| Err(format!("it is signed with the OpenPGP subkey {print}, which {what}"));
    if subkey.signatures.iter().any(|it| it.typ() == Some(SignatureType::SubkeyRevocation)) {
        return wrong("is revoked");
    }
    let bindings = subkey.signatures.iter().filter(|it| is_bound(&primary.primary_key, subkey, it));
    let Some(newest) = bindings.max_by_key(|it| created(it)) else {
        return wrong("is not validly bound to its primary key");
    };
    if is_expired(&subkey.key, newest, now) {
        return wrong("has expired");
    }
    if !may_sign(newest) {
        return wrong("may not sign (its usage flags)");
    }
    Ok(())
}

/// The primary key says that the subkey is its own, and the subkey says so, too: otherwise anybody could adopt
/// somebody else's.
fn is_bound(
    primary: &(impl VerifyingKey + Serialize),
    subkey: &SignedPublicSubKey,
    binding: &Signature,
) -> bool {
    let back = || {
        binding
            .embedded_signature()
            .is_some_and(|it| it.verify_primary_key_binding(&subkey.key, primary).is_ok())
    };
    binding.typ() == Some(SignatureType::SubkeyBinding)
        && binding.verify_subkey_binding(primary, &subkey.key).is_ok()
        && back()
}

fn is_issuer(signature: &Signature, key: &impl KeyDetails) -> bool {
    let prints = signature.issuer_fingerprint();
    if prints.is_empty() {
        return signature.issuer_key_id().into_iter().any(|it| *it == key.legacy_key_id());
    }
    prints.into_iter().any(|it| *it == key.fingerprint())
}

fn issuer(signature: &Signature) -> String {
    let prints = signature.issuer_fingerprint().into_iter().map(|it| format!("{it:X}"));
    let ids = signature.issuer_key_id().into_iter().map(|it| it.to_string().to_uppercase());
    prints.chain(ids).next().unwrap_or_else(|| "(unnamed)".to_owned())
}

fn shown(key: &impl KeyDetails) -> String {
    format!("{:X}", key.fingerprint())
}

fn created(signature: &Signature) -> u32 {
    signature.created().map_or(0, Moment::as_secs)
}

/// Without any flags, as old keys are, a key may do everything.
fn may_sign(signature: &Signature) -> bool {
    let flags = signature.key_flags();
    let says_something =
        flags.certify() || flags.encrypt_comms() || flags.encrypt_storage() || flags.authentication();
    flags.sign() || !says_something
}

fn is_expired(key: &impl KeyDetails, newest: &Signature, now: Timestamp) -> bool {
    now >= end_of(key, newest)
}

/// The end of a key without end.
const NEVER: Timestamp = Timestamp(u64::MAX);

fn end_of(key: &impl KeyDetails, newest: &Signature) -> Timestamp {
    let lifetime = newest.key_expiration_time().map_or(0, pgp::types::Duration::as_secs);
    match lifetime {
        0 => NEVER,
        _ => Timestamp((u64::from(key.created_at().as_secs()) + u64::from(lifetime)) * 1000),
    }
}

/// A lifetime of 0 is without end.
fn is_over(from: u32, lifetime: u32, now: Timestamp) -> bool {
    let end = (u64::from(from) + u64::from(lifetime)) * 1000;
    lifetime != 0 && now.0 >= end
}
