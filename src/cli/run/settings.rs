//! The settings of `driftless run`, and the access to its API, from arguments or a file.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args as _;

use super::{
    args::{DEFAULT_CONFIG, RepositoryArgs, RunArgs},
    error::Error,
};
use crate::cli::{context::Environment, error::Error as CliError};
use driftless_clock::Clock;
use driftless_config::{
    Auth, DockerHost, ListenTls, NamedFile, Reference, Secret, Settings, named_files, named_state_dir,
    names_engine,
};
use driftless_git::read_secret;
use driftless_model::{Finding, HostIdentity, Location};
use driftless_oidc::Provider;
use driftless_web::{Access, Token};
use nix::unistd::gethostname;

/// The largest configuration file, in bytes.
const CONFIG_LIMIT: u64 = 1024 * 1024;

/// The configuration file of the arguments. `None` if they name a URL, or if there is no file.
pub(in crate::cli) fn default_config(args: &RunArgs) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| args.url.is_none() && path.exists());
    args.config.clone().or_else(default)
}

/// Reads a configuration file.
pub(in crate::cli) fn read(path: &Path) -> Result<Settings, CliError> {
    let text = read_text(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    Settings::parse(&path.display().to_string(), &text).map_err(CliError::Findings)
}

/// The state directory that a configuration file names, also if the file has mistakes.
pub(in crate::cli) fn state_dir(path: &Path) -> Option<PathBuf> {
    named_state_dir(&path.display().to_string(), &read_text(path).ok()?)
}

/// The key of the database that a configuration file names, also if the file has mistakes.
pub(in crate::cli) fn state_key_file(path: &Path) -> Option<PathBuf> {
    let files = named_files(&path.display().to_string(), &read_text(path).ok()?);
    files.into_iter().find(|file| file.key == "stateKeyFile").map(|file| file.path)
}

/// A warning for each file of a configuration that cannot be read, such as the key for a Git server: what needs it fails
/// until the file is there, and the agent starts without it.
pub(in crate::cli) fn unreadable_files(path: &Path) -> Vec<Finding> {
    let Ok(text) = read_text(path) else { return Vec::new() };
    let unreadable = |file: NamedFile| {
        let error = fs::File::open(&file.path).err()?;
        let message = format!("could not open {}: {error}", file.path.display());
        let help = "create it, readable for the agent, or correct the path; the agent starts without it, and tries again";
        Some(Finding::warning(file.location, file.key, message).help(help))
    };
    named_files(&path.display().to_string(), &text).into_iter().filter_map(unreadable).collect()
}

/// A warning if the environment names an engine that is not used, because there is a configuration file and it does not name it.
pub(in crate::cli) fn unused_docker_host(args: &RunArgs, environment: &Environment) -> Option<Finding> {
    let file = default_config(args).filter(|_| args.agent.docker_host.is_none())?;
    docker_host_outside(&file, environment)
}

/// A warning if the environment names an engine and this configuration file names none.
pub(in crate::cli) fn docker_host_outside(file: &Path, environment: &Environment) -> Option<Finding> {
    let used = DockerHost::default().address;
    let host = environment("DOCKER_HOST").filter(|host| !host.is_empty() && *host != used)?;
    let shown = file.display().to_string();
    if names_engine(&shown, &read_text(file).ok()?) {
        return None;
    }
    let message =
        format!("DOCKER_HOST={host} is not used, because {shown} does not name it; the engine is {used}");
    let help = format!("write that address or {used} as `docker` into the file, or unset DOCKER_HOST");
    Some(Finding::warning(Location::file(shown), "docker", message).help(help))
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(CONFIG_LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > CONFIG_LIMIT {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

/// Settings from a file or URL, overridden by options.
pub(in crate::cli) fn settings(args: &RunArgs, environment: &Environment) -> Result<Settings, CliError> {
    let RunArgs { url, config: _, repository, agent, logging: _ } = args;
    let file = default_config(args);
    let has_file = file.is_some();
    if has_file && repository.has_settings() {
        return Err(Error::SettingsWithoutUrl.into());
    }
    let mut settings = match (file, url) {
        (Some(path), _) => read(&path)?,
        (None, Some(url)) => from_url(url, repository)?,
        (None, None) => return Err(Error::NoRepository.into()),
    };
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|source| Error::Path { path: path.clone(), source })
    };
    if let Some(it) = &agent.state_dir {
        settings.state_dir = absolute(it)?;
    }
    if let Some(it) = &agent.runtime_dir {
        settings.runtime_dir = absolute(it)?;
    }
    if let Some(it) = agent.listen {
        settings.listen = it;
    }
    if let Some(it) = &agent.token_file {
        settings.token_file = Some(absolute(it)?);
    }
    if let (Some(cert_file), Some(key_file)) = (&agent.tls_cert_file, &agent.tls_key_file) {
        settings.tls = Some(ListenTls { cert_file: absolute(cert_file)?, key_file: absolute(key_file)? });
    }
    if let Some(name) = &agent.host_name {
        if !HostIdentity::is_name(name) {
            return Err(Error::HostName(name.clone()).into());
        }
        settings.host.name.clone_from(name);
    }
    settings.host.labels.extend(agent.host_label.iter().cloned());
    settings.identify(&hostname());
    // A configuration file names its engine or means the default; the environment does not change it.
    let ambient = || environment("DOCKER_HOST").filter(|host| !has_file && !host.is_empty());
    if let Some(it) = agent.docker_host.clone().or_else(ambient) {
        settings.docker = DockerHost::with_environment(&it, environment.as_ref());
    }
    settings.protect_paths();
    // A missing token has its own error with help.
    access_is_closed(&settings)?;
    let mut findings = settings.check("the command line");
    findings.extend(settings.check_host("the command line"));
    if findings.is_empty() { Ok(settings) } else { Err(CliError::Findings(findings)) }
}

/// The hostname of this machine, or of the container. Empty if there is none. The packaged unit hides `/proc/sys`, so the kernel is asked.
pub(in crate::cli) fn hostname() -> String {
    gethostname().map(|name| name.to_string_lossy().trim().to_owned()).unwrap_or_default()
}

fn from_url(url: &str, args: &RepositoryArgs) -> Result<Settings, CliError> {
    let reference = match (&args.branch, &args.tag, &args.commit) {
        (Some(branch), _, _) => Reference::Branch(branch.clone()),
        (None, Some(tag), _) => Reference::Tag(tag.clone()),
        (None, None, Some(commit)) => Reference::Commit(commit.clone()),
        (None, None, None) => Reference::Head,
    };
    // A folder of this machine may be relative; the agent needs an absolute path.
    let is_local = !url.contains("://") && Path::new(url).is_dir();
    let url = match is_local.then(|| std::path::absolute(url)) {
        Some(Ok(path)) => path.display().to_string(),
        Some(Err(_)) | None => url.to_owned(),
    };
    let path = args.path.as_deref().unwrap_or_default();
    let mut settings = Settings::for_repository(&url, path, reference).map_err(CliError::Findings)?;
    for repository in &mut settings.repositories {
        if let Some(name) = &args.name {
            repository.name.clone_from(name);
        }
        if let Some(poll) = args.poll {
            repository.poll = poll;
        }
        repository.ca_file.clone_from(&args.ca_file);
        repository.policy.prune = args.prune;
        repository.policy.self_heal = !args.no_self_heal;
        repository.policy.adopt = args.adopt;
        let password_file = args.git_password_file.clone().map(Secret::File);
        repository.auth = Auth {
            username: args.git_username.clone().map(Secret::Plain),
            password: password_file.or_else(|| args.git_password_env.clone().map(Secret::Environment)),
            ssh_key: args.ssh_key.clone(),
            known_hosts: args.known_hosts.clone(),
            ..Auth::default()
        };
    }
    Ok(settings)
}

fn access_is_closed(settings: &Settings) -> Result<(), Error> {
    if !settings.has_credentials() && !settings.listen.ip().is_loopback() {
        return Err(Error::Open(settings.listen));
    }
    Ok(())
}

/// Checks the access to the API: beyond loopback it needs a valid token, and the secret of `oidc` can be read.
pub(in crate::cli) fn check_access(settings: &Settings, environment: &Environment) -> Result<(), CliError> {
    Ok(access(settings, environment).map(drop)?)
}

/// Access with the token and for people whom a proxy or a provider has authenticated, otherwise on loopback only.
pub(super) fn access(settings: &Settings, environment: &Environment) -> Result<Access, Error> {
    access_is_closed(settings)?;
    let access = match settings.token_file.clone() {
        Some(path) => Access::token(read_token(path)?),
        None if settings.listen.ip().is_loopback() => Access::loopback(),
        None => Access::closed(),
    };
    let group = settings.socket.group.as_ref();
    let access = access.with_socket_scopes(group.map(|group| group.scopes.clone()).unwrap_or_default());
    let provider = provider(settings, environment);
    if let Some(provider) = &provider {
        provider.check_secret().map_err(Error::Provider)?;
    }
    let access = access.with_proxy(settings.trusted_proxy.clone()).with_provider(provider);
    Ok(access.with_audit(settings.audit.clone()))
}

/// The OpenID provider of the configuration. Its secret is read at each use, so it can be rotated.
pub(in crate::cli) fn provider(settings: &Settings, environment: &Environment) -> Option<Provider> {
    let oidc = settings.oidc.clone()?;
    let (secret, environment) = (oidc.client_secret.clone(), environment.clone());
    let read = move || secret.as_ref().map(|secret| read_secret(secret, &environment)).transpose();
    Some(Provider::new(oidc, Arc::new(read), Clock::System))
}

fn read_token(path: PathBuf) -> Result<Token, Error> {
    let text = fs::read_to_string(&path).map_err(|source| Error::ReadToken { path: path.clone(), source })?;
    let readable_by_others = fs::metadata(&path).is_ok_and(|it| it.permissions().mode() & 0o004 != 0);
    if readable_by_others {
        tracing::warn!(path = %path.display(), "every user of this machine can read the token file");
    }
    Token::new(&text).map_err(|source| Error::Token { path, source })
}

/// Warns of `DOCKER_HOST` where a configuration file counts instead.
pub(super) fn warn_of_unused_docker_host(args: &RunArgs, environment: &Environment) {
    if let Some(Finding { message, help, .. }) = unused_docker_host(args, environment) {
        tracing::warn!("{message}; {}", help.unwrap_or_default());
    }
}

/// Warns of environment variables that look like settings of `run` and are none.
///
/// A configuration file may name variables freely, so there the agent cannot know.
pub(super) fn warn_of_unknown_variables(args: &RunArgs) {
    if default_config(args).is_some() {
        return;
    }
    let run = RunArgs::augment_args(clap::Command::new("run"));
    let mut known: Vec<String> =
        run.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned())).collect();
    known.extend(["DRIFTLESS_SERVER", "DRIFTLESS_SERVER_CA_FILE"].map(str::to_owned));
    known.extend(args.repository.git_password_env.clone());
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("DRIFTLESS_")) else { continue };
        if !known.iter().any(|other| other == name) {
            tracing::warn!(name, "this environment variable is no setting; see `driftless run --help`");
        }
    }
}
