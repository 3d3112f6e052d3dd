//! Pulls of images, with progress. What the registry refuses is an error of this image alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use bollard::models::CreateImageInfo;
use driftless_model::{ContentId, ImageRef, Platform, is_helper_name};
use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::{
    cache::Cache,
    call_error::{CallError, clean},
    connection::Connection,
    error::Error,
    find_image::find_image,
    inventory::is_reference,
    percent_encoding::encode,
    registry_login::Login,
    registry_logins::RegistryLogins,
};

/// A pull without a message for this time has failed, unless it waits for other downloads or unpacks what has arrived.
const MAX_SILENCE: Duration = Duration::from_mins(1);
/// A pull that does not get further for this time has failed, also one that waits. A large image on a slow line takes hours.
const DEADLINE: Duration = Duration::from_mins(30);
/// No pull takes longer.
const LONGEST: Duration = Duration::from_hours(24);
/// The steps that bring a layer further.
const STEPS: &[&str] = &[
    "Pulling fs layer",
    "Downloading",
    "Verifying Checksum",
    "Download complete",
    "Extracting",
    "Pull complete",
    "Already exists",
];
/// Messages of registries and the engine if a login is missing or wrong.
const UNAUTHORIZED: &[&str] =
    &["incorrect username or password", "no basic auth credentials", "authentication required"];
/// Messages about an image that does not exist, or that the login may not read: registries do not say which.
const NO_ACCESS: &[&str] = &["repository does not exist", "access to the resource is denied"];
/// Messages that may be about a login.
const REFUSED: &[&str] = &["unauthorized", "denied"];

/// Pulls images.
pub(crate) struct Puller {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    logins: RegistryLogins,
}

impl Puller {
    pub(crate) fn new(connection: &Arc<Connection>, cache: &Arc<Cache>, logins: RegistryLogins) -> Self {
        Self { connection: Arc::clone(connection), cache: Arc::clone(cache), logins }
    }

    /// Pulls an image. `secrets` are the contents of the application's `imagePullSecrets`.
    pub(crate) async fn pull(
        &self,
        image: &str,
        platform: Option<&str>,
        secrets: &[ContentId],
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        let doing = format!("pull {image}");
        if !is_reference(image) {
            return Err(Error::Rejected { doing, message: "this is not the name of an image".to_owned() });
        }
        // A registry may have anything under this name.
        if is_helper_name(image) {
            return Err(Error::Rejected {
                doing,
                message: "the agent makes images of this name itself".to_owned(),
            });
        }
        let folder = &self.connection.local_paths().secret;
        let secrets: Vec<_> = secrets.iter().map(|id| folder.join(&id.0)).collect();
        let login = self.logins.login(image, &secrets).await;
        let login =
            login.map_err(|message| Error::Pull { image: image.to_owned(), message, retry_after: None })?;
        self.connection.api_version().await.map_err(|error| error.classify(&doing))?;
        progress(format!("pulling {image}"));
        let pulled = self.send_pull(image, platform, login.as_ref(), progress).await;
        self.cache.invalidate_images();
        let pulled = match (pulled, platform) {
            (Ok(()), Some(platform)) => self.check_platform(image, platform).await,
            (pulled, _) => pulled,
        };
        pulled.map_err(|error| classify(advise(error, image, login.is_some()), image, &doing))
    }

    /// A registry that has the image for one platform gives that to everybody. Without this check such a pull would be repeated
    /// for as long as the image is not what the container asks for.
    async fn check_platform(&self, image: &str, platform: &str) -> Result<(), CallError> {
        let found = find_image(&self.connection, &with_tag(image)).await?;
        let engine = self.connection.defaults().engine_traits();
        match found.filter(|found| !found.is_for(&Platform::parse(platform), &engine)) {
            None => Ok(()),
            Some(found) => {
                let found: Vec<String> = found.platforms.iter().map(ToString::to_string).collect();
                let found = found.join(", ");
                let message = format!("the registry does not have {image} for {platform}, only for {found}");
                Err(CallError::Status { code: 404, message })
            }
        }
    }

