//! Security contexts: the container's, with the pod's as default.

use super::{
    fields,
    reader::{Object, Value},
};
use driftless_model::Container;

const MOST: i64 = 0x7FFF_FFFF;

/// Reads both contexts into the container.
pub(super) fn read(pod: &Object<'_>, container: &Object<'_>, into: &mut Container) {
    let pod = pod.object("securityContext", fields::POD_SECURITY);
    let own = container.object("securityContext", fields::SECURITY);
    // The container's value wins over the pod's.
    let get = |key: &str| own.as_ref().and_then(|it| it.get(key)).or_else(|| pod.as_ref()?.get(key));
    let number = |key: &str| {
        let value = get(key)?;
        Some((value.integer(0..=MOST)?, value))
    };
    let user = number("runAsUser");
    let group = number("runAsGroup");
    if let (None, Some((_, group))) = (&user, &group) {
        group.error_help("a group needs a user", "set `runAsUser` too");
    }
    if let Some(value) = get("runAsNonRoot") {
        into.host.non_root = must_be_checked(&value, user.as_ref().map(|(id, _)| *id));
    }
    into.user = match (&user, &group) {
        (Some((user, _)), Some((group, _))) => Some(format!("{user}:{group}")),
        (Some((user, _)), None) => Some(user.to_string()),
        (None, Some(_) | None) => None,
    };
    for (key, option) in
        [("seccompProfile", "seccomp=unconfined"), ("appArmorProfile", "apparmor=unconfined")]
    {
        if let Some(Profile::Unconfined) = get(key).and_then(read_profile) {
            into.security_opt.push(option.to_owned());
        }
    }
    if let Some(labels) = get("seLinuxOptions").and_then(|it| it.object(fields::SE_LINUX)) {
        for part in ["user", "role", "type", "level"] {
            if let Some(text) = labels.get(part).and_then(|it| it.text()) {
                into.security_opt.push(format!("label={part}:{text}"));
            }
        }
    }
    if let Some(pod) = &pod {
        read_pod(pod, into);
    }
    if let Some(own) = &own {
        read_own(own, into);
    }
    into.security_opt.sort();
}

/// The user of an image is known only after the pull, so `runAsNonRoot` is checked then.
fn must_be_checked(value: &Value<'_>, user: Option<i64>) -> bool {
    let is_wanted = value.boolean() == Some(true);
    if is_wanted && user == Some(0) {
        value.error_help("the container runs as root", "set `runAsUser` to another user than 0");
    }
    is_wanted && user.is_none()
}

/// A seccomp or `AppArmor` profile that the engine supports.
#[derive(Clone, Copy)]
enum Profile {
    /// The engine's default profile.
    Runtime,
    Unconfined,
}

fn read_profile(value: Value<'_>) -> Option<Profile> {
    let kind = value.object(fields::PROFILE)?.require("type")?;
    let words = [
        ("RuntimeDefault", Some(Profile::Runtime)),
        ("Unconfined", Some(Profile::Unconfined)),
        ("Localhost", None),
    ];
    let profile = kind.one_of(&words)?;
    if profile.is_none() {
        kind.error("profiles of the host are not supported yet, and ignoring it would change how the application works");
    }
    profile
}

fn read_pod(pod: &Object<'_>, into: &mut Container) {
    if let Some(value) = pod.get("supplementalGroupsPolicy")
        && value.one_of(&[("Merge", true), ("Strict", false)]) == Some(false)
    {
        value.error("`Strict` is not supported: the engine always adds the groups of the image's user");
    }
    // The group of volumes is set where they are mounted.
    if let Some(group) = pod.integer("fsGroup", 0..=MOST) {
        into.group_add.push(group.to_string());
    }
    for group in pod.items("supplementalGroups") {
        if let Some(group) = group.integer(0..=MOST) {
            into.group_add.push(group.to_string());
        }
    }
    into.group_add.sort();
    into.group_add.dedup();
    for item in pod.items("sysctls") {
        let Some(sysctl) = item.object(fields::SYSCTL) else { continue };
        let name = sysctl.require("name").and_then(|it| it.text());
        let value = sysctl.require("value").and_then(|it| it.string());
        if let (Some(name), Some(value)) = (name, value) {
            into.sysctls.insert(name.to_owned(), value.to_owned());
        }
    }
}

fn read_own(own: &Object<'_>, into: &mut Container) {
    into.privileged = own.boolean("privileged").unwrap_or(false);
    into.read_only = own.boolean("readOnlyRootFilesystem").unwrap_or(false);
    if let Some(value) = own.get("allowPrivilegeEscalation")
        && value.boolean() == Some(false)
    {
        if into.privileged {
            value.error_help("a privileged container may always escalate", "remove one of the two");
        }
        into.security_opt.push("no-new-privileges".to_owned());
    }
    if let Some(value) = own.get("procMount")
        && value.one_of(&[("Default", true), ("Unmasked", false)]) == Some(false)
    {
        value
            .error("`Unmasked` is not supported yet, and ignoring it would change how the application works");
    }
    let Some(capabilities) = own.object("capabilities", fields::CAPABILITIES) else { return };
    into.cap_add = read_capabilities(&capabilities, "add");
    into.cap_drop = read_capabilities(&capabilities, "drop");
}

/// Capabilities without duplicates, and without the prefix `CAP_`, as Kubernetes writes them.
fn read_capabilities(object: &Object<'_>, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    for item in object.items(key) {
        let Some(text) = item.text() else { continue };
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        if name.bytes().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == b'_') {
            found.push(name.to_owned());
        } else {
            item.error(format!("`{text}` is not a capability"));
        }
    }
    found.sort();
    found.dedup();
    found
}
