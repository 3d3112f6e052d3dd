//! `volumes` and `tmpfs` of a service, in the short and the long syntax.

use driftless_model::MountOptions;
use driftless_yaml::Kind;

use crate::{
    read::{
        common::object_labels,
        image_name,
        on_change::on_change,
        types::{Change, VolumeMount, VolumeSource},
    },
    spec::{
        keys::{MOUNT, MOUNT_BIND, MOUNT_IMAGE, MOUNT_TMPFS, MOUNT_VOLUME},
        paths,
        scalar::{self, Plain},
        short,
        value::{Placed, Read as _, Value},
    },
};

/// The entries of `volumes`.
pub(crate) fn volumes(value: &Value<'_>) -> Vec<Placed<VolumeMount>> {
    let mut mounts = Vec::new();
    for item in value.sequence() {
        let mount = match &item.node.kind {
            Kind::Mapping(_) => long_volume(&item),
            Kind::Scalar { .. } | Kind::Sequence(_) => short_volume(&item),
        };
        mounts.extend(mount.map(|mount| item.placed(mount)));
    }
    mounts
}

fn short_volume(value: &Value<'_>) -> Option<VolumeMount> {
    let text = value.owned()?;
    let volume = match short::volume(&text) {
        Ok(volume) => volume,
        Err(message) => {
            value.error(message);
            return None;
        }
    };
    let short::ShortVolume { source, target, read_only, no_copy, propagation, selinux, ignored } = volume;
    for mode in ignored {
        value.warning(format!("`{mode}` is ignored: it has no meaning on Linux"));
    }
    let source = match source {
        None => VolumeSource::Anonymous,
        Some(path) if path.starts_with(['.', '/', '~', '\\']) || path.contains(':') => {
            VolumeSource::Path { path, create: true, propagation, selinux }
        }
        Some(key) => {
            warn_of_named(value, propagation.as_deref(), selinux.as_deref());
            VolumeSource::Named { key, no_copy }
        }
    };
    Some(VolumeMount { target, read_only, source, options: MountOptions::default(), on_change: None })
}

/// Warns of options that only a path can have. The engine labels the folder of a volume as shared by itself.
fn warn_of_named(value: &Value<'_>, propagation: Option<&str>, selinux: Option<&str>) {
    for option in propagation.into_iter().chain(selinux.filter(|label| *label != "z")) {
        value.warning(format!("`{option}` has no effect on a named volume"));
    }
}

/// A volume in the long syntax.
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

