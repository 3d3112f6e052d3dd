//! Image updates: what happens when the registry has a newer image for a reference of the manifest.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use semver::Version;
use serde::{Deserialize, Serialize};

use crate::{ImageRef, Timestamp, defaults::is_default, version_range::VersionRange, wildcard::matches_star};

/// The time between two looks at the registry, if nothing else is set.
const EVERY: Duration = Duration::from_hours(1);

/// The setting for newer images of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdate {
    /// Whether a newer image is deployed or only reported.
    #[serde(default)]
    pub mode: UpdateMode,
    /// A range of versions (`~1.4`): the newest tag in it is followed. Default: the tag of the manifest is followed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub semver: Option<String>,
    /// Only tags that match this pattern, in which `*` stands for any text. Default: all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tags: Option<String>,
    /// A newer image is deployed once the agent has known it for this long. Default: 0.
    #[serde(
        rename = "minAgeSeconds",
        with = "crate::seconds::whole",
        default,
        skip_serializing_if = "Duration::is_zero"
    )]
    pub min_age: Duration,
    /// The time between two looks at the registry. Default: 1 hour.
    #[serde(rename = "everySeconds", with = "crate::seconds::whole", default = "every")]
    pub every: Duration,
}

/// The fields of an [`ImageUpdate`] as a manifest or a configuration has them.
#[derive(Clone, Debug, Default)]
pub struct UpdateFields {
    /// `off`, `report` or `apply`.
    pub mode: Option<String>,
    /// A range of versions.
    pub semver: Option<String>,
    /// A pattern for tags.
    pub tags: Option<String>,
    /// The age that a newer image must have.
    pub min_age: Option<Duration>,
    /// The time between two looks at the registry.
    pub every: Option<Duration>,
}

/// Whether newer images are deployed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpdateMode {
    /// The registry is not asked.
    Off,
    /// They are reported.
    #[default]
    Report,
    /// They are deployed, as a revision with the cause `image`.
    Apply,
}

const fn every() -> Duration {
    EVERY
}

impl Default for ImageUpdate {
    fn default() -> Self {
        Self { mode: UpdateMode::Report, semver: None, tags: None, min_age: Duration::ZERO, every: EVERY }
    }
}

impl ImageUpdate {
    /// The shortest time between two looks at the registry.
    pub const SHORTEST: Duration = Duration::from_mins(1);

    /// The setting from its fields, as all formats have them. Without a mode, newer images are deployed.
    ///
    /// # Errors
    ///
    /// The name of the wrong field, and why it is wrong.
    pub fn of_fields(fields: UpdateFields) -> Result<Self, (&'static str, String)> {
        let UpdateFields { mode, semver, tags, min_age, every } = fields;
        let mode = match mode.as_deref() {
            None | Some("apply") => UpdateMode::Apply,
            Some("report") => UpdateMode::Report,
            Some("off") => UpdateMode::Off,
            Some(other) => {
                return Err(("mode", format!("`{other}` is no mode: use `off`, `report` or `apply`")));
            }
        };
        if let Some(range) = &semver {
            VersionRange::parse(range).map_err(|error| ("semver", error))?;
        }
        if tags.is_some() && semver.is_none() {
            return Err(("tags", "chooses among the versions of `semver`, which is not set".to_owned()));
        }
        let is_whole = |time: &Option<Duration>| time.is_none_or(|time| time.subsec_nanos() == 0);
        if !is_whole(&min_age) {
            return Err(("minAge", "must be a number of whole seconds".to_owned()));
        }
        let every = every.unwrap_or(EVERY);
        if every < Self::SHORTEST || !is_whole(&Some(every)) {
            return Err(("every", "must be at least `1m`, and whole seconds".to_owned()));
        }
        Ok(Self { mode, semver, tags, min_age: min_age.unwrap_or_default(), every })
    }

    /// The setting in one word: `off`, `report` or `digest`.
    pub fn of_word(word: &str) -> Option<Self> {
        let mode = match word {
            "off" => UpdateMode::Off,
            "report" => UpdateMode::Report,
            "digest" => UpdateMode::Apply,
            _ => return None,
        };
        Some(Self { mode, ..Self::default() })
    }

    /// The tags that are followed, if a range of versions is given.
    pub fn tag_rule(&self) -> Option<TagRule> {
        let range = VersionRange::parse(self.semver.as_ref()?).ok()?;
        Some(TagRule { range, pattern: self.tags.clone() })
    }

