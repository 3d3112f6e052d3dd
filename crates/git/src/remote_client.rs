//! The client of one remote: lists references, and receives commits.
//!
//! Everything here blocks, within [`Limits`]. Errors are sorted by what the agent does next.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use driftless_model::{RepoUrl, join_causes};
use gix::{
    bstr::{BStr, BString, ByteSlice},
    protocol::{SendFlushOnDrop, handshake::Ref},
    remote::{
        Direction,
        fetch::{Shallow, Status, Tags},
    },
};
use gix_transport::{
    Protocol, Service,
    client::{Capabilities, TransportWithoutIO, blocking_io::Transport},
};
use reqwest::Client;

use super::{
    conversation::Conversation,
    credentials::{Account, Credentials},
    error::{Cause, Error, Problem, all_causes, disk_cause, invalid, unreadable},
    github_app::AppTokens,
    host_key,
    http::Http,
    http_client::HttpClient,
    limits::{Limits, NetworkFailure},
    process::{self, OpenTransport, Process, SshTarget},
    server_messages::ServerMessages,
};
use driftless_clock::Clock;
use driftless_config::Proxy;

/// One remote and how to reach it.
pub(super) struct RemoteClient {
    remote: RepoUrl,
    credentials: Credentials,
    clock: Clock,
    /// Of an HTTP remote.
    client: Option<HttpClient>,
    app: Option<AppTokens>,
    /// The helper script of ssh lies next to it.
    mirror: PathBuf,
}

/// The references of a server.
pub(super) struct RefListing {
    pub(super) refs: Vec<Ref>,
    pub(super) hash: gix::hash::Kind,
}

/// The commits to receive.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The refspec.
    pub(super) spec: &'a str,
    pub(super) history: History,
}

/// The part of the history of a commit to receive.
#[derive(Clone, Copy)]
pub(super) enum History {
    Whole,
    /// The commit without those before it.
    Newest,
}

impl<'a> Wanted<'a> {
    pub(super) fn whole(spec: &'a str) -> Self {
        Self { spec, history: History::Whole }
    }
}

/// The answer to a request for references.
struct Listed {
    listing: RefListing,
    /// The open transport and the greeting, with protocol version 2.
    greeted: Option<(SendFlushOnDrop<OpenTransport>, Capabilities)>,
}

/// The connection options of a server.
#[derive(Clone, Copy)]
pub(super) struct ConnectOptions<'a> {
    pub(super) ca_file: Option<&'a Path>,
    pub(super) proxy: &'a Proxy,
    pub(super) mirror: &'a Path,
}

struct OpenConnection {
    transport: OpenTransport,
    process: Option<Process>,
}

/// gix wants one, although the transport has its own; this one can always be parsed.
const UNUSED_URL: &str = "file:///mirror";

const NO_SUCH_COMMIT: &str = "the server has no such commit, or does not serve commits by their id";

/// Messages of `ssh`, of `git` and of forges over their channel, which have no other form, with their causes. The first one that
/// a text contains counts.
const MESSAGES: &[(&str, Cause)] = &[
    ("could not resolve hostname", Cause::UnknownHost),
    ("connection refused", Cause::ConnectionRefused),
    ("timed out", Cause::TimedOut),
    ("no route to host", Cause::Unreachable),
    ("network is unreachable", Cause::Unreachable),
    ("connection reset", Cause::Unreachable),
    ("connection closed by", Cause::Unreachable),
    ("no such identity", Cause::CredentialsUnreadable),
    ("unprotected private key", Cause::CredentialsUnreadable),
    ("dubious ownership", Cause::AccessDenied),
    ("permission denied", Cause::AuthenticationFailed),
    ("unauthorized", Cause::AuthenticationFailed),
    ("access denied", Cause::AccessDenied),
    ("not appear to be a git repository", Cause::RepositoryNotFound),
    ("not a git repository", Cause::RepositoryNotFound),
    ("repository not found", Cause::RepositoryNotFound),
    ("cannot find repository", Cause::RepositoryNotFound),
    ("could not be found", Cause::RepositoryNotFound),
    ("does not exist", Cause::RepositoryNotFound),
];

