//! Checks of the Git repositories: server, credentials, host key, reference, and the applications of the newest commit.

use std::time::Duration;

use super::check::Check;
use crate::cli::{context::Context, topic::Topic};
use driftless_agent::discover_at;
use driftless_config::{Repository, Settings};
use driftless_files::Entry;
use driftless_git::{Cause, Error, FetchPermits, RepositoryOptions};
use driftless_model::{Finding, RepoUrl, error_chain};

/// The time limit of one server.
const LIMIT: Duration = Duration::from_secs(30);

/// The most bytes of the newest commit that are read to find its applications.
const MOST_BYTES: u64 = 256 << 20;

/// More names of applications are not listed.
const MOST_NAMES: usize = 5;

pub(super) async fn checks(settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    let all = settings.repositories.iter().map(|repository| check(repository, context));
    futures_util::future::join_all(all).await.into_iter().flatten().collect()
}

async fn check(repository: &Repository, context: &Context<'_>) -> Vec<Check> {
    let name = format!("repository {}", repository.name);
    // The mirror of the agent is its own, and may be in use.
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            let help = "make room in the folder for temporary files, or set TMPDIR";
            return vec![Check::fail(name, format!("could not create a temporary folder: {error}"), help)];
        }
    };
    let mirror = folder.path().join("mirror");
    let environment = context.environment.clone();
    let mut options = RepositoryOptions::new(repository, mirror, environment, FetchPermits::default());
    options.timeout = options.timeout.min(LIMIT);
    options.most_bytes = options.most_bytes.min(MOST_BYTES);
    match driftless_git::Repository::probe(options.clone()).await {
        Ok(commit) => {
            let answers = Check::ok(name, format!("answers, the newest commit is {}", commit.short()));
            std::iter::once(answers).chain(applications(repository, options).await).collect()
        }
        Err(error) => {
            let topic = Topic::Git(error.cause);
            vec![Check::fail(name, error_chain(&error), help(&error, repository)).explained(topic)]
        }
    }
}

/// Whether the newest commit has applications where the configuration looks for them.
async fn applications(repository: &Repository, options: RepositoryOptions) -> Vec<Check> {
    let name = format!("applications of {}", repository.name);
    let checkout = match driftless_git::Repository::peek(options).await {
        Ok(checkout) => checkout,
        Err(error) => {
            let remedy = help(&error, repository);
            let topic = Topic::Git(error.cause);
            if error.cause == Cause::SubmoduleRefused {
                return vec![Check::fail(name, error_chain(&error), remedy).explained(topic)];
            }
            // The agent does not use the folder that is full.
            let help = if error.cause == Cause::DiskFull {
                remedy
            } else {
                format!("the agent reads all of it: {remedy}")
            };
            return vec![Check::warn(name, error_chain(&error), help).explained(topic)];
        }
    };
    let help = "correct `path` or `applications` of the repository, or the files in Git";
    let discovery = match discover_at(repository, checkout.files.as_ref()) {
        Ok((_, mut discovery)) => {
            discovery.findings.extend(repository.settings_above(checkout.files.as_ref()));
            discovery
        }
        Err(findings) => {
            let checks = findings.iter().map(|it| Check::fail(name.as_str(), it.to_string(), help));
            return checks.map(|check| check.explained(Topic::Findings)).collect();
        }
    };
    let names: Vec<&str> = discovery.apps.iter().map(|app| app.name.as_str()).collect();
    // Somebody may begin with an empty repository; a folder that is not there is a mistake.
    let is_folder = |folder: &String| {
        folder.is_empty() || matches!(checkout.files.entry(folder), Ok(Some(Entry::Folder)))
    };
    let is_empty = discovery.empty_folder.as_ref().is_some_and(is_folder);
    let problem = |finding: &Finding| {
        let name = name.as_str();
        // A finding about a whole folder names it itself.
        let message = if finding.location.line == 0 { finding.message.clone() } else { finding.to_string() };
        let check = if is_empty {
            Check::warn(
                name,
                message,
                "push a folder with a Compose file or Kubernetes manifests, or correct `path`",
            )
        } else if finding.is_error() {
            Check::fail(name, message, help)
        } else {
            Check::warn(name, message, help)
        };
        check.explained(Topic::Findings)
    };
    let mut checks: Vec<Check> = discovery.findings.iter().map(problem).collect();
    if !names.is_empty() {
        let more = if names.len() > MOST_NAMES { ", …" } else { "" };
        let listed: Vec<&str> = names.iter().copied().take(MOST_NAMES).collect();
        checks.push(Check::ok(
            &name,
            format!("{} in the newest commit: {}{more}", names.len(), listed.join(", ")),
        ));
    }
    checks
}

