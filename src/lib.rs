//! The `driftless` program: its command line and the proxy that it runs for Services.
//!
//! The rest are crates under `crates/`; `docs/architecture.md` describes them. Start reading at `driftless_plan`, then
//! `driftless_agent`.

pub mod cli;
pub mod proxy;
