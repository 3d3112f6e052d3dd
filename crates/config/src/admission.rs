//! The admission policy (`policy:`): what the manifests of a repository may contain.

use std::collections::BTreeSet;

use driftless_model::{AdmissionPolicy, Finding, Location, PortRule, SignatureRule, Trust};
use driftless_yaml::{Limits, Report, parse};

use crate::{
    keys,
    value::{Fields as _, Object, Value},
};

/// Namespaces of the host, by the words of the engine.
const NAMESPACES: &[&str] = &["cgroup", "ipc", "network", "pid", "user", "uts"];

/// Limits that a policy can require.
const LIMITS: &[&str] = &["cpus", "memory", "pids"];

/// The rules of one level of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct AdmissionEntry {
    trust: Option<Trust>,
    rules: AdmissionPolicy,
}

impl AdmissionEntry {
    /// Reads the value of `policy`.
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::ADMISSION)?;
        let trust = object.word("trust", &[("full", Trust::Full), ("limited", Trust::Limited)]);
        let rules = AdmissionPolicy {
            trust: Trust::default(),
            privileged: object.boolean("privileged"),
            unconfined: object.boolean("unconfined"),
            host_namespaces: words(&object, "hostNamespaces", NAMESPACES),
            capabilities: list(&object, "capabilities", |text| {
                let name = text.to_uppercase();
                Ok(name.strip_prefix("CAP_").unwrap_or(&name).to_owned())
            }),
            devices: list(&object, "devices", |text| Ok(text.to_owned())),
            bind_mounts: list(&object, "bindMounts", |text| {
                if text.starts_with('/')
                    && !text.trim_end_matches(":ro").trim_end_matches("/**").contains('*')
                {
                    Ok(text.to_owned())
                } else {
                    Err(format!(
                        "`{text}` is not an absolute path such as `/srv/media`, `/srv/**` or `/etc/localtime:ro`"
                    ))
                }
            }),
            images: list(&object, "images", |text| Ok(text.to_owned())),
            require_digests: object.boolean("requireDigests"),
            require_limits: words(&object, "requireLimits", LIMITS),
            ports: ports(&object),
            hooks: object.boolean("hooks"),
            builds: object.boolean("builds"),
            external_networks: list(&object, "externalNetworks", |text| Ok(text.to_owned())),
            external_volumes: list(&object, "externalVolumes", |text| Ok(text.to_owned())),
            external_configs: list(&object, "externalConfigs", |text| Ok(text.to_owned())),
            external_secrets: list(&object, "externalSecrets", |text| Ok(text.to_owned())),
            other_applications: object.boolean("otherApplications"),
            verify_images: verify_images(&object),
            signed_commits: object.boolean("signedCommits"),
            protected: BTreeSet::new(),
        };
        Some(Self { trust, rules })
    }

    /// The rules inside of an outer level.
    pub(super) fn within(entry: Option<Self>, outer: &AdmissionPolicy) -> AdmissionPolicy {
        let Self { trust, rules } = entry.unwrap_or_default();
        AdmissionPolicy { trust: trust.unwrap_or(outer.trust), ..rules.within(outer) }
    }
}

/// Reads a file that has the keys of `policy`, for `driftless validate --policy`. `file` is its name for findings.
///
/// # Errors
/// All mistakes in keys and values.
pub fn parse_policy(file: &str, text: &str) -> Result<AdmissionPolicy, Vec<Finding>> {
    let documents = parse(file, text.as_bytes(), &Limits::default()).map_err(|finding| vec![finding])?;
    let [root] = documents.as_slice() else {
        let finding = Finding::error(Location::file(file), "", "the file must have one document with rules");
        return Err(vec![finding.help("write the keys of `policy`, such as `trust: limited`")]);
    };
    let report = Report::default();
    let entry = AdmissionEntry::read(Value::new(root, "", &report));
    if report.has_errors() {
        return Err(report.into_findings());
    }
    let protected = AdmissionPolicy::PROTECTED.iter().map(|path| (*path).to_owned()).collect();
    Ok(AdmissionPolicy { protected, ..AdmissionEntry::within(entry, &AdmissionPolicy::default()) })
}

/// The items of a list. An empty list allows nothing; a missing key is another thing.
fn list(
    object: &Object<'_>,
    key: &str,
    read: impl Fn(&str) -> Result<String, String>,
) -> Option<BTreeSet<String>> {
    object.get(key)?;
    let mut found = BTreeSet::new();
    for item in object.items(key) {
        let Some(text) = item.string() else { continue };
        match read(text) {
            Ok(text) => drop(found.insert(text)),
            Err(message) => item.error(message),
        }
    }
    Some(found)
}

/// Reads `verifyImages`.
fn verify_images(object: &Object<'_>) -> Option<Vec<SignatureRule>> {
    object.get("verifyImages")?;
    let rule = |item: Value<'_>| {
        let rule = item.object(&keys::VERIFY_IMAGES)?;
        let key = rule.absolute("cosignKey");
        rule.owned("match").zip(key).map(|(images, key)| SignatureRule { images, key })
    };
    Some(object.items("verifyImages").into_iter().filter_map(rule).collect())
}

fn words(object: &Object<'_>, key: &str, known: &[&str]) -> Option<BTreeSet<String>> {
    list(object, key, |text| {
        if known.contains(&text) {
            Ok(text.to_owned())
        } else {
            Err(format!("`{text}` is not one of {}", known.join(", ")))
        }
    })
}

fn ports(object: &Object<'_>) -> Option<Vec<PortRule>> {
    object.get("ports")?;
    let mut found = Vec::new();
    for item in object.items("ports") {
        // `- 8080` is a number.
        let Some(text) = item.node.as_scalar() else {
            item.wrong_type("a string");
            continue;
        };
        match text.parse() {
            Ok(rule) => found.push(rule),
            Err(error) => item.error(driftless_model::error_chain(&error)),
        }
    }
    Some(found)
}