impl RemoteClient {
    /// Fails for contradictory options.
    pub(super) fn new(
        remote: RepoUrl,
        credentials: Credentials,
        reach: ConnectOptions<'_>,
        clock: Clock,
    ) -> Result<Self, Problem> {
        let ConnectOptions { ca_file, proxy, mirror } = reach;
        let kind = remote.kind();
        if credentials.has_password() && kind == "http" {
            return Err(invalid(
                "credentials are only sent over https://, and the URL is http://; anybody on the way could read them",
            ));
        }
        if credentials.has_password() && kind != "https" {
            return Err(invalid(format!(
                "a password or token cannot be used over {kind}; for ssh set `auth.sshKeyFile`"
            )));
        }
        if credentials.has_user() && !credentials.has_password() && kind != "ssh" {
            return Err(invalid(format!(
                "a user name without a password or token cannot be used over {kind}"
            )));
        }
        let has_ssh = credentials.ssh_key().or(credentials.known_hosts()).is_some();
        if (has_ssh || !credentials.host_keys().is_empty()) && kind != "ssh" {
            return Err(invalid(format!("an SSH key or known hosts cannot be used over {kind}")));
        }
        if ca_file.is_some() && kind != "https" {
            return Err(invalid(format!("a CA file cannot be used over {kind}")));
        }
        let client = match &remote {
            RepoUrl::Http(_) => Some(HttpClient::new(&remote, ca_file, proxy, credentials.environment())?),
            RepoUrl::Ssh { .. } | RepoUrl::Local(_) => None,
        };
        let app = credentials.github_app().filter(|_| client.is_some()).cloned();
        let app = app.map(|app| AppTokens::new(app, clock));
        Ok(Self { remote, credentials, clock, client, app, mirror: mirror.to_owned() })
    }

    pub(super) fn remote(&self) -> &RepoUrl {
        &self.remote
    }

    /// The references that begin with one of the prefixes, in one request (protocol version 2), and the conversation to
    /// receive commits in. An older server sends all references, and ends the conversation.
    pub(super) fn list(
        &self,
        limits: &Limits,
        prefixes: &[String],
    ) -> Result<(RefListing, Option<Conversation>), Error> {
        let doing = format!("list the references of {}", self.remote);
        let OpenConnection { transport, process } = self.connect(&doing, limits)?;
        match list(transport, prefixes) {
            Ok(Listed { listing, greeted }) => {
                let conversation = greeted.map(|(link, greeting)| Conversation::new(link, greeting, process));
                Ok((listing, conversation))
            }
            Err(error) => Err(self.explain(doing, &error, "", limits, process)),
        }
    }

    /// Receives commits, and updates the local reference. Without a conversation that can go on, it begins one.
    pub(super) fn receive(
        &self,
        limits: &Limits,
        repo: &gix::Repository,
        wanted: Wanted<'_>,
        conversation: Option<Conversation>,
    ) -> Result<(), Error> {
        let doing = format!("fetch from {}", self.remote);
        let text = ServerMessages::default();
        let conversation = conversation.filter(Conversation::can_go_on);
        let (received, process) = if let Some(Conversation { transport, process, .. }) = conversation {
            (receive(transport, repo, wanted, &text, limits), process)
        } else {
            let OpenConnection { transport, process } = self.connect(&doing, limits)?;
            (receive(transport, repo, wanted, &text, limits), process)
        };
        received.map_err(|error| self.explain(doing, &error, &text.read(), limits, process))
    }

