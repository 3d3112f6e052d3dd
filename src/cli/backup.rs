//! `driftless backup` and `driftless restore`: the state directory as one file.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    context::{Context, ExitStatus},
    error::{CommandError, Error as CliError},
    output::print,
    run::{DEFAULT_CONFIG, read_config, state_dir, state_key_file},
    screen::plain,
};
use driftless_config::Settings;
use driftless_model::error_chain;
use driftless_store::{RestoreOptions, Restored, is_database_key};

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

/// A state directory, and the files that may be the key of its database. The likeliest one is the first.
#[derive(Debug, PartialEq, Eq)]
struct StateFiles {
    folder: PathBuf,
    keys: Vec<PathBuf>,
}

/// The key of a database, as far as it was found.
enum DatabaseKey {
    /// It has encrypted the database.
    Right(PathBuf),
    /// Another key has encrypted the database.
    Other(PathBuf),
    /// The file cannot be read, or is missing.
    Unreadable(PathBuf, driftless_store::Error),
}

impl StateArgs {
    fn files(&self, context: &Context<'_>) -> Result<StateFiles, CliError> {
        let default = Path::new(DEFAULT_CONFIG);
        // An agent that has a URL does not read the file.
        let has_url = (context.environment)("DRIFTLESS_URL").is_some_and(|url| !url.is_empty());
        let settings = match (&self.config, &self.state_dir) {
            (Some(path), _) => read_config(path)?,
            (None, None) if default.exists() && !has_url => {
                let (settings, error) = usable_settings(default);
                if let Some(error) = error {
                    let folder = settings.state_dir.display();
                    context.screen.say(format!(
                        "warning: {DEFAULT_CONFIG} cannot be used ({error}), so the state directory is {folder}: correct the file \
                         (`driftless config check {DEFAULT_CONFIG}`), or name the directory with --state-dir"
                    ));
                }
                settings
            }
            (None, None) => Settings::default(),
            // It may be that of another agent, so it is not required.
            (None, Some(_)) => read_config(default).unwrap_or_default(),
        };
        Ok(self.files_of(settings))
    }

    fn files_of(&self, settings: Settings) -> StateFiles {
        let folder = self.state_dir.clone().unwrap_or_else(|| settings.state_dir.clone());
        let own = folder.join("database.key");
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let keys = match settings.state_key_file {
            None => vec![own],
            Some(key) if self.config.is_some() || real(&folder) == real(&settings.state_dir) => vec![key],
            // Either this is the configuration of another agent, or its agent was started with the same --state-dir.
            Some(key) => vec![own, key],
        };
        StateFiles { folder, keys }
    }
}

/// The settings of a file, and why it cannot be used. The agent goes on when its file gets a mistake, so backups must go on too: then the
/// file still names the state directory and the key.
fn usable_settings(path: &Path) -> (Settings, Option<CliError>) {
    match read_config(path) {
        Ok(settings) => (settings, None),
        Err(error) => {
            let default = Settings { state_key_file: state_key_file(path), ..Settings::default() };
            let folder = state_dir(path).unwrap_or_else(|| default.state_dir.clone());
            (Settings { state_dir: folder, ..default }, Some(error))
        }
    }
}

impl StateFiles {
    /// The file that is the key of the database; if none is, the likeliest one.
    fn key(&self) -> Option<DatabaseKey> {
        let mut likeliest = None;
        for key in &self.keys {
            let found = match is_database_key(key, &self.folder) {
                Ok(true) => return Some(DatabaseKey::Right(key.clone())),
                Ok(false) => DatabaseKey::Other(key.clone()),
                Err(error) => DatabaseKey::Unreadable(key.clone(), error),
            };
            likeliest.get_or_insert(found);
        }
        likeliest
    }
}

/// The most files that are named in warnings of one kind.
const MOST_NAMED: usize = 10;

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
            Self::Restore(driftless_store::Error::NotOurs { directory }) => format!(
                "`chmod 700 {}`, if it is the state directory of the agent, or name that with --state-dir",
                directory.display()
            ),
            Self::Restore(driftless_store::Error::FoldersInUse { .. }) => {
                "stop the containers of these applications with `docker stop`; the agent starts them again".to_owned()
            }
            Self::Restore(driftless_store::Error::FoldersMounted { .. }) => {
                "stop the containers that use these folders, unmount them, restore, move the restored files to the disks, and mount them \
                 again"
                    .to_owned()
            }
            Self::Restore(_) => {
                "name a file that `driftless backup` has written; --replace replaces the database that is there"
                    .to_owned()
            }
        })
    }
}

