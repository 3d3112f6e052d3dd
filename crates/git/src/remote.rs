//! Where a repository is: the text of a URL in, a typed [`Remote`] out.
//!
//! Deliberately knows no credentials: a URL that holds one is refused, and no error here repeats any part of
//! the text it was given beyond the scheme, since that text may be the secret itself.

use std::{fmt, path::PathBuf};

use reqwest::Url;

/// A place to fetch from. Its text ([`fmt::Display`]) never holds a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Smart HTTP, with or without TLS.
    Http(Url),
    /// OpenSSH. Without a port, that of SSH.
    Ssh { user: Option<String>, host: String, port: Option<u16>, path: String },
    /// A repository on this machine: bare, or a work tree.
    Local(PathBuf),
}

/// Why a text is not the address of a repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    #[error("the URL is empty")]
    Empty,
    #[error(
        "the URL holds a user, password or token (not repeated here); take it out of the URL and give it as \
         `auth`, from a file or an environment variable"
    )]
    Credentials,
    #[error("the URL has a `?` or `#` part (not repeated here), which Git does not use; take it out")]
    Query,
    #[error(
        "`git://` is neither encrypted nor authenticated and is not supported; use https:// or ssh:// instead"
    )]
    GitProtocol,
    #[error("the scheme `{0}` is not supported; use https://, http://, ssh://, file:// or a plain path")]
    Scheme(String),
    #[error("a path to a local repository must be absolute, such as /srv/git/infra.git")]
    Relative,
    #[error(
        "the URL is malformed; write https://host/path, ssh://user@host/path, user@host:path, file:///path or \
         /path"
    )]
    Malformed,
}

/// Reads `https://`, `http://`, `ssh://`, `file://`, the `user@host:path` form of scp, and an absolute path.
pub fn parse_url(text: &str) -> Result<Remote, InvalidUrl> {
    let text = text.trim();
    if text.is_empty() {
        return Err(InvalidUrl::Empty);
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidUrl::Malformed);
    }
    if text.starts_with('/') {
        return Ok(Remote::Local(PathBuf::from(text)));
    }
    match text.split_once("://") {
        Some((scheme, _)) => with_scheme(&scheme.to_ascii_lowercase(), text),
        None => like_scp(text),
    }
}

impl Remote {
    /// The protocol, for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Http(url) if url.scheme() == "https" => "https",
            Self::Http(_) => "http",
            Self::Ssh { user: _, host: _, port: _, path: _ } => "ssh",
            Self::Local(_) => "a local path",
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(url.as_str()),
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

fn with_scheme(scheme: &str, text: &str) -> Result<Remote, InvalidUrl> {
    match scheme {
        "http" | "https" | "ssh" | "file" => {}
        "git" => return Err(InvalidUrl::GitProtocol),
        other if other.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it)) => {
            return Err(InvalidUrl::Scheme(other.to_owned()));
        }
        _ => return Err(InvalidUrl::Malformed),
    }
    let url = Url::parse(text).map_err(|_| InvalidUrl::Malformed)?;
    if url.password().is_some() || (scheme != "ssh" && !url.username().is_empty()) {
        return Err(InvalidUrl::Credentials);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(InvalidUrl::Query);
    }
    match scheme {
        "file" => url.to_file_path().map(Remote::Local).map_err(|()| InvalidUrl::Malformed),
        "ssh" => {
            let user = Some(decode(url.username())?).filter(|it| !it.is_empty());
            let path = decode(url.path())?;
            // `ssh://host/~user/repo` means a path below a home, which the server's shell knows as `~user/repo`.
            let path =
                path.strip_prefix('/').filter(|it| it.starts_with('~')).map_or(path.clone(), str::to_owned);
            ssh(user, url.host_str().unwrap_or_default(), url.port(), path)
        }
        _ => Ok(Remote::Http(url)),
    }
}

/// `user@host:path`, where the colon comes before any slash.
fn like_scp(text: &str) -> Result<Remote, InvalidUrl> {
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
    // In `user:password@host:path` the first colon is not the one before the path.
    if path.split('/').next().is_some_and(|it| it.contains('@')) {
        return Err(InvalidUrl::Credentials);
    }
    let (user, host) = match before.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, before),
    };
    ssh(user, host, None, path.to_owned())
}

/// Refuses what `ssh` or the server's shell could take for an option.
fn ssh(user: Option<String>, host: &str, port: Option<u16>, path: String) -> Result<Remote, InvalidUrl> {
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
    Ok(Remote::Ssh { user, host: host.to_owned(), port, path })
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, InvalidUrl> {
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

    fn ssh_of(user: &str, host: &str, port: Option<u16>, path: &str) -> Remote {
        Remote::Ssh { user: Some(user.into()), host: host.into(), port, path: path.into() }
    }

    #[test]
    fn each_way_to_write_an_address_is_understood() {
        let https = parse_url("https://git.example.com/me/infra.git").unwrap();
        assert_eq!(https.to_string(), "https://git.example.com/me/infra.git");
        assert_eq!(https.kind(), "https");
        assert_eq!(parse_url("http://h:3000/r").unwrap().kind(), "http");
        assert_eq!(parse_url("git@h:me/r.git").unwrap(), ssh_of("git", "h", None, "me/r.git"));
        assert_eq!(parse_url("ssh://git@h:22/me/r.git").unwrap(), ssh_of("git", "h", Some(22), "/me/r.git"));
        assert_eq!(parse_url("ssh://git@h/~me/a%20b").unwrap(), ssh_of("git", "h", None, "~me/a b"));
        assert_eq!(parse_url("git@[::1]:r.git").unwrap(), ssh_of("git", "::1", None, "r.git"));
        assert_eq!(parse_url("file:///srv/git/r").unwrap(), Remote::Local("/srv/git/r".into()));
        assert_eq!(parse_url("/srv/git/r").unwrap(), Remote::Local("/srv/git/r".into()));
    }

    #[test]
    fn a_secret_in_a_url_is_refused_and_not_repeated() {
        for text in [
            "https://me:hunter2@h/r.git",
            "https://hunter2@h/r.git",
            "ssh://git:hunter2@h/r.git",
            "git:hunter2@h:r.git",
            "https://h/r.git?private_token=hunter2",
        ] {
            let error = parse_url(text).unwrap_err();
            assert!(matches!(error, InvalidUrl::Credentials | InvalidUrl::Query), "{text}: {error:?}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_could_be_taken_for_an_option_is_refused() {
        for text in ["ssh://-oProxyCommand=id/r", "-oProxyCommand=id:r", "git@h:-x", "ssh://h", "ssh://h/"] {
            assert_eq!(parse_url(text), Err(InvalidUrl::Malformed), "{text}");
        }
        assert_eq!(parse_url("infra.git"), Err(InvalidUrl::Relative));
        assert_eq!(parse_url("./a:b"), Err(InvalidUrl::Relative));
        assert_eq!(parse_url("git://h/r"), Err(InvalidUrl::GitProtocol));
        assert_eq!(parse_url("ftp://h/r"), Err(InvalidUrl::Scheme("ftp".into())));
        assert_eq!(parse_url(" "), Err(InvalidUrl::Empty));
    }
}
