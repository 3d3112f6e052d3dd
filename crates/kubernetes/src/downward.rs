//! A `downwardAPI` volume: metadata of the pod as files, written before the pod starts.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    env::{self, About},
    fields,
    reader::Object,
    volumes::{access, inner_path},
};
use driftless_model::{Access, ContentTree, downward};

/// The files of the items.
pub(super) fn read(object: &Object<'_>, default: Access, about: &About<'_>) -> Option<ContentTree> {
    let mut tree = ContentTree::new();
    for item in object.items("items") {
        let Some(item) = item.object(fields::DOWNWARD_ITEM) else { continue };
        let Some(path) = item.require("path").and_then(|it| inner_path(&it)) else { continue };
        let access = access(&item, "mode").unwrap_or(default);
        if !item.only_one(|it| matches!(it, "fieldRef" | "resourceFieldRef")) {
            item.value.error("says not what stands in the file: give it a `fieldRef`");
        }
        if let Some(reference) = item.object("resourceFieldRef", fields::RESOURCE_FIELD_REF) {
            let text = env::resource(&reference, None, about)?;
            tree.insert(path, (Arc::from(text.into_bytes()), access));
            continue;
        }
        let Some(field) = item.object("fieldRef", fields::FIELD_REF).and_then(|it| it.require("fieldPath"))
        else {
            continue;
        };
        let text = match field.text()? {
            "metadata.labels" => lines(about.labels),
            "metadata.annotations" => lines(about.annotations),
            _ => env::field(&field, about)?,
        };
        if downward::is_marked(&text) {
            field.error_help(
                "is not known before the pod runs, and files are written before",
                "use a variable",
            );
            continue;
        }
        tree.insert(path, (Arc::from(text.into_bytes()), access));
    }
    Some(tree)
}

/// `key="value"` lines, as the kubelet writes labels and annotations.
fn lines(pairs: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}
