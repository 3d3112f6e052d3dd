//! `driftless pause`: the process of the container that holds the namespaces of a pod. It only waits, with as little
//! memory as possible: no arguments, no log, no runtime.

use std::process::ExitCode;

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Waits for SIGTERM or SIGINT. If the containers of a pod share their processes, this is process 1, and it reaps
/// orphaned processes.
pub fn pause() -> ExitCode {
    let mut awaited = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        awaited.add(signal);
    }
    // Blocked signals are not lost. The kernel discards signals to process 1 that it neither handles nor blocks.
    if let Err(error) = awaited.thread_block() {
        return failed(error);
    }
    loop {
        match awaited.wait() {
            Ok(Signal::SIGCHLD) => bury(),
            Ok(_) => return ExitCode::SUCCESS,
            Err(Errno::EINTR) => {}
            Err(error) => return failed(error),
        }
    }
}

fn bury() {
    loop {
        match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

fn failed(error: Errno) -> ExitCode {
    eprintln!("could not wait for a signal: {error}");
    ExitCode::FAILURE
}
