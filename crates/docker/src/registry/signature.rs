//! Signatures of images as cosign makes them with a key, checked without any other service: the older form under the tag
//! `sha256-….sig`, and Sigstore bundles that refer to the image.
//!
//! Source: cosign's specifications of signatures and bundles, DSSE version 1, in-toto statements version 1.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use driftless_model::digest_hex;
use serde::Deserialize;
use tokio_rustls::rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};

use super::error::RegistryError;

/// The media type of a signed text in the older form.
pub(super) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The beginning of the media types of bundles.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// The annotation with the signature of a layer in the older form.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// The statement that says no more than that an image was signed.
const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// The annotation of a manifest with what its bundle states.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

/// The beginning of the types of manifests that do not say one, in a registry that takes it from the manifest's configuration.
const OCI: &str = "application/vnd.oci.";

/// The type of the text in an envelope.
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// The largest key file, in bytes.
const LARGEST_KEY: u64 = 64 << 10;

/// The most signatures of one image that are looked at.
pub(super) const MOST: usize = 64;

/// Why an image counts as not verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The image has no digest of its registry.
    #[error(
        "it must be signed, but it was built or loaded on this host, so no registry has a signature of it"
    )]
    NoDigest,
    /// A key file cannot be used.
    #[error("it must be signed, but the key file {} {problem}", path.display())]
    Key {
        /// The key file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// No signature by one of the keys.
    #[error("it must be signed, but {digest} has no signature by a key in {}", path.display())]
    NotSigned {
        /// The digest of the image.
        digest: String,
        /// The key file.
        path: PathBuf,
    },
    /// The registry did not give its signatures.
    #[error("its signature could not be read: {0}")]
    Registry(#[from] RegistryError),
    /// The engine did not describe the image.
    #[error("its signature could not be verified: {0}")]
    Engine(String),
}

impl SignatureError {
    /// The time that the registry asks to wait.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::Registry(error) => error.retry_after(),
            Self::NoDigest | Self::Key { .. } | Self::NotSigned { .. } | Self::Engine(_) => None,
        }
    }
}

/// The public keys of a file.
pub(super) struct KeyFile {
    path: PathBuf,
    /// `sha256:…` of the file.
    pub(super) content: String,
    /// `SubjectPublicKeyInfo` in DER.
    keys: Vec<Vec<u8>>,
}

impl KeyFile {
    pub(super) fn read(path: &Path) -> Result<Self, SignatureError> {
        let failed = |problem: String| SignatureError::Key { path: path.to_owned(), problem };
        let unreadable = |error: std::io::Error| failed(format!("cannot be read: {error}"));
        let mut text = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST_KEY + 1).read_to_end(&mut text))
            .map_err(unreadable)?;
        if text.len() as u64 > LARGEST_KEY {
            return Err(failed("is larger than 64 KiB".to_owned()));
        }
        let keys: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(&text).collect();
        let keys = keys.map_err(|_| failed("is not in the form PEM".to_owned()))?;
        if keys.is_empty() {
            return Err(failed("has no `PUBLIC KEY` in PEM, such as `cosign.pub`".to_owned()));
        }
        let keys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        Ok(Self { path: path.to_owned(), content: format!("sha256:{}", digest_hex(&text)), keys })
    }

    /// Whether one of the keys made a signature.
    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithms: [&'static dyn VerificationAlgorithm; 4] =
            [&ECDSA_P256_SHA256_ASN1, &ECDSA_P384_SHA384_ASN1, &ED25519, &RSA_PKCS1_2048_8192_SHA256];
        let is_by = |key: &Vec<u8>| {
            algorithms.iter().any(|algorithm| {
                UnparsedPublicKey::new(*algorithm, key.as_slice()).verify(message, signature).is_ok()
            })
        };
        self.keys.iter().any(is_by)
    }
}

