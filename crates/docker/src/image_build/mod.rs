//! Builds one image from the files of a commit and tells how far it got. The files travel as they are read; there is
//! never a folder of them on this side. What the instructions do is the engine's business, and whether to build at
//! all the planner's.
//!
//! `BuildKit` builds where the engine has it. It asks for what it needs over a session, a connection on which the engine
//! is the client and we are the server; of that protocol (gRPC) only what it asks for is spoken here. Elsewhere
//! the classic builder takes the files as an archive.
//!
//! | file | what |
//! |---|---|
//! | `session` | the connection on which `BuildKit` asks, and the answers |
//! | `file_sync` | how it asks for files |
//! | `message` | the encoding of both: protocol buffers |
//! | `archive` | the files as an archive, for the classic builder |
//! | `output` | what either builder says: steps, the end of the output, the error |
//! | `needs` | what cannot be built, said before it is tried |

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use http::Method;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    Error,
    call_error::CallError,
    engine::{DEADLINE, Inner},
    registry_logins::{Login, RegistryLogins},
    transport::ApiVersion,
};
use driftless_files::{Context, Files};
use driftless_model::{Build, ContentId, Mask, label};

mod archive;
mod classic_builder;
mod file_sync;
mod output;
mod protobuf;
mod session;

use output::Output;
use session::Session;

/// The longest silence of a build that is alive: some compilers say nothing for minutes.
const SILENCE: Duration = Duration::from_mins(10);

/// `BuildKit` honours limits of the shared memory and of processes from this version on.
const LIMITS: ApiVersion = ApiVersion::new(1, 42);

/// What a build is made from, beside its definition.
#[derive(Clone, Debug)]
pub struct BuildInputs {
    /// Of a commit in which the build's files are those that its digest tells of.
    pub files: Arc<dyn Files>,
    pub secrets: BuildSecrets,
}

/// The values of secrets, by content. Never printed.
#[derive(Clone, Default)]
pub struct BuildSecrets(pub BTreeMap<ContentId, Arc<[u8]>>);

impl fmt::Debug for BuildSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildSecrets({})", self.0.len())
    }
}

/// One build under way.
struct BuildJob {
    image: String,
    build: Build,
    context: Context,
    files: Arc<dyn Files>,
    secrets: BTreeMap<String, Arc<[u8]>>,
    /// Who we are for the registries of the images that it begins with.
    registries: RegistryLogins,
    /// Seconds since 1970, for the files of the context. Servers tell by this time whether a file is another one.
    time: u64,
}

/// Why a build came to its end before its time.
#[derive(Debug)]
enum Stop {
    /// In words, without secrets.
    Build(String),
    Call(CallError),
}

impl From<CallError> for Stop {
    fn from(failure: CallError) -> Self {
        Self::Call(failure)
    }
}

type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

impl Inner {
    pub(crate) async fn build(
        &self,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let doing = format!("build {image}");
        progress(format!("building {image}"));
        let ended = self.build_with(image, build, inputs, progress).await;
        self.cache.invalidate_images();
        ended.map_err(|stop| match stop {
            Stop::Build(message) => Error::Build { image: image.to_owned(), message },
            Stop::Call(failure @ CallError::Status { .. }) => {
                Error::Build { image: image.to_owned(), message: failure.to_string() }
            }
            Stop::Call(failure @ (CallError::Unreachable(_) | CallError::Late(_))) => failure.sort(&doing),
        })
    }

    async fn build_with(
        &self,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: Progress<'_>,
    ) -> Result<(), Stop> {
        let api = self.agree().await?;
        let platform = self.platform(build).await?;
        let time = self.clock.now().0 / 1000;
        let job = Arc::new(BuildJob::prepare(image, build, inputs, self.registries.clone(), time).await?);
        let output = Output::new(image, job.hidden());
        let needs_classic = api < LIMITS && (build.shm_size.is_some() || !build.ulimits.is_empty());
        if needs_classic {
            classic_builder::check(&job.context.dockerfile).map_err(Stop::Build)?;
        }
        let session = if needs_classic { None } else { Session::open(&self.transport, &job).await? };
        let mut query = job.query(platform.as_deref())?;
        let Some(session) = session else {
            if !build.secrets.is_empty() {
                return Err(Stop::Build(classic_builder::SECRETS.to_owned()));
            }
            query.push(("dockerfile", archive::dockerfile(&job.context)));
            let logins = self.registries.all().map_err(Stop::Build)?;
            let headers = [("x-registry-config", Login::headers(&logins))];
            return self.send_build(&query, &headers, archive::stream(&job), output, progress).await;
        };
        query.push(("dockerfile", file_sync::DOCKERFILE.to_owned()));
        query.push(("version", "2".to_owned()));
        query.push(("remote", "client-session".to_owned()));
        query.push(("session", session.id.clone()));
        let nothing = futures_util::stream::empty();
        self.send_build(&query, &[], nothing, output, progress).await
    }

