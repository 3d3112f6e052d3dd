//! The mounts of a service, and the volumes of the stack.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    EngineKind, InPlace, Mount, MountOptions, MountSource, Volume, Workload, WorkloadName,
};

use crate::{
    lower::{
        context::Lowering,
        mounts::{FileKind, ServiceMounts, target_of},
    },
    read::types::{FileMount, Service, VolumeMount, VolumeSource},
    spec::{paths, value::Placed},
};

impl Lowering<'_> {
    /// The mounts of a service, and those that are rewritten in place, by target. Mount options go to `options`.
    pub(crate) fn mounts(
        &mut self,
        service: &Service,
        options: &mut BTreeMap<String, MountOptions>,
    ) -> (Vec<Mount>, BTreeMap<String, InPlace>) {
        let mut mounts: Vec<Mount> = Vec::new();
        let mut in_place = BTreeMap::new();
        let default = service.on_change.as_ref();
        let targets = service.volumes.iter().chain(&service.tmpfs);
        let targets: BTreeSet<String> = targets.map(|mount| paths::clean(&mount.value.target)).collect();
        let all = ServiceMounts { targets, has_on_change: default.is_some() };
        for volume in &service.volumes {
            let Some(mut mount) = self.volume(volume, &all) else { continue };
            in_place.remove(&mount.target);
            self.rewrite(&mut mount, volume.value.on_change.as_ref(), default, &mut in_place);
            options.insert(mount.target.clone(), volume.value.options.clone());
            match mounts.iter_mut().find(|it| it.target == mount.target) {
                // As in Compose, the later one counts.
                Some(before) => {
                    let message = format!("replaces an earlier mount on `{}`", mount.target);
                    self.findings.push(volume.warning(message));
                    *before = mount;
                }
                None => mounts.push(mount),
            }
        }
        let by_volumes: BTreeSet<String> = mounts.iter().map(|mount| mount.target.clone()).collect();
        for tmpfs in &service.tmpfs {
            let Some(mount) = self.volume(tmpfs, &all) else { continue };
            options.insert(mount.target.clone(), tmpfs.value.options.clone());
            mounts.push(mount);
        }
        options.retain(|_, it| *it != MountOptions::default());
        let user = service.container.user.as_deref();
        let is_hidden = |mount: &Placed<FileMount>, kind| by_volumes.contains(&target_of(&mount.value, kind));
        let files = [
            (&service.configs, &self.project.configs, FileKind::Config, "config"),
            (&service.secrets, &self.project.secrets, FileKind::Secret, "secret"),
        ];
        for (used, defined, kind, word) in files {
            for mount in used {
                let key = &mount.value.source;
                let lowered = match defined.get(key) {
                    // The Swarm has it, and no file is mounted.
                    Some(source) if self.is_of_swarm(source) => continue,
                    // As in Compose, the volume counts.
                    Some(_) if self.engine == EngineKind::Docker && is_hidden(mount, kind) => {
                        let message = "is not mounted: an entry of `volumes` has the same target";
                        self.findings.push(mount.warning(message));
                        continue;
                    }
                    Some(source) => self.files_to_mount.file(mount, source, kind, user),
                    None => Err(mount.error(format!("refers to undefined {word} `{key}`"))),
                };
                match lowered {
                    Ok(mut lowered) => {
                        self.rewrite(&mut lowered, mount.value.on_change.as_ref(), default, &mut in_place);
                        mounts.push(lowered);
                    }
                    Err(finding) => self.findings.push(finding),
                }
            }
        }
        mounts.sort_unstable();
        (mounts, in_place)
    }

    fn volume(&mut self, mount: &Placed<VolumeMount>, service: &ServiceMounts) -> Option<Mount> {
        let name = match &mount.value.source {
            VolumeSource::Named { key, no_copy: _ } => self
                .project
                .volumes
                .get(key)
                .map(|it| self.name_in_docker(key, it.name.as_ref(), it.spec.external)),
            VolumeSource::Anonymous
            | VolumeSource::Image(_)
            | VolumeSource::Path { .. }
            | VolumeSource::Tmpfs { .. } => None,
        };
        match self.files_to_mount.volume(mount, name, service) {
            Ok(mount) => Some(mount),
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    /// The paths in the repository that active services mount read-write, each with the first such service. Jobs are among them.
    pub(crate) fn written_paths(&self) -> BTreeMap<String, String> {
        let mut written = BTreeMap::new();
        // A Swarm has no folder that services share.
        if self.engine == EngineKind::Swarm {
            return written;
        }
        for (key, service) in self.project.services.iter().filter(|(_, service)| self.is_active(service)) {
            for mount in service.volumes.iter().filter(|mount| !mount.value.read_only) {
                let VolumeSource::Path { path, .. } = &mount.value.source else { continue };
                if path.starts_with('/') {
                    continue;
                }
                // One that is not supported is reported with its service.
                if let Ok(path) = self.files_to_mount.resolve(path) {
                    written.entry(path).or_insert_with(|| key.clone());
                }
            }
        }
        written
    }

    /// The named volumes that workloads mount, by name in Docker.
    pub(crate) fn volumes(&self, workloads: &BTreeMap<WorkloadName, Workload>) -> BTreeMap<String, Volume> {
        let mounts = || workloads.values().flat_map(|it| &it.container.mounts);
        let is_used = |name: &str| {
            mounts().any(|it| matches!(&it.source, MountSource::Volume { name: used, .. } if used == name))
        };
        let named = self.project.volumes.iter().map(|(key, volume)| {
            (self.name_in_docker(key, volume.name.as_ref(), volume.spec.external), volume.spec.clone())
        });
        named.filter(|(name, _)| is_used(name)).collect()
    }
}
