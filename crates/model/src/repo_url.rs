//! Addresses of Git repositories: the only reader of their URLs.

use std::{fmt, path::PathBuf};

use url::Url;

/// The address of a Git repository. The forms are those of `git clone` (`gitremote-helpers`, "GIT URLS"), without `git://`.
///
/// An address with a password or token is refused, and no error repeats the text. Text of an address, also for
/// [`Debug`](fmt::Debug), is always written without one.
///
/// ```
/// use driftless_model::RepoUrl;
///
/// let url = RepoUrl::parse("git@git.example.com:me/infra.git")?;
/// assert_eq!((url.host(), url.name()), (Some("git.example.com"), Some("infra")));
/// assert!(RepoUrl::parse("https://me:hunter2@git.example.com/infra.git").is_err());
/// # Ok::<_, driftless_model::InvalidUrl>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum RepoUrl {
    /// Smart HTTP, with or without TLS.
    Http(Url),
    /// OpenSSH. Without a port, that of SSH.
    Ssh { user: Option<String>, host: String, port: Option<u16>, path: String },
    /// A repository on this machine: bare, or a work tree.
    Local(PathBuf),
}

/// A text that is not the address of a repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    #[error("the URL is empty")]
    Empty,
    #[error("the URL contains a space or a control character")]
    Space,
    #[error("the URL contains a credential: remove it, and name a file or variable with it under `auth`")]
    Credentials,
    #[error("the URL contains a `?` or `#` part, which Git does not use: remove it")]
    Query,
    #[error("the `git://` protocol is neither encrypted nor authenticated: use `https://` or `ssh://`")]
    GitProtocol,
    #[error("this URL scheme is not supported: use `https`, `http`, `ssh` or `file`")]
    Scheme,
    #[error("a `file` URL needs three slashes and an absolute path: `file:///srv/infra.git`")]
    File,
    #[error("must be a URL (`https://…`, `ssh://…`, `git@host:path`, `file:///…`) or an absolute path")]
    Relative,
    #[error("the URL has no valid host and path")]
    Malformed,
}

impl RepoUrl {
    /// Reads `https://`, `http://`, `ssh://`, `file://`, the `user@host:path` form of scp, and an absolute path.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        if text.is_empty() {
            return Err(InvalidUrl::Empty);
        }
        if text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(InvalidUrl::Space);
        }
        if text.starts_with('/') {
            return Ok(Self::Local(PathBuf::from(text)));
        }
        match text.split_once("://") {
            Some((scheme, rest)) => with_scheme(&scheme.to_ascii_lowercase(), rest, text),
            None => scp_form(text),
        }
    }

    /// Reads an address in a payload of a forge, which may name a user. User, password and query are dropped.
    pub fn parse_public(text: &str) -> Result<Self, InvalidUrl> {
        let text = text.split(['?', '#']).next().unwrap_or(text);
        match text.split_once("://") {
            Some((scheme, rest)) if scheme.to_ascii_lowercase().starts_with("http") => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let host = authority.rsplit('@').next().unwrap_or(authority);
                Self::parse(&format!("{scheme}://{host}/{path}"))
            }
            _ => Self::parse(text),
        }
    }

    /// The protocol, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http(url) if url.scheme() == "https" => "https",
            Self::Http(_) => "http",
            Self::Ssh { user: _, host: _, port: _, path: _ } => "ssh",
            Self::Local(_) => "a local path",
        }
    }

    pub fn is_https(&self) -> bool {
        self.kind() == "https"
    }

    /// The name or address of the server; `None` for a local repository.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Http(url) => url.host_str(),
            Self::Ssh { host, .. } => Some(host),
            Self::Local(_) => None,
        }
    }

    /// The port of the server, also if it is the default one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Http(url) => url.port_or_known_default(),
            Self::Ssh { port, .. } => Some(port.unwrap_or(22)),
            Self::Local(_) => None,
        }
    }

    /// The path on the server.
    pub fn path(&self) -> &str {
        match self {
            Self::Http(url) => url.path(),
            Self::Ssh { path, .. } => path,
            Self::Local(path) => path.to_str().unwrap_or_default(),
        }
    }

    /// The path on the server without percent-encoding, which only some forms of an address have.
    pub fn decoded_path(&self) -> String {
        percent_decoded(self.path()).unwrap_or_else(|_| self.path().to_owned())
    }

    /// Scheme, host and port of the pages of the forge. A port of SSH is not one of the pages. `None` if it is local.
    pub fn web_origin(&self) -> Option<String> {
        match self {
            Self::Http(url) => Some(url.origin().ascii_serialization()),
            Self::Ssh { host, .. } => Some(format!("https://{host}")),
            Self::Local(_) => None,
        }
    }

    /// The last part of the path without `.git`, as `git clone` names its folder.
    pub fn name(&self) -> Option<&str> {
        let last = self.path().trim_end_matches('/').rsplit('/').next()?;
        Some(last.strip_suffix(".git").unwrap_or(last)).filter(|name| !name.is_empty())
    }
}