fn long_volume(item: &Value<'_>) -> Option<VolumeMount> {
    let mut long = LongVolume::default();
    for (key, value) in item.fields(&MOUNT) {
        match key {
            "type" => long.kind = value.owned(),
            "source" => long.source = value.filled(),
            "target" => long.target = value.filled(),
            "read_only" => long.read_only = value.boolean().unwrap_or_default(),
            "bind" => long.bind(&value),
            "volume" => long.volume(&value),
            "tmpfs" => long.tmpfs(&value),
            "image" => long.image(&value),
            "x-driftless" => long.on_change = on_change(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    let Some(target) = long.target.take() else {
        item.error("needs a `target`");
        return None;
    };
    // `v:/data` in the short syntax is a path without a source.
    if long.source.is_none() && paths::is_windows(&target) {
        item.error_help(
            format!("`{target}` is read as a path on a Windows drive, because one letter is before the `:`"),
            "give the volume a name of two or more letters",
        );
        return None;
    }
    let (read_only, options, on_change) =
        (long.read_only, std::mem::take(&mut long.options), long.on_change.take());
    let source = long.source(item)?;
    Some(VolumeMount { target, read_only, source, options, on_change })
}

impl LongVolume {
    fn bind(&mut self, value: &Value<'_>) {
        for (key, value) in value.fields(&MOUNT_BIND) {
            match key {
                "propagation" => self.propagation = value.filled(),
                "create_host_path" => self.create = value.boolean(),
                "selinux" => self.selinux = value.filled(),
                "recursive" => match value.owned().as_deref() {
                    Some("enabled" | "") | None => {}
                    Some(word @ ("disabled" | "writable" | "readonly")) => {
                        self.options.recursive = Some(word.to_owned());
                    }
                    Some(_) => value.error("use `enabled`, `disabled`, `writable` or `readonly`"),
                },
                _ => value.refuse("is not supported yet"),
            }
        }
    }

    fn volume(&mut self, value: &Value<'_>) {
        for (key, value) in value.fields(&MOUNT_VOLUME) {
            match key {
                "nocopy" => self.no_copy = value.boolean().unwrap_or_default(),
                "labels" => self.options.labels = object_labels(&value),
                "subpath" => self.options.subpath = value.filled(),
                _ => value.refuse("is not supported yet"),
            }
        }
    }

    fn image(&mut self, value: &Value<'_>) {
        for (key, value) in value.fields(&MOUNT_IMAGE) {
            match key {
                "subpath" => self.options.subpath = value.filled(),
                _ => value.refuse("is not supported yet"),
            }
        }
    }

    fn tmpfs(&mut self, value: &Value<'_>) {
        for (key, value) in value.fields(&MOUNT_TMPFS) {
            match key {
                "size" => self.size = value.bytes(),
                "mode" => {
                    self.mode = match Plain::of(value.node) {
                        Some((text, Plain::Text)) => u32::from_str_radix(text, 8).ok(),
                        Some(_) | None => value.whole(),
                    };
                }
                _ => value.refuse("is not supported yet"),
            }
        }
    }

    /// The source, by the type. `None`: a mistake was reported.
    fn source(self, item: &Value<'_>) -> Option<VolumeSource> {
        match (self.kind.as_deref(), self.source) {
            (Some("volume"), None) => Some(VolumeSource::Anonymous),
            (Some("volume"), Some(key)) => {
                warn_of_named(item, self.propagation.as_deref(), self.selinux.as_deref());
                Some(VolumeSource::Named { key, no_copy: self.no_copy })
            }
            (Some("tmpfs"), _) => Some(VolumeSource::Tmpfs { size: self.size, mode: self.mode }),
            (Some("image"), Some(image)) => {
                let source = item.node.get("source").unwrap_or(item.node);
                image_name::check(&item.key("source", source), &image);
                Some(VolumeSource::Image(image))
            }
            (Some("bind"), Some(path)) => Some(VolumeSource::Path {
                path,
                // Both syntaxes create it by default.
                create: self.create.unwrap_or(true),
                propagation: self.propagation,
                selinux: self.selinux,
            }),
            (kind, _) => {
                match kind {
                    Some("image") => item.error("a mounted image needs a `source`"),
                    Some("bind") => item.error("a bind mount needs a `source`"),
                    Some("cluster") => item.refuse("cluster volumes need Swarm"),
                    Some("npipe") => item.refuse("named pipes need Windows"),
                    Some(other) => {
                        item.error(format!("`{other}` is not a type; use `bind`, `volume` or `tmpfs`"));
                    }
                    None => item.error("needs a `type`: `bind`, `volume` or `tmpfs`"),
                }
                None
            }
        }
    }
}

/// The options of a tmpfs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TmpfsOptions {
    /// In bytes.
    pub(crate) size: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) read_only: bool,
    /// All others as written, sorted.
    pub(crate) others: Vec<String>,
}

/// Reads `size=64m,mode=1777,noexec`.
pub(crate) fn tmpfs_options(text: &str) -> Result<TmpfsOptions, String> {
    let mut options = TmpfsOptions::default();
    for option in text.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=').unwrap_or((option, "")) {
            ("size", value) => match scalar::bytes(value) {
                Some(bytes) => options.size = Some(bytes),
                // A share of the memory, which only the kernel knows.
                None if value.ends_with('%') => options.others.push(option.to_owned()),
                None => return Err(format!("`{value}` is not a size")),
            },
            ("mode", value) => match u32::from_str_radix(value, 8) {
                Ok(bits) => options.mode = Some(bits),
                Err(_) => return Err(format!("`{value}` is not a file mode")),
            },
            ("ro", "") => options.read_only = true,
            // The defaults of the engine.
            ("rw" | "noexec" | "nosuid" | "nodev", "") => {}
            _ => options.others.push(option.to_owned()),
        }
    }
    options.others.sort_unstable();
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tmpfs_options_are_read() {
        let size_and_mode = tmpfs_options("size=64m,mode=1777,rw").unwrap();
        assert_eq!((size_and_mode.size, size_and_mode.mode), (Some(64 << 20), Some(0o1777)));
        assert!(!size_and_mode.read_only && size_and_mode.others.is_empty());
        let others = tmpfs_options("ro,uid=1000,exec,noexec,size=10%").unwrap();
        assert!(others.read_only);
        assert_eq!(others.others, ["exec", "size=10%", "uid=1000"]);
        assert!(tmpfs_options("size=much").is_err());
        assert!(tmpfs_options("mode=rw").is_err());
    }
}
