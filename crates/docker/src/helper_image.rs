//! The helper image, made from this program: its executable and the libraries that it has mapped, as an archive that the
//! engine imports. It needs no registry and is on the host as soon as a pod needs it.
//!
//! The program is started through its own loader, with all libraries in one folder: so nothing depends on where a
//! distribution keeps them.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use driftless_model::{ImageParts, ImageRef, label};
use http::Method;
use http_body_util::BodyExt;
use tar::{EntryType, Header};

use crate::{
    body_writer::{self, BodyWriter},
    call_error::{CallError, clean},
    connection::Connection,
    deadline::within,
    error::Error,
    percent_encoding::encode,
};

/// The deadline of an import.
const DEADLINE: Duration = Duration::from_mins(5);

/// The path of the program in the image, and the folder of its libraries.
const PROGRAM: &str = "driftless";
const LIBRARIES: &str = "lib";

/// Imports the image. It replaces an earlier one with the same name.
pub(crate) async fn import(
    connection: &Connection,
    image: &str,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<(), Error> {
    progress(format!("importing {image}"));
    within(DEADLINE, send(connection, image)).await.map_err(|error| match error {
        CallError::Status { message, .. } => {
            Error::Pull { image: image.to_owned(), message, retry_after: None }
        }
        CallError::Unreachable(_) | CallError::TimedOut(_) => error.classify(&format!("import {image}")),
    })
}

async fn send(connection: &Connection, image: &str) -> Result<(), CallError> {
    connection.api_version().await?;
    let ImageParts { name, tag, .. } = ImageRef::split(image);
    let tag = tag.unwrap_or("latest");
    let maps = fs::read_to_string("/proc/self/maps").map_err(|error| unreadable(&error))?;
    let libraries = libraries(&maps);
    let entry_point =
        serde_json::to_string(&entry_point(&libraries)).map_err(|error| CallError::unreachable(&error))?;
    let query = [
        ("fromSrc", "-"),
        ("repo", name),
        ("tag", tag),
        ("changes", &format!("ENTRYPOINT {entry_point}")),
        ("changes", "CMD [\"pause\"]"),
        ("changes", &format!("LABEL {}={image}", label::HELPER)),
    ]
    .map(|(key, value)| format!("{key}={}", encode(value)));
    let body = body_writer::stream(move |writer| write(&libraries, writer));
    let path = format!("/images/create?{}", query.join("&"));
    let response = connection.transport().upload(Method::POST, &path, "application/x-tar", &[], body).await?;
    let bytes = response.into_body().collect().await.map_err(|error| CallError::unreachable(&error))?;
    match import_error(&bytes.to_bytes()) {
        Some(message) => Err(CallError::Status { code: 500, message }),
        None => Ok(()),
    }
}

fn unreadable(error: &io::Error) -> CallError {
    let message = format!("could not read /proc/self/maps: {error}");
    CallError::Status { code: 500, message }
}

/// The error in an answer, if there is one: the engine answers with success before it begins, and reports a later error
/// in one of the lines.
fn import_error(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ImportLine {
        error: Option<String>,
    }
    let lines = body.split(|it| *it == b'\n').filter_map(|it| serde_json::from_slice::<ImportLine>(it).ok());
    lines.into_iter().find_map(|line| line.error).map(|error| clean(&error))
}

/// The command that starts the program with these libraries.
fn entry_point(libraries: &BTreeSet<PathBuf>) -> Vec<String> {
    let program = format!("/{PROGRAM}");
    let names = libraries.iter().filter_map(|it| it.file_name()?.to_str());
    // `ld-linux-x86-64.so.2`, `ld-2.31.so`, `ld-musl-x86_64.so.1`, `ld64.so.2`.
    match names.into_iter().find(|it| it.starts_with("ld")) {
        Some(loader) => {
            let (loader, folder) = (format!("/{LIBRARIES}/{loader}"), format!("/{LIBRARIES}"));
            vec![loader, "--library-path".to_owned(), folder, program]
        }
        None => vec![program],
    }
}

/// The mapped shared libraries, with the loader; none if the program is linked statically.
fn libraries(maps: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let path = line.get(line.find('/')?..)?;
        // An upgrade of the host has replaced the file.
        let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        is_library(path.file_name()?).then(|| path.to_owned())
    };
    maps.lines().filter_map(path).collect()
}

