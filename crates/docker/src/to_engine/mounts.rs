//! The mounts of a container: in the long form, unless only the short one supports an option.
#![expect(clippy::disallowed_types, reason = "the engine's types contain hash maps")]

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use bollard::models as api;
use driftless_model::{Mount, MountOptions, MountSource, in_place_path, label};
use driftless_plan::Creation;

use super::values::{hash_map, path_text, signed};
use crate::{mount_paths::MountPaths, transport::ApiVersion};

/// From this version on a bind mount in the long form can create its folder.
const CREATE_MOUNTPOINT: ApiVersion = ApiVersion::new(1, 42);

/// Mounts in the three fields of a create call.
pub(super) struct MountFields {
    /// In the form `source:target:options`: the engine creates a missing source.
    pub(super) binds: Vec<String>,
    /// In the long form: a missing source is an error.
    pub(super) mounts: Vec<api::Mount>,
    /// Memory file systems with options that the long form does not support, by target.
    pub(super) tmpfs: HashMap<String, String>,
}

/// Sorts the mounts into the fields of a create call.
pub(super) fn mount_fields(
    wanted: &[Mount],
    creation: &Creation,
    paths: &MountPaths,
    version: ApiVersion,
) -> MountFields {
    let mut fields = MountFields { binds: Vec::new(), mounts: Vec::new(), tmpfs: HashMap::new() };
    let all_options = &creation.container.host.mount_options;
    for mount in wanted {
        let Mount { target, source, read_only } = mount;
        let options = all_options.get(target).cloned().unwrap_or_default();
        let long = |typ, source: Option<String>, read_only: bool| api::Mount {
            target: Some(target.clone()),
            source,
            typ: Some(typ),
            read_only: Some(read_only),
            ..api::Mount::default()
        };
        let fixed =
            |dir: &Path, path: &Path| long(api::MountType::BIND, Some(path_text(&dir.join(path))), true);
        fields.mounts.push(match source {
            MountSource::Volume { name, no_copy } => api::Mount {
                volume_options: volume_options(*no_copy, &options),
                ..long(api::MountType::VOLUME, Some(name.clone()), *read_only)
            },
            // A part mounts volumes of its pod. The engine would copy the image's files and the mode of their folder into an empty
            // one, also where another container of the pod has prepared it.
            MountSource::Anonymous => api::Mount {
                volume_options: volume_options(creation.part.is_some(), &options),
                ..long(api::MountType::VOLUME, creation.inherit.get(target).cloned(), *read_only)
            },
            MountSource::Image(image) => api::Mount {
                image_options: options.subpath.map(|it| api::MountImageOptions { subpath: Some(it) }),
                ..long(api::MountType::IMAGE, Some(image.clone()), *read_only)
            },
            MountSource::Empty => api::Mount {
                volume_options: Some(api::MountVolumeOptions {
                    no_copy: Some(true),
                    labels: Some(hash_map(&with_group(
                        &[(label::EMPTY.to_owned(), creation.agent.to_string())].into(),
                        &options,
                    ))),
                    driver_config: in_memory(&options),
                    ..api::MountVolumeOptions::default()
                }),
                ..long(api::MountType::VOLUME, None, *read_only)
            },
            // Only the short form relabels for SELinux, and only it creates the folder on every engine.
            MountSource::Bind { path, create, propagation, selinux }
                if (*create && options.recursive.is_none()) || selinux.is_some() =>
            {
                let options = [read_only.then_some("ro"), selinux.as_deref(), propagation.as_deref()];
                let options: Vec<&str> = options.into_iter().flatten().collect();
                let options =
                    if options.is_empty() { String::new() } else { format!(":{}", options.join(",")) };
                fields.binds.push(format!("{path}:{target}{options}"));
                continue;
            }
            MountSource::Bind { path, create, propagation, selinux: _ } => api::Mount {
                bind_options: bind_options(
                    *create && version >= CREATE_MOUNTPOINT,
                    propagation.as_deref(),
                    &options,
                ),
                ..long(api::MountType::BIND, Some(path.clone()), *read_only)
            },
            MountSource::Tmpfs { size, mode } if !options.tmpfs.is_empty() => {
                let options = tmpfs_options(*size, *mode, *read_only, &options);
                fields.tmpfs.insert(target.clone(), options);
                continue;
            }
            MountSource::Tmpfs { size, mode } => api::Mount {
                tmpfs_options: Some(api::MountTmpfsOptions {
                    size_bytes: size.map(signed),
                    mode: mode.map(i64::from),
                    options: None,
                }),
                ..long(api::MountType::TMPFS, None, *read_only)
            },
            MountSource::Content(id) => fixed(&paths.content, Path::new(&id.0)),
            MountSource::Secret(id) => fixed(&paths.secret, Path::new(&id.0)),
            MountSource::InPlace { secret, folder } => {
                let dir = if *secret { &paths.secret } else { &paths.content };
                fixed(dir, &in_place_path(&creation.app, &creation.instance, target, *folder))
            }
            MountSource::AppFolder(relative) => {
                let folder = paths.app.join(creation.app.as_str());
                let path = if relative == "." { folder } else { folder.join(relative) };
                long(api::MountType::BIND, Some(path_text(&path)), *read_only)
            }
        });
    }
    inherit_from_image(&mut fields.mounts, wanted, &creation.inherit);
    fields
}

