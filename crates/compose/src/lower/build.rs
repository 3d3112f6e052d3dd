//! The lowering of `build`: from the section of a service to a [`Build`] whose content has a name. Nothing is built here.
//!
//! The context is a folder of the commit. A context by URL is refused, because its content is not known; the
//! Dockerfile may fetch anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_files::{
    Context, Files,
    context::DOCKERFILE,
    dockerfile::{images_of_target, images_up_to_target},
};
use driftless_model::{
    Build, Dockerfile, Finding, ImageRef, MountSource, PullPolicy, Workload, WorkloadName, is_helper_name,
};

use crate::{
    load::variables::Variables,
    lower::mounts::{FileKind, MountedFiles},
    read::{
        image_name,
        types::{BuildSection, FileMount, FileSource},
    },
    spec::{
        paths,
        value::{Pair, Placed},
    },
};

/// The surroundings of a build.
pub(crate) struct BuildInputs<'a> {
    pub(crate) files: &'a dyn Files,
    /// The folder of the application.
    pub(crate) folder: &'a str,
    pub(crate) project: &'a str,
    pub(crate) variables: &'a Variables,
    pub(crate) secrets: &'a BTreeMap<String, FileSource>,
    /// The platform of the service, if it is given.
    pub(crate) platform: Option<&'a String>,
}

/// The images built for one application.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    /// By the name of the image.
    built: BTreeMap<String, (String, Build)>,
    /// By service.
    services: BTreeMap<WorkloadName, BuiltService>,
    /// Digests of files with the Dockerfile, by context and place of the Dockerfile, because several services may be built from one folder.
    files: BTreeMap<(String, String), ReadContext>,
}

/// The digest of the files of a context, and its Dockerfile.
type ReadContext = (String, Arc<[u8]>);

/// The image that one service builds.
#[derive(Debug)]
struct BuiltService {
    place: Placed<()>,
    name: String,
    /// All its names without the digest.
    tags: BTreeSet<String>,
    /// The images that its Dockerfile names for its target, or all up to it if an engine may need the classic builder.
    named: BTreeSet<String>,
}

/// For each service that is built from others: the names in its Dockerfile, with the services that build these images.
type Bases = BTreeMap<WorkloadName, BTreeMap<String, WorkloadName>>;

impl Builds {
    /// Lowers the build of a service. Returns the image reference, named by content, and the build.
    pub(crate) fn lower(
        &mut self,
        section: &BuildSection,
        key: &str,
        image: &str,
        inputs: &BuildInputs<'_>,
        files: &mut MountedFiles<'_>,
    ) -> Result<(String, Build), Vec<Finding>> {
        let name = if image.is_empty() { format!("{}-{key}", inputs.project) } else { image.to_owned() };
        if !image_name::is_valid(&name) {
            let finding = section.place.error(format!("`{name}` is not a valid name for a built image"));
            return Err(vec![finding.help("set `image` to a name in lower case without a digest")]);
        }
        let mut build = section.spec.clone();
        build.tags.insert(0, name.clone());
        if let Some(helper) = build.tags.iter().find(|tag| is_helper_name(tag)) {
            let finding =
                section.place.error(format!("`{helper}` is a name of an image that the agent makes itself"));
            return Err(vec![finding.help("choose another name")]);
        }
        if let Some(platform) = inputs.platform {
            build.platforms = vec![platform.clone()];
        }
        let value =
            |pair: &Pair| pair.value.clone().or_else(|| inputs.variables.get(&pair.name).map(str::to_owned));
        build.args = section.args.iter().filter_map(|it| Some((it.name.clone(), value(it)?))).collect();
        (build.context, build.dockerfile) = places(section, inputs).map_err(|it| vec![it])?;
        build.secrets = secrets(section, inputs, files)?;
        let dockerfile = match &build.dockerfile {
            Dockerfile::Path(path) => path.clone(),
            Dockerfile::Inline(text) => format!("\n{text}"),
        };
        let place = (build.context.clone(), dockerfile);
        let known = self.files.get(&place).cloned();
        let (digest, dockerfile) = if let Some(known) = known {
            known
        } else {
            let context = Context::of(inputs.files, &build);
            let read = context.and_then(|it| Ok((it.digest(inputs.files)?, it.dockerfile)));
            let read = read.map_err(|message| vec![section.place.error(message)])?;
            self.files.insert(place, read.clone());
            read
        };
        build.files = digest;
        build.identify();
        let reference = build.reference(&name);
        self.built.insert(familiar(&name), (reference.clone(), build.clone()));
        let may_be_classic = build.shm_size.is_some() || !build.ulimits.is_empty();
        let images = if may_be_classic { images_up_to_target } else { images_of_target };
        let service = BuiltService {
            place: section.place.clone(),
            tags: build.tags.iter().map(|tag| familiar(tag)).collect(),
            named: images(&dockerfile, &build.args, build.target.as_deref()),
            name,
        };
        self.services.insert(WorkloadName(key.to_owned()), service);
        Ok((reference, build))
    }

