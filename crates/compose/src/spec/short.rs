//! The short syntaxes: `127.0.0.1:8080:80/udp` for ports, `./conf:/etc/app:ro` for volumes, `/dev/a:/dev/b:rw` for
//! devices, `name=address` for hosts. Strings in, values out.

use std::net::IpAddr;

use driftless_model::{Port, PortRange, Protocol};

/// A volume in the short syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShortVolume {
    /// `None`: a volume without a name.
    pub(crate) source: Option<String>,
    pub(crate) target: String,
    pub(crate) read_only: bool,
    pub(crate) no_copy: bool,
    pub(crate) propagation: Option<String>,
    pub(crate) selinux: Option<String>,
    /// Modes without meaning on Linux, such as `cached`.
    pub(crate) ignored: Vec<String>,
}

/// Reads `[[IP:]HOST:]CONTAINER[/PROTOCOL]`, where both numbers may be ranges. A container range gives one port for
/// each number; a host range for one container port means "any free port of these".
pub(crate) fn ports(text: &str) -> Result<Vec<Port>, String> {
    let (address, protocol) = match text.split_once('/') {
        Some((address, protocol)) => (address, self::protocol(protocol)?),
        None => (text, Protocol::Tcp),
    };
    let (rest, container) = match address.rsplit_once(':') {
        Some((rest, container)) => (Some(rest), container),
        None => (None, address),
    };
    let (ip, host) = match rest.map(|it| it.rsplit_once(':')) {
        Some(Some((ip, host))) => (Some(ip), Some(host)),
        Some(None) => (None, rest),
        None => (None, None),
    };
    if container.is_empty() {
        return Err(format!("`{text}` names no port of the container"));
    }
    let host_ip = match ip {
        Some(ip) if !ip.is_empty() => Some(host_ip(ip)?),
        Some(_) | None => None,
    };
    let container = range(container)?;
    let host = match host {
        Some(host) if !host.is_empty() => Some(range(host)?),
        Some(_) | None => None,
    };
    pair(container, host, host_ip, protocol)
        .ok_or_else(|| format!("`{text}` maps ranges of different lengths"))
}

/// One port for each number of the container's range. `None`: the ranges have different lengths.
pub(crate) fn pair(
    container: PortRange,
    host: Option<PortRange>,
    host_ip: Option<IpAddr>,
    protocol: Protocol,
) -> Option<Vec<Port>> {
    if let Some(host) = host
        && container.len() == 1
    {
        // The engine chooses the port of the host for 0, as without one.
        let host = Some(host).filter(|host| *host != PortRange::one(0));
        return Some(vec![Port { container: container.first, protocol, host_ip, host }]);
    }
    if host.is_some_and(|it| it.len() != container.len()) {
        return None;
    }
    let ports = (container.first..=container.last).map(|number| {
        let offset = number - container.first;
        let host = host.map(|it| PortRange::one(it.first.saturating_add(offset)));
        Port { container: number, protocol, host_ip, host }
    });
    Some(ports.collect())
}

pub(crate) fn protocol(text: &str) -> Result<Protocol, String> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" | "" => Ok(Protocol::Tcp),
        "udp" => Ok(Protocol::Udp),
        "sctp" => Ok(Protocol::Sctp),
        _ => Err(format!("`{text}` is not a protocol; use `tcp`, `udp` or `sctp`")),
    }
}

pub(crate) fn host_ip(text: &str) -> Result<IpAddr, String> {
    let inside = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    inside.parse().map_err(|_| format!("`{text}` is not an IP address"))
}

/// `80` or `3000-3005`.
pub(crate) fn range(text: &str) -> Result<PortRange, String> {
    let number = |it: &str| it.parse::<u16>().map_err(|_| format!("`{text}` is not a port number"));
    let range = match text.split_once('-') {
        Some((first, last)) => PortRange { first: number(first)?, last: number(last)? },
        None => PortRange::one(number(text)?),
    };
    if range.last < range.first {
        return Err(format!("the range `{text}` ends before it starts"));
    }
    Ok(range)
}

/// Reads `[SOURCE:]TARGET[:MODE,…]`.
pub(crate) fn volume(text: &str) -> Result<ShortVolume, String> {
    // The reference parser takes one or two letters for a path.
    if matches!(text.len(), 1 | 2) {
        return Ok(ShortVolume { target: text.to_owned(), ..ShortVolume::default() });
    }
    let parts = split_path(text);
    if parts.iter().any(|it| it.is_empty()) {
        return Err("the volume has an empty part between colons".to_owned());
    }
    let (source, target, modes) = match parts.as_slice() {
        [target] => (None, *target, ""),
        [source, target] => (Some((*source).to_owned()), *target, ""),
        [source, target, modes] => (Some((*source).to_owned()), *target, *modes),
        _ => return Err("the volume has too many colons".to_owned()),
    };
    let mut volume = ShortVolume { source, target: target.to_owned(), ..ShortVolume::default() };
    for mode in modes.split(',').filter(|it| !it.is_empty()) {
        match mode {
            "ro" => volume.read_only = true,
            "rw" => volume.read_only = false,
            "nocopy" => volume.no_copy = true,
            "z" | "Z" => volume.selinux = Some(mode.to_owned()),
            "rprivate" | "private" | "rshared" | "shared" | "rslave" | "slave" => {
                volume.propagation = Some(mode.to_owned());
            }
            other => volume.ignored.push(other.to_owned()),
        }
    }
    Ok(volume)
}

