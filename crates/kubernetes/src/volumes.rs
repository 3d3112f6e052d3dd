//! The volumes of a pod, and where its container mounts them.
//!
//! ConfigMaps, Secrets and pod metadata become files that are mounted read-only by content: changed content replaces the
//! container. Kubernetes changes such files under the running process; here they change, and are rolled back, with the
//! commit, on purpose. A claim is a named Docker volume and is never removed; an `emptyDir` is removed with its
//! container.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    catalogue::{Catalogue, DataKind},
    env::About,
    expand::Room,
    fields,
    file_volumes::{self, Files},
    names,
    object::{Key, help_with_namespace},
    pull,
    reader::{Object, Value, closest},
    resources::quantity,
    shared_volumes::{self, SharedVolumes},
    storage::{Claim, NamedVolume, VolumeOwner},
    storage_source::{HostPath, host_path, nfs},
};
use driftless_model::{
    Access, Container, ImageRef, Mount, MountOptions, MountSource, PullPolicy, Volume, downward,
};
use driftless_yaml::Place;

/// A volume of the pod.
enum Source {
    /// Files from the manifests.
    Files(Files),
    /// A Docker volume, by its name after the project's.
    Named { name: String, volume: Volume, owner: VolumeOwner },
    /// The files of an image, and when it is pulled.
    Image { reference: String, pull: PullPolicy },
    /// A path of the host, and whether it is created if missing.
    Host { path: String, create: bool },
    /// A device of the host.
    Device(String),
    /// In memory, with its size limit in bytes.
    Memory(Option<u64>),
    /// An `emptyDir` on disk.
    Empty,
}

impl From<Claim> for Source {
    fn from(claim: Claim) -> Self {
        match claim {
            Claim::Named { name, volume, owner } => Self::Named { name, volume, owner },
            Claim::Host { path, create } => Self::Host { path, create },
        }
    }
}

/// The volumes of a pod, by name. `None`: it could not be read, which is reported.
pub(super) struct PodVolumes<'a> {
    sources: BTreeMap<&'a str, Option<Source>>,
    /// Claims that the pod only reads.
    read_only: BTreeSet<&'a str>,
    /// Volumes that more than one container mounts.
    shared: SharedVolumes<'a>,
    /// The group (`fsGroup`) of the volumes that the pod owns.
    pub(super) group: Option<u32>,
}

impl PodVolumes<'_> {
    /// When images are pulled that are volumes. Of two volumes of one image, the policy that pulls more often counts.
    pub(super) fn image_pulls(&self) -> BTreeMap<String, PullPolicy> {
        let mut pulls = BTreeMap::new();
        for source in self.sources.values().flatten() {
            let Source::Image { reference, pull } = source else { continue };
            let known = pulls.get(reference);
            if known.is_none() || *pull == PullPolicy::Always || known == Some(&PullPolicy::Never) {
                pulls.insert(reference.clone(), *pull);
            }
        }
        pulls.retain(|_, pull| *pull != PullPolicy::IfNotPresent);
        pulls
    }

    /// The medium and group of an `emptyDir` that the pause container holds, or of which it holds a path.
    pub(super) fn empty(&self, held: &str) -> MountOptions {
        match self.sources.get(shared_volumes::volume_of(held)) {
            Some(Some(Source::Memory(size))) => shared_volumes::in_memory(*size, self.group),
            _ => MountOptions { group: self.group, ..MountOptions::default() },
        }
    }
}

/// Reads `volumes` of a pod. `templates` are the claims that a StatefulSet makes, by name.
pub(super) fn read<'a>(
    pod: &Object<'a>,
    owner: &str,
    about: &About<'_>,
    templates: &BTreeMap<&'a str, Claim>,
) -> PodVolumes<'a> {
    let mut sources: BTreeMap<&str, Option<Source>> = BTreeMap::new();
    let mut read_only = BTreeSet::new();
    for (name, claim) in templates {
        sources.insert(name, Some(claim.clone().into()));
    }
    for item in pod.items("volumes") {
        let Some(volume) = item.object(fields::VOLUME) else { continue };
        let Some(name) = volume.require("name") else { continue };
        let Some(text) = names::label(&name) else { continue };
        // A claim template of the same name wins, as in the StatefulSet controller.
        if templates.contains_key(text) {
            continue;
        }
        if sources.contains_key(text) {
            name.error(format!("another volume is already named `{text}`"));
            continue;
        }
        sources.insert(text, source(&volume, owner, text, about));
        let claim = volume.value.node.get("persistentVolumeClaim");
        if claim.and_then(|claim| claim.get("readOnly")?.as_bool()) == Some(true) {
            read_only.insert(text);
        }
    }
    let group = group(pod);
    for source in sources.values_mut().flatten() {
        if let Source::Files(Files { tree, .. }) = source {
            for (_, access) in tree.values_mut() {
                *access = Access::asked(access.mode(), group);
            }
        }
    }
    PodVolumes { sources, read_only, shared: SharedVolumes::of(pod), group }
}

