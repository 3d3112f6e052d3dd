//! The files of a build as a tar archive, produced while it is sent. A Dockerfile from outside the context is added under
//! a name of its own, which the engine removes again before anything is copied.

use std::{
    io::{self, Write},
    sync::Arc,
};

use futures_util::Stream;
use hyper::body::Bytes;
use tar::{EntryType, Header};

use super::job::BuildJob;
use crate::body_writer::{self, BodyWriter};
use driftless_files::{Context, ContextEntry};
use driftless_model::digest_hex;

const IGNORE: &str = ".dockerignore";

/// The path of the Dockerfile in the archive.
pub(super) fn dockerfile(context: &Context) -> String {
    context.dockerfile_inside.clone().unwrap_or_else(|| {
        let digest = digest_hex(&context.dockerfile);
        format!(".dockerfile.{}", digest.get(..20).unwrap_or(&digest))
    })
}

/// The archive. Dropping it ends the reading.
pub(super) fn stream(job: &Arc<BuildJob>) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let job = Arc::clone(job);
    body_writer::stream(move |writer| write(&job, writer))
}

fn write(job: &BuildJob, writer: BodyWriter) -> io::Result<()> {
    let BuildJob { context, files, time, .. } = job;
    let mut archive = tar::Builder::new(writer);
    let header = |kind: EntryType, mode: u32, size: u64| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(*time);
        header.set_size(size);
        header
    };
    let is_outside = context.dockerfile_inside.is_none();
    for (path, entry) in &context.entries {
        match entry {
            ContextEntry::Folder => {
                archive.append_data(
                    &mut header(EntryType::Directory, 0o755, 0),
                    format!("{path}/"),
                    io::empty(),
                )?;
            }
            ContextEntry::Link(target) => {
                archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
            }
            ContextEntry::File { size: _, executable } => {
                let mut bytes = context.read(files.as_ref(), path).map_err(io::Error::other)?.to_vec();
                if path == IGNORE && is_outside {
                    bytes.extend_from_slice(format!("\n{}\n", dockerfile(context)).as_bytes());
                }
                let mode = if *executable { 0o755 } else { 0o644 };
                archive.append_data(
                    &mut header(EntryType::Regular, mode, bytes.len() as u64),
                    path,
                    &*bytes,
                )?;
            }
        }
    }
    if is_outside {
        let name = dockerfile(context);
        let size = context.dockerfile.len() as u64;
        archive.append_data(&mut header(EntryType::Regular, 0o644, size), &name, &*context.dockerfile)?;
        if !context.entries.contains_key(IGNORE) {
            let text = format!("{name}\n{IGNORE}\n");
            let size = text.len() as u64;
            archive.append_data(&mut header(EntryType::Regular, 0o644, size), IGNORE, text.as_bytes())?;
        }
    }
    archive.into_inner()?.flush()
}
