//! Objects that workloads refer to by name: ConfigMaps, Secrets and claims.
//!
//! They are read before any workload, because manifests may use a name before they define it. [`super::env`] and
//! [`super::volumes`] resolve the references.

use std::{
    cell::{Ref, RefCell},
    collections::BTreeMap,
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    expand::Room,
    fields, names,
    object::{Identity, Key, identify, report_duplicate},
    reader::{Object, Report, Value},
    service_account::AccountLogin,
    storage::{Claim, Mounted, NamedVolume, Storage},
};
use driftless_files::{Budget, Exceeded};
use driftless_model::{Content, ContentId, Contents, Finding, Location, Volume};
use driftless_yaml as yaml;

/// The bytes that the mounted files of one application may have together, each as often as it is mounted.
const MOST_MOUNTED: usize = 64 << 20;

/// The entries of a ConfigMap or Secret.
pub(super) struct Data {
    origin: Location,
    pub(super) entries: BTreeMap<String, Arc<[u8]>>,
}

/// ConfigMap or Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataKind {
    ConfigMap,
    Secret,
}

impl DataKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// All objects that can be referred to, and the volumes and contents that references produced.
pub(super) struct Catalogue {
    app: String,
    /// A file of the application that could not be read and may define what is missing.
    unread: Option<String>,
    config_maps: BTreeMap<Key, Data>,
    secrets: BTreeMap<Key, Data>,
    /// By `ServiceAccount`.
    logins: BTreeMap<Key, Vec<AccountLogin>>,
    storage: Storage,
    contents: RefCell<Contents>,
    volumes: RefCell<BTreeMap<String, Volume>>,
    mounted: Mounted,
    mounted_bytes: Budget,
    /// Limits the texts of pods.
    pub(super) room: Room,
}

impl Catalogue {
    pub(super) fn new(app: &str, unread: Option<String>) -> Self {
        Self {
            app: app.to_owned(),
            unread,
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            logins: BTreeMap::new(),
            storage: Storage::default(),
            contents: RefCell::default(),
            volumes: RefCell::default(),
            mounted: Mounted::default(),
            mounted_bytes: Budget::new(MOST_MOUNTED),
            room: Room::default(),
        }
    }

    pub(super) fn data(&self, kind: DataKind, key: &Key) -> Option<&Data> {
        match kind {
            DataKind::ConfigMap => self.config_maps.get(key),
            DataKind::Secret => self.secrets.get(key),
        }
    }

    /// Reports a reference to an object that the application does not define. While a file cannot be read, which may define it,
    /// the reference is not reported.
    pub(super) fn report_missing(&self, place: &Value<'_>, message: String, help: String) {
        match &self.unread {
            None => place.error_help(message, help),
            Some(file) => {
                let message =
                    "objects that only this file may define are not reported as missing until it can be read";
                place.report().say(Finding::warning(Location::file(file), "", message));
            }
        }
    }

    /// The ConfigMaps or Secrets of this name in all namespaces.
    pub(super) fn data_named(&self, kind: DataKind, name: &str) -> impl Iterator<Item = &Key> {
        let all = match kind {
            DataKind::ConfigMap => &self.config_maps,
            DataKind::Secret => &self.secrets,
        };
        all.keys().filter(move |key| key.name == name)
    }

    /// The claims of this name in all namespaces.
    pub(super) fn claims_named(&self, name: &str) -> impl Iterator<Item = &Key> {
        self.storage.claims_named(name)
    }

    /// The container name of a workload with one instance.
    pub(super) fn name_in_docker(&self, key: &Key) -> String {
        format!("{}-{}", self.app, key.dotted())
    }

    /// The storage behind a claim.
    pub(super) fn claim(&self, key: &Key) -> Option<Claim> {
        self.storage.claim(key)
    }

    /// The storage behind a claim that a StatefulSet would make, if the manifests have it already.
    pub(super) fn claim_of_template(&self, key: &Key) -> Option<Claim> {
        self.storage.claim_of_template(key)
    }

    /// Adds a volume, or a path inside it, to the stack. Returns its name in Docker.
    pub(super) fn mount(&self, named: &NamedVolume<'_>, inside: &str, place: &Value<'_>) -> String {
        let (name, volume) = self.mounted.part(named, inside, place);
        let docker = format!("{}_{name}", self.app);
        self.volumes.borrow_mut().insert(docker.clone(), volume);
        docker
    }

    /// Adds a mounted content to the stack. `None`: the application mounts too much, which is reported once, at `place`.
    pub(super) fn keep(&self, content: Content, place: &Value<'_>) -> Option<ContentId> {
        if let Err(Exceeded { is_first }) = self.mounted_bytes.take(content.size()) {
            if is_first {
                let (size, most) = (content.size().div_ceil(1024), self.mounted_bytes.mebibytes());
                place.error_help(
                    format!("with these {size} KiB, the application mounts more than {most} MiB of files"),
                    "mount only the `items` that a container needs, or put large files into an image or a volume",
                );
            }
            return None;
        }
        let id = content.id();
        self.contents.borrow_mut().insert(id.clone(), content);
        Some(id)
    }