    fn connect(&self, doing: &str, limits: &Limits) -> Result<OpenConnection, Error> {
        let failed = |problem: Problem| problem.during(doing);
        let (transport, process) = match &self.remote {
            RepoUrl::Http(url) => {
                let client = self.http_client().map_err(failed)?;
                let account = self.account(&client, limits, doing)?;
                (self.http(client, url.as_str(), account, limits).map_err(failed)?, None)
            }
            RepoUrl::Ssh { user, host, port, path } => {
                let user =
                    self.credentials.user().map_err(unreadable).map_err(failed)?.or_else(|| user.clone());
                let target = SshTarget { user, host, port: *port, path };
                let (transport, process) =
                    process::ssh(&target, &self.credentials, &self.mirror, limits).map_err(failed)?;
                (transport, Some(process))
            }
            RepoUrl::Local(path) => {
                let (transport, process) = process::local(path, limits).map_err(failed)?;
                (transport, Some(process))
            }
        };
        Ok(OpenConnection { transport, process })
    }

    fn http_client(&self) -> Result<Client, Problem> {
        self.client.as_ref().expect("an HTTP remote was given a client when it was made").current()
    }

    fn account(&self, client: &Client, limits: &Limits, doing: &str) -> Result<Option<Account>, Error> {
        if let Some(app) = &self.app {
            let password = app.token(client, limits).map_err(|error| match limits.failure() {
                Some(failure) => {
                    self.explain_failure("get a token for the GitHub App".to_owned(), &failure, "")
                }
                None => error,
            })?;
            return Ok(Some(Account { username: "x-access-token".to_owned(), password }));
        }
        self.credentials.account().map_err(|message| unreadable(message).during(doing))
    }

