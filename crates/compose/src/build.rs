//! `build:` of a service: reads its keys, and lowers it to a [`Build`] whose content has a name. Nothing is built here.
//!
//! The context is a folder of the commit. What would be fetched from elsewhere while building is not known by its
//! content, so contexts by URL are refused; the Dockerfile may fetch what it likes.

use std::collections::BTreeMap;

use super::{
    fields::{extra_hosts, file_mounts, labels, ulimits},
    mounts::{FileKind, Shelf},
    paths,
    reader::{Pair, Path, Placed, Reader},
    schema::{FileMount, FileSource},
    variables::Variables,
};
use driftless_files::{Context, Files, context::DOCKERFILE};
use driftless_model::{Build, Dockerfile, Finding, MountSource, PullPolicy, Workload, WorkloadName};
use driftless_yaml::{Entry, Kind, Node};

const KEYS: &str = "\
    additional_contexts args cache_from cache_to context dockerfile dockerfile_inline entitlements extra_hosts \
    isolation labels network no_cache no_cache_filter platforms privileged provenance pull sbom secrets shm_size ssh \
    tags target ulimits";

/// As written, with what is final already in `spec`.
#[derive(Debug)]
pub(super) struct BuildSection {
    place: Placed<()>,
    context: Option<Placed<String>>,
    dockerfile: Option<Placed<String>>,
    inline: Option<Placed<String>>,
    args: Vec<Pair>,
    secrets: Vec<Placed<FileMount>>,
    spec: Build,
}

/// A folder to build in, or all the keys.
pub(super) fn build(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<BuildSection> {
    let mut section = BuildSection {
        place: Reader::placed(node, path, ()),
        context: None,
        dockerfile: None,
        inline: None,
        args: Vec::new(),
        secrets: Vec::new(),
        spec: Build::default(),
    };
    if matches!(node.kind, Kind::Scalar { .. }) {
        section.context = Some(Reader::placed(node, path, reader.string(node, path)?));
        return Some(section);
    }
    for entry in reader.mapping(node, path) {
        let at = path.key(&entry.key);
        let is_read =
            own_key(reader, &mut section, entry, &at) || refused_key(reader, &mut section, entry, path);
        if !is_read {
            reader.unknown(entry, path, KEYS);
        }
    }
    Some(section)
}

fn own_key(reader: &mut Reader, section: &mut BuildSection, entry: &Entry, at: &Path<'_>) -> bool {
    let (node, spec) = (&entry.value, &mut section.spec);
    let placed = |text: Option<String>| text.map(|it| Reader::placed(node, at, it));
    match entry.key.as_str() {
        "context" => section.context = placed(reader.string(node, at)),
        "dockerfile" => section.dockerfile = placed(reader.string(node, at)),
        "dockerfile_inline" => section.inline = placed(reader.string(node, at)),
        "args" => section.args = reader.pairs(node, at),
        "secrets" => section.secrets = file_mounts(reader, node, at),
        "target" => spec.target = reader.string(node, at).filter(|it| !it.is_empty()),
        "labels" => spec.labels = labels(reader, node, at),
        "extra_hosts" => spec.extra_hosts = extra_hosts(reader, node, at),
        "shm_size" => spec.shm_size = reader.bytes(node, at).filter(|it| *it > 0),
        "ulimits" => spec.ulimits = ulimits(reader, node, at),
        "no_cache" => spec.no_cache = reader.boolean(node, at).unwrap_or_default(),
        "pull" => spec.pull = reader.boolean(node, at).unwrap_or_default(),
        "platforms" => spec.platforms = reader.strings(node, at),
        "tags" => {
            spec.tags = reader.strings(node, at);
            for tag in spec.tags.iter().filter(|it| !is_name(it)) {
                reader.error(&node.place, at, format!("`{tag}` is not an image's name"));
            }
        }
        "cache_from" => {
            for text in reader.strings(node, at) {
                match registry_cache(&text) {
                    Some(image) => spec.cache_from.push(image.to_owned()),
                    None => reader.warning(
                        &node.place,
                        at,
                        format!("`{text}` is ignored: the engine only takes its cache from images"),
                    ),
                }
            }
        }
        "network" => match reader.string(node, at).as_deref() {
            None | Some("" | "default") => {}
            Some(network @ ("none" | "host")) => spec.network = Some(network.to_owned()),
            Some(_) => {
                let what = "a build can only use the networks `default`, `none` and `host`";
                refuse(reader, node, at, what, "publish what it needs on the host, or build without it");
            }
        },
        _ => return false,
    }
    true
}

/// Keys that the engine's own builder cannot honour, and those that make no difference to the image.
fn refused_key(reader: &mut Reader, section: &mut BuildSection, entry: &Entry, path: &Path<'_>) -> bool {
    let (node, at) = (&entry.value, &path.key(&entry.key));
    match entry.key.as_str() {
        "cache_to" => reader.ignored(entry, path, "the engine keeps its cache itself"),
        "no_cache_filter" => {
            reader.ignored(entry, path, "it changes how long a build takes, and not its result");
        }
        "provenance" | "sbom" => reader.ignored(entry, path, "attestations only matter to a registry"),
        "isolation" => match reader.string(node, at).as_deref() {
            None | Some("" | "default") => {}
            Some(_) => refuse(reader, node, at, "there is no isolation but `default` on Linux", ""),
        },
        "privileged" => {
            if reader.boolean(node, at) == Some(true) {
                refuse(reader, node, at, "the engine's builder runs nothing privileged", "");
            }
        }
        "entitlements" => {
            for entitlement in reader.strings(node, at) {
                let is_given =
                    entitlement == "network.host" && section.spec.network.as_deref() == Some("host");
                if !is_given {
                    let what =
                        format!("the entitlement `{entitlement}` cannot be given through the engine's API");
                    refuse(reader, node, at, &what, "with `network: host` all steps use the host's network");
                }
            }
        }
        "ssh" => {
            let what = "the agent has no SSH keys to lend to a build";
            refuse(
                reader,
                node,
                at,
                what,
                "give it a token as one of `secrets`, or put the files into the repository",
            );
        }
        "additional_contexts" => {
            let what = "the engine's API takes one context only";
            refuse(
                reader,
                node,
                at,
                what,
                "choose a `context` that holds all folders, or use another image with `COPY --from=`",
            );
        }
        _ => return false,
    }
    true
}

/// Only matters if the service is used.
fn refuse(reader: &mut Reader, node: &Node, at: &Path<'_>, what: &str, help: &str) {
    let finding = Finding::error(node.place.location(), at.to_string(), what);
    reader.unsupported.push(if help.is_empty() { finding } else { finding.help(help) });
}

/// `image`, or `type=registry,ref=image`.
fn registry_cache(text: &str) -> Option<&str> {
    if !text.contains('=') {
        return Some(text);
    }
    let field = |name: &str| text.split(',').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    field("ref").filter(|_| field("type") == Some("registry"))
}

/// What a build refers to.
pub(super) struct Around<'a> {
    pub(super) files: &'a dyn Files,
    /// The folder of the application.
    pub(super) folder: &'a str,
    pub(super) project: &'a str,
    pub(super) variables: &'a Variables,
    pub(super) secrets: &'a BTreeMap<String, FileSource>,
    /// What the service runs on, if it says so; it is among `platforms` then.
    pub(super) platform: Option<&'a String>,
}

