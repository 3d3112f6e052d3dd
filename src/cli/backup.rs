//! `driftless backup` and `driftless restore`: the state directory as one file.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    context::{Context, Verdict},
    error::{CommandError, Error as CliError},
    output::print,
    run::{DEFAULT_CONFIG, read_config},
    screen::plain,
};
use driftless_config::Settings;
use driftless_store::RestoreOptions;

/// Write a backup of the state directory into one file.
///
/// The agent may run. The file contains the database (revisions, pins, suspensions, events), the agent's id and the
/// writable folders of applications, but not the key of the database: keep a copy of the key in another place. Volumes of
/// containers are not in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless backup /srv/backup/driftless.tar
  driftless backup driftless.tar --state-dir /var/lib/driftless")]
pub(super) struct BackupArgs {
    /// The file to write. It must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    state: StateArgs,
}

/// Restore a backup of the state directory.
///
/// No agent may use the directory. Put the key of the database back first: without it stored revisions cannot be read.
/// Stop the containers that use writable folders of applications. The agent continues from what it observes when it
/// starts, and starts them again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  systemctl stop driftless && driftless restore /srv/backup/driftless.tar
  driftless restore driftless.tar --state-dir /var/lib/driftless --replace")]
pub(super) struct RestoreArgs {
    /// The file that `driftless backup` has written.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    state: StateArgs,
    /// Replace the database that the state directory has.
    #[arg(long)]
    replace: bool,
    /// Restore even if running containers use folders of applications. They go on with the old folders until they are
    /// restarted.
    #[arg(long)]
    force: bool,
}

/// The state directory.
#[derive(Debug, Args)]
struct StateArgs {
    /// State directory [default: that of the configuration]
    #[arg(long, value_name = "FOLDER", env = "DRIFTLESS_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Configuration file [default: /etc/driftless/driftless.yaml, if it exists]
    #[arg(long, value_name = "FILE", env = "DRIFTLESS_CONFIG")]
    config: Option<PathBuf>,
}

impl StateArgs {
    /// The settings with the state directory, and the path of the key.
    fn settings(&self) -> Result<(Settings, PathBuf), CliError> {
        let default = || Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists());
        let config = self.config.clone().or_else(|| default().filter(|_| self.state_dir.is_none()));
        let mut settings = config.map_or_else(|| Ok(Settings::default()), |path| read_config(&path))?;
        if let Some(state_dir) = &self.state_dir {
            settings.state_dir.clone_from(state_dir);
        }
        let key = settings.state_key_file.clone().unwrap_or_else(|| settings.state_dir.join("database.key"));
        Ok((settings, key))
    }
}

/// Number of files that are named when they are left out of a backup.
const MOST_LEFT_OUT: usize = 10;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("there is no backup")]
    BackUp(#[source] driftless_store::Error),
    #[error("nothing was restored")]
    Restore(#[source] driftless_store::Error),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::BackUp(_) => "name a new file, and the folder of the agent with --state-dir".to_owned(),
            Self::Restore(driftless_store::Error::InUse { .. }) => "stop the agent first".to_owned(),
            Self::Restore(driftless_store::Error::FoldersInUse { .. }) => {
                "stop the containers of these applications with `docker stop`; the agent starts them again".to_owned()
            }
            Self::Restore(_) => {
                "name a file that `driftless backup` has written; --replace replaces the database that is there"
                    .to_owned()
            }
        })
    }
}

pub(super) fn backup(args: &BackupArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let (settings, key) = args.state.settings()?;
    let left_out = driftless_store::back_up(&settings.state_dir, &args.file).map_err(Error::BackUp)?;
    for path in left_out.iter().take(MOST_LEFT_OUT) {
        let path = plain(&path.display().to_string());
        context
            .screen
            .say(format!("warning: {path} is left out: it vanished, or is a socket, pipe or device"));
    }
    if let Some(more) = left_out.len().checked_sub(MOST_LEFT_OUT).filter(|more| *more > 0) {
        context.screen.say(format!("warning: {more} more files are left out"));
    }
    let (file, key) = (args.file.display(), key.display());
    print(&format!(
        "wrote {file}\nit needs the key {key}, which is not in it: keep a copy of the key in another place\n"
    ))?;
    Ok(Verdict::Yes)
}

pub(super) fn restore(args: &RestoreArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let (settings, key) = args.state.settings()?;
    let options = RestoreOptions { replace: args.replace, force: args.force };
    let in_use =
        driftless_store::restore(&args.file, &settings.state_dir, options).map_err(Error::Restore)?;
    for application in in_use {
        let application = plain(&application);
        context.screen.say(format!(
            "warning: containers of {application} use the folders that were set aside: restart them with `docker restart`"
        ));
    }
    if !Path::new(&key).exists() {
        let key = key.display();
        context.screen.say(format!(
            "warning: the key {key} is missing: put it back before the agent starts, or stored revisions cannot be read"
        ));
    }
    let folder = settings.state_dir.display();
    print(&format!("restored {folder}; start the agent, which starts the containers that are stopped\n"))?;
    Ok(Verdict::Yes)
}
