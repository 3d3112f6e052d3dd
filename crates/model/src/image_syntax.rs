//! The syntax of image references, by the grammar of the engine (`github.com/distribution/reference`).

use crate::ImageRef;

/// The most letters of the name of an image, with its registry.
const LONGEST_NAME: usize = 255;

/// The most letters of a tag.
const LONGEST_TAG: usize = 128;

/// Why a text is not an image reference, and the correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an image reference: {reason}")]
pub struct InvalidImage {
    text: String,
    reason: &'static str,
    help: String,
}

impl InvalidImage {
    /// The advice how to correct it.
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl ImageRef {
    /// Checks the syntax of a reference as the engine does: `[registry[:port]/]name[:tag][@digest]`.
    ///
    /// ```
    /// use driftless_model::ImageRef;
    ///
    /// assert!(ImageRef::check("ghcr.io/team/web:1.2").is_ok());
    /// let error = ImageRef::check("nginx:").unwrap_err();
    /// assert_eq!(error.to_string(), "`nginx:` is not an image reference: the tag after `:` is empty");
    /// ```
    ///
    /// # Errors
    /// The first part that the engine would refuse.
    pub fn check(text: &str) -> Result<(), InvalidImage> {
        let parts = Self::split(text);
        let wrong =
            |reason, help: String| Err(InvalidImage { text: text.chars().take(300).collect(), reason, help });
        let form = || "write `name`, `name:tag` or `name@digest`".to_owned();
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            let joined = text.split_whitespace().collect::<Vec<_>>().join(":");
            return wrong("it contains a space", format!("a tag follows a colon: `{joined}`"));
        }
        if parts.name.is_empty() {
            return wrong("it has no name", form());
        }
        if parts.tag == Some("") {
            let help = format!("write `{0}`, `{0}:TAG`, or give the variable of the tag a value", parts.name);
            return wrong("the tag after `:` is empty", help);
        }
        if parts.digest == Some("") {
            return wrong("the digest after `@` is empty", form());
        }
        if parts.name.contains("://") {
            let bare = parts.name.split_once("://").map_or(parts.name, |(_, rest)| rest);
            return wrong("it is a URL", format!("leave out the scheme: `{bare}`"));
        }
        let path = match parts.name.split_once('/') {
            Some((host, path)) if is_registry(host) => {
                if !is_host(host) {
                    return wrong("its registry is not a host name with an optional port", form());
                }
                path
            }
            Some(_) | None => parts.name,
        };
        let is_name = |path: &str| path.split('/').all(is_component);
        let lower = path.to_lowercase();
        if path != lower && is_name(&lower) {
            let lower = text.replacen(path, &lower, 1);
            return wrong("names of images are in lower case", format!("write `{lower}`"));
        }
        if !is_name(path) {
            let help = "a name has lower-case letters, digits and, between them, `.`, `_`, `__` or `-`";
            return wrong("its name has letters that names of images cannot have", help.to_owned());
        }
        if parts.name.len() > LONGEST_NAME {
            return wrong("its name is longer than 255 letters", form());
        }
        if is_image_id(parts.name) {
            return wrong("64 hexadecimal digits are the id of an image", "give the image a name".to_owned());
        }
        if !parts.tag.is_none_or(is_tag) {
            let help = "a tag has up to 128 letters, digits, `.`, `_` and `-`, and begins with no `.` or `-`";
            return wrong("its tag has letters that tags cannot have", help.to_owned());
        }
        if !parts.digest.is_none_or(is_digest) {
            return wrong(
                "its digest is not complete",
                "write all 64 digits, as in `name@sha256:…`".to_owned(),
            );
        }
        Ok(())
    }
}

/// Whether the first part of a name is a registry. Names of images have no capitals, so a part with one is a host.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.contains(char::is_uppercase)
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    };
    let is_address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    (is_address || host.split('.').all(is_label))
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// One part of the path: words of lower-case letters and digits, joined by `.`, `_`, `__` or dashes.
fn is_component(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_joint = |joint: &str| {
        matches!(joint, "." | "_" | "__") || (!joint.is_empty() && joint.bytes().all(|it| it == b'-'))
    };
    let ends = part.bytes().next().zip(part.bytes().last());
    let mut joints = part.split(|letter: char| letter.is_ascii() && is_word(letter as u8));
    ends.is_some_and(|(first, last)| is_word(first) && is_word(last))
        && joints.all(|joint| joint.is_empty() || is_joint(joint))
}

fn is_tag(tag: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    tag.len() <= LONGEST_TAG && tag.bytes().all(is_letter) && !tag.starts_with(['.', '-'])
}

fn is_digest(digest: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match digest.split_once(':') {
        Some(("sha256", hex)) => hex.len() == 64 && is_hex(hex),
        Some(("sha384", hex)) => hex.len() == 96 && is_hex(hex),
        Some(("sha512", hex)) => hex.len() == 128 && is_hex(hex),
        Some(_) | None => false,
    }
}

fn is_image_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn valid_references_are_accepted() {
        let pinned = format!("ghcr.io/team/web:1.2@{DIGEST}");
        for text in [
            "nginx",
            "nginx:1.29-alpine",
            "docker.io/library/nginx",
            "localhost/web",
            "localhost:5000/a/b__c/d--e:V1",
            "[::1]:5000/web",
            "Build.Example.COM/web",
            "127.0.0.1:5000/a_b.c",
            DIGEST,
            &pinned,
        ] {
            assert_eq!(ImageRef::check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_references_are_refused_with_the_correction() {
        for (text, reason, help) in [
            ("", "no name", "`name:tag`"),
            (":1", "no name", "`name:tag`"),
            ("nginx:", "the tag after `:` is empty", "`nginx:TAG`"),
            ("nginx@", "the digest after `@` is empty", "`name@digest`"),
            ("nginx latest", "a space", "`nginx:latest`"),
            ("Nginx:latest", "lower case", "`nginx:latest`"),
            ("ghcr.io/Team/web", "lower case", "`ghcr.io/team/web`"),
            ("https://ghcr.io/team/web", "a URL", "`ghcr.io/team/web`"),
            ("<YOUR-IMAGE>", "letters that names", "lower-case"),
            ("a//b", "letters that names", "lower-case"),
            ("a/", "letters that names", "lower-case"),
            ("a.-b", "letters that names", "lower-case"),
            ("a___b", "letters that names", "lower-case"),
            ("-a", "letters that names", "lower-case"),
            ("ä", "letters that names", "lower-case"),
            ("a:b+c", "letters that tags", "128"),
            ("a:-b", "letters that tags", "128"),
            ("a@sha256:00", "digest is not complete", "64"),
            ("a@md5:00", "digest is not complete", "64"),
            ("a-.example.com/web", "registry", "`name:tag`"),
            ("example.com:x/web", "registry", "`name:tag`"),
        ] {
            let error = ImageRef::check(text).expect_err(text);
            assert!(error.to_string().contains(reason), "{text}: {error}");
            assert!(error.help().contains(help), "{text}: {}", error.help());
        }
        assert!(ImageRef::check(&"a".repeat(64)).is_err());
        assert!(ImageRef::check(&format!("a:{}", "b".repeat(129))).is_err());
        assert!(ImageRef::check(&"ab/".repeat(100)).is_err());
    }
}
