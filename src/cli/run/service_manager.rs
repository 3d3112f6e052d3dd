//! Tells the service manager, such as systemd, about the state of the agent, and answers its watchdog.
//!
//! The protocol is that of `sd_notify(3)`: datagrams of lines `NAME=VALUE` to the socket that `NOTIFY_SOCKET` names. A name
//! that begins with `@` is in the abstract namespace. Without the variable nothing is sent.

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};

use crate::cli::context::Environment;
use driftless_agent::Handle;

/// The longest text that is sent, in characters.
const LONGEST_STATUS: usize = 200;

/// The connection to the service manager.
pub(super) struct ServiceManager {
    connection: Option<(UnixDatagram, SocketAddr)>,
    /// Time that the service manager waits for a sign of life.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that the environment names.
    pub(super) fn from_environment(environment: &Environment) -> Self {
        let connection = environment("NOTIFY_SOCKET").filter(|name| !name.is_empty()).and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&name),
            };
            let opened = address.and_then(|address| Ok((UnixDatagram::unbound()?, address)));
            opened.inspect_err(|error| tracing::warn!(name, %error, "NOTIFY_SOCKET cannot be used")).ok()
        });
        Self { connection, watchdog: watchdog(environment, std::process::id()) }
    }

    /// The agent has started. It may still wait for the engine or for Git.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// The agent ends in order to start again with another configuration.
    pub(super) fn reloading(&self) {
        // systemd ignores the time unless the unit has `Type=notify-reload`.
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        let micros = now.map(|now| Duration::from(now).as_micros()).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading the configuration"));
    }

    /// The agent ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// One line for `systemctl status`.
    pub(super) fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", line(status)));
    }

    /// Sends signs of life, as long as the agent answers a request. Returns at once if nobody asked for them.
    pub(super) async fn watchdog(&self, handle: Handle) {
        let Some(limit) = self.watchdog else { return std::future::pending().await };
        let interval = limit / 3;
        loop {
            if timeout(interval, handle.is_alive()).await == Ok(true) {
                self.send("WATCHDOG=1");
            } else {
                tracing::error!("the agent does not answer its own request");
            }
            sleep(interval).await;
        }
    }

    fn send(&self, text: &str) {
        let Some((socket, address)) = &self.connection else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address) {
            tracing::warn!(%error, "could not notify the service manager");
        }
    }
}

/// The time of `WATCHDOG_USEC`, if it is meant for this process.
fn watchdog(environment: &Environment, process: u32) -> Option<Duration> {
    let is_other = environment("WATCHDOG_PID").is_some_and(|id| id.parse() != Ok(process));
    let micros: u64 = environment("WATCHDOG_USEC").filter(|_| !is_other)?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// The first line of a text, shortened.
fn line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(LONGEST_STATUS).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Arc::new(move |name| variables.get(name).cloned())
    }

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn states_are_sent_to_the_socket_of_the_service_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("driftless-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, variable) in [
            (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
            (UnixDatagram::bind_addr(&by_name).unwrap(), format!("@{name}")),
        ] {
            let manager = ServiceManager::from_environment(&environment(&[("NOTIFY_SOCKET", &variable)]));
            manager.ready("following 2 repositories\nREADY=0");
            assert_eq!(received(&socket), "READY=1\nSTATUS=following 2 repositories");
            manager.reloading();
            let text = received(&socket);
            let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().lines().next().unwrap();
            assert!(micros.parse::<u64>().unwrap() > 0, "{text}");
            manager.stopping();
            assert_eq!(received(&socket), "STOPPING=1");
        }
    }

    #[test]
    fn watchdog_of_another_process_is_not_answered() {
        let of = |variables: &[(&str, &str)]| watchdog(&environment(variables), 7);
        assert_eq!(of(&[("WATCHDOG_USEC", "3000000")]), Some(Duration::from_secs(3)));
        assert_eq!(of(&[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "7")]), Some(Duration::from_secs(3)));
        assert_eq!(of(&[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "8")]), None);
        assert_eq!(of(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(of(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_answered_while_the_agent_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "60000000")];
        let manager = ServiceManager::from_environment(&environment(&variables));
        let (handle, mut inbox) = Handle::new();
        let answering = async {
            for _ in 0..3 {
                let request = inbox.requests.recv().await.unwrap();
                let gone = driftless_agent::RequestError::NoSuchApplication(request.app);
                request.reply.send(Err(gone)).unwrap();
            }
            // From now on nothing answers.
            sleep(Duration::from_hours(1)).await;
        };
        tokio::select! {
            () = manager.watchdog(handle) => unreachable!("it goes on for ever"),
            () = answering => {}
        }
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 64];
        let messages: Vec<String> = std::iter::from_fn(|| {
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        })
        .collect();
        assert_eq!(messages, ["WATCHDOG=1"; 3]);
    }
}
