//! `driftless pause`: what runs in the container that holds the namespaces of a pod. It does nothing, in as little
//! memory as can be: no arguments, no log, no runtime.

use std::process::ExitCode;

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Waits until it is told to end, by SIGTERM or SIGINT. Where the containers of a pod see each other's processes it is
/// the first of them, and so buries those that nobody else does.
pub fn pause() -> ExitCode {
    let mut awaited = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        awaited.add(signal);
    }
    // Held back, they are not lost: the first process of a container is sent no signal that it neither handles nor
    // holds back.
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
