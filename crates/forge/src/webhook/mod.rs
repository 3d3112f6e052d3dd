//! Webhooks of forges: verifies a delivery and reads which references moved.
//!
//! Pure: bytes and headers in, a decision out. Nothing that a payload names is ever fetched; a delivery only says that
//! a reference may have moved.
//!
//! | file | content |
//! |---|---|
//! | `headers` | reading headers, and which forge sent them |
//! | `keys` | secrets, and signatures over raw bytes |
//! | `payload` | the few fields that are read, forge by forge |
//! | `notice` | the result of reading: event and moved references |
//! | `origin` | whether two URLs mean the same repository |
//! | `judge` | whether a delivery leads to a fetch |
//! | `sample` | a signed request to try a webhook with |

mod headers;
mod judge;
mod keys;
mod notice;
mod origin;
mod payload;
mod sample;

pub use judge::{DeliveryDecision, full_name, judge};
pub use keys::{InvalidKey, Key, Refusal, verify};
pub use notice::{EventKind, Moved, Notice};
pub use origin::Origin;
pub use payload::{Malformed, read};
pub use sample::{NO_COMMIT, Sample, SamplePush, body, event_headers, sample};
