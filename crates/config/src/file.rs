//! The configuration file as it is written: its keys and their values. The rules between values are in `check.rs`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use driftless_model::{
    AppName, CleanupRules, CommitId, Finding, FreeSpace, HostIdentity, ImageRetention, Location, RepoUrl,
    VersionRange, parse_bytes,
};
use driftless_yaml::{Limits, Report, parse};

use crate::{
    access::{HostEntry, RawAuth, proxy},
    admission::AdmissionEntry,
    allow::Allow,
    api_socket::{ApiSocket, api_socket},
    docker_host::DockerHost,
    fleet::{Fleet, FleetReports, fleet, fleet_reports},
    host::host,
    keys,
    listen_tls::{ListenTls, listen_tls, own_listener_tls},
    notifications::{Notifications, notifications},
    oidc::{Oidc, oidc},
    origins::Origins,
    policy::{PolicyEntry, policy},
    registry::RegistryEntry,
    settings::{Metrics, Proxy, Verify, Webhooks},
    status::StatusEntry,
    trust::verify,
    trusted_proxy::{Audit, TrustedProxy, audit, trusted_proxy},
    url,
    value::{Fields as _, Value, each, variables},
    values_from::{ValueSource, value_source},
    webhook::{WebhookEntry, webhooks},
};

/// The whole file.
pub(super) struct Document {
    pub(super) state_dir: Option<PathBuf>,
    pub(super) state_key_file: Option<PathBuf>,
    pub(super) runtime_dir: Option<PathBuf>,
    pub(super) listen: Option<SocketAddr>,
    pub(super) tls: Option<ListenTls>,
    pub(super) socket: ApiSocket,
    pub(super) token_file: Option<PathBuf>,
    pub(super) trusted_proxy: Option<TrustedProxy>,
    pub(super) oidc: Option<Oidc>,
    pub(super) audit: Audit,
    pub(super) host: HostIdentity,
    pub(super) allow: Option<Allow>,
    pub(super) docker: Option<DockerHost>,
    pub(super) build_timeout: Option<Duration>,
    pub(super) image_cleanup: Option<CleanupRules>,
    pub(super) sops_key_files: Vec<PathBuf>,
    pub(super) values_from: Vec<ValueSource>,
    pub(super) policy: PolicyEntry,
    pub(super) admission: Option<AdmissionEntry>,
    pub(super) credentials: Vec<HostEntry>,
    pub(super) registries: Vec<RegistryEntry>,
    pub(super) webhooks: Webhooks,
    pub(super) metrics: Metrics,
    pub(super) notifications: Notifications,
    pub(super) report: FleetReports,
    pub(super) fleet: Fleet,
    pub(super) repositories: Vec<RepositoryEntry>,
}

/// One entry of `repositories`.
pub(super) struct RepositoryEntry {
    pub(super) name: Option<String>,
    /// `None` if it is missing or malformed, which is reported.
    pub(super) url: Option<RepoUrl>,
    pub(super) branch: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) semver: Option<VersionRange>,
    pub(super) commit: Option<CommitId>,
    pub(super) path: Option<String>,
    pub(super) poll: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) auth: Option<RawAuth>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<Proxy>,
    pub(super) submodules: bool,
    pub(super) submodule_paths: Vec<PathBuf>,
    pub(super) sops_key_files: Option<Vec<PathBuf>>,
    pub(super) require_fast_forward: Option<bool>,
    pub(super) verify: Option<Verify>,
    pub(super) policy: PolicyEntry,
    pub(super) admission: Option<AdmissionEntry>,
    pub(super) webhook: Option<WebhookEntry>,
    pub(super) status: Option<StatusEntry>,
    pub(super) values_from: Vec<ValueSource>,
    pub(super) allow: Option<Allow>,
    pub(super) applications: Vec<ApplicationEntry>,
}

/// One entry of `applications`.
pub(super) struct ApplicationEntry {
    pub(super) path: String,
    pub(super) name: Option<AppName>,
    pub(super) policy: PolicyEntry,
    pub(super) admission: Option<AdmissionEntry>,
    pub(super) verify: Option<Verify>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) values_from: Vec<ValueSource>,
    pub(super) profiles: Vec<String>,
    pub(super) files: Vec<String>,
    pub(super) env_files: Vec<String>,
    pub(super) origins: Origins,
}

/// Reads a file. All mistakes in keys and values are found.
pub(super) fn read(file: &str, text: &str) -> Result<Document, Vec<Finding>> {
    let documents = parse(file, text.as_bytes(), &Limits::default()).map_err(|finding| vec![finding])?;
    let [root] = documents.as_slice() else {
        let message = if documents.is_empty() {
            "the configuration is empty"
        } else {
            "the file has more than one document"
        };
        let finding = Finding::error(Location::file(file), "", message);
        return Err(vec![finding.help("name at least one repository under `repositories`")]);
    };
    let report = Report::default();
    match document(Value::new(root, "", &report)) {
        Some(document) if !report.has_errors() => Ok(document),
        Some(_) | None => Err(report.into_findings()),
    }
}