/// A text that says of an image that it was signed, with signatures of that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signed {
    message: Vec<u8>,
    signatures: Vec<Vec<u8>>,
}

impl Signed {
    /// A layer in the older form. `None`: it is about another image, or is no signature at all.
    pub(super) fn of_layer(layer: &Layer, payload: Vec<u8>, digest: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Payload {
            critical: Critical,
        }
        #[derive(Deserialize)]
        struct Critical {
            image: Image,
            r#type: String,
        }
        #[derive(Deserialize)]
        struct Image {
            #[serde(rename = "docker-manifest-digest")]
            digest: String,
        }
        let signature = STANDARD.decode(layer.annotations.get(SIGNATURE)?).ok()?;
        let said: Payload = serde_json::from_slice(&payload).ok()?;
        let is_of_it = said.critical.r#type == "cosign container image signature"
            && said.critical.image.digest == digest;
        is_of_it.then(|| Self { message: payload, signatures: vec![signature] })
    }

    /// A bundle. `None`: it says something else, or of another image.
    pub(super) fn of_bundle(bundle: &[u8], digest: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Bundle {
            dsse_envelope: Envelope,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Envelope {
            payload: String,
            payload_type: String,
            signatures: Vec<EnvelopeSignature>,
        }
        #[derive(Deserialize)]
        struct EnvelopeSignature {
            sig: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Statement {
            subject: Vec<StatementSubject>,
            predicate_type: String,
        }
        #[derive(Deserialize)]
        struct StatementSubject {
            digest: BTreeMap<String, String>,
        }
        let Bundle { dsse_envelope: envelope } = serde_json::from_slice(bundle).ok()?;
        let payload = STANDARD.decode(&envelope.payload).ok()?;
        let statement: Statement = serde_json::from_slice(&payload).ok()?;
        let (algorithm, hex) = digest.split_once(':')?;
        let is_of_it =
            |subject: &StatementSubject| subject.digest.get(algorithm).is_some_and(|found| found == hex);
        let is_meant = envelope.payload_type == IN_TOTO
            && statement.predicate_type == SIGN_PREDICATE
            && statement.subject.iter().any(is_of_it);
        let signatures =
            envelope.signatures.iter().take(MOST).filter_map(|one| STANDARD.decode(&one.sig).ok());
        is_meant.then(|| Self {
            message: pre_authentication(IN_TOTO, &payload),
            signatures: signatures.collect(),
        })
    }

    fn is_by(&self, keys: &KeyFile) -> bool {
        self.signatures.iter().any(|signature| keys.has_signed(&self.message, signature))
    }
}

/// The text that an envelope signs: the type and the payload with their lengths.
fn pre_authentication(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut text = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    text.extend_from_slice(payload);
    text
}

/// A manifest, as far as signatures need it.
#[derive(Debug, Deserialize)]
pub(super) struct SignatureManifest {
    #[serde(default)]
    pub(super) layers: Vec<Layer>,
}

/// The manifests that refer to another one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Referrers {
    #[serde(default)]
    pub(super) manifests: Vec<Referrer>,
}

/// A manifest that refers to another one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Referrer {
    pub(super) digest: String,
    /// Its type. Registries without referrers may leave it out.
    artifact_type: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Referrer {
    /// Whether it may have a signature, by its description alone. Others, such as lists of what an image contains, are large and
    /// many.
    pub(super) fn may_sign(&self) -> bool {
        let is_bundle = |kind: &String| kind.starts_with(BUNDLE) || kind.starts_with(OCI);
        let predicate = self.annotations.as_ref().and_then(|annotations| annotations.get(PREDICATE));
        self.artifact_type.as_ref().filter(|kind| !kind.is_empty()).is_none_or(is_bundle)
            && predicate.is_none_or(|predicate| predicate == SIGN_PREDICATE)
    }
}

/// A layer of such a manifest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    pub(super) media_type: String,
    pub(super) digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Checks that each key file has signed. Returns the contents of the files.
pub(super) fn check(
    files: &[KeyFile],
    signed: &[Signed],
    digest: &str,
) -> Result<BTreeMap<PathBuf, String>, SignatureError> {
    for file in files {
        if !signed.iter().any(|one| one.is_by(file)) {
            return Err(SignatureError::NotSigned { digest: digest.to_owned(), path: file.path.clone() });
        }
    }
    Ok(files.iter().map(|file| (file.path.clone(), file.content.clone())).collect())
}

/// The contents of key files, as [`driftless_model::VerifiedImage`] has them. One that cannot be read is left out.
pub fn key_contents<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> BTreeMap<PathBuf, String> {
    let paths: BTreeSet<&PathBuf> = paths.into_iter().collect();
    let read = |path: &PathBuf| Some((path.clone(), KeyFile::read(path).ok()?.content));
    paths.into_iter().filter_map(read).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A key, and signatures of one image that cosign 3.1 made with it in both forms.
    pub(crate) const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEK7bRsWtfzt2E/TzT1Iw5lgiBybLt
NitB5MbvwCBiQYyW+y7OvPDPct+Xvj/9XodSAF5q7ImPXjrv9vR5aIax0w==
-----END PUBLIC KEY-----
";
    /// Another key.
    pub(crate) const OTHER: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEED7uKWLGTP9Ddv8glOX7gL1UdMk7
wl4lW1CzABL+RwOCFFI5ZLfXBfCR3eV481YKfvX1aHP6A3Qc9Z5Zb3YnKw==
-----END PUBLIC KEY-----
";
    pub(crate) const IMAGE: &str = "sha256:cd903f5c8b29e244d8dd5069a0595448ea8917713147c6fb0af37b436d5e14c1";
    pub(crate) const PAYLOAD: &str = r#"{"critical":{"identity":{"docker-reference":"127.0.0.1:5999/team/web"},"image":{"docker-manifest-digest":"sha256:cd903f5c8b29e244d8dd5069a0595448ea8917713147c6fb0af37b436d5e14c1"},"type":"cosign container image signature"},"optional":null}"#;
    pub(crate) const LAYER: &str = r#"{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","size":239,"digest":"sha256:6e200aad6fb14a5ce3c75f7741ad4bb91353f273d128a830fb85eb41d0231bc8","annotations":{"dev.cosignproject.cosign/signature":"MEUCIQCUPYJDBmmkczSTV3Ohc7Z6iCekWCsGUG118ljGJmwS7AIgRc2+nzR5HzR4v0NcBUgJnGOxsMvJcEpLQ5u9L56qiNU="}}"#;
    pub(crate) const BUNDLE: &str = r#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"publicKey":{"hint":"BltJlnOzqDSOqrG+DASNoGJUTvXSKsCsorMu19UxxKg="}},"dsseEnvelope":{"payload":"eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJzdWJqZWN0IjpbeyJkaWdlc3QiOnsic2hhMjU2IjoiY2Q5MDNmNWM4YjI5ZTI0NGQ4ZGQ1MDY5YTA1OTU0NDhlYTg5MTc3MTMxNDdjNmZiMGFmMzdiNDM2ZDVlMTRjMSJ9LCJhbm5vdGF0aW9ucyI6e319XSwicHJlZGljYXRlVHlwZSI6Imh0dHBzOi8vc2lnc3RvcmUuZGV2L2Nvc2lnbi9zaWduL3YxIiwicHJlZGljYXRlIjp7fX0=","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"MEQCIEcD5Zukho0x1M6MqwYquzzsXmrgNWKNZ6hwhSdYj2s9AiA2gHvpfwnVRipROFZP9qKWgc9qGYVD/yYSwOobPvhBZA=="}]}}"#;

    pub(crate) fn key_file(text: &str) -> KeyFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        KeyFile::read(file.path()).unwrap()
    }

