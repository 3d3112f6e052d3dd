//! The Unix socket of the API: its place, its permissions, and its end.

use std::{
    fs,
    fs::{DirBuilder, Permissions},
    io,
    io::Read as _,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use driftless_config::{ApiSocket, SOCKET_FOLDER, SOCKET_NAME, SocketPlace};
use tokio::net::UnixListener;

use super::{error::Error, socket_error::SocketError};
use crate::cli::{context::Environment, error::Error as CliError};

/// The largest table of groups that is read, in bytes.
const LARGEST_TABLE: u64 = 16 << 20;

/// Permissions of the folder if a group may connect: others may go through it, and not list it.
const OPEN_FOLDER: u32 = 0o711;

/// An open socket. Its file is removed when this is dropped.
pub(super) struct OpenSocket {
    pub(super) path: PathBuf,
    identity: (u64, u64),
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        // Another agent may have replaced it.
        if identity(&self.path) == Some(self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The path of the socket, if the settings have one.
pub(super) fn place(settings: &ApiSocket, environment: &Environment) -> Result<Option<PathBuf>, SocketError> {
    match &settings.place {
        SocketPlace::None => Ok(None),
        SocketPlace::Path(path) => Ok(Some(path.clone())),
        SocketPlace::ServiceManager => {
            let folders = environment("RUNTIME_DIRECTORY").unwrap_or_default();
            let mut folders = folders.split(':').map(Path::new);
            let folder = folders.find(|folder| folder.file_name().is_some_and(|name| name == SOCKET_FOLDER));
            match folder {
                None if settings.group.is_some() => Err(SocketError::NoFolder),
                folder => Ok(folder.map(|folder| folder.join(SOCKET_NAME))),
            }
        }
    }
}

/// A socket that nobody can connect to yet: it has another name than the one of the settings. This name, and a folder that was
/// made for the socket and is empty, are removed when this is dropped.
struct UnnamedSocket {
    listener: UnixListener,
    names: UnusedNames,
}

/// The names of an [`UnnamedSocket`] on the disk.
struct UnusedNames {
    socket: PathBuf,
    made_folder: Option<PathBuf>,
}

impl Drop for UnusedNames {
    fn drop(&mut self) {
        // If the socket has its name by now, neither is there to be removed.
        let _ = fs::remove_file(&self.socket);
        if let Some(folder) = &self.made_folder {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Checks everything that could keep the socket of new settings from being opened, while another one may be open.
pub(super) fn check(new: &ApiSocket, current: &ApiSocket, environment: &Environment) -> Result<(), Error> {
    let checked = place(new, environment).and_then(|path| {
        let group = group_id(new)?;
        let Some(path) = path else { return Ok(()) };
        if Some(&path) != place(current, environment).ok().flatten().as_ref() {
            free(&path)?;
        }
        create_unnamed(&path, group).map(drop)
    });
    checked.map_err(Error::Socket)
}

/// Checks a socket that the agent with these settings may have open at the moment.
///
/// # Errors
///
/// If it could not be opened. Only an agent that the service manager starts knows the folder that was made for its socket.
pub(in crate::cli) fn check_socket(settings: &ApiSocket) -> Result<(), CliError> {
    let checked = group_id(settings).and_then(|group| match &settings.place {
        SocketPlace::ServiceManager | SocketPlace::None => Ok(()),
        SocketPlace::Path(path) => match free(path) {
            Ok(()) | Err(SocketError::InUse(_)) => create_unnamed(path, group).map(drop),
            Err(error) => Err(error),
        },
    });
    Ok(checked.map_err(Error::Socket)?)
}

/// Opens the socket, if the settings have one.
pub(super) fn open(
    settings: &ApiSocket,
    environment: &Environment,
) -> Result<Option<(UnixListener, OpenSocket)>, Error> {
    let opened = place(settings, environment).and_then(|path| match path {
        Some(path) => bind(&path, settings, environment).map(Some),
        None => Ok(None),
    });
    opened.map_err(Error::Socket)
}

fn bind(
    path: &Path,
    settings: &ApiSocket,
    environment: &Environment,
) -> Result<(UnixListener, OpenSocket), SocketError> {
    let group = group_id(settings)?;
    free(path)?;
    let UnnamedSocket { listener, names } = create_unnamed(path, group)?;
    let folder = folder_of(path);
    // Those of the service manager are the agent's own.
    let managed = environment("RUNTIME_DIRECTORY").unwrap_or_default();
    if group.is_some() && managed.split(':').any(|managed| Path::new(managed) == folder) {
        let opened = fs::set_permissions(folder, Permissions::from_mode(OPEN_FOLDER));
        opened.map_err(failed("open the folder", folder))?;
    }
    fs::rename(&names.socket, path).map_err(failed("create", path))?;
    let identity = identity(path).unwrap_or_default();
    Ok((listener, OpenSocket { path: path.to_owned(), identity }))
}

/// Creates a socket for a path, with its permissions. Nobody can connect before they are set: until then it has another name.
fn create_unnamed(path: &Path, group: Option<u32>) -> Result<UnnamedSocket, SocketError> {
    let socket = path.with_extension(format!("{}.next", std::process::id()));
    let mut names = UnusedNames { socket, made_folder: None };
    let folder = folder_of(path);
    if !folder.exists() {
        let created = DirBuilder::new().mode(OPEN_FOLDER).create(folder);
        // The umask of the process restricts it.
        let opened = created.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(OPEN_FOLDER)));
        opened.map_err(failed("create the folder", folder))?;
        names.made_folder = Some(folder.to_owned());
    }
    // Left behind by a process with this id.
    let _ = fs::remove_file(&names.socket);
    let listener = UnixListener::bind(&names.socket).map_err(failed("listen on", path))?;
    if let Some(group) = group {
        chown(&names.socket, None, Some(group)).map_err(failed("give the group", path))?;
    }
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    fs::set_permissions(&names.socket, Permissions::from_mode(mode)).map_err(failed("protect", path))?;
    Ok(UnnamedSocket { listener, names })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError + use<> {
    let path = path.to_owned();
    move |source| SocketError::Io { doing, path, source }
}

/// Whether a socket may be created at a path: nothing is there, or the socket of an agent that has ended.
fn free(path: &Path) -> Result<(), SocketError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(SocketError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(_) | Err(_) => Err(SocketError::InUse(path.to_owned())),
    }
}

/// The number of the group of the settings.
fn group_id(settings: &ApiSocket) -> Result<Option<u32>, SocketError> {
    let Some(group) = &settings.group else { return Ok(None) };
    if let Ok(number) = group.name.parse() {
        return Ok(Some(number));
    }
    let mut table = String::new();
    let read =
        fs::File::open("/etc/group").and_then(|file| file.take(LARGEST_TABLE).read_to_string(&mut table));
    read.map_err(|source| SocketError::Io { doing: "read", path: "/etc/group".into(), source })?;
    let number = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(group.name.as_str())).then(|| fields.nth(1)?.parse().ok())?
    });
    number.map(Some).ok_or_else(|| SocketError::NoGroup(group.name.clone()))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(path: &Path) -> ApiSocket {
        ApiSocket { place: SocketPlace::Path(path.to_owned()), group: None }
    }

    #[tokio::test]
    async fn socket_that_cannot_be_opened_refuses_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let environment: Environment = Arc::new(|_: &str| None);
        let checked = |path: &str| {
            let checked = check(&at(&folder.path().join(path)), &ApiSocket::default(), &environment);
            checked.map_err(|error| match error {
                Error::Socket(error) => error.to_string(),
                other => other.to_string(),
            })
        };
        let names = || fs::read_dir(folder.path()).unwrap().count();
        for path in ["agent.sock", "made/agent.sock"] {
            checked(path).unwrap();
            assert_eq!(names(), 0, "{path}");
        }
        let error = checked("one/two/agent.sock").unwrap_err();
        assert!(error.contains("could not create the folder"), "{error}");
        fs::write(folder.path().join("file"), "").unwrap();
        let error = checked("file/agent.sock").unwrap_err();
        assert!(error.contains("could not listen on"), "{error}");
        let error = checked(&"long".repeat(30)).unwrap_err();
        assert!(error.contains("could not listen on"), "{error}");
        assert_eq!(names(), 1);
    }

    #[tokio::test]
    async fn socket_is_checked_before_a_start() {
        use driftless_config::SocketGroup;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let settings = at(&path);
        check_socket(&ApiSocket::default()).unwrap();
        check_socket(&settings).unwrap();
        let environment: Environment = Arc::new(|_: &str| None);
        let opened = open(&settings, &environment).unwrap().unwrap();
        check_socket(&settings).unwrap();
        assert!(UnixStream::connect(&path).is_ok(), "the agent that runs keeps it");
        drop(opened);

        let group = Some(SocketGroup { name: "no-such-group".to_owned(), scopes: Vec::new() });
        let error = check_socket(&ApiSocket { group, ..ApiSocket::default() }).unwrap_err();
        assert!(error.to_string().contains("this machine has no group `no-such-group`"), "{error}");
        fs::write(&path, "").unwrap();
        let error = check_socket(&settings).unwrap_err();
        assert!(error.to_string().contains("is no socket"), "{error}");
    }

    #[tokio::test]
    async fn open_socket_stays_when_a_reload_checks_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let environment: Environment = Arc::new(|_: &str| None);
        let settings = at(&folder.path().join("made/agent.sock"));
        let (listener, open) = open(&settings, &environment).unwrap().unwrap();
        check(&settings, &settings, &environment).unwrap();
        assert!(UnixStream::connect(&open.path).is_ok());
        assert!(check(&settings, &ApiSocket::default(), &environment).is_err(), "another agent uses it");
        drop((listener, open));
        assert_eq!(fs::read_dir(folder.path().join("made")).unwrap().count(), 0);
    }
}
