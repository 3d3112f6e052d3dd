//! One build from the request to its end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_clock::Clock;
use driftless_model::{Build, ImageRef, label};
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

/// The number of base images that are looked at before a build. With more of them, all are pulled.
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
        if !job.is_pulling()
            && let Some(reason) = Box::pin(self.reason_to_pull(&job)).await?
        {
            check_pull(build, &reason)?;
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

    /// The further names that the image may have: those that no image has yet, or that one has that gives it up. Another application may
    /// use an image under one of the other names.
    async fn free_tags(&self, build: &Build) -> Result<Vec<String>, BuildFailure> {
        let mut free = Vec::new();
        for tag in &build.tags {
            if !is_name_allowed(tag, build) {
                tracing::warn!(
                    image = tag,
                    "the policy `otherApplications` does not give the built image this name"
                );
                continue;
            }
            let found = self.labels(tag).await?;
            if found.is_none_or(|found| gives_name_to(&found, build)) {
                free.push(tag.clone());
            } else {
                tracing::warn!(
                    image = tag,
                    "the built image does not get this name, because it belongs to an image that was pulled, or built for an application that does not share it"
                );
            }
        }
        Ok(free)
    }

    /// Why all base images are pulled, in words: the build begins from an image that was built for another application, which does not share
    /// it. Such an image may only have the name of one of a registry. So they are instead of an older image of the application, which has
    /// a name that newer ones do not get.
    async fn reason_to_pull(&self, job: &BuildJob) -> Result<Option<String>, BuildFailure> {
        let mut images = job.base_images();
        images.retain(|image| is_reference(image));
        let build = &job.build;
        let app = build.labels.get(label::BUILT_BY).map(String::as_str).unwrap_or_default();
        for image in images.iter().take(MAX_BASE_IMAGES) {
            let found = self.labels(image).await?.unwrap_or_default();
            let is_of_another =
                label::is_built_for_another_alone(app, |name| found.get(name).map(String::as_str));
            if is_of_another {
                let reason = format!("`{image}` was built for another application, which does not share it");
                return Ok(Some(reason));
            }
            if is_left_behind(image, &found, build) {
                let reason =
                    format!("the policy `otherApplications` does not give built images the name `{image}`");
                return Ok(Some(reason));
            }
        }
        let has_too_many = images.len() > MAX_BASE_IMAGES;
        Ok(has_too_many.then(|| format!("the Dockerfile names more than {MAX_BASE_IMAGES} images")))
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

/// Fails if the application builds one of the images that are to be pulled: no registry has it, and the engine's error would name that one.
fn check_pull(build: &Build, reason: &str) -> Result<(), BuildFailure> {
    let Some(own) = build.bases.keys().next() else { return Ok(()) };
    Err(BuildFailure::Build(format!(
        "{reason}, so all images of the Dockerfile would have to be pulled, and no registry has `{own}` of this application: remove one of \
         them from the Dockerfile"
    )))
}

/// Whether the policy of the application lets a built image have a name.
fn is_name_allowed(image: &str, build: &Build) -> bool {
    let project = build.labels.get(label::NOT_SHARED);
    project.is_none_or(|project| ImageRef::parse(image).is_of_project(project))
}

/// Whether an image with these labels gives its name to the image of a build: it was built for the same application, or both applications
/// share with others. These take each other's names, as the last build of Docker Compose does, so that a name does not stay with an old
/// image when an application or a service gets another place.
fn gives_name_to(found: &BTreeMap<String, String>, build: &Build) -> bool {
    let are_shared = ![found, &build.labels].iter().any(|labels| labels.contains_key(label::NOT_SHARED));
    found.contains_key(label::BUILD) && (are_shared || may_be_of_application(found, build))
}

/// Whether an image with these labels was built for the application of a build, as far as is known: builds of earlier releases name none.
fn may_be_of_application(found: &BTreeMap<String, String>, build: &Build) -> bool {
    let is_same = |app: &String| build.labels.get(label::BUILT_BY) == Some(app);
    found.get(label::BUILT_BY).is_none_or(is_same)
}

/// Whether an image with these labels was built for the application of a build under a name that its policy does not allow any more. No
/// later build gets that name, so the image would stay an old one without a word.
fn is_left_behind(image: &str, found: &BTreeMap<String, String>, build: &Build) -> bool {
    let is_built = found.contains_key(label::BUILD) && may_be_of_application(found, build);
    is_built && !is_name_allowed(image, build)
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

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn build_with(all: &[(&str, &str)]) -> Build {
        Build { labels: labels(all), ..Build::default() }
    }

    const IMAGE: (&str, &str) = (label::BUILD, "ab");
    const OWN: (&str, &str) = (label::BUILT_BY, "shop");
    const OTHER: (&str, &str) = (label::BUILT_BY, "infra");
    const ALONE: (&str, &str) = (label::NOT_SHARED, "shop");

    #[test]
    fn image_gives_its_name_to_an_application_that_shares_too() {
        for (found, build, gives) in [
            (&[OWN][..], &[OWN][..], false),
            (&[IMAGE], &[OWN], true),
            (&[IMAGE], &[OWN, ALONE], true),
            (&[IMAGE, OWN], &[OWN], true),
            (&[IMAGE, OWN, ALONE], &[OWN, ALONE], true),
            (&[IMAGE, OTHER], &[OWN], true),
            (&[IMAGE, OTHER], &[OWN, ALONE], false),
            (&[IMAGE, OTHER, ALONE], &[OWN], false),
            (&[], &[OWN], false),
        ] {
            assert_eq!(gives_name_to(&labels(found), &build_with(build)), gives, "{found:?} {build:?}");
        }
    }

    #[test]
    fn image_of_another_application_is_named_by_the_error() {
        let reason = "`tools-cli` was built for another application, which does not share it";
        assert!(check_pull(&build_with(&[OWN, ALONE]), reason).is_ok());
        let bases = BTreeMap::from([("shop-base".to_owned(), "shop-base:00".to_owned())]);
        let error = check_pull(&Build { bases, ..build_with(&[OWN, ALONE]) }, reason).unwrap_err();
        let is_named = |message: &str| message.starts_with(reason) && message.contains("`shop-base`");
        assert!(matches!(&error, BuildFailure::Build(message) if is_named(message)), "{error:?}");
    }

    #[test]
    fn application_that_shares_nothing_has_names_of_its_project() {
        let (shared, alone) = (build_with(&[OWN]), build_with(&[OWN, ALONE]));
        for (tag, is_allowed) in [
            ("shop-web:1", true),
            ("shop-base", true),
            ("postgres:17.7", false),
            ("ghcr.io/infra/shop-x:1", false),
            ("shop/web", false),
        ] {
            assert!(is_name_allowed(tag, &shared), "{tag}");
            assert_eq!(is_name_allowed(tag, &alone), is_allowed, "{tag}");
        }
    }

    #[test]
    fn older_base_under_a_name_that_is_not_allowed_is_pulled() {
        let (shared, alone) = (build_with(&[OWN]), build_with(&[OWN, ALONE]));
        for (image, found, is_left) in [
            ("myorg/base", &[IMAGE][..], true),
            ("myorg/base", &[IMAGE, OWN], true),
            ("myorg/base", &[IMAGE, OTHER], false),
            ("myorg/base", &[], false),
            ("shop-base", &[IMAGE, OWN], false),
        ] {
            assert_eq!(is_left_behind(image, &labels(found), &alone), is_left, "{image} {found:?}");
            assert!(!is_left_behind(image, &labels(found), &shared), "{image} {found:?}");
        }
    }
}
