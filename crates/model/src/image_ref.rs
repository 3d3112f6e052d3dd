//! References to images, as Docker parses them.

/// A reference to an image: `[registry/]repository[:tag][@digest]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRef {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// The parts of a reference as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageParts<'a> {
    /// With the registry, if there is one.
    pub name: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
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
        let ImageParts { name, tag, digest } = Self::split(text);
        let (tag, digest) = (tag.map(str::to_owned), digest.map(str::to_owned));
        // Repositories have no capitals, so a first part with one is a host.
        let is_registry = |first: &str| {
            first.contains(['.', ':']) || first == "localhost" || first.contains(char::is_uppercase)
        };
        let (registry, path) = match name.split_once('/').filter(|(first, _)| is_registry(first)) {
            Some((registry, path)) => (Self::normal_registry(registry), path),
            None => (Self::DOCKER_HUB.to_owned(), name),
        };
        let is_official = registry == Self::DOCKER_HUB && !path.contains('/');
        let repository = if is_official { format!("library/{path}") } else { path.to_owned() };
        Self { registry, repository, tag, digest }
    }

    /// Splits a reference without interpreting its name.
    pub fn split(text: &str) -> ImageParts<'_> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((name, tag)) => (name, Some(tag)),
            None => (name, None),
        };
        ImageParts { name, tag, digest }
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

    /// The reference as `docker ps` prints it, always with a version: without Docker Hub's host and `library/`, and with the
    /// tag `latest` if there is neither tag nor digest.
    ///
    /// ```
    /// use driftless_model::ImageRef;
    ///
    /// assert_eq!(ImageRef::parse("docker.io/library/nginx").familiar(), "nginx:latest");
    /// assert_eq!(ImageRef::parse("ghcr.io/team/web:1.2").familiar(), "ghcr.io/team/web:1.2");
    /// ```
    pub fn familiar(&self) -> String {
        let mut text = match self.registry.as_str() {
            Self::DOCKER_HUB => {
                self.repository.strip_prefix("library/").unwrap_or(&self.repository).to_owned()
            }
            registry => format!("{registry}/{}", self.repository),
        };
        if let Some(tag) = self.effective_tag() {
            text.push(':');
            text.push_str(tag);
        }
        if let Some(digest) = &self.digest {
            text.push('@');
            text.push_str(digest);
        }
        text
    }

    /// The tag that the engine pulls: `latest` if the reference has neither tag nor digest.
    pub fn effective_tag(&self) -> Option<&str> {
        match (&self.tag, &self.digest) {
            (Some(tag), _) => Some(tag),
            (None, Some(_)) => None,
            (None, None) => Some("latest"),
        }
    }

    /// Whether the name is one that Docker Compose gives to images of a project: `PROJECT-…` without a registry.
    ///
    /// ```
    /// use driftless_model::ImageRef;
    ///
    /// assert!(ImageRef::parse("shop-web:1").is_of_project("shop"));
    /// assert!(!ImageRef::parse("shopping").is_of_project("shop"));
    /// assert!(!ImageRef::parse("ghcr.io/infra/shop-web").is_of_project("shop"));
    /// ```
    pub fn is_of_project(&self, project: &str) -> bool {
        let official = self.repository.strip_prefix("library/").filter(|_| self.registry == Self::DOCKER_HUB);
        let rest = official.and_then(|name| name.strip_prefix(project));
        rest.is_some_and(|rest| rest.starts_with('-'))
    }

    /// Whether both are in one image repository. Tags and digests do not count.
    pub fn is_same_repository(&self, other: &Self) -> bool {
        self.registry == other.registry && self.repository == other.repository
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_into_their_parts() {
        let parts = |text| {
            let ImageParts { name, tag, digest } = ImageRef::split(text);
            (name, tag, digest)
        };
        assert_eq!(parts("nginx"), ("nginx", None, None));
        assert_eq!(parts("nginx:1.0"), ("nginx", Some("1.0"), None));
        assert_eq!(parts("a:5000/b/c"), ("a:5000/b/c", None, None));
        assert_eq!(parts("a:5000/b:1@sha256:f"), ("a:5000/b", Some("1"), Some("sha256:f")));
        assert_eq!(parts("b@sha256:f"), ("b", None, Some("sha256:f")));
    }

    #[test]
    fn references_are_split_as_docker_does() {
        for (text, registry, repository, tag, digest) in [
            ("alpine", "docker.io", "library/alpine", None, None),
            ("team/web:1", "docker.io", "team/web", Some("1"), None),
            ("index.docker.io/library/web", "docker.io", "library/web", None, None),
            ("localhost/web", "localhost", "web", None, None),
            ("Build/web", "build", "web", None, None),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "a/b", None, None),
            ("GHCR.io/a@sha256:00", "ghcr.io", "a", None, Some("sha256:00")),
            ("r.example.org:5000/a:1@sha256:00", "r.example.org:5000", "a", Some("1"), Some("sha256:00")),
        ] {
            let image = ImageRef::parse(text);
            assert_eq!((image.registry(), image.repository()), (registry, repository), "{text}");
            assert_eq!((image.tag(), image.digest()), (tag, digest), "{text}");
        }
    }

    #[test]
    fn familiar_form_is_the_same_for_equal_references() {
        for (text, familiar) in [
            ("nginx", "nginx:latest"),
            ("docker.io/library/nginx:1", "nginx:1"),
            ("index.docker.io/team/web", "team/web:latest"),
            ("docker.io/nginx", "nginx:latest"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            ("ghcr.io/library/web@sha256:00", "ghcr.io/library/web@sha256:00"),
            ("a:1@sha256:00", "a:1@sha256:00"),
            ("sha256:00", "sha256:00"),
        ] {
            assert_eq!(ImageRef::parse(text).familiar(), familiar, "{text}");
            assert_eq!(ImageRef::parse(familiar).familiar(), familiar, "{text}");
        }
    }
}