fn document(root: Value<'_>) -> Option<Document> {
    let object = root.object(&keys::ROOT)?;
    object.require("repositories");
    Some(Document {
        state_dir: object.absolute("stateDir"),
        state_key_file: object.absolute("stateKeyFile"),
        runtime_dir: object.absolute("runtimeDir"),
        listen: object.address("listen"),
        tls: object.get("tls").and_then(listen_tls),
        socket: object.get("socket").and_then(api_socket).unwrap_or_default(),
        token_file: object.absolute("tokenFile"),
        trusted_proxy: object.get("trustedProxy").and_then(trusted_proxy),
        oidc: object.get("oidc").and_then(oidc),
        audit: object.get("audit").and_then(audit).unwrap_or_default(),
        host: object.get("host").and_then(host).unwrap_or_default(),
        allow: object.get("allow").as_ref().map(Allow::read),
        docker: object.get("docker").and_then(DockerHost::read),
        build_timeout: object.duration("buildTimeout"),
        image_cleanup: object.get("imageCleanup").and_then(image_cleanup),
        sops_key_files: object.get("sops").and_then(sops).unwrap_or_default(),
        values_from: each(&object, "valuesFrom", value_source),
        policy: policy(&object),
        admission: object.get("policy").and_then(AdmissionEntry::read),
        credentials: each(&object, "credentials", HostEntry::read),
        registries: each(&object, "registries", RegistryEntry::read),
        webhooks: object.get("webhooks").and_then(webhooks).unwrap_or_default(),
        metrics: object.get("metrics").and_then(metrics).unwrap_or_default(),
        notifications: object.get("notifications").and_then(notifications).unwrap_or_default(),
        report: object.get("report").and_then(fleet_reports).unwrap_or_default(),
        fleet: object.get("fleet").and_then(fleet).unwrap_or_default(),
        repositories: each(&object, "repositories", repository),
    })
}

/// Reads `imageCleanup`. An empty map asks for the clean-up with its defaults.
fn image_cleanup(value: Value<'_>) -> Option<CleanupRules> {
    let object = value.object(&keys::IMAGE_CLEANUP)?;
    let defaults = ImageRetention::default();
    let revisions = object.parsed("revisions", |text| match text.parse() {
        Ok(number @ 1..=10) => Ok(number),
        Ok(_) | Err(_) => Err("must be a number from 1 to 10".to_owned()),
    });
    let retention = ImageRetention {
        revisions: revisions.unwrap_or(defaults.revisions),
        age: object.duration("age").unwrap_or(defaults.age),
    };
    Some(CleanupRules {
        retention,
        min_free: object
            .parsed("minFree", |text| text.parse::<FreeSpace>().map_err(|error| error.to_string())),
        max_build_cache: object
            .parsed("maxBuildCache", |text| parse_bytes(text).map_err(|error| error.to_string())),
    })
}

/// Reads `sops: {keyFiles: […]}`.
fn sops(value: Value<'_>) -> Option<Vec<PathBuf>> {
    let files = value.object(&keys::SOPS)?.items("keyFiles");
    let path = |item: Value<'_>| {
        let text = item.string()?;
        if !text.starts_with('/') {
            item.error("the path must be absolute: it must start with `/`");
        }
        Some(PathBuf::from(text))
    };
    Some(files.into_iter().filter_map(path).collect())
}

fn metrics(value: Value<'_>) -> Option<Metrics> {
    let object = value.object(&keys::METRICS)?;
    Some(Metrics { listen: object.address("listen"), tls: own_listener_tls(&object) })
}

fn repository(value: Value<'_>) -> Option<RepositoryEntry> {
    let object = value.object(&keys::REPOSITORY)?;
    object.require("url");
    Some(RepositoryEntry {
        name: object.owned("name"),
        url: object.parsed("url", |text| RepoUrl::parse(text).map_err(|error| error.to_string())),
        branch: object.owned("branch"),
        tag: object.owned("tag"),
        semver: object.parsed("semver", VersionRange::parse),
        commit: object.parsed("commit", |text| CommitId::parse(text).map_err(|error| error.to_string())),
        path: object.parsed("path", url::folder),
        poll: object.duration("poll"),
        timeout: object.duration("timeout"),
        idle_timeout: object.duration("idleTimeout"),
        auth: object.get("auth").and_then(RawAuth::read),
        ca_file: object.absolute("caFile"),
        proxy: object.parsed("proxy", proxy),
        submodules: object.boolean("submodules").unwrap_or_default(),
        submodule_paths: object.absolutes("submodulePaths"),
        sops_key_files: object.get("sops").and_then(sops),
        require_fast_forward: object.boolean("requireFastForward"),
        verify: object.get("verify").and_then(verify),
        policy: policy(&object),
        admission: object.get("policy").and_then(AdmissionEntry::read),
        webhook: object.get("webhook").and_then(WebhookEntry::read),
        status: object.get("status").and_then(StatusEntry::read),
        values_from: each(&object, "valuesFrom", value_source),
        allow: object.get("allow").as_ref().map(Allow::read),
        applications: each(&object, "applications", application),
    })
}

fn application(value: Value<'_>) -> Option<ApplicationEntry> {
    let object = value.object(&keys::APPLICATION)?;
    // `path:` without a value is the root, but the key must be there.
    if object.value.node.get("path").is_none() {
        object.require("path");
    }
    Some(ApplicationEntry {
        path: object.parsed("path", url::folder).unwrap_or_default(),
        name: object.parsed("name", |text| AppName::parse(text).map_err(|error| error.to_string())),
        policy: policy(&object),
        origins: Origins::of_application(&object),
        admission: object.get("policy").and_then(AdmissionEntry::read),
        verify: object.get("verify").and_then(verify),
        variables: object.get("variables").map(|map| variables(&map)).unwrap_or_default(),
        values_from: each(&object, "valuesFrom", value_source),
        profiles: object.strings("profiles"),
        files: object.strings("files"),
        env_files: object.strings("envFiles"),
    })
}
