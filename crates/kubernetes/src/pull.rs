//! Pulls: their policies, and `imagePullSecrets`, the logins with which a pod's images are pulled.
//!
//! The Secrets are those of the application. A missing one is not an error, because the agent may have the login itself;
//! the kubelet continues as well.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    catalogue::{Catalogue, DataKind},
    env::{About, data_key},
    fields,
    object::Key,
    reader::Object,
    service_account::AccountLogin,
};
use driftless_model::{Content, ContentId, Finding, ImageRef, PullPolicy};

/// The keys of a login Secret, in the current and the legacy form.
const KEYS: [&str; 2] = [".dockerconfigjson", ".dockercfg"];

/// Reads `imagePullSecrets` of a pod. As in a cluster, a pod without any has those of its `ServiceAccount`.
pub(super) fn secrets(spec: &Object<'_>, about: &About<'_>) -> BTreeSet<ContentId> {
    let own = spec.items("imagePullSecrets");
    if own.is_empty() {
        return secrets_of_account(spec, about);
    }
    let mut found = BTreeSet::new();
    for item in own {
        let Some(reference) = item.object(fields::LOCAL_REF) else { continue };
        let Some(key) = data_key(&reference, about.namespace) else { continue };
        match login(about.catalogue, &key) {
            Ok(bytes) => {
                found.extend(about.catalogue.keep(Content::file(Arc::clone(bytes)), &reference.value));
            }
            Err(NoLogin::NoSecret) => reference.value.warning(format!(
                "has no effect: there is no Secret `{}` in this application, so the agent's own logins count",
                key.dotted()
            )),
            Err(NoLogin::Unusable { message, help }) => reference.value.error_help(message, help),
        }
    }
    found
}

fn secrets_of_account(spec: &Object<'_>, about: &About<'_>) -> BTreeSet<ContentId> {
    let account = if about.service_account.is_empty() { "default" } else { about.service_account };
    let mut found = BTreeSet::new();
    for AccountLogin { secret, location } in about.catalogue.logins_of(&Key::new(about.namespace, account)) {
        let finding = match login(about.catalogue, secret) {
            Ok(bytes) => {
                found.extend(about.catalogue.keep(Content::file(Arc::clone(bytes)), &spec.value));
                continue;
            }
            Err(NoLogin::NoSecret) => {
                let name = secret.dotted();
                let message = format!(
                    "has no effect: there is no Secret `{name}` in this application, so the agent's own logins count"
                );
                Finding::warning(location.clone(), "imagePullSecrets", message)
            }
            Err(NoLogin::Unusable { message, help }) => {
                Finding::error(location.clone(), "imagePullSecrets", message).help(help)
            }
        };
        spec.value.report().say(finding);
    }
    found
}

/// Why a Secret gives no login.
enum NoLogin {
    /// The application does not have it.
    NoSecret,
    /// Its content is wrong.
    Unusable { message: String, help: &'static str },
}

/// The login in a Secret. Its content is never quoted.
fn login<'c>(catalogue: &'c Catalogue, secret: &Key) -> Result<&'c Arc<[u8]>, NoLogin> {
    let Some(data) = catalogue.data(DataKind::Secret, secret) else { return Err(NoLogin::NoSecret) };
    let Some(bytes) = KEYS.iter().find_map(|it| data.entries.get(*it)) else {
        return Err(NoLogin::Unusable {
            message: format!("the Secret `{}` holds no login for a registry", secret.dotted()),
            help: "make it of the type `kubernetes.io/dockerconfigjson`",
        });
    };
    if !serde_json::from_slice::<serde_json::Value>(bytes).is_ok_and(|it| it.is_object()) {
        return Err(NoLogin::Unusable {
            message: format!("the Secret `{}` is not a file as `docker login` writes it", secret.dotted()),
            help: "under `data` it is encoded with base64 once, and under `stringData` not at all",
        });
    }
    Ok(bytes)
}

/// The policy under a key, or the default for the image's tag.
pub(super) fn policy(object: &Object<'_>, key: &str, image: &str) -> PullPolicy {
    let words = [
        ("Always", PullPolicy::Always),
        ("IfNotPresent", PullPolicy::IfNotPresent),
        ("Never", PullPolicy::Never),
    ];
    object.filled(key).and_then(|policy| policy.one_of(&words)).unwrap_or_else(|| default_pull(image))
}

fn default_pull(image: &str) -> PullPolicy {
    let image = ImageRef::parse(image);
    let is_latest = image.digest().is_none() && image.effective_tag() == Some("latest");
    if is_latest { PullPolicy::Always } else { PullPolicy::IfNotPresent }
}
