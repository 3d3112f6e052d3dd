//! `ports` and `volumes` of a service, which both have a short and a long syntax.

use super::{
    fields::labels,
    on_change::on_change,
    reader::{Path, Placed, Reader},
    scalar::Plain,
    schema::{Change, LongPort, VolumeMount, VolumeSource},
    short,
};
use driftless_model::{MountOptions, Port};
use driftless_yaml::{Entry, Kind, Node};

/// A service that publishes more than every port there is asks for something else.
const MOST_PORTS: usize = 65_536;

/// Sorted, each once.
pub(super) fn ports(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Port> {
    let mut ports = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let read = match &item.kind {
            Kind::Mapping(entries) => long_port(reader, item, entries, &at),
            Kind::Scalar { .. } | Kind::Sequence(_) => {
                reader.text_or_number(item, &at).map(|it| short::ports(&it))
            }
        };
        match read {
            Some(Ok(more)) => ports.extend(more),
            Some(Err(message)) => reader.error(&item.place, &at, message),
            None => {}
        }
        if ports.len() > MOST_PORTS {
            reader.error(&item.place, &at, "these are more ports than there are");
            return Vec::new();
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn long_port(
    reader: &mut Reader,
    item: &Node,
    entries: &[Entry],
    path: &Path<'_>,
) -> Option<Result<Vec<Port>, String>> {
    let mut port = LongPort::default();
    let before = reader.findings.len();
    for entry in entries {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "target" => port.target = part(reader, node, at, short::range),
            "published" => port.published = part(reader, node, at, short::range),
            "host_ip" => port.host_ip = part(reader, node, at, short::host_ip),
            "protocol" => port.protocol = part(reader, node, at, short::protocol).unwrap_or_default(),
            // On one engine without Swarm both values publish on the host.
            "mode" => match reader.string(node, at).as_deref() {
                Some("host" | "ingress" | "") | None => {}
                Some(other) => reader.error(&node.place, at, format!("`{other}` is no mode; leave it out")),
            },
            _ => reader.other(entry, path, "services.ports"),
        }
    }
    let LongPort { target, published, host_ip, protocol } = port;
    match target {
        Some(target) => Some(
            short::pair(target, published, host_ip, protocol)
                .ok_or_else(|| "`target` and `published` are ranges of different lengths".to_owned()),
        ),
        // A target that could not be read was told already.
        None => (reader.findings.len() == before).then(|| Err("needs a `target`".to_owned())),
    }
    .filter(|_| !matches!(item.kind, Kind::Sequence(_)))
}

/// A text or number, read by `read`; empty is as if it were not there.
fn part<T>(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
    read: fn(&str) -> Result<T, String>,
) -> Option<T> {
    let text = reader.text_or_number(node, path).filter(|it| !it.is_empty())?;
    match read(&text) {
        Ok(value) => Some(value),
        Err(message) => {
            reader.error(&node.place, path, message);
            None
        }
    }
}

pub(super) fn volumes(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Vec<Placed<VolumeMount>> {
    let mut mounts = Vec::new();
    for (index, item) in reader.sequence(node, path).iter().enumerate() {
        let at = path.index(index);
        let mount = match &item.kind {
            Kind::Mapping(entries) => long_volume(reader, item, entries, &at),
            Kind::Scalar { .. } | Kind::Sequence(_) => short_volume(reader, item, &at),
        };
        mounts.extend(mount.map(|it| Reader::placed(item, &at, it)));
    }
    mounts
}

fn short_volume(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<VolumeMount> {
    let text = reader.string(node, path)?;
    let volume = match short::volume(&text) {
        Ok(volume) => volume,
        Err(message) => {
            reader.error(&node.place, path, message);
            return None;
        }
    };
    let short::ShortVolume { source, target, read_only, no_copy, propagation, selinux, ignored } = volume;
    for mode in ignored {
        reader.warning(&node.place, path, format!("`{mode}` is ignored: it means nothing on Linux"));
    }
    let source = match source {
        None => VolumeSource::Anonymous,
        Some(path) if path.starts_with(['.', '/', '~', '\\']) || path.contains(':') => {
            VolumeSource::Path { path, create: true, propagation, selinux }
        }
        Some(key) => VolumeSource::Named { key, no_copy },
    };
    Some(VolumeMount { target, read_only, source, options: MountOptions::default(), on_change: None })
}

#[derive(Default)]
struct LongVolume {
    kind: Option<String>,
    source: Option<String>,
    target: Option<String>,
    read_only: bool,
    no_copy: bool,
    create: Option<bool>,
    propagation: Option<String>,
    selinux: Option<String>,
    size: Option<u64>,
    mode: Option<u32>,
    options: MountOptions,
    on_change: Option<Placed<Change>>,
}

fn long_volume(reader: &mut Reader, item: &Node, entries: &[Entry], path: &Path<'_>) -> Option<VolumeMount> {
    let mut long = LongVolume::default();
    for entry in entries {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "type" => long.kind = reader.string(node, at),
            "source" => long.source = reader.string(node, at).filter(|it| !it.is_empty()),
            "target" => long.target = reader.string(node, at),
            "read_only" => long.read_only = reader.boolean(node, at).unwrap_or_default(),
            "bind" | "volume" | "tmpfs" | "image" => long_details(reader, &mut long, &entry.key, node, at),
            "x-driftless" => long.on_change = on_change(reader, node, at),
            _ => reader.other(entry, path, "services.volumes"),
        }
    }
    let LongVolume {
        kind,
        source,
        target,
        read_only,
        no_copy,
        create,
        propagation,
        selinux,
        size,
        mode,
        options,
        on_change,
    } = long;
    let Some(target) = target.filter(|it| !it.is_empty()) else {
        reader.error(&item.place, path, "needs a `target`");
        return None;
    };
    let source = match (kind.as_deref(), source) {
        (Some("volume"), None) => VolumeSource::Anonymous,
        (Some("volume"), Some(key)) => VolumeSource::Named { key, no_copy },
        (Some("tmpfs"), _) => VolumeSource::Tmpfs { size, mode },
        (Some("image"), Some(image)) => VolumeSource::Image(image),
        (Some("image"), None) => {
            reader.error(&item.place, path, "a mounted image needs a `source`");
            return None;
        }
        (Some("bind"), Some(path)) => {
            // The specification's default is to create it, as the short syntax does.
            VolumeSource::Path { path, create: create.unwrap_or(true), propagation, selinux }
        }
        (Some("bind"), None) => {
            reader.error(&item.place, path, "a bind mount needs a `source`");
            return None;
        }
        (Some("cluster"), _) => {
            reader.refuse(item, path, "only Swarm has volumes of a cluster");
            return None;
        }
        (Some("npipe"), _) => {
            reader.refuse(item, path, "only Windows has named pipes");
            return None;
        }
        (Some(other), _) => {
            reader.error(&item.place, path, format!("`{other}` is no type; use `bind`, `volume` or `tmpfs`"));
            return None;
        }
        (None, _) => {
            reader.error(&item.place, path, "needs a `type`: `bind`, `volume` or `tmpfs`");
            return None;
        }
    };
    Some(VolumeMount { target, read_only, source, options, on_change })
}

/// `bind`, `volume` or `tmpfs` inside a volume.
fn long_details(reader: &mut Reader, long: &mut LongVolume, kind: &str, node: &Node, path: &Path<'_>) {
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match (kind, entry.key.as_str()) {
            ("bind", "propagation") => long.propagation = reader.string(node, at).filter(|it| !it.is_empty()),
            ("bind", "create_host_path") => long.create = reader.boolean(node, at),
            ("bind", "selinux") => long.selinux = reader.string(node, at).filter(|it| !it.is_empty()),
            ("bind", "recursive") => match reader.string(node, at).as_deref() {
                Some("enabled" | "") | None => {}
                Some(word @ ("disabled" | "writable" | "readonly")) => {
                    long.options.recursive = Some(word.to_owned());
                }
                Some(_) => {
                    let message = "use `enabled`, `disabled`, `writable` or `readonly`";
                    reader.error(&node.place, at, message);
                }
            },
            ("volume", "nocopy") => long.no_copy = reader.boolean(node, at).unwrap_or_default(),
            ("volume", "labels") => long.options.labels = labels(reader, node, at),
            ("volume" | "image", "subpath") => {
                long.options.subpath = reader.string(node, at).filter(|it| !it.is_empty());
            }
            ("tmpfs", "size") => long.size = reader.bytes(node, at),
            ("tmpfs", "mode") => {
                long.mode = match Plain::of(node) {
                    Some((text, Plain::Text)) => u32::from_str_radix(text, 8).ok(),
                    Some(_) | None => reader.integer(node, at),
                };
            }
            _ => reader.other(entry, path, &format!("services.volumes.{kind}")),
        }
    }
}