/// The images that are built for one application.
#[derive(Debug, Default)]
pub(super) struct Builds {
    /// By the name that others may know it by.
    built: BTreeMap<String, (String, Build)>,
    /// Digests of files by context and Dockerfile: many services may be built from one folder.
    files: BTreeMap<(String, String), String>,
}

impl Builds {
    /// The build of a service, and the name of the image by its content.
    pub(super) fn lower(
        &mut self,
        section: &BuildSection,
        (key, image): (&str, &str),
        around: &Around<'_>,
        files: &mut Shelf<'_>,
    ) -> Result<(String, Build), Vec<Finding>> {
        let name = if image.is_empty() { format!("{}-{key}", around.project) } else { image.to_owned() };
        if !is_name(&name) {
            let finding =
                section.place.error(format!("`{name}` cannot be the name of an image that is built"));
            return Err(vec![finding.help("give the service an `image` in small letters, without a digest")]);
        }
        let mut build = section.spec.clone();
        build.tags.insert(0, name.clone());
        if let Some(platform) = around.platform {
            build.platforms = vec![platform.clone()];
        }
        let value =
            |pair: &Pair| pair.value.clone().or_else(|| around.variables.get(&pair.name).map(str::to_owned));
        build.args = section.args.iter().filter_map(|it| Some((it.name.clone(), value(it)?))).collect();
        (build.context, build.dockerfile) = section.places(around).map_err(|it| vec![it])?;
        build.secrets = section.secrets(around, files)?;
        let dockerfile = match &build.dockerfile {
            Dockerfile::Path(path) => path.clone(),
            Dockerfile::Inline(text) => format!("\n{text}"),
        };
        let place = (build.context.clone(), dockerfile);
        let known = self.files.get(&place).cloned();
        build.files = if let Some(known) = known {
            known
        } else {
            let digest = Context::of(around.files, &build).and_then(|it| it.digest(around.files));
            let digest = digest.map_err(|message| vec![section.place.error(message)])?;
            self.files.insert(place, digest.clone());
            digest
        };
        build.identify();
        let reference = build.reference(&name);
        self.built.insert(with_tag(&name), (reference.clone(), build.clone()));
        Ok((reference, build))
    }

