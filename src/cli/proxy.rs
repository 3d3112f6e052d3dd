//! `driftless proxy`: the process in the container of a Service that needs more than a name. [`Forwards`] defines its
//! arguments.

use std::{num::NonZero, process::ExitCode, sync::Arc, thread::available_parallelism};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    runtime::Builder,
    select,
    signal::unix::{SignalKind, signal},
};

use driftless_model::{Forwards, error_chain};
use driftless_proxy::{
    self as proxy, Drained, Gate, HANDOVER_SOCKET, Handover, Names, name_server, report_socket,
};

/// The most threads that carry connections.
const MOST_THREADS: usize = 4;

/// Forwards until SIGTERM or SIGINT, which end it at once, unless it is handing over to the next proxy.
pub fn proxy(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let forwards = match Forwards::parse(arguments.iter().map(String::as_str)) {
        Ok(forwards) => forwards,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(2);
        }
    };
    open_many_files();
    // Each thread has a runtime of its own, so no connection wakes another thread.
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "could not start the runtime");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(forward_until_signal(forwards));
    // Connections that are still open end here.
    runtime.shutdown_background();
    code
}

/// `driftless proxy-ready`: gives the proxy of this container its ready endpoints.
pub fn proxy_ready(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let words: Vec<String> = arguments.into_iter().collect();
    match proxy::send_report(&report_socket(), words.iter().map(String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// `driftless proxy-drain`: waits until some endpoints of the proxy of this container have no connections left.
pub fn proxy_drain(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let words: Vec<String> = arguments.into_iter().collect();
    match proxy::send_drain(&report_socket(), words.iter().map(String::as_str)) {
        Ok(Drained::All) => ExitCode::SUCCESS,
        Ok(Drained::SomeLeft) => {
            tracing::info!("connections are left");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// `driftless proxy-counters`: prints the counters of the proxy of this container, as JSON.
pub fn proxy_counters(_: impl IntoIterator<Item = String>) -> ExitCode {
    match proxy::read_counters(&report_socket()) {
        Ok(counters) => {
            println!("{counters}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Raises the limit of open files. A connection needs two, and newer engines start processes with a limit of 1024.
fn open_many_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

async fn forward_until_signal(forwards: Forwards) -> ExitCode {
    let (mut terminate, mut interrupt) =
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "could not wait for a signal");
                return ExitCode::FAILURE;
            }
        };
    let targets: Vec<String> =
        forwards.ports.iter().flat_map(|it| it.targets.iter().map(|(name, _)| name.clone())).collect();
    let names = Names::new(name_server(), targets.iter().map(String::as_str));
    let gate = if forwards.ready_only { Gate::by_report(&report_socket()) } else { Gate::open() };
    let threads = available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let handover = forwards.hand_over.then(|| Handover::at(HANDOVER_SOCKET));
    let stopped = async {
        select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if let Some(handover) = &handover {
            handover.idle().await;
        }
    };
    select! {
        served = proxy::serve_on(threads, forwards, names, Arc::new(gate), handover.as_deref()) => match served {
            Ok(()) => ExitCode::FAILURE,
            Err(error) => {
                tracing::error!("{}", error_chain(&error));
                ExitCode::FAILURE
            }
        },
        () = stopped => ExitCode::SUCCESS,
    }
}