impl fmt::Debug for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RepoUrl({self})")
    }
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The parser refuses users in it; the variant is public, so the text does not depend on that.
            Self::Http(url) => write!(f, "{}{}", url.origin().ascii_serialization(), url.path()),
            // A path relative to the home folder has no form as a URL.
            Self::Ssh { user, host, port: None, path } if !path.starts_with(['/', '~']) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                match user {
                    Some(user) => write!(f, "{user}@{host}:{path}"),
                    None => write!(f, "{host}:{path}"),
                }
            }
            Self::Ssh { user, host, port, path } => {
                f.write_str("ssh://")?;
                if let Some(user) = user {
                    write!(f, "{user}@")?;
                }
                f.write_str(host)?;
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
                write!(f, "{}{path}", if path.starts_with('/') { "" } else { "/" })
            }
            Self::Local(path) => write!(f, "{}", path.display()),
        }
    }
}

fn with_scheme(scheme: &str, rest: &str, text: &str) -> Result<RepoUrl, InvalidUrl> {
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    match scheme {
        "http" | "https" if authority.contains('@') => return Err(InvalidUrl::Credentials),
        // The URL standard would take the first part of the path for the host.
        "http" | "https" if authority.is_empty() => return Err(InvalidUrl::Malformed),
        "http" | "https" | "ssh" | "git+ssh" | "ssh+git" => {}
        "file" if authority.is_empty() && rest.len() > 1 => {}
        "file" => return Err(InvalidUrl::File),
        "git" => return Err(InvalidUrl::GitProtocol),
        _ => return Err(InvalidUrl::Scheme),
    }
    let text = match scheme {
        "git+ssh" | "ssh+git" => format!("ssh://{rest}"),
        _ => text.to_owned(),
    };
    let url = Url::parse(&text).map_err(|_| InvalidUrl::Malformed)?;
    if url.password().is_some() || (url.scheme() != "ssh" && !url.username().is_empty()) {
        return Err(InvalidUrl::Credentials);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(InvalidUrl::Query);
    }
    match url.scheme() {
        "file" => url.to_file_path().map(RepoUrl::Local).map_err(|()| InvalidUrl::File),
        "ssh" => {
            let user = Some(percent_decoded(url.username())?).filter(|user| !user.is_empty());
            if user.as_deref().is_some_and(|user| user.contains(':')) {
                return Err(InvalidUrl::Credentials);
            }
            let path = percent_decoded(url.path())?;
            // `ssh://host/~user/repo` means a path below a home, which the server's shell knows as `~user/repo`.
            let path =
                path.strip_prefix('/').filter(|it| it.starts_with('~')).map_or(path.clone(), str::to_owned);
            ssh(user, url.host_str().unwrap_or_default(), url.port(), path)
        }
        _ => Ok(RepoUrl::Http(url)),
    }
}

