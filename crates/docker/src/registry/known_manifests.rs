//! Manifests that a registry has answered, by digest. A digest names one content for good, and registries such as Docker Hub count
//! each read of a manifest as a pull.

use std::{collections::BTreeMap, sync::Arc};

use super::manifest::Manifest;

/// The most manifests that are kept for one registry.
const MOST: usize = 128;

/// The most images of an index that is kept. Common ones have fewer than 40.
const MOST_IMAGES: usize = 100;

#[derive(Default)]
pub(super) struct KnownManifests {
    /// By `repository@digest`, with the number of the last use. Another repository may need another login.
    known: BTreeMap<String, (u64, Arc<Manifest>)>,
    uses: u64,
}

impl KnownManifests {
    pub(super) fn get(&mut self, repository: &str, digest: &str) -> Option<Arc<Manifest>> {
        self.uses += 1;
        let (used, manifest) = self.known.get_mut(&key(repository, digest))?;
        *used = self.uses;
        Some(Arc::clone(manifest))
    }

    /// Keeps a manifest whose content has this digest. One that was not used for the longest time makes room for it.
    pub(super) fn insert(&mut self, repository: &str, digest: &str, manifest: &Arc<Manifest>) {
        if manifest.count() > MOST_IMAGES {
            return;
        }
        if self.known.len() >= MOST {
            let oldest = self.known.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.map(|key| self.known.remove(&key));
        }
        self.uses += 1;
        self.known.insert(key(repository, digest), (self.uses, Arc::clone(manifest)));
    }
}

fn key(repository: &str, digest: &str) -> String {
    format!("{repository}@{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(images: usize) -> Arc<Manifest> {
        let entries = vec![serde_json::json!({ "digest": "sha256:image" }); images];
        Arc::new(serde_json::from_value(serde_json::json!({ "manifests": entries })).unwrap())
    }

    #[test]
    fn known_manifests_are_bounded() {
        let (mut known, small) = (KnownManifests::default(), manifest(1));
        known.insert("app", "used", &small);
        for number in 0..2 * MOST {
            known.insert("app", &number.to_string(), &small);
            assert!(known.get("app", "used").is_some(), "{number}");
        }
        assert_eq!(known.known.len(), MOST);
        assert!(known.get("app", "0").is_none() && known.get("other", "used").is_none());
        known.insert("app", "large", &manifest(MOST_IMAGES + 1));
        assert!(known.get("app", "large").is_none());
    }
}
