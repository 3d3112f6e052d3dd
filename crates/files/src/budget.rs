//! A limit on what one application may take in all: a short manifest can name one long text any number of times.

use std::cell::Cell;

/// The bytes that are left of a limit. Once they do not suffice, nothing is left.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    left: Cell<Option<usize>>,
}

/// More bytes are needed than were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Whether it is the first time, so that it is reported once.
    pub is_first: bool,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self { limit, left: Cell::new(Some(limit)) }
    }

    /// The limit in MiB, for messages.
    pub fn mebibytes(&self) -> usize {
        self.limit >> 20
    }

    pub fn left(&self) -> usize {
        self.left.get().unwrap_or_default()
    }

    /// Takes bytes, before memory is reserved for them.
    pub fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        let Some(before) = self.left.get() else { return Err(Exceeded { is_first: false }) };
        self.left.set(before.checked_sub(bytes));
        self.left.get().map(|_| ()).ok_or(Exceeded { is_first: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_an_exceeded_budget() {
        let budget = Budget::new(3);
        assert_eq!((budget.take(2), budget.left()), (Ok(()), 1));
        assert_eq!(budget.take(2), Err(Exceeded { is_first: true }));
        assert_eq!((budget.take(0), budget.left()), (Err(Exceeded { is_first: false }), 0));
    }
}
