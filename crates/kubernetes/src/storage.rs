//! PersistentVolumeClaims, the PersistentVolumes bound to them, and their mounts.
//!
//! A claim is a Docker volume, unless a PersistentVolume of the application is bound to it: by name, by the volume's
//! `claimRef`, or as the only one that suits it by class, access modes, size and selector. In Kubernetes a binding lasts;
//! here it is found again from the manifests alone, so they must leave no choice. A `subPath` of a claim is a Docker volume of
//! its own, because not every engine can mount a part of one; where the difference would be visible, it is refused.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    fields::{self, Support},
    label_selector::LabelSelector,
    names,
    object::{DEFAULT_NAMESPACE, Identity, Key, identify, report_duplicate},
    quantity::Quantity,
    reader::{Object, Report, Value},
    resources::quantity,
    storage_source::{HostPath, host_folder, host_path, nfs},
};
use driftless_model::{Finding, Location, Volume, digest_hex, label};

/// The storage behind a claim.
#[derive(Clone)]
pub(super) enum Claim {
    /// A Docker volume, by its name after the project's.
    Named { name: String, volume: Volume, owner: VolumeOwner },
    /// A path of the host.
    Host { path: String, create: bool },
}

/// The object that a Docker volume stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VolumeOwner {
    Claim(Key),
    /// A PersistentVolume; a claim that gets it has it under the name of the claim.
    Persistent,
    /// A share that a pod names itself.
    Share {
        pod: String,
        volume: String,
    },
}

impl fmt::Display for VolumeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(Key { namespace, name }) => {
                write!(f, "the claim `{name}` of the namespace `{namespace}`")
            }
            Self::Persistent => f.write_str("a PersistentVolume"),
            Self::Share { pod, volume } => write!(f, "the volume `{volume}` of `{pod}`"),
        }
    }
}

/// The fields by which claims and volumes are matched.
struct Terms {
    origin: Location,
    /// Empty if there is none.
    class: String,
    class_place: Option<Location>,
    modes: BTreeSet<&'static str>,
    size: Option<Quantity>,
}

struct Wanted {
    terms: Terms,
    /// The labels of its Docker volume.
    labels: BTreeMap<String, String>,
    /// The labels that the storage must have, with their place.
    selector: Option<(LabelSelector, Location)>,
    /// The PersistentVolume that it names, later the one bound to it.
    bound: Option<String>,
}

/// A PersistentVolume.
struct Persistent {
    terms: Terms,
    labels: BTreeMap<String, String>,
    /// The claim in its `claimRef`.
    kept_for: Option<Key>,
    claim: Claim,
}

/// All claims and PersistentVolumes.
#[derive(Default)]
pub(super) struct Storage {
    claims: BTreeMap<Key, Wanted>,
    persistent: BTreeMap<String, Persistent>,
    /// The PersistentVolumes that claims of templates get.
    of_templates: RefCell<BTreeSet<String>>,
}

impl Storage {
    /// The claims of this name in all namespaces.
    pub(super) fn claims_named(&self, name: &str) -> impl Iterator<Item = &Key> {
        self.claims.keys().filter(move |key| key.name == name)
    }

    /// A Docker volume, or the PersistentVolume bound to the claim.
    pub(super) fn claim(&self, key: &Key) -> Option<Claim> {
        let wanted = self.claims.get(key)?;
        let (name, owner) = (key.dotted(), VolumeOwner::Claim(key.clone()));
        Some(match wanted.bound.as_ref().and_then(|it| self.persistent.get(it)).map(|it| &it.claim) {
            Some(Claim::Named { volume, .. }) => Claim::Named { name, volume: volume.clone(), owner },
            Some(host @ Claim::Host { .. }) => host.clone(),
            None => {
                let labels = wanted.labels.clone();
                let volume = Volume { key: name.clone(), labels, ..Volume::default() };
                Claim::Named { name, volume, owner }
            }
        })
    }

    /// The same for a claim that a StatefulSet would make: one of that name, or the PersistentVolume that is kept for it.
    pub(super) fn claim_of_template(&self, key: &Key) -> Option<Claim> {
        self.claim(key).or_else(|| {
            let (volume, found) = self.persistent.iter().find(|(_, it)| it.kept_for.as_ref() == Some(key))?;
            self.of_templates.borrow_mut().insert(volume.clone());
            let (name, owner) = (key.dotted(), VolumeOwner::Claim(key.clone()));
            Some(match &found.claim {
                Claim::Named { volume, .. } => Claim::Named { name, volume: volume.clone(), owner },
                host @ Claim::Host { .. } => host.clone(),
            })
        })
    }

