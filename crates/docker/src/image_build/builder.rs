//! One build from the request to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_clock::Clock;
use driftless_model::{Build, label};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::time::timeout;

use super::{
    archive, classic_builder, file_sync,
    job::{BuildFailure, BuildInputs, BuildJob},
    output::Output,
    session::Session,
};
use crate::{
    cache::Cache, call_error::CallError, connection::Connection, deadline::DEADLINE, error::Error,
    inventory::is_reference, percent_encoding::encode, registry_login::Login,
    registry_logins::RegistryLogins, transport::ApiVersion,
};

/// A build without output for this time has failed. Some compilers print nothing for minutes.
const MAX_SILENCE: Duration = Duration::from_mins(10);

/// From this version on `BuildKit` honours limits of the shared memory and of processes.
const BUILDKIT_LIMITS: ApiVersion = ApiVersion::new(1, 42);

/// The number of base images that are looked at before a build.
const MAX_BASE_IMAGES: usize = 64;

type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// Builds images.
pub(crate) struct Builder {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    logins: RegistryLogins,
    clock: Clock,
}

impl Builder {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        logins: RegistryLogins,
        clock: Clock,
    ) -> Self {
        Self { connection: Arc::clone(connection), cache: Arc::clone(cache), logins, clock }
    }

    /// Builds an image and tags it with `image` and the tags of the build.
    pub(crate) async fn build(
        &self,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let doing = format!("build {image}");
        progress(format!("building {image}"));
        let ended = self.run(image, build, inputs, progress).await;
        self.cache.invalidate_images();
        ended.map_err(|failure| match failure {
            BuildFailure::Build(message) => Error::Build { image: image.to_owned(), message },
            BuildFailure::Call(error @ CallError::Status { .. }) => {
                Error::Build { image: image.to_owned(), message: error.to_string() }
            }
            BuildFailure::Call(error @ (CallError::Unreachable(_) | CallError::TimedOut(_))) => {
                error.classify(&doing)
            }
        })
    }

    async fn run(
        &self,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: Progress<'_>,
    ) -> Result<(), BuildFailure> {
        let api = self.connection.api_version().await?;
        let platform = self.platform(build).await?;
        let time = self.clock.now().0 / 1000;
        let build = &Build { tags: Box::pin(self.free_tags(build)).await?, ..build.clone() };
        let job = Arc::new(BuildJob::prepare(image, build, inputs, self.logins.clone(), time).await?);
        let output = Output::new(image, job.hidden(), inputs.mask.clone());
        let needs_classic = api < BUILDKIT_LIMITS && (build.shm_size.is_some() || !build.ulimits.is_empty());
        if needs_classic {
            classic_builder::check(&job.context.dockerfile).map_err(BuildFailure::Build)?;
        }
        let session =
            if needs_classic { None } else { Session::open(self.connection.transport(), &job).await? };
        let mut query = job.query(platform.as_deref())?;
        if !build.pull && Box::pin(self.has_base_of_another(&job)).await? {
            query.push(("pull", "1".to_owned()));
        }
        let Some(session) = session else {
            if !build.secrets.is_empty() {
                return Err(BuildFailure::Build(classic_builder::SECRETS.to_owned()));
            }
            query.push(("dockerfile", archive::dockerfile(&job.context)));
            let logins = self.logins.all(&job.base_images()).await.map_err(BuildFailure::Build)?;
            let headers = [("x-registry-config", Login::headers(&logins))];
            return self.send_build(&query, &headers, archive::stream(&job), output, progress).await;
        };
        query.push(("dockerfile", file_sync::DOCKERFILE.to_owned()));
        query.push(("version", "2".to_owned()));
        query.push(("remote", "client-session".to_owned()));
        query.push(("session", session.id.clone()));
        let no_body = futures_util::stream::empty();
        self.send_build(&query, &[], no_body, output, progress).await
    }

    async fn send_build(
        &self,
        query: &[(&str, String)],
        headers: &[(&'static str, String)],
        body: impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
        output: Output,
        progress: Progress<'_>,
    ) -> Result<(), BuildFailure> {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let path = format!("/build?{}", query.join("&"));
        let transport = self.connection.transport();
        let sent = transport.upload(Method::POST, &path, "application/x-tar", headers, body);
        let response = timeout(MAX_SILENCE, sent).await.unwrap_or(Err(CallError::TimedOut(MAX_SILENCE)))?;
        follow(response.into_body(), output, progress).await
    }

    /// The further names that the image may have: those that no image has yet, or that one has that was built for the same application.
    /// Another one may use an image under one of the other names.
    async fn free_tags(&self, build: &Build) -> Result<Vec<String>, BuildFailure> {
        let mut free = Vec::new();
        for tag in &build.tags {
            let found = self.labels(tag).await?;
            if found.is_none_or(|found| is_of_same_application(&found, build)) {
                free.push(tag.clone());
            } else {
                tracing::warn!(
                    image = tag,
                    "the built image does not get this name, because it belongs to an image that was not built for this application"
                );
            }
        }
        Ok(free)
    }

    /// Whether the build begins from an image that was built for another application, which does not share it. Such an image may only
    /// have the name of one of a registry, so all are pulled.
    async fn has_base_of_another(&self, job: &BuildJob) -> Result<bool, BuildFailure> {
        let images: BTreeSet<String> = job.base_images().into_iter().filter(|it| is_reference(it)).collect();
        let app = job.build.labels.get(label::BUILT_BY).map(String::as_str).unwrap_or_default();
        for image in images.iter().take(MAX_BASE_IMAGES) {
            let found = self.labels(image).await?.unwrap_or_default();
            if label::is_built_for_another_alone(app, |name| found.get(name).map(String::as_str)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The labels of an image, if there is one of this name. No image has a name that the engine refuses.
    async fn labels(&self, image: &str) -> Result<Option<BTreeMap<String, String>>, BuildFailure> {
        let inspect = self.connection.docker().inspect_image(image);
        match self.connection.call(DEADLINE, inspect).await {
            Ok(found) => {
                let labels = found.config.and_then(|config| config.labels);
                Ok(Some(labels.into_iter().flatten().collect()))
            }
            Err(error) if matches!(error.code(), Some(400 | 404)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The platform to build for: the only wanted one, or the engine's own if it is among several.
    async fn platform(&self, build: &Build) -> Result<Option<String>, BuildFailure> {
        let [_, _, ..] = build.platforms.as_slice() else { return Ok(build.platforms.first().cloned()) };
        let found = self.connection.call(DEADLINE, self.connection.docker().version()).await?;
        let own = format!("{}/{}", found.os.unwrap_or_default(), found.arch.unwrap_or_default());
        let is_own = |it: &&String| **it == own || it.starts_with(&format!("{own}/"));
        if let Some(platform) = build.platforms.iter().find(is_own) {
            return Ok(Some(platform.clone()));
        }
        let wanted = build.platforms.join(", ");
        Err(BuildFailure::Build(format!("the engine builds for {own}, and the manifest asks for {wanted}")))
    }
}

/// Whether an image with these labels was built for the application of a build. Builds of earlier releases name none.
fn is_of_same_application(found: &BTreeMap<String, String>, build: &Build) -> bool {
    let is_same = |app: &String| build.labels.get(label::BUILT_BY) == Some(app);
    found.contains_key(label::BUILD) && found.get(label::BUILT_BY).is_none_or(is_same)
}

/// Reads the engine's messages until the build ends.
async fn follow(mut body: Incoming, mut output: Output, progress: Progress<'_>) -> Result<(), BuildFailure> {
    loop {
        let frame = match timeout(MAX_SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(CallError::unreachable(&error).into()),
            Ok(None) => return output.finish().map_err(BuildFailure::Build),
            Err(_) => {
                let minutes = MAX_SILENCE.as_secs() / 60;
                return Err(BuildFailure::Build(output.failure(&format!("no output for {minutes} minutes"))));
            }
        };
        if let Ok(bytes) = frame.into_data()
            && let Some(text) = output.take(&bytes)
        {
            progress(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_image_of_another_application_is_not_taken() {
        let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let build = Build { labels: labels(&[(label::BUILT_BY, "shop")]), ..Build::default() };
        for (found, is_taken) in [
            (labels(&[]), false),
            (labels(&[(label::BUILD, "ab")]), true),
            (labels(&[(label::BUILD, "ab"), (label::BUILT_BY, "shop")]), true),
            (labels(&[(label::BUILD, "ab"), (label::BUILT_BY, "infra")]), false),
            (labels(&[(label::BUILT_BY, "shop")]), false),
        ] {
            assert_eq!(is_of_same_application(&found, &build), is_taken, "{found:?}");
        }
    }
}