/// The remedy for an error of Git.
fn help(error: &Error, repository: &Repository) -> String {
    let auth = &repository.auth;
    let url = &repository.url;
    match error.cause {
        Cause::UnknownHost => "correct the name in `url`, or the name servers of this machine: `getent hosts NAME`".to_owned(),
        Cause::ConnectionRefused => "start the Git server, or correct host and port in `url` and `proxy`".to_owned(),
        Cause::Unreachable | Cause::TimedOut => {
            format!("check the network, the firewall and `proxy` from this machine: `git ls-remote {url}`")
        }
        Cause::ServerFailed => "look at the log of the Git server; the agent tries again by itself".to_owned(),
        Cause::Interrupted => "run the command again".to_owned(),
        Cause::DiskFull => format!(
            "the folder for temporary files of this command, {}, has too little room for the repository; set TMPDIR to another one. The \
             agent does not use it",
            std::env::temp_dir().display()
        ),
        Cause::DiskFailed => "look at the disk: `mount` and `dmesg`".to_owned(),
        Cause::CertificateRefused => {
            "name the certificate of a private authority in `caFile`; check the clock with `timedatectl`".to_owned()
        }
        Cause::HostKeyUnknown => {
            "compare the fingerprint with the one that the server's operator publishes, then write it to `auth.hostKeys`"
                .to_owned()
        }
        Cause::HostKeyChanged => {
            "ask the server's operator whether the key was changed; only then write the new one to `auth.hostKeys` or \
             `auth.knownHosts`"
                .to_owned()
        }
        Cause::AuthenticationFailed if auth.ssh_key.is_some() => {
            "register the public key on the server as a deploy key, or correct `auth.sshKeyFile`".to_owned()
        }
        Cause::AuthenticationFailed if auth.github_app.is_some() => {
            "correct `auth.githubApp`: the id of the App, and its private key".to_owned()
        }
        Cause::AuthenticationFailed if auth.password.is_some() => {
            "write a valid token or password to the place that `auth` names, with `auth.username` if the server needs it"
                .to_owned()
        }
        Cause::AuthenticationFailed => {
            "name a file with a token in `auth.tokenFile`, or a key in `auth.sshKeyFile`".to_owned()
        }
        Cause::AccessDenied if matches!(url, RepoUrl::Local(_)) => format!(
            "give the agent's user the right to read the folder; if git speaks of dubious ownership, run `git config --system --add \
             safe.directory {url}` (git before 2.38 needs it)"
        ),
        Cause::AccessDenied => "give the user of `auth` the right to read the repository".to_owned(),
        Cause::CredentialsUnreadable => {
            "create the file or variable, readable for the agent's user, or correct its name in `auth` or `caFile`"
                .to_owned()
        }
        Cause::RepositoryNotFound => "correct `url`; a private repository may need `auth`".to_owned(),
        Cause::RepositoryEmpty => "push a first commit".to_owned(),
        Cause::BranchNotFound => format!("correct `branch`: `git ls-remote --heads {url}` lists the branches"),
        Cause::TagNotFound => format!("correct `tag` or `semver`: `git ls-remote --tags {url}` lists the tags"),
        Cause::CommitNotFound => "correct `commit`: push it, or name its full id".to_owned(),
        Cause::Redirected => "write the new address of the repository to `url`".to_owned(),
        Cause::NotAGitServer => "correct `url`: it is the address for `git clone`".to_owned(),
        Cause::ServerRefused => format!("try it from this machine: `git ls-remote {url}`"),
        Cause::TooLarge => "keep large files out of the followed branch, or follow a smaller repository".to_owned(),
        Cause::SubmoduleRefused => "correct `.gitmodules` in Git, or leave `submodules` off".to_owned(),
        Cause::InvalidSettings => "correct the keys of the repository that the message names".to_owned(),
        Cause::ProgramMissing => "install it: `apt install openssh-client` or `apt install git`".to_owned(),
        Cause::MirrorInUse => "end the other agent, or use another `stateDir`".to_owned(),
        Cause::RepositoryDamaged => "look at the disk: `dmesg`; the agent clones a damaged mirror again".to_owned(),
        Cause::MergeConflict => "resolve the conflict".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use driftless_config::Reference;

    use super::*;

    #[test]
    fn help_fits_the_command_and_the_address() {
        let help_for = |cause: Cause, url: &str| {
            let repository = Repository::new(RepoUrl::parse(url).unwrap(), "", Reference::Head);
            let error =
                Error { cause, doing: "fetch".to_owned(), message: "no".to_owned(), retry_after: None };
            help(&error, &repository)
        };
        let full = help_for(Cause::DiskFull, "https://git.example.com/infra.git");
        assert!(
            full.contains("TMPDIR") && full.contains(&std::env::temp_dir().display().to_string()),
            "{full}"
        );
        let denied = help_for(Cause::AccessDenied, "/srv/infra.git");
        assert!(denied.contains("safe.directory /srv/infra.git"), "{denied}");
        let denied = help_for(Cause::AccessDenied, "https://git.example.com/infra.git");
        assert!(denied.contains("`auth`"), "{denied}");
    }
}
