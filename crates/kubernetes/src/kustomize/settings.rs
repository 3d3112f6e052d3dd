//! Reads the keys of a kustomization, each with its place, and reports invalid ones.

use super::{
    super::reader::{Object, Report, Value},
    keys,
    selector::Selector,
};
use driftless_model::Finding;
use driftless_yaml::{Node, Place};

/// A text with its place.
#[derive(Clone, Debug)]
pub(super) struct LocatedText {
    pub(super) text: String,
    pub(super) place: Place,
    pub(super) path: String,
}

/// A kustomization file.
#[derive(Debug, Default)]
pub(super) struct Kustomization {
    pub(super) is_component: bool,
    pub(super) resources: Vec<LocatedText>,
    pub(super) components: Vec<LocatedText>,
    pub(super) config_maps: Vec<Generator>,
    pub(super) secrets: Vec<Generator>,
    pub(super) merges: Vec<LocatedText>,
    pub(super) patches: Vec<Patch>,
    pub(super) json_patches: Vec<Patch>,
    pub(super) namespace: Option<LocatedText>,
    pub(super) prefix: Option<LocatedText>,
    pub(super) suffix: Option<LocatedText>,
    pub(super) labels: Vec<Labels>,
    pub(super) annotations: Pairs,
    pub(super) replicas: Vec<Replica>,
    pub(super) images: Vec<Image>,
    pub(super) replacements: Vec<Node>,
}

/// Labels or annotations, sorted by key.
pub(super) type Pairs = Vec<(String, LocatedText)>;

#[derive(Debug)]
pub(super) struct Labels {
    pub(super) pairs: Pairs,
    pub(super) in_selectors: bool,
    pub(super) in_templates: bool,
    pub(super) in_claims: bool,
    pub(super) fields: Vec<LabelField>,
}

/// A field that the user chose for labels.
#[derive(Debug)]
pub(super) struct LabelField {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) path: String,
    pub(super) create: bool,
}

#[derive(Debug)]
pub(super) struct Image {
    pub(super) name: LocatedText,
    pub(super) new_name: Option<LocatedText>,
    pub(super) new_tag: Option<LocatedText>,
    pub(super) suffix: Option<LocatedText>,
    pub(super) digest: Option<LocatedText>,
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) name: LocatedText,
    pub(super) count: Node,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Behavior {
    #[default]
    Create,
    Merge,
    Replace,
}

#[derive(Debug)]
pub(super) struct Generator {
    pub(super) name: LocatedText,
    pub(super) namespace: Option<LocatedText>,
    pub(super) behavior: Behavior,
    pub(super) literals: Vec<LocatedText>,
    pub(super) files: Vec<LocatedText>,
    pub(super) envs: Vec<LocatedText>,
    pub(super) kind: Option<LocatedText>,
    pub(super) options: GeneratorOptions,
}

#[derive(Clone, Debug, Default)]
pub(super) struct GeneratorOptions {
    pub(super) labels: Pairs,
    pub(super) annotations: Pairs,
    pub(super) without_hash: bool,
    pub(super) immutable: bool,
}

#[derive(Debug)]
pub(super) struct Patch {
    /// The place of the entry in its list.
    pub(super) place: Place,
    pub(super) path: String,
    pub(super) content: PatchContent,
    pub(super) target: Option<Selector>,
    pub(super) may_rename: bool,
    pub(super) may_change_kind: bool,
}

#[derive(Debug)]
pub(super) enum PatchContent {
    Inline(LocatedText),
    File(LocatedText),
}

