//! The images that the `FROM` lines of a Dockerfile name.

/// The references of a Dockerfile, without those that contain a variable. Names of stages are among them.
pub(super) fn base_images(dockerfile: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(dockerfile);
    let base = |line: &str| {
        let mut words = line.split_whitespace();
        let is_from = words.next()?.eq_ignore_ascii_case("from");
        let image = words.find(|word| !word.starts_with("--"))?;
        (is_from && !image.contains('$')).then(|| image.to_owned())
    };
    text.lines().filter_map(base).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_images_are_read_from_the_dockerfile() {
        let dockerfile = "# FROM x\nARG V=1\nFROM --platform=linux/amd64 ghcr.io/a/b:1 AS one\nfrom b:$V\nFROM one\nRUN from c\nFROM";
        assert_eq!(base_images(dockerfile.as_bytes()), ["ghcr.io/a/b:1", "one"]);
    }
}
