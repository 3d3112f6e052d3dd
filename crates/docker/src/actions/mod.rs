//! The steps of a plan as calls to the engine.

mod containers;
mod downward;
mod first_start;
mod hooks;
mod http_hooks;