    /// Reports the PersistentVolumes whose claim nobody makes. Call it when all workloads are read.
    pub(super) fn check_kept(&self, report: &Report) {
        let used = self.of_templates.borrow();
        for (name, it) in self.persistent.iter().filter(|(name, _)| !used.contains(*name)) {
            if it.kept_for.as_ref().is_some_and(|key| !self.claims.contains_key(key)) {
                report_unused(name, it, report);
            }
        }
    }

    pub(super) fn read_claim(&mut self, value: Value<'_>) {
        let Some(object) = value.object(fields::OBJECT) else { return };
        let Some(Identity { key, origin }) = identify(&object) else { return };
        let Some(spec) = object.require("spec").and_then(|it| it.object(fields::CLAIM)) else { return };
        check_claim(&spec);
        if let Some(first) = self.claims.get(&key) {
            report_duplicate(&object, "PersistentVolumeClaim", &key, &origin, &first.terms.origin);
            return;
        }
        let size = spec.get("resources").and_then(|it| storage_in(it.node.get("requests")?));
        let bound = spec.filled("volumeName").and_then(|it| names::subdomain(&it)).map(str::to_owned);
        let selector = spec.get("selector").and_then(|value| {
            let place = value.place().location();
            Some((LabelSelector::read(&value.object(fields::SELECTOR)?), place))
        });
        let selector = selector.filter(|(selector, _)| !selector.is_empty());
        let labels = object.get("metadata").map(|metadata| protection_in(metadata.node)).unwrap_or_default();
        self.claims.insert(key, Wanted { terms: Terms::read(&spec, origin, size), labels, selector, bound });
    }

    /// Reads a PersistentVolume: a path of the host, or an NFS share.
    pub(super) fn read_persistent(&mut self, value: Value<'_>) {
        let Some(object) = value.object(fields::OBJECT) else { return };
        let Some(Identity { key, origin }) = identify(&object) else { return };
        let labels = object.get("metadata").and_then(|metadata| labels_in(metadata.node)).unwrap_or_default();
        let Some(spec) = object.require("spec").and_then(|it| it.object(fields::PERSISTENT)) else { return };
        let is_source = |key: &str| {
            let is_refused =
                |(name, class): &(&str, Support)| *name == key && matches!(class, Support::Refused(_));
            ["hostPath", "local", "nfs"].contains(&key)
                || (key != "mountOptions" && fields::PERSISTENT.iter().any(is_refused))
        };
        if !spec.only_one(is_source) {
            spec.value
                .error_help("the PersistentVolume names no storage", "give it `hostPath`, `local` or `nfs`");
        }
        check_sizes(spec.get("capacity"));
        if let Some(first) = self.persistent.get(&key.name) {
            report_duplicate(&object, "PersistentVolume", &key, &origin, &first.terms.origin);
            return;
        }
        let kept_for = spec.get("claimRef").and_then(|reference| {
            let text = |field| reference.node.get(field).and_then(|it| it.as_scalar());
            let namespace = text("namespace").filter(|it| !it.is_empty());
            Some(Key::new(namespace.unwrap_or(DEFAULT_NAMESPACE), text("name")?))
        });
        let size = spec.get("capacity").and_then(|it| storage_in(it.node));
        if let Some(claim) = claim_of(&spec, &key.name) {
            let terms = Terms::read(&spec, origin, size);
            self.persistent.insert(key.name, Persistent { terms, labels, kept_for, claim });
        }
    }

