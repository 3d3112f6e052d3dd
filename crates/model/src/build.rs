//! Builds of images from the files of a commit, and the digest that identifies the content of the image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ContentId, SpecHash};

/// A build, lowered until no reference to a variable or to a folder of the manifest is left open.
///
/// Every field is left out of the JSON when it has its default, so that a new field changes no old digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Build {
    /// The digest of all inputs of the image: see [`Build::identify`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The digest of the files alone: the context after `.dockerignore`, and the Dockerfile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub files: String,
    /// The folder that the Dockerfile may copy from, from the repository's root; empty is the root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context: String,
    pub dockerfile: Dockerfile,
    /// The stage to stop at; `None` is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    /// Images of the Dockerfile that the same application builds: the names there, with the references by content.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bases: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `none`, `host`, or the engine's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// `name:address`, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<u64>,
    /// Name to (soft, hard).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, (i64, i64)>,
    /// With several, that of the engine is built; none is the engine's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<String>,
    /// By the id under which `RUN --mount=type=secret` asks for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, ContentId>,
    /// Further names that the image is given when it is built.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cache_from: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub no_cache: bool,
    /// Ask the registry for newer base images.
    #[serde(skip_serializing_if = "is_false")]
    pub pull: bool,
}

/// The place of the build instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Dockerfile {
    /// From the repository's root.
    Path(String),
    Inline(String),
}

impl Default for Dockerfile {
    fn default() -> Self {
        Self::Path(String::new())
    }
}

impl Build {
    /// Sets the digest of everything that changes the content of the image. Not part of it: further names, caches, whether
    /// base images are refreshed, the place of the files in the repository, and the values of secrets.
    pub fn identify(&mut self) {
        let only_ids = |id: &String| (id.clone(), ContentId(String::new()));
        let content = Self {
            digest: String::new(),
            context: String::new(),
            dockerfile: Dockerfile::default(),
            secrets: self.secrets.keys().map(only_ids).collect(),
            tags: Vec::new(),
            cache_from: Vec::new(),
            no_cache: false,
            pull: false,
            ..self.clone()
        };
        self.digest = SpecHash::of(&content).0;
    }

    /// The name of the image with the digest in its tag, so that it names exactly this content.
    pub fn reference(&self, name: &str) -> String {
        let short = self.digest.get(..16).unwrap_or(&self.digest);
        let last = name.rfind('/').map_or(0, |it| it + 1);
        let has_tag = name.get(last..).is_some_and(|it| it.contains(':'));
        let separator = if has_tag { '-' } else { ':' };
        format!("{name}{separator}{short}")
    }

    /// The folder of the build, for people.
    pub fn place(&self) -> &str {
        if self.context.is_empty() { "." } else { &self.context }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's own shape")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> Build {
        let mut build = Build { files: "00".into(), context: "app".into(), ..Build::default() };
        build.identify();
        build
    }

    #[test]
    fn only_inputs_of_the_image_change_its_identity() {
        let changed = |change: fn(&mut Build)| {
            let mut other = build();
            change(&mut other);
            other.identify();
            other.digest != build().digest
        };
        assert!(changed(|it| it.files = "01".into()));
        assert!(changed(|it| it.target = Some("test".into())));
        assert!(changed(|it| drop(it.args.insert("A".into(), "1".into()))));
        assert!(changed(|it| drop(it.bases.insert("base".into(), "base:01".into()))));
        assert!(changed(|it| drop(it.secrets.insert("npm".into(), ContentId("00".into())))));
        assert!(!changed(|it| it.context = "moved".into()));
        assert!(!changed(|it| it.no_cache = true));
        assert!(!changed(|it| it.tags = vec!["other".into()]));
        assert!(!changed(Build::identify));
    }

    #[test]
    fn a_new_value_of_a_secret_builds_nothing() {
        let with = |value: &str| {
            let mut it = build();
            it.secrets.insert("npm".into(), ContentId(value.into()));
            it.identify();
            it.digest
        };
        assert_eq!(with("00"), with("01"));
    }

    #[test]
    fn the_digest_is_in_the_tag() {
        let build = Build { digest: "0123456789abcdef0123".into(), ..Build::default() };
        assert_eq!(build.reference("shop-web"), "shop-web:0123456789abcdef");
        assert_eq!(build.reference("web:1.0"), "web:1.0-0123456789abcdef");
        assert_eq!(build.reference("localhost:5000/web"), "localhost:5000/web:0123456789abcdef");
    }
}
