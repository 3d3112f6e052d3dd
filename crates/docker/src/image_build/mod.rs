//! Builds of images from the files of a commit, with progress. The files are sent as they are read; no folder is written on
//! the agent's side.
//!
//! The engine builds with `BuildKit` if it has it. `BuildKit` asks for what it needs over a session: a connection on which
//! the engine is the client and the agent the gRPC server. Other engines get the files as an archive, for the classic
//! builder.
//!
//! | module | content |
//! |---|---|
//! | `builder` | one build from the request to its end |
//! | `job` | the files, secrets and options of one build |
//! | `session` | the connection on which `BuildKit` asks, and the answers |
//! | `file_sync` | how it asks for files |
//! | `grpc`, `protobuf` | the encoding of both |
//! | `archive` | the files as an archive, for the classic builder |
//! | `output` | the messages of either builder: steps, the end of the output, the error |
//! | `classic_builder` | the check for instructions that the classic builder does not know |

mod archive;
mod builder;
mod classic_builder;
mod file_sync;
pub(crate) mod grpc;
mod job;
mod output;
pub(crate) mod protobuf;
mod session;

pub(crate) use builder::Builder;
pub use job::{BuildInputs, BuildSecrets};
