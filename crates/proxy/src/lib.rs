//! The proxy of a Service, or of a Compose service's published ports: it listens on ports and forwards connections and
//! datagrams to the ready instances behind them (layer 4). It runs as `driftless proxy` in a container of its own, so it
//! goes on while the agent is stopped, upgraded or killed.
//!
//! Endpoints are the addresses that the agent reports as ready ([`Gate`]), as long as the engine's name server knows
//! them. Without reports they are the addresses that a name resolves to. An endpoint that will be stopped gets no new
//! traffic first, and keeps its connections until they end or its grace period passes. The proxy stores nothing, and its
//! memory is bounded: further connections are refused. A newer proxy in the same network namespace takes everything over
//! from it, so a change of the program or of its arguments ends no connection. The agent decides which Service needs a proxy, and with
//! which arguments ([`driftless_model::Forwards`]).
//!
//! | file | content |
//! |---|---|
//! | `balance` | the endpoints of a port: which one a client gets, counters |
//! | `counters` | connections and bytes of each target |
//! | `exchange` | the requests and answers of a connection of HTTP/1.1 |
//! | `flow` | one direction of a connection |
//! | `handover` | the protocol by which the next proxy takes over |
//! | `header` | the header of the PROXY protocol |
//! | `idle` | the end of connections without data |
//! | `limits` | connections at the same time, timeouts, lines in the log |
//! | `names` | a client of the engine's name server |
//! | `messages` | messages of the agent: reports, draining |
//! | `ready` | the endpoints that may get traffic |
//! | `request` | the beginning of an HTTP request |
//! | `route` | one port and its endpoints |
//! | `serve` | the ports of a proxy, shift after shift |
//! | `shift` | the time until the next proxy takes over |
//! | `tcp`, `udp` | connections and datagrams |
//! | `threads` | which thread carries a connection |
//!
//! ```
//! use std::{net::Ipv4Addr, sync::Arc};
//!
//! use driftless_model::Forwards;
//! use driftless_proxy::{Gate, Names, serve};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let forwards = Forwards::parse(["0/tcp=localhost:8080"]).unwrap();
//! let names = Names::new((Ipv4Addr::LOCALHOST, 53).into(), ["localhost"]);
//! let serving = serve(forwards, names, Arc::new(Gate::open()));
//! let ended = tokio::time::timeout(std::time::Duration::from_millis(10), serving).await;
//! assert!(ended.is_err(), "it forwards for ever");
//! # });
//! ```

mod balance;
mod counters;
mod exchange;
mod flow;
mod handover;
mod header;
mod idle;
mod limits;
mod messages;
mod names;
mod ready;
mod request;
mod route;
mod serve;
mod shift;
mod tcp;
mod threads;
mod udp;

pub use handover::{HANDOVER_SOCKET, Handover};
pub use messages::{Drained, ReportError, read_counters, report_socket, send_drain, send_report};
pub use names::{Names, name_server};
pub use ready::Gate;
pub use serve::{Error, serve, serve_on};