impl LocatedText {
    pub(super) fn of(value: &Value<'_>) -> Option<Self> {
        let text = value.text()?.to_owned();
        Some(Self { text, place: value.place().clone(), path: value.path.clone() })
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Finding {
        Finding::error(self.place.location(), &*self.path, message)
    }
}

impl Kustomization {
    /// Reads a document. `None`: it is not a kustomization, which is reported.
    pub(super) fn read(document: &Node, report: &Report) -> Option<Self> {
        let object = Value::new(document, "", report).object(keys::KUSTOMIZATION)?;
        let mut found = Self { is_component: is_component(&object)?, ..Self::default() };
        found.resources = texts(&object, "resources");
        found.resources.extend(texts(&object, "bases"));
        found.components = texts(&object, "components");
        let global = object.get("generatorOptions").and_then(options).unwrap_or_default();
        found.config_maps = generators(&object, "configMapGenerator", &global);
        found.secrets = generators(&object, "secretGenerator", &global);
        found.merges = texts(&object, "patchesStrategicMerge");
        found.patches = patches(&object, "patches");
        found.json_patches = patches(&object, "patchesJson6902");
        found.namespace = located(&object, "namespace");
        found.prefix = located(&object, "namePrefix");
        found.suffix = located(&object, "nameSuffix");
        found.labels = object.items("labels").into_iter().filter_map(labels).collect();
        let common = pairs(&object, "commonLabels");
        if !common.is_empty() {
            found.labels.push(Labels {
                pairs: common,
                in_selectors: true,
                in_templates: true,
                in_claims: true,
                fields: Vec::new(),
            });
        }
        found.annotations = pairs(&object, "commonAnnotations");
        found.replicas = object.items("replicas").into_iter().filter_map(replica).collect();
        let images = [object.items("images"), object.items("imageTags")].concat();
        found.images = images.into_iter().filter_map(image).collect();
        found.replacements = object.items("replacements").into_iter().map(|it| it.node.clone()).collect();
        Some(found)
    }
}

/// Whether its kind is `Component`. `None`: it is neither a component nor a kustomization.
fn is_component(object: &Object<'_>) -> Option<bool> {
    let is_component = match object.get("kind") {
        Some(kind) => kind.one_of(&[("Kustomization", false), ("Component", true)])?,
        None => false,
    };
    if let Some(version) = object.get("apiVersion") {
        let right = if is_component { "v1alpha1" } else { "v1beta1" };
        let right = format!("kustomize.config.k8s.io/{right}");
        version.one_of(&[(right.as_str(), ())])?;
    }
    Some(is_component)
}

fn located(object: &Object<'_>, key: &str) -> Option<LocatedText> {
    // An empty text counts as absent.
    LocatedText::of(&object.get(key).filter(|it| it.node.as_scalar() != Some(""))?)
}

pub(super) fn texts(object: &Object<'_>, key: &str) -> Vec<LocatedText> {
    object.items(key).iter().filter_map(LocatedText::of).collect()
}

fn pairs(object: &Object<'_>, key: &str) -> Pairs {
    let pairs = object.get(key).map(|it| it.pairs()).unwrap_or_default();
    let read = |(key, value): (&str, Value<'_>)| {
        let text = value.string()?.to_owned();
        Some((key.to_owned(), LocatedText { text, place: value.place().clone(), path: value.path.clone() }))
    };
    let mut found: Pairs = pairs.into_iter().filter_map(read).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn labels(value: Value<'_>) -> Option<Labels> {
    let object = value.object(keys::LABEL)?;
    let is_set = |key: &str| object.boolean(key).unwrap_or(false);
    let in_selectors = is_set("includeSelectors");
    let field = |it: Value<'_>| {
        let object = it.object(keys::LABEL_FIELD)?;
        let text = |key: &str| object.string(key).unwrap_or_default().to_owned();
        let path = object.require("path")?.text()?.to_owned();
        Some(LabelField {
            group: text("group"),
            version: text("version"),
            kind: text("kind"),
            path,
            create: object.boolean("create").unwrap_or(false),
        })
    };
    Some(Labels {
        pairs: pairs(&object, "pairs"),
        in_selectors,
        in_templates: in_selectors || is_set("includeTemplates"),
        in_claims: in_selectors || is_set("includeVolumeClaimTemplates"),
        fields: object.items("fields").into_iter().filter_map(field).collect(),
    })
}

fn replica(value: Value<'_>) -> Option<Replica> {
    let object = value.object(keys::REPLICA)?;
    let name = LocatedText::of(&object.require("name")?)?;
    let count = object.require("count")?;
    count.integer(0..=i64::from(i32::MAX))?;
    Some(Replica { name, count: count.node.clone() })
}

fn image(value: Value<'_>) -> Option<Image> {
    let object = value.object(keys::IMAGE)?;
    let name = LocatedText::of(&object.require("name")?)?;
    let [new_name, new_tag, suffix, digest] =
        ["newName", "newTag", "tagSuffix", "digest"].map(|it| located(&object, it));
    Some(Image { name, new_name, new_tag, suffix, digest })
}

fn options(value: Value<'_>) -> Option<GeneratorOptions> {
    let object = value.object(keys::OPTIONS)?;
    Some(GeneratorOptions {
        labels: pairs(&object, "labels"),
        annotations: pairs(&object, "annotations"),
        without_hash: object.boolean("disableNameSuffixHash").unwrap_or(false),
        immutable: object.boolean("immutable").unwrap_or(false),
    })
}

impl GeneratorOptions {
    /// Adds the options for all generators. A boolean is true if either of the two is.
    fn over(mut self, global: &Self) -> Self {
        let fill = |own: &mut Pairs, global: &Pairs| {
            for (key, value) in global {
                if !own.iter().any(|(it, _)| it == key) {
                    own.push((key.clone(), value.clone()));
                }
            }
        };
        fill(&mut self.labels, &global.labels);
        fill(&mut self.annotations, &global.annotations);
        self.without_hash |= global.without_hash;
        self.immutable |= global.immutable;
        self
    }
}

fn generators(object: &Object<'_>, key: &str, global: &GeneratorOptions) -> Vec<Generator> {
    let fields = if key == "secretGenerator" { keys::SECRET } else { keys::CONFIG_MAP };
    let read = |it: Value<'_>| {
        let object = it.object(fields)?;
        let behaviors =
            [("create", Behavior::Create), ("merge", Behavior::Merge), ("replace", Behavior::Replace)];
        let behavior = match object.get("behavior") {
            Some(it) => it.one_of(&behaviors)?,
            None => Behavior::Create,
        };
        let mut envs = texts(&object, "envs");
        envs.extend(located(&object, "env"));
        Some(Generator {
            name: LocatedText::of(&object.require("name")?)?,
            namespace: located(&object, "namespace"),
            behavior,
            literals: texts(&object, "literals"),
            files: texts(&object, "files"),
            envs,
            kind: located(&object, "type"),
            options: object.get("options").and_then(options).unwrap_or_default().over(global),
        })
    };
    object.items(key).into_iter().filter_map(read).collect()
}

fn patches(object: &Object<'_>, key: &str) -> Vec<Patch> {
    let read = |it: Value<'_>| {
        let (place, path) = (it.place().clone(), it.path.clone());
        let object = it.clone().object(keys::PATCH)?;
        let content = match (located(&object, "patch"), located(&object, "path")) {
            (Some(inline), None) => PatchContent::Inline(inline),
            (None, Some(file)) => PatchContent::File(file),
            (Some(_), Some(_)) => {
                it.error_help("has both `patch` and `path`", "write the patch, or name its file");
                return None;
            }
            (None, None) => {
                it.error_help("has no patch", "write it under `patch`, or name its file with `path`");
                return None;
            }
        };
        let target = match object.get("target") {
            Some(it) => Some(Selector::read(it)?),
            None => None,
        };
        let options = object.object("options", keys::PATCH_OPTIONS);
        let may = |key: &str| options.as_ref().and_then(|it| it.boolean(key)).unwrap_or(false);
        let (may_rename, may_change_kind) = (may("allowNameChange"), may("allowKindChange"));
        Some(Patch { place, path, content, target, may_rename, may_change_kind })
    };
    object.items(key).into_iter().filter_map(read).collect()
}