/// `user@host:path`, where the colon comes before any slash.
fn scp_form(text: &str) -> Result<RepoUrl, InvalidUrl> {
    let colon = match text.find(']') {
        Some(end) if text.starts_with('[') || text.contains("@[") => {
            text.get(end..).and_then(|it| it.find(':')).map(|it| it + end)
        }
        _ => text.find(':'),
    };
    let Some((before, path)) = colon.and_then(|it| Some((text.get(..it)?, text.get(it + 1..)?))) else {
        return Err(InvalidUrl::Relative);
    };
    if before.contains('/') {
        return Err(InvalidUrl::Relative);
    }
    // In `user:password@host:path` the first colon is not the one before the path, and `https:/user:password@host` is a
    // URL with a slash too few.
    if path.contains('@') {
        return Err(InvalidUrl::Credentials);
    }
    let (user, host) = match before.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, before),
    };
    ssh(user, host, None, path.to_owned())
}

/// Refuses what `ssh` or the server's shell could take for an option.
fn ssh(user: Option<String>, host: &str, port: Option<u16>, path: String) -> Result<RepoUrl, InvalidUrl> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_plain = |it: &str| {
        !it.is_empty()
            && !it.starts_with('-')
            && !it.contains(|c: char| c.is_whitespace() || c == '/' || c == '@')
    };
    let is_good_path = !path.trim_matches('/').is_empty() && !path.starts_with('-');
    if !is_plain(host) || !user.as_deref().is_none_or(is_plain) || !is_good_path {
        return Err(InvalidUrl::Malformed);
    }
    Ok(RepoUrl::Ssh { user, host: host.to_owned(), port, path })
}