    /// All contents so far.
    pub(super) fn contents(&self) -> Ref<'_, Contents> {
        self.contents.borrow()
    }

    /// Whether a volume of the stack is a folder of the node that it is used on.
    pub(super) fn is_on_one_node(&self, name: &str) -> bool {
        self.volumes.borrow().get(name).is_none_or(|volume| volume.options.is_empty())
    }

    pub(super) fn into_parts(self) -> (Contents, BTreeMap<String, Volume>) {
        (self.contents.into_inner(), self.volumes.into_inner())
    }

    /// Reads a ConfigMap or a Secret.
    pub(super) fn read_data(&mut self, value: Value<'_>, kind: DataKind) {
        let table = if kind == DataKind::Secret { fields::SECRET } else { fields::CONFIG_MAP };
        let Some(object) = value.object(table) else { return };
        let Some(Identity { key, origin }) = identify(&object) else { return };
        let entries = match kind {
            DataKind::ConfigMap => config_map(&object),
            DataKind::Secret => secret(&object),
        };
        let known = match kind {
            DataKind::ConfigMap => &mut self.config_maps,
            DataKind::Secret => &mut self.secrets,
        };
        if let Some(first) = known.get(&key) {
            report_duplicate(&object, kind.as_str(), &key, &origin, &first.origin);
            return;
        }
        known.insert(key, Data { origin, entries });
    }

    pub(super) fn add_logins(&mut self, account: Key, logins: Vec<AccountLogin>) {
        self.logins.insert(account, logins);
    }

    /// The logins that a `ServiceAccount` gives its pods.
    pub(super) fn logins_of(&self, account: &Key) -> &[AccountLogin] {
        self.logins.get(account).map_or(&[], Vec::as_slice)
    }

    pub(super) fn read_claim(&mut self, value: Value<'_>) {
        self.storage.read_claim(value);
    }

    pub(super) fn read_persistent(&mut self, value: Value<'_>) {
        self.storage.read_persistent(value);
    }

    /// Binds the claims after all claims and volumes are read.
    pub(super) fn bind(&mut self, report: &Report) {
        self.storage.bind(report);
    }

    /// Findings that are known only after all mounts are read.
    pub(super) fn check_mounts(&self, report: &Report) {
        self.mounted.check(report);
        self.storage.check_kept(report);
    }
}

fn config_map(object: &Object<'_>) -> BTreeMap<String, Arc<[u8]>> {
    let mut entries = texts(object, "data", DataKind::ConfigMap);
    for (key, bytes) in encoded(object, "binaryData", DataKind::ConfigMap) {
        if entries.insert(key.clone(), bytes).is_some() {
            object.value.error(format!("`{key}` is both in `data` and in `binaryData`"));
        }
    }
    entries
}

/// `stringData` wins over `data`, as in Kubernetes.
fn secret(object: &Object<'_>) -> BTreeMap<String, Arc<[u8]>> {
    let mut entries = encoded(object, "data", DataKind::Secret);
    entries.extend(texts(object, "stringData", DataKind::Secret));
    check_type(object, &entries);
    entries
}

/// The keys that a Secret of a well-known type must have.
fn check_type(object: &Object<'_>, entries: &BTreeMap<String, Arc<[u8]>>) {
    let Some(kind) = object.get("type") else { return };
    let keys: &[&str] = match kind.string() {
        Some("kubernetes.io/tls") => &["tls.crt", "tls.key"],
        Some("kubernetes.io/ssh-auth") => &["ssh-privatekey"],
        Some("kubernetes.io/dockerconfigjson") => &[".dockerconfigjson"],
        Some("kubernetes.io/dockercfg") => &[".dockercfg"],
        Some("kubernetes.io/basic-auth") if !entries.contains_key("username") => &["password"],
        Some(_) | None => &[],
    };
    for key in keys.iter().filter(|it| !entries.contains_key(**it)) {
        kind.error_help(
            format!("a Secret of this type needs the key `{key}`"),
            "add it, or use the type `Opaque`",
        );
    }
}

/// The entries of a map. A mistake may have made a key of a part of a secret, so an invalid one is quoted for a ConfigMap only.
fn pairs<'a>(object: &Object<'a>, field: &str, kind: DataKind) -> Vec<(&'a str, Value<'a>)> {
    let Some(map) = object.get(field) else { return Vec::new() };
    for entry in map.mapping().iter().filter(|entry| entry.value.is_null()) {
        let path = match kind {
            DataKind::Secret if !names::is_data_key(&entry.key) => map.path.clone(),
            DataKind::ConfigMap | DataKind::Secret => yaml::join(&map.path, &entry.key),
        };
        // The API server reads it as an empty text. Read so here, running containers would be replaced.
        let warning = entry
            .value
            .warning(path, "has no value, and the entry is left out; a cluster has it with an empty text");
        map.report().say(warning.help("write `\"\"`, or remove it"));
    }
    let pairs = map.pairs();
    for (key, value) in pairs.iter().filter(|(key, _)| !names::is_data_key(key)) {
        match kind {
            DataKind::ConfigMap => {
                value.error_help(format!("`{key}` is not a valid key"), names::DATA_KEY_RULE);
            }
            DataKind::Secret => {
                let place = Value::new(value.node, map.path.as_str(), value.report());
                place.error_help("the key of this entry is not valid", names::DATA_KEY_RULE);
            }
        }
    }
    pairs
}

fn texts(object: &Object<'_>, field: &str, kind: DataKind) -> BTreeMap<String, Arc<[u8]>> {
    let mut found = BTreeMap::new();
    for (key, value) in pairs(object, field, kind) {
        if let Some(text) = value.string() {
            found.insert(key.to_owned(), Arc::from(text.as_bytes()));
        }
    }
    found
}

fn encoded(object: &Object<'_>, field: &str, kind: DataKind) -> BTreeMap<String, Arc<[u8]>> {
    let mut found = BTreeMap::new();
    for (key, value) in pairs(object, field, kind) {
        let Some(text) = value.string() else { continue };
        let text: String = text.split_whitespace().collect();
        match STANDARD.decode(&text) {
            Ok(bytes) => {
                found.insert(key.to_owned(), Arc::from(bytes));
            }
            // The invalid text may be the secret in clear, so it is not quoted.
            Err(_) => {
                value.error_help("is not base64", "encode it, or write it under `stringData`");
            }
        }
    }
    found
}