/// Whether a source is a path on the host. Otherwise it is the name of a volume.
pub(crate) fn is_path(source: &str) -> bool {
    let mut letters = source.chars();
    let first = letters.next();
    matches!(first, Some('.' | '/' | '~'))
        || source.starts_with(r"\\")
        || (first.is_some_and(char::is_alphabetic) && letters.next() == Some(':'))
}

/// Splits at colons, but not after the letter of a Windows drive.
fn split_path(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(':') {
        let part = text.get(start..at).unwrap_or_default();
        let is_drive = part.len() == 1 && part.starts_with(|it: char| it.is_ascii_alphabetic());
        if !is_drive {
            parts.push(part);
            start = at + 1;
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// Reads `HOST[:CONTAINER[:PERMISSIONS]]` into its three parts.
pub(crate) fn device(text: &str) -> Result<(String, String, String), String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, permissions) = match parts.as_slice() {
        [source] => (*source, *source, "rwm"),
        [source, target] if is_permissions(target) => (*source, *source, *target),
        [source, target] => (*source, *target, "rwm"),
        [source, target, permissions] if is_permissions(permissions) => (*source, *target, *permissions),
        _ => return Err(format!("`{text}` is not a device; write `HOST:CONTAINER:rwm`")),
    };
    if source.is_empty() || target.is_empty() {
        return Err(format!("`{text}` is not a device; write `HOST:CONTAINER:rwm`"));
    }
    Ok((source.to_owned(), target.to_owned(), permissions.to_owned()))
}

fn is_permissions(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| matches!(it, 'r' | 'w' | 'm'))
}

/// Reads `name=address` or `name:address`, where a colon may be part of an IPv6 address. Commas separate several addresses.
pub(crate) fn host(text: &str) -> Option<(String, Vec<String>)> {
    let (name, addresses) = text.split_once('=').or_else(|| text.split_once(':'))?;
    let addresses: Vec<String> = addresses.split(',').map(|address| host_address(address.trim())).collect();
    let is_complete = !name.is_empty() && !addresses.iter().any(String::is_empty);
    is_complete.then(|| (name.trim().to_owned(), addresses))
}

/// An address without the brackets that IPv6 may have.
pub(crate) fn host_address(text: &str) -> String {
    text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match ports(text) {
            Err(error) => error,
            Ok(ports) => {
                let one = |port: &Port| {
                    let ip = port.host_ip.map(|ip| format!("{ip} ")).unwrap_or_default();
                    let host = port.host.map(|host| format!("{}-{}", host.first, host.last));
                    let host = host.unwrap_or_default();
                    format!("{ip}{host}>{}/{}", port.container, port.protocol.as_str())
                };
                ports.iter().map(one).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn every_port_syntax_is_read() {
        let cases = [
            ("80", ">80/tcp"),
            ("8080:80", "8080-8080>80/tcp"),
            ("127.0.0.1:8080:80/udp", "127.0.0.1 8080-8080>80/udp"),
            ("127.0.0.1::80", "127.0.0.1 >80/tcp"),
            ("0:80", ">80/tcp"),
            ("127.0.0.1:0:80", "127.0.0.1 >80/tcp"),
            ("[::1]:80:80", "::1 80-80>80/tcp"),
            ("::1:80:80", "::1 80-80>80/tcp"),
            ("3000-3001:4000-4001", "3000-3000>4000/tcp 3001-3001>4001/tcp"),
            ("3000-3001", ">3000/tcp >3001/tcp"),
            ("8000-8010:80/SCTP", "8000-8010>80/sctp"),
            (":80", ">80/tcp"),
            ("3000-3002:4000-4001", "`3000-3002:4000-4001` maps ranges of different lengths"),
            ("70000", "`70000` is not a port number"),
            ("90-80", "the range `90-80` ends before it starts"),
            ("localhost:80:80", "`localhost` is not an IP address"),
            ("80/icmp", "`icmp` is not a protocol; use `tcp`, `udp` or `sctp`"),
            ("80:", "`80:` names no port of the container"),
        ];
        for (text, wanted) in cases {
            assert_eq!(shown(text), wanted, "{text}");
        }
    }

    #[test]
    fn every_volume_syntax_is_read() {
        let read = |text: &str| volume(text).unwrap();
        assert_eq!(read("/data").source, None);
        assert_eq!(read("data:/data").source.as_deref(), Some("data"));
        let full = read("./a:/b:ro,Z,rslave,cached");
        assert_eq!((full.source.as_deref(), full.target.as_str(), full.read_only), (Some("./a"), "/b", true));
        assert_eq!((full.selinux.as_deref(), full.propagation.as_deref()), (Some("Z"), Some("rslave")));
        assert_eq!(full.ignored, ["cached"]);
        assert!(read("data:/data:nocopy").no_copy);
        assert_eq!(read(r"C:\data:/data").source.as_deref(), Some(r"C:\data"));
        for wrong in ["", "aa:", ":/a", "aa:bb:cc:dd"] {
            assert!(volume(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn devices_and_hosts_are_read() {
        assert_eq!(device("/dev/a").unwrap(), ("/dev/a".into(), "/dev/a".into(), "rwm".into()));
        assert_eq!(device("/dev/a:/dev/b:r").unwrap(), ("/dev/a".into(), "/dev/b".into(), "r".into()));
        assert!(device("/dev/a:/dev/b:x").is_err());
        assert_eq!(host("a=[::1]"), Some(("a".into(), vec!["::1".into()])));
        assert_eq!(host("a:::1"), Some(("a".into(), vec!["::1".into()])));
        assert_eq!(host("a=10.0.0.1, [::1]"), Some(("a".into(), vec!["10.0.0.1".into(), "::1".into()])));
        assert_eq!((host("a"), host("a="), host("a=10.0.0.1,")), (None, None, None));
    }
}
