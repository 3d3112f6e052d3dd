//! Renders independent applications in parallel.

use std::{num::NonZero, panic::resume_unwind, thread};

/// Calls `one` for every item, with one thread per processor. Returns the results in the order of the items.
pub fn on_all_cores<T: Send, U: Send>(mut all: Vec<T>, one: impl Fn(T) -> U + Sync) -> Vec<U> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let share = all.len().div_ceil(cores).max(1);
    let mut others = Vec::new();
    while all.len() > share {
        others.push(all.split_off(all.len() - share));
    }
    let one = &one;
    thread::scope(|scope| {
        let work = |share: Vec<T>| move || share.into_iter().map(one).collect::<Vec<U>>();
        let threads: Vec<_> = others.into_iter().rev().map(|it| scope.spawn(work(it))).collect();
        let mut done = work(all)();
        for thread in threads {
            // A panic of the thread is a panic of the caller.
            done.extend(thread.join().unwrap_or_else(|it| resume_unwind(it)));
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_stays() {
        for length in [0, 1, 2, 3, 100, 1001] {
            let all: Vec<usize> = (0..length).collect();
            let doubled: Vec<usize> = all.iter().map(|it| it * 2).collect();
            assert_eq!(on_all_cores(all, |it| it * 2), doubled);
        }
    }
}
