//! Rules for addresses and paths, without network access. No message repeats a URL, because it may contain a credential.

use driftless_model::RepoUrl;

/// Stands for the name of the host in paths.
pub const HOST_PLACEHOLDER: &str = "${host}";

/// The transport of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Https,
    Ssh,
    Local,
}

impl Transport {
    pub(super) fn of(url: &RepoUrl) -> Self {
        match url {
            RepoUrl::Http(_) if url.is_https() => Self::Https,
            RepoUrl::Http(_) => Self::Http,
            RepoUrl::Ssh { .. } => Self::Ssh,
            RepoUrl::Local(_) => Self::Local,
        }
    }
}

/// Checks the address of an engine.
pub(super) fn check_docker(host: &str) -> Result<(), String> {
    let path = host.strip_prefix("unix://");
    let address = host.strip_prefix("tcp://");
    match (path, address) {
        (Some(path), _) if path.starts_with('/') => Ok(()),
        (_, Some(address)) if !address.is_empty() && !address.contains('@') => Ok(()),
        _ => {
            Err("must be the address of a Docker Engine: `unix:///var/run/docker.sock` or `tcp://host:port`"
                .to_owned())
        }
    }
}

/// A folder of the repository in its plain form: without slashes at the ends; empty for the root.
pub(super) fn folder(path: &str) -> Result<String, String> {
    if path.starts_with('/') {
        return Err("must be a path inside the repository: remove the `/` at the start".to_owned());
    }
    let parts: Vec<&str> = path.split('/').filter(|it| !it.is_empty() && *it != ".").collect();
    if parts.contains(&"..") {
        return Err("the path must not contain `..`".to_owned());
    }
    let plain = parts.join("/");
    if plain.replace(HOST_PLACEHOLDER, "").contains("${") {
        return Err("the only variable of a path is `${host}`".to_owned());
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_one_form() {
        for (path, plain) in [("", ""), (".", ""), ("./", ""), ("sites", "sites"), ("./a//b/", "a/b")] {
            assert_eq!(folder(path).as_deref(), Ok(plain), "{path}");
        }
        assert!(folder("/etc").is_err() && folder("a/../..").is_err());
    }
}
