//! Rules for addresses and paths, without network access. No message repeats a URL, because it may contain a credential.

/// The transport of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Https,
    Ssh,
    Local,
}

/// The transport of a repository's URL, or why the URL is wrong.
pub(super) fn check(url: &str) -> Result<Transport, String> {
    if url.chars().any(|it| it.is_whitespace() || it.is_control()) {
        return Err("the URL contains a space or a control character".to_owned());
    }
    if let Some((scheme, rest)) = url.split_once("://") {
        return check_scheme(&scheme.to_ascii_lowercase(), rest);
    }
    if url.starts_with('/') {
        return Ok(Transport::Local);
    }
    // The scp form: a colon before the first slash, as in `git@example.com:me/infra.git`.
    match url.split_once(':') {
        // In `user:password@host:path` Git takes `user` for the host.
        Some((_, path)) if path.contains('@') => Err(CREDENTIAL.to_owned()),
        Some((host, path)) if !host.is_empty() && !host.contains('/') && !path.is_empty() => {
            check_host(host)?;
            Ok(Transport::Ssh)
        }
        Some(_) | None => {
            Err("must be a URL (`https://…`, `ssh://…`, `git@host:path`, `file:///…`) or an absolute path"
                .to_owned())
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
    Ok(parts.join("/"))
}

/// The last part of the URL without `.git`, as `git clone` names its folder.
pub(super) fn name(url: &str) -> Option<&str> {
    let path = url.split(['?', '#']).next().unwrap_or(url).trim_end_matches('/');
    let last = path.rsplit(['/', ':']).next()?;
    let last = last.strip_suffix(".git").unwrap_or(last);
    if last.is_empty() { None } else { Some(last) }
}

fn check_scheme(scheme: &str, rest: &str) -> Result<Transport, String> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let transport = match scheme {
        "https" => Transport::Https,
        "http" => Transport::Http,
        "ssh" | "git+ssh" | "ssh+git" => Transport::Ssh,
        "file" if authority.is_empty() && !path.is_empty() => return Ok(Transport::Local),
        "file" => {
            return Err(
                "a `file` URL needs three slashes and an absolute path: `file:///srv/infra.git`".to_owned()
            );
        }
        "git" => {
            return Err(
                "the `git://` protocol is neither encrypted nor authenticated: use `https://` or `ssh://`"
                    .to_owned(),
            );
        }
        _ => return Err("this URL scheme is not supported: use `https`, `http`, `ssh` or `file`".to_owned()),
    };
    let has_user = authority.contains('@');
    match transport {
        Transport::Http | Transport::Https if has_user => return Err(CREDENTIAL.to_owned()),
        Transport::Http | Transport::Https | Transport::Ssh | Transport::Local => check_host(authority)?,
    }
    Ok(transport)
}

const CREDENTIAL: &str =
    "the URL contains a credential: remove it, and name a file or variable with it under `auth`";

/// `user@host:port`. A user name is no secret in SSH; a password is.
fn check_host(authority: &str) -> Result<(), String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        return Err(CREDENTIAL.to_owned());
    }
    // A host such as `-oProxyCommand=…` would be an option of the program `ssh`.
    if host.is_empty() || host.starts_with('-') || user.starts_with('-') {
        return Err("the URL has no valid host".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_is_derived_from_the_url() {
        for (url, transport) in [
            ("https://git.example.com/me/infra.git", Transport::Https),
            ("HTTP://git.example.com:8080/me/infra", Transport::Http),
            ("ssh://git@git.example.com:2222/me/infra.git", Transport::Ssh),
            ("git@git.example.com:me/infra.git", Transport::Ssh),
            ("git.example.com:me/infra.git", Transport::Ssh),
            ("file:///srv/infra.git", Transport::Local),
            ("/srv/infra.git", Transport::Local),
        ] {
            assert_eq!(check(url), Ok(transport), "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        for url in [
            "",
            "infra",
            "./infra",
            "../infra",
            "ftp://example.com/x",
            "git://example.com/x",
            "https://",
            "https:///x",
            "file://host/x",
            "ssh://-oProxyCommand=x/y",
            "-oProxyCommand=x:y",
            "a b:c",
            "https://example.com/a\nb",
            "git@-x:y",
            "https://example.com/a b",
        ] {
            assert!(check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for url in [
            "https://hunter2@git.example.com/x",
            "https://me:hunter2@git.example.com/x",
            "ssh://git:hunter2@git.example.com/x",
            "git:hunter2@git.example.com:x",
            "http://me:hunter2@[::1]/x",
        ] {
            let error = check(url).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert_eq!(check("https://me:hunter2@h/x").unwrap_err(), CREDENTIAL);
    }

    #[test]
    fn folders_have_one_form() {
        for (path, plain) in [("", ""), (".", ""), ("./", ""), ("sites", "sites"), ("./a//b/", "a/b")] {
            assert_eq!(folder(path).as_deref(), Ok(plain), "{path}");
        }
        assert!(folder("/etc").is_err() && folder("a/../..").is_err());
    }

    #[test]
    fn repositories_are_named_as_by_git_clone() {
        for (url, expected) in [
            ("https://example.com/me/infra.git", Some("infra")),
            ("git@example.com:infra.git/", Some("infra")),
            ("/srv/git/shop", Some("shop")),
            ("https://example.com/.git", None),
        ] {
            assert_eq!(name(url), expected, "{url}");
        }
    }
}
