//! Why a registry gave no answer.

use std::time::Duration;

/// Why a registry gave no answer. Each one asks for something else of the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// 401: there is no login, or it was refused.
    #[error("{0}")]
    Unauthorized(String),
    /// 403: the login may not read this image, or nobody may without one.
    #[error("{0}")]
    Forbidden(String),
    /// 404: no such image or tag.
    #[error("{0} has no such image or tag")]
    NotFound(String),
    /// 429, or the wait that a 429 has asked for is not over.
    #[error("{host} takes no more requests for now")]
    TooManyRequests {
        /// The registry.
        host: String,
        /// The time to wait, if the registry said one.
        retry_after: Option<Duration>,
    },
    /// Its certificate is not trusted.
    #[error(
        "the certificate of {host} is not trusted: {problem}; put that of its authority into \
         /etc/docker/certs.d/{host}/ca.crt, as for Docker, and mount /etc/docker/certs.d into the agent's container \
         if it runs in one"
    )]
    Certificate {
        /// The registry.
        host: String,
        /// The problem.
        problem: String,
    },
    /// It does not answer, or cannot answer now.
    #[error("{host} does not answer: {problem}")]
    Unreachable {
        /// The registry.
        host: String,
        /// Why.
        problem: String,
    },
    /// It answers with something else than a registry does.
    #[error("the answer of {host} cannot be used: {problem}")]
    Invalid {
        /// The registry.
        host: String,
        /// The problem.
        problem: String,
    },
    /// The login could not be read.
    #[error("{0}")]
    Login(String),
    /// No tag is in the range.
    #[error("no tag of {image} is in the range {range} and has the form of the tag in Git")]
    NoTag {
        /// The image.
        image: String,
        /// The range.
        range: String,
    },
    /// The newest image is not there for a platform that the running one is for. Publishers add platforms one after the other.
    #[error("{image} has no image for {platform} yet")]
    NoPlatform {
        /// The newest image, with its tag.
        image: String,
        /// The platform.
        platform: String,
    },
}

impl RegistryError {
    /// The reason in one word, for conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unauthorized(_) | Self::Login(_) => "Unauthorized",
            Self::Forbidden(_) => "Forbidden",
            Self::NotFound(_) => "NotFound",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Certificate { .. } => "Certificate",
            Self::Unreachable { .. } => "Unreachable",
            Self::Invalid { .. } => "Invalid",
            Self::NoTag { .. } => "NoTag",
            Self::NoPlatform { .. } => "NoPlatform",
        }
    }

    /// The time that the registry asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_advice_holds_for_an_agent_in_a_container() {
        let error = RegistryError::Certificate {
            host: "registry.lan".to_owned(),
            problem: "unknown authority".to_owned(),
        };
        let message = error.to_string();
        assert!(message.contains("/etc/docker/certs.d/registry.lan/ca.crt"), "{message}");
        assert!(message.contains("mount /etc/docker/certs.d into the agent's container"), "{message}");
    }
}