    fn older(payload: &str) -> Option<Signed> {
        let layer: Layer = serde_json::from_str(LAYER).unwrap();
        Signed::of_layer(&layer, payload.as_bytes().to_vec(), IMAGE)
    }

    #[test]
    fn signatures_of_cosign_are_verified_in_both_forms() {
        for signed in [older(PAYLOAD), Signed::of_bundle(BUNDLE.as_bytes(), IMAGE)] {
            let signed = [signed.unwrap()];
            assert!(check(&[key_file(KEY)], &signed, IMAGE).is_ok());
            // Any key of a file is enough, and every file is needed.
            assert!(check(&[key_file(&format!("{OTHER}{KEY}"))], &signed, IMAGE).is_ok());
            let error = check(&[key_file(KEY), key_file(OTHER)], &signed, IMAGE).unwrap_err();
            assert!(error.to_string().contains("has no signature by a key in"), "{error}");
        }
        assert!(check(&[key_file(KEY)], &[], IMAGE).is_err());
    }

    #[test]
    fn signature_of_another_image_or_text_does_not_count() {
        let other = IMAGE.replace("cd903f", "cd903e");
        assert_eq!(older(&PAYLOAD.replace("cd903f", "cd903e")), None);
        assert_eq!(Signed::of_bundle(BUNDLE.as_bytes(), &other), None);
        let altered = older(&PAYLOAD.replace("team/web", "team/wxb")).unwrap();
        assert!(check(&[key_file(KEY)], &[altered], IMAGE).is_err());
        for broken in ["", "{}", "[]", r#"{"dsseEnvelope":{"payload":"!","payloadType":"","signatures":[]}}"#]
        {
            assert_eq!(Signed::of_bundle(broken.as_bytes(), IMAGE), None);
            assert_eq!(older(broken), None);
        }
    }

    #[test]
    fn referrers_that_cannot_sign_are_left_out() {
        let may_sign =
            |described: serde_json::Value| serde_json::from_value::<Referrer>(described).unwrap().may_sign();
        let bundle = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let of = |kind: &str, states: &str| serde_json::json!({ "digest": IMAGE, "artifactType": kind, "annotations": { PREDICATE: states } });
        assert!(may_sign(serde_json::json!({ "digest": IMAGE })));
        assert!(may_sign(
            serde_json::json!({ "digest": IMAGE, "artifactType": bundle, "annotations": null })
        ));
        assert!(may_sign(of(bundle, SIGN_PREDICATE)));
        assert!(!may_sign(of(bundle, "https://spdx.dev/Document")));
        assert!(!may_sign(serde_json::json!({ "digest": IMAGE, "artifactType": "application/spdx+json" })));
    }

    #[test]
    fn statement_about_something_else_is_no_signature() {
        let Some(start) = BUNDLE.find("eyJ") else { panic!("no payload") };
        let end = start + BUNDLE[start..].find('"').unwrap();
        let statement = String::from_utf8(STANDARD.decode(&BUNDLE[start..end]).unwrap()).unwrap();
        let provenance = statement.replace(SIGN_PREDICATE, "https://slsa.dev/provenance/v1");
        let bundle = BUNDLE.replace(&BUNDLE[start..end], &STANDARD.encode(provenance));
        assert_eq!(Signed::of_bundle(bundle.as_bytes(), IMAGE), None);
    }

    #[test]
    fn key_file_without_a_public_key_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            std::fs::write(file.path(), text).unwrap();
            let error = KeyFile::read(file.path()).err().unwrap();
            assert!(error.to_string().contains("has no `PUBLIC KEY` in PEM"), "{error}");
        }
        let error = KeyFile::read(Path::new("/no/such.pub")).err().unwrap();
        assert!(error.to_string().contains("the key file /no/such.pub cannot be read"), "{error}");
        assert_eq!(key_contents([&PathBuf::from("/no/such.pub")]), BTreeMap::new());
    }
}