    /// Binds claims: by `volumeName`, by `claimRef`, then to the only volume that matches. A choice among several is an error:
    /// another object could change it later, and the claim would have other storage.
    pub(super) fn bind(&mut self, report: &Report) {
        self.check_named(report);
        let named: BTreeSet<String> = self.claims.values().filter_map(|it| it.bound.clone()).collect();
        let mut claimants: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        for (key, wanted) in self.claims.iter_mut().filter(|(_, it)| it.bound.is_none()) {
            let is_selected = |it: &Persistent| {
                wanted.selector.as_ref().is_none_or(|(selector, _)| selector.matches(&it.labels))
            };
            let fits =
                |(name, it): &(&String, &Persistent)| !named.contains(*name) && it.terms.meet(&wanted.terms);
            let fitting: Vec<_> = self.persistent.iter().filter(fits).collect();
            // A cluster does not ask the selector where the storage itself names the claim.
            let kept: Vec<_> =
                fitting.iter().filter(|(_, it)| it.kept_for.as_ref() == Some(key)).map(|it| it.0).collect();
            let free = fitting.iter().filter(|(_, it)| it.kept_for.is_none() && is_selected(it));
            let found = if kept.is_empty() { free.map(|it| it.0).collect() } else { kept.clone() };
            if let [_, _, ..] = *found {
                let message = format!(
                    "`{}` may get {}, and a later commit could change which one",
                    key.dotted(),
                    choice(found.iter().copied())
                );
                let finding = Finding::error(wanted.terms.origin.clone(), "spec", message);
                report.say(finding.help("write `volumeName` in the claim"));
            }
            if kept.is_empty() {
                for name in &found {
                    claimants.entry(*name).or_default().push(key.dotted());
                }
            }
            wanted.bound = found.first().map(|it| (*it).clone());
            if wanted.bound.is_none() {
                report_unmatched(key, wanted, self.persistent.is_empty(), report);
            }
        }
        for (name, claims) in claimants.into_iter().filter(|(_, claims)| claims.len() > 1) {
            let Some(volume) = self.persistent.get(name) else { continue };
            let message = format!("it suits {}, and a later commit could change which one", choice(&claims));
            let finding = Finding::error(volume.terms.origin.clone(), "spec", message);
            report
                .say(finding.help("write `claimRef` in the PersistentVolume, or `volumeName` in the claims"));
        }
        let taken: BTreeSet<&String> = self.claims.values().filter_map(|it| it.bound.as_ref()).collect();
        for (name, it) in self.persistent.iter().filter(|(name, _)| !taken.contains(name)) {
            // A claim that a StatefulSet makes may get it.
            if it.kept_for.as_ref().is_none_or(|key| self.claims.contains_key(key)) {
                report_unused(name, it, report);
            }
        }
    }

    /// Reports the volumes that a claim names and cannot have, and those that are kept for the same claim of a template.
    fn check_named(&mut self, report: &Report) {
        let mut owners: BTreeMap<String, &Key> = BTreeMap::new();
        for (key, wanted) in &mut self.claims {
            let Some(bound) = wanted.bound.clone() else { continue };
            let error = |message: String, help: &str| {
                let finding = Finding::error(wanted.terms.origin.clone(), "spec.volumeName", message);
                report.say(finding.help(help));
            };
            let claim = key.dotted();
            let Some(volume) = self.persistent.get(&bound) else {
                let message = format!(
                    "`{claim}` claims the PersistentVolume `{bound}`, which this application does not define"
                );
                error(message, "add it to the manifests, or remove `volumeName`");
                wanted.bound = None;
                continue;
            };
            if let Some(other) = volume.kept_for.as_ref().filter(|it| *it != key) {
                let message = format!(
                    "the `claimRef` of the PersistentVolume `{bound}` names `{}`, so `{claim}` cannot have it",
                    other.dotted()
                );
                error(message, "name another PersistentVolume, or change its `claimRef`");
            } else if let Some(other) = owners.get(&bound) {
                let message = format!("`{}` has the PersistentVolume `{bound}` already", other.dotted());
                error(message, "name another PersistentVolume: each one has one claim");
            }
            owners.entry(bound).or_insert(key);
        }
        let mut kept: BTreeMap<&Key, &String> = BTreeMap::new();
        for (name, volume) in &self.persistent {
            let Some(key) = volume.kept_for.as_ref().filter(|key| !self.claims.contains_key(key)) else {
                continue;
            };
            if let Some(other) = kept.insert(key, name) {
                let message = format!("`{}` has the PersistentVolume `{other}` already", key.dotted());
                let finding = Finding::error(volume.terms.origin.clone(), "spec.claimRef", message);
                report.say(finding.help("remove the `claimRef` of one of the two"));
            }
        }
    }
}

/// The names among which nothing decides.
fn choice<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

