//! All keys of a kustomization as in kustomize 5, each used, without effect, or refused.

use std::fmt::Write as _;

use super::super::fields::{
    Fields,
    Support::{NoEffect, Refused, Used},
};

pub(super) const KUSTOMIZATION: Fields = &[
    ("apiVersion", Used),
    ("bases", Used),
    ("buildMetadata", NoEffect("has no effect: findings name the files of an object anyway")),
    ("commonAnnotations", Used),
    ("commonLabels", Used),
    ("components", Used),
    ("configMapGenerator", Used),
    ("configurations", Refused("is not supported: only the built-in fields are transformed; use `patches`")),
    ("crds", Refused("is not supported: there is no API server for custom resources; remove it")),
    ("generatorOptions", Used),
    ("generators", Refused("is not supported: plugins are not run; commit what they generate")),
    ("helmChartInflationGenerator", HELM),
    ("helmCharts", HELM),
    ("helmGlobals", HELM),
    ("imageTags", Used),
    ("images", Used),
    ("kind", Used),
    ("labels", Used),
    ("metadata", Used),
    ("namePrefix", Used),
    ("nameSuffix", Used),
    ("namespace", Used),
    ("openapi", Refused("is not supported: lists are merged by the keys of the built-in kinds; remove it")),
    ("patches", Used),
    ("patchesJson6902", Used),
    ("patchesStrategicMerge", Used),
    ("replacements", Used),
    ("replicas", Used),
    ("resources", Used),
    ("secretGenerator", Used),
    ("sortOptions", NoEffect("has no effect: the start order does not depend on the order of the objects")),
    ("transformers", Refused("is not supported: plugins are not run; use the built-in keys")),
    ("validators", Refused("is not supported: plugins are not run; remove it")),
    ("vars", Refused("is not supported: it is deprecated; use `replacements`")),
];

const HELM: super::super::fields::Support =
    Refused("is not supported: charts are not rendered; commit the output of `helm template`");

pub(super) const LABEL: Fields = &[
    ("fields", Used),
    ("includeSelectors", Used),
    ("includeTemplates", Used),
    ("includeVolumeClaimTemplates", Used),
    ("pairs", Used),
];

pub(super) const LABEL_FIELD: Fields =
    &[("create", Used), ("group", Used), ("kind", Used), ("path", Used), ("version", Used)];

pub(super) const IMAGE: Fields =
    &[("digest", Used), ("name", Used), ("newName", Used), ("newTag", Used), ("tagSuffix", Used)];

pub(super) const REPLICA: Fields = &[("count", Used), ("name", Used)];

pub(super) const CONFIG_MAP: Fields = &[
    ("behavior", Used),
    ("env", Used),
    ("envs", Used),
    ("files", Used),
    ("literals", Used),
    ("name", Used),
    ("namespace", Used),
    ("options", Used),
];

pub(super) const SECRET: Fields = &[
    ("behavior", Used),
    ("env", Used),
    ("envs", Used),
    ("files", Used),
    ("literals", Used),
    ("name", Used),
    ("namespace", Used),
    ("options", Used),
    ("type", Used),
];

pub(super) const OPTIONS: Fields =
    &[("annotations", Used), ("disableNameSuffixHash", Used), ("immutable", Used), ("labels", Used)];

pub(super) const PATCH: Fields = &[("options", Used), ("patch", Used), ("path", Used), ("target", Used)];

pub(super) const PATCH_OPTIONS: Fields = &[("allowKindChange", Used), ("allowNameChange", Used)];

pub(super) const TARGET: Fields = &[
    ("annotationSelector", Used),
    ("group", Used),
    ("kind", Used),
    ("labelSelector", Used),
    ("name", Used),
    ("namespace", Used),
    ("version", Used),
];

pub(super) const OPERATION: Fields = &[("from", Used), ("op", Used), ("path", Used), ("value", Used)];

pub(super) const REPLACEMENT: Fields =
    &[("path", Used), ("source", Used), ("sourceValue", Used), ("targets", Used)];

pub(super) const SOURCE: Fields = &[
    ("fieldPath", Used),
    ("group", Used),
    ("kind", Used),
    ("name", Used),
    ("namespace", Used),
    ("options", Used),
    ("version", Used),
];

pub(super) const REPLACEMENT_TARGET: Fields =
    &[("fieldPaths", Used), ("options", Used), ("reject", Used), ("select", Used)];

pub(super) const REPLACEMENT_OPTIONS: Fields = &[
    ("create", Used),
    ("delimiter", Used),
    ("encoding", Refused("is not supported: kustomize itself ignores it; remove it")),
    ("index", Used),
];

/// The tables, each with the path of its map.
const TABLES: &[(&str, Fields)] = &[
    ("", KUSTOMIZATION),
    ("configMapGenerator", CONFIG_MAP),
    ("generatorOptions", OPTIONS),
    ("images", IMAGE),
    ("labels", LABEL),
    ("labels.fields", LABEL_FIELD),
    ("patches", PATCH),
    ("patches.options", PATCH_OPTIONS),
    ("patches.target", TARGET),
    ("replacements", REPLACEMENT),
    ("replacements.source", SOURCE),
    ("replacements.source.options", REPLACEMENT_OPTIONS),
    ("replacements.targets", REPLACEMENT_TARGET),
    ("replicas", REPLICA),
    ("secretGenerator", SECRET),
];

/// The tables as Markdown.
pub(super) fn page() -> String {
    let mut page = String::from("| key | | |\n|---|---|---|\n");
    for (place, fields) in TABLES {
        for (key, class) in *fields {
            let dot = if place.is_empty() { "" } else { "." };
            let (word, note) = match class {
                Used => ("used", ""),
                NoEffect(why) => ("no effect", why.strip_prefix("has no effect: ").unwrap_or(why)),
                Refused(why) => ("refused", why.strip_prefix("is not supported: ").unwrap_or(why)),
            };
            writeln!(page, "| `{place}{dot}{key}` | {word} | {note} |")
                .expect("writing to a string cannot fail");
        }
    }
    page
}