fn volume_options(no_copy: bool, options: &MountOptions) -> Option<api::MountVolumeOptions> {
    let MountOptions { subpath, labels, recursive: _, tmpfs: _, group: _ } = options;
    let labels = with_group(labels, options);
    let is_set = no_copy || subpath.is_some() || !labels.is_empty();
    is_set.then(|| api::MountVolumeOptions {
        no_copy: no_copy.then_some(true),
        subpath: subpath.clone(),
        labels: (!labels.is_empty()).then(|| hash_map(&labels)),
        driver_config: None,
    })
}

/// The driver of a volume in memory; `None` for any other volume.
fn in_memory(options: &MountOptions) -> Option<api::MountVolumeOptionsDriverConfig> {
    let of = [("type", "tmpfs".to_owned()), ("device", "tmpfs".to_owned()), ("o", options.tmpfs.join(","))];
    (!options.tmpfs.is_empty()).then(|| api::MountVolumeOptionsDriverConfig {
        name: Some("local".to_owned()),
        options: Some(of.map(|(name, value)| (name.to_owned(), value)).into()),
    })
}

/// The labels with the group that a volume must belong to.
fn with_group(labels: &BTreeMap<String, String>, options: &MountOptions) -> BTreeMap<String, String> {
    let mut all = labels.clone();
    all.extend(options.group.map(|it| (label::GROUP.to_owned(), it.to_string())));
    all
}

fn bind_options(
    create: bool,
    propagation: Option<&str>,
    options: &MountOptions,
) -> Option<api::MountBindOptions> {
    let propagation = propagation.and_then(|it| it.parse().ok());
    let is = |word: &str| (options.recursive.as_deref() == Some(word)).then_some(true);
    let is_set = create || propagation.is_some() || options.recursive.is_some();
    is_set.then(|| api::MountBindOptions {
        propagation,
        create_mountpoint: create.then_some(true),
        non_recursive: is("disabled"),
        read_only_non_recursive: is("writable"),
        read_only_force_recursive: is("readonly"),
    })
}

/// Adds the volumes that the image declares and the manifest does not mention: their data comes from the replaced container.
fn inherit_from_image(mounts: &mut Vec<api::Mount>, wanted: &[Mount], inherit: &BTreeMap<String, String>) {
    for (target, volume) in inherit {
        if wanted.iter().all(|it| it.target != *target) {
            mounts.push(api::Mount {
                target: Some(target.clone()),
                source: Some(volume.clone()),
                typ: Some(api::MountType::VOLUME),
                ..api::Mount::default()
            });
        }
    }
}

/// The options of a memory file system as `--tmpfs` takes them: `size=64m,mode=1777,noexec`.
fn tmpfs_options(size: Option<u64>, mode: Option<u32>, read_only: bool, options: &MountOptions) -> String {
    let size = size.map(|it| format!("size={it}"));
    let mode = mode.map(|it| format!("mode={it:o}"));
    let read_only = read_only.then(|| "ro".to_owned());
    let all: Vec<String> =
        [size, mode, read_only].into_iter().flatten().chain(options.tmpfs.iter().cloned()).collect();
    all.join(",")
}