/// Reports fields of a claim that no volume satisfies.
fn report_unmatched(key: &Key, wanted: &Wanted, has_no_volume: bool, report: &Report) {
    if let Some((_, place)) = &wanted.selector {
        let path = "spec.selector";
        report.say(if has_no_volume {
            let message = "has no effect: this application defines no PersistentVolume, so the claim is a \
                           Docker volume";
            Finding::warning(place.clone(), path, message)
        } else {
            let message = format!(
                "no PersistentVolume of this application that is free matches it, so `{}` would get an empty \
                 volume",
                key.dotted()
            );
            Finding::error(place.clone(), path, message)
                .help("correct the labels of the PersistentVolume, or remove the selector")
        });
    }
    if let Some(place) = &wanted.terms.class_place {
        let message =
            "has no effect: no PersistentVolume of this application matches, so the claim is a Docker volume";
        report.say(Finding::warning(place.clone(), "spec.storageClassName", message));
    }
}

fn report_unused(name: &str, volume: &Persistent, report: &Report) {
    let message = format!("has no effect: no claim of this application gets `{name}`");
    report.say(Finding::warning(volume.terms.origin.clone(), "metadata.name", message));
}

/// The storage of a PersistentVolume.
fn claim_of(spec: &Object<'_>, name: &str) -> Option<Claim> {
    if let Some(share) = spec.object("nfs", fields::NFS) {
        let named = |volume| Claim::Named { name: name.to_owned(), volume, owner: VolumeOwner::Persistent };
        return nfs(&share, name).map(named);
    }
    if let Some(object) = spec.object("hostPath", fields::HOST_PATH) {
        return match host_path(&object)? {
            HostPath::Mounted { path, create } => Some(Claim::Host { path, create }),
            HostPath::Device(_) => {
                object.value.error("a device cannot be claimed as a folder");
                None
            }
        };
    }
    let local = spec.object("local", fields::LOCAL)?;
    host_folder(&local).map(|path| Claim::Host { path, create: false })
}

impl Terms {
    fn read(spec: &Object<'_>, origin: Location, size: Option<Quantity>) -> Self {
        let class = spec.get("storageClassName").filter(|it| it.node.as_scalar() != Some(""));
        let class_place = class.as_ref().map(|it| it.place().location());
        let class = class.and_then(|it| it.string()).unwrap_or_default().to_owned();
        let modes = spec.get("accessModes").map(|it| it.node.items()).unwrap_or_default();
        let known =
            modes.iter().filter_map(|it| MODES.into_iter().find(|mode| it.as_scalar() == Some(*mode)));
        Self { origin, class, class_place, modes: known.collect(), size }
    }

    /// Whether a volume satisfies a claim.
    fn meet(&self, wanted: &Self) -> bool {
        let is_large_enough = wanted.size.is_none() || self.size.is_none() || self.size >= wanted.size;
        self.class == wanted.class && self.modes.is_superset(&wanted.modes) && is_large_enough
    }
}

const MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// The fields of a claim. Size and class are checked only in form, because a Docker volume has neither.
fn check_claim(spec: &Object<'_>) {
    for mode in spec.items("accessModes") {
        mode.one_of(&MODES.map(|it| (it, ())));
    }
    if let Some(mode) = spec.get("volumeMode")
        && mode.one_of(&[("Filesystem", true), ("Block", false)]) == Some(false)
    {
        mode.error("block devices are not supported, and ignoring it would change how the application works");
    }
    let Some(resources) = spec.get("resources") else { return };
    for field in ["requests", "limits"] {
        let node = resources.node.get(field).filter(|it| !it.is_null());
        check_sizes(node.map(|it| Value::new(it, format!("{}.{field}", resources.path), resources.report())));
    }
}

/// A claim from `volumeClaimTemplates` is always a Docker volume.
pub(super) fn check_template(spec: &Object<'_>) {
    check_claim(spec);
    if let Some(class) = spec.get("storageClassName").filter(|it| it.node.as_scalar() != Some("")) {
        class.warning("has no effect: every claim of a template is a Docker volume");
    }
    if let Some(selector) = spec.get("selector") {
        selector.warning("has no effect: every claim of a template is a Docker volume");
    }
}

/// Sizes have no effect here, but invalid ones are reported.
fn check_sizes(map: Option<Value<'_>>) {
    for (_, size) in map.map(|it| it.pairs()).unwrap_or_default() {
        quantity(&size);
    }
}

