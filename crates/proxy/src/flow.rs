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
/// The bytes of long pieces in a row after which the rest is a large transfer.
const LARGE: usize = 128 * 1024;
/// A shorter piece ends a large transfer. A network delivers packets of almost 64 KiB, and a proxy that keeps up with them
/// never fills its buffer. Measured with pieces of 64 KiB less some bytes: 0.84 × the processor time of copying them. With
/// pieces of 32 KiB, a pipe saves nothing.
const LONG: usize = 48 * 1024;
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
    /// The bytes that were read in long pieces since the last short one, at most [`LARGE`].
    run: usize,
    has_ended: bool,
    is_shut: bool,
    /// Bytes that were read since this was last taken.
    read: u64,
    /// Whether bytes that waited were written since this was last taken.
    has_flushed: bool,
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

/// Bytes that come next in a direction.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    Read(&'a [u8]),
    /// So many that a pipe has, unseen.
    Moved(u64),
}

/// The decision of the caller about bytes that were read. It is of no account for those that were moved.
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

    /// Whether the reading side has said its last, and all of it is written.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.is_flushed()
    }

    /// Says to the writing side, once, that a direction which is over is over.
    pub(crate) fn poll_shut(&mut self, cx: &mut Context<'_>, to: &mut TcpStream) -> Poll<io::Result<()>> {
        if self.is_over() && !self.is_shut {
            ready!(Pin::new(to).poll_shutdown(cx))?;
            self.is_shut = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the reading side has said its last.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The number of bytes that were read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }

    /// Whether bytes that waited were written since the last call.
    pub(crate) fn take_flushed(&mut self) -> bool {
        std::mem::take(&mut self.has_flushed)
    }

    /// Moves bytes until one of the sides is not ready. `Ready(Ok(None))` when the direction is over, and
    /// `Ready(Ok(Some(bytes)))` when `inspect` has taken bytes. A large transfer, if it is allowed, is moved unseen.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut TcpStream,
        to: &mut TcpStream,
        may_splice: bool,
        mut inspect: impl FnMut(Piece<'_>) -> Decision,
    ) -> Poll<io::Result<Option<Vec<u8>>>> {
        loop {
            ready!(self.poll_flush(cx, to))?;
            if self.has_ended {
                return Poll::Ready(Ok(None));
            }
            if self.run >= LARGE && may_splice {
                let before = self.read;
                ready!(self.poll_fill(cx, from))?;
                if self.read > before {
                    inspect(Piece::Moved(self.read - before));
                }
                continue;
            }
            self.give_pipe_back();
            let taken = SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
                let bytes = buffer.filled();
                self.read += bytes.len() as u64;
                if bytes.is_empty() {
                    self.has_ended = true;
                    return Poll::Ready(Ok(None));
                }
                self.note_piece(bytes.len());
                if let Decision::Take = inspect(Piece::Read(bytes)) {
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
                written => {
                    self.waiting.written += written;
                    self.has_flushed = true;
                }
            }
            if self.waiting.written == self.waiting.bytes.len() {
                self.waiting = Waiting::default();
            }
        }
        while let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.filled > 0) {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, || move_bytes(&pipe.from, &*to, pipe.filled)) {
                Ok(moved) => {
                    pipe.filled = pipe.filled.saturating_sub(moved);
                    self.has_flushed = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Notes the length of what was read, by which a large transfer is known.
    fn note_piece(&mut self, length: usize) {
        self.run = if length < LONG { 0 } else { (self.run + length).min(LARGE) };
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
            self.run = 0;
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
                self.note_piece(moved);
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

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, net::Ipv4Addr};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        select,
    };

    use super::*;

    /// One direction, and the connections on both of its sides.
    struct Way {
        flow: Flow,
        source: TcpStream,
        from: TcpStream,
        to: TcpStream,
        sink: TcpStream,
    }

    impl Way {
        async fn new() -> Self {
            let ((source, from), (to, sink)) = (pair().await, pair().await);
            Self { flow: Flow::default(), source, from, to, sink }
        }

        /// Carries one piece, which arrives before the next is sent, as by a proxy that keeps up.
        async fn carry(&mut self, length: usize) {
            let Self { flow, source, from, to, sink } = self;
            source.write_all(&vec![7; length]).await.unwrap();
            let mut received = vec![0; length];
            let forward = poll_fn(|cx| flow.poll(cx, from, to, true, |_| Decision::Forward));
            select! {
                ended = forward => panic!("the direction has ended: {ended:?}"),
                read = sink.read_exact(&mut received) => assert_eq!(read.unwrap(), length),
            }
            assert!(received.iter().all(|byte| *byte == 7));
        }

        fn pipes(&self) -> usize {
            PIPES.with_borrow(Vec::len) + usize::from(self.flow.pipe.is_some())
        }
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn pieces_below_a_full_buffer_become_a_large_transfer() {
        let mut way = Way::new().await;
        for _ in 0..100 {
            way.carry(LONG / 2).await;
        }
        assert_eq!(way.pipes(), 0, "short pieces are copied");
        let piece = BUFFER - 1024;
        for _ in 0..20 {
            way.carry(piece).await;
        }
        assert_eq!(way.pipes(), 1, "the rest goes through a pipe");
        way.carry(1).await;
        assert_eq!(way.flow.run, 0, "a short piece ends a large transfer");
    }

    #[tokio::test]
    async fn bytes_that_waited_count_as_written() {
        let Way { mut from, mut to, mut sink, source: _source, .. } = Way::new().await;
        to.writable().await.unwrap();
        let mut flow = Flow::beginning_with(b"waits".to_vec());
        let mut poll = |flow: &mut Flow| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            flow.poll(&mut cx, &mut from, &mut to, false, |_| Decision::Forward).is_pending()
        };
        assert!(poll(&mut flow) && flow.take_flushed() && flow.take_read() == 0);
        assert!(poll(&mut flow) && !flow.take_flushed(), "nothing waits any more");
        sink.read_exact(&mut [0; 5]).await.unwrap();
    }
}
