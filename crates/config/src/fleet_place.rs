//! Places that keep the reports of hosts: other agents, S3-compatible buckets, and folders of WebDAV servers.

use std::{net::IpAddr, path::PathBuf};

use crate::{
    keys,
    secret::Secret,
    value::{Fields as _, Object, Value},
};

/// A place that keeps the reports of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPlace {
    /// The URL without credentials and without a slash at the end: `https://hub.example.com`, `s3://bucket/prefix` or
    /// `davs://dav.example.com/fleet`.
    pub url: String,
    /// The kind of the place, with its settings.
    pub kind: PlaceKind,
    /// A PEM file of the certificate authorities of its server. Default: those of the system.
    pub ca_file: Option<PathBuf>,
}

/// The kind of a place, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// Another agent.
    Collector {
        /// Default: none, which a collector on loopback accepts.
        token: Option<Secret>,
    },
    /// A bucket of Amazon S3 or of a compatible server.
    Bucket(FleetBucket),
    /// A folder of a WebDAV server.
    Folder(FleetFolder),
}

/// A bucket of Amazon S3 or of a compatible server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetBucket {
    /// The name of the bucket.
    pub name: String,
    /// The folder in it, without a slash at either end. Empty: the bucket itself.
    pub prefix: String,
    /// The URL of the server. Default: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or Amazon's server of the region.
    pub endpoint: Option<String>,
    /// Default: `AWS_REGION`, `AWS_DEFAULT_REGION` or `us-east-1`.
    pub region: Option<String>,
    /// A file of credentials in the form of Amazon's tools. Default: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or the
    /// file of Amazon's tools.
    pub credentials_file: Option<PathBuf>,
}

/// A folder of a WebDAV server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFolder {
    /// Its URL with `http` or `https`, without a slash at the end.
    pub url: String,
    /// The name of the user. Default: `WEBDAV_USER`, or none.
    pub user: Option<String>,
    /// The password. Default: `WEBDAV_PASSWORD`.
    pub password: Option<Secret>,
}

impl FleetPlace {
    /// Reads a URL: `https://` is another agent, `s3://BUCKET/PREFIX` a bucket, and `davs://` a folder of a WebDAV server.
    ///
    /// # Errors
    /// A sentence that says how to write it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim_end_matches('/');
        let url = text.to_owned();
        let kind = if let Some(rest) = text.strip_prefix("s3://") {
            let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if !is_plain(name) || !(prefix.is_empty() || prefix.split('/').all(is_plain)) {
                return Err(
                    "a bucket is written as `s3://BUCKET/FOLDER`, in letters, digits, `.`, `-` and `_`",
                );
            }
            let (name, prefix) = (name.to_owned(), prefix.to_owned());
            PlaceKind::Bucket(FleetBucket { name, prefix, ..FleetBucket::default() })
        } else if let Some(rest) = text.strip_prefix("dav").filter(|rest| rest.starts_with(['s', ':'])) {
            let url = format!("http{rest}");
            if !is_url(&url) {
                return Err(
                    "a folder of a WebDAV server is written as `davs://dav.example.com/fleet`, without a user or a query",
                );
            }
            PlaceKind::Folder(FleetFolder { url, ..FleetFolder::default() })
        } else if is_url(text) {
            PlaceKind::Collector { token: None }
        } else {
            return Err(
                "a place of reports is the URL of another agent (`https://hub.example.com`), `s3://BUCKET/FOLDER` or `davs://HOST/FOLDER`, without a user or a query",
            );
        };
        Ok(Self { url, kind, ca_file: None })
    }

    /// Whether everybody on the way can read a token or password, since it crosses the network over plain http. A collector that this
    /// host has joined gets no token.
    pub fn is_exposed(&self) -> bool {
        match &self.kind {
            PlaceKind::Collector { token } => token.is_some() && is_in_clear(&self.url),
            PlaceKind::Folder(folder) => folder.password.is_some() && is_in_clear(&folder.url),
            PlaceKind::Bucket(_) => false,
        }
    }

    /// Reads a URL, or a map with a URL and credentials.
    pub(super) fn read(value: &Value<'_>) -> Option<Self> {
        if value.node.as_scalar().is_some() {
            return value.string().and_then(|text| of_text(value, text));
        }
        let object = value.clone().object(&keys::FLEET_PLACE)?;
        object.require("url");
        let mut place = object.get("url").and_then(|url| of_text(&url, url.string()?))?;
        place.ca_file = object.absolute("caFile");
        match &mut place.kind {
            PlaceKind::Collector { token } => {
                *token = secret(&object, "tokenFile", "tokenEnv");
                only(&object, &["tokenFile", "tokenEnv"], "another agent");
            }
            PlaceKind::Bucket(bucket) => {
                bucket.region = object.parsed("region", |text| {
                    if is_plain(text) {
                        Ok(text.to_owned())
                    } else {
                        Err("is no name of a region".to_owned())
                    }
                });
                bucket.endpoint = object.parsed("endpoint", |text| {
                    let endpoint = text.trim_end_matches('/');
                    if is_url(endpoint) {
                        Ok(endpoint.to_owned())
                    } else {
                        Err("is written as `https://s3.example.com`".to_owned())
                    }
                });
                bucket.credentials_file = object.absolute("credentialsFile");
                only(&object, &["endpoint", "region", "credentialsFile"], "a bucket");
            }
            PlaceKind::Folder(folder) => {
                folder.user = object.owned("user");
                folder.password = secret(&object, "passwordFile", "passwordEnv");
                only(&object, &["user", "passwordFile", "passwordEnv"], "a WebDAV folder");
                if folder.user.is_some() != folder.password.is_some() {
                    object.value.error("`user` needs `passwordFile` or `passwordEnv`, and these need `user`");
                }
            }
        }
        Some(place)
    }
}

