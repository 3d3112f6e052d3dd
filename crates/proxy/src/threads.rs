//! The threads that carry connections. The kernel distributes new connections by their addresses, so one thread may get many more of
//! them than the others: it gives some to the thread that has the fewest.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{net::TcpStream, sync::mpsc};

use crate::{limits::Permit, route::Route};

/// A thread that has so many more connections than another one gives the next one to it. A quarter of those of the other one is added:
/// short connections come and go, and each that changes its thread costs some system calls.
const MORE: usize = 2;

/// The threads of one shift.
#[derive(Debug)]
pub(crate) struct Threads(Vec<Thread>);

#[derive(Debug)]
struct Thread {
    /// Its connections.
    carried: AtomicUsize,
    given: mpsc::UnboundedSender<Given>,
}

/// A client that one thread has accepted and another one carries.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) client: std::net::TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) route: Arc<Route>,
    pub(crate) held: (Permit, Seat),
}

/// The thread that carries a client.
#[derive(Debug)]
pub(crate) enum Placed {
    /// The one that has accepted it.
    Here(TcpStream, (Permit, Seat)),
    Elsewhere,
}

/// One connection of a thread, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    threads: Arc<Threads>,
    thread: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(thread) = self.threads.0.get(self.thread) {
            thread.carried.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Threads {
    /// So many threads, and the receiver of each one.
    pub(crate) fn new(count: usize) -> (Arc<Self>, Vec<mpsc::UnboundedReceiver<Given>>) {
        let mut receivers = Vec::new();
        let threads = (0..count).map(|_| {
            let (given, receiver) = mpsc::unbounded_channel();
            receivers.push(receiver);
            Thread { carried: AtomicUsize::new(0), given }
        });
        (Arc::new(Self(threads.collect())), receivers)
    }

    /// Chooses the thread that carries a client which this one has accepted, and gives it to that one.
    pub(crate) fn place(
        self: &Arc<Self>,
        own: usize,
        (client, address): (TcpStream, SocketAddr),
        route: &Arc<Route>,
        permit: Permit,
    ) -> Placed {
        let to = self.choose(own);
        let seat = self.seat(to);
        let Some(thread) = self.0.get(to).filter(|_| to != own) else {
            return Placed::Here(client, (permit, seat));
        };
        // A client that cannot be taken out of this runtime is broken, and ends here.
        let Ok(client) = client.into_std() else { return Placed::Elsewhere };
        let given = Given { client, address, route: Arc::clone(route), held: (permit, seat) };
        match thread.given.send(given) {
            Ok(()) => Placed::Elsewhere,
            // The shift ends.
            Err(mpsc::error::SendError(Given { client, held, .. })) => {
                TcpStream::from_std(client).map_or(Placed::Elsewhere, |client| Placed::Here(client, held))
            }
        }
    }

    /// A connection that a thread had before this shift.
    pub(crate) fn seat(self: &Arc<Self>, thread: usize) -> Seat {
        if let Some(thread) = self.0.get(thread) {
            thread.carried.fetch_add(1, Ordering::Relaxed);
        }
        Seat { threads: Arc::clone(self), thread }
    }

    fn choose(&self, own: usize) -> usize {
        let carried = |thread: &Thread| thread.carried.load(Ordering::Relaxed);
        let least = self.0.iter().map(carried).enumerate().min_by_key(|(_, carried)| *carried);
        match (least, self.0.get(own).map(carried)) {
            (Some((other, least)), Some(carried)) if carried >= least + MORE + least / 4 => other,
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_with_many_more_connections_gives_the_next_one_away() {
        let (threads, _receivers) = Threads::new(3);
        let mut seats: Vec<Seat> = (0..2).map(|_| threads.seat(0)).collect();
        assert_eq!((threads.choose(0), threads.choose(1)), (1, 1));
        seats.push(threads.seat(1));
        assert_eq!(threads.choose(0), 2);
        seats.push(threads.seat(2));
        assert_eq!(threads.choose(0), 0, "one more is nothing");
        seats.extend((0..16).flat_map(|_| [threads.seat(1), threads.seat(2)]));
        seats.extend((0..18).map(|_| threads.seat(0)));
        assert_eq!(threads.choose(0), 0, "20 and 17");
        seats.extend((0..4).map(|_| threads.seat(0)));
        assert_ne!(threads.choose(0), 0, "24 and 17");
        drop(seats);
        assert!(threads.0.iter().all(|thread| thread.carried.load(Ordering::Relaxed) == 0));
    }
}
