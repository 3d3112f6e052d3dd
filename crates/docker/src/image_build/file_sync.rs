//! The protocol in which `BuildKit` asks for files: the agent lists all files, `BuildKit` asks for the content of those that it does not have
//! yet and says when it is done. The protocol is that of its `fsutil`: a stream of packets in both directions.
//!
//! The list is already without the files that `.dockerignore` excludes, so patterns that `BuildKit` sends are ignored.

use std::{collections::BTreeMap, sync::Arc};

use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc;

use super::{
    grpc::{Incoming, framed},
    job::BuildJob,
    protobuf::{Value, Writer, fields},
};
use driftless_files::ContextEntry;

/// The name of the instructions.
pub(super) const DOCKERFILE: &str = "Dockerfile";

/// Kinds of packets.
const STAT: u64 = 0;
const REQUEST: u64 = 1;
const DATA: u64 = 2;
const END: u64 = 3;
const ERROR: u64 = 4;

/// Go's mode bits for folders and symbolic links.
const FOLDER: u32 = 1 << 31;
const LINK: u32 = 1 << 27;

const DISCONNECTED: &str = "the builder has disconnected";

/// Bytes that are sent at once.
const CHUNK: usize = 32 << 10;

/// A folder that `BuildKit` can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folder {
    Context,
    /// Only the instructions.
    Dockerfile,
    /// Empty: excluded files are not listed anyway.
    Ignored,
}

impl Folder {
    /// By its name, and by the patterns of the wanted files.
    pub(super) fn of(name: &str, only: &[&str]) -> Option<Self> {
        match name {
            "context" if only == [".dockerignore"] => Some(Self::Ignored),
            "context" => Some(Self::Context),
            "dockerfile" => Some(Self::Dockerfile),
            _ => None,
        }
    }
}

/// Answers until the builder is done or has disconnected. The error is a message for the builder to print.
pub(super) async fn serve(
    job: Arc<BuildJob>,
    folder: Folder,
    mut requests: Incoming,
    answers: &mpsc::Sender<Frame<Bytes>>,
) -> Result<(), String> {
    let listed = list(&job, folder);
    let disconnected = |_| DISCONNECTED.to_owned();
    for (path, stat) in &listed {
        let packet = Writer::default().number(1, STAT).message(2, &stat.packed(path, job.time));
        answers.send(framed(&packet.finish())).await.map_err(disconnected)?;
    }
    let end_of_list = Writer::default().number(1, STAT).finish();
    answers.send(framed(&end_of_list)).await.map_err(disconnected)?;
    while let Some(packet) = requests.next().await? {
        let (mut kind, mut id, mut message) = (STAT, 0, String::new());
        for (field, value) in fields(&packet) {
            match (field, value) {
                (1, Value::Number(it)) => kind = it,
                (3, Value::Number(it)) => id = it,
                (4, Value::Bytes(it)) => message = String::from_utf8_lossy(it).into_owned(),
                _ => {}
            }
        }
        match kind {
            REQUEST => {
                let path =
                    usize::try_from(id).ok().and_then(|it| listed.get(it)).map(|(path, _)| path.clone());
                let path = path.ok_or_else(|| format!("there is no file {id}"))?;
                send(&job, folder, path, id, answers).await?;
            }
            END => {
                let end = Writer::default().number(1, END).finish();
                return answers.send(framed(&end)).await.map_err(disconnected);
            }
            ERROR => return Err(message),
            _ => {}
        }
    }
    Ok(())
}

/// An entry of the list.
#[derive(Debug)]
struct FileStat {
    mode: u32,
    size: u64,
    target: String,
}

impl FileStat {
    fn packed(&self, path: &str, time: u64) -> Vec<u8> {
        Writer::default()
            .bytes(1, path.as_bytes())
            .number(2, u64::from(self.mode))
            .number(5, self.size)
            .number(6, time.saturating_mul(1_000_000_000))
            .bytes(7, self.target.as_bytes())
            .finish()
    }
}

/// In the order of a walk through the tree: the content of a folder follows the folder.
fn list(job: &BuildJob, folder: Folder) -> Vec<(String, FileStat)> {
    let plain = |mode, size| FileStat { mode, size, target: String::new() };
    let entries = match folder {
        Folder::Ignored => return Vec::new(),
        Folder::Dockerfile => {
            let size = job.context.dockerfile.len() as u64;
            return vec![(DOCKERFILE.to_owned(), plain(0o644, size))];
        }
        Folder::Context => &job.context.entries,
    };
    let listed = entries.iter().map(|(path, entry)| {
        let stat = match entry {
            ContextEntry::Folder => plain(FOLDER | 0o755, 0),
            ContextEntry::File { size, executable: true } => plain(0o755, *size),
            ContextEntry::File { size, executable: false } => plain(0o644, *size),
            ContextEntry::Link(target) => FileStat { mode: LINK | 0o777, size: 0, target: target.clone() },
        };
        (path.replace('/', "\0"), (path.clone(), stat))
    });
    listed.collect::<BTreeMap<_, _>>().into_values().collect()
}

async fn send(
    job: &Arc<BuildJob>,
    folder: Folder,
    path: String,
    id: u64,
    answers: &mpsc::Sender<Frame<Bytes>>,
) -> Result<(), String> {
    let reader = Arc::clone(job);
    let bytes = match folder {
        Folder::Dockerfile => Arc::clone(&job.context.dockerfile),
        Folder::Context | Folder::Ignored => {
            let read = tokio::task::spawn_blocking(move || reader.context.read(reader.files.as_ref(), &path));
            read.await.map_err(|it| it.to_string())??
        }
    };
    let packet =
        |chunk: &[u8]| framed(&Writer::default().number(1, DATA).number(3, id).bytes(4, chunk).finish());
    // An empty chunk marks the end of the file.
    for chunk in bytes.chunks(CHUNK).chain([&[][..]]) {
        answers.send(packet(chunk)).await.map_err(|_| DISCONNECTED.to_owned())?;
    }
    Ok(())
}
