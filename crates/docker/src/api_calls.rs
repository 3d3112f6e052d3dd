//! The calls that the agent makes to the engine: the list for those who put a filter in front of its socket.
//!
//! A build with debug assertions, as all tests are, panics at a call that is not in the list.

use std::fmt::Write as _;

/// A call: method, path without version, and the reason for it. `*` is one part of a path, `**` is one or more.
struct Call(&'static str, &'static str, &'static str);

/// Sorted by path.
const CALLS: &[Call] = &[
    Call("GET", "/_ping", "whether the engine answers"),
    Call("POST", "/build", "builds of Compose files"),
    Call("GET", "/configs", "configs of a Swarm"),
    Call("POST", "/configs/create", "create a config of a Swarm"),
    Call("GET", "/configs/*", "the owner of a config of a Swarm"),
    Call("DELETE", "/configs/*", "remove a config of a Swarm"),
    Call(
        "POST",
        "/configs/*/update",
        "adopt a config of `docker stack deploy`, and share pins and suspensions with the agents of other managers of a Swarm",
    ),
    Call("GET", "/containers/json", "the list of containers"),
    Call("POST", "/containers/create", "create a container"),
    Call("DELETE", "/containers/*", "remove a container"),
    Call("GET", "/containers/*/json", "inspect a container"),
    Call("HEAD", "/containers/*/archive", "when a file inside was written"),
    Call("GET", "/containers/*/archive", "files changed inside a container"),
    Call("PUT", "/containers/*/archive", "files for a container that is not started yet"),
    Call("GET", "/containers/*/changes", "files changed inside a container"),
    Call("POST", "/containers/*/exec", "hooks, probes of the kind exec, updates of proxies"),
    Call("POST", "/containers/*/kill", "signals after a mounted file has changed, end of a stop"),
    Call("GET", "/containers/*/logs", "driftless logs, output of a crash"),
    Call("POST", "/containers/*/rename", "undo a renaming by hand"),
    Call("POST", "/containers/*/start", "start a container"),
    Call("POST", "/containers/*/stop", "stop a container"),
    Call("POST", "/containers/*/unpause", "undo a pause by hand"),
    Call("POST", "/containers/*/update", "limits and restart policy without a new container"),
    Call("POST", "/build/prune", "limit of the build cache; optional"),
    Call("GET", "/distribution/**/json", "the digest of an image for a Swarm"),
    Call("GET", "/events", "changes on the host"),
    Call("POST", "/exec/*/start", "hooks, probes of the kind exec, updates of proxies"),
    Call("GET", "/exec/*/json", "the exit code of a command"),
    Call("POST", "/grpc", "the platforms that the engine can run; optional"),
    Call("GET", "/images/json", "the list of images, for their clean-up"),
    Call("DELETE", "/images/**", "clean-up of images that the agent brought; optional"),
    Call("POST", "/images/create", "pull an image; make one of the program itself for Services"),
    Call("GET", "/images/**/json", "inspect an image"),
    Call("POST", "/images/**/tag", "name a built image"),
    Call(
        "GET",
        "/info",
        "log driver, limits that the kernel cannot apply, name of the host, folder of the images, whether it is a manager of a Swarm",
    ),
    Call("GET", "/networks", "the list of networks"),
    Call("POST", "/networks/create", "create a network"),
    Call("GET", "/networks/*", "inspect a network"),
    Call("DELETE", "/networks/*", "remove a network"),
    Call("POST", "/networks/*/connect", "undo a disconnection by hand"),
    Call("POST", "/networks/*/disconnect", "undo a connection by hand"),
    Call("GET", "/nodes", "nodes of a Swarm, and which one leads"),
    Call("GET", "/secrets", "secrets of a Swarm, without their contents"),
    Call("POST", "/secrets/create", "create a secret of a Swarm"),
    Call("GET", "/secrets/*", "the owner of a secret of a Swarm"),
    Call("DELETE", "/secrets/*", "remove a secret of a Swarm"),
    Call("POST", "/secrets/*/update", "adopt a secret of `docker stack deploy`"),
    Call("GET", "/services", "services of a Swarm"),
    Call("POST", "/services/create", "create a service of a Swarm"),
    Call("GET", "/services/*", "a service of a Swarm after it was written"),
    Call("DELETE", "/services/*", "remove a service of a Swarm"),
    Call("POST", "/services/*/update", "update a service of a Swarm"),
    Call("POST", "/session", "files and secrets of a build"),
    Call("GET", "/tasks", "tasks of a Swarm"),
    Call("GET", "/tasks/*", "driftless logs on a Swarm"),
    Call("GET", "/tasks/*/logs", "driftless logs on a Swarm"),
    Call("GET", "/version", "agree on a version of the API"),
    Call("GET", "/volumes", "the list of volumes"),
    Call("POST", "/volumes/create", "create a volume"),
    Call("GET", "/volumes/*", "inspect a volume"),
    Call("DELETE", "/volumes/*", "remove an anonymous volume, or those of a removed application on request"),
];

/// The list as a Markdown table, for `docs/security-model.md`.
pub fn api_calls() -> String {
    let mut table = "| method | path | for |\n| --- | --- | --- |\n".to_owned();
    for Call(method, path, reason) in CALLS {
        let _ = writeln!(table, "| {method} | `{path}` | {reason} |");
    }
    table
}

/// Whether a call is in the list. The path may begin with a version.
pub(crate) fn is_listed(method: &str, path: &str) -> bool {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
    };
    if parts.first().is_some_and(|part| is_version(part)) {
        parts.remove(0);
    }
    CALLS.iter().any(|Call(known, pattern, _)| {
        let pattern: Vec<&str> = pattern.trim_matches('/').split('/').collect();
        *known == method && fits(&pattern, &parts)
    })
}

fn fits(pattern: &[&str], parts: &[&str]) -> bool {
    match (pattern, parts) {
        ([], []) => true,
        (["**", rest @ ..], [_, tail @ ..]) => fits(rest, tail) || fits(pattern, tail),
        (["*", rest @ ..], [_, tail @ ..]) => fits(rest, tail),
        ([first, rest @ ..], [part, tail @ ..]) => first == part && fits(rest, tail),
        ([], _) | (_, []) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_listed;

    #[test]
    fn calls_are_found_with_and_without_a_version() {
        for (method, path, is_known) in [
            ("GET", "/v1.41/containers/json", true),
            ("GET", "/containers/abc/json", true),
            ("GET", "/v1.41/images/ghcr.io/team/web:1/json", true),
            ("POST", "/v1.41/swarm/init", false),
            ("POST", "/containers/json", false),
            ("POST", "/containers/prune", false),
            ("POST", "/v1.41/images/prune", false),
            ("GET", "/", false),
        ] {
            assert_eq!(is_listed(method, path), is_known, "{method} {path}");
        }
    }
}