    async fn send_pull(
        &self,
        image: &str,
        platform: Option<&str>,
        login: Option<&Login>,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), CallError> {
        let mut path = format!("/images/create?fromImage={}", encode(&with_tag(image)));
        if let Some(platform) = platform {
            let _ = write!(path, "&platform={}", encode(platform));
        }
        let headers: Vec<_> =
            login.map(|login| ("x-registry-auth", login.header(image))).into_iter().collect();
        let last = Instant::now() + LONGEST;
        let mut end = Instant::now() + DEADLINE;
        let no_body = futures_util::stream::empty();
        let transport = self.connection.transport();
        let sent = transport.upload(Method::POST, &path, "application/json", &headers, no_body);
        let mut body =
            timeout(MAX_SILENCE, sent).await.unwrap_or(Err(CallError::TimedOut(MAX_SILENCE)))?.into_body();
        let (mut layers, mut received) = (Layers::default(), Vec::new());
        loop {
            let (silence, left) = (layers.longest_silence(), end.saturating_duration_since(Instant::now()));
            let frame = match timeout(silence.min(left), body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(CallError::unreachable(&error)),
                Ok(None) => return Ok(()),
                Err(_) if silence < left => return Err(CallError::TimedOut(silence)),
                Err(_) if end == last => return Err(CallError::TimedOut(LONGEST)),
                Err(_) => return Err(layers.overdue()),
            };
            received.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(newline) = received.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = received.drain(..=newline).collect();
                if let Some(message) = refusal(&line) {
                    return Err(CallError::Status { code: 500, message: clean(&message) });
                }
                let Ok(info) = serde_json::from_slice::<CreateImageInfo>(&line) else { continue };
                if layers.advance(&info) {
                    end = last.min(Instant::now() + DEADLINE);
                }
                let were_queued = layers.are_queued();
                let percent = layers.note(info);
                if layers.are_queued() && !were_queued {
                    progress(format!("pulling {image} (waiting for other downloads of the engine)"));
                }
                if let Some(percent) = percent {
                    progress(format!("pulling {image} ({percent} %)"));
                }
            }
        }
    }
}

