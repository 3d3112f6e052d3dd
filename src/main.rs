//! Parses the command line, sets up the log, runs the command, returns its exit code.

use std::{env, process::ExitCode, sync::Arc};

use driftless::cli::{
    Colours, Environment, Invocation, LogExport, LogFormat, LogLine, Logging, Screen, end_processes, pause,
    proxy, proxy_counters, proxy_drain, proxy_ready, replace_agent,
};
use driftless_docker::{AgentUpdate, StrayProcesses};
use tracing_subscriber::{EnvFilter, fmt::format::JsonFields};

fn main() -> ExitCode {
    // It waits in every pod of several containers and must be as small as possible.
    if env::args_os().nth(1).is_some_and(|it| it == "pause") {
        return pause();
    }
    let environment: Environment = Arc::new(|name| env::var(name).ok());
    let screen = Screen::stderr(environment("NO_COLOR").as_deref(), environment("COLUMNS").as_deref());
    let in_containers = [
        ("proxy", proxy as fn(Vec<String>) -> ExitCode),
        ("proxy-ready", proxy_ready),
        ("proxy-drain", proxy_drain),
        ("proxy-counters", proxy_counters),
        (AgentUpdate::COMMAND, replace_agent),
        (StrayProcesses::COMMAND, end_processes),
    ];
    for (name, command) in in_containers {
        if env::args_os().nth(1).is_some_and(|word| word == name) {
            trace(
                Logging { format: LogFormat::Text, filter: "info" },
                environment("RUST_LOG"),
                &screen,
                None,
            );
            return command(env::args_os().skip(2).map(|word| word.to_string_lossy().into_owned()).collect());
        }
    }
    let invocation = match Invocation::parse(env::args_os()) {
        Ok(invocation) => invocation,
        Err(code) => return code,
    };
    let export = if invocation.is_agent() { LogExport::start(&environment) } else { Ok(None) };
    let (export, refused) = export.map_or_else(|error| (None, Some(error)), |export| (export, None));
    trace(invocation.logging(), environment("RUST_LOG"), &screen, export.as_ref());
    if let Some(error) = refused {
        tracing::warn!(%error, "the log is not sent to a collector");
    }
    let code = invocation.execute(environment, &screen);
    if let Some(export) = export {
        export.finish();
    }
    code
}

/// Logs to standard error, and to a collector if there is one. `RUST_LOG` overrides the filter.
fn trace(logging: Logging, wish: Option<String>, screen: &Screen, export: Option<&LogExport>) {
    let wish = wish.filter(|it| !it.is_empty());
    let filter = wish.as_ref().map_or_else(|| EnvFilter::try_new(logging.filter), EnvFilter::try_new);
    let is_wrong = filter.is_err();
    let writer = screen.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new(logging.filter)))
        .with_writer(move || writer.log_writer())
        .with_ansi(screen.colours() == Colours::On)
        .fmt_fields(JsonFields::new())
        .event_format(LogLine::new(logging.format).also(export.map(LogExport::taker)))
        .init();
    if is_wrong {
        tracing::warn!(RUST_LOG = wish, "the log filter makes no sense and is ignored");
    }
}
