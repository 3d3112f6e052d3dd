//! Pulls one image and tells how far it got. What the registry refuses is an error of this image alone.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use bollard::models::CreateImageInfo;
use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::{
    Error,
    call_error::{CallError, clean},
    engine::Inner,
    image_build::encode,
    observe::is_reference,
    registry_logins::{Login, place_of},
};
use driftless_model::ContentId;

/// The longest silence of a pull that is alive.
const SILENCE: Duration = Duration::from_mins(1);
/// The longest pull.
const WHOLE: Duration = Duration::from_mins(30);
/// What registries and the engine say to who may not.
const REFUSED: &[&str] = &["unauthorized", "denied", "no basic auth credentials", "authentication required"];

impl Inner {
    pub(crate) async fn pull(
        &self,
        image: &str,
        platform: Option<&str>,
        secrets: &[ContentId],
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        let doing = format!("pull {image}");
        if !is_reference(image) {
            return Err(Error::Rejected { doing, message: "this is not an image's name".to_owned() });
        }
        let own: Vec<_> = secrets.iter().map(|it| self.paths.secret.join(&it.0)).collect();
        let login = self.registries.login(image, &own);
        let login =
            login.map_err(|message| Error::Pull { image: image.to_owned(), message, retry_after: None })?;
        self.agree().await.map_err(|it| it.sort(&doing))?;
        progress(format!("pulling {image}"));
        let pulled = self.follow_pull(image, platform, login.as_ref(), progress).await;
        self.cache.invalidate_images();
        pulled.map_err(|failure| sort_pull(advise(failure, image, login.is_some()), image, &doing))
    }

    async fn follow_pull(
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
        let headers: Vec<_> = login.map(|it| ("x-registry-auth", it.header(image))).into_iter().collect();
        let end = Instant::now() + WHOLE;
        let nothing = futures_util::stream::empty();
        let asked = self.transport.upload(Method::POST, &path, "application/json", &headers, nothing);
        let mut body = timeout(SILENCE, asked).await.unwrap_or(Err(CallError::Late(SILENCE)))?.into_body();
        let (mut layers, mut said) = (Layers::default(), Vec::new());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let frame = match timeout(SILENCE.min(left), body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(CallError::unreachable(&error)),
                Ok(None) => return Ok(()),
                Err(_) if left.is_zero() => return Err(CallError::Late(WHOLE)),
                Err(_) => return Err(CallError::Late(SILENCE)),
            };
            said.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = said.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = said.drain(..=end).collect();
                let Ok(info) = serde_json::from_slice::<CreateImageInfo>(&line) else { continue };
                if let Some(error) = info.error_detail.as_ref().and_then(|it| it.message.as_deref()) {
                    return Err(CallError::Status { code: 500, message: clean(error) });
                }
                if let Some(percent) = layers.note(info) {
                    progress(format!("pulling {image} ({percent} %)"));
                }
            }
        }
    }
}

/// What to do about a registry that refuses: it does not say itself that nobody has told it who we are.
fn advise(failure: CallError, image: &str, has_login: bool) -> CallError {
    match failure {
        CallError::Status { code, message }
            if REFUSED.iter().any(|it| message.to_lowercase().contains(it)) =>
        {
            let host = place_of(image).0;
            let advice = if has_login {
                format!("the login for {host} was refused")
            } else {
                format!("there is no login for {host}: name it under `registries` in the configuration")
            };
            CallError::Status { code, message: format!("{message} ({advice})") }
        }
        other => other,
    }
}

/// How far the download of each layer is.
#[derive(Debug, Default)]
struct Layers {
    bytes: BTreeMap<String, (u64, u64)>,
    told: u64,
}

impl Layers {
    /// The percentage, when it has changed. It may not go back when another layer's size becomes known.
    fn note(&mut self, info: CreateImageInfo) -> Option<u64> {
        let (id, detail) = (info.id?, info.progress_detail?);
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
        (percent > self.told).then(|| {
            self.told = percent;
            percent
        })
    }
}

/// Without a tag the engine would fetch them all.
fn with_tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains(':') || name.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}

fn sort_pull(failure: CallError, image: &str, doing: &str) -> Error {
    match failure {
        CallError::Status { code: 400, message } => Error::Rejected { doing: doing.to_owned(), message },
        CallError::Status { code: _, message } => {
            let retry_after = retry_after(&message);
            Error::Pull { image: image.to_owned(), message, retry_after }
        }
        CallError::Late(_) => {
            let message = format!("no progress: {failure}");
            Error::Pull { image: image.to_owned(), message, retry_after: None }
        }
        CallError::Unreachable(_) => failure.sort(doing),
    }
}

/// The engine passes the registry's words on, and nothing of its headers. Some registries say it in words:
/// `toomanyrequests: retry-after: 1.5s, allowed: 44000/minute`. Go writes its durations that way.
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
    fn an_image_without_a_tag_is_the_latest() {
        assert_eq!(with_tag("localhost:5000/web"), "localhost:5000/web:latest");
        assert_eq!(with_tag("web:1"), "web:1");
        assert_eq!(with_tag("web@sha256:00"), "web@sha256:00");
    }

    #[test]
    fn a_registry_that_says_when_is_listened_to() {
        let said =
            |text: &str| retry_after(&format!("toomanyrequests: retry-after: {text}, allowed: 9/minute"));
        assert_eq!(said("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(said("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(said("742.6µs"), Some(Duration::from_secs(1)));
        assert_eq!(retry_after("denied"), None);
    }

    #[test]
    fn progress_only_goes_forward() {
        let info = |id: &str, current, total| CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some("Downloading".to_owned()),
            progress_detail: Some(bollard::models::ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            error_detail: None,
        };
        let mut layers = Layers::default();
        assert_eq!(layers.note(info("a", 50, 100)), Some(50));
        assert_eq!(layers.note(info("b", 0, 900)), None);
        assert_eq!(layers.note(info("b", 600, 900)), Some(65));
    }
}
