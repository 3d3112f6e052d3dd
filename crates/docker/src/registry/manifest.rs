//! Manifests of images, as far as they tell which image a platform gets.

use std::collections::BTreeSet;

use driftless_model::Platform;
use serde::Deserialize;

/// The media types that are accepted. Those of indexes come first, so that a tag is answered by what it names for all platforms.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// A manifest of one image, or an index of several.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    manifests: Option<Vec<IndexEntry>>,
}

#[derive(Debug, Deserialize)]
struct IndexEntry {
    digest: String,
    platform: Option<EntryPlatform>,
}

#[derive(Debug, Deserialize)]
struct EntryPlatform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl EntryPlatform {
    fn platform(&self) -> Platform {
        let variant: String = self.variant.iter().flat_map(|variant| ["/", variant.as_str()]).collect();
        Platform::parse(&format!("{}/{}{variant}", self.os, self.architecture))
    }
}

impl Manifest {
    /// The number of images in an index.
    pub(super) fn count(&self) -> usize {
        self.manifests.as_ref().map_or(0, Vec::len)
    }

    /// The digests of the images for these platforms. `digest` is that of this manifest. A platform without an image is left out.
    pub(super) fn images<'a>(
        &self,
        digest: &str,
        platforms: &'a [Platform],
    ) -> BTreeSet<(&'a Platform, String)> {
        let of_each = platforms.iter().flat_map(|platform| {
            let images = self.images_of(digest, platform);
            images.into_iter().map(move |image| (platform, image))
        });
        of_each.collect()
    }

    fn images_of(&self, digest: &str, platform: &Platform) -> BTreeSet<String> {
        let Some(entries) = &self.manifests else { return BTreeSet::from([digest.to_owned()]) };
        let images_for = |own: &Platform| -> BTreeSet<String> {
            let fits = |entry: &&IndexEntry| {
                entry.platform.as_ref().is_some_and(|of| own.runs(&of.platform().with_default_variant()))
            };
            entries.iter().filter(fits).map(|entry| entry.digest.clone()).collect()
        };
        // The engine takes the best one.
        let mut of_each = platform.by_preference().into_iter().map(|own| images_for(&own));
        of_each.find(|images| !images.is_empty()).unwrap_or_default()
    }
}