/// The annotation in the `metadata` of a claim that keeps its volume, as a label. Other annotations are no labels: a Docker
/// volume with other labels would be another volume.
pub(super) fn protection_in(metadata: &driftless_yaml::Node) -> BTreeMap<String, String> {
    let value =
        metadata.get("annotations").and_then(|annotations| annotations.get(label::PRUNE)?.as_scalar());
    value.map(|value| (label::PRUNE.to_owned(), value.to_owned())).into_iter().collect()
}

/// The labels of an object, from its `metadata`. What is wrong in them is reported elsewhere.
fn labels_in(metadata: &driftless_yaml::Node) -> Option<BTreeMap<String, String>> {
    let entries = metadata.get("labels")?.entries().iter();
    Some(entries.filter_map(|it| Some((it.key.clone(), it.value.as_scalar()?.to_owned()))).collect())
}

fn storage_in(node: &driftless_yaml::Node) -> Option<Quantity> {
    node.get("storage")?.as_scalar().and_then(Quantity::parse)
}

/// The mounts of each volume: the whole, or paths inside.
#[derive(Default)]
pub(super) struct Mounted(RefCell<BTreeMap<String, Uses>>);

/// A Docker volume of the application.
pub(super) struct NamedVolume<'a> {
    /// The name after the project's.
    pub(super) name: &'a str,
    pub(super) volume: &'a Volume,
    pub(super) owner: &'a VolumeOwner,
}

#[derive(Default)]
struct Uses {
    /// The first mount: the object that the volume stands for, the volume, and the place.
    first: Option<(VolumeOwner, Volume, Location)>,
    whole: Option<Location>,
    /// By path, with the place in the manifest.
    parts: BTreeMap<String, (Location, String)>,
}

impl Mounted {
    /// Notes a mount, and reports a volume that would be that of another object as well.
    fn note(&self, named: &NamedVolume<'_>, inside: &str, place: &Value<'_>) {
        let NamedVolume { name, volume, owner } = *named;
        let mut all = self.0.borrow_mut();
        let uses = all.entry(name.to_owned()).or_default();
        let location = place.place().location();
        let (first, known, at) =
            uses.first.get_or_insert_with(|| (owner.clone(), volume.clone(), location.clone()));
        let are_shares = matches!((&*first, owner), (VolumeOwner::Share { .. }, VolumeOwner::Share { .. }));
        // Nothing of a share is on the host, so two of one definition are the same.
        if *first != *owner && !(are_shares && *known == *volume) {
            place.error_help(
                format!("{owner} and {first}, mounted at {at}, would both be the Docker volume `{name}`"),
                "rename one of the two",
            );
        }
        if inside.is_empty() {
            uses.whole.get_or_insert(location);
        } else {
            uses.parts.entry(inside.to_owned()).or_insert((location, place.path.clone()));
        }
    }

    pub(super) fn part(&self, named: &NamedVolume<'_>, inside: &str, place: &Value<'_>) -> (String, Volume) {
        self.note(named, inside, place);
        let NamedVolume { name, volume, owner: _ } = *named;
        if inside.is_empty() {
            return (name.to_owned(), volume.clone());
        }
        // Names in Kubernetes have no underscore, so this name is unique.
        let is_plain = inside.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.'));
        let part = if is_plain {
            inside.to_owned()
        } else {
            digest_hex(inside.as_bytes()).chars().take(12).collect()
        };
        let name = format!("{name}_{part}");
        let mut volume = Volume { key: name.clone(), ..volume.clone() };
        if let Some(device) = volume.options.get_mut("device") {
            *device = format!("{}/{inside}", device.trim_end_matches('/'));
        }
        (name, volume)
    }

    /// Reports mounts that would not share files although they do in Kubernetes.
    pub(super) fn check(&self, report: &Report) {
        for (name, Uses { first: _, whole, parts }) in &*self.0.borrow() {
            for (path, (location, field)) in parts {
                let outer =
                    parts.iter().find(|(it, _)| path.starts_with(&format!("{it}/"))).map(|(_, it)| &it.0);
                let Some(other) = whole.as_ref().or(outer) else { continue };
                let message = format!(
                    "`{name}` is also mounted at {other}, and `{path}` would be missing there: a path inside a volume is \
                     a volume of its own here"
                );
                let finding = Finding::error(location.clone(), field, message);
                report.say(finding.help("mount the volume itself at both places, or different paths of it"));
            }
        }
    }
}