fn is_library(name: &OsStr) -> bool {
    let ends_so = Path::new(name).extension().is_some_and(|it| it == "so");
    ends_so || name.to_str().is_some_and(|it| it.contains(".so."))
}

fn write(libraries: &BTreeSet<PathBuf>, writer: BodyWriter) -> io::Result<()> {
    let mut archive = tar::Builder::new(writer);
    // Under this path it can be read even after an upgrade has removed the file.
    append(&mut archive, PROGRAM, Path::new("/proc/self/exe"))?;
    for library in libraries {
        let Some(name) = library.file_name() else { continue };
        let inside = Path::new(LIBRARIES).join(name);
        append(&mut archive, &inside, library)?;
        for other in other_names(library) {
            let mut link = header(EntryType::Symlink, 0);
            archive.append_link(&mut link, Path::new(LIBRARIES).join(other), name)?;
        }
    }
    archive.into_inner()?.flush()
}

/// Symbolic links to a library: the kernel reports the name of the file, and programs load it by the name of a link.
fn other_names(library: &Path) -> Vec<PathBuf> {
    let Some(Ok(siblings)) = library.parent().map(fs::read_dir) else { return Vec::new() };
    let is_link = |path: &PathBuf| {
        path != library
            && path.file_name().is_some_and(is_library)
            && path.is_symlink()
            && fs::canonicalize(path).ok() == fs::canonicalize(library).ok()
    };
    let found = siblings.filter_map(|it| Some(it.ok()?.path())).filter(is_link);
    found.filter_map(|it| it.file_name().map(PathBuf::from)).collect()
}

fn append(archive: &mut tar::Builder<BodyWriter>, name: impl AsRef<Path>, from: &Path) -> io::Result<()> {
    let file = File::open(from)?;
    let mut header = header(EntryType::Regular, file.metadata()?.len());
    archive.append_data(&mut header, name, file)
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        55d0c0000000-55d0c0100000 r-xp 00000000 fe:01 131 /usr/bin/driftless\n\
        7f0000000000-7f0000100000 r-xp 00028000 fe:01 132                        /usr/lib/libc-2.31.so\n\
        7f0000100000-7f0000200000 r--p 00000000 fe:01 132                        /usr/lib/libc-2.31.so\n\
        7f0000200000-7f0000300000 r-xp 00000000 fe:01 133                        /lib/ld-2.31.so (deleted)\n\
        7f0000300000-7f0000400000 rw-p 00000000 00:00 0                          [heap]\n\
        7f0000400000-7f0000500000 rw-s 00000000 fe:01 134                        /var/lib/driftless/state.db-shm\n";

    #[test]
    fn libraries_are_found_among_the_mapped_files() {
        let found = libraries(MAPS);
        let paths: Vec<&str> = found.iter().filter_map(|it| it.to_str()).collect();
        assert_eq!(paths, ["/lib/ld-2.31.so", "/usr/lib/libc-2.31.so"]);
        assert_eq!(entry_point(&found), ["/lib/ld-2.31.so", "--library-path", "/lib", "/driftless"]);
        assert_eq!(entry_point(&BTreeSet::new()), ["/driftless"]);
    }

    #[test]
    fn error_in_the_answer_is_found() {
        assert_eq!(import_error(b"{\"status\":\"sha256:00\"}\r\n"), None);
        let body = b"{\"status\":\"a\"}\n{\"error\":\"no space left\",\"errorDetail\":{}}\n";
        assert_eq!(import_error(body), Some("no space left".to_owned()));
    }
}