/// The text without its percent-encoding. An error for what is no percent-encoding, no UTF-8 or a control character.
pub(crate) fn percent_decoded(text: &str) -> Result<String, InvalidUrl> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next().unwrap_or_default(), bytes.next().unwrap_or_default()];
        let value = std::str::from_utf8(&digits).ok().and_then(|it| u8::from_str_radix(it, 16).ok());
        out.push(value.filter(|it| !it.is_ascii_control()).ok_or(InvalidUrl::Malformed)?);
    }
    String::from_utf8(out).map_err(|_| InvalidUrl::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh_of(user: &str, host: &str, port: Option<u16>, path: &str) -> RepoUrl {
        RepoUrl::Ssh { user: Some(user.into()), host: host.into(), port, path: path.into() }
    }

    #[test]
    fn all_forms_of_addresses_are_read() {
        let https = RepoUrl::parse("https://git.example.com/me/infra.git").unwrap();
        assert_eq!(https.to_string(), "https://git.example.com/me/infra.git");
        assert_eq!(https.kind(), "https");
        assert_eq!(RepoUrl::parse("http://h:3000/r").unwrap().kind(), "http");
        assert_eq!(RepoUrl::parse("git@h:me/r.git").unwrap(), ssh_of("git", "h", None, "me/r.git"));
        assert_eq!(
            RepoUrl::parse("ssh://git@h:22/me/r.git").unwrap(),
            ssh_of("git", "h", Some(22), "/me/r.git")
        );
        assert_eq!(RepoUrl::parse("ssh://git@h/~me/a%20b").unwrap(), ssh_of("git", "h", None, "~me/a b"));
        assert_eq!(RepoUrl::parse("git@[::1]:r.git").unwrap(), ssh_of("git", "::1", None, "r.git"));
        assert_eq!(RepoUrl::parse("file:///srv/git/r").unwrap(), RepoUrl::Local("/srv/git/r".into()));
        assert_eq!(RepoUrl::parse("/srv/git/r").unwrap(), RepoUrl::Local("/srv/git/r".into()));
    }

    #[test]
    fn printed_address_is_the_address_of_the_same_repository() {
        for (text, printed) in [
            ("https://git.example.com/me/infra.git", "https://git.example.com/me/infra.git"),
            ("git@h:me/r.git", "git@h:me/r.git"),
            ("h:r.git", "h:r.git"),
            ("git@[::1]:r.git", "git@[::1]:r.git"),
            ("git@h:/srv/r.git", "ssh://git@h/srv/r.git"),
            ("ssh://git@h:22/me/r.git", "ssh://git@h:22/me/r.git"),
            ("ssh://git@h/~me/r", "ssh://git@h/~me/r"),
            ("/srv/git/r", "/srv/git/r"),
        ] {
            let url = RepoUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), printed);
            assert_eq!(RepoUrl::parse(printed), Ok(url), "{text}");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for text in [
            "https://me:hunter2@h/r.git",
            "https://hunter2@h/r.git",
            "ssh://git:hunter2@h/r.git",
            "git:hunter2@h:r.git",
            "https://h/r.git?private_token=hunter2",
            "https:/me:hunter2@h/r.git",
            "ssh://git%3Ahunter2@h/r.git",
            "git+ssh://git:hunter2@h/r.git",
            "http://me:hunter2@[::1]/x",
            r"https://me:hunter2@h\r.git",
        ] {
            let error = RepoUrl::parse(text).unwrap_err();
            assert!(matches!(error, InvalidUrl::Credentials | InvalidUrl::Query), "{text}: {error:?}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn options_and_unsupported_forms_are_refused() {
        for text in ["ssh://-oProxyCommand=id/r", "-oProxyCommand=id:r", "git@h:-x", "ssh://h", "ssh://h/"] {
            assert_eq!(RepoUrl::parse(text), Err(InvalidUrl::Malformed), "{text}");
        }
        assert_eq!(RepoUrl::parse("infra.git"), Err(InvalidUrl::Relative));
        assert_eq!(RepoUrl::parse("./a:b"), Err(InvalidUrl::Relative));
        assert_eq!(RepoUrl::parse("git://h/r"), Err(InvalidUrl::GitProtocol));
        assert_eq!(RepoUrl::parse("ftp://h/r"), Err(InvalidUrl::Scheme));
        assert_eq!(RepoUrl::parse(""), Err(InvalidUrl::Empty));
    }

    #[test]
    fn password_is_never_printed() {
        let mut inner = Url::parse("https://h/r.git").unwrap();
        inner.set_username("me").unwrap();
        inner.set_password(Some("hunter2")).unwrap();
        inner.set_query(Some("token=hunter2"));
        let url = RepoUrl::Http(inner);
        assert_eq!(url.to_string(), "https://h/r.git");
        assert_eq!(format!("{url:?}"), "RepoUrl(https://h/r.git)");
    }

    #[test]
    fn parts_of_addresses_are_read() {
        for (text, host, port, name, origin) in [
            (
                "https://GIT.example.com/me/infra.git",
                "git.example.com",
                443,
                "infra",
                "https://git.example.com",
            ),
            ("http://gitea:3000/me/shop/", "gitea", 3000, "shop", "http://gitea:3000"),
            ("git@h:infra.git/", "h", 22, "infra", "https://h"),
            ("ssh+git://git@h:2222/a/b/c.git", "h", 2222, "c", "https://h"),
        ] {
            let url = RepoUrl::parse(text).unwrap();
            assert_eq!((url.host(), url.port(), url.name()), (Some(host), Some(port), Some(name)), "{text}");
            assert_eq!(url.web_origin().as_deref(), Some(origin), "{text}");
        }
        let local = RepoUrl::parse("/srv/git/shop").unwrap();
        assert_eq!((local.host(), local.port(), local.name()), (None, None, Some("shop")));
        assert_eq!(RepoUrl::parse("https://h/.git").unwrap().name(), None);
        let public = RepoUrl::parse_public("https://me:hunter2@h/a/b?x=1").unwrap();
        assert_eq!(public.to_string(), "https://h/a/b");
    }

    #[test]
    fn malformed_urls_are_refused() {
        for text in [
            "infra",
            "../infra",
            "ftp://h/x",
            "https://",
            "https:///x",
            "file://host/x",
            "file://",
            "a b:c",
            "https://h/a\nb",
            "git@-x:y",
            "https://h/a b",
        ] {
            assert!(RepoUrl::parse(text).is_err(), "{text}");
        }
    }
}
