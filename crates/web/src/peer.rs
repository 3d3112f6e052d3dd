//! The client of a connection: its address, and on this machine the user whose program it is.
//!
//! For a connection over the Unix socket the kernel keeps the user who has opened it.
//!
//! Without a token the agent is reachable for every program of the machine, and for containers with the host's network.
//! For a connection over loopback the kernel lists the socket of the client with its user, so requests that act need no
//! token for root and the agent's own user, and are refused for all others.

use std::{
    fs::File,
    io::Read,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
};

use crate::socket_user::socket_user;

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Tcp(TcpPeer),
    /// The user who has opened a connection over the Unix socket.
    Socket(LocalUser),
}

/// Both ends of a connection. Behind a proxy, the client is the proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpPeer {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    /// Whether the agent itself speaks TLS with it.
    pub(super) is_encrypted: bool,
}

/// The state of an open connection in the tables.
const ESTABLISHED: &str = "01";

/// In bytes: about 100,000 sockets.
const LONGEST_TABLE: u64 = 16 << 20;

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalUser {
    pub(super) id: u32,
}

impl LocalUser {
    /// Whether this is root or the agent's own user.
    pub(super) fn is_trusted(self) -> bool {
        let own = std::fs::metadata("/proc/self").map(|process| process.uid());
        self.id == 0 || own.is_ok_and(|own| own == self.id)
    }

    /// The name in `/etc/passwd`, or the number. Reads a file.
    pub(super) fn name(self) -> String {
        let mut table = String::new();
        let read =
            File::open("/etc/passwd").and_then(|file| file.take(LONGEST_TABLE).read_to_string(&mut table));
        let name = read.ok().and_then(|_| name_in(&table, self.id));
        name.unwrap_or_else(|| self.id.to_string())
    }
}

/// The name of a user in a table as `/etc/passwd`.
fn name_in(table: &str, id: u32) -> Option<String> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(id)).then(|| name.to_owned())
    })
}

impl Peer {
    /// The connection, if it is one over TCP.
    pub(super) fn tcp(self) -> Option<TcpPeer> {
        match self {
            Self::Tcp(peer) => Some(peer),
            Self::Socket(_) => None,
        }
    }
}

impl TcpPeer {
    /// The user whose program the client is, if it is one of this machine and has not closed its connection.
    pub(super) fn user(&self) -> Option<LocalUser> {
        match socket_user(self.client, self.server) {
            Ok(id) => id.map(|id| LocalUser { id }),
            // A kernel without `sock_diag`, or a sandbox that forbids it.
            Err(_) => self.user_in_tables(),
        }
    }

    fn user_in_tables(&self) -> Option<LocalUser> {
        let id = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().find_map(|path| {
            let mut table = String::new();
            File::open(path).ok()?.take(LONGEST_TABLE).read_to_string(&mut table).ok()?;
            user_in(&table, self.client, self.server)
        });
        id.map(|id| LocalUser { id })
    }
}

/// The user of the socket from `client` to `server`, in a table as `/proc/net/tcp` and `/proc/net/tcp6`.
fn user_in(table: &str, client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let wanted = (canonical(client), canonical(server));
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let ends = (address(fields.next()?)?, address(fields.next()?)?);
        // A socket that its process has closed has no user any more: the table says 0, which is root.
        let is_open = fields.next()? == ESTABLISHED;
        // Queues, timer, retransmissions; then the user.
        (ends == wanted && is_open).then(|| fields.nth(3)?.parse().ok())?
    })
}

/// IPv4 addresses in their own form also where a socket of IPv6 has them.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// `0100007F:1F90`: each 32 bits of the address in the byte order of the machine, then the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |index: usize| {
        let digits = address.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
        }
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[cfg(target_endian = "little")]
    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:2124 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
        \x20  1: 0100007F:C001 0100007F:2124 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1\n\
        \x20  2: 0100007F:2124 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1\n\
        \x20  3: 0000000000000000FFFF00000100007F:C002 0000000000000000FFFF00000100007F:2124 01 0:0 00:0 0 65534 0 4\n\
        \x20  4: 0100007F:C003 0100007F:2124 05 0:0 03:0 0 0 0 0\n\
        garbage\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn user_is_that_of_the_client_socket() {
        let server = "127.0.0.1:8484".parse().unwrap();
        let user = |client: &str| user_in(TABLE, client.parse().unwrap(), server);
        assert_eq!(user("127.0.0.1:49153"), Some(1000));
        assert_eq!(user("127.0.0.1:49154"), Some(65534), "a socket of IPv6");
        assert_eq!(user("127.0.0.1:49155"), None, "closed by its process, and not root's");
        assert_eq!(user("127.0.0.1:49156"), None);
        assert_eq!(user("127.0.0.2:49153"), None);
    }

    #[test]
    fn names_of_users_are_those_of_the_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\ngarbage\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_in(table, 1000).as_deref(), Some("ada"));
        assert_eq!(name_in(table, 7), None);
    }

    #[test]
    fn own_connections_are_trusted() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server_side, from) = listener.accept().unwrap();
            let peer =
                TcpPeer { client: from, server: server_side.local_addr().unwrap(), is_encrypted: false };
            let user = peer.user().unwrap();
            assert!(user.is_trusted() && !user.name().is_empty());
            assert_eq!(peer.user_in_tables(), Some(user));
            assert_eq!(socket_user(peer.client, peer.server).ok(), Some(Some(user.id)), "without the tables");
            let elsewhere = SocketAddr::new(from.ip(), from.port().wrapping_add(1));
            assert_eq!(TcpPeer { client: elsewhere, ..peer }.user(), None);
            drop(client);
            // The kernel has done it when the server reads the end.
            assert_eq!((&server_side).read(&mut [0]).unwrap(), 0);
            assert_eq!(peer.user(), None, "the kernel would say that the socket is root's");
            assert_eq!(peer.user_in_tables(), None);
        }
    }
}
