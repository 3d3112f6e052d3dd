//! Asks the kernel for the user of one TCP socket (`sock_diag(7)`).
//!
//! The tables in `/proc/net` name the users too. But the kernel walks all its hash buckets to write one, which takes 10 to
//! 20 ms of processor time for each request on a machine with much memory; this question takes 0.1 ms.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
    netlink::{SOCK_DIAG, SocketAddrNetlink},
    recv, sendto, socket_with,
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP_ESTABLISHED: u8 = 1;

/// The user of the open socket from `from` to `to`. `None`: there is no such socket, or its process has closed it. Fails if
/// the kernel cannot be asked.
pub(super) fn socket_user(from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
    let kernel = SocketAddrNetlink::new(0, 0);
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    sendto(&socket, &question(from, to), SendFlags::empty(), &kernel)?;
    let mut buffer = [0; 512];
    // The kernel has answered when the question is sent.
    let (_, length) = recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
    answer(&buffer[..length.min(buffer.len())], from, to)
}

/// A `nlmsghdr` and an `inet_diag_req_v2`.
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    const LENGTH: u32 = 72;
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Number and sender.
    bytes.extend([0; 8]);
    let is_v4 = from.ip().to_canonical().is_ipv4();
    bytes.extend([if is_v4 { AF_INET } else { AF_INET6 }, IPPROTO_TCP, 0, 0]);
    // All states.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    for end in [from, to] {
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => {
                bytes.extend(ip.octets());
                bytes.extend([0; 12]);
            }
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
    }
    // Any interface, any cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

/// Reads a `nlmsghdr` and an `inet_diag_msg`, or a `nlmsgerr`.
fn answer(bytes: &[u8], from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(short)
    };
    let port = |at: usize| bytes.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let kind = bytes.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]])).ok_or_else(short)?;
    if kind != SOCK_DIAG_BY_FAMILY {
        let code = i32::from_ne_bytes(word(16)?.to_ne_bytes());
        let error = io::Error::from_raw_os_error(code.saturating_neg());
        return if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
    }
    let (family, state) = (bytes[16..].first(), bytes[16..].get(1));
    let address = |at: usize| {
        let octets = <[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?;
        Some(match family? {
            &AF_INET => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
            _ => Ipv6Addr::from(octets).to_canonical(),
        })
    };
    // Without such a socket the kernel answers with one that listens on its port.
    let found = (port(20).zip(address(24)), port(22).zip(address(40)));
    let end = |end: SocketAddr| Some((end.port(), end.ip().to_canonical()));
    let is_meant = found == (end(from), end(to));
    let (user, inode) = (word(80)?, word(84)?);
    // A socket that its process has closed has no user any more: the kernel says 0, which is root.
    let is_open = state == Some(&TCP_ESTABLISHED) && inode != 0;
    Ok((is_meant && is_open).then_some(user))
}