    fn http(
        &self,
        client: Client,
        url: &str,
        account: Option<Account>,
        limits: &Limits,
    ) -> Result<OpenTransport, Problem> {
        let url = gix::url::parse(BStr::new(url))
            .map_err(|error| invalid(format!("the URL is malformed: {error}")))?;
        let http = Http::new(client, limits.clone(), self.clock);
        let mut transport =
            gix_transport::client::blocking_io::http::Transport::new_http(http, url, Protocol::V2, false);
        if let Some(account) = account {
            let identity = gix::sec::identity::Account {
                username: account.username,
                password: account.password,
                oauth_refresh_token: None,
            };
            transport.set_identity(identity).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(Box::new(transport))
    }

    /// Classifies an error. What the limits remember is sure; the rest is read from types, and from texts where a program or
    /// a server gives nothing else.
    fn explain(
        &self,
        doing: String,
        error: &gix::Error,
        server: &str,
        limits: &Limits,
        process: Option<Process>,
    ) -> Error {
        if let Some(failure) = limits.failure() {
            let said = host_key::without_notes(&process.map(Process::cut_short).unwrap_or_default());
            return self.explain_failure(doing, &failure, &said);
        }
        // The program has ended; its last message tells most.
        let said = process.map(Process::last_words).unwrap_or_default();
        if let RepoUrl::Ssh { host, port, .. } = &self.remote
            && let Some(problem) = host_key::explain(&said, host, *port, &self.credentials)
        {
            return problem.during(doing);
        }
        let said = host_key::without_notes(&said);
        if error.is_resource_exhausted() {
            // The table of the objects of a pack has the same limit.
            let message = "the repository holds an object that needs more than the limit of 256 MiB of memory, or more than \
                           about 6 million objects";
            return Cause::TooLarge.error(doing, message);
        }
        let causes = causes(error);
        // A local disk error is not caused by the server, even if the server sent a message.
        if let Some(cause) = disk_cause_of(error) {
            return cause.error(doing, causes);
        }
        let message = match (said.is_empty(), server.is_empty()) {
            (false, _) => said,
            (true, false) => format!("the server says: {server}"),
            (true, true) => causes.clone(),
        };
        let text = format!("{message} {causes}").to_lowercase();
        let is_gone = error.is_validation() && text.contains("matched any of the");
        if text.contains("not our ref") || is_gone {
            let message = if is_gone { &*message } else { NO_SUCH_COMMIT };
            return Cause::CommitNotFound.error(doing, message);
        }
        let cause = MESSAGES.iter().find(|(part, _)| text.contains(part)).map(|(_, cause)| *cause);
        match cause.unwrap_or(Cause::ServerFailed) {
            Cause::AuthenticationFailed if matches!(self.remote, RepoUrl::Local(_)) => {
                Cause::AccessDenied.error(doing, message)
            }
            cause @ Cause::AuthenticationFailed if self.credentials.has_passphrase() => {
                cause.error(doing, format!("{message} (the key is refused, or its passphrase is wrong)"))
            }
            cause @ Cause::UnknownHost => match self.possible_alias() {
                Some(host) => cause.error(
                    doing,
                    format!(
                        "{message} (an alias such as `{host}` in `~/.ssh/config` is not known to the agent, which does not \
                         read that file: write the real host to `url`, and set `auth.sshKeyFile`)"
                    ),
                ),
                None => cause.error(doing, message),
            },
            cause => cause.error(doing, message),
        }
    }

    /// The host of an SSH remote, if it may be a name that only the SSH configuration of a user knows.
    fn possible_alias(&self) -> Option<&str> {
        match &self.remote {
            RepoUrl::Ssh { host, .. } if !host.contains(['.', ':']) => Some(host),
            RepoUrl::Ssh { .. } | RepoUrl::Http(_) | RepoUrl::Local(_) => None,
        }
    }

    fn explain_failure(&self, doing: String, failure: &NetworkFailure, said: &str) -> Error {
        let mut message = failure.to_string();
        if !said.is_empty() {
            message = format!("{message}; it said: {said}");
        }
        let cause = match failure {
            NetworkFailure::Status { code: 401, retry_after: _ } => {
                if let Some(app) = &self.app {
                    app.forget();
                }
                let message = if self.credentials.has_default_user() {
                    "the server refuses the user name or token (401). Without `username`, the name is `git`; deploy tokens \
                     of GitLab and tokens of Bitbucket need another one. Is the token revoked or expired? Write a new one \
                     into its file, which is read at each poll"
                } else if self.credentials.has_password() {
                    "the server refuses the user name or token (401); is it revoked or expired? Write a new one into \
                     its file, which is read at each poll"
                } else {
                    "the server asks for a user name and token (401); set `auth`. Some servers also say this \
                     of a repository that does not exist"
                };
                return Cause::AuthenticationFailed.error(doing, message);
            }
            NetworkFailure::Status { code: 403, retry_after: None } => {
                let message = "the server forbids it (403); may this token read the repository?";
                return Cause::AccessDenied.error(doing, message);
            }
            NetworkFailure::Status { code: 404 | 410, retry_after: _ } => {
                let message = "there is no such repository (404), or it is hidden from this token";
                return Cause::RepositoryNotFound.error(doing, message);
            }
            NetworkFailure::Status { code, retry_after } => {
                let is_passing = *code >= 500 || matches!(code, 403 | 408 | 425 | 429);
                if is_passing {
                    return Error { retry_after: *retry_after, ..Cause::ServerFailed.error(doing, message) };
                }
                Cause::ServerRefused
            }
            NetworkFailure::TooLarge(_) => Cause::TooLarge,
            NetworkFailure::Redirect(_) => Cause::Redirected,
            NetworkFailure::Certificate(_) => {
                if let Some(client) = &self.client {
                    client.forget();
                }
                Cause::CertificateRefused
            }
            NetworkFailure::NotGit => Cause::NotAGitServer,
            NetworkFailure::Cancelled => Cause::Interrupted,
            NetworkFailure::Deadline(_) | NetworkFailure::Silence(_) => Cause::TimedOut,
            NetworkFailure::Connection { cause, message: _ } => *cause,
        };
        cause.error(doing, message)
    }
}

/// An error of gix with its causes, each stated once.
pub(super) fn causes(error: &gix::Error) -> String {
    join_causes(error.iter_errors().map(ToString::to_string))
}

/// The cause of an error of gix that a full or failing disk has.
pub(super) fn disk_cause_of(error: &gix::Error) -> Option<Cause> {
    let mut causes = error.iter_errors().flat_map(all_causes);
    causes.find_map(|cause| cause.downcast_ref().and_then(disk_cause))
}

fn list(transport: OpenTransport, prefixes: &[String]) -> gix::error::Result<Listed> {
    let mut link = SendFlushOnDrop::new(transport, false);
    let mut progress = gix::progress::Discard;
    let handshake = gix::protocol::handshake(
        &mut link.inner,
        Service::UploadPack,
        // The first request had all credentials; there are no others.
        |_| Ok(None),
        Vec::new(),
        &mut progress,
    )?;
    let format = handshake.capabilities.capability("object-format");
    let hash = match format.and_then(|it| it.value().map(ToOwned::to_owned)) {
        Some(value) if value == "sha256" => gix::hash::Kind::Sha256,
        Some(_) | None => gix::hash::Kind::Sha1,
    };
    if let Some(refs) = handshake.refs {
        return Ok(Listed { listing: RefListing { refs, hash }, greeted: None });
    }
    let mut wanted = gix::protocol::ls_refs::RefPrefixes::new();
    wanted.extend(prefixes.iter().map(|it| BString::from(it.as_str())));
    let agent = ("agent", Some(concat!("driftless/", env!("CARGO_PKG_VERSION")).to_owned()));
    let command = gix::protocol::LsRefsCommand::new(Some(wanted), &handshake.capabilities, agent);
    let refs = command.invoke_blocking(&mut link.inner, &mut progress, false)?;
    Ok(Listed { listing: RefListing { refs, hash }, greeted: Some((link, handshake.capabilities)) })
}

fn receive(
    transport: impl Transport,
    repo: &gix::Repository,
    Wanted { spec, history }: Wanted<'_>,
    text: &ServerMessages,
    limits: &Limits,
) -> gix::error::Result<()> {
    let remote = repo
        .remote_at_without_url_rewrite(UNUSED_URL)?
        .with_fetch_tags(Tags::None)
        .with_refspecs([BStr::new(spec)], Direction::Fetch)?;
    let mut connection = remote.to_connection_with_transport(transport);
    connection.set_credentials(|_| Ok(None));
    connection.set_transport_options(Box::new(()));
    let outcome = connection
        .prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default())?
        .with_write_packed_refs_only(true)
        .with_shallow(match history {
            History::Whole => Shallow::NoChange,
            History::Newest => Shallow::DepthAtRemote(NonZeroU32::MIN),
        })
        .receive(text.clone(), limits.interrupt())?;
    if let Status::Change { write_pack_bundle, .. } = outcome.status
        && let Some(keep) = write_pack_bundle.keep_path
    {
        // It guards the pack until references point into it, which they do now. Gone already is fine.
        let _ = std::fs::remove_file(keep);
    }
    Ok(())
}

/// The full name of a reference.
pub(super) fn name_of(reference: &Ref) -> &str {
    let (Ref::Peeled { full_ref_name, .. }
    | Ref::Direct { full_ref_name, .. }
    | Ref::Symbolic { full_ref_name, .. }
    | Ref::Unborn { full_ref_name, .. }) = reference;
    full_ref_name.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reaches_the_server_as_it_was_written() {
        for text in [
            "https://h/a%20b/%C3%A4.git",
            "http://[::1]:3000/r",
            "https://h:8443/~me/r+s.git",
            "https://h/r/",
        ] {
            let remote = RepoUrl::parse(text).unwrap().to_string();
            let url = gix::url::parse(BStr::new(&remote)).unwrap_or_else(|it| panic!("{text}: {it}"));
            assert_eq!(url.to_bstring(), text);
        }
    }
}