    /// A service may use the image that another one builds, by its name.
    pub(super) fn share(&self, workloads: &mut BTreeMap<WorkloadName, Workload>) {
        for workload in workloads.values_mut() {
            if workload.build.is_some() || matches!(workload.pull, PullPolicy::Always | PullPolicy::Every(_))
            {
                continue;
            }
            if let Some((reference, build)) = self.built.get(&with_tag(&workload.container.image)) {
                workload.container.image.clone_from(reference);
                workload.build = Some(build.clone());
                workload.pull = PullPolicy::IfNotPresent;
            }
        }
    }
}

impl BuildSection {
    pub(super) fn ignored(&self) -> Finding {
        self.place.warning("`build` is ignored: by its `pull_policy` the image is taken from its registry")
    }

    /// Context and Dockerfile, from the repository's root.
    #[expect(clippy::result_large_err, reason = "a finding is made rarely, and kept as it is")]
    fn places(&self, around: &Around<'_>) -> Result<(String, Dockerfile), Finding> {
        let outside = |it: &Placed<String>| it.error(format!("`{}` is outside of the repository", it.value));
        let context = match &self.context {
            None => paths::join(around.folder, ".").unwrap_or_default(),
            Some(it) if is_remote(&it.value) => {
                let finding =
                    it.error("a context by URL is not supported: what is built must be in this repository");
                return Err(finding
                    .help("take the folder into the repository, or build elsewhere and name the `image`"));
            }
            Some(it) if it.value.starts_with(['/', '~']) => return Err(outside(it)),
            Some(it) => paths::join(around.folder, &it.value).ok_or_else(|| outside(it))?,
        };
        match (&self.dockerfile, &self.inline) {
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
        &self,
        around: &Around<'_>,
        files: &mut Shelf<'_>,
    ) -> Result<BTreeMap<String, driftless_model::ContentId>, Vec<Finding>> {
        let (mut secrets, mut findings) = (BTreeMap::new(), Vec::new());
        for mount in &self.secrets {
            let FileMount { source: key, target, on_change, .. } = &mount.value;
            if let Some(on_change) = on_change {
                findings.push(
                    on_change.error("is for mounts of containers: a build is over when a file changes"),
                );
            }
            let lowered = match around.secrets.get(key) {
                Some(source) => files.file(mount, source, FileKind::Secret, around.variables),
                None => Err(mount.error(format!("refers to undefined secret `{key}`"))),
            };
            match lowered.map(|it| it.source) {
                Ok(MountSource::Secret(id)) => {
                    secrets.insert(target.as_ref().unwrap_or(key).clone(), id);
                }
                Ok(_) => findings
                    .push(mount.error(format!("`{key}` is a file of the host, and no build can see it"))),
                Err(finding) => findings.push(finding),
            }
        }
        if findings.is_empty() { Ok(secrets) } else { Err(findings) }
    }
}

/// A repository or archive elsewhere, in any of the forms that the reference takes.
fn is_remote(context: &str) -> bool {
    let has_scheme = context.contains("://");
    let is_scp = context.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/'));
    has_scheme || is_scp || context.starts_with("github.com/")
}

/// Small letters, digits and separators, with or without a registry and a tag.
fn is_name(name: &str) -> bool {
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        Some(_) | None => (name, "latest"),
    };
    let is_part =
        |it: &str| {
            let is_inner =
                |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'.' | b'_' | b'-');
            !it.is_empty()
                && it.bytes().all(is_inner)
                && it.bytes().next().zip(it.bytes().last()).is_some_and(|(first, last)| {
                    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric()
                })
        };
    let host = path.split('/').next().unwrap_or_default();
    let is_host = path.contains('/') && host.contains([':', '.']) && !host.contains('@');
    let rest = if is_host { path.get(host.len() + 1..).unwrap_or_default() } else { path };
    let is_tag = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
    // The digest is added to it, and 128 letters are the most.
    !tag.is_empty() && tag.len() <= 100 && tag.bytes().all(is_tag) && rest.split('/').all(is_part)
}

fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains([':', '@']) { name.to_owned() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_elsewhere_are_known_by_their_form() {
        for remote in
            ["https://example.com/a.git#main", "git@example.com:a/b.git", "github.com/a/b", "git://h/a"]
        {
            assert!(is_remote(remote), "{remote}");
        }
        for local in [".", "./a", "../github.com/a", "a@b/c:d", "a"] {
            assert!(!is_remote(local), "{local}");
        }
    }

    #[test]
    fn names_that_can_be_given_to_an_image() {
        for name in ["web", "shop-web", "localhost:5000/a/web:1.0", "example.com/web", "a_b/c.d:V1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "Web", "shop-Web", "web@sha256:00", "web:", "-a", "a//b", "a b"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_cache_is_an_image() {
        assert_eq!(registry_cache("web:cache"), Some("web:cache"));
        assert_eq!(registry_cache("type=registry,ref=web:cache"), Some("web:cache"));
        assert_eq!(registry_cache("type=gha"), None);
    }
}