    /// Whether a range of versions is followed, and `tag` is an older version than `current`. False if one of the two is no
    /// version.
    pub fn goes_back(&self, current: Option<&str>, tag: &str) -> bool {
        let versions = (current.and_then(version_of), version_of(tag));
        let (Some((_, current)), Some((_, found))) = versions else { return false };
        self.semver.is_some() && found < current
    }

    /// Whether a reference of the manifest may have been resolved to this image.
    pub fn resolves(&self, reference: &str, image: &str) -> bool {
        let (found, wanted) = (ImageRef::parse(image), ImageRef::parse(reference));
        let (Some(_), Some(tag)) = (found.digest(), found.tag()) else { return false };
        let is_followed = match self.tag_rule() {
            Some(rule) => rule.newest(wanted.tag(), [tag]) == Some(tag),
            None => wanted.effective_tag() == Some(tag),
        };
        found.is_same_repository(&wanted) && is_followed
    }
}

/// The tags of an image that are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRule {
    /// The versions.
    pub range: VersionRange,
    /// A pattern for the tag, in which `*` stands for any text.
    pub pattern: Option<String>,
}

/// The form of a tag that is a version: `v1.4.2-alpine` has a `v`, three numbers and the suffix `-alpine`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TagForm<'a> {
    has_v: bool,
    numbers: usize,
    suffix: &'a str,
}

impl TagRule {
    /// The newest of `tags` that is in the range and has the form of `current`: the same number of parts, and the same
    /// suffix. So `1.4.2-alpine` is followed by `1.4.3-alpine`, and neither by `1.5`, `1.4.3` nor `1.4.3-rc1-alpine`. If the
    /// current tag is no version, as `latest`, tags with three numbers and no suffix are followed.
    pub fn newest<'a>(
        &self,
        current: Option<&str>,
        tags: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let current = current.and_then(version_of);
        let plain = TagForm { has_v: false, numbers: 3, suffix: "" };
        let form = current.as_ref().map_or(&plain, |(form, _)| form);
        let oldest = current.as_ref().map(|(_, version)| version);
        let newest = tags
            .into_iter()
            .filter(|tag| self.pattern.as_ref().is_none_or(|pattern| matches_star(pattern, tag)))
            .filter_map(|tag| version_of(tag).map(|(form, version)| (form, version, tag)))
            .filter(|(found, version, _)| {
                let is_alike = found.numbers == form.numbers && found.suffix == form.suffix;
                let is_alike = is_alike && (current.is_none() || found.has_v == form.has_v);
                is_alike && self.range.matches(version) && oldest.is_none_or(|oldest| version >= oldest)
            })
            .max_by(|one, other| one.1.cmp(&other.1));
        newest.map(|(_, _, tag)| tag)
    }
}

fn version_of(tag: &str) -> Option<(TagForm<'_>, Version)> {
    let (has_v, rest) = match tag.strip_prefix('v') {
        Some(rest) => (true, rest),
        None => (false, tag),
    };
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    let (numbers, suffix) = rest.split_at(end);
    let parts: Vec<u64> = numbers.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let version = match parts.as_slice() {
        [major] => Version::new(*major, 0, 0),
        [major, minor] => Version::new(*major, *minor, 0),
        [major, minor, patch] => Version::new(*major, *minor, *patch),
        _ => return None,
    };
    let is_suffix = suffix.is_empty() || suffix.starts_with(['-', '_', '+']);
    is_suffix.then_some((TagForm { has_v, numbers: parts.len(), suffix }, version))
}

/// The memory of a reference of the manifest whose registry is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FollowedImage {
    /// The digests that the images of its containers were pulled by, by the id of the image. A digest stays what it was when
    /// the container was first seen: a name that moves to another image may take it along.
    pub running: BTreeMap<String, String>,
    /// The ids of those images of which only the engine says the digest. Its image store of containerd gives one also to an image that
    /// was built or loaded on the host, so a registry may never have had it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unproven: BTreeSet<String>,
    /// The reference that containers are created from in place of that of the manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// A newer image that is not deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<AvailableImage>,
    /// Since when it is known, while the clock is behind that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Timestamp>,
    /// When the registry last answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Timestamp>,
    /// When it is asked again. Zero: at once, also if a question is under way.
    pub next: Timestamp,
    /// Why it could not be asked, if that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<CheckFailure>,
}

/// The images of an application, by the first digits of their digests, so that the hosts of a fleet can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageDigests {
    /// Those that it runs, as far as a registry has a digest for them.
    pub running: Vec<String>,
    /// Those that were resolved for the failed commit. `None`: none failed, or an older agent has noted it.
    pub failed: Option<Vec<String>>,
}

/// An image that is newer than what runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AvailableImage {
    /// With tag and digest.
    pub image: String,
    /// When the agent saw it first.
    pub since: Timestamp,
}