    async fn send_build(
        &self,
        query: &[(&str, String)],
        headers: &[(&'static str, String)],
        body: impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
        output: Output,
        progress: Progress<'_>,
    ) -> Result<(), Stop> {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let path = format!("/build?{}", query.join("&"));
        let answer =
            timeout(SILENCE, self.transport.upload(Method::POST, &path, "application/x-tar", headers, body))
                .await;
        let answer = answer.unwrap_or(Err(CallError::Late(SILENCE)))?;
        follow(answer.into_body(), output, progress).await
    }

    /// The platform to ask for: the only one that is wanted, or the engine's own if it is among several.
    async fn platform(&self, build: &Build) -> Result<Option<String>, Stop> {
        let [_, _, ..] = build.platforms.as_slice() else { return Ok(build.platforms.first().cloned()) };
        let found = self.call(DEADLINE, self.docker.version()).await?;
        let own = format!("{}/{}", found.os.unwrap_or_default(), found.arch.unwrap_or_default());
        let is_own = |it: &&String| **it == own || it.starts_with(&format!("{own}/"));
        if let Some(platform) = build.platforms.iter().find(is_own) {
            return Ok(Some(platform.clone()));
        }
        let wanted = build.platforms.join(", ");
        Err(Stop::Build(format!("the engine is {own}, and the image is to be built for {wanted}")))
    }
}

impl BuildJob {
    /// Looks at the files. That they are those that the image is named after was seen by whoever fetched them.
    async fn prepare(
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        registries: RegistryLogins,
        time: u64,
    ) -> Result<Self, Stop> {
        let BuildInputs { files, secrets } = inputs;
        let mut values = BTreeMap::new();
        for (id, content) in &build.secrets {
            let value = secrets.0.get(content);
            let value =
                value.ok_or_else(|| Stop::Build(format!("the value of the secret `{id}` is not at hand")))?;
            values.insert(id.clone(), Arc::clone(value));
        }
        let (image, build, files) = (image.to_owned(), build.clone(), Arc::clone(files));
        let read = tokio::task::spawn_blocking(move || {
            let context = Context::of(files.as_ref(), &build)?;
            Ok(Self { image, build, context, files, secrets: values, registries, time })
        });
        read.await.unwrap_or_else(|_| Err("reading the context broke down".to_owned())).map_err(Stop::Build)
    }

    /// What may not be seen in any output: each line of each secret, and arguments whose names tell.
    fn hidden(&self) -> Vec<String> {
        let secrets = self.secrets.values().map(|it| String::from_utf8_lossy(it).into_owned());
        let telling = self.build.args.iter().filter(|(name, _)| Mask::is_telling(name));
        let all = secrets.chain(telling.map(|(_, value)| value.clone()));
        let lines = all.flat_map(|it| it.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>());
        let mut lines: Vec<String> = lines.filter(|it| it.len() > 3).collect();
        // The longest first, for one may be a part of the other.
        lines.sort_by_key(|it| std::cmp::Reverse(it.len()));
        lines
    }

    /// The options of the call that are the same for either builder.
    fn query(&self, platform: Option<&str>) -> Result<Vec<(&'static str, String)>, Stop> {
        let build = &self.build;
        let mut labels = build.labels.clone();
        labels.insert(label::BUILD.to_owned(), build.digest.clone());
        let mut query = vec![
            ("labels", json(&labels)?),
            ("buildargs", json(&build.args)?),
            ("rm", "1".to_owned()),
            ("forcerm", "1".to_owned()),
        ];
        // Its own name comes last: whoever sees it takes the build to be done, and may hang up.
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
            ("pull", build.pull.then(|| "1".to_owned())),
        ];
        query.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        Ok(query)
    }
}

/// Reads what the engine says until it says no more.
async fn follow(mut body: Incoming, mut output: Output, progress: Progress<'_>) -> Result<(), Stop> {
    loop {
        let frame = match timeout(SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(CallError::unreachable(&error).into()),
            Ok(None) => return output.finish().map_err(Stop::Build),
            Err(_) => {
                let minutes = SILENCE.as_secs() / 60;
                return Err(Stop::Build(output.failure(&format!("no output for {minutes} minutes"))));
            }
        };
        if let Ok(bytes) = frame.into_data()
            && let Some(text) = output.take(&bytes)
        {
            progress(text);
        }
    }
}

fn json<T: Serialize>(value: &T) -> Result<String, Stop> {
    serde_json::to_string(value).map_err(|error| Stop::Build(error.to_string()))
}

/// For a query: all but letters, digits and four signs as `%2F`.
pub(crate) fn encode(text: &str) -> String {
    use fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_encoded_for_a_query() {
        assert_eq!(encode("a/b:1.0-x_y~"), "a%2Fb%3A1.0-x_y~");
        assert_eq!(encode("{\"ä\"}"), "%7B%22%C3%A4%22%7D");
    }
}
