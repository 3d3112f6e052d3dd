//! Pulls: their policies, and `imagePullSecrets`, the logins with which a pod's images are pulled.
//!
//! The Secrets are those of the application. A missing one is not an error, because the agent may have the login itself;
//! the kubelet continues as well.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    catalogue::DataKind,
    env::{About, data_key},
    fields,
    reader::Object,
};
use driftless_model::{Content, ContentId, ImageRef, PullPolicy};

/// The keys of a login Secret, in the current and the legacy form.
const KEYS: [&str; 2] = [".dockerconfigjson", ".dockercfg"];

/// Reads `imagePullSecrets` of a pod.
pub(super) fn secrets(spec: &Object<'_>, about: &About<'_>) -> BTreeSet<ContentId> {
    let mut found = BTreeSet::new();
    for item in spec.items("imagePullSecrets") {
        let Some(reference) = item.object(fields::LOCAL_REF) else { continue };
        let Some(key) = data_key(&reference, about.namespace) else { continue };
        let Some(data) = about.catalogue.data(DataKind::Secret, &key) else {
            let name = key.dotted();
            reference.value.warning(format!(
                "has no effect: there is no Secret `{name}` in this application, so the agent's own logins count"
            ));
            continue;
        };
        let Some(bytes) = KEYS.iter().find_map(|it| data.entries.get(*it)) else {
            reference.value.error_help(
                format!("the Secret `{}` holds no login for a registry", key.dotted()),
                "make it of the type `kubernetes.io/dockerconfigjson`",
            );
            continue;
        };
        // Its content is never quoted.
        if !serde_json::from_slice::<serde_json::Value>(bytes).is_ok_and(|it| it.is_object()) {
            let name = key.dotted();
            reference.value.error(format!("the Secret `{name}` is not a file as `docker login` writes it"));
            continue;
        }
        found.extend(about.catalogue.keep(Content::file(Arc::clone(bytes)), &reference.value));
    }
    found
}

/// The policy under a key, or the default for the image's tag.
pub(super) fn policy(object: &Object<'_>, key: &str, image: &str) -> PullPolicy {
    let words = [
        ("Always", PullPolicy::Always),
        ("IfNotPresent", PullPolicy::IfNotPresent),
        ("Never", PullPolicy::Never),
    ];
    object.get(key).and_then(|policy| policy.one_of(&words)).unwrap_or_else(|| default_pull(image))
}

fn default_pull(image: &str) -> PullPolicy {
    let image = ImageRef::parse(image);
    let is_latest = image.digest().is_none() && image.effective_tag() == Some("latest");
    if is_latest { PullPolicy::Always } else { PullPolicy::IfNotPresent }
}
