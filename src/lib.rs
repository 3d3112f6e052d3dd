//! The `driftless` program: its command line and the proxy that it runs for Services.
//!
//! Everything below is a crate of its own under `crates/`; `docs/architecture.md` shows the house. Start reading at
//! `driftless_plan`, then `driftless_agent`.

pub mod cli;
pub mod proxy;
