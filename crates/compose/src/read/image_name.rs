//! References to images, and names that an image may be given when it is built.

use driftless_model::ImageRef;

use crate::spec::value::Value;

/// Refuses a reference that the engine would refuse. A service that is not used may have one.
pub(crate) fn check(value: &Value<'_>, reference: &str) {
    if let Err(error) = ImageRef::check(reference) {
        let finding = value.node.finding(&*value.path, error.to_string());
        value.report().refuse(finding.help(error.help()));
    }
}

/// Lower-case letters, digits and separators, with or without a registry and a tag.
pub(crate) fn is_valid(name: &str) -> bool {
    let image = ImageRef::parse(name);
    let tag = image.tag().unwrap_or("latest");
    let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    // A digest is added to the tag, which may have 128 letters.
    image.digest().is_none()
        && !tag.is_empty()
        && tag.len() <= 100
        && tag.bytes().all(is_tag)
        && image.repository().split('/').all(is_part)
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
