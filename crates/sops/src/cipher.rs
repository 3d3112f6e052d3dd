//! Encrypted values: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use std::sync::LazyLock;

use aes_gcm::{
    AesGcm, KeyInit,
    aead::{Aead, Payload, consts::U32},
    aes::Aes256,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use regex::Regex;
use sha2::{Digest, Sha512};

use super::Error;

/// AES-256-GCM with the nonce of 32 bytes that SOPS uses.
type Cipher = AesGcm<Aes256, U32>;

/// The key of all values of a file.
pub(super) type DataKey = [u8; 32];

/// An encrypted value anywhere in a text.
#[expect(clippy::unwrap_used, reason = "a constant expression")]
pub(super) static ENCRYPTED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"ENC\[AES256_GCM,data:([A-Za-z0-9+/=]*),iv:([A-Za-z0-9+/=]+),tag:([A-Za-z0-9+/=]+),type:([a-z]+)\]",
    )
    .unwrap()
});

/// The first letters of every encrypted value.
pub(super) const START: &str = "ENC[AES256_GCM,data:";

/// Whether a text is an encrypted value and nothing else.
pub(super) fn is_encrypted(text: &str) -> bool {
    text.starts_with(START) && ENCRYPTED.find(text).is_some_and(|found| found.len() == text.len())
}

/// The type that a value had before it was encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    /// Numbers and times: written without quotes.
    Bare,
    Boolean,
    Comment,
}

/// A decrypted value.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Plain {
    /// The bytes that are part of the MAC; a boolean is `True` or `False`.
    pub(super) bytes: Vec<u8>,
    pub(super) kind: Type,
}

impl Plain {
    /// The value of a file of text.
    pub(super) fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.bytes).map_err(|_| Error::Malformed("a value is not UTF-8".to_owned()))
    }
}

/// Decrypts a value. `None`: the text is not an encrypted value.
pub(super) fn open(text: &str, key: &DataKey, authenticated: &str) -> Result<Option<Plain>, Error> {
    let Some(found) = ENCRYPTED.captures(text).filter(|found| found[0].len() == text.len()) else {
        return Ok(None);
    };
    let kind = match &found[4] {
        "str" | "bytes" => Type::Text,
        "int" | "float" | "time" => Type::Bare,
        "bool" => Type::Boolean,
        "comment" => Type::Comment,
        other => return Err(Error::Malformed(format!("a value has the unknown type `{other}`"))),
    };
    let decode =
        |part: &str| STANDARD.decode(part).map_err(|_| Error::Malformed("a value is not base64".to_owned()));
    let (mut data, nonce, tag) = (decode(&found[1])?, decode(&found[2])?, decode(&found[3])?);
    let Ok(nonce) = <[u8; 32]>::try_from(nonce) else {
        return Err(Error::Malformed("the nonce of a value has not 32 bytes".to_owned()));
    };
    data.extend_from_slice(&tag);
    let payload = Payload { msg: &data, aad: authenticated.as_bytes() };
    let bytes = Cipher::new(key.into()).decrypt(&nonce.into(), payload).map_err(|_| Error::Value)?;
    Ok(Some(Plain { bytes, kind }))
}

/// The running hash that SOPS encrypts as the MAC of a file.
pub(super) struct Mac(Sha512);

impl Mac {
    /// The hash of a file whose MAC covers encrypted values only starts with SHA-256 of `sops`, as SOPS defines it.
    pub(super) fn new(is_only_encrypted: bool) -> Self {
        let mut hash = Sha512::new();
        if is_only_encrypted {
            hash.update(sha2::Sha256::digest(b"sops"));
        }
        Self(hash)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_decrypted() {
        let (key, nonce) = ([7; 32], [9; 32]);
        let payload = Payload { msg: b"\xff\x00\xfe", aad: b"data:" };
        let mut data = Cipher::new((&key).into()).encrypt(&nonce.into(), payload).unwrap();
        let tag = data.split_off(data.len() - 16);
        let [data, nonce, tag] = [data, nonce.to_vec(), tag].map(|part| STANDARD.encode(part));
        let text = format!("ENC[AES256_GCM,data:{data},iv:{nonce},tag:{tag},type:str]");
        let plain = open(&text, &key, "data:").unwrap().unwrap();
        assert_eq!(plain.bytes, b"\xff\x00\xfe");
        assert!(plain.text().is_err(), "a file of text cannot have it");
    }
}
