//! Tickets: the client of a request waits for the status that answers this very request.
//!
//! Requests are numbered in the order in which they arrive. A fetch remembers the newest number when it begins, and a
//! round the newest number that its application has accepted. A published status carries both.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use driftless_clock::Clock;
use driftless_model::ApplicationStatus;

/// The ticket of an accepted request. Written `sync-17` or `round-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) number: u64,
    needs: Need,
}

/// The work between a request and the status that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Round,
    FetchAndRound,
}

/// The text is no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ticket is the value of `ticket` in the answer to a request")]
pub struct InvalidTicket;

impl Ticket {
    /// Whether a status was published after the agent has done what the request asks for: observed the live state and,
    /// for a sync, fetched before.
    pub fn is_answered_by(&self, status: &ApplicationStatus) -> bool {
        let answered = status.answered;
        match self.needs {
            Need::Round => answered.by_round >= self.number,
            Need::FetchAndRound => answered.by_round.min(answered.by_fetch) >= self.number,
        }
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = match self.needs {
            Need::Round => "round",
            Need::FetchAndRound => "sync",
        };
        write!(f, "{needs}-{}", self.number)
    }
}

impl FromStr for Ticket {
    type Err = InvalidTicket;

    fn from_str(text: &str) -> Result<Self, InvalidTicket> {
        let (needs, number) = text.split_once('-').ok_or(InvalidTicket)?;
        let needs = match needs {
            "round" => Need::Round,
            "sync" => Need::FetchAndRound,
            _ => return Err(InvalidTicket),
        };
        Ok(Self { number: number.parse().map_err(|_| InvalidTicket)?, needs })
    }
}

/// Numbers the requests of one agent. Clones share the count.
///
/// It begins at the time of the start, in milliseconds, so that an agent that was restarted answers the tickets of the
/// one before: its first fetch and its first round are newer than they are.
#[derive(Clone, Debug)]
pub(crate) struct Tickets(Arc<AtomicU64>);

impl Tickets {
    pub(crate) fn starting_now() -> Self {
        Self(Arc::new(AtomicU64::new(Clock::System.now().0)))
    }

    /// The ticket of a new request.
    pub(crate) fn next(&self, needs: Need) -> Ticket {
        Ticket { number: self.0.fetch_add(1, Ordering::SeqCst).saturating_add(1), needs }
    }

    /// The number of the newest request.
    pub(crate) fn newest(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Answered;

    #[test]
    fn tickets_are_answered_by_later_rounds_and_fetches() {
        let tickets = Tickets::starting_now();
        let started = tickets.newest();
        let (sync, suspend) = (tickets.next(Need::FetchAndRound), tickets.next(Need::Round));
        assert_eq!((sync.number, suspend.number, tickets.newest()), (started + 1, started + 2, started + 2));
        let answers = |ticket: Ticket, by_round, by_fetch| {
            let answered = Answered { by_round: started + by_round, by_fetch: started + by_fetch };
            ticket.is_answered_by(&ApplicationStatus { answered, ..ApplicationStatus::default() })
        };
        assert!(!answers(sync, 0, 2) && !answers(sync, 2, 0) && answers(sync, 1, 1));
        assert!(!answers(suspend, 1, 2) && answers(suspend, 2, 0));
    }

    #[test]
    fn tickets_are_read_as_they_are_written() {
        for text in ["sync-17", "round-0"] {
            assert_eq!(text.parse::<Ticket>().unwrap().to_string(), text);
        }
        for wrong in ["", "sync", "sync-", "fetch-1", "round--1", "round-99999999999999999999"] {
            assert_eq!(wrong.parse::<Ticket>(), Err(InvalidTicket), "{wrong}");
        }
    }
}
