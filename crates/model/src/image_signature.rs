//! Signatures of images: the rules of the host on which keys must have signed, and the images that were verified.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{ImageRef, matches_star, time::Timestamp};

/// The most verified images that an application remembers. The oldest ones are forgotten first and verified again when needed.
const MOST: usize = 200;

/// The images of a pattern must be signed with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignatureRule {
    /// Images, as `registry/name:tag`; `*` is any text.
    pub images: String,
    /// A file of this host with public keys in PEM. One of them must have signed.
    pub key: PathBuf,
}

impl SignatureRule {
    /// Whether an image must be signed by this rule.
    pub fn covers(&self, image: &str) -> bool {
        ImageRef::parse(image).matches(&self.images)
    }
}

/// The key files that must have signed an image: one key of each.
pub fn signature_keys(rules: &[SignatureRule], image: &str) -> BTreeSet<PathBuf> {
    rules.iter().filter(|rule| rule.covers(image)).map(|rule| rule.key.clone()).collect()
}

/// An image whose signatures were verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedImage {
    /// `sha256:…` of the file, by key file. Another content of the file makes it unverified.
    pub keys: BTreeMap<PathBuf, String>,
    /// When it was verified.
    pub at: Timestamp,
}

/// The images of an application that were verified, by the digest in their registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VerifiedImages(BTreeMap<String, VerifiedImage>);

impl VerifiedImages {
    /// Whether nothing was verified.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a digest was verified with all of these key files.
    pub fn contains(&self, digest: &str, keys: &BTreeSet<PathBuf>) -> bool {
        self.0.get(digest).is_some_and(|known| keys.iter().all(|key| known.keys.contains_key(key)))
    }

    /// Remembers an image. What other key files have verified of it stays.
    pub fn insert(&mut self, digest: String, mut image: VerifiedImage) {
        if let Some(known) = self.0.remove(&digest) {
            for (key, content) in known.keys {
                image.keys.entry(key).or_insert(content);
            }
        }
        self.0.insert(digest, image);
        while self.0.len() > MOST {
            let oldest = self.0.iter().min_by_key(|(_, image)| image.at).map(|(digest, _)| digest.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    /// Forgets what was verified with another content of a key file than the present one. A file that cannot be read is not in
    /// `present`, and proves nothing against what was verified.
    pub fn retain_keys(&mut self, present: &BTreeMap<PathBuf, String>) {
        for image in self.0.values_mut() {
            image.keys.retain(|key, content| present.get(key).is_none_or(|present| present == content));
        }
        self.0.retain(|_, image| !image.keys.is_empty());
    }

    /// The key files that verified something.
    pub fn keys(&self) -> BTreeSet<&PathBuf> {
        self.0.values().flat_map(|image| image.keys.keys()).collect()
    }
}

impl ImageRef {
    /// Whether an image is meant by a pattern: its repository with the registry, or that with its tag. `*` is any text. `nginx`
    /// in a pattern is `docker.io/library/nginx`.
    pub fn matches(&self, pattern: &str) -> bool {
        let pattern = normal_pattern(pattern);
        let full = format!("{}/{}", self.registry(), self.repository());
        let tagged = self.effective_tag().map(|tag| format!("{full}:{tag}"));
        matches_star(&pattern, &full) || tagged.is_some_and(|tagged| matches_star(&pattern, &tagged))
    }
}

/// A pattern with its registry: `nginx` is `docker.io/library/nginx`, `ghcr.io/team/*` is itself.
fn normal_pattern(pattern: &str) -> String {
    let first = pattern.split('/').next().unwrap_or_default();
    if first.contains('*') {
        return pattern.to_owned();
    }
    let has_tag = ImageRef::split(pattern).tag.is_some();
    let reference = ImageRef::parse(pattern);
    let name = format!("{}/{}", reference.registry(), reference.repository());
    match reference.tag().filter(|_| has_tag) {
        Some(tag) => format!("{name}:{tag}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(key: &str, at: u64) -> VerifiedImage {
        let keys = BTreeMap::from([(PathBuf::from(key), "sha256:a".to_owned())]);
        VerifiedImage { keys, at: Timestamp(at) }
    }

    #[test]
    fn rules_cover_images_by_their_full_names() {
        let rule = |images: &str| SignatureRule { images: images.to_owned(), key: "/k".into() };
        for (images, image) in [
            ("ghcr.io/team/*", "ghcr.io/team/shop:1"),
            ("nginx", "nginx:1.29"),
            ("nginx", "docker.io/library/nginx"),
            ("*", "127.0.0.1:5000/a@sha256:aa"),
            ("ghcr.io/team/shop:prod", "ghcr.io/team/shop:prod"),
        ] {
            assert!(rule(images).covers(image), "{images} {image}");
        }
        for (images, image) in [
            ("ghcr.io/team/*", "ghcr.io/teams/shop:1"),
            ("nginx", "ghcr.io/library/nginx"),
            ("ghcr.io/team/shop:prod", "ghcr.io/team/shop:test"),
        ] {
            assert!(!rule(images).covers(image), "{images} {image}");
        }
    }

    #[test]
    fn every_key_file_must_have_verified() {
        let keys = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let mut images = VerifiedImages::default();
        images.insert("sha256:1".to_owned(), verified("/a", 1));
        assert!(images.contains("sha256:1", &keys(&["/a"])));
        assert!(!images.contains("sha256:1", &keys(&["/a", "/b"])));
        assert!(!images.contains("sha256:2", &keys(&["/a"])));
        images.insert("sha256:1".to_owned(), verified("/b", 2));
        assert!(images.contains("sha256:1", &keys(&["/a", "/b"])));

        let present = |content: &str| BTreeMap::from([(PathBuf::from("/a"), content.to_owned())]);
        images.retain_keys(&present("sha256:a"));
        assert!(
            images.contains("sha256:1", &keys(&["/a", "/b"])),
            "/b cannot be read, and nothing is known against it"
        );
        images.retain_keys(&present("sha256:changed"));
        assert!(!images.contains("sha256:1", &keys(&["/a"])));
    }

    #[test]
    fn only_so_many_images_are_remembered() {
        let mut images = VerifiedImages::default();
        for at in 0..=MOST as u64 {
            images.insert(format!("sha256:{at}"), verified("/a", at));
        }
        let keys = BTreeSet::from([PathBuf::from("/a")]);
        assert!(!images.contains("sha256:0", &keys) && images.contains("sha256:1", &keys));
    }
}
