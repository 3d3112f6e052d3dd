//! Every key of a kustomization and what becomes of it, as kustomize 5 has them.

use std::fmt::Write as _;

use super::super::fields::{
    Class::{Honoured, NoOp, Refused},
    Fields,
};

pub(super) const KUSTOMIZATION: Fields = &[
    ("apiVersion", Honoured),
    ("bases", Honoured),
    ("buildMetadata", NoOp("has no effect: what is told of an object names its files anyway")),
    ("commonAnnotations", Honoured),
    ("commonLabels", Honoured),
    ("components", Honoured),
    ("configMapGenerator", Honoured),
    ("configurations", Refused("is not supported: only the built-in fields are transformed; use `patches`")),
    ("crds", Refused("is not supported: there is no API server for custom resources; remove it")),
    ("generatorOptions", Honoured),
    ("generators", Refused("is not supported: plugins are not run; commit what they generate")),
    ("helmChartInflationGenerator", HELM),
    ("helmCharts", HELM),
    ("helmGlobals", HELM),
    ("imageTags", Honoured),
    ("images", Honoured),
    ("kind", Honoured),
    ("labels", Honoured),
    ("metadata", Honoured),
    ("namePrefix", Honoured),
    ("nameSuffix", Honoured),
    ("namespace", Honoured),
    ("openapi", Refused("is not supported: lists are merged by the keys of the built-in kinds; remove it")),
    ("patches", Honoured),
    ("patchesJson6902", Honoured),
    ("patchesStrategicMerge", Honoured),
    ("replacements", Honoured),
    ("replicas", Honoured),
    ("resources", Honoured),
    ("secretGenerator", Honoured),
    ("sortOptions", NoOp("has no effect: what is started first does not depend on the order of the objects")),
    ("transformers", Refused("is not supported: plugins are not run; use the built-in keys")),
    ("validators", Refused("is not supported: plugins are not run; remove it")),
    ("vars", Refused("is not supported: it is deprecated; use `replacements`")),
];

const HELM: super::super::fields::Class =
    Refused("is not supported: charts are neither fetched nor rendered; commit what `helm template` prints");

pub(super) const LABEL: Fields = &[
    ("fields", Honoured),
    ("includeSelectors", Honoured),
    ("includeTemplates", Honoured),
    ("includeVolumeClaimTemplates", Honoured),
    ("pairs", Honoured),
];

pub(super) const LABEL_FIELD: Fields = &[
    ("create", Honoured),
    ("group", Honoured),
    ("kind", Honoured),
    ("path", Honoured),
    ("version", Honoured),
];

pub(super) const IMAGE: Fields = &[
    ("digest", Honoured),
    ("name", Honoured),
    ("newName", Honoured),
    ("newTag", Honoured),
    ("tagSuffix", Honoured),
];

pub(super) const REPLICA: Fields = &[("count", Honoured), ("name", Honoured)];

pub(super) const CONFIG_MAP: Fields = &[
    ("behavior", Honoured),
    ("env", Honoured),
    ("envs", Honoured),
    ("files", Honoured),
    ("literals", Honoured),
    ("name", Honoured),
    ("namespace", Honoured),
    ("options", Honoured),
];

pub(super) const SECRET: Fields = &[
    ("behavior", Honoured),
    ("env", Honoured),
    ("envs", Honoured),
    ("files", Honoured),
    ("literals", Honoured),
    ("name", Honoured),
    ("namespace", Honoured),
    ("options", Honoured),
    ("type", Honoured),
];

pub(super) const OPTIONS: Fields = &[
    ("annotations", Honoured),
    ("disableNameSuffixHash", Honoured),
    ("immutable", Honoured),
    ("labels", Honoured),
];

pub(super) const PATCH: Fields =
    &[("options", Honoured), ("patch", Honoured), ("path", Honoured), ("target", Honoured)];

pub(super) const PATCH_OPTIONS: Fields = &[("allowKindChange", Honoured), ("allowNameChange", Honoured)];

pub(super) const TARGET: Fields = &[
    ("annotationSelector", Honoured),
    ("group", Honoured),
    ("kind", Honoured),
    ("labelSelector", Honoured),
    ("name", Honoured),
    ("namespace", Honoured),
    ("version", Honoured),
];

pub(super) const OPERATION: Fields =
    &[("from", Honoured), ("op", Honoured), ("path", Honoured), ("value", Honoured)];

pub(super) const REPLACEMENT: Fields =
    &[("path", Honoured), ("source", Honoured), ("sourceValue", Honoured), ("targets", Honoured)];

pub(super) const SOURCE: Fields = &[
    ("fieldPath", Honoured),
    ("group", Honoured),
    ("kind", Honoured),
    ("name", Honoured),
    ("namespace", Honoured),
    ("options", Honoured),
    ("version", Honoured),
];

pub(super) const REPLACEMENT_TARGET: Fields =
    &[("fieldPaths", Honoured), ("options", Honoured), ("reject", Honoured), ("select", Honoured)];

pub(super) const REPLACEMENT_OPTIONS: Fields = &[
    ("create", Honoured),
    ("delimiter", Honoured),
    ("encoding", Refused("is not supported: kustomize itself gives it no meaning; remove it")),
    ("index", Honoured),
];

/// The tables by where they stand.
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

/// All of it as a table for people.
pub(super) fn page() -> String {
    let mut page = String::from("| key | | |\n|---|---|---|\n");
    for (place, fields) in TABLES {
        for (key, class) in *fields {
            let dot = if place.is_empty() { "" } else { "." };
            let (word, note) = match class {
                Honoured => ("used", ""),
                NoOp(why) => ("no effect", why.strip_prefix("has no effect: ").unwrap_or(why)),
                Refused(why) => ("refused", why.strip_prefix("is not supported: ").unwrap_or(why)),
            };
            writeln!(page, "| `{place}{dot}{key}` | {word} | {note} |")
                .expect("writing to a string cannot fail");
        }
    }
    page
}
