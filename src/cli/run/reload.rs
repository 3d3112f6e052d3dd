//! Reloading the configuration: a new one is checked as a whole, and then the program starts again in the same process.
//!
//! A new start in the same process needs no second way to change a running agent: killing the agent at any moment is
//! safe, its containers keep running, and the first round continues from what it observes. The process keeps its id and
//! its place under the service manager. All that could keep the new configuration from starting is checked before, so
//! the old one stays if there is a mistake.

use std::{
    convert::Infallible, env, ffi::CString, io, os::unix::ffi::OsStringExt, path::PathBuf, time::Duration,
};

use nix::{
    errno::Errno,
    sys::signal::{SigSet, Signal},
    unistd::execve,
};

use super::{
    args::RunArgs,
    error::Error,
    listen,
    service_manager::ServiceManager,
    settings::{access, settings},
    socket,
    tls::Certificates,
};
use crate::cli::{context::Context, error::Error as CliError};
use driftless_agent::{Agent, PENDING_RELEASE, Running};
use driftless_config::Settings;
use driftless_model::{EventKind, error_chain};
use driftless_web::Access;

/// The subject of the problem that says that a new configuration is refused.
pub(in crate::cli) const CONFIGURATION: &str = "configuration";

/// The cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// SIGHUP. Credentials may have changed although the configuration has not.
    Signal,
    /// The file of the configuration has changed.
    File,
    /// The file with the token of the API has changed.
    Token,
    /// A file of `sops.keyFiles` has changed. The agent reads the keys once, when it starts.
    DecryptionKeys,
    /// The API asked for it, because a user released everything or ended that.
    Request,
    /// The configuration was refused a while ago. The cause may lie outside of the file, such as a key that is missing.
    Retry,
}

/// The time until a refused configuration is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(15);

/// Whether the configuration was refused, and not corrected since.
pub(super) fn is_refused(running: &Running) -> bool {
    running.handle.problems().message(CONFIGURATION).is_some()
}

/// The state for the service manager: all is well.
pub(super) fn following(settings: &Settings) -> String {
    let count = settings.repositories.len();
    format!("following {count} {}", if count == 1 { "repository" } else { "repositories" })
}

/// The configuration that the agent runs with.
pub(super) struct Current<'a> {
    pub(super) settings: &'a Settings,
    pub(super) access: &'a Access,
}

/// Checks the new configuration and reports the result. True: the agent should start again with it.
pub(super) async fn try_reload(
    trigger: Trigger,
    args: &RunArgs,
    current: &Current<'_>,
    running: &Running,
    manager: &ServiceManager,
    context: &Context<'_>,
) -> bool {
    let (new, access) = match check(args, current.settings, context).await {
        Ok(checked) => checked,
        Err(error) => {
            refuse(trigger, &error, running, manager);
            return false;
        }
    };
    let is_same = new == *current.settings && access.has_same_token(current.access);
    match unchanged(trigger).filter(|_| is_same) {
        None => {
            tracing::info!("reloading the configuration");
            let message = "the agent starts again with the new configuration".to_owned();
            running.record_event(EventKind::Normal, "ConfigurationReloaded", message);
            true
        }
        // Asked for while the configuration was refused, or just now.
        Some(_) if running.pending_release().is_some() => {
            tracing::info!("starting again, because everything was released or is managed again");
            true
        }
        Some(unchanged) => {
            tracing::info!("{unchanged}");
            running.handle.problems().set(CONFIGURATION, None);
            running.handle.problems().set(PENDING_RELEASE, None);
            manager.status(&following(current.settings));
            false
        }
    }
}

/// The message if the settings and the token are those that the agent runs with. `None`: it starts again all the same.
fn unchanged(trigger: Trigger) -> Option<&'static str> {
    match trigger {
        Trigger::Signal | Trigger::Retry | Trigger::DecryptionKeys => None,
        Trigger::File => Some("the configuration file has changed, its settings have not"),
        Trigger::Token => Some("the token file has changed, its token has not"),
        Trigger::Request => {
            Some("the agent has begun with the stored release, or with the end of it, already")
        }
    }
}

