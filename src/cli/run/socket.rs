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
use crate::cli::context::Environment;

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

/// Checks everything that could keep the socket of new settings from being opened, while another one may be open.
pub(super) fn check(new: &ApiSocket, current: &ApiSocket, environment: &Environment) -> Result<(), Error> {
    let checked = place(new, environment).and_then(|path| {
        group_id(new)?;
        match path {
            Some(path) if Some(&path) != place(current, environment).ok().flatten().as_ref() => free(&path),
            Some(_) | None => Ok(()),
        }
    });
    checked.map_err(Error::Socket)
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

/// Nobody can connect before the permissions are set: until then the socket has another name.
fn bind(
    path: &Path,
    settings: &ApiSocket,
    environment: &Environment,
) -> Result<(UnixListener, OpenSocket), SocketError> {
    let fail = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| SocketError::Io { doing, path, source }
    };
    let group = group_id(settings)?;
    free(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.exists() {
        let created = DirBuilder::new().mode(OPEN_FOLDER).create(folder);
        // The umask of the process restricts it.
        let opened = created.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(OPEN_FOLDER)));
        opened.map_err(fail("create the folder", folder))?;
    }
    let next = path.with_extension(format!("{}.next", std::process::id()));
    // Left behind by a process with this id.
    let _ = fs::remove_file(&next);
    let listener = UnixListener::bind(&next).map_err(fail("listen on", path))?;
    let prepared = (|| {
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        if let Some(group) = group {
            chown(&next, None, Some(group)).map_err(fail("give the group", path))?;
            // Those of the service manager are the agent's own.
            let managed = environment("RUNTIME_DIRECTORY").unwrap_or_default();
            if managed.split(':').any(|managed| Path::new(managed) == folder) {
                let opened = fs::set_permissions(folder, Permissions::from_mode(OPEN_FOLDER));
                opened.map_err(fail("open the folder", folder))?;
            }
        }
        fs::set_permissions(&next, Permissions::from_mode(mode)).map_err(fail("protect", path))?;
        fs::rename(&next, path).map_err(fail("create", path))
    })();
    if let Err(error) = prepared {
        let _ = fs::remove_file(&next);
        return Err(error);
    }
    let identity = identity(path).unwrap_or_default();
    Ok((listener, OpenSocket { path: path.to_owned(), identity }))
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
