//! The configuration file as it is written: keys, scalars, and where a mistake in them is. Rules that look at
//! more than one value are in `check`.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

use super::{
    Proxy, VersionRange,
    access::{RawAuth, RawHostAccess, proxy},
    duration,
    registry::RawRegistry,
    status::RawStatus,
    trust::RawVerify,
    url,
    webhook::{RawWebhook, RawWebhooks},
};
use driftless_model::{Adopt, AppName, FilesystemDrift, Finding, Location};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default, deserialize_with = "absolute")]
    pub(super) state_dir: Option<PathBuf>,
    #[serde(default, deserialize_with = "absolute")]
    pub(super) runtime_dir: Option<PathBuf>,
    #[serde(default, deserialize_with = "address")]
    pub(super) listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "absolute")]
    pub(super) token_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "docker_host")]
    pub(super) docker: Option<String>,
    #[serde(default, deserialize_with = "positive")]
    pub(super) build_timeout: Option<Duration>,
    pub(super) self_heal: Option<bool>,
    pub(super) prune: Option<bool>,
    #[serde(default, deserialize_with = "percent")]
    pub(super) max_prune_percent: Option<u8>,
    pub(super) filesystem_drift: Option<FilesystemDrift>,
    #[serde(default)]
    pub(super) credentials: Vec<RawHostAccess>,
    #[serde(default)]
    pub(super) registries: Vec<RawRegistry>,
    pub(super) webhooks: Option<RawWebhooks>,
    pub(super) adopt: Option<Adopt>,
    pub(super) repositories: Vec<Repository>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Repository {
    pub(super) name: Option<String>,
    #[serde(deserialize_with = "repository_url")]
    pub(super) url: String,
    pub(super) branch: Option<String>,
    pub(super) tag: Option<String>,
    #[serde(default, deserialize_with = "range")]
    pub(super) semver: Option<VersionRange>,
    #[serde(default, deserialize_with = "commit")]
    pub(super) commit: Option<String>,
    #[serde(default, deserialize_with = "folder")]
    pub(super) path: Option<String>,
    #[serde(default, deserialize_with = "positive")]
    pub(super) poll: Option<Duration>,
    #[serde(default, deserialize_with = "positive")]
    pub(super) timeout: Option<Duration>,
    #[serde(default, deserialize_with = "positive")]
    pub(super) idle_timeout: Option<Duration>,
    pub(super) auth: Option<RawAuth>,
    #[serde(default, deserialize_with = "absolute")]
    pub(super) ca_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "proxy")]
    pub(super) proxy: Option<Proxy>,
    #[serde(default)]
    pub(super) submodules: bool,
    #[serde(default)]
    pub(super) require_fast_forward: bool,
    pub(super) verify: Option<RawVerify>,
    pub(super) self_heal: Option<bool>,
    pub(super) prune: Option<bool>,
    #[serde(default, deserialize_with = "percent")]
    pub(super) max_prune_percent: Option<u8>,
    pub(super) filesystem_drift: Option<FilesystemDrift>,
    pub(super) webhook: Option<RawWebhook>,
    pub(super) status: Option<RawStatus>,
    pub(super) adopt: Option<Adopt>,
    #[serde(default)]
    pub(super) applications: Vec<Application>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Application {
    #[serde(deserialize_with = "folder")]
    pub(super) path: Option<String>,
    #[serde(default, deserialize_with = "app_name")]
    pub(super) name: Option<AppName>,
    pub(super) suspend: Option<bool>,
    pub(super) self_heal: Option<bool>,
    pub(super) prune: Option<bool>,
    #[serde(default, deserialize_with = "percent")]
    pub(super) max_prune_percent: Option<u8>,
    pub(super) filesystem_drift: Option<FilesystemDrift>,
    pub(super) verify: Option<RawVerify>,
    pub(super) adopt: Option<Adopt>,
    #[serde(default, deserialize_with = "variables")]
    pub(super) variables: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) profiles: Vec<String>,
    #[serde(default)]
    pub(super) files: Vec<String>,
    #[serde(default)]
    pub(super) env_files: Vec<String>,
}

/// Reads the keys and scalars of a file. The parser stops at the first mistake.
pub(super) fn parse(file: &str, text: &str) -> Result<Document, Box<Finding>> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        let finding = Finding::error(Location::file(file), "", "the configuration is empty");
        return Err(Box::new(finding.help("name at least one repository under `repositories`")));
    }
    serde_yaml::from_str(text).map_err(|error| Box::new(finding(file, &error)))
}

