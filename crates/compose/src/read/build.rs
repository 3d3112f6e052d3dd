//! `build` of a service, key by key.

use driftless_model::{Build, Finding};
use driftless_yaml::Kind;

use crate::{
    read::{
        common::{extra_hosts, file_mounts, object_labels, ulimits},
        image_name,
        types::BuildSection,
    },
    spec::{
        keys::{BUILD, BUILD_SECRET},
        value::{Read as _, Value},
    },
};

/// Reads the context alone, or all keys.
pub(crate) fn build(value: &Value<'_>) -> Option<BuildSection> {
    let mut section = BuildSection {
        place: value.placed(()),
        context: None,
        dockerfile: None,
        inline: None,
        args: Vec::new(),
        secrets: Vec::new(),
        spec: Build::default(),
    };
    if matches!(value.node.kind, Kind::Scalar { .. }) {
        section.context = Some(value.placed(value.owned()?));
        return Some(section);
    }
    for (key, value) in value.fields(&BUILD) {
        let is_read = used_key(&mut section, key, &value) || limited_key(&mut section, key, &value);
        if !is_read {
            value.refuse("is not supported yet");
        }
    }
    Some(section)
}

fn used_key(section: &mut BuildSection, key: &str, value: &Value<'_>) -> bool {
    let string = || value.owned().map(|text| value.placed(text));
    let spec = &mut section.spec;
    match key {
        "context" => section.context = string(),
        "dockerfile" => section.dockerfile = string(),
        "dockerfile_inline" => section.inline = string(),
        "args" => section.args = value.assignments(),
        "secrets" => section.secrets = file_mounts(value, &BUILD_SECRET),
        "target" => spec.target = value.filled(),
        "labels" => spec.labels = object_labels(value),
        "extra_hosts" => spec.extra_hosts = extra_hosts(value),
        "shm_size" => spec.shm_size = value.bytes().filter(|bytes| *bytes > 0),
        "ulimits" => spec.ulimits = ulimits(value),
        "no_cache" => spec.no_cache = value.boolean().unwrap_or_default(),
        "pull" => spec.pull = value.boolean().unwrap_or_default(),
        "platforms" => spec.platforms = value.strings(),
        "tags" => {
            spec.tags = value.strings();
            for tag in spec.tags.iter().filter(|tag| !image_name::is_valid(tag)) {
                value.error(format!("`{tag}` is not an image name"));
            }
        }
        _ => return false,
    }
    true
}

/// Keys of which the engine's builder honours some values only.
fn limited_key(section: &mut BuildSection, key: &str, value: &Value<'_>) -> bool {
    let spec = &mut section.spec;
    match key {
        "cache_from" => {
            for text in value.strings() {
                match registry_cache(&text) {
                    Some(image) => spec.cache_from.push(image.to_owned()),
                    None => value
                        .warning(format!("`{text}` is ignored: the engine takes its cache from images only")),
                }
            }
        }
        "network" => match value.owned().as_deref() {
            None | Some("" | "default") => {}
            Some(network @ ("none" | "host")) => spec.network = Some(network.to_owned()),
            Some(_) => refuse(
                value,
                "a build can only use the networks `default`, `none` and `host`",
                Some("publish the service that the build needs on the host, or build without it"),
            ),
        },
        "isolation" => {
            if value.filled().is_some_and(|text| text != "default") {
                refuse(value, "the only isolation on Linux is `default`", None);
            }
        }
        "privileged" => {
            if value.boolean() == Some(true) {
                refuse(value, "the engine's builder runs no privileged steps", None);
            }
        }
        "entitlements" => {
            for entitlement in value.strings() {
                let uses_host = spec.network.as_deref() == Some("host");
                if entitlement != "network.host" || !uses_host {
                    refuse(
                        value,
                        &format!("the engine's API cannot grant the entitlement `{entitlement}`"),
                        Some("with `network: host` all steps use the host's network"),
                    );
                }
            }
        }
        _ => return false,
    }
    true
}

/// An error that counts only if the service is used.
fn refuse(value: &Value<'_>, message: &str, help: Option<&str>) {
    let finding: Finding = value.node.finding(&*value.path, message);
    value.report().refuse(match help {
        Some(help) => finding.help(help),
        None => finding,
    });
}

/// The image in `image` or `type=registry,ref=image`.
fn registry_cache(text: &str) -> Option<&str> {
    if !text.contains('=') {
        return Some(text);
    }
    let field = |name: &str| text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    field("ref").filter(|_| field("type") == Some("registry"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_images_in_a_registry() {
        assert_eq!(registry_cache("web:cache"), Some("web:cache"));
        assert_eq!(registry_cache("type=registry,ref=web:cache"), Some("web:cache"));
        assert_eq!(registry_cache("type=gha"), None);
    }
}