/// A platform for which the running image has an index entry and the newest one has no image. `digest` is that of the running
/// image. A manifest of one image does not say its platform.
pub(super) fn missing_platform<'a>(
    newest: &BTreeSet<(&'a Platform, String)>,
    running: &BTreeSet<(&'a Platform, String)>,
    digest: &str,
) -> Option<&'a Platform> {
    let is_missing = |platform: &Platform| newest.iter().all(|(of, _)| *of != platform);
    let mut of_index = running.iter().filter(|(_, image)| image.as_str() != digest);
    of_index.find_map(|(platform, _)| is_missing(platform).then_some(*platform))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_gives_the_images_of_a_platform() {
        let index = r#"{"schemaVersion": 2, "manifests": [
            {"digest": "sha256:amd", "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
            {"digest": "sha256:proof", "platform": {"os": "unknown", "architecture": "unknown"}},
            {"digest": "sha256:none"}]}"#;
        let index: Manifest = serde_json::from_str(index).unwrap();
        let images = |platform| index.images_of("sha256:index", &Platform::parse(platform));
        assert_eq!(images("linux/amd64"), BTreeSet::from(["sha256:amd".to_owned()]));
        assert_eq!(images("linux/arm64"), BTreeSet::from(["sha256:arm".to_owned()]));
        assert!(images("linux/s390x").is_empty());
    }

    #[test]
    fn arm_of_32_bits_gets_the_best_variant_of_an_index() {
        let index = |variants: &[Option<&str>]| -> Manifest {
            let entries = variants.iter().map(|variant| {
                serde_json::json!({ "digest": format!("sha256:{}", variant.unwrap_or("none")),
                    "platform": { "os": "linux", "architecture": "arm", "variant": variant } })
            });
            serde_json::from_value(serde_json::json!({ "manifests": entries.collect::<Vec<_>>() })).unwrap()
        };
        let all = [Some("v5"), Some("v6"), Some("v7")];
        for (platform, variants, expected) in [
            ("linux/arm", &all[..], Some("sha256:v7")),
            ("linux/arm/v8", &all[..], Some("sha256:v7")),
            ("linux/arm/v7", &all[..], Some("sha256:v7")),
            ("linux/arm/v6", &all[..], Some("sha256:v6")),
            ("linux/arm/v7", &all[..2], Some("sha256:v6")),
            ("linux/arm/v5", &all[1..], None),
            ("linux/arm/v7", &[None, Some("v6")][..], Some("sha256:none")),
            ("linux/arm/v6", &[None, Some("v6")][..], Some("sha256:v6")),
            ("linux/arm64", &all[..], None),
        ] {
            let found = index(variants).images_of("sha256:index", &Platform::parse(platform));
            let found: Vec<&str> = found.iter().map(String::as_str).collect();
            assert_eq!(found, Vec::from_iter(expected), "{platform} {variants:?}");
        }
    }

    #[test]
    fn index_changes_for_the_platforms_that_count() {
        let index = |arm: &str| -> Manifest {
            let text = format!(
                r#"{{"manifests": [{{"digest": "sha256:amd", "platform": {{"os": "linux", "architecture": "amd64"}}}},
                   {{"digest": "{arm}", "platform": {{"os": "linux", "architecture": "arm", "variant": "v7"}}}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let is_same = |platforms: &[&str]| {
            let platforms: Vec<Platform> = platforms.iter().map(|name| Platform::parse(name)).collect();
            let (before, after) = (index("sha256:old"), index("sha256:new"));
            before.images("sha256:1", &platforms) == after.images("sha256:2", &platforms)
        };
        assert!(is_same(&["linux/x86_64"]));
        assert!(is_same(&["linux/x86_64", "linux/s390x"]), "it has no image for one of them");
        assert!(!is_same(&["linux/x86_64", "linux/armv7l"]));
    }

    #[test]
    fn manifest_of_one_image_is_that_image() {
        let manifest: Manifest = serde_json::from_str(r#"{"schemaVersion": 2, "config": {}}"#).unwrap();
        let images = manifest.images_of("sha256:one", &Platform::parse("linux/amd64"));
        assert_eq!(images, BTreeSet::from(["sha256:one".to_owned()]));
    }

    #[test]
    fn platform_that_the_newest_index_lacks_is_found() {
        let index = |architectures: &[&str]| -> Manifest {
            let entries = architectures.iter().map(|architecture| {
                serde_json::json!({ "digest": format!("sha256:{architecture}"),
                    "platform": { "os": "linux", "architecture": architecture } })
            });
            serde_json::from_value(serde_json::json!({ "manifests": entries.collect::<Vec<_>>() })).unwrap()
        };
        let platforms = ["linux/amd64", "linux/arm64"].map(Platform::parse);
        let missing = |newest: &Manifest, running: &Manifest| {
            let images = |manifest: &Manifest, digest| manifest.images(digest, &platforms);
            let (newest, running) = (images(newest, "sha256:new"), images(running, "sha256:old"));
            missing_platform(&newest, &running, "sha256:old").map(ToString::to_string)
        };
        let (whole, arm) = (index(&["amd64", "arm64"]), index(&["arm64"]));
        assert_eq!(missing(&arm, &whole).as_deref(), Some("linux/amd64"));
        assert_eq!(missing(&index(&[]), &arm).as_deref(), Some("linux/arm64"));
        assert_eq!(missing(&whole, &arm), None);
        let single = Manifest { manifests: None };
        assert_eq!(missing(&single, &whole), None, "one image may be for any platform");
        assert_eq!(missing(&arm, &single), None);
    }
}