/// The group of the pod's volumes.
fn group(pod: &Object<'_>) -> Option<u32> {
    let security = pod.value.node.get("securityContext")?;
    let path = format!("{}.securityContext", pod.value.path);
    let policy = security.get("fsGroupChangePolicy").filter(|it| !it.is_null());
    let policy = policy.map(|it| Value::new(it, format!("{path}.fsGroupChangePolicy"), pod.value.report()));
    if let Some(value) = policy
        && value.one_of(&[("OnRootMismatch", false), ("Always", true)]) == Some(true)
    {
        value.warning(
            "has no effect: the folder of the volume gets the group, but the files in it keep theirs",
        );
    }
    // Its validity is reported where all groups are read.
    security.get("fsGroup")?.as_i64().and_then(|it| u32::try_from(it).ok())
}

fn source(volume: &Object<'_>, pod: &str, name: &str, about: &About<'_>) -> Option<Source> {
    let has_source = volume.only_one(|it| it != "name");
    if let Some(object) = volume.object("configMap", fields::DATA_VOLUME) {
        return file_volumes::data(&object, DataKind::ConfigMap, "name", about).map(Source::Files);
    }
    if let Some(object) = volume.object("secret", fields::SECRET_VOLUME) {
        return file_volumes::data(&object, DataKind::Secret, "secretName", about).map(Source::Files);
    }
    if let Some(object) = volume.object("projected", fields::PROJECTED) {
        return file_volumes::projected(&object, about).map(Source::Files);
    }
    if let Some(object) = volume.object("downwardAPI", fields::DOWNWARD) {
        return file_volumes::pod_metadata(&object, about).map(Source::Files);
    }
    if let Some(object) = volume.get("emptyDir").and_then(|it| it.object(fields::EMPTY_DIR)) {
        return empty_dir(&object);
    }
    if volume.get("ephemeral").is_some() {
        return Some(Source::Empty);
    }
    if let Some(object) = volume.object("hostPath", fields::HOST_PATH) {
        return host_path(&object).map(|it| match it {
            HostPath::Mounted { path, create } => Source::Host { path, create },
            HostPath::Device(path) => Source::Device(path),
        });
    }
    if let Some(object) = volume.object("persistentVolumeClaim", fields::CLAIM_VOLUME) {
        return claim(&object, about);
    }
    if let Some(object) = volume.object("nfs", fields::NFS) {
        let owner = VolumeOwner::Share { pod: pod.to_owned(), volume: name.to_owned() };
        let name = format!("{pod}-{name}");
        let volume = nfs(&object, &name)?;
        return Some(Source::Named { name, volume, owner });
    }
    if let Some(object) = volume.object("image", fields::IMAGE_VOLUME) {
        let value = object.require("reference")?;
        let reference = value.text()?.to_owned();
        if let Err(error) = ImageRef::check(&reference) {
            value.error_help(error.to_string(), error.help());
        }
        let pull = pull::policy(&object, "pullPolicy", &reference);
        return Some(Source::Image { reference, pull });
    }
    // The default of Kubernetes; other values were refused by the table of fields.
    (!has_source).then_some(Source::Empty)
}

fn empty_dir(object: &Object<'_>) -> Option<Source> {
    let size = match object.get("sizeLimit") {
        None => None,
        Some(value) => {
            let size = quantity(&value)?.units();
            if size.is_none() {
                value.error("is too large");
            }
            size.filter(|it| *it > 0)
        }
    };
    let words = [("", false), ("Memory", true)];
    let in_memory = object.get("medium").and_then(|it| it.one_of(&words)).unwrap_or(false);
    if in_memory {
        return Some(Source::Memory(size));
    }
    if let Some(value) = object.get("sizeLimit").filter(|_| size.is_some()) {
        value.warning("has no effect: the size of a folder on the disk is not limited");
    }
    Some(Source::Empty)
}

