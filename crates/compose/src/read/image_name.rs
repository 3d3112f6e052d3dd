//! Names that an image may be given when it is built.

/// Lower-case letters, digits and separators, with or without a registry and a tag.
pub(crate) fn is_valid(name: &str) -> bool {
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        Some(_) | None => (name, "latest"),
    };
    let host = path.split('/').next().unwrap_or_default();
    let is_host = path.contains('/') && host.contains([':', '.']) && !host.contains('@');
    let rest = if is_host { path.get(host.len() + 1..).unwrap_or_default() } else { path };
    let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    // A digest is added to the tag, which may have 128 letters.
    !tag.is_empty() && tag.len() <= 100 && tag.bytes().all(is_tag) && rest.split('/').all(is_part)
}

fn is_part(part: &str) -> bool {
    let is_inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    let ends = part.bytes().next().zip(part.bytes().last());
    part.bytes().all(is_inner)
        && ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn image_names_are_checked() {
        for name in ["web", "shop-web", "localhost:5000/a/web:1.0", "example.com/web", "a_b/c.d:V1"] {
            assert!(is_valid(name), "{name}");
        }
        for name in ["", "Web", "shop-Web", "web@sha256:00", "web:", "-a", "a//b", "a b"] {
            assert!(!is_valid(name), "{name}");
        }
    }
}