pub(super) fn backup(args: &BackupArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let files = args.state.files(context)?;
    let left_out = driftless_store::back_up(&files.folder, &args.file).map_err(Error::BackUp)?;
    for path in left_out.iter().take(MOST_NAMED) {
        let path = plain(&path.display().to_string());
        context.screen.say(format!(
            "warning: {path} is left out: it vanished, or is a socket, pipe, device or link to a missing folder"
        ));
    }
    if let Some(more) = left_out.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        context.screen.say(format!("warning: {more} more files are left out"));
    }
    print(&format!("wrote {}\n", args.file.display()))?;
    let fleet_key = files.folder.join(driftless_store::FLEET_KEY);
    if fleet_key.is_file() {
        print(&format!(
            "the key of the fleet, {}, is not in it: keep a copy of it in another place, or hosts join again after a restore\n",
            fleet_key.display()
        ))?;
    }
    let reason = match files.key() {
        None => return Ok(ExitStatus::Success),
        Some(DatabaseKey::Right(key)) => {
            let key = key.display();
            print(&format!(
                "it needs the key {key}, which is not in it: keep a copy of the key in another place\n"
            ))?;
            return Ok(ExitStatus::Success);
        }
        Some(DatabaseKey::Other(key)) => format!("{} is not the key of this database", key.display()),
        Some(DatabaseKey::Unreadable(_, error)) => error_chain(&error),
    };
    context.screen.say(format!(
        "warning: {reason}: the backup needs the key that the agent uses, which is not in it: name the agent's configuration with --config, \
         and keep a copy of its `stateKeyFile` in another place"
    ));
    Ok(ExitStatus::Success)
}

pub(super) fn restore(args: &RestoreArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let files = args.state.files(context)?;
    let options = RestoreOptions { replace: args.replace, force: args.force };
    let Restored { in_use, in_use_elsewhere, without_bits } =
        driftless_store::restore(&args.file, &files.folder, options).map_err(Error::Restore)?;
    for application in in_use {
        let application = plain(&application);
        context.screen.say(format!(
            "warning: containers of {application} use the folders that were set aside: restart them with `docker restart`"
        ));
    }
    for application in in_use_elsewhere {
        let application = plain(&application);
        context.screen.say(format!(
            "warning: containers of {application} write to its folder in another state directory, and the restored one is older: \
             the agent leaves these containers until you remove them (docs/state.md#move-the-state-directory)"
        ));
    }
    for path in without_bits.iter().take(MOST_NAMED) {
        let path = plain(&files.folder.join(path).display().to_string());
        context.screen.say(format!(
            "warning: {path} has lost its setuid or setgid bit, because this process lacks the capability FSETID: set it with `chmod`, or \
             restore again with `--cap-add FSETID`"
        ));
    }
    if let Some(more) = without_bits.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        context.screen.say(format!("warning: {more} more files have lost such a bit"));
    }
    let reason = match files.key() {
        None | Some(DatabaseKey::Right(_)) => None,
        Some(DatabaseKey::Other(key)) => {
            Some(format!("{} is not the key of the restored database", key.display()))
        }
        Some(DatabaseKey::Unreadable(key, _)) if !key.exists() => {
            Some(format!("the key {} is missing", key.display()))
        }
        Some(DatabaseKey::Unreadable(_, error)) => Some(error_chain(&error)),
    };
    if let Some(reason) = reason {
        context.screen.say(format!(
            "warning: {reason}: put the right key there before the agent starts, or stored revisions cannot be read"
        ));
    }
    let folder = files.folder.display();
    context.screen.say(
        "note: pins and suspensions that were set after the backup are gone: a version that was rolled back since comes back when the agent \
         has read Git, unless its commit is reverted in Git before",
    );
    print(&format!("restored {folder}; start the agent, which starts the containers that are stopped\n"))?;
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_mistakes_still_names_the_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("driftless.yaml");
        let usable = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let (Settings { state_dir, state_key_file, .. }, error) = usable_settings(&file);
            (state_dir, state_key_file, error.map(|error| error.to_string()))
        };
        let (folder, key, error) = usable("# repositories:\n");
        assert_eq!((folder, key), (Settings::default().state_dir, None));
        assert!(error.is_some());
        let (folder, key, error) = usable("stateDir: /srv/state\nstateKeyFile: /run/key\nrepositries: []\n");
        assert_eq!((folder, key), ("/srv/state".into(), Some("/run/key".into())));
        assert!(error.is_some());
        let (folder, _, error) = usable("stateDir: /srv/state\nrepositories: [{url: /srv/a}]\n");
        assert_eq!((folder, error), ("/srv/state".into(), None));
    }

    #[test]
    fn key_of_a_state_directory_is_looked_for_where_it_may_be() {
        let settings = |key: Option<&str>| Settings {
            state_dir: "/var/lib/driftless".into(),
            state_key_file: key.map(PathBuf::from),
            ..Settings::default()
        };
        let keys = |state_dir: Option<&str>, config: Option<&str>, key: Option<&str>| {
            let args =
                StateArgs { state_dir: state_dir.map(PathBuf::from), config: config.map(PathBuf::from) };
            let files = args.files_of(settings(key));
            assert_eq!(files.folder, Path::new(state_dir.unwrap_or("/var/lib/driftless")));
            files.keys.iter().map(|key| key.display().to_string()).collect::<Vec<_>>()
        };
        let (other, key) = (Some("/srv/state"), Some("/run/key"));
        assert_eq!(keys(None, None, None), ["/var/lib/driftless/database.key"]);
        assert_eq!(keys(other, None, None), ["/srv/state/database.key"]);
        assert_eq!(keys(None, None, key), ["/run/key"]);
        assert_eq!(keys(Some("/var/lib/driftless"), None, key), ["/run/key"]);
        assert_eq!(keys(other, Some("driftless.yaml"), key), ["/run/key"]);
        assert_eq!(keys(other, None, key), ["/srv/state/database.key", "/run/key"]);
    }
}
