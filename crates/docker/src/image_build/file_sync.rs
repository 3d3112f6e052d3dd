//! How `BuildKit` asks for files: we list all there are, it asks for the bytes of those it has not got, and says when it
//! is done. The protocol is that of its `fsutil`: a stream of packets in both directions.
//!
//! The list is already without what `.dockerignore` leaves out, so patterns that it sends along are not looked at.

use std::{collections::BTreeMap, sync::Arc};

use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc;

use super::{
    BuildJob,
    protobuf::{Value, Writer, fields},
    session::{Incoming, framed},
};
use driftless_files::ContextEntry;

/// The name under which the instructions are offered.
pub(crate) const DOCKERFILE: &str = "Dockerfile";

/// Kinds of packets.
const STAT: u64 = 0;
const REQUEST: u64 = 1;
const DATA: u64 = 2;
const END: u64 = 3;
const ERROR: u64 = 4;

/// Go's bits for what is no plain file.
const FOLDER: u32 = 1 << 31;
const LINK: u32 = 1 << 27;

const GONE: &str = "the builder has gone";

/// What is sent at once.
const CHUNK: usize = 32 << 10;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folder {
    Context,
    /// The instructions and nothing else.
    Dockerfile,
    /// There is nothing in it: what is to be ignored was left out before.
    Ignored,
}

impl Folder {
    /// By its name, and by the names of those files in it that alone are asked for.
    pub(crate) fn of(name: &str, only: &[&str]) -> Option<Self> {
        match name {
            "context" if only == [".dockerignore"] => Some(Self::Ignored),
            "context" => Some(Self::Context),
            "dockerfile" => Some(Self::Dockerfile),
            _ => None,
        }
    }
}

/// Answers until the other side is done, or gone. An error is in words for the builder to repeat.
pub(crate) async fn serve(
    job: Arc<BuildJob>,
    folder: Folder,
    mut asked: Incoming,
    answers: &mpsc::Sender<Frame<Bytes>>,
) -> Result<(), String> {
    let listed = list(&job, folder);
    let gone = |_| GONE.to_owned();
    for (path, stat) in &listed {
        let packet = Writer::default().number(1, STAT).message(2, &stat.packed(path, job.time));
        answers.send(framed(&packet.finish())).await.map_err(gone)?;
    }
    let end_of_list = Writer::default().number(1, STAT).finish();
    answers.send(framed(&end_of_list)).await.map_err(gone)?;
    while let Some(packet) = asked.next().await? {
        let (mut kind, mut id, mut words) = (STAT, 0, String::new());
        for (field, value) in fields(&packet) {
            match (field, value) {
                (1, Value::Number(it)) => kind = it,
                (3, Value::Number(it)) => id = it,
                (4, Value::Bytes(it)) => words = String::from_utf8_lossy(it).into_owned(),
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
                return answers.send(framed(&end)).await.map_err(gone);
            }
            ERROR => return Err(words),
            _ => {}
        }
    }
    Ok(())
}

/// One line of the list.
#[derive(Debug)]
struct Stat {
    mode: u32,
    size: u64,
    target: String,
}

impl Stat {
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

/// In the order in which a tree is walked: what is in a folder comes right after it.
fn list(job: &BuildJob, folder: Folder) -> Vec<(String, Stat)> {
    let plain = |mode, size| Stat { mode, size, target: String::new() };
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
            ContextEntry::Link(target) => Stat { mode: LINK | 0o777, size: 0, target: target.clone() },
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
    // Nothing at all says that it is the end of the file.
    for chunk in bytes.chunks(CHUNK).chain([&[][..]]) {
        answers.send(packet(chunk)).await.map_err(|_| GONE.to_owned())?;
    }
    Ok(())
}