/// The parser's message, taken apart. Values are never repeated: someone may have put a password where it
/// does not belong.
fn finding(file: &str, error: &serde_yaml::Error) -> Finding {
    let place = |number: usize| u32::try_from(number).unwrap_or(0);
    let location = error
        .location()
        .map_or_else(|| Location::file(file), |it| Location::new(file, place(it.line()), place(it.column())));
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let (path, message) = split_path(text);
    let finding = Finding::error(location, path, without_value(message));
    match suggestion(message) {
        Some(known) => finding.help(format!("did you mean `{known}`?")),
        None => finding,
    }
}

/// `repositories[0].auth: unknown field …` is a path and a message.
fn split_path(text: &str) -> (&str, &str) {
    match text.split_once(": ") {
        Some((path, message)) if path.chars().all(|it| it.is_alphanumeric() || ".[]_-?".contains(it)) => {
            (path, message)
        }
        Some(_) | None => ("", text),
    }
}

/// `invalid type: string "…", expected …` without what stands between the quotes.
fn without_value(message: &str) -> String {
    let Some(rest) =
        message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))
    else {
        return message.to_owned();
    };
    let (found, expected) = rest.rsplit_once(", expected ").unwrap_or((rest, "something else"));
    let found = match found.split([' ', '`', '"']).next().unwrap_or_default() {
        "string" => "a text",
        "boolean" => "true or false",
        "integer" | "floating" => "a number",
        "sequence" => "a list",
        "map" => "a mapping",
        "unit" | "null" => "nothing",
        _ => "something else",
    };
    let expected = match expected {
        "a sequence" => "a list",
        "a boolean" => "true or false",
        it if it.starts_with("struct ") => "a mapping",
        it => it,
    };
    format!("{found} stands where {expected} is expected")
}

/// The known key that resembles an unknown one most.
fn suggestion(message: &str) -> Option<String> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?.to_lowercase();
    let likeness =
        |known: &str| similar::TextDiff::from_chars(unknown.as_str(), known.to_lowercase().as_str()).ratio();
    quoted
        .map(|known| (likeness(known), known))
        .filter(|it| it.0 > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|it| it.1.to_owned())
}

/// Parses a scalar where it stands, so that the parser knows the place of a mistake. A key without a value
/// counts as not given.
pub(super) struct Scalar<T>(pub(super) fn(&str) -> Result<T, String>);

impl<'de, T> Visitor<'de> for Scalar<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        (self.0)(text).map(Some).map_err(E::custom)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

pub(super) fn absolute<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| {
        if text.starts_with('/') {
            Ok(PathBuf::from(text))
        } else {
            Err("the path must be absolute: it has to begin with `/`".to_owned())
        }
    }))
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| {
        text.parse().map_err(|_| {
            format!("`{text}` is not an address with a port, such as `127.0.0.1:8484` or `[::1]:8484`")
        })
    }))
}

fn docker_host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| url::check_docker(text).map(|()| text.to_owned())))
}

fn repository_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url = deserializer.deserialize_option(Scalar(|text| url::check(text).map(|_| text.to_owned())))?;
    url.ok_or_else(|| D::Error::custom("`url` has no value"))
}

fn commit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| {
        if url::is_commit(text) {
            Ok(text.to_ascii_lowercase())
        } else {
            Err("a commit is given by its full id: 40 (or 64) hexadecimal digits".to_owned())
        }
    }))
}

fn range<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<VersionRange>, D::Error> {
    deserializer.deserialize_option(Scalar(VersionRange::parse))
}

fn folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(Scalar(url::folder))
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| match duration::parse(text) {
        Ok(it) if it < Duration::from_secs(1) => Err("it must be at least `1s`".to_owned()),
        other => other,
    }))
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| match text.parse() {
        Ok(it @ 0..=100_u8) => Ok(it),
        Ok(_) | Err(_) => Err("it must be a whole number from 0 to 100, in percent".to_owned()),
    }))
}

fn app_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AppName>, D::Error> {
    deserializer.deserialize_option(Scalar(|text| AppName::parse(text).map_err(|error| error.to_string())))
}

/// Values as they are written, so that `1.10` stays `1.10`; a key given twice is a mistake.
fn variables<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Variables;

    impl<'de> Visitor<'de> for Variables {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a mapping of variables")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut variables = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                if variables.contains_key(&name) {
                    map.next_value::<IgnoredAny>()?;
                    return Err(M::Error::custom(format!("the variable `{name}` is given twice")));
                }
                let value = map.next_value::<String>()?;
                variables.insert(name, value);
            }
            Ok(variables)
        }
    }

    deserializer.deserialize_map(Variables)
}
