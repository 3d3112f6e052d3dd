//! Converts mounts to the volumes, configs and secrets of a Compose service.

use serde_json::{Value, json};

use super::{
    compose::ComposeWriter,
    compose_values::escaped,
    output::{flag, object},
};
use driftless_model::{Access, Content, ContentId, Mount, MountSource, Subject, WorkloadName};

impl ComposeWriter<'_> {
    /// Volumes, configs and secrets.
    pub(super) fn mounts(&mut self, at: Subject<'_>) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        let (mut volumes, mut configs, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
        for mount in &at.workload.container.mounts {
            let in_place = at.workload.in_place.get(&mount.target).map(|it| it.content.clone());
            match &mount.source {
                MountSource::InPlace { secret, folder: _ } => {
                    let why = format!("the files at {} are not changed in a running container", mount.target);
                    self.lost.field(at, "mounts", why);
                    match in_place {
                        Some(id) if *secret => secrets.extend(self.secret(at, mount, &id)),
                        Some(id) => configs.extend(self.files(at, mount, &id)),
                        None => {}
                    }
                }
                MountSource::Content(id) => configs.extend(self.files(at, mount, id)),
                MountSource::Secret(id) => secrets.extend(self.secret(at, mount, id)),
                MountSource::Volume { .. }
                | MountSource::Anonymous
                | MountSource::Empty
                | MountSource::Bind { .. }
                | MountSource::Tmpfs { .. }
                | MountSource::Image(_)
                | MountSource::AppFolder(_) => volumes.extend(self.volume(at, mount)),
            }
        }
        (volumes, configs, secrets)
    }

    fn volume(&mut self, at: Subject<'_>, mount: &Mount) -> Option<Value> {
        let Mount { target, source, read_only } = mount;
        let options = at.workload.container.host.mount_options.get(target);
        let sub_path = options.and_then(|it| it.subpath.clone());
        let (kind, from, more) = match source {
            MountSource::Volume { name, no_copy } => {
                let key = self.stack.volumes.get(name).map_or(name, |it| &it.key);
                let more = object([("nocopy", flag(*no_copy)), ("subpath", json!(sub_path))]);
                ("volume", Some(key.clone()), ("volume", more))
            }
            MountSource::Anonymous => ("volume", None, ("volume", Value::Null)),
            MountSource::Empty if options.is_some_and(|it| !it.tmpfs.is_empty()) => {
                let option = |name: &str| options.and_then(|it| it.tmpfs_option(name));
                let size = option("size").and_then(|it| it.parse::<u64>().ok());
                let mode = option("mode").and_then(|it| u32::from_str_radix(it, 8).ok());
                if option("gid").is_some() {
                    let message = format!("the group that owns the memory at {target}");
                    self.lost.field(at, "mounts", message);
                }
                ("tmpfs", None, ("tmpfs", object([("size", json!(size)), ("mode", json!(mode))])))
            }
            MountSource::Empty => {
                let message = format!(
                    "the volume at {target} has the image's files, and is not emptied with a new container"
                );
                self.lost.field(at, "mounts", message);
                ("volume", None, ("volume", Value::Null))
            }
            MountSource::Bind { path, create, propagation, selinux } => {
                let more = object([
                    ("create_host_path", json!(create)),
                    ("propagation", json!(propagation)),
                    ("selinux", json!(selinux)),
                ]);
                ("bind", Some(escaped(path)), ("bind", more))
            }
            // The long syntax has no further options.
            MountSource::Tmpfs { .. } if options.is_some_and(|it| !it.tmpfs.is_empty()) => return None,
            MountSource::Tmpfs { size, mode } => {
                ("tmpfs", None, ("tmpfs", object([("size", json!(size)), ("mode", json!(mode))])))
            }
            MountSource::Image(image) => {
                ("image", Some(image.clone()), ("image", object([("subpath", json!(sub_path))])))
            }
            MountSource::AppFolder(path) => {
                let message = format!("the folder `{path}` of the application at {target}");
                self.lost.field(at, "mounts", message);
                return None;
            }
            MountSource::Content(_) | MountSource::Secret(_) | MountSource::InPlace { .. } => return None,
        };
        // The files of an image are always read-only.
        let is_fixed = *read_only && !matches!(source, MountSource::Image(_));
        Some(object([
            ("type", json!(kind)),
            ("source", json!(from)),
            ("target", json!(target)),
            ("read_only", flag(is_fixed)),
            more,
        ]))
    }

    /// Writes each file into the Compose file as a config.
    fn files(&mut self, at: Subject<'_>, mount: &Mount, id: &ContentId) -> Vec<Value> {
        let files = self.files_of(at, mount, id);
        let mut all = Vec::new();
        for (target, bytes, access) in files {
            let Ok(text) = std::str::from_utf8(&bytes) else {
                self.lost.field(
                    at,
                    "mounts",
                    format!("the file at {target} is not text; commit it and mount it"),
                );
                continue;
            };
            let name = name_of(at.name, &target);
            self.configs.insert(name.clone(), json!({ "content": escaped(text) }));
            all.push(mounted(&name, &target, access));
        }
        all
    }

    /// Writes each file as a secret whose value comes from a variable that the user must set.
    fn secret(&mut self, at: Subject<'_>, mount: &Mount, id: &ContentId) -> Vec<Value> {
        let files = self.files_of(at, mount, id);
        let mut all = Vec::new();
        for (target, _, access) in files {
            let name = name_of(at.name, &target);
            let variable = name.to_uppercase().replace(|it: char| !it.is_ascii_alphanumeric(), "_");
            let message = format!("the value of the secret at {target}: set the variable `{variable}`");
            self.lost.field(at, "mounts", message);
            self.variables.insert(name.clone(), json!({ "environment": variable }));
            all.push(mounted(&name, &target, access));
        }
        all
    }

    /// The files of a mount, each with its path in the container.
    fn files_of(
        &mut self,
        at: Subject<'_>,
        mount: &Mount,
        id: &ContentId,
    ) -> Vec<(String, std::sync::Arc<[u8]>, Access)> {
        let target = &mount.target;
        match self.contents.get(id) {
            None => {
                self.lost.field(at, "mounts", format!("the files at {target} are not available"));
                Vec::new()
            }
            Some(Content::File { bytes, executable }) => {
                vec![(target.clone(), bytes.clone(), Access::of(*executable))]
            }
            Some(Content::Owned { bytes, mode, uid: 0, gid }) => {
                let access = Access::Asked { mode: *mode, group: (*gid != 0).then_some(*gid) };
                vec![(target.clone(), bytes.clone(), access)]
            }
            Some(Content::Owned { bytes, mode, uid, gid }) => {
                self.lost.field(
                    at,
                    "mounts",
                    format!("the mode and owner ({mode:04o} {uid}:{gid}) of {target}"),
                );
                vec![(target.clone(), bytes.clone(), Access::of(mode & 0o111 != 0))]
            }
            Some(Content::Folder(tree)) => {
                let message = format!("the folder at {target}: its files are mounted one by one");
                self.lost.field(at, "mounts", message);
                let file = |(path, (bytes, access)): (&String, &(std::sync::Arc<[u8]>, Access))| {
                    (format!("{}/{path}", target.trim_end_matches('/')), bytes.clone(), *access)
                };
                tree.iter().map(file).collect()
            }
        }
    }
}

/// The mount of a config or secret, with `mode` and `gid` if they are not the defaults.
fn mounted(name: &str, target: &str, access: Access) -> Value {
    let mode = (access != Access::Read).then(|| access.mode());
    let group = if let Access::Asked { group, .. } = access { group } else { None };
    let group = group.map(|it| it.to_string());
    object([("source", json!(name)), ("target", json!(target)), ("mode", json!(mode)), ("gid", json!(group))])
}

fn name_of(workload: &WorkloadName, target: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '.' { it } else { '_' };
    format!("{workload}-{}", target.trim_start_matches('/')).chars().map(plain).collect()
}