/// A question to a registry that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckFailure {
    /// One word: `Unauthorized`, `Forbidden`, `NotFound`, `NoTag`, `NoPlatform`, `TooManyRequests`, `Certificate`, `Unreachable` or
    /// `Invalid`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The number of failures in a row.
    pub count: u32,
    /// When the first of them was. `None`: an older agent has noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The status of a reference whose registry is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateStatus {
    /// The reference of the manifest.
    pub image: String,
    /// Whether a newer image is deployed.
    pub mode: UpdateMode,
    /// The reference that containers are created from in place of that of the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// A newer image that is not deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<AvailableImage>,
    /// When the newer image is deployed, if it waits for its age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// When the registry last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Timestamp>,
    /// Why it could not be asked, if that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CheckFailure>,
    /// Why the images cannot be compared, if they cannot.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl CheckFailure {
    /// Whether it may pass without a change of login, image or network: the newest image lacks the platform of this host so far, or the
    /// registry limits questions.
    pub fn may_pass(&self) -> bool {
        matches!(self.reason.as_str(), "NoPlatform" | "TooManyRequests")
    }
}

impl ImageUpdateStatus {
    /// A sentence if there is a newer image, or if the registry gave no answer.
    pub fn sentence(&self) -> Option<String> {
        if let Some(AvailableImage { image, .. }) = &self.available {
            let newest = ImageRef::parse(image);
            let digest = newest.digest().unwrap_or_default();
            let digest = digest.get(.."sha256:".len() + 12).unwrap_or(digest);
            let tag = newest.tag().filter(|tag| ImageRef::parse(&self.image).effective_tag() != Some(tag));
            let tag = tag.map(|tag| format!("{tag}, ")).unwrap_or_default();
            let what = match (self.mode, self.due) {
                (UpdateMode::Apply, Some(due)) => format!("is deployed at {due}"),
                (UpdateMode::Apply, None) => "is being deployed".to_owned(),
                (UpdateMode::Report | UpdateMode::Off, _) => "is only reported".to_owned(),
            };
            return Some(format!("{} has a newer image ({tag}{digest}), which {what}", self.image));
        }
        self.failure_sentence()
    }

    /// A sentence if the registry gave no answer.
    pub fn failure_sentence(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!("could not look for a newer image of {}: {}", self.image, failure.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest(
        range: &str,
        pattern: Option<&str>,
        current: &str,
        tags: &[&'static str],
    ) -> Option<&'static str> {
        let rule =
            TagRule { range: VersionRange::parse(range).unwrap(), pattern: pattern.map(str::to_owned) };
        rule.newest(Some(current), tags.iter().copied())
    }

    #[test]
    fn newest_tag_of_the_same_form_is_followed() {
        let tags = [
            "1.4.2",
            "1.4.10",
            "1.4.3-alpine",
            "1.4.12-rc1",
            "1.5.0",
            "v1.4.11",
            "1.4",
            "1",
            "latest",
            "2.0",
        ];
        assert_eq!(newest("~1.4", None, "1.4.2", &tags), Some("1.4.10"));
        assert_eq!(newest("^1", None, "1.4.2", &tags), Some("1.5.0"));
        assert_eq!(newest("*", None, "1.4", &tags), Some("2.0"));
        assert_eq!(newest("*", None, "1.4.2-alpine", &tags), Some("1.4.3-alpine"));
        assert_eq!(newest("~1.4", Some("*2"), "1.4.1", &tags), Some("1.4.2"));
        assert_eq!(newest("*", None, "v1.0.0", &tags), Some("v1.4.11"));
        assert_eq!(newest("*", None, "latest", &tags), Some("1.5.0"));
    }

    #[test]
    fn older_tag_is_never_followed() {
        assert_eq!(newest("~1.4", None, "1.4.9", &["1.4.2", "1.4.8"]), None);
        assert_eq!(newest("~1.4", None, "1.5.0", &["1.4.2", "1.4.8"]), None);
    }

    #[test]
    fn tags_that_are_no_versions_are_left_out() {
        let odd = ["1.2.3.4", "", ".", "1..2", "99999999999999999999.0.0", "1.2.3alpine", "stable"];
        assert_eq!(newest("*", None, "1.0.0", &odd), None);
    }

    #[test]
    fn setting_in_one_word_is_read() {
        assert_eq!(ImageUpdate::of_word("digest").map(|it| it.mode), Some(UpdateMode::Apply));
        assert_eq!(ImageUpdate::of_word("report"), Some(ImageUpdate::default()));
        assert_eq!(ImageUpdate::of_word("always"), None);
    }
}
