//! One build: its files, secrets and options.

use std::{collections::BTreeMap, fmt, sync::Arc};

use driftless_files::{Context, Files, dockerfile::named_images};
use driftless_model::{Build, ContentId, Mask, label};
use serde::Serialize;

use crate::{call_error::CallError, registry_logins::RegistryLogins};

/// The inputs of a build besides its definition.
#[derive(Clone, Debug)]
pub struct BuildInputs {
    /// The files of a commit; those of the build are the ones that its digest stands for.
    pub files: Arc<dyn Files>,
    pub secrets: BuildSecrets,
    /// Hides what the application keeps secret in the output.
    pub mask: Mask,
}

/// The values of build secrets, by content. Never printed.
#[derive(Clone, Default)]
pub struct BuildSecrets(pub BTreeMap<ContentId, Arc<[u8]>>);

impl fmt::Debug for BuildSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildSecrets({})", self.0.len())
    }
}

/// One build in progress.
pub(super) struct BuildJob {
    pub(super) image: String,
    pub(super) build: Build,
    pub(super) context: Context,
    pub(super) files: Arc<dyn Files>,
    pub(super) secrets: BTreeMap<String, Arc<[u8]>>,
    /// The logins for the registries of its base images.
    pub(super) logins: RegistryLogins,
    /// Seconds since 1970: the modification time of all files in the context. Programs in the image tell by it whether a
    /// file has changed.
    pub(super) time: u64,
}

/// Why a build failed.
#[derive(Debug)]
pub(super) enum BuildFailure {
    /// A message without secrets.
    Build(String),
    Call(CallError),
}

impl From<CallError> for BuildFailure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl BuildJob {
    /// Reads the build context. The caller has checked that the files have the digest in the image's name.
    pub(super) async fn prepare(
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        logins: RegistryLogins,
        time: u64,
    ) -> Result<Self, BuildFailure> {
        let BuildInputs { files, secrets, mask: _ } = inputs;
        let mut values = BTreeMap::new();
        for (id, content) in &build.secrets {
            let value = secrets.0.get(content);
            let value = value
                .ok_or_else(|| BuildFailure::Build(format!("the value of the secret `{id}` is missing")))?;
            values.insert(id.clone(), Arc::clone(value));
        }
        let (image, build, files) = (image.to_owned(), build.clone(), Arc::clone(files));
        let prepared = tokio::task::spawn_blocking(move || {
            let context = Context::of(files.as_ref(), &build)?.with_bases(&build);
            Ok(Self { image, build, context, files, secrets: values, logins, time })
        });
        prepared
            .await
            .unwrap_or_else(|_| Err("reading the build context failed unexpectedly".to_owned()))
            .map_err(BuildFailure::Build)
    }

    /// The images that the build begins from and copies from, as far as the Dockerfile names them, without those that the same
    /// application builds.
    pub(super) fn base_images(&self) -> Vec<String> {
        let named = named_images(&self.context.dockerfile, &self.build.args).into_iter();
        named.filter(|image| !self.build.bases.values().any(|base| base == image)).collect()
    }

    /// Whether newer base images are asked for. Not if the application builds one of them: no registry has it, and the engine would fail.
    pub(super) fn is_pulling(&self) -> bool {
        self.build.pull && self.build.bases.is_empty()
    }

    /// The texts to hide in all output: each line of each secret, and the values of arguments with telling names.
    pub(super) fn hidden(&self) -> Vec<String> {
        let secrets = self.secrets.values().map(|it| String::from_utf8_lossy(it).into_owned());
        let telling = self.build.args.iter().filter(|(name, _)| Mask::is_telling(name));
        let all = secrets.chain(telling.map(|(_, value)| value.clone()));
        let lines = all.flat_map(|it| it.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>());
        let mut lines: Vec<String> = lines.filter(|it| it.len() > 3).collect();
        // The longest first, since one may be a part of another.
        lines.sort_by_key(|it| std::cmp::Reverse(it.len()));
        lines
    }

    /// The options of the call that are the same for both builders.
    pub(super) fn query(&self, platform: Option<&str>) -> Result<Vec<(&'static str, String)>, BuildFailure> {
        let build = &self.build;
        let mut labels = build.labels.clone();
        labels.insert(label::BUILD.to_owned(), build.digest.clone());
        let mut query = vec![
            ("labels", json(&labels)?),
            ("buildargs", json(&build.args)?),
            ("rm", "1".to_owned()),
            ("forcerm", "1".to_owned()),
        ];
        // Its own name comes last: a reader that sees it takes the build for done and may hang up.
        query.extend(build.tags.iter().chain([&self.image]).map(|it| ("t", it.clone())));
        query.extend(build.extra_hosts.iter().map(|it| ("extrahosts", it.clone())));
        if !build.ulimits.is_empty() {
            let limit = |(name, (soft, hard)): (&String, &(i64, i64))| serde_json::json!({ "Name": name, "Soft": soft, "Hard": hard });
            query.push(("ulimits", json(&build.ulimits.iter().map(limit).collect::<Vec<_>>())?));
        }
        if !build.cache_from.is_empty() {
            query.push(("cachefrom", json(&build.cache_from)?));
        }
        let optional = [
            ("target", build.target.clone()),
            ("networkmode", build.network.clone()),
            ("platform", platform.map(str::to_owned)),
            ("shmsize", build.shm_size.map(|it| it.to_string())),
            ("nocache", build.no_cache.then(|| "1".to_owned())),
            ("pull", self.is_pulling().then(|| "1".to_owned())),
        ];
        query.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        Ok(query)
    }
}

fn json<T: Serialize>(value: &T) -> Result<String, BuildFailure> {
    serde_json::to_string(value).map_err(|error| BuildFailure::Build(error.to_string()))
}

#[cfg(test)]
mod tests {
    use driftless_files::MemoryFiles;
    use driftless_model::Dockerfile;

    use super::*;

    async fn job(build: Build) -> BuildJob {
        let files = MemoryFiles::new([("app/Dockerfile", "FROM base\nCOPY --from=tools:1 /x /x\n")]);
        let dockerfile = Dockerfile::Path("app/Dockerfile".to_owned());
        let build = Build { context: "app".to_owned(), dockerfile, pull: true, ..build };
        let (secrets, mask) = (BuildSecrets::default(), Mask::new([7; 32]));
        let inputs = BuildInputs { files: Arc::new(files), secrets, mask };
        BuildJob::prepare("app:1", &build, &inputs, RegistryLogins::default(), 0).await.unwrap()
    }

    #[tokio::test]
    async fn base_of_the_application_is_taken_by_its_content() {
        let plain = job(Build::default()).await;
        assert_eq!(plain.base_images(), ["base", "tools:1"]);
        assert!(plain.is_pulling());
        let bases = BTreeMap::from([("base".to_owned(), "base:00".to_owned())]);
        let pinned = job(Build { bases, ..Build::default() }).await;
        assert_eq!(&*pinned.context.dockerfile, b"FROM base:00\nCOPY --from=tools:1 /x /x\n");
        assert_eq!(pinned.base_images(), ["tools:1"]);
        assert!(!pinned.is_pulling(), "no registry has the base");
    }
}
