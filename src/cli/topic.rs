//! The section of `docs/troubleshooting.md` that explains an error, which is printed below it.

use std::error::Error as StdError;

use super::client;
use driftless_agent as controller;
use driftless_git as git;
use driftless_model::causes;

macro_rules! topics {
    ($($(#[$about:meta])* $name:ident => $anchor:literal,)*) => {
        /// A class of errors with a section of its own in `docs/troubleshooting.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Topic {
            $($(#[$about])* $name,)*
            /// An error of Git, which has an entry for each cause.
            Git(git::Cause),
        }

        impl Topic {
            /// All topics with a heading, for the test that each has its section.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name),*];

            /// The anchor of the section.
            fn anchor(self) -> &'static str {
                match self {
                    $(Self::$name => $anchor,)*
                    Self::Git(cause) => cause.as_str(),
                }
            }
        }
    };
}

topics! {
    /// No agent answers, or another server does.
    Agent => "no-agent-answers",
    /// The token is missing, wrong or lacks a scope.
    Access => "access-is-refused",
    /// The engine cannot be reached, or is not fit.
    Engine => "the-engine-cannot-be-used",
    /// In use, damaged, of a newer release, or not writable.
    StateDirectory => "the-state-directory-cannot-be-used",
    /// Not in memory, or in use.
    RuntimeDirectory => "the-runtime-directory-cannot-be-used",
    /// An address or a socket that the agent cannot listen on.
    Listen => "an-address-cannot-be-used",
    /// The address at which forges reach the agent.
    Webhooks => "webhooks-do-not-arrive",
    /// Certificates of listeners, and authorities of clients.
    Certificates => "a-certificate-cannot-be-used",
    /// Log-in of people.
    OpenId => "the-openid-provider-cannot-be-used",
    /// Keys for files that SOPS or age encrypted.
    FileKeys => "encrypted-files-cannot-be-read",
    /// Values that lie on the host (`valuesFrom`).
    HostValues => "values-of-the-host-cannot-be-read",
    /// Comments and statuses of reports on a forge.
    Forge => "a-report-cannot-be-posted",
    /// The configuration as a whole; single keys are findings.
    Configuration => "the-configuration-cannot-be-used",
    /// Errors with file, line and column: configuration, settings in Git, manifests, policy.
    Findings => "errors-with-file-and-line",
}

impl Topic {
    /// The address of the section, such as `docs/troubleshooting.md#no-agent-answers`.
    pub(crate) fn address(self) -> String {
        format!("docs/troubleshooting.md#{}", self.anchor())
    }

    /// The topic of the first cause of an error that has one. Wrong usage has none, because its message and the help say
    /// everything.
    pub(super) fn of_causes(error: &(dyn StdError + 'static)) -> Option<Self> {
        causes(error).find_map(of_cause)
    }

    /// The topic of an error of a request to the agent.
    pub(super) fn of_client(error: &client::Error) -> Option<Self> {
        match error {
            client::Error::NoAgent { reason, .. } if reason.contains("certificate") => {
                Some(Self::Certificates)
            }
            client::Error::NoAgent { .. }
            | client::Error::Unanswered { .. }
            | client::Error::BrokenStream { .. }
            | client::Error::Foreign { .. } => Some(Self::Agent),
            client::Error::Unauthorized { .. }
            | client::Error::TokenFile { .. }
            | client::Error::Token(_) => Some(Self::Access),
            client::Error::CaFile(_) | client::Error::Trust(_) => Some(Self::Certificates),
            client::Error::Answer { code, .. } => of_code(code),
            client::Error::Address(_) | client::Error::Setup { .. } => None,
        }
    }
}

/// The topic of one error among the causes of another one.
fn of_cause(cause: &(dyn StdError + 'static)) -> Option<Topic> {
    let topic = cause.downcast_ref().map(of_store);
    let topic = topic.or_else(|| cause.downcast_ref().map(of_git));
    let topic = topic.or_else(|| cause.downcast_ref().map(of_docker));
    let topic = topic.or_else(|| cause.downcast_ref().map(of_forge));
    topic.or_else(|| cause.downcast_ref().and_then(of_agent))
}

/// The topic of the `code` of an error of the API. The message of the others says everything, as for wrong usage.
fn of_code(code: &str) -> Option<Topic> {
    match code {
        "engine" => Some(Topic::Engine),
        "stateDirectory" | "database" => Some(Topic::StateDirectory),
        "provider" => Some(Topic::OpenId),
        "unauthorized" | "tokenExpired" | "forbidden" | "notEnrolled" | "tooManyFailures" => {
            Some(Topic::Access)
        }
        "stopping" | "tooSlow" => Some(Topic::Agent),
        _ => None,
    }
}

fn of_store(error: &driftless_store::Error) -> Topic {
    use driftless_store::Error as Store;
    match error {
        Store::NotInMemory { .. } | Store::RuntimeInUse { .. } | Store::NoSuchSecret { .. } => {
            Topic::RuntimeDirectory
        }
        Store::InUse { .. }
        | Store::NotOurs { .. }
        | Store::Directory { .. }
        | Store::Write { .. }
        | Store::Read { .. }
        | Store::Newer { .. }
        | Store::NoSuchRevision { .. }
        | Store::NoSuchContent { .. }
        | Store::FoldersInUse { .. }
        | Store::FoldersMounted { .. }
        | Store::Unsafe { .. } => Topic::StateDirectory,
    }
}

fn of_git(error: &git::Error) -> Topic {
    Topic::Git(error.cause)
}

fn of_docker(error: &driftless_docker::Error) -> Topic {
    match error {
        driftless_docker::Error::Transient { .. }
        | driftless_docker::Error::Pull { .. }
        | driftless_docker::Error::Build { .. }
        | driftless_docker::Error::Rejected { .. }
        | driftless_docker::Error::Refused { .. } => Topic::Engine,
    }
}

fn of_forge(_: &driftless_forge::Error) -> Topic {
    Topic::Forge
}

fn of_agent(error: &controller::Error) -> Option<Topic> {
    match error {
        // Their causes say more.
        controller::Error::State(_) | controller::Error::Source { .. } => None,
        controller::Error::Keys(_) => Some(Topic::FileKeys),
        controller::Error::Receiver { .. } => Some(Topic::Configuration),
        controller::Error::Docker(_) => Some(Topic::Engine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_section_in_troubleshooting() {
        let page = include_str!("../../docs/troubleshooting.md");
        let headings: Vec<String> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")))
            .map(|heading| heading.to_lowercase().replace(' ', "-"))
            .collect();
        assert!(Topic::ALL.len() > 10);
        for topic in Topic::ALL {
            assert!(headings.iter().any(|it| it == topic.anchor()), "{}: {headings:?}", topic.anchor());
        }
    }

    #[test]
    fn causes_of_git_are_those_of_troubleshooting() {
        let page = include_str!("../../docs/troubleshooting.md");
        let section =
            page.split("\n### Git cannot be read\n").nth(1).unwrap().split("\n### ").next().unwrap();
        let entries: Vec<&str> =
            section.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let causes: Vec<&str> = git::Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(entries, causes, "in this order");
    }

    #[test]
    fn causes_of_an_error_lead_to_its_section() {
        let of = |error: controller::Error| Topic::of_causes(&error);
        let newer = driftless_store::Error::Newer { path: "agent.db".into(), found: 9, known: 8 };
        assert_eq!(of(controller::Error::State(newer)), Some(Topic::StateDirectory));
        let kind = "ext4".to_owned();
        let on_disk = driftless_store::Error::NotInMemory { path: "/var/tmp".into(), kind };
        assert_eq!(of(controller::Error::State(on_disk)), Some(Topic::RuntimeDirectory));
        let no_engine =
            driftless_docker::Error::Rejected { doing: "connect".to_owned(), message: "too old".to_owned() };
        assert_eq!(of(controller::Error::Docker(no_engine)), Some(Topic::Engine));
        let source = git::Error {
            cause: git::Cause::MirrorInUse,
            doing: "set up the repository".to_owned(),
            message: "the mirror is in use".to_owned(),
            retry_after: None,
        };
        let in_use = controller::Error::Source { name: "infra".to_owned(), source };
        assert_eq!(of(in_use).map(Topic::address).as_deref(), Some("docs/troubleshooting.md#MirrorInUse"));
        let none = std::io::Error::other("full");
        assert_eq!(Topic::of_causes(&none), None);
    }
}