/// Reports why the new configuration is refused, and a release that waits until it is in order. A retry reports it only if the reason
/// is another one.
fn refuse(trigger: Trigger, error: &CliError, running: &Running, manager: &ServiceManager) {
    let findings = match error {
        CliError::Findings(findings) => findings.as_slice(),
        _ => &[],
    };
    let reason = findings.first().map_or_else(|| error_chain(error), ToString::to_string);
    let message = format!("the new configuration is refused, the old one stays: {reason}");
    let problems = running.handle.problems();
    if trigger == Trigger::Retry && problems.message(CONFIGURATION).as_ref() == Some(&message) {
        return;
    }
    for finding in findings {
        tracing::error!("{finding}");
    }
    tracing::error!(reason, "the new configuration is refused, the old one stays");
    manager.status(&message);
    problems.set(CONFIGURATION, Some(message.clone()));
    running.record_event(EventKind::Warning, "ConfigurationRefused", message);
    let pending = running.pending_release();
    if let Some(pending) = &pending {
        tracing::warn!("{pending}");
    }
    problems.set(PENDING_RELEASE, pending);
}

/// Reads the new settings and the token, and checks everything that could keep an agent from starting with them.
async fn check(
    args: &RunArgs,
    current: &Settings,
    context: &Context<'_>,
) -> Result<(Settings, Access), CliError> {
    let new = settings(args, context.environment)?;
    for (key, old, new) in [
        ("stateDir", &current.state_dir, &new.state_dir),
        ("runtimeDir", &current.runtime_dir, &new.runtime_dir),
    ] {
        if old != new {
            return Err(Error::NeedsRestart { key, old: old.clone() }.into());
        }
    }
    if current.state_key_file != new.state_key_file {
        let old = current.state_key_file.clone();
        let old = old.unwrap_or_else(|| current.state_dir.join("database.key"));
        return Err(Error::NeedsRestart { key: "stateKeyFile", old }.into());
    }
    let access = access(&new, context.environment)?;
    Certificates::load(&new)?;
    socket::check(&new.socket, &current.socket, context.environment)?;
    listen::check(&new, current).await?;
    Agent::check(&new, context.environment).map_err(Error::Start)?;
    Ok((new, access))
}

/// Replaces the program in this process by itself, with the same arguments and environment. Returns only an error.
///
/// SIGHUP is blocked until the new program listens to it: until then it would end the process.
pub(super) fn start_again() -> io::Error {
    match replace_program() {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn replace_program() -> io::Result<Infallible> {
    let program = text(program().into_os_string().into_vec())?;
    let arguments = env::args_os().map(|word| text(word.into_vec())).collect::<io::Result<Vec<_>>>()?;
    let pair = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let mut bytes = name.into_vec();
        bytes.push(b'=');
        bytes.extend(value.into_vec());
        text(bytes)
    };
    let environment = env::vars_os().map(pair).collect::<io::Result<Vec<_>>>()?;
    hangups().thread_block()?;
    let failed: Errno = match execve(&program, &arguments, &environment) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    accept_hangups();
    Err(failed.into())
}

/// The file of this program, or, if a newer version has replaced it, that newer version.
fn program() -> PathBuf {
    let path = env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    match replaced {
        Some(newer) if newer.is_file() => newer,
        Some(_) => PathBuf::from("/proc/self/exe"),
        None => path,
    }
}

fn text(bytes: Vec<u8>) -> io::Result<CString> {
    CString::new(bytes).map_err(io::Error::other)
}

fn hangups() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGHUP);
    set
}

/// Lets SIGHUP arrive in this thread, also if the program before has blocked it.
pub(super) fn accept_hangups() {
    if let Err(error) = hangups().thread_unblock() {
        tracing::warn!(%error, "SIGHUP may not reload the configuration");
    }
}
