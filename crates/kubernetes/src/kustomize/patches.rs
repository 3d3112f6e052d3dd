//! Finds the objects that a patch selects, and applies the patch.

#![allow(
    clippy::result_large_err,
    reason = "a finding ends the step that it is about, so its size is paid once"
)]

use super::{
    super::reader::closest,
    json_patch, merge,
    resource::{Id, Resource, duplicates},
    settings::{LocatedText, Patch, PatchContent},
    source_files::SourceFiles,
};
use driftless_model::Finding;
use driftless_yaml::{Kind, Node, edit::get_mut, edit::mapping, edit::remove, edit::set, edit::set_missing};

/// The kinds of patches that a list allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patching {
    Any,
    Json,
}

/// Fields that a strategic merge patch changes only if its options allow it.
#[derive(Clone, Copy, Debug, Default)]
struct May {
    rename: bool,
    change_kind: bool,
}

/// An entry of `patchesStrategicMerge`: a file, or the patch itself.
pub(super) fn merge(
    sources: &mut SourceFiles<'_>,
    folder: &str,
    located: &LocatedText,
    resources: &mut Vec<Resource>,
) {
    let is_inline = located.text.contains('\n') || located.text.trim_start().starts_with('{');
    let content =
        if is_inline { PatchContent::Inline(located.clone()) } else { PatchContent::File(located.clone()) };
    let Some(documents) = documents(sources, folder, &content) else { return };
    if documents.is_empty() {
        sources.report.say(located.error("the patch is empty").help("remove the entry, or write the patch"));
        return;
    }
    let Some(patches) = sources.objects(documents) else { return };
    for patch in &patches {
        if let Err(finding) = merge_by_id(resources, patch, May::default()) {
            sources.report.say(finding);
        }
    }
}

/// An entry of `patches` or `patchesJson6902`.
pub(super) fn apply(
    sources: &mut SourceFiles<'_>,
    folder: &str,
    patch: &Patch,
    patching: Patching,
    resources: &mut Vec<Resource>,
) {
    let Some(documents) = documents(sources, folder, &patch.content) else { return };
    let report = sources.report;
    let error = |message: &str| Finding::error(patch.place.location(), &*patch.path, message);
    if documents.is_empty() {
        // kustomize takes a file of no bytes for a JSON patch without operations.
        let is_nothing = matches!(&patch.content, PatchContent::File(located)
            if sources.file(located, folder).is_some_and(|(_, bytes)| bytes.is_empty()));
        let message = "the patch is empty";
        report.say(if is_nothing && patch.target.is_some() {
            Finding::warning(
                patch.place.location(),
                &*patch.path,
                format!("{message}, so it changes nothing"),
            )
        } else {
            error(message).help("remove the entry, or write the patch")
        });
        return;
    }
    let is_json = matches!(documents.as_slice(), [one] if matches!(one.kind, Kind::Sequence(_)));
    let result = if is_json {
        json(sources, patch, &documents, resources)
    } else if patching == Patching::Json {
        Err(error("must be a JSON patch, a list of operations")
            .help("a strategic merge patch belongs under `patches`"))
    } else {
        let Some(patches) = sources.objects(documents) else { return };
        merge_all(patch, &patches, resources, &error)
    };
    let result = result.and_then(|found| match found {
        0 => {
            let message = "the target selects nothing, so the patch changes nothing";
            report.say(Finding::warning(patch.place.location(), format!("{}.target", patch.path), message));
            Ok(())
        }
        _ => check_ids(resources, &error),
    });
    if let Err(finding) = result {
        report.say(finding);
    }
}

fn documents(sources: &mut SourceFiles<'_>, folder: &str, content: &PatchContent) -> Option<Vec<Node>> {
    match content {
        PatchContent::Inline(located) => sources.inline(located),
        PatchContent::File(located) => {
            let (path, bytes) = sources.file(located, folder)?;
            sources.parse(&path, &bytes)
        }
    }
}

/// Returns the number of patched objects.
fn json(
    sources: &SourceFiles<'_>,
    patch: &Patch,
    documents: &[Node],
    resources: &mut [Resource],
) -> Result<usize, Finding> {
    let error = |message: &str| Finding::error(patch.place.location(), &*patch.path, message);
    let Some(target) = &patch.target else {
        return Err(
            error("a JSON patch needs a `target`").help("such as `target: {kind: Deployment, name: web}`")
        );
    };
    let Some(operations) = documents.first().and_then(|it| json_patch::read(it, sources.report)) else {
        return Ok(1);
    };
    if operations.is_empty() {
        return Err(error("the patch is empty"));
    }
    let mut count = 0;
    for resource in resources.iter_mut().filter(|it| target.selects(it)) {
        count += 1;
        let words = format!("{} of {}", resource.id().words(), resource.place().location());
        resource.remember_id();
        json_patch::apply(&mut resource.node, &operations, &words)?;
        let metadata = resource.node.get("metadata");
        let has_name = metadata.and_then(|it| it.get("name")?.as_scalar()).is_some_and(|it| !it.is_empty());
        if !has_name || resource.id().gvk.kind.is_empty() {
            return Err(error(&format!("takes from {words} what it is called")));
        }
    }
    Ok(count)
}

