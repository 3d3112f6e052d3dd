//! The `driftless` program: its command line.
//!
//! The rest are crates under `crates/`; `docs/architecture.md` describes them. Start reading at `driftless_plan`, then
//! `driftless_agent`.

pub mod cli;
