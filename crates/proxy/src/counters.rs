//! The counters of a port, for the metrics of the agent. The next proxy goes on counting.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use driftless_model::{Forward, PortCounters, TargetCounters};

/// Bytes of a connection that are counted together, so that its thread seldom writes to memory that all share.
const AT_ONCE: u64 = 64 * 1024;

/// The counters of one port.
#[derive(Debug)]
pub(crate) struct Counters {
    refused: AtomicU64,
    retried: AtomicU64,
    targets: Vec<TargetCounts>,
}

#[derive(Debug, Default)]
struct TargetCounts {
    open: AtomicU64,
    opened: AtomicU64,
    failed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// A connection to a target, or the session of a UDP client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    counters: Arc<Counters>,
    target: usize,
    bytes_in: u64,
    bytes_out: u64,
}

impl Counters {
    pub(crate) fn of(forward: &Forward) -> Arc<Self> {
        let targets = forward.targets.iter().map(|_| TargetCounts::default()).collect();
        Arc::new(Self { refused: AtomicU64::new(0), retried: AtomicU64::new(0), targets })
    }

    /// A client that got no connection, or a datagram that went nowhere.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A further attempt to connect a client.
    pub(crate) fn retry(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// An endpoint of a target that did not accept a connection.
    pub(crate) fn fail(&self, target: usize) {
        if let Some(target) = self.targets.get(target) {
            target.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A new connection to a target.
    pub(crate) fn open(self: &Arc<Self>, target: usize) -> Counted {
        if let Some(target) = self.targets.get(target) {
            target.opened.fetch_add(1, Ordering::Relaxed);
        }
        self.resume(target)
    }

    /// A connection that the proxy before has counted.
    pub(crate) fn resume(self: &Arc<Self>, target: usize) -> Counted {
        if let Some(target) = self.targets.get(target) {
            target.open.fetch_add(1, Ordering::Relaxed);
        }
        Counted { counters: Arc::clone(self), target, bytes_in: 0, bytes_out: 0 }
    }

    /// Bytes from a client to a target, and back.
    pub(crate) fn add_bytes(&self, target: usize, bytes_in: u64, bytes_out: u64) {
        if let Some(target) = self.targets.get(target) {
            target.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
            target.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        }
    }

    /// The values at this moment.
    pub(crate) fn values(&self, forward: &Forward) -> PortCounters {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let target = |((name, port), target): (&(String, u16), &TargetCounts)| TargetCounters {
            target: format!("{name}:{port}"),
            open: now(&target.open),
            opened: now(&target.opened),
            failed: now(&target.failed),
            bytes_in: now(&target.bytes_in),
            bytes_out: now(&target.bytes_out),
        };
        PortCounters {
            port: format!("{}/{}", forward.port, forward.protocol.as_str()),
            refused: now(&self.refused),
            retried: now(&self.retried),
            targets: forward.targets.iter().zip(&self.targets).map(target).collect(),
        }
    }

    /// Adds the values of the proxy before. Its open connections are counted when they go on.
    pub(crate) fn go_on(&self, forward: &Forward, before: &PortCounters) {
        self.refused.fetch_add(before.refused, Ordering::Relaxed);
        self.retried.fetch_add(before.retried, Ordering::Relaxed);
        for ((name, port), target) in forward.targets.iter().zip(&self.targets) {
            let name = format!("{name}:{port}");
            let Some(before) = before.targets.iter().find(|before| before.target == name) else { continue };
            target.opened.fetch_add(before.opened, Ordering::Relaxed);
            target.failed.fetch_add(before.failed, Ordering::Relaxed);
            target.bytes_in.fetch_add(before.bytes_in, Ordering::Relaxed);
            target.bytes_out.fetch_add(before.bytes_out, Ordering::Relaxed);
        }
    }
}

impl Counted {
    /// Bytes from the client to the target, and back.
    pub(crate) fn add(&mut self, bytes_in: u64, bytes_out: u64) {
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        if self.bytes_in + self.bytes_out >= AT_ONCE {
            self.write();
        }
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub(crate) fn target(&self) -> usize {
        self.target
    }

    fn write(&mut self) {
        let (bytes_in, bytes_out) = (std::mem::take(&mut self.bytes_in), std::mem::take(&mut self.bytes_out));
        self.counters.add_bytes(self.target, bytes_in, bytes_out);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.write();
        if let Some(target) = self.counters.targets.get(self.target) {
            target.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_proxy_goes_on_counting() {
        let forward: Forward = "80/tcp=_web:8080,_api:8081".parse().unwrap();
        let counters = Counters::of(&forward);
        let mut first = counters.open(1);
        first.add(10, AT_ONCE);
        drop(counters.open(0));
        counters.fail(0);
        counters.retry();
        counters.refuse();
        let values = counters.values(&forward);
        let expected = |target: &str, open, failed, bytes_in, bytes_out| TargetCounters {
            target: target.to_owned(),
            open,
            opened: 1,
            failed,
            bytes_in,
            bytes_out,
        };
        let targets = vec![expected("_web:8080", 0, 1, 0, 0), expected("_api:8081", 1, 0, 10, AT_ONCE)];
        let all = PortCounters { port: "80/tcp".to_owned(), refused: 1, retried: 1, targets };
        assert_eq!(values, all);
        first.add(1, 1);
        assert_eq!(counters.values(&forward), all, "few bytes are counted later");

        let next = Counters::of(&"80/tcp=_api:8081".parse().unwrap());
        let forward = "80/tcp=_api:8081".parse().unwrap();
        next.go_on(&forward, &all);
        let resumed = next.resume(0);
        let values = next.values(&forward);
        assert_eq!(values.targets, [expected("_api:8081", 1, 0, 10, AT_ONCE)]);
        drop(resumed);
        assert_eq!(next.values(&forward).targets[0].open, 0);
    }
}