fn claim(object: &Object<'_>, about: &About<'_>) -> Option<Source> {
    // Its meaning is that of the whole volume, and only its type is checked here.
    let _ = object.boolean("readOnly");
    let name = object.require("claimName")?;
    let key = names::subdomain(&name).map(|it| Key::new(about.namespace, it))?;
    if let Some(claim) = about.catalogue.claim(&key) {
        return Some(claim.into());
    }
    let elsewhere = help_with_namespace(about.catalogue.claims_named(&key.name), &key.namespace, "pod");
    let message =
        |claim: &str, place: &str| format!("there is no PersistentVolumeClaim `{claim}` in {place}");
    let (message, help) = match elsewhere {
        Some(help) => (message(&key.name, "the namespace of this pod"), help),
        None => (message(&key.dotted(), "this application"), "add it to its manifests".to_owned()),
    };
    about.catalogue.report_missing(&name, message, help);
    None
}

/// Reads `volumeMounts` into the container. Returns the volumes that the pause container holds for it, by mount path.
pub(super) fn mount(
    object: &Object<'_>,
    volumes: &PodVolumes<'_>,
    variables: &BTreeMap<String, String>,
    catalogue: &Catalogue,
    container: &mut Container,
) -> BTreeMap<String, String> {
    let mut held = BTreeMap::new();
    let security = object.value.node.get("securityContext");
    let is_privileged = security.and_then(|it| it.get("privileged")?.as_bool()) == Some(true);
    let mut places: BTreeMap<String, &Place> = BTreeMap::new();
    let mut empty = Vec::new();
    for item in object.items("volumeMounts") {
        let Some(item) = item.object(fields::VOLUME_MOUNT) else { continue };
        let (Some(name), Some(target)) = (item.require("name"), item.require("mountPath")) else { continue };
        let (Some(name_text), Some(path)) = (name.text(), target.text()) else { continue };
        if path.contains(':') {
            target.error("must not contain `:`");
            continue;
        }
        let path = absolute(path);
        if let Some(first) = places.insert(path.clone(), target.place()) {
            target.error(format!("something is already mounted at `{path}` (line {})", first.line));
            continue;
        }
        match volumes.sources.get(name_text) {
            Some(Some(source)) => {
                if let Some(inside) = sub_path(&item, variables, &catalogue.room) {
                    let is_empty = matches!(source, Source::Empty | Source::Memory(_));
                    if is_empty && let Some(name) = volumes.shared.held(name_text, &inside) {
                        shared_volumes::mount(&item, path.clone(), (&name, &inside), container);
                        held.insert(path, name);
                        continue;
                    }
                    if is_empty {
                        shared_volumes::apart(&item, name_text, &inside, &mut empty);
                    }
                    let is_read_only = volumes.read_only.contains(name_text);
                    let into =
                        Targets { catalogue, group: volumes.group, is_privileged, is_read_only, container };
                    place(&item, source, path, &inside, into);
                }
            }
            // The volume's error is reported there.
            Some(None) => {}
            None => {
                let message = format!("the pod has no volume `{name_text}`");
                match closest(name_text, volumes.sources.keys().copied()) {
                    Some(near) => name.error_help(message, format!("did you mean `{near}`?")),
                    None => name.error_help(message, "add it to `volumes` of the pod"),
                }
            }
        }
    }
    container.mounts.sort();
    held
}

/// An absolute path without doubled and trailing slashes; the kubelet reads a relative one from the root.
fn absolute(path: &str) -> String {
    format!("/{}", shared_volumes::path_inside(path))
}

