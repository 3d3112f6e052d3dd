//! The end of connections without data (`idle-timeout`). Bytes that were written may still be on their way to a slow client:
//! the kernel keeps some megabytes, and nothing is read or written until it has delivered a part of them. So before a connection
//! ends, the kernel is asked whether it delivers some.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

/// The type of the question about one socket and of its answer: `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const ABOUT_SOCKET: u16 = 20;
/// `NLM_F_REQUEST` of `linux/netlink.h`.
const REQUEST: u16 = 1;
/// `AF_INET`, `AF_INET6` and `IPPROTO_TCP`, which are one byte each in a question.
const INTERNET: u8 = 2;
const INTERNET_6: u8 = 10;
const TCP: u8 = 6;
/// The length of a question: `struct nlmsghdr` and `struct inet_diag_req_v2`.
const QUESTION: u32 = 72;
/// The position of the undelivered bytes in an answer: `idiag_wqueue` of `struct inet_diag_msg`, after a `struct nlmsghdr`.
const UNDELIVERED: usize = 76;

/// The end of a connection without data.
#[derive(Debug)]
pub(crate) struct Idle {
    time: Duration,
    timer: Pin<Box<Sleep>>,
    /// The bytes that the kernel had yet to deliver when the timer fired last. 0 if bytes were read or written since.
    undelivered: u64,
}

impl Idle {
    pub(crate) fn after(time: Duration) -> Self {
        Self { time, timer: Box::pin(sleep(time)), undelivered: 0 }
    }

    /// Counts the time from now on, because bytes were read or written.
    pub(crate) fn restart(&mut self) {
        self.undelivered = 0;
        self.reset();
    }

    /// The end. It does not come while the kernel delivers bytes to one of the sides.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, sides: [&TcpStream; 2]) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if !self.is_delivering(undelivered(sides)) {
                return Poll::Ready(());
            }
            self.reset();
        }
        Poll::Pending
    }

    /// Whether bytes were delivered since the last look. The first look cannot tell, so bytes that do not move are waited for
    /// once.
    fn is_delivering(&mut self, undelivered: u64) -> bool {
        let before = std::mem::replace(&mut self.undelivered, undelivered);
        if before == 0 { undelivered > 0 } else { undelivered < before }
    }

    #[cfg(test)]
    pub(crate) fn deadline(&self) -> Instant {
        self.timer.deadline()
    }

    fn reset(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.time);
    }
}

/// The bytes that were written to these connections and are not acknowledged by their other sides. It is the value of
/// `SIOCOUTQ`, for which there is no safe function. A side that has ended has none, and nor have all if the kernel does not tell.
fn undelivered(streams: [&TcpStream; 2]) -> u64 {
    let netlink = Some(netlink::SOCK_DIAG);
    match socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, netlink) {
        Ok(kernel) => streams.map(|stream| ask(&kernel, stream).unwrap_or_default().into()).iter().sum(),
        Err(_) => 0,
    }
}

/// Asks the kernel about one connection of this network namespace.
fn ask(kernel: &OwnedFd, stream: &TcpStream) -> io::Result<u32> {
    send(kernel, &question(stream.local_addr()?, stream.peer_addr()?), SendFlags::empty())?;
    let mut answer = [0; 512];
    let (length, _) = recv(kernel, &mut answer, RecvFlags::DONTWAIT)?;
    let answer = answer.get(..length).unwrap_or_default();
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let value = answer.get(UNDELIVERED..UNDELIVERED + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, value) {
        (Some(ABOUT_SOCKET), Some(value)) => Ok(u32::from_ne_bytes(value)),
        _ => Err(io::Error::other("the kernel does not know the connection")),
    }
}

fn question(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let (from, to) = (local.ip().to_canonical(), peer.ip().to_canonical());
    let family = if from.is_ipv4() { INTERNET } else { INTERNET_6 };
    let interface = match peer {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    };
    let mut question = QUESTION.to_ne_bytes().to_vec();
    question.extend(ABOUT_SOCKET.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    // No number, and of no certain process.
    question.extend([0; 8]);
    question.extend([family, TCP, 0, 0]);
    // In any state.
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(local.port().to_be_bytes());
    question.extend(peer.port().to_be_bytes());
    question.extend(octets(from));
    question.extend(octets(to));
    question.extend(interface.to_ne_bytes());
    // Without the kernel's own number of the socket.
    question.extend([u8::MAX; 8]);
    question
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tokio::{io::AsyncReadExt as _, net::TcpListener, task::yield_now};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn only_bytes_that_move_put_the_end_off() {
        let mut idle = Idle::after(Duration::from_secs(1));
        assert!(!idle.is_delivering(0), "there is nothing to deliver");
        let looks = [5, 5, 4, 0, 0, 0].map(|undelivered| idle.is_delivering(undelivered));
        assert_eq!(looks, [true, false, true, true, false, false]);
        assert!(idle.is_delivering(5));
        idle.restart();
        assert!(idle.is_delivering(5), "others may have come meanwhile");
    }

    #[tokio::test]
    async fn kernel_says_which_bytes_are_not_delivered() {
        let mut families = 0;
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            // Not each machine has IPv6.
            let Ok(own) = TcpListener::bind((address, 0)).await else { continue };
            families += 1;
            let ended = TcpStream::connect(own.local_addr().unwrap()).await.unwrap();
            // As the proxy, which listens on the addresses of both families.
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await.unwrap_or(own);
            let port = listener.local_addr().unwrap().port();
            let mut far = TcpStream::connect((address, port)).await.unwrap();
            let near = listener.accept().await.unwrap().0;
            assert_eq!(undelivered([&near, &ended]), 0);
            let (bytes, mut rest) = (vec![7; 64 * 1024], 0);
            near.writable().await.unwrap();
            while let Ok(count) = near.try_write(&bytes) {
                rest += count;
            }
            let before = undelivered([&near, &ended]);
            let is_part = usize::try_from(before).is_ok_and(|before| before > 0 && before <= rest);
            assert!(is_part, "{before} of {rest} bytes");
            rest -= far.read_exact(&mut vec![0; rest / 2]).await.unwrap();
            until_below(before, [&near, &ended]).await;
            far.read_exact(&mut vec![0; rest]).await.unwrap();
            until_below(1, [&ended, &near]).await;
        }
        assert!(families > 0);
    }

    async fn until_below(most: u64, streams: [&TcpStream; 2]) {
        let began = Instant::now();
        while undelivered(streams) >= most {
            assert!(began.elapsed() < PATIENCE, "{most} bytes or more");
            yield_now().await;
        }
    }
}
