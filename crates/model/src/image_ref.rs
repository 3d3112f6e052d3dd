//! References to images, as Docker parses them.

/// A reference to an image: `[registry/]repository[:tag][@digest]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRef {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl ImageRef {
    /// The registry of references without one: Docker Hub.
    pub const DOCKER_HUB: &'static str = "docker.io";

    /// Parses a reference. Any text is accepted; the engine checks the characters.
    ///
    /// ```
    /// use driftless_model::ImageRef;
    ///
    /// let image = ImageRef::parse("ghcr.io/team/web:1.2");
    /// assert_eq!((image.registry(), image.repository(), image.tag()), ("ghcr.io", "team/web", Some("1.2")));
    /// assert!(ImageRef::parse("alpine").is_same_repository(&ImageRef::parse("docker.io/library/alpine:3")));
    /// ```
    pub fn parse(text: &str) -> Self {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.to_owned())),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((name, tag)) => (name, Some(tag.to_owned())),
            None => (name, None),
        };
        let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
        let (registry, path) = match name.split_once('/').filter(|(first, _)| is_registry(first)) {
            Some((registry, path)) => (Self::normal_registry(registry), path),
            None => (Self::DOCKER_HUB.to_owned(), name),
        };
        let is_official = registry == Self::DOCKER_HUB && !path.contains('/');
        let repository = if is_official { format!("library/{path}") } else { path.to_owned() };
        Self { registry, repository, tag, digest }
    }

    /// A registry's host in lower case; all names of Docker Hub become `docker.io`.
    pub fn normal_registry(host: &str) -> String {
        match host.to_ascii_lowercase().as_str() {
            "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => {
                Self::DOCKER_HUB.to_owned()
            }
            other => other.to_owned(),
        }
    }

    /// The registry's host, with its port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path on the registry; `library/…` for official images of Docker Hub.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// Whether both are in one repository, whatever their tags and digests.
    pub fn is_same_repository(&self, other: &Self) -> bool {
        self.registry == other.registry && self.repository == other.repository
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_as_docker_does() {
        for (text, registry, repository, tag, digest) in [
            ("alpine", "docker.io", "library/alpine", None, None),
            ("team/web:1", "docker.io", "team/web", Some("1"), None),
            ("index.docker.io/library/web", "docker.io", "library/web", None, None),
            ("localhost/web", "localhost", "web", None, None),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "a/b", None, None),
            ("GHCR.io/a@sha256:00", "ghcr.io", "a", None, Some("sha256:00")),
            ("r.example.org:5000/a:1@sha256:00", "r.example.org:5000", "a", Some("1"), Some("sha256:00")),
        ] {
            let image = ImageRef::parse(text);
            assert_eq!((image.registry(), image.repository()), (registry, repository), "{text}");
            assert_eq!((image.tag(), image.digest()), (tag, digest), "{text}");
        }
    }
}