    /// Names the images of other services that a build begins or copies from by their content, which is thereby a part of its own. They are
    /// named one after the other, because the name of a base has to be final. Returns a finding if there is a cycle.
    pub(crate) fn add_bases(&mut self, workloads: &mut BTreeMap<WorkloadName, Workload>) -> Option<Finding> {
        let mut left = self.bases();
        while !left.is_empty() {
            let is_final =
                |bases: &BTreeMap<String, WorkloadName>| bases.values().all(|base| !left.contains_key(base));
            let next = left.iter().find(|(_, bases)| is_final(bases)).map(|(service, _)| service.clone());
            let Some(service) = next else { return self.cycle(&left) };
            let bases = left.remove(&service).unwrap_or_default();
            let image = |base: WorkloadName| Some(workloads.get(&base)?.container.image.clone());
            let bases = bases.into_iter().filter_map(|(name, base)| Some((name, image(base)?))).collect();
            self.set_bases(&service, bases, workloads);
        }
        None
    }

    fn set_bases(
        &mut self,
        service: &WorkloadName,
        bases: BTreeMap<String, String>,
        workloads: &mut BTreeMap<WorkloadName, Workload>,
    ) {
        let (Some(known), Some(workload)) = (self.services.get(service), workloads.get_mut(service)) else {
            return;
        };
        let Some(build) = &mut workload.build else { return };
        build.bases = bases;
        build.identify();
        let reference = build.reference(&known.name);
        let before = std::mem::replace(&mut workload.container.image, reference.clone());
        // Another service may have the last build of this name.
        if let Some(last) = self.built.get_mut(&familiar(&known.name)).filter(|last| last.0 == before) {
            *last = (reference, build.clone());
        }
    }

    /// A name of an image is that of the service with this `image`, else that of one with this tag. In its own Dockerfile it is that of a
    /// registry, as with `image: postgres:17` and `FROM postgres:17`.
    fn bases(&self) -> Bases {
        let mut owners: BTreeMap<String, &WorkloadName> =
            self.services.iter().map(|(service, built)| (familiar(&built.name), service)).collect();
        for (service, built) in &self.services {
            for tag in &built.tags {
                owners.entry(tag.clone()).or_insert(service);
            }
        }
        let bases_of = |built: &BuiltService| -> BTreeMap<String, WorkloadName> {
            let others = built.named.iter().map(|name| (name, familiar(name)));
            let others = others.filter(|(_, familiar)| !built.tags.contains(familiar));
            let found = others.filter_map(|(name, familiar)| {
                owners.get(&familiar).map(|service| (name.clone(), (*service).clone()))
            });
            found.collect()
        };
        let all = self.services.iter().map(|(service, built)| (service.clone(), bases_of(built)));
        all.filter(|(_, bases)| !bases.is_empty()).collect()
    }

    /// The finding about services that are built from each other.
    fn cycle(&self, left: &Bases) -> Option<Finding> {
        let mut path: Vec<&WorkloadName> = Vec::new();
        let mut next = left.keys().next()?;
        while !path.contains(&next) {
            path.push(next);
            next = left.get(next)?.values().find(|base| left.contains_key(*base))?;
        }
        let start = path.iter().position(|service| *service == next)?;
        let cycle = path.get(start..)?.iter().chain([&next]);
        let cycle: Vec<&str> = cycle.map(|service| service.as_str()).collect();
        let message = format!("these images are built from each other: {}", cycle.join(" → "));
        let finding = self.services.get(next)?.place.error(message);
        Some(finding.help("in one of their Dockerfiles, begin or copy from another image"))
    }

    /// Gives services that name or mount the image of another service the build of that image.
    pub(crate) fn share(&self, workloads: &mut BTreeMap<WorkloadName, Workload>) {
        for workload in workloads.values_mut() {
            for mount in &mut workload.container.mounts {
                let MountSource::Image(image) = &mut mount.source else { continue };
                if let Some((reference, _)) = self.built.get(&familiar(image)) {
                    image.clone_from(reference);
                }
            }
            if workload.build.is_some() || matches!(workload.pull, PullPolicy::Always | PullPolicy::Every(_))
            {
                continue;
            }
            if let Some((reference, build)) = self.built.get(&familiar(&workload.container.image)) {
                workload.container.image.clone_from(reference);
                workload.build = Some(build.clone());
                workload.pull = PullPolicy::IfNotPresent;
            }
        }
    }
}