/// The path inside the volume; empty for the volume itself. `None`: it is invalid.
fn sub_path(item: &Object<'_>, variables: &BTreeMap<String, String>, room: &Room) -> Option<String> {
    let (plain, expression) = (item.get("subPath"), item.get("subPathExpr"));
    let value = match (plain, expression) {
        (None, None) => return Some(String::new()),
        (Some(_), Some(expression)) => {
            expression.error("is set together with `subPath`; remove one of the two");
            return None;
        }
        (Some(value), None) => return inner(&value, value.string()?),
        (None, Some(value)) => value,
    };
    let said = value.string()?;
    let text = room.expand(&value, said, variables);
    if text.contains("$(") {
        // Quoted before expansion, because the expanded text may be secret.
        value.error(format!("`{said}` names a variable that the container does not have"));
        return None;
    }
    if downward::is_marked(&text) {
        let text = downward::shown(&text);
        value.error(format!("`{text}` is not known before the pod runs, and what it mounts is made before"));
        return None;
    }
    inner(&value, &text)
}

fn inner(value: &Value<'_>, text: &str) -> Option<String> {
    if text.starts_with('/') || text.split('/').any(|it| it == "..") {
        value.error("must be a relative path without `..`");
        return None;
    }
    Some(shared_volumes::path_inside(text))
}

/// The targets of a mount.
struct Targets<'a> {
    catalogue: &'a Catalogue,
    group: Option<u32>,
    is_privileged: bool,
    is_read_only: bool,
    container: &'a mut Container,
}

fn place(item: &Object<'_>, source: &Source, target: String, inside: &str, into: Targets<'_>) {
    let Targets { catalogue, group, is_privileged, is_read_only, container } = into;
    let mut read_only = item.boolean("readOnly").unwrap_or(false) || is_read_only;
    let is_host = matches!(source, Source::Host { .. });
    let propagation = propagation(item, is_host, is_privileged);
    let source = match source {
        Source::Files(Files { tree, is_secret }) => {
            read_only = true;
            let Some(content) = file_volumes::part(tree, inside) else {
                let said = item.string("subPath").or_else(|| item.string("subPathExpr")).unwrap_or_default();
                item.value.error(format!("the volume holds no `{said}`"));
                return;
            };
            let Some(id) = catalogue.keep(content, &item.value) else { return };
            if *is_secret { MountSource::Secret(id) } else { MountSource::Content(id) }
        }
        Source::Host { path, create } => {
            let path = if inside.is_empty() { path.clone() } else { format!("{path}/{inside}") };
            MountSource::Bind { path, create: *create, propagation, selinux: None }
        }
        Source::Device(path) => {
            container.devices.push((path.clone(), target, "rwm".to_owned()));
            container.devices.sort();
            return;
        }
        Source::Named { name, volume, owner } => {
            let at = item.get("subPath").or_else(|| item.get("subPathExpr")).or_else(|| item.get("name"));
            let place = at.unwrap_or_else(|| item.value.clone());
            let name = catalogue.mount(&NamedVolume { name, volume, owner }, inside, &place);
            // A share of another host has its own owners.
            if volume.options.is_empty() && !read_only {
                give(group, &target, container);
            }
            MountSource::Volume { name, no_copy: true }
        }
        Source::Image { reference, pull: _ } => {
            read_only = true;
            if !inside.is_empty() {
                let options = MountOptions { subpath: Some(inside.to_owned()), ..MountOptions::default() };
                container.host.mount_options.insert(target.clone(), options);
            }
            MountSource::Image(reference.clone())
        }
        Source::Memory(size) => {
            container.host.mount_options.insert(target.clone(), shared_volumes::in_memory(*size, group));
            MountSource::Empty
        }
        Source::Empty => {
            give(group, &target, container);
            MountSource::Empty
        }
    };
    container.mounts.push(Mount { target, source, read_only });
}

/// Sets the group of the volume at a mount path, if there is one.
fn give(group: Option<u32>, target: &str, container: &mut Container) {
    let options = group.map(|it| MountOptions { group: Some(it), ..MountOptions::default() });
    container.host.mount_options.extend(options.map(|it| (target.to_owned(), it)));
}

fn propagation(item: &Object<'_>, is_host: bool, is_privileged: bool) -> Option<String> {
    let value = item.get("mountPropagation")?;
    let words = [("None", None), ("HostToContainer", Some("rslave")), ("Bidirectional", Some("rshared"))];
    let found = value.one_of(&words)??;
    if found == "rshared" && !is_privileged {
        value.error_help("only a privileged container may mount for others", "use `HostToContainer`");
    }
    if !is_host {
        value.warning("has no effect: only paths of the host have mounts to pass on");
        return None;
    }
    Some(found.to_owned())
}
