//! Comparisons without an agent, of applications with values that the user gives instead of the host. Only the host knows
//! which of these values are secret there.

use std::{collections::BTreeSet, path::Path};

use driftless_files::AppSpec;
use driftless_model::{
    AppName, ContentId, Format, Instance, Mount, MountSource, Observed, Stack, WorkloadName, in_place_path,
};

/// Number of digits of the id of a mounted file, a SHA-256.
const CONTENT_ID_LENGTH: usize = 64;

/// The folder of public files in the state directory of an agent.
const CONTENTS: &str = "contents";

/// The mounted files that an agent keeps on the disk, because they have no secret.
#[derive(Default)]
struct PublicMounts {
    contents: BTreeSet<ContentId>,
    /// The targets of those that are rewritten in place.
    places: BTreeSet<(WorkloadName, String)>,
}

/// The stack with public mounts where the host has public ones. Each given value counts as a secret, so that it is never shown,
/// and a file with such a value is a secret, too; the same file mounted from the disk is no difference. `None`: no value was
/// given, or no mount changes.
pub(super) fn with_public_mounts(spec: &AppSpec, stack: &Stack, observed: &Observed) -> Option<Stack> {
    // A Swarm has configs and secrets as objects of their own.
    let has_mounts = stack.format == Format::Compose && stack.swarm.is_empty();
    if !has_mounts || !spec.host_values.iter().any(|values| values.is_secret) {
        return None;
    }
    let mut public = PublicMounts::default();
    for instance in observed.containers() {
        public.add(&stack.app, instance);
    }
    let mut changed = stack.clone();
    for (name, workload) in &mut changed.workloads {
        let is_public = |target: &str| public.places.contains(&(name.clone(), target.to_owned()));
        for mount in workload.containers_mut().flat_map(|container| &mut container.mounts) {
            let source = match &mount.source {
                MountSource::Secret(id) if public.contents.contains(id) => MountSource::Content(id.clone()),
                MountSource::InPlace { secret: true, folder } if is_public(&mount.target) => {
                    MountSource::InPlace { secret: false, folder: *folder }
                }
                _ => continue,
            };
            mount.source = source;
        }
        for (target, file) in &mut workload.in_place {
            file.secret = file.secret && !is_public(target);
        }
    }
    (changed != *stack).then_some(changed)
}

impl PublicMounts {
    fn add(&mut self, app: &AppName, instance: &Instance) {
        for mount in &instance.config.mounts {
            self.contents.extend(public_content(&mount.source));
            if is_public_place(app, instance, mount) {
                self.places.insert((instance.instance.workload.clone(), mount.target.clone()));
            }
        }
    }
}

/// The content of a mount from the disk, also below a directory that is not known to be an agent's.
fn public_content(source: &MountSource) -> Option<ContentId> {
    match source {
        MountSource::Content(id) => Some(id.clone()),
        MountSource::Bind { path, .. } => {
            let (folder, id) = content_path(path)?;
            Path::new(folder).ends_with(CONTENTS).then(|| ContentId(id.to_owned()))
        }
        _ => None,
    }
}

/// Whether a mount is a file on the disk that is rewritten in place.
fn is_public_place(app: &AppName, instance: &Instance, mount: &Mount) -> bool {
    match &mount.source {
        MountSource::InPlace { secret, folder: _ } => !secret,
        MountSource::Bind { path, .. } => [false, true].into_iter().any(|is_folder| {
            let place = in_place_path(app, &instance.instance, &mount.target, is_folder);
            Path::new(path).ends_with(Path::new(CONTENTS).join(place))
        }),
        _ => false,
    }
}

/// The folder and the id of a mounted file, if a path looks like that of one.
pub(super) fn content_path(path: &str) -> Option<(&str, &str)> {
    let is_id = |id: &str| id.len() == CONTENT_ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    path.rsplit_once('/').filter(|(_, id)| is_id(id))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use driftless_files::{HostValues, MemoryFiles};
    use driftless_manifest::{discover, render};
    use driftless_model::{AgentId, Mask, Policy, Record, StackHashes, Timestamp};
    use driftless_plan::{Target, World, plan};

    use super::*;

    /// An application with a config that has a value of the host.
    fn rendered(service: &str, is_secret: bool) -> (AppSpec, Stack) {
        let compose = format!(
            "services: {{web: {{image: 'web:1', configs: [site]{service}}}}}\n\
             configs: {{site: {{content: 'at ${{DOMAIN:?}}'}}}}\n"
        );
        let files = MemoryFiles::new([("shop/compose.yaml", compose.as_str())]);
        let mut spec = discover(&files, "", "apps", &[]).apps.remove(0);
        spec.host_values = vec![HostValues {
            source: "--variable".to_owned(),
            name: Some("DOMAIN".to_owned()),
            text: "a.example".into(),
            is_shared: false,
            is_secret,
        }];
        let stack = render(&files, &spec).stack.unwrap();
        (spec, stack)
    }

    /// The containers of a stack.
    fn deployed(stack: &Stack) -> Observed {
        let (agent, policy, images) = (AgentId("a1".to_owned()), Policy::default(), BTreeMap::new());
        let (hashes, mask) = (&StackHashes::of(stack), Mask::new([7; 32]));
        let (agent, policy, images, mask) = (&agent, &policy, &images, &mask);
        let target = Target { stack, hashes, reached: None, agent, policy, images, mask };
        let mut world = World::new(Observed::default());
        let now = Timestamp(1);
        for step in plan(&target, &Observed::default(), &Record::default(), now).steps {
            world.apply(agent, &step.action, now).unwrap();
        }
        assert_eq!(world.observed.instances.len(), 1);
        world.observed
    }

    /// The same containers, for a command that does not know the directories of their agent.
    fn with_unknown_directories(mut observed: Observed, app: &AppName) -> Observed {
        for instance in observed.instances.values_mut() {
            let id = instance.instance.clone();
            for mount in &mut Arc::make_mut(&mut instance.config).mounts {
                let path = match &mount.source {
                    MountSource::Content(content) => content.0.clone(),
                    _ => in_place_path(app, &id, &mount.target, false).display().to_string(),
                };
                let path = format!("/srv/state/{CONTENTS}/{path}");
                mount.source = MountSource::Bind { path, create: false, propagation: None, selinux: None };
            }
        }
        observed
    }

    #[test]
    fn given_value_that_is_public_on_the_host_is_no_difference() {
        for service in ["", ", x-driftless: {on-change: restart}"] {
            let (host_spec, on_host) = rendered(service, false);
            let (spec, given) = rendered(service, true);
            let hashes = |stack: &Stack| StackHashes::of(stack).specs;
            assert_ne!(hashes(&given), hashes(&on_host), "{service}");
            let observed = deployed(&on_host);
            let unknown = with_unknown_directories(observed.clone(), &spec.name);
            for observed in [&observed, &unknown] {
                let same = with_public_mounts(&spec, &given, observed).unwrap();
                assert_eq!(hashes(&same), hashes(&on_host), "{service}");
                assert_eq!(same.secret_values, given.secret_values);
                // Without given values each secret is one of Git.
                assert_eq!(with_public_mounts(&host_spec, &given, observed), None);
            }
            assert_eq!(with_public_mounts(&spec, &given, &deployed(&given)), None, "it is a secret there");
        }
    }
}