/// The name of an image, the same for all texts that mean it.
fn familiar(name: &str) -> String {
    ImageRef::parse(name).familiar()
}

/// The warning that a `pull_policy` makes the build useless.
pub(crate) fn ignored(section: &BuildSection) -> Finding {
    section.place.warning("`build` is ignored: `pull_policy` takes the image from its registry")
}

/// The warning that a `pull_policy` does not build an image again.
pub(crate) fn never_pulled(section: &BuildSection) -> Finding {
    let message = "`pull_policy` is ignored without `image`: the image is built again when its inputs change in Git, and not by time";
    let help = "write the version of the base image into the Dockerfile, and change it there";
    section.place.warning(message).help(help)
}

/// Context and Dockerfile, from the repository's root.
#[expect(clippy::result_large_err, reason = "a finding is made rarely, and kept as it is")]
fn places(section: &BuildSection, inputs: &BuildInputs<'_>) -> Result<(String, Dockerfile), Finding> {
    let outside = |it: &Placed<String>| it.error(format!("`{}` is outside of the repository", it.value));
    let context = match &section.context {
        None => paths::join(inputs.folder, ".").unwrap_or_default(),
        Some(it) if is_remote(&it.value) => {
            let finding = it.error("a context by URL is not supported: the files must be in this repository");
            return Err(finding
                .help("add the folder to the repository, or build the image elsewhere and set `image`"));
        }
        Some(it) if it.value.starts_with(['/', '~']) => return Err(outside(it)),
        Some(it) => paths::join(inputs.folder, &it.value).ok_or_else(|| outside(it))?,
    };
    match (&section.dockerfile, &section.inline) {
        (Some(_), Some(inline)) => {
            Err(inline.error("`dockerfile` and `dockerfile_inline` exclude each other"))
        }
        (None, Some(inline)) => Ok((context, Dockerfile::Inline(inline.value.clone()))),
        (Some(it), None) if it.value.starts_with(['/', '~']) => Err(outside(it)),
        (Some(it), None) => {
            let path = paths::join(&context, &it.value).ok_or_else(|| outside(it))?;
            Ok((context, Dockerfile::Path(path)))
        }
        (None, None) => {
            let path = paths::join(&context, DOCKERFILE).unwrap_or_default();
            Ok((context, Dockerfile::Path(path)))
        }
    }
}

fn secrets(
    section: &BuildSection,
    inputs: &BuildInputs<'_>,
    files: &mut MountedFiles<'_>,
) -> Result<BTreeMap<String, driftless_model::ContentId>, Vec<Finding>> {
    let (mut secrets, mut findings) = (BTreeMap::new(), Vec::new());
    for mount in &section.secrets {
        let FileMount { source: key, target, on_change, .. } = &mount.value;
        if let Some(on_change) = on_change {
            findings.push(on_change.error("is only for mounts of containers"));
        }
        let lowered = match inputs.secrets.get(key) {
            Some(source) => files.file(mount, source, FileKind::Secret, None),
            None => Err(mount.error(format!("refers to undefined secret `{key}`"))),
        };
        match lowered.map(|it| it.source) {
            Ok(MountSource::Secret(id)) => {
                secrets.insert(target.as_ref().unwrap_or(key).clone(), id);
            }
            Ok(_) => findings
                .push(mount.error(format!("`{key}` is a file of the host, which a build cannot read"))),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() { Ok(secrets) } else { Err(findings) }
}

/// Whether a context is a remote repository or archive, in any syntax of the reference.
fn is_remote(context: &str) -> bool {
    let has_scheme = context.contains("://");
    let is_scp = context.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/'));
    has_scheme || is_scp || context.starts_with("github.com/")
}

#[cfg(test)]
mod tests {
    use super::is_remote;

    #[test]
    fn remote_contexts_are_recognized() {
        for remote in
            ["https://example.com/a.git#main", "git@example.com:a/b.git", "github.com/a/b", "git://h/a"]
        {
            assert!(is_remote(remote), "{remote}");
        }
        for local in [".", "./a", "../github.com/a", "a@b/c:d", "a"] {
            assert!(!is_remote(local), "{local}");
        }
    }
}
