//! One direction of a connection. Bytes are copied through one buffer of the thread, and only what cannot be written at
//! once is kept. Large transfers go through a pipe inside the kernel (`splice`).

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use nix::{
    fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice},
    unistd::{pipe2, read},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// The buffer of a thread, in bytes.
const BUFFER: usize = 64 * 1024;
/// Number of full buffers in a row after which the rest is a large transfer.
const LARGE: u8 = 2;
/// The size of a pipe. The kernel limits the pages of all pipes of a user, so a pipe may be smaller.
const PIPE: usize = 256 * 1024;
/// Pipes that a thread keeps for the next transfer.
const SPARE_PIPES: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Read and not yet written. Empty, and without memory, most of the time.
    waiting: Waiting,
    pipe: Option<Pipe>,
    full_buffers: u8,
    has_ended: bool,
    is_shut: bool,
    /// Bytes that were read since this was last taken.
    read: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    written: usize,
}

#[derive(Debug)]
struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
    filled: usize,
}

/// The decision of the caller about bytes that were read.
pub(crate) enum Decision {
    Forward,
    /// The bytes are the caller's now.
    Take,
}

impl Flow {
    /// A direction whose first bytes to write are these.
    pub(crate) fn beginning_with(bytes: Vec<u8>) -> Self {
        let mut flow = Self::default();
        flow.waiting.bytes = bytes;
        flow
    }

    /// Whether nothing that was read waits to be written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.waiting.bytes.is_empty() && self.pipe.as_ref().is_none_or(|pipe| pipe.filled == 0)
    }

    /// Whether the reading side has said its last, and the writing side was told.
    pub(crate) fn is_over(&self) -> bool {
        self.is_shut
    }

    /// Whether the reading side has said its last.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The number of bytes that were read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }

    /// Moves bytes until one of the sides is not ready. `Ready(Ok(None))` when the direction is over, and
    /// `Ready(Ok(Some(bytes)))` when `inspect` has taken bytes. A large transfer is not inspected, unless it is not allowed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut TcpStream,
        to: &mut TcpStream,
        may_splice: bool,
        mut inspect: impl FnMut(&[u8]) -> Decision,
    ) -> Poll<io::Result<Option<Vec<u8>>>> {
        loop {
            ready!(self.poll_flush(cx, to))?;
            if self.has_ended {
                if !self.is_shut {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.is_shut = true;
                }
                return Poll::Ready(Ok(None));
            }
            if self.full_buffers >= LARGE && may_splice {
                ready!(self.poll_fill(cx, from))?;
                continue;
            }
            let taken = SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
                let bytes = buffer.filled();
                self.read += bytes.len() as u64;
                if bytes.is_empty() {
                    self.has_ended = true;
                    return Poll::Ready(Ok(None));
                }
                self.full_buffers =
                    if bytes.len() == BUFFER { (self.full_buffers + 1).min(LARGE) } else { 0 };
                if let Decision::Take = inspect(bytes) {
                    return Poll::Ready(Ok(Some(bytes.to_vec())));
                }
                let written = match Pin::new(&mut *to).poll_write(cx, bytes) {
                    Poll::Ready(written) => written?,
                    Poll::Pending => 0,
                };
                let rest = bytes.get(written..).unwrap_or_default();
                if !rest.is_empty() {
                    self.waiting = Waiting { bytes: rest.to_vec(), written: 0 };
                }
                Poll::Ready(Ok::<_, io::Error>(None))
            });
            if let Some(bytes) = ready!(taken)? {
                return Poll::Ready(Ok(Some(bytes)));
            }
        }
    }

    /// Writes what waits.
    fn poll_flush(&mut self, cx: &mut Context<'_>, to: &mut TcpStream) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.bytes.get(self.waiting.written..).filter(|it| !it.is_empty()) {
            match ready!(Pin::new(&mut *to).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.waiting.written += written,
            }
            if self.waiting.written == self.waiting.bytes.len() {
                self.waiting = Waiting::default();
            }
        }
        while let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.filled > 0) {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, || move_bytes(&pipe.from, &*to, pipe.filled)) {
                Ok(moved) => pipe.filled = pipe.filled.saturating_sub(moved),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what was read and is not yet written.
    pub(crate) fn take_waiting(&mut self) -> io::Result<Vec<u8>> {
        let Waiting { mut bytes, written } = std::mem::take(&mut self.waiting);
        bytes.drain(..written);
        if let Some(pipe) = self.pipe.as_mut() {
            let mut buffer = vec![0; PIPE];
            while pipe.filled > 0 {
                let count = read(&pipe.from, &mut buffer)?;
                bytes.extend(buffer.get(..count).unwrap_or_default());
                pipe.filled = pipe.filled.saturating_sub(count.max(1));
            }
        }
        Ok(bytes)
    }

    fn give_pipe_back(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.give_back();
        }
    }

    /// Fills the empty pipe. Gives it back while there is nothing to read.
    fn poll_fill(&mut self, cx: &mut Context<'_>, from: &mut TcpStream) -> Poll<io::Result<()>> {
        let Poll::Ready(is_ready) = from.poll_read_ready(cx) else {
            self.give_pipe_back();
            return Poll::Pending;
        };
        is_ready?;
        let Some(pipe) = self.pipe.take().or_else(Pipe::obtain) else {
            // Without descriptors the bytes are copied.
            self.full_buffers = 0;
            return Poll::Ready(Ok(()));
        };
        let pipe = self.pipe.insert(pipe);
        match from.try_io(Interest::READABLE, || move_bytes(&*from, &pipe.to, PIPE)) {
            Ok(0) => {
                self.has_ended = true;
                self.give_pipe_back();
            }
            Ok(moved) => {
                pipe.filled = moved;
                self.read += moved as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.give_pipe_back();
    }
}

impl Pipe {
    /// A pipe of the thread, or a new one; `None` if there are no descriptors.
    fn obtain() -> Option<Self> {
        PIPES.with_borrow_mut(Vec::pop).or_else(|| {
            let (from, to) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
            let _ = fcntl(&to, FcntlArg::F_SETPIPE_SZ(i32::try_from(PIPE).unwrap_or(i32::MAX)));
            Some(Self { from, to, filled: 0 })
        })
    }

    /// Keeps an empty pipe for the next transfer.
    fn give_back(self) {
        if self.filled == 0 {
            // The thread may be ending.
            let _ = PIPES.try_with(|pipes| {
                let mut pipes = pipes.borrow_mut();
                if pipes.len() < SPARE_PIPES {
                    pipes.push(self);
                }
            });
        }
    }
}

fn move_bytes(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
    Ok(splice(from, None, to, None, most, flags)?)
}
