//! Ports that processes of the host hold, as the kernel lists them.
//!
//! The engine reports only the ports of containers. A container whose port a process holds cannot start, so the agent looks
//! before it stops the container that the new one replaces. It can look only where it shares the network of the host with
//! the engine: as a program of that host, or in a container with `network_mode: host`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use driftless_model::{Claims, HeldPort, NetworkMode, Observed, Port, Protocol};
use tokio::{net::UnixStream, sync::OnceCell};

use crate::{connection::Connection, container_list::ContainerList, inventory::Inventory};

/// In bytes: about 100,000 sockets.
const LONGEST_TABLE: u64 = 16 << 20;

/// The tables of the kernel, with the state of a socket that holds its port: listening, or bound for UDP.
const TABLES: [(&str, Protocol, &str); 4] = [
    ("/proc/self/net/tcp", Protocol::Tcp, "0A"),
    ("/proc/self/net/tcp6", Protocol::Tcp, "0A"),
    ("/proc/self/net/udp", Protocol::Udp, "07"),
    ("/proc/self/net/udp6", Protocol::Udp, "07"),
];

/// The table of the kernel with the sockets that have paths, and the flags of one that accepts connections.
const UNIX_SOCKETS: &str = "/proc/self/net/unix";
const ACCEPTS: &str = "00010000";

/// Finds the ports that processes hold.
#[derive(Debug, Default)]
pub(crate) struct HostPorts {
    /// Whether the agent and the engine share the network of the host.
    is_shared: OnceCell<bool>,
}

impl HostPorts {
    /// The wanted ports that processes outside of containers hold. Empty where the agent cannot know.
    pub(crate) async fn held(
        &self,
        connection: &Connection,
        inventory: &Inventory,
        wanted: &BTreeSet<(u16, Protocol)>,
        observed: &Observed,
        list: &ContainerList,
    ) -> BTreeSet<HeldPort> {
        // A container of the application in the host's network holds its ports as a process does, and may have to make way.
        let has_host_network =
            observed.containers().any(|found| found.config.network_mode == NetworkMode::Host);
        let is_published = |port: &u16, protocol: &Protocol| {
            let mut listed = list.containers.values().flat_map(|listed| &listed.ports);
            listed.any(|(held, of, _)| (held, of) == (port, protocol))
        };
        let open: BTreeSet<_> =
            wanted.iter().filter(|(port, protocol)| !is_published(port, protocol)).copied().collect();
        if open.is_empty() || has_host_network {
            return BTreeSet::new();
        }
        let is_shared = self.is_shared.get_or_try_init(|| is_shared(connection, inventory)).await;
        if !matches!(is_shared, Ok(true)) {
            return BTreeSet::new();
        }
        sockets().into_iter().filter(|held| open.contains(&(held.port, held.protocol))).collect()
    }
}

/// The ports of the host that the containers of a stack publish, and that are no ranges.
pub(crate) fn wanted<'a>(ports: impl Iterator<Item = &'a Port>) -> BTreeSet<(u16, Protocol)> {
    let single = |port: &Port| port.host.filter(|host| host.first == host.last);
    ports.filter_map(|port| Some((single(port)?.first, port.protocol))).collect()
}

/// Whether the process behind the engine's socket is in the network namespace of the agent. Fails if the engine does not
/// answer.
async fn is_shared(connection: &Connection, inventory: &Inventory) -> io::Result<bool> {
    let Some(socket) = connection.transport().socket() else { return Ok(false) };
    let credentials = UnixStream::connect(socket).await?.peer_cred()?;
    if let Some(engine) = credentials.pid().filter(|id| *id > 0) {
        let namespace = |process: &str| fs::read_link(Path::new("/proc").join(process).join("ns/net")).ok();
        if let (Some(own), Some(engine)) = (namespace("self"), namespace(&engine.to_string())) {
            return Ok(own == engine);
        }
        // Without the right to trace processes, as in the packaged unit, that of the engine cannot be seen.
        return Ok(listens_here(socket));
    }
    // From a container with processes of its own, that of the engine cannot be seen.
    let Some(own) = connection.own_container() else { return Ok(false) };
    inventory.is_in_host_network(&own).await.map_err(io::Error::other)
}

/// Whether somebody listens on this socket in the network namespace of the agent.
fn listens_here(socket: &Path) -> bool {
    let mut table = String::new();
    let read = File::open(UNIX_SOCKETS).and_then(|file| file.take(LONGEST_TABLE).read_to_string(&mut table));
    let Ok(socket) = socket.canonicalize() else { return false };
    let is_it = |path: &str| Path::new(path).canonicalize().is_ok_and(|path| path == socket);
    read.is_ok() && listening_paths(&table).any(is_it)
}

/// The paths with a listening socket in `/proc/net/unix`.
fn listening_paths(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let is_listening = fields.nth(3)? == ACCEPTS;
        fields.nth(3).filter(|path| is_listening && path.starts_with('/'))
    })
}

/// All sockets that hold a port.
fn sockets() -> Vec<HeldPort> {
    let mut held = Vec::new();
    for (path, protocol, state) in TABLES {
        let mut table = String::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST_TABLE).read_to_string(&mut table));
        if read.is_ok() {
            held.extend(holders(&table, protocol, state));
        }
    }
    held
}

/// The sockets in this state of a table such as `/proc/net/tcp`.
fn holders(table: &str, protocol: Protocol, state: &str) -> impl Iterator<Item = HeldPort> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        // A socket on `::` may have the IPv4 addresses too, and the table does not say it.
        let ip = Some(ip(address)?).filter(|ip| *ip != IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let is_holder = fields.nth(1)? == state;
        is_holder.then(|| HeldPort { port, protocol, ip, by: Claims::HOST_PROCESS.to_owned() })
    })
}

/// `0100007F`: each 32 bits of the address in the byte order of the machine.
fn ip(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
        part.copy_from_slice(&word(index)?);
    }
    Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_listening_sockets_are_read() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path
000000004173a427: 00000002 00000000 00010000 0001 01 25829726 /run/docker.sock
000000005433e744: 00000002 00000000 00000000 0001 03 30926366 /run/other.sock
00000000dbbc7488: 00000002 00000000 00010000 0001 01 25829047 @abstract
0: 1
";
        assert_eq!(listening_paths(table).collect::<Vec<_>>(), ["/run/docker.sock"]);
        let folder = std::env::temp_dir().join(format!("driftless-listens-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (real, link) = (folder.join("real.sock"), folder.join("link.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(listens_here(&link) && !listens_here(&folder.join("none.sock")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn listening_sockets_are_read_from_the_tables_of_the_kernel() {
        let table =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0100007F:9999 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
   x: 01:y
";
        let held: Vec<_> = holders(table, Protocol::Tcp, "0A")
            .map(|held| (held.port, held.ip.map(|ip| ip.to_string())))
            .collect();
        assert_eq!(held, [(80, Some("0.0.0.0".to_owned())), (8080, Some("127.0.0.1".to_owned()))]);
        let table = "head\n 0: 00000000000000000000000000000000:0050 0:0000 0A 0:0 0:0 0 0 0 1 1 0\n";
        assert_eq!(holders(table, Protocol::Tcp, "0A").map(|held| held.ip).collect::<Vec<_>>(), [None]);
        assert_eq!(ip("00000000000000000000000001000000").unwrap().to_string(), "::1");
        assert_eq!(ip("0000000000000000FFFF00000100007F").unwrap().to_string(), "127.0.0.1");
    }
}