/// Returns the number of patched objects.
fn merge_all(
    patch: &Patch,
    patches: &[Node],
    resources: &mut Vec<Resource>,
    error: &dyn Fn(&str) -> Finding,
) -> Result<usize, Finding> {
    let may = May { rename: patch.may_rename, change_kind: patch.may_change_kind };
    let Some(target) = &patch.target else {
        for one in patches {
            merge_by_id(resources, one, may)?;
        }
        return Ok(patches.len());
    };
    let [one] = patches else {
        let finding = error("several patches cannot share one `target`");
        return Err(finding.help("write one entry for each, or remove the target"));
    };
    let mut count = 0;
    let mut index = 0;
    while let Some(resource) = resources.get_mut(index) {
        if target.selects(resource) {
            count += 1;
            if !lay_over(resource, one, may)? {
                resources.remove(index);
                continue;
            }
        }
        index += 1;
    }
    Ok(count)
}

/// Patches the object that has the kind and name in the patch.
fn merge_by_id(resources: &mut Vec<Resource>, patch: &Node, may: May) -> Result<(), Finding> {
    let id = Id::of(patch);
    let mut found = resources.iter().enumerate().filter(|(_, it)| it.was(&id)).map(|(index, _)| index);
    let Some(index) = found.next() else { return Err(nothing(resources, patch, &id)) };
    if let Some(other) = found.next() {
        let place = |index: usize| {
            resources.get(index).map(|it| it.place().location().to_string()).unwrap_or_default()
        };
        let message =
            format!("{} may be the one at {} or the one at {}", id.words(), place(index), place(other));
        return Err(at_name(patch, message)
            .help("patch it in a kustomization that has only one of them, or with a `target`"));
    }
    let Some(resource) = resources.get_mut(index) else { return Ok(()) };
    if !lay_over(resource, patch, may)? {
        resources.remove(index);
    }
    Ok(())
}

/// The finding for a patch without an object, with a similar object as help.
fn nothing(resources: &[Resource], patch: &Node, id: &Id) -> Finding {
    let finding = at_name(patch, format!("there is no {} to patch", id.words().trim_start_matches("the ")));
    let of_kind: Vec<&Resource> = resources.iter().filter(|it| it.id().gvk.kind == id.gvk.kind).collect();
    let same = of_kind.iter().find(|it| it.name() == id.name || it.first_id().name == id.name);
    if let Some(other) = same {
        let (now, place) = (other.id(), other.place().location());
        if now.gvk != id.gvk {
            let version = other.node.get("apiVersion").and_then(Node::as_scalar).unwrap_or_default();
            return finding.help(format!("the one at {place} has `apiVersion: {version}`"));
        }
        return finding.help(match now.namespace {
            Some(namespace) => {
                format!("the one at {place} is in the namespace `{namespace}`; write it in the patch")
            }
            None => format!("the one at {place} is in no namespace"),
        });
    }
    let names = of_kind.iter().map(|it| it.name());
    match closest(&id.name, names) {
        Some(name) => finding.help(format!("did you mean `{name}`?")),
        None => finding.help("name an object of this kustomization as its manifest does"),
    }
}

fn at_name(patch: &Node, message: String) -> Finding {
    let name = patch.get("metadata").and_then(|it| it.get("name"));
    name.unwrap_or(patch).finding("metadata.name", message)
}

/// Applies a patch to an object, which keeps kind, name and namespace unless they may change. Returns false if the
/// patch removes the object.
fn lay_over(resource: &mut Resource, patch: &Node, may: May) -> Result<bool, Finding> {
    if may.rename || may.change_kind {
        resource.remember_id();
    }
    let gvk = resource.id().gvk;
    let before = resource.node.clone();
    let merged = merge::merge(resource.node.clone(), patch, merge::type_of(&gvk.group, &gvk.kind))?;
    let Some(mut node) = merged.filter(|it| !it.entries().is_empty()) else { return Ok(false) };
    let keep = |node: &mut Node, before: &Node, key: &str| match before.get(key) {
        Some(value) => set(node, key, value.clone()),
        None => drop(remove(node, key)),
    };
    if !may.change_kind {
        keep(&mut node, &before, "apiVersion");
        keep(&mut node, &before, "kind");
    }
    let place = node.place.clone();
    set_missing(&mut node, "metadata", |_| mapping(&place, []));
    if let (Some(metadata), Some(before)) = (get_mut(&mut node, "metadata"), before.get("metadata")) {
        keep(metadata, before, "namespace");
        if !may.rename {
            keep(metadata, before, "name");
        }
    }
    resource.node = node;
    Ok(true)
}

/// Reports two objects that have the same kind, name and namespace after a patch.
fn check_ids(resources: &[Resource], error: &dyn Fn(&str) -> Finding) -> Result<(), Finding> {
    let Some((first, resource)) = duplicates(resources).next() else { return Ok(()) };
    let (there, here) = (first.place().location(), resource.place().location());
    Err(error(&format!("makes two of {}: those at {there} and {here}", first.id().words())))
}
