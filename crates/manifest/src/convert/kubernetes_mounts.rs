//! Converts mounts to volumes of a pod: files become ConfigMaps and Secrets, Docker volumes become claims.

use std::{collections::BTreeMap, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{
    kubernetes_writer::KubernetesWriter,
    output::{PLACEHOLDER_OF_SECRET, SecretValues, flag, object},
};
use driftless_model::{Access, Content, ContentId, ContentTree, Mount, MountSource, PullPolicy, Subject};

/// The `volumes` of a pod and the `volumeMounts` of its container.
#[derive(Default)]
pub(super) struct Mounts {
    pub(super) volumes: Vec<Value>,
    pub(super) mounts: Vec<Value>,
}

/// The volume of one mount: its source, and the further fields of the mount.
struct Volume {
    source: (&'static str, Value),
    sub_path: Option<String>,
    propagation: Option<&'static str>,
}

impl Volume {
    fn plain(kind: &'static str, source: Value) -> Self {
        Self { source: (kind, source), sub_path: None, propagation: None }
    }
}

/// The largest content of a ConfigMap or Secret in bytes, which leaves room for the object around it.
const LARGEST: usize = 1_000_000;

pub(super) fn convert(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Mounts {
    let mut all = Mounts::default();
    // A source that is mounted twice is one volume.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for mount in &at.workload.container.mounts {
        let Some(volume) = volume(writer, at, mount) else { continue };
        let (kind, source) = volume.source;
        let number = names.len() + 1;
        // Each `emptyDir` is a volume of its own.
        let own = if kind == "emptyDir" { mount.target.as_str() } else { "" };
        let name = names.entry(format!("{kind}{source}{own}")).or_insert_with(|| {
            let name = format!("volume-{number}");
            all.volumes.push(Value::Object(Map::from_iter([
                ("name".to_owned(), json!(name)),
                (kind.to_owned(), source),
            ])));
            name
        });
        let options = at.workload.container.host.mount_options.get(&mount.target);
        let sub_path = volume.sub_path.or_else(|| options?.subpath.clone());
        all.mounts.push(object([
            ("name", json!(name)),
            ("mountPath", json!(mount.target)),
            ("subPath", json!(sub_path)),
            ("readOnly", flag(mount.read_only && !matches!(mount.source, MountSource::Image(_)))),
            ("mountPropagation", json!(volume.propagation)),
        ]));
    }
    let shm = at.workload.container.shm_size;
    if let Some(size) = shm.filter(|_| at.workload.container.mounts.iter().all(|it| it.target != "/dev/shm"))
    {
        let source = json!({ "medium": "Memory", "sizeLimit": size.to_string() });
        all.volumes.push(json!({ "name": "shm", "emptyDir": source }));
        all.mounts.push(json!({ "name": "shm", "mountPath": "/dev/shm" }));
    }
    for (path, target, permissions) in &at.workload.container.devices {
        let name = format!("device-{}", all.volumes.len() + 1);
        if permissions != "rwm" {
            writer.lost.field(at, "devices", format!("the permissions `{permissions}` of {target}"));
        }
        all.volumes.push(json!({ "name": name, "hostPath": { "path": path, "type": "CharDevice" } }));
        all.mounts.push(json!({ "name": name, "mountPath": target }));
    }
    all
}

fn volume(writer: &mut KubernetesWriter<'_>, at: Subject<'_>, mount: &Mount) -> Option<Volume> {
    let target = &mount.target;
    if target.contains(':') {
        writer.lost.field(at, "mounts", format!("the mount at {target}: no path in a pod has a colon"));
        return None;
    }
    match &mount.source {
        MountSource::Volume { name, no_copy } => {
            if !no_copy && !mount.read_only {
                let message =
                    format!("the files that the image has at {target} are not copied into a new claim");
                writer.lost.field(at, "mounts", message);
            }
            let Some(claim) = writer.claim(name) else {
                writer.lost.field(
                    at,
                    "mounts",
                    format!("the volume `{name}`, which the application does not define"),
                );
                return None;
            };
            Some(Volume::plain("persistentVolumeClaim", json!({ "claimName": claim })))
        }
        MountSource::Anonymous => {
            let message =
                format!("the volume at {target} is empty for each new pod, and has no files of the image");
            writer.lost.field(at, "mounts", message);
            Some(Volume::plain("emptyDir", json!({})))
        }
        MountSource::Empty => {
            let options = at.workload.container.host.mount_options.get(target);
            let source = match options.filter(|it| !it.tmpfs.is_empty()) {
                Some(memory) => {
                    object([("medium", json!("Memory")), ("sizeLimit", json!(memory.tmpfs_option("size")))])
                }
                None => json!({}),
            };
            Some(Volume::plain("emptyDir", source))
        }
        MountSource::Tmpfs { size, mode } => {
            if mode.is_some_and(|it| it != 0o1777) {
                writer.lost.field(at, "mounts", format!("the mode of the memory at {target}"));
            }
            let size = size.map(|it| it.to_string());
            let source = object([("medium", json!("Memory")), ("sizeLimit", json!(size))]);
            Some(Volume::plain("emptyDir", source))
        }
        MountSource::Bind { path, create, propagation, selinux } => {
            if selinux.is_some() {
                writer.lost.field(at, "mounts", format!("the SELinux label of {target}"));
            }
            // Only the host knows whether the path is a file or a folder, and a pod with the wrong type does not start.
            // Without a type, both work.
            let is_socket = !create && Path::new(path).extension().is_some_and(|it| it == "sock");
            if !create && !is_socket {
                let message = format!("whether {path} exists, mounted at {target}, is not checked");
                writer.lost.field(at, "mounts", message);
            }
            let propagation = match propagation.as_deref() {
                None | Some("rprivate" | "private") => None,
                Some("rslave") => Some("HostToContainer"),
                Some("rshared") if at.workload.container.privileged => Some("Bidirectional"),
                Some(other) => {
                    writer.lost.field(at, "mounts", format!("the propagation `{other}` of {target}"));
                    None
                }
            };
            let source =
                if is_socket { json!({ "path": path, "type": "Socket" }) } else { json!({ "path": path }) };
            Some(Volume { source: ("hostPath", source), sub_path: None, propagation })
        }
        MountSource::Image(image) => {
            // The default of Kubernetes depends on the tag.
            let policy = match at.workload.mounted_pull(image) {
                PullPolicy::Always | PullPolicy::Every(_) => "Always",
                PullPolicy::IfNotPresent => "IfNotPresent",
                PullPolicy::Never => "Never",
            };
            Some(Volume::plain("image", json!({ "reference": image, "pullPolicy": policy })))
        }
        MountSource::Content(id) => files(writer, at, mount, id, "ConfigMap"),
        MountSource::Secret(id) => files(writer, at, mount, id, "Secret"),
        MountSource::InPlace { secret, folder: _ } => {
            let content = at.workload.in_place.get(target)?.content.clone();
            writer.lost.field(
                at,
                "mounts",
                format!("the files at {target} are not changed in a running pod"),
            );
            files(writer, at, mount, &content, if *secret { "Secret" } else { "ConfigMap" })
        }
        MountSource::AppFolder(path) => {
            let message =
                format!("the folder `{path}` of the repository, mounted at {target} to be written to");
            writer.lost.field(at, "mounts", message);
            None
        }
    }
}

/// Writes files as a ConfigMap or Secret that is named after its content.
fn files(
    writer: &mut KubernetesWriter<'_>,
    at: Subject<'_>,
    mount: &Mount,
    id: &ContentId,
    kind: &'static str,
) -> Option<Volume> {
    let target = &mount.target;
    let Some(content) = writer.contents.get(id) else {
        writer.lost.field(at, "mounts", format!("the files at {target} are not available"));
        return None;
    };
    if content.size() > LARGEST {
        writer.lost.field(at, "mounts", format!("the files at {target} are too large for a {kind}"));
        return None;
    }
    let file = target.rsplit('/').next().unwrap_or_default();
    let file_key = key_of(file);
    let mut tree = ContentTree::new();
    let mode = match content {
        Content::Folder(files) => {
            tree.clone_from(files);
            None
        }
        Content::File { bytes, executable } => {
            tree.insert(file_key.clone(), (bytes.clone(), Access::of(*executable)));
            executable.then_some(0o555)
        }
        Content::Owned { bytes, mode, uid, gid } => {
            writer.lost.field(
                at,
                "mounts",
                format!("the mode and owner ({mode:04o} {uid}:{gid}) of {target}"),
            );
            tree.insert(file_key.clone(), (bytes.clone(), Access::of(mode & 0o111 != 0)));
            Some(if mode & 0o111 != 0 { 0o555 } else { 0o444 })
        }
    };
    let is_one = !matches!(content, Content::Folder(_));
    let name = format!("{}-{}", writer.name_of(at.name), id.0.get(..8).unwrap_or_default());
    let items = (!is_one).then(|| items(&tree)).flatten();
    let entries: Vec<(String, &[u8])> =
        tree.iter().map(|(path, (bytes, _))| (key_of(path), &**bytes)).collect();
    let is_hidden = kind == "Secret" && writer.secrets == SecretValues::Hidden;
    if is_hidden {
        let message = format!("the value of the secret at {target} is not written; `--show-secrets` does");
        writer.lost.field(at, "mounts", message);
    }
    writer.keep(kind, &name, data(&entries, kind, is_hidden));
    let field = if kind == "Secret" { "secretName" } else { "name" };
    let volume = if kind == "Secret" { "secret" } else { "configMap" };
    let source = object([(field, json!(name)), ("defaultMode", json!(mode)), ("items", json!(items))]);
    let sub_path = is_one.then_some(file_key);
    Some(Volume { source: (volume, source), sub_path, propagation: None })
}

/// The `items` of a volume. `None`: all keys are equal to their paths, with the default mode.
fn items(tree: &ContentTree) -> Option<Vec<Value>> {
    let is_plain = tree.iter().all(|(path, (_, access))| key_of(path) == *path && *access == Access::Read);
    let item = |(path, (_, access)): (&String, &(std::sync::Arc<[u8]>, Access))| {
        let mode = (*access != Access::Read).then(|| access.mode());
        object([("key", json!(key_of(path))), ("path", json!(path)), ("mode", json!(mode))])
    };
    (!is_plain).then(|| tree.iter().map(item).collect())
}

/// A path as a key. Characters that a key cannot have become `_`.
fn key_of(path: &str) -> String {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let plain: String = path.chars().map(|it| if is_inner(it) { it } else { '_' }).collect();
    if plain == path && !path.starts_with("..") && path != "." {
        return plain;
    }
    // Two paths that differ only in these characters need different keys.
    let digest = driftless_model::digest_hex(path.as_bytes());
    format!("{}-{}", plain.trim_start_matches('.'), digest.get(..6).unwrap_or_default())
}

fn data(entries: &[(String, &[u8])], kind: &str, is_hidden: bool) -> Vec<(&'static str, Value)> {
    let (mut text, mut binary) = (Map::new(), Map::new());
    for (key, bytes) in entries {
        match std::str::from_utf8(bytes) {
            _ if is_hidden => text.insert(key.clone(), json!(PLACEHOLDER_OF_SECRET)),
            Ok(it) => text.insert(key.clone(), json!(it)),
            Err(_) => binary.insert(key.clone(), json!(STANDARD.encode(bytes))),
        };
    }
    let (text_field, binary_field) =
        if kind == "Secret" { ("stringData", "data") } else { ("data", "binaryData") };
    vec![(binary_field, Value::Object(binary)), (text_field, Value::Object(text))]
}
