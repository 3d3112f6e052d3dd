//! A writer whose bytes become the body of a request: a large body is produced while it is sent.

use std::io::{self, Write};

use futures_util::{Stream, stream::poll_fn};
use hyper::body::Bytes;
use tokio::sync::mpsc;

/// Bytes that are sent at once.
const CHUNK: usize = 64 << 10;
/// The number of chunks that may wait to be sent.
const AHEAD: usize = 4;

/// The bytes that `write` writes, on a thread of its own. Dropping the stream ends the writing.
pub(crate) fn stream(
    write: impl FnOnce(BodyWriter) -> io::Result<()> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (sender, mut receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let writer = BodyWriter { sender: sender.clone(), buffer: Vec::with_capacity(CHUNK) };
        if let Err(error) = write(writer) {
            // It fails if the request has ended, which is no fault.
            let _ = sender.blocking_send(Err(error));
        }
    });
    poll_fn(move |cx| receiver.poll_recv(cx))
}

/// The writer. It must be flushed at the end.
pub(crate) struct BodyWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)));
        self.sender.blocking_send(Ok(bytes)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
