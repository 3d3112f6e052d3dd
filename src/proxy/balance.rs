//! The endpoint for a client: one after the other, or the one that the client had before.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So many clients are remembered; beyond that, those go first who have not been here for longest.
const MOST: usize = 65_536;

/// The turns of one port.
#[derive(Debug)]
pub struct Balance {
    affinity: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    turn: usize,
    known: BTreeMap<IpAddr, (SocketAddr, Instant)>,
}

impl Balance {
    pub fn new(affinity: Option<Duration>) -> Self {
        Self { affinity, state: Mutex::default() }
    }

    /// The endpoints in the order in which they are to be tried for a client. The first is remembered as where it was sent,
    /// since it may come again before it is connected.
    pub fn order(&self, client: IpAddr, endpoints: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut state = self.state();
        let known = self.known(&state, client).and_then(|it| endpoints.iter().position(|other| *other == it));
        let first = known.unwrap_or_else(|| {
            state.turn = state.turn.wrapping_add(1);
            state.turn.checked_rem(endpoints.len()).unwrap_or_default()
        });
        let (after, before) = endpoints.split_at_checked(first).map_or((endpoints, &[][..]), |(a, b)| (b, a));
        let order = [after, before].concat();
        if let (None, Some(time), Some(endpoint)) = (known, self.affinity, order.first()) {
            state.remember(client, *endpoint, time);
        }
        order
    }

    /// Remembers where a client was sent.
    pub fn sent(&self, client: IpAddr, endpoint: SocketAddr) {
        if let Some(time) = self.affinity {
            self.state().remember(client, endpoint, time);
        }
    }

    fn known(&self, state: &State, client: IpAddr) -> Option<SocketAddr> {
        let time = self.affinity?;
        let (endpoint, at) = state.known.get(&client)?;
        (at.elapsed() < time).then_some(*endpoint)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment, so a panic leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, client: IpAddr, endpoint: SocketAddr, time: Duration) {
        let now = Instant::now();
        let is_new = !self.known.contains_key(&client);
        if is_new && self.known.len() >= MOST {
            self.known.retain(|_, (_, at)| now.saturating_duration_since(*at) < time);
        }
        if is_new && self.known.len() >= MOST {
            // Half of them at once, so that this is rare.
            let mut times: Vec<Instant> = self.known.values().map(|(_, at)| *at).collect();
            let (_, median, _) = times.select_nth_unstable(MOST / 2);
            let median = *median;
            self.known.retain(|_, (_, at)| *at > median);
        }
        self.known.insert(client, (endpoint, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|it| SocketAddr::from(([10, 0, 0, it], 80))).collect()
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[tokio::test(start_paused = true)]
    async fn clients_get_endpoints_in_turn_and_keep_theirs() {
        let all = endpoints(3);
        let plain = Balance::new(None);
        let firsts: Vec<_> = (0..6).map(|_| plain.order(client(1), &all)[0]).collect();
        assert_eq!(firsts[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert_eq!(firsts[..3], firsts[3..]);
        assert_eq!(plain.order(client(1), &all).len(), 3, "all others come after");
        assert_eq!(plain.order(client(1), &[]), []);

        let sticky = Balance::new(Some(Duration::from_secs(10)));
        sticky.sent(client(1), all[2]);
        for _ in 0..5 {
            assert_eq!(sticky.order(client(1), &all), [all[2], all[0], all[1]]);
        }
        assert_eq!(sticky.order(client(1), &all[..2]).len(), 2, "one that is gone is no choice");
        tokio::time::advance(Duration::from_secs(9)).await;
        sticky.sent(client(1), all[2]);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(sticky.order(client(1), &all)[0], all[2], "each connection begins the time anew");
        tokio::time::advance(Duration::from_secs(2)).await;
        let turn = sticky.state().turn;
        let first = sticky.order(client(1), &all)[0];
        assert_eq!(sticky.state().turn, turn + 1, "then it is like any other");
        assert_eq!(
            sticky.order(client(1), &all)[0],
            first,
            "and stays there, though it is not connected yet"
        );
        let firsts: std::collections::BTreeSet<_> =
            (2..5).map(|it| sticky.order(client(it), &all)[0]).collect();
        assert_eq!(firsts.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_remembered_and_no_more() {
        let sticky = Balance::new(Some(Duration::from_secs(1000)));
        let all = endpoints(1);
        for number in 0..u32::try_from(MOST).unwrap() + 10 {
            if number % 1024 == 0 {
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            sticky.sent(client(number), all[0]);
            assert!(sticky.state().known.len() <= MOST);
        }
        assert!(sticky.state().known.contains_key(&client(u32::try_from(MOST).unwrap())));
        assert!(!sticky.state().known.contains_key(&client(0)));
        let mut number = 1 << 20;
        while sticky.state().known.len() < MOST {
            sticky.sent(client(number), all[0]);
            number += 1;
        }
        sticky.sent(client(number - 1), all[0]);
        assert_eq!(sticky.state().known.len(), MOST, "who is known needs no room");
    }
}