fn of_text(value: &Value<'_>, text: &str) -> Option<FleetPlace> {
    FleetPlace::parse(text).map_err(|message| value.error(message)).ok()
}

/// A secret in a file or a variable.
pub(super) fn secret(object: &Object<'_>, file: &str, variable: &str) -> Option<Secret> {
    let (path, name) = (object.absolute(file), object.owned(variable));
    if path.is_some() && name.is_some() {
        object.value.error(format!("`{variable}` and `{file}` exclude each other: give one of them"));
    }
    path.map(Secret::File).or_else(|| name.map(Secret::Environment))
}

/// Refuses the keys of other kinds of places.
fn only(object: &Object<'_>, keys: &[&str], kind: &str) {
    for key in keys::PLACE_SETTINGS.iter().filter(|key| !keys.contains(key)) {
        if let Some(value) = object.get(key) {
            value.error(format!("is no setting of {kind}"));
        }
    }
}

/// A name that needs no escape in a path.
fn is_plain(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=100).contains(&text.len()) && text != "." && text != ".." && text.bytes().all(is_letter)
}

/// A URL without a user, a query and odd characters.
pub(super) fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b":/.-_[]~%".contains(&byte);
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) && text.bytes().all(is_letter)
}

/// Whether a URL leads beyond loopback without TLS.
pub(super) fn is_in_clear(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let server = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = server.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    server != "localhost" && !is_loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(url: &str) -> FleetBucket {
        match FleetPlace::parse(url).unwrap().kind {
            PlaceKind::Bucket(bucket) => bucket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scheme_of_a_place_names_its_kind() {
        let hub = FleetPlace::parse("https://hub.example.com/").unwrap();
        assert_eq!(hub.url, "https://hub.example.com");
        assert_eq!(hub.kind, PlaceKind::Collector { token: None });
        let both = |url| (bucket(url).name, bucket(url).prefix);
        assert_eq!(both("s3://fleet"), ("fleet".to_owned(), String::new()));
        assert_eq!(both("s3://fleet/prod/eu/"), ("fleet".to_owned(), "prod/eu".to_owned()));
        for (text, url) in [("davs://a.b/c", "https://a.b/c"), ("dav://a.b:81/c/", "http://a.b:81/c")] {
            let PlaceKind::Folder(folder) = FleetPlace::parse(text).unwrap().kind else { panic!("{text}") };
            assert_eq!(folder.url, url);
        }
        for wrong in [
            "",
            "hub.example.com",
            "https://",
            "https://me:pw@hub",
            "s3://",
            "s3://a/../b",
            "s3://a//b",
            "s3://a?endpoint=x",
            "davs://",
            "davs://me:pw@host/x",
            "davx://host/x",
            "ftp://host/x",
        ] {
            assert!(FleetPlace::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn plain_http_beyond_loopback_exposes_a_token() {
        let is_exposed = |url: &str| {
            let token = Some(Secret::Environment("TOKEN".to_owned()));
            let place = FleetPlace::parse(url).unwrap();
            let kind = match place.kind {
                PlaceKind::Collector { .. } => PlaceKind::Collector { token },
                PlaceKind::Folder(folder) => PlaceKind::Folder(FleetFolder { password: token, ..folder }),
                bucket @ PlaceKind::Bucket(_) => bucket,
            };
            FleetPlace { kind, ..place }.is_exposed()
        };
        for exposed in ["http://hub:8484", "http://10.0.0.7", "http://[fd00::1]:8484", "dav://nas/fleet"] {
            assert!(is_exposed(exposed), "{exposed}");
            assert!(!FleetPlace::parse(exposed).unwrap().is_exposed(), "without a token: {exposed}");
        }
        for safe in
            ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://hub", "davs://nas/f"]
        {
            assert!(!is_exposed(safe), "{safe}");
        }
    }
}
