//! Storage outside of the engine, as pods and PersistentVolumes name it: paths of the host, and NFS shares.

use super::reader::Object;
use driftless_model::Volume;

/// A path of the host.
pub(super) enum HostPath {
    /// A file or folder, and whether a folder is created if it is missing.
    Mounted {
        path: String,
        create: bool,
    },
    Device(String),
}

/// The `type` of a `hostPath`.
#[derive(Clone, Copy)]
enum HostKind {
    Create,
    MustExist,
    Device,
    FileOrCreate,
}

/// An absolute path of the host.
pub(super) fn host_folder(object: &Object<'_>) -> Option<String> {
    let value = object.require("path")?;
    let path = value.text()?;
    if !path.starts_with('/') || path.split('/').any(|it| it == "..") {
        value.error("must be an absolute path of the host without `..`");
        return None;
    }
    Some(path.to_owned())
}

/// Reads a `hostPath`.
pub(super) fn host_path(object: &Object<'_>) -> Option<HostPath> {
    let path = host_folder(object)?;
    let words = [
        ("", HostKind::Create),
        ("DirectoryOrCreate", HostKind::Create),
        ("Directory", HostKind::MustExist),
        ("File", HostKind::MustExist),
        ("Socket", HostKind::MustExist),
        ("FileOrCreate", HostKind::FileOrCreate),
        ("CharDevice", HostKind::Device),
        ("BlockDevice", HostKind::Device),
    ];
    let kind = object.get("type").map_or(Some(HostKind::Create), |it| it.one_of(&words))?;
    match kind {
        HostKind::Create => Some(HostPath::Mounted { path, create: true }),
        HostKind::MustExist => Some(HostPath::Mounted { path, create: false }),
        HostKind::Device => Some(HostPath::Device(path)),
        HostKind::FileOrCreate => {
            let value = object.get("type")?;
            value.error_help(
                "`FileOrCreate` is not supported: the engine can create a folder, but not a file",
                "create the file on the host and use `File`, or mount a ConfigMap",
            );
            None
        }
    }
}

/// An NFS share, mounted by the engine's own driver.
pub(super) fn nfs(object: &Object<'_>, key: &str) -> Option<Volume> {
    let server = object.require("server")?.text()?;
    let path = object.require("path")?.text()?;
    let access = if object.boolean("readOnly").unwrap_or(false) { "ro" } else { "rw" };
    let options = [
        ("type", "nfs".to_owned()),
        ("o", format!("addr={server},{access}")),
        ("device", format!(":{path}")),
    ];
    let options = options.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
    Some(Volume { key: key.to_owned(), driver: Some("local".to_owned()), options, ..Volume::default() })
}