/// The error that a message of the engine tells. Podman before 4.6 has it in `error` alone.
fn refusal(line: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Refusal {
        error_detail: Option<Detail>,
        error: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct Detail {
        message: Option<String>,
    }
    let refusal: Refusal = serde_json::from_slice(line).ok()?;
    let detail = refusal.error_detail.and_then(|detail| detail.message);
    detail.or(refusal.error).filter(|message| !message.is_empty())
}

/// Adds advice if the registry refuses: it does not say itself that the request had no login.
fn advise(error: CallError, image: &str, has_login: bool) -> CallError {
    let CallError::Status { code, message } = error else { return error };
    let message = match login_advice(&message, ImageRef::parse(image).registry(), has_login) {
        Some(advice) => format!("{message} ({advice})"),
        None => message,
    };
    CallError::Status { code, message }
}

/// Advice about the login, if a message is about that or may be.
fn login_advice(message: &str, host: &str, has_login: bool) -> Option<String> {
    // The engine says this of files of its host.
    let message = message.to_lowercase().replace("permission denied", "");
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let (is_of_login, is_of_image) = (says(UNAUTHORIZED), says(NO_ACCESS));
    if !is_of_login && !is_of_image && !says(REFUSED) {
        return None;
    }
    let add_one = "add one under `registries` in the configuration";
    Some(match (has_login, is_of_image && !is_of_login) {
        (true, true) => format!("{host} has no such image, or does not accept the login for it"),
        (true, false) if is_of_login => format!("the login for {host} was refused"),
        (true, false) => format!("the login for {host} was refused, or may not read the image"),
        (false, true) => format!("{host} has no such image, or wants a login: {add_one}"),
        (false, false) => format!("there is no login for {host}: {add_one}"),
    })
}

/// The progress of the layers.
#[derive(Debug, Default)]
struct Layers {
    bytes: BTreeMap<String, (u64, u64)>,
    reported: u64,
    /// Those that have to wait for their turn.
    queued: BTreeSet<String>,
    /// Those that have begun.
    active: BTreeSet<String>,
    /// Those that have arrived.
    arrived: BTreeSet<String>,
    /// The percentage that each layer has come to in each of its steps.
    furthest: BTreeMap<(String, String), u64>,
}

impl Layers {
    /// Whether the pull only waits: the engine downloads three layers at a time, for all pulls together, and says nothing about
    /// the others.
    fn are_queued(&self) -> bool {
        !self.queued.is_empty() && self.active.is_empty()
    }

    /// Whether all announced layers have arrived. The containerd image store of Docker 27 and older unpacks them without a message.
    fn have_arrived(&self) -> bool {
        !self.arrived.is_empty() && self.queued.is_empty() && self.active.is_empty()
    }

    /// The longest time without a message.
    fn longest_silence(&self) -> Duration {
        if self.are_queued() || self.have_arrived() { DEADLINE } else { MAX_SILENCE }
    }

    /// The error of a pull that did not get further until its deadline.
    fn overdue(&self) -> CallError {
        let message = if self.are_queued() {
            "other downloads of the engine took all the time".to_owned()
        } else {
            format!("the pull did not get further for {} minutes", DEADLINE.as_secs() / 60)
        };
        CallError::Status { code: 500, message }
    }

    /// Notes how far a layer has come. Returns whether that is further than before: it has come to another step, or one percent
    /// further in it. That is not so for a retry, and not for a few bytes, so that a registry cannot make a pull endless.
    fn advance(&mut self, info: &CreateImageInfo) -> bool {
        let (Some(id), Some(status)) = (&info.id, &info.status) else { return false };
        if !STEPS.contains(&status.as_str()) {
            return false;
        }
        let number = |it: Option<i64>| it.and_then(|it| u64::try_from(it).ok());
        let detail = info.progress_detail.as_ref();
        // An engine that counts seconds while it unpacks gives no total.
        let percent = detail.and_then(|detail| {
            number(detail.current)?.saturating_mul(100).checked_div(number(detail.total)?)
        });
        let percent = percent.unwrap_or_default().min(100);
        let key = (id.clone(), status.clone());
        let is_further = self.furthest.get(&key).is_none_or(|before| percent > *before);
        if is_further {
            self.furthest.insert(key, percent);
        }
        is_further
    }

    /// Notes the step that a layer has come to.
    fn note_step(&mut self, id: &str, status: &str) {
        self.queued.remove(id);
        self.active.remove(id);
        self.arrived.remove(id);
        match status {
            // The engine says it of each layer without a turn, right after the announcement. One without it has begun.
            "Waiting" => self.queued.insert(id.to_owned()),
            "Pulling fs layer" | "Downloading" | "Verifying Checksum" | "Extracting" => {
                self.active.insert(id.to_owned())
            }
            "Download complete" | "Pull complete" | "Already exists" => self.arrived.insert(id.to_owned()),
            retry if retry.starts_with("Retrying") => self.active.insert(id.to_owned()),
            _ => false,
        };
    }

    /// The percentage if it has grown. It does not shrink when the size of another layer becomes known.
    fn note(&mut self, info: CreateImageInfo) -> Option<u64> {
        let id = info.id?;
        self.note_step(&id, info.status.as_deref().unwrap_or_default());
        let detail = info.progress_detail?;
        if info.status.as_deref() != Some("Downloading") {
            return None;
        }
        let number = |it: Option<i64>| it.and_then(|it| u64::try_from(it).ok());
        self.bytes.insert(id, (number(detail.current)?, number(detail.total).filter(|it| *it > 0)?));
        let (done, all) = self
            .bytes
            .values()
            .fold((0_u64, 0_u64), |sum, it| (sum.0.saturating_add(it.0), sum.1.saturating_add(it.1)));
        let percent = done.saturating_mul(100).checked_div(all)?.min(100);
        (percent > self.reported).then(|| {
            self.reported = percent;
            percent
        })
    }
}

/// Without a tag the engine would pull all of them.
fn with_tag(image: &str) -> String {
    let parsed = ImageRef::parse(image);
    if parsed.tag().or(parsed.digest()).is_some() { image.to_owned() } else { format!("{image}:latest") }
}

fn classify(error: CallError, image: &str, doing: &str) -> Error {
    match error {
        CallError::Status { code: 400, message } => Error::Rejected { doing: doing.to_owned(), message },
        CallError::Status { code: _, message } => {
            let retry_after = retry_after(&message);
            Error::Pull { image: image.to_owned(), message, retry_after }
        }
        CallError::TimedOut(_) => {
            let message = format!("no progress: {error}");
            Error::Pull { image: image.to_owned(), message, retry_after: None }
        }
        CallError::Unreachable(_) => error.classify(doing),
    }
}

/// The engine passes on the registry's message and none of its headers. Some registries write into the message:
/// `toomanyrequests: retry-after: 1.5s, allowed: 44000/minute`, with a duration as Go prints it.
fn retry_after(message: &str) -> Option<Duration> {
    let rest = message.to_lowercase();
    let rest = rest.split("retry-after: ").nth(1)?;
    let word = rest.split([',', ' ']).next()?;
    let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match word.get(digits.len()..)? {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        _ => return Some(Duration::from_secs(1)),
    };
    let seconds: f64 = digits.parse().ok()?;
    Duration::try_from_secs_f64(seconds * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_without_tag_gets_latest() {
        assert_eq!(with_tag("localhost:5000/web"), "localhost:5000/web:latest");
        assert_eq!(with_tag("web:1"), "web:1");
        assert_eq!(with_tag("web@sha256:00"), "web@sha256:00");
    }

    #[test]
    fn refusals_are_found_in_either_form() {
        let said = |line: &str| refusal(line.as_bytes());
        assert_eq!(said(r#"{"errorDetail":{"message":"denied"},"error":"denied"}"#), Some("denied".into()));
        assert_eq!(said(r#"{"progressDetail":{},"error":"denied"}"#), Some("denied".into()), "Podman 4");
        assert_eq!(said(r#"{"status":"Downloading","progressDetail":{},"id":"a"}"#), None);
        assert_eq!(said("garbage"), None);
    }

    #[test]
    fn advice_about_logins_fits_the_message() {
        let no_access = "pull access denied for ngnix, repository does not exist or may require 'docker login': \
                         denied: requested access to the resource is denied";
        let of_file = "failed to register layer: open /var/lib/docker/tmp/a: permission denied";
        let of_containerd = "pull access denied, repository does not exist or may require authorization: \
                             authorization failed: no basic auth credentials";
        let refused = "the login for ghcr.io was refused";
        let unclear = "the login for ghcr.io was refused, or may not read the image";
        let none = "there is no login for ghcr.io: add one under `registries` in the configuration";
        let (no_image, no_image_or_login) = (
            "ghcr.io has no such image, or does not accept the login for it",
            "ghcr.io has no such image, or wants a login: add one under `registries` in the configuration",
        );
        for (message, with_login, without) in [
            (no_access, Some(no_image), Some(no_image_or_login)),
            (of_containerd, Some(refused), Some(none)),
            ("unauthorized: incorrect username or password", Some(refused), Some(none)),
            ("Get \"https://ghcr.io/v2/\": denied: denied", Some(unclear), Some(none)),
            ("denied: Permission denied for the project", Some(unclear), Some(none)),
            (of_file, None, None),
            ("manifest unknown", None, None),
        ] {
            assert_eq!(login_advice(message, "ghcr.io", true).as_deref(), with_login, "{message}");
            assert_eq!(login_advice(message, "ghcr.io", false).as_deref(), without, "{message}");
        }
    }

    #[test]
    fn retry_after_is_read_from_the_message() {
        let parse =
            |text: &str| retry_after(&format!("toomanyrequests: retry-after: {text}, allowed: 9/minute"));
        assert_eq!(parse("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(parse("742.6µs"), Some(Duration::from_secs(1)));
        assert_eq!(retry_after("denied"), None);
    }

    #[test]
    fn pull_that_only_waits_may_be_silent() {
        let mut layers = Layers::default();
        let mut silence = |id: &str, status: &str| {
            let (id, status) = (Some(id.to_owned()), Some(status.to_owned()));
            layers.note(CreateImageInfo { id, status, ..CreateImageInfo::default() });
            layers.longest_silence()
        };
        assert_eq!(silence("latest", "Pulling from library/web"), MAX_SILENCE);
        // A silence is that of the registry while a layer has its turn.
        assert_eq!(silence("a", "Pulling fs layer"), MAX_SILENCE);
        assert_eq!(silence("b", "Already exists"), MAX_SILENCE);
        assert_eq!(silence("c", "Pulling fs layer"), MAX_SILENCE);
        assert_eq!(silence("c", "Waiting"), MAX_SILENCE);
        assert_eq!(silence("a", "Waiting"), DEADLINE, "no layer has a turn");
        assert_eq!(silence("a", "Downloading"), MAX_SILENCE);
        assert_eq!(silence("a", "Retrying in 5 seconds"), MAX_SILENCE);
        assert_eq!(silence("a", "Verifying Checksum"), MAX_SILENCE);
        assert_eq!(silence("a", "Download complete"), DEADLINE);
        assert_eq!(silence("c", "Downloading"), MAX_SILENCE);
        assert_eq!(silence("c", "Download complete"), DEADLINE, "it may unpack in silence");
        assert_eq!(silence("c", "Extracting"), MAX_SILENCE);
        assert_eq!(silence("c", "Pull complete"), DEADLINE);
    }

    fn step(id: &str, status: &str, current: i64, total: Option<i64>) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: Some(bollard::models::ProgressDetail { current: Some(current), total }),
            error_detail: None,
        }
    }

    #[test]
    fn deadline_counts_from_the_last_progress() {
        let mut layers = Layers::default();
        let mut advances = |info: CreateImageInfo| layers.advance(&info);
        assert!(advances(step("a", "Pulling fs layer", 0, None)));
        assert!(advances(step("a", "Downloading", 10, Some(1000))));
        assert!(advances(step("a", "Downloading", 20, Some(1000))));
        assert!(!advances(step("a", "Downloading", 29, Some(1000))), "less than one percent");
        assert!(!advances(step("a", "Retrying in 5 seconds", 0, None)));
        assert!(!advances(step("a", "Downloading", 10, Some(1000))), "it has begun again");
        assert!(advances(step("a", "Downloading", 30, Some(1000))));
        assert!(advances(step("b", "Downloading", 10, Some(1000))));
        assert!(!advances(step("c", "Waiting", 0, None)));
        assert!(advances(step("a", "Extracting", 1, None)));
        assert!(!advances(step("a", "Extracting", 2, None)), "seconds are no progress");
        assert!(!advances(CreateImageInfo::default()));
    }

    #[test]
    fn progress_only_grows() {
        let info = |id: &str, current, total| step(id, "Downloading", current, Some(total));
        let mut layers = Layers::default();
        assert_eq!(layers.note(info("a", 50, 100)), Some(50));
        assert_eq!(layers.note(info("b", 0, 900)), None);
        assert_eq!(layers.note(info("b", 600, 900)), Some(65));
    }
}
